//! What came of one trial of a command, however it is shown: a line, a page of text, JSON, a test of JUnit.

use std::path::PathBuf;

use rotproof_block::Error;
use rotproof_document::Diagnostics;
use rotproof_results::run::VerdictWord;
use rotproof_trial::gate::GateReport;
use rotproof_trial::runner::{Finished, TrialRun};
use serde_json::Value;

use crate::exit::Exit;
use crate::fail::{CommandError, error_json};
use crate::output::Paint;
use crate::snippet;
use crate::table::clip;
use crate::units;
use crate::verdict::wrapped;

use super::gates;

/// How a trial ended, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Every expectation holds.
    Pass,
    /// One does not.
    Fail,
    /// It could not be run, or its results not written.
    Error,
    /// Somebody stopped it.
    Interrupted,
    /// Somebody stopped the command before.
    NotRun,
}

impl Word {
    /// As the table of a matrix has it.
    pub fn short(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Error => "error",
            Self::Interrupted => "stopped",
            Self::NotRun => "not run",
        }
    }
}

/// What came of one trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The trial file, as it was given.
    pub file: String,
    /// The trial's name, with what the matrix set.
    pub label: String,
    /// How it ended.
    pub word: Word,
    /// What that means for the command.
    pub exit: Exit,
    /// What was not met, or why it could not be run; empty if it passed.
    pub why: String,
    /// The whole verdict for people.
    pub text: Option<String>,
    /// For programs.
    pub json: Value,
    /// Its results, if they are there.
    pub folder: Option<PathBuf>,
    /// Wall-clock seconds that it took.
    pub seconds: f64,
    /// It was not run now: an earlier command did that.
    pub is_from_before: bool,
}

impl Outcome {
    /// One of which nothing else is known yet.
    pub fn of_word(word: Word) -> Self {
        Self {
            file: String::new(),
            label: String::new(),
            word,
            exit: Exit::Pass,
            why: String::new(),
            text: None,
            json: Value::Null,
            folder: None,
            seconds: 0.0,
            is_from_before: false,
        }
    }

    /// Of a run with a verdict, which `exit` goes with.
    pub fn of_run(finished: &Finished, text: String, json: Value, exit: Exit) -> Self {
        let word = match finished.report.verdict {
            VerdictWord::Interrupted => Word::Interrupted,
            VerdictWord::Pass if exit == Exit::Pass => Word::Pass,
            VerdictWord::Pass => Word::Error,
            VerdictWord::Fail => Word::Fail,
        };
        let why = match (word, &finished.unwritten) {
            (Word::Error, Some(error)) => format!("it passed, but its results could not be written: {error}"),
            (Word::Error, None) => "it passed, but not everything could be removed".to_owned(),
            (Word::Interrupted, _) => "interrupted".to_owned(),
            _ => not_met(&finished.report),
        };
        let folder = finished.unwritten.is_none().then(|| finished.folder.clone());
        Self { exit, why, text: Some(text), json, folder, ..Self::of_word(word) }
    }

    /// Of one that could not be run.
    pub fn of_error(error: &Error) -> Self {
        let exit = Exit::of_error(error.kind());
        let json = error_json(error.kind().word(), &error.to_string(), exit);
        Self { exit, json, why: error.to_string(), ..Self::of_word(Word::Error) }
    }

    /// Its line: the word, the name, how long it took; what was not met below it.
    pub fn lines(&self, paint: Paint) -> String {
        let word = match self.word {
            Word::Pass => paint.good("PASS ").to_string(),
            Word::Fail => paint.bad("FAIL ").to_string(),
            Word::Error => paint.bad("ERROR").to_string(),
            Word::Interrupted | Word::NotRun => paint.notable("-    ").to_string(),
        };
        let took = match (self.is_from_before, self.word) {
            (true, _) => "before".to_owned(),
            (_, Word::NotRun) => "not run".to_owned(),
            _ => units::short_duration(
                std::time::Duration::try_from_secs_f64(self.seconds).unwrap_or_default(),
            ),
        };
        // The word may hold colours, which take no columns.
        let mut lines = vec![format!("{word} {:62} {took:>9}", clip(&self.label, 62))];
        if matches!(self.word, Word::Fail | Word::Error) {
            lines.extend(self.why.split("; ").flat_map(wrapped));
        }
        lines.join("\n")
    }
}

/// What came of each file of a command that ended before its first trial began.
pub fn of_failure(files: &[PathBuf], failure: &CommandError) -> Vec<Outcome> {
    let of_file = |path: &PathBuf| {
        let file = path.display().to_string();
        let outcome = match failure {
            CommandError::Error(error) => Outcome::of_error(error),
            CommandError::Mistakes(all) => {
                let own: Vec<&Diagnostics> = all.iter().filter(|mistakes| mistakes.file == file).collect();
                let texts = own.iter().map(|mistakes| snippet::render(mistakes, Paint::OFF));
                match own.first().and_then(|mistakes| mistakes.list.first()) {
                    Some(first) => Outcome {
                        exit: failure.exit(),
                        why: first.message.clone(),
                        text: Some(texts.collect::<Vec<_>>().join("\n\n")),
                        ..Outcome::of_word(Word::Error)
                    },
                    None => Outcome {
                        why: "not begun: another trial file has mistakes".to_owned(),
                        ..Outcome::of_word(Word::NotRun)
                    },
                }
            }
        };
        let name = path.file_stem().map_or_else(|| file.clone(), |stem| stem.to_string_lossy().into_owned());
        Outcome { label: name, file, ..outcome }
    };
    files.iter().map(of_file).collect()
}

/// What a verdict did not meet, in a line.
pub fn not_met(report: &TrialRun) -> String {
    let of_counts = report.expectations.iter().filter(|expectation| !expectation.holds);
    let of_counts = of_counts.map(|line| format!("{}: {}, found {}", line.name, line.wanted, line.found));
    let of_gates = report.gates.iter().filter(|gate| !gate.passes).map(gate);
    of_counts.chain(of_gates).collect::<Vec<_>>().join("; ")
}

fn gate(gate: &GateReport) -> String {
    let found = match &gate.why {
        Some(why) => format!("unknown: {why}"),
        None => format!("found {}", gates::found(gate)),
    };
    format!("{} {} {}, {found}", gate.of, gate.figure, gate.wanted)
}
