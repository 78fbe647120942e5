//! What a version says once some of its history, or of the log of the map, cannot be read on any copy; and going back that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rotproof_block::{Device, ErrorKind, Operation, Result, Runtime};

use super::{VersionsDevice, VersionsOptions};
use crate::faulty::{Act, Faulty};
use crate::table::BLOCK_BYTES;
use crate::testing::{find, flush, lose_newest_state, memory, read, write};

const BLOCK: usize = BLOCK_BYTES as usize;

fn open(below: &Arc<dyn Device>, runtime: &Runtime) -> Result<Arc<VersionsDevice>> {
    runtime.block_on(VersionsDevice::open_on(Arc::clone(below), VersionsOptions::default(), runtime))?
}

fn capture(device: &VersionsDevice, runtime: &Runtime) -> u64 {
    runtime.block_on(device.capture(runtime, "v", 0)).expect("runs").expect("captured")
}

fn number(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

/// How the volume ends, and so where it is on record how much of the history there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As the power goes: the log has it.
    Torn,
    /// In order: the state has it.
    Settled,
    /// After another version was captured: the list has it.
    Captured,
}

#[test]
fn a_version_whose_newest_history_is_lost_gives_errors_and_not_what_was_written_later() {
    for end in [End::Torn, End::Settled, End::Captured] {
        for is_erased in [false, true] {
            let runtime = Runtime::simulated(1);
            let below = memory(16 << 20);
            let device = open(&below, &runtime).expect("opens");
            write(&*device, &runtime, 0, &[1; 2 * BLOCK]).expect("written");
            let id = capture(&device, &runtime);
            for (block, byte) in [(0, 2), (BLOCK_BYTES, 3)] {
                write(&*device, &runtime, block, &[byte; BLOCK]).expect("written");
                flush(&*device, &runtime);
            }
            match end {
                End::Torn => {}
                End::Settled => runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled"),
                End::Captured => drop(capture(&device, &runtime)),
            }
            drop(device);
            // The slot with both pairs. The other one is whole, and knows of the first alone.
            let mut newest = find(&*below, &runtime, b"rotpHIST");
            newest.retain(|(_, block)| number(block, 28) == 2);
            let [(at, bytes)] = &newest[..] else { panic!("{end:?}: {} slots", newest.len()) };
            let mut bad = if is_erased { vec![0; BLOCK] } else { bytes.clone() };
            bad[100] ^= 1;
            write(&*below, &runtime, *at, &bad).expect("written");
            for opening in 0..2 {
                let device = open(&below, &runtime).expect("opens");
                let view = device.view(id).expect("there");
                let of_second = read(&*view, &runtime, BLOCK_BYTES, BLOCK);
                let error = of_second.expect_err("it is not known where it was");
                assert_eq!(error.kind(), ErrorKind::Medium, "{end:?}, opening {opening}");
                assert!(device.versions()[0].is_damaged);
                let back = runtime.block_on(device.roll_back(&runtime, id, 0)).expect("runs");
                assert_eq!(back.expect_err("damaged").kind(), ErrorKind::Medium);
                let present = read(&*device, &runtime, 0, 2 * BLOCK).expect("the present is not concerned");
                assert_eq!(present, [vec![2; BLOCK], vec![3; BLOCK]].concat());
                drop(device);
                // What comes up again later names places that may be others' by now.
                write(&*below, &runtime, *at, bytes).expect("written");
            }
        }
    }
}

#[test]
fn a_map_whose_log_is_lost_is_not_opened_with_what_it_said_before() {
    let runtime = Runtime::simulated(1);
    let below = memory(16 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
    runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
    capture(&device, &runtime);
    for byte in [2, 3] {
        write(&*device, &runtime, BLOCK_BYTES * byte, &[byte as u8; BLOCK]).expect("written");
        write(&*device, &runtime, 0, &[byte as u8; BLOCK]).expect("written");
        flush(&*device, &runtime);
    }
    drop(device);
    let mut blocks = find(&*below, &runtime, b"rotpLOG2");
    blocks.sort_by_key(|(_, block)| number(block, 24));
    let first = number(&blocks[0].1, 24);
    let of_first: Vec<u64> =
        blocks.iter().filter(|(_, block)| number(block, 24) == first).map(|(at, _)| *at).collect();
    assert_eq!(of_first.len(), 2, "one in each log");
    write(&*below, &runtime, of_first[0], &[0xee; BLOCK]).expect("written");
    drop(open(&below, &runtime).expect("the other copy has it"));
    write(&*below, &runtime, of_first[0], &[0xee; BLOCK]).expect("written");
    write(&*below, &runtime, of_first[1], &[0xee; BLOCK]).expect("written");
    let device = open(&below, &runtime);
    match device {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Medium),
        // Unless the opening before has made it part of the pages.
        Ok(device) => assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("read"), [3; BLOCK]),
    }
}

