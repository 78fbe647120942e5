//! What `run.json` and `trial.yaml` say, in the words of a page.

use std::time::{Duration, SystemTime};

use rotproof_report::{Device, Expectation, Fact, FaultRow, Histogram, Page, Row, Unit};
use serde_json::Value;

use super::over_time::moves_bytes;

/// Everything but what happened when and where.
pub(super) fn page(run: &Value, trial: &Value) -> Page {
    let name = text(&run["name"]);
    let seed = run["seed"].as_u64().unwrap_or_default();
    let notes = |key: &str| run[key].as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let mut told = notes("noticed");
    told.extend(malformed(&run["trace"]));
    told.extend(variation(run));
    told.extend(steadiness(&run["until_steady"]));
    if run["runtime"] == "simulated" {
        told.push("All times are virtual: the run is the same to the byte every time.".to_owned());
    }
    let is_interrupted = run["verdict"] == "interrupted";
    if is_interrupted {
        told.push("The run was interrupted: what is here is what was done up to then.".to_owned());
    }
    Page {
        subtitle: format!(
            "{}, seed {seed}, rotproof {}, {}",
            text(&run["subject"]["name"]),
            text(&run["rotproof"]),
            date(run["wall_clock"]["started_unix_seconds"].as_f64().unwrap_or_default())
        ),
        passes: (!is_interrupted).then(|| run["verdict"] == "pass"),
        summary: summary(run),
        expectations: [list(&run["expectations"], expectation), list(&run["gates"], gate)].concat(),
        stack: stack(trial),
        load: load_facts(&trial["load"]),
        faults: list(&run["faults"], fault),
        performance: list(&run["performance"], performance),
        degradation: list(&run["degradation"], degradation),
        latencies: latencies(&run["performance"]),
        environment: environment(run),
        kernel_messages: list(&run["wall_clock"]["kernel_messages"], text),
        command: format!("rotproof run trial.yaml --seed {seed}"),
        notes: told,
        name,
        ..Page::default()
    }
}

/// What of a trace was passed over.
pub(super) fn malformed(trace: &Value) -> Option<String> {
    let count = number(&trace["malformed"]);
    let lines = list(&trace["malformed_lines"], |line| {
        format!("line {} ({})", number(&line["number"]), text(&line["why"]))
    });
    let more = count.saturating_sub(lines.len() as u64);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (count > 0).then(|| {
        let malformed = counted(count, "malformed line");
        format!("Of the trace {malformed} could not be replayed: {}{more}.", lines.join(", "))
    })
}

/// How much the throughput varied.
pub(super) fn variation(run: &Value) -> Option<String> {
    let share = run["throughput_variation"].as_f64()? * 100.0;
    Some(format!(
        "The throughput varied by {share:.0}% over time (standard deviation of its intervals, as a share of their mean)."
    ))
}

/// Whether a load that was to end when it is steady did.
pub(super) fn steadiness(end: &Value) -> Option<String> {
    let span = |key: &str| end[key].as_f64().map(|nanoseconds| Unit::Nanoseconds.write(nanoseconds));
    let share = |key: &str| end[key].as_f64().map_or(String::new(), |share| format!("{:.0}%", share * 100.0));
    let figures = format!("a range of {} and a slope of {}", share("range"), share("slope"));
    Some(match (end["attained"].as_bool()?, span("since_ns").zip(span("at_ns"))) {
        (true, Some((_, at))) if end["since_ns"] == 0 => {
            format!("The load was steady from its beginning, with {figures}, and was ended at {at}.")
        }
        (true, Some((since, at))) => {
            format!("The load was steady since {since} of the run, with {figures}, and was ended at {at}.")
        }
        _ if end["range"].is_null() => {
            "The load was not steady before its end, which came within the first window.".to_owned()
        }
        _ => format!("The load was not steady before its end: the last window has {figures} of its mean."),
    })
}

