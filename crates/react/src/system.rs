//! The file systems that there are cells of.

use std::time::Duration;

use rotproof_subject::FileSystem;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// One of the kernel of this machine.
    Kernel(FileSystem),
    /// ZFS, by the program zfs-fuse.
    Zfs,
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
            Self::Kernel(kind) => kind.name(),
            Self::Zfs => "zfs",
        }
    }

    /// How long a cell may take, with the mount and the look at all files afterwards. The longest that was seen to end took 12 seconds
    /// with a kernel, about which whoever syncs this machine waits as long for one that hangs; and 7 with zfs-fuse.
    pub(crate) fn cell_max(self) -> Duration {
        match self {
            Self::Kernel(_) => Duration::from_secs(25),
            Self::Zfs => Duration::from_secs(14),
        }
    }

    /// The size of the device: as small as the file system can be, with several groups.
    pub(crate) fn device_bytes(self) -> u64 {
        match self {
            Self::Kernel(FileSystem::Ext4) | Self::Zfs => 64 << 20,
            Self::Kernel(FileSystem::Xfs) => 320 << 20,
            Self::Kernel(FileSystem::Btrfs) => 160 << 20,
        }
    }
}
