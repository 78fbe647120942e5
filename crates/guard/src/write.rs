//! Writing: the new sum of each block is made before its old one is verified, and both before the data reach the file.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

use rotproof_block::Result;

use crate::chain::{Case, Mismatch, Summed, Transfer};
use crate::clock;
use crate::counts::add;
use crate::file::{GuardedFile, blocks_of};
use crate::home::Home;
use crate::live::{WRITE_BLOCKS, clear_bit, flag, marking, set_bit};
use crate::lock::SharedGuard;
use crate::slots::FoundSlot;
use crate::sum::{BLOCK, BLOCK_U64, Sum};
use crate::trouble::{Outcome, Trouble};

/// The largest file, 2 PiB: the entries of its blocks, 64 bytes each, fit into a quarter of a process's addresses.
pub(crate) const SIZE_MAX: u64 = 1 << 51;

impl GuardedFile {
    /// Writes all of `from` at `offset`, and says how many bytes, which are fewer only if the file system below took fewer.
    pub fn write_at(&self, from: &[u8], offset: u64) -> Outcome<usize> {
        self.write_with_sums(from, offset, None)
    }

    /// [`GuardedFile::write_at`] for a writer who made light sums with the data: one for each block or part of one that is
    /// written, in their order. Data that do not have them are refused with [`Trouble::Boundary`] before anything is written
    /// of their stretch of [`WRITE_BLOCKS`] blocks.
    pub fn write_with_sums(&self, from: &[u8], offset: u64, sums: Option<&[u64]>) -> Outcome<usize> {
        let first = offset / BLOCK_U64;
        let blocks = blocks_of(offset % BLOCK_U64 + from.len() as u64).min(WRITE_BLOCKS as u64);
        (first..first + blocks).for_each(|block| self.live.prefetch(block));
        let lock = self.lock_writers()?;
        self.write_locked(&lock, from, offset, sums)
    }

    /// Writes at the end of the file, wherever that is when it is written, and says where that was.
    pub fn append(&self, from: &[u8], sums: Option<&[u64]>) -> Outcome<(u64, usize)> {
        let lock = self.lock_writers()?;
        let end = self.size();
        Ok((end, self.write_locked(&lock, from, end, sums)?))
    }

    /// Writes where `place` says, which is asked while no other guard writes to the file: for positions that processes
    /// share, which must not be read by one while another one is between reading and moving it.
    pub fn write_at_place(
        &self,
        from: &[u8],
        place: impl FnOnce() -> std::io::Result<u64>,
        then: impl FnOnce(u64),
    ) -> Outcome<usize> {
        let lock = self.lock_writers()?;
        let offset = place()?;
        let done = self.write_locked(&lock, from, offset, None)?;
        then(offset + done as u64);
        Ok(done)
    }

