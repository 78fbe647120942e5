//! SQLite: a database file, a rollback journal and a write-ahead log, each a source of its own.
//!
//! A database is walked from its schema: every b-tree from its root, every chain of overflow pages, the list of free pages.
//! Layouts: *Database File Format* and *WAL-mode File Format* (sqlite.org/fileformat2.html, sqlite.org/walformat.html).
//! What a write-ahead log holds is newer than the database beside it; each is told as it is.

mod btree;
mod journal;
mod schema;
mod wal;

use std::collections::{BTreeMap, HashSet};

use rotproof_block::{Error, ErrorKind, Result};

use crate::ReadOptions;
use crate::bytes::{be16, be32, u8_at};
use crate::kind::Plain;
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::bytes_at;
use crate::source::Source;

use btree::{Page, Payload};

pub(crate) use journal::{MAGIC as JOURNAL_MAGIC, read as read_journal};
pub(crate) use wal::{MAGIC as WAL_MAGIC, read as read_wal};

/// How a database begins.
pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The page with this byte is never used: locks of the file lie there.
const LOCK_BYTE: u64 = 1 << 30;
/// No b-tree is deeper (`BTCURSOR_MAX_DEPTH`).
const DEPTH_MAX: usize = 20;

/// What the first 100 bytes say.
struct Header {
    page_bytes: u64,
    /// Bytes of a page that SQLite uses: the rest at its end is somebody else's.
    usable: u64,
    pages: u64,
    first_trunk: u64,
    has_pointer_maps: bool,
}

impl Header {
    fn read(source: &dyn Source) -> Result<(Self, Option<String>)> {
        let bytes = bytes_at(source, 0, 100).map_err(|_| invalid("it ends within its header"))?;
        let number = |at: usize| u64::from(be32(&bytes, at).unwrap_or(0));
        let page_bytes = match be16(&bytes, 16).unwrap_or(0) {
            1 => 65536,
            other => u64::from(other),
        };
        if !is_page_size(page_bytes) {
            return Err(invalid(format!("pages cannot have {page_bytes} bytes")));
        }
        let usable = page_bytes - u64::from(u8_at(&bytes, 20).unwrap_or(0));
        if usable < 480 {
            return Err(invalid(format!("{usable} bytes of a page are too few to be used")));
        }
        let stored = source.size() / page_bytes;
        // The count in the header holds only if who wrote last knew of it.
        let told = if number(24) == number(92) { number(28) } else { 0 };
        let (pages, damage) = match told {
            0 => (stored, None),
            told if told > stored => (stored, Some(format!("it has {stored} pages, and should have {told}"))),
            told => (told, None),
        };
        Ok((
            Self { page_bytes, usable, pages, first_trunk: number(32), has_pointer_maps: number(52) != 0 },
            damage,
        ))
    }

    fn lock_page(&self) -> u64 {
        LOCK_BYTE / self.page_bytes + 1
    }

    /// Whether a page holds where others are referred from; only a database that can be made smaller has such.
    fn is_pointer_map(&self, page: u64) -> bool {
        if !self.has_pointer_maps || page < 2 {
            return false;
        }
        let each = self.usable / 5 + 1;
        let first = (page - 2) / each * each + 2;
        // It makes way for the page of the locks.
        page == if first == self.lock_page() { first + 1 } else { first }
    }
}

fn is_page_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (512..=65536).contains(&bytes)
}

fn invalid(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("the header is damaged: {what}"))
}

/// What is known while a database is read.
struct Reader<'a> {
    source: &'a dyn Source,
    header: Header,
    builder: MapBuilder,
    /// Pages that were claimed: none is two things.
    visited: HashSet<u64>,
    /// Name of each b-tree, by its root.
    names: BTreeMap<Owner, String>,
}

/// See [`crate::read`].
pub(crate) fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    let (header, damage) = Header::read(source)?;
    let builder = MapBuilder::new(source.size());
    let mut reader = Reader { source, header, builder, visited: HashSet::new(), names: BTreeMap::new() };
    if let Some(what) = damage {
        reader.builder.damaged(0, what);
    }
    reader.claim_layout();
    reader.read_schema();
    reader.read_free_pages();
    let Reader { mut builder, header, names, .. } = reader;
    if options.names {
        builder.names = names;
    }
    Ok(builder.finish(FileSystemKind::Sqlite, header.page_bytes))
}

