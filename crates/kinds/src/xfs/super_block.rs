//! The super block of XFS: `struct xfs_dsb` of `fs/xfs/libxfs/xfs_format.h`. All numbers are big-endian.

use rotproof_block::Result;

use crate::bytes::{be16, be32, be64, u8_at};
use crate::reader::{bytes_at, invalid};
use crate::source::Source;

const BYTES: usize = 512;
const VERSION_MASK: u16 = 0xf;
const FEATURES2_FILE_TYPES: u32 = 0x200;
const INCOMPAT_SPARSE_INODES: u32 = 0x2;
const INCOMPAT_LARGE_COUNTS: u32 = 0x20;
const RO_COMPAT_FINOBT: u32 = 0x1;
const RO_COMPAT_RMAPBT: u32 = 0x2;
const RO_COMPAT_REFLINK: u32 = 0x4;

/// What is needed of it, checked against the device.
#[derive(Debug)]
pub(super) struct SuperBlock {
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) sector_bytes: u64,
    pub(super) group_blocks: u64,
    pub(super) groups: u64,
    pub(super) inode_bytes: u64,
    pub(super) inodes_per_block: u64,
    /// Bits of a block number within its group.
    pub(super) group_bits: u32,
    /// Bits of an inode number within its block.
    pub(super) inode_bits: u32,
    /// First block of the log, as a number of the file system; 0 if it lies on another device.
    pub(super) log_start: u64,
    pub(super) log_blocks: u64,
    pub(super) root_inode: u64,
    pub(super) realtime_inodes: [u64; 2],
    pub(super) quota_inodes: [u64; 3],
    pub(super) directory_block_bits: u32,
    /// Version 5: structures carry checksums, and have longer headers.
    pub(super) is_v5: bool,
    /// Whether names in directories carry the type of their file.
    pub(super) has_file_types: bool,
    pub(super) has_sparse_inodes: bool,
    pub(super) has_large_counts: bool,
    pub(super) has_finobt: bool,
    pub(super) has_rmapbt: bool,
    pub(super) has_reflink: bool,
}

impl SuperBlock {
    pub(super) fn read(source: &dyn Source) -> Result<Self> {
        let bytes = bytes_at(source, 0, BYTES)?;
        Self::parse(&bytes, source.size()).unwrap_or_else(|| Err(invalid("it ends too early")))
    }

    /// `None` cannot be, as all the fields lie within the bytes.
    fn parse(bytes: &[u8], device_bytes: u64) -> Option<Result<Self>> {
        let block_bytes = u64::from(be32(bytes, 4)?);
        let (block_bits, sector_bits) = (u32::from(u8_at(bytes, 120)?), u32::from(u8_at(bytes, 121)?));
        let (inode_size_bits, inode_bits) = (u32::from(u8_at(bytes, 122)?), u32::from(u8_at(bytes, 123)?));
        let group_bits = u32::from(u8_at(bytes, 124)?);
        let (blocks, group_blocks) = (be64(bytes, 8)?, u64::from(be32(bytes, 84)?));
        let groups = u64::from(be32(bytes, 88)?);
        let version = be16(bytes, 100)? & VERSION_MASK;
        let is_v5 = version == 5;
        let problem = if !(9..=16).contains(&block_bits) || block_bytes != 1 << block_bits {
            Some(format!("blocks of {block_bytes} bytes"))
        } else if !matches!(version, 4 | 5) {
            Some(format!("version {version}"))
        } else if blocks.checked_mul(block_bytes).is_none_or(|bytes| bytes > device_bytes) {
            Some(format!("{blocks} blocks of {block_bytes} bytes on a device of {device_bytes} bytes"))
        } else if !(9..=15).contains(&sector_bits) {
            Some(format!("sectors of 2^{sector_bits} bytes"))
        } else if !(8..=11).contains(&inode_size_bits) || inode_bits + inode_size_bits != block_bits {
            Some(format!("inodes of 2^{inode_size_bits} bytes, 2^{inode_bits} in a block"))
        } else if group_blocks < 64 || group_bits > 31 || group_blocks.next_power_of_two() != 1 << group_bits
        {
            Some(format!("{group_blocks} blocks in a group, with numbers of {group_bits} bits"))
        } else if groups == 0 || blocks.div_ceil(group_blocks) != groups {
            Some(format!("{groups} groups of {group_blocks} blocks for {blocks} blocks"))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Some(Err(invalid(problem)));
        }
        let features = |at: usize| if is_v5 { be32(bytes, at) } else { Some(0) };
        let (ro_compat, incompat) = (features(212)?, features(216)?);
        Some(Ok(Self {
            block_bytes,
            blocks,
            sector_bytes: 1 << sector_bits,
            group_blocks,
            groups,
            inode_bytes: 1 << inode_size_bits,
            inodes_per_block: 1 << inode_bits,
            group_bits,
            inode_bits,
            log_start: be64(bytes, 48)?,
            log_blocks: u64::from(be32(bytes, 96)?),
            root_inode: be64(bytes, 56)?,
            realtime_inodes: [be64(bytes, 64)?, be64(bytes, 72)?],
            quota_inodes: [
                be64(bytes, 160)?,
                be64(bytes, 168)?,
                if is_v5 { be64(bytes, 232)? } else { u64::MAX },
            ],
            directory_block_bits: u32::from(u8_at(bytes, 192)?),
            is_v5,
            has_file_types: is_v5 || be32(bytes, 200)? & FEATURES2_FILE_TYPES != 0,
            has_sparse_inodes: incompat & INCOMPAT_SPARSE_INODES != 0,
            has_large_counts: incompat & INCOMPAT_LARGE_COUNTS != 0,
            has_finobt: ro_compat & RO_COMPAT_FINOBT != 0,
            has_rmapbt: ro_compat & RO_COMPAT_RMAPBT != 0,
            has_reflink: ro_compat & RO_COMPAT_REFLINK != 0,
        }))
    }

    /// The blocks that a group has; the last has fewer.
    pub(super) fn blocks_of(&self, group: u64) -> u64 {
        self.group_blocks.min(self.blocks.saturating_sub(group * self.group_blocks))
    }

    /// Byte offset of a block of a group.
    pub(super) fn offset_in(&self, group: u64, block: u64) -> u64 {
        (group * self.group_blocks + block) * self.block_bytes
    }

    /// Byte offset of a stretch of blocks, given by the number that files use; `None` if the file system has no such
    /// blocks in one group.
    pub(super) fn offset_of(&self, number: u64, blocks: u64) -> Option<u64> {
        let (group, block) = (number >> self.group_bits, number & ((1 << self.group_bits) - 1));
        let is_there = group < self.groups && block.checked_add(blocks)? <= self.blocks_of(group);
        is_there.then(|| self.offset_in(group, block))
    }
}
