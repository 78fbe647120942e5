//! Which content the n-th block that a worker writes gets: a new one, or a duplicate.
//!
//! A pure function of (seed, stage, worker, n), in constant time and without state; [`Mixture`] decides.

use std::sync::Arc;

use super::mixture::Mixture;
use crate::content::{ContentId, Stage};

/// The contents of one worker in one stage.
#[derive(Clone, Debug)]
pub struct Contents {
    seed: u64,
    stage: Stage,
    worker: u16,
    mixture: Arc<Mixture>,
}

impl Contents {
    /// Contents that repeat as the mixture says.
    pub(crate) fn new(seed: u64, stage: Stage, worker: u16, mixture: Arc<Mixture>) -> Self {
        Self { seed, stage, worker, mixture }
    }

    /// The content of block number `n` that the worker writes, counted from zero.
    #[inline]
    pub fn content(&self, n: u64) -> ContentId {
        ContentId::new(self.stage, self.worker, self.mixture.content(self.seed, self.stream(), n))
    }

    /// Whether a content of this worker and stage may be written more than once.
    pub fn may_repeat(&self, content: ContentId) -> bool {
        self.mixture.may_repeat(content.index())
    }

    /// How many different contents the first `n` blocks have.
    pub fn distinct(&self, n: u64) -> u64 {
        if self.mixture.is_plain() { n } else { self.mixture.distinct(self.seed, self.stream(), n) }
    }

    fn stream(&self) -> u64 {
        u64::from(self.worker) << 32 ^ (self.stage as u64) << 56
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duplicates::{Distribution, Duplicates};
    use rotproof_spec::Percent;
    use std::collections::HashMap;

    fn contents(fraction: f64) -> Contents {
        let distribution = Duplicates::Share(Percent(fraction)).distribution().expect("no file");
        Contents::new(11, Stage::Run, 3, Arc::new(Mixture::new(&distribution)))
    }

    #[test]
    fn realised_duplication_is_within_one_percent_at_any_size() {
        for blocks in [1u64 << 12, 1 << 14, 1 << 18] {
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
        assert!(counts.iter().all(|(&content, &count)| count == 1 || contents.may_repeat(content)));
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

    #[test]
    fn workers_and_stages_share_no_content() {
        let mixture = Arc::new(Mixture::new(&Distribution::from_pairs([(9, 1)])));
        let mut seen = std::collections::HashSet::new();
        for stage in [Stage::Prefill, Stage::Run] {
            for worker in 0..3 {
                let contents = Contents::new(1, stage, worker, Arc::clone(&mixture));
                let own: std::collections::HashSet<_> = (0..10_240).map(|n| contents.content(n)).collect();
                assert_eq!(own.len(), 1024);
                assert!(own.into_iter().all(|content| seen.insert(content)));
            }
        }
    }
}
