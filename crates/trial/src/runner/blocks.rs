//! A load of blocks in a trial: on a device, or on files as large as it likes. Rules are told what it will write before it
//! writes it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Error, ErrorKind, Phase, Result, Runtime};
use rotproof_fault::{self as fault, AwakePhase, Replay, ResolvedRule, Rule, Sites};
use rotproof_load::engine::LoadOperation;
use rotproof_load::target::{TargetContent, resolve, resolve_in};
use rotproof_load::{
    DeviceDriver, Driver, FatSet, FileSet, FilesSpec, LoadReport, Oracle, RunOn, RunOptions as LoadOptions,
    Stage, Workload,
};
use rotproof_machine::{Claim, ClaimedDevice, Filled, Use};
use rotproof_record::{Recording, RecordingOptions};
use rotproof_results::NO_REMOUNT;
use rotproof_subject::{GuestMemory, Place, Prepared, Remount};

use super::block_history::BlockHistory;
use super::extents::place_extents;
use super::kinds::place_kinds;
use super::leaf_watch::LeafWatch;
use super::memory::Owner;
use super::{Conductor, Loaded, MemoryTarget, let_recognise, recogniser};
use crate::file::{RuntimeKind, TrialFile};

impl Conductor<'_> {
    pub(super) fn load_and_check_blocks(&mut self, subject: &mut dyn Prepared) -> Result<Loaded> {
        let simulated =
            (self.trial.runtime == RuntimeKind::Simulated).then(|| Runtime::simulated(self.trial.seed));
        let run_on = match &simulated {
            Some(runtime) => RunOn::Simulated(runtime),
            None => RunOn::Uring { epoch: self.environment.epoch },
        };
        let mut target = Target::new(self.trial, &subject.place(), run_on)?;
        let workload = Workload::new(&self.trial.load, self.trial.seed, target.driver.objects())?;
        if self.trial.crash.is_some() {
            let history = BlockHistory::new(target.driver.objects(), *workload.content(), self.set_mark());
            target.driver = history.watch(target.driver);
            self.history = Some(history);
        }
        self.crashes_begin(subject)?;
        if !self.stack.sites.is_empty() {
            let_recognise(&self.stack.sites, *workload.content(), !self.trial.subject.compresses());
            arm(&self.stack.sites, &workload, self.plan.rules.clone(), self.replay)?;
        }
        if !self.plan.on_memory.is_empty() {
            let rules = self.plan.on_memory.clone();
            let contents = contents_of(&workload, &rules)?.into_iter().map(|contents| {
                let target =
                    |target: TargetContent| MemoryTarget { content: target.hash, label: target.label };
                contents.into_iter().map(target).collect()
            });
            let recogniser = recogniser(*workload.content(), !self.trial.subject.compresses());
            self.memory.arm(rules.into_iter().zip(contents).collect(), recogniser);
        }
        let recording = Recording::new(RecordingOptions {
            spec: self.trial.record.clone(),
            operations: LoadOperation::NAMES,
            workers: workload.workers(),
            folder: self.results.to_owned(),
        })?;
        self.options.monitor.record_in(&recording);
        let mut oracle = Oracle::new(&workload);
        let mut load = Vec::new();
        let ended =
            self.run_phases(subject, (&workload, &mut oracle), target, (run_on, &recording), &mut load);
        let is_interrupted = match ended {
            // What was done up to there is kept.
            Err(_) if self.options.cancel.is_cancelled() && !load.is_empty() => true,
            ended => ended.map(|()| false)?,
        };
        let noticed = std::mem::take(&mut self.noticed);
        Ok(Loaded {
            is_interrupted,
            files: None,
            load,
            recording: Some(recording),
            known: Some((workload, oracle)),
            external: None,
            noticed,
        })
    }

    /// Prefill, run and check, with a remount between. Fails with [`ErrorKind::Cancelled`] where it was asked to stop;
    /// what was done until then is among the reports.
    fn run_phases(
        &mut self,
        subject: &mut dyn Prepared,
        (workload, oracle): (&Workload, &mut Oracle),
        mut target: Target,
        (run_on, recording): (RunOn<'_>, &Arc<Recording>),
        load: &mut Vec<LoadReport>,
    ) -> Result<()> {
        let stages: &[Phase] =
            if workload.has_prefill() { &[Phase::Prefill, Phase::Run] } else { &[Phase::Run] };
        for &phase in stages {
            self.place(phase, subject)?;
            let memory = subject.memory();
            load.push(self.run_phase(phase, workload, (&target, memory), oracle, (run_on, recording))?);
            self.options.cancel.check()?;
        }
        self.options.monitor.begin("remount", None);
        // Its files must be closed before the unmount.
        let Target { files, driver, .. } = target;
        if let Err(error) = driver.close(Phase::Run, run_on) {
            self.noticed.push(format!("unmount: {error}"));
        }
        drop(driver);
        match subject.remount(&|| self.stack.sites.restore_power())? {
            Remount::Done { reported } => {
                self.noticed.extend(reported.iter().map(|error| format!("unmount: {error}")));
            }
            // The check then finds every file lost, which is what a user of this file system would find.
            Remount::Failed(error) => self.noticed.push(format!("{NO_REMOUNT}: {error}")),
        }
        self.tell_probes_of(subject);
        target = Target::again(self.trial, &subject.place(), files, run_on)?;
        self.noticed.extend(target.lost.take().map(|error| format!("{NO_REMOUNT}: {error}")));
        self.place(Phase::Check, subject)?;
        let memory = subject.memory();
        let check = self.run_phase(Phase::Check, workload, (&target, memory), oracle, (run_on, recording))?;
        let is_interrupted = check.is_interrupted;
        load.push(check);
        if is_interrupted { self.options.cancel.check() } else { Ok(()) }
    }

    /// Finds out where the blocks lie that rules awake in this phase are to hit by their place.
    fn place(&mut self, phase: Phase, subject: &dyn Prepared) -> Result<()> {
        let Place::Folder(folder) = subject.place() else { return Ok(()) };
        let (sites, rules) = (&self.stack.sites, &self.plan.rules);
        if sites.is_empty() {
            return Ok(());
        }
        place_extents(sites, rules, phase, &folder)?;
        if let Some(named) = self.stack.devices.first() {
            let unknown = place_kinds(sites, rules, phase, (&*named.device, &folder))?;
            self.noticed.extend(unknown.map(|what| format!("kinds of blocks: {what}")));
        }
        Ok(())
    }

    fn run_phase(
        &self,
        phase: Phase,
        workload: &Workload,
        (target, memory): (&Target, Option<GuestMemory>),
        oracle: &mut Oracle,
        (runtime, recording): (RunOn<'_>, &Arc<Recording>),
    ) -> Result<LoadReport> {
        self.options.cancel.check()?;
        let (name, bytes) = match phase {
            Phase::Prefill => ("prefill", workload.planned_bytes(Stage::Prefill)),
            Phase::Run => ("run", workload.planned_bytes(Stage::Run)),
            Phase::Check | Phase::Setup | Phase::Recovery => {
                ("check", Some(oracle.written_blocks() * rotproof_load::BLOCK_BYTES as u64))
            }
        };
        self.environment.phase.store(phase as u8, Ordering::Relaxed);
        let around =
            workload.ramp_up_time().unwrap_or_default().0 + workload.recovery_time().unwrap_or_default().0;
        let duration = workload.duration().filter(|_| phase == Phase::Run).map(|span| span.0 + around);
        let progress = self.options.monitor.begin_load(name, bytes, duration);
        let looks = self.memory.watch(phase, memory.map(Owner::Machine))?;
        let watch = LeafWatch::start(self.stack, &self.options.cancel)?;
        let options = LoadOptions {
            runtime,
            phase,
            verify: true,
            cancel: watch.stop_cell(),
            progress,
            recording: Some(Arc::clone(recording)),
            phase_cell: Some(Arc::clone(&self.environment.phase)),
            let_go: self.let_go(),
        };
        let begin_phase = |is_run| self.probes.iter().for_each(|probes| probes.begin_phase(is_run));
        begin_phase(phase == Phase::Run);
        let result = rotproof_load::run(workload, target.driver.as_ref(), oracle, &options);
        begin_phase(false);
        drop(looks);
        let leaf = watch.end();
        if result.is_err() {
            // The load only knows that it was stopped; who asked is known here.
            self.options.cancel.check()?;
        }
        leaf?;
        target.driver.check()?;
        result
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
    fn new(trial: &TrialFile, place: &Place, run_on: RunOn<'_>) -> Result<Self> {
        Ok(match place {
            Place::Folder(folder) => {
                let files = trial.load.files_in(rotproof_machine::free_bytes(folder)?);
                Self::with(FileSet::create(folder, files, trial.load.file_access())?, Some(files))
            }
            Place::Fat(device) => {
                let (set, files) = FatSet::create(Arc::clone(device), &trial.load, trial.seed, run_on)?;
                Self::with(set, Some(files))
            }
            other => Self::again(trial, other, None, run_on)?,
        })
    }

    /// Opens what is there already.
    fn again(trial: &TrialFile, place: &Place, files: Option<FilesSpec>, run_on: RunOn<'_>) -> Result<Self> {
        Ok(match (place, files) {
            (Place::Device(device), _) => Self::with(DeviceDriver::new(Arc::clone(device))?, files),
            (Place::BlockDevice(path), _) => Self::with(DeviceDriver::new(claimed(trial, path)?)?, files),
            (Place::Folder(folder), Some(files)) => {
                Self::with(FileSet::open(folder, files, trial.load.file_access())?, Some(files))
            }
            (Place::Fat(device), Some(files)) => {
                let (set, lost) = FatSet::open(Arc::clone(device), files, trial.seed, run_on)?;
                Self { lost, ..Self::with(set, Some(files)) }
            }
            (Place::Folder(_) | Place::Fat(_), None) => return Err(no_files(place)),
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

fn no_files(place: &Place) -> Error {
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

/// What each rule aims at, of what the load writes in the phases in which the rule is awake: the prefill writes other
/// contents than the load after it.
pub fn contents_of(workload: &Workload, rules: &[Rule]) -> Result<Vec<Vec<TargetContent>>> {
    let is_prefill = |rule: &Rule| {
        workload.has_prefill()
            && workload.spec().writes_anything()
            && rule.during.0.contains(&AwakePhase::Prefill)
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
