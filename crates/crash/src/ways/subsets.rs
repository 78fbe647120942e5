//! Choices of several writes at once: all of them where they are few, drawn from the seed where they are many.

use std::collections::HashMap;
use std::ops::Range;

use rotproof_block::hash::mix;

use super::{Choice, Choices, Indexed, WayLimits, limited};
use crate::point::{Point, Survivor};
use crate::ranges::{common, count};
use crate::window::Volatile;

/// More than this are never tried all.
const ALL_OF_MAX: u32 = 20;
/// More orders of the same parts are not tried: those of seven writes that all overlap and were all under way together.
const ORDERS_MAX: usize = 5040;

/// Of the survivors `of` every subset, beside all of `always`.
///
/// If their parts, the atomic units of each write, are few: every subset of the parts, and of parts that were under way
/// together on one sector every order. So what comes out is all that a crash may leave. Else every subset of whole
/// writes, if those are few, and a sample of subsets of parts.
pub(super) fn choices(
    point: &Point,
    of: &[Survivor],
    always: &[Survivor],
    limits: &WayLimits,
    seed: u64,
) -> Choices {
    let all_of_max = u64::from(limits.all_subsets_of_max.min(ALL_OF_MAX));
    let chosen: Vec<&Volatile> = of.iter().filter_map(|survivor| point.find(survivor.write)).collect();
    let units: Vec<Vec<Range<u64>>> = chosen.iter().map(|write| point.units_of(write)).collect();
    let parts_count: u64 = units.iter().map(|units| count(units)).sum();
    let open_count: u64 = point.open().iter().map(|write| count(&point.units_of(write))).sum();
    let always = always.to_vec();
    if parts_count + open_count <= all_of_max && always.is_empty() {
        return all_parts(point, &chosen);
    }
    let order = order(point);
    let of = of.to_vec();
    let mut drawn = limits.subsets_drawn;
    let whole: Choices = if of.len() as u64 <= all_of_max {
        let (of, always, order) = (of.clone(), always.clone(), order.clone());
        Box::new((0..1u64 << of.len()).map(move |bits| {
            let kept = of.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            sorted(kept.map(|(_, survivor)| survivor.clone()).chain(always.clone()), &order)
        }))
    } else {
        // Half of the sample is of whole writes.
        drawn = limits.subsets_drawn / 2;
        let (of, always, order) = (of.clone(), always.clone(), order.clone());
        Box::new((0..limits.subsets_drawn - drawn).map(move |index| {
            let share = share_of(seed, index);
            let kept = of.iter().enumerate().filter(|(at, _)| below(mix(seed, 2 * index, *at as u64), share));
            sorted(kept.map(|(_, survivor)| survivor.clone()).chain(always.clone()), &order)
        }))
    };
    if parts_count == of.len() as u64 {
        return whole;
    }
    let torn = (0..drawn).map(move |index| {
        let share = share_of(seed, index);
        let kept = of.iter().zip(&units).enumerate().filter_map(|(at, (survivor, units))| {
            let seed = mix(seed, 2 * index + 1, at as u64);
            match mix(seed, 0, 0) % 3 {
                0 => Some(survivor.clone()),
                1 => below(mix(seed, 1, 0), share).then(|| survivor.clone()),
                _ => {
                    let units: Vec<_> = drawn_units(units, seed, share);
                    (!units.is_empty()).then_some(Survivor { write: survivor.write, units: Some(units) })
                }
            }
        });
        sorted(kept.chain(always.clone()), &order)
    });
    Box::new(whole.chain(torn))
}

/// All but every choice of at most so many as may be dropped, the few first.
pub(super) fn few_dropped(point: &Point, limits: &WayLimits, seed: u64) -> Choices {
    let all = point.all();
    let total = all.len() as u64;
    let dropped_max = u64::from(limits.dropped_max).min(total);
    let max = limits.per_point_max;
    Box::new((1..=dropped_max).flat_map(move |dropped| {
        let all = all.clone();
        let make = move |index: u64| {
            let holes = combination(total, dropped, index);
            let kept = all.iter().zip(0..).filter(|(_, at)| !holes.contains(at));
            kept.map(|(survivor, _)| survivor.clone()).collect()
        };
        limited(Indexed { count: binomial(total, dropped), make: Box::new(make) }, max, mix(seed, 3, dropped))
    }))
}

/// Where each write stands in the order in which they are laid over each other.
fn order(point: &Point) -> HashMap<u64, usize> {
    point.volatile().iter().enumerate().map(|(at, write)| (write.position, at)).collect()
}

fn sorted(survivors: impl Iterator<Item = Survivor>, order: &HashMap<u64, usize>) -> Choice {
    let mut choice: Choice = survivors.collect();
    choice.sort_by_key(|survivor| order.get(&survivor.write).copied());
    choice
}

/// How many of a thousand survive, in the draw with this index: few, half, many, in turn.
fn share_of(seed: u64, index: u64) -> u64 {
    [125, 500, 875, 1 + mix(seed, 4, index) % 999][(index % 4) as usize]
}

fn below(draw: u64, share: u64) -> bool {
    draw % 1000 < share
}

/// Some of the units. Of very many, stretches are drawn rather than each.
fn drawn_units(units: &[Range<u64>], seed: u64, share: u64) -> Vec<Range<u64>> {
    let stretch = (count(units) / 256).max(1);
    let mut drawn: Vec<Range<u64>> = Vec::new();
    for range in units {
        for start in (range.start..range.end).step_by(stretch as usize) {
            if below(mix(seed, 2, start), share) {
                let end = range.end.min(start + stretch);
                match drawn.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => drawn.push(start..end),
                }
            }
        }
    }
    drawn
}

/// A part of a write: which, and which unit.
type Part = (usize, u64);

