//! Stacks of several devices: a mirror whose legs fail apart, and two disks as one.

use super::rig::{Rig, Run, Trial};

/// btrfs over two devices, which keeps everything on both.
fn mirror(faults: &[&str], expect: &str) -> Trial {
    let faults: String = faults.iter().map(|fault| format!("  - \"{fault}\"\n")).collect();
    Trial::new(format!(
        "seed: 7\nstack:\n  left: [ memory: {{ size: 160MiB }}, faults ]\n  right: [ memory: {{ size: 160MiB }}, faults ]\n\
         subject: {{ btrfs: {{ data: raid1 }} }}\nload: {{ reads: 0%, files: {{ count: 4, size: 2MiB }} }}\n\
         faults:\n{faults}expect: {{ {expect} }}\n"
    ))
}

/// The last write of each of these blocks of a file is stored wrong on one leg.
fn rotten(leg: &str, file: &str, blocks: std::ops::Range<u64>) -> Vec<String> {
    let rule = |block| format!("on={leg}, write, target=file({file}, block={block}), once: bit_flip");
    blocks.map(rule).collect()
}

fn rules(parts: &[Vec<String>]) -> Vec<&str> {
    parts.iter().flatten().map(String::as_str).collect()
}

/// Nothing failed, and whatever was read wrong was put right.
fn assert_healed(run: &Run, faults: u64) {
    run.assert_passed();
    assert_eq!(run.count("masked") + run.count("repaired"), faults, "{}", run.text);
}

#[test]
fn what_one_leg_of_a_mirror_has_wrong_comes_from_the_other() {
    let rig = Rig::new();
    let left = rotten("left", "a", 0..64);
    assert_healed(&rig.run(&mirror(&rules(&[left]), "failures: 0, silent: 0")), 64);
    // On each leg other blocks: still one good copy of each.
    let (left, right) = (rotten("left", "a", 0..64), rotten("right", "a", 64..128));
    let run = rig.run(&mirror(&rules(&[left, right]), "failures: 0, silent: 0"));
    assert_healed(&run, 128);
    // Which leg a thread reads, btrfs decides by the number of the thread.
    assert!(run.count("repaired") > 0, "{}", run.text);
    let ledger = std::fs::read_to_string(run.file("ledger.jsonl")).expect("a ledger");
    let on = |leg: &str| ledger.lines().filter(|line| line.contains(&format!("\"on\":\"{leg}\""))).count();
    assert!(on("left") >= 64 && on("right") >= 64, "{} and {}", on("left"), on("right"));
}

#[test]
fn what_both_legs_of_a_mirror_have_wrong_is_reported() {
    let rig = Rig::new();
    let (left, right) = (rotten("left", "a", 4..8), rotten("right", "a", 4..8));
    let expect = "failures: 4, silent: 0, unknown: any, assumed: 0, unexplained: 0";
    let run = rig.run(&mirror(&rules(&[left, right]), expect));
    run.assert_passed();
    assert!(run.count("reported") >= 4, "{}", run.text);
}

#[test]
fn two_disks_as_one_fail_apart_and_each_block_is_laid_to_its_own() {
    let trial = Trial::new(
        "seed: 7\nruntime: simulated\nstack:\n  - concat:\n      of:\n        a: [ memory: { size: 1MiB }, faults ]\n        \
         b: [ memory: { size: 1MiB }, faults ]\nload: { pattern: random, reads: 30%, requests: 8000 }\nfaults:\n  \
         - \"on=a, write, offset=64KiB..128KiB, sticky: bit_flip\"\n  - \"on=b, read, offset=64KiB..128KiB: error(EIO)\"\n\
         expect: { unexplained: 0, assumed: 0, unknown: 0, silent: 16, reported: 1 }\n",
    );
    let rig = Rig::new();
    let run = rig.run(&trial);
    run.assert_passed();
    // The second begins where the first ends.
    let blocks: std::collections::BTreeSet<u64> = run
        .failures()
        .iter()
        .map(|failure| failure["offset_bytes"].as_u64().expect("a number") / 4096)
        .collect();
    assert_eq!(blocks, (16..32).chain(256 + 16..256 + 32).collect());
}

#[test]
fn a_rule_must_say_where_it_acts_where_there_is_a_choice() {
    let run = Rig::new().run(&mirror(&["read: bit_flip", "on=lefft, write: zeros"], "silent: 0"));
    assert_eq!(run.code, 2, "{}", run.text);
    for part in ["names none", "on: one of left, right", "did you mean `left`"] {
        assert!(run.text.contains(part), "{part}: {}", run.text);
    }
}
