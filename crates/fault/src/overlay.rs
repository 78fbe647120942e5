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
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rotproof_block::ContentHash;
use rotproof_block::hash::mix;

use crate::BLOCK_BYTES;
use crate::active_rule::ActiveRule;
use crate::corruption::Corruption;
use crate::effect::Effect;
use crate::index::Index;
use crate::record_list::RecordList;

/// At most so many counters (256 KiB).
const CHUNKS_MAX: u64 = 1 << 16;
/// Of a request for more blocks than this, the states are looked through instead of the blocks.
const LOOKUPS_MAX: u64 = 4096;
/// At least so many blocks per counter (64 KiB of the device), so that a usual request meets one or two.
const CHUNK_SHIFT_MIN: u32 = 4;

/// By block. Not a tree: where every request meets a fault, its nodes are rarely in the cache.
type StateMap = HashMap<u64, BlockState, BuildHasherDefault<BlockHasher>>;

#[derive(Debug)]
pub(crate) struct Overlay {
    states: Mutex<StateMap>,
    /// How many blocks have a state.
    count: AtomicUsize,
    /// How many of them are in each chunk of the device.
    chunks: Box<[AtomicU32]>,
    chunk_shift: u32,
}

/// Everything that is wrong with one block.
#[derive(Debug, Default)]
pub(crate) struct BlockState {
    /// Deviations until the bytes are overwritten, in the order in which they act.
    pub(crate) corruptions: Vec<Corruption>,
    /// What sticky rules have left, in the order in which they act, after the corruptions.
    pub(crate) sticky: Vec<StickyFault>,
    /// What the last write has replaced, where a stale read may want it.
    pub(crate) previous: Option<Corruption>,
    /// Injections whose damage to this block is still there, or was seen by a reader who may put it right.
    pub(crate) unrepaired: Vec<Unrepaired>,
}

/// A block that has been bad since a sticky rule hit it.
#[derive(Debug)]
pub(crate) struct StickyFault {
    pub(crate) rule: Arc<ActiveRule>,
    /// Which of the rule's aims the block is.
    pub(crate) aims: Vec<u32>,
    pub(crate) kind: StickyKind,
}

#[derive(Debug)]
pub(crate) enum StickyKind {
    /// Data read from here is wrong.
    Wrong {
        corruption: Corruption,
        /// The rule's effect, with what chance decided filled in.
        effect: Effect,
        /// The content that it last distorted for the ledger: one record for each content is enough.
        truth_recorded: Option<ContentHash>,
        /// The record of that.
        record: u64,
        /// Whether the ledger knows that somebody has read it.
        is_served: bool,
    },
    /// Requests that touch this are hit in the same way again.
    Again,
    /// Requests that touch this fail or are slow.
    Request,
}

/// Injections of damage to one content of a block.
#[derive(Clone, Debug)]
pub(crate) struct Unrepaired {
    pub(crate) records: RecordList,
    pub(crate) truth: ContentHash,
    /// What was stored wrong has not been read yet, as far as the ledger knows.
    pub(crate) is_unread: bool,
    /// Other bytes were written beside what is wrong, so that the truth will not come back; whether it is read still matters.
    pub(crate) is_beyond_repair: bool,
}

impl BlockState {
    fn is_empty(&self) -> bool {
        self.corruptions.is_empty()
            && self.sticky.is_empty()
            && self.previous.is_none()
            && self.unrepaired.is_empty()
    }

    /// Notes the record of damage; one like those before goes with them.
    pub(crate) fn add_unrepaired(
        &mut self,
        record: u64,
        truth: ContentHash,
        (is_unread, is_beyond_repair): (bool, bool),
    ) {
        let is_same = |last: &&mut Unrepaired| {
            (last.truth, last.is_unread, last.is_beyond_repair) == (truth, is_unread, is_beyond_repair)
        };
        if let Some(last) = self.unrepaired.last_mut().filter(is_same) {
            last.records.push(record);
            return;
        }
        let mut records = RecordList::default();
        records.push(record);
        self.unrepaired.push(Unrepaired { records, truth, is_unread, is_beyond_repair });
    }

