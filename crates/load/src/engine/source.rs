//! Where a worker's steps come from: the stream of a stage, or a sweep over everything written.

use std::ops::Range;

use crate::layout::Layout;
use crate::oracle::OraclePart;
use crate::stream::{Step, Stream};

/// Blocks that a sweep reads at once.
const SWEEP_BLOCKS: u64 = 64;

#[expect(clippy::large_enum_variant, reason = "one for each worker, and never moved")]
pub(super) enum Source {
    Stream(Stream),
    /// The blocks still to be looked at.
    Sweep(Range<u64>),
}

impl Source {
    pub(super) fn next(&mut self, layout: &Layout, part: &OraclePart) -> Option<Step> {
        match self {
            Self::Stream(stream) => stream.next(),
            Self::Sweep(left) => {
                left.start = left.clone().find(|&block| part.is_judged(block))?;
                let most = layout.extent_at(left.start, SWEEP_BLOCKS.min(left.end - left.start));
                let judged = most.target_blocks().take_while(|&block| part.is_judged(block)).count() as u64;
                left.start += judged;
                Some(Step::Read(layout.extent_at(most.first_block, judged)))
            }
        }
    }
}
