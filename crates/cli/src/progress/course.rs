//! What has been going on in a phase: how fast it was in each of the last sixty seconds, and how long requests took in the
//! last one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rotproof_load::engine::Latencies;

use super::Snapshot;

/// What one figure stands for.
const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals that are kept: a minute.
const INTERVALS_MAX: usize = 60;

/// The last minute of a phase.
#[derive(Clone, Debug)]
pub(super) struct Course {
    rates: VecDeque<f64>,
    /// When the interval under way began, and what had been counted by then.
    began: Instant,
    before: Snapshot,
    latest: Option<Interval>,
}

/// What the last whole interval was like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) bytes_per_second: f64,
    pub(super) requests_per_second: f64,
    /// The median and the 99th percentile of the latency, in nanoseconds; none if nothing completed.
    pub(super) latency_ns: Option<(u64, u64)>,
}

impl Course {
    pub(super) fn new(now: Instant) -> Self {
        Self { rates: VecDeque::new(), began: now, before: Snapshot::default(), latest: None }
    }

    /// Takes what is counted now; to be called several times in an interval.
    pub(super) fn update(&mut self, now: Instant, snapshot: &Snapshot) {
        let span = now.saturating_duration_since(self.began);
        if span < INTERVAL {
            return;
        }
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / span.as_secs_f64();
        let latencies = snapshot.latencies.as_ref().map(|latencies| match &self.before.latencies {
            Some(before) => latencies.since(before),
            None => latencies.clone(),
        });
        let latency_ns = latencies
            .and_then(|latencies: Latencies| latencies.quantile_ns(0.5).zip(latencies.quantile_ns(0.99)));
        let latest = Interval {
            bytes_per_second: per_second(snapshot.bytes, self.before.bytes),
            requests_per_second: per_second(snapshot.requests, self.before.requests),
            latency_ns,
        };
        // A display that was held up has one figure for all the time.
        let intervals = (span.as_secs_f64() / INTERVAL.as_secs_f64()) as usize;
        for _ in 0..intervals.min(INTERVALS_MAX) {
            self.rates.push_back(latest.bytes_per_second);
        }
        while self.rates.len() > INTERVALS_MAX {
            self.rates.pop_front();
        }
        self.latest = Some(latest);
        self.began = now;
        self.before = snapshot.clone();
    }

    /// What the last whole interval was like; none before there was one.
    pub(super) fn latest(&self) -> Option<Interval> {
        self.latest
    }

    /// A column for each of the last seconds, the last ones if they are more than `columns`; as high as the throughput
    /// against the highest of them.
    pub(super) fn sparkline(&self, columns: usize) -> String {
        const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let shown = self.rates.iter().skip(self.rates.len().saturating_sub(columns));
        let most = shown.clone().copied().fold(0.0, f64::max);
        // Nothing at all looks like nothing.
        let height = |rate: f64| match ((rate / most) * 8.0).ceil() as usize {
            0 => ' ',
            height => HEIGHTS[height.min(HEIGHTS.len()) - 1],
        };
        shown.map(|&rate| if most > 0.0 { height(rate) } else { ' ' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_has_a_column_as_high_as_its_throughput() {
        let start = Instant::now();
        let mut course = Course::new(start);
        let mut bytes = 0;
        for (second, rate) in (1..).zip([8, 4, 1, 0, 8u64]) {
            bytes += rate << 20;
            let snapshot = Snapshot { bytes, requests: bytes >> 20, ..Snapshot::default() };
            course.update(
                start + Duration::from_secs(second) - Duration::from_millis(500),
                &Snapshot::default(),
            );
            course.update(start + Duration::from_secs(second), &snapshot);
        }
        assert_eq!(course.sparkline(60), "█▄▁ █");
        assert_eq!(course.sparkline(3), "▁ █", "the last ones");
        let latest = course.latest().expect("five intervals");
        assert_eq!((latest.bytes_per_second, latest.requests_per_second), (8.0 * 1048576.0, 8.0));
        assert_eq!(latest.latency_ns, None);
    }

    #[test]
    fn a_minute_is_kept_and_a_display_held_up_fills_its_gap() {
        let start = Instant::now();
        let mut course = Course::new(start);
        course.update(start + Duration::from_secs(3), &Snapshot { bytes: 3000, ..Snapshot::default() });
        assert_eq!(course.sparkline(60), "███");
        for second in 4..100u64 {
            let snapshot = Snapshot { bytes: second * 1000, ..Snapshot::default() };
            course.update(start + Duration::from_secs(second), &snapshot);
        }
        assert_eq!(course.sparkline(80).chars().count(), 60);
        assert_eq!(Course::new(start).sparkline(60), "");
    }
}
