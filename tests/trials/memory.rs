//! Faults in the memory of a machine, and what a machine is as a subject.

use std::fs;

use serde_json::Value;

use crate::rig::{Rig, Run, Trial};

const EXAMPLES: [(&str, &str); 3] = [
    ("clean", include_str!("../../examples/memory/xfs-clean-page.yaml")),
    ("dirty", include_str!("../../examples/memory/btrfs-dirty-page.yaml")),
    ("dirty", include_str!("../../examples/memory/ext4-dirty-page.yaml")),
];

fn lines(run: &Run, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.file(name)).expect("it is among the results");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_page_that_rots_in_the_cache_is_handed_out_and_a_dirty_one_is_written_down() {
    let rig = Rig::new();
    for (what, text) in EXAMPLES {
        let run = rig.run(&Trial::new(text));
        run.assert_passed();
        let failures = run.failures();
        assert_eq!(
            (failures.len(), failures[0]["object"].as_str(), failures[0]["block"].as_u64()),
            (1, Some("a"), Some(7))
        );
        let (ledger, memory) = (lines(&run, "ledger.jsonl"), lines(&run, "memory.jsonl"));
        assert_eq!((ledger.len(), memory.len()), (1, 1));
        assert_eq!((&ledger[0]["on"], &ledger[0]["offset"]), (&"memory".into(), &memory[0]["address"]));
        assert_eq!(memory[0]["is_living"], true);
        let bytes = &memory[0]["bytes"][0];
        let byte = |at: usize| bytes[at].as_u64().expect("a number");
        assert_eq!((byte(0), byte(1) ^ byte(2)), (1000, 16), "the bit that was named");
        // A clean page is seen by the load alone, a dirty one by the check after a new kernel has read it from the disk.
        let phase = if what == "clean" { "run" } else { "check" };
        assert!(failures[0].to_string().contains(phase), "{what}: {}", failures[0]);
        let console = fs::read_to_string(run.file("console.txt")).expect("the console is kept");
        let kernels = console.matches("Run /init as init process").count();
        assert_eq!(kernels, 2, "one before the check, and one for it: {console}");
    }
}

#[test]
fn a_page_that_rots_in_the_cache_of_a_database_is_handed_out_and_written_down() {
    let rig = Rig::new();
    let run = rig.run(&Trial::new(include_str!("../../examples/memory/sqlite-page.yaml")));
    run.assert_passed();
    let (ledger, memory) = (lines(&run, "ledger.jsonl"), lines(&run, "memory.jsonl"));
    assert_eq!((ledger.len(), memory.len()), (1, 1));
    assert_eq!((&ledger[0]["on"], &ledger[0]["tag"]), (&"memory".into(), &"sqlite3".into()));
    assert_eq!((&memory[0]["process"], memory[0]["is_living"].as_bool()), (&"sqlite3".into(), None));
    assert!(["heap", "anonymous"].contains(&memory[0]["kind"].as_str().unwrap_or_default()), "{memory:?}");
    let byte = |at: usize| memory[0]["bytes"][0][at].as_u64().expect("a number");
    assert_eq!((byte(0), byte(1) ^ byte(2)), (2000, 16), "the bit that was named");
    let said = fs::read_to_string(run.file("check.stderr")).expect("what the check printed");
    assert!(said.contains("ok"), "SQLite's own check finds nothing: {said}");
    rig.assert_nothing_left();
}

#[test]
fn page_checksums_of_postgresql_do_not_see_what_rots_in_its_memory() {
    let rig = Rig::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/memory");
    let text = include_str!("../../examples/memory/postgres-page.yaml")
        .replace("./postgres.sh", &format!("{folder}/postgres.sh"))
        .replace("\"$ROTPROOF_TRIAL_DIR\"", folder);
    let run = rig.run(&Trial::new(text));
    run.assert_passed();
    let memory = lines(&run, "memory.jsonl");
    assert_eq!((memory.len(), &memory[0]["process"]), (1, &"postgres".into()));
    let said = fs::read_to_string(run.file("check.stdout")).expect("what the check printed")
        + &fs::read_to_string(run.file("check.stderr")).expect("what it said beside");
    assert!(said.contains("pg_amcheck finds nothing"), "{said}");
    assert!(said.contains("Bad checksums:  0") && said.contains("Data checksum version: 1"), "{said}");
    rig.assert_nothing_left();
}

