//! XFS, versions 4 and 5: the headers of each allocation group, its B-trees, and from the B-tree of inodes every inode in
//! use with what it names. What the free-space tree does not call free and nobody has claimed is unknown.
//!
//! A realtime device is another device: of files there, nothing is claimed.

mod btree;
mod fork;
mod inode;
mod names;
mod super_block;

use std::collections::HashSet;

use rotproof_block::Result;

use crate::ReadOptions;
use crate::bytes::be32;
use crate::kind::{Kind, Plain};
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::{Names, bytes_at};
use crate::source::Source;

use btree::Short;
use super_block::SuperBlock;

/// Where no block is meant.
const NULL_BLOCK: u32 = u32::MAX;

struct Reader<'a> {
    source: &'a dyn Source,
    layout: SuperBlock,
    builder: MapBuilder,
    /// Byte offsets of the blocks of trees that were visited: none belongs to two.
    visited: HashSet<u64>,
    names: Option<Names>,
}

/// See [`crate::read`].
pub(crate) fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    let layout = SuperBlock::read(source)?;
    let (block_bytes, root) = (layout.block_bytes, layout.root_inode);
    let mut reader = Reader {
        source,
        layout,
        builder: MapBuilder::new(source.size()),
        visited: HashSet::new(),
        names: options.names.then(Names::default),
    };
    reader.claim_log_and_tail();
    for group in 0..reader.layout.groups {
        reader.read_group(group);
    }
    let Reader { mut builder, names, .. } = reader;
    if let Some(names) = names {
        builder.names = names.paths(&[Owner::inode(root)]);
    }
    Ok(builder.finish(FileSystemKind::Xfs, block_bytes))
}

impl Reader<'_> {
    fn claim(&mut self, rank: Rank, start: u64, blocks: u64, kind: impl Into<Kind>, owner: Owner) {
        let end = start.saturating_add(blocks.saturating_mul(self.layout.block_bytes));
        if start < end {
            self.builder.claim(rank, Extent::new(start..end, kind, owner));
        }
    }

    /// A stretch of blocks of a group; `false`, and damage, if the group has no such blocks.
    fn claim_in(&mut self, rank: Rank, group: u64, (block, blocks): (u64, u64), kind: Plain) -> bool {
        let offset = self.layout.offset_in(group, block.min(self.layout.group_blocks));
        if block.checked_add(blocks).is_none_or(|end| end > self.layout.blocks_of(group)) {
            let what =
                format!("group {group} has no {blocks} blocks at {block}, said to be {}", Kind::from(kind));
            self.builder.damaged(offset, what);
            return false;
        }
        self.claim(rank, offset, blocks, kind, Owner::NONE);
        true
    }

    fn block(&mut self, offset: u64, length: u64) -> Option<Vec<u8>> {
        bytes_at(self.source, offset, length as usize)
            .map_err(|error| self.builder.damaged(offset, error.to_string()))
            .ok()
    }

    fn claim_log_and_tail(&mut self) {
        let (layout, size) = (&self.layout, self.source.size());
        let end = layout.blocks * layout.block_bytes;
        let log = (layout.log_start != 0).then(|| layout.offset_of(layout.log_start, layout.log_blocks));
        let blocks = layout.log_blocks;
        if end < size {
            self.builder.claim(Rank::Layout, Extent::new(end..size, Plain::Unused, Owner::NONE));
        }
        match log {
            Some(Some(offset)) => self.claim(Rank::Layout, offset, blocks, Plain::Log, Owner::NONE),
            Some(None) => {
                self.builder.damaged(0, "the super block says that the log is where there are no blocks");
            }
            None => {}
        }
    }

    /// The headers of a group, one sector each, and from them its trees.
    fn read_group(&mut self, group: u64) {
        let (sector, start) = (self.layout.sector_bytes, self.layout.offset_in(group, 0));
        let headers = [Plain::SuperBlock, Plain::Agf, Plain::Agi, Plain::Agfl];
        for (kind, from) in headers.into_iter().zip((start..).step_by(sector as usize)) {
            let extent = Extent::new(from..from + sector, kind, Owner::NONE);
            let extent = match kind {
                // The only one of which each group has the same.
                Plain::SuperBlock => extent.copy(u8::try_from(group).unwrap_or(u8::MAX), 0),
                _ => extent,
            };
            self.builder.claim(Rank::Layout, extent);
        }
        let behind = start + 4 * sector;
        let rest = behind.next_multiple_of(self.layout.block_bytes);
        if behind < rest {
            self.builder.claim(Rank::Layout, Extent::new(behind..rest, Plain::Unused, Owner::NONE));
        }
        let Some(bytes) = self.block(start, 4 * sector) else { return };
        let header = |number: usize| &bytes[number * sector as usize..];
        self.read_free_space(group, header(1), header(3));
        self.read_inode_trees(group, header(2));
    }

    fn read_free_space(&mut self, group: u64, agf: &[u8], agfl: &[u8]) {
        let at = self.layout.offset_in(group, 0) + self.layout.sector_bytes;
        if agf.get(..4) != Some(b"XAGF") {
            return self.builder.damaged(at, format!("group {group}: what should be its AGF is none"));
        }
        let field = |at: usize| be32(agf, at).unwrap_or(NULL_BLOCK);
        let mut trees = vec![
            (Short { kind: Plain::Bnobt, root: field(16), levels: field(28) }),
            (Short { kind: Plain::Cntbt, root: field(20), levels: field(32) }),
        ];
        if self.layout.has_rmapbt {
            trees.push(Short { kind: Plain::Rmapbt, root: field(24), levels: field(36) });
        }
        if self.layout.has_reflink {
            trees.push(Short { kind: Plain::Refcountbt, root: field(88), levels: field(92) });
        }
        for tree in trees {
            self.read_short_tree(group, &tree);
        }
        self.read_free_list(group, agfl, [field(40), field(44), field(48)]);
    }

    /// The blocks that the group keeps for its trees: a ring from `first` to `last`.
    fn read_free_list(&mut self, group: u64, agfl: &[u8], [first, last, count]: [u32; 3]) {
        let header = if self.layout.is_v5 { 36 } else { 0 };
        let slots = ((self.layout.sector_bytes - header) / 4) as u32;
        if count == 0 {
            return;
        }
        if first >= slots || last >= slots || count > slots {
            let at = self.layout.offset_in(group, 0) + self.layout.sector_bytes;
            return self
                .builder
                .damaged(at, format!("group {group}: its list of free blocks has no such slots"));
        }
        for slot in (0..count).map(|index| (first + index) % slots) {
            let block = be32(agfl, header as usize + 4 * slot as usize).unwrap_or(NULL_BLOCK);
            self.claim_in(Rank::Structure, group, (u64::from(block), 1), Plain::AgflBlock);
        }
    }

    fn read_inode_trees(&mut self, group: u64, agi: &[u8]) {
        let at = self.layout.offset_in(group, 0) + 2 * self.layout.sector_bytes;
        if agi.get(..4) != Some(b"XAGI") {
            return self.builder.damaged(at, format!("group {group}: what should be its AGI is none"));
        }
        let field = |at: usize| be32(agi, at).unwrap_or(NULL_BLOCK);
        let tree = Short { kind: Plain::Inobt, root: field(20), levels: field(24) };
        let free = Short { kind: Plain::Finobt, root: field(328), levels: field(332) };
        let chunks = self.read_short_tree(group, &tree);
        if self.layout.has_finobt {
            self.read_short_tree(group, &free);
        }
        for chunk in chunks {
            self.read_chunk(group, &chunk);
        }
    }
}
