//! One write is torn at its atomic units: its beginning, its end, a hole, every second unit. Around it either all that
//! came before it is there and nothing after, as if the power went in the middle of it; or everything else is.

use std::ops::Range;

use super::{Choice, Indexed};
use crate::point::{Point, Survivor};
use crate::ranges::count;

/// Of a longer write so many cuts are tried, spread over it.
const CUTS_MAX: u64 = 7;

pub(super) fn choices(point: &Point) -> Indexed {
    let all = point.all();
    let mut torn: Vec<(usize, Vec<Range<u64>>)> = Vec::new();
    for (at, write) in point.volatile().iter().enumerate() {
        let units = point.units_of(write);
        torn.extend(patterns(&units).into_iter().map(|pattern| (at, pattern)));
    }
    let make = move |index: u64| -> Choice {
        let (at, units) = &torn[(index / 2) as usize];
        let mut choice = if index.is_multiple_of(2) { all[..=*at].to_vec() } else { all.clone() };
        choice[*at] = Survivor { write: all[*at].write, units: Some(units.clone()) };
        choice
    };
    Indexed { count: torn_count(point), make: Box::new(make) }
}

fn torn_count(point: &Point) -> u64 {
    2 * point.volatile().iter().map(|write| patterns(&point.units_of(write)).len() as u64).sum::<u64>()
}

/// The units that survive, for each way of tearing a write with these units; none if it has only one.
fn patterns(units: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let total = count(units);
    if total < 2 {
        return Vec::new();
    }
    let cuts: Vec<u64> = if total - 1 <= CUTS_MAX {
        (1..total).collect()
    } else {
        (0..CUTS_MAX).map(|index| 1 + (total - 2) * index / (CUTS_MAX - 1)).collect()
    };
    let mut patterns: Vec<_> = cuts.iter().map(|&cut| part(units, 0..cut)).collect();
    patterns.extend(cuts.iter().map(|&cut| part(units, cut..total)));
    if total >= 3 {
        // A hole of one unit, and one of a third.
        let middle = total / 2;
        let third = total / 3;
        for hole in [middle..middle + 1, third..2 * third] {
            patterns.push([part(units, 0..hole.start), part(units, hole.end..total)].concat());
        }
        let second = (0..total).step_by(2).flat_map(|index| part(units, index..index + 1));
        // Of a very long write its first million bytes or so are enough to be torn like this.
        patterns.push(second.take(2048).collect());
    }
    patterns.retain(|pattern| !pattern.is_empty());
    patterns.dedup();
    patterns
}

/// Those of the units whose numbers within the set are in `numbers`.
fn part(units: &[Range<u64>], numbers: Range<u64>) -> Vec<Range<u64>> {
    let mut before = 0;
    let mut part = Vec::new();
    for range in units {
        let length = range.end - range.start;
        let start = numbers.start.clamp(before, before + length) - before;
        let end = numbers.end.clamp(before, before + length) - before;
        if start < end {
            part.push(range.start + start..range.start + end);
        }
        before += length;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_torn_into_beginnings_ends_holes_and_stripes() {
        assert!(patterns(&[5..6]).is_empty());
        assert_eq!(patterns(&[5..7]), [vec![5..6], vec![6..7]]);
        let of_four = patterns(&[8..10, 20..22]);
        assert!(of_four.contains(&vec![8..10, 20..21]), "a beginning: {of_four:?}");
        assert!(of_four.contains(&vec![9..10, 20..22]), "an end");
        assert!(of_four.contains(&vec![8..10, 21..22]), "a hole");
        assert!(of_four.contains(&vec![8..9, 20..21]), "stripes");
        let long = patterns(&[0..1_000_000]);
        assert!(
            long.len() < 20 && long.contains(&vec![0..999_999]) && long.contains(&vec![999_999..1_000_000])
        );
    }
}
