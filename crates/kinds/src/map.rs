//! The map of a device: stretches of bytes, each with its kind, its copy and its owner. It covers every byte once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use serde::Serialize;

use crate::kind::{Kind, Plain};

/// Which file system, or which file of a database, a map is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystemKind {
    /// The fourth extended file system, and its forerunners.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// ZFS.
    Zfs,
    /// A database of SQLite.
    Sqlite,
    /// The rollback journal of one.
    #[serde(rename = "sqlite-journal")]
    SqliteJournal,
    /// The write-ahead log of one.
    #[serde(rename = "sqlite-wal")]
    SqliteWal,
    /// The data of an environment of LMDB.
    Lmdb,
    /// A file of a cluster of PostgreSQL.
    #[serde(rename = "postgresql")]
    Postgres,
}

impl FileSystemKind {
    /// Its name, as the kernel has it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystemKind::Ext4 => "ext4",
            FileSystemKind::Xfs => "xfs",
            FileSystemKind::Btrfs => "btrfs",
            FileSystemKind::Zfs => "zfs",
            FileSystemKind::Sqlite => "sqlite",
            FileSystemKind::SqliteJournal => "sqlite-journal",
            FileSystemKind::SqliteWal => "sqlite-wal",
            FileSystemKind::Lmdb => "lmdb",
            FileSystemKind::Postgres => "postgresql",
        }
    }
}

/// Whose something is, as far as it is somebody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Owner {
    /// The number of the inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// On btrfs the number of the tree: of a file, that of its subvolume. On ZFS the number of the dataset, which goes without saying of
    /// the first; 0 of what the pool keeps for itself. In a database the root page of the b-tree; in PostgreSQL the number of the relation's
    /// file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<u64>,
}

impl Owner {
    /// Nobody's.
    pub const NONE: Owner = Owner { inode: None, tree: None };

    /// An inode's.
    pub fn inode(number: u64) -> Self {
        Owner { inode: Some(number), tree: None }
    }
}

/// A stretch of the device that is one thing throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// The byte behind the last.
    pub end: u64,
    /// What it is.
    pub kind: Kind,
    /// Which copy it is, from 0.
    pub copy: u8,
    /// Where the first copy begins; equal to `start` for the first copy.
    pub first_copy: u64,
    /// Whose it is.
    #[serde(flatten)]
    pub owner: Owner,
}

impl Extent {
    /// An only or first copy.
    pub(crate) fn new(range: Range<u64>, kind: impl Into<Kind>, owner: Owner) -> Self {
        Self {
            start: range.start,
            end: range.end,
            kind: kind.into(),
            copy: 0,
            first_copy: range.start,
            owner,
        }
    }

    /// The same, as copy `number` of what begins at `first`.
    pub(crate) fn copy(mut self, number: u8, first: u64) -> Self {
        (self.copy, self.first_copy) = (number, first);
        self
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    fn cut(self, range: Range<u64>) -> Option<Self> {
        let (start, end) = (self.start.max(range.start), self.end.min(range.end));
        let first_copy = self.first_copy + (start - self.start.min(start));
        (start < end).then_some(Self { start, end, first_copy, ..self })
    }

    fn continues(&self, last: &Extent) -> bool {
        self.start == last.end
            && (self.kind, self.copy, self.owner) == (last.kind, last.copy, last.owner)
            && self.first_copy.checked_sub(last.first_copy) == Some(self.start - last.start)
    }
}

/// Something that a reader found damaged, and what it left out because of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Where on the device, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// How much there is of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Bytes, all copies.
    pub bytes: u64,
    /// Bytes of them in copies other than the first.
    pub copies_bytes: u64,
    /// Stretches.
    pub extents: u64,
}

/// What every byte of a device is.
#[derive(Clone, Debug)]
pub struct Map {
    /// The file system.
    pub file_system: FileSystemKind,
    /// Its block size in bytes.
    pub block_bytes: u64,
    /// The size of the device in bytes.
    pub size: u64,
    extents: Vec<Extent>,
    /// What was damaged, at most [`DAMAGES_MAX`] of it.
    pub damages: Vec<Damage>,
    /// How much was damaged.
    pub damages_count: u64,
    /// Path of each inode that has one, if names were asked for.
    pub names: BTreeMap<Owner, String>,
}

/// How many damaged places are described.
pub const DAMAGES_MAX: usize = 100;

impl Map {
    /// All stretches, in their order, without gaps.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// What the byte at `offset` is; `None` beyond the end.
    pub fn at(&self, offset: u64) -> Option<&Extent> {
        let index = self.extents.partition_point(|extent| extent.end <= offset);
        self.extents.get(index).filter(|extent| extent.start <= offset)
    }

