//! Programs that know nothing of the guard, unchanged; and what they are told when a bit flips below them.

use std::path::Path;
use std::process::Command;

use crate::rig::{Rig, bytes};

/// Installs what is not there, as Debian packages.
fn need(program: &str, package: &str) {
    let is_there = || Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    if !is_there().expect("a shell").status.success() {
        let install =
            format!("apt-get update -qq && apt-get install -y -qq --no-install-recommends {package}");
        let done =
            Command::new("sh").args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive").output();
        assert!(done.expect("a shell").status.success(), "{package} cannot be installed");
    }
}

/// Runs a script, and gives what it said and whether it went well.
fn run(folder: &Path, script: &str) -> (bool, String) {
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("a shell");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn good(folder: &Path, script: &str) -> String {
    let (is_good, text) = run(folder, script);
    assert!(is_good, "{script}: {text}");
    text
}

#[test]
fn git_works_and_a_flip_in_its_pack_is_an_error() {
    need("git", "git");
    let rig = Rig::new();
    std::fs::write(rig.path("large"), bytes(1, 300_000)).expect("written");
    let script = "git init -q . && git config user.email a@b && git config user.name a \
        && for i in $(seq 20); do echo $i > file$i; git add . && git commit -qm $i; done \
        && git gc -q && git fsck --strict && git checkout -q HEAD~5 && git checkout -q - && git status --short";
    good(&rig.path(""), script);
    rig.assert_all_verified();
    let pack = good(&rig.path(""), "ls .git/objects/pack/*.pack");
    good(&rig.path(""), "sync");
    rig.flip_on_disk(pack.trim(), 10 * 4096 * 8);
    let (is_good, text) = run(&rig.path(""), "git fsck --full");
    assert!(!is_good && rig.store.counts.now().refused > 0, "{text}");
}

#[test]
fn a_database_works_in_both_of_its_modes_and_a_flip_is_an_error() {
    need("sqlite3", "sqlite3");
    let rig = Rig::new();
    for mode in ["delete", "wal"] {
        let script = format!(
            "sqlite3 {mode}.db \"pragma journal_mode={mode}; create table t(a integer primary key, b text);\" \
             && for i in $(seq 10); do sqlite3 {mode}.db \"begin; insert into t(b) select hex(randomblob(100)) from \
             (with recursive c(x) as (select 1 union all select x+1 from c where x<200) select x from c); \
             update t set b=b||'x' where a%7=0; commit;\"; done \
             && sqlite3 {mode}.db 'pragma integrity_check; select count(*) from t;'"
        );
        let text = good(&rig.path(""), &script);
        assert!(text.contains("ok\n2000"), "{text}");
    }
    rig.assert_all_verified();
    good(&rig.path(""), "sync");
    rig.flip_on_disk("delete.db", 20 * 4096 * 8 + 99);
    let (is_good, text) = run(&rig.path(""), "sqlite3 delete.db 'select sum(length(b)) from t;'");
    // SQLite calls EIO of a read a malformed database.
    assert!(!is_good && rig.store.counts.now().refused > 0, "{text}");
}

#[test]
fn archives_and_copies_come_back() {
    need("rsync", "rsync");
    let rig = Rig::new();
    let script = "mkdir tree && for i in $(seq 30); do head -c $((i * 3000)) /dev/zero | tr '\\0' $((i % 10)) > tree/f$i; done \
        && ln tree/f1 tree/link && truncate -s 1M tree/sparse \
        && tar cf a.tar tree && mkdir out && tar xf a.tar -C out && diff -r tree out/tree \
        && rsync -aH tree/ copy/ && rsync -aHc --itemize-changes tree/ copy/ > changes && test ! -s changes \
        && cp -a --sparse=always tree third && diff -r tree third";
    good(&rig.path(""), script);
    rig.assert_all_verified();
}

#[test]
fn a_compiler_works() {
    need("cc", "gcc");
    let rig = Rig::new();
    let script = "printf '#include <stdio.h>\\nint main(void) { puts(\"built\"); return 0; }\\n' > a.c \
        && cc -O2 -o a a.c && ./a";
    assert_eq!(good(&rig.path(""), script), "built\n");
    rig.assert_all_verified();
}
