//! Files that rot, in memory, on the disk, in the table.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rotproof_guard::journal::What;
use rotproof_guard::{Store, StoreOptions, Trouble};

use crate::rig::{Rig, bytes};

fn events(store: &Store) -> Vec<(What, u64)> {
    let (events, damaged) = store.journal().read().expect("events");
    assert_eq!(damaged, 0);
    events.into_iter().map(|event| (event.what, event.block)).collect()
}

#[test]
fn a_block_that_rotted_on_the_disk_is_refused_and_all_others_are_read() {
    for switch_seconds in [None, Some(0)] {
        let rig = Rig::with(StoreOptions { switch_seconds, ..StoreOptions::default() });
        let store = rig.store();
        let data = bytes(1, 100_000);
        let file = rig.open(&store, "a");
        file.write_at(&data, 0).expect("written");
        file.sync(false).expect("durable");
        drop(file);
        rig.flip_on_disk("a", 5 * 4096 * 8 + 77);
        let file = rig.open(&store, "a");
        let mut read = vec![0; data.len()];
        assert_eq!(file.read_at(&mut read, 0).expect("up to the block"), 5 * 4096);
        assert!(matches!(file.read_at(&mut read, 5 * 4096), Err(Trouble::Rotten(5))));
        assert!(matches!(file.read_at(&mut read[..10], 5 * 4096 + 9), Err(Trouble::Rotten(5))));
        assert_eq!(file.read_at(&mut read, 6 * 4096).expect("the rest"), 100_000 - 6 * 4096);
        assert_eq!(events(&store), [(What::Rotten, 5)]);
        // Part of it cannot be written, all of it can.
        assert!(matches!(file.write_at(&[1; 10], 5 * 4096 + 9), Err(Trouble::Rotten(5))));
        file.write_at(&data[5 * 4096..6 * 4096], 5 * 4096).expect("written");
        assert_eq!(file.read_at(&mut read, 0).expect("all"), data.len());
        assert!(read == data);
    }
}

/// A file `a` that is durable and that nobody has open: what it has.
fn durable(rig: &Rig, store: &Arc<Store>) -> Vec<u8> {
    let data = bytes(2, 50_000);
    let file = rig.open(store, "a");
    file.write_at(&data, 0).expect("written");
    file.sync(false).expect("durable");
    data
}

#[test]
fn a_rotten_block_is_taken_from_the_mirror_and_put_back() {
    let rig = Rig::new();
    let store = rig.store();
    let data = durable(&rig, &store);
    let mirror = tempfile::tempdir().expect("a mirror");
    std::fs::copy(rig.path("a"), mirror.path().join("a")).expect("copied");
    rig.flip_on_disk("a", 12 * 4096 * 8 + 5);
    let modified = std::fs::metadata(rig.path("a")).and_then(|metadata| metadata.modified()).expect("times");
    store.set_mirror(Some(mirror.path().to_owned()));
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
    assert!(read == data && std::fs::read(rig.path("a")).expect("read") == data);
    assert_eq!(events(&store), [(What::RecoveredFromMirror, 12)]);
    let after = std::fs::metadata(rig.path("a")).and_then(|metadata| metadata.modified()).expect("times");
    assert_eq!(modified, after);
    // A mirror that is wrong too is not believed.
    rig.flip_on_disk("a", 4096 * 8);
    std::fs::write(mirror.path().join("a"), vec![9; 50_000]).expect("wrong");
    assert!(matches!(file.read_at(&mut read[..4096], 4096), Err(Trouble::Rotten(1))));
}

/// Answers as the server of a volume does, with what each copy of one block has; `None` cannot be read.
fn volume_server(socket: &std::path::Path, copies: Vec<Option<Vec<u8>>>) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::os::unix::net::UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a client"));
            let greeting = r#"{"rotproof":"control","version":1,"name":"disk","pid":1}"#;
            writeln!(stream.get_mut(), "{greeting}").expect("said");
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
                let asked: serde_json::Value = serde_json::from_str(&line).expect("JSON");
                line.clear();
                assert_eq!((&asked["do"], &asked["length"]), (&"volume_read".into(), &4096.into()));
                assert_eq!(asked["offset"].as_u64().expect("a place") % 4096, 0);
                let copy = &copies[asked["copy"].as_u64().expect("a number") as usize];
                let digits =
                    |data: &Vec<u8>| data.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                let answer = serde_json::json!({ "id": asked["id"], "ok": {
                    "copies": copies.len(), "data": copy.as_ref().map(digits)
                } });
                writeln!(stream.get_mut(), "{answer}").expect("said");
            }
        }
    });
}

#[test]
fn a_rotten_block_is_taken_from_the_other_copy_of_a_volume_and_put_back() {
    use rotproof_guard::copies::VolumeCopies;
    let rig = Rig::new();
    let store = rig.store();
    let data = durable(&rig, &store);
    // The last block, of 848 bytes: what is behind them on the disk is nobody's.
    let flipped = 12 * 4096;
    rig.flip_on_disk("a", flipped * 8 + 5);
    let mut right = data[flipped as usize..].to_vec();
    right.resize(4096, 7);
    let wrong = vec![3; 4096];
    let sockets = tempfile::tempdir().expect("a folder");
    let [only_wrong, has_right] = ["wrong", "right"].map(|name| sockets.path().join(name));
    volume_server(&only_wrong, vec![Some(wrong.clone()), None]);
    volume_server(&has_right, vec![None, Some(wrong), Some(right)]);
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    for nobody in [sockets.path().join("nothing"), only_wrong] {
        store.set_copies(Some(VolumeCopies::new(nobody)));
        assert!(matches!(file.read_at(&mut read, flipped), Err(Trouble::Rotten(12))));
    }
    store.set_copies(Some(VolumeCopies::new(has_right)));
    assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
    assert!(read == data && std::fs::read(rig.path("a")).expect("read") == data);
    assert_eq!(events(&store).last(), Some(&(What::RecoveredFromCopy, 12)));
    assert_eq!(store.counts.now().from_copy, 1);
}

