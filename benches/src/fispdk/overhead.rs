//! The seven set-ups, in turns of a few requests each, so that a slow moment hits all of them: a stack without anything; with
//! a context on every request; with a fault layer and requests without context; with context and rules for other
//! files; and with each request of the measured direction damaged, in three ways.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::hash::mix;
use rotproof_block::leaf::{FileDevice, FileOptions, MemoryDevice};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Context, Device, Error, ErrorKind, Phase, Queue, Request, Result, Runtime, Tag,
};
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, Rule};
use rotproof_layers::FaultDevice;
use tempfile::TempDir;

use crate::figure::{Bar, Figure, median};
use crate::{Effort, machine};

/// The file is larger than what a disk's cache keeps; of memory only what the processor's caches hold is used.
const FILE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 1 << 20;

/// One of the seven, without the first, which is the peer.
struct SetUp {
    name: &'static str,
    /// Requests have a context that names their file.
    has_context: bool,
    /// What the fault layer does to the file; there is none without.
    rules: Option<&'static str>,
}

const PLAIN: SetUp = SetUp { name: "plain", has_context: false, rules: None };
const OTHER_FILES: &str = "any, tag=bionic.img: zeros";
const SET_UPS: [SetUp; 6] = [
    SetUp { name: "context", has_context: true, rules: None },
    SetUp { name: "faulty, no context", has_context: false, rules: Some(OTHER_FILES) },
    SetUp { name: "context, no faults", has_context: true, rules: Some(OTHER_FILES) },
    SetUp { name: "bit flip", has_context: true, rules: Some("any, tag=focal.img: bit_flip(byte=0, bit=0)") },
    SetUp { name: "random flip", has_context: true, rules: Some("any, tag=focal.img: bit_flip") },
    SetUp { name: "all zeros", has_context: true, rules: Some("any, tag=focal.img: zeros") },
];

/// What is asked of each.
#[derive(Clone, Copy)]
struct Job {
    block: usize,
    is_random: bool,
    is_write: bool,
}

struct Ground {
    name: &'static str,
    leaf: Arc<dyn Device>,
    bytes: u64,
    /// The file goes with it.
    _folder: Option<TempDir>,
}

pub(super) fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    for ground in [on_memory()?, on_file()?] {
        for block in [4096, 512] {
            if block < ground.leaf.info().block_size as usize {
                continue;
            }
            for is_random in [false, true] {
                for is_write in [false, true] {
                    ground.measure_all(Job { block, is_random, is_write }, effort, found)?;
                }
            }
        }
    }
    Ok(())
}

fn on_memory() -> Result<Ground> {
    let leaf = MemoryDevice::new(MEMORY_BYTES, 512)?;
    Ok(Ground { name: "memory", leaf, bytes: MEMORY_BYTES, _folder: None })
}

fn on_file() -> Result<Ground> {
    let folder = machine::folder_on_disk()?;
    let options =
        FileOptions { size_bytes: Some(FILE_BYTES), direct: true, create: true, ..FileOptions::default() };
    let leaf = FileDevice::open(&folder.path().join("disk.img"), options)?;
    Ok(Ground { name: "file", leaf, bytes: FILE_BYTES, _folder: Some(folder) })
}

impl Ground {
    fn measure_all(&self, job: Job, effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
        let span = Duration::from_secs_f64(effort.seconds);
        self.fill()?;
        let runtime = Runtime::uring(RuntimeOptions::new(1))?;
        let mut rounds = vec![Vec::new(); SET_UPS.len()];
        for _ in 0..effort.rounds {
            // New engines each time, as the ledgers of the last ones have grown.
            let set_ups = std::iter::once(&PLAIN).chain(&SET_UPS);
            let mut stacks =
                set_ups.map(|set_up| self.stack(set_up, &runtime)).collect::<Result<Vec<_>>>()?;
            let began = Instant::now();
            let mut cycle = 0;
            while began.elapsed() < span {
                // Strides are coprime to the number of set-ups, so that each follows each other one as often.
                let stride = 1 + cycle % (stacks.len() - 1);
                for turn in 0..stacks.len() {
                    let number = (cycle + turn * stride) % stacks.len();
                    stacks[number].do_batch(&runtime, job, self.bytes)?;
                }
                cycle += 1;
            }
            let results: Vec<f64> = stacks.iter().map(|stack| self.result(stack, job)).collect();
            for (rounds, ours) in rounds.iter_mut().zip(&results[1..]) {
                rounds.push((*ours, results[0]));
            }
        }
        let (unit, bar) = if self.is_file() { ("MB/s", Some(Bar::AtLeast(0.97))) } else { ("ns", None) };
        for (set_up, rounds) in SET_UPS.iter().zip(rounds) {
            let pattern = if job.is_random { "rand" } else { "seq" };
            let direction = if job.is_write { "write" } else { "read" };
            let name = format!("{} {pattern} {direction} {}, {}", self.name, job.block, set_up.name);
            found(Figure::from_rounds(name, unit, &rounds, bar));
        }
        Ok(())
    }

