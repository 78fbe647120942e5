//! Changes of a file that are no writes: its length, holes, its times. The sums follow.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::clock;
use crate::file::{GuardedFile, blocks_of};
use crate::live::{ZEROING, flag};
use crate::sum::{BLOCK, BLOCK_U64};
use crate::trouble::{Outcome, Trouble};
use crate::write::SIZE_MAX;

/// Zeros for the edges of a hole.
static ZEROS: [u8; BLOCK] = [0; BLOCK];

impl GuardedFile {
    /// Cuts the file to nothing for who has opened it with `O_TRUNC`. A file that was made just now has nothing to be cut: to do
    /// so anyhow has ext4 write it when it is closed, as one that is replaced.
    pub fn cut_opened(&self) -> Outcome<()> {
        let is_newborn = self.size() == 0 && self.stat().is_ok_and(|stat| stat.is_newborn());
        if is_newborn { Ok(()) } else { self.set_size(0) }
    }

    /// Cuts the file, or lets it grow by a hole.
    pub fn set_size(&self, size: u64) -> Outcome<()> {
        let _lock = self.lock_writers()?;
        let head = self.live.head();
        let before = self.size();
        let writer = self.writer()?;
        if size > before.max(SIZE_MAX) {
            return Err(Trouble::Os(libc::EFBIG));
        }
        if size >= before {
            writer.set_len(size)?;
            head.size.store(size, Ordering::Release);
            if size > before {
                head.grown.store(1, Ordering::Relaxed);
            }
            head.written.store(clock::wall_nanoseconds(), Ordering::Relaxed);
            return Ok(());
        }
        let (last, within) = (size / BLOCK_U64, (size % BLOCK_U64) as usize);
        let mut made = None;
        if within > 0 {
            self.ensure(last)?;
            if self.live.at(last).flags.load(Ordering::Acquire) & flag::KNOWN != 0 {
                // The sum of what stays, made before the whole is verified; the kernel fills the rest with zeros.
                let mut whole = [0; BLOCK];
                let valid = BLOCK_U64.min(before - last * BLOCK_U64) as usize;
                let whole = &mut whole[..valid];
                let read = std::os::unix::fs::FileExt::read_exact_at(&self.file, whole, last * BLOCK_U64);
                let mut sum = self.pair.light.of(&whole[..within]).word();
                let entry = self.live.at(last);
                if read.is_err() || !self.fits(entry, whole) {
                    self.heal(last, whole, read.is_ok())?;
                    sum = self.pair.light.of(&whole[..within]).word();
                }
                made = Some(sum);
            }
            if size < head.durable() {
                self.mark(last, last)?;
            }
        }
        // Of others nobody knows anything: whoever wants them asks for the lock.
        let cut = self.live.touched(last..blocks_of(before));
        let blocks = || cut.iter().flat_map(Clone::clone);
        let entries = || blocks().filter_map(|block| self.live.entry(block));
        entries().for_each(crate::live::LiveEntry::begin);
        let done = writer.set_len(size);
        if done.is_ok() {
            head.size.store(size, Ordering::Release);
            for block in blocks() {
                let Some(entry) = self.live.entry(block) else { break };
                if block > last || within == 0 {
                    // Looked up anew, it is behind the end: zeros if the file grows again.
                    entry.flags.store(0, Ordering::Release);
                } else if let Some(sum) = made {
                    entry.light.store(sum, Ordering::Relaxed);
                    entry.verified.store(0, Ordering::Relaxed);
                    entry.flags.store(flag::LOADED | flag::KNOWN | flag::DIRTY, Ordering::Release);
                    head.set_dirty(self.live.region_of(block));
                }
            }
            if head.cut_to(size) {
                head.cut.store(1, Ordering::Relaxed);
            }
            head.written.store(clock::wall_nanoseconds(), Ordering::Relaxed);
        }
        entries().for_each(crate::live::LiveEntry::end);
        Ok(done?)
    }

    /// A program sets the times of the file through a door, which `set` does: that is no change behind the guard's back, and
    /// nobody looks at the file meanwhile.
    pub fn set_times<T>(&self, set: impl FnOnce() -> T) -> Result<T> {
        let _writers = self.lock_writers()?;
        let done = set();
        if let Ok(stat) = self.stat() {
            self.live.head().written.fetch_max(stat.modified_nanoseconds(), Ordering::Relaxed);
        }
        Ok(done)
    }

