//! What the disk must get of a file: what was written since the last time, verified as the cache has it, and its strong sums.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::clock;
use crate::counts::add;
use crate::file::{GuardedFile, blocks_of};
use crate::format::{Entry, Sums};
use crate::home::Home;
use crate::journal::What;
use crate::live::{clear_bit, flag, has_bit, marking, set_bit, state};
use crate::sum::{BLOCK, BLOCK_U64, Sum};

/// What is to be written to the table.
pub(crate) struct Snapshot {
    pub(crate) pages: Vec<(u64, Vec<Entry>)>,
    pub(crate) blocks: Vec<u64>,
    /// Where it is to be written.
    pub(crate) home: Home,
    pub(crate) size: u64,
    /// Pages that the table keeps, if the file was cut.
    pub(crate) cut: Option<u64>,
    /// Regions that the next header marks, and no earlier one.
    pub(crate) marks: Vec<usize>,
    /// Whatever of the data and of their sums a crash leaves, nobody is accused: the data need not be durable first.
    pub(crate) is_free: bool,
}

/// Blocks of a small file as the cache has them, read with one system call for many.
#[derive(Default)]
struct Peek {
    from: u64,
    bytes: Vec<u8>,
}

impl Peek {
    /// Bytes that are read at once: few enough to be memory that the process has anyhow.
    const BYTES: u64 = 64 << 10;

    /// Copies a block; false if it has to be read singly.
    fn copy(&mut self, file: &GuardedFile, place: u64, size: u64, to: &mut [u8]) -> bool {
        let have = self.from..self.from + self.bytes.len() as u64;
        if !(have.contains(&place) && place + to.len() as u64 <= have.end) {
            let length = size.saturating_sub(place).min(Self::BYTES);
            if length <= BLOCK_U64 || !file.view.is_for_system_call(place + length) {
                return false;
            }
            self.from = place;
            self.bytes.resize(length as usize, 0);
            if file.file.read_exact_at(&mut self.bytes, place).is_err() {
                self.bytes.clear();
                return false;
            }
        }
        let at = (place - self.from) as usize;
        to.copy_from_slice(&self.bytes[at..at + to.len()]);
        true
    }
}

impl GuardedFile {
    /// Verifies what was written, makes its strong sums, and gathers what the disk must get. The caller holds the lock of
    /// writers. The file may go to a smaller home if it was written `anew`.
    pub(crate) fn snapshot(&self, is_anew: bool) -> Result<Snapshot> {
        let head = self.live.head();
        let size = self.size();
        let (per_page, count) = (self.pair.entries(), blocks_of(size));
        let now = clock::seconds();
        let (mut pages, mut blocks, mut marks) = (BTreeSet::new(), Vec::new(), Vec::new());
        // Of blocks behind this the table on the disk says nothing; before it, changes are legal where regions are marked.
        let durable = blocks_of(head.durable());
        // And of blocks behind this the table in the cache says nothing that still holds.
        let stored = blocks_of(head.stored());
        let is_unsynced = head.state.load(Ordering::Relaxed) & state::UNSYNCED != 0;
        let mut peek = Peek::default();
        let mut is_free = !is_unsynced && !self.store.leaves_out_marks();
        for region in head.dirty() {
            let range = self.live.blocks_of(region);
            let was_marked = has_bit(&head.marked, region);
            // While its pages are on their way, what the disk says of the region may be of before or of after.
            if !self.store.leaves_out_marks() && !was_marked {
                head.marking.fetch_or(marking::BY_SYNCER, Ordering::Relaxed);
                set_bit(&head.marked, region);
                marks.push(region);
            }
            for block in self.live.touched(range.start..range.end.min(count)).into_iter().flatten() {
                let Some(entry) = self.live.entry(block) else { break };
                let flags = entry.flags.load(Ordering::Acquire);
                if flags & flag::DIRTY == 0 {
                    continue;
                }
                if flags & (flag::STRONG | flag::ROTTEN) == 0 && flags & flag::KNOWN != 0 {
                    self.strengthen(&mut peek, block, size, now);
                }
                entry.flags.fetch_and(!flag::DIRTY, Ordering::AcqRel);
                pages.insert(block / per_page);
                blocks.push(block);
                is_free &= block >= durable || was_marked;
            }
            head.clear_dirty(region);
        }
        head.grown.store(0, Ordering::Relaxed);
        head.begin_telling(size);
        let cut = (head.cut.swap(0, Ordering::Relaxed) != 0).then(|| {
            if !stored.is_multiple_of(per_page) {
                pages.insert(stored / per_page);
            }
            stored.div_ceil(per_page)
        });
        let home = self.next_home(size, is_anew);
        let mut filled = Vec::with_capacity(pages.len());
        let moves = self.home() != home;
        if let Home::Slot(_) = home {
            // All in one record, which may be ahead of the data of all blocks that it has not marked as durable before.
            filled.push((0, self.entries_now(0..count, count)?));
            if is_unsynced || moves {
                self.mark_with(0..count, &mut marks);
            }
            let is_free = !self.store.leaves_out_marks();
            return Ok(Snapshot { pages: filled, blocks, home, size, cut, marks, is_free });
        }
        if moves && count > 0 {
            // All that the record had; what else the file has was written since.
            pages.insert(0);
            self.mark_with(0..per_page.min(count), &mut marks);
        }
        for index in pages {
            let range = index * per_page..(index + 1) * per_page;
            filled.push((index, self.entries_now(range, count)?));
        }
        let is_free = is_free && cut.is_none();
        Ok(Snapshot { pages: filled, blocks, home, size, cut, marks, is_free })
    }

