//! How far blocks compress: of one content in so many it is measured, or of all if they are few, by LZ4, each by itself.

/// One content in so many is measured.
const ONE_IN: u64 = 16;

/// So many contents are few.
pub const FEW: usize = 4096;

/// Whether the content with this hash is one of those to measure, where they are many.
pub fn is_of_sample(hash: u64) -> bool {
    // Bits that neither shards nor levels use.
    (hash >> 40).is_multiple_of(ONE_IN)
}

/// What the block takes when compressed, in bytes. One that would grow is stored as it is.
pub fn compressed_bytes(block: &[u8]) -> u16 {
    lz4_flex::block::compress(block).len().min(block.len()) as u16
}