pub(super) fn list<T>(values: &Value, of: impl Fn(&Value) -> T) -> Vec<T> {
    values.as_array().into_iter().flatten().map(of).collect()
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

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

pub(super) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn summary(run: &Value) -> String {
    let counts = &run["counts"];
    let fates = ["silent", "reported", "repaired", "masked", "untriggered", "unknown"];
    let told: Vec<String> = fates
        .into_iter()
        .filter(|fate| number(&counts[*fate]) > 0)
        .map(|fate| format!("{} {fate}", number(&counts[fate])))
        .collect();
    let faults: u64 = fates.into_iter().map(|fate| number(&counts[fate])).sum();
    let (hits, failures) = (number(&counts["hits"]), number(&counts["failures"]));
    let mut sentences = vec![match faults {
        0 => "No fault was injected.".to_owned(),
        _ => format!("{}, {}: {}.", counted(faults, "fault"), counted(hits, "hit"), told.join(", ")),
    }];
    let assumed = number(&counts["assumed"]);
    let of_assumed = match assumed {
        0 => String::new(),
        _ => format!(", {assumed} of them perhaps by one, which nothing shows"),
    };
    sentences.push(match (failures, number(&counts["unexplained"])) {
        _ if !run["external"].is_null() => {
            "Whether blocks failed is not known: what the program wrote and read, only it can tell."
                .to_owned()
        }
        (0, _) if run["verdict"] == "interrupted" => {
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

fn expectation(line: &Value) -> Expectation {
    Expectation {
        name: text(&line["name"]),
        wanted: text(&line["wanted"]),
        found: text(&line["found"]),
        holds: line["holds"] == true,
    }
}

/// A limit on a figure, as a line among what was expected.
fn gate(line: &Value) -> Expectation {
    let figure = text(&line["figure"]);
    let unit = match figure.as_str() {
        "throughput" => Unit::BytesPerSecond,
        "iops" => Unit::PerSecond,
        _ => Unit::Nanoseconds,
    };
    let written = |key: &str| line[key].as_f64().map(|value| unit.write(value));
    let share = line["found"].as_f64().zip(line["base"].as_f64()).filter(|(_, base)| *base > 0.0);
    let found = match (written("found"), written("base"), share) {
        (Some(found), Some(base), Some((value, of))) => match value / of {
            times if times >= 10.0 => format!("x{times:.0}: {found} of {base}"),
            share => format!("{:.0}%: {found} of {base}", share * 100.0),
        },
        (Some(found), ..) => found,
        _ => "nothing".to_owned(),
    };
    let why = match line["why"].as_str() {
        Some(why) => format!("; unknown: {why}"),
        None => String::new(),
    };
    Expectation {
        name: format!("{} {figure}", text(&line["of"])),
        wanted: text(&line["wanted"]),
        found: format!("{found}{why}"),
        holds: line["passes"] == true,
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

fn fault(rule: &Value) -> FaultRow {
    let fates = ["silent", "reported", "repaired", "masked", "unknown", "untriggered"];
    FaultRow {
        name: text(&rule["name"]),
        rule: text(&rule["rule"]),
        hits: number(&rule["hits"]),
        faults: number(&rule["faults"]),
        fates: fates.map(|fate| (fate.to_owned(), number(&rule["fates"][fate]))).into(),
        failing_blocks: number(&rule["failing_blocks"]),
        note: rule["note"].as_str().map(str::to_owned),
    }
}

pub(super) fn performance(line: &Value) -> Row {
    let real = |key: &str| line[key].as_f64().unwrap_or_default();
    let latency = |key: &str| Unit::Nanoseconds.write(line["latency_ns"][key].as_f64().unwrap_or_default());
    let has_throughput = line["operation"].as_str().is_some_and(moves_bytes);
    Row {
        name: format!(
            "{} {}{}",
            text(&line["phase"]),
            text(&line["operation"]),
            line["job"].as_str().map(|job| format!(" of {job}")).unwrap_or_default()
        ),
        cells: vec![
            number(&line["requests"]).to_string(),
            if has_throughput { Unit::BytesPerSecond.write(real("bytes_per_second")) } else { String::new() },
            format!("{:.0}", real("requests_per_second")),
            number(&line["errors"]).to_string(),
            latency("p50"),
            latency("p99"),
            latency("p99_9"),
            latency("max"),
        ],
    }
}

fn degradation(window: &Value) -> Row {
    let level = |key: &str| window[key]["mean"].as_f64().map(|mean| Unit::BytesPerSecond.write(mean));
    let share = |levels: &Value| {
        let during = &levels["during"];
        let ratio = during["ratio"].as_f64()? * 100.0;
        let range = &during["ratio_confidence"];
        let bounds = range["low"].as_f64().zip(range["high"].as_f64());
        Some(match bounds {
            // Digits beyond that say no more than that nothing is known.
            Some((low, high)) if high > 100.0 => format!("{ratio:.1}% ({:.1} to >10000)", low * 100.0),
            Some((low, high)) => format!("{ratio:.1}% ({:.1} to {:.1})", low * 100.0, high * 100.0),
            None => format!("{ratio:.1}%"),
        })
    };
    let time = |key: &str| window[key].as_f64().map(|nanoseconds| Unit::Nanoseconds.write(nanoseconds));
    let back = || {
        match window["recovery"].as_str() {
            Some("never") => return Some("never".to_owned()),
            Some("not_seen") => return Some("not seen".into()),
            _ => {}
        }
        let recovered = window["recovered_after_ns"].as_f64()?;
        Some(if recovered == 0.0 { "at once".into() } else { Unit::Nanoseconds.write(recovered) })
    };
    let noticed =
        || Some(format!("by {} after {}", window["detected_by"].as_str()?, time("detected_after_ns")?));
    let lost = window["lost_bytes"].as_f64().map(|bytes| Unit::Bytes.write(bytes));
    let of_before = match (window["effect"].as_str(), share(window)) {
        (Some("none"), Some(share)) => Some(format!("no measurable effect: {share}")),
        (Some("unknown"), Some(share)) => Some(format!("too few intervals to tell: {share}")),
        (_, share) => share,
    };
    let latency = |key: &str| share(&window[key]);
    let cells = [
        level("before"),
        level("during"),
        of_before,
        latency("latency_mean_ns"),
        latency("latency_p99_ns"),
        noticed(),
        back(),
        lost,
    ];
    Row { name: text(&window["fault"]), cells: cells.map(|cell| cell.unwrap_or_else(|| "-".into())).into() }
}

/// Operations whose latencies are drawn.
const HISTOGRAMS_MAX: usize = 4;

/// Of the load's own phase; it comes first.
pub(super) fn latencies(performance: &Value) -> Vec<Histogram> {
    let lines = performance.as_array().into_iter().flatten().filter(|line| line["phase"] == "run");
    let mut found = lines
        .map(|line| Histogram {
            name: text(&line["operation"]),
            counts: list(&line["histogram"], |pair| (number(&pair[0]), number(&pair[1]))),
        })
        .filter(|histogram| !histogram.counts.is_empty())
        .collect::<Vec<_>>();
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

pub(super) fn environment(run: &Value) -> Vec<Fact> {
    let clock = &run["wall_clock"];
    let (machine, usage) = (&clock["environment"], &clock["usage"]);
    let seconds = |key: &str| format!("{:.1} s", usage[key].as_f64().unwrap_or_default());
    if machine.is_null() {
        return Vec::new();
    }
    let mut facts = vec![
        ("kernel", text(&machine["kernel"])),
        ("distribution", text(&machine["distribution"])),
        ("processor", format!("{}, {} of them", text(&machine["processor"]), text(&machine["processors"]))),
        ("memory", Unit::Bytes.write(machine["memory_bytes"].as_f64().unwrap_or_default())),
        ("run time", seconds("elapsed_seconds")),
        ("processor time", format!("{} user, {} system", seconds("user_seconds"), seconds("system_seconds"))),
        ("cost of a request to the load", effort(&clock["load"])),
        ("most memory", Unit::Bytes.write(usage["resident_bytes_max"].as_f64().unwrap_or_default())),
        ("ledger digest", text(&run["ledger_digest"])),
        ("subject", bare(&run["subject"])),
    ];
    // Of a load without a trial nobody measures what the whole process took.
    let of_process = ["run time", "processor time", "most memory"];
    let is_known = |name: &str| !usage.is_null() || !of_process.contains(&name);
    facts.retain(|(name, value)| !value.is_empty() && is_known(name));
    facts.into_iter().map(|(name, value)| Fact { name: name.into(), value }).collect()
}

/// What the load's own threads took for each request.
fn effort(load: &Value) -> String {
    let each = |key: &str| load[key].as_f64();
    let (Some(cpu), Some(calls)) = (each("cpu_ns"), each("system_calls")) else { return String::new() };
    let switches = ["voluntary_context_switches", "involuntary_context_switches"];
    let switches: f64 = switches.into_iter().filter_map(each).sum();
    format!(
        "{} of processor time, {switches:.3} context switches, {calls:.3} system calls",
        Unit::Nanoseconds.write(cpu),
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
        let of = |counts: &Value| summary(&json!({ "counts": counts }));
        let counts = json!({ "hits": 9, "silent": 1, "masked": 2, "failures": 3, "unexplained": 1 });
        assert_eq!(
            of(&counts),
            "3 faults, 9 hits: 1 silent, 2 masked. 3 blocks failed, 1 of them by no injected fault."
        );
        assert_eq!(of(&json!({})), "No fault was injected. No block failed.");
        let counts = json!({ "hits": 1, "unknown": 1, "failures": 5, "unexplained": 1, "assumed": 2 });
        assert_eq!(
            of(&counts),
            "1 fault, 1 hit: 1 unknown. 5 blocks failed, 1 of them by no injected fault, 2 of them perhaps by one, \
             which nothing shows."
        );
        let counts = json!({ "hits": 1, "unknown": 1, "failures": 1, "assumed": 1 });
        assert!(of(&counts).ends_with("One block failed, perhaps by an injected fault; nothing shows it."));
        let counts = json!({ "hits": 1, "unknown": 1, "failures": 1, "unexplained": 1 });
        assert_eq!(of(&counts), "1 fault, 1 hit: 1 unknown. One block failed, by no injected fault.");
    }

    #[test]
    fn what_nobody_could_see_is_not_said_to_be_right() {
        let of_program = summary(&json!({ "counts": { "hits": 2, "unknown": 2 }, "external": {} }));
        assert!(
            of_program.starts_with("2 faults, 2 hits: 2 unknown. Whether blocks failed is not known"),
            "{of_program}"
        );
        let cut_off = summary(&json!({ "counts": {}, "verdict": "interrupted" }));
        assert!(cut_off.ends_with("not all were read back."), "{cut_off}");
    }

    #[test]
    fn malformed_lines_of_a_trace_are_told_with_their_numbers() {
        let trace = json!({ "accesses": 9, "malformed": 12, "malformed_lines": [
            { "number": 3, "why": "no time", "text": "x" }, { "number": 5, "why": "no length", "text": "y" } ] });
        assert_eq!(
            malformed(&trace).as_deref(),
            Some(
                "Of the trace 12 malformed lines could not be replayed: line 3 (no time), line 5 (no length), and 10 more."
            )
        );
        assert_eq!(malformed(&json!({ "accesses": 9, "malformed": 0 })), None);
        assert_eq!(malformed(&Value::Null), None);
    }

    #[test]
    fn an_empty_file_makes_a_page_without_a_panic() {
        let page = page(&json!(null), &json!([]));
        assert_eq!(page.passes, Some(false));
    }
}