    /// All that lies in `range`.
    pub fn within(&self, range: Range<u64>) -> &[Extent] {
        let from = self.extents.partition_point(|extent| extent.end <= range.start);
        let to = self.extents.partition_point(|extent| extent.start < range.end);
        self.extents.get(from..to.max(from)).unwrap_or_default()
    }

    /// Every copy of the block at `offset`, `length` bytes long, itself included, by where they begin.
    pub fn copies_of(&self, offset: u64, length: u64) -> Vec<u64> {
        let Some(extent) = self.at(offset) else { return Vec::new() };
        let first = extent.first_copy + (offset - extent.start);
        let holds = |other: &&Extent| {
            let end = other.first_copy + other.length();
            other.kind == extent.kind && other.first_copy <= first && first < end
        };
        let copies = self.extents.iter().filter(holds);
        let starts = copies.map(|other| other.start + (first - other.first_copy));
        starts.filter(|start| start.saturating_add(length) <= self.size).collect()
    }

    /// How much there is of each kind.
    pub fn totals(&self) -> BTreeMap<Kind, Total> {
        let mut totals: BTreeMap<Kind, Total> = BTreeMap::new();
        for extent in &self.extents {
            let total = totals.entry(extent.kind).or_default();
            total.bytes += extent.length();
            total.copies_bytes += if extent.copy > 0 { extent.length() } else { 0 };
            total.extents += 1;
        }
        totals
    }

    /// The path of what owns something, if it has one and names were asked for.
    pub fn name(&self, owner: Owner) -> Option<&str> {
        self.names.get(&owner).map(String::as_str)
    }
}

/// Which claim counts where two overlap: the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Fixed by the layout of the file system.
    Layout,
    /// Found by walking its structures.
    Structure,
    /// The content of files.
    Content,
    /// In use, it is not said by whom.
    InUse,
    /// Said to be free.
    Free,
}

/// Collects claims of what lies where, and makes a map of them.
pub(crate) struct MapBuilder {
    size: u64,
    claims: Vec<(Rank, Extent)>,
    damages: Vec<Damage>,
    damages_count: u64,
    pub(crate) names: BTreeMap<Owner, String>,
}

impl MapBuilder {
    pub(crate) fn new(size: u64) -> Self {
        Self { size, claims: Vec::new(), damages: Vec::new(), damages_count: 0, names: BTreeMap::new() }
    }

    /// What lies beyond the end of the device is left out, and is damage.
    pub(crate) fn claim(&mut self, rank: Rank, extent: Extent) {
        if extent.end > self.size {
            self.damaged(extent.start, format!("{} ends at {}, beyond the device", extent.kind, extent.end));
        }
        if let Some(extent) = extent.cut(0..self.size) {
            self.claims.push((rank, extent));
        }
    }

