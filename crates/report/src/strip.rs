//! Devices and files as strips from their beginning to their end, with what lies where.

use std::collections::BTreeMap;

use rotproof_plot::{Anchor, Color, Item, LINE_COLORS, Scene, width_of};

use crate::chart::{AXIS, LEFT, RIGHT, TEXT, WIDTH, line, text};
use crate::page::Strip;
use crate::ribbon::shortened;
use crate::unit::Unit;

const ROW: f64 = 34.0;
const BAR: f64 = 16.0;
const ABOVE: f64 = 28.0;

/// The strips, one under the other.
pub(crate) fn scene(strips: &[Strip]) -> Scene {
    let mut kinds: Vec<&str> =
        strips.iter().flat_map(|strip| &strip.marks).map(|mark| mark.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let color_of = |kind: &str| {
        let number = kinds.iter().position(|known| *known == kind).unwrap_or_default();
        LINE_COLORS[number % LINE_COLORS.len()]
    };
    let height = ABOVE + ROW * strips.len() as f64 + 6.0;
    let mut items = vec![Item::Area { place: [0.0, 0.0, WIDTH, height], color: Color::PAPER }];
    let mut at = LEFT;
    for kind in &kinds {
        items.push(Item::Area { place: [at, 8.0, 12.0, 12.0], color: color_of(kind) });
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
            let area = Item::Area { place, color: color_of(kind) };
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
        *group = (group.0.max(last), group.1 + 1);
    }
    groups.into_iter().map(|((kind, first), (last, count))| (first, last, kind, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::StripMark;

    #[test]
    fn marks_of_one_kind_and_place_become_one_that_counts_them() {
        let mark = |offset, kind: &str| StripMark { offset, length: 4096, kind: kind.into() };
        let strip = Strip {
            name: "a".into(),
            bytes: 1 << 30,
            marks: vec![
                mark(0, "zeroed"),
                mark(4096, "zeroed"),
                mark(0, "stale"),
                mark((1 << 30) - 4096, "zeroed"),
            ],
        };
        let end = AXIS as u64 - 1;
        assert_eq!(grouped(&strip), [(0, 0, "stale", 1), (0, 0, "zeroed", 2), (end, end, "zeroed", 1)]);
        let beyond = Strip { bytes: 0, marks: vec![mark(u64::MAX - 4096, "x")], ..Strip::default() };
        assert_eq!(grouped(&beyond).len(), 1, "no size makes it panic");
        assert_eq!(scene(&[strip]).height, ABOVE + ROW + 6.0);
    }
}
