//! ZFS on one device, or on one of a mirror: the newest uberblock leads to the objects of the pool, these to those of its file systems,
//! and the space maps say what is given out. What they call so and no object has is unknown.
//!
//! Pools up to version 28 are read, as zfs-fuse (23) makes them. A snapshot's blocks are whose they were first found to be.

mod block_pointer;
mod compress;
mod intent_log;
mod label;
mod names;
mod object;
mod space_map;

use std::collections::{BTreeMap, HashSet};

use rotproof_block::Result;

use crate::ReadOptions;
use crate::bytes::le64;
use crate::kind::Plain;
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::{Names, invalid};
use crate::source::Source;

use block_pointer::{BlockPointer, POINTER_BYTES};
use label::{FIRST_BLOCK, LABEL_BYTES, Label, Uberblock, label_offsets};
use names::names_in;
use object::{DIRECTORY, DNODE_BYTES, Dnode, OBJECT_ARRAY, POINTER_LIST, Set};
use space_map::Given;

/// The tree of the owner of what the pool keeps for itself.
const MOS: u64 = 0;
/// Where the head of the intent log leads to its chain, in a set of objects.
const LOG_POINTER: usize = 512 + 16;
/// Objects beside the dnodes, with numbers that no other has: who uses how much.
const ACCOUNTS: [usize; 2] = [1024, 1536];
/// The object of a file system that says by this name which object is the directory that everything is in.
const MASTER_NODE: u64 = 1;
const ROOT: &[u8] = b"ROOT";
/// Longer chains of a log no file system has.
const LOG_BLOCKS_MAX: usize = 1 << 20;

struct Reader<'a> {
    source: &'a dyn Source,
    label: Label,
    builder: MapBuilder,
    /// Offsets of the blocks that were visited: snapshots share them.
    visited: HashSet<u64>,
    /// Objects of the pool, by their number.
    pool: BTreeMap<u64, Dnode>,
    /// Of the first file system: its tree goes without saying.
    first: Option<u64>,
    names: Option<Names>,
    roots: Vec<Owner>,
}

/// An object that is walked.
#[derive(Clone, Copy)]
struct Walk<'a> {
    dnode: &'a Dnode,
    set: Set,
    owner: Owner,
    /// A block of its own for each of the lists that its L0 blocks are.
    keeps: bool,
}

/// Whether a pool is on it.
pub(crate) fn is_there(source: &dyn Source) -> bool {
    label::has_uberblock(source)
}

/// See [`crate::read`].
pub(crate) fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    let label = Label::read(source)?;
    let sector_bytes = 1 << label.sector_shift;
    let mut reader = Reader {
        source,
        label,
        builder: MapBuilder::new(source.size()),
        visited: HashSet::new(),
        pool: BTreeMap::new(),
        first: None,
        names: options.names.then(Names::default),
        roots: Vec::new(),
    };
    let (current, objects) = reader.newest()?;
    reader.claim_layout(&current);
    reader.read_pool(&current, &objects);
    let datasets: Vec<(u64, BlockPointer)> =
        reader.pool.iter().filter_map(|(&number, dnode)| Some((number, dnode.dataset()?))).collect();
    reader.first = datasets.first().map(|(number, _)| *number);
    for (number, pointer) in datasets {
        reader.read_dataset(number, &pointer);
    }
    reader.claim_space();
    let Reader { mut builder, names, roots, .. } = reader;
    if let Some(names) = names {
        builder.names = names.paths(&roots);
    }
    Ok(builder.finish(FileSystemKind::Zfs, sector_bytes))
}

