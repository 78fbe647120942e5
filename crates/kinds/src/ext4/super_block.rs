//! The super block of ext4: what the layout follows from. `struct ext4_super_block` of `fs/ext4/ext4.h`.

use std::ops::Range;

use rotproof_block::Result;

use crate::bytes::{le16, le32, le64};
use crate::reader::{bytes_at, invalid, unsupported};
use crate::source::Source;

const OFFSET: u64 = 1024;
const BYTES: usize = 1024;

const COMPAT_RESIZE_INODE: u32 = 0x10;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const COMPAT_ORPHAN_FILE: u32 = 0x1000;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_MMP: u32 = 0x100;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_GDT_CSUM: u32 = 0x10;
const RO_COMPAT_QUOTA: u32 = 0x100;
const RO_COMPAT_BIGALLOC: u32 = 0x200;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;

/// Fewer blocks in a group than mke2fs makes; fewer would make more groups than can be meant.
const GROUP_BLOCKS_MIN: u64 = 256;

/// What is needed of it, checked against the device.
#[derive(Debug)]
pub(super) struct SuperBlock {
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) first_data_block: u64,
    pub(super) blocks_per_group: u64,
    pub(super) inodes_per_group: u64,
    pub(super) groups: u64,
    pub(super) inode_bytes: u64,
    pub(super) descriptor_bytes: u64,
    /// Blocks behind the descriptors that are kept for more of them.
    pub(super) reserved_gdt_blocks: u64,
    /// From this block of descriptors on, each lies with its groups.
    pub(super) first_meta_group: u64,
    /// Whether flags and counts of the descriptors can be relied on.
    pub(super) has_group_flags: bool,
    pub(super) journal_inode: u32,
    pub(super) quota_inodes: [u32; 3],
    pub(super) orphan_inode: u32,
    pub(super) multi_mount_block: u64,
    has_sparse_super: bool,
    sparse_super2_backups: Option<[u64; 2]>,
}

impl SuperBlock {
    pub(super) fn read(source: &dyn Source) -> Result<Self> {
        let bytes = bytes_at(source, OFFSET, BYTES)?;
        let found = Self::parse(&bytes, source.size());
        found.unwrap_or_else(|| Err(invalid("it ends too early")))
    }

