//! What a file system promises beyond POSIX, as data; what is not promised here is never asked for.
//!
//! Sources: `Documentation/filesystems/ext4/journal.rst` and `fs/ext4/fsync.c` (one journal, in order; in ordered mode data
//! reach the disk before the metadata that point to them); `Documentation/admin-guide/ext4.rst` (`data=`);
//! `Documentation/filesystems/xfs/xfs-delayed-logging-design.rst` (the log is in order, fsync forces it up to the inode);
//! `fs/btrfs/tree-log.c` (fsync writes a log of the inode and its names, not of what else has changed).

use std::fmt::Write as _;

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
    /// A block that a file has got since it was made durable shows what the file had there, or zeros, never what another had.
    pub only_own_data: bool,
    /// Writes survive in order among themselves and with changes of names, but for those through a mapping.
    pub data_in_order: bool,
}

/// A way to mount a file system that promises something of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// As the docs call it.
    pub name: &'static str,
    /// The file system.
    pub kind: FileSystem,
    /// The mount option that chooses it; none for what comes without.
    pub option: Option<&'static str>,
    /// What it promises.
    pub promise: Promise,
}

const ORDERED: Promise = Promise {
    names_in_order: true,
    fsync_keeps_name: true,
    sync_flushes_overwrites: true,
    only_own_data: true,
    data_in_order: false,
};

/// All of them. Of one file system the default comes first.
pub const MODES: [Mode; 5] = [
    Mode { name: "ext4", kind: FileSystem::Ext4, option: None, promise: ORDERED },
    Mode {
        name: "ext4 `data=journal`",
        kind: FileSystem::Ext4,
        option: Some("data=journal"),
        promise: Promise { data_in_order: true, ..ORDERED },
    },
    Mode {
        name: "ext4 `data=writeback`",
        kind: FileSystem::Ext4,
        option: Some("data=writeback"),
        promise: Promise { only_own_data: false, ..ORDERED },
    },
    Mode {
        name: "xfs",
        kind: FileSystem::Xfs,
        option: None,
        promise: Promise { sync_flushes_overwrites: false, ..ORDERED },
    },
    Mode {
        name: "btrfs",
        kind: FileSystem::Btrfs,
        option: None,
        promise: Promise { names_in_order: false, ..ORDERED },
    },
];

/// A line of the table of promises.
struct Row {
    words: &'static str,
    source: &'static str,
    of: fn(&Promise) -> bool,
}

const ROWS: [Row; 6] = [
    Row {
        words: "a file's data are durable when its fsync or fdatasync has returned",
        source: "POSIX, fsync(2)",
        of: |_| true,
    },
    Row {
        words: "changes of names survive in their order",
        source: "one journal or log, in order; btrfs logs an inode by itself (`tree-log.c`)",
        of: |promise| promise.names_in_order,
    },
    Row {
        words: "fsync of a new file keeps its name",
        source: "`fs/ext4/fsync.c`, the order of xfs's log, `tree-log.c`",
        of: |promise| promise.fsync_keeps_name,
    },
    Row {
        words: "sync flushes the disk after an overwrite in place",
        source: "`ext4_sync_fs` sends a flush; `xfs_fs_sync_fs` forces the log only",
        of: |promise| promise.sync_flushes_overwrites,
    },
    Row {
        words: "a new block shows only what its file had there, or zeros",
        source: "ordered mode; unwritten extents; copy on write; not with `data=writeback` (`Documentation/admin-guide/ext4.rst`)",
        of: |promise| promise.only_own_data,
    },
    Row {
        words: "writes survive in order, among themselves and with names",
        source: "`data=journal`: data go through the journal; not those through a mapping, which join it at write-back",
        of: |promise| promise.data_in_order,
    },
];

impl Promise {
    /// That of a file system with these mount options.
    pub fn of(kind: FileSystem, options: &[String]) -> Self {
        let words = || options.iter().flat_map(|option| option.split(',')).map(str::trim);
        let chosen = MODES.iter().filter(|mode| mode.kind == kind).rev();
        let is_chosen = |mode: &&Mode| mode.option.is_none_or(|option| words().any(|word| word == option));
        chosen.clone().find(is_chosen).map_or(ORDERED, |mode| mode.promise)
    }
}

/// What each promises, as a table of Markdown.
pub fn promise_table() -> String {
    let mut text = "| promise |".to_owned();
    MODES.iter().for_each(|mode| text += &format!(" {} |", mode.name));
    text += " source |\n|---|";
    text += &"---|".repeat(MODES.len() + 1);
    text.push('\n');
    for row in &ROWS {
        // Writing to a string cannot fail.
        let _ = write!(text, "| {} |", row.words);
        MODES.iter().for_each(|mode| text += if (row.of)(&mode.promise) { " yes |" } else { " |" });
        let _ = writeln!(text, " {} |", row.source);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_docs_is_that_of_the_promises() {
        let docs = include_str!("../../../docs/crash-states.md");
        assert!(docs.contains(&promise_table()), "docs/crash-states.md must hold:\n{}", promise_table());
    }

    #[test]
    fn a_mount_option_chooses_the_promise() {
        let of = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
            Promise::of(FileSystem::Ext4, &options)
        };
        assert_eq!(of(&[]), ORDERED);
        assert_eq!(of(&["noatime", "data=ordered"]), ORDERED);
        assert!(of(&["noatime,data=journal"]).data_in_order);
        assert!(!of(&["data=writeback"]).only_own_data);
        assert!(!Promise::of(FileSystem::Btrfs, &[]).names_in_order);
    }
}
