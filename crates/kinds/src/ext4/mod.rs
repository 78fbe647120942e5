//! ext4, and ext2 and ext3 as far as they are laid out alike.
//!
//! The layout follows from the super block and the group descriptors; then every inode in use is followed to its blocks.
//! What a block bitmap calls used and nobody has claimed is unknown.

mod directory;
mod group;
mod inode;
mod journal;
mod super_block;

use std::collections::HashSet;
use std::ops::Range;

use rotproof_block::Result;

use crate::kind::{Kind, Plain};
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::{Names, bytes_at};
use crate::source::Source;
use crate::{ReadOptions, bytes};

use group::Group;
use inode::Inode;
use super_block::SuperBlock;

/// 0xEF53.
pub(crate) const MAGIC: [u8; 2] = [0x53, 0xef];

const INODE_BAD_BLOCKS: u32 = 1;
const INODE_ROOT: u32 = 2;
const INODE_RESIZE: u32 = 7;

/// What is known while an ext4 is read.
struct Reader<'a> {
    source: &'a dyn Source,
    layout: SuperBlock,
    builder: MapBuilder,
    /// Blocks of extent trees and indirect blocks that were visited: none belongs to two files.
    visited: HashSet<u64>,
    names: Option<Names>,
}

/// Blocks of a file that follow each other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// First block in the file.
    logical: u64,
    /// First block on the device.
    physical: u64,
    /// How many.
    blocks: u64,
}

/// See [`crate::read`].
pub(crate) fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    let layout = SuperBlock::read(source)?;
    let block_bytes = layout.block_bytes;
    let mut reader = Reader {
        source,
        layout,
        builder: MapBuilder::new(source.size()),
        visited: HashSet::new(),
        names: options.names.then(Names::default),
    };
    reader.claim_layout();
    for number in 0..reader.layout.groups {
        if let Some(group) = Group::read(&mut reader, number) {
            reader.claim_group(&group);
            reader.read_inodes(&group);
        }
    }
    let Reader { mut builder, names, .. } = reader;
    if let Some(names) = names {
        builder.names = names.paths(&[Owner::inode(u64::from(INODE_ROOT))]);
    }
    Ok(builder.finish(FileSystemKind::Ext4, block_bytes))
}

