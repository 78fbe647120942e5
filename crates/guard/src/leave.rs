//! Leaving a file: the sums as the last process leaves them that has it open, or as a program does that has closed it while it is kept
//! attached.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::file::{GuardedFile, blocks_of};
use crate::home::Home;
use crate::live::{set_bit, state};
use crate::stat::Stat;
use crate::table::Found;

impl GuardedFile {
    /// A program has closed what it may have written: the sums are left on the disk, as when the last one closes the file, and
    /// it is kept attached, since who writes a file will often read it. For who has called
    /// [`crate::store::Core::keep_written`], and calls this for each descriptor that could be written to. `seen` is what the file system
    /// said of the file a moment ago, if it is still so.
    pub fn rest(self: &Arc<Self>, seen: Option<Stat>) {
        if self.may_rest(seen).unwrap_or(false) {
            self.store.kept.keep(self);
        } else {
            self.store.kept.let_go(self);
        }
    }

    /// Whether all that is known is on the disk, the file has a name by which somebody may open it again, and nobody is to run it:
    /// the kernel runs no file that is open for writing.
    fn may_rest(&self, seen: Option<Stat>) -> Result<bool> {
        if self.is_gone.load(Ordering::Acquire) {
            return Ok(false);
        }
        let may_be_kept = |stat: &Stat| stat.links > 0 && stat.mode & 0o111 == 0;
        if !self.is_dirty() {
            let is_open_to_write = self.is_opened_to_write || self.writer.get().is_some();
            return Ok(!is_open_to_write || may_be_kept(&seen.map_or_else(|| self.stat(), Ok)?));
        }
        let head = self.live.head();
        let _syncing = self.lock_syncers();
        let _writers = self.lock_writers()?;
        let stat = self.stat()?;
        // A table that was cut is left by the last one, who has it for itself.
        let is_cut = head.cut.load(Ordering::Relaxed) != 0 && self.home() == Home::Table;
        if is_cut || !may_be_kept(&stat) {
            return Ok(false);
        }
        let snapshot = self.snapshot(false)?;
        self.save_as(&snapshot, stat, false)?;
        Ok(true)
    }

    /// Whether nothing is lost when the memory is given up.
    pub(crate) fn leave_sums(&self) -> Result<bool> {
        let stat = self.stat()?;
        if stat.links > 0 {
            return self.leave(stat);
        }
        // A home before this one may still say something of it to who opens it by a descriptor. Also of a file that was taken for a
        // new one, since it had been made and saved empty a moment ago; but nothing of its bytes if it has none.
        if self.home() != Home::Nowhere || self.size() > 0 {
            self.store.forget_sums(self.inode, |_| true)?;
        }
        Ok(true)
    }

    /// What the last process leaves, which has the file for itself: whether all is on the disk, though not durable. Sums of
    /// data that nobody has made durable go to the table with a note that they may be ahead of the data.
    pub(crate) fn leave(&self, stat: Stat) -> Result<bool> {
        let head = self.live.head();
        // What a process was making durable when it died is noticed by this.
        let syncing = self.lock_syncers();
        if self.is_flying() {
            self.take_again();
            head.flying.store(0, Ordering::Release);
        }
        drop(syncing);
        if !self.is_dirty() {
            self.settle()?;
            let is_ours = !self.is_foreign_by(&stat);
            let is_told = stat.modified_nanoseconds() == head.seen.load(Ordering::Relaxed)
                && head.stamped.load(Ordering::Relaxed) == 0;
            if is_ours && !is_told {
                self.save_times(stat)?;
            }
            return Ok(true);
        }
        let _writers = self.lock_writers()?;
        let mut is_anew = false;
        if head.cut.load(Ordering::Relaxed) != 0 {
            is_anew = self.size().min(head.stored()) == 0;
            match (self.home(), self.next_home(self.size(), is_anew)) {
                (Home::Table, Home::Table) if is_anew => return self.leave_anew(),
                // The old table must not be believed of what was cut, whatever of all this a crash leaves.
                (Home::Table, Home::Table) => self.mark_all(blocks_of(self.size()).max(1) - 1)?,
                // A record is written as a whole, beside the old one.
                _ => {}
            }
        }
        let snapshot = self.snapshot(is_anew)?;
        self.save_as(&snapshot, stat, false)?;
        Ok(true)
    }

    fn mark_all(&self, last: u64) -> Result<()> {
        let head = self.live.head();
        (0..=self.live.region_of(last)).for_each(|region| set_bit(&head.marked, region));
        let Some(file) = self.table.open()? else { return Ok(()) };
        if let Found::Header(mut header) = self.table.header(&file)? {
            header.generation = head.generation.fetch_add(1, Ordering::Relaxed) + 1;
            header.is_unsynced = true;
            head.told_state.fetch_or(state::UNSYNCED, Ordering::Relaxed);
            self.copy_marks(&mut header);
            self.table.write_header(&file, &header)?;
            self.table.sync(&file)?;
        }
        Ok(())
    }

    /// Of a file that was written anew from its beginning: a new table takes the place of the old one at once, so that no
    /// mixture of both is ever seen.
    fn leave_anew(&self) -> Result<bool> {
        use rotproof_block::error::IoContext;
        let head = self.live.head();
        let mut snapshot = self.snapshot(false)?;
        snapshot.cut = None;
        let stat = self.stat()?;
        head.state.fetch_or(state::UNSYNCED, Ordering::Relaxed);
        let path = self.table.path();
        let new = path.with_extension("new");
        let doing = || format!("writing the table {}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).doing(doing)?;
        }
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)
            .doing(doing)?;
        for (index, entries) in &snapshot.pages {
            self.table.write_entries(&file, *index, entries, None)?;
        }
        self.table.write_header(&file, &self.named_header(snapshot.size, stat))?;
        std::fs::rename(&new, path).doing(doing)?;
        Ok(true)
    }

    /// A new time of modification that a program has set, with all else as it was.
    fn save_times(&self, stat: Stat) -> Result<()> {
        if let Home::Slot(class) = self.home() {
            return self.rewrite_record(class, stat);
        }
        let Some(file) = self.table.open()? else { return Ok(()) };
        if let Found::Header(mut header) = self.table.header(&file)? {
            header.generation = self.live.head().generation.fetch_add(1, Ordering::Relaxed) + 1;
            header.modified = stat.modified;
            self.table.write_header(&file, &header)?;
        }
        Ok(())
    }
}
