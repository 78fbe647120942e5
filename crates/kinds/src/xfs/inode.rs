//! Chunks of inodes, and what each inode names. `struct xfs_dinode`.

use crate::bytes::{be16, be32, be64, u8_at};
use crate::kind::{Kind, Plain};
use crate::map::{Owner, Rank};

use super::Reader;
use super::btree::Chunk;
use super::fork::{Fork, Run};

const INODES_PER_CHUNK: u64 = 64;
const INODES_PER_HOLE: u64 = 4;

const FORMAT_MASK: u16 = 0xf000;
const DIRECTORY: u16 = 0x4000;
const SYMLINK: u16 = 0xa000;
const FLAG_REALTIME: u16 = 1;

/// Parts of a directory begin at these bytes of it: `XFS_DIR2_LEAF_OFFSET`, `XFS_DIR2_FREE_OFFSET`.
const DIRECTORY_LEAF: u64 = 1 << 35;
const DIRECTORY_FREE: u64 = 2 << 35;

impl Reader<'_> {
    /// Claims the blocks of a chunk of inodes and follows those in use.
    pub(super) fn read_chunk(&mut self, group: u64, chunk: &Chunk) {
        let layout = &self.layout;
        let (each, per_block) = (layout.inode_bytes, layout.inodes_per_block);
        let first = u64::from(chunk.first);
        let (block, blocks) = (first / per_block, (first % per_block + INODES_PER_CHUNK).div_ceil(per_block));
        if block + blocks > layout.blocks_of(group) && chunk.holes == 0 {
            let offset = layout.offset_in(group, 0);
            return self.builder.damaged(offset, format!("group {group} has no inodes at block {block}"));
        }
        let is_hole = |index: u64| chunk.holes >> (index / INODES_PER_HOLE) & 1 == 1;
        let base = group << (layout.group_bits + layout.inode_bits) | first;
        // A block has inodes if one of them is none of those left out.
        for at in block..block + blocks {
            let inside = (at * per_block).max(first)..((at + 1) * per_block).min(first + INODES_PER_CHUNK);
            if inside.clone().all(|inode| is_hole(inode - first)) {
                continue;
            }
            if !self.claim_in(Rank::Structure, group, (at, 1), Plain::InodeChunk) {
                continue;
            }
            let offset = self.layout.offset_in(group, at);
            let Some(bytes) = self.block(offset, self.layout.block_bytes) else { continue };
            for inode in inside {
                let index = inode - first;
                if is_hole(index) || chunk.free >> index & 1 == 1 {
                    continue;
                }
                let from = (inode - at * per_block) * each;
                if let Some(raw) = bytes.get(from as usize..(from + each) as usize) {
                    self.read_inode(base + index, offset + from, raw);
                }
            }
        }
    }

    fn read_inode(&mut self, number: u64, offset: u64, raw: &[u8]) {
        if raw.get(..2) != Some(b"IN") {
            return self.builder.damaged(offset, format!("what should be inode {number} is none"));
        }
        let Some((forks, mode, flags)) =
            (|| Some((Forks::parse(self, raw)?, be16(raw, 2)?, be16(raw, 90)?)))()
        else {
            return self.builder.damaged(offset, format!("inode {number} says what cannot be"));
        };
        let owner = Owner::inode(number);
        let format = mode & FORMAT_MASK;
        let is_realtime = flags & FLAG_REALTIME != 0;
        let plain = if self.layout.quota_inodes.contains(&number) {
            Plain::Quota
        } else if self.layout.realtime_inodes.contains(&number) {
            Plain::RealtimeBitmap
        } else if format == DIRECTORY {
            Plain::Directory
        } else if format == SYMLINK {
            Plain::Symlink
        } else {
            Plain::Data
        };
        let mut runs = Vec::new();
        if !(is_realtime && plain == Plain::Data) {
            runs = self.runs_of(number, offset, &forks.data);
            for run in &runs {
                self.claim_run(run, plain, owner);
            }
        }
        if let Some(attributes) = &forks.attributes {
            for run in self.runs_of(number, offset, attributes) {
                self.claim(Rank::Content, run.offset, run.blocks, Plain::Xattr, owner);
            }
        }
        if plain == Plain::Directory && self.names.is_some() {
            self.take_names(owner, &forks.data, &runs);
        }
    }

    fn claim_run(&mut self, run: &Run, plain: Plain, owner: Owner) {
        let at = run.logical.saturating_mul(self.layout.block_bytes);
        let kind = match plain {
            Plain::Directory if at >= DIRECTORY_FREE => Plain::DirectoryFree,
            Plain::Directory if at >= DIRECTORY_LEAF => Plain::DirectoryLeaf,
            other => other,
        };
        self.claim(Rank::Content, run.offset, run.blocks, Kind::from(kind), owner);
    }
}

/// The two forks of an inode: content and extended attributes.
struct Forks {
    data: Fork,
    attributes: Option<Fork>,
}

impl Forks {
    fn parse(reader: &Reader<'_>, raw: &[u8]) -> Option<Self> {
        let version = u8_at(raw, 4)?;
        let start = if version >= 3 { 176 } else { 100 };
        let fork_offset = usize::from(u8_at(raw, 82)?) * 8;
        let (data_count, attribute_count) = match reader.layout.has_large_counts && version >= 3 {
            true => (be64(raw, 24)?, u64::from(be32(raw, 76)?)),
            false => (u64::from(be32(raw, 76)?), u64::from(be16(raw, 80)?)),
        };
        let body = raw.get(start..)?;
        let (data, attributes) = match fork_offset {
            0 => (body, None),
            _ => (body.get(..fork_offset)?, Some(body.get(fork_offset..)?)),
        };
        let fork =
            |format: u8, count: u64, bytes: &[u8]| Fork { format, extents: count, bytes: bytes.to_owned() };
        let attribute_format = u8_at(raw, 83)?;
        Some(Self {
            data: fork(u8_at(raw, 5)?, data_count, data),
            attributes: attributes.map(|bytes| fork(attribute_format, attribute_count, bytes)),
        })
    }
}
