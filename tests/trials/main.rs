//! Trials on real devices and file systems, through the command line as a user runs it. They need root.

mod fat;
mod page_cache;
mod rig;

use rig::{Rig, Trial};
use rotproof_record::{Interval, MarkKind, RunFolder};

/// A smaller variant of `examples/achilles`: 64 MiB written sequentially, a fault at the last block of every 8 MiB.
fn achilles(subject: &str, faults: &str, expect: &str) -> Trial {
    // xfs wants 300 MiB.
    let memory = if subject == "device" { "64MiB" } else { "320MiB" };
    // What is written again, ext4 and the kernel may merge.
    let files = match subject {
        "device" => "",
        _ if faults.contains("error") => "  prefill: true\n  files: { count: 4, size: 16MiB }\n",
        _ => "  files: { count: 4, size: 16MiB }\n",
    };
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
fn a_fault_by_extent_hits_exactly_that_block_of_that_file_on_ext4_and_xfs() {
    let rig = Rig::new();
    for (subject, during) in [("ext4", "check"), ("xfs", "[run, check]")] {
        let trial = Trial::new(format!(
            "seed: 2\nstack: [ memory: {{ size: 320MiB }} ]\nsubject: {subject}\nload:\n  pattern: random\n  reads: 50%\n  \
             prefill: true\n  total: 4MiB\n  files: {{ count: 3, size: 4MiB }}\nfaults:\n  - name: placed\n    match: {{ \
             operation: read, target: {{ file: b, block: 77, by: extent }} }}\n    effect: bit_flip\n    during: {during}\n\
             expect: {{ failures: 1, failing_files: 1, hits: \">= 1\", silent: \">= 1\" }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        let failures = run.failures();
        assert_eq!(
            (failures[0]["object"].as_str(), failures[0]["block"].as_u64()),
            (Some("b"), Some(77)),
            "{subject}"
        );
        let ledger = run.file("ledger.jsonl").to_string_lossy().into_owned();
        let again = rig.run_raw(&trial, &["--replay", &ledger]);
        again.assert_passed();
        assert_eq!(again.json["ledger_digest"], run.json["ledger_digest"], "{subject}");
    }
}

#[test]
fn a_block_of_a_file_without_a_place_ends_the_trial_with_a_message() {
    let rig = Rig::new();
    // Only a part of the files is ever written.
    let trial = Trial::new(
        "stack: [ memory: { size: 64MiB } ]\nsubject: ext4\nload: { total: 1MiB, files: { count: 2, size: 4MiB } }\n\
         faults: [ \"name=placed, read, target=file(b, block=1023, by=extent), during=check: error\" ]\n",
    );
    let run = rig.run_raw(&trial, &[]);
    assert!(run.code > 1, "{}", run.text);
    let text = run.text.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(text.contains("a hole") && text.contains("`placed`"), "{text}");
    rig.assert_nothing_left();
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
    // btrfs reads the first copy. Which one is written first, and so meets the fault, is a race of two threads, so four
    // blocks are hit: that all of their bad copies are second ones is out of the question.
    let trial = Trial::new(
        "seed: 1\nstack:\n  - memory: { size: 512MiB }\nsubject: { btrfs: { mkfs: [\"-d\", \"dup\"] } }\nload:\n  \
         queue_depth: 8\n  total: 32MiB\n  files: { count: 1, size: 32MiB }\nfaults:\n  \
         - 'write, target=file(a, block=7), once: bit_flip'\n  \
         - 'write, target=file(a, block=1007), once: bit_flip'\n  \
         - 'write, target=file(a, block=3007), once: bit_flip'\n  \
         - 'write, target=file(a, block=5007), once: bit_flip'\n\
         expect: { hits: 4, failures: 0, repaired: \">= 1\" }\n",
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
fn too_little_room_for_the_file_below_the_stack_is_said_before_anything_is_made() {
    let rig = Rig::new();
    let small = rig.small_folder("24M");
    let trial = Trial::new(format!(
        "stack:\n  - file: {{ path: {}/disk.img, size: 64MiB, direct: false }}\nload: {{ total: 1MiB }}\n",
        small.path().display()
    ));
    let run = rig.run_raw(&trial, &[]);
    assert_eq!(run.code, 3, "{}", run.text);
    assert!(run.text.contains("free"), "{}", run.text);
    assert_eq!(small.path().read_dir().expect("readable").count(), 0);
}

#[test]
fn a_disk_that_others_fill_meanwhile_ends_the_trial_with_a_clear_message() {
    let rig = Rig::new();
    for subject in ["raw", "ext4"] {
        let small = rig.small_folder("96M");
        let room = small.path().display();
        // The file is there already and sparse, and the room that it lacks is somebody else's.
        rig.shell(&format!("truncate -s 64M {room}/disk.img; head -c 70M /dev/zero > {room}/others"));
        let trial = Trial::new(format!(
            "stack:\n  - file: {{ path: {room}/disk.img, direct: false }}\nsubject: {subject}\nload:\n  \
             block_size: 64KiB\n  total: 48MiB\n"
        ));
        let run = rig.run_raw(&trial, &[]);
        assert_eq!(run.code, 3, "{}", run.text);
        assert!(run.text.contains("disk.img") && run.text.contains("space"), "{}", run.text);
        rig.assert_nothing_left();
    }
}

#[test]
fn a_backing_file_that_vanishes_ends_the_trial_with_a_clear_message() {
    let rig = Rig::new();
    let image = rig.path("disk.img");
    for (subject, cruelty, word) in
        [("raw", "rm", "deleted"), ("ext4", "truncate -s 1M", "cut"), ("device", "rm", "deleted")]
    {
        let trial = Trial::new(format!(
            "stack:\n  - file: {{ path: {}, size: 64MiB }}\nsubject: {subject}\nload:\n  pattern: random\n  \
             reads: 50%\n  duration: 120s\n",
            image.display()
        ));
        let _ = std::fs::remove_file(&image);
        let (code, text) = rig.disturb(&trial, &format!("{cruelty} {}", image.display()));
        assert_eq!(code, Some(3), "{subject}: {text}");
        assert!(text.contains("disk.img") && text.contains(word), "{subject}: {text}");
        rig.assert_nothing_left();
    }
}

#[test]
fn the_same_seed_under_virtual_time_gives_the_same_results_to_the_byte() {
    let rig = Rig::new();
    let trial = |seed: u64| {
        Trial::new(format!(
            "seed: {seed}\nruntime: simulated\nstack:\n  - disk: {{ profile: ssd, size: 64MiB }}\n  - faults\n  - stats\n\
             load:\n  pattern: random\n  reads: 40%\n  block_size: 16KiB\n  queue_depth: 16\n  workers: 3\n  \
             requests: 20000\n  duplicates: 20%\n  flush_every: 100\nfaults:\n  - \"write, every=97: bit_flip\"\n  \
             - \"read, offset=1MiB..2MiB, after=10: error\"\n  - \"every=501: delay(2ms)\"\n  \
             - \"write, every=1009: lost_write\"\nexpect: {{ failures: \"> 0\", hits: \"> 100\", silent: \"> 0\" }}\n"
        ))
    };
    let (first, second, other) = (rig.run(&trial(7)), rig.run(&trial(7)), rig.run(&trial(8)));
    first.assert_passed();
    assert_eq!(first.repeatable(), second.repeatable());
    assert_ne!(first.repeatable(), other.repeatable());
}

#[test]
fn a_replayed_ledger_injects_the_same_faults_again_on_every_subject() {
    let rig = Rig::new();
    // Where two workers write at once, a file system may lay their files out in another way each time.
    for (subject, workers) in [("raw", 2), ("ext4", 1)] {
        let trial = Trial::new(format!(
            "seed: 5\nstack: [ memory: {{ size: 64MiB }} ]\nsubject: {subject}\n\
             load: {{ total: 16MiB, block_size: 16KiB, workers: {workers} }}\n\
             faults:\n  - \"write, target=unique(400), probability=50%: noise\"\n  \
             - \"name=late, read, during=check, target=unique(300), every=3: bit_flip(random=3)\"\n\
             expect: {{ failures: \"> 0\", silent: \"> 0\" }}\n"
        ));
        let first = rig.run(&trial);
        first.assert_passed();
        let ledger = first.file("ledger.jsonl").to_string_lossy().into_owned();
        let again = rig.run_raw(&trial, &["--replay", &ledger]);
        again.assert_passed();
        assert_eq!(again.json["ledger_digest"], first.json["ledger_digest"], "{subject}");
        assert_eq!(again.json["replay"]["missing"], serde_json::json!([]));
        assert_eq!(again.json["replay"]["recorded"], first.json["counts"]["hits"]);
        assert!(again.text.contains("recorded faults; the ledger is the same"), "{}", again.text);

        // With half of its lines taken out, the other half comes again and nothing else.
        let text = std::fs::read_to_string(&ledger).expect("a ledger");
        let half: String = text.lines().step_by(2).map(|line| format!("{line}\n")).collect();
        let edited = rig.path(&format!("{subject}.jsonl"));
        std::fs::write(&edited, &half).expect("written");
        let fewer = rig.run_raw(&trial, &["--replay", &edited.to_string_lossy()]);
        fewer.assert_passed();
        assert_eq!(fewer.count("hits"), half.lines().count() as u64);
        assert_eq!(fewer.json["replay"]["is_same_ledger"], true, "{}", fewer.text);
    }
}

#[test]
fn a_ledger_that_the_plan_cannot_have_written_is_refused() {
    let rig = Rig::new();
    let trial = Trial::new(
        "stack: [ memory: { size: 1MiB } ]\nload: { total: 1MiB }\nfaults: [ \"write, name=rot, offset=64KiB..1MiB, \
         every=9: zeros\" ]\nexpect: { failures: \"> 0\", silent: \"> 0\" }\n",
    );
    let run = rig.run(&trial);
    let text = std::fs::read_to_string(run.file("ledger.jsonl")).expect("a ledger");
    let ledger = rig.path("edited.jsonl");
    let first = text.lines().next().expect("a record");
    for (from, to, complaint) in [
        ("\"effect\":\"zeros\"", "\"effect\":\"ones\"", "cannot have done ones; its effect is zeros"),
        ("\"rule\":0", "\"rule\":3", "rule number 3 (from 0), but the plan has 1"),
        ("\"name\":\"rot\"", "\"name\":\"rust\"", "rule number 0 (from 0) of the plan is `rot`"),
        ("\"operation\":\"write\"", "\"operation\":\"read\"", "`rot` hits no read in the phase run"),
        ("\"number\":1", "\"number\":0", "the first visit is number 1"),
        ("\"phase\":\"run\"", "\"phase\":\"walk\"", "unknown variant `walk`"),
    ] {
        let edited = first.replace(from, to);
        assert_ne!(edited, first);
        std::fs::write(&ledger, edited).expect("written");
        let refused = rig.run_raw(&trial, &["--replay", &ledger.to_string_lossy()]);
        assert_eq!(refused.code, 2, "{}", refused.text);
        let text = refused.text.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert!(text.contains(complaint) && text.contains("edited.jsonl"), "{text}");
    }
    std::fs::write(&ledger, format!("{text}{text}")).expect("written");
    let refused = rig.run_raw(&trial, &["--replay", &ledger.to_string_lossy()]);
    assert!(refused.text.contains("must rise"), "{}", refused.text);
}

/// What the load and the check say of a fault, of whose nature they know nothing: kinds of failing blocks and how many.
#[test]
fn the_forensics_name_every_effect_from_the_data_alone() {
    let rig = Rig::new();
    let places = "offset=1MiB|3MiB";
    for (fault, kinds) in [
        (format!("write, {places}: bit_flip(byte=9, bit=2)"), "flipped_bits 2"),
        (format!("write, {places}: bit_flip(random=7)"), "flipped_bits 2"),
        (format!("write, {places}: bit_flip(byte=100, bit=3, burst=20)"), "flipped_bits 2"),
        (format!("write, {places}: zeros"), "zeroed 2"),
        (format!("write, {places}: ones"), "ones 2"),
        (format!("write, {places}: noise"), "noise 2"),
        (format!("write, {places}: lost_write"), "stale 2"),
        (format!("write, {places}: misdirected_write(to=0)"), "foreign 1 stale 2"),
        (format!("read, {places}: stale_read"), "stale 2"),
        (format!("write, {places}: torn_write"), "torn 2"),
        (format!("write, {places}: torn_write(new=last, sectors=3)"), "torn 2"),
        (format!("write, {places}: torn_write(scattered)"), "torn 2"),
        (format!("write, {places}: shorn_write"), "torn 2"),
        (format!("write, {places}: medium_error"), "unwritable 2"),
        (format!("read, {places}: medium_error"), "unreadable 2"),
        (format!("write, {places}: error(ETIMEDOUT, after)"), "unwritable 2"),
        (format!("write, {places}: no_space"), "unwritable 2"),
        ("write, offset=7MiB: read_only".to_owned(), "unwritable 256"),
        (format!("read, {places}: error"), "unreadable 2"),
        (format!("{places}: delay(exponential=1ms)"), ""),
        ("write, offset=1MiB..: bandwidth(100MiB)".to_owned(), ""),
        (format!("write, {places}: hang(2s)"), ""),
    ] {
        let trial = Trial::new(format!(
            "seed: 3\nruntime: simulated\nstack: [ memory: {{ size: 8MiB }} ]\nload: {{ total: 8MiB, prefill: true, \
             queue_depth: 4 }}\nfaults: [ \"{fault}\" ]\nexpect: {{ failures: \">= 0\", silent: \">= 0\" }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        assert!(run.count("hits") > 0, "{fault}");
        let found = run.json["failures"]["by_kind"].as_object().expect("a map");
        let found: Vec<String> = found.iter().map(|(kind, number)| format!("{kind} {number}")).collect();
        assert_eq!(found.join(" "), kinds, "{fault}:\n{}", run.text);
    }
}

#[test]
fn a_bad_place_heals_when_it_is_rewritten_as_long_as_there_are_spares() {
    let rig = Rig::new();
    let unreadable = |fault: &str| {
        // Read at random, then overwritten in order, then checked.
        let trial = Trial::new(format!(
            "runtime: simulated\nstack: [ memory: {{ size: 1MiB }} ]\nload: {{ total: 1MiB, prefill: true }}\n\
             faults: [ \"{fault}\" ]\nexpect: {{ failures: \">= 0\" }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        run.json["failures"]["by_kind"]
            .get("flipped_bits")
            .map_or(0, |number| number.as_u64().expect("a number"))
    };
    let fault = "write, offset=64KiB..128KiB, during=prefill";
    assert_eq!(unreadable(&format!("{fault}, sticky: bit_flip")), 16);
    assert_eq!(unreadable(&format!("{fault}, until_rewritten: bit_flip")), 0);
    assert_eq!(unreadable(&format!("{fault}, until_rewritten=5: bit_flip")), 11);
}

#[test]
fn a_checker_that_must_fail_does() {
    let rig = Rig::new();
    // Everything about this trial is as in one that passes but for one bit.
    let canary = |faults: &str| {
        Trial::new(format!(
            "stack:\n  - memory: {{ size: 16MiB }}\nload: {{ total: 16MiB }}\n{faults}expect: {{ failures: 0 }}\n"
        ))
    };
    assert_eq!(rig.run_raw(&canary(""), &[]).code, 0);
    let sick = rig.run_raw(&canary("faults: [\"write, offset=5MiB, once: bit_flip\"]\n"), &[]);
    assert_eq!(sick.code, 1, "{}", sick.text);
    assert_eq!(sick.json["verdict"], "fail");
    assert!(sick.text.contains("FAIL"), "{}", sick.text);
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
    let rig = Rig::alone();
    let foreign = rig.foreign_loop();
    let (code, _) = rig.interrupt(&endless("ext4"), libc::SIGKILL);
    assert_eq!(code, None, "killed by the signal");
    assert!(!rig.leftovers().is_empty(), "a killed run leaves its mounts");
    let cleaned = rig.rotproof(&["clean"]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.text);
    rig.assert_nothing_left();
    assert!(foreign.is_attached(), "a loop device of somebody else stays");
}

/// A smaller variant of the `dedup` trials in `examples/achilles`: faults below a layer that stores equal blocks once.
fn deduplicated(faults: &str, expect: &str) -> Trial {
    Trial::new(format!(
        "seed: 1\nstack:\n  - memory: {{ size: 64MiB }}\n  - faults\n  - dedup\nsubject: device\nload:\n  \
         queue_depth: 32\n  duplicates: 17.2%\n{faults}expect: {{ {expect} }}\n"
    ))
}

fn flips_at(target: &str) -> String {
    format!("faults:\n  - match: {{ operation: write, target: {target} }}\n    effect: bit_flip\n")
}

#[test]
fn a_deduplicating_device_without_a_fault_fails_nothing_and_stores_what_is_distinct() {
    let rig = Rig::new();
    let run = rig.run(&deduplicated("", "hits: 0, failures: 0, errors: 0, unexplained: 0"));
    run.assert_passed();
    let blocks = (64 << 20) / 4096;
    let layer = &run.json["layers"][0];
    assert_eq!(layer["logical_blocks"], blocks, "{layer}");
    let content = &run.json["content"];
    assert_eq!(content["written_blocks"], blocks, "{content}");
    assert_eq!(layer["physical_blocks"], content["distinct_contents"], "{layer}");
    let duplicates = content["duplicates"].as_f64().expect("a share");
    assert!((duplicates - 0.172).abs() < 0.01, "{content}");
}

#[test]
fn one_bad_block_below_deduplication_reaches_every_place_with_its_content() {
    let rig = Rig::new();
    for (target, failures_min) in [("{ last_block_of_every: 4MiB }", 17), ("{ most_duplicated: 16 }", 320)] {
        let expect = "hits: 16, silent: 16, reported: 0, unexplained: 0, failures: \"> 16\"";
        let run = rig.run(&deduplicated(&flips_at(target), expect));
        run.assert_passed();
        assert!(run.count("failures") >= failures_min, "{target}: {}", run.text);
        assert!(run.text.contains("places on average"), "the table explains the spread:\n{}", run.text);
        for failure in run.failures() {
            assert!(failure["cause"]["hit"].is_u64(), "{target}: {failure}");
            assert_eq!(failure["ways"][0]["what"]["kind"], "flipped_bits", "{target}: {failure}");
        }
    }
}

#[test]
fn a_bad_block_that_nobody_shares_fails_alone_below_deduplication() {
    let rig = Rig::new();
    let expect = "hits: 16, failures: 16, silent: 16, reported: 0, unexplained: 0";
    rig.run(&deduplicated(&flips_at("{ unique: 16 }"), expect)).assert_passed();
}

#[test]
fn a_deduplicating_device_that_looks_before_it_shares_hands_out_each_bad_block_once() {
    let rig = Rig::new();
    let text = "seed: 1\nstack: [memory: { size: 64MiB }, faults, dedup: { verify: true }]\nsubject: device\nload:\n  \
                queue_depth: 32\n  total: 48MiB\n  duplicates: 17.2%\nfaults:\n  - match: { operation: write, target: \
                { most_duplicated: 1 } }\n    schedule: once\n    effect: bit_flip\n\
                expect: { hits: 1, silent: 1, failures: 1, unexplained: 0 }\n";
    rig.run(&Trial::new(text)).assert_passed();
}

#[test]
fn a_fault_by_place_below_deduplication_is_traced_though_blocks_move() {
    let rig = Rig::new();
    let faults =
        "faults:\n  - match: { operation: write, offset: [1MiB, 2MiB, 3MiB] }\n    effect: bit_flip\n";
    let run = rig.run(&deduplicated(faults, "hits: 3, silent: 3, failures: \">= 3\", unexplained: 0"));
    run.assert_passed();
}

#[test]
fn file_systems_work_on_a_deduplicating_device() {
    let rig = Rig::new();
    for subject in ["ext4", "xfs"] {
        let trial = Trial::new(format!(
            "seed: 5\nstack:\n  - memory: {{ size: 320MiB }}\n  - dedup\nsubject: {subject}\nload:\n  \
             pattern: random\n  reads: 50%\n  queue_depth: 8\n  workers: 2\n  total: 64MiB\n  duplicates: 25%\n  \
             flush_every: 256\n  files: {{ count: 4, size: 16MiB }}\n"
        ));
        rig.run(&trial).assert_passed();
    }
}

#[test]
fn latent_sector_errors_on_a_device_are_reported_wherever_they_were_not_rewritten() {
    let rig = Rig::new();
    let trial = Trial::new(
        "seed: 1\nstack:\n  - memory: { size: 32MiB }\n  - faults\nsubject: device\nload:\n  pattern: random\n  \
         reads: 50%\n  total: 16MiB\n  prefill: true\nfaults:\n  - name: media\n    model: { latent_sector_errors: \
         { acceleration: 1e6 } }\nexpect: { reported: \">= 1\", silent: 0, unexplained: 0 }\n",
    );
    let run = rig.run(&trial);
    run.assert_passed();
    assert_eq!(run.json["models"][0]["name"], "media");
    assert_eq!(run.json["models"][0]["rules"], 1, "all of them lie behind the device when the run begins");
    assert_eq!(run.json["faults"][0]["name"], "media.1");
    assert_eq!(run.json["faults"][0]["model"], "media");
    assert!(
        run.text.contains("model(latent_sector_errors, acceleration=1e6), drawn into 1 rule"),
        "{}",
        run.text
    );
}

#[test]
fn rot_under_btrfs_with_two_copies_is_never_handed_out() {
    let rig = Rig::new();
    let trial = Trial::new(
        "seed: 2\nstack:\n  - memory: { size: 512MiB }\nsubject: { btrfs: { mkfs: [\"-d\", \"dup\"] } }\nload:\n  \
         reads: 100%\n  queue_depth: 8\n  files: { count: 2, size: 48MiB }\nfaults:\n  - name: rot\n    model: { bit_rot: { \
         acceleration: 200000 } }\nexpect: { hits: \">= 1\", silent: 0, failures: 0, unexplained: 0 }\n",
    );
    rig.run(&trial).assert_passed();
}

#[test]
fn a_slow_device_under_ext4_fails_nothing() {
    let rig = Rig::new();
    let trial = Trial::new(
        "seed: 3\nstack:\n  - memory: { size: 64MiB }\nsubject: ext4\nload:\n  queue_depth: 8\n  files: { count: 2, \
         size: 8MiB }\nfaults: ['name=slow: model(fail_slow, slowness=exponential=2ms)']\nexpect: { hits: \">= 1\", \
         failures: 0, errors: 0 }\n",
    );
    rig.run(&trial).assert_passed();
}

#[test]
fn a_trial_with_models_repeats_and_replays() {
    let rig = Rig::new();
    let trial = Trial::new(
        "seed: 4\nruntime: simulated\nstack:\n  - disk: { profile: hdd, size: 16MiB }\nload:\n  pattern: random\n  \
         reads: 50%\n  queue_depth: 4\n  duration: 5s\nfaults:\n  - name: dying\n    model: { dying_disk: { errors: \
         60 } }\n  - { name: ude, model: { undetected_disk_errors: { dropped: 0.01, far_off_track: 0.01 } } }\n\
         expect: { hits: \">= 10\", silent: \">= 1\", reported: \">= 1\" }\n",
    );
    let first = rig.run(&trial);
    first.assert_passed();
    assert_eq!(rig.run(&trial).repeatable(), first.repeatable());
    let ledger = first.file("ledger.jsonl");
    let again = rig.run_raw(&trial, &["--replay", ledger.to_str().expect("UTF-8")]);
    again.assert_passed();
    assert_eq!(again.json["replay"]["is_same_ledger"], true, "{}", again.text);
    // What was resolved says over how much of the run each model is laid out.
    let resolved = std::fs::read_to_string(first.file("trial.yaml")).expect("it is among the results");
    assert!(resolved.contains("over: 5s") && resolved.contains("spares: 50"), "{resolved}");
}

#[test]
fn a_command_is_the_load_of_a_device_and_its_exit_code_and_output_are_kept() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [memory: { size: 16MiB }, faults]\nsubject: device\nload:\n  command:\n    prepare: [dd, if=/dev/zero, \
         'of={target}', bs=64k, count=16, oflag=direct, status=none]\n    run: 'echo $ROTPROOF_KIND $ROTPROOF_SEED; dd \
         if=/dev/zero of=$ROTPROOF_TARGET bs=4k count=64 oflag=direct status=none'\nfaults: ['write, offset=64KiB: \
         error', 'read, offset=15MiB: zeros']\nexpect: { exit: 1, hits: '>= 1', unknown: 1, untriggered: 1 }\n",
    ));
    run.assert_passed();
    let said = std::fs::read_to_string(run.file("run.stderr")).expect("kept");
    assert!(said.contains("Input/output error"), "{said}");
    assert_eq!(std::fs::read_to_string(run.file("run.stdout")).expect("kept"), "device 1\n");
    assert_eq!(run.json["external"]["commands"][1]["exit"], 1);
    assert!(
        run.text.contains("exit code 1 after") && run.text.contains("Input/output error"),
        "{}",
        run.text
    );
    assert!(run.json["content"].is_null(), "nobody knows what a command wrote");

    // What it did to its device over time.
    let kept = RunFolder::open(&run.file("")).expect("recorded");
    let device = kept.device_intervals().expect("of the device");
    let sum = |phase: &str, figure: fn(&Interval) -> u64| -> u64 {
        let writes = device.iter().filter(|row| &*row.phase == phase && &*row.operation == "write");
        writes.map(figure).sum()
    };
    assert_eq!(sum("prepare", |row| row.bytes), 1 << 20);
    assert!(sum("run", |row| row.bytes) >= 64 << 10 && sum("run", |row| row.errors) >= 1, "{device:?}");
    assert_eq!(kept.intervals().expect("of nothing"), []);
    let marks = kept.marks().expect("marks");
    let names = |kind| -> Vec<&str> {
        marks.iter().filter(|mark| mark.kind == kind).map(|mark| &*mark.name).collect()
    };
    assert_eq!(names(MarkKind::Phase), ["prepare", "run"]);
    assert_eq!(names(MarkKind::Hits).len(), 1);
    assert!(!names(MarkKind::Window).is_empty());
    let page = std::fs::read_to_string(run.file("report.html")).expect("the page");
    assert!(page.contains("Throughput of the device"));
}

#[test]
fn what_a_command_wrote_on_a_file_system_its_check_reads_from_the_device() {
    let rig = Rig::new();
    // A checksum over blocks that are all the same, one of which reads as zeros after the remount.
    let trial = |faults: &str, expect: &str| {
        Trial::new(format!(
            "stack: [memory: {{ size: 128MiB }}, faults]\nsubject: ext4\nload:\n  command:\n    run: yes 0123456 | head -c \
             4M > f && sha256sum f > sums\n    check: sha256sum -c sums\n{faults}{expect}"
        ))
    };
    rig.run(&trial("", "")).assert_passed();
    let faults = "faults: [{ name: rot, during: run, match: { operation: write, target: { seen: most_duplicated, after: 4 } }, \
                  effect: zeros }]\n";
    let run = rig.run(&trial(faults, "expect: { exit: 0, check_exit: 1, unknown: '>= 1' }\n"));
    run.assert_passed();
    let said = std::fs::read_to_string(run.file("check.stdout")).expect("kept");
    assert!(said.contains("f: FAILED"), "{said}");
    assert!(run.text.contains("so nobody can say"), "{}", run.text);
}

#[test]
fn fios_figures_are_those_of_the_run() {
    let rig = Rig::new();
    std::fs::write(
        rig.path("jobs.fio"),
        "[global]\nfilename=${ROTPROOF_TARGET}\nsize=4m\ndirect=1\nbs=4k\n[fill]\nrw=write\n[read]\nstonewall\nrw=randread\n\
         number_ios=100\n",
    )
    .expect("a job file");
    let jobs = rig.path("jobs.fio").display().to_string();
    let run = rig.run(&Trial::new(format!(
        "stack: [memory: {{ size: 16MiB }}]\nsubject: device\nload: {{ command: {{ fio: {jobs} }} }}\n"
    )));
    run.assert_passed();
    let lines = run.json["performance"].as_array().expect("a list");
    let short: Vec<_> = lines
        .iter()
        .map(|line| (line["job"].as_str(), line["operation"].as_str(), line["requests"].as_u64()))
        .collect();
    assert_eq!(
        short,
        [(Some("fill"), Some("write"), Some(1024)), (Some("read"), Some("read"), Some(100))],
        "{}",
        run.text
    );
    assert!(run.json["external"]["fio_failed_jobs"] == 0 && run.file("run.stdout").exists());
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_has_started() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [memory: { size: 64MiB }]\nsubject: ext4\nload:\n  command:\n    run: touch x; setsid sleep 613 < x & sleep \
         613\n    timeout: 1s\n",
    ));
    assert_eq!((run.code, run.count("exit")), (1, 124), "{}", run.text);
    assert!(run.text.contains("its time was over"), "{}", run.text);
    assert_eq!(rig.shell("ps -eo args | grep -c '[s]leep 613' || true").trim(), "0");
}

#[test]
fn a_command_ends_when_its_trial_is_interrupted() {
    let rig = Rig::new();
    let trial = Trial::new(
        "stack: [memory: { size: 16MiB }]\nsubject: device\nload: { command: { run: 'sleep 617 & while :; do dd if=/dev/zero \
         of={target} bs=64k count=99 oflag=direct status=none; done' } }\n",
    );
    let (code, text) = rig.interrupt(&trial, 2);
    assert_eq!(code, Some(130), "{text}");
    assert_eq!(rig.shell("ps -eo args | grep -c '[s]leep 617' || true").trim(), "0");
    rig.assert_nothing_left();
}

/// A small load of files.
fn files(subject: &str, personality: &str, rest: &str) -> Trial {
    Trial::new(format!(
        "seed: 1\nstack: [ memory: {{ size: 320MiB }}, faults ]\nsubject: {subject}\nload: {{ personality: {personality} \
         }}\nprobes: off\n{rest}\n"
    ))
}

#[test]
fn loads_of_files_are_found_right_after_a_remount_on_every_file_system() {
    let rig = Rig::new();
    let small = "{ varmail: { files: 60, threads: 4, loops: 10 } }";
    let others = [
        "{ oltp: { files: 3, threads: 5, writers: 2, file_size: 256KiB, log_size: 4MiB, loops: 400 } }",
        "{ mail_store: { files: 6, threads: 3, file_size: 256KiB, log_size: 4MiB, loops: 50 } }",
        "{ metadata: { files: 60, threads: 3, file_size: 3901, loops: 2, keep: true } }",
    ];
    let trials = FILE_SYSTEMS.map(|subject| (subject, small)).into_iter();
    for (subject, personality) in trials.chain(others.map(|personality| ("ext4", personality))) {
        let run = rig.run(&files(subject, personality, "expect: { failures: 0, errors: 0 }"));
        run.assert_passed();
        let performance = run.json["performance"].as_array().expect("lines");
        let check = performance.iter().find(|line| line["phase"] == "check" && line["operation"] == "read");
        assert!(check.expect("read back")["bytes"].as_u64() > Some(100_000), "{subject}: {personality}");
        let kept = RunFolder::open(&run.file("")).expect("recorded");
        for (rows, whose) in [(kept.intervals(), "files"), (kept.device_intervals(), "the device")] {
            let rows = rows.expect("a table");
            let moved = |phase: &str| {
                rows.iter().any(|row| row.worker.is_none() && &*row.phase == phase && row.bytes > 0)
            };
            assert!(moved("run") && moved("check"), "{whose}: {subject}: {personality}");
        }
    }
}

#[test]
fn what_a_fault_does_to_files_is_told_by_their_names_and_by_its_hits() {
    let rig = Rig::new();
    let varmail = "{ varmail: { files: 60, threads: 4, loops: 10 } }";
    let faults =
        "faults: [ \"name=rot, read, during=check, every=5: bit_flip\" ]\nexpect: { silent: \">= 1\" }";
    let run = rig.run(&files("ext4", varmail, faults));
    run.assert_passed();
    assert_eq!(run.count("silent"), run.count("hits"), "ext4 hands out every one");
    for failure in &run.failures() {
        let name = failure["object"].as_str().expect("a name");
        assert!(name.starts_with('f'), "{failure}");
        assert_eq!(failure["ways"][0]["what"]["kind"], "flipped_bits", "{failure}");
        assert!(failure["cause"]["hit"].is_u64(), "attributed to its fault: {failure}");
    }
    let run = rig.run(&files("btrfs", varmail, &faults.replace("silent: \">= 1\"", "silent: 0")));
    run.assert_passed();
    let faults = "faults: [ \"name=media, read, during=check, every=5, sticky: error\" ]\nexpect: { reported: \">= 1\", \
                  silent: 0 }";
    let run = rig.run(&files("ext4", varmail, faults));
    run.assert_passed();
    assert!(run.failures().iter().all(|failure| failure["ways"][0]["what"]["error"] == "medium"));
}
