//! A guest of User Mode Linux: a kernel that is a program, with its memory in a file of `/dev/shm`.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_inject::SharedMemory;
use rotproof_machine::process::{Liveness, ProcessIdentity};
use rotproof_machine::{Cancel, Program};

use crate::agent;
use crate::console::{End, end_in_console};
use crate::folder::GuestFolder;
use crate::link::Link;
use crate::memory::GuestMemory;
use crate::xstate;

/// Memory of a guest in bytes, if nothing else is said.
pub const MEMORY_DEFAULT: u64 = 256 << 20;
/// With less, a kernel with these file systems does not come up.
pub const MEMORY_MIN: u64 = 64 << 20;
/// How long a guest may take for a command. A file system that waits for a slow device takes its time.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long it may be silent before it counts as hanging.
const PING_MAX: Duration = Duration::from_secs(20);
/// How long it may take to come up; it takes 1.5 s on a machine that does nothing else.
const START_MAX: Duration = Duration::from_secs(60);
/// How long its processes may take to end after they were killed.
const END_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Nobody, as whom its processes run.
const NOBODY: &str = "65534";
/// Dirty pages wait as long as this in a guest that is to hold them, in hundredths of a second.
const HELD_CENTISECONDS: &str = "360000";

/// What a guest is started with.
#[derive(Clone, Debug)]
pub struct GuestOptions<'a> {
    /// Its disk: a file that everybody may read and write who can reach it. Its processes are handed it open.
    pub disk: &'a Path,
    /// In bytes.
    pub memory_bytes: u64,
    /// A file for its console; what is there stays, and more is added.
    pub console: &'a Path,
    /// A folder of this run for what is needed while it starts.
    pub scratch: &'a Path,
    /// Keeps what is dirty in memory until it is asked for (sync, fsync, unmount), instead of some seconds.
    pub holds_dirty: bool,
    /// Every write to its disk is made durable before it is done: for a disk that can lose what is not. The driver of User Mode
    /// Linux 6.1 takes flushes and carries out none: it goes through the parts of a request, and a flush has no part.
    pub writes_through: bool,
    /// Lets its start be given up.
    pub cancel: &'a Cancel,
}

/// The first process of the namespace stays a shell: of that one the kernel of this machine holds back signals, and a guest that
/// panics could not end. Before the rights go: a `/dev/shm` that ends with the namespace, for the memory and whatever else the kernel leaves there;
/// and without the copies that the namespace has of other runs' mounts, which would keep their devices busy for as long as the
/// guest lives.
const PRIVATE_MEMORY: &str = r#"mount -t tmpfs -o mode=1777,size=100% rotproof /dev/shm || exit $?
mounts=$(cat /proc/self/mounts)
echo "$mounts" | while read -r device point kind rest; do
    case "$point:$device:$kind" in
        /:*|/usr:*) ;;
        *:/dev/loop*|*:fuse.rotproof) umount -c -l "$(printf %b "$point")" ;;
    esac
done
"$@"; exit $?"#;

/// The programs that a guest takes, with their packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("linux.uml", "user-mode-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("setarch", "util-linux"),
];

/// Ok if this machine can run guests. Fails with [`ErrorKind::Missing`] and what to do.
pub fn check_requirements() -> Result<()> {
    for (name, package) in PROGRAMS {
        Program::find(name, package)?;
    }
    agent::archive()?;
    xstate::library().map(drop)
}

/// A guest. Dropped, it is killed.
#[derive(Debug)]
pub struct Guest {
    /// What holds the namespaces of the guest.
    child: Mutex<Child>,
    /// The first process in them, with which all others end.
    kernel: ProcessIdentity,
    link: Arc<Link>,
    memory: GuestMemory,
    console: PathBuf,
    /// Where in that file the words of this guest begin.
    console_start: u64,
}

