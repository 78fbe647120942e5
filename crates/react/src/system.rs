//! The file systems and databases that there are cells of.

use std::time::Duration;

use rotproof_subject::{FileSystem, FileSystemSpec, MachineKind, MachineSpec};

use crate::operation::Operation;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// One of the kernel of this machine.
    Kernel(FileSystem),
    /// One of the kernel of a guest.
    Guest(MachineKind, FileSystem),
    /// ZFS, by the program zfs-fuse.
    Zfs,
    /// A database.
    Database(Database),
}

/// A database, by the program that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// SQLite with a rollback journal.
    Sqlite,
    /// SQLite with a write-ahead log.
    SqliteWal,
    /// LMDB.
    Lmdb,
    /// PostgreSQL as it is made without being told otherwise.
    Postgres,
    /// PostgreSQL with checksums in its pages.
    PostgresChecksums,
}

impl From<FileSystem> for System {
    fn from(kind: FileSystem) -> Self {
        Self::Kernel(kind)
    }
}

impl System {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel(kind) | Self::Guest(_, kind) => kind.name(),
            Self::Zfs => "zfs",
            Self::Database(Database::Sqlite) => "sqlite",
            Self::Database(Database::SqliteWal) => "sqlite-wal",
            Self::Database(Database::Lmdb) => "lmdb",
            Self::Database(Database::Postgres) => "postgres",
            Self::Database(Database::PostgresChecksums) => "postgres-checksums",
        }
    }

    /// How long a cell may take, with the mount and the look at all files afterwards. The longest that was seen to end took 12 seconds
    /// with a kernel, about which whoever syncs this machine waits as long for one that hangs; and 7 with zfs-fuse.
    pub(crate) fn cell_max(self) -> Duration {
        match self {
            Self::Kernel(_) | Self::Guest(..) => Duration::from_secs(25),
            // Each script of a database has a time of its own.
            Self::Zfs | Self::Database(_) => Duration::from_secs(14),
        }
    }

    /// What is done to it, in the order of the table.
    pub fn operations(self) -> Vec<Operation> {
        match self {
            Self::Kernel(_) | Self::Guest(..) | Self::Zfs => Operation::FILE_SYSTEM.to_vec(),
            Self::Database(Database::Lmdb) => Operation::LMDB.to_vec(),
            Self::Database(kind) => {
                let all = Operation::DATABASE.into_iter();
                let has_log = kind == Database::SqliteWal;
                all.filter(|&operation| has_log || operation != Operation::Checkpoint).collect()
            }
        }
    }

    /// The size of the device: as small as the file system can be, with several groups; 0 where there is none.
    pub(crate) fn device_bytes(self) -> u64 {
        match self {
            Self::Zfs => 64 << 20,
            Self::Kernel(kind) | Self::Guest(_, kind) => match kind {
                FileSystem::Ext4 => 64 << 20,
                FileSystem::Xfs => 320 << 20,
                FileSystem::Btrfs => 160 << 20,
                FileSystem::Jfs | FileSystem::F2fs => kind.device_size_min().0,
            },
            Self::Database(_) => 0,
        }
    }
}

/// A machine of this kind with a file system, and nothing else said.
pub(crate) fn machine(kind: MachineKind, file_system: FileSystem) -> MachineSpec {
    MachineSpec { kind, ..MachineSpec::new(FileSystemSpec::new(file_system)) }
}
