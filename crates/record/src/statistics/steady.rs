//! When a load has become steady: afterwards, from all of its intervals, or while it runs, as each of them ends.
//!
//! The criterion is that of the SNIA *Solid State Storage Performance Test Specification* 2.0, section 2.1.24: within a
//! window the measure stays in a range of 20% of its mean, and the straight line through it (least squares) rises or
//! falls by at most 10% of its mean from one end of the window to the other. fio's `steadystate` tests one of the two.

use std::collections::VecDeque;

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
    /// How long after the load's beginning a window may begin at the earliest. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: Span,
}

fn is_zero(span: &Span) -> bool {
    span.0.is_zero()
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
            after: Span::default(),
        }
    }
}

/// Whether and when a load became steady.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
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

/// How a load came to its end that was to end as soon as it is steady.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct SteadyEnd {
    /// Whether it was steady before any other of its ends.
    pub attained: bool,
    /// The end of the window that showed it, in nanoseconds since the run began; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
    /// That window, or the last before the end; absent if the load was shorter than a window.
    #[serde(flatten)]
    pub state: Option<SteadyState>,
}

/// Intervals that a window must have at least, as the specification's window has five rounds.
pub(crate) const INTERVALS_MIN: u64 = 5;

/// Intervals that a window may have while the load runs: all of them are looked at each time that one ends.
const INTERVALS_MAX: u64 = 10_000;

impl SteadySpec {
    fn window_ns(&self) -> u64 {
        nanoseconds(self.window)
    }

    /// Reports everything that makes no sense whatever the intervals are.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        for (key, share) in [("range", self.range), ("slope", self.slope)] {
            if share.0 <= 0.0 {
                problems.add(&path.key(key), "nothing is as steady as that; give for example 10%");
            }
        }
    }

    /// Reports a window that makes no sense with intervals of this length.
    pub fn validate_intervals(&self, interval_ns: u64, path: &Path, problems: &mut Problems) {
        if self.window_ns() / INTERVALS_MIN < interval_ns {
            problems.add_with_help(
                &path.key("window"),
                format!("{} are too few intervals to tell whether anything is steady", self.window),
                "give a window of five intervals or more, or shorter intervals",
            );
        }
    }

    /// Reports a window that is too much to be looked at while the load runs.
    pub fn validate_live(&self, interval_ns: u64, path: &Path, problems: &mut Problems) {
        self.validate_intervals(interval_ns, path, problems);
        if self.window_ns() / interval_ns.max(1) > INTERVALS_MAX {
            problems.add_with_help(
                &path.key("window"),
                format!("{} are more than {INTERVALS_MAX} intervals", self.window),
                "give a shorter window, or longer intervals",
            );
        }
    }
}

fn nanoseconds(span: Span) -> u64 {
    u64::try_from(span.0.as_nanos()).unwrap_or(u64::MAX)
}

/// Looks for the first window in which the load is steady; `None` if it is shorter than a window.
pub fn steady_state(points: &[Point], spec: &SteadySpec) -> Option<SteadyState> {
    let mut watch = SteadyWatch::new(*spec);
    let _ = points.iter().any(|point| watch.push(*point));
    watch.end().state
}

/// Looks at the intervals of a load as they end.
#[derive(Clone, Debug)]
pub struct SteadyWatch {
    spec: SteadySpec,
    /// When the first interval began.
    began_ns: Option<u64>,
    /// Those that a window can still begin with, and all after them.
    points: VecDeque<Point>,
    end: SteadyEnd,
}

impl SteadyWatch {
    /// Has seen nothing yet.
    pub fn new(spec: SteadySpec) -> Self {
        let end = SteadyEnd { attained: false, at_ns: None, state: None };
        Self { spec, began_ns: None, points: VecDeque::new(), end }
    }

    /// Takes the interval that comes next. Whether the load has become steady by its end, or was before.
    pub fn push(&mut self, point: Point) -> bool {
        let began_ns = *self.began_ns.get_or_insert(point.start_ns);
        if self.end.attained || point.start_ns < began_ns.saturating_add(nanoseconds(self.spec.after)) {
            return self.end.attained;
        }
        self.points.push_back(point);
        // The first interval may be shorter than the others, so a single one may complete two windows.
        while let Some(first) = self.points.front()
            && point.end_ns - first.start_ns >= self.spec.window_ns()
        {
            let state = judge(&self.points, self.spec.of);
            if state.range <= self.spec.range.0 && state.slope.abs() <= self.spec.slope.0 {
                let state = SteadyState { since_ns: Some(first.start_ns), ..state };
                self.end = SteadyEnd { attained: true, at_ns: Some(point.end_ns), state: Some(state) };
                return true;
            }
            self.end.state = Some(state);
            self.points.pop_front();
        }
        false
    }

    /// What was found so far.
    pub fn end(&self) -> SteadyEnd {
        self.end
    }
}

fn judge(points: &VecDeque<Point>, of: SteadyMeasure) -> SteadyState {
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
    let span = points.back().map_or(0.0, middle) - points.front().map_or(0.0, middle);
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

    #[test]
    fn while_it_runs_a_load_is_found_steady_in_the_first_window_of_all_and_not_before_it_may_be() {
        // Each window by itself, as slowly and plainly as can be.
        let slow = |points: &[Point], spec: &SteadySpec| -> Option<SteadyEnd> {
            (0..points.len()).find_map(|last| {
                (0..=last).find_map(|first| {
                    let span = |last: usize| points[last].end_ns - points[first].start_ns;
                    let is_window = span(last) >= spec.window_ns()
                        && (last == first || span(last - 1) < spec.window_ns());
                    let is_late = points[first].start_ns >= points[0].start_ns + nanoseconds(spec.after);
                    if !is_window || !is_late {
                        return None;
                    }
                    let state = judge(&points[first..=last].to_vec().into(), spec.of);
                    let is_steady = state.range <= spec.range.0 && state.slope.abs() <= spec.slope.0;
                    let state = SteadyState { since_ns: Some(points[first].start_ns), ..state };
                    is_steady.then_some(SteadyEnd {
                        attained: true,
                        at_ns: Some(points[last].end_ns),
                        state: Some(state),
                    })
                })
            })
        };
        let mut found = 0;
        for seed in 0..200u64 {
            let noise = |n: u64| rotproof_block::hash::mix(seed, 0, n) % (1 + seed);
            let levels: Vec<u64> = (0..40).map(|n| 100 + noise(n) + (40 - n)).collect();
            let mut points = course(&levels);
            // As after a ramp-up.
            points[0].start_ns += seed * 4_000_000;
            let after = Span(Duration::from_secs(seed % 5 * 2));
            let spec = SteadySpec { after, ..spec(5 + seed % 3) };
            let mut watch = SteadyWatch::new(spec);
            let _ = points.iter().any(|point| watch.push(*point));
            match slow(&points, &spec) {
                Some(wanted) => assert_eq!(watch.end(), wanted, "{seed}"),
                None => assert!(!watch.end().attained && watch.end().at_ns.is_none(), "{seed}"),
            }
            found += u32::from(watch.end().attained);
        }
        assert!((50..150).contains(&found), "both kinds: {found} of 200");
    }
}
