//! What removing would do, without doing it: for `rotproof clean --dry-run`.
//!
//! It asks what [`undo`](super::undo) asks, of the machine as it will be once what comes before has been removed.

use std::path::{Path, PathBuf};

use rotproof_block::Result;

use super::journal::Outstanding;
use super::resource::{FileIdentity, Resource};
use super::undo::{self, PathKind, exists, is_fuse};
use crate::mounts::{Mount, is_mounted_at_or_below};

/// The machine as it will be.
pub(super) struct Plan {
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

    /// Whether there is something to remove; an error if it would not be.
    pub(super) fn remove(&mut self, outstanding: &Outstanding) -> Result<bool> {
        let identity = outstanding.identity;
        match &outstanding.resource {
            Resource::Directory { path } => self.remove_path(path, identity, PathKind::Directory),
            Resource::Tree { path } => self.remove_path(path, identity, PathKind::Tree),
            Resource::File { path } => self.remove_path(path, identity, PathKind::File),
            Resource::Socket { path } => self.remove_path(path, identity, PathKind::Socket),
            Resource::FuseMount { path } => self.unmount(path, is_fuse),
            Resource::Mount { path, filesystem } => {
                self.unmount(path, |mount| mount.filesystem == *filesystem)
            }
            other => exists(other),
        }
    }

    fn unmount(&mut self, path: &Path, ours: impl Fn(&Mount) -> bool) -> Result<bool> {
        let mut any = false;
        while self.mounts.iter().any(|mount| mount.path == path && ours(mount)) {
            let Some(top) = self.mounts.iter().rposition(|mount| mount.path == path) else { break };
            if !ours(&self.mounts[top]) {
                return Err(undo::covered(&self.mounts[top], path));
            }
            self.mounts.remove(top);
            self.hidden.push(path.to_owned());
            any = true;
        }
        Ok(any)
    }

    fn remove_path(&mut self, path: &Path, identity: Option<FileIdentity>, kind: PathKind) -> Result<bool> {
        if is_mounted_at_or_below(&self.mounts, path) {
            return Err(undo::still_mounted(path));
        }
        if !self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            let Some(metadata) = undo::look(path)? else { return Ok(false) };
            undo::check_kind(path, &metadata, identity, kind)?;
            let must_be_empty = kind == PathKind::Directory || kind == PathKind::Tree && identity.is_none();
            if must_be_empty && !self.will_be_empty(path) {
                return Err(undo::not_empty(path));
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
