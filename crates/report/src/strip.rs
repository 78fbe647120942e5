//! Devices and files as strips from their beginning to their end, with what lies where.

use std::collections::BTreeMap;

use rotproof_plot::{Anchor, Color, Item, Scene, width_of};

use crate::chart::{AXIS, LEFT, RIGHT, TEXT, WIDTH, line, text};
use crate::page::{Strip, Timeline};
use crate::ribbon::shortened;
use crate::rule_color::RuleColors;
use crate::unit::Unit;

const ROW: f64 = 34.0;
const BAR: f64 = 16.0;
const ABOVE: f64 = 28.0;

/// Ways in which blocks fail, none in the colour of a rule (after P. Tol, *Colour schemes*, 2021, "muted").
const FAILURE_COLORS: [Color; 5] = [
    Color(0x88, 0x22, 0x55),
    Color(0x99, 0x99, 0x33),
    Color(0x33, 0x22, 0x88),
    Color(0xdd, 0xcc, 0x77),
    Color(0x88, 0x55, 0x33),
];

/// The strips, one under the other; rules have the colours of `timeline`.
pub(crate) fn scene(strips: &[Strip], timeline: &Timeline) -> Scene {
    let rules = RuleColors::of(timeline);
    // A rule may be called as a failure is.
    let mut kinds: Vec<(bool, &str)> = strips
        .iter()
        .flat_map(|strip| strip.marks.iter().map(|mark| (!strip.shows_rules, mark.kind.as_str())))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let color_of = |kind: (bool, &str)| match kind {
        (false, rule) => rules.color(rule),
        (true, _) => {
            let failures = kinds.iter().filter(|(is_failure, _)| *is_failure);
            let number = failures.take_while(|known| **known != kind).count();
            FAILURE_COLORS[number % FAILURE_COLORS.len()]
        }
    };
    let height = ABOVE + ROW * strips.len() as f64 + 6.0;
    let mut items = vec![Item::Area { place: [0.0, 0.0, WIDTH, height], color: Color::PAPER }];
    let mut at = LEFT;
    for &(is_failure, kind) in &kinds {
        items.push(Item::Area { place: [at, 8.0, 12.0, 12.0], color: color_of((is_failure, kind)) });
        items.push(text((at + 17.0, 18.0), kind, Anchor::Start, false));
        at += 17.0 + width_of(kind) * TEXT + 18.0;
    }
    for (number, strip) in strips.iter().enumerate() {
        let top = ABOVE + ROW * number as f64;
        let (middle, bottom) = (top + BAR / 2.0, top + BAR);
        let name = shortened(&strip.name, LEFT - 12.0);
        items.push(text((LEFT - 7.0, middle + 0.35 * TEXT), &name, Anchor::End, false));
        items.push(Item::Area { place: [LEFT, top, AXIS, BAR], color: Color(0xee, 0xee, 0xee) });
        for (first, last, kind, count) in grouped(strip) {
            let width = (last - first + 1) as f64;
            let place = [LEFT + first as f64, top, width.max(2.0).min(AXIS - first as f64), BAR];
            let share = |pixel: u64| Unit::Bytes.write(pixel as f64 / AXIS * strip.bytes as f64);
            let title = format!("{}: {count} {kind}, about {}", strip.name, share(first));
            let area = Item::Area { place, color: color_of((!strip.shows_rules, kind)) };
            items.push(Item::Group { kind: "place", title, items: vec![area] });
        }
        let frame =
            vec![(LEFT, top), (WIDTH - RIGHT, top), (WIDTH - RIGHT, bottom), (LEFT, bottom), (LEFT, top)];
        items.push(line(frame, Color::INK, 0.7));
        let size = Unit::Bytes.write(strip.bytes as f64);
        items.push(text((LEFT, bottom + TEXT), "0", Anchor::Start, false));
        items.push(text((WIDTH - RIGHT, bottom + TEXT), &size, Anchor::End, false));
    }
    Scene { width: WIDTH, height, items }
}

