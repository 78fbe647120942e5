//! The super block of btrfs: `struct btrfs_super_block`. All numbers are little-endian.

use rotproof_block::Result;

use crate::bytes::{le32, le64, u8_at};
use crate::reader::{bytes_at, invalid};
use crate::source::Source;

pub(crate) const MAGIC: &[u8] = b"_BHRfS_M";
/// Where the super block and its copies lie, as far as the device reaches.
pub(crate) const SUPER_OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
pub(super) const SUPER_BYTES: u64 = 4096;
const SYSTEM_CHUNKS: usize = 811;
const SYSTEM_CHUNKS_MAX: usize = 2048;

/// What is needed of it.
#[derive(Debug)]
pub(super) struct SuperBlock {
    pub(super) identifier: [u8; 16],
    pub(super) root: (u64, u8),
    pub(super) chunk_root: (u64, u8),
    /// Address 0: there is none.
    pub(super) log_root: (u64, u8),
    pub(super) sector_bytes: u64,
    pub(super) node_bytes: u64,
    /// The number of this device.
    pub(super) device: u64,
    /// Keys and items of the chunks that must be known first.
    pub(super) system_chunks: Vec<u8>,
}

impl SuperBlock {
    pub(super) fn read(source: &dyn Source) -> Result<Self> {
        let bytes = bytes_at(source, SUPER_OFFSETS[0], SUPER_BYTES as usize)?;
        Self::parse(&bytes).unwrap_or_else(|| Err(invalid("it ends too early")))
    }

    /// `None` cannot be, as all the fields lie within the bytes.
    fn parse(bytes: &[u8]) -> Option<Result<Self>> {
        let (sector_bytes, node_bytes) = (u64::from(le32(bytes, 144)?), u64::from(le32(bytes, 148)?));
        let chunks_bytes = le32(bytes, 160)? as usize;
        let is_size = |size: u64| size.is_power_of_two() && (4096..=65536).contains(&size);
        let problem = if !is_size(sector_bytes) || !is_size(node_bytes) || node_bytes < sector_bytes {
            Some(format!("sectors of {sector_bytes} bytes, nodes of {node_bytes}"))
        } else if chunks_bytes > SYSTEM_CHUNKS_MAX {
            Some(format!("{chunks_bytes} bytes of system chunks"))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Some(Err(invalid(problem)));
        }
        Some(Ok(Self {
            identifier: bytes.get(32..48)?.try_into().ok()?,
            root: (le64(bytes, 80)?, u8_at(bytes, 198)?),
            chunk_root: (le64(bytes, 88)?, u8_at(bytes, 199)?),
            log_root: (le64(bytes, 96)?, u8_at(bytes, 200)?),
            sector_bytes,
            node_bytes,
            device: le64(bytes, 201)?,
            system_chunks: bytes.get(SYSTEM_CHUNKS..SYSTEM_CHUNKS + chunks_bytes)?.to_owned(),
        }))
    }
}
