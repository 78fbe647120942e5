//! One chart of a time line: its lines over the fault windows, with the hits on the axis of time.
//!
//! All charts of a page have the same frame and the same span, so that one moment lies at one place in all of them.

use rotproof_plot::{Anchor, Axis, Color, Item, LINE_COLORS, Scene, width_of};

use crate::Unit;
use crate::mark::columns;
use crate::page::{Chart, Line, Span, Timeline};
use crate::rule_color::RuleColors;

/// Pixels of every time line, and of what lies left and right of its axis.
pub(crate) const WIDTH: f64 = 960.0;
pub(crate) const LEFT: f64 = 118.0;
pub(crate) const RIGHT: f64 = 16.0;
pub(crate) const AXIS: f64 = WIDTH - LEFT - RIGHT;

const ABOVE: f64 = 30.0;
const HEIGHT: f64 = 130.0;
const BELOW: f64 = 26.0;
pub(crate) const TEXT: f64 = 12.0;
/// Behind everything while a fault is at work.
pub(crate) const WINDOW: Color = Color(0xfb, 0xe6, 0xe2);
/// Hits of several rules on one pixel, and events.
pub(crate) const HIT: Color = Color::GOAL;
/// So many decades at the most, from the largest value down.
const DECADES_MAX: usize = 7;

/// What lies over the axis of time and is drawn wider where the page is zoomed, as the script of the page knows it.
pub(crate) const OVER_TIME: &str = "over-time";
/// The axis of time itself, which the script draws anew.
pub(crate) const TIMES: &str = "times";

/// The chart.
pub(crate) fn scene(chart: &Chart, timeline: &Timeline) -> Scene {
    let height = ABOVE + HEIGHT + BELOW;
    let mut items = vec![Item::Area { place: [0.0, 0.0, WIDTH, height], color: Color::PAPER }];
    let bottom = ABOVE + HEIGHT;
    let windows = timeline.windows.iter().filter(|window| !lasts_as_long(window, timeline)).map(|window| {
        let [from, to] = [window.from, window.to].map(|at| LEFT + at_pixel(at, timeline));
        let area = Item::Area { place: [from, ABOVE, (to - from).max(1.0), HEIGHT], color: WINDOW };
        Item::Group { kind: "window", title: window.name.clone(), items: vec![area] }
    });
    items.extend(group(OVER_TIME, windows.collect()));
    let values = || chart.lines.iter().flat_map(|line| &line.points).map(|&(_, value)| value);
    let largest = values().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let least = values().filter(|&value| value.is_finite() && value > 0.0).fold(f64::INFINITY, f64::min);
    let (axis, names) = value_axis(chart, least, largest);
    items.push(text((LEFT, ABOVE - 11.0), &chart.title, Anchor::Start, true));
    legend(chart, &mut items);
    for (value, name) in names {
        let y = bottom - axis.share(value) * HEIGHT;
        items.push(line(vec![(LEFT, y), (WIDTH - RIGHT, y)], Color::FAINT, 1.0));
        items.push(text((LEFT - 7.0, y + 0.35 * TEXT), &name, Anchor::End, false));
    }
    items.extend(time_axis(timeline, bottom));
    let mut over_time = Vec::new();
    for (number, of_line) in chart.lines.iter().enumerate() {
        let color = LINE_COLORS[number % LINE_COLORS.len()];
        for piece in pieces(of_line, &axis, timeline) {
            over_time.push(line(piece, color, 1.6));
        }
    }
    let colors = RuleColors::of(timeline);
    for column in columns(timeline.hits.iter(), timeline, AXIS) {
        let x = LEFT + column.x;
        let color = column.rule.as_deref().map_or(HIT, |rule| colors.color(rule));
        let tick = line(vec![(x, bottom - 7.0), (x, bottom)], color, 1.8);
        over_time.push(Item::Group { kind: "hit", title: column.title, items: vec![tick] });
    }
    items.extend(group(OVER_TIME, over_time));
    items.push(line(vec![(LEFT, ABOVE), (LEFT, bottom), (WIDTH - RIGHT, bottom)], Color::INK, 1.0));
    Scene { width: WIDTH, height, items }
}

