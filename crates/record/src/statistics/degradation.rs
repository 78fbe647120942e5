//! What a fault took away: the level of a load before, during and after the window of the fault, and how fast that was
//! noticed and gone again.
//!
//! There are three levels: the throughput in bytes that arrived (a request that ended with an error moves none), the mean
//! latency, and its 99th percentile. Only whole intervals that lie within a span, but for [`SLACK`], count for it, and of
//! those before and after only the steady ones: where a load catches up, that is no level. What cannot be told from noise
//! is told as no effect ([`Change`]).
//!
//! The interval is the resolution of everything here but of errors, whose moments are exact. Intervals that follow each
//! other depend on each other; confidences allow for that, but are those of this run, not of the next. For that there are
//! repetitions.

use serde::Serialize;

use super::change::{Base, Change, Level, Test, steady};
use super::series::Point;
use super::summary::Summary;

/// The span in which a fault was enabled, on the clock of the intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The name of its rule or model.
    pub fault: String,
    /// In nanoseconds since the run began.
    pub from_ns: u64,
    /// The end; for a sticky fault that of the load.
    pub until_ns: u64,
}

/// What a fault took away.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Degradation {
    /// The name of its rule or model.
    pub fault: String,
    /// When its window opened, in nanoseconds since the run began.
    pub from_ns: u64,
    /// When it closed.
    pub until_ns: u64,
    /// All in all.
    pub effect: Effect,
    /// Bytes per second.
    #[serde(flatten)]
    pub throughput: Levels,
    /// Mean latency in nanoseconds, of the intervals in which anything completed.
    pub latency_mean_ns: Levels,
    /// The 99th percentile of the latency, of the same.
    pub latency_p99_ns: Levels,
    /// How deep the throughput fell: the share that was missing in the worst interval; absent if it did not fall.
    pub depth: Option<f64>,
    /// From the opening to the first sign that a user of the load would see; absent if there was none.
    pub detected_after_ns: Option<u64>,
    /// What that was.
    pub detected_by: Option<DetectedBy>,
    /// Whether the load was as before again; absent if there was no effect.
    pub recovery: Option<Recovery>,
    /// From the end of the window until everything that had become worse was back at 95% of what it had been, or within
    /// what it varied by, and stayed; absent if that was not seen.
    pub recovered_after_ns: Option<u64>,
    /// Bytes that the load would have moved besides at its level before, from the opening until it had recovered and caught
    /// up; absent if the throughput did not fall.
    pub lost_bytes: Option<f64>,
}

/// One measure around a fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Levels {
    /// What became of it while the window was open.
    pub change: Change,
    /// Before the window, outside the windows of other faults.
    pub before: Option<Level>,
    /// While it was open.
    pub during: Option<Level>,
    /// After the recovery, or if there was none from the end of the window on.
    pub after: Option<Level>,
}

/// What a fault did to the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It was slower.
    Degraded,
    /// It was faster, and nothing was slower: an error that comes at once, say.
    Improved,
    /// None that can be told from noise.
    None,
    /// There were too few intervals to tell.
    Unknown,
}

/// Whether a load came back after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// It did.
    Recovered,
    /// It did not: what came after the window is worse than what was before it.
    Never,
    /// There is too little after the window to tell.
    NotSeen,
}

/// By what a fault could be noticed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetectedBy {
    /// A request failed, whether trying again helped or not.
    Error,
    /// The 99th percentile of an interval lay far out of what it had been (Tukey's outer fence), and the load was slower.
    Latency,
    /// In an interval nothing completed at all, as had never been before.
    Stall,
}

impl DetectedBy {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Latency => "latency",
            Self::Stall => "stall",
        }
    }
}

/// Share of the level before at which a load counts as recovered, and for how many intervals it must stay there.
const RECOVERED: f64 = 0.95;
const STAYS: usize = 3;
/// A latency is no outlier below so many times the median, however little it varied.
const OUTLIER_MIN: f64 = 1.25;

/// So much of an interval may lie outside of a span of which it counts: the clock of faults and the workers of a load begin
/// one after the other, and a window from the third second to the fifth has two intervals in it nonetheless.
const SLACK: f64 = 0.01;

/// The intervals around a window.
pub(super) struct Around {
    pub(super) before: Vec<Point>,
    pub(super) during: Vec<Point>,
    later: Vec<Point>,
    slack: u64,
}

