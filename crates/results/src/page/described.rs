//! What `run.json` and `trial.yaml` say, in the words of a page.

use std::time::{Duration, SystemTime};

use rotproof_load::{EffortPerRequest, TraceReport};
use rotproof_machine::{Environment, Usage};
use rotproof_record::statistics::{
    Degradation, Effect, Level, Levels, Range, Recovery, SteadyEnd, SteadyState,
};
use rotproof_report::{Device, Expectation, Fact, FaultRow, Histogram, Page, Row, Unit};
use serde_json::Value;

use super::over_time::moves_bytes;
use crate::Performance;
use crate::run::{self, GateReport, RuleOutcome, RuleReport, TrialRun, VerdictWord};

/// Everything but what happened when and where.
pub(super) fn page(run: &TrialRun, trial: &Value) -> Page {
    let mut told = run.noticed.clone();
    told.extend(run.trace.as_ref().and_then(malformed));
    told.extend(run.throughput_variation.map(variation));
    told.extend(run.until_steady.as_ref().map(steadiness));
    if run.runtime == "simulated" {
        told.push("All times are virtual: the run is the same to the byte every time.".to_owned());
    }
    let is_interrupted = run.verdict == VerdictWord::Interrupted;
    if is_interrupted {
        told.push("The run was interrupted: what is here is what was done up to then.".to_owned());
    }
    let clock = &run.wall_clock;
    Page {
        name: run.name.clone(),
        subtitle: format!(
            "{}, seed {}, rotproof {}, {}",
            run.subject.name,
            run.seed,
            run.rotproof,
            date(clock.started_unix_seconds)
        ),
        passes: (!is_interrupted).then(|| run.verdict.passes()),
        summary: summary(run),
        expectations: run.expectations.iter().map(expectation).chain(run.gates.iter().map(gate)).collect(),
        stack: stack(trial),
        load: load_facts(&trial["load"]),
        faults: run.faults.iter().map(fault).collect(),
        performance: run.performance.iter().map(performance).collect(),
        degradation: run.degradation.iter().map(degradation).collect(),
        latencies: latencies(&run.performance),
        environment: environment(
            (clock.environment.as_ref(), clock.usage.as_ref(), clock.load.as_ref()),
            [
                ("ledger digest", run.ledger_digest.clone().unwrap_or_default()),
                ("subject", bare(&serde_json::to_value(&run.subject).unwrap_or_default())),
            ],
        ),
        kernel_messages: clock.kernel_messages.clone(),
        command: format!("rotproof run trial.yaml --seed {}", run.seed),
        notes: told,
        ..Page::default()
    }
}

/// What of a trace was passed over.
pub(super) fn malformed(trace: &TraceReport) -> Option<String> {
    let lines: Vec<String> =
        trace.malformed_lines.iter().map(|line| format!("line {} ({})", line.number, line.why)).collect();
    let more = trace.malformed.saturating_sub(lines.len() as u64);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (trace.malformed > 0).then(|| {
        let malformed = counted(trace.malformed, "malformed line");
        format!("Of the trace {malformed} could not be replayed: {}{more}.", lines.join(", "))
    })
}

/// How much the throughput varied.
pub(super) fn variation(share: f64) -> String {
    format!(
        "The throughput varied by {:.0}% over time (standard deviation of its intervals, as a share of their mean).",
        share * 100.0
    )
}

/// Whether a load that was to end when it is steady did.
pub(super) fn steadiness(end: &SteadyEnd) -> String {
    let span = |nanoseconds: u64| Unit::Nanoseconds.write(nanoseconds as f64);
    let share = |share: f64| format!("{:.0}%", share * 100.0);
    let figures = |state: &SteadyState| {
        format!("a range of {} and a slope of {}", share(state.range), share(state.slope))
    };
    match (&end.state, end.at_ns) {
        (Some(state @ SteadyState { since_ns: Some(since), .. }), Some(at)) if end.attained => match since {
            0 => format!(
                "The load was steady from its beginning, with {}, and was ended at {}.",
                figures(state),
                span(at)
            ),
            since => format!(
                "The load was steady since {} of the run, with {}, and was ended at {}.",
                span(*since),
                figures(state),
                span(at)
            ),
        },
        (None, _) => "The load was not steady before its end, which came within the first window.".to_owned(),
        (Some(state), _) => {
            format!(
                "The load was not steady before its end: the last window has {} of its mean.",
                figures(state)
            )
        }
    }
}

