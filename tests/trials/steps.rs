//! How a subject comes up and goes down: made or found there, unmounted or killed.

use serde_json::Value;

use super::rig::{Rig, Trial};

/// Programs that write a file each way, and look what is left of both.
fn files(subject: &str, stop: &str, check: &str) -> Trial {
    Trial::new(format!(
        "stack: [ memory: {{ size: 320MiB }}, faults ]\nsubject: {subject}\nstop: {stop}\nload:\n  command:\n    \
         run: 'head -c 65536 /dev/zero | tr \"\\\\0\" y > durable && sync durable . && cp durable volatile'\n    check: '{check}'\n\
         expect: {{ exit: 0, check_exit: 0 }}\n"
    ))
}

#[test]
fn a_subject_that_is_killed_has_what_was_flushed_and_one_that_is_unmounted_has_all() {
    let rig = Rig::new();
    let (whole, only_durable) = ("cmp durable volatile", "test -s durable && ! cmp durable volatile");
    for subject in ["ext4", "xfs", "btrfs", "{ guard: { over: ext4 } }", "{ machine: { file_system: ext4 } }"]
    {
        rig.run(&files(subject, "unmount", whole)).assert_passed();
        rig.run(&files(subject, "kill", only_durable)).assert_passed();
    }
    // And the check can fail.
    assert_eq!(rig.run(&files("ext4", "kill", whole)).code, 1);
    assert_eq!(rig.run(&files("ext4", "unmount", only_durable)).code, 1);
    rig.assert_nothing_left();
}

#[test]
fn a_load_of_blocks_loses_nothing_to_a_kill_since_it_flushes_at_its_end() {
    let rig = Rig::new();
    for (subject, more) in [
        ("device", ""),
        ("ext4", "buffered: true, "),
        ("xfs", ""),
        ("btrfs", ""),
        ("{ guard: { over: xfs } }", ""),
        ("{ machine: { file_system: ext4 } }", ""),
    ] {
        let files = if subject == "device" { "" } else { "files: { count: 2, size: 1MiB }, " };
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 320MiB }}, faults ]\nsubject: {subject}\nstop: kill\n\
             load: {{ {more}{files}reads: 20%, requests: 300 }}\n"
        )));
        run.assert_passed();
        assert_eq!(run.count("failures"), 0, "{subject}: {}", run.text);
    }
    rig.assert_nothing_left();
}

#[test]
fn a_trial_on_what_exists_finds_it_and_a_snapshot_of_it_stays_as_it_was() {
    let rig = Rig::new();
    let image = rig.path("image");
    let leaf = |more: &str| format!("stack: [ file: {{ path: {}{more} }}, faults ]\n", image.display());
    let made = rig.run(&Trial::new(format!(
        "{}subject: ext4\nload: {{ command: {{ run: 'echo old > kept' }} }}\n",
        leaf(", size: 64MiB")
    )));
    made.assert_passed();
    let before = std::fs::read(&image).expect("made");
    let load = "load: { files: { count: 2, size: 1MiB }, requests: 200, pattern: random }\n";
    let found = rig.run(&Trial::new(format!(
        "{}subject: {{ ext4: {{ existing: true }} }}\n{load}",
        leaf(", snapshot: true")
    )));
    found.assert_passed();
    assert!(!found.repeatable().contains("mkfs.ext4"), "nothing was made");
    let kept = rig.run(&Trial::new(format!(
        "{}subject: {{ ext4: {{ existing: true }} }}\nload: {{ command: {{ run: 'grep -q old kept' }} }}\nexpect: {{ exit: 0 }}\n",
        leaf(", snapshot: true")
    )));
    kept.assert_passed();
    assert!(std::fs::read(&image).expect("there") == before, "a snapshot only reads");
    // Written to it is only with leave; it then holds what was there and what the load made.
    let copy = rig.path("copy");
    std::fs::copy(&image, &copy).expect("a copy is not ours");
    let existing = format!(
        "stack: [ file: {{ path: {} }}, faults ]\nsubject: {{ ext4: {{ existing: true }} }}\n{load}",
        copy.display()
    );
    let refused = rig.run(&Trial::new(existing.clone()));
    assert_eq!(refused.code, 2, "{}", refused.text);
    rig.run_raw(&Trial::new(existing), &["--overwrite"]).assert_passed();
    let wrong = rig.run(&Trial::new(format!(
        "{}subject: {{ xfs: {{ existing: true }} }}\n{load}",
        leaf(", snapshot: true")
    )));
    assert_eq!(wrong.code, 3, "nothing was judged: {}", wrong.text);
    assert!(wrong.text.contains("mounting xfs"), "{}", wrong.text);
    rig.assert_nothing_left();
}

