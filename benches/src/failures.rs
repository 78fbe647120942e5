//! What a read costs that fails, in time and in memory, beyond one that does not: the same failure of the same block once
//! more, and a new one. By the load alone, where the medium was changed behind its back, and with the fault layer, which
//! records every hit in its ledger.
//!
//! The figures of the peer are what is asked for. Time is CPU of the one thread that does all of it, on the memory leaf;
//! memory what the allocator has handed out.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, Context, Device, Error, ErrorKind, Phase, Request, Result, Runtime};
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, Rule};
use rotproof_layers::FaultDevice;
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};
use serde_json::json;

use crate::figure::{Bar, Figure};
use crate::{Effort, failing_device, machine};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16_384;
/// How often each block is read.
const ROUNDS: u64 = 24;
const ROUNDS_QUICK: u64 = 8;

const REPEATED_US: f64 = 3.0;
const REPEATED_BYTES: f64 = 200.0;
const NEW_US: f64 = 10.0;

/// How reads fail.
#[derive(Clone, Copy)]
enum Damage {
    None,
    /// The medium is not what was written.
    Medium(fn(&mut [u8])),
    /// By this rule.
    Rule(&'static str),
}

/// Measures every kind of damage.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let rounds = if effort.is_quick { ROUNDS_QUICK } else { ROUNDS };
    let kinds = [
        ("zeros, load alone", Damage::Medium(|block| block.fill(0))),
        ("a flipped bit, load alone", Damage::Medium(|block| block[100] ^= 8)),
        (
            "noise, load alone",
            Damage::Medium(|block| block.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7) ^ 0x55)),
        ),
        ("zeros, with the layer", Damage::Rule("read: zeros")),
        ("a flipped bit, with the layer", Damage::Rule("read: bit_flip")),
        ("errors, with the layer", Damage::Rule("read: error")),
        ("noise, with the layer", Damage::Rule("read: noise")),
    ];
    for (name, damage) in kinds {
        let (mut repeated, mut new, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..effort.rounds.min(5) {
            let plain = [measure(Damage::None, 1)?, measure(Damage::None, rounds)?];
            let failing = [measure(damage, 1)?, measure(damage, rounds)?];
            let more = (BLOCKS * (rounds - 1)) as f64;
            let us = |of: &Cost| of.cpu.as_secs_f64() * 1e6;
            new.push(((us(&failing[0]) - us(&plain[0])) / BLOCKS as f64, NEW_US));
            repeated.push((
                ((us(&failing[1]) - us(&failing[0])) - (us(&plain[1]) - us(&plain[0]))) / more,
                REPEATED_US,
            ));
            let grown = |of: &[Cost; 2]| of[1].bytes as f64 - of[0].bytes as f64;
            bytes.push(((grown(&failing) - grown(&plain)) / more, REPEATED_BYTES));
        }
        // Noise is drawn anew for each read, so none is like the one before.
        let is_again = !matches!(damage, Damage::Rule("read: noise"));
        let (again, bar) =
            if is_again { ("the same again", 1.0) } else { ("another way", NEW_US / REPEATED_US) };
        found(Figure::from_rounds(
            format!("{name}: {again} / asked for"),
            "us",
            &repeated,
            Some(Bar::AtMost(bar)),
        ));
        found(Figure::from_rounds(
            format!("{name}: {again}, memory / asked for"),
            "bytes",
            &bytes,
            // Each way of failing is kept for itself; nothing is asked of that.
            is_again.then_some(Bar::AtMost(1.0)),
        ));
        found(Figure::from_rounds(
            format!("{name}: a new one / asked for"),
            "us",
            &new,
            Some(Bar::AtMost(1.0)),
        ));
    }
    failing_device::run(effort, found)
}

/// What a phase of reads took.
struct Cost {
    cpu: Duration,
    /// What is still held at its end.
    bytes: u64,
}

/// Reads every block so many times, in order.
fn measure(damage: Damage, rounds: u64) -> Result<Cost> {
    let memory: Arc<dyn Device> = MemoryDevice::new(BLOCKS * BLOCK as u64, 512)?;
    let runtime = Runtime::simulated(1);
    let engine = match damage {
        Damage::Rule(rule) => Some(engine(rule)?),
        _ => None,
    };
    let device: Arc<dyn Device> = match &engine {
        Some(engine) => FaultDevice::new(Arc::clone(&memory), Arc::clone(engine)),
        None => Arc::clone(&memory),
    };
    let driver = DeviceDriver::new(device)?;
    let spec =
        json!({ "pattern": "sequential", "reads": 1.0, "block_size": "4KiB", "requests": BLOCKS * rounds });
    let spec: LoadSpec = serde_json::from_value(spec)
        .map_err(|error| Error::new(ErrorKind::Internal, "describing the load").caused_by(error))?;
    let workload = Workload::new(&spec, 1, driver.objects())?;
    let mut oracle = Oracle::new(&workload);
    let mut phase = |phase| {
        let options = RunOptions {
            runtime: RunOn::Simulated(&runtime),
            phase,
            verify: true,
            cancel: Arc::new(AtomicUsize::new(0)),
            progress: Arc::new(Progress::default()),
            recording: None,
            phase_cell: None,
            let_go: None,
        };
        rotproof_load::run(&workload, &driver, &mut oracle, &options)
    };
    phase(Phase::Prefill)?;
    if let Damage::Medium(change) = damage {
        let queue = memory.open_queue(&runtime)?;
        for offset in (0..BLOCKS).map(|block| block * BLOCK as u64) {
            let read = Request::read(offset, Buffer::zeroed(BLOCK), Context::default());
            let completion = runtime.block_on(queue.submit(read))?;
            completion.result?;
            let mut buffer = completion.buffer;
            change(&mut buffer);
            runtime.block_on(queue.submit(Request::write(offset, buffer, Context::default())))?.result?;
        }
    }
    let (held, began) = (machine::allocated_bytes(), machine::thread_cpu());
    let report = phase(Phase::Run)?;
    let cost =
        Cost { cpu: machine::thread_cpu() - began, bytes: machine::allocated_bytes().saturating_sub(held) };
    let failing: u64 = report.sightings.iter().map(|sighting| sighting.count).sum();
    let wanted = if matches!(damage, Damage::None) { 0 } else { BLOCKS * rounds };
    if failing != wanted || engine.is_some_and(|engine| engine.ledger().len() as u64 != wanted) {
        let message = format!("{failing} reads failed, where {wanted} were to");
        return Err(Error::new(ErrorKind::Internal, message));
    }
    Ok(cost)
}

fn engine(rule: &str) -> Result<Arc<Engine>> {
    let rule: Rule = rule.parse().map_err(|error: String| Error::new(ErrorKind::Internal, error))?;
    let rules: Vec<ResolvedRule> = vec![rule.into()];
    Ok(Engine::new(rules, EngineOptions { seed: 1, device_size: BLOCKS * BLOCK as u64 }))
}
