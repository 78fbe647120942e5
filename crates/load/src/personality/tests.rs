//! Loads of files on a real folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rotproof_block::runtime::Clock;
use rotproof_block::{ErrorKind, Phase};
use rotproof_record::{IntervalLength, RecordSpec, Recording, RecordingOptions, RunFolder};

use super::*;
use crate::Failure;
use crate::engine::HungEnd;

struct Rig {
    plan: FilePlan,
    oracle: FileOracle,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new(text: &str) -> Self {
        let plan = FilePlan::new(&text.parse().expect(text), 1);
        let oracle = FileOracle::new(&plan);
        Self { plan, oracle, folder: tempfile::tempdir().expect("a folder") }
    }

    fn options(phase: Phase) -> FileRunOptions {
        FileRunOptions {
            phase,
            clock: Clock::start(),
            duration: None,
            cancel: Arc::default(),
            progress: Arc::default(),
            recording: None,
            until_steady: None,
            hung_after: None,
            let_go: None,
        }
    }

    fn run(&mut self, phase: Phase) -> FileReport {
        let path = self.folder.path().to_owned();
        run(&self.plan, &path, &mut self.oracle, &Self::options(phase)).expect("runs")
    }

    /// Prefill and run, without a failure.
    fn loaded(text: &str) -> (Self, FileReport) {
        let mut rig = Self::new(text);
        let prefill = rig.run(Phase::Prefill);
        assert_eq!((prefill.error_count(), prefill.failures.len()), (0, 0), "{text}");
        let report = rig.run(Phase::Run);
        assert_eq!((report.error_count(), report.failures.len()), (0, 0), "{text}: {:?}", report.failures);
        (rig, report)
    }

    fn check(&mut self) -> Vec<Failure> {
        let check = self.run(Phase::Check);
        failures_of([&check])
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}

fn count(report: &FileReport, operation: FileOperation) -> u64 {
    report.operation(operation).map_or(0, |figures| figures.requests)
}

/// The files below a folder, with what they hold.
fn files_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below it").to_owned();
                files.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    files
}

const SMALL: [&str; 6] = [
    "varmail:files=40,threads=4,loops=15",
    "fileserver:files=60,threads=3,directory_width=4,file_size=16KiB,loops=12",
    "webserver:files=30,threads=5,directory_width=6,loops=10,log_size=4MiB",
    "oltp:files=3,threads=5,writers=2,file_size=128KiB,log_size=4MiB,loops=500",
    "mail_store:files=6,threads=3,file_size=256KiB,log_size=4MiB,loops=200",
    "metadata:files=50,threads=3,directory_width=10,file_size=3901,loops=2,keep=true",
];

#[test]
fn whatever_a_load_of_files_does_is_found_right_in_the_end() {
    for text in SMALL {
        let (mut rig, run) = Rig::loaded(text);
        assert!(run.operation_count() > 100 && run.elapsed() > Duration::ZERO, "{text}");
        assert!(rig.oracle.file_count() > 0 && rig.oracle.bytes() > 0, "{text}");
        assert_eq!(rig.check(), [], "{text}");
        let again = rig.run(Phase::Check);
        assert_eq!(again.files, rig.oracle.file_count(), "{text}");
        assert_eq!(again.verified_bytes, rig.oracle.bytes(), "{text}");
        let on_disk: u64 = files_in(rig.folder.path()).values().map(|bytes| bytes.len() as u64).sum();
        assert_eq!(on_disk, rig.oracle.bytes(), "{text}");
    }
}

#[test]
fn a_seed_gives_the_same_files_with_the_same_contents() {
    // Where threads share files, what each of them holds is still the same, but for who was when.
    for text in [SMALL[0], SMALL[1], SMALL[5]] {
        let files = || files_in(Rig::loaded(text).0.folder.path());
        assert_eq!(files(), files(), "{text}");
    }
}

