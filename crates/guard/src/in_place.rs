//! Making durable what was written over, without a header: where blocks lie in regions that the header on the disk marks, their
//! sums lie in pages that are written over in place, and all else is as the header says.
//!
//! Nobody waits for the disk with a lock: many threads that write to one file make it durable at the same time, each with the data and
//! pages of those before it. What they are at is counted, so that nobody takes the marks away meanwhile.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::Result;

use crate::file::{GuardedFile, blocks_of};
use crate::format::{HEADERS, Header, Moment, REGIONS, Stamp};
use crate::home::Home;
use crate::live::{flag, state};
use crate::opened::{OpenTable, begin_writing, wait_for};
use crate::snapshot::Snapshot;
use crate::trouble::Outcome;

impl GuardedFile {
    /// Whether somebody makes the file durable without the locks, or died while it did.
    pub(crate) fn is_flying(&self) -> bool {
        self.live.head().flying.load(Ordering::Acquire) != 0
    }

    /// The time of modification that pages of the table say and its header does not.
    pub(crate) fn stamped(&self) -> Option<Moment> {
        const SECOND: u64 = 1_000_000_000;
        let stamped = self.live.head().stamped.load(Ordering::Relaxed);
        let moment =
            Moment { seconds: (stamped / SECOND).cast_signed(), nanoseconds: (stamped % SECOND) as u32 };
        (stamped != 0).then_some(moment)
    }

    /// Writes the pages of a snapshot over those of the table, if nothing else is to be told; otherwise `None`. Who gets the table has
    /// to [`GuardedFile::land`], for which the locks of syncers and writers, which the caller holds, are not needed.
    pub(crate) fn take_off(&self, snapshot: &Snapshot) -> Result<Option<Arc<File>>> {
        let head = self.live.head();
        let is_as_told = snapshot.is_free
            && snapshot.cut.is_none()
            && snapshot.marks.is_empty()
            && (self.home(), snapshot.home) == (Home::Table, Home::Table)
            && head.durable() == snapshot.size
            && head.state.load(Ordering::Relaxed) & state::TOLD == head.told_state.load(Ordering::Relaxed);
        let is_needed = !snapshot.blocks.is_empty() || self.is_flying();
        if !is_as_told || !is_needed || !self.store.is_flushed_at_once() {
            return Ok(None);
        }
        let mut opened = self.opened.lock();
        let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
        if !snapshot.pages.iter().all(|(index, _)| table.is_solid(HEADERS + index)) {
            return Ok(None);
        }
        let stat = self.stat()?;
        if stat.modified_nanoseconds() == 0 {
            // Of a time before 1970, nothing can be said here.
            return Ok(None);
        }
        if !snapshot.pages.is_empty() {
            let stamp = Stamp {
                follows: head.generation.load(Ordering::Relaxed),
                number: head.stamps.fetch_add(1, Ordering::Relaxed) + 1,
                modified: stat.modified,
            };
            for (index, entries) in &snapshot.pages {
                self.table.write_entries(table.file(), *index, entries, Some(stamp))?;
            }
            head.stamped.store(stat.modified_nanoseconds(), Ordering::Relaxed);
            head.seen.store(stat.modified_nanoseconds(), Ordering::Relaxed);
        }
        head.flying.fetch_add(1, Ordering::AcqRel);
        Ok(Some(table.shared()))
    }

    /// Waits until what was written is durable, with one flush.
    pub(crate) fn land(&self, table: &File, sync: impl Fn() -> std::io::Result<()>) -> Outcome<()> {
        begin_writing(&self.file)?;
        wait_for(table)?;
        Ok(sync()?)
    }

    /// It has come to its end without the locks. What failed is to be made durable again.
    pub(crate) fn landed(&self, snapshot: &Snapshot, done: Outcome<()>) -> Outcome<()> {
        let head = self.live.head();
        if done.is_err() {
            head.failures.fetch_add(1, Ordering::AcqRel);
            let _syncing = self.lock_syncers();
            let _writers = self.lock_writers()?;
            *self.opened.lock() = None;
            self.put_back_dirty(snapshot);
        }
        head.flying.fetch_sub(1, Ordering::AcqRel);
        done
    }

    /// What somebody was making durable when it died is to be made so again: all that is known, since nobody knows what of it was. The
    /// caller holds the lock of syncers.
    pub(crate) fn take_again(&self) {
        let head = self.live.head();
        for block in self.live.touched(0..blocks_of(self.size())).into_iter().flatten() {
            let Some(entry) = self.live.entry(block) else { break };
            if entry.flags.load(Ordering::Acquire) & flag::LOADED != 0 {
                entry.flags.fetch_or(flag::DIRTY, Ordering::AcqRel);
                head.set_dirty(self.live.region_of(block));
            }
        }
        // Nor whether the table was cut, or told of what the file has grown by.
        head.cut.store(1, Ordering::Relaxed);
        head.grown.store(1, Ordering::Relaxed);
    }

