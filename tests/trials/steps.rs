//! How a subject comes up and goes down: made or found there, unmounted or killed.

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
    assert_eq!(wrong.code, 2, "{}", wrong.text);
    assert!(wrong.text.contains("mounting xfs"), "{}", wrong.text);
    rig.assert_nothing_left();
}
