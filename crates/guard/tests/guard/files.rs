//! Files that nothing bad happens to.

use std::os::fd::AsRawFd;

use rotproof_guard::record::Class;
use rotproof_guard::{Algorithm, GuardedFile, Pair, Store, StoreOptions, Trouble};

use crate::rig::{Rig, bytes};

#[test]
fn what_is_written_is_read_and_verified_with_every_pair_of_checksums() {
    for light in Algorithm::LIGHT {
        for strong in Algorithm::ALL {
            for switch_seconds in [None, Some(0)] {
                let rig = Rig::with(StoreOptions { pair: Pair { light, strong }, switch_seconds });
                let store = rig.store();
                let data = bytes(1, 1_200_000);
                let file = rig.open(&store, "a");
                assert_eq!(file.write_at(&data, 0).expect("written"), data.len());
                let mut read = vec![0; data.len() + 10];
                assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
                assert!(read[..data.len()] == data);
                file.sync(false).expect("durable");
                drop(file);
                let before = store.counts.now();
                let file = rig.open(&store, "a");
                assert_eq!(file.read_at(&mut read[..5000], 4000).expect("read"), 5000);
                assert!(read[..5000] == data[4000..9000]);
                let after = store.counts.now();
                // Blocks 0 to 2 come from the disk, as far as anybody knows: verified by the strong sum.
                assert_eq!(after.strong - before.strong, 3, "{light} {strong}");
                assert_eq!((after.mismatches, after.unvouched), (0, 0));
                file.read_at(&mut read[..4096], 4096).expect("read");
                let again = store.counts.now();
                let is_dynamic = switch_seconds.is_some();
                assert_eq!(again.strong - after.strong, u64::from(is_dynamic));
                assert_eq!(again.light - after.light, u64::from(!is_dynamic));
            }
        }
    }
}

#[test]
fn a_table_takes_less_than_four_thousandths_of_a_large_file() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    file.write_at(&bytes(2, 8 << 20), 0).expect("written");
    file.sync(false).expect("durable");
    let table = store.table(file.inode());
    let size = std::fs::metadata(table.path()).expect("a table").len();
    assert!(size <= (8 << 20) * 4 / 1000 + 2 * 4096 + 4096, "{size}");
}

#[test]
fn data_that_changed_in_memory_before_they_are_written_are_refused_in_time() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    let mut data = bytes(3, 9000);
    file.write_at(&data, 0).expect("written");
    let sums: Vec<u64> = data.chunks(4096).map(|block| Algorithm::Xor64.of(block).word()).collect();
    let kept = std::fs::read(rig.path("a")).expect("read");
    data[5000] ^= 4;
    assert!(matches!(file.write_with_sums(&data, 0, Some(&sums)), Err(Trouble::Boundary(1))));
    assert!(std::fs::read(rig.path("a")).expect("read") == kept, "nothing of it was written");
    data[5000] ^= 4;
    assert_eq!(file.write_with_sums(&data, 0, Some(&sums)).expect("written again"), 9000);
    // Parts of blocks are refused too.
    let sum = Algorithm::Xor64.of(&data[..100]).word();
    assert!(matches!(file.write_with_sums(&data[1..101], 50, Some(&[sum])), Err(Trouble::Boundary(0))));
    assert!(matches!(file.write_with_sums(&data, 0, Some(&sums[..1])), Err(Trouble::Os(libc::EINVAL))));
}

#[test]
fn a_reader_gets_sums_to_verify_where_it_uses_the_data() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    let data = bytes(4, 20_000);
    file.write_at(&data, 0).expect("written");
    let mut read = vec![0; 10_000];
    let mut sums = Vec::new();
    file.read_with_sums(&mut read, 3000, &mut |sum| sums.push(sum)).expect("read");
    let parts = [&read[..1096], &read[1096..5192], &read[5192..9288], &read[9288..]];
    assert_eq!(sums, parts.map(|part| Algorithm::Xor64.of(part).word()));
}

