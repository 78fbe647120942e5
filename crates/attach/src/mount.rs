//! A file system that a run has mounted, and what is asked of mounts in general.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rotproof_block::Result;
use rotproof_export::{unmount_path, unmount_when_free};
use rotproof_machine::mounts::{self, mounts};
use rotproof_machine::registry::{FileIdentity, Keeper, Kind, Plan, Resource, covered, read_as};
use serde::{Deserialize, Serialize};

/// How long a busy mount or device may stay so before it is taken away under its users.
pub(crate) const BUSY_MAX: Duration = Duration::from_secs(2);
pub(crate) const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where it is mounted, absolute.
    pub path: PathBuf,
    /// Its type, as the kernel names it. Another type on the same path is not ours.
    pub filesystem: String,
}

pub(crate) static MOUNT: Kind =
    Kind { word: "mount", read: read_as::<Mount>, kept_by: Keeper::Kernel, goes_first: false, finds: &[] };

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} mount {}", self.filesystem, self.path.display())
    }
}

impl Mount {
    fn is_it(&self, mount: &mounts::Mount) -> bool {
        mount.filesystem == self.filesystem
    }
}

impl Resource for Mount {
    fn kind(&self) -> &'static Kind {
        &MOUNT
    }

    fn exists(&self) -> Result<bool> {
        is_mounted(&self.path, |mount| self.is_it(mount))
    }

    fn remove(&self, _made: Option<FileIdentity>) -> Result<()> {
        unmount_all(&self.path, |mount| self.is_it(mount))
    }

    fn plan(&self, _made: Option<FileIdentity>, machine: &mut Plan) -> Result<bool> {
        machine.unmount(&self.path, |mount| self.is_it(mount))
    }
}

/// Whether a mount that is `ours` is at `path`, on top or below another.
pub(crate) fn is_mounted(path: &Path, ours: impl Fn(&mounts::Mount) -> bool) -> Result<bool> {
    Ok(mounts()?.iter().any(|mount| mount.path == path && ours(mount)))
}

/// The mount that is on top at `path`.
pub(crate) fn top_mount(path: &Path) -> Result<Option<mounts::Mount>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.path == path))
}

/// Unmounts every mount at `path` that is `ours`; fails if another is on top.
pub(crate) fn unmount_all(path: &Path, ours: impl Fn(&mounts::Mount) -> bool) -> Result<()> {
    while is_mounted(path, &ours)? {
        if let Some(foreign) = top_mount(path)?.filter(|mount| !ours(mount)) {
            return Err(covered(&foreign, path));
        }
        unmount(path)?;
    }
    Ok(())
}

/// Unmounts what is on top at `path`; lazily if it stays busy, so that the kernel finishes when its users have.
pub(crate) fn unmount(path: &Path) -> Result<()> {
    // Busy for too long, or in a state in which the regular way is refused.
    unmount_when_free(path, BUSY_MAX).or_else(|_| unmount_path(path, true))
}
