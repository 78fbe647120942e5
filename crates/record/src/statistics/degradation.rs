//! What a fault took away: the level of a load before, during and after the window of the fault, and how fast that was
//! noticed and gone again.
//!
//! The level is the throughput in bytes that arrived: a request that ended with an error moves none. Only intervals that
//! lie within a span as a whole, but for [`SLACK`], count for it. The interval is the resolution of everything here but of errors, whose
//! moments are exact. Intervals that follow each other depend on each other, so that the confidence of a ratio is that
//! of this run, not of the next; for that there are repetitions.

use serde::Serialize;

use super::compare::ratio_of_means;
use super::series::Point;
use super::summary::{Range, Summary};

/// The span in which a fault was awake, on the clock of the intervals.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Degradation {
    /// The name of its rule or model.
    pub fault: String,
    /// When its window opened, in nanoseconds since the run began.
    pub from_ns: u64,
    /// When it closed.
    pub until_ns: u64,
    /// Bytes per second before it, outside the windows of other faults.
    pub before: Option<Level>,
    /// While it was open.
    pub during: Option<Level>,
    /// After the recovery, or if there was none from the end of the window on.
    pub after: Option<Level>,
    /// How deep the level fell: the share that was missing in the worst interval.
    pub depth: Option<f64>,
    /// From the opening to the first sign that a user of the load would see; absent if there was none.
    pub detected_after_ns: Option<u64>,
    /// What that was.
    pub detected_by: Option<DetectedBy>,
    /// From the end of the window until the level was back at 95% of what it had been, and stayed; absent if it never was.
    pub recovered_after_ns: Option<u64>,
    /// Bytes that the load would have moved besides at its level before, from the opening to the recovery.
    pub lost_bytes: Option<f64>,
}

/// A level, and what share it is of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Intervals it is taken from, mean and deviation of their bytes per second.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its share of the level before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Where that lies with 95% confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_confidence: Option<Range>,
}

/// By what a fault could be noticed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DetectedBy {
    /// A request failed, whether trying again helped or not.
    Error,
    /// The 99th percentile of an interval lay far out of what it had been (Tukey's outer fence).
    Latency,
    /// In an interval nothing completed at all.
    Stall,
}

/// Share of the level before at which a load counts as recovered, and for how many intervals it must stay there.
const RECOVERED: f64 = 0.95;
const STAYS: usize = 3;
/// A latency is no outlier below so many times the median, however little it varied.
const OUTLIER_MIN: f64 = 1.25;

/// So much of an interval may lie outside of a span of which it counts: the clock of faults and the workers of a load begin
/// one after the other, and a window from the third second to the fifth has two intervals in it nonetheless.
const SLACK: f64 = 0.01;

