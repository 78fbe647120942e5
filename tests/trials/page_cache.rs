//! Trials whose loads go through the page cache, as most programs do. They need root.

use std::time::Duration;

use crate::rig::{Rig, Trial};

/// `examples/fsync-error.yaml`, with other expectations and some lines more.
fn fsync_error(subject: &str, total: &str, more: &str, expect: &str) -> Trial {
    // xfs wants 300 MiB.
    Trial::new(format!(
        "seed: 1\nstack: [memory: {{ size: 320MiB }}, faults]\nsubject: {subject}\nload:\n  block_size: 4KiB\n  total: \
         {total}\n  flush_every: 64\n  files: {{ count: 2, size: 8MiB }}\n{more}faults: [\"write, target=file(a, \
         block=700), once: error\"]\nprobes: off\nexpect: {{ {expect} }}\n"
    ))
}

#[test]
fn what_a_failed_fsync_lost_was_reported_whatever_the_system_calls() {
    let rig = Rig::new();
    for engine in ["io_uring", "psync", "mmap"] {
        let more = format!("  buffered: true\n  ioengine: {engine}\n");
        let expect = "injections: 1, reported: 1, silent: 0, errors: 1, failures: '>= 1', unexplained: 0";
        let run = rig.run(&fsync_error("ext4", "16MiB", &more, expect));
        run.assert_passed();
        let failures = run.failures();
        let lost = failures.iter().find(|failure| failure["block"] == 700).expect("the bad block");
        assert_eq!(lost["ways"][0]["what"]["kind"], "unflushed", "{engine}: {lost}");
        assert_eq!(lost["cause"]["injection"], 0, "{engine}: {lost}");
        assert!(run.text.contains("lost with its flush"), "{}", run.text);
    }
}

#[test]
fn without_the_page_cache_the_write_itself_fails() {
    let rig = Rig::new();
    let run =
        rig.run(&fsync_error("ext4", "16MiB", "", "injections: 1, reported: 1, silent: 0, failures: 1"));
    run.assert_passed();
    assert_eq!(run.failures()[0]["ways"][0]["what"]["kind"], "unwritable");
}

/// What a file system makes of a block that is written again after its fsync failed is its own affair, and the
/// kernel's: either it is there, or it is lost without a word. Never may it go unexplained.
#[test]
fn what_is_written_again_after_a_failed_fsync_is_there_or_silently_lost() {
    let rig = Rig::new();
    for subject in ["ext4", "xfs", "btrfs"] {
        let expect = "injections: 1, errors: '>= 1', unexplained: 0";
        let run = rig.run(&fsync_error(subject, "32MiB", "  buffered: true\n", expect));
        run.assert_passed();
        let is_wrong =
            |way: &serde_json::Value| !way["found"].is_null() && way["what"]["kind"] != "unflushed";
        let is_lost = run
            .failures()
            .iter()
            .any(|failure| failure["ways"].as_array().expect("ways").iter().any(is_wrong));
        assert_eq!(run.count("silent"), u64::from(is_lost), "{subject}: {}", run.text);
    }
}

#[test]
fn what_has_no_page_cache_is_refused() {
    let rig = Rig::new();
    for key in ["buffered: true", "ioengine: mmap"] {
        let trial = Trial::new(format!("stack: [memory: {{ size: 16MiB }}]\nload: {{ {key} }}\n"));
        let run = rig.run_raw(&trial, &[]);
        assert_eq!(run.code, 2, "{}", run.text);
        assert!(run.text.contains("take ext4, xfs, btrfs or zfs as the subject"), "{}", run.text);
    }
}

/// Far longer than such a trial takes; one in which threads wait for each other never ends.
const WITHOUT_DEADLOCK: Duration = Duration::from_secs(240);

/// Server threads used to wait for the memory map that a thread of the load had locked while it waited for them: on btrfs
/// with 5 workers every time, on ext4 with 16 now and then. Nothing but the end of the connection helped then, so the rig
/// ends it when the time is up.
#[test]
fn a_load_that_maps_its_files_ends_and_the_process_that_serves_the_device_maps_none_of_them() {
    let rig = Rig::new();
    for (subject, workers) in [("btrfs", 5), ("ext4", 16)] {
        let trial = Trial::new(format!(
            "seed: 1\nstack: [memory: {{ size: 320MiB }}, faults]\nsubject: {subject}\nload:\n  pattern: random\n  reads: \
             50%\n  block_size: 16KiB\n  workers: {workers}\n  total: 96MiB\n  flush_every: 16\n  prefill: true\n  \
             files: {{ count: 4, size: 16MiB }}\n  ioengine: mmap\nfaults: [\"read, target=file(b, block=7): \
             noise\"]\nprobes: off\nexpect: {{ injections: '>= 1', failures: '>= 1', silent: '>= 0', unexplained: 0 }}\n"
        ));
        let (mut looks, mut seen_apart) = (0, false);
        let run = rig.run_within(&trial, WITHOUT_DEADLOCK, |serving, others| {
            let of_load = |maps: &str| maps.lines().any(|line| line.contains("/mount/"));
            assert!(!of_load(&serving), "{subject}: {serving}");
            looks += 1;
            seen_apart |= others.iter().any(|maps| of_load(maps));
        });
        assert_eq!(run.code, 0, "{subject}: {}", run.text);
        assert!(looks > 0 && seen_apart, "{subject}: the mappings are in another process ({looks} looks)");
        rig.assert_nothing_left();
    }
}
