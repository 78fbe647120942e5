//! Which process is meant by a number: its identity that survives the reuse of process ids, and whether it lives.

use std::fs;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// A process of this boot: its id, and when it started, as ids are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since the boot: field 22 of `/proc/PID/stat`.
    pub started_ticks: u64,
}

/// What has become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It was killed or has ended, but the kernel keeps something of it: a thread that still waits for I/O, or the
    /// exit status nobody has asked for. It will never run a line of its own again.
    Ending,
    /// Gone, and perhaps its id belongs to another process.
    Gone,
}

impl ProcessIdentity {
    /// This process.
    pub fn current() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this id now.
    pub fn of(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
            .doing(|| format!("reading the state of process {pid}"))?;
        let Stat { started_ticks, .. } = parse_stat(&stat).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("/proc/{pid}/stat has an unknown form: {stat}"))
        })?;
        Ok(Self { pid, started_ticks })
    }

    /// What has become of it.
    pub fn liveness(&self) -> Liveness {
        let pid = self.pid;
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Liveness::Gone };
        match parse_stat(&stat) {
            Some(Stat { state, flags, started_ticks }) if started_ticks == self.started_ticks => {
                if matches!(state, 'Z' | 'X') || flags & EXITING != 0 || is_doomed(pid) {
                    Liveness::Ending
                } else {
                    Liveness::Alive
                }
            }
            _ => Liveness::Gone,
        }
    }
}

/// `PF_EXITING` of the kernel's `include/linux/sched.h`: it is on its way out, by a signal or by itself.
const EXITING: u32 = 4;

/// What is read of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    /// Of the kernel: `PF_...`.
    flags: u32,
    started_ticks: u64,
}

/// The second field is the program's name in parentheses, and may hold anything.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags = fields.nth(5)?.parse().ok()?;
    let started_ticks = fields.nth(12)?.parse().ok()?;
    Some(Stat { state, flags, started_ticks })
}

/// Whether a signal has ended the process which it cannot act on yet. The kernel gives SIGKILL to each thread, whatever
/// fatal signal it was; after one such as SIGSEGV the thread that has met it waits for the others as a core is dumped,
/// however large that may be.
fn is_doomed(pid: u32) -> bool {
    let kill_bit = 1u64 << (libc::SIGKILL - 1);
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
        status.lines().filter_map(|line| line.split_once(':')).any(|(name, value)| match name {
            "SigPnd" | "ShdPnd" => {
                u64::from_str_radix(value.trim(), 16).is_ok_and(|pending| pending & kill_bit != 0)
            }
            "CoreDumping" => value.trim() == "1",
            _ => false,
        })
    })
}

/// Names this boot of the machine; nothing mounted or running outlives it.
pub fn boot_id() -> Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").doing(|| "reading the boot id".into())?;
    Ok(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_alive_and_one_with_another_start_is_not() {
        let current = ProcessIdentity::current().expect("proc is mounted");
        assert_eq!(current.liveness(), Liveness::Alive);
        let other = ProcessIdentity { started_ticks: current.started_ticks + 1, ..current };
        assert_eq!(other.liveness(), Liveness::Gone);
    }

    #[test]
    fn a_killed_process_is_ending_until_it_is_reaped() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep exists");
        let identity = ProcessIdentity::of(child.id()).expect("it was just started");
        assert_eq!(identity.liveness(), Liveness::Alive);
        child.kill().expect("it is our child");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while identity.liveness() != Liveness::Ending {
            assert!(std::time::Instant::now() < deadline, "a killed process never ended");
            std::thread::yield_now();
        }
        child.wait().expect("reaped");
        assert_eq!(identity.liveness(), Liveness::Gone);
    }

    #[test]
    fn a_program_name_with_parentheses_and_spaces_does_not_confuse() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0 184467";
        assert_eq!(parse_stat(stat), Some(Stat { state: 'S', flags: 4194304, started_ticks: 4242 }));
        assert_eq!(parse_stat("7 (a"), None);
    }
}
