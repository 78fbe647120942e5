use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::conformance::{self, On};
use rotproof_block::hash::mix;
use rotproof_block::{Context, Device, ErrorKind, Kept, Power, Request, Result, Runtime};
use rotproof_layers::{WriteBack, WriteCacheDevice, WriteCacheOptions};

use super::{VersionsDevice, VersionsOptions};
use crate::table::BLOCK_BYTES;
use crate::testing::{ask, flush, memory, read, write};

const BLOCK: usize = BLOCK_BYTES as usize;

fn open(below: &Arc<dyn Device>, runtime: &Runtime) -> Result<Arc<VersionsDevice>> {
    open_with(below, VersionsOptions::default(), runtime)
}

fn open_with(
    below: &Arc<dyn Device>,
    options: VersionsOptions,
    runtime: &Runtime,
) -> Result<Arc<VersionsDevice>> {
    runtime.block_on(VersionsDevice::open_on(Arc::clone(below), options, runtime))?
}

#[test]
fn it_is_a_device() {
    for on in [On::Simulated, On::Uring] {
        let make = || -> Result<Arc<dyn Device>> {
            Ok(VersionsDevice::open(memory(40 << 20), VersionsOptions::default())?)
        };
        if let Err(breach) = conformance::check(on, &make) {
            panic!("{on:?}: {breach}");
        }
        // And with a version that keeps all that was there.
        let make = || -> Result<Arc<dyn Device>> {
            let runtime = Runtime::simulated(1);
            let device = VersionsDevice::open(memory(40 << 20), VersionsOptions::default())?;
            runtime.block_on(device.capture(&runtime, "empty", 0))??;
            Ok(device)
        };
        if let Err(breach) = conformance::check(on, &make) {
            panic!("{on:?}, with a version: {breach}");
        }
    }
}

#[test]
fn a_version_stays_and_can_be_gone_back_to_and_that_undone() {
    let runtime = Runtime::simulated(1);
    let below = memory(16 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 0, &[1; 3 * BLOCK]).expect("written");
    let first = runtime.block_on(device.capture(&runtime, "first", 7)).expect("runs").expect("captured");
    write(&*device, &runtime, 4096 + 512, &[2; 512]).expect("written");
    write(&*device, &runtime, 5 * 4096, &[3; BLOCK]).expect("written");
    let request = Request::discard(0, BLOCK_BYTES, Context::default());
    ask(&*device, &runtime, request).result.expect("discarded");
    let present = read(&*device, &runtime, 0, 6 * BLOCK).expect("read");
    let view = device.view(first).expect("there");
    let old = [vec![1; 3 * BLOCK], vec![0; 3 * BLOCK]].concat();
    assert_eq!(read(&*view, &runtime, 0, 6 * BLOCK).expect("read"), old);
    let refused = write(&*view, &runtime, 0, &[9; BLOCK]).expect_err("it can only be read");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    let undo = runtime.block_on(device.roll_back(&runtime, first, 8)).expect("runs").expect("gone back");
    assert_eq!(read(&*device, &runtime, 0, 6 * BLOCK).expect("read"), old);
    // What is written now is in neither.
    write(&*device, &runtime, 0, &[5; BLOCK]).expect("written");
    assert_eq!(read(&*device.view(first).expect("there"), &runtime, 0, 6 * BLOCK).expect("read"), old);
    assert_eq!(read(&*device.view(undo).expect("there"), &runtime, 0, 6 * BLOCK).expect("read"), present);
    runtime.block_on(device.roll_back(&runtime, undo, 9)).expect("runs").expect("undone");
    assert_eq!(read(&*device, &runtime, 0, 6 * BLOCK).expect("read"), present);
    let names: Vec<String> = device.versions().into_iter().map(|version| version.name).collect();
    assert_eq!(names, ["first", "before going back to 1", "before going back to 2"]);
    let missing = runtime.block_on(device.delete(&runtime, 99)).expect("runs").expect_err("none");
    assert_eq!(missing.kind(), ErrorKind::Missing);
    let free = device.room().free_bytes;
    for version in device.versions() {
        runtime.block_on(device.delete(&runtime, version.id)).expect("runs").expect("deleted");
    }
    flush(&*device, &runtime);
    flush(&*device, &runtime);
    assert!(device.room().free_bytes > free);
    assert_eq!(read(&*device, &runtime, 0, 6 * BLOCK).expect("read"), present);
    assert!(read(&*view, &runtime, 0, BLOCK).is_err(), "it was given up");
}

