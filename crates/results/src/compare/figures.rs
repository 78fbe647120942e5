//! The figures of a run, by name, taken from its `run.json`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::page::moves_bytes;

/// The name of a figure, and what its numbers are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Figure {
    /// Where it stands among the others.
    #[serde(skip)]
    pub(super) place: usize,
    /// In words: `run write throughput`.
    #[serde(rename = "figure")]
    pub name: String,
    /// What it counts.
    pub unit: Unit,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes per second.
    BytesPerSecond,
    /// Requests per second.
    PerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// A number of things.
    Count,
    /// A share of 1.
    Share,
}

/// Every figure of a run. Those that a run need not have are absent, not zero.
pub(super) fn figures(run: &Value) -> BTreeMap<Figure, f64> {
    let mut found = BTreeMap::new();
    let mut add = |name: String, unit: Unit, value: Option<f64>| {
        let place = found.len();
        if let Some(value) = value {
            found.insert(Figure { place, name, unit }, value);
        }
    };
    for line in list(run, "performance") {
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let job = line["job"].as_str().map(|job| format!("{job}: ")).unwrap_or_default();
        let what = format!("{job}{} {}", word("phase"), word("operation"));
        add(
            format!("{what} throughput"),
            Unit::BytesPerSecond,
            line["bytes_per_second"].as_f64().filter(|_| moves_bytes(&word("operation"))),
        );
        add(format!("{what} IOPS"), Unit::PerSecond, line["requests_per_second"].as_f64());
        for (key, name) in [("p50", "median"), ("p99", "p99")] {
            add(format!("{what} {name}"), Unit::Nanoseconds, line["latency_ns"][key].as_f64());
        }
    }
    add("throughput varies by".into(), Unit::Share, run["throughput_variation"].as_f64());
    for fault in list(run, "degradation") {
        let name = fault["fault"].as_str().unwrap_or_default();
        add(format!("{name}: of before"), Unit::Share, fault["during"]["ratio"].as_f64());
        add(format!("{name}: back after"), Unit::Nanoseconds, fault["recovered_after_ns"].as_f64());
    }
    for key in ["failures", "failing_files", "errors", "hits", "silent", "reported", "repaired", "masked"] {
        add(key.replace('_', " "), Unit::Count, run["counts"][key].as_f64());
    }
    found
}

fn list<'a>(run: &'a Value, key: &str) -> &'a [Value] {
    run[key].as_array().map_or(&[], Vec::as_slice)
}
