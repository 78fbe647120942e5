//! Making a file durable: its data, and their sums.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;

use crate::file::GuardedFile;
use crate::home::Home;
use crate::live::state;
use crate::lock::SharedGuard;
use crate::opened::{OpenTable, begin_writing};
use crate::record::Class;
use crate::save::pages_of;
use crate::snapshot::Snapshot;
use crate::stat::Stat;
use crate::trouble::{Outcome, Trouble};

impl GuardedFile {
    /// Makes the file durable, as `fsync`, or with `data_only` as `fdatasync`.
    ///
    /// Before that, every block written since the last time is verified as the cache has it. A block that is not as it was
    /// written is in the error table; then this fails with [`Trouble::Rotten`], once, and what the file has of the block never
    /// verifies until it is written again.
    pub fn sync(&self, data_only: bool) -> Outcome<()> {
        self.sync_by(None, data_only)
    }

    /// [`GuardedFile::sync`] by a descriptor of its own, if there is one: the kernel tells each opening of a file once that something of it
    /// could not be written. Who has none waits for the others, so that what one of them was told is told to it too.
    pub fn sync_by(&self, descriptor: Option<RawFd>, data_only: bool) -> Outcome<()> {
        let failures = self.live.head().failures.load(Ordering::Acquire);
        self.sync_or_wait(descriptor, data_only)?;
        // It failed for somebody meanwhile, and the kernel may have told only that one.
        if self.live.head().failures.load(Ordering::Acquire) != failures {
            return Err(Trouble::Os(libc::EIO));
        }
        Ok(())
    }

