//! The files that the host knows, by number, and those that it has open.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Mutex};

use crate::sys::{EBADF, ENOENT, errno};

const O_PATH: i32 = 0o10_000_000;
const O_NOFOLLOW: i32 = 0o400_000;
/// Where the file system on trial is mounted.
pub const ROOT: &str = "/mnt";

#[derive(Default)]
pub struct Nodes(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    nodes: HashMap<u64, Node>,
    by_inode: HashMap<u64, u64>,
    open: HashMap<u64, Arc<Open>>,
    last: u64,
}

struct Node {
    /// Opened as a path alone.
    file: File,
    inode: u64,
    /// How often the host has been told of it.
    lookups: u64,
}

/// What the host has open.
pub struct Open {
    pub file: File,
    /// Of a folder: its entries, read when it was opened.
    pub entries: Vec<(Vec<u8>, u64, u32)>,
    /// Whether it is past the page cache.
    pub is_direct: bool,
}

impl Nodes {
    /// The path under which this process reaches node `number`.
    pub fn path(&self, number: u64) -> Result<String, i32> {
        self.descriptor(number).map(|fd| format!("/proc/self/fd/{fd}"))
    }

    /// Node `number`, open as a path.
    pub fn descriptor(&self, number: u64) -> Result<i32, i32> {
        let mut tables = self.0.lock().map_err(|_| EBADF)?;
        if number == 1 && !tables.nodes.contains_key(&1) {
            let root = open_path(ROOT)?;
            let inode = root.metadata().map_err(|error| errno(&error))?.ino();
            tables.nodes.insert(1, Node { file: root, inode, lookups: 1 });
            tables.by_inode.insert(inode, 1);
            tables.last = tables.last.max(1);
        }
        let node = tables.nodes.get(&number).ok_or(ENOENT)?;
        Ok(node.file.as_raw_fd())
    }

    /// Finds what `name` is in the folder of that number, and gives its number and attributes.
    pub fn look_up(&self, parent: u64, name: &str) -> Result<(u64, Metadata), i32> {
        let file = open_path(&format!("{}/{name}", self.path(parent)?))?;
        let about = file.metadata().map_err(|error| errno(&error))?;
        let inode = about.ino();
        let mut tables = self.0.lock().map_err(|_| EBADF)?;
        if let Some(&number) = tables.by_inode.get(&inode)
            && let Some(node) = tables.nodes.get_mut(&number)
        {
            node.lookups += 1;
            return Ok((number, about));
        }
        tables.last += 1;
        let number = tables.last.max(2);
        tables.last = number;
        tables.nodes.insert(number, Node { file, inode, lookups: 1 });
        tables.by_inode.insert(inode, number);
        Ok((number, about))
    }

    /// The host has forgotten it so many times.
    pub fn forget(&self, number: u64, times: u64) {
        let Ok(mut tables) = self.0.lock() else { return };
        if let Some(node) = tables.nodes.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(times);
            if node.lookups == 0 && number != 1 {
                let inode = node.inode;
                tables.nodes.remove(&number);
                tables.by_inode.remove(&inode);
            }
        }
    }

    /// Keeps what was opened; the number is for the host.
    pub fn keep(&self, open: Open) -> Result<u64, i32> {
        let mut tables = self.0.lock().map_err(|_| EBADF)?;
        tables.last = tables.last.max(1) + 1;
        let handle = tables.last;
        tables.open.insert(handle, Arc::new(open));
        Ok(handle)
    }

    pub fn opened(&self, handle: u64) -> Result<Arc<Open>, i32> {
        self.0.lock().map_err(|_| EBADF)?.open.get(&handle).cloned().ok_or(EBADF)
    }

    pub fn close(&self, handle: u64) {
        let closed = self.0.lock().ok().and_then(|mut tables| tables.open.remove(&handle));
        drop(closed);
    }

    /// Lets go of everything, so that the file system can be unmounted.
    pub fn clear(&self) {
        if let Ok(mut tables) = self.0.lock() {
            tables.nodes.clear();
            tables.by_inode.clear();
            tables.open.clear();
        }
    }
}

fn open_path(path: &str) -> Result<File, i32> {
    OpenOptions::new().read(true).custom_flags(O_PATH | O_NOFOLLOW).open(path).map_err(|error| errno(&error))
}
