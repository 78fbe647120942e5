//! What a failing block looks like, from its bytes alone: compact, so that millions of failures fit into memory.
//!
//! Owns the look at the bytes. Whether a recognised content is an old one of the same block or somebody else's is not
//! known here; that takes the streams ([`crate::classify()`]).

use rotproof_block::{ContentHash, ErrorKind};

use crate::BLOCK_BYTES;
use crate::content::{Content, ContentId, SECTORS, SectorIdentity, differing_bits, sector_of};

/// What was seen instead of what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The request ended with an error.
    Error(ErrorKind),
    /// Other bytes.
    Data {
        /// Their hash.
        found: ContentHash,
        /// What they look like.
        look: Look,
    },
}

/// What bytes look like beside those expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The expected content but for a few bits.
    FlippedBits(FlippedBits),
    /// Nothing but zeros.
    Zeroed,
    /// Nothing but ones.
    Ones,
    /// Each sector for itself.
    Sectors(Box<[SectorLook; SECTORS]>),
}

/// What one sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorLook {
    /// What it should, but for a few bits at the most.
    Expected,
    /// Nothing but zeros.
    Zeros,
    /// Nothing but ones.
    Ones,
    /// A sector of a content of this run, perhaps with a few damaged bits.
    Content(SectorIdentity),
    /// Nothing that the load makes.
    Noise,
}

/// Bits that differ from what is expected.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FlippedBits {
    /// How many.
    pub count: u32,
    /// Where the first 64 are.
    pub first: Vec<BitPosition>,
}

/// One bit of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct BitPosition {
    /// Byte of the block.
    pub byte: u16,
    /// Bit of that byte; 0 is the lowest.
    pub bit: u8,
}

const LISTED_BITS_MAX: usize = 64;

/// More wrong bits than this are no flips any more: a single misdirected sector differs in about 2000.
const FLIPPED_BITS_MAX: u32 = 512;

/// A sector of another content differs in about 2000 bits.
const SECTOR_FLIPPED_BITS_MAX: u32 = 64;

impl Evidence {
    /// Looks at a block whose `data` is none of the `expected` contents, and has this hash.
    #[cold]
    pub(crate) fn of(content: &Content, expected: &[ContentId], found: ContentHash, data: &[u8]) -> Self {
        Self::Data { found, look: Look::of(content, expected, data) }
    }
}

impl Look {
    fn of(content: &Content, expected: &[ContentId], data: &[u8]) -> Self {
        let truths: Vec<Vec<u8>> = expected.iter().map(|&id| block_of(content, id)).collect();
        Self::beside(content, &truths, data)
    }

    /// What one block looks like beside those that it may be.
    #[cold]
    pub(crate) fn beside(content: &Content, expected: &[Vec<u8>], data: &[u8]) -> Self {
        if is_all(data, 0) {
            return Self::Zeroed;
        }
        if is_all(data, 0xff) {
            return Self::Ones;
        }
        let nearest = expected
            .iter()
            .map(|truth| (differing_bits(truth, data), truth))
            .min_by_key(|&(distance, _)| distance);
        match nearest {
            Some((count, truth)) if count <= FLIPPED_BITS_MAX => {
                Self::FlippedBits(flipped(truth, data, count))
            }
            _ => Self::Sectors(Box::new(std::array::from_fn(|sector| {
                let bytes = sector_of(data, sector);
                let is_expected = |truth: &Vec<u8>| {
                    differing_bits(sector_of(truth, sector), bytes) <= SECTOR_FLIPPED_BITS_MAX
                };
                if expected.iter().any(is_expected) {
                    return SectorLook::Expected;
                }
                SectorLook::of(content, bytes)
            }))),
        }
    }
}

impl SectorLook {
    /// The content it is of, if that is not the expected one in its place.
    pub(crate) fn identity(self) -> Option<SectorIdentity> {
        match self {
            Self::Content(identity) => Some(identity),
            _ => None,
        }
    }

    fn of(content: &Content, bytes: &[u8]) -> Self {
        if is_all(bytes, 0) {
            return Self::Zeros;
        }
        if is_all(bytes, 0xff) {
            return Self::Ones;
        }
        content.identify_sector(bytes).map_or(Self::Noise, Self::Content)
    }
}

