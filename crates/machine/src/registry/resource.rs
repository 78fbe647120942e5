//! What a run may create outside its own memory, in the words of the record.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use serde::{Deserialize, Serialize};

use crate::process::ProcessIdentity;

/// One thing that stays behind if nobody removes it. It says enough to find that thing again and no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Resource {
    /// A folder, removed only when it is empty.
    Directory {
        /// Where, absolute.
        path: PathBuf,
    },
    /// A folder that belongs to the run with all that is in it.
    Tree {
        /// Where, absolute.
        path: PathBuf,
    },
    /// A file.
    File {
        /// Where, absolute.
        path: PathBuf,
    },
    /// A Unix socket.
    Socket {
        /// Where, absolute.
        path: PathBuf,
    },
    /// A FUSE file system served by this run.
    FuseMount {
        /// Where it is mounted, absolute.
        path: PathBuf,
    },
    /// The loop device, whatever its number, over a file that belongs to the run.
    Loop {
        /// The file below it, absolute.
        backing_file: PathBuf,
    },
    /// A ublk device.
    Ublk {
        /// The number in the names of its files.
        number: u32,
        /// The number that its maker gave it; another's may get the same number of the kernel later.
        owner: u64,
    },
    /// A mounted file system.
    Mount {
        /// Where it is mounted, absolute.
        path: PathBuf,
        /// Its type, as the kernel names it. Another type on the same path is not ours.
        filesystem: String,
    },
    /// A program under way.
    Process(ProcessIdentity),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Directory { path } => write!(f, "the folder {}", path.display()),
            Resource::Tree { path } => write!(f, "the folder {} and what is in it", path.display()),
            Resource::File { path } => write!(f, "the file {}", path.display()),
            Resource::Socket { path } => write!(f, "the socket {}", path.display()),
            Resource::FuseMount { path } => write!(f, "the FUSE mount {}", path.display()),
            Resource::Loop { backing_file } => write!(f, "the loop device over {}", backing_file.display()),
            Resource::Ublk { number, .. } => write!(f, "the ublk device {number}"),
            Resource::Mount { path, filesystem } => write!(f, "the {filesystem} mount {}", path.display()),
            Resource::Process(process) => write!(f, "the process {}", process.pid),
        }
    }
}

/// Which file or folder a path meant when the run had made it: another one there now is not the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileIdentity {
    /// `st_dev`.
    device: u64,
    /// `st_ino`.
    inode: u64,
}

impl FileIdentity {
    /// Of what is at `path` now, without following a link.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let metadata = path.symlink_metadata().doing(|| format!("looking at {}", path.display()))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}
