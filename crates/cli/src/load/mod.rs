//! `rotproof load`: one load on one target, and its figures.

mod args;
mod clients;
mod files;
mod fio_differences;
mod fio_words;
mod meaning;
mod values;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rotproof_block::Error;
use rotproof_load::{EffortPerRequest, TraceReport};
use rotproof_measure::load::clients::ClientsCommand;
use rotproof_measure::load::{Access, LoadCommand, LoadOutcome, write_results};
use rotproof_results::Performance;
use rotproof_results::folder::ResultsFolder;
use rotproof_results::run::{LoadRun, LoadTrace};

use crate::clean::tell_stuck;
use crate::course;
use crate::exit::Exit;
use crate::fail::{CommandError, error_json};
use crate::hung::{self, HungWatch};
use crate::machine;
use crate::output::{Output, Paint};
use crate::progress::Progress;
use crate::run::{snapshot, watched};
use crate::signals::cancel_on_signals;
use crate::table::{Align, Table, clip};
use crate::trace::tell_malformed;
use crate::trials::shell_word;
use crate::units;
use crate::verdict;
pub use args::LoadArgs;
pub use fio_words::translated;

/// Failing blocks that are listed one by one.
const LISTED_MAX: usize = 8;
const WIDTH: usize = 80;

/// Runs the load and prints what it found.
pub fn load(args: &LoadArgs, output: Output) -> Result<Exit, CommandError> {
    if let Some(personality) = args.personality()? {
        return files::load(args, personality, output);
    }
    let spec = args.spec()?;
    let cancel = cancel_on_signals()?;
    tell_stuck(output);
    let (observed, _server) = args.metrics.observe(output)?;
    let monitor = Arc::new(watched(!args.quiet || args.metrics.metrics.is_some()));
    observed.begin(&args.target.to_string(), &monitor);
    let command = LoadCommand {
        target: args.target.clone(),
        load: spec,
        seed: args.seed,
        access: Access {
            writes: false,
            overwrite: args.overwrite,
            direct: !args.buffered,
            engine: args.ioengine.into(),
            size: args.size,
            is_shared: false,
        },
        verify: !args.no_verify && args.target.keeps_data(),
        verify_only: args.verify_only,
        probes: args.probes_spec()?,
        record: args.record()?,
        cancel: cancel.clone(),
        monitor: Arc::clone(&monitor),
    };
    let started = SystemTime::now();
    let ended = {
        let _hung = HungWatch::start(output, &monitor);
        let _progress = Progress::start(output, args.quiet, move || snapshot(&monitor.moment()));
        match &args.clients[..] {
            [] => command.run(),
            clients => ClientsCommand { load: command.clone(), clients: clients.to_vec() }.run(),
        }
    };
    let outcome = match (ended, cancel.signal()) {
        (Err(_), Some(signal)) => return Ok(interrupted(args, output, signal)),
        (ended, _) => ended?,
    };
    if let Some((trace, _)) = &outcome.trace {
        tell_malformed(trace.malformed, &trace.malformed_lines, output);
    }
    let results = Results::keep(&outcome.folder, &outcome.unwritten, found(&command, &outcome), started);
    if args.json {
        output.json(&results.with_place(found(&command, &outcome)));
    } else {
        let text = render(&command, &outcome, output.stdout_paint());
        output.result(text + &results.last_line());
    }
    let exit = match cancel.signal() {
        Some(signal) if outcome.is_interrupted => tell_interruption(args, output, signal),
        _ if outcome.failures.is_empty() && outcome.errors == 0 => Exit::Pass,
        _ => Exit::VerdictFailed,
    };
    Ok(exit.and(results.tell(output)))
}

/// What became of the results that were to be kept.
enum Results {
    /// There were to be none.
    Unwanted,
    /// They are there.
    In(PathBuf),
    /// They could not be written.
    Unwritten(Arc<Error>),
}

