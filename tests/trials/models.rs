//! Trials whose faults are drawn from fault models.

use crate::rig::{Rig, Trial};

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
         acceleration: 200000 } }\nexpect: { injections: \">= 1\", silent: 0, failures: 0, unexplained: 0 }\n",
    );
    rig.run(&trial).assert_passed();
}

#[test]
fn a_slow_device_under_ext4_fails_nothing() {
    let rig = Rig::new();
    let trial = Trial::new(
        "seed: 3\nstack:\n  - memory: { size: 64MiB }\nsubject: ext4\nload:\n  queue_depth: 8\n  files: { count: 2, \
         size: 8MiB }\nfaults: ['name=slow: model(fail_slow, slowness=exponential=2ms)']\nexpect: { injections: \">= 1\", \
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
         expect: { injections: \">= 10\", silent: \">= 1\", reported: \">= 1\" }\n",
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
