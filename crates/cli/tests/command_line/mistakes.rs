//! The mistakes of a first hour: each is answered by what to do instead, with exit code 2, and nothing runs.

use std::path::Path;
use std::process::{Command, Output};

fn rotproof(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rotproof"))
        .args(arguments)
        .current_dir(folder)
        .env("ROTPROOF_STATE_DIR", folder.join("state"))
        .env("NO_COLOR", "1")
        .output()
        .expect("the command starts")
}

/// What was said, on one line: messages break where a terminal ends.
fn told(output: &Output) -> String {
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let words = text.split_whitespace().filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}

const LEAF: &str = "stack: [memory: { size: 64MiB }]\n";

#[test]
fn in_a_trial_file() {
    let mistakes = [
        ("", "there is nothing in t.yaml help: describe at least a stack"),
        ("hello world\n", "where keys such as stack, load and faults belong"),
        ("load: { pattern: random }\n", "help: begin with a leaf: - memory: { size: 256MiB }"),
        ("stack:\n\t- memory: { size: 1MiB }\n", "YAML indents with spaces; a line here begins with a tab"),
        ("stack: { memory: { size: 64MiB } }\n", "such as `[ memory: { size: 1GiB }, faults ]`, belongs"),
        ("stack: memory\n", "where a list of devices, bottom to top,"),
        ("stack: [memory: { size: 64 }]\n", "a number alone is bytes; did you mean 64MiB or 64GiB?"),
        ("stack: [memory: { size: 10XB }]\n", "write for example 4096, 4KiB or 1.5GiB"),
        ("stack: [faults, memory: { size: 1MiB }]\n", "a stack begins with a leaf, and faults is none"),
        ("stack: [memory: { size: 1MiB }, memory: { size: 1MiB }]\n", "under concat, stripe or mirror"),
        ("[global]\nrw=read\nbs=4k\n", "this looks like a job file of fio; `rotproof import FILE`"),
        ("faults: ['read: bitflip']\n", "did you mean `bit_flip`?"),
        ("faults: ['read, size>=4KiB: zeros']\n", "known are read, write, flush"),
        ("faults: ['read: delay(2ms..10ms)']\n", "write for example 250us, 10ms, 1.5s or 2min"),
        ("faults: ['write: error(ENOSP)']\n", "did you mean `ENOSPC`?"),
        ("faults: ['on=left, read: zeros']\n", "no place for faults is called `left`"),
        ("faults: ['read: bit_flip(bit=9)']\n", "its bits are 0 to 7"),
        ("load: { reads: 120% }\n", "is not between 0% and 100%"),
        ("expect: { slient: 0 }\n", "did you mean `silent`?"),
        ("expect: { check_exit: '!= 0' }\n", "write for example 64, \">= 1\""),
        ("expect: { gates: [{ phase: run, p99: 1ms }] }\n", "write for example \"<= 5ms\""),
        (
            "runtime: simulated\nsubject: ext4\n",
            "take `subject: raw` or `subject: fat`, or `runtime: io_uring`",
        ),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for (text, wanted) in mistakes {
        let has_stack = text.is_empty()
            || ["stack", "hello", "load: { pattern", "[global]"].iter().any(|start| text.starts_with(start));
        let whole = if has_stack { text.to_owned() } else { LEAF.to_owned() + text };
        std::fs::write(folder.path().join("t.yaml"), &whole).expect("written");
        let output = rotproof(folder.path(), &["run", "t.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{whole}{}", told(&output));
        assert!(told(&output).contains(wanted), "{whole}wanted: {wanted}\nfound: {}", told(&output));
        assert!(!folder.path().join("results").exists(), "nothing runs");
    }
}

#[test]
fn on_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("t.yaml"), LEAF).expect("written");
    for (arguments, wanted) in [
        (&["run"][..], "the following required arguments were not provided"),
        (&["run", "nothere.yaml"], "cannot read nothere.yaml: no such file or directory"),
        (&["run", "."], "give a trial file that you may read"),
        (&["run", "t.yaml", "--sede", "4"], "a similar argument exists: '--seed'"),
        (&["run", "t.yaml", "--set", "subjcet=ext4"], "did you mean `subject`?"),
        (&["run", "t.yaml", "--set", "subject=ext5"], "did you mean `ext4`?"),
        (&["run", "t.yaml", "--matrix", "seed"], "write for example subject=ext4,xfs or seed=1..10"),
        (&["run", "t.yaml", "--matrix", "seed=1-3"], "looks like a range, which is 1..3"),
        (&["load", "memory:64"], "did you mean `memory:64MiB`?"),
        (&["load", "memory:64MiB", "--rw=randwrit"], "a similar value exists: 'randwrite'"),
        (&["load", "memory:64MiB", "--bs=5k"], "give a power of two from 4KiB to 4MiB"),
        (&["serve", "t.yaml", "--as", "nbdd"], "did you mean `nbd`?"),
        (&["report", "results/nothere"], "name one that `rotproof run` has written"),
    ] {
        let output = rotproof(folder.path(), arguments);
        let code = output.status.code();
        assert!(matches!(code, Some(2 | 3)), "{arguments:?}: {code:?} {}", told(&output));
        assert!(told(&output).contains(wanted), "{arguments:?}\nwanted: {wanted}\nfound: {}", told(&output));
    }
}
