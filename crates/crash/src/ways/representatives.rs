//! One write stands for all of its kind: those with the same tag, role, length and place among the writes around them.
//!
//! A load does the same thing many times, and a state of the hundredth time shows what one of the first has shown. What
//! counts as the same is a guess about which states are worth a look, never about which are legal.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::{Choice, Role};
use crate::point::{Point, Survivor};
use crate::ranges::count;
use crate::window::Volatile;

/// Neighbours on either side that belong to the pattern.
const AROUND: usize = 2;

/// What a write is, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    tag: Arc<str>,
    role: u8,
    verb: &'static str,
    sectors: u64,
    is_completed: bool,
}

/// What had its representative in a recording so far: a write and those around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(HashSet<(Kind, Vec<Kind>)>);

pub(super) fn choices(point: &Point, seen: &mut Seen) -> Vec<Choice> {
    let all = point.all();
    let kinds: Vec<Kind> = point.volatile().iter().map(|write| kind(write, point)).collect();
    let mut choices = Vec::new();
    for (at, of) in kinds.iter().enumerate() {
        let around = kinds[at.saturating_sub(AROUND)..kinds.len().min(at + AROUND + 1)].to_vec();
        if !seen.0.insert((of.clone(), around)) {
            continue;
        }
        choices.push([&all[..at], &all[at + 1..]].concat());
        choices.push(vec![all[at].clone()]);
        let units = point.units_of(&point.volatile()[at]);
        let half = count(&units) / 2;
        if half > 0 {
            for part in [first(&units, half), last(&units, half)] {
                let mut torn = all.clone();
                torn[at] = Survivor { write: all[at].write, units: Some(part) };
                choices.push(torn);
            }
        }
    }
    choices
}

fn kind(write: &Volatile, point: &Point) -> Kind {
    let role = Role::of(write.sectors.start * point.sector_bytes(), &write.beginning);
    Kind {
        tag: Arc::clone(&write.tag),
        role: role as u8,
        verb: write.verb,
        sectors: write.sectors.end - write.sectors.start,
        is_completed: write.completed.is_some() && !write.failed,
    }
}

/// The first so many units of a set.
fn first(units: &[Range<u64>], mut left: u64) -> Vec<Range<u64>> {
    let mut part = Vec::new();
    for range in units {
        let taken = left.min(range.end - range.start);
        if taken > 0 {
            part.push(range.start..range.start + taken);
        }
        left -= taken;
    }
    part
}

/// All but the first so many.
fn last(units: &[Range<u64>], mut left: u64) -> Vec<Range<u64>> {
    let mut part = Vec::new();
    for range in units {
        let passed = left.min(range.end - range.start);
        if range.start + passed < range.end {
            part.push(range.start + passed..range.end);
        }
        left -= passed;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_halves_are_the_whole() {
        let units = [3..5, 9..10, 20..24];
        for half in 1..count(&units) {
            let (one, other) = (first(&units, half), last(&units, half));
            assert_eq!((count(&one), count(&other)), (half, count(&units) - half));
            assert_eq!(crate::ranges::union(&one, &other), units);
        }
    }
}
