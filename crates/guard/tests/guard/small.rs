//! Small files, whose sums lie in slots by inode, and the memory that processes share.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;

use rotproof_guard::format::{PAGE, Settings, VERSION_MIN};
use rotproof_guard::journal::What;
use rotproof_guard::record::Class;
use rotproof_guard::take::Standing;
use rotproof_guard::{Algorithm, GuardedFile, Store, StoreOptions, Trouble};

use crate::rig::{Rig, bytes};
use crate::testing::in_child;

fn events(store: &Arc<Store>) -> Vec<(What, u64)> {
    let (events, _) = store.journal().read().expect("events");
    events.into_iter().map(|event| (event.what, event.block)).collect()
}

/// Whether the slots of an inode have something.
fn slots(store: &Store, inode: u64) -> [bool; 2] {
    [Class::Small, Class::Medium].map(|class| {
        let (path, place) = store.slot(class, inode);
        let mut slot = vec![0; class.slot_bytes()];
        let read = std::fs::File::open(path).and_then(|file| file.read_at(&mut slot, place));
        read.is_ok_and(|read| slot[..read].iter().any(|byte| *byte != 0))
    })
}

#[test]
fn sums_move_to_a_larger_home_as_the_file_grows_and_back_when_it_is_written_anew() {
    let rig = Rig::new();
    let store = rig.store();
    let read_all = |length: usize, data: &[u8]| {
        let file = rig.open(&store, "a");
        let before = store.counts.now();
        let mut read = vec![0; length + 1];
        assert_eq!(file.read_at(&mut read, 0).expect("read"), length);
        assert!(read[..length] == data[..length]);
        let after = store.counts.now();
        assert_eq!(after.unvouched, before.unvouched, "{length}");
        assert_eq!(after.strong - before.strong, length.div_ceil(4096) as u64, "{length}");
    };
    for is_synced in [false, true] {
        let data = bytes(1, 2_000_000);
        let mut length = 0;
        for next in [10_000, 90_000, 102_400, 102_401, 700_000, 1_019_904, 1_019_905, 2_000_000] {
            let file = rig.open(&store, "a");
            file.write_at(&data[length..next], length as u64).expect("written");
            if is_synced {
                file.sync(false).expect("durable");
            }
            let inode = file.inode();
            drop(file);
            length = next;
            let [small, medium] = slots(&store, inode);
            assert!(small, "{length}");
            assert_eq!(medium, length > 102_400, "{length}");
            assert_eq!(store.table(inode).path().exists(), length > 1_019_904, "{length}");
            read_all(length, &data);
        }
        // Written anew and small: a slot has the last word, though the table is still there if nobody made that durable.
        let data = bytes(2, 30_000);
        let file = rig.open(&store, "a");
        file.set_size(0).expect("cut");
        file.write_at(&data, 0).expect("written");
        drop(file);
        read_all(30_000, &data);
        let file = rig.open(&store, "a");
        file.append(&data[..100], None).expect("appended");
        file.sync(false).expect("durable");
        let inode = file.inode();
        drop(file);
        store.let_go(Duration::ZERO);
        let mut all = data.clone();
        all.extend_from_slice(&data[..100]);
        read_all(30_100, &all);
        assert!(!store.table(inode).path().exists(), "the table has had its time");
        // A table once more, with nothing of the first one in it.
        let file = rig.open(&store, "a");
        file.set_size(3_000_000).expect("grown");
        file.write_at(&data[..10], 2_999_990).expect("written");
        drop(file);
        all.resize(3_000_000, 0);
        all[2_999_990..].copy_from_slice(&data[..10]);
        read_all(3_000_000, &all);
        assert_eq!(events(&store), []);
        std::fs::remove_file(rig.path("a")).expect("removed");
        store.let_go(Duration::ZERO);
    }
}

