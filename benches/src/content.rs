//! What content costs: blocks that can be verified, with duplicates and compressible, in CPU time per request; against
//! fio's verification and duplicates on its null engine, by the option that its name has after the semicolon. Writing,
//! then verifying, a file in memory. And the rate of DEDISbench's way of working.
//!
//! Ours is the whole load - pattern, content, oracle, statistics - on a device that takes everything and keeps nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::leaf::FileOptions;
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Features, Phase, Queue, Request, Result, Runtime, Submission,
};
use rotproof_load::{
    BlockingFile, DeviceDriver, Driver, Duplicates, LoadReport, LoadSpec, Oracle, Progress, RunOn,
    RunOptions, Workload,
};
use rotproof_spec::{Bytes, Percent, Span};
use serde_json::Value;

use crate::figure::{Bar, Figure, in_turns};
use crate::{Effort, dedisbench, machine};

/// What requests go to, again and again.
const DEVICE_BYTES: u64 = 1 << 30;
/// What is written and verified in memory.
const FILE_BYTES: u64 = 256 << 20;
/// What a check of ours reads at once.
const SWEEP_BYTES: u64 = 256 << 10;
const DEPTH: u32 = 32;

/// Takes every write and forgets it.
struct Null(DeviceInfo);

struct NullQueue;

impl Device for Null {
    fn info(&self) -> DeviceInfo {
        self.0
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(NullQueue))
    }
}

impl Queue for NullQueue {
    fn submit(&self, request: Request) -> Submission {
        Submission::ready(request.succeed())
    }
}

/// Measures everything.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("fio", "fio")?;
    for (block_bytes, size) in [(4096, "4 KiB"), (128 << 10, "128 KiB")] {
        let plain = LoadSpec::default();
        let mixed = LoadSpec {
            duplicates: Duplicates::Share(Percent(0.5)),
            compressible: Percent(0.5),
            ..LoadSpec::default()
        };
        let cases: [(&str, &LoadSpec, &[&str], Option<f64>); 5] = [
            ("content; verify=crc32c", &plain, &["--verify=crc32c", "--do_verify=0"], Some(0.4)),
            ("content; verify=xxhash", &plain, &["--verify=xxhash", "--do_verify=0"], Some(0.15)),
            ("50% duplicates; dedupe_percentage=50", &mixed, &["--dedupe_percentage=50"], Some(0.6)),
            ("50% duplicates; verify=crc32c", &mixed, &["--verify=crc32c", "--do_verify=0"], None),
            ("content; the same buffer always", &plain, &["--zero_buffers"], None),
        ];
        for (name, spec, options, bar) in cases {
            let rounds = (0..effort.rounds)
                .map(|_| {
                    let ours = ours(spec, block_bytes, effort.seconds)?;
                    let theirs = fio(block_bytes, options, effort.seconds)?;
                    Ok((ours, theirs))
                })
                .collect::<Result<Vec<_>>>()?;
            found(Figure::from_rounds(format!("{size}: {name}"), "ns", &rounds, bar.map(Bar::AtMost)));
        }
    }
    let folder = tempfile::tempdir_in("/dev/shm").map_err(machine::no_folder)?;
    let file = folder.path().join("file");
    machine::make_file(&file, FILE_BYTES)?;
    // Whoever comes first would else be the one to give it its memory.
    system_calls_in_memory(&file, 4096)?;
    for (block_bytes, size) in [(4096, "4 KiB"), (128 << 10, "128 KiB")] {
        for (method, bar) in [("crc32c", 0.4), ("xxhash", 0.15)] {
            let rounds = (0..effort.rounds)
                .map(|round| {
                    in_turns(
                        round,
                        || ours_in_memory(&file, block_bytes),
                        || fio_in_memory(&file, block_bytes, method),
                    )
                })
                .collect::<Result<Vec<_>>>()?;
            let name = format!("{size}, tmpfs, written and verified; verify={method}");
            found(Figure::from_rounds(name, "ns", &rounds, Some(Bar::AtMost(bar))));
        }
        let rounds = (0..effort.rounds)
            .map(|round| {
                in_turns(
                    round,
                    || ours_in_memory(&file, block_bytes),
                    || system_calls_in_memory(&file, block_bytes),
                )
            })
            .collect::<Result<Vec<_>>>()?;
        let name = format!("{size}, tmpfs, written and verified; its system calls alone");
        found(Figure::from_rounds(name, "ns", &rounds, None));
    }
    dedisbench::run(effort, found)
}

fn internal(why: String) -> Error {
    Error::new(ErrorKind::Internal, why)
}

/// Nanoseconds of CPU for a write of a load on nothing.
fn ours(spec: &LoadSpec, block_bytes: u64, seconds: f64) -> Result<f64> {
    let null: Arc<dyn Device> = Arc::new(Null(DeviceInfo {
        size: DEVICE_BYTES,
        block_size: 512,
        atomic_write_bytes: 512,
        read_only: false,
        features: Features { flush: false, fua: false, discard: false, write_zeroes: false },
    }));
    let driver = DeviceDriver::new(null)?;
    let spec = LoadSpec {
        block_size: Bytes(block_bytes).into(),
        queue_depth: DEPTH,
        duration: Some(Span(Duration::from_secs_f64(seconds))),
        ..spec.clone()
    };
    let (cpu, requests) = phases(&spec, &driver, &[Phase::Run])?;
    Ok(cpu.as_nanos() as f64 / requests as f64)
}

