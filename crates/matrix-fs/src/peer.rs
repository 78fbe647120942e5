//! What stands beside a volume, and what a cell asks of it.

use std::fs::File;
use std::path::PathBuf;

use rotproof_block::Result;
use rotproof_matrix::Place;

/// A system that keeps two copies and checksums, as a volume does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// btrfs with data and metadata as RAID-1, by the kernel of this machine.
    Btrfs,
    /// A ZFS pool of one mirror, by `zfs-fuse`.
    Zfs,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Btrfs, Self::Zfs];

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::Zfs => "zfs",
        }
    }

    /// What it is called in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs RAID-1",
            Self::Zfs => "ZFS mirror",
        }
    }

    /// Whether there is such a place. ZFS has its checksums in the pointers that are its map.
    pub fn has(self, place: Place) -> bool {
        self == Self::Btrfs || !matches!(place, Place::SumsA | Place::Sums)
    }
}

/// A system that is made on two members.
pub(crate) trait System {
    /// Makes what is on the members usable. `reports` gets the errors that it answers on the way.
    fn mount(&mut self, reports: &mut Vec<String>) -> Result<()>;
    /// The folder in which files are.
    fn folder(&self) -> PathBuf;
    /// Opens a file so that what is read comes from the members.
    fn open_to_read(&self, path: &std::path::Path) -> std::io::Result<File>;
    /// Has all that was written brought to the members, and to its places there.
    fn commit(&mut self) -> Result<()>;
    /// Has everything brought to the members, and lets go of them.
    fn unmount(&mut self) -> Result<()>;
    /// Reads all and repairs what can be: how many errors there were.
    fn scrub(&mut self) -> Result<u64>;
    /// Where on a member a place is that is not known by what is written. Nothing is mounted.
    fn places(&mut self, place: Place) -> Result<Vec<u64>>;
    /// Ends it by force.
    fn kill(&mut self) -> Box<dyn Fn() + Send>;
}
