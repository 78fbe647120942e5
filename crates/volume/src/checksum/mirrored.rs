//! Checksums over mirrors: what one copy has wrong, the other mends.

use std::sync::Arc;
use std::time::Duration;

use rotproof_block::ability;
use rotproof_block::conformance::{self, On};
use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Device, ErrorKind, Kept, Power, Request, Result, Runtime};
use rotproof_layers::{WriteBack, WriteCacheDevice, WriteCacheOptions};

use super::kind::MADE;
use super::{ChecksumDevice, ChecksumOptions, Found, ScrubOptions};
use crate::copies::{MemberState, Members};
use crate::faulty::{Act, Faulty};
use crate::mirror::{MirrorDevice, MirrorOptions};
use crate::stripe::StripeDevice;
use crate::table::BLOCK_BYTES;
use crate::testing::{ask, flush, memory, read, write};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Two or three members of RAM, each with a place where it fails as it is told, and checksums above.
struct Rig {
    runtime: Runtime,
    media: Vec<Arc<dyn Device>>,
    members: Vec<Arc<Faulty>>,
    mirror: Arc<MirrorDevice>,
    device: Arc<ChecksumDevice>,
}

impl Rig {
    fn new(seed: u64, members: usize) -> Self {
        let runtime = Runtime::simulated(seed);
        let media: Vec<Arc<dyn Device>> = (0..members).map(|_| memory(8 << 20)).collect();
        let members: Vec<Arc<Faulty>> = media.iter().map(|medium| Faulty::over(Arc::clone(medium))).collect();
        let (mirror, device) = assemble(&members, &runtime).expect("opens");
        Self { runtime, media, members, mirror, device }
    }

    /// Where a block lies on each member.
    fn at(&self, block: u64) -> u64 {
        self.device.data_at() + block * BLOCK_BYTES
    }

    fn spoil(&self, member: usize, offset: u64, how: u64) {
        let medium = &*self.media[member];
        let mut bytes = read(medium, &self.runtime, offset, BLOCK).expect("read");
        match how % 3 {
            0 => bytes[(how % 4000) as usize] ^= 1 << (how % 8),
            1 => bytes.fill(0),
            _ => bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7).wrapping_add(13)),
        }
        write(medium, &self.runtime, offset, &bytes).expect("written");
    }

    fn requests(&self) -> usize {
        self.members.iter().map(|member| member.requests()).sum()
    }
}

type Assembled = (Arc<MirrorDevice>, Arc<ChecksumDevice>);

fn assemble(members: &[Arc<Faulty>], runtime: &Runtime) -> Result<Assembled> {
    let members = members.iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect();
    let mirror = MirrorDevice::new(members, MirrorOptions::default())?;
    let below: Arc<dyn Device> = mirror.clone();
    let device = runtime.block_on(ChecksumDevice::open_on(below, ChecksumOptions::default(), runtime))??;
    Ok((mirror, device))
}

#[test]
fn over_a_stripe_of_mirrors_it_is_a_device() {
    for on in [On::Simulated, On::Uring] {
        let make = || -> Result<Arc<dyn Device>> {
            let pair = || -> Result<Arc<dyn Device>> {
                Ok(MirrorDevice::new(vec![memory(20 << 20), memory(20 << 20)], MirrorOptions::default())?)
            };
            let stripe = StripeDevice::new(vec![pair()?, pair()?], 64 << 10)?;
            Ok(ChecksumDevice::open(stripe, ChecksumOptions::default())?)
        };
        if let Err(breach) = conformance::check(on, &make) {
            panic!("{on:?}: {breach}");
        }
    }
}

