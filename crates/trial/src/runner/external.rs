//! A command as the load of a trial: prepared with the faults asleep, run, and looked at again after caches are gone.
//!
//! Such a load has no oracle. What is known is how it ended, what it printed, and what the ledger says; nothing here
//! claims more.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::{Command, CommandLine, CommandOutput};
use rotproof_machine::command::{CommandFiles, CommandRun, GRACE, run_command};
use rotproof_machine::registry::CleanupStack;
use rotproof_measure::Performance;
use rotproof_record::{Recording, RecordingOptions};
use rotproof_results::NO_REMOUNT;
use rotproof_subject::{Place, Prepared, Remount};
use serde::Serialize;

use super::leaf_watch::LeafWatch;
use super::memory::{Owner, Processes, RUN_VARIABLE};
use super::{Conductor, Loaded, MarkServer, arm_without_load, fio_json};

/// How much of what a command said is kept for people.
const SAID_BYTES_MAX: u64 = 2000;
/// The folder in that of the run where programs run that work on a device.
const WORK: &str = "work";
/// How much of its output is looked through for figures.
const FIGURES_BYTES_MAX: u64 = 64 << 20;

/// How the commands of an external load ended, as `run.json` holds it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExternalReport {
    /// `prepare`, `run` and `check`, as far as they were run.
    pub commands: Vec<CommandReport>,
    /// Jobs of fio's that ended with an error; absent if it was not fio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio_failed_jobs: Option<u64>,
}

/// How one command ended.
#[derive(Clone, Debug, Serialize)]
pub struct CommandReport {
    /// `prepare`, `run` or `check`.
    pub name: &'static str,
    /// What was run.
    pub command: String,
    /// Its exit code as a shell tells it.
    pub exit: u64,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// Whether it was ended because somebody asked to stop.
    pub interrupted: bool,
    /// How long it ran.
    pub seconds: f64,
    /// The end of what it printed, errors first.
    pub said: String,
}

impl ExternalReport {
    /// The exit code of a command, if it was run.
    pub fn exit(&self, name: &str) -> Option<u64> {
        self.commands.iter().find(|command| command.name == name).map(|command| command.exit)
    }
}

/// What an external load leaves behind.
#[derive(Debug, Default)]
pub(super) struct External {
    pub(super) report: ExternalReport,
    pub(super) performance: Vec<Performance>,
    /// By name of the command.
    pub(super) output: Vec<(&'static str, CommandFiles)>,
}

/// Where it is told how a command went.
struct Account<'a> {
    external: &'a mut External,
    recording: &'a Recording,
    /// Where a program runs that has no folder to work on.
    work: &'a Path,
}

