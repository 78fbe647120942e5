//! Where failing blocks come from: all of them, or those of a range at a time where there are very many.

use std::collections::HashSet;
use std::ops::Range;

use rotproof_block::{ContentHash, ErrorKind};
use rotproof_load::evidence::Evidence as Seen;
use rotproof_load::{Classifier, Failure};

/// The blocks that failed, by number in the target. Of files they are in no order, and there are no ranges.
pub trait Failing {
    /// Those of a range of blocks, in their order.
    fn of(&self, blocks: Range<u64>) -> Vec<Failure>;

    /// How many blocks the target has.
    fn blocks(&self) -> u64;

    /// How many ways to fail there are in each of so many stretches of `blocks` blocks; those beyond count in the last.
    fn ways_by_stretch(&self, blocks: u64, stretches: usize) -> Vec<u64>;

    /// The contents that were found, if those are not more than `count_max`.
    fn found(&self, count_max: usize) -> Option<HashSet<ContentHash>>;

    /// Whether something took too long.
    fn times_out(&self) -> bool;
}

impl Failing for Classifier<'_, '_> {
    fn of(&self, blocks: Range<u64>) -> Vec<Failure> {
        self.failures(blocks)
    }

    fn blocks(&self) -> u64 {
        self.workload().layout().blocks()
    }

    fn ways_by_stretch(&self, blocks: u64, stretches: usize) -> Vec<u64> {
        Classifier::ways_by_stretch(self, blocks, stretches)
    }

    fn found(&self, count_max: usize) -> Option<HashSet<ContentHash>> {
        let mut found = HashSet::new();
        for sighting in self.sightings() {
            if let Seen::Data { found: content, .. } = sighting.evidence {
                found.insert(content);
                if found.len() > count_max {
                    return None;
                }
            }
        }
        Some(found)
    }

    fn times_out(&self) -> bool {
        self.sightings().any(|sighting| sighting.evidence == Seen::Error(ErrorKind::TimedOut))
    }
}

/// Of files: they are judged at once.
impl Failing for Vec<Failure> {
    fn of(&self, blocks: Range<u64>) -> Vec<Failure> {
        self.iter().filter(|failure| blocks.contains(&failure.block)).cloned().collect()
    }

    fn blocks(&self) -> u64 {
        self.iter().map(|failure| failure.block + 1).max().unwrap_or(0)
    }

    fn ways_by_stretch(&self, blocks: u64, stretches: usize) -> Vec<u64> {
        let mut counts = vec![0; stretches];
        for failure in self {
            let stretch = usize::try_from(failure.block / blocks.max(1)).unwrap_or(usize::MAX);
            if let Some(count) = counts.get_mut(stretch.min(stretches.saturating_sub(1))) {
                *count += failure.ways.len() as u64;
            }
        }
        counts
    }

    fn found(&self, _: usize) -> Option<HashSet<ContentHash>> {
        Some(self.iter().flat_map(|failure| &failure.ways).filter_map(|way| way.found).collect())
    }

    fn times_out(&self) -> bool {
        let ways = self.iter().flat_map(|failure| &failure.ways);
        ways.into_iter().any(|way| way.what.error() == Some(ErrorKind::TimedOut))
    }
}
