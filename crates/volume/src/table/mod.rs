//! A table of numbers, one for each block of a device, kept on the device itself: checksums, or places.
//!
//! A change is in memory at once, in the log with the next flush, in its page with the next checkpoint. Every part is on
//! the medium twice and carries a sum, its identity and its place, so that what was lost, torn, misplaced or has rotted is
//! known and taken from the other. `docs/format-volume.md` has the format.

mod doubt;
mod layout;
mod load;
mod log;
mod memory;
mod open;
mod page;
mod scrub;
pub(crate) mod sealed;
mod slots;
mod state;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::turns::Turns;
use rotproof_block::{Context, Result};

use crate::io::Io;
use crate::parts::Part;
use doubt::Doubts;
pub(crate) use doubt::Legal;
pub(crate) use layout::{BLOCK_BYTES, Layout};
use memory::{DIRTY, Entries, PENDING};
use slots::Told;
pub(crate) use state::Owner;
use state::State;

/// How the data of a block and its entry stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The entry describes data in place. Until a flush the data may be old or new, and so may the entry: what is being
    /// changed is marked before.
    Beside,
    /// The entry says where the data are, so they have to be durable before it is.
    After,
}

/// What went on in a table that somebody may want to know.
#[derive(Debug, Default)]
pub(crate) struct TableCounts {
    /// Pages of which no copy was whole when they were needed.
    pub pages_lost: AtomicU64,
    /// Pages of which one copy was not whole, or old, and was made anew; and states that were lost, and made anew from the log.
    pub pages_mended: AtomicU64,
    /// Blocks of the log that were once durable and are not to be read any more.
    pub log_lost: AtomicU64,
    /// Requests to read or write metadata.
    pub requests: AtomicU64,
}

/// A granule in memory: whether it is marked on the medium, whether it was written since the last checkpoint, and how many
/// writes are under way in it.
const MARKED: u32 = 1;
const TOUCHED: u32 = 2;
const UNDER_WAY: u32 = 4;

pub(crate) struct Table {
    layout: Layout,
    order: Order,
    id: u128,
    entries: Entries,
    granules: Box<[AtomicU32]>,
    /// Pages with changes that are not in the log, each once.
    pending: Mutex<Vec<u64>>,
    /// Pages with changes that are not on the medium, each once.
    dirty: Mutex<Vec<u64>>,
    /// Blocks that were lost or found since the last append to the log.
    fates: Mutex<Vec<(u64, bool)>>,
    head: Mutex<Head>,
    has_lost: AtomicBool,
    /// Records of the log that are still to be applied to pages not loaded yet.
    replay: Mutex<BTreeMap<u64, Vec<Replayed>>>,
    doubts: Doubts,
    /// For what changes the medium: one at a time.
    turns: Arc<Turns>,
    /// For what brings pages into memory: one at a time.
    loads: Arc<Turns>,
    /// Pages in memory, at most this many clean ones.
    loaded: Mutex<Loaded>,
    cache_pages: usize,
    /// Flushes asked for, and those that are done.
    asked: AtomicU64,
    served: AtomicU64,
    pub counts: TableCounts,
    /// What has to be on the medium before what is in memory now.
    before: Option<Box<dyn Before>>,
}

/// What an owner writes before the changes of a table that belong to it become durable.
pub(crate) trait Before: Send + Sync {
    /// Writes all that was noted so far; the flush that follows makes it durable. How much there is then.
    fn write<'a>(
        &'a self,
        io: &'a Io,
        context: Context,
    ) -> Pin<Box<dyn Future<Output = Result<Witness>> + 'a>>;
}

/// How much of what the owner writes before was there when a part of the table was written. An older state of it that is whole is so
/// known to be too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Witness {
    /// What it is about, by a number of the owner.
    pub of: u32,
    /// How much of it there was at least.
    pub count: u32,
    /// Which time at least the owner's list was written.
    pub list: u32,
}

