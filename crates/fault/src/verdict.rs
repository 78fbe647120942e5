//! What is to happen to one request.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::BLOCK_BYTES;
use crate::active_rule::ActiveRule;
use crate::effect::Effect;
use crate::geometry::Header;

/// The hits of one request.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Errors and delays, by rule.
    pub(crate) requests: Vec<RequestHit>,
    /// Effects on data, by block and then by rule once sorted.
    pub(crate) blocks: Vec<BlockHit>,
}

/// A rule hits a whole request.
#[derive(Debug)]
pub(crate) struct RequestHit {
    pub(crate) rule: Arc<ActiveRule>,
    /// Which of the rule's aims are among them.
    pub(crate) aims: Vec<u32>,
    /// The blocks that fulfilled the rule's conditions: what a sticky rule leaves bad.
    pub(crate) matched: Vec<Range<u64>>,
}

/// A rule hits a block of a request.
#[derive(Debug)]
pub(crate) struct BlockHit {
    pub(crate) rule: Arc<ActiveRule>,
    pub(crate) block: u64,
    /// Number of the match.
    pub(crate) number: u64,
    /// Which of the rule's aims the block is.
    pub(crate) aims: Vec<u32>,
}

impl Verdict {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.blocks.is_empty()
    }

    /// Whether the request is to fail.
    pub fn fails(&self) -> bool {
        self.requests.iter().any(|hit| hit.rule.effect() == Effect::Error)
    }

    /// How much longer the request is to take: the sum of all delays that hit it.
    pub fn delay(&self) -> Option<Duration> {
        let mut sum = None;
        for hit in &self.requests {
            if let Effect::Delay(span) = hit.rule.effect() {
                sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(span.0));
            }
        }
        sum
    }

    /// The bytes of the device that a lost write will leave as they are, as ranges in order: to be read before the
    /// write is passed on.
    pub fn lost_ranges(&self, header: &Header) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for hit in self.blocks.iter().filter(|hit| hit.rule.effect() == Effect::LostWrite) {
            let part = header.part(hit.block);
            let start = hit.block * BLOCK_BYTES;
            let range = start + part.start as u64..start + part.end as u64;
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Brings the hits into the order in which they act, and makes one of what was found twice: by the schedule and
    /// because the place was bad already.
    pub(crate) fn settle(&mut self) {
        self.blocks.sort_by_key(|hit| (hit.block, hit.rule.index));
        self.blocks.dedup_by_key(|hit| (hit.block, hit.rule.index));
        self.requests.sort_by_key(|hit| hit.rule.index);
        self.requests.dedup_by(|later, earlier| {
            let is_same = later.rule.index == earlier.rule.index;
            if is_same {
                earlier.matched.append(&mut later.matched);
                earlier.aims.append(&mut later.aims);
            }
            is_same
        });
        for hit in &mut self.requests {
            hit.aims.sort_unstable();
            hit.aims.dedup();
        }
    }
}
