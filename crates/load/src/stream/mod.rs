//! What a worker does, request after request: a pure function of (seed, stage, worker, index), whatever the timing.
//!
//! A [`Stream`] is an iterator without effects, so it can be run again at any time: to know contents before they are
//! written ([`crate::target`]), and to find out later who wrote a content where and when ([`crate::classify()`]).
//! Where requests come from a trace, that is read again.

mod contents;
mod course;
mod described;
mod due;
mod mixture;
mod places;
mod replayed;
mod share;
mod sizes;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rotproof_block::Error;

use crate::content::ContentId;
use crate::layout::Extent;
pub use contents::Contents;
use course::Course;
pub(crate) use course::{Amount, Plan};
pub(crate) use described::{Described, DescribedOptions};
pub(crate) use mixture::Mixture;
pub use replayed::TraceReport;
pub(crate) use replayed::{Replayed, ReplayedOptions, stopped};
pub use share::Share;

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
        /// Durable when it completes.
        fua: bool,
    },
    /// Gives up what the blocks hold. From then on they may hold anything, until they are written.
    Discard(Extent),
    /// Makes durable what the worker has written.
    Flush,
}

/// The steps of one worker in one stage.
#[derive(Debug)]
pub struct Stream(Kind);

#[derive(Debug)]
enum Kind {
    Described(Described),
    Replayed(Replayed),
}

impl From<Described> for Stream {
    fn from(described: Described) -> Self {
        Self(Kind::Described(described))
    }
}

impl From<Replayed> for Stream {
    fn from(replayed: Replayed) -> Self {
        Self(Kind::Replayed(replayed))
    }
}

impl Stream {
    /// The same stream, ending after so many requests if it does not end before: what has been drawn of it.
    #[must_use]
    pub fn ending_after(self, requests: u64) -> Self {
        match self.0 {
            Kind::Described(stream) => stream.ending_after(requests).into(),
            Kind::Replayed(stream) => stream.ending_after(requests).into(),
        }
    }

    /// The contents that writes draw from.
    pub fn contents(&self) -> Contents {
        match &self.0 {
            Kind::Described(stream) => stream.contents(),
            Kind::Replayed(stream) => stream.contents(),
        }
    }

    /// Requests so far, flushes not among them.
    pub fn requests(&self) -> u64 {
        match &self.0 {
            Kind::Described(stream) => stream.requests(),
            Kind::Replayed(stream) => stream.requests(),
        }
    }

    /// When the last step is due, counted from the beginning of the load; none for one without a time of its own.
    #[inline]
    pub fn due(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Described(stream) => stream.due(),
            Kind::Replayed(stream) => stream.due(),
        }
    }

    /// Whether the first requests are a ramp-up.
    #[inline]
    pub fn has_ramp_up(&self) -> bool {
        self.course().has_ramp_up()
    }

    /// Whether the last request belongs to the ramp-up.
    #[inline]
    pub fn is_ramping_up(&self) -> bool {
        self.course().is_ramping_up()
    }

    /// Whether the last request came after the end of the load proper, counted in requests or bytes.
    #[inline]
    pub fn is_cooling_down(&self) -> bool {
        self.course().is_cooling_down()
    }

    #[inline]
    fn course(&self) -> &Course {
        match &self.0 {
            Kind::Described(stream) => stream.course(),
            Kind::Replayed(stream) => stream.course(),
        }
    }

    /// What was read of the trace that it comes from, if it comes from one.
    pub fn trace(&self) -> Option<TraceReport> {
        match &self.0 {
            Kind::Described(_) => None,
            Kind::Replayed(stream) => Some(stream.report()),
        }
    }

    /// Why it ended before its end, if it did: its trace cannot be read, or too much of it is malformed.
    pub fn take_trouble(&mut self) -> Option<Error> {
        match &mut self.0 {
            Kind::Described(_) => None,
            Kind::Replayed(stream) => stream.take_trouble(),
        }
    }
}

impl Iterator for Stream {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        match &mut self.0 {
            Kind::Described(stream) => stream.next(),
            Kind::Replayed(stream) => stream.next(),
        }
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
        let contents = self.contents();
        std::iter::from_fn(move || {
            loop {
                match self.next()? {
                    Step::Write { extent, first, .. } => break Some((extent, first, self.requests() - 1)),
                    Step::Read(_) | Step::Discard(_) | Step::Flush => {}
                }
            }
        })
        .flat_map(move |(extent, first, request)| {
            let contents = contents.clone();
            extent.target_blocks().zip(first..).map(move |(block, n)| WrittenBlock {
                block,
                content: contents.content(n),
                request,
                n,
            })
        })
    }
}
