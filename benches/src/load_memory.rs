//! Whether the memory of a load stays flat: 100 million requests in virtual time, half reads and half writes of contents
//! that are verified, recorded as in a trial, on a simulated disk small enough that every block is written many times.
//!
//! The first look at the memory comes after a hundredth of the requests, when everything is warm. The process has some
//! 50 MiB, so a twentieth of a byte that each of them leaves behind would break the bar; in the short form, one byte.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::leaf::{DiskProfile, SimulatedDisk};
use rotproof_block::{Error, ErrorKind, Phase, Result, Runtime};
use rotproof_load::engine::LoadOperation;
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};
use rotproof_record::{RecordSpec, Recording, RecordingOptions};
use serde_json::json;

use crate::figure::{Bar, Figure};
use crate::{Effort, machine};

const DEVICE_BYTES: u64 = 16 << 20;
const REQUESTS: u64 = 100_000_000;
const REQUESTS_QUICK: u64 = 5_000_000;
/// Requests after which everything is warm, as a share.
const WARM: u64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The whole run must take no longer than this on a machine that does nothing else.
const TIME_MAX: Duration = Duration::from_secs(8 * 60);

/// Runs it, and tells the memory at the end and at its highest against that of the beginning, and the rate.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let requests = if effort.is_quick { REQUESTS_QUICK } else { REQUESTS };
    let progress = Arc::new(Progress::default());
    let load = {
        let progress = Arc::clone(&progress);
        thread::Builder::new().name("simulated".into()).spawn(move || simulate(requests, progress))
    };
    let load = load.doing(|| "starting a thread for the load".into())?;
    let mut memory = Vec::new();
    loop {
        thread::sleep(LOOK_EVERY);
        // What it had is free again then.
        if load.is_finished() {
            break;
        }
        if progress.counts().requests >= requests / WARM {
            memory.push(resident_mib()?);
        }
    }
    let cpu = load.join().map_err(|_| Error::new(ErrorKind::Internal, "the simulated load panicked"))??;
    let (Some(&first), Some(&last)) = (memory.first(), memory.last()) else {
        return Err(Error::new(ErrorKind::Internal, "the simulated load ended before anybody could look"));
    };
    let highest = memory.iter().copied().fold(first, f64::max);
    let millions = requests / 1_000_000;
    for (name, value) in [("at the end", last), ("at its highest", highest)] {
        let name = format!("simulated, {millions} million requests: memory {name} / warm");
        found(Figure::from_rounds(name, "MiB", &[(value, first)], Some(Bar::AtMost(1.1))));
    }
    let least = REQUESTS as f64 / TIME_MAX.as_secs_f64();
    let rate = [(requests as f64 / cpu.as_secs_f64() / 1e3, least / 1e3)];
    let name = format!("simulated, {millions} million requests: rate / 100 million in 8 min");
    found(Figure::from_rounds(name, "k/s", &rate, Some(Bar::AtLeast(1.0))));
    Ok(())
}

/// The load; fails if a single block is wrong. Its CPU time, which is all the time it takes: it never waits.
fn simulate(requests: u64, progress: Arc<Progress>) -> Result<Duration> {
    let disk = SimulatedDisk::new(DEVICE_BYTES, 4096, DiskProfile::NVME)?;
    let driver = DeviceDriver::new(disk)?;
    let spec = json!({
        "pattern": "random",
        "reads": 0.5,
        "queue_depth": 32,
        "requests": requests,
        "prefill": false,
    });
    let spec: LoadSpec = serde_json::from_value(spec)
        .map_err(|error| Error::new(ErrorKind::Internal, "describing the load").caused_by(error))?;
    let workload = Workload::new(&spec, 1, driver.objects())?;
    let folder = machine::folder_on_disk()?;
    let recording = Recording::new(RecordingOptions {
        spec: RecordSpec::default(),
        operations: LoadOperation::NAMES,
        workers: workload.workers(),
        folder: folder.path().to_owned(),
    })?;
    let runtime = Runtime::simulated(1);
    let options = RunOptions {
        runtime: RunOn::Simulated(&runtime),
        phase: Phase::Run,
        verify: true,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress,
        recording: Some(recording),
        phase_cell: None,
        let_go: None,
    };
    let report = rotproof_load::run(&workload, &driver, &mut Oracle::new(&workload), &options)?;
    let done = report.reads.requests + report.writes.requests;
    if done != requests || !report.sightings.is_empty() {
        let wrong = report.sightings.len();
        let message =
            format!("{done} of {requests} requests came to their end, and {wrong} blocks are wrong");
        return Err(Error::new(ErrorKind::Internal, message));
    }
    Ok(machine::thread_cpu())
}

/// MiB of this process that are in memory.
fn resident_mib() -> Result<f64> {
    let path = "/proc/self/smaps_rollup";
    let text = fs::read_to_string(path).doing(|| format!("reading {path}"))?;
    let kib =
        text.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse().ok());
    let kib: f64 = kib.ok_or_else(|| Error::new(ErrorKind::Internal, format!("{path} has no Rss")))?;
    Ok(kib / 1024.0)
}