/// Whether a fault was at work as long as the load, so that its window tells nothing apart. The ribbon shows it.
fn lasts_as_long(window: &Span, timeline: &Timeline) -> bool {
    let run = timeline.phases.iter().find(|phase| phase.name == "run");
    let margin = timeline.seconds / 1000.0;
    run.is_some_and(|run| window.from <= run.from + margin && window.to >= run.to - margin)
}

/// Items that belong together; nothing of none.
pub(crate) fn group(kind: &'static str, items: Vec<Item>) -> Option<Item> {
    (!items.is_empty()).then(|| Item::Group { kind, title: String::new(), items })
}

/// The numbers and names of the axis of time, at `bottom`.
pub(crate) fn time_axis(timeline: &Timeline, bottom: f64) -> Option<Item> {
    let mut items = Vec::new();
    let axis = Axis::linear("", 0.0, timeline.seconds.max(1e-9));
    let ticks = axis.ticks(10);
    let last = ticks.len().saturating_sub(1);
    for (number, (at, name)) in ticks.into_iter().enumerate() {
        let x = LEFT + axis.share(at) * AXIS;
        items.push(line(vec![(x, bottom), (x, bottom + 4.0)], Color::INK, 1.0));
        let name = if number == last { format!("{name} s") } else { name };
        let anchor = if x + width_of(&name) * TEXT / 2.0 > WIDTH { Anchor::End } else { Anchor::Middle };
        items.push(text((x, bottom + 6.0 + TEXT), &name, anchor, false));
    }
    group(TIMES, items)
}

/// Pixels from the left end of the axis.
pub(crate) fn at_pixel(seconds: f64, timeline: &Timeline) -> f64 {
    (seconds / timeline.seconds.max(f64::MIN_POSITIVE) * AXIS).clamp(0.0, AXIS)
}

pub(crate) fn text(at: (f64, f64), text: &str, anchor: Anchor, is_bold: bool) -> Item {
    Item::Text {
        at,
        text: text.to_owned(),
        size: TEXT,
        color: Color::INK,
        anchor,
        is_upright: false,
        is_bold,
    }
}

pub(crate) fn line(points: Vec<(f64, f64)>, color: Color, width: f64) -> Item {
    Item::Line { points, color, width, dashed: false }
}

/// The axis of values, and its named numbers.
fn value_axis(chart: &Chart, least: f64, largest: f64) -> (Axis, Vec<(f64, String)>) {
    if chart.is_logarithmic && largest > 0.0 {
        let steps = steps(chart.unit);
        let top = steps.partition_point(|&step| step < largest).min(steps.len() - 1).max(1);
        let low = steps.partition_point(|&step| step <= least).saturating_sub(1);
        let low = low.clamp(top.saturating_sub(DECADES_MAX), top - 1);
        let names = steps[low..=top].iter().map(|&at| (at, name_of_step(at, chart.unit)));
        return (Axis::logarithmic("", steps[low], steps[top]), names.collect());
    }
    let (factor, unit) = chart.unit.scale(largest);
    // Room above the largest value, so that its line is seen.
    let top = if largest > 0.0 { largest / factor * 1.06 } else { 1.0 };
    let ticks = Axis::linear("", 0.0, top).ticks(4);
    let last = ticks.len().saturating_sub(1);
    let names = ticks.into_iter().enumerate().map(|(number, (at, name))| {
        (at * factor, if number == last { format!("{name} {unit}").trim_end().to_owned() } else { name })
    });
    (Axis::linear("", 0.0, top * factor), names.collect())
}

/// The numbers that a logarithmic axis may begin and end with and names: powers of ten, of bytes 1, 10 and 100 of each unit.
fn steps(unit: Unit) -> Vec<f64> {
    match unit {
        Unit::Bytes | Unit::BytesPerSecond => {
            (0..6).flat_map(|power| [1.0, 10.0, 100.0].map(|step| step * 1024f64.powi(power))).collect()
        }
        _ => (-3..16).map(|power| 10f64.powi(power)).collect(),
    }
}

