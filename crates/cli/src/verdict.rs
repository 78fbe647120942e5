//! The verdict of a run for a person, in 80 columns: what the load did, what became of the faults, what failed, and
//! whether that was expected.

use std::time::Duration;

use rotproof_load::failure::{SectorFinding, error_name};
use rotproof_load::{Classification, Failure};
use rotproof_results::Performance;
use rotproof_results::run::VerdictWord;
use rotproof_trial::runner::{ExternalReport, FailureRecord, Finished, ReplayReport, TrialRun};
use rotproof_trial::verdict::CauseRecord;

use crate::course;
use crate::hung;
use crate::machine;
use crate::output::{Paint, visible};
use crate::power_loss;
use crate::run::gates;
use crate::table::{Align, Table, clip};
use crate::trace::told_of_trace;
use crate::trials::Trial;
use crate::units;

/// Failing blocks that are listed one by one.
const LISTED_MAX: usize = 8;
const WIDTH: usize = 80;
/// Lines that are shown of what a command said before it failed.
const SAID_LINES_MAX: usize = 6;

/// The whole text, without a line break at its end.
pub fn render(trial: &Trial, finished: &Finished, paint: Paint) -> String {
    let report = &finished.report;
    let heading = format!("{}, seed {}, runtime {}", report.subject.name, report.seed, report.runtime);
    let mut lines = vec![format!("{}  {}", paint.bold(&report.name), paint.dim(heading)), String::new()];
    lines.push(paint.bold("Load").to_string());
    lines.extend(report.external.iter().flat_map(|external| commands(external, paint)));
    if report.external.is_none() || !report.performance.is_empty() {
        lines.push(performance(&report.performance, paint));
    }
    lines.extend(report.trace.iter().flat_map(|trace| told_of_trace(trace, paint)));
    lines.push(cost(report, paint));
    lines.extend(hung::render(&report.hung, paint));
    if !report.faults.is_empty() {
        lines.extend([String::new(), paint.bold("Faults").to_string()]);
        lines.extend(faults(report, paint));
        lines.extend(report.replay.iter().flat_map(replay));
    }
    lines.extend(report.until_steady.as_ref().map(|end| course::until_steady(end, paint)));
    lines.extend(course::render(&report.degradation, report.steady_state.as_ref(), paint));
    if !finished.failures.is_empty() {
        lines.push(String::new());
        lines.extend(failures(finished, paint));
    }
    lines.extend(
        report
            .crash
            .iter()
            .flat_map(|crash| power_loss::render(crash, report.wall_clock.crash, &finished.folder, paint)),
    );
    lines.extend(report.noticed.iter().map(|text| clip(&format!("  noticed: {text}"), WIDTH)));
    // What failed comes before how busy the machine was meanwhile.
    if let Some(probes) = &report.wall_clock.probes {
        lines.push(String::new());
        lines.extend(machine::render(probes, paint));
    }
    if !report.expectations.is_empty() {
        lines.extend([String::new(), paint.bold("Expected").to_string()]);
    }
    // A column that the usual names fit, and the longer ones where there are some.
    let column =
        report.expectations.iter().map(|expectation| expectation.name.len()).max().unwrap_or(0).max(13);
    lines.extend(report.expectations.iter().map(|expectation| {
        let mark =
            if expectation.holds { paint.good("yes").to_string() } else { paint.bad("NO ").to_string() };
        let wanted = expectation.wanted.to_string();
        format!(
            "  {mark}  {:column$} {wanted:10} found {}",
            expectation.name,
            units::count(expectation.found)
        )
    }));
    lines.extend(gates::render(&report.gates, paint));
    lines.push(String::new());
    lines.push(match report.verdict {
        VerdictWord::Pass => format!("{}  every expectation holds", paint.good("PASS")),
        VerdictWord::Interrupted if report.external.is_some() => {
            paint.notable("INTERRUPTED  no verdict: the program did not come to its end").to_string()
        }
        VerdictWord::Interrupted => {
            paint.notable("INTERRUPTED  no verdict: not all was read back").to_string()
        }
        VerdictWord::Fail => {
            let broken = report.expectations.iter().filter(|expectation| !expectation.holds).count();
            let gates = report.gates.iter().filter(|gate| !gate.passes).count();
            let told = [(broken, "expectation"), (gates, "gate")]
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| units::counted(count as u64, what));
            format!("{}  {} not met", paint.bad("FAIL"), told.collect::<Vec<_>>().join(" and "))
        }
    });
    if finished.unwritten.is_none() {
        lines.push(format!("Results: {}", finished.folder.display()));
    }
    lines.extend(next(trial, report).into_iter().map(|line| paint.dim(line).to_string()));
    lines.join("\n")
}

