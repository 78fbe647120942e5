//! A load of blocks in a trial: on a device, or on files as large as it likes. Rules are told what it will write before it
//! writes it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Error, ErrorKind, Phase, Result, Runtime};
use rotproof_fault::{self as fault, EnabledPhase, Replay, ResolvedRule, Rule, Sites};
use rotproof_load::engine::LoadOperation;
use rotproof_load::target::{TargetContent, resolve, resolve_in};
use rotproof_load::{
    DeviceDriver, Driver, FatSet, FileSet, FilesSpec, LoadReport, Oracle, RunOn, RunOptions as LoadOptions,
    Stage, Workload,
};
use rotproof_machine::{Claim, ClaimedDevice, Filled, Use};
use rotproof_record::Recording;
use rotproof_results::NO_REMOUNT;
use rotproof_spec::Span;
use rotproof_subject::{Destination, Prepared};

use super::block_history::BlockHistory;
use super::extents::place_extents;
use super::kinds::place_kinds;
use super::load_history::LoadHistory;
use super::steps::Driven;
use super::working::Working;
use super::{Conductor, Loaded, MemoryTarget, let_recognise, recogniser};
use crate::file::{RuntimeKind, TrialFile};

/// A load of blocks.
pub(super) struct Blocks {
    simulated: Option<Runtime>,
    epoch: Instant,
    made: Option<Made>,
    reports: Vec<LoadReport>,
}

/// What there is of it once its target is made.
struct Made {
    /// `None` while the subject is down.
    target: Option<Target>,
    /// The files of a file system.
    files: Option<FilesSpec>,
    workload: Workload,
    oracle: Oracle,
    recording: Arc<Recording>,
}

impl Blocks {
    pub(super) fn new(conductor: &Conductor<'_>) -> Self {
        let is_simulated = conductor.trial.runtime == RuntimeKind::Simulated;
        Self {
            simulated: is_simulated.then(|| Runtime::simulated(conductor.trial.seed)),
            epoch: conductor.environment.epoch,
            made: None,
            reports: Vec::new(),
        }
    }
}

fn run_on(simulated: Option<&Runtime>, epoch: Instant) -> RunOn<'_> {
    match simulated {
        Some(runtime) => RunOn::Simulated(runtime),
        None => RunOn::Uring { epoch },
    }
}

fn not_made() -> Error {
    Error::new(ErrorKind::Internal, "the load is not made yet")
}

impl Driven for Blocks {
    fn make(&mut self, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        let trial = conductor.trial;
        let mut target = Target::new(trial, &subject.place(), run_on(self.simulated.as_ref(), self.epoch))?;
        let workload = Workload::new(&trial.load, trial.seed, target.driver.objects())?;
        if trial.crash.is_some() {
            let history =
                BlockHistory::new(target.driver.objects(), *workload.content(), conductor.set_mark());
            target.driver = history.watch(target.driver);
            conductor.history = Some(LoadHistory::Blocks(history));
        }
        let recording = conductor.recording(LoadOperation::NAMES, workload.workers())?;
        let oracle = Oracle::new(&workload);
        let files = target.files;
        self.made = Some(Made { target: Some(target), files, workload, oracle, recording });
        Ok(())
    }

    fn arm(&mut self, conductor: &mut Conductor<'_>) -> Result<()> {
        let Made { workload, .. } = self.made.as_ref().ok_or_else(not_made)?;
        let is_stored_as_sent = !conductor.trial.subject.compresses();
        if !conductor.stack.sites.is_empty() {
            let_recognise(&conductor.stack.sites, *workload.content(), is_stored_as_sent);
            arm(&conductor.stack.sites, workload, conductor.plan.rules.clone(), conductor.replay)?;
        }
        if !conductor.plan.on_memory.is_empty() {
            let rules = conductor.plan.on_memory.clone();
            let contents = contents_of(workload, &rules)?.into_iter().map(|contents| {
                let target =
                    |target: TargetContent| MemoryTarget { content: target.hash, label: target.label };
                contents.into_iter().map(target).collect()
            });
            let recogniser = recogniser(*workload.content(), is_stored_as_sent);
            conductor.memory.arm(rules.into_iter().zip(contents).collect(), recogniser);
        }
        Ok(())
    }

