//! What a file system promises beyond POSIX, as data; what is not promised here is never asked for.
//!
//! Sources: `Documentation/filesystems/ext4/journal.rst` and `fs/ext4/fsync.c` (one journal, in order; in ordered mode data
//! reach the disk before the metadata that point to them); `Documentation/filesystems/xfs/xfs-delayed-logging-design.rst`
//! (the log is in order, fsync forces it up to the inode); `fs/btrfs/tree-log.c` (fsync writes a log of the inode and its
//! names, not of what else has changed).

use rotproof_subject::FileSystem;
use serde::{Deserialize, Serialize};

/// See the head of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Changes of names survive in the order in which they were made: if a later one is there, so is every earlier one.
    pub names_in_order: bool,
    /// The fsync of a new file makes its name durable too.
    pub fsync_keeps_name: bool,
    /// `syncfs` empties the disk's cache also if only data in place had changed since. Not so on xfs: `xfs_fs_sync_fs`
    /// forces the log, and where nothing is to be logged nobody flushes; ext4 sends a flush of its own in that case
    /// (`ext4_sync_fs`). Seen on Linux 6.18: `mmap write A/foo, sync` ends without a flush.
    pub sync_flushes_overwrites: bool,
    /// A block never shows what neither this file ever had there nor zeros are.
    pub no_foreign_data: bool,
}

impl Promise {
    /// That of a file system with its default options.
    pub fn of(kind: FileSystem) -> Self {
        Self {
            names_in_order: matches!(kind, FileSystem::Ext4 | FileSystem::Xfs),
            fsync_keeps_name: true,
            sync_flushes_overwrites: kind != FileSystem::Xfs,
            no_foreign_data: true,
        }
    }
}
