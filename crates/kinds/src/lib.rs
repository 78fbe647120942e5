//! What every block of a file system is, or every page of a database: [`read`] looks at a device or an image with ext4, xfs,
//! btrfs or ZFS, or at a file of SQLite or LMDB, and gives a [`Map`] that covers every byte once. [`read_cluster`] does so with every file of a
//! data directory of PostgreSQL.
//!
//! The readers are our own, over a [`Source`] that can only be read. What they meet may be damaged: every number is
//! checked against the device before it is believed, every structure is visited once, and what cannot be read is
//! [`Plain::Unknown`] and told among the damages. They trust structures by their magic numbers and places, not by their
//! checksums, but for ZFS, where a checksum says which copy is good, the journals of SQLite, where sums say how far they count, and PostgreSQL, where a
//! wrong sum is damage. Layouts: `fs/ext4/ext4.h`, `include/linux/jbd2.h`, `fs/xfs/libxfs/xfs_format.h` and
//! `include/uapi/linux/btrfs_tree.h` of Linux 6.12; *ZFS On-Disk Specification* (Sun, 2006); *Database File Format* (SQLite);
//! `mdb.c` of LMDB 0.9.
//!
//! This crate knows nothing of faults, mounts or trials.

mod btrfs;
mod bytes;
mod ext4;
mod kind;
mod lmdb;
mod map;
mod postgres;
mod reader;
mod source;
mod sqlite;
mod xfs;
mod zfs;

pub use kind::{Kind, Plain, Tree, words};
pub use map::{DAMAGES_MAX, Damage, Extent, FileSystemKind, Map, Owner, Total};
pub use postgres::{
    Cluster, ClusterFile, DataDirectory, Folder, read_cluster, read_cluster_file, read_cluster_files,
};
pub use source::{ReadOnlyFile, Source, beyond};

use rotproof_block::{Error, ErrorKind, Result};

/// What is read beside the kinds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// The paths of files and directories too, which takes longer.
    pub names: bool,
}

/// Which file system is on `source`, by its super block, or which file of SQLite or LMDB it is, by how it begins; `None` if it is none
/// that this crate reads.
pub fn detect(source: &dyn Source) -> Option<FileSystemKind> {
    let has = |offset: u64, magic: &[u8]| {
        let mut bytes = [0; 16];
        source.read_at(offset, &mut bytes[..magic.len()]).is_ok() && &bytes[..magic.len()] == magic
    };
    if has(0, b"XFSB") {
        Some(FileSystemKind::Xfs)
    } else if has(btrfs::SUPER_OFFSETS[0] + 64, btrfs::MAGIC) {
        Some(FileSystemKind::Btrfs)
    } else if has(1024 + 56, &ext4::MAGIC) {
        Some(FileSystemKind::Ext4)
    } else if zfs::is_there(source) {
        Some(FileSystemKind::Zfs)
    } else if has(0, sqlite::MAGIC) {
        Some(FileSystemKind::Sqlite)
    } else if has(0, &sqlite::JOURNAL_MAGIC) {
        Some(FileSystemKind::SqliteJournal)
    } else if has(0, &[&sqlite::WAL_MAGIC[..], &[0x82]].concat())
        || has(0, &[&sqlite::WAL_MAGIC[..], &[0x83]].concat())
    {
        Some(FileSystemKind::SqliteWal)
    } else if lmdb::is_there(source) {
        Some(FileSystemKind::Lmdb)
    } else {
        None
    }
}

/// Says of every byte of `source` what it is now.
///
/// Fails with [`ErrorKind::Missing`] where there is no file system that it reads, with [`ErrorKind::Unsupported`] where
/// one has a layout that it does not read, and with [`ErrorKind::Invalid`] where its super block is damaged so that
/// nothing can be found.
pub fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    match detect(source) {
        Some(FileSystemKind::Ext4) => ext4::read(source, options),
        Some(FileSystemKind::Xfs) => xfs::read(source, options),
        Some(FileSystemKind::Btrfs) => btrfs::read(source, options),
        Some(FileSystemKind::Zfs) => zfs::read(source, options),
        Some(FileSystemKind::Sqlite) => sqlite::read(source, options),
        Some(FileSystemKind::SqliteJournal) => sqlite::read_journal(source),
        Some(FileSystemKind::SqliteWal) => sqlite::read_wal(source),
        Some(FileSystemKind::Lmdb) => lmdb::read(source, options),
        // Its files are told from each other by their names.
        Some(FileSystemKind::Postgres) | None => Err(Error::new(
            ErrorKind::Missing,
            "there is no ext4, xfs, btrfs or ZFS, and no file of SQLite or LMDB; if there should be one, its first super block or its header is damaged",
        )),
    }
}
