//! The guard against the same file system without: the library's reads and writes, the mount against one that only passes on,
//! taking in and checking against a plain read.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_guard::check::{CheckOptions, CheckProgress, check};
use rotproof_guard::take::{TakeIn, TakeProgress, take_in};
use rotproof_guard::{Algorithm, GuardedFile, Pair, Store, StoreOptions, Trouble};
use rotproof_guard_fuse::{GuardMount, MountOptions};

use crate::figure::{Bar, Figure, in_turns};
use crate::guard_loads::personalities;
use crate::{Effort, machine};

const FILE_BYTES: u64 = 256 << 20;
const SCANNED_BYTES: u64 = 1 << 30;
const SMALL: usize = 4096;
const LARGE: usize = 128 << 10;
/// Bytes a second of one core that taking in and checking are to reach where the disk is faster.
const SCAN_BYTES: f64 = 2e9;

/// Measures.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let folder = machine::folder_on_disk()?;
    let folder = folder.path();
    reads(effort, folder, found)?;
    cold_reads(effort, folder, found)?;
    modes(effort, folder, found)?;
    writes(effort, folder, found)?;
    small_files(effort, folder, found)?;
    personalities(effort, folder, found)?;
    mounts(effort, folder, found)?;
    scans(effort, folder, found)
}

/// What hangs on the cost of small files.
pub fn run_small(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let folder = machine::folder_on_disk()?;
    small_files(effort, folder.path(), found)?;
    personalities(effort, folder.path(), found)
}

/// What large files cost that have files of their own on either side.
pub fn run_large(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let folder = machine::folder_on_disk()?;
    modes(effort, folder.path(), found)?;
    writes(effort, folder.path(), found)?;
    scans(effort, folder.path(), found)
}

fn doing<T>(done: std::io::Result<T>) -> Result<T> {
    done.doing(|| "measuring the guard".to_owned())
}

fn told<T>(done: std::result::Result<T, Trouble>) -> Result<T> {
    done.map_err(|trouble| Error::new(ErrorKind::Internal, format!("measuring the guard: {trouble}")))
}

/// A guarded folder of its own.
fn guarded(
    folder: &Path,
    name: &str,
    light: Algorithm,
    strong: Algorithm,
    switch: Option<u32>,
) -> Result<Arc<Store>> {
    let root = folder.join(name);
    doing(std::fs::create_dir_all(&root))?;
    let options = StoreOptions { pair: Pair { light, strong }, switch_seconds: switch };
    Store::init(&root, None, options)
}

fn open(store: &Arc<Store>, name: &str) -> Result<(Arc<GuardedFile>, File)> {
    let path = store.root().join(name);
    let mut options = OpenOptions::new();
    let plain = doing(options.read(true).write(true).create(true).truncate(false).open(&path))?;
    Ok((GuardedFile::open(store, plain.as_raw_fd(), true, &path)?, plain))
}

/// A file with data that do not repeat, durable, all of it verified and in the cache.
fn filled(store: &Arc<Store>, name: &str) -> Result<(Arc<GuardedFile>, File)> {
    filled_by(store, name, FILE_BYTES, 1 << 20)
}