/// `10 MiB/s`: a step is a whole number of its unit, from one on.
fn name_of_step(at: f64, unit: Unit) -> String {
    let (factor, name) = unit.scale(at * 1.000_001);
    let number = (at / factor * 1000.0).round() / 1000.0;
    format!("{number} {name}").trim_end().to_owned()
}

/// Names of the lines, from the right end to the left.
fn legend(chart: &Chart, items: &mut Vec<Item>) {
    let mut right = WIDTH - RIGHT;
    let named = |(_, of_line): &(usize, &Line)| !of_line.name.is_empty();
    for (number, of_line) in chart.lines.iter().enumerate().filter(named).rev() {
        let y = ABOVE - 15.0;
        items.push(text((right, ABOVE - 11.0), &of_line.name, Anchor::End, false));
        right -= width_of(&of_line.name) * TEXT + 6.0;
        items.push(line(vec![(right - 18.0, y), (right, y)], LINE_COLORS[number % LINE_COLORS.len()], 2.5));
        right -= 18.0 + 14.0;
    }
}

/// A line in pixels, broken where it has no value, with no more points than can be told apart.
fn pieces(of_line: &Line, axis: &Axis, timeline: &Timeline) -> Vec<Vec<(f64, f64)>> {
    let place = |(at, value): (f64, f64)| {
        let y = ABOVE + HEIGHT - axis.share(value).clamp(0.0, 1.0) * HEIGHT;
        (LEFT + at_pixel(at, timeline), y)
    };
    // On a logarithmic axis nothing lies at its beginning.
    let is_there = |&(at, value): &(f64, f64)| at.is_finite() && value.is_finite();
    of_line
        .points
        .split(|point| !is_there(point))
        .filter(|piece| !piece.is_empty())
        .map(|piece| {
            let piece = thin(piece.iter().map(|&point| place(point)).collect());
            match piece[..] {
                // A single interval is a short line rather than nothing.
                [(x, y)] => vec![((x - 8.0).max(LEFT), y), (x, y)],
                _ => piece,
            }
        })
        .collect()
}

