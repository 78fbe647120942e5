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
    Sectors([SectorLook; SECTORS]),
}

/// What one sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorLook {
    /// What it should.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BitPosition {
    /// Byte of the block.
    pub byte: u16,
    /// Bit of that byte; 0 is the lowest.
    pub bit: u8,
}

const LISTED_BITS_MAX: usize = 64;

/// More wrong bits than this are no flips any more: a single foreign sector differs in about 2000.
const FLIPPED_BITS_MAX: u32 = 512;

impl Evidence {
    /// Looks at a block whose `data` is none of the `expected` contents.
    #[cold]
    pub(crate) fn of(content: &Content, expected: &[ContentId], data: &[u8]) -> Self {
        Self::Data { found: ContentHash::of(data), look: Look::of(content, expected, data) }
    }
}

impl Look {
    fn of(content: &Content, expected: &[ContentId], data: &[u8]) -> Self {
        if data.iter().all(|&byte| byte == 0) {
            return Self::Zeroed;
        }
        if data.iter().all(|&byte| byte == 0xff) {
            return Self::Ones;
        }
        let expected: Vec<Vec<u8>> = expected.iter().map(|&id| block_of(content, id)).collect();
        let nearest = expected
            .iter()
            .map(|truth| (differing_bits(truth, data), truth))
            .min_by_key(|&(distance, _)| distance);
        match nearest {
            Some((count, truth)) if count <= FLIPPED_BITS_MAX => {
                Self::FlippedBits(flipped(truth, data, count))
            }
            _ => Self::Sectors(std::array::from_fn(|sector| {
                let bytes = sector_of(data, sector);
                if expected.iter().any(|truth| sector_of(truth, sector) == bytes) {
                    return SectorLook::Expected;
                }
                SectorLook::of(content, bytes)
            })),
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
        if bytes.iter().all(|&byte| byte == 0) {
            return Self::Zeros;
        }
        if bytes.iter().all(|&byte| byte == 0xff) {
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

fn flipped(truth: &[u8], data: &[u8], count: u32) -> FlippedBits {
    let first = (0u16..)
        .zip(truth.iter().zip(data))
        .flat_map(|(byte, (a, b))| {
            let difference = a ^ b;
            (0..8).filter(move |bit| difference >> bit & 1 == 1).map(move |bit| BitPosition { byte, bit })
        })
        .take(LISTED_BITS_MAX)
        .collect();
    FlippedBits { count, first }
}
