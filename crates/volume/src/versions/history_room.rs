//! Where histories lie: in a room of their own, which is small, and when that is full among the data.
//!
//! Slots are counted through: those behind the room of its own are the blocks of the space, which lies right behind it. So that a flush
//! always has room for what was noted before, extents among the data are set aside before anything is noted.

use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result};

use super::history::EXTENT;
use super::space::Space;

/// Extents beyond those that are needed which stay set aside.
const SURPLUS: usize = 16;

/// The room for histories. Extents are named by their first slots.
#[derive(Debug)]
pub(super) struct HistoryRoom {
    own: Space,
    space: Arc<Space>,
    /// Extents among the data that nobody uses and no data may take.
    aside: Mutex<Vec<u64>>,
}

impl HistoryRoom {
    /// So many slots of its own, in front of `space`; all free.
    pub(super) fn new(slots: u64, space: &Arc<Space>) -> Self {
        Self { own: Space::new(slots), space: Arc::clone(space), aside: Mutex::default() }
    }

    /// All slots that there are.
    pub(super) fn slots(&self) -> u64 {
        self.own.blocks() + self.space.blocks()
    }

    /// The block of the space that a slot is, if it is one.
    pub(super) fn among_data(&self, slot: u64) -> Option<u64> {
        slot.checked_sub(self.own.blocks())
    }

    /// Marks a slot as taken.
    pub(super) fn take(&self, slot: u64) {
        match self.among_data(slot) {
            Some(block) => self.space.take(block),
            None => self.own.take(slot),
        };
    }

    /// An extent: of its own, among the data, or one that was set aside.
    ///
    /// Fails with [`ErrorKind::NoSpace`].
    pub(super) fn extent(&self) -> Result<u64> {
        let own = self.own.blocks();
        let among_data = || self.space.allocate_run(EXTENT).map(|block| own + block);
        let found = self.own.allocate_run(EXTENT).or_else(among_data).or_else(|| self.aside.lock().pop());
        found.ok_or_else(|| Error::new(ErrorKind::NoSpace, "no room is left for what a version keeps"))
    }

    /// Sees to it that there are so many slots in whole extents which data do not take. Whether there are.
    pub(super) fn set_aside(&self, slots: u64) -> bool {
        // Of its own all are taken and given back as extents, so they are free as such.
        let wanted = slots.saturating_sub(self.own.free()).div_ceil(EXTENT) as usize;
        let mut aside = self.aside.lock();
        while aside.len() < wanted {
            let Some(block) = self.space.allocate_run(EXTENT) else { return false };
            aside.push(self.own.blocks() + block);
        }
        while aside.len() > wanted + SURPLUS {
            let Some(first) = aside.pop() else { break };
            self.give_back(first);
        }
        true
    }

    /// Nobody uses an extent any more.
    pub(super) fn give_back(&self, first: u64) {
        match self.among_data(first) {
            Some(block) => self.space.give_back(block..block + EXTENT),
            None => self.own.give_back(first..first + EXTENT),
        }
    }

    /// Slots that could be had, at most.
    pub(super) fn free(&self) -> u64 {
        self.own.free() + self.aside.lock().len() as u64 * EXTENT + self.space.free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_had_when_data_have_taken_all_else() {
        let space = Arc::new(Space::new(100));
        let room = HistoryRoom::new(2 * EXTENT, &space);
        assert!(room.set_aside(5 * EXTENT) && space.free() == 100 - 3 * EXTENT);
        let left = space.free();
        assert!(space.allocate(left).is_some());
        let mut extents: Vec<u64> = (0..5).map(|_| room.extent().expect("set aside")).collect();
        assert!(room.extent().is_err() && !room.set_aside(1));
        extents.sort_unstable();
        extents.dedup();
        assert_eq!((extents.len(), extents[..2].to_vec()), (5, vec![0, EXTENT]));
        assert!(extents[2..].iter().all(|first| (2 * EXTENT..room.slots()).contains(first)));
        extents.iter().for_each(|first| room.give_back(*first));
        assert_eq!(room.free(), 5 * EXTENT);
        assert!(room.set_aside(5 * EXTENT) && space.free() == 0, "set aside again");
    }

    #[test]
    fn what_is_taken_by_name_is_nobody_elses() {
        let space = Arc::new(Space::new(8));
        let room = HistoryRoom::new(EXTENT, &space);
        (0..2 * EXTENT).for_each(|slot| room.take(slot));
        assert_eq!((room.free(), space.free()), (EXTENT, EXTENT));
        assert_eq!(room.extent().expect("room"), 2 * EXTENT);
        assert!(room.extent().is_err());
    }
}