    /// `None` cannot be, as all the fields lie within the bytes.
    fn parse(bytes: &[u8], device_bytes: u64) -> Option<Result<Self>> {
        let (compat, incompat, ro_compat) = (le32(bytes, 92)?, le32(bytes, 96)?, le32(bytes, 100)?);
        if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
            return Some(Err(unsupported("it is the external journal of another ext4")));
        }
        if ro_compat & RO_COMPAT_BIGALLOC != 0 {
            return Some(Err(unsupported("this ext4 allocates in clusters (bigalloc)")));
        }
        let log_block = le32(bytes, 24)?;
        if log_block > 6 {
            return Some(Err(invalid(format!("blocks of 2^{log_block} KiB"))));
        }
        let block_bytes = 1024_u64 << log_block;
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let high = if is_64bit { le32(bytes, 336)? } else { 0 };
        let blocks = u64::from(high) << 32 | u64::from(le32(bytes, 4)?);
        let first_data_block = u64::from(le32(bytes, 20)?);
        let blocks_per_group = u64::from(le32(bytes, 32)?);
        let inodes_per_group = u64::from(le32(bytes, 40)?);
        let is_old = le32(bytes, 76)? == 0;
        let inode_bytes = if is_old { 128 } else { u64::from(le16(bytes, 88)?) };
        let descriptor_bytes = if is_64bit { u64::from(le16(bytes, 254)?) } else { 32 };
        let bits = 8 * block_bytes;
        let problem = if blocks.checked_mul(block_bytes).is_none_or(|bytes| bytes > device_bytes) {
            Some(format!("{blocks} blocks of {block_bytes} bytes on a device of {device_bytes} bytes"))
        } else if first_data_block != u64::from(block_bytes == 1024) || blocks <= first_data_block {
            Some(format!("the first block of {blocks} is {first_data_block}"))
        } else if !(GROUP_BLOCKS_MIN..=bits).contains(&blocks_per_group) {
            Some(format!("{blocks_per_group} blocks in a group"))
        } else if !(1..=bits).contains(&inodes_per_group) {
            Some(format!("{inodes_per_group} inodes in a group"))
        } else if inode_bytes < 128 || inode_bytes > block_bytes || !inode_bytes.is_power_of_two() {
            Some(format!("inodes of {inode_bytes} bytes"))
        } else if !(32..=1024).contains(&descriptor_bytes) || !descriptor_bytes.is_power_of_two() {
            Some(format!("group descriptors of {descriptor_bytes} bytes"))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Some(Err(invalid(problem)));
        }
        let groups = (blocks - first_data_block).div_ceil(blocks_per_group);
        let descriptor_blocks = (groups * descriptor_bytes).div_ceil(block_bytes);
        let meta = if incompat & INCOMPAT_META_BG != 0 { u64::from(le32(bytes, 260)?) } else { u64::MAX };
        let has = |flag: u32, at: usize| -> Option<u32> {
            if ro_compat & flag != 0 { le32(bytes, at) } else { Some(0) }
        };
        Some(Ok(Self {
            block_bytes,
            blocks,
            first_data_block,
            blocks_per_group,
            inodes_per_group,
            groups,
            inode_bytes,
            descriptor_bytes,
            reserved_gdt_blocks: match compat & COMPAT_RESIZE_INODE {
                0 => 0,
                _ => u64::from(le16(bytes, 206)?),
            },
            first_meta_group: meta.min(descriptor_blocks),
            has_group_flags: ro_compat & (RO_COMPAT_GDT_CSUM | RO_COMPAT_METADATA_CSUM) != 0,
            journal_inode: le32(bytes, 224)?,
            quota_inodes: [
                has(RO_COMPAT_QUOTA, 576)?,
                has(RO_COMPAT_QUOTA, 580)?,
                has(RO_COMPAT_QUOTA, 620)?,
            ],
            orphan_inode: if compat & COMPAT_ORPHAN_FILE != 0 { le32(bytes, 640)? } else { 0 },
            multi_mount_block: if incompat & INCOMPAT_MMP != 0 { le64(bytes, 360)? } else { 0 },
            has_sparse_super: ro_compat & RO_COMPAT_SPARSE_SUPER != 0,
            sparse_super2_backups: match compat & COMPAT_SPARSE_SUPER2 {
                0 => None,
                _ => Some([u64::from(le32(bytes, 588)?), u64::from(le32(bytes, 592)?)]),
            },
        }))
    }

    /// Blocks of group descriptors in all.
    pub(super) fn descriptor_blocks(&self) -> u64 {
        (self.groups * self.descriptor_bytes).div_ceil(self.block_bytes)
    }

    pub(super) fn first_block_of(&self, group: u64) -> u64 {
        self.first_data_block + group * self.blocks_per_group
    }

    /// The blocks of a group; the last is shorter.
    pub(super) fn blocks_of(&self, group: u64) -> Range<u64> {
        let first = self.first_block_of(group);
        first..(first + self.blocks_per_group).min(self.blocks)
    }

    /// Whether a group begins with the super block or a copy: `ext4_bg_has_super`.
    pub(super) fn has_super(&self, group: u64) -> bool {
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        match self.sparse_super2_backups {
            _ if group == 0 => true,
            Some(backups) => backups.contains(&group),
            None if group == 1 || !self.has_sparse_super => true,
            None => [3, 5, 7].into_iter().any(is_power_of),
        }
    }

    /// Where the block of descriptors lies that is in use.
    pub(super) fn descriptor_place(&self, block: u64) -> u64 {
        if block < self.first_meta_group {
            return self.first_data_block + 1 + block;
        }
        let group = block * (self.block_bytes / self.descriptor_bytes);
        self.first_block_of(group) + u64::from(self.has_super(group))
    }

    /// Where the copies of a block of descriptors lie, the one in use first. `with_super` are the groups that have a copy
    /// of the super block.
    pub(super) fn descriptor_places(&self, block: u64, with_super: &[u64]) -> Vec<u64> {
        if block < self.first_meta_group {
            return with_super.iter().map(|&group| self.first_block_of(group) + 1 + block).collect();
        }
        let each = self.block_bytes / self.descriptor_bytes;
        let first = block * each;
        let groups = [first, first + 1, first + each - 1];
        let places = groups.into_iter().filter(|&group| group < self.groups);
        places.map(|group| self.first_block_of(group) + u64::from(self.has_super(group))).collect()
    }

    /// Bytes of blocks.
    pub(super) fn bytes(&self, blocks: Range<u64>) -> Range<u64> {
        blocks.start.saturating_mul(self.block_bytes)..blocks.end.saturating_mul(self.block_bytes)
    }
}