    fn is_file(&self) -> bool {
        self.name == "file"
    }

    /// Nanoseconds per request on memory, MB/s on the file: of the median batch, as a stall of the disk or of the
    /// machine hits few batches, and not all set-ups alike.
    fn result(&self, stack: &Stack, job: Job) -> f64 {
        let batch = median(stack.batches.iter().map(Duration::as_secs_f64)) / BATCH as f64;
        if self.is_file() { job.block as f64 / batch / 1e6 } else { batch * 1e9 }
    }

    fn stack(&self, set_up: &SetUp, runtime: &Runtime) -> Result<Stack> {
        let queue = match set_up.rules {
            None => self.leaf.open_queue(runtime)?,
            Some(text) => {
                let rule: Rule = text
                    .parse()
                    .map_err(|error| Error::new(ErrorKind::Internal, format!("{text}: {error}")))?;
                let rules: Vec<ResolvedRule> = vec![rule.into()];
                let engine = Engine::new(rules, EngineOptions { seed: 1, device_size: self.bytes });
                FaultDevice::new(Arc::clone(&self.leaf), engine).open_queue(runtime)?
            }
        };
        let tag = if set_up.has_context { Tag::intern("focal.img") } else { Tag::NONE };
        Ok(Stack { queue, tag, requests: 0, batches: Vec::new() })
    }

    /// Writes everything once, so that no measurement meets a place for the first time.
    fn fill(&self) -> Result<()> {
        let runtime = Runtime::uring(RuntimeOptions::new(1))?;
        let queue = self.leaf.open_queue(&runtime)?;
        for offset in (0..self.bytes).step_by(1 << 20) {
            let buffer = Buffer::copy_of(&vec![offset as u8 | 1; 1 << 20]);
            runtime.block_on(queue.submit(Request::write(offset, buffer, Context::default())))?.result?;
        }
        runtime.block_on(queue.submit(Request::flush(Context::default())))?.result
    }
}

/// Requests that follow each other before it is the turn of the next set-up: few, so that all see the same disk.
const BATCH: u64 = 64;

/// Requests before them that do not count, as the caches are full of what the set-up before has used.
const WARM_UP: u64 = 16;

/// A set-up at work.
struct Stack {
    queue: Rc<dyn Queue>,
    tag: Tag,
    requests: u64,
    /// How long each batch took.
    batches: Vec<Duration>,
}

impl Stack {
    /// One request after the other, as FISPDK's single job.
    fn do_batch(&mut self, runtime: &Runtime, job: Job, bytes: u64) -> Result<()> {
        let places = bytes / job.block as u64;
        let mut buffer = Buffer::zeroed(job.block);
        let mut began = Instant::now();
        for turn in 0..WARM_UP + BATCH {
            if turn == WARM_UP {
                began = Instant::now();
            }
            let number = self.requests;
            self.requests += 1;
            let place = if job.is_random { mix(7, 0, number) % places } else { number % places };
            let context = Context { id: number, phase: Phase::Run, tag: self.tag, ..Context::default() };
            let offset = place * job.block as u64;
            let request = if job.is_write {
                // Contents differ, as real ones do.
                buffer[..8].copy_from_slice(&number.to_le_bytes());
                Request::write(offset, buffer, context)
            } else {
                Request::read(offset, buffer, context)
            };
            let completion = match self.queue.submit(request).try_take() {
                Ok(completion) => completion,
                Err(submission) => runtime.block_on(submission)?,
            };
            completion.result?;
            buffer = completion.buffer;
        }
        self.batches.push(began.elapsed());
        Ok(())
    }
}
