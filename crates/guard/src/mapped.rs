//! Files that a program has mapped for writing: its stores reach the file without passing a guard, so nothing vouches for it.

use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::file::{GuardedFile, blocks_of};
use crate::journal::What;
use crate::live::{flag, state};

impl GuardedFile {
    /// A program is about to store into a mapping of the file. From now on nothing vouches for any of its blocks, until all
    /// processes have closed it and it was taken in again (`rotproof guard accept`): a block could neither be verified nor
    /// accused. The journal has it.
    pub fn disown(&self) -> Result<()> {
        let _lock = self.lock_writers()?;
        let head = self.live.head();
        if head.state.load(Ordering::Relaxed) & state::MAPPED != 0 {
            return Ok(());
        }
        // Blocks that the table on the disk says nothing of are unknown from here, not zeros.
        head.state.fetch_or(state::MAPPED, Ordering::Relaxed);
        head.state.fetch_and(!state::COMPLETE, Ordering::Relaxed);
        let blocks = blocks_of(self.size());
        self.make_room(blocks)?;
        for block in 0..blocks {
            let entry = self.live.at(block);
            entry.begin();
            entry.verified.store(0, Ordering::Relaxed);
            entry.flags.store(flag::LOADED | flag::DIRTY, Ordering::Release);
            entry.end();
            head.set_dirty(self.live.region_of(block));
        }
        self.tell_many(What::Mapped, 0, blocks);
        Ok(())
    }

    /// Whether [`GuardedFile::disown`] was called since somebody has it open.
    pub fn is_disowned(&self) -> bool {
        self.live.head().state.load(Ordering::Relaxed) & state::MAPPED != 0
    }
}
