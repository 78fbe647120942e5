//! What failed flushes leave in doubt.
//!
//! A write is acknowledged when it has reached a cache, and durable when a later flush succeeds. If that flush fails,
//! its user has been told that any of the writes before it may be lost, and that is all that can be asked: Linux drops
//! what it could not write and reports it once, so a later flush that succeeds takes nothing back (Rebello et al.,
//! "Can Applications Recover from fsync Failures?", USENIX ATC 2020). Only writing again does.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::content::Stage;

/// Writes of one worker that were acknowledged, and then lost their flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts(BTreeMap<(u32, Stage), Vec<Range<u64>>>);

impl Doubts {
    /// The writes of these blocks, numbered among all that the worker writes in `stage`, may be lost. They begin no
    /// earlier than those of the last call for the same object and stage.
    pub fn add(&mut self, object: u32, stage: Stage, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        let ranges = self.0.entry((object, stage)).or_default();
        match ranges.last_mut() {
            Some(last) if blocks.start <= last.end => {
                last.start = last.start.min(blocks.start);
                last.end = last.end.max(blocks.end);
            }
            _ => ranges.push(blocks),
        }
    }

    /// Whether the write of block number `n` of a stage to an object may be lost.
    pub fn covers(&self, object: u32, stage: Stage, n: u64) -> bool {
        self.0.get(&(object, stage)).is_some_and(|ranges| {
            let after = ranges.partition_point(|range| range.start <= n);
            after.checked_sub(1).is_some_and(|at| ranges[at].contains(&n))
        })
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
    fn doubts_that_touch_are_one_and_those_of_others_are_apart() {
        let mut doubts = Doubts::default();
        doubts.add(0, Stage::Run, 5..5);
        assert!(doubts.is_empty());
        doubts.add(0, Stage::Run, 3..5);
        doubts.add(0, Stage::Run, 3..8);
        doubts.add(0, Stage::Run, 20..21);
        doubts.add(1, Stage::Run, 10..12);
        let covered: Vec<u64> = (0..30).filter(|&n| doubts.covers(0, Stage::Run, n)).collect();
        assert_eq!(covered, [3, 4, 5, 6, 7, 20]);
        assert!(doubts.covers(1, Stage::Run, 11) && !doubts.covers(1, Stage::Prefill, 11));
        assert!(!doubts.covers(2, Stage::Run, 11));
    }
}
