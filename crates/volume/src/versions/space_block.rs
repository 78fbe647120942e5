//! Where blocks are: what the map says, who else holds a place, what is free again and when.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::{Context, Error, ErrorKind, Result};

use super::history::{EXTENT, History, Identity, PAIRS, Written};
use super::{Kept, Shared, State, Version};
use crate::io::Io;
use crate::table::{BLOCK_BYTES, Before, Witness};

/// An entry of the map for a block without content.
pub(super) const NEVER: u128 = 0;
/// An entry whose page was lost.
const UNKNOWN: u128 = 1;
/// What is added to a place to make an entry.
const FIRST: u128 = 2;

/// Blocks for histories that are kept back, so that a flush has room for what is noted meanwhile.
const SPARE_BLOCKS: u64 = 48;

/// A block of the space, plus one; 0 for a block without content. As histories have it.
pub(super) type SpaceBlock = u32;
/// In a history: the block had a content, and the map of where was lost.
pub(super) const LOST: SpaceBlock = u32::MAX;

/// Whether it is a place.
pub(super) fn is_place(place: SpaceBlock) -> bool {
    place != 0 && place != LOST
}

/// The place that an entry of the map says.
///
/// Fails with [`ErrorKind::Medium`] if that was lost.
pub(super) fn place_of(entry: u128) -> Result<SpaceBlock> {
    match entry {
        NEVER => Ok(0),
        UNKNOWN => Err(Error::new(ErrorKind::Medium, "the map of this block was lost")),
        // Entries of the map have four bytes.
        _ => Ok((entry - FIRST) as SpaceBlock + 1),
    }
}

/// The entry for a place.
pub(super) fn entry_of(place: SpaceBlock) -> u128 {
    if place == 0 { NEVER } else { u128::from(place - 1) + FIRST }
}

/// Has histories written before the map forgets what they know.
pub(super) struct Histories(pub(super) Arc<Kept>);

impl Before for Histories {
    fn write<'a>(
        &'a self,
        io: &'a Io,
        context: Context,
    ) -> Pin<Box<dyn Future<Output = Result<Witness>> + 'a>> {
        Box::pin(async move {
            let (version, count, (of, list), (blocks, written)) = {
                let mut state = self.0.state.lock();
                let list = state.catalog.generation as u32;
                let Some(newest) = state.versions.last_mut() else {
                    return Ok(Witness { list, ..Witness::default() });
                };
                let of = newest.listed.history as u32;
                if newest.history.pending.is_empty() {
                    return Ok(Witness { of, count: count_of(&newest.history.written), list });
                }
                let identity = Identity { table: self.0.table, history: newest.listed.history };
                let blocks = newest.history.encode_pending(&self.0.histories, identity)?;
                (newest.listed.id, newest.history.pending.len(), (of, list), blocks)
            };
            let witness = Witness { of, count: count_of(&written), list };
            for (place, bytes) in blocks {
                io.write(self.0.history_at + place * BLOCK_BYTES, bytes, context).await?;
            }
            let mut state = self.0.state.lock();
            if let Some(version) = state.versions.iter_mut().find(|one| one.listed.id == version) {
                // What came meanwhile stands behind; writes of histories do not overlap.
                version.history.pending.drain(..count);
                version.history.written = written;
            }
            Ok(witness)
        })
    }
}

/// Pairs, for a witness; fewer are no lie.
fn count_of(written: &Written) -> u32 {
    u32::try_from(written.pairs()).unwrap_or(u32::MAX)
}

/// Slots that so many pairs take in a history, beside those of the block that is not full.
fn slots_of(pairs: usize) -> u64 {
    (pairs / PAIRS) as u64 * 2
}

impl State {
    /// Slots that it takes to give up the oldest automatic version, so that there is room again: what it knows goes to the one before.
    fn slots_to_give_up(&self) -> u64 {
        let oldest = self.versions.iter().position(|version| version.listed.is_automatic);
        let Some(at @ 1..) = oldest else { return 0 };
        let pairs = self.versions[at - 1].history.pairs.len() + self.versions[at].history.pairs.len();
        slots_of(pairs) + 2 * EXTENT
    }
}

impl Kept {
    /// A holder of a place lets it go; if that was the last, it is free after the next flush.
    pub(super) fn release(&self, state: &mut State, place: SpaceBlock) {
        if !is_place(place) {
            return;
        }
        match state.extra.get_mut(&place) {
            Some(1) => drop(state.extra.remove(&place)),
            Some(more) => *more -= 1,
            None => state.limbo.push(u64::from(place - 1)),
        }
        self.has_extra.store(!state.extra.is_empty(), Ordering::SeqCst);
    }

