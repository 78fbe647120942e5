//! A rollback journal: what a database held before a transaction.

use rotproof_block::Result;

use crate::bytes::{be32, u8_at};
use crate::kind::Plain;
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::bytes_at;
use crate::source::Source;

use super::{invalid, is_page_size};

/// How a journal begins that would be rolled back.
pub(crate) const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// A count of records that says: as many as there are.
const ALL_THERE_ARE: u32 = u32::MAX;

/// The sum that a record ends with: every 200th byte from the end on (*Database File Format*, section 3).
fn sum(nonce: u32, page: &[u8]) -> u32 {
    let mut sum = nonce;
    let mut at = page.len().saturating_sub(200);
    while at > 0 {
        sum = sum.wrapping_add(u32::from(u8_at(page, at).unwrap_or(0)));
        at = at.saturating_sub(200);
    }
    sum
}

/// Every header with its records, as far as a rollback would take them; everything behind is old.
pub(crate) fn read(source: &dyn Source) -> Result<Map> {
    let first = bytes_at(source, 0, 28).map_err(|_| invalid("it ends within its header"))?;
    let number = |at: usize| u64::from(be32(&first, at).unwrap_or(0));
    let (sector, page_bytes) = (number(20), number(24));
    if !is_page_size(page_bytes) {
        return Err(invalid(format!("pages cannot have {page_bytes} bytes")));
    }
    if !sector.is_power_of_two() || !(32..=65536).contains(&sector) {
        return Err(invalid(format!("sectors cannot have {sector} bytes")));
    }
    let size = source.size();
    let mut builder = MapBuilder::new(size);
    let record_bytes = page_bytes + 8;
    // Where the next header would be, and where the last record ends.
    let (mut at, mut end) = (0, 0);
    'headers: while let Ok(header) = bytes_at(source, at, 28) {
        if header[..8] != MAGIC || at + sector > size {
            break;
        }
        builder.claim(Rank::Structure, Extent::new(at..at + sector, Plain::RollbackHeader, Owner::NONE));
        let (count, nonce) = (be32(&header, 8).unwrap_or(0), be32(&header, 12).unwrap_or(0));
        end = at + sector;
        let count = match count {
            ALL_THERE_ARE => (size - end) / record_bytes,
            count => u64::from(count),
        };
        for _ in 0..count {
            let Ok(record) = bytes_at(source, end, record_bytes as usize) else {
                builder.damaged(end, "the journal ends before its last record");
                break 'headers;
            };
            let (page, told) = record[4..].split_at(page_bytes as usize);
            if be32(told, 0) != Some(sum(nonce, page)) {
                builder.damaged(end, "a record has another sum: a rollback ends here");
                break 'headers;
            }
            let record = Extent::new(end..end + record_bytes, Plain::RollbackRecord, Owner::NONE);
            builder.claim(Rank::Structure, record);
            end += record_bytes;
        }
        if count == 0 {
            break;
        }
        at = end.next_multiple_of(sector);
    }
    if end < size {
        builder.claim(Rank::Free, Extent::new(end..size, Plain::RollbackOld, Owner::NONE));
    }
    // Between records and the next header there is room for whole sectors.
    builder.claim(Rank::Free, Extent::new(0..end.min(size), Plain::Unused, Owner::NONE));
    Ok(builder.finish(FileSystemKind::SqliteJournal, page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(records: u32) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, value) in [(8, records), (12, 77), (16, 9), (20, 512), (24, 512)] {
            bytes[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
        }
        for number in 0..2_u32 {
            let page = vec![number as u8 + 1; 512];
            bytes.extend((number + 1).to_be_bytes());
            bytes.extend(&page);
            bytes.extend(sum(77, &page).to_be_bytes());
        }
        bytes
    }

    fn bytes_of(map: &Map, kind: Plain) -> u64 {
        map.totals().get(&kind.into()).map_or(0, |total| total.bytes)
    }

    #[test]
    fn what_a_rollback_would_take_are_records_and_the_rest_is_old() {
        for (count, records) in [(0, 0), (1, 1), (2, 2), (u32::MAX, 2)] {
            let map = read(&journal(count)).expect("read");
            assert_eq!(bytes_of(&map, Plain::RollbackRecord), records * 520, "{count}");
            assert_eq!(bytes_of(&map, Plain::RollbackOld), (2 - records) * 520, "{count}");
            assert_eq!((map.damages_count, bytes_of(&map, Plain::Unknown)), (0, 0));
        }
        let mut broken = journal(2);
        broken[512 + 4 + 312] ^= 1;
        let map = read(&broken).expect("read");
        assert_eq!((bytes_of(&map, Plain::RollbackRecord), map.damages_count), (0, 1));
    }
}
