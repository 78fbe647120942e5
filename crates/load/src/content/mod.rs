//! What blocks hold: a pure function of the run's seed and a content id, recognisable from the bytes alone.
//!
//! A content is one block of 4096 bytes. Each of its 512-byte sectors begins with a word that holds the content id
//! and the number of the sector, keyed by the seed; the rest is a stream that grows from (seed, id). So a sector that
//! turns up elsewhere, too early, too late or beside sectors of another version says whose it is, and the 504 bytes
//! after the claim prove it. To a stack the content is incompressible, and two contents share nothing; unless it is to be
//! compressible: then the last words of each sector repeat its first one.

mod generator;
mod id;

use std::cell::RefCell;

use rotproof_block::ContentHash;
use rotproof_block::hash::mix;

use crate::BLOCK_BYTES;
pub(crate) use generator::Block;
use generator::{Generator, Headers};
pub use generator::{SECTOR_BYTES, SECTORS};
pub use id::{ContentId, FILE_BLOCKS_MAX, FILES_END, InFile, Stage, VERSIONS_END};

/// Streams of [`mix`] that belong to contents.
const ROOTS: u64 = 0xc0_47e1;
const KEYS: u64 = 0xc0_4e15;

/// An odd number and its inverse modulo 2^64: spreads the id over its word, and gathers it again.
const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;
const GATHER: u64 = inverse(SPREAD);

/// Newton's iteration doubles the correct bits of an inverse modulo 2^64; an odd number begins with three.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut round = 0;
    while round < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

/// All contents of one run.
#[derive(Clone, Copy)]
pub struct Content {
    seed: u64,
    keys: [u64; SECTORS],
    /// Words of each sector that are not repetitions of its first.
    own_words: [u8; SECTORS],
    is_compressible: bool,
    generator: Generator,
}

/// Words of a sector.
const WORDS: usize = SECTOR_BYTES / 8;

/// Words that a sector needs to prove what its first one claims.
const OWN_WORDS_MIN: u32 = 2;

/// Bytes that a compressor takes to say that the rest of a sector repeats: LZ4 six to eight, zstd about as many.
const REPETITION_BYTES: f64 = 7.0;

/// The largest share of a block that can be saved.
pub const COMPRESSIBLE_MAX: f64 = 0.95;

/// A sector that was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectorIdentity {
    /// The content it is of.
    pub id: ContentId,
    /// Which sector of that content, counted from zero.
    pub sector: u8,
}

/// A sector whose header is intact is recognised as long as fewer of its other bits than this are wrong. A sector of
/// another content differs in about half of its 4032 bits, as its repetitions of the header do.
const DAMAGED_BITS_MAX: u32 = 256;

/// The bytes at the beginning of a sector that claim what it is and prove it.
const PROOF_BYTES: usize = 16;

impl Content {
    /// The contents of the run with this seed.
    pub fn new(seed: u64) -> Self {
        Self::with_generator(seed, Generator::best())
    }

    fn with_generator(seed: u64, generator: Generator) -> Self {
        let keys = std::array::from_fn(|sector| mix(seed, KEYS, sector as u64));
        Self { seed, keys, own_words: [WORDS as u8; SECTORS], is_compressible: false, generator }
    }

    /// The same contents, of each of which a compressor saves this share, up to [`COMPRESSIBLE_MAX`].
    #[must_use]
    pub fn compressible(mut self, share: f64) -> Self {
        if share <= 0.0 {
            return self;
        }
        let sector_bytes = SECTOR_BYTES as f64 * (1.0 - share.min(COMPRESSIBLE_MAX)) - REPETITION_BYTES;
        // Whole words are too coarse for one sector, so the sectors share what they have in all.
        let least = OWN_WORDS_MIN * SECTORS as u32;
        let words = ((sector_bytes / 8.0 * SECTORS as f64).round().max(0.0) as u32).max(least);
        let until = |sector: u32| words * sector / SECTORS as u32;
        self.own_words = std::array::from_fn(|sector| {
            (until(sector as u32 + 1) - until(sector as u32)).min(WORDS as u32) as u8
        });
        self.is_compressible = true;
        self
    }

