//! What a device holds at one moment: blocks of 4096 bytes that are not zero.

use std::collections::HashMap;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_kinds::{Source, beyond};

/// Bytes of a block. The device has no smaller ones, so every structure that is smaller has a block of its own.
pub const BLOCK_BYTES: u64 = 4096;

/// One block.
pub(crate) type Block = Arc<[u8]>;

/// See the head of the module.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub(crate) size: u64,
    pub(crate) blocks: HashMap<u64, Block>,
}

impl Image {
    /// Zeros.
    pub(crate) fn zeros(size: u64) -> Self {
        Self { size, blocks: HashMap::new() }
    }

    /// What a block holds; `None` is zeros.
    pub(crate) fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.get(&number)
    }

    /// Whether two images hold the same there.
    pub(crate) fn is_same_at(&self, other: &Image, number: u64) -> bool {
        self.block(number) == other.block(number)
    }
}

impl Source for Image {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|&end| end <= self.size);
        let end = end.ok_or_else(|| beyond(offset, into.len(), self.size))?;
        let mut at = offset;
        while at < end {
            let (number, within) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let until = end.min((number + 1) * BLOCK_BYTES);
            let part = &mut into[(at - offset) as usize..(until - offset) as usize];
            match self.block(number) {
                Some(block) => part.copy_from_slice(&block[within as usize..within as usize + part.len()]),
                None => part.fill(0),
            }
            at = until;
        }
        Ok(())
    }
}
