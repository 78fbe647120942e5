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
    /// The write that each slot is busy with, if with one.
    slots: Vec<Option<Busy>>,
    /// The end of what has been sent. A write may wait for its time: what is lost before, it cannot lose.
    sent: u64,
    /// Number of the last flush.
    flushes: u64,
    objects: Vec<Flushed>,
    failed: Arc<FailedFlushes>,
}

/// A write that a slot is busy with.
#[derive(Clone, Copy)]
struct Busy {
    /// Its first block, and that after its last.
    first: u64,
    end: u64,
    /// Whether it has been sent, or waits for its time.
    is_sent: bool,
}

/// What a flush covers: all writes that were done when it was sent.
///
/// A flush covers all that one sent before it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Covered {
    /// Of the flush, in the order in which they were sent.
    number: u64,
    /// All blocks before this one ...
    end: u64,
    /// ... but for these, of writes that were not done; in order.
    holes: Vec<Range<u64>>,
}

/// What is known of one object's flushes.
#[derive(Clone, Default)]
struct Flushed {
    /// What is durable: what the latest of the flushes that succeeded covers.
    durable: Covered,
    /// The same before the last flush came back.
    durable_before: Covered,
    /// Failed flushes that have been taken into account.
    failures: u64,
}

impl Unflushed {
    pub(super) fn new(slots: usize, failed: Arc<FailedFlushes>) -> Self {
        let of = |failures: &AtomicU64| Flushed {
            failures: failures.load(Ordering::Acquire),
            ..Flushed::default()
        };
        let objects = failed.0.iter().map(of).collect();
        Self { slots: vec![None; slots], sent: 0, flushes: 0, objects, failed }
    }

    /// A slot begins a step, and will send it when it is time.
    #[inline]
    pub(super) fn begin(&mut self, slot: usize, step: &Step) {
        if let Step::Write { first, extent, .. } = step {
            let end = first + u64::from(extent.blocks);
            self.slots[slot] = Some(Busy { first: *first, end, is_sent: false });
        }
    }

    /// The write that the slot is busy with is sent now.
    #[inline]
    pub(super) fn send(&mut self, slot: usize) {
        if let Some(busy) = &mut self.slots[slot] {
            busy.is_sent = true;
            self.sent = self.sent.max(busy.end);
        }
    }