#[test]
fn what_a_crash_leaves_of_a_small_file_is_torn_and_rot_is_rot() {
    let rig = Rig::new();
    let store = rig.store();
    let data = bytes(7, 60_000);
    for name in ["a", "b"] {
        let file = rig.open(&store, name);
        file.write_at(&data, 0).expect("written");
        file.sync(false).expect("durable");
        file.settle().expect("settled");
    }
    let file = rig.open(&store, "a");
    // In place, not made durable.
    file.write_at(&bytes(8, 5000), 10_000).expect("written");
    rig.lose_power(store, vec![file]);
    rig.flip_on_disk("b", 5 * 4096 * 8);
    let store = rig.store();
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
    assert!(read[10_000..15_000] == bytes(8, 5000) && read[..10_000] == data[..10_000]);
    assert_eq!(events(&store), [(What::Torn, 2)]);
    // Nobody was at work on the other one.
    let file = rig.open(&store, "b");
    assert!(matches!(file.read_at(&mut read[..4096], 5 * 4096), Err(Trouble::Rotten(5))));
    file.read_at(&mut read[..4096], 4 * 4096).expect("its neighbour is fine");
}

/// What the sums say of bytes that the file does not have says nothing of bytes that it gets.
#[test]
fn who_writes_behind_the_end_of_a_file_that_something_has_cut_is_not_accused() {
    let data = bytes(11, 50_000);
    // In a slot and in a table; after a crash, and behind the guard's back while the file is closed and while it is open.
    for length in [50_000, 2_000_000u64] {
        for (way, size) in [(0, 0), (1, 0), (2, 0), (0, 8192), (1, 8192), (2, 8192)] {
            let rig = Rig::new();
            let mut store = rig.store();
            let file = rig.open(&store, "a");
            file.set_size(length).expect("grown");
            file.write_at(&data, length - 50_000).expect("written");
            file.write_at(&data, 0).expect("written");
            file.sync(false).expect("durable");
            let mut kept = Some(file);
            if way == 0 {
                rig.lose_power(store, vec![kept.take().expect("open")]);
                store = rig.store();
            } else if way == 1 {
                kept = None;
                store.let_go(Duration::ZERO);
            }
            let below = OpenOptions::new().write(true).open(rig.path("a")).expect("it is there");
            below.set_len(size).expect("cut");
            let file = rig.open(&store, "a");
            drop(kept);
            let mut all = data[..size as usize].to_vec();
            all.resize(8292, 0);
            // A part of a block behind the end.
            file.write_at(&data[..80], 8212).unwrap_or_else(|trouble| panic!("{way} {size}: {trouble:?}"));
            all[8212..].copy_from_slice(&data[..80]);
            let mut read = vec![0; 8292];
            assert_eq!(
                file.read_at(&mut read, 0).expect("zeros, and what was written"),
                8292,
                "{way} {size}"
            );
            assert!(read == all, "{way} {size}");
            file.set_size(length).expect("grown");
            let mut read = vec![1; 50_000];
            assert_eq!(file.read_at(&mut read, length - 50_000).expect("zeros"), 50_000);
            assert!(read.iter().skip(8292).all(|byte| *byte == 0), "{way} {size}");
            assert_eq!(events(&store), []);
            // And so it is on the disk.
            file.sync(false).expect("durable");
            drop(file);
            store.let_go(Duration::ZERO);
            let file = rig.open(&store, "a");
            file.read_at(&mut read, length - 50_000).expect("zeros");
            assert_eq!(events(&store), []);
        }
    }
}

#[test]
fn a_slot_that_rots_never_lets_rot_of_the_data_pass() {
    let rig = Rig::new();
    let data = bytes(9, 60_000);
    let store = rig.store();
    let file = rig.open(&store, "a");
    for _ in 0..2 {
        file.write_at(&data, 0).expect("written");
        file.sync(false).expect("durable");
    }
    let (path, place) = store.slot(Class::Small, file.inode());
    drop(file);
    store.let_go(Duration::ZERO);
    let slots = OpenOptions::new().read(true).write(true).open(path).expect("slots");
    let mut kept = [0; 1024];
    slots.read_exact_at(&mut kept, place).expect("a slot");
    rig.flip_on_disk("a", 5 * 4096 * 8);
    let mut read = vec![0; 4096];
    for at in (0..1024).step_by(7) {
        let mut rotten = kept;
        rotten[at] ^= 0x10;
        slots.write_all_at(&rotten, place).expect("rotten");
        let file = rig.open(&store, "a");
        assert!(file.read_at(&mut read, 5 * 4096).is_err(), "byte {at} of the slot");
        // All else is right, or refused where its own sum has rotted.
        for block in [0, 1, 14] {
            let length = 4096.min(data.len() - block * 4096);
            if let Ok(done) = file.read_at(&mut read[..length], block as u64 * 4096) {
                assert!(done == length && read[..length] == data[block * 4096..block * 4096 + length]);
            }
        }
        drop(file);
        store.let_go(Duration::ZERO);
        slots.write_all_at(&kept, place).expect("mended");
    }
}