/// The same with so many bytes, written in pieces of so many.
fn filled_by(store: &Arc<Store>, name: &str, bytes: u64, length: usize) -> Result<(Arc<GuardedFile>, File)> {
    let (file, plain) = open(store, name)?;
    let mut data = vec![0u8; length];
    for at in (0..bytes).step_by(data.len()) {
        data.iter_mut().enumerate().for_each(|(index, byte)| {
            *byte = ((at + index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8;
        });
        told(file.write_at(&data, at))?;
    }
    told(file.sync(false))?;
    for at in (0..bytes).step_by(data.len()) {
        told(file.read_at(&mut data, at))?;
    }
    Ok((file, plain))
}

/// Operations a second; `operate` gets the number of the operation.
fn rate(seconds: f64, mut operate: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    let mut count = 0;
    loop {
        for _ in 0..64 {
            operate(count)?;
            count += 1;
        }
        let elapsed = began.elapsed().as_secs_f64();
        if elapsed >= seconds {
            return Ok(count as f64 / elapsed);
        }
    }
}

/// Where the operation with a number goes: all over the file, or one after the other.
fn place(number: u64, length: usize, is_random: bool) -> u64 {
    let places = FILE_BYTES / length as u64;
    let number = if is_random { number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 } else { number };
    number % places * length as u64
}

fn reads(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let mut buffer = vec![0; LARGE];
    let mut plain_buffer = vec![0; LARGE];
    for light in [Algorithm::Xor64, Algorithm::Crc32c] {
        let store = guarded(folder, &format!("reads-{light}"), light, Algorithm::Xxh3, None)?;
        let (file, plain) = filled(&store, "file")?;
        for (length, is_random) in [(SMALL, true), (SMALL, false), (LARGE, true), (LARGE, false)] {
            let mut rounds = Vec::new();
            for round in 0..effort.rounds {
                rounds.push(in_turns(
                    round,
                    || {
                        rate(effort.seconds, |number| {
                            told(file.read_at(&mut buffer[..length], place(number, length, is_random)))
                                .map(drop)
                        })
                    },
                    || {
                        rate(effort.seconds, |number| {
                            let to = &mut plain_buffer[..length];
                            doing(plain.read_exact_at(to, place(number, length, is_random)))
                        })
                    },
                )?);
            }
            let order = if is_random { "random" } else { "sequential" };
            let name = format!("library, {light}, warm {order} reads of {} KiB, to pread", length >> 10);
            let bar = (light == Algorithm::Xor64).then_some(Bar::AtLeast(1.0));
            found(Figure::from_rounds(name, "1/s", &rounds, bar));
        }
    }
    Ok(())
}

/// From the disk, with nothing of either file in the cache; opening is part of it, and the tables are in the cache.
fn cold_reads(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let store = guarded(folder, "cold", Algorithm::Xor64, Algorithm::Xxh3, None)?;
    for name in ["guarded", "plain"] {
        drop(filled(&store, name)?);
    }
    let path = |name: &str| store.root().join(name);
    let drop_cache = |name: &str| -> Result<()> {
        let file = doing(File::open(path(name)))?;
        // SAFETY: takes an open descriptor. Its pages are clean, and nobody maps them.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        Ok(())
    };
    let mut buffers = [vec![0; LARGE], vec![0; LARGE]];
    for (length, is_random, count) in [(SMALL, true, 1000), (LARGE, false, FILE_BYTES / LARGE as u64)] {
        let [one, other] = &mut buffers;
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            drop_cache("guarded")?;
            drop_cache("plain")?;
            rounds.push(in_turns(
                round,
                || {
                    let began = Instant::now();
                    let (file, _plain) = open(&store, "guarded")?;
                    for number in 0..count {
                        told(file.read_at(&mut one[..length], place(number, length, is_random)))?;
                    }
                    Ok(count as f64 / began.elapsed().as_secs_f64())
                },
                || {
                    let began = Instant::now();
                    let file = doing(File::open(path("plain")))?;
                    for number in 0..count {
                        doing(file.read_exact_at(&mut other[..length], place(number, length, is_random)))?;
                    }
                    Ok(count as f64 / began.elapsed().as_secs_f64())
                },
            )?);
        }
        let order = if is_random { "random" } else { "sequential" };
        let name = format!("library, cold {order} reads of {} KiB, to pread", length >> 10);
        found(Figure::from_rounds(name, "1/s", &rounds, None));
    }
    Ok(())
}

/// Files are made anew after so many rounds, and each side is the first to be made half of the times: which memory and which places on the disk
/// a file has got makes more of a difference than what is measured here.
const GENERATION: usize = 2;

/// Rounds of two sides that have files of their own, which `make` gets the number of, and whether ours are to be made first.
fn in_generations<S>(
    effort: Effort,
    mut make: impl FnMut(usize, bool) -> Result<S>,
    ours: impl Fn(&S) -> Result<f64>,
    theirs: impl Fn(&S) -> Result<f64>,
) -> Result<Vec<(f64, f64)>> {
    let mut rounds = Vec::new();
    for generation in 0..effort.rounds.div_ceil(GENERATION) {
        let sides = make(generation, generation.is_multiple_of(2))?;
        for round in 0..GENERATION.min(effort.rounds - rounds.len()) {
            rounds.push(in_turns(round, || ours(&sides), || theirs(&sides))?);
        }
    }
    Ok(rounds)
}

/// A filled file in a guarded folder of its own, which is gone with this.
struct Alone {
    file: Arc<GuardedFile>,
    plain: File,
    store: Arc<Store>,
}

impl Alone {
    fn new(folder: &Path, name: &str, strong: Algorithm, switch: Option<u32>, length: usize) -> Result<Self> {
        let store = guarded(folder, name, Algorithm::Xor64, strong, switch)?;
        let (file, plain) = filled_by(&store, "file", FILE_BYTES, length)?;
        Ok(Self { file, plain, store })
    }

    /// Two of them, one of which is made first.
    fn two(
        is_first: bool,
        first: impl Fn() -> Result<Self>,
        second: impl Fn() -> Result<Self>,
    ) -> Result<(Self, Self)> {
        if is_first {
            let first = first()?;
            Ok((first, second()?))
        } else {
            let second = second()?;
            Ok((first()?, second))
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.store.root());
    }
}

/// The modes against each other: dynamic to static, and to the strong sum all the way.
fn modes(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let rate = |side: &Alone| {
        let mut buffer = [0; SMALL];
        rate(effort.seconds, |number| {
            told(side.file.read_at(&mut buffer, place(number, SMALL, true))).map(drop)
        })
    };
    for (name, strong, peer, bar) in [
        ("static, XOR-64 and Fletcher-256", Algorithm::Fletcher256, None, Some(Bar::AtLeast(0.97))),
        ("Fletcher-256 always", Algorithm::Fletcher256, Some(0), Some(Bar::AtLeast(1.09))),
        ("XXH3-64 always", Algorithm::Xxh3, Some(0), None),
    ] {
        let make = |number, is_first| {
            let named = |side: &str| format!("{side}-{number}");
            let dynamic = || Alone::new(folder, &named("dynamic"), Algorithm::Fletcher256, Some(92), LARGE);
            Alone::two(is_first, dynamic, || Alone::new(folder, &named("peer"), strong, peer, LARGE))
        };
        let rounds = in_generations(effort, make, |sides| rate(&sides.0), |sides| rate(&sides.1))?;
        let name = format!("warm random reads of 4 KiB, dynamic (92 s) to {name}");
        found(Figure::from_rounds(name, "1/s", &rounds, bar));
    }
    Ok(())
}

fn writes(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let data: Vec<u8> = (0..LARGE).map(|at| (at * 7) as u8).collect();
    for (length, syncs) in [(SMALL, false), (LARGE, false), (SMALL, true)] {
        let make = |number, is_first| {
            let alone = |side: &'static str| {
                // Block by block, so that the cache has it in pages: in larger pieces the kernel takes ten times as long for a write of
                // 4 KiB, on either side.
                move || Alone::new(folder, &format!("{side}-{number}"), Algorithm::Xxh3, None, SMALL)
            };
            Alone::two(is_first, alone("guarded"), alone("plain"))
        };
        let ours = |sides: &(Alone, Alone)| {
            let file = &sides.0.file;
            rate(effort.seconds, |number| {
                told(file.write_at(&data[..length], place(number, length, true)))?;
                if syncs { told(file.sync(true)) } else { Ok(()) }
            })
        };
        // A file that nobody accuses for it.
        let theirs = |sides: &(Alone, Alone)| {
            let plain = &sides.1.plain;
            rate(effort.seconds, |number| {
                doing(plain.write_all_at(&data[..length], place(number, length, true)))?;
                if syncs { doing(plain.sync_data()) } else { Ok(()) }
            })
        };
        let rounds = in_generations(effort, make, ours, theirs)?;
        let each = if syncs { ", each made durable" } else { "" };
        let name = format!("library, random writes of {} KiB{each}, to pwrite", length >> 10);
        found(Figure::from_rounds(name, "1/s", &rounds, Some(Bar::AtLeast(0.9))));
    }
    least_durable_writes(effort, folder, found)
}