    /// A header as it holds together with the pages that were written after it without another one.
    pub(crate) fn with_stamps(&self, mut header: Box<Header>) -> Result<Box<Header>> {
        let Some(file) = self.table.open()? else { return Ok(header) };
        let (per_page, blocks) = (self.pair.entries(), blocks_of(header.size));
        let shift = u32::from(header.region_shift) - 12;
        let regions = (0..header.regions.len() * 64).filter(|region| header.is_marked(*region));
        let mut last = Stamp::default();
        let mut next = 0;
        for region in regions {
            let end = if region == REGIONS - 1 { blocks } else { ((region as u64 + 1) << shift).min(blocks) };
            for index in (((region as u64) << shift) / per_page).max(next)..end.div_ceil(per_page) {
                next = index + 1;
                if let Some(stamp) = self.table.stamp(&file, index)?
                    && stamp.follows == header.generation
                    && stamp.number > last.number
                {
                    last = stamp;
                }
            }
        }
        if last.number > 0 {
            header.modified = last.modified;
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::stat::{Stat, set_modified};
    use crate::table::Found;
    use crate::testing::in_child;
    use crate::trouble::Trouble;
    use crate::{Store, StoreOptions};

    const SIZE: usize = 3 << 20;

    /// A guarded file of three regions that is durable, with a descriptor of it.
    struct Rig {
        folder: tempfile::TempDir,
        store: Arc<Store>,
        below: File,
        file: Arc<GuardedFile>,
    }

    /// In a folder of its own on a disk: in memory no flush makes two files durable.
    fn rig() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let store =
            Store::init(folder.path(), None, StoreOptions::default()).expect("a guard").flush_at_once();
        let (below, file) = open(&store);
        file.write_at(&[1; SIZE], 0).expect("written");
        file.sync(false).expect("durable");
        file.settle().expect("settled");
        Rig { folder, store, below, file }
    }

    fn open(store: &Arc<Store>) -> (File, Arc<GuardedFile>) {
        let path = store.root().join("file");
        let mut options = OpenOptions::new();
        let below = options.read(true).write(true).create(true).truncate(false).open(&path).expect("a file");
        let file = GuardedFile::open(store, below.as_raw_fd(), true, &path).expect("a guarded file");
        (below, file)
    }

    /// What was before a crash.
    type Before = (Arc<GuardedFile>, Arc<Store>, tempfile::TempDir);

    impl Rig {
        /// Writes a block over, and makes it durable.
        fn write(&self, block: u64) {
            self.file.write_at(&[7; 4096], block * 4096).expect("written");
            self.file.sync_by(Some(self.below.as_raw_fd()), false).expect("durable");
        }

        fn header(&self) -> Box<Header> {
            let table = self.file.table.open().expect("asked").expect("a table");
            let Found::Header(header) = self.file.table.header(&table).expect("read") else {
                panic!("no header")
            };
            header
        }

        fn stamp(&self) -> Option<Stamp> {
            let table = self.file.table.open().expect("asked").expect("a table");
            self.file.table.stamp(&table, 0).expect("read")
        }

        /// The machine goes down and comes up again: all that this process knows is as if it had never been, and is kept until
        /// nobody looks any more.
        fn crash(self) -> (Before, Arc<Store>) {
            std::fs::remove_file(self.folder.path().join(".rotproof-guard/session")).expect("a session");
            let store = Store::open(self.folder.path(), None).expect("opened");
            ((self.file, self.store, self.folder), store)
        }
    }

    #[test]
    fn what_is_written_over_again_needs_no_header() {
        let rig = rig();
        rig.write(3);
        let header = rig.header();
        assert!(header.is_marked(0) && !header.is_marked(2));
        rig.write(5);
        let stamp = rig.stamp().expect("a stamp");
        assert_eq!((rig.header().generation, stamp.follows), (header.generation, header.generation));
        assert_eq!(stamp.modified, Stat::of(rig.below.as_raw_fd()).expect("there").modified);
        assert_eq!(rig.file.with_stamps(header).expect("read").modified, stamp.modified);
        rig.write(6);
        assert!(rig.stamp().expect("a stamp").number > stamp.number);
        // A region that is not marked yet: the mark goes first, and says the time too.
        rig.write(600);
        let marked = rig.header();
        assert!(marked.generation > stamp.follows && marked.is_marked(2));
        // Somebody else opens it after the last one has closed it: nobody has changed it behind the guard's back.
        rig.write(7);
        let store = Arc::clone(&rig.store);
        drop(rig.file);
        store.let_go(std::time::Duration::ZERO);
        let (_below, file) = open(&store);
        assert!(!file.is_foreign() && file.stamped().is_none());
    }

    #[test]
    fn after_a_crash_what_is_not_marked_is_not_excused() {
        let rig = rig();
        rig.write(3);
        rig.write(4);
        assert!(rig.stamp().is_some(), "the header is of before");
        let modified = Stat::of(rig.below.as_raw_fd()).expect("there").modified;
        let below = rig.below.try_clone().expect("a descriptor");
        let (_before, store) = rig.crash();
        for block in [2, 700] {
            below.write_all_at(&[9; 10], block * 4096).expect("rotten");
        }
        set_modified(&below, modified).expect("the time of before");
        let (_again, file) = open(&store);
        let mut data = [0; 4096];
        assert!(matches!(file.read_at(&mut data, 3 * 4096), Ok(4096)) && data == [7; 4096]);
        assert!(file.read_at(&mut data, 2 * 4096).is_ok(), "torn, as far as anybody can tell");
        assert!(matches!(file.read_at(&mut data, 700 * 4096), Err(Trouble::Rotten(700))), "nobody was at it");
    }

    #[test]
    fn many_make_one_file_durable_at_once() {
        let rig = rig();
        rig.write(0);
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let rig = &rig;
                scope.spawn(move || {
                    for turn in 0..40 {
                        let place = (thread * 40 + turn) * 4096 + 100;
                        rig.file.write_at(&[thread as u8 + 10; 2048], place).expect("written");
                        rig.file.sync_by(Some(rig.below.as_raw_fd()), true).expect("durable");
                    }
                });
            }
        });
        assert!(!rig.file.is_dirty() && !rig.file.is_flying());
        let generation = rig.header().generation;
        assert_eq!(rig.stamp().expect("a stamp").follows, generation, "no header was written");
        rig.file.settle().expect("settled");
        assert!(rig.header().generation > generation && !rig.header().is_marked(0));
        let (_before, store) = rig.crash();
        let (_below, file) = open(&store);
        let mut data = vec![0; SIZE];
        assert!(matches!(file.read_at(&mut data, 0), Ok(SIZE)));
        assert_eq!((data[100], data[240 * 4096 - 3000]), (10, 15));
        assert_eq!(store.counts.now().torn, 0);
    }

    #[test]
    fn marks_stay_while_somebody_is_at_it_and_what_fails_is_done_again() {
        let rig = rig();
        rig.write(3);
        let take_off = || {
            rig.file.write_at(&[8; 4096], 4096).expect("written");
            let _syncing = rig.file.lock_syncers();
            let _writers = rig.file.lock_writers().expect("a lock");
            let snapshot = rig.file.snapshot(false).expect("gathered");
            let table = rig.file.take_off(&snapshot).expect("written").expect("nothing else is to be told");
            (snapshot, table)
        };
        let (snapshot, table) = take_off();
        rig.file.settle().expect("asked");
        assert!(rig.header().is_marked(0), "not yet");
        let fails = || Err(std::io::Error::from_raw_os_error(libc::EIO));
        let done = rig.file.land(&table, fails);
        assert!(matches!(rig.file.landed(&snapshot, done), Err(Trouble::Os(libc::EIO))));
        assert!(rig.file.is_dirty() && !rig.file.is_flying());
        rig.file.sync_by(Some(rig.below.as_raw_fd()), false).expect("durable");
        assert!(!rig.file.is_dirty());
        // Who dies while it waits for the disk leaves it to the last one who closes the file.
        rig.write(3);
        in_child(|| std::mem::forget(take_off()));
        assert!(rig.file.is_flying());
        let store = Arc::clone(&rig.store);
        drop(rig.file);
        store.let_go(std::time::Duration::ZERO);
        let (_below, file) = open(&store);
        assert!(!file.is_flying() && file.live.head().state.load(Ordering::Relaxed) & state::UNSYNCED != 0);
        let mut data = [0; 8192];
        assert!(matches!(file.read_at(&mut data, 0), Ok(8192)) && data[4096..] == [8; 4096]);
    }

    #[test]
    fn a_failure_that_the_kernel_told_another_is_told_to_who_waited() {
        let rig = rig();
        rig.write(3);
        std::thread::scope(|scope| {
            let locked = rig.file.lock_syncers();
            let waits = scope.spawn(|| rig.file.sync(false));
            std::thread::sleep(std::time::Duration::from_millis(100));
            rig.file.live.head().failures.fetch_add(1, Ordering::AcqRel);
            drop(locked);
            assert!(matches!(waits.join().expect("no panic"), Err(Trouble::Os(libc::EIO))));
        });
        rig.file.sync(false).expect("told once");
    }
}