/// A value as people write it: texts without quotes, maps as in a line of YAML.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(text).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(map) => {
            let told = map.iter().map(|(key, value)| (key, text(value)));
            let pairs: Vec<String> = told
                .filter(|(_, value)| !value.is_empty())
                .map(|(key, value)| format!("{key}: {value}"))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

/// `value` without the braces around a map.
fn bare(value: &Value) -> String {
    let text = text(value);
    text.strip_prefix("{ ").and_then(|rest| rest.strip_suffix(" }")).map_or(text.clone(), str::to_owned)
}

pub(super) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn summary(run: &TrialRun) -> String {
    let counts = &run.counts;
    let fates = [
        ("silent", counts.silent),
        ("reported", counts.reported),
        ("repaired", counts.repaired),
        ("masked", counts.masked),
        ("untriggered", counts.untriggered),
        ("unknown", counts.unknown),
    ];
    let told: Vec<String> =
        fates.iter().filter(|(_, count)| *count > 0).map(|(fate, count)| format!("{count} {fate}")).collect();
    let faults: u64 = fates.iter().map(|(_, count)| count).sum();
    let mut sentences = vec![match faults {
        0 => "No fault was injected.".to_owned(),
        _ => format!(
            "{}, {}: {}.",
            counted(faults, "fault"),
            counted(counts.injections, "injection"),
            told.join(", ")
        ),
    }];
    let assumed = counts.assumed;
    let of_assumed = match assumed {
        0 => String::new(),
        _ => format!(", {assumed} of them perhaps by one, which nothing shows"),
    };
    sentences.push(match (counts.failures, counts.unexplained) {
        _ if run.external.is_some() => {
            "Whether blocks failed is not known: what the program wrote and read, only it can tell."
                .to_owned()
        }
        (0, _) if run.verdict == VerdictWord::Interrupted => {
            "Up to the interruption no block failed; not all were read back.".to_owned()
        }
        (0, _) => "No block failed.".to_owned(),
        (1, 0) if assumed == 0 => "One block failed, by an injected fault.".to_owned(),
        (1, 0) => "One block failed, perhaps by an injected fault; nothing shows it.".to_owned(),
        (1, _) => "One block failed, by no injected fault.".to_owned(),
        (failures, 0) if assumed == 0 => format!("{failures} blocks failed, all by injected faults."),
        (failures, 0) => format!("{failures} blocks failed{of_assumed}."),
        (failures, unexplained) => {
            format!("{failures} blocks failed, {unexplained} of them by no injected fault{of_assumed}.")
        }
    });
    sentences.join(" ")
}

fn expectation(line: &run::Expectation) -> Expectation {
    Expectation {
        name: line.name.to_string(),
        wanted: line.wanted.to_string(),
        found: line.found.to_string(),
        holds: line.holds,
    }
}

/// A limit on a figure, as a line among what was expected.
fn gate(line: &GateReport) -> Expectation {
    let unit = match &*line.figure {
        "throughput" => Unit::BytesPerSecond,
        "iops" => Unit::PerSecond,
        _ => Unit::Nanoseconds,
    };
    let written = |value: Option<f64>| value.map(|value| unit.write(value));
    let share = line.found.zip(line.base).filter(|(_, base)| *base > 0.0);
    let found = match (written(line.found), written(line.base), share) {
        (Some(found), Some(base), Some((value, of))) => match value / of {
            times if times >= 10.0 => format!("x{times:.0}: {found} of {base}"),
            share => format!("{:.0}%: {found} of {base}", share * 100.0),
        },
        (Some(found), ..) => found,
        _ => "nothing".to_owned(),
    };
    let why = line.why.as_ref().map_or_else(String::new, |why| format!("; unknown: {why}"));
    Expectation {
        name: format!("{} {}", line.of, line.figure),
        wanted: line.wanted.clone(),
        found: format!("{found}{why}"),
        holds: line.passes,
    }
}

