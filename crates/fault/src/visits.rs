//! How often each block has met a rule, so that what chance decides depends on the block and not on which thread came
//! first.

use std::sync::atomic::{AtomicU32, Ordering};

/// At most so many counters (4 MiB); on a device beyond 4 GiB several blocks share one.
const COUNTERS_MAX: u64 = 1 << 20;

/// One counter for each block.
#[derive(Debug)]
pub(crate) struct Visits(Box<[AtomicU32]>);

impl Visits {
    pub(crate) fn new(device_blocks: u64) -> Self {
        Self((0..device_blocks.clamp(1, COUNTERS_MAX)).map(|_| AtomicU32::new(0)).collect())
    }

    /// The number of this visit, from 0.
    pub(crate) fn next(&self, block: u64) -> u32 {
        let counter = (block % self.0.len() as u64) as usize;
        self.0[counter].fetch_add(1, Ordering::Relaxed)
    }
}
