//! The intent log of a file system: what fsync has promised since the last transaction. Its blocks are a chain, whose end is the first
//! with a wrong checksum.
//!
//! Layout: `sys/zil.h` of OpenSolaris, before the chains of pool version 26.

use crate::bytes::le64;

use super::block_pointer::{BlockPointer, POINTER_BYTES, fletcher_2};

/// The trailer of a block: eight bytes, the pointer to the next block, how much is used, and the checksum behind its magic number.
const TRAILER_BYTES: usize = 8 + POINTER_BYTES + 8 + 40;
const CHECKSUM_BYTES: usize = 32;
const CHECKSUM_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// A write of which the log only says where the data were put.
const WRITE: u64 = 9;
const WRITE_POINTER: usize = 64;

/// One block of a chain.
#[derive(Debug)]
pub(super) struct LogBlock {
    pub(super) next: Option<BlockPointer>,
    /// Objects and where data of them lie that the log has put beside itself.
    pub(super) writes: Vec<(u64, BlockPointer)>,
}

/// What the block holds that `pointer` leads to; `None` if the chain ends before it.
pub(super) fn read(bytes: &[u8], pointer: &BlockPointer) -> Option<LogBlock> {
    let trailer = bytes.len().checked_sub(TRAILER_BYTES)?;
    let sum_at = bytes.len() - CHECKSUM_BYTES;
    (le64(bytes, sum_at - 8)? == CHECKSUM_MAGIC).then_some(())?;
    let stored = [0, 8, 16, 24].map(|at| le64(bytes, sum_at + at).unwrap_or(0));
    // It is made with what the pointer says in its place.
    let mut whole = bytes.to_vec();
    for (at, word) in (sum_at..).step_by(8).zip(pointer.checksum) {
        whole[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    (fletcher_2(&whole) == stored).then_some(())?;
    let used = usize::try_from(le64(bytes, trailer + 8 + POINTER_BYTES)?).ok()?.min(trailer);
    let (mut writes, mut at) = (Vec::new(), 0);
    while let (Some(kind), Some(length)) = (le64(bytes, at), le64(bytes, at + 8)) {
        let length = usize::try_from(length).ok().filter(|&length| length >= 32 && at + length <= used);
        let Some(length) = length else { break };
        if kind & !(1 << 63) == WRITE
            && length == WRITE_POINTER + POINTER_BYTES
            && let (Some(object), Some(data)) =
                (le64(bytes, at + 32), BlockPointer::read(&bytes[at + WRITE_POINTER..]))
        {
            writes.push((object, data));
        }
        at += length;
    }
    Some(LogBlock { next: BlockPointer::read(&bytes[trailer + 8..]), writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_a_wrong_checksum_is_behind_the_end() {
        let mut pointer = vec![0; POINTER_BYTES];
        (pointer[0], pointer[96]) = (1, 5);
        let pointer = BlockPointer::read(&pointer).expect("a pointer");
        let mut block = vec![0; 4096];
        block[4096 - 40..4096 - 32].copy_from_slice(&CHECKSUM_MAGIC.to_le_bytes());
        assert!(read(&block, &pointer).is_none());
        block[4096 - 32] = 5;
        let sum = fletcher_2(&block);
        for (at, word) in (4096 - 32..).step_by(8).zip(sum) {
            block[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let found = read(&block, &pointer).expect("a block of the log");
        assert!(found.next.is_none() && found.writes.is_empty());
        block[100] ^= 1;
        assert!(read(&block, &pointer).is_none());
        assert!(read(&[], &pointer).is_none());
    }
}