fn stack(trial: &Value) -> Vec<Device> {
    let stack = &trial["stack"];
    let has_faults = trial["faults"].as_array().is_some_and(|faults| !faults.is_empty());
    let mut devices = Vec::new();
    legs(stack, &mut |name, chain| told_chain(name, chain, has_faults, &mut devices));
    if let Value::Array(_) = stack {
        told_chain(None, stack, has_faults, &mut devices);
    }
    // Where a trial does not say where its faults act, they act just above each leaf, or the write cache on it.
    let word = |device: &Device| device.name.rsplit(": ").next().unwrap_or_default().to_owned();
    if has_faults && !devices.iter().any(|device| word(device) == "faults") {
        let is_leaf = |device: &Device| matches!(&*word(device), "memory" | "file" | "nbd" | "disk");
        let mut told = Vec::new();
        let mut rest = devices.into_iter().peekable();
        while let Some(device) = rest.next() {
            let name = is_leaf(&device).then(|| device.name.replace(&word(&device), "faults"));
            told.push(device);
            let Some(name) = name else { continue };
            while let Some(cache) = rest.next_if(|next| word(next) == "write_cache") {
                told.push(cache);
            }
            told.push(Device { name, detail: String::new(), has_faults: true });
        }
        devices = told;
    }
    let (name, detail) = match &trial["subject"] {
        Value::Object(map) => {
            map.iter().next().map_or_else(Default::default, |(name, value)| (name.clone(), bare(value)))
        }
        other => (text(other), String::new()),
    };
    devices.push(Device { name: format!("subject {name}"), detail, has_faults: false });
    let is_program = trial["load"]["command"].is_object();
    let detail = if is_program { "a program, of which nothing is known" } else { "with its oracle" };
    devices.push(Device { name: "load".into(), detail: detail.into(), has_faults: false });
    devices
}

/// Several chains: of a map each with its name, of a list of lists without.
fn legs(stacks: &Value, each: &mut dyn FnMut(Option<&str>, &Value)) {
    match stacks {
        Value::Object(map) => map.iter().for_each(|(name, chain)| each(Some(name), chain)),
        Value::Array(chains) => {
            chains.iter().filter(|chain| chain.is_array()).for_each(|chain| each(None, chain));
        }
        _ => {}
    }
}

/// The devices of a chain from bottom to top, each after those that it stands on, with the name of the chain if it has one.
fn told_chain(chain_name: Option<&str>, chain: &Value, has_faults: bool, devices: &mut Vec<Device>) {
    for entry in chain.as_array().into_iter().flatten() {
        let (word, options) = match entry {
            Value::Object(map) => match map.iter().next() {
                Some((word, options)) => (word.clone(), options.clone()),
                None => continue,
            },
            Value::String(word) => (word.clone(), Value::Null),
            _ => continue,
        };
        legs(&options["of"], &mut |name, leg| told_chain(name.or(chain_name), leg, has_faults, devices));
        let mut options = options;
        if let Some(map) = options.as_object_mut() {
            map.remove("of");
        }
        let is_site = word == "faults";
        let name = chain_name.map_or(word.clone(), |chain| format!("{chain}: {word}"));
        devices.push(Device { name, detail: bare(&options), has_faults: has_faults && is_site });
    }
}

