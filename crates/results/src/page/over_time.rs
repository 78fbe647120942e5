//! What happened when: from the recorded tables and the ledger.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_fault::{Effect, Injection, OperationKind};
use rotproof_record::{Interval, Latencies, Mark as Recorded, MarkKind, RunFolder};
use rotproof_report::{Chart, Line, Mark, ShownInjection, Span, Timeline, Unit};

use super::injections::Outline;

/// Everything on the axis of time. A run without recorded tables has the `hits` of its ledger.
pub(super) fn timeline(folder: &Path, hits: Vec<ShownInjection>) -> Result<Timeline> {
    let mut timeline = Timeline { hits, ..Timeline::default() };
    timeline.hits.sort_by(|a, b| a.at.total_cmp(&b.at));
    if folder.join("intervals.parquet").is_file() {
        let recorded = RunFolder::open(folder)?;
        let marks = recorded.marks()?;
        timeline.phases = spans(&marks, MarkKind::Phase);
        timeline.windows = spans(&marks, MarkKind::Window);
        timeline.marks = marks
            .iter()
            .filter(|mark| mark.kind == MarkKind::Event)
            .map(|mark| Mark { at: seconds(mark.from_ns), name: mark.name.to_string() })
            .collect();
        timeline.charts = charts(&recorded.intervals()?, "");
        timeline.charts.extend(charts(&recorded.device_intervals()?, " of the device"));
    }
    let spans = timeline.phases.iter().map(|span| span.to);
    let points = timeline.charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.points);
    timeline.seconds = spans
        .chain(points.map(|&(at, _)| at))
        .chain(timeline.hits.iter().map(|hit| hit.at))
        .fold(0.0, f64::max);
    // A window without an end lasts as long as there is anything.
    for window in timeline.windows.iter_mut().filter(|window| !window.to.is_finite()) {
        window.to = timeline.seconds;
    }
    Ok(timeline)
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Of more hits than this, those of one rule at about the same time share entries.
pub(super) const EACH_MAX: usize = 20_000;
/// How finely time is divided for that: several times as finely as the page can show it.
const MOMENTS: u128 = 8192;

/// The hits on the axis of time, each for itself or, of very many, some together.
pub(super) struct Hits {
    count: usize,
    end_ns: u64,
    each: Vec<ShownInjection>,
    shared: BTreeMap<(u128, Arc<str>), (Told, Told, u64)>,
}

/// What is told of one.
#[derive(Clone, Copy)]
struct Told {
    time_ns: u64,
    effect: Effect,
    operation: OperationKind,
    length: u64,
    offset: u64,
}

