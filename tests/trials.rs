//! Trials on real devices and file systems, through the command line as a user runs it. They need root.

mod rig;

use rig::{Rig, Trial};

/// A smaller variant of `examples/achilles`: 64 MiB written sequentially, a fault at the last block of every 8 MiB.
fn achilles(subject: &str, faults: &str, expect: &str) -> Trial {
    // xfs wants 300 MiB; a device under test by offset must end where the load ends.
    let memory = if subject == "device" { "64MiB" } else { "320MiB" };
    let files = if subject == "device" { "" } else { "  files: { count: 4, size: 16MiB }\n" };
    Trial::new(format!(
        "seed: 1\nstack:\n  - memory: {{ size: {memory} }}\n  - faults\nsubject: {subject}\nload:\n  \
         block_size: 4KiB\n  queue_depth: 32\n  total: 64MiB\n{files}{faults}expect: {{ {expect} }}\n"
    ))
}

fn at_last_blocks(effect: &str) -> String {
    format!(
        "faults:\n  - name: last\n    match: {{ operation: write, target: {{ last_block_of_every: 8MiB }} }}\n    \
         effect: {effect}\n"
    )
}

const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

#[test]
fn without_a_fault_nothing_fails_on_a_device_nor_on_any_file_system() {
    let rig = Rig::new();
    for subject in ["device", "ext4", "xfs", "btrfs"] {
        let run = rig.run(&achilles(subject, "", "hits: 0, failures: 0, errors: 0, unexplained: 0"));
        run.assert_passed();
        assert_eq!(run.count("failures"), 0, "{subject}");
    }
}

#[test]
fn a_flip_by_offset_on_a_device_fails_exactly_the_blocks_named() {
    let rig = Rig::new();
    let offsets: Vec<String> = (1..=8).map(|k| (k * (8 << 20) - 4096).to_string()).collect();
    let faults = format!(
        "faults:\n  - name: last\n    match: {{ operation: write, offset: [{}] }}\n    effect: bit_flip\n",
        offsets.join(", ")
    );
    let run = rig.run(&achilles("device", &faults, "hits: 8, failures: 8, silent: 8, reported: 0"));
    run.assert_passed();
    let blocks: Vec<u64> =
        run.failures().iter().map(|failure| failure["offset_bytes"].as_u64().expect("a number")).collect();
    assert_eq!(blocks, (1..=8).map(|k| k * (8 << 20) - 4096).collect::<Vec<u64>>());
}

#[test]
fn a_flip_by_content_is_found_in_its_file_and_block_on_a_device_ext4_and_xfs() {
    let rig = Rig::new();
    for subject in ["device", "ext4", "xfs"] {
        let run = rig.run(&achilles(
            subject,
            &at_last_blocks("bit_flip"),
            "hits: 8, failures: 8, silent: 8, reported: 0",
        ));
        run.assert_passed();
        let failures = run.failures();
        assert_eq!(failures.len(), 8, "{subject}");
        for failure in &failures {
            assert_eq!(failure["ways"][0]["what"]["kind"], "flipped_bits", "{subject}: {failure}");
            assert!(failure["cause"]["hit"].is_u64(), "attributed to its fault: {failure}");
        }
        if subject != "device" {
            // Every 8 MiB of 16 MiB files: the middle and the end of each of a, b, c, d.
            let places: Vec<(String, u64)> = failures
                .iter()
                .map(|failure| {
                    (
                        failure["object"].as_str().expect("a name").to_owned(),
                        failure["block"].as_u64().expect("one"),
                    )
                })
                .collect();
            let expected: Vec<(String, u64)> = ["a", "b", "c", "d"]
                .iter()
                .flat_map(|&file| [(file.to_owned(), 2047), (file.to_owned(), 4095)])
                .collect();
            assert_eq!(places, expected, "{subject}");
        }
    }
}

#[test]
fn btrfs_reports_a_flip_that_ext4_and_xfs_hand_out() {
    let rig = Rig::new();
    let run = rig.run(&achilles(
        "btrfs",
        &at_last_blocks("bit_flip"),
        "hits: 8, silent: 0, reported: 8, failures: \">= 8\"",
    ));
    run.assert_passed();
}

#[test]
fn btrfs_with_two_copies_repairs_a_flip() {
    let rig = Rig::new();
    let trial = Trial::new(
        "seed: 1\nstack:\n  - memory: { size: 512MiB }\nsubject: { btrfs: { mkfs: [\"-d\", \"dup\"] } }\nload:\n  \
         queue_depth: 8\n  total: 32MiB\n  files: { count: 1, size: 32MiB }\nfaults:\n  - name: first-copy\n    \
         match: { operation: write, target: { file: a, block: 7 } }\n    schedule: once\n    effect: bit_flip\n\
         expect: { hits: 1, failures: 0, repaired: 1 }\n",
    );
    rig.run(&trial).assert_passed();
}

#[test]
fn a_medium_error_fails_its_neighbours_too_and_the_report_says_why() {
    let rig = Rig::new();
    for subject in ["device", "ext4"] {
        let run = rig.run(&achilles(
            subject,
            &at_last_blocks("error"),
            "hits: \">= 8\", failures: \"> 8\", silent: 0, unexplained: 0",
        ));
        run.assert_passed();
        assert!(run.text.contains("merged"), "{subject}: the table explains the spread:\n{}", run.text);
    }
}

