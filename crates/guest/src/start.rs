//! What starting a guest takes, whichever its kind: namespaces without rights, the archive, the console, the wait until it answers.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_inject::SharedMemory;
use rotproof_machine::process::ProcessIdentity;
use rotproof_machine::{Cancel, Program, start_thread};

use crate::agent;
use crate::console::end_in_console;
use crate::guest::{ANSWER_MAX, CameUp, Guest};
use crate::kernel::Kernel;
use crate::link::Link;
use crate::memory::GuestMemory;
use crate::qmp::Monitor;

/// What a guest is started with.
#[derive(Debug)]
pub struct GuestOptions<'a> {
    /// What carries its kernel.
    pub kind: GuestKind,
    /// Its disk.
    pub disk: GuestDisk<'a>,
    /// In bytes.
    pub memory_bytes: u64,
    /// A file for its console; what is there stays, and more is added.
    pub console: &'a Path,
    /// A folder of this run for what is needed while it starts.
    pub scratch: &'a Path,
    /// Keeps what is dirty in memory until it is asked for (sync, fsync, unmount), instead of some seconds.
    pub holds_dirty: bool,
    /// Every write to its disk is made durable before it is done: for a disk that can lose what is not. Of User Mode Linux alone:
    /// its driver takes flushes and carries out none in Linux 6.1, as it goes through the parts of a request, and a flush has no part.
    pub writes_through: bool,
    /// Where snapshots of guests of QEMU are kept, from which such a guest is ready sooner; `None` has it boot.
    pub snapshots: Option<&'a Path>,
    /// Lets its start be given up.
    pub cancel: &'a Cancel,
}

/// What carries a guest's kernel.
#[derive(Clone, Debug)]
pub enum GuestKind {
    /// User Mode Linux: the kernel is a program.
    Uml {
        /// The file system that is to be mounted, by its name.
        file_system: &'static str,
    },
    /// QEMU without help of the processor, and a kernel for real machines.
    Qemu(Kernel),
}

impl GuestKind {
    /// Its kernel with its release and what carries it, such as `Linux 6.1.0 in User Mode Linux`. Fails with
    /// [`ErrorKind::Missing`] if it is not to be had.
    pub fn kernel(&self) -> Result<String> {
        let unknown = || "of unknown release".to_owned();
        Ok(match self {
            Self::Uml { .. } => {
                let program = Program::find("linux.uml", "user-mode-linux")?;
                format!("Linux {} in User Mode Linux", program.version("--version").unwrap_or_else(unknown))
            }
            Self::Qemu(kernel) => {
                format!("Linux {} in QEMU", kernel.release().map_or_else(unknown, str::to_owned))
            }
        })
    }
}

/// How a guest reaches its disk.
#[derive(Debug)]
pub enum GuestDisk<'a> {
    /// A file that everybody may read and write who can reach it. Its processes are handed it open.
    File {
        /// The file.
        path: &'a Path,
        /// Bytes of its smallest block.
        block_bytes: u32,
    },
    /// A connection to an NBD server with one export, whose name is empty. Of QEMU alone.
    Nbd {
        /// The connection; nothing was said on it.
        socket: UnixStream,
        /// Bytes of its smallest block.
        block_bytes: u32,
    },
    /// A connection to a vhost-user-blk server. Of QEMU alone.
    Vhost(UnixStream),
}

/// A guest as it is to be started.
pub(crate) struct Launch<'a> {
    /// The program of the kernel with its arguments, in the namespaces.
    pub(crate) command: Vec<OsString>,
    /// What it is handed open, under the same numbers.
    pub(crate) inherited: Vec<OwnedFd>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Our end of the line to the agent.
    pub(crate) line: UnixStream,
    /// Bytes that may be under way on it.
    pub(crate) window_bytes: usize,
    /// How its kernel calls its disk.
    pub(crate) disk: &'static str,
    /// The monitor of a QEMU that goes on from a snapshot, and the state of its devices; without one it boots.
    pub(crate) restored_from: Option<(UnixStream, File)>,
    /// As in the options.
    pub(crate) memory_bytes: u64,
    pub(crate) console: &'a Path,
    pub(crate) holds_dirty: bool,
    pub(crate) cancel: &'a Cancel,
}

