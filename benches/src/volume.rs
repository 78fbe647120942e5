//! What the layers of a volume cost: checksums, versions, on files and on the memory leaf; how fast a scrub goes, how long a large
//! volume takes to open, how large its tables are.
//!
//! Loads are those of DARC (Fountoulakis, *DARC: Design and Evaluation of an I/O Controller for Data Protection*): sequential writes
//! and reads of 64 KiB, and random mixes called OLTP, FS and WEB. The peer is the same stack without the layer, in turns; at the end
//! a volume with checksums against btrfs and ZFS.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crc_fast::CrcAlgorithm;
use rotproof_block::hash::mix;
use rotproof_block::leaf::{FileDevice, FileOptions, MemoryDevice};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Buffer, Context, Device, DeviceInfo, Error, Features, Queue, Request, Result, Runtime};
use rotproof_volume::checksum::{ChecksumDevice, ChecksumKind, ChecksumOptions};
use rotproof_volume::member::VersionsPolicy;
use rotproof_volume::mirror::{MirrorDevice, MirrorOptions, Pace};
use rotproof_volume::versions::VersionsDevice;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeOptions};
use tempfile::TempDir;

use crate::Effort;
use crate::figure::{Bar, Figure, in_turns};
use crate::volume_peers::peers;

/// Bytes of a member that is a file.
const MEMBER_BYTES: u64 = 320 << 20;
/// Bytes that loads use.
const USED_BYTES: u64 = 192 << 20;
/// Bytes of a memory leaf: more than the caches of the machine hold.
const MEMORY_BYTES: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// A load of DARC.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    is_sequential: bool,
    /// Of a thousand requests, those that write.
    writes: u64,
    /// Sizes in bytes, and how many of a hundred requests have them.
    sizes: &'static [(usize, u64)],
}

const LOADS: [Load; 5] = [
    Load { name: "WS", is_sequential: true, writes: 1000, sizes: &[(65_536, 100)] },
    Load { name: "RS", is_sequential: true, writes: 0, sizes: &[(65_536, 100)] },
    Load { name: "OLTP", is_sequential: false, writes: 330, sizes: &[(4096, 100)] },
    Load {
        name: "FS",
        is_sequential: false,
        writes: 200,
        sizes: &[(4096, 80), (8192, 2), (16_384, 4), (32_768, 4), (65_536, 10)],
    },
    Load {
        name: "WEB",
        is_sequential: false,
        writes: 0,
        sizes: &[(4096, 68), (8192, 15), (16_384, 2), (32_768, 6), (65_536, 7), (131_072, 1), (524_288, 1)],
    },
];

/// Measures everything; hands out each figure as soon as it is known.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    on_memory(effort, found)?;
    tables(found)?;
    let folder = folder()?;
    opening(folder.path(), found)?;
    on_files(effort, folder.path(), found)
}

fn folder() -> Result<TempDir> {
    tempfile::tempdir().map_err(|error| Error::from_io(error, "creating a folder for members"))
}

/// Writes all that loads use once, so that none of it is new when it counts.
fn fill(device: &dyn Device, bytes: u64) -> Result<()> {
    let runtime = Runtime::uring(RuntimeOptions::new(1))?;
    let queue = device.open_queue(&runtime)?;
    for offset in (0..bytes).step_by(1 << 20) {
        let data: Vec<u8> = (0..1 << 17).flat_map(|at| mix(3, offset, at).to_le_bytes()).collect();
        let write = Request::write(offset, Buffer::copy_of(&data), Context::default());
        runtime.block_on(queue.submit(write))?.result?;
    }
    runtime.block_on(queue.submit(Request::flush(Context::default())))?.result
}

/// What a reader does with what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Nothing: the next request gets the same memory, which is in the caches of the disk's side still.
    Drops,
    /// Keeps the last so many, so that each request has memory of its own, as the pages of a file system's cache.
    Keeps(usize),
    /// Sums it up as the checksum layer does: what verifying costs without any layer.
    Sums,
}

/// Requests of which a reader that keeps something keeps the data: 16 MiB, where they are of 64 KiB.
const KEPT: usize = 256;

