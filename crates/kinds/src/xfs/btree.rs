//! The B-trees of an allocation group: `struct xfs_btree_block` with short pointers.

use crate::bytes::{be16, be32, be64};
use crate::kind::{Kind, Plain};
use crate::map::Rank;

use super::Reader;

/// Deeper than any tree can be: `XFS_BTREE_MAXLEVELS`.
const LEVELS_MAX: u32 = 9;
/// Set in the block number of a record of the refcount tree: set aside for a copy under way.
const COPY_ON_WRITE: u32 = 1 << 31;

/// A tree of a group.
pub(super) struct Short {
    pub(super) kind: Plain,
    /// A block of the group.
    pub(super) root: u32,
    pub(super) levels: u32,
}

/// A record of the tree of inodes: 64 inodes, of which some may be left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// The number of the first within the group.
    pub(super) first: u32,
    /// A bit for each 4 inodes that there are not.
    pub(super) holes: u16,
    /// A bit for each inode that is not in use.
    pub(super) free: u64,
}

/// Sizes and magic numbers of a kind of tree.
struct Shape {
    magic: [u8; 4],
    record: usize,
    key: usize,
}

fn shape(kind: Plain, is_v5: bool) -> Shape {
    let (new, old, record, key) = match kind {
        Plain::Bnobt => (b"AB3B", b"ABTB", 8, 8),
        Plain::Cntbt => (b"AB3C", b"ABTC", 8, 8),
        Plain::Inobt => (b"IAB3", b"IABT", 16, 4),
        Plain::Finobt => (b"FIB3", b"FIBT", 16, 4),
        // The lowest and the highest key of what is below.
        Plain::Rmapbt => (b"RMB3", b"RMB3", 24, 40),
        _ => (b"R3FC", b"R3FC", 12, 4),
    };
    Shape { magic: if is_v5 { *new } else { *old }, record, key }
}

impl Reader<'_> {
    /// Claims the blocks of a tree, and what its records say; gives the chunks of inodes that the tree of inodes has.
    pub(super) fn read_short_tree(&mut self, group: u64, tree: &Short) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        if tree.levels == 0 || tree.levels > LEVELS_MAX {
            let at = self.layout.offset_in(group, 0);
            let what = format!("group {group}: {} with {} levels", Kind::from(tree.kind), tree.levels);
            self.builder.damaged(at, what);
        } else {
            self.follow(group, tree, (tree.root, tree.levels - 1), &mut chunks);
        }
        chunks
    }

    fn follow(&mut self, group: u64, tree: &Short, (block, level): (u32, u32), chunks: &mut Vec<Chunk>) {
        let header = if self.layout.is_v5 { 56 } else { 16 };
        let shape = shape(tree.kind, self.layout.is_v5);
        let block = u64::from(block);
        if !self.claim_in(Rank::Structure, group, (block, 1), tree.kind) {
            return;
        }
        let offset = self.layout.offset_in(group, block);
        if !self.visited.insert(offset) {
            return self.builder.damaged(offset, format!("{} names a block twice", Kind::from(tree.kind)));
        }
        let Some(bytes) = self.block(offset, self.layout.block_bytes) else { return };
        if bytes.get(..4) != Some(&shape.magic[..]) || be16(&bytes, 4).map(u32::from) != Some(level) {
            return self
                .builder
                .damaged(offset, format!("no block of {} of level {level}", Kind::from(tree.kind)));
        }
        let count = usize::from(be16(&bytes, 6).unwrap_or(0));
        let body = &bytes[header.min(bytes.len())..];
        if level == 0 {
            for record in body.chunks_exact(shape.record).take(count) {
                self.take_record(group, tree.kind, record, chunks);
            }
            return;
        }
        let pointers = body.len() / (shape.key + 4) * shape.key;
        for pointer in body.get(pointers..).unwrap_or_default().chunks_exact(4).take(count) {
            let child = be32(pointer, 0).unwrap_or(super::NULL_BLOCK);
            self.follow(group, tree, (child, level - 1), chunks);
        }
    }

    fn take_record(&mut self, group: u64, kind: Plain, record: &[u8], chunks: &mut Vec<Chunk>) {
        let field = |at: usize| be32(record, at).unwrap_or(0);
        let stretch = |start: u32| (u64::from(start), u64::from(field(4)));
        match kind {
            Plain::Bnobt => {
                self.claim_in(Rank::Free, group, stretch(field(0)), Plain::Free);
            }
            Plain::Refcountbt if field(0) & COPY_ON_WRITE != 0 => {
                let start = field(0) & !COPY_ON_WRITE;
                self.claim_in(Rank::InUse, group, stretch(start), Plain::CopyOnWrite);
            }
            Plain::Inobt => chunks.push(Chunk {
                first: field(0),
                holes: if self.layout.has_sparse_inodes { be16(record, 4).unwrap_or(0) } else { 0 },
                free: be64(record, 8).unwrap_or(u64::MAX),
            }),
            _ => {}
        }
    }
}
