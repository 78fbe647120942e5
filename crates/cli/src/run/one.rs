//! One trial of a command, with what is shown while it runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rotproof_block::{Error, ErrorKind};
use rotproof_fault::Injection;
use rotproof_machine::Cancel;
use rotproof_measure::{Moment, Monitor};
use rotproof_serve::metrics::Observed;
use rotproof_trial::runner::{self, Finished, Recorded, RunOptions};
use serde_json::{Value, json};

use super::outcome::{Outcome, Word};
use super::repeat::{Repeated, repeat};
use super::{Cell, latest};
use crate::args::RunArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::hung::HungWatch;
use crate::load::tell_unwritten;
use crate::output::Output;
use crate::progress::{Progress, Snapshot};
use crate::trials::Trial;
use crate::units;
use crate::verdict;

/// What all trials of a command share.
pub struct Runner<'a> {
    pub args: &'a RunArgs,
    pub replay: Option<Arc<Recorded>>,
    pub cancel: Cancel,
    pub observed: &'a Observed,
    pub output: Output,
}

impl Runner<'_> {
    /// Runs it. `is_one_of_many`: others run at the same time, so it shows nothing meanwhile.
    pub fn outcome(&self, cell: &Cell, is_one_of_many: bool) -> Outcome {
        let began = Instant::now();
        let quiet = self.args.quiet || is_one_of_many;
        let trial = &cell.trial;
        let outcome = if trial.file.repeat > 1 {
            let output = self.output;
            let run = |run: &Trial, results: &Path| self.run(run, results, quiet);
            match repeat(trial, &self.args.results, (output, quiet), run) {
                Ok(repeated) => self.of_repeated(trial, &repeated),
                Err(error) => self.of_error(&error),
            }
        } else {
            match self.run(trial, &self.args.results, quiet) {
                Ok(finished) => self.of_finished(trial, &finished),
                Err(error) => self.of_error(&error),
            }
        };
        if let Some(folder) = &outcome.folder {
            latest::point_to(&self.args.results, folder);
        }
        cell.named(Outcome { seconds: began.elapsed().as_secs_f64(), ..outcome })
    }

    fn of_error(&self, error: &Error) -> Outcome {
        match self.cancel.signal() {
            Some(signal) => {
                let exit = Exit::of_signal(signal);
                let json = crate::fail::error_json("cancelled", "interrupted", exit);
                Outcome { exit, json, why: "interrupted".to_owned(), ..Outcome::of_word(Word::Interrupted) }
            }
            None => Outcome::of_error(error),
        }
    }

    fn of_finished(&self, trial: &Trial, finished: &Finished) -> Outcome {
        let text = verdict::render(trial, finished, self.output.stdout_paint());
        let exit = match self.cancel.signal() {
            Some(signal) => Exit::of_signal(signal),
            None => exit_of(finished),
        };
        Outcome::of_run(finished, text, verdict_json(finished), exit.and(tell_trouble(finished, self.output)))
    }

    fn of_repeated(&self, trial: &Trial, repeated: &Repeated) -> Outcome {
        let of_run = |run: &Finished| exit_of(run).and(tell_trouble(run, self.output));
        let exit = repeated.runs().iter().fold(Exit::Pass, |exit, run| exit.and(of_run(run)));
        let json = match repeated.to_json(trial) {
            Ok(json) => json,
            Err(error) => return self.of_error(&error),
        };
        let (passed, all) = (repeated.passed(), repeated.runs().len());
        let word = match exit {
            Exit::Pass => Word::Pass,
            _ if passed < all => Word::Fail,
            _ => Word::Error,
        };
        let why = if passed == all { String::new() } else { format!("{passed} of {all} runs as expected") };
        Outcome {
            exit,
            why,
            json,
            text: Some(repeated.render(trial, self.output.stdout_paint())),
            folder: Some(repeated.folder().to_owned()),
            ..Outcome::of_word(word)
        }
    }

    fn run(&self, trial: &Trial, results: &Path, quiet: bool) -> Result<Finished, Error> {
        let monitor = Arc::new(watched(!quiet || self.args.metrics.metrics.is_some()));
        self.observed.begin(&trial.file.name, &monitor);
        let options = RunOptions {
            results: results.to_owned(),
            overwrite: self.args.overwrite,
            replay: self.replay.clone(),
            cancel: self.cancel.clone(),
            monitor: Arc::clone(&monitor),
        };
        let _hung = HungWatch::start(self.output, &monitor);
        let _progress = Progress::start(self.output, quiet, move || snapshot(&monitor.moment()));
        let finished = runner::run(&trial.file, &options)?;
        self.observed.end(&finished.report);
        Ok(finished)
    }
}

/// A monitor that keeps more if somebody is to look at it while the run goes on.
pub fn watched(is_looked_at: bool) -> Monitor {
    if is_looked_at { Monitor::watched() } else { Monitor::default() }
}

/// Steps into which a phase that ends by time is cut for its display.
const TIME_STEPS: u64 = 1000;

/// What the display shows of a moment.
pub fn snapshot(moment: &Moment) -> Snapshot {
    let bytes = moment.counts.bytes;
    let (position, length) = match (moment.time_share, moment.bytes_planned) {
        // Of several ends the nearest.
        (Some(share), Some(planned)) if bytes as f64 > share * planned as f64 => (bytes, planned),
        (Some(share), _) => ((share * TIME_STEPS as f64) as u64, TIME_STEPS),
        (None, Some(planned)) => (bytes, planned),
        (None, None) => (0, 0),
    };
    Snapshot {
        phase: moment.phase.to_owned(),
        position,
        length,
        bytes,
        requests: moment.counts.requests,
        latencies: moment.latencies.clone(),
        hits: moment.hits,
        last_hits: moment.last_hits.iter().map(hit).collect(),
        errors: moment.counts.errors,
        failures: moment.counts.failures,
    }
}

/// A fault that was injected, in one line: `media: read of 4.0 KiB at 1.2 MiB of a, error`.
fn hit(record: &Injection) -> String {
    let place = match record.length {
        0 => String::new(),
        length => format!(" of {} at {}", units::bytes(length), units::bytes(record.offset)),
    };
    let tag = if record.tag.is_empty() { String::new() } else { format!(" in {}", record.tag) };
    format!("{}: {}{place}{tag}, {}", record.name, record.operation.word(), record.effect)
}

/// Says what went wrong once the verdict was known, which it does not change.
fn tell_trouble(finished: &Finished, output: Output) -> Exit {
    let unwritten = finished.unwritten.iter().map(|error| tell_unwritten(error, output));
    let left = finished.left.iter().map(|error| {
        CommandError::from(Error::new(error.kind(), error.to_string())).report(output, false);
        Exit::of_error(error.kind())
    });
    unwritten.chain(left).fold(Exit::Pass, Exit::and)
}

fn exit_of(finished: &Finished) -> Exit {
    if finished.report.verdict.passes() { Exit::Pass } else { Exit::VerdictFailed }
}

/// The report, and where the rest is.
fn verdict_json(finished: &Finished) -> Value {
    let mut report = match serde_json::to_value(&finished.report) {
        Ok(report) => report,
        Err(error) => {
            let error = Error::new(ErrorKind::Internal, "writing the verdict as JSON").caused_by(error);
            return crate::fail::error_json(error.kind().word(), &error.to_string(), Exit::Internal);
        }
    };
    report["results"] = match &finished.unwritten {
        None => json!(finished.folder.display().to_string()),
        Some(error) => {
            report["results_error"] = json!(error.to_string());
            Value::Null
        }
    };
    report
}