    /// Lets the ends of the sectors repeat their headers.
    fn repeat_headers(&self, headers: &Headers, block: &mut Block) {
        let sectors = block.chunks_exact_mut(SECTOR_BYTES);
        for ((sector, header), own) in sectors.zip(headers).zip(self.own_words) {
            for word in sector[usize::from(own) * 8..].chunks_exact_mut(8) {
                word.copy_from_slice(&header.to_le_bytes());
            }
        }
    }

    /// Which instructions make the contents on this CPU.
    pub fn instructions(&self) -> &'static str {
        self.generator.name
    }

    fn root(&self, id: ContentId) -> u64 {
        mix(self.seed, ROOTS, id.0)
    }

    fn headers(&self, id: ContentId) -> Headers {
        self.keys.map(|key| (id.0 ^ key).wrapping_mul(SPREAD))
    }

    /// Fills one block with a content.
    ///
    /// # Panics
    /// If `block` has not 4096 bytes.
    pub fn fill(&self, id: ContentId, block: &mut [u8]) {
        let block: &mut Block = block.try_into().expect("a content fills exactly one block");
        let headers = self.headers(id);
        self.generator.fill(self.root(id), &headers, block);
        if self.is_compressible {
            self.repeat_headers(&headers, block);
        }
    }

    /// Whether one block holds exactly this content. False for any length but 4096.
    pub fn matches(&self, id: ContentId, block: &[u8]) -> bool {
        if self.is_compressible {
            let mut truth = [0; BLOCK_BYTES];
            self.fill(id, &mut truth);
            return truth[..] == *block;
        }
        block.try_into().is_ok_and(|block| self.generator.matches(self.root(id), &self.headers(id), block))
    }

    /// The content that a block holds, if it is one of this run and undamaged.
    pub fn identify(&self, block: &[u8]) -> Option<ContentId> {
        let header = u64::from_le_bytes(block.get(..8)?.try_into().ok()?);
        let id = self.claimed(header, 0);
        self.matches(id, block).then_some(id)
    }

    /// The content and place in it that one sector of 512 bytes comes from, if it is of this run. A few damaged bits
    /// after its first word do not hide it.
    pub fn identify_sector(&self, sector: &[u8]) -> Option<SectorIdentity> {
        let header = u64::from_le_bytes(sector.get(..8)?.try_into().ok()?);
        (0..SECTORS).find_map(|number| {
            let id = self.claimed(header, number);
            self.is_possible(id).then_some(())?;
            let differing = self.with_block(id, |truth| differing_bits(sector_of(truth, number), sector));
            (differing < DAMAGED_BITS_MAX).then_some(SectorIdentity { id, sector: number as u8 })
        })
    }

    /// Whether a block on a device holds what this run has put there, to the byte: sectors of its contents, and zeros where a
    /// file ends or nothing was written. False for what it has not made at all. `None` where neither is plain: of what it made
    /// and others have changed, of nothing but zeros, which anybody may have written, and for any length but 4096.
    pub fn made(&self, block: &[u8]) -> Option<bool> {
        if block.len() != BLOCK_BYTES {
            return None;
        }
        if self.identify(block).is_some() {
            return Some(true);
        }
        let (mut known, mut is_whole, mut before) = (0, true, None);
        for number in 0..SECTORS {
            let bytes = sector_of(block, number);
            let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            if len == 0 {
                continue;
            }
            let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let claimed = Some(self.claimed(header, number)).filter(|&id| self.is_possible(id));
            // The first bytes claim what a sector is, and the next prove it. The last few of a file continue the sector before.
            let is_proved = |id: ContentId| {
                self.with_block(id, |truth| sector_of(truth, number)[8..PROOF_BYTES] == bytes[8..PROOF_BYTES])
            };
            let is_all =
                |id: ContentId| self.with_block(id, |truth| sector_of(truth, number)[..len] == bytes[..len]);
            let own = claimed.filter(|&id| len >= PROOF_BYTES && is_proved(id));
            known += u32::from(own.is_some());
            is_whole &= own.or(before).is_some_and(is_all);
            before = own;
        }
        match (known, is_whole) {
            (1.., true) => Some(true),
            (1.., false) => None,
            // A file may end, and a piece of it begin, before there is anything to recognise.
            (0, _) => (block.iter().filter(|&&byte| byte != 0).count() > 2 * PROOF_BYTES).then_some(false),
        }
    }

    /// The hash that names a content to the faults.
    pub fn hash(&self, id: ContentId) -> ContentHash {
        self.with_block(id, |block| ContentHash::of(block))
    }

    /// The first eight bytes of a content, little-endian; no other content of the run begins with them.
    pub fn beginning(&self, id: ContentId) -> u64 {
        self.with_block(id, |block| {
            block.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
        })
    }

    /// Lends a content that was made for this call only. Must not be called from within itself.
    pub(crate) fn with_block<T>(&self, id: ContentId, look: impl FnOnce(&Block) -> T) -> T {
        thread_local! {
            static SCRATCH: RefCell<Box<Block>> = RefCell::new(Box::new([0; BLOCK_BYTES]));
        }
        SCRATCH.with_borrow_mut(|block| {
            self.fill(id, &mut block[..]);
            look(block)
        })
    }

    /// Whether any run with these contents could have made it; those of files are never compressible.
    fn is_possible(&self, id: ContentId) -> bool {
        id.stage().is_some() || (!self.is_compressible && id.in_file().is_some())
    }

    fn claimed(&self, header: u64, sector: usize) -> ContentId {
        ContentId(header.wrapping_mul(GATHER) ^ self.keys[sector])
    }
}

