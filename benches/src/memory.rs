//! How fast a block is found in memory by its content, beside `memchr::memmem` on the same bytes, how long a change takes, and how many trials an hour has.
//!
//! 256 MiB of noise in a file of `/dev/shm`, as a guest's memory is, warm; the blocks lie at its end. Searching looks at eight bytes
//! in each KiB, so its rate is that of memory passed over, not of memory read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_inject::{Memory, Needles, PAGE_BYTES, SharedMemory, apply};
use rotproof_machine::UsageMeter;
use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_trial::runner;

use crate::figure::{Bar, Figure};
use crate::{Effort, machine};

const TRIAL: &[u8] = include_bytes!("../../examples/memory/likely/varmail.yaml");
/// How long the load of that runs.
const LOAD_SECONDS: f64 = 3.0;

const BYTES: usize = 256 << 20;
/// Blocks that are looked for at once.
const SEVERAL: usize = 16;
const GIBIBYTE: f64 = (1u64 << 30) as f64;

/// Runs it.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let (memory, bytes) = filled()?;
    let blocks: Vec<&[u8]> =
        (1..=SEVERAL).map(|number| &bytes[BYTES - number * 3 * PAGE_BYTES..][..PAGE_BYTES]).collect();
    let rate = |seconds: f64| BYTES as f64 / GIBIBYTE / seconds;
    for count in [1, SEVERAL] {
        let needles = Needles::new(&blocks[..count])?;
        let finders: Vec<_> = blocks[..count].iter().map(memchr::memmem::Finder::new).collect();
        let mut pairs = Vec::new();
        for _ in 0..effort.rounds.max(3) {
            let began = Instant::now();
            let mut places = 0;
            for region in memory.regions()? {
                memory.find(&region.range, &needles, &mut |_, _| places += 1)?;
            }
            let ours = began.elapsed().as_secs_f64();
            let began = Instant::now();
            let peers = finders.iter().filter(|finder| finder.find(&bytes).is_some()).count();
            pairs.push((rate(ours), rate(began.elapsed().as_secs_f64())));
            if (places, peers) != (count, count) {
                let context = format!("of {count} blocks we found {places} and memmem {peers}");
                return Err(Error::new(ErrorKind::Internal, context));
            }
        }
        let name = format!("{count} blocks searched in 256 MiB / memchr::memmem of each");
        found(Figure::from_rounds(name, "GiB/s", &pairs, Some(Bar::AtLeast(1.0))));
    }
    let mut times = Vec::new();
    for round in 0..1000u64 {
        let address = round * 13 % 1000 * PAGE_BYTES as u64;
        let mut before = vec![0; PAGE_BYTES];
        let began = Instant::now();
        memory.read(address, &mut before)?;
        let mut after = before.clone();
        after[7] ^= 1;
        apply(&memory, address, &before, &after)?;
        times.push((began.elapsed().as_secs_f64() * 1e3, 10.0));
    }
    let name = "one flip, both hashes included / 10 ms; nothing is stopped for it";
    found(Figure::from_rounds(name, "ms", &times, Some(Bar::AtMost(1.0))));
    trials(effort, found)
}

/// How many trials of bits that flip in the memory of a machine an hour has, one after the other: of 16 flips under varmail on ext4 in User
/// Mode Linux, from its start to its verdict, against as many as there would be of the 3 seconds of load alone; and what a core could do that had
/// nothing else to do.
fn trials(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("linux.uml", "user-mode-linux")?;
    let (mut by_time, mut by_core) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds.max(3) {
        let overrides = Overrides { seed: Some(round as u64 + 1), ..Overrides::default() };
        let trial = TrialFile::parse("varmail.yaml", TRIAL, &overrides).map_err(|mistakes| {
            Error::new(ErrorKind::Internal, format!("the trial has {} mistakes", mistakes.list.len()))
        })?;
        let results = tempfile::tempdir().doing(|| "creating a folder".to_owned())?;
        let options = machine::run_options(results.path().to_owned());
        let meter = UsageMeter::start()?;
        let report = runner::run(&trial, &options)?.report;
        let usage = meter.read()?;
        if report.counts.injections == 0 {
            return Err(Error::new(ErrorKind::Internal, "no bit flipped"));
        }
        let most = 3600.0 / LOAD_SECONDS;
        by_time.push((3600.0 / usage.elapsed_seconds, most));
        by_core.push((3600.0 / usage.machine_busy_seconds, most));
    }
    let name = "trials an hour, one after the other / loads alone";
    found(Figure::from_rounds(name, "trials", &by_time, None));
    let name = "trials an hour of a core that is busy all the time / loads alone";
    found(Figure::from_rounds(name, "trials", &by_core, None));
    Ok(())
}

/// The memory, and a copy of what is in it.
fn filled() -> Result<(SharedMemory, Vec<u8>)> {
    let doing = || "making memory to search".to_owned();
    let file: File = tempfile::tempfile_in("/dev/shm").doing(doing)?;
    let mut state = 1u64;
    let mut bytes = vec![0u8; BYTES];
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    file.write_all_at(&bytes, 0).doing(doing)?;
    Ok((SharedMemory::map(file)?, bytes))
}
