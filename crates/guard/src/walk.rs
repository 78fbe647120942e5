//! All files that a guard protects.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::store::Store;

/// A file that was found.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// Its path, one of them if it has several.
    pub path: PathBuf,
    /// Its inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
}

/// The regular files below `from`, each inode once, in the order of their paths; and what could not be looked at. Other file
/// systems and the guard's own folder are left out, symbolic links are not followed.
pub fn files_below(store: &Store, from: &Path) -> (Vec<FoundFile>, Vec<(PathBuf, std::io::Error)>) {
    let (mut found, mut failed, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let mut waiting = vec![from.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = match std::fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // Gone since its folder was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && path != from => continue,
            Err(error) => {
                failed.push((path, error));
                continue;
            }
        };
        if metadata.dev() != store.device() || path == store.folder() {
            continue;
        }
        if metadata.is_file() {
            if seen.insert(metadata.ino()) {
                found.push(FoundFile { path, inode: metadata.ino(), size: metadata.len() });
            }
        } else if metadata.is_dir() {
            match std::fs::read_dir(&path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>) {
                Ok(entries) => {
                    let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
                    paths.sort_unstable_by(|a, b| b.cmp(a));
                    waiting.extend(paths);
                }
                Err(error) => failed.push((path, error)),
            }
        }
    }
    (found, failed)
}

/// Opens a file for reading. Nothing happens to a pipe or a device that has taken its place.
pub fn open_to_read(path: &Path) -> Result<File> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)
        .doing(|| format!("opening {}", path.display()))
}
