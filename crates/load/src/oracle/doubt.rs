//! What failed flushes leave in doubt.
//!
//! A write is acknowledged when it has reached a cache, and durable when a later flush succeeds. If that flush fails,
//! its user has been told that any of the writes before it may be lost, and that is all that can be asked: Linux drops
//! what it could not write and reports it once, so a later flush that succeeds takes nothing back (Rebello et al.,
//! "Can Applications Recover from fsync Failures?", USENIX ATC 2020). Only writing again does.

use std::collections::BTreeMap;
use std::ops::Range;

use rotproof_block::Time;

use crate::content::Stage;

/// Writes of one worker that were acknowledged, and then lost their flush, each with the time when that was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts(BTreeMap<(u32, Stage), Vec<Doubt>>);

/// Blocks by their number, and when it was told that their writes may be lost.
type Doubt = (Range<u64>, Time);

impl Doubts {
    /// At `time` it was told that the writes of these blocks, numbered among all that the worker writes in `stage`, may be
    /// lost. Times do not go back.
    pub fn add(&mut self, object: u32, stage: Stage, blocks: Range<u64>, time: Time) {
        if blocks.is_empty() {
            return;
        }
        let ranges = self.0.entry((object, stage)).or_default();
        // What was in doubt before has been so for longer: only the gaps between are new.
        let mut at = ranges.partition_point(|(range, _)| range.end <= blocks.start);
        let mut from = blocks.start;
        while from < blocks.end {
            let known = ranges.get(at).map_or(u64::MAX..u64::MAX, |(range, _)| range.clone());
            let until = known.start.clamp(from, blocks.end);
            if from < until {
                ranges.insert(at, (from..until, time));
                at += 1;
            }
            at += 1;
            from = known.end.max(until);
        }
    }

    /// Since when the write of block number `n` of a stage to an object may be lost; `None` if it may not.
    pub fn since(&self, object: u32, stage: Stage, n: u64) -> Option<Time> {
        let ranges = self.0.get(&(object, stage))?;
        let after = ranges.partition_point(|(range, _)| range.start <= n);
        let (range, time) = &ranges[after.checked_sub(1)?];
        range.contains(&n).then_some(*time)
    }

    /// Whether every flush has succeeded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_in_doubt_since_the_first_flush_that_lost_it() {
        let mut doubts = Doubts::default();
        doubts.add(0, Stage::Run, 3..5, Time(10));
        doubts.add(0, Stage::Run, 3..8, Time(20));
        doubts.add(0, Stage::Run, 3..8, Time(30));
        doubts.add(0, Stage::Run, 20..21, Time(40));
        doubts.add(0, Stage::Run, 6..23, Time(45));
        doubts.add(1, Stage::Run, 10..12, Time(50));
        let since: Vec<_> =
            (0..30).filter_map(|n| doubts.since(0, Stage::Run, n).map(|Time(time)| (n, time))).collect();
        let early = since.iter().filter(|(n, _)| *n < 8 || *n == 20);
        assert!(early.eq(&[(3, 10), (4, 10), (5, 20), (6, 20), (7, 20), (20, 40)]), "{since:?}");
        let later = since.iter().filter(|(_, time)| *time == 45).map(|(n, _)| *n);
        assert!(later.eq((8..20).chain(21..23)), "{since:?}");
        assert!(doubts.since(1, Stage::Run, 11).is_some() && doubts.since(1, Stage::Prefill, 11).is_none());
        assert!(doubts.since(2, Stage::Run, 11).is_none());
    }
}
