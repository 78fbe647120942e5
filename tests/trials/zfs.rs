//! ZFS as a subject: what it does with faults below it, in the kinds of its blocks, and in its memory; and what is left of it.

use std::fs;

use serde_json::Value;

use crate::rig::{Process, Rig, Run, Trial};

const REPORTS: &str = include_str!("../../examples/zfs-reports.yaml");
const MIRROR: &str = include_str!("../../examples/zfs-mirror.yaml");
const INDIRECT: &str = include_str!("../../examples/zfs-indirect.yaml");
const CLEAN: &str = include_str!("../../examples/memory/zfs-clean-page.yaml");
const DIRTY: &str = include_str!("../../examples/memory/zfs-dirty-page.yaml");

/// What the pool has said.
fn said(run: &Run) -> String {
    run.json["wall_clock"]["kernel_messages"].to_string()
}

#[test]
fn what_rots_below_zfs_is_an_error_on_one_disk_and_comes_from_the_other_of_two() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(REPORTS));
    run.assert_passed();
    let blocks: Vec<_> =
        run.failures().iter().map(|failure| (failure["object"].clone(), failure["block"].clone())).collect();
    assert_eq!(blocks, [("a".into(), 7.into()), ("b".into(), 107.into())]);
    let pool = said(&run);
    for file in ["/a", "/b"] {
        assert!(pool.contains(&format!("permanent errors: {file}\"")), "{pool}");
    }
    assert!(pool.contains("zpool scrub: 2 errors"), "{pool}");
    let run = rig.run(&Trial::new(MIRROR));
    run.assert_passed();
    assert!(run.count("repaired") > 0, "{}", run.text);
    assert!(said(&run).contains("zpool scrub: 0 errors"), "{}", said(&run));
    rig.assert_nothing_left();
}

#[test]
fn a_bad_indirect_block_is_passed_over_while_there_is_a_copy() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(INDIRECT));
    run.assert_passed();
    let failures = run.failures();
    assert!(!failures.is_empty() && failures.iter().all(|failure| failure["object"] == "b"), "{failures:?}");
    let hits: Vec<Value> = run.ledger();
    assert!(hits.iter().any(|hit| hit["name"] == "one-copy"), "{hits:?}");
    rig.assert_nothing_left();
}

#[test]
fn what_rots_in_the_cache_of_zfs_is_handed_out_and_written_down_without_a_word() {
    let rig = Rig::new();
    for (text, phase) in [(CLEAN, "run"), (DIRTY, "check")] {
        let mut run = rig.run(&Trial::new(text));
        // A transaction of ZFS, one every few seconds, may have written the page just before it was hit. It is clean then, and what the
        // disk has is right.
        for _ in 0..4 {
            if run.count("masked") == 0 || text != DIRTY {
                break;
            }
            assert_eq!((run.count("silent"), run.count("failures")), (0, 0), "{}", run.text);
            run = rig.run(&Trial::new(text));
        }
        run.assert_passed();
        let memory = fs::read_to_string(run.file("memory.jsonl")).expect("it is among the results");
        let memory: Value = serde_json::from_str(memory.lines().next().expect("a line")).expect("JSON");
        assert_eq!((&memory["process"], &memory["is_living"]), (&"zfs-fuse".into(), &true.into()));
        let failures = run.failures();
        assert_eq!((&failures[0]["object"], &failures[0]["block"]), (&"a".into(), &7.into()));
        assert!(failures[0].to_string().contains(phase), "{}", failures[0]);
        assert!(said(&run).contains("zpool scrub: 0 errors"), "ZFS itself finds nothing: {}", said(&run));
        assert_eq!(run.json["noticed"].to_string(), "[]");
    }
    rig.assert_nothing_left();
}

#[test]
fn zfs_killed_in_the_middle_keeps_what_was_flushed_and_options_are_looked_at() {
    let rig = Rig::new();
    let trial = "stack: [memory: { size: 128MiB }]\nsubject: { zfs: { properties: [copies=2, compression=on] } }\n\
                 load: { pattern: random, requests: 1000, flush_every: 16, files: { count: 2, size: 2MiB } }\nstop: kill\n\
                 expect: { failures: any, silent: 0, injections: 0, unexplained: any }\n";
    let run = rig.run(&Trial::new(trial));
    assert_eq!(run.json["noticed"].to_string(), "[]", "{}", run.text);
    rig.assert_nothing_left();
    let check = |subject: &str, rest: &str| {
        rig.run(&Trial::new(format!("stack: [memory: {{ size: 128MiB }}]\nsubject: {subject}\n{rest}"))).text
    };
    assert!(check("{ zfs: { properties: [copies] } }", "").contains("is no property"));
    assert!(check("{ zfs: { properties: [copies=9] } }", "").contains("no pool could be made"));
    assert!(check("zfs", "crash: {}").contains("is no file system of a kernel"));
    let by_extent = "load: { prefill: true }\nfaults: ['read, target=file(a, block=1, by=extent): error']\n";
    assert!(check("zfs", by_extent).contains("does not say where a block of a file lies"));
    let small = rig.run(&Trial::new("stack: [memory: { size: 32MiB }]\nsubject: zfs\n"));
    assert!(small.text.contains("zfs needs a device of at least 64MiB"), "{}", small.text);
}

/// Killed without a chance to clean up.
#[test]
fn rotproof_killed_leaves_no_zfs_behind_once_it_was_cleaned() {
    let rig = Rig::new();
    let trial = Trial::new(
        "stack: [memory: { size: 128MiB }]\nsubject: zfs\nload: { reads: 50%, duration: 60s, files: { count: 2, size: 2MiB } }\n",
    );
    let mut daemon = String::new();
    let kill = |pid: u32| {
        daemon = rig.shell(&format!("pgrep -P {pid} -x zfs-fuse")).trim().to_owned();
        rig.shell(&format!("kill -9 {pid}"));
    };
    rig.meddle(&trial, Process::has_used_time, kill);
    assert!(!daemon.is_empty(), "it was there");
    rig.rotproof(&["clean"]);
    while std::path::Path::new(&format!("/proc/{daemon}")).exists() {
        std::thread::yield_now();
    }
    rig.assert_nothing_left();
}