#[test]
fn operations_are_done_as_often_as_filebench_does_them() {
    use FileOperation::{Append, Close, Create, Delete, Fsync, Log, Open, Read, Stat, Write};
    let wanted: [(&str, &[(FileOperation, u64)]); 3] = [
        (SMALL[0], &[(Delete, 1), (Create, 1), (Append, 2), (Fsync, 2), (Open, 2), (Read, 2), (Close, 3)]),
        (
            SMALL[1],
            &[(Create, 1), (Write, 1), (Append, 1), (Open, 2), (Read, 1), (Delete, 1), (Stat, 1), (Close, 3)],
        ),
        (SMALL[2], &[(Open, 10), (Read, 10), (Close, 10), (Log, 1)]),
    ];
    for (text, per_loop) in wanted {
        let (rig, run) = Rig::loaded(text);
        let loops = u64::from(rig.plan.figures().threads) * rig.plan.figures().loops.expect("given");
        for &(operation, each) in per_loop {
            assert_eq!(count(&run, operation), each * loops, "{text}: {operation:?}");
        }
    }
    let (_, oltp) = Rig::loaded(SMALL[3]);
    // Each writer writes a hundred before it first blocks, and after each thousand reads.
    assert_eq!((count(&oltp, Read), count(&oltp, Write), count(&oltp, Log)), (2500, 2 * 100 * 3, 1));
    let (_, mail) = Rig::loaded(SMALL[4]);
    let changes = [FileOperation::Insert, FileOperation::Replace, FileOperation::Erase];
    let changes: u64 = changes.into_iter().map(|operation| count(&mail, operation)).sum();
    assert_eq!((changes + count(&mail, Read), count(&mail, Log)), (600, changes), "each change is logged");
    let (_, names) = Rig::loaded(SMALL[5]);
    let phases = [FileOperation::Mkdir, Create, Stat, Read, FileOperation::Dirstat];
    assert_eq!(phases.map(|operation| count(&names, operation)), [100; 5]);
    assert_eq!((count(&names, Delete), count(&names, FileOperation::Rmdir)), (50, 50), "the last stay");
}

#[test]
fn what_is_wrong_with_a_file_is_named_with_the_file() {
    let (mut rig, _) = Rig::loaded("varmail:files=40,threads=4,file_size=32KiB,loops=15");
    let mut large: Vec<String> = files_in(rig.folder.path())
        .into_iter()
        .filter(|(_, bytes)| bytes.len() > 9000)
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    assert!(large.len() >= 5);
    let mut next = || large.pop().expect("enough of them");
    let (flipped, lost, cut, other, zeroed) = (next(), next(), next(), next(), next());
    let change = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(rig.path(name)).expect("it is there");
        change(&mut bytes);
        std::fs::write(rig.path(name), bytes).expect("written");
    };
    change(&flipped, &|bytes| bytes[5000] ^= 1);
    std::fs::remove_file(rig.path(&lost)).expect("it is there");
    change(&cut, &|bytes| bytes.truncate(8200));
    let misdirected = std::fs::read(rig.path(&flipped)).expect("it is there")[..4096].to_vec();
    change(&other, &|bytes| bytes[..4096].copy_from_slice(&misdirected));
    change(&zeroed, &|bytes| bytes[4096..8192].fill(0));
    std::fs::write(rig.path("stranger"), "?").expect("written");
    let found: BTreeMap<(String, u64), &str> = rig
        .check()
        .iter()
        .map(|failure| ((failure.object.clone(), failure.block), failure.worst().what.kind()))
        .collect();
    let wanted = [
        ((flipped, 1), "flipped_bits"),
        ((lost, 0), "lost"),
        ((cut, 2), "wrong_size"),
        ((other, 0), "misdirected"),
        ((zeroed, 1), "zeroed"),
        (("stranger".to_owned(), 0), "undeleted"),
    ];
    assert_eq!(found, BTreeMap::from(wanted));
}

#[test]
fn an_earlier_version_is_stale_and_a_deleted_file_that_is_back_is_undeleted() {
    let mut rig = Rig::new("varmail:files=20,threads=2,file_size=64KiB,loops=40");
    rig.run(Phase::Prefill);
    let before = files_in(rig.folder.path());
    rig.run(Phase::Run);
    let after = files_in(rig.folder.path());
    let both = before.keys().find(|name| {
        let is_large =
            |files: &BTreeMap<PathBuf, Vec<u8>>| files.get(*name).is_some_and(|bytes| bytes.len() >= 4096);
        is_large(&before) && is_large(&after)
    });
    let name = both.expect("one that was made anew");
    let mut bytes = after[name].clone();
    bytes[..4096].copy_from_slice(&before[name][..4096]);
    std::fs::write(rig.folder.path().join(name), bytes).expect("written");
    let gone = (0..20).map(|file| rig.plan.path(file)).find(|name| !after.contains_key(Path::new(name)));
    let gone = gone.expect("some are missing");
    std::fs::write(rig.path(&gone), "back").expect("written");
    let found: BTreeMap<String, &str> =
        rig.check().iter().map(|failure| (failure.object.clone(), failure.worst().what.kind())).collect();
    assert_eq!(found, BTreeMap::from([(name.to_string_lossy().into_owned(), "stale"), (gone, "undeleted")]));
}

