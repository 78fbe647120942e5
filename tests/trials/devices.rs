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

/// A mirror of ours, in virtual time.
fn own_mirror(faults: &[&str], expect: &str) -> Trial {
    let faults: String = faults.iter().map(|fault| format!("  - \"{fault}\"\n")).collect();
    Trial::new(format!(
        "seed: 7\nruntime: simulated\nstack:\n  - mirror:\n      of:\n        a: [ memory: {{ size: 2MiB }}, faults ]\n        \
         b: [ memory: {{ size: 2MiB }}, faults ]\n      patience: 50ms\nload: {{ pattern: random, reads: 50%, prefill: true, requests: \
         4000 }}\nfaults:\n{faults}expect: {{ {expect} }}\n"
    ))
}

#[test]
fn what_one_copy_refuses_a_mirror_reads_from_the_other_and_puts_right() {
    let rig = Rig::new();
    let faults = [
        "on=a, read, offset=0..256KiB, every=3: error(EIO)",
        "on=b, read, offset=256KiB..512KiB, every=3: medium_error",
        "on=b, write, offset=512KiB..768KiB, probability=50%: error(EIO)",
        "on=b, write, offset=1MiB..1280KiB, sticky: error(EIO)",
        "on=a, read, offset=1536KiB..1600KiB, every=5: hang(1s)",
        "on=b, flush, once: error(EIO)",
    ];
    let run = rig.run(&own_mirror(&faults, "failures: 0, errors: 0, silent: 0, reported: 0, unknown: 1"));
    run.assert_passed();
    assert!(run.count("repaired") > 20, "{}", run.text);
    let members = run.json["layers"][0]["members"].as_array().expect("members").clone();
    assert!(members.iter().all(|member| member["repaired_bytes"].as_u64() > Some(0)), "{members:?}");
    assert_eq!(members[1]["state"], "behind", "{members:?}");
}

#[test]
fn what_no_copy_has_is_told_and_what_a_mirror_cannot_see_is_silent() {
    let rig = Rig::new();
    let both = [
        "on=a, read, offset=64KiB..68KiB, sticky: error(EIO)",
        "on=b, read, offset=64KiB..68KiB, sticky: error(EIO)",
    ];
    let run = rig.run(&own_mirror(&both, "failures: 1, silent: 0, reported: 2, errors: any"));
    run.assert_passed();
    // A copy that rots in silence is believed, whenever it is asked.
    let rot = ["on=a, write, offset=64KiB..128KiB, during=prefill: bit_flip"];
    let run = rig.run(&own_mirror(&rot, "silent: any, failures: any, unknown: any"));
    run.assert_passed();
    assert!(run.count("silent") > 0 && run.count("failures") > 0, "{}", run.text);
    assert!(run.count("silent") + run.count("masked") + run.count("unknown") == 16, "{}", run.text);
}

#[test]
fn a_stripe_over_mirrors_takes_a_dead_disk_in_each() {
    let leg = |name: &str| format!("[ memory: {{ size: 1MiB }}, faults: {{ name: {name} }} ]");
    let mirror = |a: &str, b: &str| format!("[ mirror: {{ of: [ {}, {} ] }} ]", leg(a), leg(b));
    let trial = Trial::new(format!(
        "seed: 7\nruntime: simulated\nstack:\n  - stripe: {{ of: [ {}, {} ], chunk: 16KiB }}\n  - stats\nload: {{ pattern: random, \
         reads: 50%, prefill: true, block_size: 16KiB, requests: 3000 }}\nfaults:\n  - \"on=b, any, after=300: gone\"\n  - \"on=c, \
         any, after=700: gone\"\n  - \"on=d, read, offset=64KiB..68KiB, sticky: error(EIO)\"\nexpect: {{ failures: 4, silent: 0, errors: \
         any, reported: any, unknown: any }}\n",
        mirror("a", "b"),
        mirror("c", "d")
    ));
    let rig = Rig::new();
    let run = rig.run(&trial);
    run.assert_passed();
    // The bad block lies in the second half of the stripes, and in one request with three others.
    let blocks: Vec<u64> = run
        .failures()
        .iter()
        .map(|failure| failure["offset_bytes"].as_u64().expect("a number") / 16_384)
        .collect();
    assert_eq!(blocks, [9; 4]);
}

#[test]
fn a_volume_mends_what_is_wrong_below_each_of_its_members() {
    let rig = Rig::new();
    let volume = |faults: &str, expect: &str| {
        Trial::new(format!(
            "seed: 7\nruntime: simulated\nstack:\n  - volume:\n      of:\n        a: [ memory: {{ size: 8MiB }}, faults ]\n        b: [ \
             memory: {{ size: 8MiB }}, faults ]\nload: {{ pattern: random, reads: 50%, prefill: true, requests: 3000 }}\nfaults:\n\
             {faults}expect: {{ {expect} }}\n"
        ))
    };
    let either = "  - \"on=a, write, offset=2MiB..3MiB, every=3: bit_flip\"\n  - \"on=b, read, offset=3MiB..4MiB, every=3: zeros\"\n  \
                  - \"on=b, read, offset=5MiB..6MiB, every=3: error(EIO)\"\n";
    let run = rig.run(&volume(either, "failures: 0, errors: 0, silent: 0, reported: 0, unknown: any"));
    run.assert_passed();
    assert!(run.count("repaired") > 10, "{}", run.text);
    let layer = &run.json["layers"][0];
    assert!(layer["checksum"]["repaired"].as_u64() > Some(10), "{layer}");
    assert_eq!(layer["members"][0]["state"], "current", "{layer}");
    // What both have wrong is an error, and never wrong data.
    let both = "  - \"on=a, write, offset=2MiB..2112KiB, sticky: bit_flip\"\n  - \"on=b, write, offset=2MiB..2112KiB, sticky: zeros\"\n";
    let run = rig.run(&volume(
        both,
        "failures: any, errors: any, silent: 0, reported: any, unknown: any, assumed: any",
    ));
    run.assert_passed();
    assert!(run.count("failures") > 0, "{}", run.text);
}

