//! `rotproof load`: one load on one target, measured, and what it wrote verified.
//!
//! It knows nothing of stacks, subjects, faults or results; a trial has those.

pub mod clients;
mod files;
mod kept;
mod results;
mod target;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

pub use files::{DURATION_DEFAULT, FileLoadCommand, FileLoadOutcome};
pub use results::write_results;
use rotproof_block::{Error, ErrorKind, Phase, Result, Runtime};
use rotproof_load::engine::{HungRequest, LoadOperation};
use rotproof_load::{
    BLOCK_BYTES, DeviceDriver, Driver, EffortPerRequest, Failure, FileEngine, LoadReport, LoadSpec, Oracle,
    RunOn, RunOptions, Stage, TraceReport, Workload, classify,
};
use rotproof_record::statistics::SteadyEnd;
use rotproof_record::{RecordSpec, Recording};
pub use target::{Access, LoadTarget, SimulatedKind};

use crate::host::{self, Cancel};
use crate::probe::{ProbeReport, ProbesSpec};
use crate::runner::{Monitor, Performance, mark_errors, summarise};
use clients::ClientOutcome;
use kept::{Kept, KeptResults};

/// What is recorded of a load over time.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What.
    pub spec: RecordSpec,
    /// Where the folder for it is made; without one nothing is kept.
    pub results: Option<PathBuf>,
}

/// What to do to what.
#[derive(Clone, Debug)]
pub struct LoadCommand {
    /// On what.
    pub target: LoadTarget,
    /// What.
    pub load: LoadSpec,
    /// What everything is derived from.
    pub seed: u64,
    /// How the target is opened; whether anything is written follows from the load.
    pub access: Access,
    /// Whether blocks have contents of their own and are verified, and read back in the end.
    pub verify: bool,
    /// Whether nothing is run, but what the same load has written before is read back and verified.
    pub verify_only: bool,
    /// What to look at on the machine meanwhile, if anything; not in virtual time.
    pub probes: Option<ProbesSpec>,
    /// What is recorded over time, if anything; a load that ends when it is steady needs it.
    pub record: Option<Record>,
    /// The wish to stop.
    pub cancel: Cancel,
    /// Where to say how far it has come.
    pub monitor: Arc<Monitor>,
}

/// What a load has found.
#[derive(Clone, Debug)]
pub struct LoadOutcome {
    /// The load with every default filled in.
    pub load: LoadSpec,
    /// Bytes of the target that were worked on.
    pub size_bytes: u64,
    /// The figures of each phase and operation.
    pub performance: Vec<Performance>,
    /// What was read of the trace that was replayed, and how many of its discards the target has no operation for.
    pub trace: Option<(TraceReport, u64)>,
    /// What the load's threads took for one request of the run; none under virtual time.
    pub effort: Option<EffortPerRequest>,
    /// What probes found while the load ran; none without probes.
    pub probes: Option<ProbeReport>,
    /// Blocks that the run has written and the check has read back.
    pub verified_blocks: u64,
    /// Blocks that were wrong or unreadable, or could not be written.
    pub failures: Vec<Failure>,
    /// Requests that ended with an error.
    pub errors: u64,
    /// The folder with what was recorded.
    pub folder: Option<PathBuf>,
    /// Requests that were under way for too long.
    pub hung: Vec<HungRequest>,
    /// Whether it ended because it was steady; none if it was not to.
    pub until_steady: Option<SteadyEnd>,
    /// Whether somebody asked to stop before all was done; then it says what was done up to there.
    pub is_interrupted: bool,
    /// What each client did, if the load was spread over some.
    pub clients: Vec<ClientOutcome>,
}

/// What is different where a command is one client's share of a load.
struct Share<'a> {
    /// The workers that are its own.
    workers: Range<u16>,
    /// Where they tell of their requests.
    recording: Arc<Recording>,
    /// Waits until everybody is ready for the phase.
    ready: Box<dyn Fn(&'static str) -> Result<()> + 'a>,
    /// Takes what they did in it.
    ended: Box<TakeReport<'a>>,
}

type TakeReport<'a> = dyn Fn(&LoadReport) -> Result<()> + 'a;

impl LoadCommand {
    /// Whether anything is written.
    fn writes(&self) -> bool {
        !self.verify_only && (self.load.writes_anything() || self.load.prefill == Some(true))
    }

    /// Carries it out. An error is one of the command or the machine, or the wish to stop before anything was done; never
    /// a finding.
    pub fn run(&self) -> Result<LoadOutcome> {
        self.run_share(None)
    }

