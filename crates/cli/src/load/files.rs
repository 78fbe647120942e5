//! `rotproof load DIR --personality NAME`: what it prints.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rotproof_block::{Error, ErrorKind};
use rotproof_load::personality::Personality;
use rotproof_measure::load::{FileLoadCommand, FileLoadOutcome, LoadTarget};
use rotproof_results::Performance;
use rotproof_results::run::LoadRun;

use super::{LISTED_MAX, LoadArgs, Results, WIDTH};
use crate::clean::tell_stuck;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::hung::{self, HungWatch};
use crate::output::{Output, Paint};
use crate::progress::Progress;
use crate::run::{snapshot, watched};
use crate::signals::cancel_on_signals;
use crate::table::{Align, Table, clip};
use crate::{course, machine, units, verdict};

/// Runs the load of files and prints what it found.
pub(super) fn load(args: &LoadArgs, personality: Personality, output: Output) -> Result<Exit, CommandError> {
    let LoadTarget::Path(folder) = &args.target else {
        let message = format!("--personality works on files in a folder, and {} is none", args.target);
        return Err(Error::new(ErrorKind::Invalid, message).into());
    };
    let cancel = cancel_on_signals()?;
    tell_stuck(output);
    let (observed, _server) = args.metrics.observe(output)?;
    let monitor = Arc::new(watched(!args.quiet || args.metrics.metrics.is_some()));
    observed.begin(&args.target.to_string(), &monitor);
    let command = FileLoadCommand {
        folder: folder.clone(),
        personality,
        duration: args.runtime,
        seed: args.seed,
        hung_after: args.hung_after,
        overwrite: args.overwrite,
        probes: args.probes_spec()?,
        until_steady: args.until_steady(),
        record: args.record()?,
        cancel: cancel.clone(),
        monitor: Arc::clone(&monitor),
    };
    let started = SystemTime::now();
    let ended = {
        let _hung = HungWatch::start(output, &monitor);
        let _progress = Progress::start(output, args.quiet, move || snapshot(&monitor.moment()));
        command.run()
    };
    let outcome = match (ended, cancel.signal()) {
        (Err(_), Some(signal)) => return Ok(super::interrupted(args, output, signal)),
        (ended, _) => ended?,
    };
    let results = Results::keep(&outcome.folder, &outcome.unwritten, found(&command, &outcome), started);
    if args.json {
        output.json(&results.with_place(found(&command, &outcome)));
    } else {
        let text = render(&command, &outcome, output.stdout_paint());
        output.result(text + &results.last_line());
    }
    let exit = match cancel.signal() {
        Some(signal) if outcome.is_interrupted => super::tell_interruption(args, output, signal),
        _ if outcome.failures.is_empty() && outcome.errors == 0 => Exit::Pass,
        _ => Exit::VerdictFailed,
    };
    Ok(exit.and(results.tell(output)))
}

fn render(command: &FileLoadCommand, outcome: &FileLoadOutcome, paint: Paint) -> String {
    let figures = command.personality.figures();
    let heading = format!(
        "{}, {}, {}, seed {}",
        command.personality.kind.word(),
        units::counted(figures.files.into(), "file"),
        units::counted(figures.threads.into(), "thread"),
        command.seed
    );
    let name = clip(&command.folder.display().to_string(), 30);
    let mut lines = vec![
        format!("{}  {}", paint.bold(name), paint.dim(heading)),
        String::new(),
        table(&outcome.performance, paint),
    ];
    lines.extend(
        outcome
            .effort
            .map(|effort| paint.dim(format!("  {}", super::effort_words(&effort, "operation"))).to_string()),
    );
    lines.extend(hung::render(&outcome.hung, paint));
    lines.extend(outcome.until_steady.as_ref().map(|end| course::until_steady(end, paint)));
    if let Some(probes) = &outcome.probes {
        lines.push(String::new());
        lines.extend(machine::render(probes, paint));
    }
    lines.push(String::new());
    if outcome.errors > 0 {
        let errors = units::counted(outcome.errors, "operation");
        lines.push(format!("{}  {errors} ended with an error", paint.bad("FAIL")));
    }
    if outcome.is_interrupted {
        lines
            .push(paint.notable("INTERRUPTED  figures up to then; not all files were read back").to_string());
    } else if outcome.failures.is_empty() && outcome.errors == 0 {
        lines.push(format!(
            "{}  {} with {} there, read back and right",
            paint.good("PASS"),
            units::counted(outcome.files, "file"),
            units::bytes(outcome.verified_bytes)
        ));
    }
    if !outcome.failures.is_empty() {
        let blocks = units::counted(outcome.failures.len() as u64, "block");
        lines.push(format!("{}  {blocks} of files wrong or unreadable", paint.bad("FAIL")));
        lines.extend(outcome.failures.iter().take(LISTED_MAX).map(|failure| {
            let what = verdict::what(&failure.worst().what);
            clip(&format!("  {} block {}: {what}", failure.object, failure.block), WIDTH)
        }));
        if outcome.failures.len() > LISTED_MAX {
            lines.push("  and more; --json lists them all".into());
        }
    }
    lines.extend(left(&outcome.left));
    lines.join("\n")
}

/// Everything that the run did; of the other phases what takes the time, as --json has all of it.
fn table(performance: &[Performance], paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("phase", Left),
        ("count", Right),
        ("throughput", Right),
        ("a second", Right),
        ("p50", Right),
        ("p99", Right),
        ("max", Right),
    ]);
    let span = |nanoseconds| units::short_duration(Duration::from_nanos(nanoseconds));
    let is_shown = |line: &&Performance| {
        line.phase == "run" || matches!(&*line.operation, "read" | "write") || line.errors > 0
    };
    for line in performance.iter().filter(is_shown) {
        let latency = &line.latency_ns;
        let throughput =
            if line.bytes == 0 { String::new() } else { units::rate_or_none(line.bytes_per_second) };
        table.row([
            format!("{} {}", line.phase, line.operation),
            units::count(line.requests),
            throughput,
            units::pace_or_none(line.requests_per_second),
            span(latency.p50),
            span(latency.p99),
            span(latency.max),
        ]);
    }
    table.render(paint)
}

fn left(folder: &Option<PathBuf>) -> Option<String> {
    folder.as_ref().map(|folder| format!("The files are left in {} to be looked at.", folder.display()))
}

fn found(command: &FileLoadCommand, outcome: &FileLoadOutcome) -> LoadRun {
    LoadRun {
        target: command.folder.display().to_string(),
        personality: Some(command.personality),
        duration: command.duration,
        seed: command.seed,
        performance: outcome.performance.clone(),
        cpu_ns_per_operation: outcome.effort.map(|effort| effort.cpu_ns),
        effort_per_operation: outcome.effort,
        probes: outcome.probes.clone(),
        files: Some(outcome.files),
        verified_bytes: Some(outcome.verified_bytes),
        errors: outcome.errors,
        hung: outcome.hung.clone(),
        failures: outcome.failures.clone(),
        until_steady: outcome.until_steady,
        interrupted: outcome.is_interrupted,
        left: outcome.left.clone(),
        results: outcome.folder.as_ref().map(|folder| folder.path().display().to_string()),
        ..LoadRun::default()
    }
}
