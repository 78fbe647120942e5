//! LMDB: the data file of an environment, as 64-bit machines with little-endian numbers have it. Layout: `mdb.c` of LMDB 0.9.
//!
//! Pages 0 and 1 are metas: where the trees begin, each as of one of the last two transactions. The one of the later transaction
//! counts. From it two trees go: that of free pages, whose entries list pages by the transaction that freed them, and the
//! main one, with the data or with databases that have names. What only the older meta still reaches is told as it
//! is now: free.

mod page;

use std::collections::{BTreeMap, HashSet};

use rotproof_block::{Error, ErrorKind, Result};

use crate::ReadOptions;
use crate::bytes::{le16, le32, le64};
use crate::kind::Plain;
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::bytes_at;
use crate::source::Source;

use page::{HEADER_BYTES, Page, Role, TREE_BYTES, Tree, Value};

/// The magic number of a meta, and its version.
const MAGIC: [u8; 8] = [0xDE, 0xC0, 0xEF, 0xBE, 1, 0, 0, 0];
/// Sizes that a page may have.
const PAGE_BYTES: [u64; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
const META_BYTES: usize = HEADER_BYTES + 136;
const TREE_OF_FREE: usize = 40;
const TREE_OF_MAIN: usize = TREE_OF_FREE + TREE_BYTES;
/// No tree is deeper (`CURSOR_STACK`).
const DEPTH_MAX: u16 = 32;
/// A list of free pages that was read whole is no longer.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// Where trees begin as of one transaction.
#[derive(Clone, Copy)]
struct Meta {
    page_bytes: u64,
    free: Tree,
    main: Tree,
    last_page: u64,
    transaction: u64,
}

impl Meta {
    /// `None` if page `number`, which begins at `offset`, is not that meta.
    fn read(source: &dyn Source, offset: u64, number: u64) -> Option<Self> {
        let bytes = bytes_at(source, offset, META_BYTES).ok()?;
        let page_bytes = u64::from(le32(&bytes, TREE_OF_FREE)?);
        let is_right = bytes[HEADER_BYTES..].starts_with(&MAGIC)
            && le64(&bytes, 0)? == number
            && le16(&bytes, 10)? & 0x08 != 0
            && PAGE_BYTES.contains(&page_bytes)
            && page_bytes * number == offset;
        is_right.then_some(Self {
            page_bytes,
            free: Tree::parse(&bytes[TREE_OF_FREE..])?,
            main: Tree::parse(&bytes[TREE_OF_MAIN..])?,
            last_page: le64(&bytes, TREE_OF_MAIN + TREE_BYTES)?,
            transaction: le64(&bytes, TREE_OF_MAIN + TREE_BYTES + 8)?,
        })
    }

    /// Both, if they can be read.
    fn both(source: &dyn Source) -> [Option<Self>; 2] {
        let first = Self::read(source, 0, 0);
        let second = match first {
            Some(first) => Self::read(source, first.page_bytes, 1),
            None => PAGE_BYTES.into_iter().find_map(|bytes| Self::read(source, bytes, 1)),
        };
        [first, second]
    }
}

/// Whether `source` is the data of an environment.
pub(crate) fn is_there(source: &dyn Source) -> bool {
    Meta::both(source).iter().any(Option::is_some)
}

/// What is known while an environment is read.
struct Reader<'a> {
    source: &'a dyn Source,
    page_bytes: u64,
    /// Pages that are in use, with those that are free.
    pages: u64,
    builder: MapBuilder,
    /// Pages that were claimed: none is two things.
    visited: HashSet<u64>,
    names: BTreeMap<Owner, String>,
}

/// What the parts of a tree are called.
#[derive(Clone, Copy)]
struct Kinds {
    branch: Plain,
    leaf: Plain,
    overflow: Plain,
}

const OF_DATA: Kinds =
    Kinds { branch: Plain::LmdbBranch, leaf: Plain::LmdbLeaf, overflow: Plain::LmdbOverflow };
const OF_FREE: Kinds =
    Kinds { branch: Plain::FreeTreeBranch, leaf: Plain::FreeTreeLeaf, overflow: Plain::FreeTreeOverflow };