#[test]
fn a_block_that_rots_in_the_cache_before_it_is_durable_is_told_by_the_next_fsync() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    let data = bytes(3, 50_000);
    file.write_at(&data, 0).expect("written");
    rig.flip_cached("a", 3 * 4096 * 8);
    assert!(matches!(file.sync(false), Err(Trouble::Rotten(3))));
    file.sync(false).expect("told once");
    assert!(events(&store).contains(&(What::WriteFailed, 3)));
    let mut read = vec![0; 4096];
    assert!(matches!(file.read_at(&mut read, 3 * 4096), Err(Trouble::Rotten(3))));
    drop(file);
    // Nor does it verify ever after, until it is written again.
    let file = rig.open(&store, "a");
    assert!(matches!(file.read_at(&mut read, 3 * 4096), Err(Trouble::Rotten(3))));
    file.write_at(&data[3 * 4096..4 * 4096], 3 * 4096).expect("written again");
    file.sync(false).expect("durable");
    file.read_at(&mut read, 3 * 4096).expect("right");
}

#[test]
fn a_sum_that_rots_in_the_table_is_mended_by_the_other_and_a_page_of_them_is_doubted() {
    let rig = Rig::new();
    let store = rig.store();
    let data = bytes(4, 1_100_000);
    let file = rig.open(&store, "a");
    file.write_at(&data, 0).expect("written");
    file.sync(false).expect("durable");
    let table = store.table(file.inode());
    drop(file);
    store.let_go(std::time::Duration::ZERO);
    // The light sum of block 2: two headers, the head of the page, two entries of 16 bytes.
    let place = 2 * 4096 + 64 + 2 * 16;
    let flip = |place: u64| {
        let table = std::fs::OpenOptions::new().read(true).write(true).open(table.path()).expect("a table");
        let mut byte = [0];
        table.read_exact_at(&mut byte, place).expect("a byte");
        table.write_all_at(&[byte[0] ^ 1], place).expect("flipped");
    };
    flip(place);
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
    assert!(read == data);
    assert_eq!(events(&store), [(What::SumMended, 2)]);
    file.sync(false).expect("mended on the disk too");
    drop(file);
    store.let_go(std::time::Duration::ZERO);
    let file = rig.open(&store, "a");
    file.read_at(&mut read, 0).expect("read");
    assert_eq!(store.counts.now().sums_mended, 1);
    drop(file);
    store.let_go(std::time::Duration::ZERO);
    // The strong sum cannot be trusted, so neither can the block.
    flip(place + 8);
    let file = rig.open(&store, "a");
    assert!(matches!(file.read_at(&mut read[..4096], 2 * 4096), Err(Trouble::Rotten(2))));
    file.read_at(&mut read[..4096], 3 * 4096).expect("its neighbour is fine");
}

#[test]
fn one_header_that_is_damaged_leaves_the_other_and_both_leave_the_sums() {
    let rig = Rig::new();
    let store = rig.store();
    let data = bytes(5, 1_100_000);
    let file = rig.open(&store, "a");
    for _ in 0..2 {
        file.write_at(&data, 0).expect("written");
        file.sync(false).expect("durable");
    }
    let table = store.table(file.inode());
    drop(file);
    let mut read = vec![0; data.len()];
    for slot in [0, 1] {
        let damaged = std::fs::OpenOptions::new().write(true).open(table.path()).expect("a table");
        damaged.write_all_at(&[0xAA; 100], slot * 4096 + 50).expect("damaged");
        let before = store.counts.now();
        let file = rig.open(&store, "a");
        assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
        let after = store.counts.now();
        assert!(read == data && after.unvouched == before.unvouched, "{slot}");
        assert_eq!(after.refused, 0);
    }
}

#[test]
fn a_change_behind_the_guards_back_is_told_apart_from_rot() {
    let rig = Rig::new();
    let store = rig.store();
    let file = rig.open(&store, "a");
    file.write_at(&bytes(6, 50_000), 0).expect("written");
    file.sync(false).expect("durable");
    drop(file);
    let other = std::fs::OpenOptions::new().write(true).open(rig.path("a")).expect("the file");
    other.write_all_at(b"hello", 4096).expect("changed");
    let file = rig.open(&store, "a");
    let mut read = vec![0; 4096];
    assert!(matches!(file.read_at(&mut read, 4096), Err(Trouble::Rotten(1))));
    file.read_at(&mut read, 0).expect("as it was");
    assert_eq!(events(&store), [(What::Foreign, 1)]);
}

#[test]
fn after_a_crash_what_was_under_way_is_torn_what_was_durable_is_verified_and_rot_is_rot() {
    let rig = Rig::new();
    let store = rig.store();
    let data = bytes(7, 3 << 20);
    let file = rig.open(&store, "a");
    file.write_at(&data, 0).expect("written");
    file.sync(false).expect("durable");
    file.settle().expect("settled");
    // In place, in the first region of a megabyte; not made durable.
    file.write_at(&bytes(8, 5000), 10_000).expect("written");
    rig.lose_power(store, vec![file]);
    let store = rig.store();
    let file = rig.open(&store, "a");
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(&mut read, 0).expect("read"), data.len());
    assert!(read[10_000..15_000] == bytes(8, 5000) && read[..10_000] == data[..10_000]);
    assert_eq!(events(&store), [(What::Torn, 2)]);
    assert_eq!(store.counts.now().torn, 2);
}
