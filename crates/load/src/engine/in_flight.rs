//! Which blocks the requests in flight of one worker touch, so that no two overlap when one of them writes.
//!
//! What an overlapping read must return, and what a block holds after two overlapping writes, nobody could say.

use std::ops::Range;

use crate::layout::Extent;

/// One entry for each slot, empty where it has nothing in flight. Depths are small, so a scan beats any index.
pub(super) struct InFlight(Vec<Entry>);

#[derive(Clone, Copy, Default)]
struct Entry {
    start: u64,
    end: u64,
    is_write: bool,
}

impl InFlight {
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![Entry::default(); slots])
    }

    /// Whether a request may not start yet.
    #[inline]
    pub(super) fn conflicts(&self, extent: &Extent, is_write: bool) -> bool {
        let blocks = extent.target_blocks();
        self.0
            .iter()
            .any(|entry| entry.start < blocks.end && blocks.start < entry.end && (entry.is_write || is_write))
    }

    #[inline]
    pub(super) fn begin(&mut self, slot: usize, extent: &Extent, is_write: bool) {
        let blocks = extent.target_blocks();
        self.0[slot] = Entry { start: blocks.start, end: blocks.end, is_write };
    }

    /// The blocks that the request of a slot touches.
    pub(super) fn blocks(&self, slot: usize) -> Range<u64> {
        self.0[slot].start..self.0[slot].end
    }

    #[inline]
    pub(super) fn end(&mut self, slot: usize) {
        self.0[slot] = Entry::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(first_block: u64, blocks: u32) -> Extent {
        Extent { object: 0, blocks, first_in_object: first_block, first_block }
    }

    proptest! {
        #[test]
        fn conflicts_are_those_of_the_block_by_block_definition(
            flying in prop::collection::vec((0u64..30, 1u32..5, any::<bool>()), 0..6),
            asked in (0u64..30, 1u32..5, any::<bool>()),
        ) {
            let mut in_flight = InFlight::new(8);
            for (slot, &(first, blocks, is_write)) in flying.iter().enumerate() {
                in_flight.begin(slot, &extent(first, blocks), is_write);
            }
            let (first, blocks, is_write) = asked;
            let expected = flying.iter().any(|&(other, others, other_writes)| {
                (is_write || other_writes)
                    && (first..first + u64::from(blocks))
                        .any(|block| (other..other + u64::from(others)).contains(&block))
            });
            prop_assert_eq!(in_flight.conflicts(&extent(first, blocks), is_write), expected);
            for slot in 0..flying.len() {
                in_flight.end(slot);
            }
            prop_assert!(!in_flight.conflicts(&extent(first, blocks), is_write));
        }
    }
}
