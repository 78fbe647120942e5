//! Where the file system of a cell is mounted: this machine's kernel, or another that has the same few abilities.
//!
//! A cell needs no more than this, so a guest whose disk is the cell's device can stand in for the host.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash_fs::Scene;
use rotproof_machine::mounts::mounts;
use rotproof_machine::registry::Run;
use rotproof_subject::FileSystem;

use crate::operation::{MANY, Operation, PIECES, PLAIN, SYNCED};
use crate::tree::{Change, Look, Tree, sync, worst};

/// How long a checker may take.
const CHECKER_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// What an operation has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) look: Look,
    /// What it said beside, to be compared with what it says when nothing is wrong.
    pub(crate) said: String,
}

impl From<Look> for Answer {
    fn from(look: Look) -> Self {
        Self { look, said: String::new() }
    }
}

/// Tries to end what hangs, the mildest way there is; in words what then ended it, where there is such a way.
pub(crate) type Helper = Box<dyn Fn() -> Option<&'static str> + Send>;

/// See the head of the module. An error is one of the machine: then nobody knows how the file system reacts.
pub(crate) trait Stage: Send {
    /// Makes a new file system on the device.
    fn make(&mut self) -> Result<()>;
    /// What helps whoever hangs on it, from any thread.
    fn helper(&self) -> Helper;
    /// Takes all of it away.
    fn end(self: Box<Self>) -> Vec<Error>;
    /// Whether the program has crashed that serves it, where there is one.
    fn is_crashed(&mut self) -> bool {
        false
    }
    /// Forgets what was read of the device, which shows something else from now on. Nothing is mounted.
    fn forget(&mut self) -> Result<()>;
    /// Mounts it; how the file system answers.
    fn mount(&mut self) -> Result<Look>;
    /// Unmounts it, if it is mounted.
    fn unmount(&mut self) -> Result<Look>;
    /// Does a change.
    fn change(&mut self, change: &Change) -> Result<Look>;
    /// Has everything written.
    fn sync(&mut self) -> Look;
    /// Does what only looks: statfs, readdir, lookup, read; or fsync.
    fn perform(&mut self, operation: Operation, tree: &Tree) -> Result<Answer>;
    /// Looks at all files.
    fn look(&mut self, tree: &Tree) -> Look;
    /// Runs the checker on the device.
    fn check(&mut self) -> Result<Answer>;
    /// Whether it was mounted to be written, and has turned read-only.
    fn is_read_only(&mut self) -> Result<bool>;
    /// What the kernel has said about it since it was asked last.
    fn words(&mut self) -> Vec<String>;
}

/// This machine.
pub(crate) struct HostStage {
    scene: Scene,
    kind: FileSystem,
}

impl HostStage {
    /// Serves `device` in the folder `name` of the run's scratch folder.
    pub(crate) fn new(run: &Run, name: &str, device: Arc<dyn Device>, kind: FileSystem) -> Result<Self> {
        Ok(Self { scene: Scene::new(run, name, device, kind)?, kind })
    }

    fn root(&self) -> &Path {
        self.scene.mountpoint()
    }
}

impl Stage for HostStage {
    fn make(&mut self) -> Result<()> {
        let (program, options): (_, &[&str]) = match self.kind {
            // Groups as small as can be, so that there are several, with copies of what each has.
            FileSystem::Ext4 => (
                "mkfs.ext4",
                &[
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-g",
                    "4096",
                    "-E",
                    "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
                ],
            ),
            FileSystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K", "-m", "rmapbt=1,reflink=1,finobt=1"]),
            FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K", "-m", "dup", "-d", "single"]),
            FileSystem::Jfs | FileSystem::F2fs => return Err(unread(self.kind)),
        };
        let arguments: Vec<&str> = options.to_vec();
        let (code, said) = run_program(program, &arguments, self.scene.device())?;
        match code {
            Some(0) => Ok(()),
            _ => Err(Error::new(ErrorKind::Missing, format!("no {} could be made: {said}", self.kind))),
        }
    }

    fn helper(&self) -> Helper {
        let device = self.scene.device().to_owned();
        let kind = self.kind;
        Box::new(move || {
            let is_told = kind == FileSystem::Xfs && give_up_retrying(&device);
            is_told.then_some("it ended once XFS was told not to retry for ever")
        })
    }

    fn end(self: Box<Self>) -> Vec<Error> {
        self.scene.end()
    }

    fn forget(&mut self) -> Result<()> {
        self.scene.forget()
    }