    fn phases(&self) -> &'static [Phase] {
        match &self.made {
            Some(made) if made.workload.has_prefill() => &[Phase::Prefill, Phase::Run],
            _ => &[Phase::Run],
        }
    }

    fn run(&mut self, phase: Phase, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        conductor.place(phase, subject)?;
        let made = self.made.as_mut().ok_or_else(not_made)?;
        let (workload, oracle) = (&made.workload, &mut made.oracle);
        let Some(target) = &made.target else { return Err(not_made()) };
        let span = |span: Option<Span>| span.unwrap_or_default().0;
        let around = span(workload.ramp_up_time()) + span(workload.cool_down_time());
        let working = Working {
            bytes: match phase {
                Phase::Prefill => workload.planned_bytes(Stage::Prefill),
                Phase::Run => workload.planned_bytes(Stage::Run),
                _ => Some(oracle.written_blocks() * rotproof_load::BLOCK_BYTES as u64),
            },
            duration: workload.duration().filter(|_| phase == Phase::Run).map(|span| span.0 + around),
            ..Working::in_phase(phase, subject)
        };
        let report = conductor.while_working(working, |watched| {
            let options = LoadOptions {
                runtime: run_on(self.simulated.as_ref(), self.epoch),
                phase,
                verify: true,
                cancel: Arc::clone(&watched.stop),
                progress: Arc::clone(&watched.progress),
                recording: Some(Arc::clone(&made.recording)),
                phase_cell: Some(Arc::clone(&conductor.environment.phase)),
                let_go: conductor.let_go(),
            };
            let result = rotproof_load::run(workload, target.driver.as_ref(), oracle, &options);
            if !conductor.options.cancel.is_cancelled() {
                target.driver.check()?;
            }
            result
        })?;
        let is_interrupted = report.is_interrupted;
        self.reports.push(report);
        if is_interrupted { conductor.options.cancel.check() } else { Ok(()) }
    }

    fn close(&mut self, conductor: &mut Conductor<'_>) {
        let Some(target) = self.made.as_mut().and_then(|made| made.target.take()) else { return };
        let on = run_on(self.simulated.as_ref(), self.epoch);
        if let Err(error) = target.driver.close(Phase::Run, on) {
            conductor.noticed.push(format!("unmount: {error}"));
        }
    }

    fn open(&mut self, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        let made = self.made.as_mut().ok_or_else(not_made)?;
        let on = run_on(self.simulated.as_ref(), self.epoch);
        let mut target = Target::again(conductor.trial, &subject.place(), made.files, on)?;
        conductor.noticed.extend(target.lost.take().map(|error| format!("{NO_REMOUNT}: {error}")));
        made.target = Some(target);
        Ok(())
    }

    fn has_begun(&self) -> bool {
        !self.reports.is_empty()
    }

    fn end(self: Box<Self>, is_interrupted: bool) -> Loaded {
        let (recording, known) = match self.made {
            Some(made) => (Some(made.recording), Some((made.workload, made.oracle))),
            None => (None, None),
        };
        Loaded { is_interrupted, load: self.reports, recording, known, ..Loaded::default() }
    }
}

impl Conductor<'_> {
    /// Finds out where the blocks lie that rules enabled in this phase are to hit by their place.
    fn place(&mut self, phase: Phase, subject: &dyn Prepared) -> Result<()> {
        let Destination::Folder(folder) = subject.place() else { return Ok(()) };
        let (sites, rules) = (&self.stack.sites, &self.plan.rules);
        if sites.is_empty() {
            return Ok(());
        }
        place_extents(sites, rules, phase, &folder)?;
        if let Some(named) = self.stack.devices.first() {
            let unknown = place_kinds(sites, rules, phase, (&*named.device, &folder), subject)?;
            self.noticed.extend(unknown.map(|what| format!("kinds of blocks: {what}")));
        }
        Ok(())
    }
}

/// Where the load goes, opened.
struct Target {
    driver: Box<dyn Driver>,
    /// The files of a file system.
    files: Option<FilesSpec>,
    /// Why none of them can be reached any more.
    lost: Option<Error>,
}

impl Target {
    fn new(trial: &TrialFile, place: &Destination, run_on: RunOn<'_>) -> Result<Self> {
        Ok(match place {
            Destination::Folder(folder) => {
                let files = trial.load.files_in(rotproof_machine::free_bytes(folder)?);
                Self::with(FileSet::create(folder, files, trial.load.file_access())?, Some(files))
            }
            Destination::Fat(device) => {
                let (set, files) = FatSet::create(Arc::clone(device), &trial.load, trial.seed, run_on)?;
                Self::with(set, Some(files))
            }
            other => Self::again(trial, other, None, run_on)?,
        })
    }

