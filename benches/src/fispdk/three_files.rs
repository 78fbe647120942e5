//! The experiment with three files, as published: images of 1.2 to 1.5 GB on a file system in process, written in
//! requests of 4 KiB with a flush after each, read back and hashed; faults on the writes of one of them. Here as an
//! application would do it: calls of a library that knows nothing of tags, in the scope of a tag.
//!
//! Figures are counts of blocks against what arithmetic says, hashes that differ between three runs, and run times.

use std::cell::Cell;
use std::io::{Read, Seek, SeekFrom, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions, format_volume};
use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, ByteStream, Completion, ContentHash, Device, Error, ErrorKind, Phase, Request, Result, Runtime,
    Tag,
};
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, Rule};
use rotproof_layers::FaultDevice;

use crate::Effort;
use crate::figure::{Bar, Figure, median};

const BLOCK: usize = 4096;
/// Name and blocks of each file; the first is the one that is hit.
const FILES: [(&str, u64); 3] = [("focal.img", 316_672), ("bionic.img", 300_000), ("jammy.img", 366_000)];
/// For a look: this part of each file.
const QUICK_PART: u64 = 64;
const RUNS: usize = 3;

/// A fault by file, and which blocks of it must be wrong, of so many.
struct Row {
    name: &'static str,
    rule: Option<&'static str>,
    is_hit: fn(u64) -> bool,
}

const ROWS: [Row; 4] = [
    Row { name: "no faults", rule: None, is_hit: |_| false },
    Row {
        name: "INTERVAL 500",
        rule: Some("write, tag=focal.img, every=500: bit_flip(byte=0, bit=0)"),
        is_hit: |block| (block + 1).is_multiple_of(500),
    },
    Row { name: "ALL", rule: Some("write, tag=focal.img: bit_flip(byte=0, bit=0)"), is_hit: |_| true },
    Row {
        name: "ALL_AFTER 500",
        rule: Some("write, tag=focal.img, after=500: bit_flip(byte=0, bit=0)"),
        is_hit: |block| block >= 500,
    },
];

pub(super) fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let part = if effort.seconds < 1.0 { QUICK_PART } else { 1 };
    let files = FILES.map(|(name, blocks)| (name, blocks / part));
    let bytes = files.iter().map(|(_, blocks)| blocks * BLOCK as u64).sum::<u64>();
    // Room for the tables of the volume too.
    let size = (bytes + bytes / 64).next_multiple_of(1 << 20) + (4 << 20);
    let leaf: Arc<dyn Device> = MemoryDevice::new(size, 512)?;
    make_files(&leaf, &files)?;
    let mut runs: Vec<Vec<Outcome>> = ROWS.iter().map(|_| Vec::new()).collect();
    for _ in 0..RUNS {
        for (row, runs) in ROWS.iter().zip(&mut runs) {
            runs.push(one_run(&leaf, row, &files)?);
        }
    }
    let (_, blocks) = files[0];
    let others: u64 = files[1..].iter().map(|(_, blocks)| blocks).sum();
    for (row, outcomes) in ROWS.iter().zip(&runs) {
        let wanted = (0..blocks).filter(|&block| (row.is_hit)(block)).count() as f64;
        let mut figure = |what: &str, unit, rounds: Vec<(f64, f64)>, bar| {
            found(Figure::from_rounds(format!("{}: {what}", row.name), unit, &rounds, bar));
        };
        if row.rule.is_some() {
            let hits = outcomes.iter().map(|outcome| (outcome.hits as f64, wanted)).collect();
            figure("injections", "blocks", hits, Some(Bar::Is(1.0)));
            let wrong = outcomes.iter().map(|outcome| (outcome.wrong_as_wanted as f64, wanted)).collect();
            figure("blocks wrong as wanted", "blocks", wrong, Some(Bar::Is(1.0)));
        }
        let right = |outcome: &Outcome| outcome.right_as_wanted as f64;
        let all_right = (blocks + others) as f64 - wanted;
        let intact = outcomes.iter().map(|outcome| (right(outcome), all_right)).collect();
        figure("all others right", "blocks", intact, Some(Bar::Is(1.0)));
        let mut hashes: Vec<ContentHash> = outcomes.iter().map(|outcome| outcome.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        figure("hashes of the file in 3 runs", "", vec![(hashes.len() as f64, 1.0)], Some(Bar::Is(1.0)));
        if row.rule.is_some() {
            let times = outcomes.iter().zip(&runs[0]).map(|(ours, plain)| (ours.seconds, plain.seconds));
            figure("run time", "s", times.collect(), None);
        }
    }
    let plain = median(runs[0].iter().map(|outcome| outcome.seconds));
    let written = bytes as f64 / 1e6 / plain;
    found(Figure::from_rounds("no faults: written, flushed, read back", "MB/s", &[(written, written)], None));
    Ok(())
}

/// What one run found.
struct Outcome {
    hits: u64,
    /// Blocks of the file that differ in the first bit, and were to.
    wrong_as_wanted: u64,
    /// Blocks of any file that are as they were written, and were to be.
    right_as_wanted: u64,
    /// Of the file that is hit, as it reads.
    hash: ContentHash,
    seconds: f64,
}

/// A volume of the library whose requests are of the phase in the cell.
type Volume<C> = FileSystem<ByteStream<C>>;