/// See [`crate::read`].
pub(crate) fn read(source: &dyn Source, options: ReadOptions) -> Result<Map> {
    let metas = Meta::both(source);
    let Some(meta) = metas.into_iter().flatten().max_by_key(|meta| meta.transaction) else {
        return Err(Error::new(ErrorKind::Invalid, "neither of the two metas can be read"));
    };
    let page_bytes = meta.page_bytes;
    let stored = source.size() / page_bytes;
    let mut reader = Reader {
        source,
        page_bytes,
        pages: stored.min(meta.last_page.saturating_add(1)),
        builder: MapBuilder::new(source.size()),
        visited: HashSet::new(),
        names: BTreeMap::new(),
    };
    for (number, found) in metas.iter().enumerate() {
        if found.is_none() {
            reader.damaged(number as u64, "it should be a meta, and is none");
        }
    }
    if meta.last_page >= stored {
        reader.damaged(0, format!("it has {stored} pages, and should have {}", meta.last_page + 1));
    }
    reader.claim_layout();
    let free = reader.read_tree(&meta.free, OF_FREE, "free pages", 0);
    for (key, value) in free {
        reader.read_free_list(&key, value);
    }
    reader.read_main(&meta.main);
    let Reader { mut builder, names, .. } = reader;
    if options.names {
        builder.names = names;
    }
    Ok(builder.finish(FileSystemKind::Lmdb, page_bytes))
}

fn owner(root: u64) -> Owner {
    Owner { inode: None, tree: Some(root) }
}