    fn write_locked(
        &self,
        _lock: &SharedGuard<'_>,
        from: &[u8],
        offset: u64,
        sums: Option<&[u64]>,
    ) -> Outcome<usize> {
        let end = offset.checked_add(from.len() as u64).filter(|end| *end <= SIZE_MAX);
        let Some(_) = end else { return Err(Trouble::Os(libc::EFBIG)) };
        let mut done = 0;
        let mut sums_done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let room = WRITE_BLOCKS * BLOCK - (at % BLOCK_U64) as usize;
            let piece = &from[done..from.len().min(done + room)];
            let blocks = (at + piece.len() as u64 - 1) / BLOCK_U64 - at / BLOCK_U64 + 1;
            let given = match sums {
                None => None,
                Some(sums) => match sums.get(sums_done..sums_done + blocks as usize) {
                    Some(given) => Some(given),
                    None => return Err(Trouble::Os(libc::EINVAL)),
                },
            };
            let written = match self.write_chunk(piece, at, given) {
                Ok(written) => written,
                Err(_) if done > 0 => return Ok(done),
                Err(trouble) => return Err(trouble),
            };
            done += written;
            sums_done += blocks as usize;
            if written < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    /// At most [`WRITE_BLOCKS`] blocks.
    fn write_chunk(&self, from: &[u8], offset: u64, given: Option<&[u64]>) -> Outcome<usize> {
        let head = self.live.head();
        let (first, last) = (offset / BLOCK_U64, (offset + from.len() as u64 - 1) / BLOCK_U64);
        let size = self.size();
        let writer = self.writer()?;
        self.make_room(last + 1)?;
        if offset < head.durable() {
            self.mark(first, last)?;
        }
        let mut vouched = [true; WRITE_BLOCKS + 1];
        for block in first..=last {
            let at = (block - first) as usize;
            let (light, is_vouched) =
                self.prepare_block(block, from, offset, size, given.map(|given| given[at]))?;
            head.pending[at].store(light, Ordering::Relaxed);
            vouched[at] = is_vouched;
        }
        head.writing[0].store(first, Ordering::Relaxed);
        head.writing[1].store(last - first + 1, Ordering::Release);
        (first..=last).for_each(|block| self.live.at(block).announce());
        // No change of any of them is seen before that.
        fence(Ordering::Release);
        let written = write_all(writer, from, offset);
        let done = match &written {
            Ok(done) | Err((done, _)) => *done,
        };
        let end = offset + done as u64;
        for block in first..=last {
            let (at, begin) = ((block - first) as usize, block * BLOCK_U64);
            let entry = self.live.at(block);
            if end <= begin.max(offset) {
                // Nothing of it was written.
            } else if vouched[at] && (end >= begin + BLOCK_U64 || done == from.len()) {
                entry.light.store(head.pending[at].load(Ordering::Relaxed), Ordering::Relaxed);
                entry.verified.store(0, Ordering::Relaxed);
                entry.flags.store(flag::LOADED | flag::KNOWN | flag::DIRTY, Ordering::Release);
                head.set_dirty(self.live.region_of(block));
            } else if vouched[at] {
                // The file system took a part of the block: what that is now, only the file can say.
                let mut now = [0; BLOCK];
                let valid = (size.max(end) - begin).min(BLOCK_U64) as usize;
                if self.file.read_exact_at(&mut now[..valid], begin).is_ok() {
                    self.adopt(block, &now[..valid]);
                }
            }
        }
        if end > size && done > 0 {
            head.size.store(end, Ordering::Release);
        }
        head.written.store(clock::wall_nanoseconds(), Ordering::Relaxed);
        (first..=last).for_each(|block| self.live.at(block).end());
        head.writing[1].store(0, Ordering::Release);
        match written {
            Ok(done) => Ok(done),
            Err((0, error)) => Err(error.into()),
            Err((done, _)) => Ok(done),
        }
    }

    /// The light sum that a block will have, made before anything is verified, and whether anybody can vouch for it: the rest
    /// of a block that was never taken in is not known.
    fn prepare_block(
        &self,
        block: u64,
        from: &[u8],
        offset: u64,
        size: u64,
        given: Option<u64>,
    ) -> Outcome<(u64, bool)> {
        let begin = block * BLOCK_U64;
        let start = offset.max(begin);
        let end = (offset + from.len() as u64).min(begin + BLOCK_U64);
        let data = &from[(start - offset) as usize..(end - offset) as usize];
        let light = self.pair.light;
        let valid = size.saturating_sub(begin).min(BLOCK_U64);
        let covers = start == begin && end - begin >= valid;
        // Before anything is looked up of the block: what is known of it has the time to come from memory meanwhile.
        let made = if covers || given.is_none() { light.of(data).word() } else { 0 };
        self.ensure(block)?;
        if self.is_disowned() {
            let is_as_given = given.is_none_or(|given| given == light.of(data).word());
            return if is_as_given { Ok((0, false)) } else { Err(Trouble::Boundary(block)) };
        }
        if covers {
            // Case 1 of the chain, with early detection: the writer's sum goes along.
            if let Some(given) = given {
                add(&self.store.counts.boundary, 1);
                if made != given {
                    return Err(Trouble::Boundary(block));
                }
            }
            return Ok((made, true));
        }
        let sum = given.unwrap_or(made);
        if self.live.at(block).flags.load(Ordering::Acquire) & flag::KNOWN == 0 {
            return Ok((0, false));
        }
        let mut before = [0u8; BLOCK];
        let before = &mut before[..valid as usize];
        let mut is_healed = false;
        loop {
            self.read_block(block, before)?;
            let entry = self.live.at(block);
            // A block that grows is its old data, zeros, and then the new ones.
            let mut old = [0u8; BLOCK];
            old[..before.len()].copy_from_slice(before);
            let to = (start - begin) as usize;
            let length = before.len().max(to + data.len());
            let mut transfer = Transfer {
                origin: Summed { data, sum: Sum::of_word(sum), algorithm: light },
                destination: Summed {
                    data: &old[..length],
                    sum: Sum::of_word(entry.light.load(Ordering::Relaxed)),
                    algorithm: light,
                },
                from: 0,
                to,
                length: data.len(),
                made: Sum::default(),
            };
            let case = if data.len() == length { Case::PartToPart } else { Case::WholeToPart };
            add(&self.store.counts.boundary, 1);
            match transfer.prepare(case) {
                Ok(made) => return Ok((made.word(), true)),
                Err(Mismatch::Origin) => return Err(Trouble::Boundary(block)),
                Err(Mismatch::Destination) if is_healed => return Err(Trouble::Rotten(block)),
                Err(Mismatch::Destination) => {
                    self.heal(block, before, true)?;
                    is_healed = true;
                }
            }
        }
    }

    /// A block as the cache has it.
    fn read_block(&self, block: u64, to: &mut [u8]) -> std::io::Result<()> {
        if to.is_empty() || self.view.copy(&self.file, block * BLOCK_U64, to, false).is_some() {
            return Ok(());
        }
        self.file.read_exact_at(to, block * BLOCK_U64)
    }

    /// Notes durably that blocks are about to be changed in place, before they are: after a crash their old and their new data
    /// are both legal, and no others'. Each note takes twice as many regions as the one before, so that their number stays
    /// small.
    pub(crate) fn mark(&self, first: u64, last: u64) -> Result<()> {
        let regions = self.live.region_of(first)..=self.live.region_of(last);
        let head = self.live.head();
        let are_there = head.marking.load(Ordering::Relaxed) == 0;
        if are_there && regions.clone().all(|region| self.is_marked(region)) || self.store.leaves_out_marks()
        {
            return Ok(());
        }
        let ahead = head.mark_ahead.load(Ordering::Relaxed).max(1);
        head.mark_ahead.store((ahead * 2).min(1024), Ordering::Relaxed);
        let durable = blocks_of(head.durable());
        let end = self.live.region_of(durable.saturating_sub(1));
        let to = (*regions.start() as u64 + ahead).min(end as u64) as usize;
        let regions = *regions.start()..=to.max(*regions.end());
        let new: Vec<usize> = regions.filter(|region| !self.is_marked(*region)).collect();
        head.marking.fetch_or(marking::BY_WRITER, Ordering::Relaxed);
        new.iter().for_each(|region| set_bit(&head.marked, *region));
        let done = self.save_marks();
        match &done {
            // All that are in memory, since nobody else adds any without the lock of writers.
            Ok(()) => head.marking.store(0, Ordering::Relaxed),
            // Whether they are on the disk, nobody knows.
            Err(_) => new.iter().for_each(|region| clear_bit(&head.marked, *region)),
        }
        done
    }

    fn save_marks(&self) -> Result<()> {
        let head = self.live.head();
        if let Home::Slot(class) = self.home() {
            let FoundSlot::Record(mut record) = self.store.slots.read(class, self.inode)? else {
                // What cannot be read accuses nobody the more.
                return Ok(());
            };
            record.header.generation = head.generation.fetch_add(1, Ordering::Relaxed) + 1;
            self.copy_marks(&mut record.header);
            let copy = self.write_record(class, &record.header, &record.entries)?;
            self.store.slots.sync(class, self.inode)?;
            self.protect(copy);
            return Ok(());
        }
        let Some(file) = self.table.open()? else {
            // Without a table nobody is accused.
            return Ok(());
        };
        if let crate::table::Found::Header(header) = self.table.header(&file)? {
            // All but the marks is as it was last made durable.
            let mut next = *header;
            if let Some(modified) = self.stamped() {
                next.modified = modified;
            }
            next.generation = head.generation.fetch_add(1, Ordering::Relaxed) + 1;
            self.copy_marks(&mut next);
            self.table.write_header(&file, &next)?;
            head.stamped.store(0, Ordering::Relaxed);
            self.table.sync(&file)?;
        }
        Ok(())
    }
}

/// Writes until all is written or nothing more is taken.
fn write_all(
    file: &std::fs::File,
    from: &[u8],
    offset: u64,
) -> std::result::Result<usize, (usize, std::io::Error)> {
    let mut done = 0;
    while done < from.len() {
        match file.write_at(&from[done..], offset + done as u64) {
            Ok(0) => return Ok(done),
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(done)
}