    pub(crate) fn damaged(&mut self, offset: u64, what: impl Into<String>) {
        self.damages_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(Damage { offset, what: what.into() });
        }
    }

    /// What nobody has claimed is unknown. Where claims of equal rank and different kind overlap, the file system
    /// contradicts itself: the one that begins first counts, and it is damage. Equal kinds
    /// may overlap: files share data, inodes share attributes.
    pub(crate) fn finish(mut self, file_system: FileSystemKind, block_bytes: u64) -> Map {
        let mut heap = BinaryHeap::with_capacity(self.claims.len());
        let key = |rank: Rank, extent: &Extent, index: usize| Reverse((extent.start, rank, index));
        for (index, (rank, extent)) in self.claims.iter().enumerate() {
            heap.push(key(*rank, extent, index));
        }
        let mut claims = std::mem::take(&mut self.claims);
        let mut out: Vec<(Rank, Extent)> = Vec::with_capacity(claims.len());
        while let Some(Reverse((_, _, index))) = heap.pop() {
            let (rank, extent) = claims[index];
            match out.last_mut() {
                Some((last_rank, last)) if last.end > extent.start => {
                    if rank < *last_rank {
                        // The stronger cuts a hole into the weaker, whose rest comes again.
                        let rest = last.cut(extent.end..u64::MAX);
                        let weaker = *last_rank;
                        last.end = extent.start;
                        if last.end == last.start {
                            out.pop();
                        }
                        if let Some(rest) = rest {
                            claims.push((weaker, rest));
                            heap.push(key(weaker, &rest, claims.len() - 1));
                        }
                        out.push((rank, extent));
                    } else {
                        if rank == *last_rank && extent.kind != last.kind {
                            let what = format!("both {} and {} claim it", last.kind, extent.kind);
                            self.damaged(extent.start, what);
                        }
                        let from = out.last().map_or(0, |(_, last)| last.end);
                        if let Some(rest) = extent.cut(from..u64::MAX) {
                            claims.push((rank, rest));
                            heap.push(key(rank, &rest, claims.len() - 1));
                        }
                    }
                }
                _ => out.push((rank, extent)),
            }
        }
        let mut extents: Vec<Extent> = Vec::with_capacity(out.len());
        let mut push = |extent: Extent| match extents.last_mut() {
            Some(last) if extent.continues(last) => last.end = extent.end,
            _ => extents.push(extent),
        };
        let mut at = 0;
        for (_, extent) in out {
            if at < extent.start {
                push(Extent::new(at..extent.start, Plain::Unknown, Owner::NONE));
            }
            at = extent.end;
            push(extent);
        }
        if at < self.size {
            push(Extent::new(at..self.size, Plain::Unknown, Owner::NONE));
        }
        Map {
            file_system,
            block_bytes,
            size: self.size,
            extents,
            damages: self.damages,
            damages_count: self.damages_count,
            names: self.names,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [Plain; 4] = [Plain::Data, Plain::Directory, Plain::Agf, Plain::Free];
    const RANKS: [Rank; 5] = [Rank::Layout, Rank::Structure, Rank::Content, Rank::InUse, Rank::Free];

    proptest! {
        /// Against a slow oracle that paints every byte.
        #[test]
        fn the_strongest_claim_counts_for_every_byte(
            claims in prop::collection::vec((0_u64..90, 1_u64..30, 0_usize..4, 0_usize..5), 0..12)
        ) {
            let size = 100;
            let mut builder = MapBuilder::new(size);
            for &(start, length, kind, rank) in &claims {
                builder.claim(RANKS[rank], Extent::new(start..start + length, KINDS[kind], Owner::NONE));
            }
            let map = builder.finish(FileSystemKind::Ext4, 1);
            let mut at = 0;
            for extent in map.extents() {
                prop_assert_eq!(extent.start, at);
                prop_assert!(extent.end > extent.start);
                at = extent.end;
            }
            prop_assert_eq!(at, size);
            for byte in 0..size {
                let over = |claim: &&(u64, u64, usize, usize)| claim.0 <= byte && byte < claim.0 + claim.1;
                let strongest = claims.iter().filter(over).map(|claim| claim.3).min();
                let found = map.at(byte).expect("every byte is covered").kind;
                match strongest {
                    None => prop_assert_eq!(found, Kind::Plain(Plain::Unknown)),
                    Some(rank) => {
                        let mut equal = claims.iter().filter(over).filter(|claim| claim.3 == rank);
                        prop_assert!(equal.any(|claim| Kind::Plain(KINDS[claim.2]) == found));
                    }
                }
            }
        }
    }

    #[test]
    fn copies_know_each_other_and_cut_stretches_know_where_their_copy_begins() {
        let mut builder = MapBuilder::new(1000);
        builder.claim(Rank::Layout, Extent::new(100..200, Plain::GroupDescriptors, Owner::NONE));
        builder.claim(Rank::Layout, Extent::new(500..600, Plain::GroupDescriptors, Owner::NONE).copy(1, 100));
        let map = builder.finish(FileSystemKind::Ext4, 100);
        assert_eq!(map.copies_of(550, 10), [150, 550]);
        assert_eq!(map.copies_of(120, 10), [120, 520]);
        let total = map.totals()[&Kind::Plain(Plain::GroupDescriptors)];
        assert_eq!((total.bytes, total.copies_bytes, total.extents), (200, 100, 2));
        assert_eq!(map.within(150..510).len(), 3);
        assert!(map.at(1000).is_none() && map.within(2000..3000).is_empty());
    }

    #[test]
    fn copies_may_lie_in_another_order_than_what_they_are_of() {
        let mut builder = MapBuilder::new(1000);
        for (start, first) in [(500, 200), (600, 100)] {
            builder.claim(Rank::Structure, Extent::new(first..first + 100, Plain::Dnodes, Owner::NONE));
            let copy = Extent::new(start..start + 100, Plain::Dnodes, Owner::NONE).copy(1, first);
            builder.claim(Rank::Structure, copy);
        }
        let map = builder.finish(FileSystemKind::Zfs, 100);
        assert_eq!((map.copies_of(150, 10), map.copies_of(510, 10)), (vec![150, 650], vec![210, 510]));
    }

    #[test]
    fn what_contradicts_itself_is_damage() {
        let mut builder = MapBuilder::new(100);
        builder.claim(Rank::Content, Extent::new(0..50, Plain::Data, Owner::inode(1)));
        builder.claim(Rank::Content, Extent::new(40..200, Plain::Xattr, Owner::inode(2)));
        let map = builder.finish(FileSystemKind::Xfs, 1);
        assert_eq!(map.damages_count, 2, "{:?}", map.damages);
        assert_eq!(map.at(45).expect("there").owner.inode, Some(1));
    }
}
