//! A page of a table on the medium: a header that says what it is, and entries.
//!
//! All numbers little-endian. The header, 64 bytes: magic (8), identity of the table (16), number of the page (8),
//! generation (8), XXH3-64 of all other bytes (8), first block of the log that it does not cover (8), zeros. The number makes
//! a page known that lies where another should.

use super::layout::{BLOCK_BYTES, PAGE_HEADER_BYTES};
use super::sealed::{read_u64, read_u128, seal, unseal, write_u64};

const MAGIC: [u8; 8] = *b"rotpPAGE";
const SUM_AT: usize = 40;

/// What a page says of itself, once it is known to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// Which time this page was written, from 1.
    pub generation: u64,
    /// All blocks of the log before this one are in it.
    pub covers: u64,
}

/// Fills in the header of `page`, whose entries are in place.
pub(crate) fn close(page: &mut [u8], table: u128, number: u64, header: PageHeader) {
    page[..PAGE_HEADER_BYTES].fill(0);
    page[..8].copy_from_slice(&MAGIC);
    page[8..24].copy_from_slice(&table.to_le_bytes());
    write_u64(page, 24, number);
    write_u64(page, 32, header.generation);
    write_u64(page, 48, header.covers);
    seal(page, SUM_AT);
}

/// The header of a page if it is whole, of this table, and this page of it.
pub(crate) fn open(page: &[u8], table: u128, number: u64) -> Option<PageHeader> {
    let is_it = page.len() == BLOCK_BYTES as usize
        && page[..8] == MAGIC
        && read_u128(page, 8) == table
        && read_u64(page, 24) == number
        && unseal(page, SUM_AT);
    is_it.then(|| PageHeader { generation: read_u64(page, 32), covers: read_u64(page, 48) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_whole_and_in_its_place_only() {
        let mut page = vec![7; BLOCK_BYTES as usize];
        let header = PageHeader { generation: 3, covers: 70 };
        close(&mut page, 5, 9, header);
        assert_eq!(open(&page, 5, 9), Some(header));
        assert_eq!(open(&page, 6, 9), None);
        assert_eq!(open(&page, 5, 8), None);
        assert_eq!(open(&page[..100], 5, 9), None);
        for bit in (0..BLOCK_BYTES as usize * 8).step_by(37) {
            let mut broken = page.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&broken, 5, 9), None, "bit {bit}");
        }
    }
}
