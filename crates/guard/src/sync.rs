//! Making a file durable: its data, and their sums.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::clock;
use crate::counts::add;
use crate::file::{GuardedFile, blocks_of};
use crate::format::{Entry, HEADERS, Header, REGIONS, Sums};
use crate::home::Home;
use crate::journal::What;
use crate::live::{bits, clear_bit, flag, has_bit, set_bit, state};
use crate::lock::SharedGuard;
use crate::opened::{OpenTable, begin_writing};
use crate::record::Class;
use crate::stat::Stat;
use crate::sum::{BLOCK, BLOCK_U64, Sum};
use crate::trouble::{Outcome, Trouble};

/// What is to be written to the table.
pub(crate) struct Snapshot {
    pub(crate) pages: Vec<(u64, Vec<Entry>)>,
    blocks: Vec<u64>,
    /// Where it is to be written.
    home: Home,
    pub(crate) size: u64,
    /// Pages that the table keeps, if the file was cut.
    pub(crate) cut: Option<u64>,
    /// Regions that the next header marks, and no earlier one.
    marks: Vec<usize>,
    /// Whatever of the data and of their sums a crash leaves, nobody is accused: the data need not be durable first.
    is_free: bool,
}

/// Blocks of a small file as the cache has them, read with one system call for many.
#[derive(Default)]
struct Peek {
    from: u64,
    bytes: Vec<u8>,
}

impl Peek {
    /// Bytes that are read at once.
    const BYTES: u64 = 128 << 10;

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

/// Pages of the table that a snapshot writes, counted from its beginning.
fn pages_of<'a>(snapshot: &'a Snapshot, header: &Header) -> impl Iterator<Item = u64> + use<'a> {
    let header = header.generation % HEADERS;
    std::iter::once(header).chain(snapshot.pages.iter().map(|(index, _)| HEADERS + index))
}

impl GuardedFile {
    /// Makes the file durable, as `fsync`, or with `data_only` as `fdatasync`.
    ///
    /// Before that, every block written since the last time is verified as the cache has it. A block that is not as it was
    /// written is in the error table; then this fails with [`Trouble::Rotten`], once, and what the file has of the block never
    /// verifies until it is written again.
    pub fn sync(&self, data_only: bool) -> Outcome<()> {
        let head = self.live.head();
        let [begun, done_data, done_all] = &head.syncs;
        let before = begun.load(Ordering::Acquire);
        let syncing = self.lock_syncers();
        // Who waited while another one began and ended has what it wants, as with a file system that commits for many.
        if (if data_only { done_data } else { done_all }).load(Ordering::Acquire) > before {
            return Ok(());
        }
        let number = begun.fetch_add(1, Ordering::AcqRel) + 1;
        let snapshot = {
            let _writers = self.lock_writers()?;
            self.snapshot(false)?
        };
        if let Err(trouble) = self.make_durable(&snapshot, data_only) {
            *self.opened.lock() = None;
            self.put_back_dirty(&snapshot);
            return Err(trouble);
        }
        let (errors, failed) = self.errors();
        if failed == 0 {
            done_data.store(number, Ordering::Release);
            if !data_only {
                done_all.store(number, Ordering::Release);
            }
        }
        drop(syncing);
        if failed > 0 {
            head.failed.store(0, Ordering::Release);
            return Err(Trouble::Rotten(errors.first().copied().unwrap_or(0)));
        }
        Ok(())
    }

    /// What was gathered was not saved.
    fn put_back_dirty(&self, snapshot: &Snapshot) {
        for block in &snapshot.blocks {
            self.live.at(*block).flags.fetch_or(flag::DIRTY, Ordering::AcqRel);
            set_bit(&self.live.head().dirty, self.live.region_of(*block));
        }
        // Whether they are on the disk, nobody knows.
        snapshot.marks.iter().for_each(|region| clear_bit(&self.live.head().marked, *region));
    }

