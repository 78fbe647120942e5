//! What the fault layer costs a request that no rule matches: with no rule, and with 10,000 by offset and by content;
//! in process on the memory leaf, and where it matters, under FUSE and a loop device.
//!
//! The peer is the same stack without the layer. Both are measured in turns, so that a slow minute hits both.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Buffer, Context, Device, Error, Phase, Queue, Request, Result, Runtime};
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions};
use tempfile::TempDir;

use crate::figure::{Bar, Figure, in_turns};
use crate::fio::{self, Job, Target};
use crate::idle_rules::{Rules, Switch, with_layer};
use crate::{Effort, machine};

/// The load uses the first half of the device, rules by offset lie in the second.
const DEVICE_BYTES: u64 = 1 << 29;
const USED_BYTES: u64 = DEVICE_BYTES / 2;
/// Bytes that requests in process go to.
const WARM_BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;
const RULES: u64 = 10_000;

/// Measures everything; hands out each figure as soon as it is known.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("fio", "fio")?;
    in_process(effort, found)?;
    exported(effort, found)
}

/// A queue of the memory leaf, alone or under the layer, driven by one thread at depth 1.
struct InProcess {
    runtime: Runtime,
    queue: Rc<dyn Queue>,
}

impl InProcess {
    fn new(rules: Option<Rules>) -> Result<Self> {
        let runtime = Runtime::uring(RuntimeOptions::new(1))?;
        let memory: Arc<dyn Device> = MemoryDevice::new(DEVICE_BYTES, 512)?;
        let device = match rules {
            Some(rules) => with_layer(memory, rules)?,
            None => memory,
        };
        let this = Self { queue: device.open_queue(&runtime)?, runtime };
        // Every page that will be used, so that none is faulted in while it counts.
        for offset in (0..WARM_BYTES).step_by(1 << 20) {
            let buffer = Buffer::copy_of(&vec![offset as u8 | 1; 1 << 20]);
            let request = Request::write(offset, buffer, Context::default());
            this.runtime.block_on(this.queue.submit(request))?.result?;
        }
        Ok(this)
    }

    /// Nanoseconds of CPU per request over `span`. CPU time, because what else runs on the machine does not count into
    /// it; and over few enough bytes that the caches, not the memory, serve the data.
    fn measure(&self, write: bool, span: Duration) -> Result<f64> {
        let context = Context { phase: Phase::Run, ..Context::default() };
        let mut buffer = Buffer::zeroed(BLOCK);
        let (began, cpu_began, mut requests) = (Instant::now(), machine::thread_cpu(), 0u64);
        while began.elapsed() < span {
            for _ in 0..256 {
                let offset = mix(7, 0, requests) % (WARM_BYTES / BLOCK as u64) * BLOCK as u64;
                requests += 1;
                let request = if write {
                    // Contents differ, as real ones do.
                    buffer[..8].copy_from_slice(&requests.to_le_bytes());
                    Request::write(offset, buffer, context)
                } else {
                    Request::read(offset, buffer, context)
                };
                let completion = match self.queue.submit(request).try_take() {
                    Ok(completion) => completion,
                    Err(submission) => self.runtime.block_on(submission)?,
                };
                completion.result?;
                buffer = black_box(completion.buffer);
            }
        }
        Ok((machine::thread_cpu() - cpu_began).as_nanos() as f64 / requests as f64)
    }
}

fn in_process(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let plain = InProcess::new(None)?;
    let span = Duration::from_secs_f64(effort.seconds / 4.0);
    let variants = [
        ("0 rules", Rules::Offset(0), None),
        ("10,000 by offset", Rules::Offset(RULES), None),
        ("10,000 by target", Rules::Target(RULES), None),
        ("10,000 by hash", Rules::Hash(RULES), None),
    ];
    for (name, rules, bar) in variants {
        let layered = InProcess::new(Some(rules))?;
        for (direction, write) in [("read", false), ("write", true)] {
            let mut rounds = Vec::new();
            for round in 0..effort.rounds {
                rounds.push(in_turns(round, || layered.measure(write, span), || plain.measure(write, span))?);
            }
            found(Figure::from_rounds(format!("memory {direction}, {name}"), "ns", &rounds, bar));
        }
    }
    grows_with_rules(effort, found)
}

