use std::collections::BTreeMap;
use std::sync::Arc;

use rotproof_block::conformance::{self, On};
use rotproof_block::hash::mix;
use rotproof_block::{Context, Device, Error, ErrorKind, Kept, Power, Request, Result, Runtime};
use rotproof_layers::{WriteBack, WriteCacheDevice, WriteCacheOptions};

use super::{ChecksumDevice, ChecksumKind, ChecksumOptions, Found, ScrubOptions};
use crate::table::BLOCK_BYTES;
use crate::testing::{ask, flush, memory, read, write};

const BLOCK: usize = BLOCK_BYTES as usize;

fn open(below: &Arc<dyn Device>, runtime: &Runtime) -> Result<Arc<ChecksumDevice>> {
    open_with(below, ChecksumOptions::default(), runtime)
}

fn open_with(
    below: &Arc<dyn Device>,
    options: ChecksumOptions,
    runtime: &Runtime,
) -> Result<Arc<ChecksumDevice>> {
    runtime.block_on(ChecksumDevice::open_on(Arc::clone(below), options, runtime))?
}

fn flip(device: &dyn Device, runtime: &Runtime, offset: u64) {
    let at = offset / 512 * 512;
    let mut sector = read(device, runtime, at, 512).expect("read");
    sector[(offset - at) as usize] ^= 4;
    write(device, runtime, at, &sector).expect("written");
}

#[test]
fn it_is_a_device() {
    for kind in ChecksumKind::ALL {
        for on in [On::Simulated, On::Uring] {
            let options =
                ChecksumOptions { kind, cache_bytes: 4 * BLOCK_BYTES, ..ChecksumOptions::default() };
            let make = || -> Result<Arc<dyn Device>> { Ok(ChecksumDevice::open(memory(40 << 20), options)?) };
            if let Err(breach) = conformance::check(on, &make) {
                panic!("{kind:?} {on:?}: {breach}");
            }
        }
    }
}

#[test]
fn a_block_that_rotted_is_an_error_alone_until_it_is_written() {
    let runtime = Runtime::simulated(1);
    let below = memory(8 << 20);
    let device = open(&below, &runtime).expect("opens");
    let data: Vec<u8> = (0..4 * BLOCK as u32).map(|at| (at / 7) as u8).collect();
    write(&*device, &runtime, 8192, &data).expect("written");
    flip(&*below, &runtime, device.data_at() + 8192 + 5000);
    let error = read(&*device, &runtime, 8192, data.len()).expect_err("it rotted");
    assert_eq!(error.kind(), ErrorKind::Medium);
    assert_eq!(read(&*device, &runtime, 8192, BLOCK).expect("right"), data[..BLOCK]);
    assert_eq!(read(&*device, &runtime, 8192 + 2 * 4096, 2 * BLOCK).expect("right"), data[2 * BLOCK..]);
    assert!(read(&*device, &runtime, 8192 + 4096 + 512, 512).is_err(), "a part is not better");
    assert!(write(&*device, &runtime, 8192 + 4096, &[1; 512]).is_err(), "a part cannot be written over it");
    assert_eq!(device.lost().into_iter().collect::<Vec<_>>(), [3]);
    flush(&*device, &runtime);
    drop(device);
    let device = open(&below, &runtime).expect("opens again");
    assert_eq!(device.lost().into_iter().collect::<Vec<_>>(), [3], "remembered");
    assert!(read(&*device, &runtime, 8192, data.len()).is_err());
    write(&*device, &runtime, 8192 + 4096, &data[BLOCK..2 * BLOCK]).expect("written");
    assert_eq!(read(&*device, &runtime, 8192, data.len()).expect("right"), data);
    assert!(device.lost().is_empty());
    let report = runtime.block_on(device.scrub(&runtime, &ScrubOptions::default(), |_| true));
    let report = report.expect("runs").expect("scrubbed");
    assert_eq!((report.found.lost, report.found.wrong_copies), (0, 0));
}

#[test]
fn what_is_below_is_kept_and_only_what_fits_is_opened() {
    let runtime = Runtime::simulated(1);
    let below = memory(8 << 20);
    write(&*below, &runtime, 0, &[7; 512]).expect("written");
    let error = open(&below, &runtime).expect_err("something is there");
    assert_eq!(error.kind(), ErrorKind::Refused);
    let make = ChecksumOptions { found: Found::Make(5), ..ChecksumOptions::default() };
    let device = open_with(&below, make, &runtime).expect("made");
    write(&*device, &runtime, 0, &[9; BLOCK]).expect("written");
    runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
    drop(device);
    let other =
        ChecksumOptions { kind: ChecksumKind::Xxh3, found: Found::Open, ..ChecksumOptions::default() };
    assert_eq!(open_with(&below, other, &runtime).expect_err("another").kind(), ErrorKind::Invalid);
    let device = open(&below, &runtime).expect("opens");
    assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("right"), [9; BLOCK]);
    assert_eq!(device.report().torn, 0);
}