/// A b-tree's own pages.
fn tree(root: u64) -> Owner {
    Owner { inode: None, tree: Some(root) }
}

impl Reader<'_> {
    fn offset(&self, page: u64) -> u64 {
        page.saturating_sub(1).saturating_mul(self.header.page_bytes)
    }

    fn damaged(&mut self, page: u64, what: impl Into<String>) {
        self.builder.damaged(self.offset(page), what);
    }

    /// Claims a page that `by` names, if it can be one and is nothing else yet.
    fn claim(&mut self, page: u64, kind: Plain, owner: Owner, by: u64) -> bool {
        let is_fixed = page == self.header.lock_page() || self.header.is_pointer_map(page);
        if page == 0 || page > self.header.pages || is_fixed {
            self.damaged(by, format!("it names page {page}, which cannot be one of {kind:?}"));
            return false;
        }
        if !self.visited.insert(page) {
            self.damaged(by, format!("it names page {page}, which is named elsewhere"));
            return false;
        }
        let start = self.offset(page);
        self.builder.claim(Rank::Structure, Extent::new(start..start + self.header.page_bytes, kind, owner));
        true
    }

    fn page(&mut self, number: u64) -> Option<Vec<u8>> {
        match bytes_at(self.source, self.offset(number), self.header.page_bytes as usize) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.damaged(number, error.to_string());
                None
            }
        }
    }

    /// Pages whose place says what they are, and what lies behind the last.
    fn claim_layout(&mut self) {
        let (bytes, pages) = (self.header.page_bytes, self.header.pages);
        let mut fixed = |page: u64, kind: Plain| {
            let start = (page - 1) * bytes;
            self.builder.claim(Rank::Layout, Extent::new(start..start + bytes, kind, Owner::NONE));
        };
        let lock = self.header.lock_page();
        if lock <= pages {
            fixed(lock, Plain::LockByte);
        }
        if self.header.has_pointer_maps {
            let each = (self.header.usable / 5 + 1) as usize;
            for first in (2..=pages).step_by(each) {
                let page = if first == lock { first + 1 } else { first };
                if page <= pages {
                    fixed(page, Plain::PointerMap);
                }
            }
        }
        let end = pages * bytes;
        if end < self.source.size() {
            let rest = Extent::new(end..self.source.size(), Plain::Unused, Owner::NONE);
            self.builder.claim(Rank::Layout, rest);
        }
    }

    /// The schema, which begins on the first page, and every b-tree that it names.
    fn read_schema(&mut self) {
        self.names.insert(tree(1), "sqlite_schema".into());
        let mut found = Vec::new();
        self.read_tree(1, true, &mut |reader, payload| {
            let whole = reader.whole(payload);
            found.extend(schema::entry(&whole));
        });
        for entry in found {
            self.names.insert(tree(entry.root), entry.name);
            self.read_tree(entry.root, false, &mut |_, _| {});
        }
    }

    /// Every page of a b-tree. `hear` is told of every payload, if it is wanted.
    fn read_tree(&mut self, root: u64, is_wanted: bool, hear: &mut dyn FnMut(&mut Self, &Payload)) {
        let mut is_table = None;
        // Page, who names it, and its depth.
        let mut next = vec![(root, root.max(1), 0)];
        while let Some((number, by, depth)) = next.pop() {
            if number == 0 || number > self.header.pages || depth > DEPTH_MAX {
                self.damaged(by, format!("it names page {number} as a part of a b-tree"));
                continue;
            }
            let Some(bytes) = self.page(number) else { continue };
            let Some(page) = Page::parse(&bytes, number == 1, self.header.usable as usize) else {
                self.damaged(number, "it should be a part of a b-tree, and is none");
                // Its place is known, and nothing else is there.
                continue;
            };
            if *is_table.get_or_insert(page.is_table) != page.is_table {
                self.damaged(number, "it is of another kind of b-tree than its root");
                continue;
            }
            let kind = match (number, page.is_table, page.is_leaf) {
                (1, ..) => Plain::DatabaseHeader,
                (_, true, true) => Plain::TableLeaf,
                (_, true, false) => Plain::TableInterior,
                (_, false, true) => Plain::IndexLeaf,
                (_, false, false) => Plain::IndexInterior,
            };
            if !self.claim(number, kind, tree(root), by) {
                continue;
            }
            if page.broken_cells > 0 {
                self.damaged(number, format!("{} of its cells cannot be read", page.broken_cells));
            }
            for payload in &page.payloads {
                if is_wanted {
                    hear(self, payload);
                }
                self.read_overflow(payload, number, tree(root));
            }
            next.extend(page.children.iter().map(|&child| (child, number, depth + 1)));
        }
    }

    /// The pages that a payload goes on in.
    fn read_overflow(&mut self, payload: &Payload, by: u64, owner: Owner) {
        let (mut at, mut by) = (payload.overflow, by);
        let mut rest = payload.rest;
        while rest > 0 {
            if !self.claim(at, Plain::Overflow, owner, by) {
                return;
            }
            let Some(bytes) = self.page(at) else { return };
            rest = rest.saturating_sub(self.header.usable - 4);
            (by, at) = (at, u64::from(be32(&bytes, 0).unwrap_or(0)));
        }
    }

    /// A payload with what lies in overflow pages, as far as that can be read.
    fn whole(&self, payload: &Payload) -> Vec<u8> {
        let (mut whole, mut at, mut rest) = (payload.local.clone(), payload.overflow, payload.rest);
        let mut seen = HashSet::new();
        while rest > 0 && at > 0 && at <= self.header.pages && seen.insert(at) {
            let Ok(bytes) = bytes_at(self.source, self.offset(at), self.header.usable as usize) else {
                break;
            };
            let taken = rest.min(self.header.usable - 4);
            whole.extend_from_slice(&bytes[4..4 + taken as usize]);
            rest -= taken;
            at = u64::from(be32(&bytes, 0).unwrap_or(0));
        }
        whole
    }

    fn read_free_pages(&mut self) {
        let (mut trunk, mut by) = (self.header.first_trunk, 1);
        while trunk != 0 {
            if !self.claim(trunk, Plain::FreelistTrunk, Owner::NONE, by) {
                return;
            }
            let Some(bytes) = self.page(trunk) else { return };
            let count = u64::from(be32(&bytes, 4).unwrap_or(0));
            if count > self.header.usable / 4 - 2 {
                self.damaged(trunk, format!("it cannot name {count} free pages"));
                return;
            }
            for index in 0..count as usize {
                let leaf = u64::from(be32(&bytes, 8 + 4 * index).unwrap_or(0));
                self.claim(leaf, Plain::FreelistLeaf, Owner::NONE, trunk);
            }
            (by, trunk) = (trunk, u64::from(be32(&bytes, 0).unwrap_or(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(page_bytes: u64) -> Header {
        Header { page_bytes, usable: page_bytes, pages: 1 << 22, first_trunk: 0, has_pointer_maps: true }
    }

    #[test]
    fn pointer_maps_lie_where_sqlite_looks_for_them() {
        let of = header(4096);
        // 819 entries of five bytes and the page itself.
        let places: Vec<u64> = (1..2500).filter(|&page| of.is_pointer_map(page)).collect();
        assert_eq!(places, [2, 822, 1642, 2462]);
        let lock = of.lock_page();
        assert_eq!(lock, 262_145);
        assert!(!of.is_pointer_map(lock));
        // With pages of 512 bytes one would lie on the page of the locks, which is 2,097,153: 103 * 20,361 + 2 is not.
        let small = header(512);
        assert_eq!((small.lock_page() - 2) % 103, 71);
    }

    #[test]
    fn a_header_that_says_what_cannot_be_is_refused() {
        let mut bytes = vec![0; 4096];
        bytes[..16].copy_from_slice(MAGIC);
        for (size, is_good) in
            [(4096_u16, true), (512, true), (1, true), (513, false), (256, false), (0, false)]
        {
            bytes[16..18].copy_from_slice(&size.to_be_bytes());
            assert_eq!(read(&bytes, ReadOptions::default()).is_ok(), is_good, "{size}");
        }
        bytes[16..18].copy_from_slice(&512_u16.to_be_bytes());
        bytes[20] = 33;
        assert!(read(&bytes, ReadOptions::default()).is_err());
        assert!(read(&bytes[..50].to_vec(), ReadOptions::default()).is_err());
    }
}
