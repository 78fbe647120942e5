//! Where a table lies on its device, and how much of it there is. Numbers only.
//!
//! ```text
//! | state, 2 slots | log A | pages A | log B | pages B | state again, 2 slots | what the table is about ...
//! ```
//! Everything is there twice, far apart, so that a bad spot never takes both.

use std::ops::Range;

use rotproof_block::{Error, ErrorKind, Result};

/// The unit of everything that a table writes, and of what an entry stands for.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes at the beginning of a page that are not entries.
pub(crate) const PAGE_HEADER_BYTES: usize = 64;
/// Words of four bytes of entries in a page.
pub(crate) const PAGE_WORDS: usize = (BLOCK_BYTES as usize - PAGE_HEADER_BYTES) / 4;
/// Bytes of a slot of the state.
pub(crate) const STATE_BYTES: u64 = 3 * BLOCK_BYTES;
/// Bits in each map of the state.
const GRANULES_MAX: u64 = 8 * BLOCK_BYTES;
/// Blocks of each log.
const LOG_BLOCKS: Range<u64> = 32..1536;

/// Sizes and places of a table, all derived from what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Words of four bytes in an entry: 1, 2 or 4.
    pub words: usize,
    /// Number of entries.
    pub entries: u64,
    /// Entries in a page.
    pub page_entries: u64,
    /// Number of pages.
    pub pages: u64,
    /// Pages that share a bit in the maps of the state.
    pub granule_pages: u64,
    /// Number of those bits.
    pub granules: u64,
    /// Blocks of each of the two logs.
    pub log_blocks: u64,
}

impl Layout {
    /// For `entries` entries of `words` words each.
    pub(crate) fn new(entries: u64, words: usize) -> Self {
        let page_entries = (PAGE_WORDS / words) as u64;
        let pages = entries.div_ceil(page_entries).max(1);
        let granule_pages = pages.div_ceil(GRANULES_MAX);
        let log_blocks = (entries / 8192).clamp(LOG_BLOCKS.start, LOG_BLOCKS.end);
        let granules = pages.div_ceil(granule_pages);
        Self { words, entries, page_entries, pages, granule_pages, granules, log_blocks }
    }

    /// The most entries that a device of `bytes` has room for, each standing for a block of its own on it, beside the table.
    ///
    /// Fails with [`ErrorKind::NoSpace`] if that is none.
    pub(crate) fn fit(bytes: u64, words: usize) -> Result<Self> {
        let blocks = bytes / BLOCK_BYTES;
        let fits = |entries: u64| Self::new(entries, words).blocks() + entries <= blocks;
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        if low == 0 || !fits(low) {
            let smallest = (Self::new(1, words).blocks() + 1) * BLOCK_BYTES;
            let context = format!(
                "a device of {bytes} bytes has no room for checksums or maps: it takes {smallest} bytes at least"
            );
            return Err(Error::new(ErrorKind::NoSpace, context));
        }
        Ok(Self::new(low, words))
    }

    /// Blocks that all of the table takes.
    pub(crate) fn blocks(&self) -> u64 {
        4 * (STATE_BYTES / BLOCK_BYTES) + 2 * (self.log_blocks + self.pages)
    }

    /// Bytes that all of the table takes: the first byte behind it.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks() * BLOCK_BYTES
    }

    /// Where slot `slot` (0 or 1) of copy `copy` (0 or 1) of the state begins.
    pub(crate) fn state_at(&self, copy: u64, slot: u64) -> u64 {
        let first = if copy == 0 { 0 } else { self.bytes() - 2 * STATE_BYTES };
        first + slot * STATE_BYTES
    }

    /// Where the block of the log with this number begins, in copy 0 or 1.
    pub(crate) fn log_at(&self, copy: u64, sequence: u64) -> u64 {
        self.half_at(copy) + sequence % self.log_blocks * BLOCK_BYTES
    }

    /// Where a page begins, in copy 0 or 1.
    pub(crate) fn page_at(&self, copy: u64, page: u64) -> u64 {
        self.half_at(copy) + (self.log_blocks + page) * BLOCK_BYTES
    }

    fn half_at(&self, copy: u64) -> u64 {
        2 * STATE_BYTES + copy * (self.log_blocks + self.pages) * BLOCK_BYTES
    }

    /// The page of an entry, and its place there.
    pub(crate) fn place(&self, entry: u64) -> (u64, usize) {
        (entry / self.page_entries, (entry % self.page_entries) as usize)
    }

    /// The pages of a range of entries.
    pub(crate) fn pages_of(&self, entries: &Range<u64>) -> Range<u64> {
        if entries.is_empty() {
            return 0..0;
        }
        self.place(entries.start).0..self.place(entries.end - 1).0 + 1
    }

    /// The entries of a page.
    pub(crate) fn entries_of(&self, page: u64) -> Range<u64> {
        let first = page * self.page_entries;
        first..(first + self.page_entries).min(self.entries)
    }

    /// The granule of a page.
    pub(crate) fn granule_of(&self, page: u64) -> u64 {
        page / self.granule_pages
    }

    /// The pages of a granule.
    pub(crate) fn pages_in(&self, granule: u64) -> Range<u64> {
        let first = granule * self.granule_pages;
        first..(first + self.granule_pages).min(self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lies_on_anything_else_and_little_is_taken() {
        for words in [1, 2, 4] {
            for bytes in [1 << 20, 3 << 20, 64 << 20, 10 << 30, 1 << 40] {
                let layout = Layout::fit(bytes, words).expect("room");
                let mut places: Vec<Range<u64>> = Vec::new();
                for copy in 0..2 {
                    let log = layout.log_at(copy, 0);
                    places.push(log..log + layout.log_blocks * BLOCK_BYTES);
                    let pages = layout.page_at(copy, 0);
                    places.push(pages..layout.page_at(copy, layout.pages));
                    for slot in 0..2 {
                        let at = layout.state_at(copy, slot);
                        places.push(at..at + STATE_BYTES);
                    }
                }
                places.sort_by_key(|place| place.start);
                let ends: Vec<u64> = places.iter().map(|place| place.end).collect();
                let starts: Vec<u64> = places.iter().map(|place| place.start).collect();
                assert_eq!(starts[0], 0);
                assert_eq!(starts[1..], ends[..ends.len() - 1], "no gap, no overlap");
                assert_eq!(ends.last(), Some(&layout.bytes()));
                assert!(layout.bytes() + layout.entries * BLOCK_BYTES <= bytes);
                assert!(layout.granules <= GRANULES_MAX);
                if bytes == 1 << 40 && words == 1 {
                    assert!(layout.bytes() < bytes / 500);
                }
                if bytes >= 1 << 30 {
                    assert!(layout.bytes() < bytes / 420 * words as u64, "{bytes} {words}");
                }
                let last = layout.entries - 1;
                assert!(layout.entries_of(layout.place(last).0).contains(&last));
            }
        }
        assert!(Layout::fit(64 << 10, 1).is_err());
    }
}
