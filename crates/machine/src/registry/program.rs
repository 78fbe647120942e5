//! A program under way as a resource of a run.

use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::kind::{FileIdentity, Keeper, Kind, Resource, read_as};
use crate::process::{Liveness, ProcessIdentity};

/// How long a killed process may take to end: longer only if it waits for a device that never answers.
const KILL_MAX: Duration = Duration::from_secs(10);

/// A program under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Process(pub ProcessIdentity);

pub(super) static PROCESS: Kind = Kind {
    word: "process",
    read: read_as::<Process>,
    kept_by: Keeper::Process,
    goes_first: true,
    finds: &[],
};

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process {}", self.0.pid)
    }
}

impl Resource for Process {
    fn kind(&self) -> &'static Kind {
        &PROCESS
    }

    fn exists(&self) -> Result<bool> {
        Ok(self.0.liveness() == Liveness::Alive)
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        kill(self.0)
    }
}

/// Kills exactly this process and waits for its end.
fn kill(process: ProcessIdentity) -> Result<()> {
    let doing = || format!("ending process {}", process.pid);
    let pid = libc::pid_t::try_from(process.pid)
        .map_err(|_| Error::new(ErrorKind::Invalid, format!("{} is no process id", process.pid)))?;
    // SAFETY: takes numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(descriptor) = libc::c_int::try_from(descriptor).and_then(|fd| u32::try_from(fd).map(|_| fd))
    else {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error).doing(doing) };
    };
    // SAFETY: just opened, owned by nobody else.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // The descriptor pins the process; if that is another one than recorded, it is not ours.
    if process.liveness() == Liveness::Gone {
        return Ok(());
    }
    // SAFETY: takes numbers and a null pointer, which stands for no further information.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            descriptor.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if sent != 0 {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error).doing(doing) };
    }
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = libc::c_int::try_from(KILL_MAX.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one valid entry.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        0 => Err(Error::new(
            ErrorKind::TimedOut,
            format!("process {} was killed, but still waits for a device that does not answer", process.pid),
        )),
        ready if ready > 0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(doing),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_recorded_process_is_killed_and_one_that_took_its_number_is_not() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep exists");
        let identity = ProcessIdentity::of(child.id()).expect("it runs");
        let other = ProcessIdentity { started_ticks: identity.started_ticks + 1, ..identity };
        Process(other).remove(None).expect("not ours");
        assert_eq!(identity.liveness(), Liveness::Alive);
        Process(identity).remove(None).expect("killed");
        assert!(!child.wait().expect("our child").success());
    }
}
