//! Which checksum a block has.

use crc_fast::CrcAlgorithm;

/// The entry of a block that was never written, or is not needed any more: it reads as zeros.
pub(crate) const NEVER: u128 = 0;
/// The entry of a block whose checksum was lost.
pub(crate) const UNKNOWN: u128 = 1;

#[cfg(test)]
thread_local! {
    /// How many checksums this thread has computed.
    pub(super) static MADE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A checksum for each block of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumKind {
    /// CRC-32C: 4 bytes, as in DARC, iSCSI, ext4 and btrfs. Finds every change of up to 3 bits of a block.
    #[default]
    Crc32c,
    /// XXH3-64: 8 bytes.
    Xxh3,
    /// The first 16 bytes of BLAKE3, for blocks that somebody may have changed on purpose.
    Blake3,
}

impl ChecksumKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Crc32c, Self::Xxh3, Self::Blake3];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxh3 => "xxh3",
            Self::Blake3 => "blake3",
        }
    }

    /// Words of four bytes that one takes.
    pub(crate) fn words(self) -> usize {
        match self {
            Self::Crc32c => 1,
            Self::Xxh3 => 2,
            Self::Blake3 => 4,
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Crc32c => 1,
            Self::Xxh3 => 2,
            Self::Blake3 => 3,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The entry of a block with this content: its checksum, but never one of the two entries that mean something else.
    pub(crate) fn entry_of(self, block: &[u8]) -> u128 {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        let sum = match self {
            Self::Crc32c => u128::from(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, block)),
            Self::Xxh3 => u128::from(xxhash_rust::xxh3::xxh3_64(block)),
            Self::Blake3 => {
                let hash = blake3::hash(block);
                u128::from_le_bytes(hash.as_bytes()[..16].try_into().expect("16 of 32 bytes"))
            }
        };
        if sum <= UNKNOWN { sum + 2 } else { sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_known_ones() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(ChecksumKind::Crc32c.entry_of(&[0; 32]), 0x8a91_36aa);
        let block: Vec<u8> = (0..4096u32).map(|at| at as u8).collect();
        for kind in ChecksumKind::ALL {
            let entry = kind.entry_of(&block);
            assert!(entry > UNKNOWN && entry >> (32 * kind.words() - 1) < 2);
            let mut other = block.clone();
            other[1000] ^= 4;
            assert_ne!(kind.entry_of(&other), entry);
            assert_eq!(ChecksumKind::from_number(kind.number()), Some(kind));
        }
    }
}