impl Reader<'_> {
    /// The newest uberblock whose pool can be read, and that.
    fn newest(&mut self) -> Result<(Uberblock, Vec<u8>)> {
        let mut why = "";
        for uberblock in self.label.uberblocks.clone() {
            match uberblock.root.content(self.source) {
                Ok(objects) => return Ok((uberblock, objects)),
                Err(reason) => {
                    why = reason;
                    let what = format!(
                        "the uberblock of transaction {} leads nowhere: {why}",
                        uberblock.transaction
                    );
                    self.builder.damaged(uberblock.root.place(), what);
                }
            }
        }
        Err(invalid(format!("no uberblock leads to the objects of the pool: {why}")))
    }

    fn claim_layout(&mut self, current: &Uberblock) {
        let size = self.source.size();
        let offsets = label_offsets(size);
        let (first_list, first_slot, first_others) = self.label.parts(offsets[0], current.slot);
        for (offset, copy) in offsets.into_iter().zip(0..) {
            let (list, slot, others) = self.label.parts(offset, current.slot);
            let mut claim = |range: std::ops::Range<u64>, kind: Plain, first: u64| {
                if range.start < range.end {
                    self.builder.claim(Rank::Layout, Extent::new(range, kind, Owner::NONE).copy(copy, first));
                }
            };
            claim(list, Plain::VdevLabel, first_list.start);
            claim(slot, Plain::Uberblock, first_slot.start);
            for (range, first) in others.into_iter().zip(&first_others) {
                claim(range, Plain::UberblockOld, first.start);
            }
            let unused = Extent::new(offset..offset + LABEL_BYTES, Plain::Unused, Owner::NONE);
            self.builder.claim(Rank::InUse, unused);
        }
        self.builder.claim(Rank::InUse, Extent::new(0..FIRST_BLOCK.min(size), Plain::Unused, Owner::NONE));
        let end = FIRST_BLOCK + self.label.allocatable;
        if end < size {
            self.builder.claim(Rank::InUse, Extent::new(end..size, Plain::Unused, Owner::NONE));
        }
    }

    /// Claims each copy of a block. Whether it was not yet visited.
    fn claim(&mut self, rank: Rank, pointer: &BlockPointer, kind: Plain, owner: Owner) -> bool {
        if !self.visited.insert(pointer.place()) {
            return false;
        }
        let places: Vec<_> = pointer.places(self.source.size()).collect();
        if places.is_empty() {
            self.builder.damaged(pointer.place(), format!("a pointer to {kind:?} leads beyond the device"));
        }
        let first = places.first().map_or(0, |(_, range, _)| range.start);
        for (number, range, is_whole) in places {
            // The head of one that lies in pieces is no block of that kind.
            let kind = if is_whole { kind } else { Plain::Unknown };
            self.builder.claim(rank, Extent::new(range, kind, owner).copy(number, first));
        }
        true
    }

    fn content(&mut self, pointer: &BlockPointer, what: &str) -> Option<Vec<u8>> {
        match pointer.content(self.source) {
            Ok(bytes) => Some(bytes),
            Err(why) => {
                self.builder.damaged(pointer.place(), format!("{what} is not read: {why}"));
                None
            }
        }
    }

    fn read_pool(&mut self, current: &Uberblock, objects: &[u8]) {
        let owner = Owner { inode: None, tree: Some(MOS) };
        self.claim(Rank::Structure, &current.root, Plain::MosObjectSet, owner);
        let Some(dnodes) = Dnode::read(objects) else {
            self.builder.damaged(current.root.place(), "the pool has no objects");
            return;
        };
        for (number, dnode) in self.objects(&dnodes, Set::Mos, MOS) {
            let owner = Owner { inode: Some(number), tree: Some(MOS) };
            self.walk_object(Walk { dnode: &dnode, set: Set::Mos, owner, keeps: false });
            self.pool.insert(number, dnode);
        }
    }

    /// The objects whose dnodes `dnodes` has, with their numbers; claims its blocks.
    fn objects(&mut self, dnodes: &Dnode, set: Set, tree: u64) -> Vec<(u64, Dnode)> {
        let tree = Some(tree).filter(|&tree| Some(tree) != self.first);
        let owner = Owner { inode: None, tree };
        let blocks = self.walk_object(Walk { dnode: dnodes, set, owner, keeps: true });
        let per_block = (dnodes.block_bytes / DNODE_BYTES as u64).max(1);
        let mut objects = Vec::new();
        for (block, bytes) in blocks {
            let found = bytes.chunks_exact(DNODE_BYTES).map(Dnode::read).zip(block * per_block..);
            objects.extend(found.filter_map(|(dnode, number)| Some((number, dnode?))));
        }
        objects
    }

    fn read_dataset(&mut self, number: u64, pointer: &BlockPointer) {
        let tree = Some(number).filter(|&tree| Some(tree) != self.first);
        if !self.claim(Rank::Structure, pointer, Plain::ObjectSet, Owner { inode: None, tree }) {
            return;
        }
        let Some(bytes) = self.content(pointer, "a set of objects") else { return };
        let Some(dnodes) = Dnode::read(&bytes) else { return };
        for (object, dnode) in self.objects(&dnodes, Set::Dataset, number) {
            let owner = Owner { inode: Some(object), tree };
            let has_names = (dnode.kind == DIRECTORY || object == MASTER_NODE) && self.names.is_some();
            let blocks = self.walk_object(Walk { dnode: &dnode, set: Set::Dataset, owner, keeps: has_names });
            for (name, child) in blocks.iter().flat_map(|(_, block)| names_in(block)) {
                if object == MASTER_NODE {
                    self.roots.extend((name == ROOT).then_some(Owner { inode: Some(child), tree }));
                } else if let Some(names) = &mut self.names {
                    names.add(Owner { inode: Some(child), tree }, owner, &name);
                }
            }
        }
        for account in ACCOUNTS.into_iter().filter_map(|at| Dnode::read(bytes.get(at..at + DNODE_BYTES)?)) {
            let owner = Owner { inode: None, tree };
            self.walk_object(Walk { dnode: &account, set: Set::Dataset, owner, keeps: false });
        }
        if let Some(log) = bytes.get(LOG_POINTER..).and_then(BlockPointer::read) {
            self.read_log(log, tree);
        }
    }

    /// The block at the end of the chain is set aside for what comes next, and was not written for it yet.
    fn read_log(&mut self, first: BlockPointer, tree: Option<u64>) {
        let mut next = Some(first);
        for _ in 0..LOG_BLOCKS_MAX {
            let Some(pointer) = next else { return };
            let block =
                pointer.content(self.source).ok().and_then(|bytes| intent_log::read(&bytes, &pointer));
            let rank = if block.is_some() { Rank::Structure } else { Rank::Content };
            if !self.claim(rank, &pointer, Plain::IntentLog, Owner { inode: None, tree }) {
                return;
            }
            let Some(block) = block else { return };
            for (object, data) in block.writes {
                self.claim(Rank::Content, &data, Plain::Data, Owner { inode: Some(object), tree });
            }
            next = block.next;
        }
    }

    /// Claims all blocks of an object that were not yet visited; gives its L0 blocks with their numbers, if they are to be kept.
    fn walk_object(&mut self, walk: Walk<'_>) -> Vec<(u64, Vec<u8>)> {
        let mut kept = Vec::new();
        let top = walk.dnode.levels - 1;
        // Of the pointers before a hole nobody says so: those of a dnode stand without gaps, as it has no more than three.
        for (pointer, index) in walk.dnode.pointers.iter().zip(0..) {
            self.walk_block(walk, pointer, (top, index), &mut kept);
        }
        kept
    }

    fn walk_block(
        &mut self,
        walk: Walk<'_>,
        pointer: &BlockPointer,
        (level, index): (u8, u64),
        kept: &mut Vec<(u64, Vec<u8>)>,
    ) {
        let kind = walk.dnode.blocks_are(walk.set, level);
        let rank = if kind == Plain::Data { Rank::Content } else { Rank::Structure };
        if pointer.level != level {
            let what = format!("a pointer says level {} where {level} must be", pointer.level);
            return self.builder.damaged(pointer.place(), what);
        }
        if !self.claim(rank, pointer, kind, walk.owner) || (level == 0 && !walk.keeps) {
            return;
        }
        let Some(bytes) = self.content(pointer, kind_word(kind)) else { return };
        if level == 0 {
            return kept.push((index, bytes));
        }
        let per_block = (bytes.len() / POINTER_BYTES) as u64;
        for (child, number) in bytes.chunks_exact(POINTER_BYTES).zip(0..) {
            if let Some(child) = BlockPointer::read(child) {
                let index = index.saturating_mul(per_block).saturating_add(number);
                self.walk_block(walk, &child, (level - 1, index), kept);
            }
        }
    }

    /// The content of an object of the pool, whose blocks are claimed already.
    fn content_of(&mut self, number: u64) -> Option<(Dnode, Vec<u8>)> {
        let dnode = self.pool.get(&number)?.clone();
        let (mut bytes, mut pointers) = (Vec::new(), Vec::new());
        pointers.extend(dnode.pointers.iter().rev().copied());
        while let Some(pointer) = pointers.pop() {
            let content = self.content(&pointer, "a space map")?;
            if pointer.level == 0 {
                bytes.extend(content);
            } else {
                let below: Vec<_> =
                    content.chunks_exact(POINTER_BYTES).filter_map(BlockPointer::read).collect();
                pointers.extend(below.into_iter().rev().filter(|child| child.level < pointer.level));
            }
        }
        Some((dnode, bytes))
    }

    /// Claims what is free and what is in use, as the space maps say.
    fn claim_space(&mut self) {
        let (shift, sector) = (self.label.metaslab_shift, self.label.sector_shift);
        let Some((array, numbers)) = self.content_of(self.label.metaslab_array) else {
            return self.builder.damaged(0, "the space maps are not found");
        };
        if array.kind != OBJECT_ARRAY {
            return self.builder.damaged(0, "the list of the space maps is of another kind");
        }
        let parts = self.label.allocatable >> shift;
        let freed = self.freed();
        for part in 0..parts {
            let start = FIRST_BLOCK + (part << shift);
            let end = start + (1 << shift);
            let number = le64(&numbers, part as usize * 8).unwrap_or(0);
            let mut given = Given::new(1 << (shift - sector));
            if number != 0 {
                let Some((map, log)) = self.content_of(number) else { continue };
                let length = le64(&map.bonus, 8).and_then(|length| usize::try_from(length).ok());
                given.replay(&log[..length.unwrap_or(0).min(log.len())]);
            }
            for range in freed.iter().filter(|range| start <= range.start && range.end <= end) {
                given.set((range.start - start) >> sector..(range.end - start) >> sector, false);
            }
            self.builder.claim(Rank::Free, Extent::new(start..end, Plain::Free, Owner::NONE));
            for range in given.ranges() {
                let range = start + (range.start << sector)..start + (range.end << sector);
                self.builder.claim(Rank::InUse, Extent::new(range, Plain::Unknown, Owner::NONE));
            }
        }
        let behind = FIRST_BLOCK + (parts << shift);
        if behind < FIRST_BLOCK + self.label.allocatable {
            let range = behind..FIRST_BLOCK + self.label.allocatable;
            self.builder.claim(Rank::InUse, Extent::new(range, Plain::Unused, Owner::NONE));
        }
    }

    /// What is to be given back with the next transaction, and what only snapshots have: the latter is claimed by them.
    fn freed(&mut self) -> Vec<std::ops::Range<u64>> {
        let lists: Vec<u64> = self
            .pool
            .iter()
            .filter(|(_, dnode)| dnode.kind == POINTER_LIST)
            .map(|(&number, _)| number)
            .collect();
        let mut freed = Vec::new();
        for number in lists {
            let Some((list, bytes)) = self.content_of(number) else { continue };
            let count = le64(&list.bonus, 0).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            let pointers = bytes.chunks_exact(POINTER_BYTES).take(count).filter_map(BlockPointer::read);
            let size = self.source.size();
            freed.extend(
                pointers
                    .flat_map(|pointer| pointer.places(size).map(|(_, range, _)| range).collect::<Vec<_>>()),
            );
        }
        freed
    }
}

fn kind_word(kind: Plain) -> &'static str {
    crate::Kind::Plain(kind).word()
}

#[cfg(test)]
mod tests {
    use rotproof_block::ErrorKind;

    use super::*;

    #[test]
    fn what_is_no_pool_is_an_error_and_no_panic() {
        for bytes in [Vec::new(), vec![0; 1 << 20], vec![0xff; 3 << 20]] {
            assert!(!is_there(&bytes));
            assert_eq!(
                read(&bytes, ReadOptions::default()).map(|_| ()).expect_err("none").kind(),
                ErrorKind::Invalid
            );
        }
        let mut ring = vec![0; 1 << 20];
        ring[128 << 10..][..8].copy_from_slice(&0x00ba_b10c_u64.to_le_bytes());
        assert!(is_there(&ring));
        assert!(read(&ring, ReadOptions::default()).is_err());
    }
}
