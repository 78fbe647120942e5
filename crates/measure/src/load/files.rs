//! `rotproof load DIR --personality NAME`: a load of files in a folder, measured, and every file verified.
//!
//! It works in a folder of its own in the one that it is given, and removes that again, unless something is wrong with
//! what is in it. The folder is on record, so that `rotproof clean` finds it if the load is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::engine::HungRequest;
use rotproof_load::personality::{
    FileOperation, FileOracle, FilePlan, FileReport, FileRunOptions, Personality, failures_of, run,
};
use rotproof_load::{EffortPerRequest, Failure};
use rotproof_machine::registry::{Entry, Registry, Run, Tree};
use rotproof_machine::{Cancel, Locked};
use rotproof_probe::{ProbeReport, ProbesSpec};
use rotproof_record::Recording;
use rotproof_record::statistics::{SteadyEnd, SteadySpec};
use rotproof_results::folder::ResultsFolder;
use rotproof_spec::{Bytes, Span};

use super::RecordOptions;
use super::kept::Kept;
use rotproof_results::Performance;

use crate::{Monitor, mark_file_errors, summarise_files};

/// The load's own folder in the one that it is given.
const FOLDER: &str = "rotproof-load";

/// How long a load of files runs if nothing else ends it, as filebench does.
pub const DURATION_DEFAULT: Span = Span(std::time::Duration::from_secs(60));

/// What to do where.
#[derive(Clone, Debug)]
pub struct FileLoadCommand {
    /// The folder, which must be there.
    pub folder: PathBuf,
    /// What.
    pub personality: Personality,
    /// How long, if it is not to end after so many loops.
    pub duration: Option<Span>,
    /// What everything is derived from.
    pub seed: u64,
    /// How long a call may take before it is told of as hung, if not as long as usual.
    pub hung_after: Option<Span>,
    /// The remains of an earlier load may be removed.
    pub overwrite: bool,
    /// What to look at on the machine meanwhile, if anything.
    pub probes: Option<ProbesSpec>,
    /// An end: as soon as it is as steady as that.
    pub until_steady: Option<SteadySpec>,
    /// What is recorded over time, if anything; a load that ends when it is steady needs it.
    pub record: Option<RecordOptions>,
    /// The wish to stop.
    pub cancel: Cancel,
    /// Where to say how far it has come.
    pub monitor: Arc<Monitor>,
}

/// What a load of files has found.
#[derive(Clone, Debug)]
pub struct FileLoadOutcome {
    /// The figures of each phase and operation.
    pub performance: Vec<Performance>,
    /// What the threads took for one operation of the run.
    pub effort: Option<EffortPerRequest>,
    /// What probes found while the load ran; none without probes.
    pub probes: Option<ProbeReport>,
    /// Files that had to be there in the end, and were looked at.
    pub files: u64,
    /// Bytes of them that were right.
    pub verified_bytes: u64,
    /// What is wrong with which of them.
    pub failures: Vec<Failure>,
    /// Operations that ended with an error.
    pub errors: u64,
    /// Calls that took too long.
    pub hung: Vec<HungRequest>,
    /// Whether it ended because it was steady; none if it was not to.
    pub until_steady: Option<SteadyEnd>,
    /// Whether somebody asked to stop before all was done; then it says what was done up to there.
    pub is_interrupted: bool,
    /// Where the files are, if they were left there because something is wrong with them.
    pub left: Option<PathBuf>,
    /// The folder with what was recorded; it has its name once [`write_results`](super::write_results) has added the rest.
    pub folder: Option<Arc<ResultsFolder>>,
    /// Why there is none though there was to be one.
    pub unwritten: Option<Arc<Error>>,
}

