//! Trials with a layer that stores equal blocks once.

use crate::rig::{Rig, Trial};

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
    let run = rig.run(&deduplicated("", "injections: 0, failures: 0, errors: 0, unexplained: 0"));
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
        let expect = "injections: 16, silent: 16, reported: 0, unexplained: 0, failures: \"> 16\"";
        let run = rig.run(&deduplicated(&flips_at(target), expect));
        run.assert_passed();
        assert!(run.count("failures") >= failures_min, "{target}: {}", run.text);
        assert!(run.text.contains("places on average"), "the table explains the spread:\n{}", run.text);
        for failure in run.failures() {
            assert!(failure["cause"]["injection"].is_u64(), "{target}: {failure}");
            assert_eq!(failure["ways"][0]["what"]["kind"], "flipped_bits", "{target}: {failure}");
        }
    }
}

#[test]
fn a_bad_block_that_nobody_shares_fails_alone_below_deduplication() {
    let rig = Rig::new();
    let expect = "injections: 16, failures: 16, silent: 16, reported: 0, unexplained: 0";
    rig.run(&deduplicated(&flips_at("{ unique: 16 }"), expect)).assert_passed();
}

#[test]
fn a_deduplicating_device_that_looks_before_it_shares_hands_out_each_bad_block_once() {
    let rig = Rig::new();
    let text = "seed: 1\nstack: [memory: { size: 64MiB }, faults, dedup: { verify: true }]\nsubject: device\nload:\n  \
                queue_depth: 32\n  total: 48MiB\n  duplicates: 17.2%\nfaults:\n  - match: { operation: write, target: \
                { most_duplicated: 1 } }\n    schedule: once\n    effect: bit_flip\n\
                expect: { injections: 1, silent: 1, failures: 1, unexplained: 0 }\n";
    rig.run(&Trial::new(text)).assert_passed();
}

#[test]
fn a_fault_by_place_below_deduplication_is_traced_though_blocks_move() {
    let rig = Rig::new();
    let faults =
        "faults:\n  - match: { operation: write, offset: [1MiB, 2MiB, 3MiB] }\n    effect: bit_flip\n";
    let run = rig.run(&deduplicated(faults, "injections: 3, silent: 3, failures: \">= 3\", unexplained: 0"));
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
