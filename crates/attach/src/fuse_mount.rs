//! A FUSE file system that a run serves.

use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::mounts::Mount;
use rotproof_machine::registry::{FileIdentity, Keeper, Kind, Plan, Resource, read_as};
use serde::{Deserialize, Serialize};

use crate::loop_device;
use crate::mount::{is_mounted, top_mount, unmount_all};

/// A FUSE file system served by this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FuseMount {
    /// Where it is mounted, absolute.
    pub path: PathBuf,
}

pub(crate) static FUSE_MOUNT: Kind = Kind {
    word: "fuse_mount",
    read: read_as::<FuseMount>,
    kept_by: Keeper::Kernel,
    goes_first: false,
    // A loop device is told for ours by the file below it, which lies in the mount.
    finds: &[loop_device::WORD],
};

impl fmt::Display for FuseMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the FUSE mount {}", self.path.display())
    }
}

impl Resource for FuseMount {
    fn kind(&self) -> &'static Kind {
        &FUSE_MOUNT
    }

    fn exists(&self) -> Result<bool> {
        is_mounted(&self.path, is_fuse)
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        unmount_all(&self.path, is_fuse)
    }

    fn plan(&self, _made: Option<FileIdentity>, machine: &mut Plan) -> Result<bool> {
        machine.unmount(&self.path, is_fuse)
    }

    fn waited_for(&self) -> Option<String> {
        let is_there = self.exists().unwrap_or(true);
        is_there.then(|| format!("the FUSE connection of {}, which nobody serves", self.path.display()))
    }

    fn let_go(&self) -> Result<()> {
        abort(&self.path)
    }
}

pub(crate) fn is_fuse(mount: &Mount) -> bool {
    mount.filesystem == "fuse" || mount.filesystem.starts_with("fuse.")
}

/// Ends the connection of a FUSE file system whose server is dead or dying, so that everybody who waits for an answer
/// gets an error. Does not unmount. Without a mount at `path` nothing happens.
fn abort(path: &Path) -> Result<()> {
    let Some(mount) = top_mount(path)?.filter(is_fuse) else { return Ok(()) };
    let control = format!("/sys/fs/fuse/connections/{}/abort", mount.device.1);
    if std::fs::write(&control, "1").is_ok() {
        return Ok(());
    }
    // Where the control file system is not mounted: the kernel aborts the connection at a forced unmount, also if
    // the unmount itself then fails as busy (fuse(4), `fuse_umount_begin`).
    let name = c_string(path)?;
    // SAFETY: `name` is a string that ends with zero and lives across the call.
    if unsafe { libc::umount2(name.as_ptr(), libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL | libc::ENOENT) => Ok(()),
        _ => Err(Error::from_io(error, format!("ending the FUSE file system {}", path.display()))),
    }
}

fn c_string(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(ErrorKind::Invalid, "a path must not hold a zero byte"))
}
