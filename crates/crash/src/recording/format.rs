//! The bytes of a recording: header, records, numbers. `docs/format-recording.md` describes them for other programs.
//!
//! A record is proven by a checksum that includes its place in the file, and its data by their content hashes. So a
//! reader knows a whole record from the remains of one, wherever a file was cut off.

use rotproof_block::{ContentHash, Error, ErrorKind, Result};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub(super) const MAGIC: [u8; 8] = *b"rotprec\n";
pub(super) const VERSION: u32 = 1;
/// Bytes of the file's header.
pub(super) const HEADER_BYTES: u64 = 64;
/// Bytes of a record's head: length of the body, length of the data, checksum.
pub(super) const HEAD_BYTES: usize = 16;
/// Data are cut into chunks of so many bytes, from the beginning of the write on; equal chunks are stored once.
pub const CHUNK_BYTES: usize = 4096;
/// No body is larger; far above that of any request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;

/// Where the content of a sector or chunk is: as a number, so that a table of millions stays small.
///
/// [`SOURCE_BASE`], [`SOURCE_ZEROS`], or the offset in the recording's file, which is never that small.
pub type Source = u64;
/// The content that the device had before the recording began.
pub const SOURCE_BASE: Source = 0;
/// Zeros.
pub const SOURCE_ZEROS: Source = 1;

pub(super) mod kind {
    pub const WRITE: u8 = 1;
    pub const FLUSH: u8 = 2;
    pub const DISCARD: u8 = 3;
    pub const WRITE_ZEROES: u8 = 4;
    pub const DONE: u8 = 5;
    pub const MARK: u8 = 6;
    pub const TAG: u8 = 7;
    pub const END: u8 = 8;
}

pub(super) mod chunk {
    /// The bytes follow in the record's data.
    pub const HERE: u8 = 0;
    /// The bytes are at an offset of the file.
    pub const EARLIER: u8 = 1;
    pub const ZEROS: u8 = 2;
}

/// What a recording says of the device that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the device.
    pub size: u64,
    /// Unit of addressing in bytes: a *sector* of the recording. A power of two of at least 512.
    pub block_size: u32,
    /// The device says that it never tears a write inside an aligned unit of so many bytes.
    pub atomic_write_bytes: u32,
    /// Tells recordings apart; states name the recording that they belong to.
    pub id: u128,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.block_size.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.atomic_write_bytes.to_le_bytes());
        bytes[28..32].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
        bytes[32..48].copy_from_slice(&self.id.to_le_bytes());
        let check = xxh3_64(&bytes[..56]);
        bytes[56..64].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what));
        if bytes[0..8] != MAGIC {
            return invalid("it is no recording: it does not begin as one".into());
        }
        if u32_at(8) != VERSION {
            return invalid(format!(
                "it is a recording of version {}, and this program reads version {VERSION}",
                u32_at(8)
            ));
        }
        if u64_at(56) != xxh3_64(&bytes[..56]) {
            return invalid("the header of the recording is damaged".into());
        }
        let header = Self {
            block_size: u32_at(12),
            size: u64_at(16),
            atomic_write_bytes: u32_at(24),
            id: u128::from_le_bytes(bytes[32..48].try_into().expect("sixteen bytes")),
        };
        header.check()?;
        if u32_at(28) != CHUNK_BYTES as u32 {
            return invalid(format!("its chunks have {} bytes, not {CHUNK_BYTES}", u32_at(28)));
        }
        Ok(header)
    }

    /// Refuses sizes that no device has.
    pub(super) fn check(&self) -> Result<()> {
        let Self { size, block_size, atomic_write_bytes: atomic, .. } = *self;
        let fits = block_size.is_power_of_two()
            && (512..=CHUNK_BYTES as u32).contains(&block_size)
            && atomic.is_power_of_two()
            && atomic >= block_size
            && size > 0
            && size.is_multiple_of(u64::from(block_size));
        if fits {
            return Ok(());
        }
        let context = format!(
            "a recording of a device of {size} bytes in blocks of {block_size}, written in units of {atomic}: blocks \
             are a power of two from 512 to {CHUNK_BYTES}, units a power of two of at least that, the size a \
             multiple of the block"
        );
        Err(Error::new(ErrorKind::Invalid, context))
    }
}

/// The checksum of a record whose head lies at `offset` of the file.
pub(super) fn check_of(offset: u64, data_length: u32, body: &[u8]) -> u64 {
    xxh3_64_with_seed(body, offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(data_length))
}

/// Appends a number, seven bits a byte, the lowest first (LEB128).
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a body from its beginning on.
pub(super) struct Body<'a>(pub &'a [u8]);

impl Body<'_> {
    pub(super) fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self.0.split_first().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(first)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(malformed())
    }

    pub(super) fn hash(&mut self) -> Result<ContentHash> {
        let (hash, rest) = self.0.split_first_chunk::<16>().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(ContentHash(u128::from_le_bytes(*hash)))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let length = usize::try_from(self.number()?).map_err(|_| malformed())?;
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| malformed())
    }
}

/// A record with the right checksum that makes no sense was written by another program, or by a defect of this one.
pub(super) fn malformed() -> Error {
    Error::new(ErrorKind::Invalid, "a record of the recording is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 7 << 100 };

    #[test]
    fn a_header_comes_back_and_a_damaged_or_foreign_one_is_refused() {
        assert_eq!(Header::decode(&HEADER.encode()).expect("whole"), HEADER);
        for at in 0..HEADER_BYTES as usize {
            let mut bytes = HEADER.encode();
            bytes[at] ^= 0x10;
            assert_eq!(Header::decode(&bytes).expect_err("damaged").kind(), ErrorKind::Invalid, "{at}");
        }
        for senseless in [
            Header { size: 0, ..HEADER },
            Header { size: 1000, ..HEADER },
            Header { block_size: 256, ..HEADER },
            Header { block_size: 8192, ..HEADER },
            Header { atomic_write_bytes: 256, ..HEADER },
            Header { atomic_write_bytes: 1000, ..HEADER },
        ] {
            assert!(Header::decode(&senseless.encode()).is_err(), "{senseless:?}");
        }
    }

    #[test]
    fn numbers_come_back_and_too_long_ones_are_malformed() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut body = Body(&bytes);
            assert_eq!(body.number().expect("a number"), number);
            assert!(body.0.is_empty());
            assert!(Body(&bytes[..bytes.len() - 1]).number().is_err());
        }
        assert!(Body(&[0xff; 10]).number().is_err(), "more than 64 bits");
        assert!(Body(&[0x80; 11]).number().is_err(), "too long");
    }
}
