//! The file systems of a kernel that can be put on trial, and what a trial says of one.

use std::fmt;

use rotproof_spec::Bytes;

/// A file system and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemSpec {
    /// Which one.
    pub kind: FileSystem,
    /// Further arguments of mkfs, one each.
    pub mkfs: Vec<String>,
    /// Further mount options, one each.
    pub mount: Vec<String>,
    /// How btrfs keeps data, by the name of mkfs.btrfs: single, dup, raid0, raid1, raid10 ... Default: as mkfs.btrfs does.
    pub data: Option<String>,
    /// The same of its metadata. Default: as `data` says, else as mkfs.btrfs does.
    pub metadata: Option<String>,
    /// It is on the devices already, and is mounted as it is.
    pub existing: bool,
}

impl FileSystemSpec {
    /// Without options.
    pub fn new(kind: FileSystem) -> Self {
        Self { kind, mkfs: Vec::new(), mount: Vec::new(), data: None, metadata: None, existing: false }
    }
}

/// The file systems that Rotproof can put on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileSystem {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// JFS: of machines alone.
    Jfs,
    /// F2FS: of machines alone.
    F2fs,
}

impl FileSystem {
    /// Those of this machine's own kernel, in the order in which messages name them.
    pub const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
    /// Those that only guests are asked to mount: few kernels of hosts have them.
    pub const OF_MACHINES: [FileSystem; 2] = [FileSystem::Jfs, FileSystem::F2fs];

    /// The name in trial files, of the kernel's driver, and behind `mkfs.`.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
            FileSystem::Jfs => "jfs",
            FileSystem::F2fs => "f2fs",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::OF_MACHINES).find(|kind| kind.name() == name)
    }

    /// The smallest device that makes sense. mkfs.xfs refuses less than 300 MiB, mkfs.btrfs less than 109 MiB
    /// (versions 6.1 and 6.2, default options); mkfs.ext4 takes less, but below 2 MiB leaves out the journal. mkfs.jfs refuses less than 16 MiB, and what mkfs.f2fs makes of
    /// less than 64 MiB has hardly any room.
    pub fn device_size_min(self) -> Bytes {
        Bytes(match self {
            FileSystem::Ext4 => 2 << 20,
            FileSystem::Xfs => 300 << 20,
            FileSystem::Btrfs => 109 << 20,
            FileSystem::Jfs => 16 << 20,
            FileSystem::F2fs => 64 << 20,
        })
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
