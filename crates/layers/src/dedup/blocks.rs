//! The physical blocks of a dedup layer: what each holds, how many refer to it, which are free.
//!
//! Plain bookkeeping, without locks or I/O. A reference is held by each logical block that is mapped to a physical one,
//! and by each request under way that reads it or is about to map it. So a block is never given away while anybody may
//! still look at it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use rotproof_block::ContentHash;

/// Number of a physical block.
pub(super) type Block = u32;

/// What a physical block in use is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its content is on its way; whoever wants to share it waits.
    Writing,
    /// Holds its content.
    Stored,
    /// Never got its content. Nobody finds it any more, and it goes as told once nobody refers to it.
    Void(Afterwards),
}

/// What becomes of a block that never got its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// Nothing was ever written to it: free as before.
    Free,
    /// Writing it failed: taken again when no other is left. First fit would hand out the same bad block for ever.
    LastResort,
    /// Nobody knows when its write will land: never taken again.
    Gone,
}

/// A block that holds, or is to hold, what was asked for. The asker has a reference to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there.
    Stored(Block),
    /// Another request is writing it.
    Writing(Block),
    /// Nobody has it: the asker must write it, and then tell ([`Blocks::settle`]).
    New(Block),
}

struct Entry {
    hash: ContentHash,
    references: u64,
    state: State,
}

/// All physical blocks, and the index from content to block.
pub(super) struct Blocks {
    capacity: u32,
    /// Up to the highest block that was ever in use.
    entries: Vec<Entry>,
    /// Free blocks below that, lowest first.
    free: BinaryHeap<Reverse<Block>>,
    last_resort: VecDeque<Block>,
    index: HashMap<ContentHash, Block, BuildHasherDefault<AlreadyHashed>>,
    used: u64,
}

impl Blocks {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity,
            entries: Vec::new(),
            free: BinaryHeap::new(),
            last_resort: VecDeque::new(),
            index: HashMap::default(),
            used: 0,
        }
    }

    /// How many are referred to.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn state(&self, block: Block) -> State {
        self.entries[block as usize].state
    }

    /// The block for a content, with a reference for the asker; `None` if it is new and no block is free. A block that
    /// the asker knows to hold something else is passed over, and what is found next takes its place in the index.
    pub(super) fn find(&mut self, hash: ContentHash, not: Option<Block>) -> Option<Found> {
        if let Some(&block) = self.index.get(&hash)
            && not != Some(block)
        {
            self.refer(block);
            return Some(match self.state(block) {
                State::Writing => Found::Writing(block),
                State::Stored | State::Void(_) => Found::Stored(block),
            });
        }
        let block = self.take()?;
        self.entries[block as usize] = Entry { hash, references: 1, state: State::Writing };
        self.index.insert(hash, block);
        self.used += 1;
        Some(Found::New(block))
    }

    /// The lowest free block.
    fn take(&mut self) -> Option<Block> {
        if let Some(Reverse(block)) = self.free.pop() {
            return Some(block);
        }
        let next = self.entries.len();
        if next < self.capacity as usize {
            self.entries.push(Entry { hash: ContentHash(0), references: 0, state: State::Stored });
            return Some(next as Block);
        }
        self.last_resort.pop_front()
    }

    /// One more reference to a block that has one.
    pub(super) fn refer(&mut self, block: Block) {
        let entry = &mut self.entries[block as usize];
        debug_assert!(entry.references > 0, "block {block} is free");
        entry.references += 1;
    }

    /// One reference less.
    pub(super) fn release(&mut self, block: Block) {
        let entry = &mut self.entries[block as usize];
        debug_assert!(entry.references > 0, "block {block} is free");
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        self.used -= 1;
        match entry.state {
            State::Void(Afterwards::LastResort) => self.last_resort.push_back(block),
            State::Void(Afterwards::Gone) => {}
            State::Stored | State::Writing | State::Void(Afterwards::Free) => {
                self.forget(block);
                self.free.push(Reverse(block));
            }
        }
    }

    /// Ends the writing of a block.
    pub(super) fn settle(&mut self, block: Block, state: State) {
        debug_assert_eq!(self.state(block), State::Writing, "block {block}");
        self.entries[block as usize].state = state;
        if state != State::Stored {
            self.forget(block);
        }
    }

    /// Takes a block out of the index, where another may have taken its place already.
    fn forget(&mut self, block: Block) {
        let hash = self.entries[block as usize].hash;
        if self.index.get(&hash) == Some(&block) {
            self.index.remove(&hash);
        }
    }

    /// References to one block; 0 if it is free.
    #[cfg(test)]
    fn references(&self, block: Block) -> u64 {
        self.entries.get(block as usize).map_or(0, |entry| entry.references)
    }
}