impl Conductor<'_> {
    pub(super) fn run_commands(&mut self, command: &Command, subject: &mut dyn Prepared) -> Result<Loaded> {
        let mut external = External::default();
        // A program tells nothing of its own requests; this holds its phases, and what happened in them.
        let recording = Recording::new(RecordingOptions {
            spec: self.trial.record.clone(),
            operations: &[],
            workers: 0,
            folder: self.results.to_owned(),
        })?;
        // What a program leaves where it runs is of no concern to the clean-up.
        let mut cleanup = CleanupStack::new(&self.environment.run);
        let work = self.environment.run.scratch().join(WORK);
        cleanup.create_tree(&work)?;
        let ended = self.run_each_command(command, subject, &mut external, (&recording, &work));
        let left = cleanup.undo_all();
        self.noticed.extend(left.iter().map(|error| format!("where the programs ran: {error}")));
        let is_interrupted = match ended {
            // What was done up to there is kept.
            Err(_) if self.options.cancel.is_cancelled() && !external.report.commands.is_empty() => true,
            ended => ended.map(|()| false)?,
        };
        Ok(Loaded {
            is_interrupted,
            recording: Some(recording),
            files: None,
            load: Vec::new(),
            known: None,
            external: Some(external),
            noticed: std::mem::take(&mut self.noticed),
        })
    }

    /// Prepare, run and check, with a remount between. Fails with [`ErrorKind::Cancelled`] where it was asked to stop;
    /// what was done until then is in `external`.
    fn run_each_command(
        &mut self,
        command: &Command,
        subject: &mut dyn Prepared,
        external: &mut External,
        (recording, work): (&Recording, &Path),
    ) -> Result<()> {
        let to = &mut Account { external, recording, work };
        if let Some(line) = &command.prepare {
            let exit = self.command("prepare", line, Phase::Setup, command, subject, to)?;
            if exit != 0 {
                let said = to.external.report.commands.last().map_or("", |command| command.said.trim());
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("`prepare` ended with exit code {exit}, before any fault: {said}"),
                ));
            }
        }
        self.crashes_begin(subject)?;
        if !self.stack.sites.is_empty() {
            arm_without_load(&self.stack.sites, self.plan.rules.clone(), self.replay)?;
        }
        if !self.plan.on_memory.is_empty() {
            let rules = self.plan.on_memory.iter().map(|rule| (rule.clone(), Vec::new()));
            // Nobody knows what a command has made.
            self.memory.arm(rules.collect(), Arc::new(|_| None));
        }
        let (line, output) = command.main();
        let ended = self.command("run", &line, Phase::Run, command, subject, to);
        if output == CommandOutput::FioJson && to.external.report.exit("run").is_some() {
            // One that was interrupted prints them too.
            self.read_figures(to.external);
        }
        ended?;
        self.options.monitor.begin("remount", None);
        match subject.remount(&|| self.stack.sites.restore_power())? {
            Remount::Done { reported } => {
                self.noticed.extend(reported.iter().map(|error| format!("unmount: {error}")));
            }
            Remount::Failed(error) => self.noticed.push(format!("{NO_REMOUNT}: {error}")),
        }
        if let Some(line) = &command.check {
            self.tell_probes_of(subject);
            self.command("check", line, Phase::Check, command, subject, to)?;
        }
        Ok(())
    }

    fn command(
        &self,
        name: &'static str,
        line: &CommandLine,
        phase: Phase,
        command: &Command,
        subject: &dyn Prepared,
        to: &mut Account<'_>,
    ) -> Result<u64> {
        self.options.cancel.check()?;
        let progress = self.options.monitor.begin_load(name, None, None);
        let (target, folder, kind) = match subject.place() {
            Place::Folder(folder) => (folder.clone(), folder, "folder"),
            Place::BlockDevice(path) => (path, to.work.to_owned(), "device"),
            other => {
                return Err(Error::new(ErrorKind::Invalid, format!("a command cannot reach {other:?}")));
            }
        };
        let trial_dir = match &command.trial_dir {
            Some(folder) => folder.clone(),
            None => std::env::current_dir().doing(|| "looking for the folder of the trial".into())?,
        };
        let mut variables = self.variables((&target, kind), &trial_dir).to_vec();
        let marks = match self.stack.recordings().is_empty() {
            true => None,
            false => Some(MarkServer::start(self.environment.run.scratch(), self.set_mark())?),
        };
        let socket = marks.as_ref().map(|marks| marks.path().display().to_string());
        variables.extend(socket.map(|path| ("ROTPROOF_MARK_SOCKET", path)));
        let own = std::env::current_exe().ok();
        variables.extend(own.map(|path| ("ROTPROOF", path.display().to_string())));
        let (target, trial_dir) = (target.display().to_string(), trial_dir.display().to_string());
        if phase == Phase::Check && marks.is_some() {
            // As for the check of a state: what the load had said by now.
            let path = to.work.join("marks");
            let lines: String = self.marks.lock().iter().map(|mark| mark.replace('\n', " ") + "\n").collect();
            std::fs::write(&path, lines).doing(|| format!("writing {}", path.display()))?;
            variables.push(("ROTPROOF_MARKS", path.display().to_string()));
        }
        let mut output = CommandFiles::new(self.results)?;
        self.environment.phase.store(phase as u8, Ordering::Relaxed);
        let processes = || Owner::Command(Processes::of_run(&self.name_of_the_run(), &folder));
        let owner = subject.memory().map_or_else(processes, Owner::Machine);
        let looks = self.memory.watch(phase, Some(owner))?;
        let watch = LeafWatch::start(self.stack, &self.options.cancel)?;
        let stop = watch.stop_cell();
        to.recording.begin_phase(name, 0);
        let watched = self.device_watch.map(|watch| watch.begin(name, Some(progress))).transpose()?;
        let clock = Clock::since(self.environment.epoch);
        let started = clock.now();
        let begin_phase = |is_run| self.probes.iter().for_each(|probes| probes.begin_phase(is_run));
        begin_phase(phase == Phase::Run);
        let ended = run_command(&mut CommandRun {
            words: &line.words(&target, &trial_dir),
            folder: &folder,
            variables: &variables,
            output: &mut output,
            timeout: command.timeout.0,
            stop: &stop,
            cancel: &self.options.cancel,
            grace: GRACE,
            // What it still does to end in order meets no faults.
            before_end: &|| self.environment.phase.store(Phase::Setup as u8, Ordering::Relaxed),
        });
        begin_phase(false);
        drop(looks);
        drop(watched);
        to.recording.end_phase(started, None, clock.now());
        let leaf = watch.end();
        if !self.options.cancel.is_cancelled() {
            leaf?;
        }
        let end = ended.or_else(|error| self.options.cancel.check().and(Err(error)))?;
        to.external.report.commands.push(CommandReport {
            name,
            command: line.to_string(),
            exit: end.exit,
            timed_out: end.is_timed_out,
            interrupted: end.is_interrupted,
            seconds: end.took.as_secs_f64(),
            said: output.last_words(SAID_BYTES_MAX),
        });
        to.external.output.push((name, output));
        self.options.cancel.check()?;
        Ok(end.exit)
    }

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

    fn read_figures(&mut self, external: &mut External) {
        let mut text = String::new();
        let read = external.output.iter().find(|(name, _)| *name == "run").map(|(_, output)| {
            use std::io::Seek;
            let mut stdout = &output.stdout;
            stdout.rewind().and_then(|()| stdout.take(FIGURES_BYTES_MAX).read_to_string(&mut text))
        });
        match fio_json::figures(&text).filter(|_| matches!(read, Some(Ok(_)))) {
            Some((lines, failed)) => {
                external.performance = lines;
                external.report.fio_failed_jobs = Some(failed);
            }
            None => self.noticed.push("what the command printed holds no JSON of fio's".to_owned()),
        }
    }
}