impl FileLoadCommand {
    /// Carries it out. An error is one of the command or the machine, or the wish to stop before anything was done; never
    /// a finding.
    pub fn run(&self) -> Result<FileLoadOutcome> {
        self.monitor.begin("setup", None);
        let plan = FilePlan::new(&self.personality, self.seed);
        let own = OwnFolder::make(&self.folder, self.overwrite)?;
        let (room, free) = (plan.room_bytes(), rotproof_machine::free_bytes(&self.folder)?);
        if room > free {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the files take {}, and {} has {} left; take fewer or smaller ones, such as \
                     --personality {}:files=100",
                    Bytes(room),
                    self.folder.display(),
                    Bytes(free),
                    self.personality.kind.word(),
                ),
            ));
        }
        let mut oracle = FileOracle::new(&plan);
        let epoch = Instant::now();
        let clock = Clock::since(epoch);
        let recorded = (FileOperation::NAMES, plan.workers());
        let kept = Kept::start(
            self.record.as_ref(),
            recorded,
            self.probes.as_ref(),
            (self.seed, epoch, &self.cancel),
            &self.monitor,
        )?;
        kept.add_subject_disk(&self.folder);
        let mut reports = Vec::new();
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            kept.begin_phase(phase == Phase::Run);
            let on = (clock, kept.recording());
            reports.push(self.phase(phase, &plan, own.path(), &mut oracle, on)?);
            kept.begin_phase(false);
            if self.cancel.is_cancelled() && phase != Phase::Check {
                break;
            }
        }
        let is_done = |report: &FileReport| report.phase == Phase::Check && !report.is_interrupted;
        let is_interrupted = !reports.last().is_some_and(is_done);
        let failures = failures_of(&reports);
        if let Some(recording) = kept.recording() {
            mark_file_errors(recording, &reports);
        }
        // Whoever asked twice does not want to wait for what would be kept.
        self.cancel.check_haste()?;
        let kept = kept.end();
        let of = |phase| reports.iter().find(|report: &&FileReport| report.phase == phase);
        let check = of(Phase::Check);
        let left = (!failures.is_empty()).then(|| own.keep());
        Ok(FileLoadOutcome {
            performance: summarise_files(&reports),
            effort: of(Phase::Run).and_then(FileReport::effort_per_operation),
            files: check.map_or(0, |check| check.files),
            verified_bytes: check.map_or(0, |check| check.verified_bytes),
            errors: reports.iter().map(FileReport::error_count).sum(),
            hung: reports.iter().flat_map(|report| report.hung.clone()).collect(),
            failures,
            until_steady: reports.iter().find_map(|report| report.until_steady),
            is_interrupted,
            left,
            probes: kept.probes,
            folder: kept.folder,
            unwritten: kept.unwritten,
        })
    }

    fn phase(
        &self,
        phase: Phase,
        plan: &FilePlan,
        folder: &Path,
        oracle: &mut FileOracle,
        (clock, recording): (Clock, Option<&Arc<Recording>>),
    ) -> Result<FileReport> {
        self.cancel.check()?;
        let by_time = self.personality.options.loops.is_none().then_some(DURATION_DEFAULT);
        let duration = self.duration.or(by_time).filter(|_| phase == Phase::Run).map(|span| span.0);
        let (name, planned) = match phase {
            Phase::Prefill => ("prefill", Some(plan.preallocated_bytes())),
            Phase::Check => ("check", Some(oracle.bytes())),
            Phase::Run | Phase::Setup | Phase::CoolDown => ("run", None),
        };
        let progress = self.monitor.begin_load(name, planned, duration);
        let options = FileRunOptions {
            phase,
            clock,
            duration,
            cancel: self.cancel.signal_cell(),
            progress,
            recording: recording.cloned(),
            until_steady: self.until_steady,
            hung_after: self.hung_after.map(|span| span.0),
            let_go: None,
        };
        run(plan, folder, oracle, &options)
    }
}

/// The folder that the load works in; gone when it is dropped.
struct OwnFolder {
    path: PathBuf,
    /// Its place in the record, and the run whose record that is.
    recorded: Option<(Entry, Run)>,
    _locked: Option<Locked>,
}

/// Locks the folder of a load for as long as what this gives is kept.
fn locked(path: &Path) -> Result<Locked> {
    rotproof_machine::lock_folder(path)
        .map_err(|error| error.while_doing("taking it for the files of a load"))
}