/// What nobody can go above who makes sums durable beside the data: the system calls alone, without a sum or a lock.
fn least_durable_writes(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let data = [7; SMALL];
    let make_file = |name: String| -> Result<File> {
        let mut options = OpenOptions::new();
        let file = doing(options.read(true).write(true).create(true).truncate(true).open(folder.join(name)))?;
        for at in (0..FILE_BYTES).step_by(SMALL) {
            doing(file.write_all_at(&data, at))?;
        }
        doing(file.sync_all())?;
        Ok(file)
    };
    let make = |_, is_first: bool| {
        let [first, second] = [is_first, !is_first].map(|which| make_file(format!("least-{which}")));
        let (ours, peer) = if is_first { (first?, second?) } else { (second?, first?) };
        Ok((ours, peer, make_file("least-table".to_owned())?))
    };
    let push = |file: &File, how| {
        // SAFETY: takes an open descriptor and numbers.
        match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, how) } {
            0 => Ok(()),
            _ => doing(Err(std::io::Error::last_os_error())),
        }
    };
    let ours = |(file, _, table): &(File, File, File)| {
        rate(effort.seconds, |number| {
            let at = place(number, SMALL, true);
            doing(file.write_all_at(&data, at))?;
            doing(table.write_all_at(&data, at / 254 / 4096 * 4096))?;
            push(file, libc::SYNC_FILE_RANGE_WRITE)?;
            push(table, libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER)?;
            doing(file.sync_data())
        })
    };
    let theirs = |(_, file, _): &(File, File, File)| {
        rate(effort.seconds, |number| {
            doing(file.write_all_at(&data, place(number, SMALL, true)))?;
            doing(file.sync_data())
        })
    };
    let rounds = in_generations(effort, make, ours, theirs)?;
    let name = "system calls alone, two writes of 4 KiB and a flush, to one and a flush";
    found(Figure::from_rounds(name, "1/s", &rounds, None));
    Ok(())
}