impl Results {
    /// Writes what was found as `run.json`, and the page, beside the tables.
    fn keep(
        folder: &Option<Arc<ResultsFolder>>,
        unwritten: &Option<Arc<Error>>,
        found: LoadRun,
        started: SystemTime,
    ) -> Self {
        if let Some(error) = unwritten {
            return Self::Unwritten(Arc::clone(error));
        }
        let Some(folder) = folder else { return Self::Unwanted };
        let words = std::env::args_os().skip(1).map(|word| shell_word(&word.to_string_lossy()));
        let command = std::iter::once("rotproof".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
        match write_results(folder, found, &command, started) {
            Ok(()) => Self::In(folder.path().to_owned()),
            Err(error) => Self::Unwritten(Arc::new(error)),
        }
    }

    /// The figures, with why there are no results where there are none.
    fn with_place(&self, found: LoadRun) -> LoadRun {
        match self {
            Self::Unwritten(error) => {
                LoadRun { results: None, results_error: Some(error.to_string()), ..found }
            }
            _ => found,
        }
    }

    /// Where they are, as a line below the figures.
    fn last_line(&self) -> String {
        match self {
            Self::In(path) => format!("\nResults: {}", path.display()),
            Self::Unwanted | Self::Unwritten(_) => String::new(),
        }
    }

    /// Says why there are none. That is no finding of the load, but not what was asked for either.
    fn tell(&self, output: Output) -> Exit {
        match self {
            Self::Unwritten(error) => tell_unwritten(error, output),
            Self::Unwanted | Self::In(_) => Exit::Pass,
        }
    }
}

/// Says that what was found could not be kept.
pub fn tell_unwritten(error: &Error, output: Output) -> Exit {
    let word = output.stderr_paint().bad("error:");
    output.note(format_args!("{word} there are no results, as they could not be written: {error}"));
    Exit::of_error(error.kind())
}

/// The figures up to the interruption have been printed.
fn tell_interruption(args: &LoadArgs, output: Output, signal: i32) -> Exit {
    output.note(format_args!("{}: interrupted", args.target));
    Exit::of_signal(signal)
}

/// Before there were any figures.
fn interrupted(args: &LoadArgs, output: Output, signal: i32) -> Exit {
    let exit = Exit::of_signal(signal);
    output.note(format_args!("{}: interrupted", args.target));
    if args.json {
        output.json(&error_json("cancelled", "interrupted", exit));
    }
    exit
}

fn render(command: &LoadCommand, outcome: &LoadOutcome, paint: Paint) -> String {
    let heading = format!("{}, seed {}", units::bytes(outcome.size_bytes), command.seed);
    let mut lines = vec![
        format!("{}  {}", paint.bold(clip(&command.target.to_string(), 40)), paint.dim(heading)),
        String::new(),
        table(&outcome.performance, paint),
    ];
    if !outcome.clients.is_empty() {
        lines.extend([String::new(), clients::table(&outcome.clients, paint), String::new()]);
    }
    lines.extend(outcome.trace.as_ref().map(|(trace, unsupported)| {
        let text = clip(&format!("  {}", replayed(trace, *unsupported)), WIDTH);
        paint.dim(text).to_string()
    }));
    let mut cost = Vec::new();
    cost.extend(outcome.effort.map(|effort| effort_words(&effort, "request")));
    let retries: u64 = outcome.performance.iter().map(|line| line.retries).sum();
    if retries > 0 {
        cost.push(format!("{} tried again", units::counted(retries, "request")));
    }
    if command.target.is_simulated() {
        cost.push("all times are virtual".into());
    }
    lines.extend(cost.iter().map(|line| paint.dim(format!("  {line}")).to_string()));
    lines.extend(outcome.until_steady.as_ref().map(|end| course::until_steady(end, paint)));
    lines.extend(hung::render(&outcome.hung, paint));
    if let Some(probes) = &outcome.probes {
        lines.push(String::new());
        lines.extend(machine::render(probes, paint));
    }
    lines.push(String::new());
    lines.extend(judgement(command, outcome, paint));
    lines.join("\n")
}

/// What the load itself took: `CPU 1.2 us, 0.003 context switches, 0.07 system calls a request`.
fn effort_words(effort: &EffortPerRequest, request: &str) -> String {
    format!(
        "CPU {}, {} context switches, {} system calls a{} {request}",
        units::short_duration(Duration::from_nanos(effort.cpu_ns as u64)),
        units::few(effort.voluntary_context_switches + effort.involuntary_context_switches),
        units::few(effort.system_calls),
        if request.starts_with('o') { "n" } else { "" },
    )
}

/// How much of a trace was replayed, and what of it was not.
fn replayed(trace: &TraceReport, unsupported_discards: u64) -> String {
    let plural = if trace.accesses == 1 { "access" } else { "accesses" };
    let mut text = format!("{} {plural} replayed", units::count(trace.accesses));
    if trace.skipped > 0 {
        text.push_str(&format!("; {} left out", units::count(trace.skipped)));
    }
    if unsupported_discards > 0 {
        let discards = units::counted(unsupported_discards, "discard");
        text.push_str(&format!("; {discards} without effect, the target has none"));
    }
    text
}

fn table(performance: &[Performance], paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("phase", Left),
        ("requests", Right),
        ("throughput", Right),
        ("IOPS", Right),
        ("p50", Right),
        ("p99", Right),
        ("p99.9", Right),
        ("max", Right),
    ]);
    let span = |nanoseconds| units::short_duration(Duration::from_nanos(nanoseconds));
    for line in performance {
        let latency = &line.latency_ns;
        let throughput =
            if line.bytes == 0 { String::new() } else { units::rate_or_none(line.bytes_per_second) };
        table.row([
            format!("{} {}", line.phase, line.operation),
            units::short_count(line.requests as f64),
            throughput,
            units::pace_or_none(line.requests_per_second),
            span(latency.p50),
            span(latency.p99),
            span(latency.p99_9),
            span(latency.max),
        ]);
    }
    table.render(paint)
}

