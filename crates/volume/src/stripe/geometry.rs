//! Where a byte of a stripe lies: chunks are dealt out to the parts in turn.

use std::ops::Range;

use rotproof_block::{Error, ErrorKind, Result};

/// The least and the most bytes that a chunk may have.
pub(super) const CHUNK_BYTES: std::ops::RangeInclusive<u32> = 512..=(64 << 20);

/// How a stripe is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes of a chunk; a power of two.
    pub(super) chunk: u64,
    pub(super) parts: u64,
}

/// What a request asks of one part: bytes that lie there one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) part: usize,
    pub(super) range: Range<u64>,
}

impl Geometry {
    pub(super) fn new(chunk_bytes: u32, parts: usize) -> Result<Self> {
        if !chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&chunk_bytes) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a chunk of {chunk_bytes} bytes; use a power of two from 512 bytes to 64 MiB"),
            ));
        }
        if parts == 0 {
            return Err(Error::new(ErrorKind::Invalid, "no devices to make a stripe of"));
        }
        Ok(Self { chunk: chunk_bytes.into(), parts: parts as u64 })
    }

    /// The part that has the byte at `offset`, and where.
    pub(super) fn place(&self, offset: u64) -> (usize, u64) {
        let (chunk, within) = (offset / self.chunk, offset % self.chunk);
        ((chunk % self.parts) as usize, chunk / self.parts * self.chunk + within)
    }

    /// Where a byte of a part is on the whole.
    pub(super) fn whole(&self, part: usize, offset: u64) -> u64 {
        let (chunk, within) = (offset / self.chunk, offset % self.chunk);
        (chunk * self.parts + part as u64) * self.chunk + within
    }

    /// Whether these bytes lie in one chunk.
    pub(super) fn is_within_chunk(&self, offset: u64, length: u64) -> bool {
        length == 0 || offset / self.chunk == (offset + length - 1) / self.chunk
    }

    /// What these bytes, at least one, are of each part, in the order of the first byte of each.
    pub(super) fn shares(&self, range: Range<u64>) -> impl Iterator<Item = Share> {
        let (first, last) = (range.start / self.chunk, (range.end - 1) / self.chunk);
        let geometry = *self;
        (first..=last.min(first + self.parts - 1)).map(move |own_first| {
            let own_last = last - (last - own_first) % geometry.parts;
            let start = range.start.max(own_first * geometry.chunk);
            let end = range.end.min((own_last + 1) * geometry.chunk);
            let (part, from) = geometry.place(start);
            Share { part, range: from..geometry.place(end - 1).1 + 1 }
        })
    }

    /// The pieces of a share, each one chunk or less, with where each begins on the whole and in the share.
    pub(super) fn pieces(&self, share: &Share) -> impl Iterator<Item = (u64, Range<usize>)> {
        let (geometry, part, range) = (*self, share.part, share.range.clone());
        let (mut at, start) = (range.start, range.start);
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let end = ((at / geometry.chunk + 1) * geometry.chunk).min(range.end);
                let piece = (geometry.whole(part, at), (at - start) as usize..(end - start) as usize);
                at = end;
                piece
            })
        })
    }

    /// The stripes of which a range of a part is a part: bytes of the whole, which hold all of it and the same of the others.
    pub(super) fn stripes(&self, range: &Range<u64>) -> Range<u64> {
        let stripe = self.chunk * self.parts;
        range.start / self.chunk * stripe..range.end.div_ceil(self.chunk) * stripe
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_and_pieces_are_what_byte_by_byte_comes_out(parts in 1usize..6, start in 0u64..5000, length in 1u64..5000) {
            let geometry = Geometry::new(512, parts).expect("a chunk that fits");
            let range = start..start + length;
            let mut found = vec![None; length as usize];
            let mut parts_seen = std::collections::HashSet::new();
            for share in geometry.shares(range.clone()) {
                prop_assert!(parts_seen.insert(share.part));
                for (whole, piece) in geometry.pieces(&share) {
                    for at in 0..piece.len() as u64 {
                        let of_part = share.range.start + piece.start as u64 + at;
                        let seen = found[(whole + at - start) as usize].replace((share.part, of_part));
                        prop_assert!(seen.is_none());
                    }
                }
                let stripes = geometry.stripes(&share.range);
                prop_assert!(stripes.start <= geometry.whole(share.part, share.range.start));
                prop_assert!(stripes.end > geometry.whole(share.part, share.range.end - 1));
            }
            for (at, place) in range.zip(found) {
                let chunk = at / 512;
                let slow = ((chunk % parts as u64) as usize, chunk / parts as u64 * 512 + at % 512);
                prop_assert_eq!(place, Some(slow));
                prop_assert_eq!(geometry.whole(slow.0, slow.1), at);
            }
        }
    }

    #[test]
    fn a_chunk_that_is_none_is_refused() {
        for chunk in [0, 1, 256, 768, 65_000, 128 << 20] {
            assert_eq!(Geometry::new(chunk, 2).expect_err("no chunk").kind(), ErrorKind::Invalid);
        }
        assert!(Geometry::new(512, 0).is_err());
    }
}
