//! Segments of the write-ahead log, page by page (`xlog_internal.h` of PostgreSQL 15).

use crate::bytes::{le16, le64};
use crate::kind::Plain;

/// Bytes of a page of the log.
pub(super) const PAGE_BYTES: u64 = 8192;
/// What pages of the log of PostgreSQL 15 begin with.
pub(super) const MAGIC: u16 = 0xD110;

/// Where the segment of this name begins in the log; `None` if no segment has such a name.
pub(super) fn begins_at(name: &str, segment_bytes: u64) -> Option<u64> {
    if name.len() != 24 || !name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F')) {
        return None;
    }
    let number = |at: usize| u64::from_str_radix(&name[at..at + 8], 16).ok();
    let (high, low) = (number(8)?, number(16)?);
    let each = (1_u64 << 32).checked_div(segment_bytes).filter(|&each| each > 0)?;
    (low < each).then_some((high << 32) + low * segment_bytes)
}

/// What a page at this address of the log is. One with another address is of a segment that was set aside under a new name; it, and one
/// without the number, is no part of the log.
pub(super) fn kind(page: &[u8], address: u64, redo: Option<u64>) -> Plain {
    let is_of_log = le16(page, 0) == Some(MAGIC) && le64(page, 8) == Some(address);
    match redo {
        Some(redo) if is_of_log && address + PAGE_BYTES > redo => Plain::PgWal,
        // Without a checkpoint nobody knows from where on it counts.
        None if is_of_log => Plain::PgWal,
        _ => Plain::PgWalDone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_by_their_names() {
        let mib = 1 << 20;
        assert_eq!(begins_at("000000010000000000000001", 16 * mib), Some(16 * mib));
        assert_eq!(begins_at("000000020000000300000002", mib), Some((3 << 32) + 2 * mib));
        for name in ["000000010000000000000100", "00000001000000000000000G", "00000001.history", ""] {
            assert_eq!(begins_at(name, 16 * mib), None, "{name}");
        }
        assert_eq!(begins_at("000000010000000000000001", 0), None);
    }

    #[test]
    fn only_pages_that_a_replay_would_take_are_of_the_log() {
        let mut page = vec![0; PAGE_BYTES as usize];
        page[..2].copy_from_slice(&MAGIC.to_le_bytes());
        page[8..16].copy_from_slice(&0x2000_u64.to_le_bytes());
        for (address, redo, kind_of) in [
            (0x2000, Some(0x2028), Plain::PgWal),
            (0x2000, Some(0x1000), Plain::PgWal),
            (0x2000, Some(0x4000), Plain::PgWalDone),
            (0x4000, Some(0x1000), Plain::PgWalDone),
            (0x2000, None, Plain::PgWal),
        ] {
            assert_eq!(kind(&page, address, redo), kind_of);
        }
        assert_eq!(kind(&[], 0, None), Plain::PgWalDone);
    }
}