/// Going back fails at the nth write to the device below; what was written then is there after the next opening, or was refused.
#[test]
fn what_is_written_after_going_back_has_failed_is_not_gone_back_over() {
    let (mut failed, mut refused) = (0, 0);
    for nth in 0..16 {
        for is_repeated in [false, true] {
            let runtime = Runtime::simulated(1);
            let faulty = Faulty::over(memory(16 << 20));
            let below: Arc<dyn Device> = faulty.clone();
            let device = open(&below, &runtime).expect("opens");
            let stride = 300 * BLOCK_BYTES;
            for block in 0..8 {
                write(&*device, &runtime, block * stride, &[1; BLOCK]).expect("written");
            }
            let id = capture(&device, &runtime);
            for block in 0..8 {
                write(&*device, &runtime, block * stride, &[2; BLOCK]).expect("written");
            }
            flush(&*device, &runtime);
            let first = faulty.requests() as u64;
            let is_on = Arc::new(AtomicBool::new(true));
            let on = Arc::clone(&is_on);
            faulty.plan(move |request, number| {
                let is_change = matches!(request.operation, Operation::Write { .. } | Operation::Flush);
                let fails = on.load(Ordering::SeqCst) && is_change && number >= first + nth;
                if fails { Act::Fail(ErrorKind::Medium) } else { Act::Pass }
            });
            let gone_back = runtime.block_on(device.roll_back(&runtime, id, 0)).expect("runs");
            is_on.store(false, Ordering::SeqCst);
            let Err(error) = gone_back else { continue };
            failed += 1;
            let goes_on = device.shared.half_back_to.load(Ordering::SeqCst) == id
                && !device.shared.is_stuck.load(Ordering::SeqCst);
            if is_repeated && goes_on {
                runtime
                    .block_on(device.roll_back(&runtime, id, 0))
                    .expect("runs")
                    .expect("the device is well");
                assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("read"), [1; BLOCK]);
            } else if let Ok(bytes) = read(&*device, &runtime, 0, BLOCK) {
                assert_eq!(bytes, [2; BLOCK], "half of it is not handed out, after {error}");
            }
            let written = write(&*device, &runtime, 0, &[7; BLOCK]).map(|()| flush(&*device, &runtime));
            refused += u64::from(written.is_err());
            drop(device);
            let device = open(&below, &runtime).expect("opens");
            for block in 0..8 {
                let is = read(&*device, &runtime, block * stride, BLOCK).expect("read");
                let legal: &[u8] = match (block, &written) {
                    (0, Ok(())) => &[7],
                    _ => &[1, 2],
                };
                assert!(legal.contains(&is[0]), "block {block} is {} after {error}, {written:?}", is[0]);
            }
            write(&*device, &runtime, 0, &[8; BLOCK]).expect("it is used again");
        }
    }
    assert!(failed > 8 && refused > 2, "{failed} {refused}");
}

/// Histories that have no room of their own take some of that for data, and give it back.
#[test]
fn histories_take_room_among_the_data_and_give_it_back() {
    let runtime = Runtime::simulated(1);
    let below = memory(48 << 20);
    let device = open(&below, &runtime).expect("opens");
    let blocks = device.info().size / BLOCK_BYTES;
    let free = device.room().free_bytes;
    let mut ids = Vec::new();
    // Each flush writes a block of a history; each version begins another extent.
    for version in 0..90u64 {
        ids.push(capture(&device, &runtime));
        let block = version * 7 % blocks;
        write(&*device, &runtime, block * BLOCK_BYTES, &[version as u8 + 1; BLOCK]).expect("written");
        flush(&*device, &runtime);
    }
    let taken = (free - device.room().free_bytes) / BLOCK_BYTES;
    assert!(taken > 90 + 100, "{taken} blocks are taken: histories are among the data");
    let check = |device: &VersionsDevice| {
        for (version, id) in (0..).zip(&ids) {
            let view = device.view(*id).expect("there");
            let block = version * 7 % blocks;
            let is = read(&*view, &runtime, block * BLOCK_BYTES, BLOCK).expect("read");
            assert_eq!(is[0], 0, "version {id}");
            let present = read(device, &runtime, block * BLOCK_BYTES, BLOCK).expect("read");
            assert_eq!(present[0], version as u8 + 1);
        }
    };
    check(&device);
    drop(device);
    let device = open(&below, &runtime).expect("opens");
    check(&device);
    // Whatever is written now takes no room of theirs.
    for block in 0..blocks {
        if write(&*device, &runtime, block * BLOCK_BYTES, &[0xaa; BLOCK]).is_err() {
            break;
        }
    }
    flush(&*device, &runtime);
    drop(device);
    let device = open(&below, &runtime).expect("opens");
    for (version, id) in (0..).zip(&ids) {
        let is =
            read(&*device.view(*id).expect("there"), &runtime, version * 7 % blocks * BLOCK_BYTES, BLOCK);
        assert_eq!(is.expect("read")[0], 0, "version {id}");
    }
    for id in &ids {
        runtime.block_on(device.delete(&runtime, *id)).expect("runs").expect("deleted");
    }
    for block in 0..blocks {
        write(&*device, &runtime, block * BLOCK_BYTES, &[0xbb; BLOCK]).expect("there is room for all");
    }
}

