//! A block that does not verify: is it rot, in the cache or on the disk, or a crash's, or somebody else's change; and where is
//! a right copy of it?

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::clock;
use crate::counts::add;
use crate::file::{GuardedFile, blocks_of};
use crate::format::{Header, Sums};
use crate::home::Home;
use crate::journal::What;
use crate::live::{ERRORS, LiveEntry, flag, state};
use crate::stat::{Stat, set_modified};
use crate::sum::{BLOCK, BLOCK_U64};
use crate::trouble::{Outcome, Trouble};

/// A block at an address that direct I/O takes.
#[repr(C, align(4096))]
struct Aligned([u8; BLOCK]);

impl GuardedFile {
    /// What a block must have, as far as is known.
    fn sums(entry: &LiveEntry) -> Sums {
        Sums { light: entry.light.load(Ordering::Relaxed), strong: entry.strong() }
    }

    /// Whether data are what the entry says, by all sums that it has.
    pub(crate) fn fits(&self, entry: &LiveEntry, data: &[u8]) -> bool {
        let sums = Self::sums(entry);
        let has_strong = entry.flags.load(Ordering::Acquire) & flag::STRONG != 0;
        self.pair.light.of(data).word() == sums.light
            && (!has_strong || self.pair.strong.of(data) == sums.strong)
    }

    /// Mends a block into `to`, which has what was read of it, or fails with [`Trouble::Rotten`]. The caller holds the lock of
    /// writers. It could not be read at all unless `is_read`.
    pub(crate) fn heal(&self, block: u64, to: &mut [u8], is_read: bool) -> Outcome<()> {
        let entry = self.live.at(block);
        let counts = &self.store.counts;
        add(&counts.mismatches, 1);
        if is_read {
            if self.fits(entry, to) {
                // A reader without the lock saw a mixture.
                add(&counts.races, 1);
                entry.verified.store(clock::seconds(), Ordering::Relaxed);
                return Ok(());
            }
            if self.mend_sum(entry, to) {
                add(&counts.sums_mended, 1);
                self.tell(What::SumMended, block);
                self.live.head().set_dirty(self.live.region_of(block));
                return Ok(());
            }
        }
        if self.mend_from_disk(block, entry, to) {
            // A volume may have answered from another copy than before.
            let is_copy = self.mend_copies(block, entry, to, true);
            add(if is_copy { &counts.from_copy } else { &counts.from_disk }, 1);
            self.tell(if is_copy { What::RecoveredFromCopy } else { What::RecoveredFromDisk }, block);
            entry.verified.store(clock::seconds(), Ordering::Relaxed);
            return Ok(());
        }
        if self.mend_from_mirror(block, entry, to) {
            add(&counts.from_mirror, 1);
            self.tell(What::RecoveredFromMirror, block);
            entry.verified.store(clock::seconds(), Ordering::Relaxed);
            return Ok(());
        }
        if self.mend_copies(block, entry, to, false) {
            add(&counts.from_copy, 1);
            self.tell(What::RecoveredFromCopy, block);
            entry.verified.store(clock::seconds(), Ordering::Relaxed);
            return Ok(());
        }
        add(&counts.refused, 1);
        let before = entry.flags.fetch_or(flag::ROTTEN, Ordering::AcqRel);
        if before & flag::ROTTEN == 0 {
            self.tell(if self.is_foreign() { What::Foreign } else { What::Rotten }, block);
        }
        Err(Trouble::Rotten(block))
    }

    /// Whether the strong sum vouches for the data and only the light one is wrong: then that is mended.
    fn mend_sum(&self, entry: &LiveEntry, data: &[u8]) -> bool {
        let has_strong = entry.flags.load(Ordering::Acquire) & flag::STRONG != 0;
        if !has_strong || self.pair.strong.of(data) != entry.strong() {
            return false;
        }
        entry.light.store(self.pair.light.of(data).word(), Ordering::Relaxed);
        entry.flags.fetch_or(flag::DIRTY, Ordering::AcqRel);
        true
    }

    /// Past the cache. If the disk is right, the cache is made to read it again.
    fn mend_from_disk(&self, block: u64, entry: &LiveEntry, to: &mut [u8]) -> bool {
        let place = block * BLOCK_U64;
        let length = to.len();
        let forget = || {
            self.view.let_go(place, BLOCK_U64);
            // SAFETY: takes an open descriptor. A clean page that nobody maps is dropped.
            unsafe {
                libc::posix_fadvise(
                    self.file.as_raw_fd(),
                    place.cast_signed(),
                    BLOCK as i64,
                    libc::POSIX_FADV_DONTNEED,
                )
            };
        };
        let mut aside = [0; BLOCK];
        let aside = &mut aside[..length];
        if self.direct().is_none() {
            forget();
        }
        if !self.read_past_cache(place, aside) || !self.fits(entry, aside) {
            return false;
        }
        to.copy_from_slice(aside);
        forget();
        let mut again = [0; BLOCK];
        let is_mended = self.file.read_exact_at(&mut again[..length], place).is_ok()
            && self.fits(entry, &again[..length]);
        // Somebody maps the page, so that it stays: then the right data are written over it.
        is_mended || self.put_back(place, to)
    }