    /// The slot's step is done.
    #[inline]
    pub(super) fn end(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    /// What a flush that is sent now covers.
    pub(super) fn covered(&mut self) -> Covered {
        self.flushes += 1;
        let mut holes: Vec<Range<u64>> = self
            .slots
            .iter()
            .flatten()
            .filter(|busy| busy.first < self.sent)
            .map(|busy| busy.first..busy.end)
            .collect();
        holes.sort_unstable_by_key(|hole| hole.start);
        Covered { number: self.flushes, end: self.sent, holes }
    }

    /// A flush of an object has completed, with what it covers. The writes that are in doubt now, none if it and those
    /// of all others have succeeded.
    pub(super) fn flushed(&mut self, object: usize, covered: Covered, is_failure: bool) -> Vec<Range<u64>> {
        let counter = &self.failed.0[object];
        let flushed = &mut self.objects[object];
        let failures =
            if is_failure { counter.fetch_add(1, Ordering::AcqRel) } else { counter.load(Ordering::Acquire) };
        let have_others_failed = failures != flushed.failures;
        flushed.failures = failures + u64::from(is_failure);
        if have_others_failed {
            // Their failure may be older than our last success, and only just have been told.
            return self.sent_but_for(&self.objects[object].durable_before);
        }
        if is_failure {
            return self.sent_but_for(&self.objects[object].durable);
        }
        if flushed.durable.number < covered.number {
            flushed.durable_before = std::mem::replace(&mut flushed.durable, covered);
        } else {
            flushed.durable_before = flushed.durable.clone();
        }
        Vec::new()
    }

    /// The blocks that have been sent and are not covered. Of several writes that were due at once a later one may be sent, and
    /// not yet one before it, of which the flush then says nothing.
    #[cold]
    fn sent_but_for(&self, covered: &Covered) -> Vec<Range<u64>> {
        let mut waiting: Vec<&Busy> = self.slots.iter().flatten().filter(|busy| !busy.is_sent).collect();
        waiting.sort_unstable_by_key(|busy| busy.first);
        let mut ranges = Vec::new();
        for open in covered.holes.iter().cloned().chain(std::iter::once(covered.end..self.sent)) {
            let mut from = open.start;
            for busy in &waiting {
                let until = busy.first.clamp(from, open.end.max(from));
                if from < until {
                    ranges.push(from..until);
                }
                from = from.max(busy.end);
            }
            if from < open.end {
                ranges.push(from..open.end);
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::layout::Extent;

    fn write(first: u64, blocks: u32) -> Step {
        let extent = Extent { object: 0, blocks, first_in_object: 0, first_block: 0 };
        Step::Write { extent, first, fua: false }
    }

    fn only(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    fn send(writes: &mut Unflushed, slot: usize, first: u64, blocks: u32) {
        writes.begin(slot, &write(first, blocks));
        writes.send(slot);
    }

    /// A flush that is sent and done now.
    fn flush(writes: &mut Unflushed, object: usize, is_failure: bool) -> Vec<Range<u64>> {
        let covered = writes.covered();
        writes.flushed(object, covered, is_failure)
    }

    #[test]
    fn a_write_that_waits_for_its_time_loses_nothing_with_a_flush_that_fails_before() {
        let mut writes = Unflushed::new(3, FailedFlushes::of(1));
        send(&mut writes, 0, 0, 4);
        writes.end(0);
        writes.begin(1, &write(4, 2));
        writes.begin(2, &write(6, 2));
        assert_eq!(flush(&mut writes, 0, true), only(0..4));
        writes.send(2);
        assert_eq!(flush(&mut writes, 0, true), [0..4, 6..8], "of two that were due at once the later");
        writes.send(1);
        assert_eq!(flush(&mut writes, 0, true), only(0..8));
    }

    #[test]
    fn a_failed_flush_doubts_what_none_has_made_durable_also_what_was_in_flight() {
        let mut writes = Unflushed::new(2, FailedFlushes::of(1));
        send(&mut writes, 0, 0, 4);
        writes.end(0);
        send(&mut writes, 1, 4, 2);
        send(&mut writes, 0, 6, 1);
        writes.end(0);
        assert!(flush(&mut writes, 0, false).is_empty());
        writes.end(1);
        assert_eq!(flush(&mut writes, 0, true), only(4..6), "what was done beyond a slower one is durable");
        send(&mut writes, 0, 7, 1);
        writes.end(0);
        assert_eq!(flush(&mut writes, 0, true), [4..6, 7..8], "nothing has become durable meanwhile");
        assert!(flush(&mut writes, 0, false).is_empty());
        assert!(flush(&mut writes, 0, true).is_empty());
    }

    #[test]
    fn of_flushes_in_flight_at_once_the_latest_sent_says_what_is_durable() {
        let mut writes = Unflushed::new(2, FailedFlushes::of(1));
        send(&mut writes, 0, 0, 1);
        let early = writes.covered();
        writes.end(0);
        send(&mut writes, 0, 1, 1);
        writes.end(0);
        let late = writes.covered();
        assert!(writes.flushed(0, late, false).is_empty());
        assert!(writes.flushed(0, early, false).is_empty());
        assert!(flush(&mut writes, 0, true).is_empty());
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
        assert!(flush(&mut other, 0, false).is_empty());
        assert_eq!(flush(&mut one, 0, true), only(0..8));
        assert_eq!(
            flush(&mut other, 0, false),
            only(0..8),
            "its success may have come after the kernel had told the one"
        );
        assert!(flush(&mut other, 1, false).is_empty(), "the other object is well");
        assert!(flush(&mut other, 0, false).is_empty(), "told once");
    }

    const SLOTS: usize = 4;

    /// Block by block what is known, slowly.
    #[derive(Default)]
    struct Slow {
        sent: BTreeSet<u64>,
        done: BTreeSet<u64>,
        durable: BTreeSet<u64>,
    }

    proptest! {
        #[test]
        fn what_is_in_doubt_is_what_was_sent_and_no_flush_has_covered(
            steps in prop::collection::vec((0..7_u8, 0..SLOTS, 1..5_u32), 1..120)
        ) {
            let mut writes = Unflushed::new(SLOTS, FailedFlushes::of(1));
            let mut slow = Slow::default();
            let mut next = 0;
            let mut slots: [Option<(Range<u64>, bool)>; SLOTS] = Default::default();
            let mut in_flight: Vec<(Covered, BTreeSet<u64>)> = Vec::new();
            for (what, slot, blocks) in steps {
                match (what, &mut slots[slot]) {
                    (0 | 1, free @ None) => {
                        writes.begin(slot, &write(next, blocks));
                        *free = Some((next..next + u64::from(blocks), false));
                        next += u64::from(blocks);
                    }
                    (0 | 1, Some((range, is_sent @ false))) => {
                        writes.send(slot);
                        *is_sent = true;
                        slow.sent.extend(range.clone());
                    }
                    (2 | 3, busy @ Some((_, true))) => {
                        writes.end(slot);
                        slow.done.extend(busy.take().expect("busy").0);
                    }
                    (4, _) => in_flight.push((writes.covered(), slow.done.clone())),
                    (5, _) if !in_flight.is_empty() => {
                        let (covered, done) = in_flight.swap_remove(slot % in_flight.len());
                        prop_assert!(writes.flushed(0, covered, false).is_empty());
                        slow.durable.extend(done);
                    }
                    (6, _) if !in_flight.is_empty() => {
                        let (covered, _) = in_flight.swap_remove(slot % in_flight.len());
                        let doubtful = writes.flushed(0, covered, true);
                        prop_assert!(doubtful.iter().all(|range| !range.is_empty()));
                        let told: Vec<u64> = doubtful.into_iter().flatten().collect();
                        let expected: Vec<u64> = slow.sent.difference(&slow.durable).copied().collect();
                        prop_assert_eq!(told, expected);
                    }
                    _ => {}
                }
            }
        }
    }
}
