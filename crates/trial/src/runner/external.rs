//! A command as the load of a trial: prepared with the faults disabled, run, and looked at again after caches are gone.
//!
//! Such a load has no oracle. What is known is how it ended, what it printed, and what the ledger says; nothing here
//! claims more.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::{Command, CommandLine, CommandOutput};
use rotproof_machine::command::{CommandFiles, CommandRun, GRACE, run_command};
use rotproof_machine::registry::CleanupStack;
use rotproof_record::Recording;
use rotproof_results::Performance;
use rotproof_results::run::{CommandReport, ExternalReport};
use rotproof_subject::{Destination, Prepared};

use super::memory::RUN_VARIABLE;
use super::steps::Driven;
use super::working::Working;
use super::{Conductor, Loaded, MarkServer, arm_without_load, fio_json};

/// How much of what a command said is kept for people.
const SAID_BYTES_MAX: u64 = 2000;
/// The folder in that of the run where programs run that work on a device.
const WORK: &str = "work";
/// How much of its output is looked through for figures.
const FIGURES_BYTES_MAX: u64 = 64 << 20;

/// What an external load leaves behind.
#[derive(Debug, Default)]
pub(super) struct External {
    pub(super) report: ExternalReport,
    pub(super) performance: Vec<Performance>,
    /// By name of the command.
    pub(super) output: Vec<(&'static str, CommandFiles)>,
}

/// Programs as the load.
pub(super) struct Programs {
    command: Command,
    external: External,
    /// A program tells nothing of its own requests; this holds its phases, and what happened in them.
    recording: Arc<Recording>,
    /// Where a program runs that has no folder to work on. What programs leave there is of no concern to the clean-up.
    work: PathBuf,
    cleanup: CleanupStack,
    notices: Vec<String>,
}

impl Programs {
    pub(super) fn new(command: Command, conductor: &Conductor<'_>) -> Result<Self> {
        let recording = conductor.recording(&[], 0)?;
        let mut cleanup = CleanupStack::new(&conductor.environment.run);
        let work = conductor.environment.run.scratch().join(WORK);
        cleanup.create_tree(&work)?;
        Ok(Self { command, external: External::default(), recording, work, cleanup, notices: Vec::new() })
    }

    /// Runs one command and keeps what came of it; gives its exit code.
    fn command(
        &mut self,
        (name, phase): (&'static str, Phase),
        line: &CommandLine,
        conductor: &Conductor<'_>,
        subject: &dyn Prepared,
    ) -> Result<u64> {
        let (target, folder, kind) = match subject.place() {
            Destination::Folder(folder) => (folder.clone(), folder, "folder"),
            Destination::BlockDevice(path) => (path, self.work.clone(), "device"),
            other => {
                return Err(Error::new(ErrorKind::Invalid, format!("a command cannot reach {other:?}")));
            }
        };
        let trial_dir = match &self.command.trial_dir {
            Some(folder) => folder.clone(),
            None => std::env::current_dir().doing(|| "looking for the folder of the trial".into())?,
        };
        let mut variables = conductor.variables((&target, kind), &trial_dir).to_vec();
        let are_wanted = !conductor.stack.recordings().is_empty()
            || conductor.plan.rules.iter().any(|rule| rule.schedule.mark().is_some());
        let marks = match are_wanted {
            false => None,
            true => Some(MarkServer::start(conductor.environment.run.scratch(), conductor.set_mark())?),
        };
        let socket = marks.as_ref().map(|marks| marks.path().display().to_string());
        variables.extend(socket.map(|path| ("ROTPROOF_MARK_SOCKET", path)));
        let own = std::env::current_exe().ok();
        variables.extend(own.map(|path| ("ROTPROOF", path.display().to_string())));
        let (target, trial_dir) = (target.display().to_string(), trial_dir.display().to_string());
        if phase == Phase::Check && marks.is_some() {
            // As for the check of a state: what the load had said by now.
            let path = self.work.join("marks");
            let marks = conductor.marks.lock();
            let lines: String = marks.iter().map(|mark| mark.replace('\n', " ") + "\n").collect();
            std::fs::write(&path, lines).doing(|| format!("writing {}", path.display()))?;
            variables.push(("ROTPROOF_MARKS", path.display().to_string()));
        }
        let mut output = CommandFiles::new(conductor.results)?;
        let run = conductor.name_of_the_run();
        let working = Working::of_command((name, phase), subject, (&run, &folder));
        let end = conductor.while_working(working, |watched| {
            let clock = Clock::since(conductor.environment.epoch);
            self.recording.begin_phase(name, 0);
            let started = clock.now();
            let ended = run_command(&mut CommandRun {
                words: &line.words(&target, &trial_dir),
                folder: &folder,
                variables: &variables,
                output: &mut output,
                timeout: self.command.timeout.0,
                stop: &watched.stop,
                cancel: &conductor.options.cancel,
                grace: GRACE,
                // What it still does to end in order meets no faults.
                before_end: &|| conductor.environment.phase.store(Phase::Setup as u8, Ordering::Relaxed),
            });
            self.recording.end_phase(started, None, clock.now());
            ended
        })?;
        self.external.report.commands.push(CommandReport {
            name: name.into(),
            command: line.to_string(),
            exit: end.exit,
            timed_out: end.is_timed_out,
            interrupted: end.is_interrupted,
            seconds: end.took.as_secs_f64(),
            said: output.last_words(SAID_BYTES_MAX),
        });
        self.external.output.push((name, output));
        conductor.options.cancel.check()?;
        Ok(end.exit)
    }

    /// What fio has printed; one that was interrupted prints it too.
    fn read_figures(&mut self) {
        let mut text = String::new();
        let read = self.external.output.iter().find(|(name, _)| *name == "run").map(|(_, output)| {
            use std::io::Seek;
            let mut stdout = &output.stdout;
            stdout.rewind().and_then(|()| stdout.take(FIGURES_BYTES_MAX).read_to_string(&mut text))
        });
        match fio_json::figures(&text).filter(|_| matches!(read, Some(Ok(_)))) {
            Some((lines, failed)) => {
                self.external.performance = lines;
                self.external.report.fio_failed_jobs = Some(failed);
            }
            None => self.notices.push("what the command printed holds no JSON of fio's".to_owned()),
        }
    }
}

impl Driven for Programs {
    fn make(&mut self, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        let Some(line) = self.command.prepare.clone() else { return Ok(()) };
        let exit = self.command(("prepare", Phase::Setup), &line, conductor, subject)?;
        if exit == 0 {
            return Ok(());
        }
        let said = self.external.report.commands.last().map_or("", |command| command.said.trim());
        Err(Error::new(
            ErrorKind::Invalid,
            format!("`prepare` ended with exit code {exit}, before any fault: {said}"),
        ))
    }

