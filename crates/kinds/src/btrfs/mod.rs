//! btrfs: the super block leads to the chunks, the chunks to the trees, and the extent tree says whose all data is. What
//! it calls in use and no tree reaches is unknown.
//!
//! Of a file system on several devices the map is of the one that is looked at. Its trees must be found on it: of chunks
//! that are spread over devices in pieces (raid0, 10, 5, 6) nothing is read.

mod chunk;
mod extents;
mod names;
mod node;
mod super_block;

use std::collections::HashSet;
use std::ops::Range;

use rotproof_block::Result;

use crate::ReadOptions;
use crate::bytes::{le64, u8_at};
use crate::kind::{Kind, Plain, Tree};
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::{Names, bytes_at, unsupported};
use crate::source::Source;

use chunk::{Chunk, Chunks, Found};
use node::Key;
use super_block::{SUPER_BYTES, SuperBlock};

pub(crate) use super_block::{MAGIC, SUPER_OFFSETS};

const ROOT_ITEM: u8 = 132;
const CHUNK_ITEM: u8 = 228;
/// Nothing but the super block lies before: `BTRFS_DEVICE_RANGE_RESERVED`.
const RESERVED_BYTES: u64 = 1 << 20;

const TREE_ROOT: u64 = 1;
const TREE_CHUNK: u64 = 3;
const TREE_FS: u64 = 5;
const FIRST_SUBVOLUME: u64 = 256;
/// `BTRFS_TREE_LOG_OBJECTID`, minus six.
const TREE_LOG: u64 = u64::MAX - 5;
const TREE_DATA_RELOCATION: u64 = u64::MAX - 8;

struct Reader<'a> {
    source: &'a dyn Source,
    layout: SuperBlock,
    chunks: Chunks,
    builder: MapBuilder,
    /// Addresses of the nodes that were visited: snapshots share them.
    visited: HashSet<u64>,
    names: Option<Names>,
    /// Roots of the trees of files, by their number.
    file_trees: Vec<u64>,
}

/// Which tree a root is of.
fn tree_of(number: u64) -> Tree {
    match number {
        TREE_ROOT => Tree::Root,
        2 => Tree::Extent,
        TREE_CHUNK => Tree::Chunk,
        4 => Tree::Device,
        7 => Tree::Checksum,
        8 => Tree::Quota,
        9 => Tree::Uuid,
        10 => Tree::FreeSpace,
        11 => Tree::BlockGroup,
        TREE_LOG => Tree::Log,
        TREE_DATA_RELOCATION => Tree::DataRelocation,
        number if is_of_files(number) => Tree::Fs,
        _ => Tree::Other,
    }
}

/// Whether the tree has files: the first, and subvolumes. Numbers of special trees are negative.
fn is_of_files(number: u64) -> bool {
    number == TREE_FS || (FIRST_SUBVOLUME..1 << 63).contains(&number)
}

/// A tree that is walked.
#[derive(Clone, Copy)]
struct Walk {
    tree: Tree,
    number: u64,
}

/// See [`crate::read`].
pub(crate) fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    let layout = SuperBlock::read(source)?;
    let (sector_bytes, root, log_root) = (layout.sector_bytes, layout.root, layout.log_root);
    let mut reader = Reader {
        source,
        layout,
        chunks: Chunks::default(),
        builder: MapBuilder::new(source.size()),
        visited: HashSet::new(),
        names: options.names.then(Names::default),
        file_trees: Vec::new(),
    };
    reader.claim_layout();
    reader.read_chunks()?;
    reader.read_trees(Walk { tree: Tree::Root, number: TREE_ROOT }, root);
    if log_root.0 != 0 {
        reader.read_trees(Walk { tree: Tree::Log, number: TREE_LOG }, log_root);
    }
    let Reader { mut builder, names, file_trees, .. } = reader;
    if let Some(names) = names {
        let root = |&tree: &u64| Owner { inode: Some(FIRST_SUBVOLUME), tree: Some(tree) };
        builder.names = names.paths(&file_trees.iter().map(root).collect::<Vec<_>>());
    }
    Ok(builder.finish(FileSystemKind::Btrfs, sector_bytes))
}