#[test]
fn automatic_versions_come_go_and_make_room() {
    let runtime = Runtime::simulated(1);
    let below = memory(16 << 20);
    let options = VersionsOptions {
        every: Some(Duration::from_secs(60)),
        keep: 3,
        reserve_percent: 10,
        ..VersionsOptions::default()
    };
    let device = open_with(&below, options, &runtime).expect("opens");
    let blocks = device.info().size / BLOCK_BYTES;
    for round in 0..12u64 {
        for index in 0..blocks / 12 {
            let block = mix(1, round, index) % blocks;
            let bytes = [(round * 16 + index % 16) as u8; BLOCK];
            write(&*device, &runtime, block * BLOCK_BYTES, &bytes).expect("there is room: versions go");
        }
        runtime.block_on(runtime.sleep(Duration::from_secs(61))).expect("sleeps");
    }
    let versions = device.versions();
    assert!((1..=3).contains(&versions.len()) && versions.iter().all(|version| version.is_automatic));
    // One that somebody asked for does not go: then there is no room.
    runtime.block_on(device.capture(&runtime, "mine", 0)).expect("runs").expect("captured");
    let before: Vec<Vec<u8>> = (0..blocks)
        .map(|block| read(&*device, &runtime, block * BLOCK_BYTES, BLOCK).expect("read"))
        .collect();
    let mut refused = None;
    for block in 0..blocks {
        if let Err(error) = write(&*device, &runtime, block * BLOCK_BYTES, &[0xee; BLOCK]) {
            refused = Some((block, error));
            break;
        }
    }
    let (first, error) = refused.expect("all of it cannot be kept twice");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(read(&*device, &runtime, first * BLOCK_BYTES, BLOCK).expect("read"), before[first as usize]);
    flush(&*device, &runtime);
    let mine = device.versions().into_iter().find(|version| version.name == "mine").expect("there").id;
    let view = device.view(mine).expect("there");
    for (block, before) in (0..).zip(&before) {
        assert_eq!(read(&*view, &runtime, block * BLOCK_BYTES, BLOCK).expect("read"), *before, "{block}");
    }
    runtime.block_on(device.delete(&runtime, mine)).expect("runs").expect("deleted");
    write(&*device, &runtime, first * BLOCK_BYTES, &[0xee; BLOCK]).expect("there is room again");
}

/// What a block was when flushed, and as which writes left it since.
#[derive(Clone)]
struct Present {
    flushed: u8,
    later: Vec<u8>,
}

impl Present {
    fn now(&self) -> u8 {
        self.later.last().copied().unwrap_or(self.flushed)
    }
}