/// Nanoseconds of CPU for a request that is written to a file in memory, and later read and verified. By `pwrite` and
/// `pread`, as fio beside it: with io_uring the kernel hands writes to tmpfs to threads of its own, whose time neither
/// side would count.
fn ours_in_memory(file: &Path, block_bytes: u64) -> Result<f64> {
    let options = FileOptions { direct: false, ..FileOptions::default() };
    let driver = DeviceDriver::new(BlockingFile::open(file, options)?)?;
    let spec = LoadSpec { block_size: Bytes(block_bytes).into(), ..LoadSpec::default() };
    let (cpu, requests) = phases(&spec, &driver, &[Phase::Run, Phase::Check])?;
    Ok(cpu.as_nanos() as f64 / requests as f64)
}

/// The same for nothing but the calls that ours makes: what no content and no verification could be below.
fn system_calls_in_memory(file: &Path, block_bytes: u64) -> Result<f64> {
    let doing = || format!("writing and reading {}", file.display());
    let opened = File::options().read(true).write(true).open(file).doing(doing)?;
    let (data, mut sweep) = (vec![0x5a; block_bytes as usize], vec![0; SWEEP_BYTES as usize]);
    let began = machine::thread_cpu();
    for offset in (0..FILE_BYTES).step_by(data.len()) {
        opened.write_all_at(&data, offset).doing(doing)?;
    }
    for offset in (0..FILE_BYTES).step_by(sweep.len()) {
        opened.read_exact_at(&mut sweep, offset).doing(doing)?;
    }
    let cpu = machine::thread_cpu() - began;
    Ok(cpu.as_nanos() as f64 / (FILE_BYTES / block_bytes) as f64)
}

/// CPU of all phases, and the writes.
fn phases(spec: &LoadSpec, driver: &dyn Driver, phases: &[Phase]) -> Result<(Duration, u64)> {
    let workload = Workload::new(spec, 1, driver.objects())?;
    let mut oracle = Oracle::new(&workload);
    let (mut cpu, mut writes) = (Duration::ZERO, 0);
    for &phase in phases {
        let report = self::phase(&workload, driver, &mut oracle, phase)?;
        cpu += report.effort.unwrap_or_default().cpu;
        writes += report.writes.requests;
    }
    Ok((cpu, writes.max(1)))
}

/// One phase; fails if a block is wrong.
pub fn phase(
    workload: &Workload,
    driver: &dyn Driver,
    oracle: &mut Oracle,
    phase: Phase,
) -> Result<LoadReport> {
    let options = RunOptions {
        runtime: RunOn::Uring { epoch: Instant::now() },
        phase,
        verify: true,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: None,
        phase_cell: None,
        let_go: None,
    };
    let report = rotproof_load::run(workload, driver, oracle, &options)?;
    if report.sightings.is_empty() {
        Ok(report)
    } else {
        Err(internal(format!("{} blocks are wrong", report.sightings.len())))
    }
}

/// Nanoseconds of CPU for a write of fio on its null engine.
fn fio(block_bytes: u64, options: &[&str], seconds: f64) -> Result<f64> {
    let report = fio_report(
        &[
            "--ioengine=null",
            "--rw=write",
            "--time_based",
            &format!("--iodepth={DEPTH}"),
            &format!("--bs={block_bytes}"),
            &format!("--size={DEVICE_BYTES}"),
            &format!("--runtime={}ms", (seconds * 1000.0) as u64),
        ],
        options,
    )?;
    per_write(&report)
}

/// Nanoseconds of CPU for a request that fio writes to a file in memory, and later reads and verifies.
fn fio_in_memory(file: &Path, block_bytes: u64, method: &str) -> Result<f64> {
    let report = fio_report(
        &[
            "--ioengine=psync",
            "--rw=write",
            &format!("--bs={block_bytes}"),
            &format!("--size={FILE_BYTES}"),
            &format!("--filename={}", file.display()),
        ],
        &[&format!("--verify={method}"), "--do_verify=1"],
    )?;
    per_write(&report)
}

fn fio_report(arguments: &[&str], options: &[&str]) -> Result<Value> {
    let output = Command::new("fio")
        .args(["--name=job", "--thread", "--verify_state_save=0", "--output-format=json"])
        .args(arguments)
        .args(options)
        .output()
        .map_err(|error| Error::from_io(error, "starting fio"))?;
    if !output.status.success() {
        return Err(internal(format!("fio failed: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::new(ErrorKind::Internal, "reading fio's report").caused_by(error))
}

/// CPU of the job for each of its writes.
fn per_write(report: &Value) -> Result<f64> {
    let job = &report["jobs"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let share = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0;
    let cpu_ns = share * number(&job["job_runtime"]) * 1e6;
    let writes = number(&job["write"]["total_ios"]);
    if cpu_ns > 0.0 && writes > 0.0 {
        Ok(cpu_ns / writes)
    } else {
        Err(internal("fio's report has no writes or no CPU time".into()))
    }
}
