//! Trials whose load is one of files.

use crate::FILE_SYSTEMS;
use rotproof_record::RunFolder;

use crate::rig::{Rig, Trial};

/// A small load of files.
fn files(subject: &str, personality: &str, rest: &str) -> Trial {
    Trial::new(format!(
        "seed: 1\nstack: [ memory: {{ size: 320MiB }}, faults ]\nsubject: {subject}\nload: {{ personality: {personality} \
         }}\nprobes: off\n{rest}\n"
    ))
}

#[test]
fn loads_of_files_are_found_right_after_a_remount_on_every_file_system() {
    let rig = Rig::new();
    let small = "{ varmail: { files: 60, threads: 4, loops: 10 } }";
    let others = [
        "{ oltp: { files: 3, threads: 5, writers: 2, file_size: 256KiB, log_size: 4MiB, loops: 400 } }",
        "{ mail_store: { files: 6, threads: 3, file_size: 256KiB, log_size: 4MiB, loops: 50 } }",
        "{ metadata: { files: 60, threads: 3, file_size: 3901, loops: 2, keep: true } }",
    ];
    let trials = FILE_SYSTEMS.map(|subject| (subject, small)).into_iter();
    for (subject, personality) in trials.chain(others.map(|personality| ("ext4", personality))) {
        let run = rig.run(&files(subject, personality, "expect: { failures: 0, errors: 0 }"));
        run.assert_passed();
        let performance = run.json["performance"].as_array().expect("lines");
        let check = performance.iter().find(|line| line["phase"] == "check" && line["operation"] == "read");
        assert!(check.expect("read back")["bytes"].as_u64() > Some(100_000), "{subject}: {personality}");
        let kept = RunFolder::open(&run.file("")).expect("recorded");
        for (rows, whose) in [(kept.intervals(), "files"), (kept.device_intervals(), "the device")] {
            let rows = rows.expect("a table");
            let moved = |phase: &str| {
                rows.iter().any(|row| row.worker.is_none() && &*row.phase == phase && row.bytes > 0)
            };
            assert!(moved("run") && moved("check"), "{whose}: {subject}: {personality}");
        }
    }
}

#[test]
fn what_a_fault_does_to_files_is_told_by_their_names_and_by_its_hits() {
    let rig = Rig::new();
    let varmail = "{ varmail: { files: 60, threads: 4, loops: 10 } }";
    let faults =
        "faults: [ \"name=rot, read, during=check, every=5: bit_flip\" ]\nexpect: { silent: \">= 1\" }";
    let run = rig.run(&files("ext4", varmail, faults));
    run.assert_passed();
    assert_eq!(run.count("silent"), run.count("injections"), "ext4 hands out every one");
    for failure in &run.failures() {
        let name = failure["object"].as_str().expect("a name");
        assert!(name.starts_with('f'), "{failure}");
        assert_eq!(failure["ways"][0]["what"]["kind"], "flipped_bits", "{failure}");
        assert!(failure["cause"]["injection"].is_u64(), "attributed to its fault: {failure}");
    }
    let run =
        rig.run(&files("btrfs", varmail, &faults.replace("silent: \">= 1\"", "silent: 0, unknown: any")));
    run.assert_passed();
    // Where a fifth read is of metadata, nobody looks at that block itself.
    let faults = "faults: [ \"name=media, read, during=check, every=5, sticky: error\" ]\nexpect: { reported: \">= 1\", \
                  silent: 0, unknown: any }";
    let run = rig.run(&files("ext4", varmail, faults));
    run.assert_passed();
    let is_of_load = |hit: &serde_json::Value| {
        hit["blocks"].as_array().into_iter().flatten().any(|block| block["of_load"] == true)
    };
    let beside = run.ledger().iter().filter(|hit| !is_of_load(hit)).count() as u64;
    assert!(run.count("unknown") <= beside, "what is unknown lies where the load has nothing: {}", run.text);
    assert!(run.failures().iter().all(|failure| failure["ways"][0]["what"]["error"] == "medium"));
}