impl Around {
    pub(super) fn of(points: &[Point], windows: &[Window], index: usize) -> Self {
        let window = &windows[index];
        let (from, until) = (window.from_ns, window.until_ns);
        let longest = points.iter().map(|point| point.end_ns - point.start_ns).max().unwrap_or(0);
        let slack = (longest as f64 * SLACK) as u64;
        let encloses = |other: &Window| other.from_ns <= from && other.until_ns >= until;
        let others =
            || windows.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
        let is_other = |point: &Point| {
            others().any(|other| {
                // One that is enabled all the time is part of the circumstances, in which alone levels can be compared.
                !encloses(other)
                    && point.start_ns + slack < other.until_ns
                    && other.from_ns + slack < point.end_ns
            })
        };
        let around: Vec<&Window> = others().filter(|other| encloses(other)).collect();
        // Those that were enabled already are to be so in the level before, and those that still were in that after.
        let is_like_before = |point: &Point| {
            let mut already = around.iter().filter(|other| other.from_ns + slack < from);
            already.all(|other| point.start_ns + slack >= other.from_ns)
        };
        let is_like_after = |point: &Point| {
            let mut still = around.iter().filter(|other| other.until_ns > until + slack);
            still.all(|other| point.end_ns <= other.until_ns.saturating_add(slack))
        };
        // The last interval of a load may be a sliver, and the first after a ramp-up.
        let whole: Vec<Point> =
            points.iter().filter(|point| point.end_ns - point.start_ns + slack >= longest).copied().collect();
        let those = |is_one: &dyn Fn(&Point) -> bool| -> Vec<Point> {
            whole.iter().filter(|point| is_one(point)).copied().collect()
        };
        Self {
            before: those(&|point| point.end_ns <= from + slack && !is_other(point) && is_like_before(point)),
            during: those(&|point| point.start_ns + slack >= from && point.end_ns <= until + slack),
            // Another fault must not make it look as if this one were not over yet.
            later: those(&|point| {
                point.start_ns + slack >= until && !is_other(point) && is_like_after(point)
            }),
            slack,
        }
    }
}

/// One measure of the intervals.
#[derive(Clone, Copy)]
struct Measure {
    of: fn(&Point) -> Option<f64>,
    more_is_better: bool,
}

const THROUGHPUT: Measure = Measure { of: |point| Some(point.bytes_per_second()), more_is_better: true };
const LATENCY_MEAN: Measure =
    Measure { of: |point| (point.requests > 0).then(|| point.latency_mean_ns()), more_is_better: false };
const LATENCY_P99: Measure =
    Measure { of: |point| (point.requests > 0).then_some(point.p99_ns as f64), more_is_better: false };

/// What became of a measure, so far.
struct Found {
    measure: Measure,
    base: Base,
    change: Change,
}

impl Found {
    fn is_worse(&self) -> bool {
        self.measure.is_worse(self.change)
    }

    /// When it was as before again, and stayed.
    fn back_at(&self, later: &[Point]) -> Option<u64> {
        let is_back = |first: usize| {
            let next = &later[first..(first + STAYS).min(later.len())];
            let values = self.measure.values(next);
            values.len() == next.len() && self.base.is_back(&values, RECOVERED, self.measure.more_is_better)
        };
        (0..later.len()).find(|&first| is_back(first)).map(|first| later[first].start_ns)
    }

    /// Whether what came later is still worse than what was before.
    fn stays_worse(&self, later: &[Point]) -> bool {
        self.measure.is_worse(self.base.test(&self.measure.values(later)).alone())
    }

    fn levels(&self, during: &[Point], after: &[Point]) -> Levels {
        let base = &self.base;
        Levels {
            change: self.change,
            before: base.summary.map(|summary| Level { summary, ratio: None, ratio_confidence: None }),
            during: base.level(&self.measure.values(during)),
            after: base.level(&steady(&self.measure.values(after))),
        }
    }
}

impl Measure {
    fn is_worse(self, change: Change) -> bool {
        change == if self.more_is_better { Change::Lower } else { Change::Higher }
    }

    fn values(self, points: &[Point]) -> Vec<f64> {
        points.iter().filter_map(self.of).collect()
    }
}

