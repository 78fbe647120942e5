//! What a worker does by the description of its job: places, sizes and kinds of requests, each a function of the seed
//! and the number of the request.

use std::sync::Arc;
use std::time::Duration;

use rotproof_spec::Bytes;

use super::course::{Amount, Course, Plan};
use super::due::Due;
use super::places::Places;
use super::share::{Share, is_chosen_irregularly};
use super::sizes::Sizes;
use super::{Contents, Mixture, Step};
use crate::block_sizes::SizeMix;
use crate::content::Stage;
use crate::job::JobSpec;
use crate::layout::{Extent, Layout, Part};
use crate::pattern::Pattern;

/// Streams of [`rotproof_block::hash::mix`] that belong to requests.
const READS: u64 = 0x5e_ad50;
const SEQUENTIAL: u64 = 0x5e_4e47;
const DURABLE: u64 = 0xd0_4ab1;

/// A prefill has no pattern of its own, so it takes requests of this size where the load's are smaller.
const PREFILL_BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
enum Order {
    /// Each request where the one before ended; wraps.
    Sequential,
    /// A place of the part that follows from the request's number, but for a share of requests that go on where the one
    /// before ended.
    Placed { places: Places, sequential: Share },
}

/// The steps of one worker in one stage, by the description of its job.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    seed: u64,
    key: u64,
    /// Its places are as far apart as requests may begin.
    layout: Arc<Layout>,
    part: Part,
    order: Order,
    reads: Share,
    /// Of reads and of writes.
    sizes: [Sizes; 2],
    fua: Share,
    flush_every: Option<u64>,
    contents: Contents,
    course: Course,
    /// More requests than these are not drawn, whatever the course says.
    requests_max: u64,
    /// Requests follow each other without gaps, whatever they must begin at multiples of.
    is_packed: bool,
    due: Due,
    last_due: Option<Duration>,
    /// Where a sequential request goes.
    next_block: u64,
    /// Requests so far, flushes not among them.
    requests: u64,
    writes: u64,
    written_blocks: u64,
    /// Writes at the last flush.
    flushed_writes: u64,
}

/// What a [`Described`] is made from.
pub(crate) struct DescribedOptions<'a> {
    pub(crate) seed: u64,
    pub(crate) stage: Stage,
    pub(crate) worker: u16,
    /// Its number within its job.
    pub(crate) number: u32,
    pub(crate) layout: Arc<Layout>,
    pub(crate) part: Part,
    pub(crate) job: &'a JobSpec,
    pub(crate) mixture: Arc<Mixture>,
    pub(crate) plan: Plan,
}

impl Described {
    pub(crate) fn new(options: DescribedOptions<'_>) -> Self {
        let DescribedOptions { seed, stage, worker, layout, part, job, .. } = options;
        let key = u64::from(worker) | (stage as u64) << 16;
        let (read_sizes, write_sizes) = job.block_size.split();
        let mut stream = Self {
            seed,
            key,
            order: Order::Sequential,
            reads: Share::new(job.reads.0),
            sizes: [Sizes::new(read_sizes, 0), Sizes::new(write_sizes, 1)],
            fua: Share::new(job.fua.map_or(0.0, |share| share.0)),
            flush_every: job.flush_every,
            contents: Contents::new(seed, stage, worker, options.mixture),
            course: Course::new(options.plan),
            requests_max: u64::MAX,
            is_packed: false,
            due: Due::AtOnce,
            last_due: None,
            next_block: part.blocks.start,
            layout,
            part,
            requests: 0,
            writes: 0,
            written_blocks: 0,
            flushed_writes: 0,
        };
        match (stage, &job.pattern) {
            (Stage::Prefill, _) => {
                let blocks = (job.block_size.largest_bytes() / crate::BLOCK_BYTES as u64).max(PREFILL_BLOCKS);
                let one_size = Sizes::new(&SizeMix::one(Bytes(blocks * crate::BLOCK_BYTES as u64)), 1);
                stream.sizes = [one_size.clone(), one_size];
                (stream.reads, stream.fua) = (Share::new(0.0), Share::new(0.0));
                stream.flush_every = None;
                let blocks = stream.part.blocks.end - stream.part.blocks.start;
                let bytes = blocks * crate::BLOCK_BYTES as u64;
                stream.course =
                    Course::new(Plan { end: Amount { bytes, ..Amount::ENDLESS }, ..Plan::ENDLESS });
                stream.is_packed = true;
            }
            (Stage::Run, pattern) => {
                stream.due = Due::new(job, options.number, seed, key);
                if *pattern != Pattern::Sequential {
                    let count = (stream.part.places.end - stream.part.places.start).max(1);
                    let places = Places::new(pattern, seed, key, count, job.align_bytes());
                    let sequential = Share::new(job.sequential.map_or(0.0, |share| share.0));
                    stream.order = Order::Placed { places, sequential };
                }
            }
        }
        // A worker without a place has nothing to do.
        if stream.part.places.is_empty() {
            stream.course = Course::new(Plan::NOTHING);
        }
        stream
    }