    fn mount(&mut self) -> Result<Look> {
        let options = match self.kind {
            // All cells have the identifier of one file system.
            FileSystem::Xfs => vec!["nouuid".to_owned()],
            FileSystem::Ext4 | FileSystem::Btrfs | FileSystem::Jfs | FileSystem::F2fs => Vec::new(),
        };
        match self.scene.mount(&options) {
            Ok(()) => Ok(Look::Right),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Missing) => Err(error),
            Err(error) => {
                // Where it lies is of no interest to anybody.
                let place = format!(" from {} on {}", self.scene.device().display(), self.root().display());
                Ok(Look::Failed(error.to_string().replace(&place, "")))
            }
        }
    }

    fn unmount(&mut self) -> Result<Look> {
        match self.scene.unmount() {
            Ok(()) => Ok(Look::Right),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
            Err(error) => Ok(Look::Failed(error.to_string())),
        }
    }

    fn change(&mut self, change: &Change) -> Result<Look> {
        Ok(match change.perform(self.root()) {
            Ok(()) => Look::Right,
            Err(error) => Look::of(&change.paths().join(" to "), &error),
        })
    }

    fn sync(&mut self) -> Look {
        match sync(self.root()) {
            Ok(()) => Look::Right,
            Err(error) => Look::Failed(format!("syncfs: {error}")),
        }
    }

    fn perform(&mut self, operation: Operation, tree: &Tree) -> Result<Answer> {
        perform_in(self.root(), operation, tree)
    }

    fn look(&mut self, tree: &Tree) -> Look {
        tree.look(self.root())
    }

    fn check(&mut self) -> Result<Answer> {
        let (program, options): (_, &[&str]) = match self.kind {
            FileSystem::Ext4 => ("e2fsck", &["-f", "-y"]),
            FileSystem::Xfs => ("xfs_repair", &[]),
            FileSystem::Btrfs => ("btrfs", &["check", "--readonly"]),
            FileSystem::Jfs | FileSystem::F2fs => return Err(unread(self.kind)),
        };
        let (code, said) = run_program(program, options, self.scene.device())?;
        let is_done = match self.kind {
            // 1: errors were corrected; 2: the same, and the machine should be rebooted (e2fsck(8)).
            FileSystem::Ext4 => matches!(code, Some(0..=2)),
            _ => code == Some(0),
        };
        let look = match code {
            _ if is_done => Look::Right,
            Some(code) => Look::Failed(format!("{program}: exit code {code}")),
            None => Look::Failed(format!("{program}: it crashed")),
        };
        Ok(Answer { look, said })
    }

    fn is_read_only(&mut self) -> Result<bool> {
        let mounts = mounts()?;
        let mount = mounts.iter().rfind(|mount| mount.path == self.scene.mountpoint());
        Ok(mount.is_some_and(|mount| {
            mount.options.split(',').any(|option| option == "ro" || option == "shutdown")
        }))
    }

    fn words(&mut self) -> Vec<String> {
        self.scene.kernel_words()
    }
}

/// Nobody here knows what the blocks of such a file system are.
fn unread(kind: FileSystem) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the kinds of {kind}'s blocks are not read, so there are no cells of it"),
    )
}

/// See [`Stage::perform`], of a file system at `root`.
pub(crate) fn perform_in(root: &Path, operation: Operation, tree: &Tree) -> Result<Answer> {
    Ok(match operation {
        Operation::Statfs => statfs(root),
        Operation::Readdir => tree.look_at_folder(root, MANY, false).into(),
        Operation::Lookup => worst(Operation::looked_up().iter().map(|path| tree.look_up(root, path))).into(),
        Operation::Read => worst([PLAIN, PIECES].map(|path| tree.look_at(root, path))).into(),
        Operation::Fsync => match std::fs::File::open(root.join(SYNCED)).and_then(|file| file.sync_all()) {
            Ok(()) => Look::Right.into(),
            Err(error) => Look::Failed(format!("fsync: {error}")).into(),
        },
        other => {
            return Err(Error::new(ErrorKind::Internal, format!("{other} is no operation on files alone")));
        }
    })
}

/// XFS retries a write of metadata for ever, and while it is mounted there is nobody to tell it otherwise but this
/// (`Documentation/admin-guide/xfs.rst`, error handling). Whether it could be told.
fn give_up_retrying(device: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let folder = Path::new("/sys/fs/xfs").join(name).join("error/metadata");
    let Ok(errors) = std::fs::read_dir(folder) else { return false };
    let told = errors.flatten().map(|error| std::fs::write(error.path().join("max_retries"), "0").is_ok());
    told.fold(false, |any, told| any | told)
}

/// Exit code (`None` if a signal ended it) and what it said.
fn run_program(program: &str, options: &[&str], device: &Path) -> Result<(Option<i32>, String)> {
    let doing = || format!("running {program}");
    // In a file, so that a long answer cannot block it.
    let mut told = tempfile()?;
    let output = told.try_clone().doing(doing)?;
    let mut child = Command::new(program)
        .args(options)
        .arg(device)
        .env("LC_ALL", "C")
        .env("BLKID_FILE", "/dev/null")
        .stdin(Stdio::null())
        .stdout(output.try_clone().doing(doing)?)
        .stderr(output)
        .spawn()
        .doing(doing)?;
    let deadline = Instant::now() + CHECKER_MAX;
    let status = loop {
        match child.try_wait().doing(doing)? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                child.kill().doing(doing)?;
                child.wait().doing(doing)?;
                return Err(Error::new(ErrorKind::TimedOut, format!("{program} did not end")));
            }
            None => std::thread::sleep(POLL),
        }
    };
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    told.rewind().and_then(|()| told.read_to_end(&mut bytes)).doing(doing)?;
    Ok((status.code(), String::from_utf8_lossy(&bytes).into_owned()))
}

/// A file in memory without a name.
pub(crate) fn tempfile() -> Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends with zero and lives across the call.
    let descriptor = unsafe { libc::memfd_create(c"rotproof-react".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error()).doing(|| "making a file in memory".into());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { std::fs::File::from_raw_fd(descriptor) })
}

fn statfs(root: &Path) -> Answer {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(root.as_os_str().as_bytes()) else {
        return Look::Failed("the path has a zero in it".into()).into();
    };
    let mut about = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with zero; the kernel fills the structure, all of whose bits may be zero.
    let (answer, about) = unsafe {
        let answer = libc::statvfs(path.as_ptr(), about.as_mut_ptr());
        (answer, about.assume_init())
    };
    if answer != 0 {
        return Look::Failed(format!("statfs: {}", std::io::Error::last_os_error())).into();
    }
    let said = format!(
        "{} blocks of {}, {} free, {} inodes free",
        about.f_blocks, about.f_frsize, about.f_bfree, about.f_ffree
    );
    Answer { look: Look::Right, said }
}
