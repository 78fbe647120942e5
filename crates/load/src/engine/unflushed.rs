//! Which writes of a worker no flush has made durable yet, so that a flush that fails tells what is in doubt.
//!
//! Owns numbers of blocks, counted among all that the worker writes in its stage. What a doubt means is for the oracle.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stream::Step;

/// How many flushes of each object have failed, whoever sent them: the kernel reports what it could not write to one
/// of those that have a file open, not to all.
#[derive(Debug)]
pub(super) struct FailedFlushes(Vec<AtomicU64>);

impl FailedFlushes {
    pub(super) fn of(objects: usize) -> Arc<Self> {
        Arc::new(Self((0..objects).map(|_| AtomicU64::new(0)).collect()))
    }
}

/// The writes of one worker.
pub(super) struct Unflushed {
    /// The write that each lane is busy with, if with one.
    lanes: Vec<Option<Busy>>,
    /// The end of what has been sent. A write may wait for its time: what is lost before, it cannot lose.
    sent: u64,
    objects: Vec<Flushed>,
    failed: Arc<FailedFlushes>,
}

/// A write that a lane is busy with.
#[derive(Clone, Copy)]
struct Busy {
    /// Its first block, and that after its last.
    first: u64,
    end: u64,
    /// Whether it has been sent, or waits for its time.
    is_sent: bool,
}

/// What is known of one object's flushes.
#[derive(Clone, Copy, Default)]
struct Flushed {
    /// All blocks before this one were made durable by the last flush that succeeded.
    durable: u64,
    /// The same of the one before that.
    durable_before: u64,
    /// Failed flushes that have been taken into account.
    failures: u64,
}

impl Unflushed {
    pub(super) fn new(lanes: usize, failed: Arc<FailedFlushes>) -> Self {
        let of = |failures: &AtomicU64| Flushed {
            failures: failures.load(Ordering::Acquire),
            ..Flushed::default()
        };
        Self { lanes: vec![None; lanes], sent: 0, objects: failed.0.iter().map(of).collect(), failed }
    }

    /// A lane begins a step, and will send it when it is time.
    #[inline]
    pub(super) fn begin(&mut self, lane: usize, step: &Step) {
        if let Step::Write { first, extent, .. } = step {
            let end = first + u64::from(extent.blocks);
            self.lanes[lane] = Some(Busy { first: *first, end, is_sent: false });
        }
    }

    /// The write that the lane is busy with is sent now.
    #[inline]
    pub(super) fn send(&mut self, lane: usize) {
        if let Some(busy) = &mut self.lanes[lane] {
            busy.is_sent = true;
            self.sent = self.sent.max(busy.end);
        }
    }

    /// The lane's step is done.
    #[inline]
    pub(super) fn end(&mut self, lane: usize) {
        self.lanes[lane] = None;
    }

    /// What a flush that is sent now covers: all blocks before this one.
    pub(super) fn covered(&self) -> u64 {
        self.lanes.iter().flatten().fold(self.sent, |least, busy| least.min(busy.first))
    }

    /// A flush of an object that covers all blocks before `covered` has completed. The writes that are in doubt now,
    /// none if it and those of all others have succeeded.
    pub(super) fn flushed(&mut self, object: usize, covered: u64, is_failure: bool) -> Vec<Range<u64>> {
        let counter = &self.failed.0[object];
        let flushed = &mut self.objects[object];
        let failures =
            if is_failure { counter.fetch_add(1, Ordering::AcqRel) } else { counter.load(Ordering::Acquire) };
        let have_others_failed = failures != flushed.failures;
        flushed.failures = failures + u64::from(is_failure);
        if have_others_failed {
            // Their failure may be older than our last success, and only just have been told.
            let since = flushed.durable_before;
            return self.sent_since(since);
        }
        if is_failure {
            let since = flushed.durable;
            return self.sent_since(since);
        }
        flushed.durable_before = flushed.durable;
        flushed.durable = flushed.durable.max(covered);
        Vec::new()
    }

