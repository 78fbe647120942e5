//! A page of LMDB: its header, its nodes, and what a description of a tree says (`MDB_page`, `MDB_node` and `MDB_db` of `mdb.c`).

use crate::bytes::{le16, le32, le64};

/// Bytes of the header of a page.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of the description of a tree.
pub(super) const TREE_BYTES: usize = 48;
/// What a root is that is not there.
const NO_PAGE: u64 = u64::MAX;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const META: u16 = 0x08;
const LEAF_OF_KEYS: u16 = 0x20;
/// Set while a page is in memory only.
const DIRTY: u16 = 0x10;

const DATA_IN_OVERFLOW: u16 = 0x01;
const DATA_IS_TREE: u16 = 0x02;
const DATA_IS_DUPLICATES: u16 = 0x04;

/// What a page says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Meta,
    Branch,
    Leaf,
    /// The first of so many.
    Overflow(u64),
}

/// What a leaf has for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Here(Vec<u8>),
    /// So many bytes in pages from this one on.
    Overflow(u64, u64),
    /// A tree of its own: a database with a name, or many values of one key.
    Tree(Tree, bool),
}

/// A description of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) depth: u16,
    pub(super) branch_pages: u64,
    pub(super) leaf_pages: u64,
    pub(super) overflow_pages: u64,
    /// `None` if it is empty.
    pub(super) root: Option<u64>,
}

impl Tree {
    /// The first field is of no interest but in the tree of free pages, where it is the size of a page.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let root = le64(bytes, 40)?;
        Some(Self {
            depth: le16(bytes, 6)?,
            branch_pages: le64(bytes, 8)?,
            leaf_pages: le64(bytes, 16)?,
            overflow_pages: le64(bytes, 24)?,
            root: (root != NO_PAGE).then_some(root),
        })
    }
}

/// A page that says what it is.
pub(super) struct Page<'a> {
    bytes: &'a [u8],
    pub(super) number: u64,
    pub(super) role: Role,
    has_keys_only: bool,
    /// Where the room between pointers and nodes begins and ends.
    lower: usize,
    upper: usize,
}

impl<'a> Page<'a> {
    /// `None` if it is none of LMDB's.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let flags = le16(bytes, 10)? & !DIRTY;
        let has_keys_only = flags & LEAF_OF_KEYS != 0;
        let role = match flags & !LEAF_OF_KEYS {
            META => Role::Meta,
            BRANCH => Role::Branch,
            LEAF => Role::Leaf,
            OVERFLOW => Role::Overflow(u64::from(le32(bytes, 12)?)),
            _ => return None,
        };
        if has_keys_only && role != Role::Leaf {
            return None;
        }
        let (lower, upper) = (usize::from(le16(bytes, 12)?), usize::from(le16(bytes, 14)?));
        let is_tree = matches!(role, Role::Branch | Role::Leaf);
        if is_tree && !(HEADER_BYTES <= lower && lower <= upper && upper <= bytes.len()) {
            return None;
        }
        Some(Self { bytes, number: le64(bytes, 0)?, role, has_keys_only, lower, upper })
    }

    /// Where the nodes of a branch or a leaf lie; `None` of one that cannot be one.
    fn nodes(&self) -> impl Iterator<Item = Option<&'a [u8]>> + '_ {
        let count = if self.has_keys_only { 0 } else { (self.lower - HEADER_BYTES) / 2 };
        (0..count).map(|index| {
            let at = usize::from(le16(self.bytes, HEADER_BYTES + 2 * index)?);
            if at < self.upper { None } else { self.bytes.get(at..) }
        })
    }

    /// Pages that a branch refers to; `None` of one that cannot be read.
    pub(super) fn children(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.nodes().map(|node| {
            let node = node?;
            Some(u64::from(le32(node, 0)?) | u64::from(le16(node, 4)?) << 32)
        })
    }

    /// Keys of a leaf, and what it has for them; `None` of one that cannot be read. A leaf of keys alone has none.
    pub(super) fn entries(&self) -> impl Iterator<Item = Option<(&'a [u8], Value)>> + '_ {
        self.nodes().map(|node| {
            let node = node?;
            let (size, flags) = (le32(node, 0)? as usize, le16(node, 4)?);
            let key_bytes = usize::from(le16(node, 6)?);
            let key = node.get(8..8 + key_bytes)?;
            let data = node.get(8 + key_bytes..)?;
            let value = if flags & DATA_IN_OVERFLOW != 0 {
                Value::Overflow(le64(data, 0)?, size as u64)
            } else if flags & DATA_IS_TREE != 0 {
                Value::Tree(Tree::parse(data.get(..TREE_BYTES)?)?, flags & DATA_IS_DUPLICATES != 0)
            } else {
                Value::Here(data.get(..size)?.to_vec())
            };
            Some((key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_cannot_be_is_none() {
        let mut bytes = vec![0_u8; 512];
        assert!(Page::parse(&bytes).is_none(), "no flags");
        bytes[10] = BRANCH as u8;
        assert!(Page::parse(&bytes).is_none(), "no room is before the header");
        (bytes[12], bytes[15]) = (18, 2);
        let page = Page::parse(&bytes).expect("one node, at the end of the page");
        assert_eq!((page.role, page.children().count()), (Role::Branch, 1));
        assert_eq!(page.children().next(), Some(None), "which points into the header");
        bytes[16..18].copy_from_slice(&510_u16.to_le_bytes());
        assert_eq!(Page::parse(&bytes).expect("a page").children().next(), Some(None), "below its nodes");
        bytes[10] |= LEAF as u8;
        assert!(Page::parse(&bytes).is_none(), "two things");
        assert!(Page::parse(&bytes[..12]).is_none());
    }

    #[test]
    fn a_leaf_has_values_here_elsewhere_and_trees() {
        let mut bytes = vec![0_u8; 512];
        bytes[10] = LEAF as u8;
        let mut put = |index: usize, at: u16, size: u32, flags: u16, data: &[u8]| {
            bytes[16 + 2 * index..18 + 2 * index].copy_from_slice(&at.to_le_bytes());
            let at = usize::from(at);
            bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
            bytes[at + 4..at + 6].copy_from_slice(&flags.to_le_bytes());
            bytes[at + 6..at + 8].copy_from_slice(&1_u16.to_le_bytes());
            bytes[at + 8] = b'a' + index as u8;
            bytes[at + 9..at + 9 + data.len()].copy_from_slice(data);
        };
        put(0, 400, 3, 0, b"one");
        put(1, 420, 9000, DATA_IN_OVERFLOW, &7_u64.to_le_bytes());
        let mut tree = [0; TREE_BYTES];
        tree[40..].copy_from_slice(&u64::MAX.to_le_bytes());
        put(2, 440, TREE_BYTES as u32, DATA_IS_TREE, &tree);
        put(3, 502, 100, 0, b"");
        bytes[12..14].copy_from_slice(&24_u16.to_le_bytes());
        bytes[14..16].copy_from_slice(&400_u16.to_le_bytes());
        let page = Page::parse(&bytes).expect("a leaf");
        let entries: Vec<_> = page.entries().collect();
        assert_eq!(entries[0], Some((&b"a"[..], Value::Here(b"one".to_vec()))));
        assert_eq!(entries[1], Some((&b"b"[..], Value::Overflow(7, 9000))));
        let empty = Tree::parse(&tree).expect("48 bytes");
        assert_eq!((empty.root, entries[2].clone()), (None, Some((&b"c"[..], Value::Tree(empty, false)))));
        assert_eq!(entries[3], None, "it ends beyond the page");
    }
}
