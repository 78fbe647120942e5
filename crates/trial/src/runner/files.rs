//! A load of files in a trial: the same steps as for blocks, on files in the root of the subject.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::personality::{
    FileOperation, FileOracle, FilePlan, FileReport, FileRunOptions, Personality, run,
};
use rotproof_record::{Recording, RecordingOptions};
use rotproof_results::NO_REMOUNT;
use rotproof_subject::{GuestMemory, Place, Prepared, Remount};

use super::leaf_watch::LeafWatch;
use super::memory::Owner;
use super::{Conductor, Loaded};
use crate::verdict::FileAccount;

/// The folder of the load's files.
const FOLDER: &str = "files";

impl Conductor<'_> {
    pub(super) fn load_and_check_files(
        &mut self,
        personality: &Personality,
        subject: &mut dyn Prepared,
    ) -> Result<Loaded> {
        let folder_of = |subject: &dyn Prepared| match subject.place() {
            Place::Folder(root) => Ok(root.join(FOLDER)),
            other => Err(Error::new(ErrorKind::Internal, format!("{other:?} has no files"))),
        };
        let plan = FilePlan::new(personality, self.trial.seed);
        let sites = &self.stack.sites;
        if !sites.is_empty() {
            sites.keep_sectors();
            super::let_recognise(sites, *plan.content(), !self.trial.subject.compresses());
            super::arm_without_load(sites, self.plan.rules.clone(), self.replay)?;
        }
        if !self.plan.on_memory.is_empty() {
            let rules = self.plan.on_memory.iter().map(|rule| (rule.clone(), Vec::new()));
            let recogniser = super::recogniser(*plan.content(), !self.trial.subject.compresses());
            self.memory.arm(rules.collect(), recogniser);
        }
        let mut oracle = FileOracle::new(&plan);
        let mut reports = Vec::new();
        let folder = folder_of(subject)?;
        std::fs::create_dir(&folder)
            .map_err(|error| Error::from_io(error, format!("making the folder {}", folder.display())))?;
        self.crashes_begin(subject)?;
        let recording = Recording::new(RecordingOptions {
            spec: self.trial.record.clone(),
            operations: FileOperation::NAMES,
            workers: plan.workers(),
            folder: self.results.to_owned(),
        })?;
        self.options.monitor.record_in(&recording);
        let ended = self.run_file_phases(subject, (&plan, &mut oracle), &folder_of, &recording, &mut reports);
        let is_interrupted = match ended {
            // What was done up to there is kept.
            Err(_) if self.options.cancel.is_cancelled() && !reports.is_empty() => true,
            ended => ended.map(|()| false)?,
        };
        Ok(Loaded {
            is_interrupted,
            // What nobody has read back, nobody can judge.
            files: Some(FileAccount { reports, oracle: (!is_interrupted).then_some(oracle) }),
            load: Vec::new(),
            recording: Some(recording),
            known: None,
            external: None,
            noticed: std::mem::take(&mut self.noticed),
        })
    }

    /// Prefill, run and check, with a remount between. Fails with [`ErrorKind::Cancelled`] where it was asked to stop;
    /// what was done until then is among the reports.
    fn run_file_phases(
        &mut self,
        subject: &mut dyn Prepared,
        (plan, oracle): (&FilePlan, &mut FileOracle),
        folder_of: &dyn Fn(&dyn Prepared) -> Result<PathBuf>,
        recording: &Arc<Recording>,
        reports: &mut Vec<FileReport>,
    ) -> Result<()> {
        let folder = folder_of(subject)?;
        for phase in [Phase::Prefill, Phase::Run] {
            let memory = subject.memory();
            reports.push(self.run_file_phase(phase, plan, (&folder, memory), oracle, recording)?);
            self.options.cancel.check()?;
        }
        self.options.monitor.begin("remount", None);
        match subject.remount(&|| self.stack.sites.restore_power())? {
            Remount::Done { reported } => {
                self.noticed.extend(reported.iter().map(|error| format!("unmount: {error}")));
            }
            // The check then finds every file lost, which is what a user of this file system would find.
            Remount::Failed(error) => self.noticed.push(format!("{NO_REMOUNT}: {error}")),
        }
        self.tell_probes_of(subject);
        let folder = folder_of(subject)?;
        let memory = subject.memory();
        let check = self.run_file_phase(Phase::Check, plan, (&folder, memory), oracle, recording)?;
        let is_interrupted = check.is_interrupted;
        reports.push(check);
        if is_interrupted { self.options.cancel.check() } else { Ok(()) }
    }

    fn run_file_phase(
        &self,
        phase: Phase,
        plan: &FilePlan,
        (folder, memory): (&Path, Option<GuestMemory>),
        oracle: &mut FileOracle,
        recording: &Arc<Recording>,
    ) -> Result<FileReport> {
        self.options.cancel.check()?;
        let (name, bytes) = match phase {
            Phase::Prefill => ("prefill", Some(plan.preallocated_bytes())),
            Phase::Run => ("run", None),
            _ => ("check", Some(oracle.bytes())),
        };
        self.environment.phase.store(phase as u8, Ordering::Relaxed);
        let duration = self.trial.load.duration.filter(|_| phase == Phase::Run).map(|span| span.0);
        let progress = self.options.monitor.begin_load(name, bytes, duration);
        let watch = LeafWatch::start(self.stack, &self.options.cancel)?;
        let options = FileRunOptions {
            phase,
            clock: Clock::since(self.environment.epoch),
            duration,
            cancel: watch.stop_cell(),
            progress,
            recording: Some(Arc::clone(recording)),
            until_steady: self.trial.load.until_steady,
            hung_after: self.trial.load.hung_after.map(|span| span.0),
            let_go: self.let_go(),
        };
        let looks = self.memory.watch(phase, memory.map(Owner::Machine))?;
        let watched = self.device_watch.map(|watch| watch.begin(phase.word(), None)).transpose()?;
        let begin_phase = |is_run| self.probes.iter().for_each(|probes| probes.begin_phase(is_run));
        begin_phase(phase == Phase::Run);
        let result = run(plan, folder, oracle, &options);
        begin_phase(false);
        drop(watched);
        drop(looks);
        let leaf = watch.end();
        if self.options.cancel.is_cancelled() {
            // Who asked is known here; what was done is kept, whatever came of what the stack stands on.
            return result.or_else(|error| self.options.cancel.check().and(Err(error)));
        }
        leaf?;
        result
    }
}
