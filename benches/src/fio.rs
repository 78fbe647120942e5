//! fio as the client: one run, its figures.

use std::path::Path;
use std::process::Command;

use rotproof_block::{Error, ErrorKind, Result};
use serde_json::Value;

/// What to run, for how long.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// fio's `--rw`: `randread`, `randwrite`, `read`, `write`.
    pub pattern: &'a str,
    /// Bytes of one request.
    pub block_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Seconds to measure, after a quarter of a second that is not.
    pub seconds: f64,
    /// Bytes of the target that are used, from its beginning.
    pub size_bytes: u64,
    /// The one processor that it may use.
    pub processor: Option<u32>,
}

/// How long it runs before it counts.
const RAMP_MS: u32 = 250;

/// What fio works on.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A file or device, with io_uring and direct I/O.
    Path(&'a Path),
    /// An NBD export, by its URI.
    Nbd(&'a str),
}

impl Target<'_> {
    fn arguments(self) -> Vec<String> {
        match self {
            Self::Path(path) => {
                vec![
                    "--ioengine=io_uring".into(),
                    "--direct=1".into(),
                    format!("--filename={}", path.display()),
                ]
            }
            Self::Nbd(uri) => vec!["--ioengine=nbd".into(), format!("--uri={uri}")],
        }
    }
}

/// What one run of fio found.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Requests a second.
    pub iops: f64,
    /// Requests of the whole run, about: also of the time before it counts.
    pub requests: f64,
    /// Microseconds of its job's CPU, user and system, for one request.
    pub cpu_us: f64,
}

/// Runs `job` on `target`.
pub fn run(target: Target<'_>, job: Job<'_>) -> Result<Measured> {
    let output = Command::new("fio")
        .args(["--name=job", "--time_based", "--norandommap"])
        .args(["--randrepeat=1", "--output-format=json", &format!("--ramp_time={RAMP_MS}ms")])
        .args(target.arguments())
        .arg(format!("--rw={}", job.pattern))
        .arg(format!("--bs={}", job.block_bytes))
        .arg(format!("--iodepth={}", job.depth))
        .arg(format!("--size={}", job.size_bytes))
        .arg(format!("--runtime={}ms", (job.seconds * 1000.0) as u64))
        .args(job.processor.map(|processor| format!("--cpus_allowed={processor}")))
        .output()
        .map_err(|error| Error::from_io(error, "starting fio"))?;
    if !output.status.success() {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("fio failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
        ));
    }
    // Its NBD engine greets before the report.
    let start = output.stdout.iter().position(|&byte| byte == b'{').unwrap_or_default();
    let report: Value = serde_json::from_slice(&output.stdout[start..])
        .map_err(|error| Error::new(ErrorKind::Internal, "reading fio's report").caused_by(error))?;
    let direction = if job.pattern.ends_with("read") { "read" } else { "write" };
    let measured = || {
        let job = &report["jobs"][0];
        let iops = job[direction]["iops"].as_f64().filter(|&iops| iops > 0.0)?;
        let requests = job[direction]["total_ios"].as_f64().filter(|&requests| requests > 0.0)?;
        // Percents of the job's time without the ramp, in milliseconds.
        let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
        let cpu_us = percent / 100.0 * job["job_runtime"].as_f64()? * 1000.0 / requests;
        Some(Measured { iops, requests: requests + iops * f64::from(RAMP_MS) / 1000.0, cpu_us })
    };
    measured().ok_or_else(|| Error::new(ErrorKind::Internal, "fio's report has no requests or no CPU"))
}

/// Writes the first `bytes` of the target once, so that no measurement meets memory for the first time.
pub fn fill(target: Target<'_>, bytes: u64) -> Result<()> {
    let status = Command::new("fio")
        .args(["--name=fill", "--rw=write", "--bs=1m", "--iodepth=4"])
        .args(["--output=/dev/null", &format!("--size={bytes}")])
        .args(target.arguments())
        .status()
        .map_err(|error| Error::from_io(error, "starting fio"))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Internal, format!("fio could not fill {target:?}")))
    }
}
