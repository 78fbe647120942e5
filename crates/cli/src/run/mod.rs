//! `rotproof run`: runs trials and prints their verdicts.

mod batch;
pub mod gates;
mod journal;
mod junit;
mod latest;
pub mod matrix;
mod one;
mod outcome;
mod repeat;

use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind};
use rotproof_trial::runner::Recorded;
use serde_json::Value;

use crate::args::RunArgs;
use crate::clean::tell_stuck;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;
use crate::trials::{self, Trial, shell_word};
use crate::units;

use journal::Journal;
use matrix::{Axis, Setting, Told};
use one::Runner;
pub use one::{snapshot, watched};
use outcome::{Outcome, Word};

/// One trial of the command, with what the matrix sets of it.
pub struct Cell {
    /// What is run.
    pub trial: Trial,
    /// A value of each axis.
    pub setting: Setting,
}

impl Cell {
    /// What came of it, with its names.
    pub fn named(&self, outcome: Outcome) -> Outcome {
        let values = self.setting.iter().map(|(path, value)| format!("{}={value}", matrix::short(path)));
        let words = std::iter::once(self.trial.base_name.clone()).chain(values);
        let label = words.collect::<Vec<_>>().join(" ");
        Outcome { file: self.trial.path.display().to_string(), label, ..outcome }
    }
}

/// Reads all trials before the first one runs. A trial that cannot be run does not keep the next from running, an
/// interruption does.
pub fn run(args: &RunArgs, output: Output) -> Result<Exit, CommandError> {
    let Some(path) = &args.junit else { return run_trials(args, output) };
    junit::check(path)?;
    let exit = run_trials(args, output);
    if let Err(failure) = &exit {
        // What is told first is why nothing ran; that this could not be written either is seen by the file's absence.
        let _ = junit::write(path, &outcome::of_failure(&args.trials.files, failure));
    }
    exit
}

fn run_trials(args: &RunArgs, output: Output) -> Result<Exit, CommandError> {
    let cells = cells(args)?;
    let replay = args.replay.as_deref().map(Recorded::read).transpose()?.map(Arc::new);
    if replay.is_some() && cells.len() > 1 {
        let context = "a ledger is of one trial; replay it with that one alone";
        return Err(Error::new(ErrorKind::Invalid, context).into());
    }
    // What a replay injects, the schedules do not say.
    if replay.is_none() {
        tell_warnings(&cells, output);
    }
    let cancel = cancel_on_signals()?;
    tell_stuck(output);
    let (observed, _server) = args.metrics.observe(output)?;
    let runner = Runner { args, replay, cancel: cancel.clone(), observed: &observed, output };
    let outcomes = match <[Cell; 1]>::try_from(cells) {
        Ok([cell]) if args.matrix.is_empty() => vec![run_single(&runner, &cell)],
        Ok([cell]) => run_several(&runner, &[cell])?,
        Err(cells) => run_several(&runner, &cells)?,
    };
    let mut exit = outcomes.iter().fold(Exit::Pass, |exit, outcome| exit.and(outcome.exit));
    if let Some(signal) = cancel.signal() {
        exit = exit.and(Exit::of_signal(signal));
    }
    if let Some(path) = &args.junit {
        junit::write(path, &outcomes)?;
    }
    if args.json {
        let results: Vec<Value> = outcomes
            .into_iter()
            .filter(|outcome| !outcome.json.is_null())
            .map(|outcome| outcome.json)
            .collect();
        match <[Value; 1]>::try_from(results) {
            Ok([only]) => output.json(&only),
            Err(several) => output.json(&Value::Array(several)),
        }
    }
    Ok(exit)
}

/// Every trial with every setting of the matrix.
fn cells(args: &RunArgs) -> Result<Vec<Cell>, CommandError> {
    let settings = matrix::settings(&args.matrix).ok_or_else(|| {
        let context =
            format!("the matrix has more than {} combinations; take fewer values", matrix::CELLS_MAX);
        Error::new(ErrorKind::Invalid, context)
    })?;
    let mut cells = Vec::new();
    for (setting, trials) in trials::open_each(&args.trials, settings)? {
        cells.extend(trials.into_iter().map(|trial| Cell { trial, setting: setting.clone() }));
    }
    // All settings of one file stand together.
    let place = |cell: &Cell| args.trials.files.iter().position(|path| *path == cell.trial.path);
    cells.sort_by_key(place);
    for Cell { trial, .. } in &mut cells {
        trial.changes.extend(args.overwrite.then(|| "--overwrite".to_owned()));
        let ledger = args.replay.as_ref().map(|ledger| shell_word(&ledger.display().to_string()));
        trial.changes.extend(ledger.map(|ledger| format!("--replay {ledger}")));
    }
    Ok(cells)
}