/// A content hash needs no second hashing.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(number: u128) -> ContentHash {
        ContentHash(number)
    }

    fn stored(blocks: &mut Blocks, number: u128) -> Block {
        let found = blocks.find(hash(number), None);
        let Some(Found::New(block)) = found else { panic!("{number}: {found:?}") };
        blocks.settle(block, State::Stored);
        block
    }

    #[test]
    fn contents_share_a_block_and_new_ones_take_the_lowest_that_is_free() {
        let mut blocks = Blocks::new(4);
        assert_eq!((0..3).map(|number| stored(&mut blocks, number)).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(blocks.find(hash(1), None), Some(Found::Stored(1)));
        blocks.release(2);
        blocks.release(0);
        blocks.release(1);
        assert_eq!(blocks.references(1), 1, "one of two referrers is left");
        assert_eq!([stored(&mut blocks, 10), stored(&mut blocks, 11), stored(&mut blocks, 12)], [0, 2, 3]);
        assert_eq!(blocks.find(hash(13), None), None, "all are in use");
        assert_eq!(blocks.used(), 4);
    }

    #[test]
    fn a_block_whose_write_failed_is_taken_last_and_one_whose_write_may_still_land_never() {
        let mut blocks = Blocks::new(3);
        for (number, afterwards) in [(0, Afterwards::LastResort), (1, Afterwards::Gone)] {
            let Some(Found::New(block)) = blocks.find(hash(number), None) else { panic!("there is room") };
            assert_eq!(blocks.find(hash(number), None), Some(Found::Writing(block)));
            blocks.settle(block, State::Void(afterwards));
            blocks.release(block);
            blocks.release(block);
        }
        assert_eq!([stored(&mut blocks, 5), stored(&mut blocks, 6)], [2, 0]);
        assert_eq!(blocks.find(hash(7), None), None);
    }

    #[test]
    fn a_block_known_to_hold_something_else_gives_way_in_the_index() {
        let mut blocks = Blocks::new(3);
        let old = stored(&mut blocks, 1);
        let Some(Found::New(new)) = blocks.find(hash(1), Some(old)) else { panic!("passed over") };
        blocks.settle(new, State::Stored);
        blocks.release(old);
        assert_eq!(blocks.find(hash(1), None), Some(Found::Stored(new)), "freeing the old one hides nothing");
    }

    proptest! {
        /// Against the plainest account there is: a list of who refers to what.
        #[test]
        fn references_and_free_blocks_add_up(steps in prop::collection::vec((0u8..3, 0u128..12), 0..300)) {
            let mut blocks = Blocks::new(8);
            let mut held: Vec<(u128, Block)> = Vec::new();
            for (step, number) in steps {
                if step == 0 && !held.is_empty() {
                    let (_, block) = held.swap_remove(number as usize % held.len());
                    blocks.release(block);
                } else {
                    let sharer = held.iter().find(|(content, _)| *content == number).map(|(_, block)| *block);
                    match blocks.find(hash(number), None) {
                        Some(Found::Stored(block)) => {
                            prop_assert_eq!(Some(block), sharer);
                            held.push((number, block));
                        }
                        Some(Found::New(block)) => {
                            prop_assert_eq!(sharer, None);
                            let lowest = (0..8).find(|block| held.iter().all(|(_, used)| used != block));
                            prop_assert_eq!(Some(block), lowest);
                            blocks.settle(block, State::Stored);
                            held.push((number, block));
                        }
                        Some(Found::Writing(block)) => prop_assert!(false, "{} was settled", block),
                        None => prop_assert_eq!(blocks.used(), 8),
                    }
                }
                for block in 0..8 {
                    let referrers = held.iter().filter(|(_, used)| *used == block).count() as u64;
                    prop_assert_eq!(blocks.references(block), referrers);
                }
            }
        }
    }
}