impl Guest {
    /// Starts a guest, and waits until it answers.
    ///
    /// Fails with [`ErrorKind::Missing`] if a program is not to be had or the guest does not come up, with what it said.
    pub fn start(options: &GuestOptions<'_>) -> Result<Self> {
        let unshare = Program::find("unshare", "util-linux")?;
        let kernel_program = Program::find("linux.uml", "user-mode-linux")?;
        let archive = archive_file(options.scratch)?;
        let library = xstate::library()?;
        let disk = OpenOptions::new()
            .read(true)
            .write(true)
            .open(options.disk)
            .doing(|| format!("opening {}, the disk of a guest", options.disk.display()))?;
        let mut console = OpenOptions::new()
            .create(true)
            .append(true)
            .open(options.console)
            .doing(|| format!("opening {}, the console of a guest", options.console.display()))?;
        let console_start = console.seek(SeekFrom::End(0)).doing(|| "the console of a guest".into())?;
        let (ours, theirs) = UnixStream::pair().doing(|| "making the line to a guest".into())?;
        let mut inherited = vec![theirs.as_raw_fd(), disk.as_raw_fd(), archive.as_raw_fd()];
        inherited.extend(library.as_ref().map(AsRawFd::as_raw_fd));
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
        command.args([
            "sh",
            "-c",
            PRIVATE_MEMORY,
            "sh",
            "setpriv",
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
            "--no-new-privs",
        ]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL", "--", "setarch", "-R"]);
        command.arg(kernel_program.path());
        command.args([
            format!("mem={}K", options.memory_bytes >> 10),
            format!("initrd=/proc/self/fd/{}", archive.as_raw_fd()),
            "rdinit=/init".to_owned(),
            "con=null".to_owned(),
            "con0=null,fd:1".to_owned(),
            "ssl=null".to_owned(),
            format!("ssl0=fd:{}", theirs.as_raw_fd()),
            format!(
                "ubda{}=/proc/self/fd/{}",
                if options.writes_through { "s" } else { "" },
                disk.as_raw_fd()
            ),
            "umid=guest".to_owned(),
            "uml_dir=/dev/shm/".to_owned(),
        ]);
        command
            .stdin(Stdio::null())
            .stdout(console.try_clone().doing(|| "the console".into())?)
            .stderr(console);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("TMPDIR", "/dev/shm")
            .current_dir("/");
        if let Some(library) = &library {
            command.env("LD_PRELOAD", format!("/proc/self/fd/{}", library.as_raw_fd()));
        }
        command.process_group(0);
        // SAFETY: between fork and exec only system calls that are allowed there, on plain numbers.
        unsafe {
            command.pre_exec(move || {
                // When the thread that starts it ends, however it does, so does the guest.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                for &fd in &inherited {
                    if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = command.spawn().doing(|| "starting a guest".into())?;
        drop((theirs, disk, archive, library));
        let mut child = Starting(Some(child));
        let link = Link::new(ours, ANSWER_MAX)?;
        let kernel = child.kernel(options, console_start)?;
        let ready_by = Instant::now() + START_MAX;
        while !link.wait_until_ready(Duration::from_millis(100)) {
            options.cancel.check()?;
            let has_ended =
                link.has_ended() || end_in_console(&console_from(options.console, console_start)).is_some();
            if has_ended || Instant::now() >= ready_by || child.has_ended() {
                return Err(not_up(options.console, console_start));
            }
        }
        let memory = GuestMemory::new(
            SharedMemory::map(memory_file(kernel, options.memory_bytes)?)?,
            Arc::clone(&link),
        );
        let guest = Self {
            child: Mutex::new(child.0.take().expect("it was started")),
            kernel,
            link,
            memory,
            console: options.console.to_owned(),
            console_start,
        };
        if options.holds_dirty {
            for (name, value) in [
                ("dirty_writeback_centisecs", HELD_CENTISECONDS),
                ("dirty_expire_centisecs", HELD_CENTISECONDS),
                ("dirty_ratio", "90"),
                ("dirty_background_ratio", "80"),
            ] {
                guest.set(&format!("/proc/sys/vm/{name}"), value)?;
            }
        }
        Ok(guest)
    }

    /// The process that is its kernel; when that is killed, all of the guest ends.
    pub fn identity(&self) -> ProcessIdentity {
        self.kernel
    }

    /// Its memory.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Mounts its disk.
    pub fn mount(&self, kind: &str, options: &str) -> Result<()> {
        self.command(&format!("mount\t/dev/ubda\t{kind}\t{options}")).map(drop)
    }

    /// Writes what is dirty, and unmounts its disk. Files that the agent has open for this machine are closed.
    pub fn unmount(&self) -> Result<()> {
        self.command("unmount").map(drop)
    }

    /// Writes all that is dirty in its memory.
    pub fn sync(&self) -> Result<()> {
        self.command("sync").map(drop)
    }

    /// Shows its file system in a folder of this machine.
    pub fn show(&self, point: &Path) -> Result<GuestFolder> {
        GuestFolder::mount(&self.link, point)
    }

    /// The options with which its disk is mounted now, as its kernel lists them; `None` if it is not.
    pub fn mount_options(&self) -> Result<Option<String>> {
        let mounts = self.command("mounts")?;
        let of_disk = mounts.lines().rfind(|line| line.starts_with("/dev/ubda "));
        Ok(of_disk.and_then(|line| line.split(' ').nth(3)).map(str::to_owned))
    }

    /// Writes a setting of its kernel, such as `/proc/sys/vm/drop_caches`.
    pub fn set(&self, path: &str, value: &str) -> Result<()> {
        self.command(&format!("write\t{path}\t{value}")).map(drop)
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
                return Some(if is_gone { End::Crash(self.how_ended()) } else { End::Hang });
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

/// A guest under way; dropped before it is up, it is killed.
struct Starting(Option<Child>);

impl Starting {
    /// The process that the namespaces begin with.
    fn kernel(&mut self, options: &GuestOptions<'_>, console_start: u64) -> Result<ProcessIdentity> {
        let Some(pid) = self.0.as_ref().map(Child::id) else {
            return Err(not_up(options.console, console_start));
        };
        let deadline = Instant::now() + START_MAX;
        loop {
            options.cancel.check()?;
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
                return Err(not_up(options.console, console_start));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
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

fn wait_for(child: &mut Child) {
    let deadline = Instant::now() + END_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    let _ = child.kill();
    let _ = child.try_wait();
}

fn console_from(path: &Path, start: u64) -> String {
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
fn archive_file(scratch: &Path) -> Result<File> {
    let doing = || "writing the initial file system of a guest".to_owned();
    let directory = std::ffi::CString::new(scratch.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, "a path must not hold a zero byte"))?;
    // SAFETY: a string with its zero byte, which lives across the call.
    let fd =
        unsafe { libc::open(directory.as_ptr(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o644) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).doing(doing);
    }
    // SAFETY: just opened, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    // SAFETY: takes numbers. Whatever the mask of this process says, its reader is somebody else.
    unsafe { libc::fchmod(fd, 0o644) };
    file.write_all(&agent::archive()?).doing(doing)?;
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
