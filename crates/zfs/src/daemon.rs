//! The daemon `zfs-fuse`, in a mount namespace of its own: it meets no other one of the machine, neither its socket nor its pools. Its
//! file systems are mounted there alone, and end with it; from outside they are reached through the process.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::process::{Liveness, ProcessIdentity};
use rotproof_machine::registry::{Entry, Process, Run};
use rotproof_machine::{Cancel, Program, RunningProgram, start_thread};

/// What runs in the namespace. The first argument is the folder that is given; of the machine's own `/run` and `/etc/zfs` nothing else is
/// seen, and nothing changed. The copies that the namespace has of other runs' mounts are let go, or they would keep those busy for as
/// long as the daemon lives.
const IN_NAMESPACE: &str = r#"folder=$1
shift
mounts=$(cat /proc/self/mounts)
echo "$mounts" | while read -r device point kind rest; do
    point=$(printf %b "$point")
    case "$point:$device:$kind" in
        /:*|/usr:*|"$folder":*|"$folder"/*) ;;
        *:/dev/loop*|*:fuse.rotproof) umount -c -l "$point" ;;
    esac
done
exec 9< "$folder" && mount -t tmpfs none /run && mkdir -p /run/zfs /run/lock "$folder" &&
    mount --no-canonicalize --rbind /proc/self/fd/9 "$folder" && exec 9<&- &&
    { [ ! -d /etc/zfs ] || mount -t tmpfs none /etc/zfs; } && exec zfs-fuse --no-daemon --no-kstat-mount "$@""#;
/// Seconds that a command may take.
const COMMAND_MAX: &str = "30";
const READY_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);

/// How a daemon is started.
#[derive(Clone, Copy, Debug)]
pub struct DaemonOptions<'a> {
    /// The folder that it sees though it lie in `/run`: with what the pool lies on, and where it is mounted.
    pub folder: &'a Path,
    /// MiB of its cache (ARC), at least 16.
    pub cache_mib: u32,
    /// Reads ahead, where it finds a pattern.
    pub reads_ahead: bool,
    /// Files have extended attributes.
    pub xattrs: bool,
}

impl DaemonOptions<'_> {
    /// The kernel never keeps what files hold: the cache of the daemon is the only one.
    fn arguments(&self) -> Vec<String> {
        let mut arguments =
            vec!["--disable-page-cache".to_owned(), "-m".to_owned(), self.cache_mib.to_string()];
        arguments.extend((!self.reads_ahead).then(|| "--zfs-prefetch-disable".to_owned()));
        arguments.extend(self.xattrs.then(|| "--enable-xattr".to_owned()));
        arguments
    }
}

/// A daemon. Dropped, it is killed.
#[derive(Debug)]
pub struct Daemon {
    process: ProcessIdentity,
    killer: Killer,
    timeout: Program,
    /// The daemon ends with the thread that started it, so that has a thread of its own, which waits for this to be dropped.
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    run: Run,
    entry: Option<Entry>,
}

/// What ends a daemon from any thread, without waiting for anything.
#[derive(Clone, Debug)]
pub struct Killer(Arc<OwnedFd>);

impl Killer {
    fn new(process: ProcessIdentity) -> Result<Self> {
        // SAFETY: takes numbers only.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid, 0) };
        match i32::try_from(descriptor) {
            // SAFETY: just opened, owned by nobody else.
            Ok(descriptor @ 0..) => Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) }))),
            _ => Err(io::Error::last_os_error()).doing(|| format!("taking hold of process {}", process.pid)),
        }
    }

    /// Kills it, if it lives.
    pub fn kill(&self) {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: takes an open descriptor and numbers; no information goes with the signal. It fails only where the process is gone.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), libc::SIGKILL, nothing, 0) };
    }
}

impl Daemon {
    /// Starts a daemon, and waits until it answers. It has no pool yet. It is on record in `run` as long as it lives; until it is there, it
    /// ends with this process as a child of it.
    ///
    /// Fails with [`ErrorKind::Missing`] if a program is not to be had or the daemon does not come up.
    pub fn start(options: &DaemonOptions<'_>, run: &Run, cancel: &Cancel) -> Result<Self> {
        crate::check_requirements()?;
        let (unshare, timeout) =
            (Program::find("unshare", "util-linux")?, Program::find("timeout", "coreutils")?);
        let mut arguments = ["--mount", "--propagation", "private", "sh", "-c", IN_NAMESPACE, "sh"]
            .map(|argument| OsStr::new(argument).to_owned())
            .to_vec();
        arguments.push(options.folder.as_os_str().to_owned());
        arguments.extend(options.arguments().into_iter().map(Into::into));
        let (started, is_started) = channel::<Result<(ProcessIdentity, Killer)>>();
        let (over, is_over) = channel::<()>();
        let thread = start_thread("zfs-fuse", move || {
            let begun = unshare.start(&arguments).and_then(|running| Ok((known(&running)?, running)));
            let running = match begun {
                Ok((known, running)) => started.send(Ok(known)).ok().map(|()| running),
                Err(error) => started.send(Err(error)).ok().and(None),
            };
            // Nothing is ever sent: it waits for the other end to go.
            let _ = is_over.recv();
            drop(running);
        })?;
        let gone = || Error::new(ErrorKind::Internal, "the thread of zfs-fuse is gone");
        let (process, killer) = is_started.recv().map_err(|_| gone())??;
        let (over, thread) = (Some(over), Some(thread));
        let mut daemon = Self { process, killer, timeout, over, thread, run: run.clone(), entry: None };
        daemon.entry = Some(run.record(Process(process))?);
        let deadline = Instant::now() + READY_MAX;
        while let Err(error) = daemon.command("zpool", &["list"]) {
            cancel.check()?;
            if Instant::now() >= deadline {
                return Err(Error::new(ErrorKind::Missing, "zfs-fuse does not start").caused_by(error));
            }
            std::thread::sleep(POLL);
        }
        Ok(daemon)
    }

    /// Which process it is.
    pub fn process(&self) -> ProcessIdentity {
        self.process
    }

    /// What ends it from any thread.
    pub fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Where `path` of its namespace is seen from outside, for as long as it lives.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        PathBuf::from(format!("/proc/{}/root", self.process.pid)).join(inside)
    }

    /// Has a program of ZFS do something in the namespace; what it says. Fails with [`ErrorKind::Missing`] and what it says if it fails.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let pid = self.process.pid.to_string();
        let all = ["-s", "KILL", COMMAND_MAX, "nsenter", "-t", &pid, "-m", program];
        let done = self.timeout.start(all.iter().chain(arguments))?.wait(&Cancel::new());
        done.map_err(|error| error.while_doing(format!("{program} {}", arguments.join(" "))))
    }
}

fn known(running: &RunningProgram) -> Result<(ProcessIdentity, Killer)> {
    let process = running.identity()?;
    Ok((process, Killer::new(process)?))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.killer.kill();
        self.over = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell, and waits for the end of the process, but not for ever.
            let _ = thread.join();
        }
        if let Some(entry) = self.entry.take().filter(|_| self.process.liveness() == Liveness::Gone) {
            // One that cannot be struck out is found to be gone by whoever cleans up.
            let _ = self.run.gone(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_the_daemon_is_the_only_one() {
        let folder = Path::new("/f");
        let few = DaemonOptions { folder, cache_mib: 16, reads_ahead: false, xattrs: false };
        assert_eq!(few.arguments(), ["--disable-page-cache", "-m", "16", "--zfs-prefetch-disable"]);
        let more = DaemonOptions { reads_ahead: true, xattrs: true, ..few };
        assert_eq!(more.arguments(), ["--disable-page-cache", "-m", "16", "--enable-xattr"]);
    }
}
