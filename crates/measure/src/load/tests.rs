//! Loads on targets that need nothing, and on files.

use std::fs;

use rotproof_record::RunFolder;
use rotproof_spec::Bytes;

use super::*;

fn command(target: &str, load: &str) -> LoadCommand {
    LoadCommand {
        target: target.parse().expect(target),
        load: serde_json::from_str(load).expect(load),
        seed: 1,
        access: Access {
            writes: false,
            overwrite: false,
            direct: false,
            engine: FileEngine::IoUring,
            size: None,
            is_shared: false,
        },
        verify: true,
        verify_only: false,
        probes: None,
        cancel: Cancel::new(),
        monitor: Arc::default(),
        record: None,
    }
}

#[test]
fn what_a_load_writes_is_read_back_and_what_it_only_reads_is_not_judged() {
    let load = r#"{ "pattern": "random", "reads": "50%", "requests": 2000, "queue_depth": 8, "workers": 2 }"#;
    for target in ["memory:4MiB", "disk:nvme:4MiB"] {
        let outcome = command(target, load).run().expect("runs");
        assert!(outcome.verified_blocks > 500, "{}", outcome.verified_blocks);
        assert_eq!((outcome.failures.len(), outcome.errors), (0, 0));
        let phases: Vec<_> = outcome.performance.iter().map(|line| &*line.phase).collect();
        assert_eq!(phases, ["run", "run", "run", "check"], "writes, reads and flushes, and no prefill");
        assert_eq!(outcome.effort.is_some(), target.starts_with("memory"));
    }
    let reads = command("memory:4MiB", r#"{ "pattern": "random", "reads": "100%", "requests": 100 }"#);
    assert_eq!(reads.run().expect("runs").verified_blocks, 0);
}

#[test]
fn probes_look_at_the_machine_while_the_load_runs_but_not_in_virtual_time() {
    let mut command = command("memory:4MiB", r#"{ "duration": "200ms", "queue_depth": 2 }"#);
    command.probes = Some(ProbesSpec::default());
    let found = command.run().expect("runs").probes.expect("there are probes");
    assert!(found.run_samples > 0, "{found:?}");
    assert!(found.series.iter().any(|series| series.metric == "process.user"), "{found:?}");
    let results = tempfile::tempdir().expect("a folder");
    command.record =
        Some(RecordOptions { results: Some(results.path().to_owned()), ..RecordOptions::default() });
    let folder = command.run().expect("runs").folder.expect("there is one");
    let kept = RunFolder::open(folder.inside()).expect("tables");
    let probes = kept.table("probes").expect("they were kept");
    assert!(
        probes.rows() > 0
            && probes.texts("metric").expect("a column").iter().any(|metric| &**metric == "cpu.user")
    );
    assert!(kept.intervals().expect("intervals").iter().any(|row| row.requests > 0));
    command.target = "disk:ssd:4MiB".parse().expect("a target");
    let error = command.run().expect_err("virtual time has no machine").to_string();
    assert!(error.contains("virtual time"), "{error}");
}

#[test]
fn a_load_that_is_interrupted_says_what_it_did_up_to_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(
        "memory:4MiB",
        r#"{ "pattern": "random", "duration": "1h", "queue_depth": 4, "workers": 2 }"#,
    );
    command.record =
        Some(RecordOptions { results: Some(folder.path().to_owned()), ..RecordOptions::default() });
    let cancel = command.cancel.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        cancel.cancel(2);
    });
    let outcome = command.run().expect("what was done up to there");
    stopper.join().expect("ends well");
    assert!(outcome.is_interrupted && outcome.performance[0].requests > 0);
    assert_eq!((outcome.verified_blocks, outcome.errors, outcome.failures.len()), (0, 0, 0));
    let results = outcome.folder.expect("it was to keep results");
    assert!(results.inside().join("intervals.parquet").is_file());
    assert_eq!(command.run().expect_err("before anything was done").kind(), ErrorKind::Cancelled);
}

#[test]
fn a_load_that_ends_when_it_is_steady_keeps_what_it_recorded_only_where_it_is_told_to() {
    let steady = r#"{ "pattern": "random", "duration": "60s",
                      "until_steady": { "window": "5s", "after": "2s", "range": "50%", "slope": "50%" } }"#;
    let mut command = command("disk:hdd:64MiB", steady);
    assert_eq!(command.run().expect_err("nobody counts").kind(), ErrorKind::Invalid);
    command.record = Some(RecordOptions::default());
    let outcome = command.run().expect("runs");
    let end = outcome.until_steady.expect("it was to");
    let since = end.state.and_then(|state| state.since_ns);
    assert_eq!((end.attained, since, end.at_ns), (true, Some(2_000_000_000), Some(7_000_000_000)));
    assert_eq!((outcome.folder.is_none(), outcome.failures.len()), (true, 0));
    let results = tempfile::tempdir().expect("a folder");
    command.record =
        Some(RecordOptions { results: Some(results.path().to_owned()), ..RecordOptions::default() });
    let folder = command.run().expect("runs").folder.expect("it was to keep results");
    let marks = RunFolder::open(folder.inside()).expect("tables").marks().expect("marks");
    let steady = marks.iter().find(|mark| &*mark.name == "steady").expect("it is marked");
    assert_eq!(steady.from_ns, 7_000_000_000);
}

