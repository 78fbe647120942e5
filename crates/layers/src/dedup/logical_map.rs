//! Which physical block each logical block is mapped to. Memory comes with the first mapping in each part of it.

use std::ops::Range;

use super::blocks::Block;

/// Logical blocks of a page: 128 MiB of the device, 128 KiB of memory.
const PAGE: usize = 1 << 15;

/// Logical blocks without a physical one read as zeros.
pub(super) struct LogicalMap {
    /// Empty, or one number for each logical block: that of the physical one and 1 more, or 0.
    pages: Vec<Vec<u32>>,
    mapped: u64,
}

impl LogicalMap {
    pub(super) fn new(blocks: u32) -> Self {
        Self { pages: vec![Vec::new(); (blocks as usize).div_ceil(PAGE)], mapped: 0 }
    }

    /// How many logical blocks are mapped.
    pub(super) fn mapped(&self) -> u64 {
        self.mapped
    }

    pub(super) fn get(&self, logical: u64) -> Option<Block> {
        let page = &self.pages[logical as usize / PAGE];
        page.get(logical as usize % PAGE)?.checked_sub(1)
    }

    /// Maps a logical block, and gives what it was mapped to before.
    pub(super) fn set(&mut self, logical: u64, block: Block) -> Option<Block> {
        let page = &mut self.pages[logical as usize / PAGE];
        if page.is_empty() {
            page.resize(PAGE, 0);
        }
        let before = std::mem::replace(&mut page[logical as usize % PAGE], block + 1).checked_sub(1);
        self.mapped += u64::from(before.is_none());
        before
    }

    /// Unmaps a range, and gives each block that a logical one was mapped to.
    pub(super) fn clear(&mut self, range: Range<u64>, mut unmapped: impl FnMut(Block)) {
        let mut start = range.start as usize;
        while start < range.end as usize {
            let end = ((start / PAGE + 1) * PAGE).min(range.end as usize);
            let page = &mut self.pages[start / PAGE];
            if !page.is_empty() {
                let first = start % PAGE;
                for number in &mut page[first..first + (end - start)] {
                    if let Some(block) = std::mem::take(number).checked_sub(1) {
                        self.mapped -= 1;
                        unmapped(block);
                    }
                }
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_found_until_its_range_is_cleared() {
        let mut map = LogicalMap::new(3 * PAGE as u32);
        let border = PAGE as u64;
        assert_eq!(map.get(3 * border - 1), None);
        for (logical, block) in [(0, 0), (border - 1, 7), (border, 7), (3 * border - 1, u32::MAX - 1)] {
            assert_eq!(map.set(logical, block), None);
            assert_eq!(map.get(logical), Some(block));
        }
        assert_eq!(map.set(border, 9), Some(7));
        assert_eq!(map.mapped(), 4);
        let mut freed = Vec::new();
        map.clear(border - 1..3 * border - 1, |block| freed.push(block));
        assert_eq!((freed, map.mapped()), (vec![7, 9], 2));
        assert_eq!(
            [map.get(0), map.get(border), map.get(3 * border - 1)],
            [Some(0), None, Some(u32::MAX - 1)]
        );
    }
}