#[test]
fn wrong_data_in_a_database_and_in_a_log_is_found_to_the_block() {
    let (mut rig, _) = Rig::loaded(SMALL[3]);
    for (name, byte) in [("f1", 70_000), ("log", 10_000)] {
        let mut bytes = std::fs::read(rig.path(name)).expect("it is there");
        bytes[byte] ^= 0x10;
        std::fs::write(rig.path(name), bytes).expect("written");
    }
    let found: Vec<(String, u64, &str)> = rig
        .check()
        .iter()
        .map(|failure| (failure.object.clone(), failure.block, failure.worst().what.kind()))
        .collect();
    assert_eq!(found, [("f1".into(), 17, "flipped_bits"), ("log".into(), 2, "flipped_bits")]);
}

#[test]
fn a_log_that_goes_round_is_verified_in_all_its_laps() {
    let (mut rig, run) = Rig::loaded("mail_store:files=4,threads=4,file_size=64KiB,log_size=4MiB,loops=500");
    assert!(count(&run, FileOperation::Log) * 2900 > 4 << 20, "it went round");
    assert_eq!(rig.check(), []);
    let mut bytes = std::fs::read(rig.path("log")).expect("it is there");
    assert_eq!(bytes.len(), 4 << 20);
    let (one, other) = bytes.split_at_mut(1 << 20);
    one[..4096].swap_with_slice(&mut other[..4096]);
    std::fs::write(rig.path("log"), bytes).expect("written");
    let kinds: Vec<_> = rig.check().iter().map(|failure| failure.worst().what.kind()).collect();
    assert_eq!(kinds, ["misdirected", "misdirected"]);
}

#[test]
fn errors_are_counted_and_leave_their_files_in_doubt_but_never_the_others() {
    let mut rig = Rig::new("varmail:files=40,threads=4,loops=5");
    rig.run(Phase::Prefill);
    // A folder in the place of a file: it can be neither opened for writing nor deleted as one.
    let name = rig.plan.path(4);
    std::fs::remove_file(rig.path(&name)).expect("it is there");
    std::fs::create_dir(rig.path(&name)).expect("made");
    let run = rig.run(Phase::Run);
    assert!(run.error_count() > 0);
    let objects: Vec<&str> = run.failures.iter().map(|failure| failure.object.as_str()).collect();
    assert!(!objects.is_empty() && objects.iter().all(|object| *object == name), "{objects:?}");
    let check = rig.check();
    assert!(check.iter().all(|failure| failure.object == name), "{check:?}");
}

#[test]
fn a_load_by_time_ends_and_one_that_is_stopped_says_so() {
    for text in SMALL {
        let mut rig = Rig::new(text.rsplit_once(",loops").expect("they end by loops").0);
        rig.run(Phase::Prefill);
        let folder = rig.folder.path().to_owned();
        let options =
            FileRunOptions { duration: Some(Duration::from_millis(60)), ..Rig::options(Phase::Run) };
        let report = run(&rig.plan, &folder, &mut rig.oracle, &options).expect("runs");
        assert!(report.operation_count() > 0, "{text}");
        assert_eq!(rig.check(), [], "{text}");
        let stopped = FileRunOptions { cancel: Arc::new(AtomicUsize::new(2)), ..Rig::options(Phase::Check) };
        let report = run(&rig.plan, &folder, &mut rig.oracle, &stopped).expect("what was done up to there");
        assert!(report.is_interrupted, "{text}");
        let after = run(&rig.plan, &folder, &mut rig.oracle, &Rig::options(Phase::Check)).expect_err("lost");
        assert_eq!(after.kind(), ErrorKind::Invalid, "{text}");
    }
}