/// What the load is asked to do.
pub(super) fn load_facts(load: &Value) -> Vec<Fact> {
    // What a load of blocks would do says nothing of a program or of files.
    let of_others = ["command", "personality"].into_iter().find(|key| !load[*key].is_null());
    let says_something =
        |key: &str| of_others.is_none_or(|own| key == own || matches!(key, "duration" | "until_steady"));
    let facts = load.as_object().into_iter().flatten().filter(|(key, _)| says_something(key));
    let facts = facts.filter(|(_, value)| !value.is_null());
    facts.map(|(name, value)| Fact { name: name.replace('_', " "), value: bare(value) }).collect()
}

fn fault(rule: &RuleReport) -> FaultRow {
    let RuleOutcome { hits, faults, fates, failing_blocks, .. } = rule.outcome;
    let fates = [
        ("silent", fates.silent),
        ("reported", fates.reported),
        ("repaired", fates.repaired),
        ("masked", fates.masked),
        ("unknown", fates.unknown),
        ("untriggered", fates.untriggered),
    ];
    FaultRow {
        name: rule.name.clone(),
        rule: rule.rule.clone(),
        hits,
        faults,
        fates: fates.map(|(fate, count)| (fate.to_owned(), count)).into(),
        failing_blocks,
        note: rule.note.clone(),
    }
}

pub(super) fn performance(line: &Performance) -> Row {
    let latency = |nanoseconds: u64| Unit::Nanoseconds.write(nanoseconds as f64);
    // Of a phase that took no time there is no rate.
    let rate = |rate: Option<f64>, write: fn(f64) -> String| rate.map_or_else(|| "-".to_owned(), write);
    let of_job = line.job.as_ref().map(|job| format!(" of {job}")).unwrap_or_default();
    let throughput = match moves_bytes(&line.operation) {
        true => rate(line.bytes_per_second, |rate| Unit::BytesPerSecond.write(rate)),
        false => String::new(),
    };
    Row {
        name: format!("{} {}{of_job}", line.phase, line.operation),
        cells: vec![
            line.requests.to_string(),
            throughput,
            rate(line.requests_per_second, |rate| format!("{rate:.0}")),
            line.errors.to_string(),
            latency(line.latency_ns.p50),
            latency(line.latency_ns.p99),
            latency(line.latency_ns.p99_9),
            latency(line.latency_ns.max),
        ],
    }
}

fn degradation(window: &Degradation) -> Row {
    let level = |level: Option<Level>| level.map(|level| Unit::BytesPerSecond.write(level.summary.mean));
    let share = |levels: &Levels| {
        let during = levels.during?;
        let ratio = during.ratio? * 100.0;
        Some(match during.ratio_confidence {
            // Digits beyond that say no more than that nothing is known.
            Some(Range { low, high }) if high > 100.0 => {
                format!("{ratio:.1}% ({:.1} to >10000)", low * 100.0)
            }
            Some(Range { low, high }) => format!("{ratio:.1}% ({:.1} to {:.1})", low * 100.0, high * 100.0),
            None => format!("{ratio:.1}%"),
        })
    };
    let time = |nanoseconds: u64| Unit::Nanoseconds.write(nanoseconds as f64);
    let back = match (window.recovery, window.recovered_after_ns) {
        (Some(Recovery::Never), _) => Some("never".to_owned()),
        (Some(Recovery::NotSeen), _) => Some("not seen".to_owned()),
        (_, Some(0)) => Some("at once".to_owned()),
        (_, after) => after.map(time),
    };
    let noticed = window
        .detected_by
        .zip(window.detected_after_ns)
        .map(|(by, after)| format!("by {} after {}", by.word(), time(after)));
    let of_before = match (window.effect, share(&window.throughput)) {
        (Effect::None, Some(share)) => Some(format!("no measurable effect: {share}")),
        (Effect::Unknown, Some(share)) => Some(format!("too few intervals to tell: {share}")),
        (_, share) => share,
    };
    let cells = [
        level(window.throughput.before),
        level(window.throughput.during),
        of_before,
        share(&window.latency_mean_ns),
        share(&window.latency_p99_ns),
        noticed,
        back,
        window.lost_bytes.map(|bytes| Unit::Bytes.write(bytes)),
    ];
    let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".into()));
    Row { name: window.fault.clone(), cells: cells.into() }
}

