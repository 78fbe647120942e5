//! Which rules want a content: a small filter in front of a hash map whose keys are hashes already. Where the first
//! bytes of every wanted content are known, blocks that begin otherwise are not even hashed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rotproof_block::{ContentHash, Operation};

use crate::geometry::Header;
use crate::zeros::zeros_hash;

/// Filter bits per content: about one in sixteen foreign contents passes, and then meets the map.
const FILTER_BITS_PER_CONTENT: usize = 16;

/// From a content to the rules that want it.
#[derive(Debug)]
pub(crate) struct ContentIndex {
    filter: Box<[u64]>,
    /// How wanted contents begin, if that is known of all.
    beginnings: Option<Box<[u64]>>,
    rules: HashMap<u128, Vec<u32>, BuildHasherDefault<Identity>>,
}

impl ContentIndex {
    /// Contents with their first eight bytes, where those are known, and the rule that wants them.
    pub(crate) fn new(contents: impl IntoIterator<Item = (ContentHash, Option<u64>, u32)>) -> Self {
        let mut rules: HashMap<u128, Vec<u32>, _> = HashMap::default();
        let mut known = Vec::new();
        let mut count = 0;
        for (content, beginning, rule) in contents {
            rules.entry(content.0).or_default().push(rule);
            known.extend(beginning);
            count += 1;
        }
        let bits = (rules.len() * FILTER_BITS_PER_CONTENT).next_power_of_two().max(64);
        let mut filter = vec![0u64; bits / 64].into_boxed_slice();
        for &content in rules.keys() {
            let (word, bit) = filter_place(content, bits / 64);
            filter[word] |= bit;
        }
        let beginnings = (known.len() == count).then(|| {
            let mut filter = vec![0u64; bits / 64].into_boxed_slice();
            for beginning in known {
                let (word, bit) = beginning_place(beginning, bits / 64);
                filter[word] |= bit;
            }
            filter
        });
        Self { filter, beginnings, rules }
    }

    /// Whether a block may hold a wanted content, by its first bytes; false is certain.
    pub(crate) fn may_want(&self, block: &[u8]) -> bool {
        let Some(beginnings) = &self.beginnings else { return true };
        let Some(beginning) = block.first_chunk() else { return true };
        let (word, bit) = beginning_place(u64::from_le_bytes(*beginning), beginnings.len());
        beginnings[word] & bit != 0
    }

    /// Whether a rule wants the content of any whole block of the request, whose data is `data`.
    pub(crate) fn concerns(&self, header: &Header, data: &[u8]) -> bool {
        match header.operation {
            Operation::WriteZeroes => !self.find(zeros_hash()).is_empty(),
            Operation::Read | Operation::Write { .. } => header.full_blocks().any(|block| {
                let data = &data[header.in_buffer(block)];
                self.may_want(data) && !self.find(ContentHash::of(data)).is_empty()
            }),
            Operation::Discard | Operation::Flush => false,
        }
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

/// What blocks begin with is rarely random, so its bits are spread first (Knuth's multiplicative hashing).
fn beginning_place(beginning: u64, words: usize) -> (usize, u64) {
    let spread = beginning.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((spread >> 32) as usize & (words - 1), 1 << (spread >> 58))
}

/// Takes the lower half of a content hash as it is.
#[derive(Default)]
pub(crate) struct Identity(u64);

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
        let index = ContentIndex::new((0..10_000).map(|n| (content(n / 2), None, n as u32)));
        for n in 0..5000 {
            assert_eq!(index.find(content(n)), [2 * n as u32, 2 * n as u32 + 1]);
        }
        for n in 5000..50_000 {
            assert!(index.find(content(n)).is_empty());
        }
    }

    #[test]
    fn a_block_that_begins_as_none_that_is_wanted_is_not_hashed() {
        let wanted =
            |known: bool| ContentIndex::new((0..1000u64).map(|n| (content(n), known.then_some(n), 0)));
        let block = |beginning: u64| {
            let mut block = [0; 4096];
            block[..8].copy_from_slice(&beginning.to_le_bytes());
            block
        };
        let index = wanted(true);
        assert!((0..1000).all(|n| index.may_want(&block(n))));
        let passed = (1000..101_000).filter(|&n| index.may_want(&block(n))).count();
        assert!(passed < 12_000, "{passed} of 100000 foreign blocks passed");
        let blind = wanted(false);
        assert!((1000..2000).all(|n| blind.may_want(&block(n))), "nothing is known of how they begin");
        let mixed =
            ContentIndex::new([(content(1), Some(1), 0), (content(2), None, 1), (content(3), Some(3), 2)]);
        assert!(mixed.may_want(&block(7)), "one that is not known may begin in any way");
    }

    #[test]
    fn the_filter_answers_for_most_foreign_contents() {
        let index = ContentIndex::new((0..10_000).map(|n| (content(n), None, 0)));
        let passed = (10_000..110_000u64)
            .filter(|&n| {
                let (word, bit) = filter_place(content(n).0, index.filter.len());
                index.filter[word] & bit != 0
            })
            .count();
        assert!(passed < 10_000, "{passed} of 100000 foreign contents met the map");
    }
}