    /// One more holds a place.
    pub(super) fn hold_more(&self, state: &mut State, place: SpaceBlock) {
        if is_place(place) {
            *state.extra.entry(place).or_default() += 1;
            self.has_extra.store(true, Ordering::SeqCst);
        }
    }

    /// Whether somebody else holds a place too.
    pub(super) fn is_shared(&self, place: SpaceBlock) -> bool {
        self.has_extra.load(Ordering::SeqCst) && self.state.lock().extra.contains_key(&place)
    }

    /// The extents of a history that nobody needs any more are free after the next flush.
    pub(super) fn release_history(state: &mut State, history: &History) {
        state.limbo_extents.extend(&history.extents);
    }
}

impl Shared {
    /// The place of a block, whose page the caller holds.
    pub(super) fn place(&self, block: u64) -> Result<SpaceBlock> {
        place_of(self.table.get(block))
    }

    pub(super) fn is_fresh(&self, block: u64) -> bool {
        self.fresh[(block / 64) as usize].load(Ordering::SeqCst) & 1 << (block % 64) != 0
    }

    fn set_fresh(&self, block: u64) {
        self.fresh[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::SeqCst);
    }

    pub(super) fn forget_fresh(&self) {
        self.fresh.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    /// Whether a block that lies at `place` may be written there: nobody else holds it.
    pub(super) fn is_ours(&self, block: u64, place: SpaceBlock) -> bool {
        place != 0
            && (!self.has_versions.load(Ordering::SeqCst) || self.is_fresh(block))
            && !self.kept.is_shared(place)
    }

    /// The block is at another place from now on; what becomes of the one before is for the newest version to say. Its page is
    /// held, the block claimed.
    pub(super) fn move_to(&self, block: u64, place: SpaceBlock) {
        let before = self.place(block).unwrap_or(LOST);
        {
            let mut state = self.kept.state.lock();
            let number = block as u32;
            let takes = state.versions.last_mut().is_some_and(|newest| {
                let takes = newest.history.note(number, before);
                newest.history.is_damaged |= takes && before == LOST;
                takes
            });
            if !takes {
                self.kept.release(&mut state, before);
            }
            self.set_fresh(block);
        }
        // After the history knows.
        self.table.set(block, entry_of(place));
    }

    /// Takes room for `count` blocks, if there is some for what the newest version has to note too.
    pub(super) fn try_allocate(&self, count: u64) -> Option<Vec<Range<u64>>> {
        let slots = {
            let state = self.kept.state.lock();
            let noted = state.versions.last().map_or(0, |newest| newest.history.pending.len());
            // What others note at the same time is not counted yet.
            slots_of(noted + count as usize) + SPARE_BLOCKS + state.slots_to_give_up()
        };
        let is_there = !self.has_versions.load(Ordering::SeqCst) || self.kept.histories.set_aside(slots);
        is_there.then(|| self.kept.space.allocate(count)).flatten()
    }

    /// Says that there is no room.
    pub(super) fn no_room(&self) -> Error {
        let free = self.kept.space.free() * BLOCK_BYTES;
        let context = format!("no room is left beside what versions hold: {free} bytes are free");
        Error::new(ErrorKind::NoSpace, context)
    }

    /// Gets back what nobody holds, then what the oldest automatic version holds. Whether that changed anything. Whoever asks is
    /// not inside the gate.
    pub(super) async fn make_room(&self, io: &Io, context: Context) -> Result<bool> {
        let free = || (self.kept.space.free(), self.kept.histories.free());
        let before = free();
        self.reclaim(io, context).await?;
        if free() != before {
            return Ok(true);
        }
        let oldest = {
            let state = self.kept.state.lock();
            state.versions.iter().find(|version| version.listed.is_automatic).map(|version| version.listed.id)
        };
        let Some(oldest) = oldest else { return Ok(false) };
        let _turn = Arc::clone(&self.changes).next().await;
        match self.delete(io, oldest, context).await {
            Ok(()) => drop(self.given_up.fetch_add(1, Ordering::Relaxed)),
            // Another has given it up meanwhile.
            Err(error) if error.kind() == ErrorKind::Missing => {}
            Err(error) => return Err(error),
        }
        self.reclaim(io, context).await?;
        Ok(true)
    }

    /// Makes places free that nobody holds: their map is made durable, and reads that may still be there are waited for.
    pub(super) async fn reclaim(&self, io: &Io, context: Context) -> Result<()> {
        self.flush(io, context).await?;
        for _ in 0..1000 {
            self.end_grace();
            self.hand_down(io, usize::MAX, context).await;
            if self.kept.state.lock().grace.is_empty() {
                break;
            }
            io.runtime.sleep(std::time::Duration::from_micros(50)).await;
        }
        Ok(())
    }

    /// Finds places that all reads have left: they are handed down next.
    pub(super) fn end_grace(&self) {
        if self.kept.state.lock().grace.is_empty() {
            return;
        }
        self.epochs.advance();
        let epoch = self.epochs.advance();
        let mut freed: Vec<u64> = Vec::new();
        let mut state = self.kept.state.lock();
        state.grace.retain_mut(|(since, places)| {
            let is_over = epoch >= *since + 2;
            if is_over {
                freed.append(places);
            }
            !is_over
        });
        freed.sort_unstable();
        let runs = freed.chunk_by(|one, next| one + 1 == *next).map(|run| run[0]..run[0] + run.len() as u64);
        state.to_hand_down.extend(runs);
    }

    /// Gives places that are free back to the device below, at most so many runs, and to whoever wants to write. One whose
    /// discard is given up is not used again before the device is opened anew: it may still arrive.
    pub(super) async fn hand_down(&self, io: &Io, runs_max: usize, context: Context) {
        for _ in 0..runs_max {
            let Some(run) = self.kept.state.lock().to_hand_down.pop() else { return };
            let (at, blocks) = (self.kept.space_at + run.start * BLOCK_BYTES, run.end - run.start);
            // A device that does not take it keeps room that it need not.
            let _ = io.discard(at, blocks * BLOCK_BYTES, false, context).await;
            self.kept.space.give_back(run);
        }
    }

    /// Reads what is on the medium: the histories of all versions, and which places are held.
    pub(super) async fn load(&self, io: &Io) -> Result<()> {
        let listed = self.kept.state.lock().catalog.versions.clone();
        let mut versions = Vec::new();
        for listed in listed {
            let identity = Identity { table: self.kept.table, history: listed.history };
            let (at, blocks) = (self.kept.history_at, self.kept.histories.slots());
            let known = listed.pairs.max(self.table.witnessed(listed.history as u32));
            let mut history = History::read(io, at, blocks, listed.first, known, identity).await?;
            history.is_damaged |= listed.is_damaged || history.pairs.values().any(|place| *place == LOST);
            versions.push(Version { listed, history });
        }
        let context = Context::default();
        if let Some(newest) = versions.last_mut() {
            // What was noted, and then did not happen: the block is still where the history says that it was.
            let mut blocks: Vec<u32> = newest.history.pairs.keys().copied().collect();
            blocks.sort_unstable();
            for block in blocks {
                let page = self.table.layout().place(block.into()).0;
                self.table.hold(io, page..page + 1, context).await?;
                let is_there = self.place(block.into()).ok() == newest.history.pairs.get(&block).copied();
                self.table.release(page..page + 1);
                if is_there {
                    newest.history.pairs.remove(&block);
                } else {
                    self.set_fresh(block.into());
                }
            }
        }
        for place in self.options.hole.0..self.options.hole.1 {
            self.kept.space.take(place);
        }
        let mut holders: HashMap<SpaceBlock, u32> = HashMap::new();
        let layout = *self.table.layout();
        for page in (0..layout.pages).filter(|page| self.table.is_used(layout.granule_of(*page))) {
            self.table.hold(io, page..page + 1, context).await?;
            for block in layout.entries_of(page) {
                if let Ok(place) = self.place(block)
                    && place != 0
                    && !self.kept.space.take(u64::from(place - 1))
                {
                    *holders.entry(place).or_default() += 1;
                }
            }
            self.table.release(page..page + 1);
        }
        for version in &versions {
            for place in version.history.pairs.values().filter(|place| is_place(**place)) {
                if !self.kept.space.take(u64::from(place - 1)) {
                    *holders.entry(*place).or_default() += 1;
                }
            }
            for block in version.history.extents.iter().flat_map(|first| *first..first + EXTENT) {
                self.kept.histories.take(block);
            }
        }
        self.has_versions.store(!versions.is_empty(), Ordering::SeqCst);
        self.kept.has_extra.store(!holders.is_empty(), Ordering::SeqCst);
        let mut state = self.kept.state.lock();
        (state.versions, state.extra) = (versions, holders);
        Ok(())
    }
}
