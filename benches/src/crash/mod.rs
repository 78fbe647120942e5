//! Power loss: what it costs to record a device, against the same device without; states looked at for each second and core,
//! against a plain loop that copies an image, mounts it and checks it; memory by the length of the recording.

mod memory;
mod states;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Device, Error, ErrorKind, Phase, Result};
use rotproof_crash::recording::{Recorder, RecorderOptions};
use rotproof_layers::{RecordDevice, header_of};
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::figure::{Bar, Figure, in_turns};
use crate::{Effort, machine};

const DEVICE_BYTES: u64 = 1 << 30;
/// Recording may cost a tenth of the throughput of the file leaf.
const RATE_MIN: f64 = 0.9;

/// Measures writes to the file leaf, with direct I/O, while they are recorded to memory and to the same disk.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let on_disk = machine::folder_on_disk()?;
    let in_memory = TempDir::new_in("/dev/shm").map_err(machine::no_folder)?;
    let cells: [(&str, Value, &Path, Option<Bar>); 3] = [
        ("4 KiB random writes", random(), in_memory.path(), Some(Bar::AtLeast(RATE_MIN))),
        ("128 KiB sequential writes", sequential(), in_memory.path(), Some(Bar::AtLeast(RATE_MIN))),
        ("4 KiB random writes, recorded to their own disk", random(), on_disk.path(), None),
    ];
    for (name, load, folder, bar) in cells {
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            rounds.push(in_turns(
                round,
                || rate(&load, on_disk.path(), Some(folder), effort.seconds),
                || rate(&load, on_disk.path(), None, effort.seconds),
            )?);
        }
        found(Figure::from_rounds(format!("recorded, {name}"), "1/s", &rounds, bar));
    }
    states::run(effort, found)
}

/// Measures the memory, by how long the recording is.
pub fn run_memory(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    memory::run(effort, found)
}

fn random() -> Value {
    json!({ "pattern": "random", "reads": 0, "queue_depth": 16 })
}

fn sequential() -> Value {
    json!({ "pattern": "sequential", "reads": 0, "queue_depth": 4, "block_size": "128KiB" })
}

/// Requests a second of one worker on a file with direct I/O.
fn rate(load: &Value, folder: &Path, recorded: Option<&Path>, seconds: f64) -> Result<f64> {
    let mut spec = load.clone();
    spec["duration"] = format!("{}ms", (seconds * 1000.0) as u64).into();
    spec["prefill"] = false.into();
    let spec: LoadSpec = serde_json::from_value(spec)
        .map_err(|error| Error::new(ErrorKind::Internal, "describing the load").caused_by(error))?;
    let epoch = Instant::now();
    let options = FileOptions {
        size_bytes: Some(DEVICE_BYTES),
        block_size: Some(4096),
        create: true,
        ..FileOptions::default()
    };
    let mut device: Arc<dyn Device> = FileDevice::open(&folder.join("disk"), options)?;
    let path = recorded.map(|folder| folder.join("recording"));
    let recorder = path
        .as_ref()
        .map(|path| Recorder::create(path, header_of(device.info(), 1), RecorderOptions::default()))
        .transpose()?;
    if let Some(recorder) = &recorder {
        device = RecordDevice::new(device, Arc::clone(recorder));
    }
    let driver = DeviceDriver::new(device)?;
    let workload = Workload::new(&spec, 1, driver.objects())?;
    let options = RunOptions {
        runtime: RunOn::Uring { epoch },
        phase: Phase::Run,
        verify: false,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: None,
        phase_cell: None,
        let_go: None,
    };
    let report = rotproof_load::run(&workload, &driver, &mut Oracle::new(&workload), &options)?;
    if let Some(recorder) = recorder {
        recorder.finish()?;
    }
    if let Some(path) = path {
        std::fs::remove_file(&path)
            .map_err(|error| Error::from_io(error, format!("removing {}", path.display())))?;
    }
    Ok(report.all_requests as f64 / report.elapsed().as_secs_f64().max(1e-9))
}
