//! What processes leave that are killed: nothing of it is ever accused.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::check::{CheckOptions, CheckProgress, CheckReport, check};
use crate::live::{ZEROING, flag, has_bit, marking, set_bit};
use crate::testing::in_child;
use crate::trouble::Trouble;
use crate::{BLOCK, GuardedFile, Store, StoreOptions};

const BLOCKS: u64 = 3 << 8;

/// A guarded file of three regions that is durable, most of it behind the entries that lie in its room.
struct Rig {
    folder: tempfile::TempDir,
    store: Arc<Store>,
    below: File,
    file: Arc<GuardedFile>,
}

fn open(store: &Arc<Store>) -> (File, Arc<GuardedFile>) {
    let path = store.root().join("file");
    let below = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let below = below.expect("a file");
    let file = GuardedFile::open(store, below.as_raw_fd(), true, &path).expect("a guarded file");
    (below, file)
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        let (below, file) = open(&store);
        file.write_at(&vec![1; BLOCKS as usize * BLOCK], 0).expect("written");
        file.sync(false).expect("durable");
        file.settle().expect("settled");
        Self { folder, store, below, file }
    }

    /// The guard as another process finds it, which has not looked at any block yet.
    fn another(&self) -> Arc<Store> {
        Store::open(self.folder.path(), None).expect("opened")
    }

    fn header(&self) -> Box<crate::format::Header> {
        let table = self.file.table.open().expect("asked").expect("a table");
        let crate::table::Found::Header(header) = self.file.table.header(&table).expect("read") else {
            panic!("no header")
        };
        header
    }
}

fn checked(store: &Arc<Store>) -> CheckReport {
    let from = [store.root().to_owned()];
    let (progress, quiet) = (CheckProgress::default(), AtomicBool::new(false));
    check(store, &from, CheckOptions::default(), &progress, &quiet).expect("checked")
}

fn read(file: &GuardedFile, block: u64) -> Result<[u8; BLOCK], Trouble> {
    let mut data = [0; BLOCK];
    file.read_at(&mut data, block * BLOCK as u64).map(|_| data)
}

#[test]
fn what_was_being_written_far_in_a_file_is_taken_by_who_has_not_looked_at_it_yet() {
    let rig = Rig::new();
    in_child(|| {
        let file = &rig.file;
        std::mem::forget(file.lock_writers().expect("a lock"));
        let head = file.live.head();
        head.pending[0].store(file.pair.light.of(&[9; BLOCK]).word(), Ordering::Relaxed);
        head.writing[0].store(700, Ordering::Relaxed);
        head.writing[1].store(2, Ordering::Relaxed);
        (700..702).for_each(|block| file.live.at(block).begin());
        // The first block whole, of the second a part.
        rig.below.write_all_at(&[9; BLOCK + 100], 700 * BLOCK as u64).expect("written");
    });
    let another = rig.another();
    let (_below, file) = open(&another);
    assert!(matches!(read(&file, 700), Ok(data) if data == [9; BLOCK]));
    let data = read(&file, 701).expect("taken as it was found");
    assert!(data[..100] == [9; 100] && data[100..] == [1; BLOCK - 100]);
    assert!(!file.is_foreign(), "the change was a guard's");
    assert_eq!(another.counts.now().torn, 1);
    // One that was about to append, and had not come to it.
    in_child(|| {
        let file = &rig.file;
        std::mem::forget(file.lock_writers().expect("a lock"));
        file.make_room(BLOCKS + 1).expect("room");
        file.live.head().writing[0].store(BLOCKS, Ordering::Relaxed);
        file.live.head().writing[1].store(1, Ordering::Relaxed);
        file.live.at(BLOCKS).begin();
    });
    drop(file.lock_writers().expect("a lock"));
    assert_eq!(file.live.at(BLOCKS).sequence.load(Ordering::Relaxed) & 1, 0, "quiet again");
    file.append(&[5; BLOCK], None).expect("appended");
    assert!(matches!(read(&file, BLOCKS), Ok(data) if data == [5; BLOCK]));
    assert!(checked(&another).is_clean());
}

