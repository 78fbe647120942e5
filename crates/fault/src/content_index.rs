//! Which rules want a content: a small filter in front of a hash map whose keys are hashes already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rotproof_block::ContentHash;

/// Filter bits per content: about one in sixteen foreign contents passes, and then meets the map.
const FILTER_BITS_PER_CONTENT: usize = 16;

/// From a content to the rules that want it.
#[derive(Debug)]
pub(crate) struct ContentIndex {
    filter: Box<[u64]>,
    rules: HashMap<u128, Vec<u32>, BuildHasherDefault<Identity>>,
}

impl ContentIndex {
    pub(crate) fn new(contents: impl IntoIterator<Item = (ContentHash, u32)>) -> Self {
        let mut rules: HashMap<u128, Vec<u32>, _> = HashMap::default();
        for (content, rule) in contents {
            rules.entry(content.0).or_default().push(rule);
        }
        let bits = (rules.len() * FILTER_BITS_PER_CONTENT).next_power_of_two().max(64);
        let mut filter = vec![0u64; bits / 64].into_boxed_slice();
        for &content in rules.keys() {
            let (word, bit) = filter_place(content, bits / 64);
            filter[word] |= bit;
        }
        Self { filter, rules }
    }

    /// The rules that want `content`; nearly always none.
    pub(crate) fn find(&self, content: ContentHash) -> &[u32] {
        let (word, bit) = filter_place(content.0, self.filter.len());
        if self.filter[word] & bit == 0 {
            return &[];
        }
        self.rules.get(&content.0).map_or(&[], Vec::as_slice)
    }
}

/// The filter takes the upper half of the hash, the map the lower.
fn filter_place(content: u128, words: usize) -> (usize, u64) {
    let upper = (content >> 64) as u64;
    ((upper >> 6) as usize & (words - 1), 1 << (upper & 63))
}

/// Takes the lower half of a content hash as it is.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }

    /// Any other key; none is used.
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u64) -> ContentHash {
        ContentHash::of(&number.to_le_bytes())
    }

    #[test]
    fn every_content_finds_its_rules_and_a_foreign_one_none() {
        let index = ContentIndex::new((0..10_000).map(|n| (content(n / 2), n as u32)));
        for n in 0..5000 {
            assert_eq!(index.find(content(n)), [2 * n as u32, 2 * n as u32 + 1]);
        }
        for n in 5000..50_000 {
            assert!(index.find(content(n)).is_empty());
        }
    }

    #[test]
    fn the_filter_answers_for_most_foreign_contents() {
        let index = ContentIndex::new((0..10_000).map(|n| (content(n), 0)));
        let passed = (10_000..110_000u64)
            .filter(|&n| {
                let (word, bit) = filter_place(content(n).0, index.filter.len());
                index.filter[word] & bit != 0
            })
            .count();
        assert!(passed < 10_000, "{passed} of 100000 foreign contents met the map");
    }
}