#[test]
fn a_large_read_mends_the_copy_that_it_has_asked_whichever_that_is() {
    const BLOCKS: usize = 64;
    let rig = Rig::new(1, 3);
    let (device, runtime) = (&*rig.device, &rig.runtime);
    write(device, runtime, 0, &[5; BLOCKS * BLOCK]).expect("written");
    for member in 0..3 {
        rig.spoil(member, rig.at(40 + member as u64), 3);
    }
    // Each read of all asks one of the three.
    let queue = device.open_queue(runtime).expect("opens");
    for _ in 0..3 {
        let request = Request::read(0, Buffer::zeroed(BLOCKS * BLOCK), Context::default());
        let completion = runtime.block_on(queue.submit(request)).expect("completes");
        completion.result.expect("repaired");
        assert!(completion.buffer.iter().all(|byte| *byte == 5));
    }
    for (member, medium) in rig.media.iter().enumerate() {
        let is = read(&**medium, runtime, rig.at(40 + member as u64), BLOCK).expect("read");
        assert_eq!(is, [5; BLOCK], "member {member}");
    }
    let report = device.report();
    assert_eq!((report.wrong_copies, report.repaired, report.unrecoverable), (3, 3, 0));
}

#[test]
fn repairs_cost_what_they_cost_in_darc() {
    let rig = Rig::new(1, 2);
    let (device, runtime) = (&*rig.device, &rig.runtime);
    write(device, runtime, 0, &[5; 4 * BLOCK]).expect("written");
    flush(device, runtime);
    // Copies differ, one has the checksum: two reads and a write of data, and two checksums.
    for member in 0..2 {
        rig.spoil(member, rig.at(member as u64), 3);
        let metadata = device.report().metadata_requests;
        // One of two reads asks the copy that is wrong.
        let queue = device.open_queue(runtime).expect("opens");
        let mut costs = Vec::new();
        for _ in 0..2 {
            let (before, made) = (rig.requests(), MADE.get());
            let request =
                Request::read(member as u64 * BLOCK_BYTES, Buffer::zeroed(BLOCK), Context::default());
            let completion = runtime.block_on(queue.submit(request)).expect("completes");
            completion.result.expect("repaired");
            assert!(completion.buffer.iter().all(|byte| *byte == 5));
            costs.push((rig.requests() - before, MADE.get() - made));
        }
        costs.sort_unstable();
        assert_eq!(costs, [(1, 1), (3, 2)]);
        assert_eq!(device.report().metadata_requests, metadata, "no request for checksums");
        for medium in &rig.media {
            assert_eq!(read(&**medium, runtime, rig.at(member as u64), BLOCK).expect("read"), [5; BLOCK]);
        }
    }
    let report = device.report();
    assert_eq!((report.wrong_copies, report.repaired, report.unrecoverable), (2, 2, 0));
    // One cannot be read: it is written anew, at the same cost.
    rig.members[0].plan(|request, number| match request.operation {
        rotproof_block::Operation::Read if number > 0 => Act::Fail(ErrorKind::Medium),
        _ => Act::Pass,
    });
    let before = rig.requests();
    let queue = device.open_queue(runtime).expect("opens");
    for _ in 0..2 {
        let request = Request::read(3 * BLOCK_BYTES, Buffer::zeroed(BLOCK), Context::default());
        runtime.block_on(queue.submit(request)).expect("completes").result.expect("the other has it");
    }
    assert_eq!((rig.requests() - before, device.report().repaired), (4, 3));
    rig.members[0].plan(|_, _| Act::Pass);
    // None has it: two reads, and an error.
    rig.spoil(0, rig.at(2), 4);
    rig.spoil(1, rig.at(2), 5);
    let (before, made) = (rig.requests(), MADE.get());
    let error = read(device, runtime, 2 * BLOCK_BYTES, BLOCK).expect_err("nobody knows it");
    assert_eq!((rig.requests() - before, MADE.get() - made, error.kind()), (2, 2, ErrorKind::Medium));
    // Both say the same, but the checksum is right by its own: the data are wrong.
    write(device, runtime, 2 * BLOCK_BYTES, &[6; BLOCK]).expect("written");
    rig.spoil(0, rig.at(2), 4);
    rig.spoil(1, rig.at(2), 4);
    assert!(read(device, runtime, 2 * BLOCK_BYTES, BLOCK).is_err());
}