/// What is known of the medium.
#[derive(Debug)]
struct Head {
    state: State,
    /// Number of the next block of the log.
    next: u64,
    /// The last block that is known to be durable.
    durable: u64,
    /// No later block says of the last one that it was durable.
    is_unvouched: bool,
    /// The generation of the newest state that is whole in its slot.
    whole: u64,
    /// What the log is to say of states from now on.
    told: Told,
    /// What the state and the log said when they were read.
    found: Vec<Witness>,
}

/// A record of the log for one entry.
#[derive(Clone, Copy, Debug)]
struct Replayed {
    entry: u64,
    block: u64,
    value: u128,
}

/// Pages in memory, in the order in which they came, and where the search for one to give back goes on.
#[derive(Debug, Default)]
struct Loaded {
    pages: Vec<u64>,
    hand: usize,
}

/// Which part of a table these bytes are, wherever it lies.
pub(crate) fn part_of(bytes: &[u8]) -> Option<Part> {
    let block = BLOCK_BYTES as usize;
    if bytes.len() == block {
        let (table, number) = (sealed::read_u128(bytes, 8), sealed::read_u64(bytes, 24));
        if page::open(bytes, table, number).is_some() {
            return Some(Part::Page);
        }
        log::number_of(bytes, table)?;
        return Some(Part::Log(log::decode(bytes, 1, &(0..u64::MAX)).records.len()));
    }
    let place = (bytes.len() > block).then(|| sealed::read_u64(bytes, 40))?;
    State::decode(bytes, place).ok().flatten().map(|_| Part::State)
}

impl Table {
    /// Has `before` written before any change that is made from now on.
    pub(crate) fn set_before(&mut self, before: Box<dyn Before>) {
        self.before = Some(before);
    }

    /// How much of what is numbered `of` must be there, as the state and the log said when the table was opened.
    pub(crate) fn witnessed(&self, of: u32) -> u64 {
        let head = self.head.lock();
        head.found.iter().filter(|one| one.of == of).map(|one| one.count).max().unwrap_or(0).into()
    }