/// Sector number `sector` of a block.
pub(crate) fn sector_of(block: &[u8], sector: usize) -> &[u8] {
    &block[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES]
}

/// In how many bits two pieces of equal length differ.
pub(crate) fn differing_bits(one: &[u8], other: &[u8]) -> u32 {
    let (pieces, rest) = one.as_chunks::<8>();
    let (other_pieces, other_rest) = other.as_chunks::<8>();
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let of_words: u32 = pieces.iter().zip(other_pieces).map(|(a, b)| (word(a) ^ word(b)).count_ones()).sum();
    of_words + rest.iter().zip(other_rest).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn block_of(content: &Content, id: ContentId) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        content.fill(id, &mut block);
        block
    }

    #[test]
    fn contents_never_change_silently() {
        for (seed, id, hash) in [
            (1, ContentId::new(Stage::Run, 0, 0), "41be0db5c7df0887e7223366e48609d8"),
            (1, ContentId::new(Stage::Prefill, 0, 0), "4985d05b3cd089730cf634b1bfa7a9a1"),
            (42, ContentId::new(Stage::Run, 7, 123_456_789), "2919da17b4c76b231882d39a7d250b58"),
        ] {
            assert_eq!(Content::new(seed).hash(id).to_string(), hash, "seed {seed}, {id}");
        }
    }

    #[test]
    fn what_a_run_has_made_is_told_from_what_it_has_not() {
        let content = Content::new(5);
        for id in [ContentId::new(Stage::Run, 3, 77), ContentId::of_file(3, 2, 9)] {
            let block = block_of(&content, id);
            assert_eq!(content.made(&block), Some(true));
            assert_eq!(Content::new(6).made(&block), Some(false), "another run's");
            let end = |len: usize| {
                let mut end = vec![0; BLOCK_BYTES];
                end[..len].copy_from_slice(&block[..len]);
                end
            };
            assert_eq!(content.made(&end(100)), Some(true), "the end of a file");
            assert_eq!(content.made(&end(12)), None, "too little to tell");
            assert_eq!(content.made(&end(512 + 5)), Some(true), "what continues a sector");
            let mut mixed = vec![7; BLOCK_BYTES];
            mixed[1024..1536].copy_from_slice(&block[1024..1536]);
            assert_eq!(content.made(&mixed), None, "something of it");
            let mut flipped = block.clone();
            flipped[3000] ^= 1;
            assert_eq!(content.made(&flipped), None, "changed since");
            let mut two = block.clone();
            two[2048..].copy_from_slice(&block_of(&content, ContentId::of_file(3, 5, 9))[2048..]);
            assert_eq!(content.made(&two), Some(true), "two pieces of a file");
        }
        let compressible = Content::new(5).compressible(0.9);
        let block = block_of(&compressible, ContentId::new(Stage::Prefill, 0, 1));
        assert_eq!(compressible.made(&block), Some(true));
        assert_eq!(content.made(&[0; BLOCK_BYTES]), None);
        assert_eq!(content.made(&[7; BLOCK_BYTES]), Some(false));
        assert_eq!(content.made(&[7; 512]), None);
    }

    #[test]
    fn all_instruction_sets_make_the_same_bytes_and_accept_them() {
        let portable = Content::with_generator(5, Generator::available()[0]);
        for generator in Generator::available() {
            let content = Content::with_generator(5, generator);
            for index in 0..50 {
                let id = ContentId::new(Stage::Run, 3, index * 7919);
                let mut block = block_of(&content, id);
                assert_eq!(block, block_of(&portable, id), "{}", generator.name);
                assert!(content.matches(id, &block), "{}", generator.name);
                assert!(!content.matches(ContentId(id.0 + 1), &block), "{}", generator.name);
                let bit = (index as usize * 653) % (BLOCK_BYTES * 8);
                block[bit / 8] ^= 1 << (bit % 8);
                assert!(!content.matches(id, &block), "{} bit {bit}", generator.name);
            }
        }
    }

    #[test]
    fn one_wrong_bit_anywhere_is_seen() {
        for generator in Generator::available() {
            let content = Content::with_generator(9, generator);
            let id = ContentId::new(Stage::Run, 0, 1);
            let mut block = block_of(&content, id);
            for byte in 0..BLOCK_BYTES {
                block[byte] ^= 1 << (byte % 8);
                assert!(!content.matches(id, &block), "{} byte {byte}", generator.name);
                block[byte] ^= 1 << (byte % 8);
            }
            assert!(content.matches(id, &block));
        }
    }

    #[test]
    fn a_block_of_another_length_matches_nothing() {
        let content = Content::new(1);
        let id = ContentId::new(Stage::Run, 0, 1);
        let block = block_of(&content, id);
        assert!(!content.matches(id, &block[..512]));
        assert!(!content.matches(id, &[]));
        assert_eq!(content.identify(&[]), None);
        assert_eq!(content.identify_sector(&block[..4]), None);
    }

    #[test]
    fn every_sector_names_itself_even_when_damaged_after_its_first_word() {
        let content = Content::new(77);
        let id = ContentId::new(Stage::Prefill, 2, 99);
        let block = block_of(&content, id);
        for sector in 0..SECTORS {
            let mut bytes = sector_of(&block, sector).to_vec();
            let identity = Some(SectorIdentity { id, sector: sector as u8 });
            assert_eq!(content.identify_sector(&bytes), identity);
            bytes[8..24].fill(0);
            assert_eq!(content.identify_sector(&bytes), identity);
            bytes[0] ^= 1;
            assert_eq!(content.identify_sector(&bytes), None, "no claim, no identity");
        }
    }

    #[test]
    fn zeros_and_contents_of_another_seed_are_not_recognised() {
        let content = Content::new(1);
        assert_eq!(content.identify(&[0; BLOCK_BYTES]), None);
        assert_eq!(content.identify_sector(&[0; SECTOR_BYTES]), None);
        let misdirected = block_of(&Content::new(2), ContentId::new(Stage::Run, 0, 0));
        assert_eq!(content.identify(&misdirected), None);
        assert_eq!(content.identify_sector(&misdirected[..SECTOR_BYTES]), None);
    }

    #[test]
    fn contents_leave_a_compressor_nothing_to_find() {
        let content = Content::new(3);
        let mut counts = [0u64; 256];
        let mut words = HashSet::new();
        const BLOCKS: u64 = 256;
        for index in 0..BLOCKS {
            let block = block_of(&content, ContentId::new(Stage::Run, 0, index));
            for &byte in &block {
                counts[usize::from(byte)] += 1;
            }
            for word in block.chunks_exact(4) {
                words.insert(u32::from_le_bytes(word.try_into().expect("four bytes")));
            }
        }
        let expected = (BLOCKS * BLOCK_BYTES as u64) as f64 / 256.0;
        let chi_square: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
        // 255 degrees of freedom: above 360 with probability 1e-5.
        assert!(chi_square < 360.0, "bytes are not equally likely: chi-square {chi_square}");
        // Of n random 32-bit words about n^2 / 2^33 repeat: 8 of 262144.
        let words_drawn = BLOCKS as usize * BLOCK_BYTES / 4;
        assert!(
            words_drawn - words.len() < 40,
            "{} of {words_drawn} words repeat",
            words_drawn - words.len()
        );
    }

    #[test]
    fn compressible_contents_save_what_they_are_told_to_by_lz4_and_zstd() {
        for share in [0.1, 0.25, 0.418, 0.5, 0.75, 0.9] {
            let content = Content::new(3).compressible(share);
            let blocks: Vec<Vec<u8>> =
                (0..64).map(|index| block_of(&content, ContentId::new(Stage::Run, 0, index))).collect();
            let saved = |compressed: &dyn Fn(&[u8]) -> usize| {
                let all: usize = blocks.iter().map(|block| compressed(block)).sum();
                1.0 - all as f64 / (blocks.len() * BLOCK_BYTES) as f64
            };
            let lz4 = saved(&|block| lz4_flex::block::compress(block).len());
            let zstd = saved(&|block| zstd::bulk::compress(block, 3).expect("it compresses").len());
            for (name, found) in [("LZ4", lz4), ("zstd", zstd)] {
                assert!((found - share).abs() < 0.02, "{share} by {name}: {found}");
            }
            // In larger pieces the blocks are worth no less, and not much more.
            let piece = blocks.concat();
            let large = 1.0 - lz4_flex::block::compress(&piece).len() as f64 / piece.len() as f64;
            assert!((large - share).abs() < 0.03, "{share} in one piece: {large}");
        }
    }

    #[test]
    fn compressible_contents_still_name_themselves_on_all_instruction_sets() {
        for generator in Generator::available() {
            for share in [0.3, 0.9, COMPRESSIBLE_MAX] {
                let content = Content::with_generator(5, generator).compressible(share);
                let portable = Content::with_generator(5, Generator::available()[0]).compressible(share);
                let id = ContentId::new(Stage::Run, 7, 1234);
                let mut block = block_of(&content, id);
                assert_eq!(block, block_of(&portable, id), "{}", generator.name);
                assert_eq!(content.identify(&block), Some(id));
                for sector in 0..SECTORS {
                    let identity = Some(SectorIdentity { id, sector: sector as u8 });
                    assert_eq!(content.identify_sector(sector_of(&block, sector)), identity);
                }
                for byte in 0..BLOCK_BYTES {
                    block[byte] ^= 1 << (byte % 8);
                    assert!(!content.matches(id, &block), "{} byte {byte}", generator.name);
                    block[byte] ^= 1 << (byte % 8);
                }
                assert!(content.matches(id, &block) && !content.matches(id, &block[..512]));
                let other = block_of(&Content::new(6).compressible(share), id);
                assert_eq!(content.identify_sector(&other[..SECTOR_BYTES]), None);
            }
        }
        let plain = Content::new(5).compressible(0.0);
        assert!(!plain.is_compressible);
    }

    proptest! {
        #[test]
        fn what_is_filled_matches_and_identifies_itself(seed: u64, worker: u16, index in 0u64..1 << 40) {
            let content = Content::new(seed);
            let id = ContentId::new(Stage::Run, worker, index);
            let block = block_of(&content, id);
            prop_assert!(content.matches(id, &block));
            prop_assert_eq!(content.identify(&block), Some(id));
            prop_assert_eq!(content.hash(id), ContentHash::of(&block));
        }
    }
}