fn stream(
    device: &Arc<dyn Device>,
    runtime: &Runtime,
    phase: &Rc<Cell<Phase>>,
) -> Result<ByteStream<impl FnMut(Request) -> Completion + use<>>> {
    let (queue, runtime, phase) = (device.open_queue(runtime)?, runtime.clone(), Rc::clone(phase));
    Ok(ByteStream::new(device.info(), move |mut request: Request| {
        request.context.phase = phase.get();
        let context = request.context;
        let submission = match queue.submit(request).try_take() {
            Ok(completion) => return completion,
            Err(submission) => submission,
        };
        let lost = |error| Completion { result: Err(error), buffer: Buffer::empty(), context };
        runtime.block_on(submission).unwrap_or_else(lost)
    }))
}

fn of_library(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::from_io(error, what)
}

/// Makes a volume with the files in their full size, so that what is then written to them is data only.
fn make_files(leaf: &Arc<dyn Device>, files: &[(&str, u64)]) -> Result<()> {
    let runtime = Runtime::uring(RuntimeOptions::new(1))?;
    let phase = Rc::new(Cell::new(Phase::Setup));
    let options = FormatVolumeOptions::new().bytes_per_sector(BLOCK as u16).bytes_per_cluster(BLOCK as u32);
    let mut disk = stream(leaf, &runtime, &phase)?;
    format_volume(&mut disk, options).map_err(of_library("making the volume"))?;
    disk.rewind().map_err(of_library("making the volume"))?;
    let volume = FileSystem::new(disk, FsOptions::new()).map_err(of_library("mounting"))?;
    let zeros = vec![0; 1 << 20];
    for (name, blocks) in files {
        let mut file = volume.root_dir().create_file(name).map_err(of_library("making a file"))?;
        let mut left = blocks * BLOCK as u64;
        while left > 0 {
            let length = left.min(zeros.len() as u64) as usize;
            file.write_all(&zeros[..length]).map_err(of_library("making a file"))?;
            left -= length as u64;
        }
        file.flush().map_err(of_library("making a file"))?;
    }
    volume.unmount().map_err(of_library("unmounting"))
}

fn one_run(leaf: &Arc<dyn Device>, row: &Row, files: &[(&str, u64)]) -> Result<Outcome> {
    let runtime = Runtime::uring(RuntimeOptions::new(1))?;
    let rules: Vec<ResolvedRule> = row
        .rule
        .map(|text| text.parse::<Rule>().map(Into::into))
        .transpose()
        .map_err(|error| Error::new(ErrorKind::Internal, format!("{}: {error}", row.name)))?
        .into_iter()
        .collect();
    let engine = Engine::new(rules, EngineOptions { seed: 1, device_size: leaf.info().size });
    let device: Arc<dyn Device> = FaultDevice::new(Arc::clone(leaf), Arc::clone(&engine));
    let phase = Rc::new(Cell::new(Phase::Setup));
    let disk = stream(&device, &runtime, &phase)?;
    let volume = FileSystem::new(disk, FsOptions::new()).map_err(of_library("mounting"))?;
    // The volume notes that it is in use with the first write to it, which is not one of a file.
    volume.root_dir().create_file("in-use").map_err(of_library("making a file"))?;
    let began = Instant::now();
    phase.set(Phase::Run);
    write_files(&volume, files)?;
    phase.set(Phase::Check);
    let mut outcome = read_files(&volume, row, files)?;
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.hits = engine.report().iter().map(|rule| rule.hits).sum();
    phase.set(Phase::Setup);
    volume.unmount().map_err(of_library("unmounting"))?;
    Ok(outcome)
}

/// What a block of a file holds: unlike any other, at little cost.
fn fill(block: &mut [u8], file: usize, number: u64) {
    for (word, bytes) in (0..).zip(block.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word).to_le_bytes());
    }
    block[..8].copy_from_slice(&mix(1, file as u64, number).to_le_bytes());
}

/// The application: it names the file, and the library knows nothing of it.
fn write_files<C: FnMut(Request) -> Completion>(volume: &Volume<C>, files: &[(&str, u64)]) -> Result<()> {
    let mut block = vec![0; BLOCK];
    for (index, (name, blocks)) in files.iter().enumerate() {
        let mut file = volume.root_dir().open_file(name).map_err(of_library("opening a file"))?;
        let tag = Tag::intern(name);
        for number in 0..*blocks {
            fill(&mut block, index, number);
            tag.scope(|| file.write_all(&block).and_then(|()| file.flush()))
                .map_err(of_library("writing a file"))?;
        }
    }
    Ok(())
}

fn read_files<C: FnMut(Request) -> Completion>(
    volume: &Volume<C>,
    row: &Row,
    files: &[(&str, u64)],
) -> Result<Outcome> {
    let (mut wanted, mut found) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut outcome =
        Outcome { hits: 0, wrong_as_wanted: 0, right_as_wanted: 0, hash: ContentHash(0), seconds: 0.0 };
    for (index, (name, blocks)) in files.iter().enumerate() {
        let mut file = volume.root_dir().open_file(name).map_err(of_library("opening a file"))?;
        file.seek(SeekFrom::Start(0)).map_err(of_library("reading a file"))?;
        let tag = Tag::intern(name);
        let mut hashes = Vec::new();
        for number in 0..*blocks {
            tag.scope(|| file.read_exact(&mut found)).map_err(of_library("reading a file"))?;
            fill(&mut wanted, index, number);
            if index == 0 {
                hashes.extend(ContentHash::of(&found).0.to_le_bytes());
            }
            let is_hit = index == 0 && (row.is_hit)(number);
            wanted[0] ^= u8::from(is_hit && row.rule.is_some());
            match (found == wanted, is_hit) {
                (true, true) => outcome.wrong_as_wanted += 1,
                (true, false) => outcome.right_as_wanted += 1,
                (false, _) => {}
            }
        }
        if index == 0 {
            outcome.hash = ContentHash::of(&hashes);
        }
    }
    Ok(outcome)
}