#[test]
fn what_is_there_already_is_not_written_over() {
    let mut rig = Rig::new(SMALL[1]);
    std::fs::create_dir(rig.path("d0")).expect("made");
    let folder = rig.folder.path().to_owned();
    let error = run(&rig.plan, &folder, &mut rig.oracle, &Rig::options(Phase::Prefill)).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[test]
fn every_operation_is_recorded_by_interval_by_worker_and_in_all() {
    for name in
        ["varmail:files=20,threads=3,loops=4", "oltp:files=2,threads=3,writers=2,loops=40,file_size=1MiB"]
    {
        let results = tempfile::tempdir().expect("a folder");
        let mut rig = Rig::new(name);
        let interval = IntervalLength::Every("10ms".parse().expect("a span"));
        let recording = Recording::new(RecordingOptions {
            spec: RecordSpec { interval, samples: true, ..RecordSpec::default() },
            operations: FileOperation::NAMES,
            workers: rig.plan.workers(),
            folder: results.path().to_owned(),
        })
        .expect("a folder");
        let (mut done, clock) = (BTreeMap::new(), Clock::start());
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            let recording = Some(Arc::clone(&recording));
            let options = FileRunOptions { clock, recording, ..Rig::options(phase) };
            let path = rig.folder.path().to_owned();
            let report = run(&rig.plan, &path, &mut rig.oracle, &options).expect("runs");
            for line in report.operations {
                let figures = (line.figures.requests, line.figures.bytes, line.figures.error_count());
                done.insert((phase.word().to_owned(), line.operation.word().to_owned()), figures);
            }
        }
        recording.write_to(results.path()).expect("written");
        let found = RunFolder::open(results.path()).expect("a run");
        let rows = found.intervals().expect("intervals");
        for of_workers in [false, true] {
            let mut sums = BTreeMap::new();
            for row in rows.iter().filter(|row| row.worker.is_some() == of_workers && row.requests > 0) {
                let sum: &mut (u64, u64, u64) =
                    sums.entry((row.phase.to_string(), row.operation.to_string())).or_default();
                *sum = (sum.0 + row.requests, sum.1 + row.bytes, sum.2 + row.errors);
            }
            assert_eq!(sums, done, "{name}");
        }
        let all = rows.iter().filter(|row| row.worker.is_none());
        let mut places: Vec<_> =
            all.map(|row| (row.phase.clone(), row.start.0, row.operation.clone())).collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count, "no interval comes twice");
        let phases: Vec<_> =
            found.phases().expect("marks").iter().map(|mark| mark.name.to_string()).collect();
        assert_eq!(phases, ["prefill", "run", "check"]);
        let requests: u64 = done.values().map(|figures| figures.0).sum();
        assert_eq!(found.samples().expect("they were kept").len() as u64, requests);
    }
}

#[test]
fn a_load_of_files_ends_when_it_is_steady_and_only_if_it_is_recorded() {
    let results = tempfile::tempdir().expect("a folder");
    let mut rig = Rig::new("varmail:files=20,threads=2");
    rig.run(Phase::Prefill);
    let until_steady = serde_json::from_value(serde_json::json!({
        "window": "50ms", "range": "100%", "slope": "100%", "of": "iops",
    }));
    let options = FileRunOptions {
        // As long as nobody would wait for.
        duration: Some(Duration::from_secs(50)),
        until_steady: Some(until_steady.expect("what a trial says")),
        ..Rig::options(Phase::Run)
    };
    let path = rig.folder.path().to_owned();
    let error = run(&rig.plan, &path, &mut rig.oracle, &options).expect_err("nobody counts");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let recording = Recording::new(RecordingOptions {
        spec: RecordSpec {
            interval: IntervalLength::Every("10ms".parse().expect("a span")),
            ..RecordSpec::default()
        },
        operations: FileOperation::NAMES,
        workers: rig.plan.workers(),
        folder: results.path().to_owned(),
    });
    let options = FileRunOptions { recording: Some(recording.expect("a folder")), ..options };
    let report = run(&rig.plan, &path, &mut rig.oracle, &options).expect("runs");
    assert!(report.until_steady.expect("it was to").attained, "{:?}", report.until_steady);
    assert_eq!(rig.check(), []);
}

