//! By which system calls files are read and written.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Device, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BlockingFile, MappedFile};

/// How a file or block device is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileEngine {
    /// Through io_uring.
    #[default]
    IoUring,
    /// `pread` and `pwrite`, one after the other.
    Psync,
    /// A mapping of it into memory, which goes through the page cache.
    Mmap,
}

impl FileEngine {
    /// Its name, as in descriptions of loads.
    pub fn word(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Psync => "psync",
            Self::Mmap => "mmap",
        }
    }

    /// Whether a request holds the thread that submits it until it is done.
    pub fn holds_threads(self) -> bool {
        self != Self::IoUring
    }

    /// Opens a file or block device, as [`FileDevice::open`] does, and fails as that does.
    pub fn open(self, path: &Path, options: FileOptions) -> Result<Arc<dyn Device>> {
        Ok(match self {
            Self::IoUring => FileDevice::open(path, options)?,
            Self::Psync => BlockingFile::open(path, options)?,
            Self::Mmap => MappedFile::open(path, options)?,
        })
    }
}

/// How a load opens the files that it makes on a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAccess {
    /// By which system calls.
    pub engine: FileEngine,
    /// Through the page cache even where the file system can do without.
    pub buffered: bool,
}

impl FileAccess {
    /// Whether everything goes through the page cache, whatever the file system can do.
    pub fn is_cached(self) -> bool {
        self.buffered || self.engine == FileEngine::Mmap
    }
}
