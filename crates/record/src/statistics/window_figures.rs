//! What a load did while a fault was at work and before, each taken as one: requests, bytes, percentiles.
//!
//! Beside [`super::degradation`], which tells levels and whether they changed, these are plain figures that can be held
//! against a limit. They are of the same intervals: those that lie within the window, and those before it that no other
//! fault was at work in.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::degradation::{Around, Window};
use super::series::Point;
use crate::histogram::Histogram;
use crate::interval::{Interval, Latencies};

/// The figures of one window.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct WindowFigures {
    /// The name of its rule or model.
    pub fault: String,
    /// When it opened, in nanoseconds since the run began.
    pub from_ns: u64,
    /// When it closed.
    pub until_ns: u64,
    /// The load before it.
    pub before: SpanFigures,
    /// The load while it was open.
    pub during: SpanFigures,
}

/// What the load did in some whole intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct SpanFigures {
    /// How many there are.
    pub intervals: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// What each operation did in them.
    pub operations: Vec<OperationFigures>,
}

/// What one operation did in some intervals.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct OperationFigures {
    /// `read`, `write` and so on.
    pub operation: String,
    /// Requests that completed, failed ones among them.
    pub requests: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Bytes divided by the seconds.
    pub bytes_per_second: f64,
    /// Requests divided by the seconds.
    pub requests_per_second: f64,
    /// Their latencies; percentiles are the upper bound of a bucket, within 1/64. Absent without requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latencies>,
}

/// The figures of the fault of `windows[index]`; `points` are the series of `intervals`.
pub fn window_figures(
    intervals: &[Interval],
    points: &[Point],
    windows: &[Window],
    index: usize,
) -> WindowFigures {
    let around = Around::of(points, windows, index);
    let Window { fault, from_ns, until_ns } = windows[index].clone();
    let (before, during) = (span(intervals, &around.before), span(intervals, &around.during));
    WindowFigures { fault, from_ns, until_ns, before, during }
}

fn span(intervals: &[Interval], points: &[Point]) -> SpanFigures {
    let starts: BTreeSet<u64> = points.iter().map(|point| point.start_ns).collect();
    let seconds: f64 = points.iter().map(Point::seconds).sum();
    let is_in = |row: &&Interval| {
        row.worker.is_none() && matches!(&*row.phase, "run" | "cool_down") && starts.contains(&row.start.0)
    };
    let mut operations: BTreeMap<&str, (OperationFigures, Histogram, bool)> = BTreeMap::new();
    for row in intervals.iter().filter(is_in) {
        let (figures, histogram, is_whole) = operations.entry(&row.operation).or_insert_with(|| {
            let figures = OperationFigures {
                operation: row.operation.to_string(),
                requests: 0,
                bytes: 0,
                bytes_per_second: 0.0,
                requests_per_second: 0.0,
                latency_ns: None,
            };
            (figures, Histogram::default(), true)
        });
        figures.requests += row.requests;
        figures.bytes += row.bytes;
        if row.requests > 0 {
            let text = row.histogram.as_deref();
            *is_whole &= text.and_then(|text| histogram.add_text(text, row.latency_ns.max)).is_some();
        }
    }
    let per_second = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let operations = operations.into_values().map(|(figures, histogram, is_whole)| OperationFigures {
        bytes_per_second: per_second(figures.bytes),
        requests_per_second: per_second(figures.requests),
        // Percentiles of a part would not be those of the window.
        latency_ns: (is_whole && histogram.count() > 0).then(|| Latencies::of(&histogram)),
        ..figures
    });
    SpanFigures { intervals: points.len() as u64, seconds, operations: operations.collect() }
}

#[cfg(test)]
mod tests {
    use rotproof_block::Time;

    use super::super::series;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn row(second: u64, operation: &str, latencies: &[u64]) -> Interval {
        let mut histogram = Histogram::default();
        latencies.iter().for_each(|&latency| histogram.record(latency));
        Interval {
            phase: "run".into(),
            start: Time(second * SECOND),
            length_ns: SECOND,
            worker: None,
            operation: operation.into(),
            requests: histogram.count(),
            bytes: histogram.count() * 4096,
            errors: 0,
            retries: 0,
            first_error: None,
            latency_ns: Latencies::of(&histogram),
            histogram: (histogram.count() > 0).then(|| histogram.to_text().into()),
        }
    }

    #[test]
    fn a_window_has_the_percentiles_of_all_its_requests_and_not_a_mean_of_percentiles() {
        let mut rows = Vec::new();
        for second in 0..10u64 {
            let slow = if (4..8).contains(&second) { 1_000_000 } else { 100 };
            // Within the window every other second is slow.
            let latency = if second % 2 == 0 { slow } else { 100 };
            rows.push(row(second, "read", &vec![latency; 99 - 9 * second as usize]));
            rows.push(row(second, "flush", &[]));
        }
        let windows = [Window { fault: "slow".into(), from_ns: 4 * SECOND, until_ns: 8 * SECOND }];
        let found = window_figures(&rows, &series(&rows), &windows, 0);
        let read = |span: &SpanFigures| span.operations.iter().find(|one| one.operation == "read").cloned();
        let before = read(&found.before).expect("reads");
        assert_eq!((found.before.intervals, found.before.seconds), (4, 4.0));
        assert_eq!((before.requests, before.latency_ns.map(|latency| latency.p99)), (342, Some(100)));
        let during = read(&found.during).expect("reads");
        let latency = during.latency_ns.expect("known");
        // 63 + 45 of 198 are slow.
        assert_eq!((during.requests, latency.p50, latency.max), (198, 1_000_000, 1_000_000));
        assert_eq!(latency.p90, 1_000_000);
        assert!((during.bytes_per_second - 198.0 * 1024.0).abs() < 1e-6);
        let flush = &found.during.operations[0];
        assert_eq!((flush.requests, flush.latency_ns), (0, None));
    }

    #[test]
    fn latencies_that_were_not_kept_are_not_made_up() {
        let mut rows: Vec<Interval> = (0..6).map(|second| row(second, "read", &[100, 200])).collect();
        rows[4].histogram = None;
        let windows = [Window { fault: "slow".into(), from_ns: 3 * SECOND, until_ns: 6 * SECOND }];
        let found = window_figures(&rows, &series(&rows), &windows, 0);
        assert_eq!(found.during.operations[0].latency_ns, None);
        assert!(found.before.operations[0].latency_ns.is_some());
    }
}