/// What the fault of `windows[index]` took away from a load with this course, which ends its windows before the last
/// point does.
pub fn degradation(points: &[Point], windows: &[Window], index: usize) -> Degradation {
    let window = &windows[index];
    let (from, until) = (window.from_ns, window.until_ns);
    let longest = points.iter().map(|point| point.end_ns - point.start_ns).max().unwrap_or(0);
    let slack = (longest as f64 * SLACK) as u64;
    let encloses = |other: &Window| other.from_ns <= from && other.until_ns >= until;
    let is_other = |point: &Point| {
        let others =
            windows.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, window)| window);
        others.into_iter().any(|other| {
            // One that is awake all the time is part of the circumstances, in which alone levels can be compared.
            !encloses(other)
                && point.start_ns + slack < other.until_ns
                && other.from_ns + slack < point.end_ns
        })
    };
    let around: Vec<&Window> = windows
        .iter()
        .enumerate()
        .filter(|(other, window)| *other != index && encloses(window))
        .map(|(_, window)| window)
        .collect();
    // Those that were awake already are to be so in the level before, and those that still were in that after.
    let is_like_before = |point: &Point| {
        let mut already = around.iter().filter(|other| other.from_ns + slack < from);
        already.all(|other| point.start_ns + slack >= other.from_ns)
    };
    let is_like_after = |point: &Point| {
        let mut still = around.iter().filter(|other| other.until_ns > until + slack);
        still.all(|other| point.end_ns <= other.until_ns.saturating_add(slack))
    };
    // The last interval of a load may be a sliver.
    let whole = |point: &&Point| point.end_ns - point.start_ns > longest / 2;
    let before: Vec<Point> = points
        .iter()
        .filter(whole)
        .filter(|point| point.end_ns <= from + slack && !is_other(point))
        .filter(|point| is_like_before(point))
        .copied()
        .collect();
    let during: Vec<Point> = points
        .iter()
        .filter(whole)
        .filter(|point| point.start_ns + slack >= from && point.end_ns <= until + slack)
        .copied()
        .collect();
    // Another fault must not make it look as if this one were not over yet.
    let later: Vec<Point> = points
        .iter()
        .filter(whole)
        .filter(|point| point.start_ns + slack >= until && !is_other(point))
        .filter(|point| is_like_after(point))
        .copied()
        .collect();
    let base = summary_of(&before);
    let recovered = base.and_then(|base| recovery(&later, base.mean));
    let after: Vec<Point> =
        later.iter().filter(|point| recovered.is_none_or(|at| point.start_ns >= at)).copied().collect();
    let level = |points: &[Point]| {
        let summary = summary_of(points)?;
        let ratio = base.and_then(|base| ratio_of_means(&base, &summary));
        Some(Level {
            summary,
            ratio: ratio.map(|(ratio, _)| ratio),
            ratio_confidence: ratio.and_then(|(_, confidence)| confidence),
        })
    };
    let detected = detection(points, &before, (from, until), slack);
    let during_level = level(&during);
    Degradation {
        fault: window.fault.clone(),
        from_ns: from,
        until_ns: until,
        before: base.map(|summary| Level { summary, ratio: None, ratio_confidence: None }),
        during: during_level,
        after: level(&after),
        depth: base.zip(during_level).and_then(|(base, during)| {
            (base.mean > 0.0).then(|| (1.0 - during.summary.min / base.mean).max(0.0))
        }),
        detected_after_ns: detected.map(|(at, _)| at.saturating_sub(from)),
        detected_by: detected.map(|(_, by)| by),
        recovered_after_ns: recovered.map(|at| at.saturating_sub(until)),
        lost_bytes: base.map(|base| {
            let end = recovered.unwrap_or(u64::MAX).max(until);
            let missing = |point: &Point| {
                let overlap = point.end_ns.min(end).saturating_sub(point.start_ns.max(from));
                (base.mean - point.bytes_per_second()) * overlap as f64 / 1e9
            };
            points.iter().map(missing).sum()
        }),
    }
}

fn summary_of(points: &[Point]) -> Option<Summary> {
    let levels: Vec<f64> = points.iter().map(Point::bytes_per_second).collect();
    Summary::of(&levels)
}

/// When the level came back and stayed.
fn recovery(later: &[Point], base: f64) -> Option<u64> {
    let is_back = |point: &Point| point.bytes_per_second() >= RECOVERED * base;
    let back = later.iter().enumerate().find(|(first, _)| later[*first..].iter().take(STAYS).all(is_back));
    back.map(|(_, point)| point.start_ns)
}