/// MB a second of a load with so many requests outstanding, a flush at the end included.
fn drive(device: &dyn Device, load: Load, depth: usize, span: Duration, seed: u64) -> Result<f64> {
    drive_as(Reader::Drops, device, load, depth, span, seed)
}

/// As [`drive`], with such a reader.
fn drive_as(
    reader: Reader,
    device: &dyn Device,
    load: Load,
    depth: usize,
    span: Duration,
    seed: u64,
) -> Result<f64> {
    let runtime = Runtime::uring(RuntimeOptions::new(seed))?;
    let queue = device.open_queue(&runtime)?;
    let (number, done, began) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)), Instant::now());
    let worker = |_| {
        let (queue, number, done) = (Rc::clone(&queue), Rc::clone(&number), Rc::clone(&done));
        runtime.spawn(async move {
            let mut kept = VecDeque::new();
            let noise: Vec<u8> = (0..1 << 16).flat_map(|at| mix(5, 0, at).to_le_bytes()).collect();
            while began.elapsed() < span {
                let this = number.replace(number.get() + 1);
                let draw = mix(seed, 1, this);
                let mut part = draw % 100;
                let size = load.sizes.iter().find(|(_, share)| {
                    let is_it = part < *share;
                    part = part.saturating_sub(*share);
                    is_it
                });
                let size = size.map_or(4096, |(size, _)| *size);
                let room = USED_BYTES / size as u64;
                let place = if load.is_sequential { this % room } else { mix(seed, 2, this) % room };
                let (offset, context) = (place * size as u64, Context::default());
                let request = if mix(seed, 3, this) % 1000 < load.writes {
                    let mut data = Buffer::copy_of(&noise[..size]);
                    data[..8].copy_from_slice(&draw.to_le_bytes());
                    Request::write(offset, data, context)
                } else {
                    Request::read(offset, Buffer::stale(size), context)
                };
                let completion = queue.submit(request).await;
                completion.result?;
                done.set(done.get() + size as u64);
                match reader {
                    Reader::Drops => {}
                    Reader::Keeps(count) => {
                        kept.push_back(completion.buffer);
                        if kept.len() > count.div_ceil(depth) {
                            kept.pop_front();
                        }
                    }
                    Reader::Sums => completion.buffer.chunks_exact(4096).for_each(|block| {
                        black_box(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, block));
                    }),
                }
            }
            Ok::<_, Error>(())
        })
    };
    let workers: Vec<_> = (0..depth).map(worker).collect();
    runtime.block_on(async {
        for worker in workers {
            worker.await?;
        }
        Ok::<_, Error>(())
    })??;
    runtime.block_on(queue.submit(Request::flush(Context::default())))?.result?;
    let rate = done.get() as f64 / began.elapsed().as_secs_f64() / 1e6;
    drop(queue);
    runtime.abandon_tasks();
    Ok(rate)
}

/// The checksum layer over a memory leaf against the leaf: nothing hides what it costs.
fn on_memory(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let plain: Arc<dyn Device> = MemoryDevice::new(MEMORY_BYTES, 4096)?;
    let checked = ChecksumDevice::open(MemoryDevice::new(MEMORY_BYTES, 4096)?, ChecksumOptions::default())?;
    fill(&*plain, USED_BYTES)?;
    fill(&*checked, USED_BYTES)?;
    let span = Duration::from_secs_f64(effort.seconds / 2.0);
    for load in LOADS {
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            let seed = round as u64;
            rounds.push(in_turns(
                round,
                || drive(&*checked, load, 8, span, seed),
                || drive(&*plain, load, 8, span, seed),
            )?);
        }
        let name = format!("memory, {} depth 8: checksum against none", load.name);
        found(Figure::from_rounds(name, "MB/s", &rounds, Some(Bar::AtLeast(0.6))));
    }
    Ok(())
}