#[test]
fn a_slow_disk_fails_nothing_and_costs_throughput() {
    let rig = Rig::new();
    for subject in ["device", "ext4"] {
        let slow = rig.run(&achilles(
            subject,
            &at_last_blocks("{ delay: 200ms }"),
            "hits: 8, failures: 0, errors: 0, unexplained: 0",
        ));
        slow.assert_passed();
        // Eight faults of 200 ms that mostly cannot overlap: no timing of the machine, but of the fault itself.
        let longest = slow.json["performance"][0]["latency_ns"]["max"].as_u64().expect("a maximum");
        assert!(longest >= 200_000_000, "{subject}: {longest} ns");
    }
}

#[test]
fn the_same_seed_gives_the_same_ledger_on_ext4() {
    let rig = Rig::new();
    let trial = achilles("ext4", &at_last_blocks("bit_flip"), "failures: 8");
    let (first, second) = (rig.run(&trial), rig.run(&trial));
    first.assert_passed();
    assert_eq!(first.json["ledger_digest"], second.json["ledger_digest"]);
    assert!(first.json["ledger_digest"].is_string());
}

#[test]
fn reads_in_the_middle_of_the_load_are_verified_on_every_file_system() {
    let rig = Rig::new();
    for subject in FILE_SYSTEMS {
        let trial = Trial::new(format!(
            "seed: 3\nstack:\n  - memory: {{ size: 320MiB }}\nsubject: {subject}\nload:\n  pattern: random\n  \
             reads: 50%\n  queue_depth: 8\n  workers: 2\n  total: 64MiB\n  duplicates: 25%\n  flush_every: 256\n  \
             files: {{ count: 4, size: 16MiB }}\n"
        ));
        rig.run(&trial).assert_passed();
    }
}

#[test]
fn a_failing_mkfs_says_why_and_leaves_nothing() {
    let rig = Rig::new();
    let trial = Trial::new(
        "stack:\n  - memory: { size: 64MiB }\nsubject: { ext4: { mkfs: [\"--no-such-option\"] } }\nload: { total: 1MiB }\n",
    );
    let run = rig.run_raw(&trial, &[]);
    assert!(matches!(run.code, 3 | 4), "{}", run.text);
    assert!(run.text.contains("mkfs.ext4"), "{}", run.text);
    rig.assert_nothing_left();
}

#[test]
fn a_file_that_holds_a_file_system_is_refused_without_overwrite() {
    let rig = Rig::new();
    let image = rig.path("precious.img");
    rig.shell(&format!("truncate -s 64M {0} && mkfs.ext4 -q {0}", image.display()));
    let trial =
        Trial::new(format!("stack:\n  - file: {{ path: {} }}\nload: {{ total: 1MiB }}\n", image.display()));
    let before = rig.shell(&format!("sha256sum {}", image.display()));
    let refused = rig.run_raw(&trial, &[]);
    assert_eq!(refused.code, 2, "{}", refused.text);
    assert!(refused.text.contains("ext4") && refused.text.contains("--overwrite"), "{}", refused.text);
    assert_eq!(before, rig.shell(&format!("sha256sum {}", image.display())), "not a byte was written");
    assert_eq!(rig.run_raw(&trial, &["--overwrite"]).code, 0);
}

#[test]
fn out_of_space_below_the_stack_is_a_clear_message_and_leaves_nothing() {
    let rig = Rig::new();
    let small = rig.path("small");
    rig.shell(&format!("mkdir {0} && mount -t tmpfs -o size=24M none {0}", small.display()));
    let trial = Trial::new(format!(
        "stack:\n  - file: {{ path: {}/disk.img, size: 64MiB, direct: false }}\nsubject: device\nload: {{ total: 64MiB, block_size: 64KiB }}\n",
        small.display()
    ));
    let run = rig.run_raw(&trial, &[]);
    rig.shell(&format!("umount {}", small.display()));
    assert!(matches!(run.code, 1 | 3 | 4), "{}", run.text);
    assert!(run.text.to_lowercase().contains("space"), "{}", run.text);
    rig.assert_nothing_left();
}

/// Long enough to be interrupted in the middle.
fn endless(subject: &str) -> Trial {
    Trial::new(format!(
        "stack:\n  - memory: {{ size: 320MiB }}\nsubject: {subject}\nload:\n  pattern: random\n  duration: 120s\n  \
         files: {{ count: 2, size: 16MiB }}\n"
    ))
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing() {
    let rig = Rig::new();
    let (code, text) = rig.interrupt(&endless("ext4"), libc::SIGINT);
    assert_eq!(code, Some(130), "{text}");
    rig.assert_nothing_left();
}

#[test]
fn sigterm_in_the_middle_leaves_nothing() {
    let rig = Rig::new();
    let (code, text) = rig.interrupt(&endless("btrfs"), libc::SIGTERM);
    assert_eq!(code, Some(143), "{text}");
    rig.assert_nothing_left();
}

#[test]
fn after_kill_9_clean_removes_exactly_what_the_run_left() {
    let rig = Rig::new();
    let foreign = rig.foreign_loop();
    let (code, _) = rig.interrupt(&endless("ext4"), libc::SIGKILL);
    assert_eq!(code, None, "killed by the signal");
    assert!(!rig.leftovers().is_empty(), "a killed run leaves its mounts");
    let cleaned = rig.rotproof(&["clean"]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.text);
    rig.assert_nothing_left();
    assert!(foreign.is_attached(), "a loop device of somebody else stays");
}
