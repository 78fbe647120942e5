//! A guest that runs: its disk, its file system and its settings, how it ends and how it is ended.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_machine::process::{Liveness, ProcessIdentity};

use crate::console::{End, end_in_console};
use crate::folder::GuestFolder;
use crate::link::Link;
use crate::memory::GuestMemory;
use crate::start::{GuestKind, GuestOptions, POLL_INTERVAL, console_from, wait_for};
use crate::{qemu, uml};

/// How long a guest may take for a command. A file system that waits for a slow device takes its time.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long it may be silent before it counts as hanging.
const PING_MAX: Duration = Duration::from_secs(20);
/// Dirty pages wait as long as this in a guest that is to hold them, in hundredths of a second.
const HELD_CENTISECONDS: &str = "360000";

/// A guest. Dropped, it is killed.
#[derive(Debug)]
pub struct Guest {
    /// What holds the namespaces of the guest.
    pub(crate) child: Mutex<Child>,
    /// The first process in them, with which all others end.
    pub(crate) kernel: ProcessIdentity,
    pub(crate) link: Arc<Link>,
    pub(crate) memory: GuestMemory,
    pub(crate) console: PathBuf,
    /// Where in that file the words of this guest begin.
    pub(crate) console_start: u64,
    /// How its kernel calls its disk.
    pub(crate) disk: &'static str,
    pub(crate) came_up: CameUp,
}

/// How a guest came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameUp {
    /// Its kernel booted.
    Booted,
    /// It went on from a snapshot of a guest that had booted and had no disk yet.
    Restored {
        /// The snapshot was made for it, since there was none.
        is_new: bool,
    },
    /// It should have gone on from a snapshot, and could not. Why.
    BootedInstead(String),
}

impl Guest {
    /// Starts a guest, and waits until it answers.
    ///
    /// Fails with [`Missing`](rotproof_block::ErrorKind::Missing) if a program is not to be had or the guest does not come up, with
    /// what it said.
    pub fn start(options: &GuestOptions<'_>) -> Result<Self> {
        match &options.kind {
            GuestKind::Uml { file_system } => uml::start(file_system, options),
            GuestKind::Qemu(kernel) => qemu::start(kernel, options),
        }
    }

    /// The process that is its kernel; when that is killed, all of the guest ends.
    pub fn identity(&self) -> ProcessIdentity {
        self.kernel
    }

    /// How it came up.
    pub fn came_up(&self) -> &CameUp {
        &self.came_up
    }

    /// Its memory.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Mounts its disk.
    pub fn mount(&self, kind: &str, options: &str) -> Result<()> {
        self.command(&format!("mount\t{}\t{kind}\t{options}", self.disk)).map(drop)
    }

    /// Writes what is dirty, and unmounts its disk. Files that the agent has open for this machine are closed.
    pub fn unmount(&self) -> Result<()> {
        self.command("unmount").map(drop)
    }

    /// Writes all that is dirty in its memory.
    pub fn sync(&self) -> Result<()> {
        self.command("sync").map(drop)
    }

    /// Has the file system on its disk write all that is dirty. Fails with the error that its kernel gives for it.
    pub fn sync_file_system(&self) -> Result<()> {
        self.command("syncfs").map(drop)
    }

    /// Serves extended attributes too in folders that show its file system from now on. Each write to a file then takes two messages: the
    /// kernel of this machine asks for an attribute first.
    pub fn serve_attributes(&self) -> Result<()> {
        self.command("attributes").map(drop)
    }

    /// Shows its file system in a folder of this machine.
    pub fn show(&self, point: &Path) -> Result<GuestFolder> {
        GuestFolder::mount(&self.link, point)
    }

    /// The options with which its disk is mounted now, as its kernel lists them; `None` if it is not.
    pub fn mount_options(&self) -> Result<Option<String>> {
        let mounts = self.command("mounts")?;
        let of_disk = mounts.lines().rfind(|line| line.split(' ').next() == Some(self.disk));
        Ok(of_disk.and_then(|line| line.split(' ').nth(3)).map(str::to_owned))
    }

    /// Writes a setting of its kernel, such as `/proc/sys/vm/drop_caches`.
    pub fn set(&self, path: &str, value: &str) -> Result<()> {
        self.command(&format!("write\t{path}\t{value}")).map(drop)
    }

    /// An identifier that its kernel draws, another each time.
    pub fn random_uuid(&self) -> Result<String> {
        self.command("uuid")
    }

    /// Has it keep what is dirty until it is asked for.
    pub(crate) fn hold_dirty(&self) -> Result<()> {
        for (name, value) in [
            ("dirty_writeback_centisecs", HELD_CENTISECONDS),
            ("dirty_expire_centisecs", HELD_CENTISECONDS),
            ("dirty_ratio", "90"),
            ("dirty_background_ratio", "80"),
        ] {
            self.set(&format!("/proc/sys/vm/{name}"), value)?;
        }
        Ok(())
    }

    /// How it has come to its end; `None` while it answers.
    pub fn end(&self) -> Option<End> {
        if !self.link.has_ended() && self.link.command("ping", PING_MAX).is_ok() {
            return None;
        }
        // What it says last may come a moment after its line has ended.
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            if let Some(end) = end_in_console(&self.console_text()) {
                return Some(end);
            }
            let is_gone = self.kernel.liveness() != Liveness::Alive;
            if is_gone || Instant::now() >= deadline {
                // A guest that was given up ends its machine when it sees that.
                return Some(if is_gone && !self.link.is_given_up() {
                    End::Crash(self.how_ended())
                } else {
                    End::Hang
                });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn how_ended(&self) -> String {
        match self.child.lock().try_wait() {
            Ok(Some(status)) => format!("its process ended with {status}"),
            _ => "its process is gone".to_owned(),
        }
    }

    /// What it has said on its console.
    pub fn console_text(&self) -> String {
        console_from(&self.console, self.console_start)
    }

    /// Ends it at once, as a power cut would, and waits until nothing of it is left.
    pub fn kill(&self) {
        self.strike();
        wait_for(&mut self.child.lock());
    }

    /// Ends it at once and does not wait: for a thread that serves the guest's disk, which a request of the guest's may wait for.
    pub fn strike(&self) {
        // The kernel of this machine ends every process of its namespace with it.
        if self.kernel.liveness() == Liveness::Alive
            && let Ok(pid) = libc::pid_t::try_from(self.kernel.pid)
        {
            // SAFETY: takes numbers. The process is a child of our child, which waits for it, so its number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        // Whoever waits for an answer of the guest gets none.
        self.link.end();
    }

    pub(crate) fn command(&self, words: &str) -> Result<String> {
        self.link.command(words, ANSWER_MAX)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}