#[test]
fn an_inode_that_is_used_again_has_nothing_of_its_former_life() {
    let rig = Rig::new();
    let store = rig.store();
    let mut reused = 0;
    for round in 0..20 {
        let file = rig.open(&store, "a");
        file.write_at(&bytes(round, 20_000), 0).expect("written");
        let inode = file.inode();
        drop(file);
        // Behind the guard's back, and within a tick of the clock.
        std::fs::remove_file(rig.path("a")).expect("removed");
        std::fs::write(rig.path("b"), bytes(round + 100, 20_000)).expect("written");
        reused += u32::from(std::fs::metadata(rig.path("b")).expect("it is there").ino() == inode);
        let file = std::fs::File::open(rig.path("b")).expect("it is there");
        let file = GuardedFile::open(&store, file.as_raw_fd(), false, &rig.path("b")).expect("guarded");
        let mut read = vec![0; 20_000];
        file.read_at(&mut read, 0).expect("nobody accuses it");
        assert_eq!(file.standing(), Standing::Unknown);
        drop(file);
        store.let_go(Duration::ZERO);
        // What is written through the guard is vouched for beside what the former one has left.
        std::fs::remove_file(rig.path("b")).expect("removed");
        let file = rig.open(&store, "c");
        file.write_at(&read, 0).expect("written");
        drop(file);
        let before = store.counts.now().unvouched;
        rig.open(&store, "c").read_at(&mut read, 0).expect("right");
        assert_eq!(store.counts.now().unvouched, before);
        std::fs::remove_file(rig.path("c")).expect("removed");
        store.let_go(Duration::ZERO);
    }
    assert!(reused > 0 || !cfg!(target_os = "linux"), "no inode was used again");
    assert_eq!(events(&store), []);
}

/// A file that was just made is looked for nowhere; but an earlier opening may have saved that it is empty.
#[test]
fn what_is_left_of_an_empty_file_says_nothing_of_what_was_written_to_it_after_its_name_was_gone() {
    let rig = Rig::new();
    let store = rig.store();
    let path = rig.path("a");
    let options = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let below = options().expect("a file");
    let open = || GuardedFile::open(&store, below.as_raw_fd(), true, &path).expect("guarded");
    open().sync(false).expect("durable, and empty");
    let file = open();
    std::fs::remove_file(&path).expect("removed");
    file.write_at(&bytes(3, 20_000), 50_000).expect("written");
    drop(file);
    let file = open();
    let mut read = vec![0; 70_000];
    assert_eq!(file.read_at(&mut read, 0).expect("nobody accuses it"), 70_000);
    assert_eq!(events(&store), []);
}

#[test]
fn who_is_killed_leaves_sums_in_memory_for_the_next_one() {
    let rig = Rig::new();
    // Nobody is there before.
    let data = bytes(3, 300_000);
    in_child(|| {
        let store = rig.store();
        let file = rig.open(&store, "a");
        file.write_at(&data, 0).expect("written");
        std::mem::forget((file, store));
    });
    let store = rig.store();
    assert_eq!(store.live_inodes().len(), 1);
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    file.read_at(&mut read, 0).expect("verified");
    assert!(read == data && store.counts.now().unvouched == 0);
    drop(file);
    store.let_go(Duration::ZERO);
    assert_eq!(store.live_inodes(), [] as [u64; 0]);
}