fn performance(lines: &[Performance], paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("phase", Left),
        ("requests", Right),
        ("throughput", Right),
        ("IOPS", Right),
        ("p50", Right),
        ("p99", Right),
        ("max", Right),
        ("errors", Right),
    ]);
    let span = |nanoseconds| units::short_duration(Duration::from_nanos(nanoseconds));
    for line in lines {
        let throughput =
            if line.bytes == 0 { String::new() } else { units::rate_or_none(line.bytes_per_second) };
        table.row([
            format!("{} {}", clip(line.job.as_deref().unwrap_or(&line.phase), 16), line.operation),
            units::count(line.requests),
            throughput,
            units::pace_or_none(line.requests_per_second),
            span(line.latency_ns.p50),
            span(line.latency_ns.p99),
            span(line.latency_ns.max),
            units::count(line.errors),
        ]);
    }
    table.render(paint)
}

/// How each command ended, with the last it said if it failed.
fn commands(external: &ExternalReport, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for command in &external.commands {
        let took = units::duration(Duration::try_from_secs_f64(command.seconds).unwrap_or_default());
        let end = match (command.timed_out, command.interrupted) {
            (true, _) => format!("ended after {took}: its time was over"),
            (_, true) => format!("ended after {took}, with exit code {}: interrupted", command.exit),
            _ => format!("exit code {} after {took}", command.exit),
        };
        let end = match (command.interrupted, command.exit) {
            (true, _) => paint.notable(end).to_string(),
            (_, 0) => end,
            _ => paint.bad(end).to_string(),
        };
        lines.push(format!("  {:7}  {end}", command.name));
        lines
            .push(paint.dim(clip(&format!("    {}", command.command.replace('\n', " ")), WIDTH)).to_string());
        if command.exit != 0 || command.interrupted {
            let said: Vec<&str> = command.said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = &said[said.len().saturating_sub(SAID_LINES_MAX)..];
            lines.extend(last.iter().map(|line| {
                clip(&format!("    | {}", line.chars().map(visible).collect::<String>()), WIDTH)
            }));
        }
    }
    if let Some(jobs) = external.fio_failed_jobs.filter(|jobs| *jobs > 0) {
        lines.push(format!("  {} of fio ended with an error", units::counted(jobs, "job")));
    }
    lines
}

fn cost(report: &TrialRun, paint: Paint) -> String {
    let usage = report.wall_clock.usage.unwrap_or_default();
    let seconds = |seconds: f64| units::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let text = format!(
        "  CPU {} user, {} system; memory {} at most; {} in all",
        seconds(usage.user_seconds),
        seconds(usage.system_seconds),
        units::bytes(usage.resident_bytes_max),
        seconds(usage.elapsed_seconds),
    );
    paint.dim(clip(&text, WIDTH)).to_string()
}

fn faults(report: &TrialRun, paint: Paint) -> Vec<String> {
    use Align::{Left, Right};
    if report.external.is_some() {
        return faults_without_oracle(report, paint);
    }
    let rows = rows(report);
    // A fate that nothing met has no column: not all of them would fit.
    let has_column =
        |column: usize| COLUMNS[column].1 || rows.iter().any(|(_, numbers)| numbers[column] != 0);
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(|&column| has_column(column)).collect();
    let heads = columns.iter().map(|&column| (COLUMNS[column].0, Right));
    let mut table = Table::new(&std::iter::once(("rule", Left)).chain(heads).collect::<Vec<_>>());
    for (name, numbers) in &rows {
        let numbers = columns.iter().map(|&column| units::count(numbers[column]));
        table.row(std::iter::once(clip(name, 13)).chain(numbers));
    }
    let mut lines = vec![table.render(paint)];
    if rows.iter().any(|(_, [hits, faults, ..])| hits != faults) {
        lines.extend(wrapped(
            "Fates count faults: a fault is one place that a rule hit, however often, or was aimed at.",
        ));
    }
    for model in &report.models {
        let rules = units::counted(model.rules, "rule");
        lines.extend(wrapped(&format!("{}: model({}), drawn into {rules}", model.name, model.model)));
    }
    let mut told: Vec<&str> = Vec::new();
    for rule in &report.faults {
        let Some(note) = rule.note.as_deref().filter(|note| !told.contains(note)) else { continue };
        let is_of_several =
            report.faults.iter().filter(|rule| rule.note.as_deref() == Some(note)).count() > 1;
        lines.extend(match is_of_several {
            true => wrapped(note),
            false => wrapped(&format!("{}: {note}", rule.name)),
        });
        told.push(note);
    }
    lines
}

