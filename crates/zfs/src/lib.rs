//! A `zfs-fuse` of one's own: the daemon in a mount namespace of its own ([`Daemon`]), the one pool that it has ([`Pool`]), and what
//! `zpool status` says of that ([`Status`]).
//!
//! The kernel of a machine rarely has ZFS; `zfs-fuse` is the same file system as a program (pool version 23). Its process is known, so
//! its memory can be reached, and it can be ended without a word. What a pool stands on, what is stored in it, and what becomes of
//! that is known above.

mod daemon;
mod pool;
mod status;

pub use daemon::{Daemon, DaemonOptions, Killer};
pub use pool::{POOL, Pool, PoolOptions};
pub use status::Status;

use rotproof_block::Result;
use rotproof_machine::Program;

/// The programs that a pool takes, with their packages.
const PROGRAMS: [(&str, &str); 7] = [
    ("zfs-fuse", "zfs-fuse"),
    ("zpool", "zfs-fuse"),
    ("zfs", "zfs-fuse"),
    ("zdb", "zfs-fuse"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("timeout", "coreutils"),
];

/// Ok if this machine has what a pool takes. Fails with [`rotproof_block::ErrorKind::Missing`] and what to install.
pub fn check_requirements() -> Result<()> {
    PROGRAMS.iter().try_for_each(|(name, package)| Program::find(name, package).map(drop))
}
