//! What is in a trace: counted while it streams by.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::access::{Access, Operation};

/// Bytes of the units in which the footprint is counted.
const UNIT: u64 = 4096;
/// Sizes that are told by themselves; the rest is told together.
const SIZES_MAX: usize = 8;

/// Figures of a trace.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    counts: [u64; 4],
    bytes: [u64; 4],
    last_ns: u64,
    disordered: u64,
    sequential: u64,
    sizes: BTreeMap<u64, u64>,
    end: u64,
    /// 64 units each.
    touched: HashMap<(u32, u64), u64>,
    /// Where the last access of each device has ended.
    ends: HashMap<u32, u64>,
    this_second: (u64, u64),
    peak: u64,
    took_ns: Option<(u128, u64)>,
}

/// A summary, to be printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Accesses.
    pub accesses: u64,
    /// Devices or files.
    pub devices: u64,
    /// Accesses by operation.
    pub by_operation: BTreeMap<&'static str, Share>,
    /// Seconds from the first to the last.
    pub duration_s: f64,
    /// Accesses a second, on average; absent where the trace takes no time.
    pub mean_rate: Option<f64>,
    /// Most accesses within one second.
    pub peak_rate: u64,
    /// Share of the accesses that begin where the last of their device has ended.
    pub sequential: f64,
    /// Accesses that come before one that stands before them.
    pub disordered: u64,
    /// Bytes of all blocks of 4 KiB that are touched.
    pub footprint_bytes: u64,
    /// Byte after the last one that is touched.
    pub end_bytes: u64,
    /// The most frequent sizes in bytes with their shares, most frequent first.
    pub sizes: Vec<(u64, f64)>,
    /// Mean time that an access took, in seconds, where the trace knows.
    pub mean_took_s: Option<f64>,
}

/// What one operation has of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Accesses.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Summary {
    /// Counts an access.
    pub fn add(&mut self, access: &Access) {
        let kind = access.operation as usize;
        self.counts[kind] += 1;
        self.bytes[kind] = self.bytes[kind].saturating_add(access.length);
        self.disordered += u64::from(access.at_ns < self.last_ns);
        self.last_ns = self.last_ns.max(access.at_ns);
        let second = access.at_ns / 1_000_000_000;
        self.this_second =
            if second == self.this_second.0 { (second, self.this_second.1 + 1) } else { (second, 1) };
        self.peak = self.peak.max(self.this_second.1);
        if let Some(took) = access.took_ns {
            let (sum, count) = self.took_ns.unwrap_or_default();
            self.took_ns = Some((sum + u128::from(took), count + 1));
        }
        if access.length == 0 {
            self.ends.entry(access.device).or_default();
            return;
        }
        let end = access.offset.saturating_add(access.length);
        if self.ends.insert(access.device, end) == Some(access.offset) {
            self.sequential += 1;
        }
        *self.sizes.entry(access.length).or_default() += 1;
        self.end = self.end.max(end);
        self.touch(access.device, access.offset / UNIT, end.div_ceil(UNIT));
    }

    /// Units `first..end` are touched. Of an access beyond a terabyte only that is counted.
    fn touch(&mut self, device: u32, first: u64, end: u64) {
        let end = end.min(first.saturating_add((1 << 40) / UNIT));
        let mut unit = first;
        while unit < end {
            let (word, bit) = (unit / 64, unit % 64);
            let count = (64 - bit).min(end - unit);
            let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << bit };
            *self.touched.entry((device, word)).or_default() |= mask;
            unit += count;
        }
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        let accesses: u64 = self.counts.iter().sum();
        let share = |count: u64| if accesses == 0 { 0.0 } else { count as f64 / accesses as f64 };
        let by_operation = Operation::ALL
            .into_iter()
            .filter(|operation| self.counts[*operation as usize] > 0)
            .map(|operation| {
                let (count, bytes) = (self.counts[operation as usize], self.bytes[operation as usize]);
                (operation.word(), Share { count, bytes })
            });
        let duration_s = self.last_ns as f64 * 1e-9;
        let mut sizes: Vec<(u64, u64)> = self.sizes.iter().map(|(&size, &count)| (size, count)).collect();
        sizes.sort_by_key(|&(size, count)| (std::cmp::Reverse(count), size));
        Figures {
            accesses,
            devices: self.ends.keys().collect::<HashSet<_>>().len() as u64,
            by_operation: by_operation.collect(),
            duration_s,
            mean_rate: (self.last_ns > 0).then(|| accesses as f64 / duration_s),
            peak_rate: self.peak,
            sequential: share(self.sequential),
            disordered: self.disordered,
            footprint_bytes: self.touched.values().map(|word| u64::from(word.count_ones())).sum::<u64>()
                * UNIT,
            end_bytes: self.end,
            sizes: sizes.into_iter().take(SIZES_MAX).map(|(size, count)| (size, share(count))).collect(),
            mean_took_s: self.took_ns.map(|(sum, count)| sum as f64 / count as f64 * 1e-9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(at_ms: u64, operation: Operation, device: u32, offset: u64, length: u64) -> Access {
        Access { at_ns: at_ms * 1_000_000, operation, device, offset, length, took_ns: None }
    }

    #[test]
    fn figures_are_those_that_counting_gives() {
        let mut summary = Summary::default();
        for access in [
            access(0, Operation::Read, 0, 0, 8192),
            access(100, Operation::Read, 0, 8192, 4096),
            access(200, Operation::Write, 1, 8192, 4096),
            access(1500, Operation::Write, 0, 4096, 4096),
            access(1400, Operation::Flush, 0, 0, 0),
            access(2000, Operation::Discard, 0, 1 << 20, 512 * 1024),
        ] {
            summary.add(&access);
        }
        let figures = summary.figures();
        assert_eq!((figures.accesses, figures.devices), (6, 2));
        assert_eq!(figures.by_operation["read"], Share { count: 2, bytes: 12_288 });
        assert_eq!(figures.by_operation["flush"], Share { count: 1, bytes: 0 });
        assert_eq!((figures.duration_s, figures.mean_rate, figures.peak_rate), (2.0, Some(3.0), 3));
        assert_eq!((figures.sequential, figures.disordered), (1.0 / 6.0, 1));
        assert_eq!(figures.footprint_bytes, 12_288 + 4096 + 512 * 1024);
        assert_eq!(figures.end_bytes, (1 << 20) + 512 * 1024);
        assert_eq!(figures.sizes[0], (4096, 0.5));
    }

    #[test]
    fn a_trace_of_nothing_has_figures_too() {
        let figures = Summary::default().figures();
        assert_eq!((figures.accesses, figures.mean_rate, figures.sequential), (0, None, 0.0));
    }
}
