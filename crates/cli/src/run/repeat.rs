//! A trial that is run several times: its runs, each with a seed of its own, and what they say together.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind};
use rotproof_results::compare::{SetUp, Summarised, repetition_seed, summarise_runs};
use rotproof_results::folder::RepeatedFolder;
use rotproof_trial::file::TrialFile;
use rotproof_trial::runner::Finished;
use serde_json::{Value, json};

use crate::figures::show;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};
use crate::trials::Trial;
use crate::units;

/// The runs of a repeated trial, all in one folder.
pub struct Repeated {
    folder: PathBuf,
    runs: Vec<Finished>,
    figures: Vec<Summarised>,
}

/// Runs the trial as often as it says, `run_one` with each seed and the folder for its results. Ends with the first run
/// that cannot be made.
pub fn repeat(
    trial: &Trial,
    results: &Path,
    (output, quiet): (Output, bool),
    run_one: impl Fn(&Trial, &Path) -> Result<Finished, Error>,
) -> Result<Repeated, Error> {
    let folder = RepeatedFolder::create(results, (&trial.file.name, trial.file.seed))?;
    let count = trial.file.repeat;
    let mut runs = Vec::new();
    for number in 0..count {
        let seed = repetition_seed(trial.file.seed, number);
        let file = TrialFile { seed, repeat: 1, ..trial.file.clone() };
        let trial = Trial { file, ..trial.clone() };
        let mut finished = run_one(&trial, folder.inside()).map_err(|error| folder.told(error))?;
        if let Some(name) = finished.folder.file_name() {
            finished.folder = folder.path().join(name);
        }
        if let Some(error) = finished.unwritten {
            // Their figures are to be compared with those of the others.
            return Err(folder.told(Error::new(error.kind(), error.to_string())));
        }
        let verdict = finished.report.verdict.word();
        if !quiet {
            output.note(format_args!("  run {} of {count}, seed {seed}: {verdict}", number + 1));
        }
        runs.push(finished);
    }
    let path = folder.path().to_owned();
    let set_up = SetUp::open(folder.inside()).map_err(|error| folder.told(error))?;
    let repeated = Repeated { folder: path, figures: summarise_runs(&set_up), runs };
    let text = format!("{:#}\n", repeated.to_json(trial)?);
    File::create_new(folder.inside().join("repeat.json"))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            Error::from_io(error, format!("writing repeat.json in {}", folder.path().display()))
        })?;
    folder.open_up()?;
    Ok(repeated)
}

impl Repeated {
    /// Its runs.
    pub fn runs(&self) -> &[Finished] {
        &self.runs
    }

    /// The folder that holds them.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many of them are as expected.
    pub fn passed(&self) -> usize {
        self.runs.iter().filter(|run| run.report.verdict.passes()).count()
    }

    /// Every run in brief, and every figure over all of them.
    pub fn to_json(&self, trial: &Trial) -> Result<Value, Error> {
        let runs = self.runs.iter().map(|run| {
            json!({
                "seed": run.report.seed,
                "verdict": run.report.verdict,
                "results": run.folder.file_name().map(|name| name.to_string_lossy()),
            })
        });
        let figures = serde_json::to_value(&self.figures)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing figures as JSON").caused_by(error))?;
        Ok(json!({
            "format": rotproof_results::FORMAT,
            "name": trial.file.name,
            "seed": trial.file.seed,
            "repeat": self.runs.len(),
            "runs": runs.collect::<Vec<_>>(),
            "figures": figures,
        }))
    }

    /// The figures for a person, in 80 columns.
    pub fn render(&self, trial: &Trial, paint: Paint) -> String {
        use Align::{Left, Right};
        let heading =
            format!("{} runs, seeds from {}", units::count(self.runs.len() as u64), trial.file.seed);
        let mut lines =
            vec![format!("{}  {}", paint.bold(&trial.file.name), paint.dim(heading)), String::new()];
        let mut table =
            Table::new(&[("figure", Left), ("mean", Right), ("+-", Right), ("95% of the mean", Left)]);
        for Summarised { figure, summary } in &self.figures {
            let range = summary.confidence.filter(|_| summary.deviation > 0.0);
            table.row([
                clip(&figure.name, 28),
                show(figure.unit, summary.mean),
                show(figure.unit, summary.deviation),
                range.map_or_else(String::new, |range| {
                    format!("{} to {}", show(figure.unit, range.low), show(figure.unit, range.high))
                }),
            ]);
        }
        lines.push(table.render(paint));
        let passed = self.passed();
        lines.push(String::new());
        let all = self.runs.len();
        let word = if passed == all { paint.good("PASS") } else { paint.bad("FAIL") };
        lines.push(format!("{word}  {passed} of {all} runs as expected"));
        lines.push(format!("Results: {}", self.folder.display()));
        let path = self.folder.display();
        lines.push(
            paint.dim(format!("Compare with another set-up: rotproof report {path} OTHER")).to_string(),
        );
        lines.join("\n")
    }
}