impl Reader<'_> {
    fn damaged(&mut self, page: u64, what: impl Into<String>) {
        self.builder.damaged(page.saturating_mul(self.page_bytes), what);
    }

    fn claim_layout(&mut self) {
        let end = (2 * self.page_bytes).min(self.source.size());
        self.builder.claim(Rank::Layout, Extent::new(0..end, Plain::LmdbMeta, Owner::NONE));
        let rest = (self.pages * self.page_bytes).max(end)..self.source.size();
        if !rest.is_empty() {
            self.builder.claim(Rank::Layout, Extent::new(rest, Plain::Unused, Owner::NONE));
        }
    }

    /// Claims `count` pages that `by` names, if they can be what it says and are nothing else yet.
    fn claim(&mut self, page: u64, count: u64, kind: Plain, owner: Owner, by: u64) -> bool {
        let is_inside = page >= 2 && page.checked_add(count).is_some_and(|end| end <= self.pages);
        if !is_inside || count == 0 {
            self.damaged(by, format!("it names {count} pages from {page} on, which cannot be {kind:?}"));
            return false;
        }
        for number in page..page + count {
            if !self.visited.insert(number) {
                self.damaged(by, format!("it names page {number}, which is named elsewhere"));
                return false;
            }
        }
        let bytes = page * self.page_bytes..(page + count) * self.page_bytes;
        self.builder.claim(Rank::Structure, Extent::new(bytes, kind, owner));
        true
    }

    fn bytes(&mut self, page: u64) -> Option<Vec<u8>> {
        match bytes_at(self.source, page * self.page_bytes, self.page_bytes as usize) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.damaged(page, error.to_string());
                None
            }
        }
    }

    /// The main tree, and the trees of databases with names in it.
    fn read_main(&mut self, main: &Tree) {
        let mut trees = vec![(*main, "main".to_owned(), 0)];
        while let Some((tree, name, by)) = trees.pop() {
            for (key, value) in self.read_tree(&tree, OF_DATA, &name, by) {
                // Many values of one key are part of the tree that has the key.
                let Value::Tree(tree, is_duplicates) = value else { continue };
                let key = String::from_utf8_lossy(&key).into_owned();
                let name = if is_duplicates { name.clone() } else { key };
                trees.push((tree, name, by));
            }
        }
    }

    /// Every page of a tree; gives what its leaves have for their keys. What its description counts is compared.
    fn read_tree(&mut self, tree: &Tree, kinds: Kinds, name: &str, by: u64) -> Vec<(Vec<u8>, Value)> {
        let mut entries = Vec::new();
        let Some(root) = tree.root else { return entries };
        let owner = owner(root);
        self.names.insert(owner, name.to_owned());
        let (mut branches, mut leaves, mut overflows, mut is_whole) = (0, 0, 0, true);
        let mut next = vec![(root, by, 1)];
        while let Some((number, by, depth)) = next.pop() {
            if number < 2 || number >= self.pages || depth > tree.depth.min(DEPTH_MAX) {
                self.damaged(by, format!("it names page {number} as a part of a tree, level {depth}"));
                is_whole = false;
                continue;
            }
            let Some(bytes) = self.bytes(number) else { continue };
            let page = Page::parse(&bytes).filter(|page| {
                page.number == number
                    && page.role == if depth == tree.depth { Role::Leaf } else { Role::Branch }
            });
            let Some(page) = page else {
                // Its place is known, and nothing else is there.
                self.damaged(number, format!("it should be level {depth} of a tree, and is not"));
                is_whole = false;
                continue;
            };
            let is_leaf = page.role == Role::Leaf;
            if !self.claim(number, 1, if is_leaf { kinds.leaf } else { kinds.branch }, owner, by) {
                is_whole = false;
                continue;
            }
            let mut broken = 0;
            if is_leaf {
                leaves += 1;
                for entry in page.entries() {
                    let Some((key, value)) = entry else {
                        broken += 1;
                        continue;
                    };
                    if let Value::Overflow(at, length) = value {
                        let count = (HEADER_BYTES as u64 + length).div_ceil(self.page_bytes);
                        overflows += count;
                        is_whole &= self.read_overflow(at, count, kinds.overflow, owner, number);
                    }
                    entries.push((key.to_vec(), value));
                }
            } else {
                branches += 1;
                for child in page.children() {
                    match child {
                        Some(child) => next.push((child, number, depth + 1)),
                        None => broken += 1,
                    }
                }
            }
            if broken > 0 {
                self.damaged(number, format!("{broken} of its nodes cannot be read"));
                is_whole = false;
            }
        }
        let told = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages);
        if is_whole && (branches, leaves, overflows) != told {
            let found = format!("{branches}, {leaves} and {overflows}");
            let told = format!("{}, {} and {}", told.0, told.1, told.2);
            let what = format!(
                "tree {name} has {found} branches, leaves and overflow pages, and should have {told}"
            );
            self.damaged(root, what);
        }
        entries
    }

    fn read_overflow(&mut self, at: u64, count: u64, kind: Plain, owner: Owner, by: u64) -> bool {
        if !self.claim(at, count, kind, owner, by) {
            return false;
        }
        let Some(bytes) = self.bytes(at) else { return false };
        let page = Page::parse(&bytes);
        if !page.is_some_and(|page| page.number == at && page.role == Role::Overflow(count)) {
            self.damaged(at, format!("it should be the first of {count} overflow pages, and is not"));
            return false;
        }
        true
    }

    /// An entry of the tree of free pages: a transaction, and how many pages it freed, and which.
    fn read_free_list(&mut self, key: &[u8], value: Value) {
        let list = match value {
            Value::Here(list) => list,
            Value::Overflow(at, length) if length <= LIST_BYTES_MAX => {
                let place = at.saturating_mul(self.page_bytes).saturating_add(HEADER_BYTES as u64);
                match bytes_at(self.source, place, length as usize) {
                    Ok(list) => list,
                    // It was told when its pages were claimed.
                    Err(_) => return,
                }
            }
            _ => return self.damaged(0, "a list of free pages cannot be one"),
        };
        let transaction = le64(key, 0).unwrap_or(0);
        let count = le64(&list, 0).unwrap_or(0);
        if key.len() != 8 || count > list.len() as u64 / 8 {
            return self
                .damaged(0, format!("the list of what transaction {transaction} freed cannot be one"));
        }
        for index in 1..=count as usize {
            let Some(page) = le64(&list, 8 * index) else { break };
            self.claim(page, 1, Plain::Free, Owner::NONE, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(number: u64, transaction: u64) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0..8].copy_from_slice(&number.to_le_bytes());
        bytes[10] = 0x08;
        bytes[16..24].copy_from_slice(&MAGIC);
        bytes[40..44].copy_from_slice(&4096_u32.to_le_bytes());
        bytes[80..88].fill(0xFF);
        bytes[128..136].fill(0xFF);
        bytes[136..144].copy_from_slice(&1_u64.to_le_bytes());
        bytes[144..152].copy_from_slice(&transaction.to_le_bytes());
        bytes
    }

    #[test]
    fn an_empty_environment_is_two_metas_and_one_of_them_is_enough() {
        let whole = [meta(0, 4), meta(1, 3)].concat();
        let map = read(&whole, ReadOptions::default()).expect("read");
        assert_eq!((map.extents().len(), map.damages_count), (1, 0));
        assert_eq!(map.at(5000).expect("there").kind, Plain::LmdbMeta.into());
        for damaged in [0, 1] {
            let mut bytes = whole.clone();
            bytes[damaged * 4096 + 16] ^= 1;
            let map = read(&bytes, ReadOptions::default()).expect("read");
            assert_eq!(map.damages_count, 1, "{:?}", map.damages);
        }
        let neither = vec![0; 8192];
        assert!(!is_there(&neither) && read(&neither, ReadOptions::default()).is_err());
    }
}