#[test]
fn a_file_that_was_never_taken_in_is_read_and_nothing_vouches_for_it() {
    let rig = Rig::new();
    let data = bytes(5, 10_000);
    std::fs::write(rig.path("a"), &data).expect("written");
    let store = rig.store();
    let file = rig.open(&store, "a");
    let mut read = vec![0; 10_000];
    file.read_at(&mut read, 0).expect("read");
    assert!(read == data);
    assert_eq!(store.counts.now().unvouched, 3);
    // What is written through the guard is vouched for from then on.
    file.write_at(&data[..4096], 4096).expect("written");
    file.sync(false).expect("durable");
    file.read_at(&mut read, 0).expect("read");
    assert_eq!(store.counts.now().unvouched, 5);
}

#[test]
fn a_file_that_is_deleted_takes_its_sums_along() {
    use std::os::unix::fs::FileExt;
    let rig = Rig::new();
    let store = rig.store();
    for length in [10_000, 300_000, 2_000_000] {
        let file = rig.open(&store, "a");
        file.write_at(&bytes(6, length), 0).expect("written");
        file.sync(false).expect("durable");
        let table = store.table(file.inode());
        assert_eq!(table.path().exists(), length == 2_000_000);
        std::fs::remove_file(rig.path("a")).expect("deleted");
        file.write_at(&[1; 100], 50).expect("still open");
        let inode = file.inode();
        drop(file);
        assert!(!table.path().exists());
        for class in [Class::Small, Class::Medium] {
            let (path, place) = store.slot(class, inode);
            let mut slot = vec![1; class.slot_bytes()];
            // Slots that nobody has needed are not there.
            let Ok(slots) = std::fs::File::open(path) else { continue };
            let read = slots.read_at(&mut slot, place).expect("read");
            assert!(slot[..read].iter().all(|byte| *byte == 0), "{length}");
        }
        assert_eq!(store.live_inodes(), [] as [u64; 0]);
    }
}

#[test]
fn readers_beside_writers_never_see_rot() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    file.write_at(&vec![0; 64 * 4096], 0).expect("written");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                let mut read = vec![0; 3 * 4096];
                let mut at = reader;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    at = (at * 7 + 13) % (60 * 4096);
                    let done = file.read_at(&mut read, at).expect("no rot");
                    assert!(done > 0);
                }
            });
        }
        for round in 0..3000u64 {
            let data = bytes(round, 100 + (round * 37 % 9000) as usize);
            file.write_at(&data, round * 7919 % (60 * 4096)).expect("written");
            if round % 100 == 0 {
                file.set_size(61 * 4096 + round).expect("cut");
                file.set_size(64 * 4096).expect("grown");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let counts = store.counts.now();
    assert_eq!((counts.refused, counts.from_disk, counts.sums_mended), (0, 0, 0), "{counts:?}");
}

#[test]
fn two_guards_of_one_directory_share_what_they_know() {
    let rig = Rig::new();
    // As two processes do: each store has its own mappings, locks and descriptors.
    let (one, other) = (rig.store(), rig.store());
    let (first, second) = (rig.open(&one, "a"), rig.open(&other, "a"));
    let data = bytes(8, 300_000);
    first.write_at(&data, 0).expect("written");
    let mut read = vec![0; data.len()];
    assert_eq!(second.read_at(&mut read, 0).expect("read"), data.len());
    assert!(read == data);
    second.write_at(&[7; 5000], 1000).expect("written");
    first.read_at(&mut read, 0).expect("read");
    assert!(read[1000..6000] == [7; 5000]);
    first.sync(false).expect("durable");
    drop(first);
    assert_eq!(one.counts.now().unvouched + other.counts.now().unvouched, 0);
    second.read_at(&mut read, 0).expect("read");
    drop(second);
    assert_eq!(one.live_inodes(), [] as [u64; 0]);
}

#[test]
fn who_opens_while_the_last_one_closes_sees_what_that_one_wrote() {
    use std::os::fd::AsRawFd;
    let rig = Rig::new();
    let (store, path) = (rig.store(), rig.path("file"));
    let append = |number: u64| {
        for at in 0..300u64 {
            let file = std::fs::File::options().append(true).read(true).create(true).open(&path);
            let below = file.expect("a file");
            let file = GuardedFile::open(&store, below.as_raw_fd(), true, &path).expect("guarded");
            let line = (number * 1000 + at).to_le_bytes();
            assert_eq!(file.append(&line, None).expect("appended").1, 8);
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|number| drop(scope.spawn(move || append(number)))));
    let all = std::fs::read(&path).expect("the file");
    let mut numbers: Vec<u64> =
        all.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    numbers.sort_unstable();
    let wanted: Vec<u64> = (0..3).flat_map(|number| (0..300).map(move |at| number * 1000 + at)).collect();
    assert_eq!(numbers, wanted);
}

/// A file of 16 TB that is mostly a hole takes no memory for what nobody has written.
#[test]
fn a_long_file_with_little_in_it_takes_little_memory() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    let end = (1u64 << 44) - 8192;
    file.write_at(&[1; 4096], 0).expect("written");
    file.write_at(&[7; 4096], end).expect("written");
    file.sync(true).expect("durable");
    let mut read = [0; 4096];
    assert!(matches!(file.read_at(&mut read, end), Ok(4096)) && read == [7; 4096]);
    assert!(matches!(file.read_at(&mut read, end / 2), Ok(4096)) && read == [0; 4096]);
    file.set_size(5000).expect("cut");
    assert!(matches!(file.read_at(&mut read, 0), Ok(4096)) && read == [1; 4096]);
    use std::os::unix::fs::MetadataExt;
    let live = std::fs::metadata(store.live_path(file.inode())).expect("what its room has no room for");
    assert!(live.blocks() * 512 < 16 << 20, "{} bytes of memory", live.blocks() * 512);
    let path = store.live_path(file.inode());
    drop(file);
    assert!(!path.exists(), "given back");
    let file = rig.open(&store, "a");
    assert_eq!(file.size(), 5000);
    assert!(matches!(file.read_at(&mut read, 0), Ok(4096)) && read == [1; 4096]);
}

