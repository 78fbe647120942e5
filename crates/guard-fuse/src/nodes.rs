//! Files and folders that the kernel knows, each held by a descriptor that only stands for it. So they stay what they are,
//! whatever is renamed or removed.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;

/// The number of the root.
pub const ROOT: u64 = 1;
/// Numbers of what is on another file system than the root begin behind this; others are those of the file system below, as a
/// folder lists them.
const FOREIGN: u64 = 1 << 63;

/// See the head of the module.
#[derive(Debug)]
pub struct Node {
    descriptor: OwnedFd,
    key: (u64, u64),
}

impl Node {
    /// The descriptor (`O_PATH`).
    pub fn raw(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

#[derive(Debug, Default)]
struct Inner {
    nodes: HashMap<u64, (Arc<Node>, u64)>,
    numbers: HashMap<(u64, u64), u64>,
    last: u64,
    device: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Nodes(Mutex<Inner>);

impl Nodes {
    /// Only the root.
    pub fn new(root: OwnedFd) -> io::Result<Self> {
        let stat = crate::at::stat_of(root.as_raw_fd())?;
        let key = (stat.st_dev, stat.st_ino);
        let node = Arc::new(Node { descriptor: root, key });
        let inner = Inner {
            nodes: HashMap::from([(ROOT, (node, 1))]),
            numbers: HashMap::from([(key, ROOT)]),
            last: FOREIGN,
            device: stat.st_dev,
        };
        Ok(Self(Mutex::new(inner)))
    }

    /// The node with a number that the kernel was given.
    pub fn get(&self, number: u64) -> io::Result<Arc<Node>> {
        let inner = self.0.lock();
        let found = inner.nodes.get(&number).map(|(node, _)| Arc::clone(node));
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    /// The kernel learns of a node once more; its number.
    pub fn remember(&self, descriptor: OwnedFd, stat: &libc::stat) -> u64 {
        let key = (stat.st_dev, stat.st_ino);
        let mut inner = self.0.lock();
        if let Some(number) = inner.numbers.get(&key).copied()
            && let Some((_, lookups)) = inner.nodes.get_mut(&number)
        {
            *lookups += 1;
            return number;
        }
        // An inode that is held by a descriptor keeps its number for itself.
        let is_free = key.0 == inner.device && (ROOT + 1..FOREIGN).contains(&key.1);
        let number = if is_free && !inner.nodes.contains_key(&key.1) {
            key.1
        } else {
            inner.last += 1;
            inner.last
        };
        inner.nodes.insert(number, (Arc::new(Node { descriptor, key }), 1));
        inner.numbers.insert(key, number);
        number
    }

    /// The kernel forgets that it learned of it so often.
    pub fn forget(&self, number: u64, times: u64) {
        if number == ROOT {
            return;
        }
        let mut inner = self.0.lock();
        let Some((node, lookups)) = inner.nodes.get_mut(&number) else { return };
        *lookups = lookups.saturating_sub(times);
        if *lookups == 0 {
            let key = node.key;
            inner.nodes.remove(&number);
            inner.numbers.remove(&key);
        }
    }
}
