//! What each block may hold.

use rotproof_block::hash::mix;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Bytes at the beginning of a block that say whose it is.
const HEAD: usize = 16;

/// Contents of blocks, by block and by how often they were written; and which of them are right now.
pub struct Oracle {
    seed: u64,
    /// Of each block the writes of which one is right: the last that was acknowledged, and those since that failed.
    right: Vec<Vec<u64>>,
    /// Of each block those that are right if all is lost that was not flushed.
    since_flush: Vec<Vec<u64>>,
    last: u64,
}

impl Oracle {
    /// So many blocks of which none was written.
    pub fn new(seed: u64, blocks: usize) -> Self {
        Self { seed, right: vec![Vec::new(); blocks], since_flush: vec![Vec::new(); blocks], last: 0 }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.right.len()
    }

    /// What write number `write` brings to a block; no other write brings the same. It begins with what [`block_of`] knows.
    pub fn content(&self, block: usize, write: u64) -> Vec<u8> {
        let word = |at: u64| match at {
            0 => mark(self.seed),
            1 => block as u64,
            _ => mix(mix(self.seed, block as u64, write), 1, at),
        };
        (0..BLOCK as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
    }

    /// The number of the next write.
    pub fn next_write(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A write was acknowledged.
    pub fn acknowledged(&mut self, block: usize, write: u64) {
        self.right[block] = vec![write];
        self.since_flush[block].push(write);
    }

    /// All that was acknowledged is durable.
    pub fn flushed(&mut self) {
        self.since_flush.clone_from(&self.right);
    }

    /// The device was given up without a flush: what was written since the last one may be there or not.
    pub fn dropped(&mut self) {
        self.right.clone_from(&self.since_flush);
    }

    /// A write failed: it may have happened.
    pub fn failed(&mut self, block: usize, write: u64) {
        self.right[block].push(write);
        self.since_flush[block].push(write);
    }

    /// Whether a block may hold this.
    pub fn is_right(&self, block: usize, bytes: &[u8]) -> bool {
        self.right[block].iter().any(|write| self.content(block, *write) == bytes)
    }

    /// What a block holds for certain.
    pub fn current(&self, block: usize) -> Option<Vec<u8>> {
        match self.right[block][..] {
            [write] => Some(self.content(block, write)),
            _ => None,
        }
    }
}

/// What every content of a seed begins with.
fn mark(seed: u64) -> u64 {
    mix(seed, 0x6d61_726b, 0)
}

/// The block of which this is a content, whenever it was written, if it is one of an oracle of this seed.
pub fn block_of(seed: u64, bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..HEAD)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    (word(0) == mark(seed)).then(|| word(8) as usize)
}
