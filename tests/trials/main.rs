//! Trials on real devices and file systems, through the command line as a user runs it. They need root.

mod crash;
mod crash_files;
mod crash_replay;
mod dedup;
mod devices;
mod evidence;
mod fat;
mod files;
mod guard;
mod interruptions;
mod memory;
mod models;
mod page_cache;
mod power;
mod programs;
mod qemu;
mod rig;
mod steps;
mod volumes;
mod zfs;

use rig::{Rig, Trial};

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
        let run = rig.run(&achilles(subject, "", "injections: 0, failures: 0, errors: 0, unexplained: 0"));
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
    let run = rig.run(&achilles("device", &faults, "injections: 8, failures: 8, silent: 8, reported: 0"));
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
            "injections: 8, failures: 8, silent: 8, reported: 0",
        ));
        run.assert_passed();
        let failures = run.failures();
        assert_eq!(failures.len(), 8, "{subject}");
        for failure in &failures {
            assert_eq!(failure["ways"][0]["what"]["kind"], "flipped_bits", "{subject}: {failure}");
            assert!(failure["cause"]["injection"].is_u64(), "attributed to its fault: {failure}");
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
             expect: {{ failures: 1, failing_files: 1, injections: \">= 1\", silent: \">= 1\" }}\n"
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

/// Every block of one file, and of no other, is met by what it is.
#[test]
fn a_fault_by_kind_hits_the_blocks_of_that_kind_alone() {
    let rig = Rig::new();
    for (subject, fate) in [("ext4", "silent"), ("xfs", "silent"), ("btrfs", "reported")] {
        let trial = Trial::new(format!(
            "seed: 2\nstack: [ memory: {{ size: 320MiB }} ]\nsubject: {subject}\nload:\n  pattern: random\n  reads: 50%\n  \
             prefill: true\n  total: 1MiB\n  files: {{ count: 3, size: 1MiB }}\nfaults:\n  - name: typed\n    match: {{ \
             operation: read, target: {{ type: data, file: b }} }}\n    effect: bit_flip\n    during: check\n\
             expect: {{ failures: 256, failing_files: 1, injections: \">= 256\", {fate}: \">= 1\" }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        assert!(run.failures().iter().all(|failure| failure["object"] == "b"), "{subject}");
    }
    // A kind that is not there is told, and nothing is hit instead.
    let trial = Trial::new(
        "stack: [ memory: { size: 64MiB } ]\nsubject: ext4\nload: { total: 1MiB, files: { count: 2, size: 4MiB } }\n\
         faults: [ \"name=typed, read, target=type(agf): error\" ]\n",
    );
    let run = rig.run_raw(&trial, &[]);
    assert!(run.code > 1, "{}", run.text);
    let text = run.text.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(text.contains("`typed` means agf") && text.contains("has none"), "{text}");
    rig.assert_nothing_left();
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
        "injections: 8, silent: 0, reported: 8, failures: \">= 8\"",
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
         expect: { injections: 4, failures: 0, repaired: \">= 1\" }\n",
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
            "injections: \">= 8\", failures: \"> 8\", silent: 0, unexplained: 0",
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
            "injections: 8, failures: 0, errors: 0, unexplained: 0",
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
    // The journal's own clock commits every five seconds. Where a busy machine lets it come into a run, a block may go
    // elsewhere in that one, so others say whether the seed decides.
    let mut digests = Vec::new();
    for _ in 0..6 {
        let run = rig.run(&trial);
        run.assert_passed();
        assert!(run.json["ledger_digest"].is_string());
        if digests.contains(&run.json["ledger_digest"]) {
            return;
        }
        digests.push(run.json["ledger_digest"].clone());
    }
    panic!("six runs, and no two are alike: {digests:?}");
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

/// A second one used to be let in, and its writes were damage that nobody could explain in the first.
#[test]
fn what_a_run_uses_nobody_else_uses_at_the_same_time() {
    let rig = Rig::new();
    let image = rig.path("disk.img");
    let image = image.display();
    let text = |subject: &str, load: &str| {
        format!(
            "stack:\n  - file: {{ path: {image}, size: 64MiB }}\nsubject: {subject}\nload: {{ {load} }}\n"
        )
    };
    let second = rig.path("second.yaml");
    std::fs::write(&second, text("raw", "total: 1MiB")).expect("written");
    let second = second.to_str().expect("UTF-8");
    for subject in ["raw", "device"] {
        let endless = Trial::new(text(subject, "pattern: random, reads: 50%, duration: 120s"));
        rig.while_it_runs(&endless, |holder| {
            let leaf = image.to_string();
            let mut others = vec![
                vec!["run", second, "--overwrite"],
                vec!["serve", second, "--as", "nbd", "--overwrite"],
                vec!["load", &leaf, "--rw=write", "--overwrite"],
                vec!["load", &leaf],
            ];
            let device = rig.shell(&format!(
                "losetup -n -O NAME,BACK-FILE | awk '$2 ~ \"^{}/\" {{ print $1 }}'",
                rig.path("state").display()
            ));
            if subject == "device" {
                assert!(device.trim().starts_with("/dev/loop"), "{device}");
                others.push(vec!["load", device.trim(), "--rw=write", "--overwrite"]);
            }
            for arguments in others {
                let refused = rig.rotproof(&arguments);
                assert_eq!(refused.code, 2, "{arguments:?}: {}", refused.text);
                let by = format!("in use by process {holder} (rotproof)");
                assert!(refused.text.contains(&by), "{arguments:?}: {}", refused.text);
            }
        });
        rig.assert_nothing_left();
    }
    // What it left it knows again, and nobody is in the way.
    assert_eq!(rig.rotproof(&["run", second]).code, 0);
    assert_eq!(rig.rotproof(&["load", &image.to_string(), "--rw=write"]).code, 0);
    rig.shell(&format!("echo mine | dd of={image} bs=1 seek=40000000 conv=notrunc status=none"));
    let refused = rig.rotproof(&["run", second]);
    assert!(refused.code == 2 && refused.text.contains("it holds data"), "{}", refused.text);
}

#[test]
fn a_file_of_a_users_is_neither_written_over_nor_made_larger_and_may_be_read() {
    let rig = Rig::new();
    let image = rig.path("disk.img");
    let run_on = |subject: &str, size: &str, load: &str| {
        let file = format!("stack:\n  - file: {{ path: {}{size} }}\n", image.display());
        rig.run_raw(&Trial::new(format!("{file}subject: {subject}\nload: {{ {load} }}\n")), &[])
    };
    let run = |size: &str, load: &str| run_on("raw", size, load);
    for make in [
        "yes 'Dear reader,' | head -c 1M",
        "head -c 1M /dev/urandom",
        "head -c 8M /dev/zero; echo middle; head -c 8388601 /dev/zero",
    ] {
        let before = rig.shell(&format!("({make}) > {0}; sha256sum {0}", image.display()));
        for size in ["", ", size: 64MiB"] {
            let refused = run(size, "total: 1MiB");
            assert_eq!(refused.code, 2, "{make}: {}", refused.text);
            assert!(refused.text.contains("--overwrite"), "{}", refused.text);
        }
        for subject in ["raw", "device"] {
            let read = run_on(subject, "", "reads: 100%, prefill: false, total: 1MiB");
            assert!(matches!(read.code, 0 | 1), "reading needs no permission: {}", read.text);
        }
        assert_eq!(before, rig.shell(&format!("sha256sum {}", image.display())), "{make}");
    }
    rig.shell(&format!("rm {0}; truncate -s 16M {0}", image.display()));
    let refused = run(", size: 64MiB", "total: 1MiB");
    assert!(refused.code == 2 && refused.text.contains("larger"), "{}", refused.text);
    assert_eq!(image.metadata().expect("there").len(), 16 << 20);
    assert_eq!(run("", "total: 1MiB").code, 0, "blank");
    assert_eq!(run(", size: 64MiB", "total: 1MiB").code, 0, "ours by now");
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
             - \"write, every=1009: lost_write\"\nexpect: {{ failures: \"> 0\", injections: \"> 100\", silent: \"> 0\" }}\n"
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
        assert_eq!(again.json["replay"]["recorded"], first.json["counts"]["injections"]);
        assert!(again.text.contains("recorded faults; the ledger is the same"), "{}", again.text);

        // With half of its lines taken out, the other half comes again and nothing else.
        let text = std::fs::read_to_string(&ledger).expect("a ledger");
        let half: String = text.lines().step_by(2).map(|line| format!("{line}\n")).collect();
        let edited = rig.path(&format!("{subject}.jsonl"));
        std::fs::write(&edited, &half).expect("written");
        let fewer = rig.run_raw(&trial, &["--replay", &edited.to_string_lossy()]);
        fewer.assert_passed();
        assert_eq!(fewer.count("injections"), half.lines().count() as u64);
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
        ("\"phase\":\"run\"", "\"phase\":\"walk\"", "unknown phase `walk`"),
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
        (format!("write, {places}: misdirected_write(to=0)"), "misdirected 1 stale 2"),
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
        assert!(run.count("injections") > 0, "{fault}");
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