/// Bytes of tables for each byte of a device of 1 TiB, against 1/500.
fn tables(found: &mut dyn FnMut(Figure)) -> Result<()> {
    let bytes = 1u64 << 40;
    let share = |first: u64| vec![(first as f64 / bytes as f64 * 1e3, 2.0)];
    let (first, _) = ChecksumDevice::place_on(bytes, ChecksumKind::Crc32c)?;
    found(Figure::from_rounds("checksums of 1 TiB, twice", "1/1000", &share(first), Some(Bar::AtMost(1.0))));
    let (first, _) = VersionsDevice::place_on(bytes, 20)?;
    let name = "map and room for histories of 1 TiB, the map twice";
    found(Figure::from_rounds(name, "1/1000", &share(first), Some(Bar::AtMost(1.0))));
    let histories = VersionsDevice::histories_on(bytes);
    found(Figure::from_rounds("of it the map, twice", "1/1000", &share(first - histories), None));
    found(Figure::from_rounds("of it room for histories", "1/1000", &share(histories), None));
    Ok(())
}

fn members(folder: &Path, name: &str, bytes: u64) -> Result<Vec<Candidate>> {
    let member = |number: usize| {
        let path = folder.join(format!("{name}-{number}"));
        let options = FileOptions { create: true, size_bytes: Some(bytes), ..FileOptions::default() };
        Ok(Candidate { name: path.display().to_string(), device: FileDevice::open(&path, options)? })
    };
    (0..2).map(member).collect()
}

fn volume(folder: &Path, name: &str, bytes: u64, options: VolumeOptions) -> Result<Arc<Volume>> {
    let runtime = Runtime::uring(RuntimeOptions::new(1))?;
    let members = members(folder, name, bytes)?;
    runtime.block_on(Volume::create(&members, options, u128::from(bytes), &runtime))??;
    runtime.block_on(Volume::open(members, OpenOptions::with_patience(PATIENCE), &runtime))?
}

/// How long a sparse volume of 1 TiB takes to open, against a second.
fn opening(folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    for (name, versions) in [("checksums", None), ("checksums and versions", Some(VersionsPolicy::default()))]
    {
        let options = VolumeOptions { versions, ..VolumeOptions::default() };
        let bytes = 1 << 40;
        let made = volume(folder, "large", bytes, options)?;
        let runtime = Runtime::uring(RuntimeOptions::new(1))?;
        runtime.block_on(made.close(&runtime))??;
        drop(made);
        let mut rounds = Vec::new();
        for _ in 0..5 {
            let members = members(folder, "large", bytes)?;
            let began = Instant::now();
            let opened =
                runtime.block_on(Volume::open(members, OpenOptions::with_patience(PATIENCE), &runtime))??;
            rounds.push((began.elapsed().as_secs_f64() * 1e3, 1e3));
            runtime.block_on(opened.close(&runtime))??;
        }
        let name = format!("1 TiB opens, {name}");
        found(Figure::from_rounds(name, "ms", &rounds, Some(Bar::AtMost(1.0))));
        for number in 0..2 {
            let path = folder.join(format!("large-{number}"));
            std::fs::remove_file(&path).map_err(|error| Error::from_io(error, path.display().to_string()))?;
        }
    }
    Ok(())
}

fn on_files(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let plain = VolumeOptions { checksum: None, ..VolumeOptions::default() };
    let policy = VersionsPolicy { every_ms: 60_000, ..VersionsPolicy::default() };
    let versions = VolumeOptions { versions: Some(policy), ..VolumeOptions::default() };
    let plain = volume(folder, "plain", MEMBER_BYTES, plain)?;
    let checked = volume(folder, "checked", MEMBER_BYTES, VolumeOptions::default())?;
    let versioned = volume(folder, "versioned", MEMBER_BYTES, versions)?;
    for one in [&plain, &checked, &versioned] {
        fill(&**one, USED_BYTES)?;
    }
    let span = Duration::from_secs_f64(effort.seconds / 2.0);
    for load in LOADS {
        for depth in [1, 8, 64] {
            let (mut with_sums, mut with_versions) = (Vec::new(), Vec::new());
            for round in 0..effort.rounds {
                let seed = round as u64;
                let checks = || drive(&*checked, load, depth, span, seed);
                with_sums.push(in_turns(round, checks, || drive(&*plain, load, depth, span, seed))?);
                with_versions.push(in_turns(
                    round,
                    || drive(&*versioned, load, depth, span, seed),
                    || drive(&*checked, load, depth, span, seed),
                )?);
            }
            let name = format!("files, {} depth {depth}", load.name);
            let bar = Some(Bar::AtLeast(0.95));
            found(Figure::from_rounds(format!("{name}: checksum against none"), "MB/s", &with_sums, bar));
            let bar = Some(Bar::AtLeast(0.98));
            let name = format!("{name}: versions each 60 s against none");
            found(Figure::from_rounds(name, "MB/s", &with_versions, bar));
        }
    }
    readers(effort, &plain, &checked, found)?;
    scrub(effort, &plain, &checked, found)?;
    handing_down(effort, folder, found)?;
    unflushed(effort, found)?;
    beside(effort, folder, &*checked, found)
}

