//! What removing would do, without doing it: for `rotproof clean --dry-run`.
//!
//! It asks what [`Resource::remove`](super::Resource::remove) asks, of the machine as it will be once what comes before has been removed.

use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind, Result};

use super::kind::FileIdentity;
use super::paths::{self, PathKind};
use crate::mounts::{Mount, is_mounted_at_or_below};

/// The machine as it will be.
#[derive(Debug)]
pub struct Plan {
    mounts: Vec<Mount>,
    /// Where something is mounted that will be gone. Until then what lies there cannot be looked at: its server may be dead.
    hidden: Vec<PathBuf>,
    /// Files and folders that will be gone.
    removed: Vec<PathBuf>,
}

impl Plan {
    pub(super) fn new(mounts: Vec<Mount>) -> Self {
        Self { mounts, hidden: Vec::new(), removed: Vec::new() }
    }

    /// Whether there are mounts that are `ours` at `path`, which will be gone; an error if they would stay.
    pub fn unmount(&mut self, path: &Path, ours: impl Fn(&Mount) -> bool) -> Result<bool> {
        let mut any = false;
        while self.mounts.iter().any(|mount| mount.path == path && ours(mount)) {
            let Some(top) = self.mounts.iter().rposition(|mount| mount.path == path) else { break };
            if !ours(&self.mounts[top]) {
                return Err(covered(&self.mounts[top], path));
            }
            self.mounts.remove(top);
            self.hidden.push(path.to_owned());
            any = true;
        }
        Ok(any)
    }

    /// Whether there is something at `path`, which will be gone; an error if it would stay.
    pub(super) fn remove_path(
        &mut self,
        path: &Path,
        identity: Option<FileIdentity>,
        kind: PathKind,
    ) -> Result<bool> {
        if is_mounted_at_or_below(&self.mounts, path) {
            return Err(paths::still_mounted(path));
        }
        if !self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            let Some(metadata) = paths::look(path)? else { return Ok(false) };
            paths::check_kind(path, &metadata, identity, kind)?;
            let must_be_empty = kind == PathKind::Directory || kind == PathKind::Tree && identity.is_none();
            if must_be_empty && !self.will_be_empty(path) {
                return Err(paths::not_empty(path));
            }
        }
        self.removed.push(path.to_owned());
        Ok(true)
    }

    fn will_be_empty(&self, folder: &Path) -> bool {
        let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.all(|entry| self.removed.contains(&entry.path()))
    }
}

/// Somebody has mounted `foreign` on top of what is ours at `path`.
pub fn covered(foreign: &Mount, path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "left alone: somebody has mounted {} over it on {}; unmount that first",
            foreign.filesystem,
            path.display()
        ),
    )
}
