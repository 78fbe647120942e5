//! A load of files in a trial: the same steps as for blocks, on files in the root of the subject.

use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::personality::{
    FileHistory, FileOperation, FileOracle, FilePlan, FileReport, FileRunOptions, Personality, run,
};
use rotproof_record::Recording;
use rotproof_subject::{Destination, Prepared};

use super::load_history::LoadHistory;
use super::steps::Driven;
use super::working::Working;
use super::{Conductor, Loaded, arm_without_load, let_recognise, recogniser};
use crate::verdict::FileAccount;

/// The folder of the load's files.
pub(super) const FOLDER: &str = "files";

/// A load of files.
pub(super) struct Files {
    plan: FilePlan,
    oracle: FileOracle,
    recording: Arc<Recording>,
    /// Where the files lie; another once the subject has been down.
    folder: PathBuf,
    reports: Vec<FileReport>,
}

impl Files {
    pub(super) fn new(personality: &Personality, conductor: &Conductor<'_>) -> Result<Self> {
        let plan = FilePlan::new(personality, conductor.trial.seed);
        let recording = conductor.recording(FileOperation::NAMES, plan.workers())?;
        let oracle = FileOracle::new(&plan);
        Ok(Self { plan, oracle, recording, folder: PathBuf::new(), reports: Vec::new() })
    }
}

impl Driven for Files {
    fn make(&mut self, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        let sites = &conductor.stack.sites;
        if !sites.is_empty() {
            sites.keep_sectors();
        }
        self.open(conductor, subject)?;
        if conductor.trial.crash.is_some() {
            let history = FileHistory::new(&self.plan, conductor.set_mark());
            self.oracle.keep_history(&history);
            conductor.history = Some(LoadHistory::Files(history));
        }
        std::fs::create_dir(&self.folder).doing(|| format!("making the folder {}", self.folder.display()))
    }

    fn arm(&mut self, conductor: &mut Conductor<'_>) -> Result<()> {
        let sites = &conductor.stack.sites;
        let is_stored_as_sent = !conductor.trial.subject.compresses();
        if !sites.is_empty() {
            let_recognise(sites, *self.plan.content(), is_stored_as_sent);
            arm_without_load(sites, conductor.plan.rules.clone(), conductor.replay)?;
        }
        if !conductor.plan.on_memory.is_empty() {
            let rules = conductor.plan.on_memory.iter().map(|rule| (rule.clone(), Vec::new()));
            let recogniser = recogniser(*self.plan.content(), is_stored_as_sent);
            conductor.memory.arm(rules.collect(), recogniser);
        }
        Ok(())
    }

    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prefill, Phase::Run]
    }

    fn run(&mut self, phase: Phase, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        let load = &conductor.trial.load;
        let working = Working {
            bytes: match phase {
                Phase::Prefill => Some(self.plan.preallocated_bytes()),
                Phase::Run => None,
                _ => Some(self.oracle.bytes()),
            },
            duration: load.duration.filter(|_| phase == Phase::Run).map(|span| span.0),
            ..Working::in_phase(phase, subject)
        };
        let report = conductor.while_working(working, |watched| {
            let options = FileRunOptions {
                phase,
                clock: Clock::since(conductor.environment.epoch),
                duration: watched.duration,
                cancel: Arc::clone(&watched.stop),
                progress: Arc::clone(&watched.progress),
                recording: Some(Arc::clone(&self.recording)),
                until_steady: load.until_steady,
                hung_after: load.hung_after.map(|span| span.0),
                let_go: conductor.let_go(),
            };
            run(&self.plan, &self.folder, &mut self.oracle, &options)
        })?;
        let is_interrupted = report.is_interrupted;
        self.reports.push(report);
        if is_interrupted { conductor.options.cancel.check() } else { Ok(()) }
    }

    /// Each phase closes what it has opened.
    fn close(&mut self, _conductor: &mut Conductor<'_>) {}

    fn open(&mut self, _conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        self.folder = match subject.place() {
            Destination::Folder(root) => root.join(FOLDER),
            other => return Err(Error::new(ErrorKind::Internal, format!("{other:?} has no files"))),
        };
        Ok(())
    }

    fn has_begun(&self) -> bool {
        !self.reports.is_empty()
    }

    fn end(self: Box<Self>, is_interrupted: bool) -> Loaded {
        Loaded {
            is_interrupted,
            // What nobody has read back, nobody can judge.
            files: Some(FileAccount {
                reports: self.reports,
                oracle: (!is_interrupted).then_some(self.oracle),
            }),
            recording: Some(self.recording),
            ..Loaded::default()
        }
    }
}
