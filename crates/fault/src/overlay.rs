//! What is wrong with each block of the device: corruptions over the pristine data, places that stay bad, and damage that
//! a later write may repair.
//!
//! Nearly every request meets a device without any of it, so the question "is there anything in this range" costs
//! one load then, and a few counters otherwise. The rest is behind one lock, taken only by requests that touch
//! something.
//!
//! A read that overlaps a write in flight may see either version with either version's corruptions, as on any device: the
//! contract orders them by completion only.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rotproof_block::hash::mix;

use crate::block_state::BlockState;

/// At most so many counters (256 KiB).
const CHUNKS_MAX: u64 = 1 << 16;
/// Of a request for more blocks than this, the states are looked through instead of the blocks.
const LOOKUPS_MAX: u64 = 4096;
/// At least so many blocks per counter (64 KiB of the device), so that a usual request meets one or two.
const CHUNK_SHIFT_MIN: u32 = 4;

/// Blocks of one page.
const PAGE_BLOCKS: u64 = 64;

/// The states of all blocks that have one, by page. Where many blocks of a page have a state, one more takes what it holds and no
/// room in the table; and the table of a million of them does not double all at once.
#[derive(Debug, Default)]
struct StateMap {
    pages: HashMap<u64, Page, BuildHasherDefault<BlockHasher>>,
}

/// Neighbouring blocks.
#[derive(Debug, Default)]
struct Page {
    /// Which of them have a state, a bit each.
    present: u64,
    /// Their states, in order.
    states: Vec<BlockState>,
}

impl Page {
    fn bit(block: u64) -> u64 {
        1 << (block % PAGE_BLOCKS)
    }

    /// Where the state of the block stands, or would.
    fn position(&self, block: u64) -> usize {
        (self.present & (Self::bit(block) - 1)).count_ones() as usize
    }

    fn get(&self, block: u64) -> Option<&BlockState> {
        (self.present & Self::bit(block) != 0).then(|| &self.states[self.position(block)])
    }

    fn insert(&mut self, block: u64, state: BlockState) {
        if self.states.len() == self.states.capacity() {
            // Not twice as many: that would be half of it for nothing.
            let to_full = PAGE_BLOCKS as usize - self.states.len();
            self.states.reserve_exact((1 + self.states.len() / 4).min(to_full));
        }
        self.states.insert(self.position(block), state);
        self.present |= Self::bit(block);
    }

    fn remove(&mut self, block: u64) {
        self.states.remove(self.position(block));
        self.present &= !Self::bit(block);
    }

    /// The blocks with a state of the page with this number, in order.
    fn blocks(&self, number: u64) -> impl Iterator<Item = u64> + use<> {
        let present = self.present;
        (0..PAGE_BLOCKS).filter(move |bit| present >> bit & 1 != 0).map(move |bit| number * PAGE_BLOCKS + bit)
    }
}

impl StateMap {
    fn get(&self, block: u64) -> Option<&BlockState> {
        self.pages.get(&(block / PAGE_BLOCKS))?.get(block)
    }

    fn blocks(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().flat_map(|(&number, page)| page.blocks(number))
    }

    /// Changes the state of `block`, which may be empty before and after: whether there was one before, and is one now.
    fn update<T>(&mut self, block: u64, change: impl FnOnce(&mut BlockState) -> T) -> (T, bool, bool) {
        let number = block / PAGE_BLOCKS;
        let Some(page) = self.pages.get_mut(&number) else {
            let mut state = BlockState::default();
            let result = change(&mut state);
            let is_there = !state.is_empty();
            if is_there {
                self.pages.entry(number).or_default().insert(block, state);
            }
            return (result, false, is_there);
        };
        if page.present & Page::bit(block) == 0 {
            let mut state = BlockState::default();
            let result = change(&mut state);
            let is_there = !state.is_empty();
            if is_there {
                page.insert(block, state);
            }
            return (result, false, is_there);
        }
        let position = page.position(block);
        let result = change(&mut page.states[position]);
        let is_there = !page.states[position].is_empty();
        if !is_there {
            page.remove(block);
            if page.present == 0 {
                self.pages.remove(&number);
            }
        }
        (result, true, is_there)
    }
}

#[derive(Debug)]
pub(crate) struct Overlay {
    states: Mutex<StateMap>,
    /// How many blocks have a state.
    count: AtomicUsize,
    /// How many of them are in each chunk of the device.
    chunks: Box<[AtomicU32]>,
    chunk_shift: u32,
}

impl Overlay {
    pub(crate) fn new(device_blocks: u64) -> Self {
        let mut chunk_shift = CHUNK_SHIFT_MIN;
        while device_blocks >> chunk_shift >= CHUNKS_MAX {
            chunk_shift += 1;
        }
        let chunks = (0..=device_blocks >> chunk_shift).map(|_| AtomicU32::new(0)).collect();
        Self { states: Mutex::default(), count: AtomicUsize::new(0), chunks, chunk_shift }
    }