    /// Reads a block as the disk has it; as the cache has it where there is no direct I/O.
    pub(crate) fn read_past_cache(&self, place: u64, to: &mut [u8]) -> bool {
        let Some(direct) = self.direct() else { return self.file.read_exact_at(to, place).is_ok() };
        let mut aside = Box::new(Aligned([0; BLOCK]));
        // At the end of the file fewer bytes come than a block has.
        let is_read = direct.read_at(&mut aside.0, place).is_ok_and(|count| count >= to.len());
        if is_read {
            to.copy_from_slice(&aside.0[..to.len()]);
        }
        is_read
    }

    /// From the same place in the mirror.
    fn mend_from_mirror(&self, block: u64, entry: &LiveEntry, to: &mut [u8]) -> bool {
        let Some(mirror) = self.store.mirror() else { return false };
        let place = block * BLOCK_U64;
        let copy = mirror.join(self.current_name());
        let mut aside = [0; BLOCK];
        let aside = &mut aside[..to.len()];
        let read = std::fs::File::open(copy).and_then(|file| file.read_exact_at(aside, place));
        if read.is_err() || !self.fits(entry, aside) {
            return false;
        }
        to.copy_from_slice(aside);
        self.put_back(place, to)
    }

    /// From another copy of the volume on which the file system is, if one is right and one is wrong. All of them get what is right, since it
    /// is written again. `to` may be right already.
    fn mend_copies(&self, block: u64, entry: &LiveEntry, to: &mut [u8], is_right: bool) -> bool {
        let Some(copies) = self.store.copies() else { return false };
        let place = block * BLOCK_U64;
        let mut aside = [0; BLOCK];
        let aside = &mut aside[..to.len()];
        // Whoever cannot be asked has no right copy, as far as is known.
        let looked = copies
            .look(&self.file, &self.current_name(), place, aside, |data| self.fits(entry, data))
            .unwrap_or_default();
        if !looked.is_found || (is_right && looked.wrong == 0) {
            return false;
        }
        to.copy_from_slice(aside);
        self.put_back(place, to)
    }

    /// Writes right data over wrong ones. The time of modification stays: nobody has changed the file.
    pub(crate) fn put_back(&self, place: u64, data: &[u8]) -> bool {
        let again;
        let file = match self.writer() {
            Ok(writer) => writer,
            Err(_) => match crate::stat::reopen(self.file.as_raw_fd(), libc::O_RDWR) {
                Ok(file) => {
                    again = file;
                    &again
                }
                // What was found is handed out; the file itself stays as it is.
                Err(_) => return true,
            },
        };
        let modified = Stat::of(file.as_raw_fd()).map(|stat| stat.modified);
        let written = file.write_all_at(data, place).and_then(|()| file.sync_data());
        if let Ok(modified) = modified {
            let _ = set_modified(file, modified);
        }
        written.is_ok()
    }

    /// Where the file is now, below the guarded directory, as far as the kernel can tell.
    pub(crate) fn current_name(&self) -> std::path::PathBuf {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let below = link.ok().and_then(|path| path.strip_prefix(self.store.root()).map(Path::to_owned).ok());
        below.unwrap_or_else(|| self.name().into())
    }

    /// Whether the file was changed after the last change through a guard.
    pub(crate) fn is_foreign(&self) -> bool {
        let head = self.live.head();
        if head.state.load(Ordering::Relaxed) & state::FOREIGN != 0 {
            return true;
        }
        Stat::of(self.file.as_raw_fd()).is_ok_and(|stat| self.is_foreign_by(&stat))
    }

    /// The same for who has just looked at the file.
    pub(crate) fn is_foreign_by(&self, stat: &Stat) -> bool {
        let head = self.live.head();
        if head.state.load(Ordering::Relaxed) & state::FOREIGN != 0 {
            return true;
        }
        let modified = stat.modified_nanoseconds();
        let is_foreign = stat.size != self.size()
            || (modified > head.written.load(Ordering::Relaxed)
                && modified != head.seen.load(Ordering::Relaxed));
        if is_foreign {
            head.state.fetch_or(state::FOREIGN, Ordering::Relaxed);
        }
        is_foreign
    }