impl Hits {
    pub(super) fn of(outline: &Outline) -> Self {
        Self { count: outline.count, end_ns: outline.end_ns, each: Vec::new(), shared: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, record: &Injection) {
        let &Injection { time_ns, effect, operation, length, offset, .. } = record;
        let told = Told { time_ns, effect, operation, length, offset };
        if self.count <= EACH_MAX {
            self.each.push(told.hit(&record.name, 1));
            return;
        }
        let moment = u128::from(time_ns) * MOMENTS / (u128::from(self.end_ns) + 1);
        let (first, last, count) =
            self.shared.entry((moment, Arc::clone(&record.name))).or_insert((told, told, 0));
        if time_ns < first.time_ns {
            *first = told;
        }
        if time_ns >= last.time_ns {
            *last = told;
        }
        *count += 1;
    }

    pub(super) fn shown(self) -> Vec<ShownInjection> {
        // The last has an entry of its own, so that it is seen how long they went on.
        let shared = self.shared.into_iter().flat_map(|((_, name), (first, last, count))| {
            let rest = count.saturating_sub(1).max(1);
            [Some(first.hit(&name, rest)), (count > 1).then(|| last.hit(&name, 1))]
        });
        self.each.into_iter().chain(shared.flatten()).collect()
    }
}

impl Told {
    fn hit(self, name: &str, count: u64) -> ShownInjection {
        let Self { time_ns, effect, operation, length, offset } = self;
        ShownInjection {
            count,
            at: seconds(time_ns),
            rule: name.to_owned(),
            what: format!("{effect} on a {} of {length} bytes at {offset}", operation.word()),
        }
    }
}

fn spans(marks: &[Recorded], kind: MarkKind) -> Vec<Span> {
    marks
        .iter()
        .filter(|mark| mark.kind == kind)
        .map(|mark| Span {
            name: mark.name.to_string(),
            from: seconds(mark.from_ns),
            to: mark.until_ns.map_or(f64::INFINITY, seconds),
        })
        .collect()
}

/// One value of an interval, and whether it has one at all.
type Reading = fn(&Interval) -> Option<f64>;

/// Phases beside the load's own, which have a pace of their own.
const ASIDE: [&str; 3] = ["prepare", "prefill", "check"];

/// Of more operations than this the latencies are not drawn each by itself.
const OPERATIONS_APART_MAX: usize = 4;

/// Whether an operation has a throughput.
pub fn moves_bytes(operation: &str) -> bool {
    matches!(operation, "read" | "write" | "discard" | "append" | "log" | "insert" | "replace" | "erase")
}

fn latency(interval: &Interval, of: impl Fn(&Latencies) -> u64) -> Option<f64> {
    (interval.requests > 0).then(|| of(&interval.latency_ns) as f64)
}

/// The charts; `whose` stands in their titles.
fn charts(intervals: &[Interval], whose: &str) -> Vec<Chart> {
    let all: Vec<&Interval> = intervals
        .iter()
        .filter(|interval| interval.worker.is_none() && !ASIDE.contains(&&*interval.phase))
        .collect();
    let mut operations: Vec<&str> = Vec::new();
    for interval in &all {
        let is_done_once = &*interval.operation == "sync";
        if interval.requests > 0 && !is_done_once && !operations.contains(&&*interval.operation) {
            operations.push(&interval.operation);
        }
    }
    let per_operation = |read: Reading| -> Vec<Line> {
        let lines = operations.iter().map(|operation| line(&all, operation, operation, read));
        lines.filter(|line| line.points.iter().any(|&(_, value)| value.is_finite())).collect()
    };
    let mut charts = vec![
        Chart {
            title: format!("Throughput{whose}"),
            unit: Unit::BytesPerSecond,
            lines: per_operation(|interval| {
                moves_bytes(&interval.operation).then(|| interval.bytes_per_second())
            }),
            is_logarithmic: false,
        },
        Chart {
            title: format!("Requests{whose}"),
            unit: Unit::PerSecond,
            lines: per_operation(|interval| Some(interval.requests_per_second())),
            is_logarithmic: false,
        },
    ];
    let percentiles: [(&str, Reading); 4] = [
        ("p50", |interval| latency(interval, |latencies| latencies.p50)),
        ("p99", |interval| latency(interval, |latencies| latencies.p99)),
        ("p99.9", |interval| latency(interval, |latencies| latencies.p99_9)),
        ("max", |interval| latency(interval, |latencies| latencies.max)),
    ];
    let mut add = |title: String, lines| {
        charts.push(Chart { title, unit: Unit::Nanoseconds, lines, is_logarithmic: true });
    };
    if operations.len() <= OPERATIONS_APART_MAX {
        // One interval is no course.
        let has_course = |operation: &&&str| {
            let with = all.iter().filter(|row| &*row.operation == **operation && row.requests > 0);
            operations.len() == 1 || with.count() > 1
        };
        for operation in operations.iter().filter(has_course) {
            let lines = percentiles.map(|(name, read)| line(&all, operation, name, read));
            add(format!("Latency of {operation}{whose}"), lines.into());
        }
    } else {
        for (name, read) in [percentiles[0], percentiles[1]] {
            add(format!("Latency, {name}{whose}"), per_operation(read));
        }
    }
    let troubles = [
        line_of_sums(&all, "errors", |interval| interval.errors),
        line_of_sums(&all, "retries", |interval| interval.retries),
    ];
    if troubles.iter().flat_map(|line| &line.points).any(|&(_, value)| value > 0.0) {
        charts.push(Chart {
            title: format!("Errors and retries{whose}"),
            unit: Unit::PerSecond,
            lines: troubles.into(),
            is_logarithmic: false,
        });
    }
    charts.retain(|chart| !chart.lines.is_empty());
    charts
}

/// Intervals shorter than this part of the longest of their phase are left out.
const SHORTEST_SHOWN: u64 = 5;

/// The intervals but for rests of them: of a rest a rate says little, one request more or less makes a peak.
fn without_rests<'a>(all: &'a [&'a Interval]) -> impl Iterator<Item = &'a Interval> {
    let mut whole: BTreeMap<&str, u64> = BTreeMap::new();
    for interval in all {
        let longest = whole.entry(&*interval.phase).or_default();
        *longest = interval.length_ns.max(*longest);
    }
    let is_shown = move |interval: &&Interval| interval.length_ns >= whole[&*interval.phase] / SHORTEST_SHOWN;
    all.iter().copied().filter(is_shown)
}

/// One operation's readings.
fn line(all: &[&Interval], operation: &str, name: &str, read: Reading) -> Line {
    let shown = without_rests(all).filter(|interval| &*interval.operation == operation);
    let readings =
        shown.map(|interval| (interval.start.0, interval.end().0, read(interval).unwrap_or(f64::NAN)));
    Line { name: name.to_owned(), points: points(readings) }
}

/// A count of all operations together, a second.
fn line_of_sums(all: &[&Interval], name: &str, count: fn(&Interval) -> u64) -> Line {
    let mut sums: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for interval in without_rests(all).filter(|interval| interval.length_ns > 0) {
        let sum = sums.entry((interval.start.0, interval.end().0)).or_default();
        *sum += count(interval) as f64 / interval.seconds();
    }
    let readings = sums.into_iter().map(|((start, end), sum)| (start, end, sum));
    Line { name: name.to_owned(), points: points(readings) }
}

/// Of more stretches than this nobody sees on a page how long one is.
const STAIRS_MAX: usize = 200;

/// The value of each stretch from its beginning to its end, as stairs, so that a change lies where it was; of very many at
/// its end. Before the first of a row there is a gap, since the load may not have been.
fn points(readings: impl Iterator<Item = (u64, u64, f64)>) -> Vec<(f64, f64)> {
    let readings: Vec<_> = readings.collect();
    let are_stairs = readings.len() <= STAIRS_MAX;
    let mut points = Vec::new();
    let mut last_end = None;
    for (start, end, value) in readings {
        let is_first = last_end != Some(start);
        if is_first {
            points.push((seconds(start), f64::NAN));
        }
        if is_first || are_stairs {
            points.push((seconds(start), value));
        }
        points.push((seconds(end), value));
        last_end = Some(end);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_intervals_are_stairs_and_many_are_points_with_gaps_where_there_was_no_load() {
        const SECOND: u64 = 1_000_000_000;
        let few =
            points([(0, SECOND, 1.0), (SECOND, 2 * SECOND, 5.0), (3 * SECOND, 4 * SECOND, 2.0)].into_iter());
        let drawn: Vec<_> = few.iter().filter(|(_, value)| value.is_finite()).copied().collect();
        assert_eq!(drawn, [(0.0, 1.0), (1.0, 1.0), (1.0, 5.0), (2.0, 5.0), (3.0, 2.0), (4.0, 2.0)]);
        let gaps: Vec<_> = few.iter().filter(|(_, value)| value.is_nan()).map(|&(at, _)| at).collect();
        assert_eq!(gaps, [0.0, 3.0]);
        let many = points((0..300).map(|second| (second * SECOND, (second + 1) * SECOND, second as f64)));
        assert_eq!(many.len(), 302);
        assert_eq!(many[1..4], [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0)]);
    }
}
