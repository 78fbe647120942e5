//! The figures of a run by the names that gates have for them, from what its `run.json` says.

use std::path::Path;

use rotproof_results::page::moves_bytes;
use rotproof_results::{read_run, runs_in};
use serde_json::Value;

/// Fewer whole intervals are no figure of a window.
const INTERVALS_MIN: u64 = 3;
/// So many requests lie beyond a percentile, or it is a matter of chance.
const BEYOND_MIN: f64 = 5.0;
/// How exact percentiles are: of a phase three significant digits, of intervals and of fio's own a 64th.
const EXACT_PHASE: f64 = 1.0 / 1000.0;
const EXACT_WINDOW: f64 = 1.0 / 64.0;

/// A figure, or why there is none.
pub(super) type Found = Result<Measured, String>;

/// A figure, as exactly as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// What was found: of a percentile the upper bound.
    pub(super) value: f64,
    /// It is no lower than that.
    pub(super) low: f64,
}

impl Measured {
    fn exactly(value: f64) -> Self {
        Self { value, low: value }
    }
}

/// Where figures are taken from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// A phase.
    Phase(&'a str),
    /// The window of a fault.
    During(&'a str),
    /// The load before that.
    Before(&'a str),
}

/// Reads the `run.json` of every run in a folder, which is that of one run or of a repeated trial.
pub(super) fn read(folder: &Path) -> Result<Vec<Value>, String> {
    let runs = runs_in(folder).map_err(|error| error.to_string())?;
    runs.iter().map(|run| read_run(run).map_err(|error| error.to_string())).collect()
}

/// The operations whose latencies a gate without one limits: those of the place that move bytes.
pub(super) fn operations(run: &Value, place: Place<'_>) -> Vec<String> {
    let Ok((lines, _)) = lines(run, place) else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for line in lines {
        if let Some(word) = line["operation"].as_str().filter(|word| moves_bytes(word))
            && line["requests"].as_u64().unwrap_or(0) > 0
            && !found.iter().any(|known| known == word)
        {
            found.push(word.to_owned());
        }
    }
    found
}

/// A figure of one operation, or of all that move bytes together where there is none.
pub(super) fn figure(run: &Value, place: Place<'_>, operation: Option<&str>, name: &str) -> Found {
    let (lines, exact) = lines(run, place)?;
    let is_meant = |line: &&&Value| {
        let word = line["operation"].as_str().unwrap_or_default();
        operation.map_or_else(|| moves_bytes(word), |operation| word == operation)
    };
    let lines: Vec<&Value> = lines
        .iter()
        .filter(|line| line["requests"].as_u64().unwrap_or(0) > 0)
        .filter(is_meant)
        .copied()
        .collect();
    let told = |what: &str| match operation {
        Some(operation) => format!("there is no {operation} in {}{what}", place.told()),
        None => format!("there is neither a read nor a write in {}{what}", place.told()),
    };
    if lines.is_empty() {
        return match (name, place, operation) {
            // A load that stood still moved nothing, and that is known.
            ("throughput" | "iops", Place::During(_), None) => Ok(Measured::exactly(0.0)),
            _ => Err(told("")),
        };
    }
    let sum = |key: &str| lines.iter().map(|line| line[key].as_f64().unwrap_or(0.0)).sum::<f64>();
    match name {
        "throughput" if !lines.iter().any(|line| line["operation"].as_str().is_some_and(moves_bytes)) => {
            Err("this operation moves no bytes".to_owned())
        }
        "throughput" => Ok(Measured::exactly(sum("bytes_per_second"))),
        "iops" => Ok(Measured::exactly(sum("requests_per_second"))),
        latency => {
            let found = lines.iter().map(|line| of_line(line, latency, exact));
            // Of several jobs the slowest.
            found
                .reduce(|a, b| {
                    let (a, b) = (a?, b?);
                    Ok(if a.value >= b.value { a } else { b })
                })
                .unwrap_or_else(|| Err(told("")))
        }
    }
}

/// A latency of one line of figures.
fn of_line(line: &Value, name: &str, exact: f64) -> Found {
    let (key, share) = match name {
        "p50" => ("p50", Some(0.5)),
        "p90" => ("p90", Some(0.9)),
        "p99" => ("p99", Some(0.99)),
        "p99.9" => ("p99_9", Some(0.999)),
        other => (other, None),
    };
    let requests = line["requests"].as_u64().unwrap_or(0);
    if let Some(share) = share
        && requests as f64 * (1.0 - share) < BEYOND_MIN - 1e-9
    {
        let needed = (BEYOND_MIN / (1.0 - share)).round();
        return Err(format!("{requests} requests are too few for it, which takes {needed}"));
    }
    let value = line["latency_ns"][key].as_f64().ok_or_else(|| "its latencies were not kept".to_owned())?;
    let exact = match (share, line["job"].is_string()) {
        (None, _) => 0.0,
        (Some(_), true) => EXACT_WINDOW,
        (Some(_), false) => exact,
    };
    Ok(Measured { value, low: value * (1.0 - exact) })
}

impl Place<'_> {
    fn told(self) -> String {
        match self {
            Self::Phase(phase) => format!("the phase {phase}"),
            Self::During(fault) => format!("the window of {fault}"),
            Self::Before(fault) => format!("what was before {fault}"),
        }
    }
}

/// The lines of figures of a place, and how exact their percentiles are.
fn lines<'a>(run: &'a Value, place: Place<'_>) -> Result<(Vec<&'a Value>, f64), String> {
    let list = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice);
    let (fault, key) = match place {
        Place::Phase(phase) => {
            let lines: Vec<&Value> =
                list(&run["performance"]).iter().filter(|line| line["phase"] == phase).collect();
            return match lines.is_empty() {
                true => Err(format!("there are no figures of {}", place.told())),
                false => Ok((lines, EXACT_PHASE)),
            };
        }
        Place::During(fault) => (fault, "during"),
        Place::Before(fault) => (fault, "before"),
    };
    let window = list(&run["windows"]).iter().find(|window| window["fault"] == fault);
    let window =
        window.ok_or_else(|| format!("{fault} has no window: it did not hit the load for any time"))?;
    let intervals = window[key]["intervals"].as_u64().unwrap_or(0);
    if intervals < INTERVALS_MIN {
        let whole = match intervals {
            0 => "no whole interval lies".to_owned(),
            1 => "only 1 whole interval lies".to_owned(),
            many => format!("only {many} whole intervals lie"),
        };
        let there = if key == "during" { "in" } else { "before" };
        return Err(format!(
            "{whole} {there} the window of {fault}, and {INTERVALS_MIN} are needed; give a shorter `record: {{ interval }}`"
        ));
    }
    Ok((list(&window[key]["operations"]).iter().collect(), EXACT_WINDOW))
}
