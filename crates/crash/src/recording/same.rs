//! The table by which a chunk is found that was stored before. Of fixed size, so that the memory of a recorder does not
//! grow with the recording: each place holds the chunk that came there last, and who is pushed out is stored again.

use rotproof_block::ContentHash;

use super::format::Source;

pub(super) struct SameChunks {
    places: Box<[(ContentHash, Source)]>,
}

/// No chunk lies at the beginning of the file.
const EMPTY: Source = 0;

impl SameChunks {
    /// A table with room for 2 to the power of `bits` chunks, 32 bytes each.
    pub(super) fn new(bits: u32) -> Self {
        Self { places: vec![(ContentHash(0), EMPTY); 1 << bits].into_boxed_slice() }
    }

    /// Where a chunk with this hash lies; if it is not known, it is now known to lie at `here`.
    pub(super) fn find_or_keep(&mut self, hash: ContentHash, here: Source) -> Option<Source> {
        // The length of the table is a power of two, and any bits of the hash are as good as others.
        let place = &mut self.places[hash.0 as usize & (self.places.len() - 1)];
        if place.0 == hash && place.1 != EMPTY {
            return Some(place.1);
        }
        *place = (hash, here);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_known_until_another_takes_its_place() {
        let mut same = SameChunks::new(1);
        assert_eq!(same.find_or_keep(ContentHash(0), 64), None, "an empty place is no chunk");
        assert_eq!(same.find_or_keep(ContentHash(1), 100), None);
        assert_eq!(same.find_or_keep(ContentHash(0), 200), Some(64));
        assert_eq!(same.find_or_keep(ContentHash(2), 300), None);
        assert_eq!(same.find_or_keep(ContentHash(0), 400), None);
        assert_eq!(same.find_or_keep(ContentHash(1), 500), Some(100));
    }
}