    fn sync_or_wait(&self, descriptor: Option<RawFd>, data_only: bool) -> Outcome<()> {
        let head = self.live.head();
        let [begun, done_data, done_all] = &head.syncs;
        let before = begun.load(Ordering::Acquire);
        let syncing = self.lock_syncers();
        // Who waited while another one began and ended has what it wants, as with a file system that commits for many.
        if (if data_only { done_data } else { done_all }).load(Ordering::Acquire) > before {
            return Ok(());
        }
        let number = begun.fetch_add(1, Ordering::AcqRel) + 1;
        // What those have who are at it without the locks may still fail.
        let is_alone = !self.is_flying();
        let own = descriptor.unwrap_or_else(|| self.file.as_raw_fd());
        let sync = || sync_descriptor(own, data_only);
        let writers = self.lock_writers()?;
        let snapshot = self.snapshot(false)?;
        let is_right = self.errors().1 == 0;
        let table = if is_right { self.take_off(&snapshot) } else { Ok(None) };
        drop(writers);
        let done = match table {
            // Others need not wait, as each is told by the kernel of what failed.
            Ok(Some(table)) if descriptor.is_some() => {
                drop(syncing);
                return self.landed(&snapshot, self.land(&table, sync));
            }
            Ok(Some(table)) => {
                let done = self.land(&table, sync);
                head.flying.fetch_sub(1, Ordering::AcqRel);
                done
            }
            Ok(None) => self.make_durable(&snapshot, sync),
            Err(error) => Err(error.into()),
        };
        if let Err(trouble) = done {
            head.failures.fetch_add(1, Ordering::AcqRel);
            *self.opened.lock() = None;
            self.put_back_dirty(&snapshot);
            return Err(trouble);
        }
        let (errors, failed) = self.errors();
        if failed == 0 && is_alone {
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

    /// The lock of those who make the file durable. If its last holder died, what it took for the table is taken again.
    pub(crate) fn lock_syncers(&self) -> SharedGuard<'_> {
        let lock = self.live.head().syncers.lock();
        if lock.is_orphaned {
            self.take_again();
        }
        lock
    }

    /// Makes data and sums durable. Where their order is free, both are on their way at the same time, and where the table
    /// needs nothing but its pages written, the flush that makes the data durable makes it so too.
    fn make_durable(&self, snapshot: &Snapshot, sync: impl Fn() -> std::io::Result<()>) -> Outcome<()> {
        let file = &self.file;
        if !snapshot.is_free {
            sync()?;
            return Ok(self.save(snapshot, true)?);
        }
        let stat = self.stat()?;
        if self.is_saved(snapshot, stat) && !self.is_flying() {
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
        let writers = self.lock_writers()?;
        let mut opened = self.opened.lock();
        self.move_to_table(&mut opened)?;
        let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
        let header = self.write_table(table, snapshot, stat)?;
        // Who marks blocks as being changed reads what is on the disk and writes it anew, so that must not change meanwhile.
        drop(writers);
        let mut pages = pages_of(snapshot, &header);
        if self.store.is_flushed_at_once() && pages.all(|page| table.is_solid(page)) {
            begin_writing(file)?;
            table.wait()?;
            sync()?;
        } else {
            table.begin()?;
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
        let writers = self.lock_writers()?;
        let copy = self.save_record(class, snapshot, stat)?;
        // As with a table.
        drop(writers);
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
}

/// `fsync`, or with `data_only` `fdatasync`, of a descriptor.
fn sync_descriptor(descriptor: RawFd, data_only: bool) -> std::io::Result<()> {
    // SAFETY: take a number.
    match unsafe { if data_only { libc::fdatasync(descriptor) } else { libc::fsync(descriptor) } } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    use super::*;
    use crate::live::has_bit;
    use crate::testing::in_child;
    use crate::{Store, StoreOptions};

    /// A guarded folder of its own, which goes with the first of these.
    fn guarded() -> (tempfile::TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        (folder, store)
    }

    fn open(store: &Arc<Store>) -> Arc<GuardedFile> {
        let path = store.root().join("file");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).expect("a file");
        GuardedFile::open(store, file.as_raw_fd(), true, &path).expect("a guarded file")
    }

    #[test]
    fn who_dies_while_it_makes_a_file_durable_leaves_no_block_to_be_accused() {
        let (_folder, store) = guarded();
        let file = open(&store);
        file.write_at(&[1; 20_000], 0).expect("written");
        file.sync(true).expect("durable");
        file.write_at(&[2; 9_000], 4096).expect("written");
        // It takes a lock, gathers what is to be saved, and ends before it is.
        in_child(|| {
            std::mem::forget(file.lock_syncers());
            assert!(!file.snapshot(false).expect("gathered").blocks.is_empty());
        });
        // The last one closes the file without an fsync, and another one reads it by its table.
        drop(file);
        let mut data = [0; 20_000];
        assert!(matches!(open(&store).read_at(&mut data, 0), Ok(20_000)));
        assert!(data[..4096] == [1; 4096] && data[4096..13_096] == [2; 9_000], "as it was written");
    }

    #[test]
    fn what_is_cut_while_it_is_being_made_durable_is_not_taken_for_durable() {
        let (_folder, store) = guarded();
        let file = open(&store);
        file.write_at(&[1; 90_000], 0).expect("written");
        let snapshot = file.snapshot(false).expect("gathered");
        file.set_size(0).expect("cut");
        file.save(&snapshot, true).expect("saved");
        file.write_at(&[2; 20_000], 30_000).expect("what is before it are zeros, and not rotten");
        let mut data = [9; 50_000];
        assert!(matches!(file.read_at(&mut data, 0), Ok(50_000)));
        assert!(data[..30_000] == [0; 30_000] && data[30_000..] == [2; 20_000]);
    }

    #[test]
    fn what_is_written_or_cut_after_it_was_stored_is_not_made_durable_by_a_sync_of_all() {
        let (_folder, store) = guarded();
        let file = open(&store);
        let is_unsynced = || file.live.head().state.load(Ordering::Relaxed) & state::UNSYNCED != 0;
        file.write_at(&[1; 20_000], 0).expect("written");
        let written = file.store_unsynced().expect("stored");
        file.store_synced(written).expect("told");
        assert!(!is_unsynced());
        file.write_at(&[2; 20_000], 0).expect("written");
        let written = file.store_unsynced().expect("stored");
        // Somebody writes, and stores it, before all is told to be durable.
        file.write_at(&[3; 4096], 0).expect("written");
        file.store_unsynced().expect("stored");
        file.store_synced(written).expect("told");
        assert!(is_unsynced(), "what came later is not on the disk");
        let written = file.store_unsynced().expect("stored");
        let durable = file.live.head().durable();
        file.set_size(100).expect("cut");
        file.store_synced(written).expect("told");
        assert!(file.live.head().durable() <= durable.min(100), "less, and not more");
    }

    #[test]
    fn what_was_stored_and_is_cut_before_it_was_ever_durable_keeps_its_sums() {
        let (_folder, store) = guarded();
        store.keep_written();
        let file = open(&store);
        let data: Vec<u8> = (0..5_000_000u32).map(|at| (at >> 3) as u8).collect();
        file.write_at(&data, 0).expect("written");
        // As when a program closes it, and opens it again to cut it.
        file.rest(None);
        file.set_size(3_000_000).expect("cut");
        file.sync(false).expect("durable");
        file.set_size(1_155_066).expect("cut");
        file.append(&[7; 100_000], None).expect("appended");
        drop(file);
        store.let_go(std::time::Duration::ZERO);
        let mut read = vec![0; 1_155_066];
        assert!(matches!(open(&store).read_at(&mut read, 0), Ok(1_155_066)));
        assert!(read == data[..1_155_066]);
    }

    #[test]
    fn data_come_first_where_sums_of_what_is_not_there_would_accuse() {
        let (_folder, store) = guarded();
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
        let (_folder, store) = guarded();
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