#[test]
fn metadata_that_rotted_are_taken_from_their_copy() {
    let runtime = Runtime::simulated(1);
    let below = memory(8 << 20);
    let device = open(&below, &runtime).expect("opens");
    write(&*device, &runtime, 0, &[9; BLOCK]).expect("written");
    runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
    let pages = device.pages_of(0);
    drop(device);
    flip(&*below, &runtime, pages[0] + 70);
    // Both slots of the first copy of the state.
    flip(&*below, &runtime, 100);
    flip(&*below, &runtime, 3 * 4096 + 100);
    let device = open(&below, &runtime).expect("opens");
    assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("right"), [9; BLOCK]);
    assert_eq!((device.report().pages_mended, device.report().pages_lost), (1, 0));
    runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
    drop(device);
    flip(&*below, &runtime, pages[1] + 70);
    let device = open(&below, &runtime).expect("opens");
    assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("the first is right again"), [9; BLOCK]);
    drop(device);
    flip(&*below, &runtime, pages[0] + 70);
    flip(&*below, &runtime, pages[1] + 71);
    let device = open(&below, &runtime).expect("opens");
    assert!(read(&*device, &runtime, 0, BLOCK).is_err(), "nothing says that it is right");
    assert_eq!(device.report().pages_lost, 1);
    write(&*device, &runtime, 0, &[8; BLOCK]).expect("written");
    assert_eq!(read(&*device, &runtime, 0, BLOCK).expect("right"), [8; BLOCK]);
}

/// What a block may be after a crash: as it was flushed last, or as any later write made it, each sector for itself.
#[derive(Clone, Default)]
struct Sectors {
    flushed: Vec<u8>,
    later: Vec<Vec<u8>>,
}

/// Writes, flushes and discards at random over a device that then loses power; opened again, everything flushed is there
/// and nothing is refused.
fn crash(seed: u64, blocks: u64, bytes: u64) -> Result<()> {
    let runtime = Runtime::simulated(seed);
    let draw = |stream: u64, index: u64| mix(seed, stream, index);
    let medium = memory(bytes);
    let options = WriteCacheOptions {
        bytes: 1 << 20,
        write_back: WriteBack::Random,
        atomic_unit_bytes: 512,
        ..WriteCacheOptions::default()
    };
    let cache = WriteCacheDevice::new(Arc::clone(&medium), options)?;
    let below: Arc<dyn Device> = cache.clone();
    let mut model: BTreeMap<u64, Sectors> = BTreeMap::new();
    for round in 0..3 {
        let device = open(&below, &runtime)?;
        for index in 0..draw(1, round) % 60 {
            let draw = |stream| draw(stream, round * 1000 + index);
            // All over the device, but a few places again and again.
            let block = draw(2) % blocks * (device.info().size / BLOCK_BYTES / blocks);
            match draw(3) % 12 {
                0 => {
                    flush(&*device, &runtime);
                    for sectors in model.values_mut() {
                        if let Some(last) = sectors.later.pop() {
                            (sectors.flushed, sectors.later) = (last, Vec::new());
                        }
                    }
                }
                1 => {
                    let request = Request::discard(block * BLOCK_BYTES, BLOCK_BYTES, Context::default());
                    ask(&*device, &runtime, request).result?;
                    model.entry(block).or_default().later.push(vec![0; BLOCK]);
                }
                2 if draw(4) % 4 == 0 => {
                    runtime.block_on(device.checkpoint(&runtime))??;
                }
                _ => {
                    let bytes: Vec<u8> = (0..BLOCK)
                        .map(|at| (draw(5).wrapping_mul(at as u64 / 512 + 1) >> 13) as u8)
                        .collect();
                    write(&*device, &runtime, block * BLOCK_BYTES, &bytes)?;
                    model.entry(block).or_default().later.push(bytes);
                }
            }
        }
        drop(device);
        let kept = [Kept::None, Kept::All, Kept::Part { seed: draw(6, round) }];
        cache.cut(kept[(draw(7, round) % 3) as usize]);
        cache.restore();
        let device = open(&below, &runtime)?;
        if draw(8, round) % 2 == 0 {
            runtime.block_on(device.resolve(&runtime))??;
        }
        for (block, sectors) in &mut model {
            let zeros = vec![0; BLOCK];
            let is = read(&*device, &runtime, block * BLOCK_BYTES, BLOCK)
                .map_err(|error| error.while_doing(format!("reading block {block} in round {round}")))?;
            let flushed = if sectors.flushed.is_empty() { &zeros } else { &sectors.flushed };
            for at in (0..BLOCK).step_by(512) {
                let is_one = |legal: &Vec<u8>| legal[at..at + 512] == is[at..at + 512];
                if !is_one(flushed) && !sectors.later.iter().any(is_one) {
                    let which = |bytes: &Vec<u8>| bytes[at..at + 4].to_vec();
                    let later: Vec<_> = sectors.later.iter().map(which).collect();
                    let context = format!(
                        "block {block}, byte {at} in round {round} is {:?}, none of {:?} and {later:?}",
                        which(&is),
                        which(flushed)
                    );
                    return Err(Error::new(ErrorKind::Internal, context));
                }
            }
            (sectors.flushed, sectors.later) = (is.clone(), Vec::new());
            // It is settled once it was read: nothing that is read twice differs.
            assert_eq!(read(&*device, &runtime, block * BLOCK_BYTES, BLOCK)?, is);
        }
        flush(&*device, &runtime);
    }
    Ok(())
}

#[test]
fn what_was_flushed_survives_a_loss_of_power_and_nothing_is_accused() {
    for seed in 0..120 {
        for blocks in [3, 40] {
            crash(seed, blocks, 4 << 20)
                .unwrap_or_else(|error| panic!("seed {seed}, {blocks} blocks: {error}"));
        }
    }
    // Many granules, so that there are many states that say of one more that it is used.
    for seed in 0..60 {
        crash(seed, 20, 80 << 20).unwrap_or_else(|error| panic!("seed {seed}, a large device: {error}"));
    }
}
