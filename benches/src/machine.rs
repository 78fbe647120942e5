//! What the figures were taken on, and the peers they are taken against.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::Cancel;
use rotproof_measure::Monitor;
use rotproof_trial::runner::RunOptions;
use tempfile::TempDir;

/// One line: processor, cores, memory, kernel.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        text.lines()
            .find_map(|line| {
                line.strip_prefix(key).map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
            })
            .unwrap_or_else(|| "unknown".to_owned())
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory_kib: u64 =
        field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cpu}, {cores} cores, {} GiB, Linux {}", memory_kib >> 20, kernel.trim())
}

/// Makes sure that `program` is here, installing its Debian package where it is not.
pub fn need(program: &str, package: &str) -> Result<()> {
    let present = || Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status();
    if present().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    if install(package).is_ok() && present().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Missing,
        format!("this benchmark needs `{program}`; install the package `{package}` and run it again"),
    ))
}

/// Installs Debian packages, separated by spaces.
pub fn install(packages: &str) -> Result<()> {
    let script = format!(
        "apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {packages} >&2"
    );
    let installed = Command::new("sh").args(["-c", &script]).status();
    if installed.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let message = format!("could not install the packages {packages}; install them and run it again");
    Err(Error::new(ErrorKind::Missing, message))
}

/// CPU time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock of the calling thread always exists, and the value lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes that the allocator has handed out and not got back.
pub fn allocated_bytes() -> u64 {
    // SAFETY: it only reads what the allocator counts.
    let counts = unsafe { libc::mallinfo2() };
    (counts.uordblks + counts.hblkhd) as u64
}

/// A trial with its results in `results`, looked at by nobody.
pub fn run_options(results: PathBuf) -> RunOptions {
    let monitor = Arc::new(Monitor::default());
    RunOptions { replay: None, results, overwrite: false, cancel: Cancel::new(), monitor }
}

/// Seconds of CPU, user and system, that a process and its threads have taken so far, also those that have ended.
pub fn cpu_of_process(process: u32) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the values live across the calls. A process that is gone has no clock, and the time stays zero.
    unsafe {
        let mut clock = 0;
        if libc::clock_getcpuclockid(process.cast_signed(), &raw mut clock) == 0 {
            libc::clock_gettime(clock, &raw mut time);
        }
    }
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A file of `size_bytes` zeros.
pub fn make_file(path: &std::path::Path, size_bytes: u64) -> Result<()> {
    let made = fs::File::create(path).and_then(|file| file.set_len(size_bytes));
    made.map_err(|error| Error::from_io(error, format!("making {}", path.display())))
}

/// A folder beside the program, which is where a real disk is and nothing that anybody keeps; temporary folders often are
/// not on one.
pub fn folder_on_disk() -> Result<TempDir> {
    let program = std::env::current_exe().map_err(no_folder)?;
    TempDir::new_in(program.parent().unwrap_or(&program)).map_err(no_folder)
}

/// Why there is no folder to work in.
pub fn no_folder(error: std::io::Error) -> Error {
    Error::from_io(error, "making a folder to measure in")
}
