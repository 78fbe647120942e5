//! What each block may hold.

use rotproof_block::hash::mix;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;

/// Contents of blocks, by block and by how often they were written; and which of them are right now.
pub(crate) struct Oracle {
    seed: u64,
    /// Of each block the writes of which one is right: the last that was acknowledged, and those since that failed.
    right: Vec<Vec<u64>>,
    /// Of each block those that are right if all is lost that was not flushed.
    since_flush: Vec<Vec<u64>>,
    last: u64,
}

impl Oracle {
    pub(crate) fn new(seed: u64, blocks: usize) -> Self {
        Self { seed, right: vec![Vec::new(); blocks], since_flush: vec![Vec::new(); blocks], last: 0 }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.right.len()
    }

    /// What write number `write` brings to a block; no other write brings the same.
    pub(crate) fn content(&self, block: usize, write: u64) -> Vec<u8> {
        let word = |at: u64| mix(mix(self.seed, block as u64, write), 1, at);
        (0..BLOCK as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
    }

    /// The number of the next write.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn acknowledged(&mut self, block: usize, write: u64) {
        self.right[block] = vec![write];
        self.since_flush[block].push(write);
    }

    /// All that was acknowledged is durable.
    pub(crate) fn flushed(&mut self) {
        self.since_flush.clone_from(&self.right);
    }

    /// The device was given up without a flush: what was written since the last one may be there or not.
    pub(crate) fn dropped(&mut self) {
        self.right.clone_from(&self.since_flush);
    }

    /// It may have happened.
    pub(crate) fn failed(&mut self, block: usize, write: u64) {
        self.right[block].push(write);
        self.since_flush[block].push(write);
    }

    pub(crate) fn is_right(&self, block: usize, bytes: &[u8]) -> bool {
        self.right[block].iter().any(|write| self.content(block, *write) == bytes)
    }

    /// What a block holds for certain.
    pub(crate) fn current(&self, block: usize) -> Option<Vec<u8>> {
        match self.right[block][..] {
            [write] => Some(self.content(block, write)),
            _ => None,
        }
    }
}