impl Reader<'_> {
    fn claim_layout(&mut self) {
        let size = self.source.size();
        for (offset, copy) in SUPER_OFFSETS.into_iter().zip(0..) {
            if offset + SUPER_BYTES <= size {
                let extent = Extent::new(offset..offset + SUPER_BYTES, Plain::SuperBlock, Owner::NONE);
                self.builder.claim(Rank::Layout, extent.copy(copy, SUPER_OFFSETS[0]));
            }
        }
        let reserved = Extent::new(0..RESERVED_BYTES.min(size), Plain::Unused, Owner::NONE);
        self.builder.claim(Rank::InUse, reserved);
        // What no chunk has was given to nothing yet.
        self.builder.claim(Rank::Free, Extent::new(0..size, Plain::Free, Owner::NONE));
    }

    /// Claims the places of a stretch of addresses, each copy. Whether there are any.
    fn claim(&mut self, rank: Rank, addresses: &Range<u64>, kind: impl Into<Kind>, owner: Owner) -> bool {
        let (kind, places) = (kind.into(), self.chunks.places(addresses));
        let first = places.first().map_or(0, |(_, range)| range.start);
        for (copy, range) in &places {
            let extent = Extent::new(range.clone(), kind, owner).copy(*copy, first);
            self.builder.claim(rank, extent);
        }
        !places.is_empty()
    }

    /// The system chunks of the super block lead to the chunk tree, and that to all chunks.
    fn read_chunks(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.layout.system_chunks);
        let mut at = 0;
        while let Some(key) = Key::parse(&bytes, at).filter(|key| key.kind == CHUNK_ITEM) {
            let item = &bytes[at + Key::BYTES..];
            self.take_chunk(key, item)?;
            let stripes = crate::bytes::le16(item, 44).map_or(0, usize::from);
            at += Key::BYTES + 48 + 32 * stripes;
        }
        let mut found = Vec::new();
        let walk = Walk { tree: Tree::Chunk, number: TREE_CHUNK };
        self.walk(walk, self.layout.chunk_root, &mut |key, item| {
            if key.kind == CHUNK_ITEM {
                found.push((key, item.to_owned()));
            }
        });
        for (key, item) in found {
            self.take_chunk(key, &item)?;
        }
        Ok(())
    }

    fn take_chunk(&mut self, key: Key, item: &[u8]) -> Result<()> {
        match Chunk::parse(item, self.layout.device) {
            Found::Chunk(chunk) => self.chunks.insert(key.offset, chunk),
            Found::Striped => return Err(unsupported("this btrfs is spread over devices in pieces")),
            Found::Damaged => {
                self.builder.damaged(0, format!("the chunk at address {} cannot be", key.offset));
            }
        }
        Ok(())
    }

    /// A tree of roots, and the trees that it has.
    fn read_trees(&mut self, walk: Walk, root: (u64, u8)) {
        let mut roots = Vec::new();
        let mut extents = extents::Extents::default();
        self.walk(walk, root, &mut |key, item| {
            if key.kind == ROOT_ITEM {
                roots.push((key, item.to_owned()));
            }
        });
        for (key, item) in roots {
            let (Some(address), Some(level)) = (le64(&item, 176), u8_at(&item, 238)) else { continue };
            // A tree that is being deleted may have lost its root already.
            let number = if walk.tree == Tree::Log { key.offset } else { key.object };
            if address == 0 {
                continue;
            }
            let tree = if walk.tree == Tree::Log { Tree::Log } else { tree_of(number) };
            let below = Walk { tree, number };
            match tree {
                Tree::Extent => self.walk(below, (address, level), &mut |key, item| extents.take(key, item)),
                Tree::Fs => {
                    self.file_trees.push(number);
                    self.read_files(below, (address, level));
                }
                _ => self.walk(below, (address, level), &mut |_, _| {}),
            }
        }
        if walk.tree == Tree::Root {
            self.claim_extents(extents);
        }
    }

    /// Visits every node of a tree that was not visited before, claims it, and shows the items of its leaves.
    fn walk(&mut self, walk: Walk, root: (u64, u8), show: &mut dyn FnMut(Key, &[u8])) {
        let mut waiting = vec![root];
        while let Some((address, level)) = waiting.pop() {
            if !self.visited.insert(address) {
                continue;
            }
            let Some(bytes) = self.node(walk, (address, level)) else { continue };
            if level == 0 {
                node::items(&bytes).for_each(|(key, item)| show(key, item));
            } else {
                let first = waiting.len();
                waiting.extend(node::pointers(&bytes).map(|child| (child, level - 1)));
                waiting[first..].reverse();
            }
        }
    }

    /// A node, from the first copy that is one; claims all its copies.
    fn node(&mut self, walk: Walk, (address, level): (u64, u8)) -> Option<Vec<u8>> {
        let addresses = address..address.saturating_add(self.layout.node_bytes);
        let places = self.chunks.places(&addresses);
        let owner = Owner { inode: None, tree: Some(walk.number) };
        self.claim(Rank::Structure, &addresses, Kind::Tree { tree: walk.tree, is_leaf: level == 0 }, owner);
        let mut found = None;
        for (_, range) in &places {
            let bytes = bytes_at(self.source, range.start, self.layout.node_bytes as usize);
            let is_right = |bytes: &Vec<u8>| {
                node::is_node(bytes, address, &self.layout.identifier) && node::level(bytes) == Some(level)
            };
            match bytes.ok().filter(is_right) {
                Some(bytes) => found = found.or(Some(bytes)),
                None => {
                    let what = format!("no node of tree {} of level {level}", walk.number);
                    self.builder.damaged(range.start, what);
                }
            }
        }
        if places.is_empty() {
            let what =
                format!("tree {} has a node at address {address}, which is not on this device", walk.number);
            self.builder.damaged(0, what);
        }
        found
    }
}