    pub(crate) fn tell(&self, what: What, block: u64) {
        self.tell_many(what, block, 1);
    }

    pub(crate) fn tell_many(&self, what: What, block: u64, blocks: u64) {
        self.store.journal().tell(what, &self.current_name().to_string_lossy(), self.inode, block, blocks);
    }

    /// Puts a block into the error table: the next fsync tells of it.
    pub(crate) fn remember_error(&self, block: u64) {
        let head = self.live.head();
        let number = head.failed.fetch_add(1, Ordering::AcqRel);
        if let Some(place) = head.errors.get(number as usize % ERRORS) {
            place.store(block, Ordering::Release);
        }
    }

    /// Blocks of the error table, and how many failed in all.
    pub fn errors(&self) -> (Vec<u64>, u64) {
        let head = self.live.head();
        let failed = head.failed.load(Ordering::Acquire);
        let kept = head.errors.iter().take((failed as usize).min(ERRORS));
        (kept.map(|block| block.load(Ordering::Acquire)).collect(), failed)
    }

    /// Takes the data of a block for what they should be.
    pub(crate) fn adopt(&self, block: u64, data: &[u8]) {
        let entry = self.live.at(block);
        let sums = self.pair.of(data);
        entry.light.store(sums.light, Ordering::Relaxed);
        entry.set_strong(sums.strong);
        entry.verified.store(clock::seconds(), Ordering::Relaxed);
        let flags = flag::LOADED | flag::KNOWN | flag::STRONG | flag::DIRTY;
        entry.flags.store(flags, Ordering::Release);
        self.live.head().set_dirty(self.live.region_of(block));
    }

    /// After a crash: blocks that may have been under way then are looked at. Those that are as they were last made durable
    /// verify. The others are *torn*: old, new, or a mixture, which nobody can tell; they are taken in as they are found, and
    /// written down. All other blocks are left to be accused.
    pub(crate) fn recover(&self, header: &Header, stat: Stat, is_all: bool) -> Result<()> {
        let blocks = blocks_of(stat.size);
        let durable = blocks_of(header.size);
        self.make_room(blocks)?;
        let mut torn: Option<(u64, u64)> = None;
        let tell = |torn: Option<(u64, u64)>| {
            if let Some((first, count)) = torn {
                add(&self.store.counts.torn, count);
                self.store.journal().tell(What::Torn, &self.name(), self.inode, first, count);
            }
        };
        let mut block = 0;
        while block < blocks {
            let region = self.live.region_of(block);
            if !is_all && !header.is_marked(region) && block < durable {
                block = self.live.blocks_of(region).end.min(durable.max(block + 1));
                continue;
            }
            self.ensure(block)?;
            let mut data = [0; BLOCK];
            let valid = BLOCK_U64.min(stat.size - block * BLOCK_U64) as usize;
            let data = &mut data[..valid];
            // What cannot be read now is not taken in; whoever reads it is told.
            let is_read = self.file.read_exact_at(data, block * BLOCK_U64).is_ok();
            let entry = self.live.at(block);
            let is_known = entry.flags.load(Ordering::Acquire) & flag::KNOWN != 0;
            let was_durable = header.size.saturating_sub(block * BLOCK_U64).min(BLOCK_U64) as usize;
            let is_as_it_was = is_known && self.fits(entry, data);
            let is_taken_in = is_known || block >= durable;
            if is_read && !is_as_it_was && is_taken_in {
                let has_grown = was_durable < valid && is_known && self.fits(entry, &data[..was_durable]);
                self.adopt(block, data);
                if !has_grown {
                    torn = match torn {
                        Some((first, count)) if first + count == block => Some((first, count + 1)),
                        other => {
                            tell(other);
                            Some((block, 1))
                        }
                    };
                }
            }
            block += 1;
        }
        tell(torn);
        let head = self.live.head();
        // All that is there now is on the disk, and was looked at.
        head.state.fetch_and(!state::UNSYNCED, Ordering::Relaxed);
        if self.is_dirty() {
            return Ok(());
        }
        let clear = || {
            head.marked.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            head.seen.store(stat.modified_nanoseconds(), Ordering::Relaxed);
        };
        match (self.home(), self.table.open()?) {
            (Home::Slot(class), _) => {
                clear();
                self.rewrite_record(class, stat)
            }
            (_, Some(file)) => {
                clear();
                self.table.write_header(&file, &self.named_header(stat.size, stat))
            }
            (_, None) => Ok(()),
        }
    }
}
