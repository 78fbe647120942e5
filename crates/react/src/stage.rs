//! Where the file system of a cell is mounted: this machine's kernel, or another that has the same few abilities.
//!
//! A cell needs no more than this, so a guest whose disk is the cell's device can stand in for the host.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash_fs::Scene;
use rotproof_machine::mounts::mounts;
use rotproof_machine::registry::Run;
use rotproof_subject::FileSystem;

use crate::files::Here;
use crate::operation::{MANY, Operation, READ, SYNCED};
use crate::tools;
use crate::tree::{Change, Look, Tree, sync, worst};

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
        tools::make(self.kind, self.scene.device())
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
        match self.scene.mount(&mount_options(self.kind)) {
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
        tree.look(&Here(self.root()))
    }

    fn check(&mut self) -> Result<Answer> {
        tools::check(self.kind, self.scene.device())
    }

    fn is_read_only(&mut self) -> Result<bool> {
        let mounts = mounts()?;
        let mount = mounts.iter().rfind(|mount| mount.path == self.scene.mountpoint());
        Ok(mount.is_some_and(|mount| is_read_only(&mount.options)))
    }

    fn words(&mut self) -> Vec<String> {
        self.scene.kernel_words()
    }
}

/// With which a file system is mounted.
pub(crate) fn mount_options(kind: FileSystem) -> Vec<String> {
    match kind {
        // All cells have the identifier of one file system.
        FileSystem::Xfs => vec!["nouuid".to_owned()],
        FileSystem::Ext4 | FileSystem::Btrfs | FileSystem::Jfs | FileSystem::F2fs => Vec::new(),
    }
}

/// Whether the options with which the kernel lists it say that it is written no more.
pub(crate) fn is_read_only(options: &str) -> bool {
    options.split(',').any(|option| option == "ro" || option == "shutdown")
}

/// See [`Stage::perform`], of a file system at `root`.
pub(crate) fn perform_in(root: &Path, operation: Operation, tree: &Tree) -> Result<Answer> {
    Ok(match operation {
        Operation::Statfs => statfs(root),
        Operation::Readdir => tree.look_at_folder(&Here(root), MANY, false).into(),
        Operation::Lookup => worst(Operation::looked_up().iter().map(|path| tree.look_up(root, path))).into(),
        Operation::Read => worst(READ.map(|path| tree.look_at(&Here(root), path))).into(),
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