    pub(crate) fn has_place_of(&self, rule: &ActiveRule) -> bool {
        self.sticky.iter().any(|place| place.rule.index == rule.index)
    }

    /// Whether that rule already distorts what is read from here.
    pub(crate) fn is_distorted_by(&self, rule: &ActiveRule) -> bool {
        self.sticky
            .iter()
            .any(|place| place.rule.index == rule.index && matches!(place.kind, StickyKind::Wrong { .. }))
    }

    /// Whether one of the rules at work distorts what is read from here, always.
    pub(crate) fn has_wrong_place(&self, rules: &Index) -> bool {
        self.sticky
            .iter()
            .any(|place| matches!(place.kind, StickyKind::Wrong { .. }) && rules.acts(&place.rule))
    }

    /// Whether one of these rules distorts, always, a content that the ledger does not have yet.
    pub(crate) fn shows_new(&self, rules: &Index, truth: Option<ContentHash>) -> bool {
        self.sticky.iter().any(|place| {
            matches!(&place.kind, StickyKind::Wrong { truth_recorded, .. } if *truth_recorded != truth)
                && rules.acts(&place.rule)
        })
    }

    /// Forgets the corruptions about bytes that have been overwritten.
    pub(crate) fn overwrite(&mut self, part: &Range<usize>) {
        if !self.corruptions.is_empty() {
            let corruptions = std::mem::take(&mut self.corruptions);
            self.corruptions =
                corruptions.into_iter().flat_map(|corruption| corruption.without(part)).flatten().collect();
        }
    }

    /// Forgets bad places whose rules, being at work, let a rewrite heal them. Gives the records of what was wrong there.
    pub(crate) fn remap(&mut self, rules: &Index) -> Vec<u64> {
        let mut gone = Vec::new();
        self.sticky.retain(|place| {
            let stays = !rules.acts(&place.rule) || !place.rule.remaps();
            if let (false, StickyKind::Wrong { record, .. }) = (stays, &place.kind) {
                gone.push(*record);
            }
            stays
        });
        gone
    }

    /// Whether a whole block of `length` bytes reads as nothing but zeros under these rules, whatever it holds; false if
    /// that takes a look at the bytes.
    pub(crate) fn reads_as_zeros(&self, rules: &Index, length: usize) -> bool {
        length as u64 == BLOCK_BYTES
            && !self.has_wrong_place(rules)
            && self.corruptions.last().is_some_and(|corruption| corruption.zeroes(&(0..length)))
    }

    /// Makes `bytes`, which begin at byte `start` of the block, look as the block reads under these rules.
    pub(crate) fn distort(&self, rules: &Index, start: usize, bytes: &mut [u8]) {
        for corruption in &self.corruptions {
            corruption.apply(start, bytes);
        }
        for place in self.sticky.iter().filter(|place| rules.acts(&place.rule)) {
            if let StickyKind::Wrong { corruption, .. } = &place.kind {
                corruption.apply(start, bytes);
            }
        }
    }
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
        let blocks: Vec<u64> = states.states.keys().copied().collect();
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
            found.extend(self.states.keys().copied().filter(|block| blocks.contains(block)));
            found.sort_unstable();
        }
        let few = if is_large { 0..0 } else { blocks };
        let blocks = few.chain(found);
        blocks.filter_map(|block| Some((block, self.states.get(&block)?)))
    }

    /// Changes the state of `block`, which may be empty before and after.
    pub(crate) fn update<T>(&mut self, block: u64, change: impl FnOnce(&mut BlockState) -> T) -> T {
        let mut is_new = false;
        let state = self.states.entry(block).or_insert_with(|| {
            is_new = true;
            BlockState::default()
        });
        let result = change(state);
        let is_empty = state.is_empty();
        if is_empty {
            self.states.remove(&block);
        }
        let last = self.overlay.chunks.len() - 1;
        let chunk = &self.overlay.chunks[((block >> self.overlay.chunk_shift) as usize).min(last)];
        if is_new && !is_empty {
            chunk.fetch_add(1, Ordering::Relaxed);
            self.overlay.count.fetch_add(1, Ordering::Relaxed);
        } else if !is_new && is_empty {
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
}
