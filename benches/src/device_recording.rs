//! What it costs to record what the device below a subject does, as trials do whose load is files or a program
//! (`device.parquet`): the same client on a watched device and on one that nobody watches, in turns.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Device, Error, ErrorKind, Phase, Result};
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};
use rotproof_record::RecordSpec;
use rotproof_trial::runner::DeviceWatch;
use serde_json::json;
use tempfile::TempDir;

use crate::figure::{Figure, in_turns};
use crate::fio::{self, Job, Target};
use crate::fuse_peers::FusePeer;
use crate::{Effort, machine};

const DEVICE_BYTES: u64 = 256 << 20;

/// What fio does to the loop device over the file: pattern, bytes, depth, how figures call it.
const CELLS: [(&str, u64, u32, &str); 2] = [
    ("randread", 4096, 32, "device below FUSE, 4 KiB read, depth 32"),
    ("randwrite", 4096, 1, "device below FUSE, 4 KiB write, depth 1"),
];

/// Measures in process, where a request costs next to nothing else, and below FUSE, as in a trial. No bar is set for it.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        rounds.push(in_turns(
            round,
            || in_process(true, effort.seconds),
            || in_process(false, effort.seconds),
        )?);
    }
    found(Figure::from_rounds("device in process, no content", "1/s", &rounds, None));
    machine::need("fio", "fio")?;
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).map_err(machine::no_folder)?;
    let watch = DeviceWatch::new(&RecordSpec::default(), folder.path(), Instant::now())?;
    let watched = watch.over(MemoryDevice::new(DEVICE_BYTES, 512)?);
    let watched = FusePeer::ours_over(watched, folder.path(), "watched", false)?;
    let alone = MemoryDevice::new(DEVICE_BYTES, 512)?;
    let alone = FusePeer::ours_over(alone, folder.path(), "alone", false)?;
    for peer in [&watched, &alone] {
        fio::fill(Target::Path(peer.loop_path()), DEVICE_BYTES)?;
    }
    for (pattern, block_bytes, depth, name) in CELLS {
        let job = Job {
            pattern,
            block_bytes,
            depth,
            seconds: effort.seconds,
            size_bytes: DEVICE_BYTES,
            processor: None,
        };
        let rate = |peer: &FusePeer| Ok(fio::run(Target::Path(peer.loop_path()), job)?.iops);
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            let ours = || {
                let _phase = watch.begin("run", None)?;
                rate(&watched)
            };
            rounds.push(in_turns(round, ours, || rate(&alone))?);
        }
        found(Figure::from_rounds(name, "1/s", &rounds, None));
    }
    Ok(())
}

/// Requests a second of one worker on the memory leaf.
fn in_process(is_watched: bool, seconds: f64) -> Result<f64> {
    let spec = json!({
        "pattern": "random",
        "reads": 0.5,
        "queue_depth": 8,
        "duration": format!("{}ms", (seconds * 1000.0) as u64),
        "prefill": false,
    });
    let spec: LoadSpec = serde_json::from_value(spec)
        .map_err(|error| Error::new(ErrorKind::Internal, "describing the load").caused_by(error))?;
    let folder = machine::folder_on_disk()?;
    let epoch = Instant::now();
    let memory: Arc<dyn Device> = MemoryDevice::new(DEVICE_BYTES, 4096)?;
    let watch =
        is_watched.then(|| DeviceWatch::new(&RecordSpec::default(), folder.path(), epoch)).transpose()?;
    let device = watch.as_ref().map_or_else(|| Arc::clone(&memory), |watch| watch.over(Arc::clone(&memory)));
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
    let _phase = watch.as_ref().map(|watch| watch.begin("run", None)).transpose()?;
    let report = rotproof_load::run(&workload, &driver, &mut Oracle::new(&workload), &options)?;
    Ok(report.all_requests as f64 / report.elapsed().as_secs_f64().max(1e-9))
}