/// Writes, discards, captures, deletes and goes back at random, and loses power; everything flushed is there, every version that
/// was promised is whole.
fn crash(seed: u64) -> Result<()> {
    let runtime = Runtime::simulated(seed);
    let draw = |stream: u64, index: u64| mix(seed, stream, index);
    let medium = memory(12 << 20);
    let options =
        WriteCacheOptions { bytes: 1 << 20, write_back: WriteBack::Random, ..WriteCacheOptions::default() };
    let cache = WriteCacheDevice::new(Arc::clone(&medium), options)?;
    let below: Arc<dyn Device> = cache.clone();
    const BLOCKS: u64 = 24;
    let mut present = vec![Present { flushed: 0, later: Vec::new() }; BLOCKS as usize];
    let mut versions: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for round in 0..3 {
        let device = open(&below, &runtime)?;
        let stride = device.info().size / BLOCK_BYTES / BLOCKS;
        let is_all_flushed = |present: &mut Vec<Present>| {
            present.iter_mut().for_each(|block| {
                block.flushed = block.now();
                block.later.clear();
            });
        };
        for index in 0..draw(1, round) % 80 {
            let draw = |stream| draw(stream, round * 1000 + index);
            let block = draw(2) % BLOCKS;
            let any = versions.keys().nth((draw(9) % versions.len().max(1) as u64) as usize).copied();
            match draw(3) % 16 {
                0 => {
                    flush(&*device, &runtime);
                    is_all_flushed(&mut present);
                }
                1 => {
                    let request =
                        Request::discard(block * stride * BLOCK_BYTES, BLOCK_BYTES, Context::default());
                    ask(&*device, &runtime, request).result?;
                    present[block as usize].later.push(0);
                }
                2 | 3 => {
                    let id = runtime.block_on(device.capture(&runtime, "v", 0))??;
                    is_all_flushed(&mut present);
                    versions.insert(id, present.iter().map(Present::now).collect());
                }
                4 if any.is_some_and(|_| draw(4) % 2 == 0) => {
                    let id = any.unwrap_or(0);
                    runtime.block_on(device.delete(&runtime, id))??;
                    is_all_flushed(&mut present);
                    versions.remove(&id);
                }
                5 if any.is_some_and(|_| draw(4) % 2 == 0) => {
                    let id = any.unwrap_or(0);
                    let undo = runtime.block_on(device.roll_back(&runtime, id, 0))??;
                    versions.insert(undo, present.iter().map(Present::now).collect());
                    for (block, byte) in present.iter_mut().zip(&versions[&id]) {
                        *block = Present { flushed: *byte, later: Vec::new() };
                    }
                }
                6 => runtime.block_on(device.settle(&runtime))?.map(|()| is_all_flushed(&mut present))?,
                _ => {
                    let byte = (draw(5) % 255) as u8 + 1;
                    write(&*device, &runtime, block * stride * BLOCK_BYTES, &[byte; BLOCK])?;
                    present[block as usize].later.push(byte);
                }
            }
        }
        drop(device);
        let kept = [Kept::None, Kept::All, Kept::Part { seed: draw(6, round) }];
        cache.cut(kept[(draw(7, round) % 3) as usize]);
        cache.restore();
        let device = open(&below, &runtime)?;
        for (number, block) in (0u64..).zip(&mut present) {
            let is = read(&*device, &runtime, number * stride * BLOCK_BYTES, BLOCK)?;
            assert!(is.iter().all(|byte| *byte == is[0]), "block {number} in round {round} is torn");
            let is_legal = is[0] == block.flushed || block.later.contains(&is[0]);
            assert!(
                is_legal,
                "block {number} in round {round} is {}, not {block:?}",
                is[0],
                block = (block.flushed, &block.later)
            );
            *block = Present { flushed: is[0], later: Vec::new() };
        }
        let there: Vec<u64> = device.versions().into_iter().map(|version| version.id).collect();
        assert_eq!(there, versions.keys().copied().collect::<Vec<_>>(), "in round {round}");
        for (id, blocks) in &versions {
            let view = device.view(*id)?;
            for (number, byte) in (0u64..).zip(blocks) {
                let is = read(&*view, &runtime, number * stride * BLOCK_BYTES, BLOCK)?;
                assert!(
                    is == vec![*byte; BLOCK],
                    "block {number} of version {id} in round {round}: {} not {byte}",
                    is[0]
                );
            }
        }
        flush(&*device, &runtime);
    }
    Ok(())
}

#[test]
fn what_was_flushed_and_every_version_survives_a_loss_of_power() {
    for seed in 0..150 {
        let result = std::panic::catch_unwind(|| crash(seed).map_err(|error| error.to_string()));
        assert!(matches!(result, Ok(Ok(()))), "seed {seed}: {result:?}");
    }
}

#[test]
fn the_map_of_a_terabyte_takes_less_than_a_500th() {
    let bytes = 1 << 40;
    let (first, size) = VersionsDevice::place_on(bytes, 20).expect("room");
    assert!(first < bytes / 500 && size > bytes / 100 * 79, "{first} {size}");
}
