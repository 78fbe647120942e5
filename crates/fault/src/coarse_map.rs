//! A bitmap over the part of the device where rules have places, which says "certainly not" at the cost of one load.

use std::ops::Range;

/// At most this many bits (128 KiB), so that the map stays in the processor's cache.
const BITS_MAX: u64 = 1 << 20;

/// One bit for so many blocks; set if any of them is in the set. It reaches from the first block of the set to the
/// last, so that places close together are told apart on the largest device.
#[derive(Debug)]
pub(crate) struct CoarseMap {
    words: Box<[u64]>,
    /// From the first block of the set to the last, its end not included.
    reach: Range<u64>,
    /// Blocks per bit, as a power of two.
    shift: u32,
}

impl CoarseMap {
    /// A map with every block of `ranges` in it.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u64>, IntoIter: Clone>) -> Self {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty());
        let start = ranges.clone().map(|range| range.start).min().unwrap_or(0);
        let end = ranges.clone().map(|range| range.end).max().unwrap_or(0);
        let mut shift = 0;
        while (end - start) >> shift >= BITS_MAX {
            shift += 1;
        }
        let bits = ((end - start) >> shift) + 1;
        let mut map = Self { words: vec![0; bits.div_ceil(64) as usize].into(), reach: start..end, shift };
        for range in ranges {
            for_each_word(map.bits(&range), |word, mask| map.words[word] |= mask);
        }
        map
    }

    /// The bits of blocks that are within reach; at least one.
    fn bits(&self, blocks: &Range<u64>) -> Range<u64> {
        let from = (blocks.start - self.reach.start) >> self.shift;
        from..((blocks.end - 1 - self.reach.start) >> self.shift) + 1
    }

    /// Whether a block of `blocks` may be in the set; false is certain.
    pub(crate) fn may_have(&self, blocks: &Range<u64>) -> bool {
        let blocks = blocks.start.max(self.reach.start)..blocks.end.min(self.reach.end);
        if blocks.is_empty() {
            return false;
        }
        let bits = self.bits(&blocks);
        if bits.end - bits.start == 1 {
            return self.words[(bits.start / 64) as usize] >> (bits.start % 64) & 1 != 0;
        }
        let mut any = 0;
        for_each_word(bits, |word, mask| any |= self.words[word] & mask);
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
        fn a_map_of_places_close_together_is_exact(
            ranges in prop::collection::vec((0u64..300, 0u64..90), 0..6), start in 0u64..300, length in 0u64..150
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            // Far out, where only the distance from the first place makes them close.
            let far = 1 << 50;
            let map = CoarseMap::new(ranges.iter().map(|range| far + range.start..far + range.end));
            let wanted = start..start + length;
            let expected = wanted.clone().any(|block| ranges.iter().any(|range| range.contains(&block)));
            prop_assert_eq!(map.may_have(&(far + wanted.start..far + wanted.end)), expected);
            prop_assert!(!map.may_have(&wanted), "before the first place");
        }
    }

    #[test]
    fn a_map_of_places_far_apart_stays_small_and_never_misses() {
        let last = (1u64 << 60) / 4096;
        let map = CoarseMap::new([0..1, last..last + 1]);
        assert!(map.words.len() <= 2 * BITS_MAX as usize / 64);
        assert!(map.may_have(&(0..1)) && map.may_have(&(last..last + 1)) && map.may_have(&(1..u64::MAX)));
        assert!(!map.may_have(&(last / 4..last / 2)));
    }

    #[test]
    fn a_map_of_nothing_has_nothing() {
        assert!(!CoarseMap::new([]).may_have(&(0..u64::MAX)));
    }
}
