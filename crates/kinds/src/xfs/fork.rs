//! A fork of an inode: content or attributes, inside the inode, as a list of extents, or as a B-tree of extents (bmbt).

use crate::bytes::{be16, be64};
use crate::kind::Plain;
use crate::map::{Owner, Rank};

use super::Reader;

const FORMAT_EXTENTS: u8 = 2;
const FORMAT_BTREE: u8 = 3;
/// Inside the inode.
pub(super) const FORMAT_LOCAL: u8 = 1;

const RECORD: usize = 16;
/// Deeper than any tree can be.
const LEVELS_MAX: u16 = 9;

/// The literal area of one fork.
pub(super) struct Fork {
    pub(super) format: u8,
    /// How many extents it says it has.
    pub(super) extents: u64,
    pub(super) bytes: Vec<u8>,
}

/// Blocks of a fork that follow each other on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// First block in the fork.
    pub(super) logical: u64,
    /// Byte offset on the device.
    pub(super) offset: u64,
    /// How many blocks.
    pub(super) blocks: u64,
}

impl Reader<'_> {
    /// The extents of a fork of the inode that lies at `at`; claims the blocks that say where they are.
    pub(super) fn runs_of(&mut self, inode: u64, at: u64, fork: &Fork) -> Vec<Run> {
        let mut runs = Vec::new();
        match fork.format {
            FORMAT_EXTENTS => {
                let count = usize::try_from(fork.extents).unwrap_or(usize::MAX);
                self.take_extents(inode, at, fork.bytes.chunks_exact(RECORD).take(count), &mut runs);
            }
            FORMAT_BTREE => {
                let level = be16(&fork.bytes, 0).unwrap_or(0);
                let count = usize::from(be16(&fork.bytes, 2).unwrap_or(0));
                if level == 0 || level > LEVELS_MAX {
                    self.builder.damaged(at, format!("inode {inode}: a tree of extents with {level} levels"));
                    return runs;
                }
                let pointers = 4 + fork.bytes.len().saturating_sub(4) / 16 * 8;
                for pointer in fork.bytes.get(pointers..).unwrap_or_default().chunks_exact(8).take(count) {
                    self.follow_extents(inode, be64(pointer, 0).unwrap_or(u64::MAX), level - 1, &mut runs);
                }
            }
            _ => {}
        }
        runs
    }

    fn follow_extents(&mut self, inode: u64, number: u64, level: u16, runs: &mut Vec<Run>) {
        let Some(offset) = self.layout.offset_of(number, 1) else {
            return self
                .builder
                .damaged(0, format!("inode {inode} names block {number}, which there is not"));
        };
        if !self.visited.insert(offset) {
            return self
                .builder
                .damaged(offset, format!("inode {inode} names a block that is another's already"));
        }
        self.claim(Rank::Structure, offset, 1, Plain::Bmbt, Owner::inode(inode));
        let Some(bytes) = self.block(offset, self.layout.block_bytes) else { return };
        let (magic, header) = if self.layout.is_v5 { (b"BMA3", 72) } else { (b"BMAP", 24) };
        if bytes.get(..4) != Some(&magic[..]) || be16(&bytes, 4) != Some(level) {
            return self
                .builder
                .damaged(offset, format!("inode {inode}: no tree of extents of level {level}"));
        }
        let count = usize::from(be16(&bytes, 6).unwrap_or(0));
        let body = &bytes[header..];
        if level == 0 {
            return self.take_extents(inode, offset, body.chunks_exact(RECORD).take(count), runs);
        }
        let pointers = body.len() / 16 * 8;
        for pointer in body.get(pointers..).unwrap_or_default().chunks_exact(8).take(count) {
            self.follow_extents(inode, be64(pointer, 0).unwrap_or(u64::MAX), level - 1, runs);
        }
    }

    /// Records of `xfs_bmbt_rec`: 1 bit for unwritten, 54 of the place in the file, 52 of the block, 21 of the length.
    fn take_extents<'b>(
        &mut self,
        inode: u64,
        at: u64,
        records: impl Iterator<Item = &'b [u8]>,
        runs: &mut Vec<Run>,
    ) {
        for record in records {
            let (Some(high), Some(low)) = (be64(record, 0), be64(record, 8)) else { continue };
            let logical = high >> 9 & ((1 << 54) - 1);
            let number = (high & 0x1ff) << 43 | low >> 21;
            let blocks = low & ((1 << 21) - 1);
            match self.layout.offset_of(number, blocks) {
                Some(offset) => runs.push(Run { logical, offset, blocks }),
                None => {
                    let what =
                        format!("inode {inode} names {blocks} blocks at {number}, which there are not");
                    self.builder.damaged(at, what);
                }
            }
        }
    }
}