    /// Opens what is there already.
    fn again(
        trial: &TrialFile,
        place: &Destination,
        files: Option<FilesSpec>,
        run_on: RunOn<'_>,
    ) -> Result<Self> {
        Ok(match (place, files) {
            (Destination::Device(device), _) => Self::with(DeviceDriver::new(Arc::clone(device))?, files),
            (Destination::BlockDevice(path), _) => {
                Self::with(DeviceDriver::new(claimed(trial, path)?)?, files)
            }
            (Destination::Folder(folder), Some(files)) => {
                Self::with(FileSet::open(folder, files, trial.load.file_access())?, Some(files))
            }
            (Destination::Fat(device), Some(files)) => {
                let (set, lost) = FatSet::open(Arc::clone(device), files, trial.seed, run_on)?;
                Self { lost, ..Self::with(set, Some(files)) }
            }
            (Destination::Folder(_) | Destination::Fat(_), None) => return Err(no_files(place)),
        })
    }

    fn with(driver: impl Driver + 'static, files: Option<FilesSpec>) -> Self {
        Self { driver: Box::new(driver), files, lost: None }
    }
}

/// The subject's block device, which is nobody else's meanwhile: another load on it would be told as unexplained damage.
fn claimed(trial: &TrialFile, path: &Path) -> Result<Arc<ClaimedDevice>> {
    let read_only = trial.only_reads();
    let claim = Claim::of_path(path, &if read_only { Use::READ } else { Use::fill(Filled::ByLoad, true) })?;
    Ok(ClaimedDevice::new(
        FileDevice::open(path, FileOptions { read_only, ..FileOptions::default() })?,
        claim,
    ))
}

fn no_files(place: &Destination) -> Error {
    Error::new(ErrorKind::Internal, format!("the files of the load in {place:?} are not known"))
}

/// Works out what the rules aim at, and wakes them.
fn arm(sites: &Sites, workload: &Workload, rules: Vec<Rule>, replay: Option<&Replay>) -> Result<()> {
    let resolved = contents_of(workload, &rules)?;
    let resolved = rules
        .into_iter()
        .zip(resolved)
        .zip(0..)
        .map(|((rule, contents), index)| {
            let contents = contents
                .into_iter()
                .map(|target| rotproof_fault::TargetContent {
                    content: target.hash,
                    label: target.label,
                    beginning: Some(workload.content().beginning(target.content)),
                })
                .collect();
            ResolvedRule { rule, contents, recorded: replay.map(|replay| replay.of_rule(index)) }
        })
        .collect();
    sites.add_rules(resolved).map(drop)
}

/// What each rule aims at, of what the load writes in the phases in which the rule is enabled: the prefill writes other
/// contents than the load after it.
pub fn contents_of(workload: &Workload, rules: &[Rule]) -> Result<Vec<Vec<TargetContent>>> {
    let is_prefill = |rule: &Rule| {
        workload.has_prefill()
            && workload.spec().writes_anything()
            && rule.during.0.contains(&EnabledPhase::Prefill)
    };
    let is_only_prefill = |rule: &Rule| is_prefill(rule) && rule.during.0.len() == 1;
    let known = |is_meant: &dyn Fn(&Rule) -> bool| -> Vec<fault::Target> {
        let rules = rules.iter().filter(|rule| is_meant(rule));
        rules
            .filter_map(|rule| rule.matching.target.clone().filter(fault::Target::is_known_to_load))
            .collect()
    };
    let in_prefill = known(&is_prefill);
    let mut prefilled = match in_prefill.is_empty() {
        true => Vec::new(),
        false => resolve_in(workload, Stage::Prefill, &in_prefill)?,
    }
    .into_iter();
    let mut later = resolve(workload, &known(&|rule| !is_only_prefill(rule)))?.into_iter();
    let of_rule = |rule: &Rule| {
        let mut contents: Vec<TargetContent> = Vec::new();
        if rule.matching.target.as_ref().is_some_and(fault::Target::is_known_to_load) {
            if is_prefill(rule) {
                contents.extend(prefilled.next().unwrap_or_default());
            }
            if !is_only_prefill(rule) {
                let later = later.next().unwrap_or_default();
                contents.extend(
                    later
                        .into_iter()
                        .filter(|one| !contents.iter().any(|known| known.hash == one.hash))
                        .collect::<Vec<_>>(),
                );
            }
        }
        contents
    };
    Ok(rules.iter().map(of_rule).collect())
}