/// Operations whose latencies are drawn.
const HISTOGRAMS_MAX: usize = 4;

/// Of the load's own phase; it comes first.
pub(super) fn latencies(performance: &[Performance]) -> Vec<Histogram> {
    let lines = performance.iter().filter(|line| line.phase == "run" && !line.histogram.is_empty());
    let mut found: Vec<Histogram> = lines
        .map(|line| Histogram { name: line.operation.to_string(), counts: line.histogram.clone() })
        .collect();
    // Outlines of more than a few lie over each other; those that took most of the time stay.
    let time = |histogram: &Histogram| -> f64 {
        histogram.counts.iter().map(|&(bound, count)| bound as f64 * count as f64).sum()
    };
    if found.len() > HISTOGRAMS_MAX {
        found.sort_by(|a, b| time(b).total_cmp(&time(a)));
        found.truncate(HISTOGRAMS_MAX);
    }
    found
}

/// The machine, what the run took of it, and what the load's own threads took for each request.
type OnMachine<'a> = (Option<&'a Environment>, Option<&'a Usage>, Option<&'a EffortPerRequest>);

/// What there is to say of the machine, and `more`.
pub(super) fn environment<const N: usize>(
    (machine, usage, load): OnMachine<'_>,
    more: [(&str, String); N],
) -> Vec<Fact> {
    let Some(machine) = machine else { return Vec::new() };
    let or_nothing = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut facts = vec![
        ("kernel", machine.kernel.clone()),
        ("distribution", or_nothing(&machine.distribution)),
        ("processor", format!("{}, {} of them", or_nothing(&machine.processor), machine.processors)),
        ("memory", Unit::Bytes.write(machine.memory_bytes as f64)),
    ];
    let seconds = |seconds: f64| format!("{seconds:.1} s");
    // Of a load without a trial nobody measures what the whole process took.
    if let Some(usage) = usage {
        let (user, system) = (seconds(usage.user_seconds), seconds(usage.system_seconds));
        facts.push(("run time", seconds(usage.elapsed_seconds)));
        facts.push(("processor time", format!("{user} user, {system} system")));
    }
    facts.push(("cost of a request to the load", load.map_or_else(String::new, effort)));
    facts.extend(usage.map(|usage| ("most memory", Unit::Bytes.write(usage.resident_bytes_max as f64))));
    facts.extend(more);
    facts.retain(|(_, value)| !value.is_empty());
    facts.into_iter().map(|(name, value)| Fact { name: name.into(), value }).collect()
}

/// What the load's own threads took for each request.
fn effort(load: &EffortPerRequest) -> String {
    format!(
        "{} of processor time, {:.3} context switches, {:.3} system calls",
        Unit::Nanoseconds.write(load.cpu_ns),
        load.voluntary_context_switches + load.involuntary_context_switches,
        load.system_calls,
    )
}

