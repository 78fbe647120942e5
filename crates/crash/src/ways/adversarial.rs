//! What hurts most, by what blocks are: what commits without what it commits, only metadata, only data.
//!
//! What a block is says its beginning, for the file systems that say so there; what says nothing counts as data. That is
//! a guess about which states are worth a look, never about which are legal.

use super::Choice;
use crate::point::{Point, Survivor};
use crate::window::Volatile;

/// What a write is for, as far as its first bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The block that makes a transaction count.
    Commit,
    /// Another block of a journal or log.
    Journal,
    /// A block of a file system's own.
    Metadata,
    /// Anything else.
    Data,
}

/// Of jbd2, the journal of ext4: `include/linux/jbd2.h`, big-endian, followed by the kind of block.
const JBD2_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
const JBD2_COMMIT: [u8; 4] = [0, 0, 0, 2];
/// Of a record of xfs's log: `fs/xfs/libxfs/xfs_log_format.h`.
const XFS_LOG_MAGIC: [u8; 4] = [0xfe, 0xed, 0xba, 0xbe];
/// Of xfs's metadata: `xfs_format.h` and `xfs_da_format.h`.
const XFS_MAGICS: [&[u8; 4]; 13] = [
    b"XFSB", b"XAGF", b"XAGI", b"XAFL", b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"BMA3", b"XDB3", b"XDD3",
    b"R3FC", b"RMB3",
];
/// A superblock of btrfs has it at byte 64 (`include/uapi/linux/btrfs_tree.h`), of which 64 bytes are known here, so it
/// is told by its place instead.
const BTRFS_SUPER_PLACES: [u64; 2] = [64 << 10, 64 << 20];
const SQLITE_JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const SQLITE_WAL_MAGICS: [[u8; 4]; 2] = [[0x37, 0x7f, 0x06, 0x82], [0x37, 0x7f, 0x06, 0x83]];

impl Role {
    /// Of a write that begins at byte `offset` of the device with these bytes.
    pub fn of(offset: u64, beginning: &[u8; 64]) -> Self {
        let starts = |magic: &[u8]| beginning.starts_with(magic);
        if starts(&JBD2_MAGIC) {
            return if beginning[4..8] == JBD2_COMMIT { Role::Commit } else { Role::Journal };
        }
        // A record of xfs's log commits what is in it as a whole, and btrfs commits by its superblock.
        if starts(&XFS_LOG_MAGIC) || BTRFS_SUPER_PLACES.contains(&offset) {
            return Role::Commit;
        }
        if starts(&SQLITE_JOURNAL_MAGIC) || SQLITE_WAL_MAGICS.iter().any(|magic| starts(magic)) {
            return Role::Journal;
        }
        // Inodes of xfs begin with IN. A tree block of btrfs has its own place at byte 48 and a checksum before.
        let own_place = u64::from_le_bytes(beginning[48..56].try_into().expect("eight bytes"));
        let is_tree_block = own_place != 0 && own_place.is_multiple_of(4096) && beginning[32..48] != [0; 16];
        if XFS_MAGICS.iter().any(|magic| starts(*magic)) || starts(b"IN") || is_tree_block {
            return Role::Metadata;
        }
        Role::Data
    }
}

pub(super) fn choices(point: &Point) -> Vec<Choice> {
    let sector_bytes = point.sector_bytes();
    let role = |write: &Volatile| Role::of(write.sectors.start * sector_bytes, &write.beginning);
    let roles: Vec<(&Volatile, Role)> = point.volatile().iter().map(|write| (write, role(write))).collect();
    let only = |keep: &dyn Fn(usize, Role) -> bool| -> Choice {
        let kept = roles.iter().enumerate().filter(|(at, (_, role))| keep(*at, *role));
        kept.map(|(_, (write, _))| Survivor::whole(write.position)).collect()
    };
    let last = roles.len().saturating_sub(1);
    let last_submitted = (0..roles.len()).max_by_key(|&at| roles[at].0.position).unwrap_or(0);
    let mut choices = vec![
        // The last write usually commits the others: it alone, and all but it.
        only(&|at, _| at == last),
        only(&|at, _| at == last_submitted),
        only(&|at, _| at != last),
        only(&|_, role| role == Role::Commit),
        only(&|_, role| role != Role::Commit),
        only(&|_, role| matches!(role, Role::Commit | Role::Journal)),
        only(&|_, role| !matches!(role, Role::Commit | Role::Journal)),
        only(&|_, role| role == Role::Metadata),
        only(&|_, role| role != Role::Data),
        only(&|_, role| role == Role::Data),
    ];
    // Each commit block without what went before it in its own transaction: all before the last commit, and it.
    let commits: Vec<usize> = (0..roles.len()).filter(|&at| roles[at].1 == Role::Commit).collect();
    for (index, &commit) in commits.iter().enumerate() {
        let before = index.checked_sub(1).map_or(0, |before| commits[before] + 1);
        choices.push(only(&|at, _| at < before || at == commit));
    }
    choices.dedup();
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_by_their_beginning_or_their_place() {
        let of = |offset, first: &[u8]| {
            let mut beginning = [0; 64];
            beginning[..first.len()].copy_from_slice(first);
            Role::of(offset, &beginning)
        };
        assert_eq!(of(0, &[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1]), Role::Journal);
        assert_eq!(of(0, &[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]), Role::Commit);
        assert_eq!(of(0, b"XAGF"), Role::Metadata);
        assert_eq!(of(0, &[0xfe, 0xed, 0xba, 0xbe]), Role::Commit);
        assert_eq!(of(64 << 10, b"anything"), Role::Commit);
        assert_eq!(of(4096, b"anything"), Role::Data);
        let mut tree_block = [7; 56];
        tree_block[48..56].copy_from_slice(&(1u64 << 20).to_le_bytes());
        assert_eq!(of(4096, &tree_block), Role::Metadata);
    }
}