impl Reader<'_> {
    fn claim(&mut self, rank: Rank, blocks: Range<u64>, kind: impl Into<Kind>, owner: Owner) {
        let extent = Extent::new(self.layout.bytes(blocks), kind, owner);
        if extent.start < extent.end {
            self.builder.claim(rank, extent);
        }
    }

    fn damaged(&mut self, block: u64, what: impl Into<String>) {
        self.builder.damaged(block.saturating_mul(self.layout.block_bytes), what);
    }

    /// Whether such blocks are on the file system; if not, it is damage found in `inode`.
    fn is_there(&mut self, inode: u32, blocks: &Range<u64>) -> bool {
        let is_there = blocks.start >= self.layout.first_data_block && blocks.end <= self.layout.blocks;
        if !is_there {
            self.damaged(
                blocks.start,
                format!("inode {inode} names a block that the file system does not have"),
            );
        }
        is_there
    }

    fn block(&mut self, block: u64) -> Option<Vec<u8>> {
        let (offset, length) =
            (block.checked_mul(self.layout.block_bytes)?, self.layout.block_bytes as usize);
        match bytes_at(self.source, offset, length) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.builder.damaged(offset, error.to_string());
                None
            }
        }
    }

    /// Super blocks and descriptors with their copies, and what lies before and behind everything.
    fn claim_layout(&mut self) {
        let layout = &self.layout;
        let end = layout.blocks * layout.block_bytes;
        let mut claims = Vec::new();
        if layout.first_data_block > 0 {
            claims.push(Extent::new(0..layout.block_bytes, Plain::Unused, Owner::NONE));
        }
        if end < self.source.size() {
            claims.push(Extent::new(end..self.source.size(), Plain::Unused, Owner::NONE));
        }
        let first = layout.first_block_of(0);
        let with_super: Vec<u64> = (0..layout.groups).filter(|&group| layout.has_super(group)).collect();
        let copy = |number: usize, of: u64, block: u64, kind: Plain| {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            Extent::new(layout.bytes(block..block + 1), kind, Owner::NONE)
                .copy(number, of * layout.block_bytes)
        };
        for (number, group) in with_super.iter().enumerate() {
            claims.push(copy(number, first, layout.first_block_of(*group), Plain::SuperBlock));
        }
        for block in 0..layout.descriptor_blocks() {
            let places = layout.descriptor_places(block, &with_super);
            let Some(&of) = places.first() else { continue };
            claims.extend(
                places.iter().enumerate().map(|(number, &at)| copy(number, of, at, Plain::GroupDescriptors)),
            );
        }
        for group in with_super {
            let from = layout.first_block_of(group) + 1 + layout.first_meta_group;
            let reserved = from..(from + layout.reserved_gdt_blocks).min(layout.blocks_of(group).end);
            if !reserved.is_empty() {
                claims.push(Extent::new(layout.bytes(reserved), Plain::ReservedGdt, Owner::NONE));
            }
        }
        if layout.multi_mount_block > 0 {
            let block = layout.multi_mount_block..layout.multi_mount_block.saturating_add(1);
            claims.push(Extent::new(layout.bytes(block), Plain::MultiMount, Owner::NONE));
        }
        for claim in claims {
            self.builder.claim(Rank::Layout, claim);
        }
    }

    /// The fixed parts of a group, and what its bitmap calls free.
    fn claim_group(&mut self, group: &Group) {
        let blocks = |first: u64, count: u64| first..first.saturating_add(count);
        let table_blocks =
            (self.layout.inodes_per_group * self.layout.inode_bytes).div_ceil(self.layout.block_bytes);
        for (first, count, kind) in [
            (group.block_bitmap, 1, Plain::BlockBitmap),
            (group.inode_bitmap, 1, Plain::InodeBitmap),
            (group.inode_table, table_blocks, Plain::InodeTable),
        ] {
            self.claim(Rank::Layout, blocks(first, count), kind, Owner::NONE);
        }
        let all = self.layout.blocks_of(group.number);
        if group.is_block_bitmap_unset {
            self.claim(Rank::Free, all, Plain::Free, Owner::NONE);
            return;
        }
        let Some(bitmap) = self.block(group.block_bitmap) else { return };
        let mut free = all.start;
        for block in all.clone() {
            if bytes::bit(&bitmap, block - all.start) == Some(true) {
                self.claim(Rank::Free, free..block, Plain::Free, Owner::NONE);
                free = block + 1;
            }
        }
        self.claim(Rank::Free, free..all.end, Plain::Free, Owner::NONE);
    }

    fn read_inodes(&mut self, group: &Group) {
        if group.inodes_used == 0 {
            return;
        }
        let Some(bitmap) = self.block(group.inode_bitmap) else { return };
        let (each, count) = (self.layout.inode_bytes, group.inodes_used);
        let offset = group.inode_table.saturating_mul(self.layout.block_bytes);
        let table = match bytes_at(self.source, offset, (count * each) as usize) {
            Ok(table) => table,
            Err(error) => return self.builder.damaged(offset, error.to_string()),
        };
        for (index, raw) in (0..count).zip(table.chunks_exact(each as usize)) {
            let number = u32::try_from(group.number * self.layout.inodes_per_group + index + 1);
            let (Some(true), Ok(number)) = (bytes::bit(&bitmap, index), number) else { continue };
            if let Some(inode) = Inode::parse(number, offset + index * each, raw) {
                self.read_inode(&inode);
            }
        }
    }

    /// Claims all that belongs to an inode.
    fn read_inode(&mut self, inode: &Inode) {
        let number = inode.number;
        let owner = Owner::inode(u64::from(number));
        if inode.xattr_block > 0 {
            let block = inode.xattr_block..inode.xattr_block.saturating_add(1);
            if self.is_there(number, &block) {
                self.claim(Rank::Structure, block, Plain::Xattr, owner);
            }
        }
        if !inode.has_blocks() {
            return;
        }
        let runs = self.runs_of(inode);
        if number == INODE_RESIZE {
            // Its blocks are those kept for descriptors, which the layout has claimed.
            return;
        }
        if number == self.layout.journal_inode {
            return self.read_journal(&runs, owner);
        }
        let (rank, kind) = if self.layout.quota_inodes.contains(&number) {
            (Rank::Structure, Plain::Quota)
        } else if number == self.layout.orphan_inode {
            (Rank::Structure, Plain::OrphanFile)
        } else if number == INODE_BAD_BLOCKS {
            (Rank::Structure, Plain::BadBlocks)
        } else if inode.is_of_xattr() {
            (Rank::Content, Plain::Xattr)
        } else if inode.is_directory() {
            (Rank::Content, Plain::Directory)
        } else if inode.is_symlink() {
            (Rank::Content, Plain::Symlink)
        } else {
            (Rank::Content, Plain::Data)
        };
        for run in &runs {
            self.claim(rank, run.physical..run.physical + run.blocks, kind, owner);
        }
        if kind == Plain::Directory {
            self.read_directory(inode, &runs);
        }
    }
}
