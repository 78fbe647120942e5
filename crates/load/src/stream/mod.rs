//! What a worker does, request after request: a pure function of (seed, stage, worker, index), whatever the timing.
//!
//! A [`Stream`] is an iterator without I/O, so it can be run again at any time: to know contents before they are
//! written ([`crate::target`]), and to find out later who wrote a content where and when ([`crate::classify()`]).

mod contents;
mod places;
mod share;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::content::{ContentId, Stage};
use crate::layout::{Extent, Layout, Part};
use crate::pattern::Pattern;
pub use contents::Contents;
use places::Places;
pub use share::Share;
use share::is_chosen_irregularly;

/// Streams of [`mix`] that belong to requests.
const READS: u64 = 0x5e_ad50;

/// A prefill has no pattern of its own, so it takes requests of this size where the load's are smaller.
const PREFILL_BLOCKS: u64 = 64;

/// One thing a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads and verifies.
    Read(Extent),
    /// Writes; the blocks get the contents of [`Stream::contents`] from number `first` on.
    Write {
        /// Where.
        extent: Extent,
        /// Number of the first block among all that this worker writes in this stage, counted from zero.
        first: u64,
    },
    /// Makes durable what the worker has written.
    Flush,
}

/// When a worker's stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// As soon as so many bytes have been moved.
    Bytes(u64),
    /// After so many requests.
    Requests(u64),
    /// Never by itself: the load ends by time.
    Endless,
}

#[derive(Clone, Debug)]
enum Order {
    /// From this block of the part on, in requests of so many blocks; wraps.
    Sequential { next_block: u64, blocks: u64 },
    /// A place of the part that follows from the request's number.
    Placed(Places),
}

/// The steps of one worker in one stage.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    key: u64,
    layout: Arc<Layout>,
    part: Part,
    order: Order,
    reads: Share,
    flush_every: Option<u64>,
    contents: Contents,
    budget: Budget,
    /// Requests so far, flushes not among them.
    requests: u64,
    writes: u64,
    written_blocks: u64,
    moved_bytes: u64,
    /// Writes at the last flush.
    flushed_writes: u64,
}

/// What a [`Stream`] is made from.
pub(crate) struct StreamOptions {
    pub(crate) seed: u64,
    pub(crate) stage: Stage,
    pub(crate) worker: u16,
    pub(crate) layout: Arc<Layout>,
    pub(crate) part: Part,
    pub(crate) pattern: Pattern,
    pub(crate) reads: Share,
    pub(crate) flush_every: Option<u64>,
    pub(crate) duplicates: Share,
    pub(crate) budget: Budget,
}

impl Stream {
    pub(crate) fn new(options: StreamOptions) -> Self {
        let StreamOptions { seed, stage, worker, layout, part, .. } = options;
        let request_blocks = layout.request_blocks();
        let next_block = part.blocks.start;
        let (order, reads, flush_every, budget) = match (stage, &options.pattern) {
            (Stage::Prefill, _) => {
                let blocks = request_blocks.max(PREFILL_BLOCKS);
                let bytes = (part.blocks.end - part.blocks.start) * crate::BLOCK_BYTES as u64;
                (Order::Sequential { next_block, blocks }, Share::new(0.0), None, Budget::Bytes(bytes))
            }
            (Stage::Run, Pattern::Sequential) => {
                let order = Order::Sequential { next_block, blocks: request_blocks };
                (order, options.reads, options.flush_every, options.budget)
            }
            (Stage::Run, pattern) => {
                let places = (part.places.end - part.places.start).max(1);
                let place_bytes = request_blocks * crate::BLOCK_BYTES as u64;
                let key = u64::from(worker) | (stage as u64) << 16;
                let places = Places::new(pattern, seed, key, places, place_bytes);
                (Order::Placed(places), options.reads, options.flush_every, options.budget)
            }
        };
        // A worker without a place has nothing to do.
        let budget = if part.places.is_empty() { Budget::Requests(0) } else { budget };
        Self {
            seed,
            key: u64::from(worker) | (stage as u64) << 16,
            layout,
            part,
            order,
            reads,
            flush_every,
            contents: Contents::new(seed, stage, worker, options.duplicates),
            budget,
            requests: 0,
            writes: 0,
            written_blocks: 0,
            moved_bytes: 0,
            flushed_writes: 0,
        }
    }

    /// The same stream, ending after so many requests: what has been drawn of it.
    #[must_use]
    pub fn ending_after(mut self, requests: u64) -> Self {
        self.budget = Budget::Requests(requests);
        self
    }

    /// The contents that writes draw from.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// Requests so far, flushes not among them.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn has_ended(&self) -> bool {
        match self.budget {
            Budget::Bytes(bytes) => self.moved_bytes >= bytes,
            Budget::Requests(requests) => self.requests >= requests,
            Budget::Endless => false,
        }
    }

    fn next_extent(&mut self) -> Extent {
        match &mut self.order {
            Order::Sequential { next_block, blocks } => {
                let left = self.part.blocks.end - *next_block;
                let extent = self.layout.extent_at(*next_block, left.min(*blocks));
                *next_block += u64::from(extent.blocks);
                if *next_block == self.part.blocks.end {
                    *next_block = self.part.blocks.start;
                }
                extent
            }
            Order::Placed(places) => self.layout.extent(self.part.places.start + places.place(self.requests)),
        }
    }
}

impl Iterator for Stream {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        if self.flush_every.is_some_and(|every| self.writes - self.flushed_writes >= every) {
            self.flushed_writes = self.writes;
            return Some(Step::Flush);
        }
        if self.has_ended() {
            return None;
        }
        let is_read = is_chosen_irregularly(self.reads, self.seed, READS ^ self.key << 32, self.requests);
        let extent = self.next_extent();
        self.requests += 1;
        self.moved_bytes += extent.len_bytes() as u64;
        if is_read {
            return Some(Step::Read(extent));
        }
        let first = self.written_blocks;
        self.writes += 1;
        self.written_blocks += u64::from(extent.blocks);
        Some(Step::Write { extent, first })
    }
}

/// One block that a stream writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenBlock {
    /// Which block of the target.
    pub block: u64,
    /// What it gets.
    pub content: ContentId,
    /// Which request of the worker does it, counted from zero.
    pub request: u64,
    /// Its number among all blocks that the worker writes in this stage, counted from zero.
    pub n: u64,
}

impl Stream {
    /// Every block that the stream writes from here on, in its order.
    pub fn written(mut self) -> impl Iterator<Item = WrittenBlock> {
        let contents = self.contents;
        std::iter::from_fn(move || {
            loop {
                match self.next()? {
                    Step::Write { extent, first } => break Some((extent, first, self.requests - 1)),
                    Step::Read(_) | Step::Flush => {}
                }
            }
        })
        .flat_map(move |(extent, first, request)| {
            extent.target_blocks().zip(first..).map(move |(block, n)| WrittenBlock {
                block,
                content: contents.content(n),
                request,
                n,
            })
        })
    }
}
