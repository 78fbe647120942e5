//! Arithmetic between requests in bytes and the blocks that faults act on.

use std::ops::Range;

use rotproof_block::{Context, Operation, Request};
use rotproof_spec::{ByteRange, End};

use crate::BLOCK_BYTES;

/// What is left of a request once its buffer has gone down the stack: everything else.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// What is to be done.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes concerned.
    pub length: u64,
    /// What is known of the request besides.
    pub context: Context,
}

impl Header {
    /// The header of `request`.
    pub fn of(request: &Request) -> Self {
        let Request { operation, offset, length, context, .. } = *request;
        Self { operation, offset, length, context }
    }

    /// First byte after the range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// The blocks that the request touches, whole or in part; none for a flush.
    pub(crate) fn blocks(&self) -> Range<u64> {
        if self.length == 0 {
            return 0..0;
        }
        self.offset / BLOCK_BYTES..self.end().div_ceil(BLOCK_BYTES)
    }

    /// The bytes of `block` that the request touches, counted from the block's start.
    pub(crate) fn part(&self, block: u64) -> Range<usize> {
        let start = block * BLOCK_BYTES;
        let from = self.offset.saturating_sub(start).min(BLOCK_BYTES);
        let to = self.end().saturating_sub(start).min(BLOCK_BYTES);
        from as usize..to as usize
    }

    /// The blocks that lie in the request with all their bytes.
    pub(crate) fn full_blocks(&self) -> Range<u64> {
        let first = self.offset.div_ceil(BLOCK_BYTES);
        first..(self.end() / BLOCK_BYTES).max(first)
    }

    /// Where in the request's buffer the touched part of `block` lies.
    pub(crate) fn in_buffer(&self, block: u64) -> Range<usize> {
        let part = self.part(block);
        let start = (block * BLOCK_BYTES + part.start as u64 - self.offset) as usize;
        start..start + part.len()
    }
}

/// The bytes of the device in `block`; fewer than usual at the end of a device that ends inside a block.
pub(crate) fn extent(block: u64, device_size: u64) -> Range<u64> {
    let start = block * BLOCK_BYTES;
    start..(start + BLOCK_BYTES).min(device_size)
}

/// The blocks that a rule's range stands for on a device of so many bytes.
pub(crate) fn blocks_in(range: &ByteRange, device_size: u64) -> Range<u64> {
    let device_blocks = device_size.div_ceil(BLOCK_BYTES);
    let first = range.start / BLOCK_BYTES;
    let end = match range.end {
        End::At(end) => end.min(device_size).div_ceil(BLOCK_BYTES),
        End::Open => device_blocks,
        End::OneBlock => (first + 1).min(device_blocks),
    };
    first..end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(offset: u64, length: u64) -> Header {
        Header { operation: Operation::Read, offset, length, context: Context::default() }
    }

    #[test]
    fn a_request_inside_one_block_touches_its_part() {
        let header = header(4096 + 512, 1024);
        assert_eq!(header.blocks(), 1..2);
        assert_eq!(header.part(1), 512..1536);
        assert_eq!(header.in_buffer(1), 0..1024);
        assert!(header.full_blocks().is_empty());
    }

    #[test]
    fn a_request_over_several_blocks_touches_its_ends_in_part() {
        let header = header(3584, 512 + 2 * 4096 + 1024);
        assert_eq!(header.blocks(), 0..4);
        assert_eq!(header.full_blocks(), 1..3);
        assert_eq!((header.part(0), header.part(1), header.part(3)), (3584..4096, 0..4096, 0..1024));
        assert_eq!((header.in_buffer(0), header.in_buffer(3)), (0..512, 512 + 8192..512 + 8192 + 1024));
    }

    #[test]
    fn a_request_without_length_touches_nothing() {
        assert!(header(4096, 0).blocks().is_empty());
        assert!(header(4096, 0).full_blocks().is_empty());
    }

    #[test]
    fn the_last_block_of_a_device_may_be_short() {
        assert_eq!(extent(1, 4096 + 512), 4096..4608);
        assert_eq!(extent(0, 4096 + 512), 0..4096);
    }
}