/// Where the memory of a guard's session lies, by this version and by earlier ones.
fn shared_memory(rig: &Rig) -> [std::path::PathBuf; 2] {
    let name = std::fs::read(rig.path(".rotproof-guard/session")).expect("a session");
    let digits: String = name[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let place = |prefix: &str| std::path::Path::new("/dev/shm").join(format!("{prefix}{digits}"));
    ["rotproof-guards-2-", "rotproof-guard-"].map(place)
}

#[test]
fn memory_that_another_version_has_laid_out_is_never_looked_at() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    file.write_at(&[1; 5000], 0).expect("written");
    let [ours, theirs] = shared_memory(&rig);
    // As if an earlier version used it now.
    std::fs::rename(&ours, &theirs).expect("renamed");
    let refused = Store::open(rig.root(), None).expect_err("in use");
    assert!(refused.to_string().contains("another version of Rotproof"), "{refused}");
    std::fs::rename(&theirs, &ours).expect("renamed");
    drop((file, store));
    // As if one had been killed.
    in_child(|| {
        let store = rig.store();
        let file = rig.open(&store, "a");
        file.write_at(&[2; 5000], 0).expect("written");
        std::mem::forget((file, store));
    });
    let [ours, theirs] = shared_memory(&rig);
    std::fs::rename(&ours, &theirs).expect("renamed");
    let store = rig.store();
    let mut read = [0; 5000];
    assert!(matches!(rig.open(&store, "a").read_at(&mut read, 0), Ok(5000)) && read == [2; 5000]);
    assert!(!theirs.exists(), "nobody uses it, and the guard names another session");
}

#[test]
fn memory_of_a_guard_that_is_gone_is_cleared_by_the_next_start_of_any() {
    let gone = Rig::new();
    let held = Rig::new();
    let place = |rig: &Rig| {
        let [ours, _] = shared_memory(rig);
        ours
    };
    for rig in [&gone, &held] {
        in_child(|| {
            let store = rig.store();
            let file = rig.open(&store, "a");
            file.write_at(&[1; 5000], 0).expect("written");
            std::mem::forget((file, store));
        });
    }
    let (left, kept) = (place(&gone), place(&held));
    assert!(left.is_dir() && kept.is_dir());
    std::fs::remove_dir_all(gone.path(".rotproof-guard")).expect("gone");
    let other = Rig::new();
    drop(other.store());
    assert!(!left.exists(), "its guard is gone");
    assert!(kept.exists(), "its guard names it: it has sums that are nowhere else");
    let store = held.store();
    held.open(&store, "a").read_at(&mut [0; 5000], 0).expect("verified");
    assert_eq!(store.counts.now().unvouched, 0);
    store.let_go(Duration::ZERO);
    drop(store);
    assert!(!kept.exists());
}

#[test]
fn many_small_files_by_several_guards_at_once() {
    let rig = Rig::new();
    let stores: Vec<_> = (0..3).map(|_| rig.store()).collect();
    std::thread::scope(|scope| {
        for (number, store) in stores.iter().enumerate() {
            for thread in 0..2u64 {
                let rig = &rig;
                scope.spawn(move || {
                    let mut draw = number as u64 * 7 + thread + 1;
                    for round in 0..150u64 {
                        draw = draw.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ round;
                        let name = format!("f{}", draw % 9);
                        let path = rig.path(&name);
                        let below = OpenOptions::new()
                            .read(true)
                            .write(true)
                            .create(true)
                            .truncate(false)
                            .open(&path)
                            .expect("open");
                        let file = GuardedFile::open(store, below.as_raw_fd(), true, &path).expect("guarded");
                        match draw >> 8 & 3 {
                            0 => drop(
                                file.write_at(&bytes(draw, 20_000), draw >> 16 & 0xffff).expect("written"),
                            ),
                            1 => file.sync(true).expect("durable"),
                            2 if round % 16 == 0 => file.set_size(0).expect("cut"),
                            _ => {
                                let mut read = vec![0; 90_000];
                                file.read_at(&mut read, 0).expect("no rot");
                            }
                        }
                        drop(file);
                        drop(below);
                        if draw >> 10 & 15 == 0 {
                            let born = rotproof_guard::stat::Stat::of_path(&path);
                            if let Ok(stat) = born
                                && std::fs::remove_file(&path).is_ok()
                            {
                                store.deleted(stat.inode, stat.birth).expect("told");
                            }
                        }
                    }
                });
            }
        }
    });
    for store in &stores {
        store.let_go(Duration::ZERO);
        assert_eq!(events(store), []);
    }
    assert_eq!(stores[0].live_inodes(), [] as [u64; 0]);
}