    /// Whether a block of `blocks` may have a state; false is certain.
    ///
    /// Relaxed loads are enough: what must be seen was stored before an earlier request completed, and whoever
    /// relies on that completion has synchronised with it.
    pub(crate) fn touches(&self, blocks: &Range<u64>) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 || blocks.is_empty() {
            return false;
        }
        let first = (blocks.start >> self.chunk_shift) as usize;
        let last = ((blocks.end - 1) >> self.chunk_shift) as usize;
        let last = last.min(self.chunks.len() - 1);
        self.chunks
            .get(first..=last)
            .is_some_and(|chunks| chunks.iter().any(|count| count.load(Ordering::Relaxed) != 0))
    }

    pub(crate) fn lock(&self) -> States<'_> {
        States { overlay: self, states: self.states.lock() }
    }

    /// Changes the state of every block that has one. Holds up the requests that touch one as long as that takes.
    pub(crate) fn change_all(&self, change: impl Fn(u64, &mut BlockState)) {
        let mut states = self.lock();
        let blocks: Vec<u64> = states.states.blocks().collect();
        for block in blocks {
            states.update(block, |state| change(block, state));
        }
    }
}

/// The states of all blocks, locked.
pub(crate) struct States<'a> {
    overlay: &'a Overlay,
    states: MutexGuard<'a, StateMap>,
}

impl States<'_> {
    /// The states in `blocks`, in order.
    pub(crate) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, &BlockState)> {
        let is_large = blocks.end.saturating_sub(blocks.start) > LOOKUPS_MAX;
        let mut found = Vec::new();
        if is_large {
            found.extend(self.states.blocks().filter(|block| blocks.contains(block)));
            found.sort_unstable();
        }
        let few = if is_large { 0..0 } else { blocks };
        let blocks = few.chain(found);
        blocks.filter_map(|block| Some((block, self.states.get(block)?)))
    }

    /// Changes the state of `block`, which may be empty before and after.
    pub(crate) fn update<T>(&mut self, block: u64, change: impl FnOnce(&mut BlockState) -> T) -> T {
        let (result, was_there, is_there) = self.states.update(block, change);
        let last = self.overlay.chunks.len() - 1;
        let chunk = &self.overlay.chunks[((block >> self.overlay.chunk_shift) as usize).min(last)];
        if is_there && !was_there {
            chunk.fetch_add(1, Ordering::Relaxed);
            self.overlay.count.fetch_add(1, Ordering::Relaxed);
        } else if was_there && !is_there {
            chunk.fetch_sub(1, Ordering::Relaxed);
            self.overlay.count.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }
}

/// Spreads block numbers, which only this program chooses.
#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0, 0, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::Corruption;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_block_is_noticed_as_long_as_something_is_wrong_with_it() {
        let overlay = Overlay::new(1 << 30);
        assert!(!overlay.touches(&(0..1 << 30)));
        let near_the_end = (1 << 30) - 1;
        for block in [5, 6, near_the_end] {
            overlay.lock().update(block, |state| state.corruptions.push(Corruption::fill(0..4096, 0)));
        }
        assert!(overlay.touches(&(5..6)));
        assert!(overlay.touches(&(0..near_the_end)));
        assert!(overlay.touches(&(near_the_end..near_the_end + 1)));
        assert!(!overlay.touches(&(1 << 29..(1 << 29) + 100)));
        let found: Vec<u64> = overlay.lock().within(0..1 << 30).map(|(block, _)| block).collect();
        assert_eq!(found, [5, 6, near_the_end]);
        let found: Vec<u64> = overlay.lock().within(0..100).map(|(block, _)| block).collect();
        assert_eq!(found, [5, 6]);
        for block in [5, 6, near_the_end] {
            assert!(overlay.touches(&(block..block + 1)));
            overlay.lock().update(block, |state| state.overwrite(&(0..4096)));
        }
        assert!(!overlay.touches(&(0..1 << 30)));
        assert_eq!(overlay.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_update_without_change_leaves_nothing() {
        let overlay = Overlay::new(100);
        overlay.lock().update(7, |state| assert!(state.is_empty()));
        assert!(!overlay.touches(&(0..100)));
    }

    proptest! {
        /// Against a plain map from block to what it reads as.
        #[test]
        fn each_block_has_its_own_state(
            steps in prop::collection::vec((0u64..300, prop::option::of(any::<u8>())), 0..200), start in 0u64..300, count in 0u64..300
        ) {
            let (overlay, mut plain) = (Overlay::new(1 << 20), BTreeMap::new());
            for (block, byte) in steps {
                overlay.lock().update(block, |state| {
                    state.overwrite(&(0..4096));
                    byte.into_iter().for_each(|byte| state.corruptions.push(Corruption::fill(0..4096, byte)));
                });
                match byte {
                    Some(byte) => drop(plain.insert(block, byte)),
                    None => drop(plain.remove(&block)),
                }
            }
            let states = overlay.lock();
            let shown = states.within(start..start + count).map(|(block, state)| {
                let mut bytes = [0xa5];
                state.corruptions.iter().for_each(|corruption| corruption.apply(0, &mut bytes));
                (block, bytes[0])
            });
            prop_assert!(shown.eq(plain.range(start..start + count).map(|(&block, &byte)| (block, byte))));
            prop_assert_eq!(overlay.count.load(Ordering::Relaxed), plain.len());
        }
    }
}
