//! Trials on a FAT file system in process, through the command line as a user runs it. They need no root.

use crate::rig::{Rig, Run, Trial};

/// Three files of 1 MiB, 256 blocks each, written block by block with a flush after each.
fn three_files(runtime: &str, faults: &str, expect: &str) -> Trial {
    Trial::new(format!(
        "seed: 1\nruntime: {runtime}\nstack:\n  - disk: {{ profile: nvme, size: 32MiB }}\n  - faults\nsubject: fat\n\
         load:\n  flush_every: 1\n  files: {{ count: 3, size: 1MiB }}\nfaults: [{faults}]\nexpect: {{ {expect} }}\n"
    ))
}

/// The failing blocks of a run, as file and block.
fn places(run: &Run) -> Vec<(String, u64)> {
    let place = |failure: &serde_json::Value| {
        let name = failure["object"].as_str().expect("a name").to_owned();
        (name, failure["block"].as_u64().expect("a block"))
    };
    run.failures().iter().map(place).collect()
}

/// FISPDK's experiment (section "Data corruption"): exactly those blocks of exactly that file, the same in each run.
#[test]
fn schedules_on_the_tag_of_one_file_hit_exactly_its_blocks_and_every_run_is_the_same() {
    let rig = Rig::new();
    let blocks = 256u64;
    let schedules: [(&str, &str, Vec<u64>); 3] = [
        ("interval", "every=50", (1..=blocks / 50).map(|number| number * 50 - 1).collect()),
        ("all", "all", (0..blocks).collect()),
        ("all-after", "after=50", (50..blocks).collect()),
    ];
    for (name, schedule, wanted) in schedules {
        let faults = format!("'write, tag=b, {schedule}: bit_flip(byte=0, bit=0)'");
        let count = wanted.len();
        let expect = format!("injections: {count}, failures: {count}, silent: {count}, failing_files: 1");
        let runs = [(); 3].map(|()| rig.run(&three_files("simulated", &faults, &expect)));
        for run in &runs {
            run.assert_passed();
            let wanted: Vec<_> = wanted.iter().map(|&block| ("b".to_owned(), block)).collect();
            assert_eq!(places(run), wanted, "{name}");
            // Hashes of what each block holds instead are among it.
            assert_eq!(run.repeatable(), runs[0].repeatable(), "{name}");
        }
    }
}

#[test]
fn on_io_uring_a_rule_by_content_finds_its_block_wherever_the_library_puts_it() {
    let rig = Rig::new();
    let faults = "'write, target=file(b, block=7): zeros', 'read, tag=c, nth=3, during=check: bit_flip'";
    let run =
        rig.run(&three_files("io_uring", faults, "injections: 2, failures: 2, silent: 2, failing_files: 2"));
    run.assert_passed();
    let found = places(&run);
    assert_eq!(found[0], ("b".to_owned(), 7));
    assert_eq!(found[1].0, "c");
}

#[test]
fn an_error_below_comes_through_the_library_to_its_user() {
    let rig = Rig::new();
    let faults = "'write, tag=a, nth=5: error(ENOSPC)', 'read, tag=b, nth=9, sticky, during=check: medium_error', \
                  'flush, tag=c, nth=2: error'";
    let run =
        rig.run(&three_files("simulated", faults, "failures: 2, reported: 3, silent: 0, errors: '>= 3'"));
    run.assert_passed();
    assert_eq!(places(&run), [("a".to_owned(), 4), ("b".to_owned(), 8)]);
}

#[test]
fn damage_to_its_metadata_costs_the_volume_and_is_laid_to_the_fault() {
    let rig = Rig::new();
    // Written when the volume is unmounted.
    let faults = "'write, offset=0..4KiB: zeros'";
    let run = rig.run(&three_files("simulated", faults, "failures: 768, failing_files: 3, unexplained: 0"));
    run.assert_passed();
    assert!(run.text.contains("could not be mounted again"), "{}", run.text);
}
