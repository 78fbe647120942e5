//! Which content the n-th block that a worker writes gets: a new one, or a duplicate of an earlier one.
//!
//! A pure function of (seed, stage, worker, n), in constant time and without state. Of every `m` blocks exactly
//! the given share, rounded down, are duplicates. Duplicates come from one in four of the contents written so far,
//! and of those the first ones by far most often: so some contents have many duplicates, some few, and most none.

use rotproof_block::hash::mix;

use super::share::Share;
use crate::content::{ContentId, Stage};

/// Streams of [`mix`] that belong to duplicates.
const RANKS: u64 = 0xd0_b1e5;
const MEMBERS: u64 = 0xd0_3e3b;

/// One content out of so many may be duplicated.
const POOL_STRIDE: u64 = 4;

/// The contents of one worker in one stage.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    seed: u64,
    stage: Stage,
    worker: u16,
    duplicates: Share,
}

impl Contents {
    /// Contents of which the share `duplicates` repeats an earlier one.
    pub fn new(seed: u64, stage: Stage, worker: u16, duplicates: Share) -> Self {
        Self { seed, stage, worker, duplicates }
    }

    /// The content of block number `n` that the worker writes, counted from zero.
    #[inline]
    pub fn content(&self, n: u64) -> ContentId {
        ContentId::new(self.stage, self.worker, self.index(n))
    }

    /// Whether block number `n` repeats a content that the worker has written before.
    pub fn is_duplicate(&self, n: u64) -> bool {
        self.duplicates_before(n + 1) > self.duplicates_before(n)
    }

    /// How many different contents the first `n` blocks have.
    pub fn distinct(&self, n: u64) -> u64 {
        n - self.duplicates_before(n)
    }

    /// How many of the first `n` blocks are duplicates. The first block of all cannot be one.
    #[inline]
    fn duplicates_before(&self, n: u64) -> u64 {
        self.duplicates.of(n.saturating_sub(1))
    }

    #[inline]
    fn index(&self, n: u64) -> u64 {
        if self.duplicates.is_zero() {
            return n;
        }
        let distinct = self.distinct(n);
        if self.is_duplicate(n) { self.earlier(n, distinct) } else { distinct }
    }

    /// One of the `distinct` contents written before block `n`.
    fn earlier(&self, n: u64, distinct: u64) -> u64 {
        let stream = RANKS ^ u64::from(self.worker) << 32 ^ (self.stage as u64) << 56;
        let draw = mix(self.seed, stream, n);
        let pool = distinct / POOL_STRIDE;
        if pool == 0 {
            return draw % distinct;
        }
        let rank = skewed(draw, pool);
        // Not always the first of each four, or the most duplicated content would be the first block in every run.
        let members = MEMBERS ^ u64::from(self.worker) << 32 ^ (self.stage as u64) << 56;
        rank * POOL_STRIDE + mix(self.seed, members, rank) % POOL_STRIDE
    }

    /// Whether a content may have duplicates. Fewer than all that may will.
    #[cfg(test)]
    fn may_repeat(&self, index: u64) -> bool {
        let members = MEMBERS ^ u64::from(self.worker) << 32 ^ (self.stage as u64) << 56;
        let rank = index / POOL_STRIDE;
        index < POOL_STRIDE || index % POOL_STRIDE == mix(self.seed, members, rank) % POOL_STRIDE
    }
}

/// A number below `count`, small ones more likely: an order of magnitude (a power of two) as the larger of two draws,
/// then any number of that magnitude.
fn skewed(draw: u64, count: u64) -> u64 {
    let magnitudes = u64::from(count.ilog2()) + 1;
    let pick = |bits: u64| ((bits & 0xffff) * magnitudes) >> 16;
    let magnitude = pick(draw).max(pick(draw >> 16));
    let first = (1 << magnitude) - 1;
    let end = count.min((1 << (magnitude + 1)) - 1);
    // Not empty: 2^magnitude is at most `count`.
    let chosen = (u128::from(draw) * u128::from(end - first)) >> 64;
    first + chosen as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn contents(fraction: f64) -> Contents {
        Contents::new(11, Stage::Run, 3, Share::new(fraction))
    }

    #[test]
    fn realised_duplication_is_within_one_percent_at_any_size() {
        for blocks in [1u64 << 8, 1 << 14, 1 << 18] {
            for nominal in [0.05, 0.172, 0.3, 0.609, 0.9] {
                let contents = contents(nominal);
                let mut seen = std::collections::HashSet::new();
                let repeated = (0..blocks).filter(|&n| !seen.insert(contents.content(n))).count();
                let realised = repeated as f64 / blocks as f64;
                assert!(
                    (realised - nominal).abs() < 0.01,
                    "{blocks} blocks: {realised} instead of {nominal}"
                );
                assert_eq!(seen.len() as u64, contents.distinct(blocks));
            }
        }
    }

    #[test]
    fn some_contents_have_many_duplicates_some_few_and_most_none() {
        let contents = contents(0.5);
        let mut counts: HashMap<ContentId, u64> = HashMap::new();
        for n in 0..1 << 18 {
            *counts.entry(contents.content(n)).or_default() += 1;
        }
        let share_of = |range: std::ops::RangeInclusive<u64>| {
            counts.values().filter(|count| range.contains(count)).count() as f64 / counts.len() as f64
        };
        let most = counts.values().max().expect("there are contents");
        assert!((100..20_000).contains(most), "the most duplicated content is there {most} times");
        assert!(share_of(1..=1) > 0.7, "{}", share_of(1..=1));
        assert!(share_of(2..=3) > 0.02, "{}", share_of(2..=3));
        assert!(share_of(4..=15) > 0.02, "{}", share_of(4..=15));
        assert!(share_of(16..=u64::MAX) > 0.002, "{}", share_of(16..=u64::MAX));
    }

    #[test]
    fn extreme_shares_are_possible() {
        let none = contents(0.0);
        assert!((0..1000).all(|n| none.content(n).index() == n));
        let all = contents(1.0);
        assert!((0..1000).all(|n| all.content(n) == all.content(0)));
    }

    proptest! {
        #[test]
        fn a_duplicate_was_always_written_before(fraction in 0.0f64..=1.0, seed: u64, worker: u16) {
            let contents = Contents::new(seed, Stage::Prefill, worker, Share::new(fraction));
            let mut next_new = 0;
            for n in 0..600 {
                let index = contents.content(n).index();
                if index == next_new {
                    next_new += 1;
                } else {
                    prop_assert!(index < next_new, "block {} holds content {} of {}", n, index, next_new);
                    prop_assert!(contents.may_repeat(index));
                }
            }
            prop_assert_eq!(next_new, contents.distinct(600));
        }

        #[test]
        fn a_skewed_number_is_in_bounds(draw: u64, count in 1u64..1 << 40) {
            prop_assert!(skewed(draw, count) < count);
        }
    }
}