#[test]
fn what_was_being_cut_or_made_zeros_is_as_it_was_found() {
    let rig = Rig::new();
    in_child(|| {
        let file = &rig.file;
        std::mem::forget(file.lock_writers().expect("a lock"));
        (300..BLOCKS).for_each(|block| {
            file.ensure(block).expect("looked up");
            file.live.at(block).begin();
        });
        rig.below.set_len(300 * BLOCK as u64 + 10).expect("cut");
    });
    let another = rig.another();
    let (_below, file) = open(&another);
    assert!(!file.is_foreign());
    file.set_size(BLOCKS * BLOCK as u64).expect("grown");
    let data = read(&file, 300).expect("what stayed");
    assert!(data[..10] == [1; 10] && data[10..] == [0; BLOCK - 10]);
    assert!(matches!(read(&file, 301), Ok(data) if data == [0; BLOCK]));
    in_child(|| {
        let file = &rig.file;
        std::mem::forget(file.lock_writers().expect("a lock"));
        let head = file.live.head();
        head.writing[0].store(100, Ordering::Relaxed);
        head.writing[1].store(100 | ZEROING, Ordering::Relaxed);
        (100..200).for_each(|block| file.live.at(block).begin());
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes an open descriptor and numbers. It had come half of the way.
        unsafe { libc::fallocate(rig.below.as_raw_fd(), mode, 100 * BLOCK as i64, 50 * BLOCK as i64) };
    });
    assert!(matches!(read(&file, 149), Ok(data) if data == [0; BLOCK]));
    assert!(matches!(read(&file, 150), Ok(data) if data == [1; BLOCK]));
    assert!(checked(&another).is_clean());
}

#[test]
fn sums_that_somebody_was_about_to_save_are_not_let_go_of() {
    let rig = Rig::new();
    for block in [3, 500, 600] {
        rig.file.write_at(&[7; BLOCK], block * BLOCK as u64).expect("written");
    }
    in_child(|| {
        std::mem::forget(rig.file.lock_syncers());
        std::mem::forget(rig.file.lock_writers().expect("a lock"));
        assert_eq!(rig.file.snapshot(false).expect("gathered").blocks.len(), 3);
    });
    assert!(!rig.file.is_dirty(), "as if all were saved");
    let another = rig.another();
    let report = checked(&another);
    assert!(report.is_clean(), "{report:?}");
    assert!(matches!(read(&rig.file, 600), Ok(data) if data == [7; BLOCK]));
    drop((rig.below, rig.file));
    let (_below, file) = open(&another);
    assert!(matches!(read(&file, 500), Ok(data) if data == [7; BLOCK]));
}

#[test]
fn marks_that_are_in_memory_alone_are_not_relied_on() {
    let rig = Rig::new();
    in_child(|| {
        std::mem::forget(rig.file.lock_writers().expect("a lock"));
        let head = rig.file.live.head();
        head.marking.fetch_or(marking::BY_WRITER, Ordering::Relaxed);
        (0..3).for_each(|region| set_bit(&head.marked, region));
    });
    assert!(!rig.header().is_marked(0));
    rig.file.write_at(&[7; BLOCK], 0).expect("written");
    assert!(rig.header().is_marked(0) && rig.header().is_marked(2));
    // And those that were stored with what nobody has made durable.
    rig.file.sync(false).expect("durable");
    rig.file.settle().expect("settled");
    rig.file.append(&[8; 10 * BLOCK], None).expect("appended");
    rig.file.write_at(&[8; BLOCK], (BLOCKS + 3) * BLOCK as u64).expect("written");
    let path = rig.store.root().join("file");
    drop((rig.below, rig.file));
    rig.store.let_go(std::time::Duration::ZERO);
    let below = File::options().read(true).write(true).open(&path).expect("a file");
    let file = GuardedFile::open(&rig.store, below.as_raw_fd(), true, &path).expect("a guarded file");
    let head = file.live.head();
    assert!(has_bit(&head.marked, 3) && head.marking.load(Ordering::Relaxed) != 0);
    let generation = head.generation.load(Ordering::Relaxed);
    file.write_at(&[9; BLOCK], (BLOCKS + 2) * BLOCK as u64).expect("written");
    assert!(head.generation.load(Ordering::Relaxed) > generation, "marked once more");
    assert_eq!(head.marking.load(Ordering::Relaxed), 0);
    let generation = head.generation.load(Ordering::Relaxed);
    file.write_at(&[9; BLOCK], (BLOCKS + 1) * BLOCK as u64).expect("written");
    assert_eq!(head.generation.load(Ordering::Relaxed), generation, "and no more than once");
    let flags = file.live.at(BLOCKS + 1).flags.load(Ordering::Relaxed);
    assert!(flags & flag::DIRTY != 0);
}