/// A block that was never written, where that means something, is one of zeros.
fn block_of(content: &Content, id: ContentId) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    if id != ContentId::NEVER_WRITTEN {
        content.fill(id, &mut block);
    }
    block
}

/// Whether there is nothing else in them.
fn is_all(bytes: &[u8], byte: u8) -> bool {
    // Without a way out of the middle of a piece the compiler compares many bytes at a time.
    bytes.chunks(64).all(|piece| piece.iter().fold(true, |all, &other| all & (other == byte)))
}

fn flipped(truth: &[u8], data: &[u8], count: u32) -> FlippedBits {
    let differing = (0u16..).zip(truth.iter().zip(data)).filter(|(_, (a, b))| a != b);
    let first = differing
        .flat_map(|(byte, (a, b))| {
            let difference = a ^ b;
            (0..8).filter(move |bit| difference >> bit & 1 == 1).map(move |bit| BitPosition { byte, bit })
        })
        .take(LISTED_BITS_MAX.min(count as usize))
        .collect();
    FlippedBits { count, first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;

    fn id(index: u64) -> ContentId {
        ContentId::new(Stage::Run, 0, index)
    }

    fn look(change: impl FnOnce(&mut [u8])) -> Look {
        let content = Content::new(1);
        let mut data = block_of(&content, id(1));
        change(&mut data);
        match Evidence::of(&content, &[id(1)], ContentHash::of(&data), &data) {
            Evidence::Data { found, look } => {
                assert_eq!(found, ContentHash::of(&data));
                look
            }
            Evidence::Error(_) => unreachable!("there is no error in bytes"),
        }
    }

    #[test]
    fn flipped_bits_are_counted_and_the_first_are_listed() {
        let flipped = look(|data| {
            data[0] ^= 1;
            data[4095] ^= 0b1000_0001;
        });
        let first = [(0, 0), (4095, 0), (4095, 7)].map(|(byte, bit)| BitPosition { byte, bit }).to_vec();
        assert_eq!(flipped, Look::FlippedBits(FlippedBits { count: 3, first }));
        let Look::FlippedBits(many) = look(|data| data[100..130].iter_mut().for_each(|byte| *byte ^= 0xff))
        else {
            panic!("240 bits are still flips")
        };
        assert_eq!((many.count, many.first.len()), (240, 64));
    }

    #[test]
    fn flips_are_told_against_the_nearest_legal_version() {
        let content = Content::new(1);
        let mut data = block_of(&content, id(2));
        data[9] ^= 4;
        let found = ContentHash::of(&data);
        let Evidence::Data { look, .. } = Evidence::of(&content, &[id(1), id(2)], found, &data) else {
            panic!("bytes, no error")
        };
        let first = vec![BitPosition { byte: 9, bit: 2 }];
        assert_eq!(look, Look::FlippedBits(FlippedBits { count: 1, first }));
    }

    #[test]
    fn whole_blocks_of_zeros_or_ones_are_seen_as_such() {
        assert_eq!(look(|data| data.fill(0)), Look::Zeroed);
        assert_eq!(look(|data| data.fill(0xff)), Look::Ones);
    }

    #[test]
    fn sectors_are_told_apart() {
        let content = Content::new(1);
        let other = block_of(&content, id(2));
        let found = look(|data| {
            data[512..1024].copy_from_slice(&other[512..1024]);
            data[1024..1536].fill(0);
            data[1536..2048].fill(0xff);
            data[2048..2560].copy_from_slice(&other[..512]);
            data[2560..3072].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 37) as u8);
            data[3072] ^= 1;
        });
        let of = |sector| SectorLook::Content(SectorIdentity { id: id(2), sector });
        let Look::Sectors(sectors) = found else { panic!("not a matter of bits") };
        assert_eq!(
            sectors[..6],
            [SectorLook::Expected, of(1), SectorLook::Zeros, SectorLook::Ones, of(0), SectorLook::Noise]
        );
        assert_eq!(sectors[6..], [SectorLook::Expected; 2], "one flipped bit does not hide what a sector is");
    }
}
