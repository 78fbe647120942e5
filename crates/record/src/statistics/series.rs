//! Intervals as one line over time: all operations of all workers together.

use std::collections::BTreeMap;

use rotproof_block::Time;

use super::summary::Summary;
use crate::interval::Interval;

/// One interval of the load, all operations and workers together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When it began, in nanoseconds since the run did.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    /// Requests that completed, failed ones among them.
    pub requests: u64,
    /// When the first request completed that had failed at least once.
    pub first_error: Option<Time>,
    /// Sum of the latencies, in nanoseconds.
    pub latency_sum_ns: f64,
    /// The highest 99th percentile of its operations.
    pub p99_ns: u64,
}

impl Point {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1e9
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        if self.end_ns > self.start_ns { self.bytes as f64 / self.seconds() } else { 0.0 }
    }

    /// Requests per second.
    pub fn requests_per_second(&self) -> f64 {
        if self.end_ns > self.start_ns { self.requests as f64 / self.seconds() } else { 0.0 }
    }

    /// Mean latency in nanoseconds; 0 without requests.
    pub fn latency_mean_ns(&self) -> f64 {
        if self.requests > 0 { self.latency_sum_ns / self.requests as f64 } else { 0.0 }
    }
}

/// Fewer whole intervals do not show how a load varies.
const WHOLE_MIN: usize = 3;

/// How much the throughput varies over time: the standard deviation of the whole intervals as a share of their mean (the
/// coefficient of variation). `None` of fewer than three, or if nothing was moved.
pub fn variation(points: &[Point]) -> Option<f64> {
    let whole = points.iter().map(|point| point.end_ns - point.start_ns).max()?;
    let is_whole = |point: &&Point| point.end_ns - point.start_ns == whole;
    let rates: Vec<f64> = points.iter().filter(is_whole).map(Point::bytes_per_second).collect();
    let summary = Summary::of(&rates).filter(|summary| rates.len() >= WHOLE_MIN && summary.mean > 0.0)?;
    Some(summary.deviation / summary.mean)
}

/// The line of a load: its phases `run` and `cool_down`, by time.
pub fn series(intervals: &[Interval]) -> Vec<Point> {
    // By time: where one worker is late, an interval is one of the run and one of the cool-down.
    let mut points: BTreeMap<u64, Point> = BTreeMap::new();
    let load =
        intervals.iter().filter(|row| row.worker.is_none() && matches!(&*row.phase, "run" | "cool_down"));
    for row in load {
        let start_ns = row.start.0;
        let point = points.entry(start_ns).or_insert(Point {
            start_ns,
            end_ns: start_ns,
            bytes: 0,
            requests: 0,
            first_error: None,
            latency_sum_ns: 0.0,
            p99_ns: 0,
        });
        point.end_ns = point.end_ns.max(row.end().0);
        point.bytes += row.bytes;
        point.requests += row.requests;
        point.first_error = [point.first_error, row.first_error].into_iter().flatten().min();
        point.latency_sum_ns += row.latency_ns.mean * row.requests as f64;
        point.p99_ns = point.p99_ns.max(row.latency_ns.p99);
    }
    points.into_values().collect()
}
