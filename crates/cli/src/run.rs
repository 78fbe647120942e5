//! `rotproof run`: runs trials and prints their verdicts.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind};
use rotproof_fault::Record;
use rotproof_machine::Cancel;
use rotproof_measure::{Moment, Monitor};
use rotproof_serve::metrics::Observed;
use rotproof_trial::runner::{self, Finished, Recorded, RunOptions};
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::clean::tell_stuck;
use crate::exit::Exit;
use crate::fail::{Failure, error_json};
use crate::hung::HungWatch;
use crate::load::tell_unwritten;
use crate::output::Output;
use crate::progress::{Progress, Snapshot};
use crate::repeat::{Repeated, repeat};
use crate::signals::cancel_on_signals;
use crate::trials::{self, Trial, shell_word};
use crate::units;
use crate::verdict;

/// Reads all trials before the first one runs; then runs them in turn. A trial that cannot be run does not keep the
/// next from running, an interruption does.
pub fn run(args: &RunArgs, output: Output) -> Result<Exit, Failure> {
    let mut trials = trials::open(&args.trials)?;
    for trial in &mut trials {
        trial.changes.extend(args.overwrite.then(|| "--overwrite".to_owned()));
        let ledger = args.replay.as_ref().map(|ledger| shell_word(&ledger.display().to_string()));
        trial.changes.extend(ledger.map(|ledger| format!("--replay {ledger}")));
    }
    let replay = args.replay.as_deref().map(Recorded::read).transpose()?.map(Arc::new);
    if replay.is_some() && trials.len() > 1 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "a ledger is of one trial; replay it with that one alone",
        )
        .into());
    }
    // What a replay injects, the schedules do not say.
    if replay.is_none() {
        trials.iter().for_each(|trial| trial.tell_warnings(output));
    }
    let cancel = cancel_on_signals()?;
    tell_stuck(output);
    let (observed, _server) = args.metrics.observe(output)?;
    let mut exit = Exit::Pass;
    let mut results = Vec::new();
    for (index, trial) in trials.iter().enumerate() {
        if index > 0 && !args.json {
            output.result("");
        }
        if trial.file.repeat > 1 {
            let ended = repeat(trial, &args.results, output, |run, results| {
                run_one(run, args, (results, replay.as_ref()), &cancel, (&observed, output))
            });
            if cancel.signal().is_none() {
                exit = exit.and(tell_repeated(trial, ended, args, output, &mut results)?);
                continue;
            }
        }
        let ended = run_one(trial, args, (&args.results, replay.as_ref()), &cancel, (&observed, output));
        if let Some(signal) = cancel.signal() {
            exit = Exit::of_signal(signal);
            output
                .note(format_args!("{}: interrupted; everything it had created is removed", trial.file.name));
            match ended {
                Ok(finished) => {
                    exit = exit.and(tell_trouble(&finished, output));
                    if args.json {
                        results.push(verdict_json(&finished)?);
                    } else {
                        output.result(verdict::render(trial, &finished, output.stdout_paint()));
                    }
                }
                Err(_) => results.push(error_json("cancelled", "interrupted", exit)),
            }
            break;
        }
        match ended {
            Ok(finished) => {
                exit = exit.and(exit_of(&finished)).and(tell_trouble(&finished, output));
                if args.json {
                    results.push(verdict_json(&finished)?);
                } else {
                    output.result(verdict::render(trial, &finished, output.stdout_paint()));
                }
            }
            Err(error) => {
                let this = Exit::of_error(error.kind());
                exit = exit.and(this);
                results.push(error_json(error.kind().word(), &error.to_string(), this));
                Failure::from(error).report(output, false);
            }
        }
    }
    if args.json {
        match <[Value; 1]>::try_from(results) {
            Ok([only]) => output.json(&only),
            Err(several) => output.json(&Value::Array(several)),
        }
    }
    Ok(exit)
}

/// Prints what the runs of a repeated trial say together, or why there is nothing to say.
fn tell_repeated(
    trial: &Trial,
    ended: Result<Repeated, Error>,
    args: &RunArgs,
    output: Output,
    results: &mut Vec<Value>,
) -> Result<Exit, Failure> {
    match ended {
        Ok(repeated) => {
            if args.json {
                results.push(repeated.to_json(trial)?);
            } else {
                output.result(repeated.render(trial, output.stdout_paint()));
            }
            let of_run = |run| exit_of(run).and(tell_trouble(run, output));
            Ok(repeated.runs().iter().fold(Exit::Pass, |exit, run| exit.and(of_run(run))))
        }
        Err(error) => {
            let exit = Exit::of_error(error.kind());
            results.push(error_json(error.kind().word(), &error.to_string(), exit));
            Failure::from(error).report(output, false);
            Ok(exit)
        }
    }
}

fn run_one(
    trial: &Trial,
    args: &RunArgs,
    (results, replay): (&Path, Option<&Arc<Recorded>>),
    cancel: &Cancel,
    (observed, output): (&Observed, Output),
) -> Result<Finished, Error> {
    let monitor = Arc::new(watched(!args.quiet || args.metrics.metrics.is_some()));
    observed.begin(&trial.file.name, &monitor);
    let options = RunOptions {
        results: results.to_owned(),
        overwrite: args.overwrite,
        replay: replay.cloned(),
        cancel: cancel.clone(),
        monitor: Arc::clone(&monitor),
    };
    let _hung = HungWatch::start(output, &monitor);
    let _progress = Progress::start(output, args.quiet, move || snapshot(&monitor.moment()));
    let finished = runner::run(&trial.file, &options)?;
    observed.end(&finished.report);
    Ok(finished)
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
fn hit(record: &Record) -> String {
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
        Failure::from(Error::new(error.kind(), error.to_string())).report(output, false);
        Exit::of_error(error.kind())
    });
    unwritten.chain(left).fold(Exit::Pass, Exit::and)
}

fn exit_of(finished: &Finished) -> Exit {
    if finished.report.verdict == "pass" { Exit::Pass } else { Exit::VerdictFailed }
}

/// The report, and where the rest is.
fn verdict_json(finished: &Finished) -> Result<Value, Failure> {
    let mut report = serde_json::to_value(&finished.report)
        .map_err(|error| Error::new(ErrorKind::Internal, "writing the verdict as JSON").caused_by(error))?;
    report["results"] = match &finished.unwritten {
        None => json!(finished.folder.display().to_string()),
        Some(error) => {
            report["results_error"] = json!(error.to_string());
            Value::Null
        }
    };
    Ok(report)
}