/// Once for each file: what a matrix changes seldom changes them.
fn tell_warnings(cells: &[Cell], output: Output) {
    let mut told: Vec<&Path> = Vec::new();
    for Cell { trial, .. } in cells {
        if !told.contains(&trial.path.as_path()) {
            trial.tell_warnings(output);
            told.push(&trial.path);
        }
    }
}

/// The whole verdict of one trial; with `--quiet` its line alone.
fn run_single(runner: &Runner<'_>, cell: &Cell) -> Outcome {
    let (args, output) = (runner.args, runner.output);
    let outcome = runner.outcome(cell, false);
    tell_interruption(&outcome, output);
    if outcome.word == Word::Error && outcome.text.is_none() {
        tell_error(&outcome, output);
    } else if !args.json {
        match &outcome.text {
            Some(text) if !args.quiet => output.result(text),
            Some(_) => {
                output.result(outcome.lines(output.stdout_paint()));
            }
            None => {}
        }
    }
    outcome
}

/// A line for each trial as it ends, the whole verdict of those that do not pass, and in the end how many did.
fn run_several(runner: &Runner<'_>, cells: &[Cell]) -> Result<Vec<Outcome>, Error> {
    let (args, output) = (runner.args, runner.output);
    let paint = output.stdout_paint();
    let journal = (!args.matrix.is_empty()).then(|| Journal::open(&args.results, args.resume)).transpose()?;
    let jobs = if args.metrics.metrics.is_some() { 1 } else { args.jobs.unwrap_or_else(batch::jobs_default) };
    let run = |cell: &Cell, is_one_of_many: bool| {
        let Some(journal) = &journal else { return runner.outcome(cell, is_one_of_many) };
        let key = match journal::key_of(&cell.trial.file) {
            Ok(key) => key,
            Err(error) => return cell.named(Outcome::of_error(&error)),
        };
        if let Some(known) = journal.find(&key) {
            return cell.named(known);
        }
        let outcome = runner.outcome(cell, is_one_of_many);
        match journal.keep(&key, &outcome) {
            Ok(()) => outcome,
            Err(error) => cell.named(Outcome::of_error(&error)),
        }
    };
    let outcomes = batch::run_all(
        cells,
        jobs,
        || runner.cancel.signal().is_some(),
        run,
        |_, outcome| {
            tell_interruption(outcome, output);
            if outcome.word == Word::Error && outcome.text.is_none() {
                tell_error(outcome, output);
            }
            if args.json {
                return;
            }
            output.result(outcome.lines(paint));
            let is_worth_a_page = !args.quiet && !matches!(outcome.word, Word::Pass | Word::NotRun);
            if let Some(text) = outcome.text.as_ref().filter(|_| is_worth_a_page) {
                output.result(format_args!("\n{text}\n"));
            }
        },
    );
    if !args.json {
        if !args.matrix.is_empty() {
            output.result(format_args!("\n{}", table(&args.matrix, &outcomes, cells, output)));
        }
        output.result(format_args!("\n{}", count(&outcomes)));
    }
    Ok(outcomes)
}

fn tell_interruption(outcome: &Outcome, output: Output) {
    if outcome.word == Word::Interrupted {
        output.note(format_args!("{}: interrupted; everything it had created is removed", outcome.label));
    }
}

fn tell_error(outcome: &Outcome, output: Output) {
    output.note(format_args!("{} {}", output.stderr_paint().bad("error:"), outcome.why));
    if outcome.exit == Exit::Internal {
        output.note(crate::fail::advice());
    }
}

fn table(axes: &[Axis], outcomes: &[Outcome], cells: &[Cell], output: Output) -> String {
    let told: Vec<Told> = outcomes
        .iter()
        .zip(cells)
        .map(|(outcome, cell)| Told {
            trial: cell.trial.base_name.clone(),
            setting: cell.setting.clone(),
            word: outcome.word.short(),
        })
        .collect();
    matrix::table(axes, &told, output.stdout_paint())
}

/// `28 of 30 trials pass, 2 fail`.
fn count(outcomes: &[Outcome]) -> String {
    let of = |word: Word| outcomes.iter().filter(|outcome| outcome.word == word).count() as u64;
    let mut text = format!(
        "{} of {} pass",
        units::count(of(Word::Pass)),
        units::counted(outcomes.len() as u64, "trial")
    );
    for (word, told) in [
        (Word::Fail, "fail"),
        (Word::Error, "could not be run"),
        (Word::Interrupted, "interrupted"),
        (Word::NotRun, "not begun"),
    ] {
        if of(word) > 0 {
            text.push_str(&format!(", {} {told}", units::count(of(word))));
        }
    }
    let before = outcomes.iter().filter(|outcome| outcome.is_from_before).count() as u64;
    if before > 0 {
        text.push_str(&format!("; {} known from before", units::count(before)));
    }
    text
}
