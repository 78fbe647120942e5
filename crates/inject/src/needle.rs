//! Finding blocks by their content, at any place, without looking at every byte.
//!
//! A block of 4096 bytes that lies anywhere covers, whatever its place, several positions that are multiples of
//! [`STRIDE`]. So it is enough to look at eight bytes at each of those, and to know for every way in which a block can
//! lie over them which eight bytes stand there: one entry for each of `STRIDE` ways, of those that it offers the one
//! with the most different bytes. This is the idea of Wu and Manber (*A fast algorithm for multi-pattern searching*,
//! TR 94-17, University of Arizona, 1994), for patterns that are long and all of one length.
//!
//! A block that is the same byte over long stretches, as a page of a database may be, offers for some ways only eight
//! equal bytes. Such a block is looked for by its most varied part, with `memchr`.

use memchr::memmem::Finder;
use rotproof_block::{Error, ErrorKind, Result};

/// Bytes of a block, and of a page.
pub const PAGE_BYTES: usize = 4096;
/// Distance of the positions that are looked at.
const STRIDE: usize = 1024;
const GRAM: usize = 8;
/// Ways in which one word may be entered before a block counts as one that repeats itself.
const EQUAL_MAX: usize = 16;
/// Length of the part by which a block is looked for that repeats itself.
const PART: usize = 32;

/// Blocks to be found.
pub struct Needles {
    blocks: Vec<Box<[u8]>>,
    /// Word, block, offset in the block: sorted by word.
    entries: Vec<(u64, u32, u16)>,
    /// A bit for each value of [`slot`] that some entry has.
    filter: Vec<u64>,
    shift: u32,
    /// Blocks that are looked for by a part at that offset.
    by_part: Vec<(usize, usize, Finder<'static>)>,
}

impl std::fmt::Debug for Needles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Needles({} blocks, {} by a part)", self.blocks.len(), self.by_part.len())
    }
}