    fn arm(&mut self, conductor: &mut Conductor<'_>) -> Result<()> {
        if !conductor.stack.sites.is_empty() {
            arm_without_load(&conductor.stack.sites, conductor.plan.rules.clone(), conductor.replay)?;
        }
        if !conductor.plan.on_memory.is_empty() {
            let rules = conductor.plan.on_memory.iter().map(|rule| (rule.clone(), Vec::new()));
            // Nobody knows what a command has made.
            conductor.memory.arm(rules.collect(), Arc::new(|_| None));
        }
        Ok(())
    }

    fn phases(&self) -> &'static [Phase] {
        &[Phase::Run]
    }

    fn run(&mut self, phase: Phase, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()> {
        if phase == Phase::Check {
            let Some(line) = self.command.check.clone() else { return Ok(()) };
            return self.command(("check", phase), &line, conductor, subject).map(drop);
        }
        let (line, output) = self.command.main();
        let ended = self.command(("run", phase), &line, conductor, subject);
        if output == CommandOutput::FioJson && self.external.report.exit("run").is_some() {
            self.read_figures();
        }
        ended.map(drop)
    }

    /// Programs close what they open.
    fn close(&mut self, _conductor: &mut Conductor<'_>) {}

    fn open(&mut self, _conductor: &mut Conductor<'_>, _subject: &dyn Prepared) -> Result<()> {
        Ok(())
    }

    fn has_begun(&self) -> bool {
        !self.external.report.commands.is_empty()
    }

    fn end(mut self: Box<Self>, is_interrupted: bool) -> Loaded {
        let left = self.cleanup.undo_all();
        self.notices.extend(left.iter().map(|error| format!("where the programs ran: {error}")));
        Loaded {
            is_interrupted,
            recording: Some(self.recording),
            external: Some(self.external),
            noticed: self.notices,
            ..Loaded::default()
        }
    }
}

impl Conductor<'_> {
    /// What a command finds in its environment.
    fn variables(&self, (target, kind): (&Path, &str), trial_dir: &Path) -> [(&'static str, String); 5] {
        [
            ("ROTPROOF_TARGET", target.display().to_string()),
            ("ROTPROOF_KIND", kind.to_owned()),
            ("ROTPROOF_SEED", self.trial.seed.to_string()),
            ("ROTPROOF_TRIAL_DIR", trial_dir.display().to_string()),
            (RUN_VARIABLE, self.name_of_the_run()),
        ]
    }

    /// What no other run on this machine is called.
    fn name_of_the_run(&self) -> String {
        self.environment.run.scratch().display().to_string()
    }
}
