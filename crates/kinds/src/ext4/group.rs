//! A group descriptor: where the bitmaps and the inode table of a group lie. `struct ext4_group_desc`.

use crate::bytes::{le16, le32};
use crate::reader::bytes_at;

use super::Reader;

const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;

/// What a descriptor says, checked against the file system.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) number: u64,
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
    /// The bitmap was never written: only the layout is in use.
    pub(super) is_block_bitmap_unset: bool,
    /// So many inodes from the first on may be in use.
    pub(super) inodes_used: u64,
}

impl Group {
    /// `None` if it cannot be read, or says what cannot be; that is damage.
    pub(super) fn read(reader: &mut Reader<'_>, number: u64) -> Option<Self> {
        let layout = &reader.layout;
        let each = layout.block_bytes / layout.descriptor_bytes;
        let place = layout.descriptor_place(number / each);
        let offset = place * layout.block_bytes + number % each * layout.descriptor_bytes;
        let found = match bytes_at(reader.source, offset, layout.descriptor_bytes as usize) {
            Ok(bytes) => Self::parse(reader, number, &bytes),
            Err(error) => Err(error.to_string()),
        };
        found.map_err(|what| reader.builder.damaged(offset, what)).ok()
    }

    fn parse(reader: &Reader<'_>, number: u64, bytes: &[u8]) -> Result<Self, String> {
        let layout = &reader.layout;
        let low = |at: usize| le32(bytes, at).unwrap_or(0);
        // Older descriptors end before the high halves.
        let high = |at: usize| if bytes.len() >= 64 { low(at) } else { 0 };
        let place = |at: usize, above: usize| u64::from(high(above)) << 32 | u64::from(low(at));
        let (block_bitmap, inode_bitmap, inode_table) = (place(0, 32), place(4, 36), place(8, 40));
        for (what, block) in
            [("block bitmap", block_bitmap), ("inode bitmap", inode_bitmap), ("inode table", inode_table)]
        {
            if !(layout.first_data_block..layout.blocks).contains(&block) {
                return Err(format!(
                    "the {what} of group {number} is said to be at block {block}, which there is not"
                ));
            }
        }
        let flags = if layout.has_group_flags { le16(bytes, 18).unwrap_or(0) } else { 0 };
        let unused_high = if bytes.len() >= 64 { le16(bytes, 50).unwrap_or(0) } else { 0 };
        let unused = match layout.has_group_flags {
            true => u64::from(unused_high) << 16 | u64::from(le16(bytes, 28).unwrap_or(0)),
            false => 0,
        };
        Ok(Self {
            number,
            block_bitmap,
            inode_bitmap,
            inode_table,
            is_block_bitmap_unset: flags & BLOCK_UNINIT != 0,
            inodes_used: match flags & INODE_UNINIT {
                0 => layout.inodes_per_group.saturating_sub(unused),
                _ => 0,
            },
        })
    }
}
