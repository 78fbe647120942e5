//! What it costs to record a load over time: the rate of a load on the memory leaf with recording, against the same load
//! without, in turns; and the device below a subject (`device_recording`).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_load::engine::LoadOperation;
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};
use rotproof_probe::{ProbesSpec, Sampler};
use rotproof_record::{IntervalLength, RecordSpec, Recording, RecordingOptions};
use rotproof_spec::Span;
use serde_json::json;

use crate::figure::{Bar, Figure};
use crate::{Effort, device_recording, machine};

const TARGET_BYTES: u64 = 256 << 20;

/// What is recorded.
#[derive(Clone, Copy)]
struct Cell {
    name: &'static str,
    interval: Duration,
    samples: bool,
    probes: bool,
    /// Contents that are verified, as in a trial, or requests alone.
    verify: bool,
    bar: f64,
}

const SECOND: Duration = Duration::from_secs(1);

const CELLS: [Cell; 5] = [
    Cell {
        name: "intervals of 1 s, probes",
        interval: SECOND,
        samples: false,
        probes: true,
        verify: true,
        bar: 0.99,
    },
    Cell {
        name: "intervals of 1 s, probes, no content",
        interval: SECOND,
        samples: false,
        probes: true,
        verify: false,
        bar: 0.99,
    },
    Cell {
        name: "intervals of 10 ms",
        interval: Duration::from_millis(10),
        samples: false,
        probes: false,
        verify: true,
        bar: 0.99,
    },
    Cell { name: "every request", interval: SECOND, samples: true, probes: false, verify: true, bar: 0.90 },
    Cell {
        name: "every request, no content",
        interval: SECOND,
        samples: true,
        probes: false,
        verify: false,
        bar: 0.90,
    },
];

/// Measures every cell, in turns.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    for cell in CELLS {
        let mut rounds = Vec::new();
        for round in 0..effort.rounds {
            // Who comes first gains or loses by it, so they take turns in that too.
            let (mut ours, mut peer) = (0.0, 0.0);
            for recorded in [round % 2 == 0, round % 2 != 0] {
                let rate = rate(cell, recorded, effort.seconds)?;
                *(if recorded { &mut ours } else { &mut peer }) = rate;
            }
            rounds.push((ours, peer));
        }
        found(Figure::from_rounds(cell.name.to_owned(), "1/s", &rounds, Some(Bar::AtLeast(cell.bar))));
    }
    device_recording::run(effort, found)
}

/// Requests a second of one worker.
fn rate(cell: Cell, is_recorded: bool, seconds: f64) -> Result<f64> {
    let spec = json!({
        "pattern": "random",
        "reads": 0.5,
        "queue_depth": 8,
        "duration": format!("{}ms", (seconds * 1000.0) as u64),
        "prefill": false,
    });
    let spec: LoadSpec = serde_json::from_value(spec)
        .map_err(|error| Error::new(ErrorKind::Internal, "describing the load").caused_by(error))?;
    let driver = DeviceDriver::new(MemoryDevice::new(TARGET_BYTES, 4096)?)?;
    let workload = Workload::new(&spec, 1, driver.objects())?;
    let folder = machine::folder_on_disk()?;
    let recording = is_recorded
        .then(|| {
            let interval = IntervalLength::Every(Span(cell.interval));
            Recording::new(RecordingOptions {
                spec: RecordSpec { interval, samples: cell.samples, ..RecordSpec::default() },
                operations: LoadOperation::NAMES,
                workers: workload.workers(),
                folder: folder.path().to_owned(),
            })
        })
        .transpose()?;
    let epoch = Instant::now();
    let probes = (is_recorded && cell.probes)
        .then(|| Sampler::on_this_machine(&ProbesSpec::default(), epoch))
        .transpose()?;
    let options = RunOptions {
        runtime: RunOn::Uring { epoch },
        phase: Phase::Run,
        verify: cell.verify,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: recording.clone(),
        phase_cell: None,
        let_go: None,
    };
    let report = rotproof_load::run(&workload, &driver, &mut Oracle::new(&workload), &options)?;
    drop(probes.map(Sampler::end));
    // Samples that are still on their way belong to the cost, though not to the load's time.
    recording.map(|recording| recording.write_to(folder.path())).transpose()?;
    Ok(report.all_requests as f64 / report.elapsed().as_secs_f64().max(1e-9))
}