    /// Marks the regions of blocks with what is saved next.
    fn mark_with(&self, blocks: std::ops::Range<u64>, marks: &mut Vec<usize>) {
        let head = self.live.head();
        if self.store.leaves_out_marks() || blocks.is_empty() {
            return;
        }
        for region in self.live.region_of(blocks.start)..=self.live.region_of(blocks.end - 1) {
            if !has_bit(&head.marked, region) {
                head.marking.fetch_or(marking::BY_SYNCER, Ordering::Relaxed);
                set_bit(&head.marked, region);
                marks.push(region);
            }
        }
    }

    /// Makes the strong sum of a block that was written, over what the cache has, and then verifies that by the light one:
    /// case 2 of the chain, from memory to disk.
    fn strengthen(&self, peek: &mut Peek, block: u64, size: u64, now: u64) {
        let entry = self.live.at(block);
        if self.store.is_end_to_end() {
            entry.set_strong(Sum::of_word(entry.light.load(Ordering::Relaxed)));
            entry.flags.fetch_or(flag::STRONG, Ordering::AcqRel);
            return;
        }
        let place = block * BLOCK_U64;
        let mut data = [0; BLOCK];
        let valid = BLOCK_U64.min(size.saturating_sub(place)) as usize;
        let data = &mut data[..valid];
        let read = peek.copy(self, place, size, data)
            || self.view.copy(&self.file, place, data, false).is_some()
            || self.file.read_exact_at(data, place).is_ok();
        let mut strong = self.pair.strong.of(data);
        add(&self.store.counts.boundary, 1);
        let mut is_right = read && self.pair.light.of(data).word() == entry.light.load(Ordering::Relaxed);
        if !is_right && self.heal(block, data, read).is_ok() {
            strong = self.pair.strong.of(data);
            is_right = true;
        }
        if is_right {
            entry.set_strong(strong);
            entry.verified.store(now, Ordering::Relaxed);
            entry.flags.fetch_or(flag::STRONG, Ordering::AcqRel);
        } else {
            entry.flags.fetch_or(flag::ROTTEN, Ordering::AcqRel);
            self.tell(What::WriteFailed, block);
            self.remember_error(block);
        }
    }

    /// Entries as they are to be on the disk, of a file with so many `blocks`.
    pub(crate) fn entries_now(&self, range: std::ops::Range<u64>, blocks: u64) -> Result<Vec<Entry>> {
        let is_complete = self.live.head().state.load(Ordering::Relaxed) & state::COMPLETE != 0;
        let absent = if is_complete { Entry::Zeros } else { Entry::Unknown };
        let mut entries = Vec::with_capacity((range.end - range.start) as usize);
        if range.start < blocks {
            self.make_room(range.end.min(blocks))?;
        }
        for block in range {
            if block >= blocks {
                entries.push(absent);
                continue;
            }
            let entry = self.live.at(block);
            if entry.flags.load(Ordering::Acquire) & flag::LOADED == 0 {
                self.load(block)?;
            }
            let flags = entry.flags.load(Ordering::Acquire);
            let light = entry.light.load(Ordering::Relaxed);
            entries.push(if flags & flag::KNOWN == 0 {
                Entry::Unknown
            } else if flags & flag::STRONG == 0 {
                // Was found wrong before it had a strong sum. What is written must not vouch for what is there, in
                // neither sum.
                let Sum(words) = self.pair.strong.of_zeros();
                let mut strong = words.map(|word| !word);
                strong[self.pair.strong.words()..].fill(0);
                Entry::Sums(Sums { light, strong: Sum(strong) })
            } else {
                self.pair.entry_of(Sums { light, strong: entry.strong() })
            });
        }
        Ok(entries)
    }

    /// What was gathered was not saved.
    pub(crate) fn put_back_dirty(&self, snapshot: &Snapshot) {
        for block in &snapshot.blocks {
            self.live.at(*block).flags.fetch_or(flag::DIRTY, Ordering::AcqRel);
            self.live.head().set_dirty(self.live.region_of(*block));
        }
        self.live.head().grown.store(1, Ordering::Relaxed);
        if snapshot.cut.is_some() {
            self.live.head().cut.store(1, Ordering::Relaxed);
        }
        // Whether they are on the disk, nobody knows.
        snapshot.marks.iter().for_each(|region| clear_bit(&self.live.head().marked, *region));
    }
}
