//! What is left to say on the disk of a file that nobody is making durable: that nothing of it is in doubt any more, or that its
//! sums may be ahead of its data.

use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::clock;
use crate::file::GuardedFile;
use crate::home::Home;
use crate::live::state;

impl GuardedFile {
    /// Whether something is not in the table on the disk.
    pub fn is_dirty(&self) -> bool {
        let head = self.live.head();
        head.cut.load(Ordering::Relaxed) != 0
            || head.grown.load(Ordering::Relaxed) != 0
            || head.dirty().next().is_some()
    }

    /// Takes the marks of regions away, if all of the file is durable. So a crash from now on leaves no doubt of any block.
    pub fn settle(&self) -> Result<()> {
        let head = self.live.head();
        let _syncing = self.lock_syncers();
        let _writers = self.lock_writers()?;
        let has_marks = head.marked.iter().any(|word| word.load(Ordering::Relaxed) != 0);
        let is_unsynced = head.state.load(Ordering::Relaxed) & state::UNSYNCED != 0;
        if !has_marks || is_unsynced || self.is_dirty() || self.is_flying() || self.is_foreign() {
            return Ok(());
        }
        let stat = self.stat()?;
        let clear = || {
            head.marked.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            head.mark_ahead.store(1, Ordering::Relaxed);
        };
        match self.home() {
            Home::Nowhere => Ok(()),
            Home::Slot(class) => {
                clear();
                self.rewrite_record(class, stat)
            }
            Home::Table => {
                let Some(file) = self.table.open()? else { return Ok(()) };
                clear();
                self.table.write_header(&file, &self.named_header(self.size(), stat))
            }
        }
    }

    /// [`GuardedFile::settle`] if nobody has written for so long.
    pub fn settle_if_idle(&self, idle: std::time::Duration) -> Result<()> {
        let written = self.live.head().written.load(Ordering::Relaxed);
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        if clock::wall_nanoseconds().saturating_sub(written) < idle { Ok(()) } else { self.settle() }
    }

    /// Writes the sums that are not in the table yet, with a note that the data may not be durable. The caller holds the lock
    /// of writers.
    pub(crate) fn store_stretch(&self) -> Result<()> {
        let snapshot = self.snapshot(false)?;
        self.save(&snapshot, false)
    }

    /// [`GuardedFile::store_stretch`] for who does not hold it. Gives when the file was written last, for [`GuardedFile::store_synced`].
    pub(crate) fn store_unsynced(&self) -> Result<u64> {
        let _syncing = self.lock_syncers();
        let _writers = self.lock_writers()?;
        self.store_stretch()?;
        Ok(self.live.head().written.load(Ordering::Relaxed))
    }

    /// After data and table have reached the disk by other means: the table says so, unless somebody has written or cut the file since it was
    /// stored, which was at `written`.
    pub(crate) fn store_synced(&self, written: u64) -> Result<()> {
        let head = self.live.head();
        {
            let _syncing = self.lock_syncers();
            let _writers = self.lock_writers()?;
            if !self.is_dirty() && head.written.load(Ordering::Relaxed) == written {
                head.state.fetch_and(!state::UNSYNCED, Ordering::Relaxed);
                head.set_durable(self.size());
            }
        }
        self.settle()
    }
}