    /// `fallocate` with this mode. Space is allocated, holes are made, ranges become zeros; stretches are not taken out or put
    /// in ([`libc::EOPNOTSUPP`], as on file systems that cannot do it).
    pub fn allocate(&self, mode: i32, offset: u64, length: u64) -> Outcome<()> {
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = mode & !libc::FALLOC_FL_KEEP_SIZE;
        let size_max = if keeps_size { i64::MAX.cast_unsigned() } else { SIZE_MAX.max(self.size()) };
        let end = offset.checked_add(length).filter(|end| *end <= size_max);
        let Some(end) = end else { return Err(Trouble::Os(libc::EFBIG)) };
        if length == 0 {
            return Err(Trouble::Os(libc::EINVAL));
        }
        match kind {
            0 => {
                let _lock = self.lock_writers()?;
                self.fallocate(mode, offset, length)?;
                if !keeps_size && end > self.size() {
                    self.live.head().size.store(end, Ordering::Release);
                    self.live.head().grown.store(1, Ordering::Relaxed);
                }
                self.live.head().written.store(clock::wall_nanoseconds(), Ordering::Relaxed);
                Ok(())
            }
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => self.make_zeros(mode, offset, end),
            libc::FALLOC_FL_ZERO_RANGE => {
                if !keeps_size && end > self.size() {
                    self.set_size(end)?;
                }
                self.make_zeros(mode | libc::FALLOC_FL_KEEP_SIZE, offset, end)
            }
            _ => Err(Trouble::Os(libc::EOPNOTSUPP)),
        }
    }

    fn fallocate(&self, mode: i32, offset: u64, length: u64) -> Outcome<()> {
        let (offset, length) = (offset.cast_signed(), length.cast_signed());
        // SAFETY: takes an open descriptor and numbers.
        match unsafe { libc::fallocate(self.writer()?.as_raw_fd(), mode, offset, length) } {
            0 => Ok(()),
            _ => Err(Trouble::last_os()),
        }
    }

    /// The edges are written, whole blocks are changed at once.
    fn make_zeros(&self, mode: i32, offset: u64, end: u64) -> Outcome<()> {
        let size = self.size();
        let (first, last) = (offset.div_ceil(BLOCK_U64), end / BLOCK_U64);
        let edge = |from: u64, to: u64| -> Outcome<()> {
            let to = to.min(size);
            if from < to {
                self.write_at(&ZEROS[..(to - from) as usize], from)?;
            }
            Ok(())
        };
        if first > last {
            return edge(offset, end);
        }
        edge(offset, first * BLOCK_U64)?;
        edge(last * BLOCK_U64, end)?;
        if first == last {
            return Ok(());
        }
        let _lock = self.lock_writers()?;
        let head = self.live.head();
        let blocks = blocks_of(self.size());
        let changed = first..last.min(blocks).max(first);
        if first * BLOCK_U64 < head.durable() && !changed.is_empty() {
            self.mark(first, changed.end - 1)?;
        }
        for block in changed.clone() {
            self.ensure(block)?;
        }
        head.writing[0].store(first, Ordering::Relaxed);
        head.writing[1].store((changed.end - first) | ZEROING, Ordering::Release);
        changed.clone().for_each(|block| self.live.at(block).begin());
        let done = self.fallocate(mode, first * BLOCK_U64, (last - first) * BLOCK_U64);
        if done.is_ok() {
            let zeros = self.pair.of_zeros();
            for block in changed.clone() {
                let entry = self.live.at(block);
                entry.light.store(zeros.light, Ordering::Relaxed);
                entry.set_strong(zeros.strong);
                entry.verified.store(0, Ordering::Relaxed);
                let known = if self.is_disowned() { 0 } else { flag::KNOWN | flag::STRONG };
                let flags = flag::LOADED | known | flag::DIRTY;
                entry.flags.store(flags, Ordering::Release);
                head.set_dirty(self.live.region_of(block));
            }
            head.written.store(clock::wall_nanoseconds(), Ordering::Relaxed);
        }
        changed.for_each(|block| self.live.at(block).end());
        head.writing[1].store(0, Ordering::Release);
        done
    }
}
