//! What all queues of a dedup layer share: the logical map and the physical blocks, under one lock.
//!
//! The lock is held for the bookkeeping of one request at a time, never across I/O or an await. Here is everything that
//! must happen in one step: a request finds all its blocks, or maps them all, or none.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Range;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use rotproof_block::ContentHash;

use super::blocks::{Block, Blocks, Found, State};
use super::logical_map::LogicalMap;

/// Logical blocks that are unmapped in one go: a large discard keeps the others waiting no longer than a large write.
const UNMAPPED_AT_ONCE: u64 = 1024;

/// Logical blocks in a row whose physical blocks are in a row too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first physical block; `None` where nothing is mapped.
    pub(super) physical: Option<Block>,
    /// How many there are.
    pub(super) blocks: u32,
}

/// One block of a write on its way into the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// What it is to hold.
    pub(super) hash: ContentHash,
    /// How far it is.
    pub(super) step: Step,
    /// A block with this hash that holds something else.
    pub(super) not: Option<Block>,
}

/// How far a block of a write is. All but the first have a reference to the physical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Has no physical block yet.
    Wanted,
    /// Has a new one, which this request must write.
    Reserved(Block),
    /// This request is writing it.
    InFlight(Block),
    /// Another request, or another block of this one, is writing it.
    Awaited(Block),
    /// Somebody's block with the same hash, which is still to be compared.
    Unverified(Block),
    /// Ready to be mapped.
    Held(Block),
}

/// The first or last block of a request that covers only a part of it: what it is mapped to when the rest is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// Which slot of the request.
    pub(super) slot: usize,
    /// The block that the rest comes from. Referred to, so that it cannot be freed and come back with other content.
    pub(super) base: Option<Block>,
}

/// The shared state of a dedup layer.
pub(super) struct Store {
    tables: Mutex<Tables>,
    /// Whether equal hashes are not enough.
    verify: bool,
}

struct Tables {
    map: LogicalMap,
    blocks: Blocks,
    /// Who waits for blocks that are being written.
    waiting: HashMap<Block, Vec<Waker>>,
}

impl Store {
    pub(super) fn new(logical_blocks: u32, physical_blocks: u32, verify: bool) -> Self {
        let tables = Tables {
            map: LogicalMap::new(logical_blocks),
            blocks: Blocks::new(physical_blocks),
            waiting: HashMap::new(),
        };
        Self { tables: Mutex::new(tables), verify }
    }

    /// Logical blocks that are mapped, and physical blocks in use.
    pub(super) fn usage(&self) -> (u64, u64) {
        let tables = self.tables.lock();
        (tables.map.mapped(), tables.blocks.used())
    }

    /// Finds where logical blocks lie and refers to every physical block of theirs; [`Store::unpin`] ends that.
    pub(super) fn pin(&self, logical: Range<u64>, runs: &mut Vec<Run>) {
        let Tables { map, blocks, .. } = &mut *self.tables.lock();
        for logical in logical {
            let physical = map.get(logical);
            if let Some(block) = physical {
                blocks.refer(block);
            }
            match runs.last_mut() {
                Some(run) if run.physical.map(|first| first + run.blocks) == physical => run.blocks += 1,
                _ => runs.push(Run { physical, blocks: 1 }),
            }
        }
    }

    /// Ends what [`Store::pin`] began.
    pub(super) fn unpin(&self, runs: &[Run]) {
        let blocks = &mut self.tables.lock().blocks;
        for run in runs {
            if let Some(first) = run.physical {
                (first..first + run.blocks).for_each(|block| blocks.release(block));
            }
        }
    }

    /// Refers to the block that a logical one is mapped to; [`Store::release`] ends that.
    pub(super) fn base(&self, logical: u64) -> Option<Block> {
        let Tables { map, blocks, .. } = &mut *self.tables.lock();
        let block = map.get(logical)?;
        blocks.refer(block);
        Some(block)
    }

    /// Whether a logical block is mapped.
    pub(super) fn is_mapped(&self, logical: u64) -> bool {
        self.tables.lock().map.get(logical).is_some()
    }

    /// Gives up one reference.
    pub(super) fn release(&self, block: Block) {
        self.tables.lock().blocks.release(block);
    }

    /// Finds a physical block for every slot that wants one. False if some still do because none is free.
    pub(super) fn reserve(&self, slots: &mut [Slot]) -> bool {
        let blocks = &mut self.tables.lock().blocks;
        for slot in slots.iter_mut().filter(|slot| slot.step == Step::Wanted) {
            slot.step = match blocks.find(slot.hash, slot.not) {
                Some(Found::New(block)) => Step::Reserved(block),
                Some(Found::Writing(block)) => Step::Awaited(block),
                Some(Found::Stored(block)) => self.shared(block),
                None => return false,
            };
        }
        true
    }

    /// The step of a slot whose content is, by its hash, in `block`.
    pub(super) fn shared(&self, block: Block) -> Step {
        if self.verify { Step::Unverified(block) } else { Step::Held(block) }
    }

    /// Ends the writing of blocks, and wakes who waits for them.
    pub(super) fn settle(&self, blocks: impl Iterator<Item = Block>, state: State) {
        let mut woken: Vec<Waker> = Vec::new();
        {
            let mut tables = self.tables.lock();
            for block in blocks {
                tables.blocks.settle(block, state);
                if !tables.waiting.is_empty()
                    && let Some(wakers) = tables.waiting.remove(&block)
                {
                    woken.extend(wakers);
                }
            }
        }
        // A waker may run anything, so not under the lock.
        woken.into_iter().for_each(Waker::wake);
    }

    /// Waits until a block that somebody is writing is settled; whether it holds its content then. The caller has a
    /// reference to it.
    pub(super) async fn settled(&self, block: Block) -> bool {
        poll_fn(|task| {
            let mut tables = self.tables.lock();
            match tables.blocks.state(block) {
                State::Stored => Poll::Ready(true),
                State::Void(_) => Poll::Ready(false),
                State::Writing => {
                    let wakers = tables.waiting.entry(block).or_default();
                    if !wakers.iter().any(|waker| waker.will_wake(task.waker())) {
                        wakers.push(task.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Maps the logical blocks from `first` on to the blocks that the slots hold, which takes over their references.
    /// False, and nothing is done, if an edge was mapped elsewhere since its rest was read.
    ///
    /// # Panics
    /// If a slot does not hold its block yet.
    pub(super) fn commit(&self, first: u64, slots: &mut Vec<Slot>, edges: &[Edge]) -> bool {
        let Tables { map, blocks, .. } = &mut *self.tables.lock();
        if !edges.iter().all(|edge| map.get(first + edge.slot as u64) == edge.base) {
            return false;
        }
        for (logical, slot) in (first..).zip(slots.drain(..)) {
            let Step::Held(block) = slot.step else { unreachable!("{slot:?} is not ready") };
            if let Some(before) = map.set(logical, block) {
                blocks.release(before);
            }
        }
        true
    }

    /// Whether a logical block is still mapped to what an edge was read from.
    pub(super) fn is_current(&self, first: u64, edge: &Edge) -> bool {
        self.tables.lock().map.get(first + edge.slot as u64) == edge.base
    }

    /// Gives up the content of logical blocks.
    pub(super) fn unmap(&self, logical: Range<u64>) {
        let mut start = logical.start;
        while start < logical.end {
            let end = logical.end.min(start + UNMAPPED_AT_ONCE);
            let Tables { map, blocks, .. } = &mut *self.tables.lock();
            map.clear(start..end, |block| blocks.release(block));
            start = end;
        }
    }
}
