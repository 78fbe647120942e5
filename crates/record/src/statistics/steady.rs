//! When a load has become steady.
//!
//! The criterion is that of the SNIA *Solid State Storage Performance Test Specification* 2.0, section 2.1.24: within a
//! window the measure stays in a range of 20% of its mean, and the straight line through it (least squares) rises or
//! falls by at most 10% of its mean from one end of the window to the other. fio's `steadystate` tests one of the two.

use rotproof_spec::{Path, Percent, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::series::Point;

/// When a load counts as steady.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SteadySpec {
    /// How long it must have been so. Default 10s; at least five intervals.
    pub window: Span,
    /// By how much of its mean the measure may vary within the window, from the lowest to the highest. Default 20%.
    pub range: Percent,
    /// By how much of its mean the straight line through it may rise or fall within the window. Default 10%.
    pub slope: Percent,
    /// What must be steady. Default throughput.
    pub of: SteadyMeasure,
}

/// What must be steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteadyMeasure {
    /// Bytes per second.
    #[default]
    Throughput,
    /// Requests per second.
    Iops,
    /// The mean latency.
    Latency,
}

impl Default for SteadySpec {
    fn default() -> Self {
        Self {
            window: Span(std::time::Duration::from_secs(10)),
            range: Percent(0.2),
            slope: Percent(0.1),
            of: SteadyMeasure::default(),
        }
    }
}

/// Whether and when a load became steady.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SteadyState {
    /// Since when, in nanoseconds since the run began: the start of the first window that fulfils both; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// The mean of that window, or of the last one: bytes or requests per second, or nanoseconds.
    pub mean: f64,
    /// Its range, as a share of the mean.
    pub range: f64,
    /// How much the straight line rises over it, as a share of the mean; negative where it falls.
    pub slope: f64,
}

/// Intervals that a window must have at least, as the specification's window has five rounds.
pub(crate) const INTERVALS_MIN: u64 = 5;

impl SteadySpec {
    /// Reports everything that makes no sense with intervals of this length.
    pub fn validate(&self, interval_ns: u64, path: &Path, problems: &mut Problems) {
        let window_ns = u64::try_from(self.window.0.as_nanos()).unwrap_or(u64::MAX);
        if window_ns / INTERVALS_MIN < interval_ns {
            problems.add_with_help(
                &path.key("window"),
                format!("{} are too few intervals to tell whether anything is steady", self.window),
                "give a window of five intervals or more, or shorter intervals",
            );
        }
        for (key, share) in [("range", self.range), ("slope", self.slope)] {
            if share.0 <= 0.0 {
                problems.add(&path.key(key), "nothing is as steady as that; give for example 10%");
            }
        }
    }
}

/// Looks for the first window in which the load is steady; `None` if it is shorter than a window.
pub fn steady_state(points: &[Point], spec: &SteadySpec) -> Option<SteadyState> {
    let window_ns = u64::try_from(spec.window.0.as_nanos()).unwrap_or(u64::MAX);
    let mut last = None;
    for (first, start) in points.iter().enumerate() {
        let length = points[first..].iter().position(|point| point.end_ns - start.start_ns >= window_ns)? + 1;
        let state = judge(&points[first..first + length], spec.of);
        if state.range <= spec.range.0 && state.slope.abs() <= spec.slope.0 {
            return Some(SteadyState { since_ns: Some(start.start_ns), ..state });
        }
        last = Some(state);
        if first + length == points.len() {
            break;
        }
    }
    last
}

fn judge(points: &[Point], of: SteadyMeasure) -> SteadyState {
    let value = |point: &Point| match of {
        SteadyMeasure::Throughput => point.bytes_per_second(),
        SteadyMeasure::Iops => point.requests_per_second(),
        SteadyMeasure::Latency => point.latency_mean_ns(),
    };
    let middle = |point: &Point| f64::midpoint(point.start_ns as f64, point.end_ns as f64);
    let n = points.len() as f64;
    let mean = points.iter().map(value).sum::<f64>() / n;
    let centre = points.iter().map(middle).sum::<f64>() / n;
    let (mut together, mut squares) = (0.0, 0.0);
    for point in points {
        together += (middle(point) - centre) * (value(point) - mean);
        squares += (middle(point) - centre).powi(2);
    }
    let span = points.last().map_or(0.0, middle) - points.first().map_or(0.0, middle);
    let rise = if squares > 0.0 { together / squares * span } else { 0.0 };
    let values = || points.iter().map(value);
    let range = values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min);
    // Of nothing at all, nothing is steady.
    let share = |amount: f64| if mean > 0.0 { amount / mean } else { f64::MAX };
    SteadyState { since_ns: None, mean, range: share(range), slope: share(rise) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn course(levels: &[u64]) -> Vec<Point> {
        const SECOND: u64 = 1_000_000_000;
        (0..)
            .zip(levels)
            .map(|(second, &bytes)| Point {
                start_ns: second * SECOND,
                end_ns: (second + 1) * SECOND,
                bytes,
                requests: 1,
                first_error: None,
                latency_sum_ns: 5.0,
                p99_ns: 5,
            })
            .collect()
    }

    fn spec(seconds: u64) -> SteadySpec {
        SteadySpec { window: Span(Duration::from_secs(seconds)), ..SteadySpec::default() }
    }

    #[test]
    fn a_load_is_steady_once_neither_range_nor_slope_is_too_large() {
        let points = course(&[500, 400, 300, 200, 105, 100, 103, 98, 101, 100]);
        let found = steady_state(&points, &spec(5)).expect("long enough");
        assert_eq!(found.since_ns, Some(4_000_000_000));
        assert!(
            (found.mean - 101.4).abs() < 1e-9 && found.range < 0.2 && found.slope.abs() < 0.1,
            "{found:?}"
        );
        // Within the range, but ever falling.
        let falling = course(&[108, 106, 104, 102, 100, 98, 96, 94, 92, 90]);
        let found = steady_state(&falling, &spec(10)).expect("long enough");
        assert_eq!(found.since_ns, None);
        assert!(found.range < 0.2 && found.slope < -0.1, "{found:?}");
        assert_eq!(steady_state(&points, &spec(11)), None, "shorter than the window");
        assert_eq!(steady_state(&course(&[0; 9]), &spec(5)).expect("long enough").since_ns, None);
        let latency = SteadySpec { of: SteadyMeasure::Latency, ..spec(5) };
        assert_eq!(steady_state(&points, &latency).expect("long enough").since_ns, Some(0));
    }
}