#[test]
fn a_subject_that_dies_with_the_power_comes_back_with_what_it_had_flushed() {
    let rig = Rig::new();
    for subject in ["ext4", "{ machine: { file_system: ext4 } }"] {
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 320MiB }}, write_cache, faults ]\nsubject: {subject}\nstop: kill_with_power\n\
             load: {{ files: {{ count: 2, size: 1MiB }}, reads: 20%, requests: 300, flush_every: 20 }}\n\
             faults: [ \"write, nth=150, during=run: power_cut(keeps=none)\" ]\n\
             expect: {{ failures: any, errors: \">= 10\", silent: 0, injections: 1 }}\n",
        )));
        run.assert_passed();
        // What was refused at the end was never promised; all the rest is right.
        let kind_is_told = |way: &Value| {
            matches!(way["what"]["kind"].as_str(), Some("unwritable" | "unreadable" | "unflushed"))
        };
        let wrong = run
            .failures()
            .into_iter()
            .find(|failure| !failure["ways"].as_array().is_some_and(|ways| ways.iter().all(kind_is_told)));
        assert!(wrong.is_none(), "{subject}: {wrong:#?}");
    }
    rig.assert_nothing_left();
}

#[test]
fn the_states_of_the_moment_at_which_a_guest_was_killed_have_all_that_it_acknowledged() {
    let rig = Rig::new();
    let trial = |sync: &str| {
        Trial::new(format!(
            "stack: [ memory: {{ size: 64MiB }}, faults, record ]\nsubject: {{ machine: {{ file_system: ext4, holds_dirty: true }} }}\n\
             stop: kill_with_power\nfaults: [ \"write, nth=60, during=run: power_cut\" ]\nload:\n  command:\n    run: |\n      \
             n=0\n      while n=$((n + 1)) && head -c 8192 /dev/zero > {{target}}/file$n{sync}; do\n        \
             \"$ROTPROOF\" mark \"file $n\"\n      done\n      sync {{target}}; test $n -gt 2\n    check: |\n      \
             for n in $(sed -n 's/^file //p' \"$ROTPROOF_MARKS\"); do test -s {{target}}/file$n || exit 1; done\n\
             crash: {{ states: 40, at: kill }}\nexpect: {{ unknown: any, states: \">= 1\", failing_states: any, exit: any, check_exit: any }}\n"
        ))
    };
    let run = rig.run(&trial(" && sync {target}/file$n {target}"));
    run.assert_passed();
    assert_eq!(
        (run.json["counts"]["failing_states"].as_u64(), run.count("injections")),
        (Some(0), 1),
        "{}",
        run.text
    );
    rig.assert_nothing_left();
}

/// A canary: a store that acknowledges its fourth file before that is durable, and makes it durable right after. Nothing but a power loss
/// at that very moment shows it.
#[test]
fn a_store_that_is_wrong_at_one_moment_only_is_caught_where_the_power_goes_with_that_mark() {
    let rig = Rig::new();
    let killed_at = |mark: &str| {
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 64MiB }}, faults, record ]\nsubject: ext4\nstop: kill_with_power\n\
             faults: [ 'any, mark={mark}, during=run: power_cut' ]\nload:\n  command:\n    run: |\n      \
             for n in 1 2 3 4 5 6; do\n        \
             head -c 8192 /dev/zero | tr '\\0' $n > {{target}}/file$n\n        \
             test $n != 4 || \"$ROTPROOF\" mark \"file $n is durable\"\n        \
             sync {{target}}/file$n {{target}} || exit 1\n        \
             test $n = 4 || \"$ROTPROOF\" mark \"file $n is durable\"\n      done\n    check: |\n      \
             for n in $(sed -n 's/^file \\([0-9]\\) is durable$/\\1/p' \"$ROTPROOF_MARKS\"); do\n        \
             test \"$(cat {{target}}/file$n | tr -d -c $n | wc -c)\" = 8192 || exit 1\n      done\n\
             crash: {{ states: 60, at: kill }}\n\
             expect: {{ unknown: any, states: \">= 1\", failing_states: any, exit: any, check_exit: any }}\n"
        )));
        run.assert_passed();
        (run.count("failing_states"), run)
    };
    for mark in ["2", "\"file 2 is durable\"", "5"] {
        let (failing, run) = killed_at(mark);
        assert_eq!(failing, 0, "{mark}: {}", run.text);
    }
    let (failing, run) = killed_at("\"file 4 is durable\"");
    assert!(failing > 0, "{}", run.text);
    let witness = &run.json["crash"]["witnesses"][0];
    assert!(witness["story"].as_str().is_some_and(|story| story.contains("file 4 is durable")), "{witness}");
    assert!(killed_at("4").0 > 0);
    rig.assert_nothing_left();
}

#[test]
fn a_guest_keeps_nobody_elses_mounts() {
    let rig = Rig::new();
    let trial = Trial::new(
        "stack: [ memory: { size: 320MiB } ]\nsubject: { machine: { file_system: ext4 } }\n\
         load: { files: { count: 1, size: 1MiB }, duration: 60s, pattern: random, reads: 50% }\n",
    );
    let mut looked = 0;
    let folder = rig.path("state").display().to_string();
    rig.while_it_runs(&trial, |_| {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let text = |pid: &std::path::Path, file| std::fs::read(pid.join(file)).unwrap_or_default();
        for pid in std::fs::read_dir("/proc").expect("there").flatten().map(|entry| entry.path()) {
            let exe = std::fs::read_link(pid.join("exe")).unwrap_or_default();
            if exe.ends_with("linux.uml") {
                looked += 1;
                let mounts = String::from_utf8_lossy(&text(&pid, "mounts")).into_owned();
                assert!(!mounts.contains(&folder), "{mounts}");
            }
        }
    });
    assert!(looked > 0, "no guest was seen");
    rig.assert_nothing_left();
}
