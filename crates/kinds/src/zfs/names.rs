//! Names in the blocks of a directory: a table of names and numbers (ZAP), small in one block or spread over leaves.
//!
//! Layout: *ZFS On-Disk Specification*, chapter 5.

use crate::bytes::{be64, le16, le64, u8_at};

const MICRO: u64 = (1 << 63) + 3;
const LEAF: u64 = 1 << 63;
const ENTRY_BYTES: usize = 64;
const LEAF_HEAD_BYTES: usize = 48;
const CHUNK_BYTES: usize = 24;
const CHUNK_IS_ENTRY: u8 = 252;
const CHUNK_IS_ARRAY: u8 = 251;
/// Bytes of a name or number in a chunk.
const ARRAY_BYTES: usize = 21;
/// Longer names no file has.
const NAME_BYTES_MAX: usize = 256;
/// The number of the object; above it stands what kind of file it is.
const OBJECT_MASK: u64 = (1 << 48) - 1;

/// Names and the objects that they name.
pub(super) fn names_in(block: &[u8]) -> Vec<(Vec<u8>, u64)> {
    match le64(block, 0) {
        Some(MICRO) => block.chunks_exact(ENTRY_BYTES).skip(1).filter_map(micro_entry).collect(),
        Some(LEAF) => leaf_entries(block),
        _ => Vec::new(),
    }
}

fn micro_entry(entry: &[u8]) -> Option<(Vec<u8>, u64)> {
    let name: Vec<u8> = entry.get(14..)?.iter().copied().take_while(|&byte| byte != 0).collect();
    (!name.is_empty()).then_some((name, le64(entry, 0)? & OBJECT_MASK))
}

fn leaf_entries(block: &[u8]) -> Vec<(Vec<u8>, u64)> {
    // A hash table of two bytes for each 32 of the block stands before the chunks.
    let chunks = block.get(LEAF_HEAD_BYTES + block.len() / 32 * 2..).unwrap_or_default();
    let chunk = |number: u16| chunks.get(usize::from(number) * CHUNK_BYTES..)?.get(..CHUNK_BYTES);
    let array = |first: u16, length: usize| {
        let (mut bytes, mut number) = (Vec::new(), first);
        while bytes.len() < length {
            let part = chunk(number).filter(|part| part[0] == CHUNK_IS_ARRAY)?;
            bytes.extend(&part[1..1 + ARRAY_BYTES]);
            number = le16(part, 1 + ARRAY_BYTES)?;
        }
        bytes.truncate(length);
        Some(bytes)
    };
    let entry = |part: &[u8]| {
        (u8_at(part, 0)? == CHUNK_IS_ENTRY).then_some(())?;
        let length = usize::from(le16(part, 6)?).min(NAME_BYTES_MAX);
        let mut name = array(le16(part, 4)?, length)?;
        // It ends with zero.
        name.pop();
        let value = be64(&array(le16(part, 8)?, 8)?, 0)? & OBJECT_MASK;
        (!name.is_empty()).then_some((name, value))
    };
    chunks.chunks_exact(CHUNK_BYTES).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_a_small_table_and_from_a_leaf() {
        let mut block = vec![0; 512];
        block[..8].copy_from_slice(&MICRO.to_le_bytes());
        block[64..72].copy_from_slice(&(8 << 60 | 9_u64).to_le_bytes());
        block[78..81].copy_from_slice(b"abc");
        assert_eq!(names_in(&block), [(b"abc".to_vec(), 9)]);

        let mut leaf = vec![0; 1024];
        leaf[..8].copy_from_slice(&LEAF.to_le_bytes());
        let at = |chunk: usize| LEAF_HEAD_BYTES + 64 + chunk * CHUNK_BYTES;
        (leaf[at(0)], leaf[at(0) + 4], leaf[at(0) + 6], leaf[at(0) + 8]) = (CHUNK_IS_ENTRY, 1, 25, 3);
        (leaf[at(1)], leaf[at(2)], leaf[at(3)]) = (CHUNK_IS_ARRAY, CHUNK_IS_ARRAY, CHUNK_IS_ARRAY);
        leaf[at(1) + 1..at(1) + 22].fill(b'x');
        leaf[at(1) + 22] = 2;
        leaf[at(2) + 1..at(2) + 4].fill(b'y');
        leaf[at(3) + 8] = 77;
        let name = [&[b'x'; 21][..], b"yyy"].concat();
        assert_eq!(names_in(&leaf), [(name, 77)]);
        leaf[at(1) + 22] = 200;
        assert!(names_in(&leaf).is_empty(), "the chain leads to nothing");
        assert!(names_in(&[0; 4096]).is_empty() && names_in(&[1]).is_empty());
    }
}
