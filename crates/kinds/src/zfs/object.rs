//! Objects: what their dnodes say of them, and the kinds of their blocks.
//!
//! Layout: *ZFS On-Disk Specification*, chapters 3 to 6, and `sys/dmu.h`, `sys/zfs_znode.h` of OpenSolaris.

use crate::bytes::{le16, le64, u8_at};
use crate::kind::Plain;

use super::block_pointer::{BlockPointer, POINTER_BYTES};

pub(super) const DNODE_BYTES: usize = 512;
const POINTERS_OFFSET: usize = 64;
const POINTERS_MAX: usize = 3;
/// More levels no object has.
const LEVELS_MAX: u8 = 8;

/// Types of objects that are of interest.
pub(super) const OBJECT_ARRAY: u8 = 2;
pub(super) const POINTER_LIST: u8 = 5;
pub(super) const SPACE_MAP: u8 = 8;
pub(super) const DNODES: u8 = 10;
pub(super) const DATASET: u8 = 16;
const ZNODE: u8 = 17;
const FILE: u8 = 19;
pub(super) const DIRECTORY: u8 = 20;
const VOLUME: u8 = 23;
/// An attribute, or the folder that holds a file's attributes: `ZFS_XATTR`.
const FLAG_XATTR: u64 = 1;
const MODE_TYPE: u64 = 0o170_000;
const MODE_LINK: u64 = 0o120_000;

/// Which set an object is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// That of the pool itself.
    Mos,
    /// Of a file system, a volume or a snapshot.
    Dataset,
}

/// What a dnode says.
#[derive(Clone, Debug)]
pub(super) struct Dnode {
    pub(super) kind: u8,
    pub(super) levels: u8,
    /// Bytes of one of its blocks.
    pub(super) block_bytes: u64,
    pub(super) pointers: Vec<BlockPointer>,
    bonus_kind: u8,
    pub(super) bonus: Vec<u8>,
}

impl Dnode {
    /// The one at the beginning of `bytes`; `None` where there is no object.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let kind = u8_at(bytes, 0).filter(|&kind| kind != 0)?;
        let levels = u8_at(bytes, 2).filter(|levels| (1..=LEVELS_MAX).contains(levels))?;
        let count = usize::from(u8_at(bytes, 3)?).min(POINTERS_MAX);
        let pointer =
            |index: usize| BlockPointer::read(bytes.get(POINTERS_OFFSET + index * POINTER_BYTES..)?);
        let bonus = POINTERS_OFFSET + count * POINTER_BYTES;
        let bonus_end = (bonus + usize::from(le16(bytes, 10)?)).min(DNODE_BYTES);
        Some(Self {
            kind,
            levels,
            block_bytes: u64::from(le16(bytes, 8)?) * 512,
            pointers: (0..count).filter_map(pointer).collect(),
            bonus_kind: u8_at(bytes, 4)?,
            bonus: bytes.get(bonus..bonus_end)?.to_vec(),
        })
    }

    /// Mode and flags of a file or directory.
    fn znode(&self) -> Option<(u64, u64)> {
        (self.bonus_kind == ZNODE).then_some(())?;
        Some((le64(&self.bonus, 72)?, le64(&self.bonus, 120)?))
    }

    /// Where the set of objects lies that a dataset is.
    pub(super) fn dataset(&self) -> Option<BlockPointer> {
        (self.kind == DATASET && self.bonus_kind == DATASET).then_some(())?;
        BlockPointer::read(self.bonus.get(128..)?)
    }

    /// What its blocks are on `level`.
    pub(super) fn blocks_are(&self, set: Set, level: u8) -> Plain {
        match (set, self.kind, level) {
            (Set::Mos, DNODES, 0) => Plain::MosDnodes,
            (Set::Mos, OBJECT_ARRAY | SPACE_MAP | 7, 0) => Plain::SpaceMap,
            (Set::Mos, _, 0) => Plain::MosObject,
            (Set::Mos, _, _) => Plain::MosIndirect,
            (Set::Dataset, DNODES, 0) => Plain::Dnodes,
            (Set::Dataset, DNODES, _) => Plain::DnodesIndirect,
            (Set::Dataset, _, 1..) => Plain::Indirect,
            (Set::Dataset, FILE | DIRECTORY, 0) => match self.znode() {
                Some((_, flags)) if flags & FLAG_XATTR != 0 => Plain::Xattr,
                Some((mode, _)) if mode & MODE_TYPE == MODE_LINK => Plain::Symlink,
                _ if self.kind == DIRECTORY => Plain::Directory,
                _ => Plain::Data,
            },
            (Set::Dataset, VOLUME, 0) => Plain::Data,
            (Set::Dataset, _, 0) => Plain::FileSystemObject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dnode_says_what_its_blocks_are() {
        let mut bytes = vec![0; DNODE_BYTES];
        assert!(Dnode::read(&bytes).is_none(), "no object");
        (bytes[0], bytes[2], bytes[3], bytes[4], bytes[8], bytes[10]) = (FILE, 2, 1, ZNODE, 8, 8);
        bytes[11] = 1;
        let dnode = Dnode::read(&bytes).expect("an object");
        assert_eq!((dnode.block_bytes, dnode.pointers.len(), dnode.bonus.len()), (4096, 0, 264));
        let is = |bytes: &[u8], level| Dnode::read(bytes).expect("an object").blocks_are(Set::Dataset, level);
        assert_eq!((is(&bytes, 0), is(&bytes, 1)), (Plain::Data, Plain::Indirect));
        let bonus = POINTERS_OFFSET + POINTER_BYTES;
        bytes[bonus + 72..bonus + 80].copy_from_slice(&(MODE_LINK | 0o777).to_le_bytes());
        assert_eq!(is(&bytes, 0), Plain::Symlink);
        bytes[bonus + 120] = FLAG_XATTR as u8;
        assert_eq!(is(&bytes, 0), Plain::Xattr);
        bytes[2] = 200;
        assert!(Dnode::read(&bytes).is_none(), "no object has so many levels");
    }
}