/// The columns of the table of faults, and whether each is there when it holds nothing.
const COLUMNS: [(&str, bool); 9] = [
    ("hits", true),
    ("faults", true),
    ("silent", true),
    ("reported", true),
    ("repaired", false),
    ("masked", true),
    ("unknown", false),
    ("untriggered", false),
    ("blocks", true),
];

/// What can be said of faults below a command: that they happened.
fn faults_without_oracle(report: &TrialRun, paint: Paint) -> Vec<String> {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("rule", Left),
        ("hits", Right),
        ("unknown", Right),
        ("delays only", Right),
        ("untriggered", Right),
    ]);
    let mut notes: Vec<&str> = Vec::new();
    for rule in &report.faults {
        let fates = &rule.outcome.fates;
        let numbers = [rule.outcome.hits, fates.unknown, fates.masked, fates.untriggered];
        table.row(std::iter::once(clip(&rule.name, 24)).chain(numbers.map(units::count)));
        notes.extend(rule.note.as_deref().filter(|note| !notes.contains(note)));
    }
    let mut lines = vec![table.render(paint)];
    lines.extend(notes.into_iter().flat_map(wrapped));
    lines
}

/// The numbers of the table: a row for each rule, and one for all rules of a model, which may have drawn none.
fn rows(report: &TrialRun) -> Vec<(&str, [u64; COLUMNS.len()])> {
    let mut rows: Vec<(&str, [u64; COLUMNS.len()])> = Vec::new();
    let mut models = report.models.iter().map(|model| model.name.as_str());
    for rule in &report.faults {
        let (outcome, fates) = (&rule.outcome, &rule.outcome.fates);
        let numbers = [
            outcome.hits,
            outcome.faults,
            fates.silent,
            fates.reported,
            fates.repaired,
            fates.masked,
            fates.unknown,
            fates.untriggered,
            outcome.failing_blocks,
        ];
        let Some(model) = rule.model.as_deref() else {
            rows.push((&rule.name, numbers));
            continue;
        };
        if rows.last().is_none_or(|(name, _)| *name != model) {
            // Those before it have drawn no rule.
            rows.extend(
                models.by_ref().take_while(|name| *name != model).map(|name| (name, [0; COLUMNS.len()])),
            );
            rows.push((model, [0; COLUMNS.len()]));
        }
        if let Some((_, sums)) = rows.last_mut() {
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
    }
    rows.extend(models.map(|name| (name, [0; COLUMNS.len()])));
    rows
}

/// Whether the faults of another run came again.
fn replay(replay: &ReplayReport) -> Vec<String> {
    let ReplayReport { recorded, injected, missing, is_same_ledger, .. } = replay;
    let (recorded, injected) = (units::count(*recorded), units::count(*injected));
    wrapped(&match missing.first() {
        None if *is_same_ledger => {
            format!("replay: {injected} of {recorded} recorded faults; the ledger is the same")
        }
        None => format!(
            "replay: {injected} of {recorded} recorded faults, but not all at the same place or with the same \
             consequences"
        ),
        Some(first) => format!(
            "replay: {injected} of {recorded} recorded faults; the requests of the others did not come again, record \
             {first} first"
        ),
    })
}

/// Lines of at most 80 columns, indented.
pub fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![" ".to_owned()];
    for word in text.split_whitespace() {
        if lines.last().is_some_and(|line| line.chars().count() + 1 + word.chars().count() > WIDTH) {
            lines.push("   ".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines
}

fn failures(finished: &Finished, paint: Paint) -> Vec<String> {
    let report = &finished.report;
    let kinds: Vec<String> = report
        .failures
        .by_kind
        .iter()
        .map(|(kind, number)| format!("{} {}", units::count(*number), kind.replace('_', " ")))
        .collect();
    let mut lines = vec![format!(
        "{}  {} in {}",
        paint.bold("Failures"),
        units::counted(report.counts.failures, "block"),
        units::counted(report.failures.by_object.len() as u64, "object"),
    )];
    lines.extend(wrapped(&kinds.join(", ")));
    let mut table = Table::new(&[
        ("object", Align::Left),
        ("block", Align::Right),
        ("what", Align::Left),
        ("cause", Align::Left),
    ]);
    // One of each kind first, so that a short list shows all there is.
    let mut seen = std::collections::BTreeSet::new();
    let (first, rest): (Vec<_>, Vec<_>) =
        finished.failures.iter().partition(|record| seen.insert(record.failure.worst().what.kind()));
    for record in first.into_iter().chain(rest).take(LISTED_MAX) {
        let Failure { object, block, .. } = &record.failure;
        table.row([
            clip(object, 12),
            units::count(*block),
            clip(&what(&record.failure.worst().what), 34),
            cause(record),
        ]);
    }
    lines.push(table.render(paint));
    let more = report.counts.failures.saturating_sub(LISTED_MAX as u64);
    if more > 0 {
        lines
            .push(paint.dim(format!("  and {} more, all in failures.jsonl", units::count(more))).to_string());
    }
    lines
}

fn cause(record: &FailureRecord) -> String {
    match record.cause {
        CauseRecord::Injection(number) => format!("ledger {}", units::count(number)),
        CauseRecord::Consequence(number) => format!("follows from ledger {}", units::count(number)),
        CauseRecord::Assumed(number) => format!("perhaps ledger {}; not shown", units::count(number)),
        CauseRecord::Unexplained => "unexplained".to_owned(),
    }
}

/// A classification in a few words.
pub fn what(what: &Classification) -> String {
    let sectors = |sectors: &[SectorFinding]| {
        let right = sectors.iter().filter(|sector| matches!(sector, SectorFinding::Expected)).count();
        format!("{right} of {} sectors are right", sectors.len())
    };
    match what {
        Classification::FlippedBits { count: 1, bits } => match bits.first() {
            Some(bit) => format!("bit {} of byte {} flipped", bit.bit, bit.byte),
            None => "a bit flipped".into(),
        },
        Classification::FlippedBits { count, .. } => {
            format!("{} flipped", units::counted((*count).into(), "bit"))
        }
        Classification::Zeroed => "zeros".into(),
        Classification::Ones => "ones".into(),
        Classification::Stale(stale) => format!("stale: write {} of {}", stale.write, stale.writes),
        Classification::Unflushed(unflushed) => match unflushed.write {
            Some(write) => format!("lost with its flush: write {write} of {}", unflushed.writes),
            None => "lost with its flush".into(),
        },
        Classification::Misdirected(misdirected) => match misdirected.places.first() {
            Some(place) => format!("misdirected: {} block {}", place.object, units::count(place.block)),
            None => "misdirected".into(),
        },
        Classification::Torn { sectors: found } => format!("torn: {}", sectors(found)),
        Classification::Misplaced { sectors: found } => format!("misplaced: {}", sectors(found)),
        Classification::Noise => "noise".into(),
        Classification::Unreadable { error } => format!("unreadable: {}", error_name(*error)),
        Classification::Unwritable { error } => format!("unwritable: {}", error_name(*error)),
        Classification::Refused { operation, error } => {
            format!("{} failed: {}", operation.word(), error_name(*error))
        }
        Classification::Lost => "lost: it is not there".into(),
        Classification::Undeleted => "is there, and should not be".into(),
        Classification::WrongSize { expected_bytes, found_bytes } => {
            format!("ends at {} instead of {}", units::count(*found_bytes), units::count(*expected_bytes))
        }
    }
}

/// What to try after this.
fn next(trial: &Trial, report: &TrialRun) -> Vec<String> {
    let command = trial.command();
    let mut lines = vec![format!("Repeat it: {command} --seed {}", report.seed)];
    if report.subject.name == "raw" {
        lines.push(format!("On a file system, as root: {command} --set runtime=io_uring --set subject=ext4"));
        if report.verdict.passes() && !report.faults.is_empty() {
            // Offsets then mean other blocks, metadata among them, and errors spread.
            lines.push(
                "(there the same faults hit other blocks, so what is expected may not hold)".to_owned(),
            );
        }
    } else if report.subject.name == "ext4"
        && !trial.file.faults.iter().any(rotproof_fault::FaultEntry::is_on_memory)
    {
        lines.push(format!("On one with checksums: {command} --set subject=btrfs"));
    }
    lines
}
