//! What a stretch of a run cost: processor time, memory, context switches, and how busy the whole machine was.
//!
//! Take a [`UsageMeter`] before and ask it after. In a run over FUSE and a loop device much of the work is done by
//! kernel threads, which belong to no process of ours; only the machine's figure shows them.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Instant;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cost of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Wall-clock seconds of the stretch.
    pub elapsed_seconds: f64,
    /// Processor seconds of this process in user mode, all threads.
    pub user_seconds: f64,
    /// Processor seconds that the kernel spent on behalf of this process.
    pub system_seconds: f64,
    /// Processor seconds that all processors of the machine were busy, whoever for.
    pub machine_busy_seconds: f64,
    /// Share of the machine's processors that was busy, 0 to 1.
    pub machine_busy_share: f64,
    /// Times that a thread of this process waited for something.
    pub voluntary_context_switches: u64,
    /// Times that a thread of this process had to give way.
    pub involuntary_context_switches: u64,
    /// The most memory that this process ever had resident, in bytes, since it started.
    pub resident_bytes_max: u64,
}

/// A point in time to measure from.
#[derive(Debug)]
pub struct UsageMeter {
    began: Instant,
    process: ProcessorUse,
    machine: MachineTime,
}

impl UsageMeter {
    /// Begins now.
    pub fn start() -> Result<Self> {
        Ok(Self { machine: machine_time()?, process: ProcessorUse::of_process()?, began: Instant::now() })
    }

    /// What it has cost since.
    pub fn read(&self) -> Result<Usage> {
        let elapsed = self.began.elapsed();
        let process = ProcessorUse::of_process()?;
        let machine = machine_time()?;
        let busy_seconds = (machine.busy_seconds - self.machine.busy_seconds).max(0.0);
        let total_seconds = (machine.total_seconds - self.machine.total_seconds).max(0.0);
        Ok(Usage {
            elapsed_seconds: elapsed.as_secs_f64(),
            user_seconds: (process.user_seconds - self.process.user_seconds).max(0.0),
            system_seconds: (process.system_seconds - self.process.system_seconds).max(0.0),
            machine_busy_seconds: busy_seconds,
            machine_busy_share: if total_seconds > 0.0 {
                (busy_seconds / total_seconds).min(1.0)
            } else {
                0.0
            },
            voluntary_context_switches: process.voluntary.saturating_sub(self.process.voluntary),
            involuntary_context_switches: process.involuntary.saturating_sub(self.process.involuntary),
            resident_bytes_max: process.resident_bytes_max,
        })
    }
}

/// Processor time of this process or of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessorUse {
    /// Seconds in user mode.
    pub user_seconds: f64,
    /// Seconds in the kernel.
    pub system_seconds: f64,
    voluntary: u64,
    involuntary: u64,
    resident_bytes_max: u64,
}

impl ProcessorUse {
    /// Of all threads of this process, those that have ended included.
    pub fn of_process() -> Result<Self> {
        Self::ask(libc::RUSAGE_SELF)
    }

    /// Of the calling thread.
    pub fn of_this_thread() -> Result<Self> {
        Self::ask(libc::RUSAGE_THREAD)
    }

    /// How often a thread waited for something or had to give way.
    pub fn context_switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }

    fn ask(who: libc::c_int) -> Result<Self> {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is large enough, and all zeros is a valid `rusage` too.
        let usage = unsafe {
            if libc::getrusage(who, usage.as_mut_ptr()) != 0 {
                return Err(Error::from_io(std::io::Error::last_os_error(), "asking for the processor time"));
            }
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(Self {
            user_seconds: seconds(usage.ru_utime),
            system_seconds: seconds(usage.ru_stime),
            voluntary: u64::try_from(usage.ru_nvcsw).unwrap_or_default(),
            involuntary: u64::try_from(usage.ru_nivcsw).unwrap_or_default(),
            // The kernel counts it in KiB.
            resident_bytes_max: u64::try_from(usage.ru_maxrss).unwrap_or_default() * 1024,
        })
    }
}

/// Processor seconds since the boot, summed over all processors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MachineTime {
    busy_seconds: f64,
    total_seconds: f64,
}

fn machine_time() -> Result<MachineTime> {
    let stat = fs::read_to_string("/proc/stat").doing(|| "reading /proc/stat".into())?;
    // SAFETY: asks for a constant of the system, touches no memory.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    parse_machine_time(&stat, ticks_per_second)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "/proc/stat has an unknown form"))
}

/// First line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal guest guest_nice`, in ticks. Guest
/// time is in user time already; waiting for I/O is idle.
fn parse_machine_time(stat: &str, ticks_per_second: f64) -> Option<MachineTime> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> =
        fields.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let total: f64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or(0.0);
    Some(MachineTime {
        busy_seconds: (total - idle) / ticks_per_second,
        total_seconds: total / ticks_per_second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn burn(time: Duration) {
        let began = Instant::now();
        let mut value = 1u64;
        while began.elapsed() < time {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
    }

    #[test]
    fn work_of_this_process_is_counted() {
        let meter = UsageMeter::start().expect("measured");
        burn(Duration::from_millis(100));
        let usage = meter.read().expect("measured");
        assert!(usage.elapsed_seconds >= 0.1);
        assert!(usage.user_seconds > 0.0 && usage.machine_busy_share <= 1.0, "{usage:?}");
        assert!(usage.resident_bytes_max > 1 << 20);
    }

    #[test]
    fn a_thread_is_charged_for_its_own_work_only() {
        let before = ProcessorUse::of_this_thread().expect("measured");
        std::thread::spawn(|| burn(Duration::from_millis(200))).join().expect("ends well");
        let after = ProcessorUse::of_this_thread().expect("measured");
        assert!(after.user_seconds - before.user_seconds < 0.1, "the other thread's work was charged here");
    }

    #[test]
    fn guest_time_is_not_counted_twice_and_waiting_is_idle() {
        let time = parse_machine_time("cpu  100 0 50 800 50 0 0 0 40 0\ncpu0 1 2\n", 100.0).expect("valid");
        assert_eq!(time, MachineTime { busy_seconds: 1.5, total_seconds: 10.0 });
        assert_eq!(parse_machine_time("cpu0 1", 100.0), None);
    }
}