    /// The lock of those who make the file durable. If its last holder died, what it took for the table is taken again.
    pub(crate) fn lock_syncers(&self) -> SharedGuard<'_> {
        let head = self.live.head();
        let lock = head.syncers.lock();
        if lock.is_orphaned {
            for region in bits(&head.marked) {
                let blocks = self.live.touched(self.live.blocks_of(region)).into_iter().flatten();
                for entry in blocks.filter_map(|block| self.live.entry(block)) {
                    if entry.flags.load(Ordering::Acquire) & flag::LOADED != 0 {
                        entry.flags.fetch_or(flag::DIRTY, Ordering::AcqRel);
                    }
                }
                set_bit(&head.dirty, region);
            }
        }
        lock
    }

    /// Makes data and sums durable. Where their order is free, both are on their way at the same time, and where the table
    /// needs nothing but its pages written, the flush that makes the data durable makes it so too.
    fn make_durable(&self, snapshot: &Snapshot, data_only: bool) -> Outcome<()> {
        let file = &self.file;
        let sync = || if data_only { file.sync_data() } else { file.sync_all() };
        if !snapshot.is_free {
            sync()?;
            return Ok(self.save(snapshot, true)?);
        }
        let stat = self.stat()?;
        if self.is_saved(snapshot, stat) {
            return Ok(sync()?);
        }
        let head = self.live.head();
        if let Home::Slot(class) = snapshot.home {
            let before = head.state.fetch_and(!state::UNSYNCED, Ordering::Relaxed);
            let done = self.make_durable_with_record(class, snapshot, stat, sync);
            if done.is_err() {
                head.state.fetch_or(before & state::UNSYNCED, Ordering::Relaxed);
            }
            return done;
        }
        let mut opened = self.opened.lock();
        self.move_to_table(&mut opened)?;
        let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
        let header = self.write_table(table, snapshot, stat)?;
        let mut pages = pages_of(snapshot, &header);
        table.begin()?;
        if self.store.is_flushed_at_once() && pages.all(|page| table.is_solid(page)) {
            begin_writing(file)?;
            table.wait()?;
            sync()?;
        } else {
            sync()?;
            table.sync(&self.table)?;
        }
        drop(opened);
        self.note_saved(snapshot, stat, true);
        Ok(())
    }

    /// The same with a record, which bears the marks that make any order right: whatever of the data and of the record a crash
    /// leaves, nobody is accused.
    fn make_durable_with_record(
        &self,
        class: Class,
        snapshot: &Snapshot,
        stat: Stat,
        sync: impl Fn() -> std::io::Result<()>,
    ) -> Outcome<()> {
        let slots = &self.store.slots;
        let copy = self.save_record(class, snapshot, stat)?;
        if self.store.is_flushed_at_once() {
            begin_writing(&self.file)?;
        }
        if self.store.is_flushed_at_once() && slots.push(class, self.inode, copy)? {
            sync()?;
        } else {
            sync()?;
            slots.sync(class, self.inode)?;
        }
        self.protect(copy);
        self.note_saved(snapshot, stat, true);
        Ok(())
    }

    /// Writes the record of a snapshot, and says over which copy.
    fn save_record(&self, class: Class, snapshot: &Snapshot, stat: Stat) -> Result<usize> {
        let home = Home::Slot(class);
        if self.home() != home {
            // What is to stay lies in another place.
            self.protect(0);
        }
        let entries = snapshot.pages.first().map_or(&[][..], |(_, entries)| entries);
        let copy = self.write_record(class, &self.header(snapshot.size, stat), entries)?;
        self.set_home(home);
        Ok(copy)
    }

    /// Of a file whose sums are in a table from now on: what an earlier one had must not be mixed with it.
    fn move_to_table(&self, opened: &mut Option<OpenTable>) -> Result<()> {
        if self.home() != Home::Table {
            *opened = None;
            self.table.remove()?;
        }
        Ok(())
    }

    /// Whether something is not in the table on the disk.
    pub fn is_dirty(&self) -> bool {
        let head = self.live.head();
        head.cut.load(Ordering::Relaxed) != 0
            || head.grown.load(Ordering::Relaxed) != 0
            || head.dirty.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Verifies what was written, makes its strong sums, and gathers what the disk must get. The caller holds the lock of
    /// writers. The file may go to a smaller home if it was written `anew`.
    pub(crate) fn snapshot(&self, is_anew: bool) -> Result<Snapshot> {
        let head = self.live.head();
        let size = self.size();
        let (per_page, count) = (self.pair.entries(), blocks_of(size));
        let now = clock::seconds();
        let (mut pages, mut blocks, mut marks) = (BTreeSet::new(), Vec::new(), Vec::new());
        // Of blocks behind this the table on the disk says nothing; before it, changes are legal where regions are marked.
        let durable = blocks_of(head.durable.load(Ordering::Relaxed));
        let is_unsynced = head.state.load(Ordering::Relaxed) & state::UNSYNCED != 0;
        let mut peek = Peek::default();
        let mut is_free = !is_unsynced && !self.store.leaves_out_marks();
        for region in bits(&head.dirty) {
            let range = self.live.blocks_of(region);
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
                is_free &= block >= durable || has_bit(&head.marked, region);
            }
            clear_bit(&head.dirty, region);
            // While its pages are on their way, what the disk says of the region may be of before or of after.
            if !self.store.leaves_out_marks() && !has_bit(&head.marked, region) {
                set_bit(&head.marked, region);
                marks.push(region);
            }
        }
        head.grown.store(0, Ordering::Relaxed);
        let cut = (head.cut.swap(0, Ordering::Relaxed) != 0).then(|| {
            if !durable.is_multiple_of(per_page) {
                pages.insert(durable / per_page);
            }
            durable.div_ceil(per_page)
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
        range
            .map(|block| {
                if block >= blocks {
                    return Ok(absent);
                }
                self.ensure(block)?;
                let entry = self.live.at(block);
                let flags = entry.flags.load(Ordering::Acquire);
                let light = entry.light.load(Ordering::Relaxed);
                Ok(if flags & flag::KNOWN == 0 {
                    Entry::Unknown
                } else if flags & flag::STRONG == 0 {
                    // Was found wrong before it had a strong sum. What is written must not vouch for what is there, in
                    // neither sum.
                    let Sum(words) = self.pair.strong.of(&[]);
                    let mut strong = words.map(|word| !word);
                    strong[self.pair.strong.words()..].fill(0);
                    Entry::Sums(Sums { light, strong: Sum(strong) })
                } else {
                    self.pair.entry_of(Sums { light, strong: entry.strong() })
                })
            })
            .collect()
    }

    /// Whether the table on the disk says all of a snapshot.
    fn is_saved(&self, snapshot: &Snapshot, stat: Stat) -> bool {
        let head = self.live.head();
        snapshot.blocks.is_empty()
            && snapshot.cut.is_none()
            && snapshot.home == self.home()
            && head.state.load(Ordering::Relaxed) & state::UNSYNCED == 0
            && stat.modified_nanoseconds() == head.seen.load(Ordering::Relaxed)
            && head.durable.load(Ordering::Relaxed) == snapshot.size
    }

    /// Writes a snapshot to the table. With `is_synced` the data are durable, and the table is made so too.
    pub(crate) fn save(&self, snapshot: &Snapshot, is_synced: bool) -> Result<()> {
        self.save_as(snapshot, self.stat()?, is_synced)
    }

    /// The same for who has looked at the file, which nobody has written to since.
    pub(crate) fn save_as(&self, snapshot: &Snapshot, stat: Stat, is_synced: bool) -> Result<()> {
        let head = self.live.head();
        if self.is_saved(snapshot, stat) {
            return Ok(());
        }
        if is_synced {
            head.state.fetch_and(!state::UNSYNCED, Ordering::Relaxed);
        } else {
            head.state.fetch_or(state::UNSYNCED, Ordering::Relaxed);
        }
        if let Home::Slot(class) = snapshot.home {
            let copy = self.save_record(class, snapshot, stat)?;
            if is_synced {
                self.store.slots.sync(class, self.inode)?;
                self.protect(copy);
            }
            self.note_saved(snapshot, stat, is_synced);
            return Ok(());
        }
        let mut opened = self.opened.lock();
        self.move_to_table(&mut opened)?;
        if let Some(pages) = snapshot.cut {
            let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
            self.table.cut(table.file(), pages)?;
            head.cuts.fetch_add(1, Ordering::Relaxed);
        }
        let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
        self.write_table(table, snapshot, stat)?;
        if is_synced {
            table.sync(&self.table)?;
        }
        drop(opened);
        self.note_saved(snapshot, stat, is_synced);
        Ok(())
    }

    /// Writes the pages of a snapshot and the next header, which is given back.
    fn write_table(&self, table: &OpenTable, snapshot: &Snapshot, stat: Stat) -> Result<Header> {
        for (index, entries) in &snapshot.pages {
            self.table.write_entries(table.file(), *index, entries)?;
        }
        let header = self.named_header(snapshot.size, stat);
        self.table.write_header(table.file(), &header)?;
        self.set_home(Home::Table);
        Ok(header)
    }

    fn note_saved(&self, snapshot: &Snapshot, stat: Stat, is_synced: bool) {
        let head = self.live.head();
        head.seen.store(stat.modified_nanoseconds(), Ordering::Relaxed);
        if snapshot.cut.is_some() || is_synced {
            head.durable.store(snapshot.size, Ordering::Relaxed);
        }
    }

    pub(crate) fn stat(&self) -> Result<Stat> {
        use rotproof_block::error::IoContext;
        Stat::of(self.file.as_raw_fd()).doing(|| format!("looking at {}", self.name()))
    }

    /// The next header of a table, which says where the file is.
    pub(crate) fn named_header(&self, size: u64, stat: Stat) -> Header {
        let name = self.current_name().into_os_string().into_encoded_bytes();
        Header { name, ..self.header(size, stat) }
    }

    /// The next header.
    pub(crate) fn header(&self, size: u64, stat: Stat) -> Header {
        let head = self.live.head();
        let bits = head.state.load(Ordering::Relaxed);
        let mut header = Header {
            generation: head.generation.fetch_add(1, Ordering::Relaxed) + 1,
            guard: self.store.settings().id,
            inode: self.inode,
            birth: self.identity.birth,
            reuse: self.identity.reuse,
            session: self.store.session(),
            size,
            modified: stat.modified,
            is_unsynced: bits & state::UNSYNCED != 0,
            is_complete: bits & state::COMPLETE != 0,
            is_foreign: bits & state::FOREIGN != 0,
            region_shift: head.region_shift.load(Ordering::Relaxed) as u8,
            regions: Box::new([0; REGIONS / 64]),
            name: Vec::new(),
        };
        self.copy_marks(&mut header);
        header
    }

    /// The marks of regions into a header.
    pub(crate) fn copy_marks(&self, header: &mut Header) {
        for (word, mark) in header.regions.iter_mut().zip(&self.live.head().marked) {
            *word = mark.load(Ordering::Relaxed);
        }
    }

    /// Takes the marks of regions away, if all of the file is durable. So a crash from now on leaves no doubt of any block.
    pub fn settle(&self) -> Result<()> {
        let head = self.live.head();
        let _syncing = self.lock_syncers();
        let _writers = self.lock_writers()?;
        let has_marks = head.marked.iter().any(|word| word.load(Ordering::Relaxed) != 0);
        let is_unsynced = head.state.load(Ordering::Relaxed) & state::UNSYNCED != 0;
        if !has_marks || is_unsynced || self.is_dirty() || self.is_foreign() {
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

    /// [`GuardedFile::store_stretch`] for who does not hold it.
    pub(crate) fn store_unsynced(&self) -> Result<()> {
        let _syncing = self.lock_syncers();
        let _writers = self.lock_writers()?;
        self.store_stretch()
    }

    /// After data and table have reached the disk by other means: the table says so.
    pub(crate) fn store_synced(&self) -> Result<()> {
        let head = self.live.head();
        if !self.is_dirty() {
            head.state.fetch_and(!state::UNSYNCED, Ordering::Relaxed);
            head.durable.store(self.size(), Ordering::Relaxed);
        }
        self.settle()
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
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::sync::Arc;

    use super::*;
    use crate::{Store, StoreOptions};

    fn open(store: &Arc<Store>) -> Arc<GuardedFile> {
        let path = store.root().join("file");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).expect("a file");
        GuardedFile::open(store, file.as_raw_fd(), true, &path).expect("a guarded file")
    }

    #[test]
    fn who_dies_while_it_makes_a_file_durable_leaves_no_block_to_be_accused() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        let file = open(&store);
        file.write_at(&[1; 20_000], 0).expect("written");
        file.sync(true).expect("durable");
        file.write_at(&[2; 9_000], 4096).expect("written");
        // SAFETY: the child takes a lock, gathers what is to be saved, and ends before it is.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::mem::forget(file.lock_syncers());
            let is_gathered = file.snapshot(false).is_ok_and(|snapshot| !snapshot.blocks.is_empty());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if is_gathered { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 7);
        // The last one closes the file without an fsync, and another one reads it by its table.
        drop(file);
        let mut data = [0; 20_000];
        assert!(matches!(open(&store).read_at(&mut data, 0), Ok(20_000)));
        assert!(data[..4096] == [1; 4096] && data[4096..13_096] == [2; 9_000], "as it was written");
    }

    #[test]
    fn data_come_first_where_sums_of_what_is_not_there_would_accuse() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        let file = open(&store);
        let is_free = || {
            let snapshot = file.snapshot(false).expect("gathered");
            file.put_back_dirty(&snapshot);
            snapshot.is_free
        };
        // Too long for a slot: a table, whose pages and headers need not become durable at once.
        file.write_at(&vec![1; (1 << 20) + 8192 + 100], 0).expect("written");
        assert!(is_free(), "nothing is said of a new file yet");
        file.sync(true).expect("durable");
        file.write_at(&[2; 100], 5000).expect("written");
        assert!(is_free(), "the region was marked before it was changed");
        file.sync(true).expect("durable");
        file.settle().expect("settled");
        file.append(&[3; 9000], None).expect("appended");
        assert!(!is_free(), "the last block had a sum, and nobody marked it");
        file.sync(true).expect("durable");
        file.set_size((1 << 20) + 8000).expect("cut");
        assert!(!is_free(), "the table says more than there is");
    }

    #[test]
    fn a_record_bears_the_marks_that_make_any_order_right() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        let file = open(&store);
        let snapshot = || {
            let snapshot = file.snapshot(false).expect("gathered");
            let is_marked = has_bit(&file.live.head().marked, 0);
            file.put_back_dirty(&snapshot);
            (snapshot.is_free, is_marked)
        };
        file.write_at(&[1; 8192 + 100], 0).expect("written");
        assert_eq!(snapshot(), (true, true));
        file.sync(false).expect("durable");
        file.settle().expect("settled");
        assert!(!has_bit(&file.live.head().marked, 0));
        file.append(&[3; 9000], None).expect("appended");
        assert_eq!(snapshot(), (true, true), "the last block had a sum");
        file.sync(false).expect("durable");
        store.leave_out_marks();
        file.settle().expect("settled");
        file.write_at(&[4; 100], 5000).expect("in place, without a mark");
        assert!(!snapshot().0, "data first");
    }
}