/// The first process of the namespace stays a shell: of that one the kernel of this machine holds back signals, and a guest that
/// panics could not end. Before the rights go: without the copies that the namespace has of other runs' mounts, which would keep
/// their devices busy for as long as the guest lives; and a `/dev/shm` that ends with the namespace, for the memory and whatever else
/// the kernel leaves there. It comes last: it covers mounts below `/dev/shm`, which nobody could name any more.
const PRIVATE_MEMORY: &str = r#"mounts=$(cat /proc/self/mounts)
echo "$mounts" | while read -r device point kind rest; do
    case "$point:$device:$kind" in
        /:*|/usr:*) ;;
        *:/dev/loop*|*:fuse.rotproof) umount -c -l "$(printf %b "$point")" ;;
    esac
done
mount -t tmpfs -o mode=1777,size=100% rotproof /dev/shm || exit $?
"$@"; exit $?"#;
/// Nobody, as whom its processes run.
const NOBODY: &str = "65534";
/// The programs that put a guest into its namespaces, with their packages.
const PROGRAMS: [(&str, &str); 2] = [("unshare", "util-linux"), ("setpriv", "util-linux")];

/// How long it may take to come up; User Mode Linux takes 1.5 s on a machine that does nothing else, QEMU 3 to 6 s; one that does much else has taken more than a minute.
const START_MAX: Duration = Duration::from_secs(120);
/// How long its processes may take to end after they were killed.
const END_MAX: Duration = Duration::from_secs(10);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Ok if this machine can hold guests. Fails with [`ErrorKind::Missing`] and what to do.
pub(crate) fn check_namespaces() -> Result<()> {
    PROGRAMS.iter().try_for_each(|(name, package)| Program::find(name, package).map(drop))?;
    agent::archive(&[]).map(drop)
}