/// Time per request with 10,000 rules against that with ten: it must not grow.
fn grows_with_rules(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let span = Duration::from_secs_f64(effort.seconds / 4.0);
    for (kind, many, few) in [
        ("offset", Rules::Offset(RULES), Rules::Offset(10)),
        ("target", Rules::Target(RULES), Rules::Target(10)),
        ("hash", Rules::Hash(RULES), Rules::Hash(10)),
    ] {
        let (many, few) = (InProcess::new(Some(many))?, InProcess::new(Some(few))?);
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            rounds.push(in_turns(round, || many.measure(true, span), || few.measure(true, span))?);
        }
        // Ten percent is this measurement's noise; a walk over the rules would be a factor of hundreds.
        let name = format!("memory write, 10,000 against 10 by {kind}");
        found(Figure::from_rounds(name, "ns", &rounds, Some(Bar::AtMost(1.1))));
    }
    Ok(())
}

/// A stack as a loop device over a FUSE file. The fields are dropped in this order.
struct Exported {
    loop_device: LoopDevice,
    _export: FuseExport,
    _folder: TempDir,
    switch: Arc<Switch>,
}

impl Exported {
    fn new(rules: Rules) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|error| Error::from_io(error, "creating a mount point"))?;
        let phase = Arc::new(AtomicU8::new(Phase::Run as u8));
        let switch = Switch::new(MemoryDevice::new(DEVICE_BYTES, 512)?, rules)?;
        let options = FuseOptions { phase, ..FuseOptions::default() };
        let export = FuseExport::mount(Arc::clone(&switch) as _, folder.path(), options)?;
        let loop_options = LoopOptions { direct_io: true, read_only: false, block_size: Some(512) };
        let loop_device = LoopDevice::attach(export.path(), loop_options)?;
        let this = Self { loop_device, _export: export, _folder: folder, switch };
        fio::fill(Target::Path(this.loop_device.path()), USED_BYTES)?;
        Ok(this)
    }

    fn measure(&self, is_layered: bool, job: Job<'_>) -> Result<f64> {
        self.switch.set(is_layered);
        fio::run(Target::Path(self.loop_device.path()), job).map(|measured| measured.iops)
    }
}

fn exported(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let variants = [
        ("0 rules", Rules::Offset(0), Some(Bar::AtLeast(0.98))),
        ("10,000 by offset", Rules::Offset(RULES), Some(Bar::AtLeast(0.98))),
        ("10,000 by target", Rules::Target(RULES), Some(Bar::AtLeast(0.95))),
        ("10,000 by hash", Rules::Hash(RULES), Some(Bar::AtLeast(0.95))),
    ];
    for (name, rules, bar) in variants {
        let stack = Exported::new(rules)?;
        for (pattern, depth) in [("randread", 1), ("randwrite", 1), ("randread", 32), ("randwrite", 32)] {
            let seconds = effort.seconds / 2.0;
            let job = Job {
                pattern,
                block_bytes: BLOCK as u64,
                depth,
                seconds,
                size_bytes: USED_BYTES,
                processor: None,
            };
            let mut rounds = Vec::new();
            for round in 0..effort.rounds * 2 {
                rounds.push(in_turns(round, || stack.measure(true, job), || stack.measure(false, job))?);
            }
            let direction = pattern.trim_start_matches("rand");
            found(Figure::from_rounds(format!("loop {direction} qd{depth}, {name}"), "IOPS", &rounds, bar));
        }
    }
    Ok(())
}
