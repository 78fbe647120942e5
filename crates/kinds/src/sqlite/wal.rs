//! A write-ahead log: newer pages of a database, transaction by transaction.

use rotproof_block::Result;

use crate::bytes::{be32, le32};
use crate::kind::Plain;
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::bytes_at;
use crate::source::Source;

use super::{invalid, is_page_size};

/// How a log begins, but for its last bit, which says in which byte order sums are made.
pub(crate) const MAGIC: [u8; 3] = [0x37, 0x7f, 0x06];
const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// The running sum over words of eight bytes (*WAL-mode File Format*, section 2.3).
fn sum(mut so_far: (u32, u32), bytes: &[u8], is_big_endian: bool) -> (u32, u32) {
    let word = |at: usize| if is_big_endian { be32(bytes, at) } else { le32(bytes, at) }.unwrap_or(0);
    for at in (0..bytes.len()).step_by(8) {
        so_far.0 = so_far.0.wrapping_add(word(at)).wrapping_add(so_far.1);
        so_far.1 = so_far.1.wrapping_add(word(at + 4)).wrapping_add(so_far.0);
    }
    so_far
}

fn pair(bytes: &[u8], at: usize) -> (u32, u32) {
    (be32(bytes, at).unwrap_or(0), be32(bytes, at + 4).unwrap_or(0))
}

/// The frames that count: those whose sums hold, up to the last that ends a transaction. All others are old.
pub(crate) fn read(source: &dyn Source) -> Result<Map> {
    let header =
        bytes_at(source, 0, HEADER_BYTES as usize).map_err(|_| invalid("it ends within its header"))?;
    let is_big_endian = header[3] & 1 == 1;
    let page_bytes = u64::from(be32(&header, 8).unwrap_or(0));
    if !is_page_size(page_bytes) {
        return Err(invalid(format!("pages cannot have {page_bytes} bytes")));
    }
    let size = source.size();
    let mut builder = MapBuilder::new(size);
    let head = Extent::new(0..HEADER_BYTES, Plain::WalHeader, Owner::NONE);
    builder.claim(Rank::Layout, head);
    builder.claim(Rank::Free, Extent::new(HEADER_BYTES..size.max(HEADER_BYTES), Plain::WalOld, Owner::NONE));
    let salts = pair(&header, 16);
    let mut so_far = sum((0, 0), &header[..24], is_big_endian);
    if so_far != pair(&header, 24) {
        builder.damaged(0, "the header of the log has another sum: none of its frames count");
        return Ok(builder.finish(FileSystemKind::SqliteWal, page_bytes));
    }
    let frame_bytes = FRAME_HEADER_BYTES + page_bytes;
    let mut waiting: Vec<Extent> = Vec::new();
    let mut at = HEADER_BYTES;
    while let Ok(frame) = bytes_at(source, at, frame_bytes as usize) {
        let (of, page) = frame.split_at(FRAME_HEADER_BYTES as usize);
        so_far = sum(sum(so_far, &of[..8], is_big_endian), page, is_big_endian);
        if pair(of, 8) != salts || pair(of, 16) != so_far {
            break;
        }
        let is_commit = be32(of, 4) != Some(0);
        let kind = if is_commit { Plain::WalCommit } else { Plain::WalFrame };
        waiting.push(Extent::new(at..at + frame_bytes, kind, Owner::NONE));
        if is_commit {
            waiting.drain(..).for_each(|frame| builder.claim(Rank::Structure, frame));
        }
        at += frame_bytes;
    }
    Ok(builder.finish(FileSystemKind::SqliteWal, page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log with a frame for each number, which is the count of pages after a transaction, or 0 within one.
    fn log(frames: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [0x377f_0682_u32, 3_007_000, 512, 0, 11, 12] {
            bytes.extend(word.to_be_bytes());
        }
        let mut so_far = sum((0, 0), &bytes, false);
        bytes.extend([so_far.0.to_be_bytes(), so_far.1.to_be_bytes()].concat());
        for (index, count) in frames.iter().enumerate() {
            let head = [(index as u32 + 1).to_be_bytes(), count.to_be_bytes()].concat();
            let page = vec![index as u8; 512];
            so_far = sum(sum(so_far, &head, false), &page, false);
            bytes.extend(head);
            for word in [11, 12, so_far.0, so_far.1] {
                bytes.extend(u32::to_be_bytes(word));
            }
            bytes.extend(page);
        }
        bytes
    }

    fn count(bytes: &Vec<u8>, kind: Plain) -> u64 {
        let map = read(bytes).expect("read");
        map.totals().get(&kind.into()).map_or(0, |total| total.bytes / 536)
    }

    #[test]
    fn frames_count_up_to_the_last_commit_whose_sums_hold() {
        let whole = log(&[0, 4, 0, 0, 5, 0]);
        assert_eq!((count(&whole, Plain::WalFrame), count(&whole, Plain::WalCommit)), (3, 2));
        assert_eq!(count(&whole, Plain::WalOld), 1);
        let mut broken = whole.clone();
        // In the third frame: only the first transaction is left.
        broken[32 + 2 * 536 + 100] ^= 4;
        assert_eq!((count(&broken, Plain::WalFrame), count(&broken, Plain::WalCommit)), (1, 1));
        broken[20] ^= 1;
        assert_eq!((count(&broken, Plain::WalCommit), count(&broken, Plain::WalOld)), (0, 6));
    }
}
