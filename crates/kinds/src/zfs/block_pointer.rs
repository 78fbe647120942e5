//! Block pointers: where a block lies, up to three times, how it is stored, and its checksum; reading what they point to.
//!
//! Layout: *ZFS On-Disk Specification*, chapter 2.

use std::ops::Range;

use crate::bytes::{le32, le64};
use crate::reader::bytes_at;
use crate::source::Source;

use super::compress::lzjb;
use super::label::FIRST_BLOCK;

pub(super) const POINTER_BYTES: usize = 128;
const SECTOR: u64 = 512;
const COPIES: usize = 3;

const UNCOMPRESSED: u8 = 2;
const LZJB: u8 = 3;
const FLETCHER_2: u8 = 6;
const FLETCHER_4: u8 = 7;

/// One copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    device: u64,
    /// Of the device, in bytes.
    pub(super) offset: u64,
    /// Bytes that are set aside for it.
    pub(super) bytes: u64,
    /// It is in pieces, to which a head leads.
    is_gang: bool,
}

/// See the head of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPointer {
    copies: [Option<Copy>; COPIES],
    /// Bytes as the structure has them, and as they are stored.
    pub(super) logical: u64,
    physical: u64,
    compression: u8,
    checksum_kind: u8,
    pub(super) level: u8,
    is_little_endian: bool,
    pub(super) checksum: [u64; 4],
}

impl BlockPointer {
    /// The one at the beginning of `bytes`; `None` if it points to nothing.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let copy = |index: usize| {
            let (first, second) = (le64(bytes, index * 16)?, le64(bytes, index * 16 + 8)?);
            let offset = (second & (u64::MAX >> 1)).checked_mul(SECTOR)?.checked_add(FIRST_BLOCK)?;
            (first != 0 || second != 0).then_some(Copy {
                device: first >> 32,
                offset,
                bytes: (first & 0xff_ffff) * SECTOR,
                is_gang: second >> 63 == 1,
            })
        };
        let copies = [copy(0), copy(1), copy(2)];
        copies[0]?;
        let how = le64(bytes, 48)?;
        let checksum = [96, 104, 112, 120].map(|at| le64(bytes, at).unwrap_or(0));
        le64(bytes, 120)?;
        Some(Self {
            copies,
            logical: ((how & 0xffff) + 1) * SECTOR,
            physical: ((how >> 16 & 0xffff) + 1) * SECTOR,
            compression: (how >> 32 & 0xff) as u8,
            checksum_kind: (how >> 40 & 0xff) as u8,
            level: (how >> 56 & 0x1f) as u8,
            is_little_endian: how >> 63 == 1,
            checksum,
        })
    }

    /// What tells it from others.
    pub(super) fn place(&self) -> u64 {
        self.copies[0].map_or(0, |copy| copy.offset)
    }

    /// Its copies on this device, each with its number, where it lies, and whether it is whole.
    pub(super) fn places(&self, size: u64) -> impl Iterator<Item = (u8, Range<u64>, bool)> {
        let numbered = (0..).zip(self.copies).filter_map(|(number, copy)| Some((number, copy?)));
        numbered.filter_map(move |(number, copy)| {
            let end = copy.offset.checked_add(copy.bytes).filter(|&end| end <= size && copy.device == 0)?;
            Some((number, copy.offset..end, !copy.is_gang))
        })
    }

    /// What the first copy holds whose checksum is right, as the structure has it; otherwise why there is none.
    pub(super) fn content(&self, source: &dyn Source) -> Result<Vec<u8>, &'static str> {
        if !self.is_little_endian {
            return Err("it was written by a machine of the other byte order");
        }
        let mut why = "none of its copies lies on this device";
        for (_, place, is_whole) in self.places(source.size()) {
            if !is_whole {
                why = "it lies in pieces";
                continue;
            }
            let Ok(stored) = bytes_at(source, place.start, self.physical as usize) else {
                why = "it cannot be read";
                continue;
            };
            if !self.is_right(&stored) {
                why = "its checksum is wrong";
                continue;
            }
            let unpacked = match self.compression {
                UNCOMPRESSED => Some(stored),
                LZJB => lzjb(&stored, self.logical as usize),
                _ => return Err("it is compressed in a way that is not read"),
            };
            match unpacked.filter(|bytes| bytes.len() as u64 == self.logical) {
                Some(bytes) => return Ok(bytes),
                None => why = "it cannot be unpacked",
            }
        }
        Err(why)
    }

    /// Whether the checksum is right. Of one that is not computed here nothing is said.
    fn is_right(&self, stored: &[u8]) -> bool {
        match self.checksum_kind {
            FLETCHER_2 => fletcher_2(stored) == self.checksum,
            FLETCHER_4 => fletcher_4(stored) == self.checksum,
            _ => true,
        }
    }
}

/// Fletcher's checksum over two interleaved rows of 64-bit words.
pub(super) fn fletcher_2(bytes: &[u8]) -> [u64; 4] {
    let mut sum = [0_u64; 4];
    for at in (0..bytes.len() / 16).map(|pair| pair * 16) {
        sum[0] = sum[0].wrapping_add(le64(bytes, at).unwrap_or(0));
        sum[1] = sum[1].wrapping_add(le64(bytes, at + 8).unwrap_or(0));
        sum[2] = sum[2].wrapping_add(sum[0]);
        sum[3] = sum[3].wrapping_add(sum[1]);
    }
    sum
}

/// The same of the fourth order over 32-bit words.
fn fletcher_4(bytes: &[u8]) -> [u64; 4] {
    let mut sum = [0_u64; 4];
    for at in (0..bytes.len() / 4).map(|word| word * 4) {
        sum[0] = sum[0].wrapping_add(u64::from(le32(bytes, at).unwrap_or(0)));
        for order in 1..4 {
            sum[order] = sum[order].wrapping_add(sum[order - 1]);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_their_definition() {
        let bytes: Vec<u8> = [1_u32, 2, 3, 4].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(fletcher_4(&bytes), [10, 20, 35, 56]);
        let bytes: Vec<u8> = [1_u64, 2, 3, 4].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(fletcher_2(&bytes), [4, 6, 5, 8]);
    }

    #[test]
    fn the_first_good_copy_is_read_and_a_hole_points_to_nothing() {
        assert_eq!(BlockPointer::read(&[0; POINTER_BYTES]), None);
        assert_eq!(BlockPointer::read(&[1; 20]), None);
        let mut source = vec![0; FIRST_BLOCK as usize + 8192];
        source[FIRST_BLOCK as usize + 4096..][..512].fill(7);
        let mut bytes = vec![0; POINTER_BYTES];
        let mut put = |at: usize, number: u64| bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        [(0, 8), (8, 0), (16, 8), (24, 8)].into_iter().for_each(|(at, number)| put(at, number));
        put(48, 1 << 63 | u64::from(FLETCHER_4) << 40 | u64::from(UNCOMPRESSED) << 32);
        for (at, sum) in [96, 104, 112, 120].into_iter().zip(fletcher_4(&[7; 512])) {
            put(at, sum);
        }
        let pointer = BlockPointer::read(&bytes).expect("a pointer");
        let places: Vec<_> =
            pointer.places(source.len() as u64).map(|(number, place, _)| (number, place.start)).collect();
        assert_eq!(places, [(0, FIRST_BLOCK), (1, FIRST_BLOCK + 4096)]);
        assert_eq!(pointer.content(&source), Ok(vec![7; 512]), "the first copy is bad");
        source[FIRST_BLOCK as usize + 4096] = 0;
        assert_eq!(pointer.content(&source), Err("its checksum is wrong"));
    }
}
