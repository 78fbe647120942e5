//! The figures of a run, by name, taken from its `run.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::page::moves_bytes;
use crate::run::Run;

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
pub(super) fn figures(run: &Run) -> BTreeMap<Figure, f64> {
    let mut found = BTreeMap::new();
    let mut add = |name: String, unit: Unit, value: Option<f64>| {
        let place = found.len();
        if let Some(value) = value {
            found.insert(Figure { place, name, unit }, value);
        }
    };
    for line in run.performance() {
        let job = line.job.as_ref().map(|job| format!("{job}: ")).unwrap_or_default();
        let what = format!("{job}{} {}", line.phase, line.operation);
        let throughput = moves_bytes(&line.operation).then_some(line.bytes_per_second).flatten();
        add(format!("{what} throughput"), Unit::BytesPerSecond, throughput);
        add(format!("{what} IOPS"), Unit::PerSecond, line.requests_per_second);
        for (latency, name) in [(line.latency_ns.p50, "median"), (line.latency_ns.p99, "p99")] {
            add(format!("{what} {name}"), Unit::Nanoseconds, Some(latency as f64));
        }
    }
    let varies = match run {
        Run::Trial(run) => run.throughput_variation,
        Run::Load(run) => run.throughput_variation,
        Run::Crash(_) => None,
    };
    add("throughput varies by".into(), Unit::Share, varies);
    let Some(run) = run.trial() else { return found };
    for fault in &run.degradation {
        let during = fault.throughput.during;
        let after = fault.recovered_after_ns.map(|after| after as f64);
        add(format!("{}: of before", fault.fault), Unit::Share, during.and_then(|level| level.ratio));
        add(format!("{}: back after", fault.fault), Unit::Nanoseconds, after);
    }
    let counts = &run.counts;
    for (name, count) in [
        ("failures", counts.failures),
        ("failing files", counts.failing_files),
        ("errors", counts.errors),
        ("injections", counts.injections),
        ("silent", counts.silent),
        ("reported", counts.reported),
        ("repaired", counts.repaired),
        ("masked", counts.masked),
    ] {
        add(name.to_owned(), Unit::Count, Some(count as f64));
    }
    found
}
