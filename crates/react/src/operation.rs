//! What is done to a file system or a database while a block of it is bad, and the files of a file system that it is done to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tree::Change;

/// An operation of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Mounting what was unmounted in order.
    Mount,
    /// Mounting, or opening, what lost its power: the journal, log or log tree is replayed.
    Recover,
    /// How much is free.
    Statfs,
    /// Listing a folder of 400 names.
    Readdir,
    /// Looking up names, links and attributes.
    Lookup,
    /// Reading two files.
    Read,
    /// Writing into files that are there, then syncfs.
    Write,
    /// Making files, a folder, a link and an attribute, then syncfs.
    Create,
    /// Removing files and a folder, then syncfs.
    Unlink,
    /// Renaming files, within a folder and into another, then syncfs.
    Rename,
    /// Fsync of a file that was written before.
    Fsync,
    /// Unmounting with changes that were not yet written.
    Umount,
    /// The file system's checker: it repairs ext4 and xfs, and only looks at btrfs.
    Fsck,
    /// Opening a database: its schema.
    Open,
    /// Reading all rows.
    Select,
    /// Looking rows up by an index.
    IndexLookup,
    /// A transaction that adds rows.
    Insert,
    /// A transaction that changes rows.
    Update,
    /// A transaction that removes rows.
    Delete,
    /// The database's own checker, which only looks.
    IntegrityCheck,
    /// Writing the whole database anew.
    Vacuum,
    /// Moving what is in the write-ahead log into the database.
    Checkpoint,
    /// Looking keys up, and leaving what is there as it is.
    Get,
    /// Counting what an environment has of pages and keys.
    Stat,
    /// Copying an environment page by page.
    Copy,
    /// Copying what an environment has in use.
    Compact,
}

/// A file in one piece.
pub(crate) const PLAIN: &str = "plain";
/// A file in many pieces.
pub(crate) const PIECES: &str = "pieces";
/// The files that [`Operation::Read`] reads.
pub(crate) const READ: [&str; 2] = [PLAIN, PIECES];
/// A file that is fsynced.
pub(crate) const SYNCED: &str = "synced";
const SMALL: &str = "small";
const MARKED: &str = "marked";
const LINK: &str = "link";
/// The folder with many names.
pub(crate) const MANY: &str = "many";
const OTHER: &str = "other";
/// Names in it.
const NAMES: u64 = 400;
const PIECES_BLOCKS: u64 = 700;

/// The name of a file in the folder with many.
fn name(index: u64) -> String {
    format!("{MANY}/a-name-that-takes-some-room-in-its-folder-{index:04}")
}

/// The files that every cell begins with, first half: what holds then is what a stale block has later.
pub(crate) fn first_half() -> Vec<Change> {
    let mut changes =
        vec![Change::Folder(MANY.into()), Change::Folder(OTHER.into()), Change::Folder("empty".into())];
    changes.extend((0..NAMES).step_by(2).map(|index| Change::Write(name(index), vec![0], index)));
    changes.push(Change::Write(PLAIN.into(), (0..64).collect(), 1));
    changes.push(Change::Write(PIECES.into(), (0..PIECES_BLOCKS).step_by(2).collect(), 1));
    changes.push(Change::Write(SYNCED.into(), (0..16).collect(), 1));
    changes.push(Change::Write(SMALL.into(), vec![0], 1));
    changes.push(Change::Write(MARKED.into(), vec![0], 1));
    changes.push(Change::Attribute(MARKED.into()));
    changes.push(Change::Link(LINK.into(), "x".repeat(900)));
    changes
}

/// The second half.
pub(crate) fn second_half() -> Vec<Change> {
    let mut changes: Vec<Change> =
        (1..NAMES).step_by(2).map(|index| Change::Write(name(index), vec![0], index)).collect();
    changes.push(Change::Write(PLAIN.into(), (0..64).collect(), 2));
    changes.push(Change::Write(PIECES.into(), (0..PIECES_BLOCKS).step_by(4).collect(), 2));
    changes.push(Change::Folder("second".into()));
    changes.push(Change::Attribute(SMALL.into()));
    changes
}

/// What is done and made durable before the power goes, for [`Operation::Recover`].
pub(crate) fn before_crash() -> Vec<Change> {
    let mut changes: Vec<Change> =
        (0..6).map(|index| Change::Write(format!("{OTHER}/late-{index}"), vec![0, 1], 50 + index)).collect();
    changes.extend([
        Change::Folder("late".into()),
        Change::Remove("empty".into()),
        Change::Rename(name(8), format!("{OTHER}/moved")),
        Change::Remove(name(10)),
        Change::Attribute(PLAIN.into()),
    ]);
    changes
}

