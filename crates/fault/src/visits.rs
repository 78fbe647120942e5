//! How often each block, or each content, has met a rule: what chance decides and what a replay repeats depend on that,
//! and not on which thread came first.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rotproof_block::ContentHash;

/// Counters that are made together when one of them is first wanted (4 KiB).
const CHUNK: u64 = 1024;

/// One counter for each position: a block of the device, or of the rule's places. A rule that never matches takes no
/// memory for them.
#[derive(Debug)]
pub(crate) struct VisitsByPlace {
    positions: u64,
    chunks: OnceLock<Box<[Chunk]>>,
}

/// One counter for each content that has met the rule.
#[derive(Debug, Default)]
pub(crate) struct VisitsByContent(Mutex<HashMap<ContentHash, u32>>);

type Chunk = OnceLock<Box<[AtomicU32]>>;

impl VisitsByPlace {
    /// For positions below `positions`.
    pub(crate) fn new(positions: u64) -> Self {
        Self { positions, chunks: OnceLock::new() }
    }

    /// The number of this visit, from 1.
    pub(crate) fn next(&self, position: u64) -> u32 {
        let chunks = self.chunks.get_or_init(|| new_boxes(self.positions.div_ceil(CHUNK), Chunk::new));
        let number = position / CHUNK;
        let Some(chunk) = chunks.get(number as usize) else { return 1 };
        let length = CHUNK.min(self.positions - number * CHUNK);
        let counters = chunk.get_or_init(|| new_boxes(length, AtomicU32::default));
        let counter = counters.get((position % CHUNK) as usize);
        counter.map_or(1, |counter| counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
    }
}

impl VisitsByContent {
    /// The number of this visit, from 1.
    pub(crate) fn next(&self, content: ContentHash) -> u32 {
        let mut counters = self.0.lock();
        let counter = counters.entry(content).or_default();
        *counter = counter.wrapping_add(1);
        *counter
    }
}

fn new_boxes<T>(count: u64, new: impl Fn() -> T) -> Box<[T]> {
    (0..count).map(|_| new()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_counts_for_itself() {
        let visits = VisitsByPlace::new(3 * CHUNK + 7);
        let positions = [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 6];
        for round in 1..4 {
            assert!(positions.iter().all(|&position| visits.next(position) == round));
        }
        let visits = VisitsByContent::default();
        for round in 1..4 {
            assert!((0..5).all(|content| visits.next(ContentHash(content)) == round));
        }
    }

    #[test]
    fn what_is_never_visited_takes_no_memory() {
        let visits = VisitsByPlace::new(1 << 34);
        assert!(visits.chunks.get().is_none());
        visits.next(1 << 33);
        let made = visits.chunks.get().expect("one was visited").iter().filter(|chunk| chunk.get().is_some());
        assert_eq!(made.count(), 1);
    }
}