#[test]
fn what_a_load_wrote_can_be_verified_later_without_its_being_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    let load = r#"{ "pattern": "random", "reads": "30%", "requests": 700, "queue_depth": 8, "workers": 3, "prefill": true,
                    "block_size": { "4KiB": "50%", "16KiB": "50%" }, "duplicates": "20%", "ramp_up": 50 }"#;
    let mut command = command(path.to_str().expect("UTF-8"), load);
    command.access.size = Some(Bytes(4 << 20));
    let wrote = command.run().expect("runs");
    let before = fs::read(&path).expect("it is there");
    command.verify_only = true;
    let found = command.run().expect("runs");
    assert_eq!((found.verified_blocks, found.failures.len()), (wrote.verified_blocks, 0));
    let phases: Vec<_> = found.performance.iter().map(|line| &*line.phase).collect();
    assert_eq!(phases, ["check"]);
    assert!(fs::read(&path).expect("still there") == before, "nothing was written");

    let mut rotten = before;
    rotten[5 * BLOCK_BYTES + 17] ^= 4;
    fs::write(&path, rotten).expect("written");
    let failures = command.run().expect("runs").failures;
    assert_eq!(failures.iter().map(|failure| failure.block).collect::<Vec<_>>(), [5]);
    assert_eq!(failures[0].worst().what.kind(), "flipped_bits");
    command.seed = 2;
    assert!(command.run().expect("runs").failures.len() > 1000, "that is another load");
    command.load.duration = Some(rotproof_spec::Span(std::time::Duration::from_secs(1)));
    assert!(command.run().expect_err("nobody knows").to_string().contains("ended by time"));
}

#[test]
fn without_verification_nothing_is_read_back() {
    let mut command = command("null:1GiB", r#"{ "requests": 1000, "queue_depth": 4 }"#);
    command.verify = false;
    let outcome = command.run().expect("runs");
    assert_eq!((outcome.verified_blocks, outcome.failures.len(), outcome.performance.len()), (0, 0, 2));
    command.verify = true;
    let found = command.run().expect("runs").failures.len();
    assert!(found > 900, "and what a device loses is found: {found}");
}

#[test]
fn fixed_buffers_are_verified_as_others_are_and_refused_where_there_are_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    let load = r#"{ "pattern": "random", "reads": "40%", "queue_depth": 8, "workers": 2, "requests": 1000, "fua": "10%",
                    "block_size": { "4KiB": "50%", "64KiB": "50%" }, "fixed_buffers": true }"#;
    let mut command = command(path.to_str().expect("UTF-8"), load);
    command.access.size = Some(Bytes(8 << 20));
    let outcome = command.run().expect("runs");
    assert_eq!((outcome.failures.len(), outcome.errors), (0, 0));
    assert!(outcome.verified_blocks > 500);
    command.access.engine = FileEngine::Psync;
    assert_eq!(command.run().expect_err("not with these calls").kind(), ErrorKind::Invalid);
    command.access.engine = FileEngine::IoUring;
    command.target = "memory:8MiB".parse().expect("a target");
    assert_eq!(command.run().expect_err("nothing to register").kind(), ErrorKind::Invalid);
}

#[test]
fn what_cannot_be_polled_is_refused_with_the_reason() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let path = folder.path().join("x");
    let mut command = command(path.to_str().expect("UTF-8"), r#"{ "polled": true }"#);
    command.access = Access { direct: true, size: Some(Bytes(1 << 20)), ..command.access };
    let mut refused = |change: fn(&mut LoadCommand)| {
        change(&mut command);
        let error = command.run().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    assert!(refused(|_| ()).contains("is on no device that can be polled"));
    assert!(refused(|command| command.access.direct = false).contains("leave out --buffered"));
    assert!(refused(|command| command.access.engine = FileEngine::Psync).contains("leave out --ioengine"));
    assert!(
        refused(|command| command.target = LoadTarget::Memory(Bytes(1 << 20))).contains("neither a file")
    );
    assert!(!path.exists(), "nothing was made");
}

#[test]
fn a_load_that_reads_opens_a_file_for_reading_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    fs::write(&path, vec![7; 1 << 20]).expect("written");
    let mut command = command(path.to_str().expect("UTF-8"), r#"{ "reads": "100%" }"#);
    command.access.size = Some(Bytes(512 << 10));
    let outcome = command.run().expect("runs");
    assert_eq!((outcome.size_bytes, outcome.performance[0].bytes), (512 << 10, 512 << 10));
    assert_eq!(fs::read(&path).expect("still there"), vec![7; 1 << 20]);
}
