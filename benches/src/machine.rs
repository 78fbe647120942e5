//! What the figures were taken on, and the peers they are taken against.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};

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
    let script = format!(
        "apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {package} >&2"
    );
    let installed = Command::new("sh").args(["-c", &script]).status();
    if installed.is_ok_and(|status| status.success()) && present().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Missing,
        format!("this benchmark needs `{program}`; install the package `{package}` and run it again"),
    ))
}

/// CPU time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock of the calling thread always exists, and the value lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
