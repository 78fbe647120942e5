//! The extent tree: every stretch of addresses in use, and for data the first file that has it.

use std::ops::Range;

use crate::bytes::{le64, u8_at};
use crate::kind::Plain;
use crate::map::{Owner, Rank};

use super::node::Key;
use super::{Reader, TREE_ROOT};

const EXTENT_ITEM: u8 = 168;
const METADATA_ITEM: u8 = 169;
const EXTENT_DATA_REF: u8 = 178;
const SHARED_DATA_REF: u8 = 184;
const FLAG_DATA: u64 = 1;
/// `struct btrfs_extent_item`.
const ITEM_BYTES: usize = 24;

/// What the extent tree says, to be claimed once it was read.
#[derive(Default)]
pub(super) struct Extents {
    data: Vec<(Range<u64>, Owner)>,
    nodes: Vec<u64>,
}

impl Extents {
    pub(super) fn take(&mut self, key: Key, item: &[u8]) {
        let is_data = le64(item, 16).is_some_and(|flags| flags & FLAG_DATA != 0);
        match key.kind {
            EXTENT_ITEM if is_data => {
                let range = key.object..key.object.saturating_add(key.offset);
                self.data.push((range, data_owner(item)));
            }
            EXTENT_ITEM | METADATA_ITEM => self.nodes.push(key.object),
            _ => {}
        }
    }
}

/// Whose data it is, as far as the item itself says: of data that snapshots share it only says which node has it.
fn data_owner(item: &[u8]) -> Owner {
    let mut at = ITEM_BYTES;
    while let Some(kind) = u8_at(item, at) {
        match kind {
            EXTENT_DATA_REF => {
                return Owner { tree: le64(item, at + 1), inode: le64(item, at + 9) };
            }
            // Kind, address of the node, count.
            SHARED_DATA_REF => at += 13,
            // Every other kind has eight bytes.
            _ => at += 9,
        }
    }
    Owner::NONE
}

impl Reader<'_> {
    /// Claims data and what else is in use; the rest of every chunk is free.
    pub(super) fn claim_extents(&mut self, extents: Extents) {
        for (range, owner) in extents.data {
            // Files of the tree of roots are caches of free space.
            let kind = if owner.tree == Some(TREE_ROOT) { Plain::SpaceCache } else { Plain::Data };
            if !self.claim(Rank::Content, &range, kind, owner) && !self.is_elsewhere(&range) {
                let what = format!("the extent tree has data at address {}, which no chunk has", range.start);
                self.builder.damaged(0, what);
            }
        }
        for address in extents.nodes {
            let range = address..address.saturating_add(self.layout.node_bytes);
            self.claim(Rank::InUse, &range, Plain::Unknown, Owner::NONE);
        }
    }

    /// Whether a chunk has these addresses on other devices only.
    fn is_elsewhere(&self, range: &Range<u64>) -> bool {
        self.chunks.iter().any(|(first, chunk)| {
            first <= range.start
                && range.end <= first.saturating_add(chunk.length)
                && chunk.stripes.is_empty()
        })
    }
}
