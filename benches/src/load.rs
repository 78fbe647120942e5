//! What a load costs: CPU for one request, ours against fio, on a device that does nothing, a file in tmpfs, and a file
//! on the file system where builds go; without content, and with content that can be verified.
//!
//! Ours is the CPU time of the load's thread, fio's what it reports of its job: user and system, without its start.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use rotproof_block::leaf::{FileDevice, FileOptions, NullDevice};
use rotproof_block::{Device, Error, ErrorKind, Phase, Result};
use rotproof_load::{DeviceDriver, Driver, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::figure::{Bar, Figure};
use crate::{Effort, load_memory, machine};

const TARGET_BYTES: u64 = 256 << 20;
const DEPTH: u32 = 32;

/// What both sides do.
#[derive(Clone, Copy)]
struct Cell {
    target: Target,
    /// fio's `--rw`.
    pattern: &'static str,
    block_bytes: u64,
    /// fio's `--verify`, and whether ours has content.
    content: Option<&'static str>,
    bar: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Null,
    Tmpfs,
    Disk,
}

const fn plain(target: Target, pattern: &'static str, block_bytes: u64) -> Cell {
    Cell { target, pattern, block_bytes, content: None, bar: 1.0 }
}

const fn content(check: &'static str, block_bytes: u64, bar: f64) -> Cell {
    Cell { target: Target::Null, pattern: "randwrite", block_bytes, content: Some(check), bar }
}

const CELLS: [Cell; 11] = [
    plain(Target::Null, "randread", 4096),
    plain(Target::Null, "randwrite", 4096),
    plain(Target::Null, "read", 131_072),
    plain(Target::Tmpfs, "randread", 4096),
    plain(Target::Tmpfs, "randwrite", 4096),
    plain(Target::Disk, "randread", 4096),
    plain(Target::Disk, "randwrite", 4096),
    content("crc32c", 4096, 0.4),
    content("xxhash", 4096, 0.15),
    content("crc32c", 131_072, 0.4),
    content("xxhash", 131_072, 0.15),
];

/// Measures every cell, in turns.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("fio", "fio")?;
    let memory = TempDir::new_in("/dev/shm").map_err(machine::no_folder)?;
    let disk = machine::folder_on_disk()?;
    for cell in CELLS {
        let path = match cell.target {
            Target::Null => None,
            Target::Tmpfs => Some(memory.path().join("file")),
            Target::Disk => Some(disk.path().join("file")),
        };
        if let Some(path) = path.as_deref().filter(|path| !path.exists()) {
            crate::fio::fill(crate::fio::Target::Path(path), TARGET_BYTES).or_else(|_| written(path))?;
        }
        let mut rounds = Vec::new();
        for _ in 0..effort.rounds {
            let ours = ours(cell, path.as_deref(), effort.seconds)?;
            rounds.push((ours, fio(cell, path.as_deref(), memory.path(), effort.seconds)?));
        }
        found(Figure::from_rounds(cell.name(), "us", &rounds, Some(Bar::AtMost(cell.bar))));
    }
    load_memory::run(effort, found)
}

/// Where fio's direct I/O is not possible.
fn written(path: &Path) -> Result<()> {
    let chunk = vec![0x5a; 1 << 20];
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        (0..TARGET_BYTES >> 20).try_for_each(|_| std::io::Write::write_all(&mut file, &chunk))
    };
    write().map_err(|error| Error::from_io(error, format!("writing {}", path.display())))
}

impl Cell {
    fn name(self) -> String {
        let target = match self.target {
            Target::Null => "null",
            Target::Tmpfs => "tmpfs",
            Target::Disk => "disk",
        };
        let with = self.content.map_or(String::new(), |check| format!(", content against {check}"));
        format!("{target}, {} {} KiB{with}", self.pattern, self.block_bytes / 1024)
    }

    /// tmpfs has no direct I/O on every kernel, so neither side uses it there.
    fn is_direct(self) -> bool {
        self.target == Target::Disk
    }
}

/// Microseconds of CPU for one request of ours.
fn ours(cell: Cell, path: Option<&Path>, seconds: f64) -> Result<f64> {
    let device: Arc<dyn Device> = match path {
        None => NullDevice::new(TARGET_BYTES)?,
        Some(path) => {
            FileDevice::open(path, FileOptions { direct: cell.is_direct(), ..FileOptions::default() })?
        }
    };
    let pattern = if cell.pattern.starts_with("rand") { "random" } else { "sequential" };
    let spec = json!({
        "pattern": pattern,
        "reads": if cell.pattern.ends_with("read") { 1.0 } else { 0.0 },
        "block_size": cell.block_bytes,
        "queue_depth": DEPTH,
        "duration": format!("{}ms", (seconds * 1000.0) as u64),
        "prefill": false,
    });
    let spec: LoadSpec = serde_json::from_value(spec)
        .map_err(|error| Error::new(ErrorKind::Internal, "describing the load").caused_by(error))?;
    let driver = DeviceDriver::new(device)?;
    let workload = Workload::new(&spec, 1, driver.objects())?;
    let options = RunOptions {
        runtime: RunOn::Uring { epoch: Instant::now() },
        phase: Phase::Run,
        verify: cell.content.is_some(),
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: None,
        phase_cell: None,
        let_go: None,
    };
    let report = rotproof_load::run(&workload, &driver, &mut Oracle::new(&workload), &options)?;
    let cpu = report.effort.map_or(0.0, |effort| effort.cpu.as_secs_f64());
    Ok(cpu * 1e6 / report.all_requests.max(1) as f64)
}

/// The same of fio's, which leaves files of its own in `folder`.
fn fio(cell: Cell, path: Option<&Path>, folder: &Path, seconds: f64) -> Result<f64> {
    let mut command = Command::new("fio");
    command
        .current_dir(folder)
        .args(["--name=job", "--time_based", "--norandommap", "--randrepeat=1", "--output-format=json"])
        .arg(format!("--rw={}", cell.pattern))
        .arg(format!("--bs={}", cell.block_bytes))
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--size={TARGET_BYTES}"))
        .arg(format!("--runtime={}ms", (seconds * 1000.0) as u64))
        .arg(format!("--direct={}", u8::from(cell.is_direct())));
    match path {
        None => command.arg("--ioengine=null"),
        Some(path) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            command.arg("--ioengine=io_uring").arg(format!("--filename={}", path.display()))
        }
    };
    if let Some(check) = cell.content {
        command.args([&format!("--verify={check}"), "--do_verify=0"]);
    }
    let output = command.output().map_err(|error| Error::from_io(error, "starting fio"))?;
    let wrong = |what: &str| {
        Error::new(ErrorKind::Internal, format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    };
    if !output.status.success() {
        return Err(wrong("fio failed"));
    }
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| wrong("reading fio's report"))?;
    let job = &report["jobs"][0];
    let side = &job[if cell.pattern.ends_with("read") { "read" } else { "write" }];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let share = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0;
    let requests = number(&side["total_ios"]);
    if requests <= 0.0 || share <= 0.0 {
        return Err(wrong("fio's report has no requests or no CPU"));
    }
    Ok(share * number(&side["runtime"]) * 1000.0 / requests)
}