    pub(super) fn ending_after(self, requests: u64) -> Self {
        Self { requests_max: requests, ..self }
    }

    /// The contents that writes draw from.
    pub(super) fn contents(&self) -> Contents {
        self.contents.clone()
    }

    /// Requests so far, flushes not among them.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// When the last request is due, counted from the beginning of the load; none for one without a time of its own.
    pub(super) fn due(&self) -> Option<Duration> {
        self.last_due
    }

    pub(super) fn course(&self) -> &Course {
        &self.course
    }

    #[inline]
    fn next_extent(&mut self, blocks: u64) -> Extent {
        let placed = match &self.order {
            Order::Sequential => None,
            Order::Placed { places, sequential } => {
                let stream = SEQUENTIAL ^ self.key << 32;
                let goes_on = is_chosen_irregularly(*sequential, self.seed, stream, self.requests);
                (!goes_on).then(|| self.part.places.start + places.place(self.requests))
            }
        };
        let extent = match placed {
            Some(place) => self.fitting(self.layout.extent(place), blocks),
            None => {
                self.layout.extent_at(self.next_block, blocks.min(self.part.blocks.end - self.next_block))
            }
        };
        self.next_block = self.after(&extent);
        extent
    }

    /// The request of `blocks` blocks that begins where `place` does or, where it would reach beyond the end of the
    /// object or the part, as far before it as it must to fit.
    #[inline]
    fn fitting(&self, place: Extent, blocks: u64) -> Extent {
        let step = self.layout.request_blocks();
        if blocks == step {
            return place;
        }
        let object = self.layout.object_blocks(place.object);
        let end = object.end.min(self.part.blocks.end);
        let mut start = place.first_block;
        if blocks > step && start + blocks > end {
            // What is left of a whole step at the end of an object makes the request shorter, not later.
            let end = object.start + (end - object.start).next_multiple_of(step);
            start = end.saturating_sub(blocks).max(self.part.blocks.start).max(object.start);
        }
        self.layout.extent_at(start, blocks.min(end - start))
    }

    /// The block where a request that follows `extent` begins.
    #[inline]
    fn after(&self, extent: &Extent) -> u64 {
        let step = if self.is_packed { 1 } else { self.layout.request_blocks() };
        let mut next = extent.first_block + u64::from(extent.blocks);
        // Both are powers of two, so this is rare: an object's last request may be short.
        let begun = (extent.first_in_object + u64::from(extent.blocks)) & (step - 1);
        if begun != 0 {
            let object_end = self.layout.object_blocks(extent.object).end;
            next = (next + step - begun).min(object_end);
        }
        if next >= self.part.blocks.end { self.part.blocks.start } else { next }
    }
}

impl Iterator for Described {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        if self.flush_every.is_some_and(|every| self.writes - self.flushed_writes >= every) {
            self.flushed_writes = self.writes;
            self.last_due = None;
            return Some(Step::Flush);
        }
        if self.requests >= self.requests_max || self.course.has_ended() {
            return None;
        }
        let is_read = is_chosen_irregularly(self.reads, self.seed, READS ^ self.key << 32, self.requests);
        let of_its_kind = if is_read { self.requests - self.writes } else { self.writes };
        let blocks = self.sizes[usize::from(!is_read)].blocks(self.seed, self.key, of_its_kind);
        let extent = self.next_extent(blocks);
        self.last_due = self.due.next(self.requests);
        self.course.count(extent.len_bytes() as u64);
        self.requests += 1;
        if is_read {
            return Some(Step::Read(extent));
        }
        let first = self.written_blocks;
        let fua = is_chosen_irregularly(self.fua, self.seed, DURABLE ^ self.key << 32, self.writes);
        self.writes += 1;
        self.written_blocks += u64::from(extent.blocks);
        Some(Step::Write { extent, first, fua })
    }
}