/// Of the points that share a pixel column the first, the highest, the lowest and the last stay.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() < 2 * AXIS as usize {
        return points;
    }
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut of_column: Vec<(f64, f64)> =
            [column.first(), column.iter().min_by(by_height), column.iter().max_by(by_height), column.last()]
                .into_iter()
                .flatten()
                .copied()
                .collect();
        of_column.sort_by(|a, b| a.0.total_cmp(&b.0));
        of_column.dedup();
        kept.extend(of_column);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use crate::page::ShownInjection;

    fn lines_of(scene: &Scene) -> Vec<&Vec<(f64, f64)>> {
        let colored =
            |item: &'_ &Item| matches!(item, Item::Line { color, .. } if LINE_COLORS.contains(color));
        fn points(item: &Item) -> Option<&Vec<(f64, f64)>> {
            if let Item::Line { points, .. } = item { Some(points) } else { None }
        }
        items_of(scene).filter(colored).filter_map(points).collect()
    }

    /// The items, with those over the axis of time in the place of their group.
    fn items_of(scene: &Scene) -> impl Iterator<Item = &Item> {
        scene.items.iter().flat_map(|item| match item {
            Item::Group { kind, items, .. } if [OVER_TIME, TIMES].contains(kind) => &items[..],
            item => std::slice::from_ref(item),
        })
    }

    #[test]
    fn a_line_is_broken_where_it_has_no_value_and_stays_in_the_frame() {
        let points = vec![(0.0, 10.0), (1.0, 20.0), (2.0, f64::NAN), (3.0, 5.0), (4.0, 0.0)];
        let chart = Chart {
            lines: vec![Line { name: String::new(), points }],
            unit: Unit::Count,
            ..Chart::default()
        };
        let timeline = Timeline { seconds: 4.0, ..Timeline::default() };
        let scene = scene(&chart, &timeline);
        let lines = lines_of(&scene);
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(lines[1][1], (WIDTH - RIGHT, ABOVE + HEIGHT), "zero at the end is the lower right corner");
        assert!(
            lines.iter().flat_map(|line| line.iter()).all(|&(x, y)| {
                (LEFT..=WIDTH - RIGHT).contains(&x) && (ABOVE..=ABOVE + HEIGHT).contains(&y)
            })
        );
    }

    #[test]
    fn thinning_keeps_every_peak() {
        let points: Vec<(f64, f64)> =
            (0..100_000).map(|n| (f64::from(n) / 100.0, if n == 54_321 { 9.0 } else { 1.0 })).collect();
        let thinned = thin(points);
        assert!(thinned.len() < 5000, "{}", thinned.len());
        assert!(thinned.iter().any(|&(_, y)| y == 9.0));
    }

    #[test]
    fn windows_and_hits_are_in_every_chart_and_latencies_have_decades() {
        let timeline = Timeline {
            seconds: 10.0,
            windows: vec![Span { name: "slow".into(), from: 2.0, to: 4.0 }],
            hits: vec![ShownInjection { at: 2.5, rule: "slow".into(), what: "delay".into(), count: 1 }],
            ..Timeline::default()
        };
        let line = Line { name: "p99".into(), points: vec![(1.0, 2e3), (2.0, 3e6)] };
        let chart =
            Chart { lines: vec![line], unit: Unit::Nanoseconds, is_logarithmic: true, ..Chart::default() };
        let scene = scene(&chart, &timeline);
        let groups: Vec<&str> = items_of(&scene)
            .filter_map(|item| if let Item::Group { kind, .. } = item { Some(*kind) } else { None })
            .collect();
        assert_eq!(groups, ["window", "hit"]);
        let texts: Vec<&str> = items_of(&scene)
            .filter_map(|item| if let Item::Text { text, .. } = item { Some(text.as_str()) } else { None })
            .collect();
        for name in ["1 us", "10 us", "1 ms", "10 ms"] {
            assert!(texts.contains(&name), "{texts:?}");
        }
    }

    #[test]
    fn a_logarithmic_axis_has_whole_numbers_of_a_unit_and_nothing_lies_at_its_beginning() {
        let drawn = |unit, values: &[f64]| {
            let points = values.iter().enumerate().map(|(at, &value)| (at as f64, value)).collect();
            let lines = vec![Line { name: "read".into(), points }];
            let chart = Chart { lines, unit, is_logarithmic: true, ..Chart::default() };
            let timeline = Timeline { seconds: (values.len() - 1) as f64, ..Timeline::default() };
            let scene = scene(&chart, &timeline);
            let texts = items_of(&scene).filter_map(|item| match item {
                Item::Text { text, anchor: Anchor::End, .. } if text.ends_with("/s") => Some(text.clone()),
                _ => None,
            });
            (texts.collect::<Vec<_>>(), lines_of(&scene).pop().cloned().expect("a line"))
        };
        let (names, line) = drawn(Unit::BytesPerSecond, &[300.0 * 1048576.0, 0.0, 9.0 * 1048576.0]);
        assert_eq!(names, ["1 MiB/s", "10 MiB/s", "100 MiB/s", "1 GiB/s"]);
        assert_eq!(line.len(), 3, "a stall is no gap");
        assert_eq!(line[1].1, ABOVE + HEIGHT);
        let (names, _) = drawn(Unit::PerSecond, &[2.0, 30_000.0, 30_000.0]);
        assert_eq!(names, ["1 thousand/s", "10 thousand/s", "100 thousand/s"]);
    }

    #[test]
    fn a_window_as_long_as_the_run_shades_nothing() {
        let span = |name: &str, from, to| Span { name: name.into(), from, to };
        let timeline = Timeline {
            seconds: 10.0,
            phases: vec![span("run", 1.0, 9.0)],
            windows: vec![span("path", 1.0, 9.0), span("slow", 2.0, 4.0), span("always", 0.0, 10.0)],
            ..Timeline::default()
        };
        let scene = scene(&Chart::default(), &timeline);
        let shaded: Vec<&str> = items_of(&scene)
            .filter_map(|item| if let Item::Group { title, .. } = item { Some(title.as_str()) } else { None })
            .collect();
        assert_eq!(shaded, ["slow"]);
    }

    #[test]
    fn a_chart_without_anything_is_an_empty_frame() {
        let scene = scene(&Chart::default(), &Timeline::default());
        assert!(lines_of(&scene).is_empty());
    }
}