impl Operation {
    /// Those on file systems, in the order of the table.
    pub const FILE_SYSTEM: [Operation; 13] = [
        Operation::Mount,
        Operation::Recover,
        Operation::Statfs,
        Operation::Readdir,
        Operation::Lookup,
        Operation::Read,
        Operation::Write,
        Operation::Create,
        Operation::Unlink,
        Operation::Rename,
        Operation::Fsync,
        Operation::Umount,
        Operation::Fsck,
    ];

    /// Those on SQLite, in the order of the table; the last is there with a write-ahead log only.
    pub const DATABASE: [Operation; 10] = [
        Operation::Open,
        Operation::Recover,
        Operation::Select,
        Operation::IndexLookup,
        Operation::Insert,
        Operation::Update,
        Operation::Delete,
        Operation::IntegrityCheck,
        Operation::Vacuum,
        Operation::Checkpoint,
    ];

    /// Those on LMDB, in the order of the table.
    pub const LMDB: [Operation; 9] = [
        Operation::Open,
        Operation::Recover,
        Operation::Select,
        Operation::Get,
        Operation::Insert,
        Operation::Update,
        Operation::Stat,
        Operation::Copy,
        Operation::Compact,
    ];

    /// All that there are.
    pub fn all() -> impl Iterator<Item = Operation> {
        let others = Self::DATABASE.into_iter().filter(|operation| *operation != Operation::Recover);
        let of_lmdb = Self::LMDB.into_iter().filter(|operation| !Self::DATABASE.contains(operation));
        Self::FILE_SYSTEM.into_iter().chain(others).chain(of_lmdb)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Mount => "mount",
            Operation::Recover => "recover",
            Operation::Statfs => "statfs",
            Operation::Readdir => "readdir",
            Operation::Lookup => "lookup",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Create => "create",
            Operation::Unlink => "unlink",
            Operation::Rename => "rename",
            Operation::Fsync => "fsync",
            Operation::Umount => "umount",
            Operation::Fsck => "fsck",
            Operation::Open => "open",
            Operation::Select => "select",
            Operation::IndexLookup => "index_lookup",
            Operation::Insert => "insert",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::IntegrityCheck => "integrity_check",
            Operation::Vacuum => "vacuum",
            Operation::Checkpoint => "checkpoint",
            Operation::Get => "get",
            Operation::Stat => "stat",
            Operation::Copy => "copy",
            Operation::Compact => "compact",
        }
    }

    /// Whether it is done to a file system that is mounted.
    pub(crate) fn is_on_mounted(self) -> bool {
        !matches!(self, Operation::Mount | Operation::Recover | Operation::Fsck)
    }

    /// What is done before the block turns bad, and not made durable.
    pub(crate) fn before(self) -> Vec<Change> {
        match self {
            Operation::Fsync => vec![Change::Write(SYNCED.into(), (0..24).collect(), 7)],
            Operation::Umount => [Operation::Write, Operation::Create, Operation::Unlink, Operation::Rename]
                .into_iter()
                .flat_map(Self::changes)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// What it changes, before it asks for all to be written.
    pub(crate) fn changes(self) -> Vec<Change> {
        match self {
            Operation::Write => vec![
                Change::Write(PLAIN.into(), vec![3, 4, 40, 64, 65], 9),
                Change::Write(PIECES.into(), vec![1, 333, PIECES_BLOCKS + 1], 9),
            ],
            Operation::Create => vec![
                Change::Write(format!("{MANY}/new-with-a-name-that-takes-some-room"), vec![0, 1], 11),
                Change::Folder(format!("{OTHER}/new-folder")),
                Change::Write(format!("{OTHER}/new-folder/new"), vec![0], 12),
                Change::Attribute(format!("{OTHER}/new-folder/new")),
                Change::Link(format!("{OTHER}/new-link"), "y".repeat(900)),
            ],
            Operation::Unlink => vec![
                Change::Remove(name(20)),
                Change::Remove(name(21)),
                Change::Remove(SMALL.into()),
                Change::Remove("second".into()),
            ],
            Operation::Rename => vec![
                Change::Rename(name(30), format!("{MANY}/renamed-and-its-name-takes-room-too")),
                Change::Rename(name(31), format!("{OTHER}/moved-here")),
            ],
            _ => Vec::new(),
        }
    }

    /// Paths that [`Operation::Lookup`] looks up.
    pub(crate) fn looked_up() -> Vec<String> {
        let mut paths: Vec<String> = [2, 99, 201, 399].into_iter().map(name).collect();
        paths.extend([MARKED, LINK, SMALL, OTHER].map(str::to_owned));
        paths
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