    /// The same, or a share of it.
    fn run_share(&self, share: Option<&Share<'_>>) -> Result<LoadOutcome> {
        self.monitor.begin("setup", None);
        let access = Access { writes: self.writes(), ..self.access };
        self.refuse_fixed_buffers()?;
        self.refuse_polling()?;
        let driver = DeviceDriver::through(access.engine, self.target.open(access)?)?;
        // What nobody has written cannot be verified, so nothing is written only to be read, but where it is asked for.
        let load = LoadSpec { prefill: Some(self.load.prefill.unwrap_or(false)), ..self.load.clone() };
        let mut workload = Workload::new(&load, self.seed, driver.objects())?;
        if let Some(share) = share {
            workload = workload.running_only(share.workers.clone());
        }
        let mut oracle = Oracle::new(&workload);
        let epoch = Instant::now();
        let simulated = self.target.is_simulated().then(|| Runtime::simulated(self.seed));
        let runtime = match &simulated {
            Some(runtime) => RunOn::Simulated(runtime),
            None => RunOn::Uring { epoch },
        };
        let kept = self.start(&workload, epoch)?;
        let recording = share.map(|share| &share.recording).or(kept.recording());
        let mut reports = Vec::new();
        for stage in workload.stages() {
            if self.verify_only {
                oracle.learn(&workload, *stage)?;
                continue;
            }
            let (name, phase) = match stage {
                Stage::Prefill => ("prefill", Phase::Prefill),
                Stage::Run => ("run", Phase::Run),
            };
            let planned = workload.planned_bytes(*stage);
            kept.begin_phase(phase == Phase::Run);
            share.map_or(Ok(()), |share| (share.ready)(name))?;
            let on = (runtime, recording);
            let report = self.phase((name, phase), planned, &workload, &driver, &mut oracle, on)?;
            share.map_or(Ok(()), |share| (share.ended)(&report))?;
            reports.push(report);
            kept.begin_phase(false);
            if self.is_interrupted(&reports) {
                break;
            }
        }
        let written_blocks = oracle.written_blocks();
        let has_check = self.verify && written_blocks > 0 && !self.is_interrupted(&reports);
        if has_check {
            let planned = Some(written_blocks * BLOCK_BYTES as u64);
            let check = ("check", Phase::Check);
            share.map_or(Ok(()), |share| (share.ready)(check.0))?;
            let report = self.phase(check, planned, &workload, &driver, &mut oracle, (runtime, recording))?;
            share.map_or(Ok(()), |share| (share.ended)(&report))?;
            reports.push(report);
        }
        let is_interrupted = self.is_interrupted(&reports);
        let failures = classify(&workload, &oracle, &reports);
        if let Some(recording) = kept.recording() {
            mark_errors(recording, &reports);
        }
        // Whoever asked twice does not want to wait for what would be kept.
        self.cancel.check_haste()?;
        let kept = kept.end(self.seed)?;
        let size_bytes = driver.objects().iter().map(|object| object.size_bytes).sum();
        let found = (workload.spec().clone(), size_bytes, written_blocks, failures, is_interrupted);
        Ok(self.outcome(&reports, kept, found))
    }

    /// What the reports of all phases, and what was kept of them, say together.
    fn outcome(
        &self,
        reports: &[LoadReport],
        kept: KeptResults,
        (load, size_bytes, written_blocks, failures, is_interrupted): (
            LoadSpec,
            u64,
            u64,
            Vec<Failure>,
            bool,
        ),
    ) -> LoadOutcome {
        LoadOutcome {
            load,
            size_bytes,
            performance: summarise(reports),
            trace: reports
                .iter()
                .find_map(|report| Some((report.trace.clone()?, report.unsupported_discards))),
            effort: reports
                .iter()
                .find(|report| report.phase == Phase::Run)
                .and_then(LoadReport::effort_per_request),
            probes: kept.probes,
            verified_blocks: if is_interrupted { 0 } else { written_blocks },
            failures,
            errors: reports.iter().map(LoadReport::error_count).sum(),
            folder: kept.folder,
            hung: reports.iter().flat_map(|report| report.hung.clone()).collect(),
            until_steady: reports.iter().find_map(|report| report.until_steady),
            is_interrupted,
            clients: Vec::new(),
        }
    }

    /// Fails where there is no request through io_uring whose memory could be registered.
    fn refuse_fixed_buffers(&self) -> Result<()> {
        let is_file = matches!(self.target, LoadTarget::Path(_));
        let why = match self.access.engine {
            _ if !self.load.fixed_buffers => return Ok(()),
            FileEngine::IoUring if is_file => return Ok(()),
            FileEngine::IoUring => format!("{} is neither a file nor a block device", self.target),
            FileEngine::Psync | FileEngine::Mmap => {
                "they belong to io_uring; leave out --ioengine".to_owned()
            }
        };
        Err(Error::new(ErrorKind::Invalid, format!("--fixedbufs: {why}")))
    }