/// Files are made, written and closed.
fn small_files(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let store = guarded(folder, "small", Algorithm::Xor64, Algorithm::Xxh3, None)?;
    let data = vec![5; 16 << 10];
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        rounds.push(in_turns(
            round,
            || {
                rate(effort.seconds, |number| {
                    let (file, _plain) = open(&store, &format!("g{round}-{number}"))?;
                    told(file.write_at(&data, 0)).map(drop)
                })
            },
            || {
                rate(effort.seconds, |number| {
                    doing(std::fs::write(store.root().join(format!("p{round}-{number}")), &data))
                })
            },
        )?);
    }
    found(Figure::from_rounds(
        "library, files of 16 KiB made, to plain",
        "1/s",
        &rounds,
        Some(Bar::AtLeast(0.9)),
    ));
    Ok(())
}

fn mounts(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let store = guarded(folder, "mounted", Algorithm::Xor64, Algorithm::Xxh3, None)?;
    drop(filled(&store, "file")?);
    let mut mounts = Vec::new();
    let mut files = Vec::new();
    for is_guarded in [true, false] {
        let place = folder.join(format!("mount-{is_guarded}"));
        doing(std::fs::create_dir(&place))?;
        mounts.push(GuardMount::new(&store, &place, MountOptions { is_guarded, ..MountOptions::default() })?);
        files.push(doing(OpenOptions::new().read(true).write(true).open(place.join("file")))?);
    }
    let mut buffers = [vec![0; LARGE], vec![0; LARGE]];
    for (length, is_random) in [(SMALL, true), (LARGE, false)] {
        let [one, other] = &mut buffers;
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            rounds.push(in_turns(
                round,
                || {
                    rate(effort.seconds, |number| {
                        doing(files[0].read_exact_at(&mut one[..length], place(number, length, is_random)))
                    })
                },
                || {
                    rate(effort.seconds, |number| {
                        doing(files[1].read_exact_at(&mut other[..length], place(number, length, is_random)))
                    })
                },
            )?);
        }
        let name = format!("mount, warm reads of {} KiB, to one that only passes on", length >> 10);
        found(Figure::from_rounds(name, "1/s", &rounds, Some(Bar::AtLeast(0.8))));
    }
    drop(files);
    mounts.into_iter().try_for_each(GuardMount::unmount)
}

/// Bytes a second of one thread, with the data in the cache where that counts.
fn scans(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let store = guarded(folder, "scanned", Algorithm::Xor64, Algorithm::Xxh3, None)?;
    // Large, so that beginning and ending, which take milliseconds, do not count.
    drop(filled_by(&store, "file", SCANNED_BYTES, LARGE)?);
    let from = [store.root().join("file")];
    let (mut taken, mut checked) = (Vec::new(), Vec::new());
    let quiet = AtomicBool::new(false);
    for round in 0..effort.rounds {
        let began = Instant::now();
        take_in(&store, &from, TakeIn::All, 1, &TakeProgress::default(), &quiet)?;
        taken.push((SCANNED_BYTES as f64 / began.elapsed().as_secs_f64() / 1e9, SCAN_BYTES / 1e9));
        // As the check reads: past the cache.
        let plain =
            doing(rotproof_guard::stat::reopen(doing(File::open(&from[0]))?.as_raw_fd(), libc::O_DIRECT))?;
        let mut buffer = vec![0u8; (1 << 20) + 4096];
        let start = buffer.as_ptr().align_offset(4096);
        let rate = |began: Instant| SCANNED_BYTES as f64 / began.elapsed().as_secs_f64() / 1e9;
        // In turns: a disk that is rented has more to give to who comes first.
        checked.push(in_turns(
            round,
            || {
                let began = Instant::now();
                let options = CheckOptions { rate_max: None, threads: 1 };
                check(&store, &from, options, &CheckProgress::default(), &quiet)?;
                Ok(rate(began))
            },
            || {
                let began = Instant::now();
                for at in (0..SCANNED_BYTES).step_by(1 << 20) {
                    doing(plain.read_exact_at(&mut buffer[start..start + (1 << 20)], at))?;
                }
                Ok(rate(began).min(SCAN_BYTES / 1e9))
            },
        )?);
    }
    found(Figure::from_rounds("init, from the cache, to 2 GB/s", "GB/s", &taken, Some(Bar::AtLeast(1.0))));
    let name = "check, from the disk, to the disk or 2 GB/s";
    found(Figure::from_rounds(name, "GB/s", &checked, Some(Bar::AtLeast(1.0))));
    Ok(())
}