/// Who reads a file again finds it as it was left; who deletes it, or writes to it, does not wait for that.
#[test]
fn files_that_were_read_are_kept_attached_and_let_go() {
    let rig = Rig::new();
    let store = rig.store();
    let write = |fill: u8| {
        let file = rig.open(&store, "a");
        file.write_at(&[fill; 10_000], 0).expect("written");
        file.inode()
    };
    let inode = write(1);
    assert!(store.known(inode).is_none() && store.live_inodes().is_empty(), "what was written is left");
    let path = rig.path("a");
    let read = || {
        let file = std::fs::File::open(&path).expect("a file");
        let file = GuardedFile::open(&store, file.as_raw_fd(), false, &path).expect("guarded");
        let mut data = vec![0; 10_000];
        file.read_at(&mut data, 0).map(|_| data[0])
    };
    assert!(matches!(read(), Ok(1)));
    assert!(store.known(inode).is_some(), "kept");
    write(2);
    assert!(store.known(inode).is_none(), "let go by who writes");
    assert!(matches!(read(), Ok(2)));
    // Behind the guard's back, while it is kept.
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&path, [3; 10_000]).expect("written past the guard");
    assert!(read().is_err());
    let standing = store.known(inode).expect("kept").standing();
    assert_eq!(standing, rotproof_guard::take::Standing::Foreign);
    let born = rotproof_guard::stat::Stat::of_path(&path).map(|stat| stat.birth);
    std::fs::remove_file(&path).expect("it is there");
    let birth = born.expect("it was there");
    store.deleted(inode, birth).expect("told");
    assert!(store.known(inode).is_none() && store.live_inodes().is_empty());
    write(4);
    assert!(matches!(read(), Ok(4)));
    let shared = store.shared().to_owned();
    drop(store);
    assert!(!shared.exists(), "let go with the guard");
}

#[test]
fn a_file_that_would_be_too_large_is_refused_and_the_largest_is_guarded() {
    const LARGEST: u64 = 1 << 51;
    // Where files may be that large.
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
    let path = folder.path().join("a");
    let below = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    let file = GuardedFile::open(&store, below.as_raw_fd(), true, &path).expect("a guarded file");
    let is_too_large = |outcome: Result<(), Trouble>| matches!(outcome, Err(Trouble::Os(libc::EFBIG)));
    assert!(is_too_large(file.set_size(LARGEST + 1)));
    assert!(is_too_large(file.allocate(0, LARGEST, 1)));
    assert!(is_too_large(file.write_at(b"end", LARGEST - 2).map(drop)));
    file.write_at(b"end", LARGEST - 3).expect("written");
    let mut data = [0; 3];
    assert!(matches!(file.read_at(&mut data, LARGEST - 3), Ok(3)) && data == *b"end");
    file.set_size(10).expect("cut");
}