/// The first sign of the fault, if there was one while its window was open or in the interval after.
fn detection(
    points: &[Point],
    before: &[Point],
    (from, until): (u64, u64),
    slack: u64,
) -> Option<(u64, DetectedBy)> {
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
    let had_requests = before.iter().any(|point| point.requests > 0);
    let fence = fence(before);
    let mut concerned =
        points.iter().filter(|point| point.start_ns + slack >= from && point.start_ns <= until + slack);
    let outlier = concerned.find_map(|point| match fence {
        _ if point.requests == 0 && had_requests => Some((point.end_ns, DetectedBy::Stall)),
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
mod tests {
    use super::*;
    use rotproof_block::Time;

    const SECOND: u64 = 1_000_000_000;

    /// A point a second with so many bytes.
    fn course(levels: &[u64]) -> Vec<Point> {
        (0..)
            .zip(levels)
            .map(|(second, &bytes)| Point {
                start_ns: second * SECOND,
                end_ns: (second + 1) * SECOND,
                bytes,
                requests: bytes / 10,
                first_error: None,
                latency_sum_ns: 0.0,
                p99_ns: 1000,
            })
            .collect()
    }

    fn window(from: u64, until: u64) -> Window {
        Window { fault: "slow".into(), from_ns: from * SECOND, until_ns: until * SECOND }
    }

    #[test]
    fn a_dip_to_a_half_and_a_slow_return_are_measured() {
        let mut points = course(&[100, 100, 100, 50, 50, 40, 80, 96, 100, 100]);
        points[3].p99_ns = 1300;
        let found = degradation(&points, &[window(3, 6)], 0);
        let during = found.during.expect("three intervals");
        assert_eq!((found.before.expect("three").summary.mean, during.summary.count), (100.0, 3));
        assert!((during.ratio.expect("a base") - 140.0 / 300.0).abs() < 1e-12);
        assert!((found.depth.expect("a base") - 0.6).abs() < 1e-12);
        assert_eq!(found.recovered_after_ns, Some(SECOND), "the interval of 80 came first");
        assert_eq!(found.lost_bytes, Some(50.0 + 50.0 + 60.0 + 20.0));
        assert_eq!((found.detected_by, found.detected_after_ns), (Some(DetectedBy::Latency), Some(SECOND)));
        assert_eq!(found.after.expect("three").summary.count, 3);
    }

    #[test]
    fn a_window_that_opens_a_moment_after_an_interval_begins_has_that_interval() {
        let mut points = course(&[100, 100, 100, 50, 50, 100, 100, 100]);
        points[3].p99_ns = 1300;
        let exact = degradation(&points, &[window(3, 5)], 0);
        for moment in [109_000, -109_000] {
            let shift = |time_ns: u64| time_ns.saturating_add_signed(moment);
            let Window { fault, from_ns, until_ns } = window(3, 5);
            let moved = Window { fault, from_ns: shift(from_ns), until_ns: shift(until_ns) };
            let found = degradation(&points, &[moved], 0);
            let levels = |of: &Degradation| [of.before, of.during, of.after];
            assert_eq!(levels(&found), levels(&exact));
            assert_eq!(found.detected_after_ns, Some(SECOND.saturating_add_signed(-moment)));
            assert_eq!(found.recovered_after_ns, Some(0u64.saturating_add_signed(-moment)));
        }
        let Window { fault, from_ns, until_ns } = window(3, 5);
        let late = Window { fault, from_ns: from_ns + SECOND / 20, until_ns };
        assert_eq!(degradation(&points, &[late], 0).during.expect("one").summary.count, 1);
    }

    #[test]
    fn an_error_is_noticed_at_its_moment_and_a_stop_without_end_is_never_recovered_from() {
        let mut points = course(&[100, 100, 0, 0, 0]);
        points[2].first_error = Some(Time(2 * SECOND + 7));
        let found = degradation(&points, &[window(2, 5)], 0);
        assert_eq!((found.detected_by, found.detected_after_ns), (Some(DetectedBy::Error), Some(7)));
        assert_eq!((found.recovered_after_ns, found.depth, found.lost_bytes), (None, Some(1.0), Some(300.0)));
        let during = found.during.expect("three");
        assert_eq!((during.ratio, during.ratio_confidence), (Some(0.0), Some(Range { low: 0.0, high: 0.0 })));
        points[2].first_error = None;
        let found = degradation(&points, &[window(2, 5)], 0);
        assert_eq!((found.detected_by, found.detected_after_ns), (Some(DetectedBy::Stall), Some(SECOND)));
    }

    #[test]
    fn within_the_window_of_another_fault_levels_are_those_beside_it() {
        let points = course(&[100, 100, 50, 50, 40, 40, 50, 50, 100, 100]);
        let windows = [window(2, 8), window(4, 6)];
        let found = degradation(&points, &windows, 1);
        let [before, during, after] =
            [found.before, found.during, found.after].map(|level| level.expect("two"));
        assert_eq!((before.summary.mean, during.ratio, after.ratio), (50.0, Some(0.8), Some(1.0)));
        assert_eq!((found.recovered_after_ns, found.lost_bytes), (Some(0), Some(20.0)));
        // Two that begin and end together are told apart by nothing.
        let found = degradation(&points, &[window(2, 8), window(2, 8)], 1);
        assert_eq!(found.before.expect("two").summary.mean, 100.0);
        assert_eq!(found.after.expect("two").summary.mean, 100.0);
    }

    #[test]
    fn errors_that_came_before_too_are_no_sign() {
        let mut points = course(&[100, 100, 100, 100, 100]);
        for (second, point) in (0..).zip(&mut points) {
            point.first_error = Some(Time(second * SECOND + 5));
        }
        assert_eq!(degradation(&points, &[window(2, 4)], 0).detected_by, None);
    }

    #[test]
    fn other_faults_do_not_count_as_the_level_before_or_after() {
        let points = course(&[100, 20, 100, 50, 100, 100, 30, 100]);
        let windows = [window(1, 2), window(3, 4), window(6, 7)];
        let found = degradation(&points, &windows, 1);
        assert_eq!(found.before.expect("two").summary.count, 2);
        assert_eq!(found.during.expect("one").ratio, Some(0.5));
        let after = found.after.expect("some").summary;
        assert_eq!((after.count, after.mean), (3, 100.0));
        assert_eq!(degradation(&points, &[window(0, 8)], 0).before, None, "there is nothing before");
        assert_eq!(degradation(&[], &[window(0, 8)], 0).during, None);
    }
}
