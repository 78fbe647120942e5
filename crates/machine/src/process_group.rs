//! A process with pipes for its streams, and an end that it comes to whether it wants to or not.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take to end once its input has, before it is asked to, and then before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A process of ours, with whatever it has started in its group. Dropped, it is ended.
#[derive(Debug)]
pub struct Process {
    /// The child, with its pipes.
    pub child: Child,
    is_waited_for: bool,
}

impl Process {
    /// Starts `command` in a group of its own.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own group, so that Ctrl-C in the terminal reaches only us, and all of it can be ended.
        command.process_group(0);
        Ok(Self { child: command.spawn()?, is_waited_for: false })
    }

    /// The end of its input, on which what is made for it ends by itself.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end; asks for it if it takes too long, and kills it if that does not help, and what is left of its
    /// group in any case. None if it does not end even then.
    pub fn end(&mut self) -> Option<ExitStatus> {
        self.close_input();
        if self.is_waited_for {
            return None;
        }
        if !self.has_ended_within(GRACE) {
            self.signal_group(libc::SIGTERM);
            self.has_ended_within(GRACE);
        }
        self.signal_group(libc::SIGKILL);
        self.has_ended_within(GRACE);
        // From here on its number may be that of somebody else.
        self.is_waited_for = true;
        self.child.try_wait().ok().flatten()
    }

    /// Whether it ends within so long, without asking how, so that its number stays its own.
    fn has_ended_within(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        // It takes no more than a moment, but may take all of it.
        let mut pause = Duration::from_millis(1);
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        true
    }

    fn has_ended(&self) -> bool {
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the kernel writes into `info`, which is one of its own kind, and into nothing else.
        let found = unsafe { libc::waitid(libc::P_PID, self.child.id(), info.as_mut_ptr(), how) };
        // SAFETY: zeroes are a valid one, and the kernel leaves nothing else than valid ones.
        found != 0 || unsafe { info.assume_init().si_pid() } != 0
    }

    fn signal_group(&self, signal: libc::c_int) {
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: takes numbers only. The group has the number of its leader, whom nobody has waited for yet, so it
            // belongs to no one else.
            unsafe { libc::kill(-group, signal) };
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
