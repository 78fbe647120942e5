//! The content hash that names a block: XXH3-128, as AchillesBench uses it.

mod xxh3;

use std::fmt;

/// XXH3-128 of a block's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(if bytes.len() >= xxh3::LENGTH_MIN {
            xxh3::hash(bytes)
        } else {
            xxhash_rust::xxh3::xxh3_128(bytes)
        })
    }

    /// From 32 hexadecimal digits, as `Display` prints them.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

/// A text that is hashed as it is written, and never in memory as a whole.
#[derive(Default)]
pub struct HashedText(Box<xxhash_rust::xxh3::Xxh3>);

impl HashedText {
    /// Appends to the text.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash that [`ContentHash::of`] gives for all of it.
    pub fn finish(&self) -> ContentHash {
        ContentHash(self.0.digest128())
    }
}

impl std::io::Write for HashedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A well-mixed 64-bit function of three numbers: the root of every decision and every random stream, so that
/// each depends on the seed and its own key only, never on the order in which things happen.
pub fn mix(seed: u64, stream: u64, index: u64) -> u64 {
    let mut z = seed
        .wrapping_add(stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    // Two rounds of the finaliser of splitmix64 (Steele, Lea, Flood 2014): one would leave related seeds related.
    for _ in 0..2 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_pieces_has_the_hash_of_the_whole() {
        let text: Vec<u8> = (0..10_000u32).map(|n| (n * 31) as u8).collect();
        for (length, piece) in [(0, 1), (3, 2), (240, 7), (241, 100), (4096, 512), (10_000, 333)] {
            let mut hashed = HashedText::default();
            text[..length].chunks(piece).for_each(|piece| hashed.update(piece));
            assert_eq!(hashed.finish(), ContentHash::of(&text[..length]), "{length}");
        }
    }

    #[test]
    fn a_hash_survives_its_text() {
        let hash = ContentHash::of(b"block");
        assert_eq!(ContentHash::parse(&hash.to_string()), Some(hash));
        assert_eq!(ContentHash::parse("12"), None);
        assert_eq!(ContentHash::parse(&"+".repeat(32)), None);
    }

    #[test]
    fn mix_separates_neighbouring_keys() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..20 {
            for stream in 0..20 {
                for index in 0..20 {
                    assert!(seen.insert(mix(seed, stream, index)));
                }
            }
        }
    }
}
