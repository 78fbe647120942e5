//! What a process left half done that died while it held the lock of writers: whoever has the lock next looks at it before anything else.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::counts::add;
use crate::file::{GuardedFile, blocks_of};
use crate::journal::What;
use crate::live::{WRITE_BLOCKS, ZEROING, flag};
use crate::lock::SharedGuard;
use crate::stat::Stat;
use crate::sum::{BLOCK, BLOCK_U64};

impl GuardedFile {
    /// The lock of writers. If its last holder died, what it left half done is mended first.
    pub(crate) fn lock_writers(&self) -> Result<SharedGuard<'_>> {
        let lock = self.live.head().writers.lock();
        // Also where somebody who wanted to mend it could not.
        if lock.is_orphaned || self.live.head().writing[1].load(Ordering::Relaxed) != 0 {
            self.mend_orphaned()?;
        }
        Ok(lock)
    }

    /// Each block that was being changed has what it had, or what was to come, or a mixture. The size may have changed, and the time of
    /// modification is that of the one who died, who did not come to say so. The caller holds the lock of writers.
    fn mend_orphaned(&self) -> Result<()> {
        let head = self.live.head();
        let stat = Stat::of(self.file.as_raw_fd()).doing(|| format!("looking at {}", self.name()))?;
        let before = self.size();
        head.size.store(stat.size, Ordering::Release);
        head.written.fetch_max(stat.modified_nanoseconds(), Ordering::Relaxed);
        if stat.size > before {
            head.grown.store(1, Ordering::Relaxed);
        }
        let [first, count] = [0, 1].map(|at| head.writing[at].load(Ordering::Acquire));
        let (is_zeroing, count) = (count & ZEROING != 0, count & !ZEROING);
        let count = if is_zeroing { count } else { count.min(WRITE_BLOCKS as u64) };
        let meant = first.saturating_add(count);
        let end = meant.min(blocks_of(stat.size).max(first));
        if first < meant {
            // This process may be the first that looks at them since.
            self.make_room(meant)?;
        }
        let zeros = self.pair.of_zeros().light;
        for (at, block) in (first..end).enumerate() {
            let pending = if is_zeroing { zeros } else { head.pending[at].load(Ordering::Acquire) };
            self.mend_block(block, pending);
        }
        // Those that it did not come to are behind the end, and quiet again.
        (end..meant).for_each(|block| self.live.at(block).end());
        if stat.size < before {
            self.mend_cut(before, stat.size)?;
        }
        head.writing[1].store(0, Ordering::Release);
        Ok(())
    }

    /// A block that was to have this light sum.
    fn mend_block(&self, block: u64, pending: u64) {
        let entry = self.live.at(block);
        let place = block * BLOCK_U64;
        let mut data = [0; BLOCK];
        let data = &mut data[..self.size().saturating_sub(place).min(BLOCK_U64) as usize];
        if self.file.read_exact_at(data, place).is_ok() && !self.is_disowned() && !self.fits(entry, data) {
            let is_as_meant = self.pair.light.of(data).word() == pending;
            let is_known = entry.flags.load(Ordering::Acquire) & flag::KNOWN != 0;
            if !is_as_meant && is_known {
                self.store.journal().tell(What::Torn, &self.name(), self.inode, block, 1);
                add(&self.store.counts.torn, 1);
            }
            // Of what nobody vouched for before, a part that was written says nothing.
            if is_as_meant || is_known {
                self.adopt(block, data);
            }
        }
        entry.end();
    }

    /// It was cutting the file, and did.
    fn mend_cut(&self, before: u64, size: u64) -> Result<()> {
        let head = self.live.head();
        let (last, within) = (size / BLOCK_U64, size % BLOCK_U64);
        for block in self.live.touched(last..blocks_of(before)).into_iter().flatten() {
            let Some(entry) = self.live.entry(block) else { break };
            if block > last || within == 0 {
                entry.flags.store(0, Ordering::Release);
                entry.end();
            }
        }
        if head.cut_to(size) {
            head.cut.store(1, Ordering::Relaxed);
        }
        if within > 0 {
            self.ensure(last)?;
            // What stays of it had no sum of its own yet.
            self.mend_block(last, 0);
        }
        Ok(())
    }
}