/// First and last pixel, kind, and how many marks they stand for: one for each kind and place.
fn grouped(strip: &Strip) -> Vec<(u64, u64, &str, u64)> {
    let last_pixel = AXIS as u64 - 1;
    let pixel = |offset: u64| (((offset as f64 / strip.bytes.max(1) as f64) * AXIS) as u64).min(last_pixel);
    let mut groups: BTreeMap<(&str, u64), (u64, u64)> = BTreeMap::new();
    for mark in &strip.marks {
        let first = pixel(mark.offset);
        let last = pixel((mark.offset + mark.length).saturating_sub(1).max(mark.offset));
        let group = groups.entry((&mark.kind, first)).or_insert((last, 0));
        *group = (group.0.max(last), group.1 + mark.count);
    }
    groups.into_iter().map(|((kind, first), (last, count))| (first, last, kind, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::StripMark;

    #[test]
    fn marks_of_one_kind_and_place_become_one_that_counts_them() {
        let mark = |offset, kind: &str| StripMark { offset, length: 4096, kind: kind.into(), count: 1 };
        let strip = Strip {
            name: "a".into(),
            shows_rules: false,
            bytes: 1 << 30,
            marks: vec![
                mark(0, "zeroed"),
                StripMark { count: 7, ..mark(4096, "zeroed") },
                mark(0, "stale"),
                mark((1 << 30) - 4096, "zeroed"),
            ],
        };
        let end = AXIS as u64 - 1;
        assert_eq!(grouped(&strip), [(0, 0, "stale", 1), (0, 0, "zeroed", 8), (end, end, "zeroed", 1)]);
        let beyond = Strip { bytes: 0, marks: vec![mark(u64::MAX - 4096, "x")], ..Strip::default() };
        assert_eq!(grouped(&beyond).len(), 1, "no size makes it panic");
        assert_eq!(scene(&[strip], &Timeline::default()).height, ABOVE + ROW + 6.0);
    }

    #[test]
    fn a_rule_has_the_colour_it_has_over_time_and_no_failure_has_it() {
        let hit = |at, rule: &str| crate::page::ShownInjection {
            at,
            rule: rule.into(),
            what: "zeros".into(),
            count: 1,
        };
        let timeline = Timeline {
            seconds: 2.0,
            // In an order that is not that of the alphabet.
            hits: vec![hit(0.5, "zeroed"), hit(1.0, "a")],
            ..Timeline::default()
        };
        let mark = |kind: &str| StripMark { offset: 0, length: 4096, kind: kind.into(), count: 1 };
        let strip = |shows_rules, marks: &[&str]| Strip {
            name: "x".into(),
            shows_rules,
            bytes: 1 << 20,
            marks: marks.iter().map(|kind| mark(kind)).collect(),
        };
        let drawn = scene(&[strip(true, &["a", "zeroed"]), strip(false, &["zeroed"])], &timeline);
        let colors: Vec<(String, Color)> = drawn
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Group { title, items, .. } => match items[..] {
                    [Item::Area { color, .. }] => Some((title.clone(), color)),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let rules = RuleColors::of(&timeline);
        let [(first, a), (second, zeroed), (_, failure)] = &colors[..] else { panic!("{colors:?}") };
        assert!(first.contains("1 a,") && second.contains("1 zeroed,"), "{colors:?}");
        assert_eq!((*a, *zeroed), (rules.color("a"), rules.color("zeroed")));
        assert!(failure != zeroed && failure != a, "{colors:?}");
        let ribbon = crate::ribbon::scene(&timeline);
        let ticks = |title: &str| {
            let over_time = ribbon.items.iter().flat_map(|item| match item {
                Item::Group { kind: crate::chart::OVER_TIME, items, .. } => &items[..],
                _ => &[],
            });
            over_time.into_iter().find_map(|item| match item {
                Item::Group { kind: "rule-hit", title: told, items } if told.starts_with(title) => {
                    if let Item::Line { color, .. } = items[0] {
                        Some(color)
                    } else {
                        None
                    }
                }
                _ => None,
            })
        };
        assert_eq!((ticks("a:"), ticks("zeroed:")), (Some(*a), Some(*zeroed)));
    }
}
