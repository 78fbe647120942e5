//! Power that goes, and what must be there when it comes back.

use serde_json::Value;

use super::rig::{Rig, Trial};

/// Random writes into a volatile cache, and a power cut in the middle of them.
fn trial(stack: &str, more: &str, cut: &str) -> Trial {
    Trial::new(format!(
        "seed: 7\nstack: {stack}\n{more}faults: [ \"write, nth=700: {cut}\" ]\n\
         expect: {{ failures: any, silent: 0 }}\n"
    ))
}

const LOAD: &str =
    "load: { pattern: random, reads: 20%, requests: 1500, flush_every: 100, queue_depth: 4 }\n";

#[test]
fn an_honest_cache_loses_nothing_that_was_flushed() {
    let rig = Rig::new();
    for (leaf, runtime) in
        [("disk: { profile: nvme, size: 4MiB }", "simulated"), ("memory: { size: 4MiB }", "io_uring")]
    {
        for cut in ["power_cut", "power_cut(keeps=none)", "power_cut(everywhere)"] {
            let stack = format!("[ {leaf}, write_cache: {{ size: 1MiB }}, faults ]");
            let run = rig.run(&trial(&stack, &format!("runtime: {runtime}\n{LOAD}"), cut));
            run.assert_passed();
            let kinds: Vec<String> = run
                .failures()
                .iter()
                .flat_map(|failure| failure["ways"].as_array().expect("ways").clone())
                .map(|way| way["what"]["kind"].as_str().expect("a kind").to_owned())
                .collect();
            assert!(kinds.iter().any(|kind| kind == "unflushed"), "{cut}: {kinds:?}");
        }
    }
}

#[test]
fn the_power_goes_with_the_write_that_carries_the_byte() {
    let rig = Rig::new();
    let load = "load: { block_size: 16KiB, total: 1MiB }\n";
    for (byte, offset) in [("192KiB", 176 << 10), ("196609", 192 << 10), ("1", 0)] {
        let trial = Trial::new(format!(
            "runtime: simulated\nstack: [ memory: {{ size: 1MiB }}, write_cache, faults ]\n{load}\
             faults: [ \"write, byte={byte}, during=run: power_cut(keeps=none)\" ]\nexpect: {{ failures: any, silent: 0, assumed: any, hits: \">= 1\" }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        assert_eq!(run.ledger()[0]["offset"], offset, "{byte}: {}", run.text);
    }
}

#[test]
fn a_cache_with_a_capacitor_keeps_what_it_has_acknowledged() {
    let stack = "[ disk: { profile: nvme, size: 4MiB }, write_cache: { size: 1MiB }, faults ]";
    let rig = Rig::new();
    let run = rig.run(&trial(stack, &format!("runtime: simulated\n{LOAD}"), "power_cut(keeps=all)"));
    run.assert_passed();
    let text = serde_json::to_string(&run.failures()).expect("JSON");
    assert!(!text.contains("unflushed"), "{}", run.text);
}

#[test]
fn a_cache_that_ignores_flushes_is_caught() {
    let stack =
        "[ disk: { profile: nvme, size: 4MiB }, write_cache: { size: 1MiB, ignores: flush }, faults ]";
    let run = Rig::new().run(&trial(stack, &format!("runtime: simulated\n{LOAD}"), "power_cut(keeps=none)"));
    assert_eq!(run.code, 1, "{}", run.text);
    assert!(run.count("unexplained") > 0, "no rule accounts for it: {}", run.text);
}

#[test]
fn file_systems_come_back_after_a_power_cut() {
    let rig = Rig::new();
    for (subject, size) in [("ext4", "64MiB"), ("xfs", "320MiB"), ("btrfs", "128MiB")] {
        let stack = format!("[ memory: {{ size: {size} }}, write_cache, faults ]");
        let more = format!(
            "subject: {subject}\nload: {{ reads: 0%, files: {{ count: 4, size: 2MiB }}, requests: 2000, flush_every: 50 }}\n"
        );
        let trial = Trial::new(format!(
            "seed: 7\nstack: {stack}\n{more}faults: [ \"flush, nth=9: power_cut\" ]\n\
             expect: {{ failures: any, silent: 0, unknown: any, assumed: any }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        assert!(!run.text.contains("could not be mounted"), "{subject}: {}", run.text);
    }
}

#[test]
fn the_whole_stack_goes_dark_or_one_device_of_it() {
    let rig = Rig::new();
    for (cut, is_everywhere) in [("power_cut(everywhere)", true), ("power_cut", false)] {
        let trial = Trial::new(format!(
            "seed: 7\nruntime: simulated\nstack:\n  - concat:\n      of:\n        a: [ memory: {{ size: 1MiB }}, write_cache, faults ]\n        \
             b: [ memory: {{ size: 1MiB }}, faults ]\nload: {{ reads: 0%, requests: 600 }}\nfaults: [ \"on=a, write, nth=40: {cut}\" ]\n\
             expect: {{ failures: any, silent: 0 }}\n"
        ));
        let run = rig.run(&trial);
        run.assert_passed();
        let refused = |blocks: std::ops::Range<u64>| {
            run.failures()
                .iter()
                .filter(|failure| {
                    blocks.contains(&(failure["offset_bytes"].as_u64().expect("a number") / 4096))
                })
                .count()
        };
        assert!(refused(0..256) > 100, "{}", run.text);
        assert_eq!(refused(256..512) > 0, is_everywhere, "{cut}: {}", run.text);
    }
}

#[test]
fn what_a_guest_has_made_durable_outlives_a_power_cut() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(
        "stack: [ memory: { size: 320MiB }, write_cache, faults ]\nsubject: { machine: { file_system: ext4 } }\n\
         load: { files: { count: 2, size: 1MiB }, reads: 20%, requests: 300, flush_every: 20 }\n\
         faults: [ \"write, nth=150, during=run: power_cut(keeps=none)\" ]\n\
         expect: { failures: any, errors: any, unknown: any, assumed: any, silent: 0 }\n",
    ));
    run.assert_passed();
    assert!(run.count("injections") > 0 && run.count("failures") > 0, "the power went: {}", run.text);
    // The guest's kernel now and then tells of a write that its disk has refused that it is done; those are on record.
    let refused = run.ledger().iter().map(Value::to_string).collect::<String>();
    let is_lost = |way: &&Value| {
        let wanted = way["expected"][0]["hash"].as_str().unwrap_or("unknown");
        way["phase"] == "check" && !refused.contains(wanted)
    };
    let failures = run.failures();
    let lost = failures
        .iter()
        .find(|failure| failure["ways"].as_array().into_iter().flatten().any(|way| is_lost(&way)));
    assert!(lost.is_none(), "all that was made durable is there, and the file system is whole: {lost:?}");
    rig.assert_nothing_left();
}
