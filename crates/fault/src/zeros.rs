//! A block of zeros: what a write of zeros without a payload would carry.

use std::sync::LazyLock;

use rotproof_block::ContentHash;

use crate::BLOCK_BYTES;

/// 4096 zeros.
pub(crate) static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// The content hash of a block of zeros.
pub(crate) fn zeros_hash() -> ContentHash {
    static HASH: LazyLock<ContentHash> = LazyLock::new(|| ContentHash::of(&ZEROS));
    *HASH
}