/// `2026-11-22 02:10 UTC` of seconds since 1970 (after H. Hinnant, *chrono-compatible low-level date algorithms*).
pub(super) fn date(unix_seconds: f64) -> String {
    let since = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(unix_seconds).unwrap_or_default();
    let seconds = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(said: &Value) -> TrialRun {
        serde_json::from_value(said.clone()).expect("a run")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0.0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399.0), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400.0), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_313_942.7), "2026-11-22 02:19 UTC");
    }

    #[test]
    fn the_stack_is_told_with_the_place_of_the_faults() {
        let trial = json!({
            "stack": [{ "memory": { "size": "1GiB", "block_size": "512B" } }, { "stats": { "name": "s" } }],
            "faults": [{ "name": "rot" }],
            "subject": { "ext4": { "mount": ["noatime"] } },
        });
        let names: Vec<(String, bool)> =
            stack(&trial).into_iter().map(|device| (device.name, device.has_faults)).collect();
        let wanted =
            [("memory", false), ("faults", true), ("stats", false), ("subject ext4", false), ("load", false)];
        assert_eq!(names, wanted.map(|(name, has_faults)| (name.to_owned(), has_faults)));
        assert_eq!(stack(&trial)[0].detail, "block_size: 512B, size: 1GiB");
        let tree = json!({
            "stack": { "left": [{ "memory": { "size": "1MiB" } }, "faults"],
                "right": [{ "concat": { "of": [[{ "disk": { "profile": "ssd" } }], [{ "memory": { "size": "1MiB" } }]] } }] },
            "faults": [{ "name": "rot" }], "subject": "btrfs",
        });
        let names: Vec<String> = stack(&tree).into_iter().map(|device| device.name).collect();
        let wanted = ["left: memory", "left: faults", "right: disk", "right: memory", "right: concat"];
        assert_eq!(names[..5], wanted);
        let placed = json!({ "stack": ["faults"], "faults": [], "subject": "raw" });
        assert!(stack(&placed).iter().all(|device| !device.has_faults));
    }

    #[test]
    fn the_summary_counts_fates_and_failures() {
        let of = |counts: &Value| summary(&run(&json!({ "counts": counts })));
        let counts = json!({ "injections": 9, "silent": 1, "masked": 2, "failures": 3, "unexplained": 1 });
        assert_eq!(
            of(&counts),
            "3 faults, 9 injections: 1 silent, 2 masked. 3 blocks failed, 1 of them by no injected fault."
        );
        assert_eq!(of(&json!({})), "No fault was injected. No block failed.");
        let counts = json!({ "injections": 1, "unknown": 1, "failures": 5, "unexplained": 1, "assumed": 2 });
        assert_eq!(
            of(&counts),
            "1 fault, 1 injection: 1 unknown. 5 blocks failed, 1 of them by no injected fault, 2 of them perhaps by one, \
             which nothing shows."
        );
        let counts = json!({ "injections": 1, "unknown": 1, "failures": 1, "assumed": 1 });
        assert!(of(&counts).ends_with("One block failed, perhaps by an injected fault; nothing shows it."));
        let counts = json!({ "injections": 1, "unknown": 1, "failures": 1, "unexplained": 1 });
        assert_eq!(of(&counts), "1 fault, 1 injection: 1 unknown. One block failed, by no injected fault.");
    }

    #[test]
    fn what_nobody_could_see_is_not_said_to_be_right() {
        let of_program =
            summary(&run(&json!({ "counts": { "injections": 2, "unknown": 2 }, "external": {} })));
        assert!(
            of_program.starts_with("2 faults, 2 injections: 2 unknown. Whether blocks failed is not known"),
            "{of_program}"
        );
        let cut_off = summary(&run(&json!({ "counts": {}, "verdict": "interrupted" })));
        assert!(cut_off.ends_with("not all were read back."), "{cut_off}");
    }

    #[test]
    fn malformed_lines_of_a_trace_are_told_with_their_numbers() {
        let trace = json!({ "accesses": 9, "malformed": 12, "malformed_lines": [
            { "number": 3, "why": "no time", "text": "x" }, { "number": 5, "why": "no length", "text": "y" } ] });
        let read = |trace: &Value| serde_json::from_value::<TraceReport>(trace.clone()).expect("read");
        assert_eq!(
            malformed(&read(&trace)).as_deref(),
            Some(
                "Of the trace 12 malformed lines could not be replayed: line 3 (no time), line 5 (no length), and 10 more."
            )
        );
        assert_eq!(malformed(&read(&json!({ "accesses": 9, "malformed": 0 }))), None);
    }

    #[test]
    fn an_empty_file_makes_a_page_without_a_panic() {
        let page = page(&TrialRun::default(), &json!([]));
        assert_eq!(page.passes, Some(false));
    }
}
