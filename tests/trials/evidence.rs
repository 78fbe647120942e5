//! What a verdict may say, and what it may not: acquittals and charges that nothing shows.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::rig::{Rig, Run, Trial};

const BLOCK: usize = 4096;

fn fates(run: &Run) -> [u64; 5] {
    ["masked", "repaired", "reported", "unknown", "silent"].map(|fate| run.count(fate))
}

#[test]
fn reads_of_what_the_load_does_not_know_are_not_masked_but_silent() {
    for (stack, faults, silent) in [
        ("file: { path: medium.img, size: 8MiB, direct: false }", "read: noise", 2048),
        ("memory: { size: 8MiB }", "read, offset=0..4MiB: bit_flip", 1024),
    ] {
        let run = Rig::new().run(&Trial::new(format!(
            "stack: [ {stack} ]\nload: {{ reads: 100%, prefill: false, requests: 2048 }}\nfaults: [ \"{faults}\" ]\n"
        )));
        assert_eq!((run.code, fates(&run)), (1, [0, 0, 0, 0, silent]), "{}", run.text);
    }
}

#[test]
fn a_rule_that_never_did_anything_fails_the_trial_unless_that_is_expected() {
    let trial = |expect: &str| {
        Trial::new(format!(
            "stack: [ memory: {{ size: 8MiB }} ]\nload: {{ total: 8MiB }}\nfaults: [ \"read, tag=foo.db: bit_flip\" ]\n{expect}"
        ))
    };
    for (expect, code) in [
        ("", 1),
        ("expect: { silent: 0 }\n", 1),
        ("expect: { silent: 0, untriggered: any }\n", 0),
        ("expect: { untriggered: 1 }\n", 0),
    ] {
        let run = Rig::new().run(&trial(expect));
        assert_eq!((run.code, run.count("idle_rules")), (code, 1), "{expect}: {}", run.text);
    }
}

/// One bit of a block is stored wrong by a rule, and the block is overwritten later. Meanwhile another hand destroys 30
/// others.
#[test]
fn what_another_hand_destroys_is_not_the_consequence_of_a_fault_on_overwritten_data() {
    for subject in ["ext4", "xfs", "btrfs"] {
        let rig = Rig::new();
        let medium = rig.path("medium.img");
        // Slow enough that the other hand finds everything in its place, also where others want the processors.
        let trial = Trial::new(format!(
            "stack: [ file: {{ path: {}, size: 384MiB, direct: false }} ]\nsubject: {subject}\nload: {{ prefill: true, \
             files: {{ count: 1, size: 48MiB }}, total: 10MiB, rate: 400 }}\n\
             faults: [ \"write, nth=700, during=prefill: bit_flip\" ]\n\
             expect: {{ failures: any, silent: any, unknown: any }}\n",
            medium.display()
        ));
        let log = rig.path("log");
        let is_running = |_: &super::rig::Process| {
            fs::read_to_string(&log).is_ok_and(|said| said.contains("prefill  done"))
        };
        let run = rig.meddle(&trial, is_running, |_| assert_eq!(destroy(&medium, 30), 30));
        let unexplained = run.count("unexplained") + run.count("assumed");
        assert_eq!((run.code, unexplained), (1, 30), "{subject}: {}", run.text);
        let own = run.count("failures") - 30;
        assert!(own <= 1, "the rule hit one block: {}", run.text);
    }
}

/// Fills the last `count` blocks of an image that look like the load's with something else; gives how many those were.
fn destroy(medium: &std::path::Path, count: usize) -> usize {
    let image = File::options().read(true).write(true).open(medium).expect("the medium is there");
    let bytes = fs::read(medium).expect("readable");
    // The load's blocks alone are as good as random.
    let is_random = |block: &[u8]| {
        // Most are zeros, and the load does not wait for whoever looks at all of each.
        if block[0] == block[1] {
            return false;
        }
        let mut seen = [false; 256];
        block.iter().for_each(|&byte| seen[usize::from(byte)] = true);
        seen.iter().filter(|&&seen| seen).count() > 250
    };
    let blocks = bytes.chunks_exact(BLOCK).enumerate().rev().filter(|(_, block)| is_random(block));
    let chosen = blocks.take(count).map(|(number, _)| number);
    chosen.map(|number| image.write_all_at(&[0x5a; BLOCK], (number * BLOCK) as u64).expect("written")).count()
}

#[test]
fn the_neighbours_of_a_bad_block_in_its_request_are_laid_to_it() {
    for subject in ["raw", "device"] {
        let run = Rig::new().run(&Trial::new(format!(
            "stack: [ memory: {{ size: 16MiB }} ]\nsubject: {subject}\n\
             load: {{ reads: 50%, pattern: random, block_size: 16KiB, requests: 4000, prefill: true }}\n\
             faults:\n  - \"read, offset=1MiB, sticky: medium_error\"\n  - \"read, offset=3MiB, once: medium_error\"\n  \
             - \"write, offset=5MiB, nth=2: medium_error\"\n\
             expect: {{ failures: \">= 12\", reported: 3, silent: 0 }}\n"
        )));
        run.assert_passed();
    }
    let run = Rig::new().run(&Trial::new(
        "stack: [ memory: { size: 64MiB } ]\nsubject: device\n\
         load: { reads: 50%, pattern: random, block_size: 64KiB, requests: 4000, prefill: true }\n\
         faults: [ { name: media, model: { latent_sector_errors: { acceleration: 1e7, over: 1s } } } ]\n\
         expect: { failures: \"> 0\", silent: 0, untriggered: any, unknown: any }\n",
    ));
    run.assert_passed();
}

#[test]
fn a_load_of_files_on_btrfs_charges_what_tore_its_log_and_nobody_else() {
    for seed in 1..=4 {
        let run = Rig::new().run(&Trial::new(format!(
            "seed: {seed}\nstack: [ memory: {{ size: 512MiB }} ]\nsubject: btrfs\n\
             load: {{ personality: {{ webserver: {{ files: 40, threads: 4, loops: 10 }} }} }}\n\
             faults: [ \"write, probability=20%, during=run: torn_write\" ]\n\
             expect: {{ failures: any, silent: 0, unknown: any }}\n"
        )));
        run.assert_passed();
    }
}

#[test]
fn a_file_system_that_shuts_down_under_a_load_of_files_is_a_finding() {
    for seed in 1..=3 {
        let run = Rig::new().run(&Trial::new(format!(
            "seed: {seed}\nstack: [ memory: {{ size: 512MiB }} ]\nsubject: xfs\n\
             load: {{ personality: {{ varmail: {{ files: 100, threads: 4, loops: 60 }} }} }}\n\
             faults: [ \"write, after=60, offset=200MiB..320MiB: error\" ]\n\
             expect: {{ failures: \">= 1\", reported: \">= 1\", unknown: any }}\n"
        )));
        assert_eq!(run.code, 0, "{}", run.text);
    }
}