impl OwnFolder {
    fn make(parent: &Path, overwrite: bool) -> Result<Self> {
        if !parent.is_dir() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} is no folder; a load of files needs one that is there", parent.display()),
            ));
        }
        let parent = parent.canonicalize().doing(|| format!("looking at {}", parent.display()))?;
        let path = parent.join(FOLDER);
        let left = path.symlink_metadata().ok();
        if left.as_ref().is_some_and(fs::Metadata::is_dir) {
            // A load that is at work in it has it locked.
            drop(locked(&path)?);
        }
        let is_left = left.is_some();
        if is_left && !overwrite {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{} is there already, as an earlier load may have left it; remove it, or let --overwrite do so \
                     (what a killed one left, `rotproof clean` removes)",
                    path.display()
                ),
            ));
        }
        if is_left {
            fs::remove_dir_all(&path).doing(|| format!("removing {}", path.display()))?;
        }
        let run = Registry::of_user()?.begin()?;
        let entry = run.record(Tree { path: path.clone() })?;
        if let Err(error) = fs::create_dir(&path) {
            run.gone(entry)?;
            return Err(error).doing(|| format!("making the folder {}", path.display()));
        }
        run.created(&entry, &path)?;
        let mut own = Self { path, recorded: Some((entry, run)), _locked: None };
        own._locked = Some(locked(&own.path)?);
        Ok(own)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it where it is.
    fn keep(mut self) -> PathBuf {
        self.forget();
        self.path.clone()
    }

    fn forget(&mut self) {
        if let Some((entry, run)) = self.recorded.take() {
            // Where that cannot be written, `clean` looks for a folder that it may not find.
            let _ = run.gone(entry);
        }
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What cannot be removed stays on record, and is refused by the next load, which says so.
        if let Some((entry, run)) = self.recorded.take() {
            let _ = run.undo(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use rotproof_record::RunFolder;

    use super::*;

    fn command(folder: &Path, personality: &str) -> FileLoadCommand {
        FileLoadCommand {
            folder: folder.to_owned(),
            personality: personality.parse().expect(personality),
            duration: None,
            seed: 1,
            hung_after: None,
            overwrite: false,
            probes: None,
            until_steady: None,
            record: None,
            cancel: Cancel::new(),
            monitor: Arc::default(),
        }
    }

    #[test]
    fn a_load_of_files_is_verified_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let outcome = command(folder.path(), "varmail:files=20,threads=2,loops=5").run().expect("runs");
        assert_eq!((outcome.failures.len(), outcome.errors), (0, 0));
        assert!(outcome.files > 10 && outcome.verified_bytes > 0 && outcome.left.is_none());
        let run: Vec<_> = outcome.performance.iter().filter(|line| line.phase == "run").collect();
        let names: Vec<_> = run.iter().map(|line| &*line.operation).collect();
        assert_eq!(names, ["create", "open", "close", "read", "append", "fsync", "delete", "sync"]);
        assert_eq!(run[0].requests, 10);
        let effort = outcome.effort.expect("there were operations");
        assert!(effort.system_calls >= 1.0 && effort.cpu_ns > 0.0, "{effort:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }

    #[test]
    fn what_a_load_of_files_did_over_time_is_kept_with_what_the_machine_did() {
        let (folder, results) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let mut command = command(folder.path(), "fileserver:files=10,threads=2,loops=3,file_size=16KiB");
        command.record =
            Some(RecordOptions { results: Some(results.path().to_owned()), ..RecordOptions::default() });
        command.probes = Some(ProbesSpec::default());
        let outcome = command.run().expect("runs");
        let results = outcome.folder.expect("there is one");
        let kept = RunFolder::open(results.inside()).expect("tables");
        let rows = kept.intervals().expect("intervals");
        for line in outcome.performance {
            let of_line = rows.iter().filter(|row| {
                row.worker.is_none() && *row.phase == *line.phase && *row.operation == *line.operation
            });
            assert_eq!(of_line.map(|row| row.requests).sum::<u64>(), line.requests, "{}", line.operation);
        }
        // So short a load may have ended before the first look.
        let probes = outcome.probes.expect("there were some");
        let kept = kept.table("probes").expect("they were kept");
        assert!(probes.series.is_empty() || kept.rows() > 0);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }

    #[test]
    fn the_folder_of_a_load_at_work_is_not_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at_work = OwnFolder::make(folder.path(), false).expect("made");
        fs::write(at_work.path().join("x"), "x").expect("written");
        for overwrite in [false, true] {
            let error = OwnFolder::make(folder.path(), overwrite).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::Refused);
            let text = error.to_string();
            assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
        }
        assert!(at_work.path().join("x").exists());
        drop(at_work);
        OwnFolder::make(folder.path(), false).expect("free again");
    }

    #[test]
    fn what_is_there_is_refused_and_removed_only_with_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(FOLDER)).expect("made");
        let mut command = command(folder.path(), "webserver:files=4,threads=2,loops=1,log_size=4MiB");
        assert_eq!(command.run().expect_err("refused").kind(), ErrorKind::Refused);
        command.overwrite = true;
        assert_eq!(command.run().expect("runs").failures, []);
        command.folder = folder.path().join("nowhere");
        assert_eq!(command.run().expect_err("no folder").kind(), ErrorKind::Invalid);
        command.folder = folder.path().to_owned();
        command.personality = "mail_store:files=200000,file_size=512MiB".parse().expect("well-formed");
        assert_eq!(command.run().expect_err("no room").kind(), ErrorKind::NoSpace);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }
}
