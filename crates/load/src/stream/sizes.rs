//! How large each request of a worker is: drawn for each by itself, from the seed and its number among its kind.

use rotproof_block::hash::mix;

use crate::BLOCK_BYTES;
use crate::block_sizes::SizeMix;

/// Streams of [`mix`] that belong to sizes.
const SIZES: u64 = 0x05_17e5;

/// The sizes of one operation.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Reads and writes draw apart, although both are counted from zero.
    draws: u64,
    /// In blocks, each with the draws below which it or one before is meant.
    sizes: Vec<(u64, u64)>,
}

impl Sizes {
    /// `operation` tells the operations of a worker apart.
    pub(super) fn new(mix: &SizeMix, operation: u64) -> Self {
        let mut sum = 0.0;
        let sizes = mix.0.iter().map(|(size, share)| {
            sum += share.0;
            // Saturates at the end, where the sum is one but for rounding.
            (size.0 / BLOCK_BYTES as u64, (sum * 2f64.powi(64)) as u64)
        });
        Self { draws: SIZES + operation, sizes: sizes.collect() }
    }

    /// Blocks of request number `index` of this operation.
    #[inline]
    pub(super) fn blocks(&self, seed: u64, key: u64, index: u64) -> u64 {
        let [others @ .., (last, _)] = self.sizes.as_slice() else { return 1 };
        if others.is_empty() {
            return *last;
        }
        let draw = mix(seed, self.draws ^ key << 32, index);
        others.iter().find(|(_, below)| draw < *below).map_or(*last, |(size, _)| *size)
    }
}