impl Needles {
    /// Prepares the search for these blocks of 4096 bytes.
    ///
    /// Fails with [`ErrorKind::Invalid`] for a block of another length, and for one that is a single byte throughout:
    /// memory is full of those, and none is that block.
    pub fn new(blocks: &[&[u8]]) -> Result<Self> {
        let mut entries = Vec::new();
        let mut by_part = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            if block.len() != PAGE_BYTES {
                let context =
                    format!("a block to be found in memory has {} bytes; it must be 4096", block.len());
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            if block.iter().all(|byte| *byte == block[0]) {
                let context = format!(
                    "a block of which every byte is {:#04x} cannot be found in memory by its content, which is full of such \
                     blocks; take one with other content",
                    block[0]
                );
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            match entries_of(block, number) {
                Some(own) => entries.extend(own),
                None => {
                    let at = most_varied(block);
                    by_part.push((number, at, Finder::new(&block[at..at + PART]).into_owned()));
                }
            }
        }
        entries.sort_unstable();
        let bits = (entries.len() * 16).next_power_of_two().max(1 << 12);
        let shift = 64 - bits.trailing_zeros();
        let mut filter = vec![0u64; bits / 64];
        for (word, _, _) in &entries {
            let slot = slot(*word, shift);
            filter[slot / 64] |= 1 << (slot % 64);
        }
        let blocks = blocks.iter().map(|block| Box::from(*block)).collect();
        Ok(Self { blocks, entries, filter, shift, by_part })
    }

    /// How many blocks are looked for.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Calls `found` with the number of the block and the place in `bytes` for every copy that lies in it as a whole.
    /// Copies of one block are told once each, in no order.
    pub fn find(&self, bytes: &[u8], found: &mut dyn FnMut(usize, usize)) {
        if !self.entries.is_empty() {
            self.find_by_words(bytes, found);
        }
        for (number, at, finder) in &self.by_part {
            // One may begin within another, where the block repeats itself.
            let mut from = 0;
            while let Some(place) =
                bytes.get(from..).and_then(|rest| finder.find(rest)).map(|place| from + place)
            {
                if let Some(start) = place.checked_sub(*at)
                    && bytes.get(start..start + PAGE_BYTES) == Some(&*self.blocks[*number])
                {
                    found(*number, start);
                }
                from = place + 1;
            }
        }
    }

    fn find_by_words(&self, bytes: &[u8], found: &mut dyn FnMut(usize, usize)) {
        let mut position = 0;
        while let Some(chunk) = bytes[position..].first_chunk::<GRAM>() {
            let word = u64::from_le_bytes(*chunk);
            let slot = slot(word, self.shift);
            if self.filter[slot / 64] >> (slot % 64) & 1 == 1 {
                self.look_closer(bytes, position, word, found);
            }
            position += STRIDE;
            if position > bytes.len() {
                break;
            }
        }
    }

    #[cold]
    fn look_closer(&self, bytes: &[u8], position: usize, word: u64, found: &mut dyn FnMut(usize, usize)) {
        let first = self.entries.partition_point(|(entry, _, _)| *entry < word);
        for &(_, number, offset) in self.entries[first..].iter().take_while(|(entry, _, _)| *entry == word) {
            let (number, offset) = (number as usize, usize::from(offset));
            if let Some(start) = position.checked_sub(offset)
                && bytes.get(start..start + PAGE_BYTES) == Some(&*self.blocks[number])
            {
                found(number, start);
            }
        }
    }
}

/// One entry for each way in which a block can lie over the positions; none if it repeats itself.
fn entries_of(block: &[u8], number: usize) -> Option<Vec<(u64, u32, u16)>> {
    let mut entries = Vec::with_capacity(STRIDE);
    for way in 0..STRIDE {
        let offsets = (way..=PAGE_BYTES - GRAM).step_by(STRIDE);
        let best = offsets.max_by_key(|&offset| variety(&block[offset..offset + GRAM]))?;
        let gram = &block[best..best + GRAM];
        if variety(gram) < 2 {
            return None;
        }
        let word = gram.iter().rev().fold(0, |word: u64, &byte| word << 8 | u64::from(byte));
        entries.push((word, u32::try_from(number).ok()?, u16::try_from(best).ok()?));
    }
    let mut words: Vec<u64> = entries.iter().map(|(word, _, _)| *word).collect();
    words.sort_unstable();
    let repeats = words.chunk_by(|a, b| a == b).any(|equal| equal.len() > EQUAL_MAX);
    (!repeats).then_some(entries)
}

/// How many different values the bytes have.
fn variety(bytes: &[u8]) -> usize {
    (0..bytes.len()).filter(|&at| !bytes[..at].contains(&bytes[at])).count()
}

/// Where the part with the most different bytes begins.
fn most_varied(block: &[u8]) -> usize {
    (0..=PAGE_BYTES - PART).max_by_key(|&at| variety(&block[at..at + PART])).unwrap_or_default()
}

fn slot(word: u64, shift: u32) -> usize {
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        (0..PAGE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect()
    }

    fn found(needles: &[&[u8]], bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        Needles::new(needles).expect("they vary").find(bytes, &mut |number, at| places.push((number, at)));
        places.sort_unstable();
        places
    }

    /// The slow way.
    fn expected(needles: &[&[u8]], bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (number, needle) in needles.iter().enumerate() {
            let starts = 0..bytes.len().saturating_sub(PAGE_BYTES - 1);
            places.extend(starts.filter(|&at| bytes[at..at + PAGE_BYTES] == **needle).map(|at| (number, at)));
        }
        places
    }

    #[test]
    fn a_block_is_found_at_every_place_and_up_to_both_ends() {
        let needle = noise(1);
        for at in [0, 1, 7, 8, 511, 1023, 1024, 1025, 2047, 4095, 4096, 5000] {
            let mut bytes = vec![0; at];
            bytes.extend(&needle);
            assert_eq!(found(&[&needle], &bytes), [(0, at)], "it ends the memory");
            bytes.extend(vec![0; 3000]);
            assert_eq!(found(&[&needle], &bytes), [(0, at)]);
            assert!(found(&[&needle], &bytes[..at + PAGE_BYTES - 1]).is_empty(), "cut short at {at}");
        }
    }

    #[test]
    fn a_block_that_is_mostly_zeros_is_found_by_its_other_part() {
        let mut needle = vec![0; PAGE_BYTES];
        needle[3000..3020].copy_from_slice(b"twenty letters of it");
        let mut bytes = vec![0; 40_000];
        bytes[777..777 + PAGE_BYTES].copy_from_slice(&needle);
        // All around it is zero, so it is the block at this one place alone.
        assert_eq!(found(&[&needle], &bytes), [(0, 777)]);
        let pattern: Vec<u8> = (0..PAGE_BYTES).map(|at| (at % 5) as u8).collect();
        let mut twice = pattern.clone();
        twice.extend(&pattern);
        assert_eq!(found(&[&pattern], &twice), expected(&[&pattern], &twice));
    }

    #[test]
    fn what_cannot_be_found_is_refused() {
        let error = Needles::new(&[&[0; PAGE_BYTES]]).expect_err("zeros are everywhere");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(Needles::new(&[&[1, 2, 3]]).is_err(), "no block");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_same_is_found_as_by_looking_everywhere(
            seeds in proptest::collection::vec(0u64..40, 1..4),
            places in proptest::collection::vec((0usize..60_000, 0usize..4), 0..6),
            few in 1u8..255,
        ) {
            let mut seeds = seeds;
            seeds.sort_unstable();
            seeds.dedup();
            // Some have few different bytes.
            let needles: Vec<Vec<u8>> = seeds
                .iter()
                .map(|&seed| noise(seed).into_iter().map(|byte| byte % few.max(2)).collect())
                .collect();
            let needles: Vec<&[u8]> = needles.iter().map(Vec::as_slice).collect();
            let mut bytes = vec![0; 70_000];
            for (at, number) in places {
                let needle = needles[number % needles.len()];
                let end = (at + PAGE_BYTES).min(bytes.len());
                bytes[at..end].copy_from_slice(&needle[..end - at]);
            }
            prop_assert_eq!(found(&needles, &bytes), expected(&needles, &bytes));
        }
    }
}