#[test]
fn lost_checksums_are_made_anew_where_all_copies_agree() {
    let mut rig = Rig::new(1, 2);
    write(&*rig.device, &rig.runtime, 0, &[5; 4 * BLOCK]).expect("written");
    rig.runtime.block_on(rig.device.settle(&rig.runtime)).expect("runs").expect("settled");
    let pages = rig.device.pages_of(0);
    for member in 0..2 {
        pages.iter().for_each(|page| rig.spoil(member, *page, 3));
    }
    rig.spoil(1, rig.at(3), 6);
    (rig.mirror, rig.device) = assemble(&rig.members, &rig.runtime).expect("opens");
    let (device, runtime) = (&*rig.device, &rig.runtime);
    assert_eq!(read(device, runtime, 0, BLOCK).expect("made anew"), [5; BLOCK]);
    // As DARC has it: two reads of data and two checksums. That the new one is written waits for a flush.
    let (before, made, metadata) = (rig.requests(), MADE.get(), device.report().metadata_requests);
    assert_eq!(read(device, runtime, BLOCK_BYTES, BLOCK).expect("made anew"), [5; BLOCK]);
    assert_eq!((rig.requests() - before, MADE.get() - made), (2, 2));
    assert_eq!(device.report().metadata_requests, metadata);
    flush(device, runtime);
    assert_eq!(device.report().metadata_requests - metadata, 2, "one for each of the two logs");
    assert_eq!(read(device, runtime, 2 * BLOCK_BYTES, BLOCK).expect("made anew"), [5; BLOCK]);
    assert!(read(device, runtime, 3 * BLOCK_BYTES, BLOCK).is_err(), "nobody knows which");
    let report = device.report();
    assert_eq!((report.pages_lost, report.sums_made, report.unrecoverable), (1, 3, 1));
    // The checksum that was made is one like any other.
    rig.spoil(0, rig.at(0), 9);
    assert_eq!(read(device, runtime, 0, BLOCK).expect("repaired"), [5; BLOCK]);
}

#[test]
fn a_member_is_replaced_and_rebuilt_while_in_use() {
    let mut rig = Rig::new(3, 2);
    let (device, runtime) = (Arc::clone(&rig.device), rig.runtime.clone());
    let blocks = device.info().size / BLOCK_BYTES;
    let byte = |block: u64, round: u64| mix(3, block, round) as u8;
    for block in (0..blocks).step_by(3) {
        write(&*device, &runtime, block * BLOCK_BYTES, &[byte(block, 0); BLOCK]).expect("written");
    }
    rig.mirror.fail(1, "taken out").expect("the other is there");
    for block in (0..blocks).step_by(9) {
        write(&*device, &runtime, block * BLOCK_BYTES, &[byte(block, 1); BLOCK]).expect("written");
    }
    rig.media[1] = memory(8 << 20);
    // What a new member holds is of no interest, and nothing of it ever comes up.
    for at in (0..8 << 20).step_by(64 << 10) {
        write(&*rig.media[1], &runtime, at, &[0xaa; 64 << 10]).expect("written");
    }
    let member = Faulty::over(Arc::clone(&rig.media[1]));
    rig.mirror.replace(1, member.clone(), &[0..8 << 20]).expect("large enough");
    let rebuilding = Arc::clone(&device);
    let clock = runtime.clone();
    let rebuild = runtime.spawn(async move {
        let mut parts = 0;
        let report = rebuilding
            .rebuild(&clock, Some(64 << 20), |_| {
                parts += 1;
                true
            })
            .await;
        report.map(|report| (report, parts))
    });
    for block in (0..blocks).step_by(6) {
        write(&*device, &runtime, block * BLOCK_BYTES, &[byte(block, 2); BLOCK]).expect("written");
        runtime.block_on(runtime.sleep(Duration::from_millis(1))).expect("sleeps");
    }
    let (report, parts) = runtime.block_on(rebuild).expect("runs").expect("rebuilt");
    assert!(report.remaining == 0 && report.lost == 0 && parts > 4 && report.left_out > 0, "{report:?}");
    assert!(rig.mirror.states().iter().all(|state| *state == MemberState::Current));
    // Now the other goes.
    rig.mirror.fail(0, "taken out").expect("the new one has all");
    for block in 0..blocks {
        let round = if block % 6 == 0 {
            2
        } else if block % 9 == 0 {
            1
        } else {
            0
        };
        let wanted = if block % 3 == 0 { byte(block, round) } else { 0 };
        assert_eq!(
            read(&*device, &runtime, block * BLOCK_BYTES, BLOCK).expect("there"),
            [wanted; BLOCK],
            "{block}"
        );
    }
    runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
    let alone: Arc<dyn Device> = MirrorDevice::with_failed(
        &[Err("absent".into()), Ok(Arc::clone(&rig.media[1]))],
        MirrorOptions::default(),
    )
    .expect("one is enough");
    let options = ChecksumOptions { found: Found::Open, ..ChecksumOptions::default() };
    let opened =
        runtime.block_on(ChecksumDevice::open_on(alone, options, &runtime)).expect("runs").expect("opens");
    let report = runtime.block_on(opened.scrub(&runtime, &ScrubOptions::default(), |_| true));
    let found = report.expect("runs").expect("scrubbed").found;
    assert_eq!((found.lost, found.unrecoverable, found.pages_lost), (0, 0, 0));
}

