//! `pg_control`: what a cluster is, and from where its log is replayed (`pg_control.h` of PostgreSQL 15).

use crate::bytes::{le32, le64};

/// Bytes of it that are summed, and where the sum lies.
const SUMMED_BYTES: usize = 288;
const VERSION: u32 = 1300;

/// What of it is of interest here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// Where a replay begins: at the start of the last checkpoint.
    pub(super) redo: u64,
    pub(super) page_bytes: u32,
    pub(super) segment_pages: u32,
    pub(super) log_page_bytes: u32,
    pub(super) log_segment_bytes: u32,
    pub(super) has_checksums: bool,
}

impl Control {
    /// `Err` says why it cannot be believed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let long = |at: usize| le32(bytes, at).ok_or("it ends within its fields");
        let version = long(8)?;
        if long(SUMMED_BYTES)? != crc32c(&bytes[..SUMMED_BYTES]) {
            return Err("its checksum is wrong".into());
        }
        if version != VERSION {
            return Err(format!("its version is {version}; {VERSION} is read"));
        }
        Ok(Self {
            redo: le64(bytes, 40).ok_or("it ends within its fields")?,
            page_bytes: long(216)?,
            segment_pages: long(220)?,
            log_page_bytes: long(224)?,
            log_segment_bytes: long(228)?,
            has_checksums: long(252)? != 0,
        })
    }
}

/// CRC-32C, bit by bit: only some hundred bytes are summed.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| sum >> 1 ^ (0x82F6_3B78 & 0_u32.wrapping_sub(sum & 1));
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One of a cluster with pages and segments as they mostly are.
    pub(in super::super) fn control(has_checksums: bool, redo: u64) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        for (at, value) in [
            (8, VERSION),
            (216, 8192),
            (220, 131_072),
            (224, 8192),
            (228, 1 << 20),
            (252, has_checksums.into()),
        ] {
            put(at, value);
        }
        bytes[40..48].copy_from_slice(&redo.to_le_bytes());
        let sum = crc32c(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..SUMMED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_summed_right_is_believed() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let bytes = control(true, 0x0123_4567);
        let parsed = Control::parse(&bytes).expect("read");
        assert_eq!((parsed.redo, parsed.has_checksums, parsed.segment_pages), (0x0123_4567, true, 131_072));
        for at in [0, 9, 40, 252, 287, 288] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Control::parse(&damaged).is_err(), "{at}");
        }
        assert!(Control::parse(&bytes[..290]).is_err() && Control::parse(&[]).is_err());
    }
}