    /// The blocks from there on that have been sent: of several writes that were due at once a later one may be, and not yet one
    /// before it, of which the flush then says nothing.
    #[cold]
    fn sent_since(&self, since: u64) -> Vec<Range<u64>> {
        let mut waiting: Vec<&Busy> = self.lanes.iter().flatten().filter(|busy| !busy.is_sent).collect();
        waiting.sort_unstable_by_key(|busy| busy.first);
        let (mut ranges, mut from) = (Vec::new(), since);
        for (first, end) in
            waiting.into_iter().map(|busy| (busy.first, busy.end)).chain([(self.sent, self.sent)])
        {
            let until = first.min(self.sent);
            if from < until {
                ranges.push(from..until);
            }
            from = from.max(end);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Extent;

    fn write(first: u64, blocks: u32) -> Step {
        let extent = Extent { object: 0, blocks, first_in_object: 0, first_block: 0 };
        Step::Write { extent, first, fua: false }
    }

    fn only(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    fn send(writes: &mut Unflushed, lane: usize, first: u64, blocks: u32) {
        writes.begin(lane, &write(first, blocks));
        writes.send(lane);
    }

    #[test]
    fn a_write_that_waits_for_its_time_loses_nothing_with_a_flush_that_fails_before() {
        let mut writes = Unflushed::new(3, FailedFlushes::of(1));
        send(&mut writes, 0, 0, 4);
        writes.end(0);
        writes.begin(1, &write(4, 2));
        writes.begin(2, &write(6, 2));
        assert_eq!(writes.flushed(0, writes.covered(), true), only(0..4));
        writes.send(2);
        assert_eq!(writes.covered(), 4, "of two that were due at once one may be sent before the other");
        assert_eq!(writes.flushed(0, writes.covered(), true), [0..4, 6..8]);
        writes.send(1);
        assert_eq!(writes.flushed(0, writes.covered(), true), only(0..8));
    }

    #[test]
    fn a_failed_flush_doubts_what_none_has_made_durable_also_what_was_in_flight() {
        let mut writes = Unflushed::new(2, FailedFlushes::of(1));
        send(&mut writes, 0, 0, 4);
        writes.end(0);
        send(&mut writes, 1, 4, 2);
        send(&mut writes, 0, 6, 1);
        writes.end(0);
        assert_eq!(writes.covered(), 4, "the second is still in flight");
        let covered = writes.covered();
        assert!(writes.flushed(0, covered, false).is_empty());
        writes.end(1);
        assert_eq!(writes.flushed(0, writes.covered(), true), only(4..7));
        send(&mut writes, 0, 7, 1);
        writes.end(0);
        assert_eq!(
            writes.flushed(0, writes.covered(), true),
            only(4..8),
            "nothing has become durable meanwhile"
        );
        assert!(writes.flushed(0, writes.covered(), false).is_empty());
        assert!(writes.flushed(0, writes.covered(), true).is_empty());
    }

    #[test]
    fn the_failure_of_one_worker_is_a_doubt_of_all() {
        let failed = FailedFlushes::of(2);
        let (mut one, mut other) =
            (Unflushed::new(1, Arc::clone(&failed)), Unflushed::new(1, Arc::clone(&failed)));
        for writes in [&mut one, &mut other] {
            send(writes, 0, 0, 8);
            writes.end(0);
        }
        assert!(other.flushed(0, 8, false).is_empty());
        assert_eq!(one.flushed(0, 8, true), only(0..8));
        assert_eq!(
            other.flushed(0, 8, false),
            only(0..8),
            "its success may have come after the kernel had told the one"
        );
        assert!(other.flushed(1, 8, false).is_empty(), "the other object is well");
        assert!(other.flushed(0, 8, false).is_empty(), "told once");
    }
}
