//! A node of a tree: keys with pointers, or with items. `struct btrfs_header`, `btrfs_item`, `btrfs_key_ptr`.

use crate::bytes::{le32, le64, u8_at};

const HEADER: usize = 101;
const ITEM: usize = 25;
const POINTER: usize = 33;

/// The key of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) object: u64,
    pub(super) kind: u8,
    pub(super) offset: u64,
}

impl Key {
    pub(super) const BYTES: usize = 17;

    pub(super) fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self { object: le64(bytes, at)?, kind: u8_at(bytes, at + 8)?, offset: le64(bytes, at + 9)? })
    }
}

/// Whether a block is the node of this file system that belongs to this address.
pub(super) fn is_node(bytes: &[u8], address: u64, identifier: &[u8; 16]) -> bool {
    bytes.get(32..48) == Some(identifier) && le64(bytes, 48) == Some(address)
}

pub(super) fn level(bytes: &[u8]) -> Option<u8> {
    u8_at(bytes, 100)
}

fn count(bytes: &[u8]) -> usize {
    le32(bytes, 96).unwrap_or(0) as usize
}

/// The addresses that an inner node points to.
pub(super) fn pointers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let all = bytes.get(HEADER..).unwrap_or_default().chunks_exact(POINTER).take(count(bytes));
    all.filter_map(|pointer| le64(pointer, Key::BYTES))
}

/// The items of a leaf, each with its bytes, as far as they lie within it.
pub(super) fn items(bytes: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
    let body = bytes.get(HEADER..).unwrap_or_default();
    body.chunks_exact(ITEM).take(count(bytes)).filter_map(move |item| {
        let (from, length) = (le32(item, 17)? as usize, le32(item, 21)? as usize);
        Some((Key::parse(item, 0)?, body.get(from..from.checked_add(length)?)?))
    })
}