/// Operations, faults and losses of power at random. As long as each block has a copy that is right nothing is wrong, nothing is
/// refused; afterwards a scrub leaves all copies right.
fn trial(seed: u64) {
    let runtime = Runtime::simulated(seed);
    let draw = |stream: u64, index: u64| mix(seed, stream, index);
    let count = 2 + (draw(0, 0) % 2) as usize;
    let media: Vec<Arc<dyn Device>> = (0..count).map(|_| memory(6 << 20)).collect();
    let caches: Vec<Arc<WriteCacheDevice>> = media
        .iter()
        .map(|medium| {
            let options = WriteCacheOptions {
                bytes: 1 << 20,
                write_back: WriteBack::Random,
                atomic_unit_bytes: 512,
                ..WriteCacheOptions::default()
            };
            WriteCacheDevice::new(Arc::clone(medium), options).expect("sizes that fit")
        })
        .collect();
    let members: Vec<Arc<Faulty>> =
        caches.iter().map(|cache| Faulty::over(Arc::clone(cache) as Arc<dyn Device>)).collect();
    const BLOCKS: u64 = 16;
    let mut model: Vec<(u8, Vec<u8>)> = vec![(0, Vec::new()); BLOCKS as usize];
    for round in 0..3u64 {
        let (mirror, device) = assemble(&members, &runtime).expect("opens");
        let stride = device.info().size / BLOCK_BYTES / BLOCKS;
        // One member misbehaves in this round.
        let bad = (draw(1, round) % count as u64) as usize;
        let kind = draw(2, round) % 6;
        let often = 2 + draw(3, round) % 7;
        members[bad].plan(move |request, number| {
            let is_hit = mix(seed, round, number).is_multiple_of(often);
            let is_read = request.operation == rotproof_block::Operation::Read;
            match kind {
                0 if is_hit && is_read => Act::Fail(ErrorKind::Medium),
                1 if is_hit && is_read => Act::Delay(Duration::from_secs(2)),
                2 if is_hit && is_read => Act::Hang,
                3 if is_hit && request.operation == rotproof_block::Operation::WRITE => Act::Lose,
                _ => Act::Pass,
            }
        });
        for index in 0..40 + draw(4, round) % 60 {
            let draw = |stream| draw(stream, round * 1000 + index);
            let block = draw(5) % BLOCKS;
            let offset = block * stride * BLOCK_BYTES;
            match draw(6) % 8 {
                0 => {
                    flush(&*device, &runtime);
                    for (flushed, later) in &mut model {
                        *flushed = later.last().copied().unwrap_or(*flushed);
                        later.clear();
                    }
                }
                1 => {
                    ask(&*device, &runtime, Request::discard(offset, BLOCK_BYTES, Context::default()))
                        .result
                        .expect("discarded");
                    model[block as usize].1.push(0);
                }
                2..=4 => {
                    let byte = (draw(7) % 255) as u8 + 1;
                    write(&*device, &runtime, offset, &[byte; BLOCK]).expect("one member took it");
                    model[block as usize].1.push(byte);
                }
                5 if kind == 4 => {
                    // It rots where it lies.
                    let at = device.data_at() + offset + draw(8) % 8 * 512;
                    let mut bytes = read(&*caches[bad], &runtime, at, 512).expect("read");
                    bytes[(draw(9) % 512) as usize] ^= 1 << (draw(10) % 8);
                    write(&*caches[bad], &runtime, at, &bytes).expect("written");
                }
                _ => {
                    let is = read(&*device, &runtime, offset, BLOCK).expect("a copy is right");
                    let (flushed, later) = &model[block as usize];
                    let wanted = later.last().copied().unwrap_or(*flushed);
                    assert!(is.iter().all(|byte| *byte == wanted), "{} and not {wanted}", is[0]);
                }
            }
        }
        members[bad].plan(|_, _| Act::Pass);
        if kind == 3 || kind == 4 {
            // What rotted is mended, durably, before a loss of power: a copy that lost a write, and one that was torn, are more
            // than one fault.
            let report = runtime.block_on(device.scrub(&runtime, &ScrubOptions::default(), |_| true));
            assert_eq!(report.expect("runs").expect("scrubbed").found.lost, 0);
            flush(&*device, &runtime);
            for (flushed, later) in &mut model {
                *flushed = later.last().copied().unwrap_or(*flushed);
                later.clear();
            }
        }
        if mirror.states().iter().any(|state| matches!(state, MemberState::Failed { .. })) {
            let missed: Vec<_> = mirror.missed(bad);
            mirror.replace(bad, members[bad].clone(), &missed).expect("it fits");
        }
        let rebuilt =
            runtime.block_on(device.rebuild(&runtime, None, |_| true)).expect("runs").expect("rebuilt");
        assert_eq!((rebuilt.remaining, rebuilt.lost), (0, 0));
        if draw(11, round) % 2 == 0 {
            runtime.block_on(device.settle(&runtime)).expect("runs").expect("settled");
            for (flushed, later) in &mut model {
                *flushed = later.last().copied().unwrap_or(*flushed);
                later.clear();
            }
        }
        let keeps_members = ability::find::<dyn Members>(&*device).is_some();
        assert!(keeps_members, "they are reached through it");
        drop((device, mirror));
        for (number, cache) in (0u64..).zip(&caches) {
            // Each loses something else.
            let kept = [Kept::None, Kept::All, Kept::Part { seed: draw(12, round * 10 + number) }];
            cache.cut(kept[(draw(13, round * 10 + number) % 3) as usize]);
            cache.restore();
        }
        let (_, device) = assemble(&members, &runtime).expect("opens");
        for (number, (flushed, later)) in (0u64..).zip(&mut model) {
            let offset = number * stride * BLOCK_BYTES;
            let is = read(&*device, &runtime, offset, BLOCK).expect("flushed or torn, but there");
            for sector in is.chunks(512) {
                let is_legal = sector[0] == *flushed || later.contains(&sector[0]);
                assert!(
                    is_legal && sector.iter().all(|byte| *byte == sector[0]),
                    "block {number}: {} of {flushed}, {later:?}",
                    sector[0]
                );
            }
            // Whole again, for the next round.
            write(&*device, &runtime, offset, &[is[0]; BLOCK]).expect("written");
            (*flushed, *later) = (is[0], Vec::new());
        }
        flush(&*device, &runtime);
        let report = runtime.block_on(device.scrub(&runtime, &ScrubOptions::default(), |_| true));
        assert_eq!(report.expect("runs").expect("scrubbed").found.lost, 0);
        // All copies are the same now.
        let whole = |medium: &dyn Device| {
            read(medium, &runtime, device.data_at(), (device.info().size) as usize).expect("read")
        };
        let first = whole(&*caches[0]);
        for cache in &caches[1..] {
            assert!(whole(&**cache) == first, "copies differ after a scrub");
        }
    }
}

#[test]
fn with_one_right_copy_nothing_is_wrong_and_nothing_refused() {
    for seed in 0..60 {
        let result = std::panic::catch_unwind(|| trial(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