    /// Fails where the device cannot be polled: without a word the kernel would wait for interrupts, or refuse each request.
    fn refuse_polling(&self) -> Result<()> {
        if !self.load.polled {
            return Ok(());
        }
        let why = match &self.target {
            LoadTarget::Path(_) if self.access.engine != FileEngine::IoUring => {
                "it belongs to io_uring; leave out --ioengine".to_owned()
            }
            LoadTarget::Path(_) if !self.access.direct => {
                "what goes through the page cache is not polled; leave out --buffered".to_owned()
            }
            LoadTarget::Path(path) if host::can_be_polled(path) => return Ok(()),
            LoadTarget::Path(path) => format!(
                "{} is on no device that can be polled; some drivers have queues for it if they are loaded so, such as \
                 nvme with poll_queues=1 or virtio_blk with poll_queues=1",
                path.display()
            ),
            other => format!("{other} is neither a file nor a block device"),
        };
        Err(Error::new(ErrorKind::Invalid, format!("--hipri: {why}")))
    }

    /// Whether somebody asked to stop before the last of the phases.
    fn is_interrupted(&self, reports: &[LoadReport]) -> bool {
        let is_check = |report: &LoadReport| report.phase == Phase::Check && !report.is_interrupted;
        self.cancel.is_cancelled() && !reports.last().is_some_and(is_check)
    }

    fn start(&self, workload: &Workload, epoch: Instant) -> Result<Kept<'_>> {
        if self.probes.is_some() && self.target.is_simulated() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "probes look at the machine by its clock, and {} runs in virtual time; leave out --probes",
                    self.target
                ),
            ));
        }
        let recorded = (LoadOperation::NAMES, workload.workers());
        let kept = Kept::start(
            self.record.as_ref(),
            recorded,
            self.probes.as_ref(),
            (epoch, &self.cancel),
            &self.monitor,
        )?;
        if let LoadTarget::Path(path) = &self.target {
            kept.add_subject_disk(path);
        }
        Ok(kept)
    }

    fn phase(
        &self,
        (name, phase): (&'static str, Phase),
        planned_bytes: Option<u64>,
        workload: &Workload,
        driver: &DeviceDriver,
        oracle: &mut Oracle,
        (runtime, recording): (RunOn<'_>, Option<&Arc<Recording>>),
    ) -> Result<LoadReport> {
        self.cancel.check()?;
        let duration = workload.duration().filter(|_| phase == Phase::Run).map(|span| span.0);
        let around =
            workload.ramp_up_time().unwrap_or_default().0 + workload.recovery_time().unwrap_or_default().0;
        let duration = duration.map(|span| span + around);
        let progress = self.monitor.begin_load(name, planned_bytes, duration);
        let options = RunOptions {
            runtime,
            phase,
            verify: self.verify,
            cancel: self.cancel.signal_cell(),
            progress,
            recording: recording.cloned(),
            phase_cell: None,
            let_go: None,
        };
        rotproof_load::run(workload, driver, oracle, &options)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use rotproof_record::RunFolder;
    use rotproof_spec::Bytes;

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
        let load =
            r#"{ "pattern": "random", "reads": "50%", "requests": 2000, "queue_depth": 8, "workers": 2 }"#;
        for target in ["memory:4MiB", "disk:nvme:4MiB"] {
            let outcome = command(target, load).run().expect("runs");
            assert!(outcome.verified_blocks > 500, "{}", outcome.verified_blocks);
            assert_eq!((outcome.failures.len(), outcome.errors), (0, 0));
            let phases: Vec<_> = outcome.performance.iter().map(|line| line.phase).collect();
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
        command.record = Some(Record { results: Some(results.path().to_owned()), ..Record::default() });
        let folder = command.run().expect("runs").folder.expect("there is one");
        let kept = RunFolder::open(&folder).expect("tables");
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
        command.record = Some(Record { results: Some(folder.path().to_owned()), ..Record::default() });
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
        assert!(results.join("intervals.parquet").is_file());
        assert_eq!(command.run().expect_err("before anything was done").kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn a_load_that_ends_when_it_is_steady_keeps_what_it_recorded_only_where_it_is_told_to() {
        let steady = r#"{ "pattern": "random", "duration": "60s",
                          "until_steady": { "window": "5s", "after": "2s", "range": "50%", "slope": "50%" } }"#;
        let mut command = command("disk:hdd:64MiB", steady);
        assert_eq!(command.run().expect_err("nobody counts").kind(), ErrorKind::Invalid);
        command.record = Some(Record::default());
        let outcome = command.run().expect("runs");
        let end = outcome.until_steady.expect("it was to");
        let since = end.state.and_then(|state| state.since_ns);
        assert_eq!((end.attained, since, end.at_ns), (true, Some(2_000_000_000), Some(7_000_000_000)));
        assert_eq!((outcome.folder, outcome.failures.len()), (None, 0));
        let results = tempfile::tempdir().expect("a folder");
        command.record = Some(Record { results: Some(results.path().to_owned()), ..Record::default() });
        let folder = command.run().expect("runs").folder.expect("it was to keep results");
        let marks = RunFolder::open(&folder).expect("tables").marks().expect("marks");
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
        let phases: Vec<_> = found.performance.iter().map(|line| line.phase).collect();
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
        assert!(
            refused(|command| command.access.engine = FileEngine::Psync).contains("leave out --ioengine")
        );
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
}