/// A machine of its own under a load of files, with this fault, and whatever comes of it. ext4 commits each second whatever its files'
/// writes come to, and gives up when that fails.
fn machine(fault: &str) -> Trial {
    Trial::new(format!(
        "stack: [memory: {{ size: 320MiB }}]\nsubject: {{ machine: {{ file_system: {{ ext4: {{ mount: [commit=1] }} }} }} }}\n\
         load: {{ personality: {{ varmail: {{ files: 40, threads: 3 }} }}, duration: 4s }}\nfaults: ['{fault}']\n\
         expect: {{ failures: any, silent: any, unknown: any, assumed: any, unexplained: any, untriggered: any }}\n"
    ))
}

/// jfs is built into User Mode Linux, f2fs is a module of it.
#[test]
fn machines_have_jfs_and_f2fs_as_they_have_ext4() {
    let rig = Rig::new();
    for file_system in ["jfs", "f2fs"] {
        // A page that rots in the cache is handed out, and the check, by a new kernel, finds it right on the disk.
        let clean = EXAMPLES[0].1.replace("file_system: xfs", &format!("file_system: {file_system}"));
        assert_ne!(clean, EXAMPLES[0].1);
        let run = rig.run(&Trial::new(clean));
        run.assert_passed();
        assert_eq!(run.failures().len(), 1);
        if file_system == "jfs" {
            let text = "stack: [ memory: { size: 128MiB } ]\nsubject: { machine: { file_system: jfs } }\nstop: kill\n";
            let refused = rig.run(&Trial::new(text));
            assert_eq!(refused.code, 2, "{}", refused.text);
            assert!(refused.text.contains("replays no journal"), "{}", refused.text);
            continue;
        }
        // What was flushed is there after a kernel that was killed.
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 128MiB }} ]\nsubject: {{ machine: {{ file_system: {file_system} }} }}\nstop: kill\n\
             load: {{ files: {{ count: 2, size: 256KiB }}, prefill: true, reads: 20%, requests: 200, flush_every: 10 }}\n\
             expect: {{ failures: 0 }}\n"
        )));
        run.assert_passed();
        let console = fs::read_to_string(run.file("console.txt")).expect("the console is kept");
        assert_eq!(console.matches("Run /init as init process").count(), 2, "{console}");
    }
    rig.assert_nothing_left();
}

#[test]
fn a_file_system_that_goes_read_only_in_a_machine_is_told() {
    let rig = Rig::new();
    let run = rig.run(&machine("write, after=20, during=run: error"));
    run.assert_passed();
    let noticed = run.json["noticed"].to_string();
    assert!(noticed.contains("read-only"), "{noticed}");
    assert!(!rotproof_results::GUEST_ENDS.iter().any(|end| noticed.contains(end)), "{noticed}");
    rig.assert_nothing_left();
}

#[test]
fn what_makes_no_sense_on_memory_is_explained() {
    let rig = Rig::new();
    let check = |subject: &str, rule: &str| {
        let text = format!("stack: [memory: {{ size: 320MiB }}]\nsubject: {subject}\nfaults: ['{rule}']\n");
        let run = rig.run(&Trial::new(text));
        assert_eq!(run.code, 2, "{}", run.text);
        run.text
    };
    let machine = "{ machine: { file_system: ext4 } }";
    assert!(
        check("ext4", "on=memory, places=1: bit_flip").contains("has no memory that faults could act on")
    );
    assert!(check(machine, "on=memory, read, places=1: bit_flip").contains("memory has none"));
    assert!(check(machine, "on=memory, places=1, kind=heap: bit_flip").contains("no memory of a machine is"));
    assert!(check(machine, "on=memory, places=1, process=cat: bit_flip").contains("is not known"));
    let program = |rule: &str| {
        let text = format!(
            "stack: [memory: {{ size: 320MiB }}]\nsubject: ext4\nload: {{ command: 'true' }}\nfaults: ['{rule}']\n"
        );
        rig.run(&Trial::new(text)).text
    };
    assert!(program("on=memory, places=1, kind=dirty: bit_flip").contains("take heap, stack"));
    assert!(program("read, target=file(a, block=1): error").contains("not known, so nothing can aim"));
    assert!(check(machine, "places=1: bit_flip").contains("add `on: memory`"));
    assert!(check("machine", "read: error").contains("a machine needs a file system"));
    assert!(
        check("{ machine: { file_system: fat } }", "read: error").contains("ext4, xfs, btrfs, jfs or f2fs")
    );
    assert!(check("f2fs", "read: error").contains("write `machine: { file_system: f2fs }`"));
    assert!(check("{ machine: { file_system: ext4, memory: 1MiB } }", "read: error").contains("64MiB"));
}
