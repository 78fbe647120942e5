//! What is open.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileType;
use parking_lot::{Mutex, RwLock};
use rotproof_guard::GuardedFile;

/// An entry of a folder.
#[derive(Clone, Debug)]
pub struct Entry {
    pub inode: u64,
    pub kind: FileType,
    pub name: OsString,
}

/// Something that is open.
pub enum Handle {
    /// A file that is verified, and the descriptor that its program would have.
    Guarded {
        /// The file.
        file: Arc<GuardedFile>,
        /// For what is not data: where holes are.
        below: File,
        /// Every write is made durable: `O_SYNC`, `O_DSYNC`.
        syncs: Option<bool>,
    },
    /// One that is passed on.
    Plain(File),
    /// A folder, and what was in it when it was read from its beginning.
    Folder {
        /// The folder.
        folder: OwnedFd,
        /// Its entries.
        entries: Mutex<Option<Arc<Vec<Entry>>>>,
    },
}

/// All of them.
#[derive(Default)]
pub struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    /// Adds one; its number.
    pub fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(handle));
        number
    }

    /// The one with a number.
    pub fn get(&self, number: u64) -> io::Result<Arc<Handle>> {
        let found = self.open.read().get(&number).map(Arc::clone);
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Takes it away. It is closed when nobody uses it any more.
    pub fn remove(&self, number: u64) {
        // Closed without the lock: that can take a while.
        let removed = self.open.write().remove(&number);
        drop(removed);
    }
}