/// What the fault of `windows[index]` took away from a load with this course, which ends its windows before the last
/// point does.
pub fn degradation(points: &[Point], windows: &[Window], index: usize) -> Degradation {
    let Window { fault, from_ns: from, until_ns: until } = windows[index].clone();
    let around = Around::of(points, windows, index);
    let measures = [THROUGHPUT, LATENCY_MEAN, LATENCY_P99]
        .map(|measure| (measure, Base::of(measure.values(&around.before))));
    let test = |(measure, base): &(Measure, Base)| {
        (base.test(&measure.values(&around.during)), measure.more_is_better)
    };
    let mut changes = Test::together(measures.each_ref().map(test)).into_iter();
    let found = measures.map(|(measure, base)| {
        let change = changes.next().unwrap_or(Change::Unknown);
        Found { measure, base, change }
    });
    let [throughput, latency_mean, latency_p99] = &found;
    let is_degraded = found.iter().any(Found::is_worse);
    let effect = match throughput.change {
        _ if is_degraded => Effect::Degraded,
        _ if found.iter().any(|one| matches!(one.change, Change::Lower | Change::Higher)) => Effect::Improved,
        Change::Unknown => Effect::Unknown,
        _ => Effect::None,
    };
    let worse = || found.iter().filter(|one| one.is_worse());
    // Back is a load with the last of what had become worse.
    let recovered = worse()
        .map(|one| one.back_at(&around.later))
        .collect::<Option<Vec<u64>>>()
        .and_then(|moments| moments.into_iter().max());
    let recovery = is_degraded.then(|| match recovered {
        Some(_) => Recovery::Recovered,
        None if worse().any(|one| one.stays_worse(&around.later)) => Recovery::Never,
        None => Recovery::NotSeen,
    });
    let after: Vec<Point> = around
        .later
        .iter()
        .filter(|point| recovered.is_none_or(|at| point.start_ns >= at))
        .copied()
        .collect();
    let levels = |one: &Found| one.levels(&around.during, &after);
    let throughput_levels = levels(throughput);
    let fallen = throughput.base.summary.filter(|_| throughput.is_worse());
    let detected = detection(points, &around, (from, until), is_degraded);
    Degradation {
        fault,
        from_ns: from,
        until_ns: until,
        effect,
        latency_mean_ns: levels(latency_mean),
        latency_p99_ns: levels(latency_p99),
        depth: fallen.zip(throughput_levels.during).and_then(|(base, during)| {
            (base.mean > 0.0).then(|| (1.0 - during.summary.min / base.mean).max(0.0))
        }),
        throughput: throughput_levels,
        detected_after_ns: detected.map(|(at, _)| at.saturating_sub(from)),
        detected_by: detected.map(|(_, by)| by),
        recovery,
        recovered_after_ns: recovered.map(|at| at.saturating_sub(until)),
        lost_bytes: fallen.map(|base| lost(points, &base, from, recovered.map(|at| at.max(until)))),
    }
}

/// What was not moved from `from` until the load had recovered, less what it moved more than usual directly after.
fn lost(points: &[Point], base: &Summary, from: u64, recovered: Option<u64>) -> f64 {
    let end = recovered.unwrap_or(u64::MAX);
    let level = base.mean;
    let missing = |point: &Point| {
        let overlap = point.end_ns.min(end).saturating_sub(point.start_ns.max(from));
        (level - point.bytes_per_second()) * overlap as f64 / 1e9
    };
    let caught_up = points
        .iter()
        .filter(|point| point.start_ns >= end)
        .take_while(|point| point.bytes_per_second() > base.max * CATCHES_UP)
        .map(|point| (point.bytes_per_second() - level) * point.seconds());
    (points.iter().map(missing).sum::<f64>() - caught_up.sum::<f64>()).max(0.0)
}

/// A load catches up where it moves so much more than it ever did before.
const CATCHES_UP: f64 = 1.01;

/// The first sign of the fault, if there was one while its window was open or in the interval after.
fn detection(
    points: &[Point],
    around: &Around,
    (from, until): (u64, u64),
    is_degraded: bool,
) -> Option<(u64, DetectedBy)> {
    let Around { before, slack, .. } = around;
    // An interval that began before the window may have had an error of its own before. Where there were errors before, one
    // more is no sign.
    let had_errors = before.iter().any(|point| point.first_error.is_some());
    let error = points
        .iter()
        .filter(|_| !had_errors)
        .filter(|point| point.end_ns > from && point.start_ns <= until)
        .filter_map(|point| point.first_error)
        .find(|time| time.0 >= from)
        .map(|time| (time.0, DetectedBy::Error));
    let never_stood = !before.is_empty() && before.iter().all(|point| point.requests > 0);
    // Latencies have outliers of their own; only together with a load that is slower are they a sign of anything.
    let fence = fence(before).filter(|_| is_degraded);
    let mut concerned =
        points.iter().filter(|point| point.start_ns + slack >= from && point.start_ns <= until + slack);
    let outlier = concerned.find_map(|point| match fence {
        _ if point.requests == 0 && never_stood => Some((point.end_ns, DetectedBy::Stall)),
        Some(fence) if point.p99_ns as f64 > fence => Some((point.end_ns, DetectedBy::Latency)),
        _ => None,
    });
    error.into_iter().chain(outlier).min_by_key(|(at, _)| *at)
}

/// Tukey's outer fence of the latencies before: three interquartile ranges above the third quartile.
fn fence(before: &[Point]) -> Option<f64> {
    let mut latencies: Vec<u64> =
        before.iter().filter(|point| point.requests > 0).map(|point| point.p99_ns).collect();
    latencies.sort_unstable();
    let quantile =
        |share: f64| latencies.get(((latencies.len().checked_sub(1)?) as f64 * share).round() as usize);
    let (first, median, third) = (*quantile(0.25)? as f64, *quantile(0.5)? as f64, *quantile(0.75)? as f64);
    Some((third + 3.0 * (third - first)).max(OUTLIER_MIN * median))
}

#[cfg(test)]
mod tests;