/// Why verified reads cost what they cost: the same sums without any layer, and readers whose memory is not in the caches of who
/// fills it.
fn readers(effort: Effort, plain: &Volume, checked: &Volume, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let span = Duration::from_secs_f64(effort.seconds / 2.0);
    for load in LOADS.into_iter().filter(|load| load.writes == 0) {
        for depth in [1, 8] {
            let (mut sums, mut layer, mut kept) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..effort.rounds {
                let seed = round as u64;
                let on = |reader, device: &Volume| drive_as(reader, device, load, depth, span, seed);
                let by_reader = || on(Reader::Sums, plain);
                sums.push(in_turns(round, by_reader, || on(Reader::Drops, plain))?);
                layer.push(in_turns(round, || on(Reader::Drops, checked), by_reader)?);
                let keeps = Reader::Keeps(KEPT);
                kept.push(in_turns(round, || on(keeps, checked), || on(keeps, plain))?);
            }
            let name = format!("files, {} depth {depth}", load.name);
            let bar = Some(Bar::AtLeast(0.95));
            found(Figure::from_rounds(
                format!("{name}: sums by the reader against none"),
                "MB/s",
                &sums,
                None,
            ));
            let against = format!("{name}: checksum against sums by the reader");
            found(Figure::from_rounds(against, "MB/s", &layer, bar));
            let own = format!("{name}, memory of its own: checksum against none");
            found(Figure::from_rounds(own, "MB/s", &kept, bar));
        }
    }
    Ok(())
}

/// A device that cannot be told what is not needed any more.
struct Keeps(Arc<dyn Device>);

impl Device for Keeps {
    fn info(&self) -> DeviceInfo {
        let info = self.0.info();
        DeviceInfo { features: Features { discard: false, ..info.features }, ..info }
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.0.open_queue(runtime)
    }
}

/// What it costs to hand down to the members the room that a deleted version held, in single blocks: a flush after the deletion, against
/// the same over members that take no discards.
fn handing_down(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let versions = VolumeOptions { versions: Some(VersionsPolicy::default()), ..VolumeOptions::default() };
    let runtime = Runtime::uring(RuntimeOptions::new(1))?;
    let mut made = Vec::new();
    for (name, keeps) in [("hands-down", false), ("keeps", true)] {
        let members = members(folder, name, MEMBER_BYTES)?.into_iter().map(|one| match keeps {
            true => Candidate { device: Arc::new(Keeps(one.device)), ..one },
            false => one,
        });
        let members: Vec<Candidate> = members.collect();
        let id = u128::from(MEMBER_BYTES + u64::from(keeps));
        runtime.block_on(Volume::create(&members, versions, id, &runtime))??;
        let opened = Volume::open(members, OpenOptions::with_patience(PATIENCE), &runtime);
        let volume = runtime.block_on(opened)??;
        fill(&*volume, USED_BYTES)?;
        made.push(volume);
    }
    let load = Load { name: "writes", is_sequential: false, writes: 1000, sizes: &[(4096, 100)] };
    let span = Duration::from_secs_f64(effort.seconds / 4.0);
    let cycle = |volume: &Arc<Volume>, seed: u64| {
        const FLUSHES: u32 = 32;
        let id = runtime.block_on(volume.capture(&runtime, "", 0))??;
        drive(&**volume, load, 8, span, seed)?;
        runtime.block_on(volume.delete_version(&runtime, id))??;
        let (queue, began) = (volume.open_queue(&runtime)?, Instant::now());
        for _ in 0..FLUSHES {
            runtime.block_on(queue.submit(Request::flush(Context::default())))?.result?;
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(FLUSHES))
    };
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        let seed = round as u64;
        rounds.push(in_turns(round, || cycle(&made[0], seed), || cycle(&made[1], seed))?);
    }
    let name = "files: a flush that hands down freed room, against one that keeps it";
    found(Figure::from_rounds(name, "us", &rounds, None));
    Ok(())
}