#[test]
fn a_list_of_versions_that_is_lost_is_not_replaced_by_the_one_before() {
    let runtime = Runtime::simulated(1);
    let below = memory(16 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
    let first = capture(&device, &runtime);
    capture(&device, &runtime);
    drop(device);
    let lists = find(&*below, &runtime, b"rotpVERS");
    let newest = lists.iter().map(|(_, list)| number(list, 32)).max().expect("lists");
    let newest: Vec<u64> =
        lists.iter().filter(|(_, list)| number(list, 32) == newest).map(|(at, _)| *at).collect();
    assert_eq!(newest.len(), 2);
    write(&*below, &runtime, newest[0], &[0xee; BLOCK]).expect("written");
    let device = open(&below, &runtime).expect("the other copy has it");
    assert_eq!(device.versions().len(), 2);
    drop(device);
    write(&*below, &runtime, newest[1], &[0xee; BLOCK]).expect("written");
    let error = open(&below, &runtime).expect_err("the version that it has is not all");
    assert_eq!(error.kind(), ErrorKind::Medium, "not only {first}");
}

#[test]
fn a_map_that_has_lost_its_newest_state_is_what_its_log_says() {
    let runtime = Runtime::simulated(1);
    let below = memory(96 << 20);
    let device = open(&below, &runtime).expect("opens");
    let (blocks, far) = (device.info().size / BLOCK_BYTES, 9001 * BLOCK_BYTES);
    write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
    flush(&*device, &runtime);
    // Of a part of the map that was never used before.
    write(&*device, &runtime, far, &[2; 2 * BLOCK]).expect("written");
    flush(&*device, &runtime);
    drop(device);
    lose_newest_state(&*below, &runtime);
    for opening in 3..5 {
        let device = open(&below, &runtime).expect("opens");
        assert_eq!(read(&*device, &runtime, far, BLOCK).expect("read"), [2; BLOCK]);
        // Nobody else gets the room of what is there.
        for block in (0..blocks / 2).step_by(5) {
            write(&*device, &runtime, block * BLOCK_BYTES, &[opening; BLOCK]).expect("written");
        }
        write(&*device, &runtime, far + BLOCK_BYTES, &[opening; BLOCK]).expect("written");
        runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
        assert_eq!(read(&*device, &runtime, far, BLOCK).expect("read"), [2; BLOCK], "opening {opening}");
        assert_eq!(read(&*device, &runtime, far + BLOCK_BYTES, BLOCK).expect("read"), [opening; BLOCK]);
    }
}

/// Of the last block of the log nothing says that it was durable, unless that was vouched for.
#[test]
fn the_newest_part_of_a_log_that_is_lost_is_missed_where_it_was_vouched_for() {
    for is_vouched in [false, true] {
        let runtime = Runtime::simulated(1);
        let below = memory(16 << 20);
        let device = open(&below, &runtime).expect("opens");
        write(&*device, &runtime, 0, &[1; BLOCK]).expect("written");
        runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
        assert!(!device.is_unvouched(), "the pages have all");
        capture(&device, &runtime);
        write(&*device, &runtime, 0, &[2; BLOCK]).expect("written");
        flush(&*device, &runtime);
        assert!(device.is_unvouched());
        let mut log = find(&*below, &runtime, b"rotpLOG2");
        let newest = log.iter().map(|(_, block)| number(block, 24)).max().expect("a log");
        log.retain(|(_, block)| number(block, 24) == newest);
        if is_vouched {
            runtime.block_on(device.vouch(&runtime)).expect("runs").expect("vouched for");
            assert!(!device.is_unvouched());
        }
        drop(device);
        let device = open(&below, &runtime).expect("opens");
        assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("read"), [2; BLOCK]);
        drop(device);
        for (at, _) in &log {
            write(&*below, &runtime, *at, &[0xee; BLOCK]).expect("written");
        }
        match open(&below, &runtime) {
            Err(error) => assert!(is_vouched && error.kind() == ErrorKind::Medium, "{error}"),
            // This is what nobody can know.
            Ok(device) => {
                assert!(!is_vouched);
                assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("read"), [1; BLOCK]);
            }
        }
    }
}
