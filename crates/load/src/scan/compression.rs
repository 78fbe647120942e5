//! How far blocks compress: of one content in so many it is measured, by LZ4, each by itself.

/// One content in so many is measured.
const ONE_IN: u64 = 16;

/// What the block with this hash takes when compressed, in bytes, if its content is one of those to measure. One that would
/// grow is stored as it is.
pub fn compressed_bytes(hash: u64, block: &[u8]) -> Option<u16> {
    // Bits that neither shards nor levels use.
    (hash >> 40)
        .is_multiple_of(ONE_IN)
        .then(|| lz4_flex::block::compress(block).len().min(block.len()) as u16)
}