/// Makes what hangs whoever opens it to read, until somebody opens it to write.
fn make_fifo(path: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a name without zeros");
    // SAFETY: the name ends with zero and lives across the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

#[test]
fn a_call_that_does_not_return_is_told_of_and_its_thread_left_behind() {
    use std::os::unix::fs::OpenOptionsExt;
    let (mut rig, _) = Rig::loaded("mail_store:files=4,threads=2,file_size=64KiB,log_size=4MiB,loops=20");
    let log = rig.path("log");
    std::fs::remove_file(&log).expect("it is there");
    make_fifo(&log);
    let options =
        FileRunOptions { hung_after: Some(Duration::from_millis(60)), ..Rig::options(Phase::Check) };
    let folder = rig.folder.path().to_owned();
    let check = run(&rig.plan, &folder, &mut rig.oracle, &options).expect("it ends");
    assert_eq!(check.hung.len(), 1, "{:?}", check.hung);
    let hung = &check.hung[0];
    assert_eq!((&*hung.operation, hung.object.as_str(), hung.end), ("open", "log", HungEnd::GivenUp));
    assert!(hung.age_ns >= 120_000_000 && !check.is_interrupted, "{hung:?}");
    assert_eq!((check.error_count(), check.files), (1, 5), "the files were read back before");
    let failures = failures_of([&check]);
    let found: Vec<_> =
        failures.iter().map(|failure| (failure.object.as_str(), failure.worst().what.kind())).collect();
    assert_eq!(found, [("log", "refused")]);
    let told: Vec<_> = options.progress.take_hung().iter().map(|hung| hung.end).collect();
    assert_eq!(told, [HungEnd::Waiting]);
    // Lets the thread end.
    let writer = std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&log);
    writer.expect("somebody reads");
}

#[test]
fn threads_that_wait_for_one_that_hangs_end_with_their_figures_and_its_files_are_in_doubt() {
    use super::job::Job;
    use super::threads::{Home, Task, in_threads};
    use super::worker::FileWorker;
    use parking_lot::{Condvar, Mutex};
    use std::sync::atomic::{AtomicBool, Ordering};

    let plan = FilePlan::new(&"varmail:files=4,threads=2".parse().expect("a personality"), 1);
    let (released, let_go) =
        (Arc::new((Mutex::new(false), Condvar::new())), Arc::new(AtomicBool::new(false)));
    let (gate, told) = (Arc::clone(&released), Arc::clone(&let_go));
    let job = Arc::new(Job {
        plan: plan.clone(),
        folder: PathBuf::new(),
        phase: Phase::Run,
        clock: Clock::start(),
        deadline: None,
        hung_after: Duration::from_millis(60),
        let_go: Some(Arc::new(move || {
            told.store(true, Ordering::Relaxed);
            *gate.0.lock() = true;
            gate.1.notify_all();
        })),
        cancel: Arc::default(),
        progress: Arc::default(),
        recording: None,
        history: None,
        ends_when_steady: false,
        is_abandoned: AtomicBool::new(false),
        limit: Mutex::default(),
    });
    let home = Home::of(FileOracle::new(&plan).parts);
    let tasks = (0..2u32).map(|thread| -> Task {
        let (home, released) = (Arc::clone(&home), Arc::clone(&released));
        let task = move |worker: &mut FileWorker<'_>| {
            home.with(thread, |_| {
                let (_, took) = worker.timed(FileOperation::Create, thread, || Ok(()));
                worker.record(FileOperation::Create, took, 0, None);
                if thread == 1 {
                    while !worker.job.is_cancelled() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    return;
                }
                let (_, took) = worker.timed(FileOperation::Fsync, thread, || {
                    let mut is_released = released.0.lock();
                    while !*is_released {
                        let waited = released.1.wait_for(&mut is_released, Duration::from_secs(60));
                        assert!(!waited.timed_out(), "nobody let it go");
                    }
                    Ok(())
                });
                worker.record(FileOperation::Fsync, took, 0, None);
            });
            Ok(())
        };
        (format!("test-{thread}"), Box::new(task))
    });
    let tallies = in_threads(&job, 0, tasks.collect()).expect("it ends");
    assert!(let_go.load(Ordering::Relaxed), "what holds it back was told");
    let report = report::Tally::merge(Phase::Run, job.now(), tallies);
    assert_eq!((count(&report, FileOperation::Create), count(&report, FileOperation::Fsync)), (2, 1));
    assert_eq!((report.error_count(), report.hung.len()), (1, 1));
    let hung = &report.hung[0];
    assert_eq!((hung.worker, &*hung.operation, hung.object.as_str()), (0, "fsync", plan.path(0).as_str()));
    let parts = home.end(&plan);
    let doubtful =
        |thread: usize| parts[thread].files.iter().all(|state| state.existence == state::Existence::Doubtful);
    assert!(doubtful(0) && !doubtful(1));
}
