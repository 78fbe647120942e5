//! What is given out, as the space maps say: each is a log of what was given out and given back of one part of the device.

use std::ops::Range;

use crate::bytes::le64;

/// Entries that only tell when the next ones were written.
const NOTE: u64 = 1 << 63;
const GIVEN_BACK: u64 = 1 << 15;
const RUN_MASK: u64 = (1 << 15) - 1;
const OFFSET_SHIFT: u64 = 16;

/// Parts of `units` units each, of which one is given out or not.
pub(super) struct Given {
    units: Vec<bool>,
}

impl Given {
    pub(super) fn new(units: usize) -> Self {
        Self { units: vec![false; units] }
    }

    /// Goes through a log.
    pub(super) fn replay(&mut self, log: &[u8]) {
        for entry in (0..log.len() / 8).filter_map(|index| le64(log, index * 8)) {
            if entry & NOTE != 0 {
                continue;
            }
            let start = entry >> OFFSET_SHIFT & ((1 << 47) - 1);
            let end = start + (entry & RUN_MASK) + 1;
            self.set(start..end, entry & GIVEN_BACK == 0);
        }
    }

    /// What lies beyond the end is left out.
    pub(super) fn set(&mut self, range: Range<u64>, is_given: bool) {
        let at = |unit: u64| usize::try_from(unit).unwrap_or(usize::MAX).min(self.units.len());
        let (start, end) = (at(range.start), at(range.end));
        self.units[start..end.max(start)].fill(is_given);
    }

    /// What is given out, in units.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (unit, _) in (0_u64..).zip(&self.units).filter(|(_, is_given)| **is_given) {
            match ranges.last_mut() {
                Some(last) if last.end == unit => last.end += 1,
                _ => ranges.push(unit..unit + 1),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_given_out_no_more() {
        let entry = |start: u64, run: u64, back: bool| {
            (start << OFFSET_SHIFT | (run - 1) | if back { GIVEN_BACK } else { 0 }).to_le_bytes()
        };
        let log = [
            entry(0, 10, false),
            (NOTE | 77).to_le_bytes(),
            entry(2, 3, true),
            entry(14, 9, false),
            entry(1 << 40, 5, false),
        ];
        let mut given = Given::new(20);
        given.replay(&log.concat());
        assert_eq!(given.ranges(), [0..2, 5..10, 14..20]);
    }
}