/// Starts a guest, and waits until it answers. One that goes on from a snapshot comes with its monitor.
///
/// Fails with [`ErrorKind::Missing`] if a program is not to be had or the guest does not come up, with what it said.
pub(crate) fn launch(launch: Launch<'_>) -> Result<(Guest, Option<Monitor>)> {
    let unshare = Program::find("unshare", "util-linux")?;
    let mut console = OpenOptions::new()
        .create(true)
        .append(true)
        .open(launch.console)
        .doing(|| format!("opening {}, the console of a guest", launch.console.display()))?;
    let console_start = console.seek(SeekFrom::End(0)).doing(|| "the console of a guest".into())?;
    let mut command = Command::new(unshare.path());
    command.args([
        "--mount",
        "--net",
        "--ipc",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
    ]);
    command.args(["sh", "-c", PRIVATE_MEMORY, "sh", "setpriv", "--reuid", NOBODY, "--regid", NOBODY]);
    command.args(["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]);
    command.args(["--pdeathsig=KILL", "--"]).args(&launch.command);
    command.stdin(Stdio::null()).stdout(console.try_clone().doing(|| "the console".into())?).stderr(console);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("TMPDIR", "/dev/shm")
        .envs(launch.environment)
        .current_dir("/")
        .process_group(0);
    let inherited: Vec<RawFd> = launch.inherited.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: between fork and exec only system calls that are allowed there, on plain numbers.
    unsafe {
        command.pre_exec(move || {
            // When the thread that starts it ends, so does the guest: that is, with this process, however it ends.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            for &fd in &inherited {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let child = spawned_for_good(command).doing(|| "starting a guest".into())?;
    drop(launch.inherited);
    let mut child = Starting(Some(child));
    let link = Link::new(launch.line, launch.window_bytes, ANSWER_MAX)?;
    let (console, cancel) = (launch.console, launch.cancel);
    let kernel = child.kernel(console, console_start, cancel)?;
    let monitor = match launch.restored_from {
        Some((monitor, devices)) => {
            let restored = restored(monitor, &devices, &link);
            Some(restored.map_err(|error| not_up(console, console_start).caused_by(error))?)
        }
        None => {
            child.wait_until_ready(&link, console, console_start, cancel)?;
            None
        }
    };
    let memory =
        GuestMemory::new(SharedMemory::map(memory_file(kernel, launch.memory_bytes)?)?, Arc::clone(&link));
    let guest = Guest {
        child: Mutex::new(child.0.take().expect("it was started")),
        kernel,
        link,
        memory,
        console: console.to_owned(),
        console_start,
        disk: launch.disk,
        came_up: CameUp::Booted,
    };
    if launch.holds_dirty {
        guest.hold_dirty()?;
    }
    Ok((guest, monitor))
}

/// Starts a program on a thread that lives as long as this process. The kernel of this machine ends a guest with the thread that has
/// started it, and whoever wants a guest may be a thread of one cell or one state.
fn spawned_for_good(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static PARENT: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);
    let (answer, answered) = mpsc::channel();
    let mut parent = PARENT.lock();
    if parent.is_none() {
        let (sender, jobs) = mpsc::channel::<Job>();
        start_thread("guest-parent", move || {
            for (mut command, answer) in jobs {
                // Whoever asked waits for it.
                let _ = answer.send(command.spawn());
            }
        })
        .map_err(io::Error::other)?;
        *parent = Some(sender);
    }
    let is_sent = parent.as_ref().is_some_and(|parent| parent.send((command, answer)).is_ok());
    drop(parent);
    match answered.recv() {
        Ok(started) if is_sent => started,
        _ => Err(io::Error::other("the thread that starts guests is gone")),
    }
}

/// Has a guest, whose memory is there, go on with these devices, until its agent answers. It learns what time it is, and gets
/// randomness of its own: all guests from one snapshot would draw the same otherwise.
fn restored(monitor: UnixStream, devices: &File, link: &Link) -> Result<Monitor> {
    let mut monitor = Monitor::greet(monitor)?;
    monitor.leave_out_shared_memory()?;
    let name = monitor.hand(devices, "devices")?;
    monitor.command_of("migrate-incoming", "uri", format!("fd:{name}"))?;
    let status = monitor.wait_while("query-status", &["inmigrate"])?;
    if status != "paused" {
        let context = format!("a QEMU that was to wait with its snapshot is {status}");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    monitor.command("cont")?;
    let mut seed = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut seed))
        .doing(|| "reading randomness for a guest".into())?;
    let seed: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let words = format!("resumed\t{}\t{}\t{seed}", now.as_secs(), now.subsec_nanos());
    link.command(&words, ANSWER_MAX)?;
    Ok(monitor)
}

/// A guest under way; dropped before it is up, it is killed.
struct Starting(Option<Child>);

impl Starting {
    /// The process that the namespaces begin with.
    fn kernel(&mut self, console: &Path, console_start: u64, cancel: &Cancel) -> Result<ProcessIdentity> {
        let Some(pid) = self.0.as_ref().map(Child::id) else {
            return Err(not_up(console, console_start));
        };
        let deadline = Instant::now() + START_MAX;
        loop {
            cancel.check()?;
            let children =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let first =
                |text: &str| text.split_ascii_whitespace().next().and_then(|word| word.parse::<u32>().ok());
            if let Some(first) = first(&children)
                && let Ok(identity) = ProcessIdentity::of(first)
            {
                return Ok(identity);
            }
            if self.has_ended() || Instant::now() >= deadline {
                return Err(not_up(console, console_start));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the agent of a guest that boots is there.
    fn wait_until_ready(
        &mut self,
        link: &Link,
        console: &Path,
        console_start: u64,
        cancel: &Cancel,
    ) -> Result<()> {
        let ready_by = Instant::now() + START_MAX;
        while !link.wait_until_ready(Duration::from_millis(100)) {
            cancel.check()?;
            let has_ended =
                link.has_ended() || end_in_console(&console_from(console, console_start)).is_some();
            if has_ended || Instant::now() >= ready_by || self.has_ended() {
                return Err(not_up(console, console_start));
            }
        }
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Its child asks to be killed when it ends.
            let _ = child.kill();
            wait_for(child);
        }
    }
}

pub(crate) fn wait_for(child: &mut Child) {
    let deadline = Instant::now() + END_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    let _ = child.kill();
    let _ = child.try_wait();
}

pub(crate) fn console_from(path: &Path, start: u64) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let start = usize::try_from(start).unwrap_or_default().min(bytes.len());
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

fn not_up(console: &Path, start: u64) -> Error {
    let said = console_from(console, start);
    if let Some(end) = end_in_console(&said) {
        return Error::new(ErrorKind::Missing, format!("the guest does not come up: {end}"));
    }
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    let context = format!("the guest does not come up; it says: {}", last.join(" | "));
    Error::new(ErrorKind::Missing, context)
}

/// The archive as a file that everybody may read who is handed it, and that has no name any more.
pub(crate) fn archive_file(scratch: &Path, archive: &[u8]) -> Result<File> {
    let doing = || "writing the initial file system of a guest".to_owned();
    let directory = std::ffi::CString::new(scratch.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, "a path must not hold a zero byte"))?;
    // SAFETY: a string with its zero byte, which lives across the call.
    let fd =
        unsafe { libc::open(directory.as_ptr(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o644) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).doing(doing);
    }
    // SAFETY: just opened, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    // SAFETY: takes numbers. Whatever the mask of this process says, its reader is somebody else.
    unsafe { libc::fchmod(fd, 0o644) };
    file.write_all(archive).doing(doing)?;
    file.seek(SeekFrom::Start(0)).doing(doing)?;
    Ok(file)
}

/// The file with the memory of a guest: deleted, and open in its process.
fn memory_file(kernel: ProcessIdentity, memory_bytes: u64) -> Result<File> {
    let first = kernel.pid;
    let children =
        std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
    let folders = children.split_ascii_whitespace().map(|pid| format!("/proc/{pid}/fd"));
    for entry in folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        // It lies in a namespace of its own, so that nothing can be said of the path before its name.
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let is_memory =
            std::fs::metadata(entry.path()).is_ok_and(|about| about.is_file() && about.len() >= memory_bytes);
        if is_memory && target.to_string_lossy().ends_with("(deleted)") {
            return OpenOptions::new()
                .read(true)
                .write(true)
                .open(entry.path())
                .doing(|| "opening the memory of a guest".into());
        }
    }
    let context = "the guest has no file open that could be its memory";
    Err(Error::new(ErrorKind::Missing, context))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount that goes with the test. To the namespace it is one of another run: its source is named like a loop device.
    struct Mounted(std::ffi::CString);

    impl Mounted {
        fn new(folder: &Path) -> Self {
            use std::os::unix::ffi::OsStrExt;
            let place = std::ffi::CString::new(folder.as_os_str().as_bytes()).expect("a path");
            // SAFETY: texts that end with zero.
            let mounted = unsafe {
                libc::mount(
                    c"/dev/loop-none".as_ptr(),
                    place.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    std::ptr::null(),
                )
            };
            assert_eq!(mounted, 0, "as root: {}", io::Error::last_os_error());
            Self(place)
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            // SAFETY: a text that ends with zero.
            unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
        }
    }

    #[test]
    fn a_guest_holds_no_mount_of_another_run() {
        for place in ["/dev/shm", "/tmp"] {
            let folder = tempfile::tempdir_in(place).expect("a folder");
            let _mounted = Mounted::new(folder.path());
            let seen = Command::new("unshare")
                .args(["--mount", "--", "sh", "-c", PRIVATE_MEMORY, "sh", "cat", "/proc/self/mountinfo"])
                .output()
                .expect("unshare");
            let seen = String::from_utf8_lossy(&seen.stdout);
            assert!(seen.contains("/dev/shm"), "{seen}");
            assert!(!seen.contains(&*folder.path().to_string_lossy()), "{seen}");
        }
    }
}