    /// Which time at least the owner's list was written, as they said.
    pub(crate) fn witnessed_list(&self) -> u32 {
        self.head.lock().found.iter().map(|one| one.list).max().unwrap_or(0)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The identity that the table was made with.
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    /// What the owner keeps in the state.
    pub(crate) fn owner(&self) -> Owner {
        self.head.lock().state.owner
    }

    /// An entry as it is in memory now. Zero is to be believed only while its page is held.
    pub(crate) fn get(&self, entry: u64) -> u128 {
        self.entries.get(entry)
    }

    /// Keeps pages in memory until they are released. False, and none kept, if one is not there.
    pub(crate) fn try_hold(&self, pages: Range<u64>) -> bool {
        for page in pages.clone() {
            if !self.entries.hold(page) {
                self.release(pages.start..page);
                return false;
            }
        }
        true
    }

    pub(crate) fn release(&self, pages: Range<u64>) {
        pages.for_each(|page| self.entries.release(page));
    }

    /// Whether a page could not be read since the table was opened.
    pub(crate) fn has_lost_pages(&self) -> bool {
        self.counts.pages_lost.load(Ordering::Relaxed) > 0
    }

    /// Whether a granule was ever used: if not, all its entries are zero.
    pub(crate) fn is_used(&self, granule: u64) -> bool {
        self.head.lock().state.used.has(granule)
    }

    /// Counts a write as under way in the granules of these pages. False, and not counted, if one has no mark.
    pub(crate) fn try_enter(&self, pages: &Range<u64>) -> bool {
        let granules = self.granules_of(pages);
        for granule in granules.clone() {
            let before = self.granules[granule as usize].fetch_add(UNDER_WAY, Ordering::SeqCst);
            if before & MARKED == 0 {
                (granules.start..=granule).for_each(|granule| self.leave_one(granule));
                return false;
            }
            if before & TOUCHED == 0 {
                self.granules[granule as usize].fetch_or(TOUCHED, Ordering::SeqCst);
            }
        }
        true
    }

    /// Ends what [`Table::try_enter`] began.
    pub(crate) fn leave(&self, pages: &Range<u64>) {
        self.granules_of(pages).for_each(|granule| self.leave_one(granule));
    }

    fn leave_one(&self, granule: u64) {
        self.granules[granule as usize].fetch_sub(UNDER_WAY, Ordering::SeqCst);
    }

    fn granules_of(&self, pages: &Range<u64>) -> Range<u64> {
        if pages.is_empty() {
            return 0..0;
        }
        self.layout.granule_of(pages.start)..self.layout.granule_of(pages.end - 1) + 1
    }

    /// Changes an entry whose page is held.
    pub(crate) fn set(&self, entry: u64, value: u128) {
        self.entries.put(entry, value);
        self.entries.note(entry);
        let (page, _) = self.layout.place(entry);
        let before = self.entries.raise(page, DIRTY | PENDING);
        if before & PENDING == 0 {
            self.pending.lock().push(page);
        }
        if before & DIRTY == 0 {
            self.dirty.lock().push(page);
        }
        self.doubts.settle(self.layout.granule_of(page), entry);
        if self.has_lost.load(Ordering::Relaxed) {
            self.set_lost(entry, false);
        }
    }

    /// Notes that no copy of a block is right, or that it has been written anew. It is remembered with the next flush.
    pub(crate) fn set_lost(&self, entry: u64, is_lost: bool) {
        let mut head = self.head.lock();
        let lost = &mut head.state.lost;
        let changed = if is_lost { lost.insert(entry) } else { lost.remove(&entry) };
        if changed {
            self.has_lost.store(!lost.is_empty(), Ordering::Relaxed);
            self.fates.lock().push((entry, is_lost));
        }
    }

    /// Whether a block is known to be lost.
    pub(crate) fn is_lost(&self, entry: u64) -> bool {
        self.has_lost.load(Ordering::Relaxed) && self.head.lock().state.lost.contains(&entry)
    }

    /// All blocks that are known to be lost.
    pub(crate) fn lost(&self) -> BTreeSet<u64> {
        self.head.lock().state.lost.clone()
    }

    /// What a block may hold, beside that which its entry says: see [`Doubts`].
    pub(crate) fn legal(&self, entry: u64) -> Legal {
        let granule = self.layout.granule_of(self.layout.place(entry).0);
        self.doubts.legal(granule, entry)
    }

    /// A write of this block failed, and may have taken effect or not: both are right from now on.
    pub(crate) fn also_legal(&self, entry: u64, value: u128) {
        self.doubts.add(entry, value);
    }

    /// A block was seen to be right: there is no doubt about it any more.
    pub(crate) fn settle(&self, entry: u64) {
        self.doubts.settle(self.layout.granule_of(self.layout.place(entry).0), entry);
    }

    /// Whether a crash has left something of these pages in doubt.
    pub(crate) fn has_doubt(&self, pages: &Range<u64>) -> bool {
        self.granules_of(pages).any(|granule| self.doubts.has(granule))
    }

    /// Ranges of entries that a crash has left in doubt, in order.
    pub(crate) fn in_doubt(&self) -> Vec<Range<u64>> {
        let range = |granule: u64| {
            let pages = self.layout.pages_in(granule);
            self.layout.entries_of(pages.start).start..self.layout.entries_of(pages.end - 1).end
        };
        self.doubts.granules().into_iter().map(range).collect()
    }

    /// All blocks of the granules that begin in this range of entries have been looked at.
    pub(crate) fn end_doubt(&self, entries: &Range<u64>) {
        let pages = self.layout.pages_of(entries);
        self.granules_of(&pages).for_each(|granule| self.doubts.end(granule));
    }
}