/// What became of the data.
fn judgement(command: &LoadCommand, outcome: &LoadOutcome, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    if outcome.errors > 0 {
        let errors = units::counted(outcome.errors, "request");
        lines.push(format!("{}  {errors} ended with an error", paint.bad("FAIL")));
    }
    if !outcome.failures.is_empty() {
        let blocks = units::counted(outcome.failures.len() as u64, "block");
        lines.push(format!("{}  {blocks} wrong, unreadable or unwritable", paint.bad("FAIL")));
        lines.extend(outcome.failures.iter().take(LISTED_MAX).map(|failure| {
            let what = verdict::what(&failure.worst().what);
            let place = format!("  block {} at {}", failure.block, failure.offset_bytes);
            let client = clients::of_failure(&outcome.clients, failure);
            clip(&format!("{place}: {what}{client}"), WIDTH)
        }));
        if outcome.failures.len() > LISTED_MAX {
            lines.push("  and more; --json lists them all".into());
        }
    }
    if outcome.is_interrupted {
        let text = "INTERRUPTED  figures up to then; what was written was not all read back";
        lines.push(paint.notable(text).to_string());
    } else if lines.is_empty() {
        let blocks = units::counted(outcome.verified_blocks, "block");
        lines.push(match (command.verify, outcome.verified_blocks) {
            (true, 0) => "Nothing was written, so what was read could not be verified.".into(),
            (true, _) if command.verify_only => {
                format!("{}  {blocks} of an earlier load read and right", paint.good("PASS"))
            }
            (true, _) => format!("{}  {blocks} written, read back and right", paint.good("PASS")),
            (false, _) if !command.target.keeps_data() => "Not verified: this target keeps no data.".into(),
            (false, _) => "Not verified, as asked.".into(),
        });
    }
    lines
}

fn found(command: &LoadCommand, outcome: &LoadOutcome) -> LoadRun {
    LoadRun {
        target: command.target.to_string(),
        size_bytes: Some(outcome.size_bytes),
        seed: command.seed,
        load: Some(outcome.load.clone()),
        trace: outcome
            .trace
            .as_ref()
            .map(|(read, unsupported)| LoadTrace { read: read.clone(), unsupported_discards: *unsupported }),
        performance: outcome.performance.clone(),
        cpu_ns_per_request: outcome.effort.map(|effort| effort.cpu_ns),
        effort_per_request: outcome.effort,
        probes: outcome.probes.clone(),
        verified: Some(command.verify),
        virtual_time: command.target.is_simulated(),
        verified_blocks: Some(outcome.verified_blocks),
        errors: outcome.errors,
        failures: outcome.failures.clone(),
        hung: outcome.hung.clone(),
        until_steady: outcome.until_steady,
        clients: clients::found(&outcome.clients),
        interrupted: outcome.is_interrupted,
        results: outcome.folder.as_ref().map(|folder| folder.path().display().to_string()),
        ..LoadRun::default()
    }
}