/// Every subset of the parts of these writes, in every order that makes a difference, also with what is there anyway.
fn all_parts(point: &Point, volatile: &[&Volatile]) -> Choices {
    let mut writes: Vec<&Volatile> = volatile.iter().copied().chain(point.open()).collect();
    writes.sort_by_key(|write| write.rank());
    let units: Vec<Vec<Range<u64>>> = writes.iter().map(|write| point.units_of(write)).collect();
    let parts: Vec<Part> = units
        .iter()
        .enumerate()
        .flat_map(|(at, units)| units.iter().cloned().flatten().map(move |unit| (at, unit)))
        .collect();
    let optional: Vec<usize> = (0..parts.len()).filter(|&part| !writes[parts[part].0].is_durable).collect();
    let whole: Vec<u64> = units.iter().map(|units| count(units)).collect();
    let names: Vec<u64> = writes.iter().map(|write| write.position).collect();
    // Of two parts: whether the first must lie under the second, and whether it may matter which lies over which: they
    // meet on a sector, or a third stands between them that does so with both.
    let live = |part: &Part| common(&writes[part.0].live, std::slice::from_ref(&point.unit_range(part.1)));
    let live: Vec<Vec<Range<u64>>> = parts.iter().map(live).collect();
    let mut cluster: Vec<usize> = (0..parts.len()).collect();
    for a in 0..parts.len() {
        for b in 0..a {
            if parts[a].1 == parts[b].1 && !common(&live[a], &live[b]).is_empty() {
                let (from, to) = (cluster[a], cluster[b]);
                cluster.iter_mut().filter(|one| **one == from).for_each(|one| *one = to);
            }
        }
    }
    let relation = |a: usize, b: usize| -> (bool, bool) {
        let (first, second) = (writes[parts[a].0], writes[parts[b].0]);
        (parts[a].1 == parts[b].1 && first.comes_before(second), cluster[a] == cluster[b])
    };
    let relations: Vec<Vec<(bool, bool)>> =
        (0..parts.len()).map(|a| (0..parts.len()).map(|b| relation(a, b)).collect()).collect();
    Box::new((0..1u64 << optional.len()).flat_map(move |bits| {
        let is_dropped = |part: &usize| {
            optional.iter().position(|optional| optional == part).is_some_and(|at| bits >> at & 1 == 0)
        };
        let kept: Vec<usize> = (0..parts.len()).filter(|part| !is_dropped(part)).collect();
        let (parts, whole, names) = (parts.clone(), whole.clone(), names.clone());
        orders(&kept, &relations).into_iter().map(move |order| {
            let mut choice: Choice = Vec::new();
            for part in order {
                let (write, unit) = parts[part];
                match choice.last_mut() {
                    Some(Survivor { write: last, units: Some(units) }) if *last == names[write] => {
                        match units.last_mut() {
                            Some(range) if range.end == unit => range.end += 1,
                            _ => units.push(unit..unit + 1),
                        }
                    }
                    _ => choice.push(Survivor { write: names[write], units: Some(vec![unit..unit + 1]) }),
                }
            }
            for survivor in &mut choice {
                let at = names.iter().position(|name| *name == survivor.write);
                let is_whole = survivor.units.as_deref().map(count) == at.map(|at| whole[at]);
                if is_whole {
                    survivor.units = None;
                }
            }
            choice
        })
    }))
}

/// The orders in which these parts may lie over each other, as far as it makes a difference: the order of the list, and
/// of parts that meet and were under way together every other.
fn orders(kept: &[usize], relations: &[Vec<(bool, bool)>]) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for &part in kept {
        let mut longer = Vec::new();
        for order in &orders {
            // Put it last, or under any of those that it meets and that need not lie under it.
            let mut with = order.clone();
            with.push(part);
            longer.push(with);
            for at in (0..order.len()).rev() {
                let (must_lie_under, meet) = relations[order[at]][part];
                if must_lie_under {
                    break;
                }
                if meet {
                    let mut with = order.clone();
                    with.insert(at, part);
                    longer.push(with);
                }
            }
        }
        // So many under way together on one sector that not every order can be tried.
        longer.truncate(ORDERS_MAX);
        orders = longer;
    }
    orders
}

/// The combination with this index of `chosen` out of `total`, in the order of their smallest elements.
fn combination(total: u64, chosen: u64, mut index: u64) -> Vec<u64> {
    let mut combination = Vec::with_capacity(chosen as usize);
    let mut next = 0;
    for left in (1..=chosen).rev() {
        loop {
            let with = binomial(total - next - 1, left - 1);
            if index < with {
                break;
            }
            index -= with;
            next += 1;
        }
        combination.push(next);
        next += 1;
    }
    combination
}

/// Number of ways to choose some out of many; the largest number there is if they are more.
fn binomial(total: u64, chosen: u64) -> u64 {
    if chosen > total {
        return 0;
    }
    let mut ways = 1u128;
    for index in 0..chosen.min(total - chosen) {
        ways = ways * u128::from(total - index) / u128::from(index + 1);
        if ways > u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    ways as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_all_there_and_each_once() {
        for (total, chosen) in [(5, 2), (6, 3), (4, 4), (7, 1)] {
            let all: std::collections::BTreeSet<Vec<u64>> =
                (0..binomial(total, chosen)).map(|index| combination(total, chosen, index)).collect();
            assert_eq!(all.len() as u64, binomial(total, chosen));
            assert!(
                all.iter()
                    .all(|one| one.windows(2).all(|pair| pair[0] < pair[1]) && one.len() as u64 == chosen)
            );
            assert!(all.iter().flatten().all(|&element| element < total));
        }
        assert_eq!((binomial(5, 2), binomial(2, 3), binomial(1000, 500)), (10, 0, u64::MAX));
    }
}