/// The devices of a trial as a volume.
fn volume(size: &str, subject: &str, rest: &str) -> Trial {
    Trial::new(format!(
        "seed: 7\nstack:\n  left: [ memory: {{ size: {size} }}, faults ]\n  right: [ memory: {{ size: {size} }}, faults ]\n\
         subject: {subject}\n{rest}"
    ))
}

#[test]
fn the_subject_volume_is_the_volume_that_the_stack_could_have_named() {
    let rig = Rig::new();
    let rest = "runtime: simulated\nload: { pattern: random, reads: 50%, prefill: true, requests: 3000 }\nfaults:\n  \
                - \"on=left, write, offset=2MiB..3MiB, every=3: bit_flip\"\n  - \"on=right, read, offset=3MiB..4MiB, every=3: zeros\"\n\
                expect: { failures: 0, errors: 0, silent: 0, reported: 0, unknown: any }\n";
    let run = rig.run(&volume("8MiB", "volume", rest));
    run.assert_passed();
    assert_eq!(run.json["subject"]["name"], "volume");
    assert!(run.count("repaired") > 10, "{}", run.text);
    let named = Trial::new(format!(
        "seed: 7\nstack:\n  - volume:\n      of:\n        left: [ memory: {{ size: 8MiB }}, faults ]\n        \
         right: [ memory: {{ size: 8MiB }}, faults ]\n{rest}"
    ));
    let other = rig.run(&named);
    other.assert_passed();
    let ledger = |run: &Run| std::fs::read_to_string(run.file("ledger.jsonl")).expect("a ledger");
    assert_eq!(ledger(&run), ledger(&other), "one and the same volume");
    // Without checksums nobody can tell which copy is right, and the trial sees it.
    let rest = rest.replace("silent: 0", "silent: any").replace("failures: 0", "failures: any");
    let run = rig.run(&volume("8MiB", "{ volume: { checksum: none } }", &rest));
    assert!(run.count("silent") > 0, "{}", run.text);
}

#[test]
fn a_volume_mends_what_is_wrong_below_it_under_each_file_system() {
    let rig = Rig::new();
    for (kind, size) in [("ext4", "48MiB"), ("xfs", "340MiB"), ("btrfs", "160MiB")] {
        // Three on one, three on the other: whether one copy is read or both by turns, some that are read are bad.
        let turn = |block: u64| rotten(["left", "right"][(block / 3 % 2) as usize], "a", block..block + 1);
        let turns: Vec<_> = (0..128).map(turn).collect();
        let faults: String = rules(&turns).iter().map(|fault| format!("  - \"{fault}\"\n")).collect();
        let rest = format!(
            "load: {{ reads: 0%, files: {{ count: 2, size: 2MiB }} }}\nfaults:\n{faults}\
             expect: {{ failures: 0, silent: 0, unexplained: 0 }}\n"
        );
        let run = rig.run(&volume(size, &format!("{{ volume: {{ under: {kind} }} }}"), &rest));
        assert_healed(&run, 128);
        assert_eq!(run.json["subject"]["name"], format!("volume under {kind}"));
        assert!(run.count("repaired") > 0, "{kind}: {}", run.text);
        let layer = &run.json["layers"][0];
        assert!(layer["checksum"]["repaired"].as_u64() > Some(0), "{kind}: {layer}");
    }
}

#[test]
fn what_both_members_have_wrong_is_reported_by_the_volume_under_a_file_system() {
    let (left, right) = (rotten("left", "a", 4..8), rotten("right", "a", 4..8));
    let faults: String = rules(&[left, right]).iter().map(|fault| format!("  - \"{fault}\"\n")).collect();
    let rest = format!(
        "load: {{ reads: 0%, files: {{ count: 2, size: 2MiB }} }}\nfaults:\n{faults}\
         expect: {{ failures: 4, silent: 0, unknown: any, assumed: 0, unexplained: 0 }}\n"
    );
    let run = Rig::new().run(&volume("48MiB", "{ volume: { under: ext4 } }", &rest));
    run.assert_passed();
    assert!(run.count("reported") >= 4, "{}", run.text);
}

#[test]
fn a_rule_must_say_where_it_acts_where_there_is_a_choice() {
    let run = Rig::new().run(&mirror(&["read: bit_flip", "on=lefft, write: zeros"], "silent: 0"));
    assert_eq!(run.code, 2, "{}", run.text);
    for part in ["names none", "on: one of left, right", "did you mean `left`"] {
        assert!(run.text.contains(part), "{part}: {}", run.text);
    }
}
