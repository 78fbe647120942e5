//! A bitmap over the device that says "certainly not" for a few bytes of memory, whatever the device's size.

use std::ops::Range;

/// At most this many bits (128 KiB), so that the map stays in the processor's cache.
const BITS_MAX: u64 = 1 << 20;

/// One bit for so many blocks; set if any of them is in the set.
#[derive(Debug)]
pub(crate) struct CoarseMap {
    words: Box<[u64]>,
    /// Blocks per bit, as a power of two.
    shift: u32,
}

impl CoarseMap {
    /// A map for a device of that many blocks, with every block of `ranges` in it.
    pub(crate) fn new(device_blocks: u64, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut shift = 0;
        while device_blocks >> shift >= BITS_MAX {
            shift += 1;
        }
        let bits = (device_blocks >> shift) + 1;
        let mut words = vec![0; bits.div_ceil(64) as usize].into_boxed_slice();
        for range in ranges {
            let end = range.end.min(device_blocks);
            if range.start < end {
                for_each_word(range.start >> shift..((end - 1) >> shift) + 1, |word, mask| {
                    words[word] |= mask;
                });
            }
        }
        Self { words, shift }
    }

    /// Whether a block of `blocks` may be in the set; false is certain.
    pub(crate) fn may_have(&self, blocks: &Range<u64>) -> bool {
        if blocks.is_empty() {
            return false;
        }
        let bits = blocks.start >> self.shift..((blocks.end - 1) >> self.shift) + 1;
        if bits.end - bits.start == 1 {
            let word = self.words.get((bits.start / 64) as usize).copied().unwrap_or(0);
            return word >> (bits.start % 64) & 1 != 0;
        }
        let mut any = 0;
        for_each_word(bits, |word, mask| any |= self.words.get(word).copied().unwrap_or(0) & mask);
        any != 0
    }
}

fn for_each_word(bits: Range<u64>, mut visit: impl FnMut(usize, u64)) {
    let mut bit = bits.start;
    while bit < bits.end {
        let count = (64 - bit % 64).min(bits.end - bit);
        visit((bit / 64) as usize, (u64::MAX >> (64 - count)) << (bit % 64));
        bit += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_map_of_a_small_device_is_exact(
            ranges in prop::collection::vec((0u64..300, 0u64..90), 0..6), start in 0u64..300, length in 0u64..150
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            let map = CoarseMap::new(300, ranges.clone());
            let wanted = start..(start + length).min(300);
            let expected = wanted.clone().any(|block| ranges.iter().any(|range| range.contains(&block)));
            prop_assert_eq!(map.may_have(&wanted), expected);
        }
    }

    #[test]
    fn a_map_of_a_huge_device_stays_small_and_never_misses() {
        let device_blocks = (1u64 << 60) / 4096;
        let map = CoarseMap::new(device_blocks, std::iter::once(device_blocks - 1..device_blocks));
        assert!(map.words.len() <= 2 * BITS_MAX as usize / 64);
        assert!(map.may_have(&(device_blocks - 1..device_blocks)));
        assert!(!map.may_have(&(0..device_blocks / 2)));
    }
}
