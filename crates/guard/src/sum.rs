//! The checksums of a block.
//!
//! A block is 4 KiB. The last block of a file is summed as if zeros followed its end, so that a file which grows by a hole
//! keeps the sum of what was its last block.

use std::fmt;
use std::sync::OnceLock;

use rotproof_block::ContentHash;

use crate::copy::xor_words;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// The same for offsets in files.
pub const BLOCK_U64: u64 = BLOCK as u64;

/// A checksum by its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Algorithm {
    /// The exclusive or of all words of 64 bits: nearly free while copying.
    #[serde(rename = "xor-64")]
    Xor64,
    /// CRC-32C, polynomial 0x1EDC6F41.
    #[serde(rename = "crc32c")]
    Crc32c,
    /// XXH3 with 64 bits.
    #[serde(rename = "xxh3-64")]
    Xxh3,
    /// Fletcher's sum, four sums of 64 bits over words of 32: that of Z2FS, from ZFS.
    #[serde(rename = "fletcher-256")]
    Fletcher256,
    /// BLAKE3 with 256 bits: whoever cannot write the table cannot change data unseen.
    #[serde(rename = "blake3")]
    Blake3,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Xor64, Self::Crc32c, Self::Xxh3, Self::Fletcher256, Self::Blake3];

    /// Those of one word, which can be the light checksum.
    pub const LIGHT: [Self; 3] = [Self::Xor64, Self::Crc32c, Self::Xxh3];

    /// Its name, as `rotproof model` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Xor64 => "xor-64",
            Self::Crc32c => "crc32c",
            Self::Xxh3 => "xxh3-64",
            Self::Fletcher256 => "fletcher-256",
            Self::Blake3 => "blake3",
        }
    }

    /// From its name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.word() == word)
    }

    /// Its number on the disk.
    pub fn number(self) -> u8 {
        match self {
            Self::Xor64 => 1,
            Self::Crc32c => 2,
            Self::Xxh3 => 3,
            Self::Fletcher256 => 4,
            Self::Blake3 => 5,
        }
    }

    /// From its number on the disk.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.number() == number)
    }

    /// Words of 64 bits that its sums have.
    pub fn words(self) -> usize {
        match self {
            Self::Xor64 | Self::Crc32c | Self::Xxh3 => 1,
            Self::Fletcher256 | Self::Blake3 => 4,
        }
    }

    /// The sum of a block of zeros: made once, since every entry is compared with it.
    pub fn of_zeros(self) -> Sum {
        static MADE: [OnceLock<Sum>; Algorithm::ALL.len()] =
            [const { OnceLock::new() }; Algorithm::ALL.len()];
        *MADE[self as usize].get_or_init(|| self.of_block(&[0; BLOCK]))
    }

    /// The sum of a block of which `data` is the beginning and the rest is zeros. `data` has [`BLOCK`] bytes at most.
    pub fn of(self, data: &[u8]) -> Sum {
        debug_assert!(data.len() <= BLOCK);
        if data.is_empty() {
            return self.of_zeros();
        }
        if let Ok(block) = data.try_into() {
            return self.of_block(block);
        }
        if self == Self::Xor64 {
            return Sum::of_word(xor_words(data));
        }
        let mut block = [0; BLOCK];
        block[..data.len()].copy_from_slice(data);
        self.of_block(&block)
    }

    /// The sum of two parts of a block, one after the other, and zeros behind them.
    pub fn of_parts(self, parts: &[&[u8]]) -> Sum {
        let mut block = [0; BLOCK];
        let mut at = 0;
        for part in parts {
            block[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.of_block(&block)
    }

    fn of_block(self, block: &[u8; BLOCK]) -> Sum {
        match self {
            Self::Xor64 => Sum::of_word(xor_words(block)),
            Self::Crc32c => Sum::of_word(u64::from(crc_fast::crc32_iscsi(block))),
            // Of inputs above 240 bytes XXH3-64 is the low half of XXH3-128, by the specification; a test holds it.
            Self::Xxh3 => Sum::of_word(ContentHash::of(block).0 as u64),
            Self::Fletcher256 => fletcher(block),
            Self::Blake3 => {
                let hash = blake3::hash(block);
                let mut words = [0; 4];
                for (word, bytes) in words.iter_mut().zip(hash.as_bytes().as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                Sum(words)
            }
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Four running sums over words of 32 bits, as ZFS's fletcher4 with 256 bits: each is the sum of the one before.
fn fletcher(block: &[u8; BLOCK]) -> Sum {
    let [mut a, mut b, mut c, mut d] = [0u64; 4];
    for bytes in block.as_chunks::<4>().0 {
        a = a.wrapping_add(u64::from(u32::from_le_bytes(*bytes)));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    Sum([a, b, c, d])
}

/// A checksum's value. Words that its algorithm does not have are zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Sum(pub [u64; 4]);

impl Sum {
    /// Of one word.
    pub fn of_word(word: u64) -> Self {
        Self([word, 0, 0, 0])
    }

    /// The first word, which is all of a light checksum.
    pub fn word(self) -> u64 {
        self.0[0]
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Sum {
    /// Hexadecimal, words without leading ones of zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().rposition(|word| *word != 0).map_or(1, |last| last + 1);
        self.0[..words].iter().try_for_each(|word| write!(f, "{word:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_block(seed: u64) -> [u8; BLOCK] {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        std::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
    }

    #[test]
    fn sums_are_those_of_the_references() {
        // RFC 3720, B.4: 32 bytes of zeros, of ones.
        assert_eq!(crc_fast::crc32_iscsi(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc_fast::crc32_iscsi(&[0xff; 32]), 0x62A8_AB43);
        for seed in 1..50 {
            let block = random_block(seed);
            assert_eq!(Algorithm::Xxh3.of(&block).word(), xxhash_rust::xxh3::xxh3_64(&block));
            let slow = block
                .chunks(8)
                .fold(0, |sum, bytes| sum ^ u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
            assert_eq!(Algorithm::Xor64.of(&block).word(), slow);
        }
        // fletcher4 of ZFS over 1, 2: a = 3, b = 4, c = 5, d = 6, then 1022 words of zeros.
        let mut block = [0; BLOCK];
        (block[0], block[4]) = (1, 2);
        let (mut b, mut c, mut d) = (4u64, 5u64, 6u64);
        for _ in 0..BLOCK / 4 - 2 {
            b += 3;
            c += b;
            d += c;
        }
        assert_eq!(Algorithm::Fletcher256.of(&block), Sum([3, b, c, d]));
        let of_blake3 = Algorithm::Blake3.of(&[0; BLOCK]).0[0].to_le_bytes();
        assert_eq!(of_blake3, blake3::hash(&[0; BLOCK]).as_bytes()[..8]);
    }

    #[test]
    fn zeros_behind_the_end_do_not_change_a_sum() {
        let block = random_block(3);
        for algorithm in Algorithm::ALL {
            for length in [0, 1, 7, 8, 9, 63, 64, 65, 1000, 4095] {
                let mut padded = [0; BLOCK];
                padded[..length].copy_from_slice(&block[..length]);
                assert_eq!(algorithm.of(&block[..length]), algorithm.of(&padded), "{algorithm} {length}");
                let (head, tail) = padded[..length].split_at(length / 3);
                assert_eq!(algorithm.of_parts(&[head, tail]), algorithm.of(&padded), "{algorithm} {length}");
            }
        }
    }

    #[test]
    fn every_flip_of_one_bit_is_seen_by_all() {
        let block = random_block(7);
        for algorithm in Algorithm::ALL {
            let sum = algorithm.of(&block);
            for bit in (0..BLOCK * 8).step_by(if algorithm == Algorithm::Blake3 { 97 } else { 7 }) {
                let mut flipped = block;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(algorithm.of(&flipped), sum, "{algorithm}, bit {bit}");
            }
        }
    }

    #[test]
    fn words_and_numbers_lead_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_word(algorithm.word()), Some(algorithm));
            assert_eq!(Algorithm::from_number(algorithm.number()), Some(algorithm));
            assert!(rotproof_model::Checksum::from_word(algorithm.word()).is_some());
        }
        assert!(Algorithm::LIGHT.iter().all(|light| light.words() == 1));
        assert_eq!(Algorithm::from_number(0), None);
    }
}