/// What it costs a mirror to know what is not flushed: nanoseconds of a write to leaves of RAM, with a flush after every eight, at eight
/// places so far apart that each is noted anew after a flush, against eight blocks in a row, which are noted as one.
fn unflushed(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    const WRITES: u64 = 20_000;
    let leaf = || Ok::<Arc<dyn Device>, Error>(MemoryDevice::new(64 << 20, 4096)?);
    let mirror = MirrorDevice::new(vec![leaf()?, leaf()?], MirrorOptions::default())?;
    fill(&*mirror, 64 << 20)?;
    let runtime = Runtime::uring(RuntimeOptions::new(1))?;
    let queue = mirror.open_queue(&runtime)?;
    let nanoseconds = |spread: u64| {
        let began = Instant::now();
        for number in 0..WRITES {
            let offset = number % 8 * spread;
            let write = Request::write(offset, Buffer::zeroed(4096), Context::default());
            runtime.block_on(queue.submit(write))?.result?;
            if number % 8 == 7 {
                runtime.block_on(queue.submit(Request::flush(Context::default())))?.result?;
            }
        }
        Ok(began.elapsed().as_secs_f64() * 1e9 / WRITES as f64)
    };
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        rounds.push(in_turns(round, || nanoseconds(8 << 20), || nanoseconds(4096))?);
    }
    found(Figure::from_rounds(
        "memory: a write noted as unflushed, against one that is",
        "ns",
        &rounds,
        None,
    ));
    Ok(())
}

/// The same loads on a file of btrfs and of ZFS, which have checksums and two copies as well.
fn beside(effort: Effort, folder: &Path, checked: &dyn Device, found: &mut dyn FnMut(Figure)) -> Result<()> {
    // Room for what they write to new places before they free the old.
    for peer in peers(folder, 4 * MEMBER_BYTES, USED_BYTES) {
        fill(&*peer.device, USED_BYTES)?;
        let span = Duration::from_secs_f64(effort.seconds / 2.0);
        for load in LOADS {
            for depth in [1, 8, 64] {
                let mut rounds = Vec::new();
                for round in 0..effort.rounds {
                    let seed = round as u64;
                    rounds.push(in_turns(
                        round,
                        || drive(checked, load, depth, span, seed),
                        || drive(&*peer.device, load, depth, span, seed),
                    )?);
                }
                let name = format!("files, {} depth {depth}: volume against {}", load.name, peer.name);
                found(Figure::from_rounds(name, "MB/s", &rounds, None));
            }
        }
    }
    Ok(())
}

/// A scrub of checksums, which reads both copies, against reading one copy of the same without checksums, twice.
fn scrub(effort: Effort, plain: &Volume, checked: &Volume, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let mut rounds = Vec::new();
    for round in 0..effort.rounds.min(5) {
        let scrub = || {
            let (runtime, began) = (Runtime::uring(RuntimeOptions::new(1))?, Instant::now());
            runtime.block_on(checked.scrub(&runtime, Pace::default(), |_, _| {}))??;
            let rate = 2.0 * USED_BYTES as f64 / began.elapsed().as_secs_f64() / 1e6;
            runtime.abandon_tasks();
            Ok(rate)
        };
        let load = Load { name: "read", is_sequential: true, writes: 0, sizes: &[(1 << 19, 100)] };
        let read = || drive(plain, load, 4, Duration::from_secs_f64(effort.seconds), 1);
        rounds.push(in_turns(round, scrub, read)?);
    }
    let name = "files: scrub of both copies against reads of 512 KiB, depth 4";
    found(Figure::from_rounds(name, "MB/s", &rounds, Some(Bar::AtLeast(0.9))));
    Ok(())
}