/// A guard of the first version has tables only, also for small files. It is opened, and goes on in the new form.
#[test]
fn a_guard_of_format_1_is_read_and_goes_on_as_2() {
    let rig = Rig::new();
    let store = Store::init(rig.root(), None, StoreOptions::default()).expect("a guard");
    let data = bytes(5, 1_300_000);
    let file = rig.open(&store, "a");
    file.write_at(&data, 0).expect("written");
    file.sync(false).expect("durable");
    let table = store.table(file.inode()).path().to_owned();
    drop(file);
    let settings = store.settings().clone();
    drop(store);
    for name in ["guard", "guard.copy"] {
        let old = Settings { version: VERSION_MIN, ..settings.clone() };
        std::fs::write(rig.path(".rotproof-guard").join(name), old.to_page()).expect("written");
    }
    // As version 1 wrote headers and pages: no number of uses of the inode.
    let mut pages = std::fs::read(&table).expect("a table");
    for (number, page) in pages.chunks_exact_mut(PAGE).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (version, sum) = if number < 2 { (8, PAGE - 8) } else { (4, 24) };
        page[version..version + 4].copy_from_slice(&1u32.to_le_bytes());
        if number < 2 {
            page[12] &= !8;
            page[96..100].fill(0);
        } else {
            page[sum..sum + 8].fill(0);
        }
        let end = if number < 2 { PAGE - 8 } else { PAGE };
        let made = Algorithm::Xxh3.of(&page[..end]).word().to_le_bytes();
        page[sum..sum + 8].copy_from_slice(&made);
    }
    std::fs::write(&table, pages).expect("written");
    let store = rig.store();
    assert_eq!(store.settings().version, rotproof_guard::format::VERSION);
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    file.read_at(&mut read, 0).expect("verified");
    assert!(read == data);
    assert_eq!((store.counts.now().unvouched, events(&store)), (0, Vec::new()));
    file.write_at(&data[..100], 5000).expect("written");
    file.sync(false).expect("durable");
    drop(file);
    drop(store);
    let store = rig.store();
    rig.open(&store, "a").read_at(&mut read, 0).expect("verified");
}

#[test]
fn a_written_file_that_rests_has_its_sums_on_the_disk_and_is_let_go_when_it_is_deleted() {
    let rig = Rig::new();
    let store = rig.store();
    store.keep_written();
    let data = bytes(4, 50_000);
    let file = rig.open(&store, "a");
    file.write_at(&data, 0).expect("written");
    let inode = file.inode();
    assert_eq!(slots(&store, inode), [false, false]);
    file.rest(None);
    drop(file);
    assert!(store.known(inode).is_some(), "kept");
    assert_eq!(slots(&store, inode), [true, false]);
    // Somebody else changes it meanwhile, by a guard of its own.
    let other = rig.store();
    rig.open(&other, "a").write_at(&data[..5000], 20_000).expect("written");
    let file = rig.open(&store, "a");
    let before = store.counts.now();
    let mut read = vec![0; data.len()];
    file.read_at(&mut read, 0).expect("verified");
    assert!(read[20_000..25_000] == data[..5000] && read[..20_000] == data[..20_000]);
    assert_eq!(store.counts.now().unvouched, before.unvouched);
    file.rest(None);
    drop(file);
    let born = rotproof_guard::stat::Stat::of_path(&rig.path("a")).expect("it is there").birth;
    std::fs::remove_file(rig.path("a")).expect("removed");
    store.deleted(inode, born).expect("told");
    assert!(store.known(inode).is_none() && store.live_inodes().is_empty());
    assert_eq!(slots(&store, inode), [false, false]);
}

#[test]
fn threads_that_make_one_file_durable_share_the_work_and_lose_nothing() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    file.write_at(&vec![0; 8 * 8192], 0).expect("written");
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 1..20u8 {
                    file.write_at(&[round; 2048], thread * 8192 + 1000).expect("written");
                    file.sync(round % 2 == 0).expect("durable");
                }
            });
        }
    });
    assert!(!file.is_dirty(), "whoever returned last had all of it durable");
    // A block that rots before it is durable is told to one of those who wait.
    file.write_at(&[77; 4096], 8192).expect("written");
    rig.flip_cached("a", 9000 * 8);
    assert!(matches!(file.sync(true), Err(Trouble::Rotten(2))));
    rig.lose_power(store, vec![file]);
    let store = rig.store();
    let file = rig.open(&store, "a");
    let mut read = [0; 2048];
    for thread in [0, 2, 7] {
        file.read_at(&mut read, thread * 8192 + 1000).expect("verified");
        assert!(read == [19; 2048], "{thread}");
    }
}
