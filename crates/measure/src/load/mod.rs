//! `rotproof load`: one load on one target, measured, and what it wrote verified.
//!
//! It knows nothing of stacks, subjects, faults or results; a trial has those.

pub mod clients;
mod files;
mod kept;
mod results;
mod target;
#[cfg(test)]
mod tests;

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
use serde::{Deserialize, Serialize};
pub use target::{Access, LoadTarget, SimulatedKind};

use rotproof_machine::Cancel;
use rotproof_probe::{ProbeReport, ProbesSpec};
use rotproof_results::folder::ResultsFolder;

use rotproof_results::Performance;

use crate::{Monitor, mark_errors, summarise};
use clients::ClientOutcome;
use kept::{Kept, KeptResults};

/// What is recorded of a load over time.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
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
    pub record: Option<RecordOptions>,
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
    /// The folder with what was recorded; it has its name once [`write_results`] has added the rest.
    pub folder: Option<Arc<ResultsFolder>>,
    /// Why there is none though there was to be one.
    pub unwritten: Option<Arc<Error>>,
    /// Requests that were under way for too long.
    pub hung: Vec<HungRequest>,
    /// Whether it ended because it was steady; none if it was not to.
    pub until_steady: Option<SteadyEnd>,
    /// Whether somebody asked to stop before all was done; then it says what was done up to there.
    pub is_interrupted: bool,
    /// What each client did, if the load was spread over some.
    pub clients: Vec<ClientOutcome>,
}

/// What is there to say at the end, beside the figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    /// The whole load, with every default filled in.
    load: LoadSpec,
    /// Bytes of the target that were worked on.
    size_bytes: u64,
    /// Blocks whose content is known.
    written_blocks: u64,
    /// Where a client says it, times count from the beginning of the phase of each.
    failures: Vec<Failure>,
    is_interrupted: bool,
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
        if self.verify_only && !self.load.writes_anything() && self.load.prefill != Some(true) {
            let why = "--verify-only: a load with these options writes nothing, so there is nothing to verify; give all with \
                       which it wrote, --rw among them";
            return Err(Error::new(ErrorKind::Invalid, why));
        }
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
        let kept = kept.end();
        let size_bytes = driver.objects().iter().map(|object| object.size_bytes).sum();
        let load = workload.spec().clone();
        let found = Found { load, size_bytes, written_blocks, failures, is_interrupted };
        Ok(self.outcome(&reports, kept, found))
    }

    /// What the reports of all phases, and what was kept of them, say together.
    fn outcome(&self, reports: &[LoadReport], kept: KeptResults, found: Found) -> LoadOutcome {
        let Found { load, size_bytes, written_blocks, failures, is_interrupted } = found;
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
            unwritten: kept.unwritten,
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
            LoadTarget::Path(path) if rotproof_machine::can_be_polled(path) => return Ok(()),
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
            (self.seed, epoch, &self.cancel),
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
            workload.ramp_up_time().unwrap_or_default().0 + workload.cool_down_time().unwrap_or_default().0;
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
