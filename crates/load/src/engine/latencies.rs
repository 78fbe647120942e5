//! Latencies while they come in: counts in buckets that grow with the latency, an eighth of a power of two each, so that a
//! quantile is right within 7%. Results have exact ones; this is for looking on.
//!
//! A worker counts in memory of its own and now and then adds that to what all share, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets to a power of two.
const PARTS: u64 = 8;
/// Latencies of 2^47 ns, a day and a half, and more share the last bucket.
const BUCKETS: usize = 45 * PARTS as usize;

/// Where a latency belongs.
#[inline]
fn bucket(latency_ns: u64) -> usize {
    if latency_ns < PARTS {
        return latency_ns as usize;
    }
    let exponent = u64::from(latency_ns.ilog2());
    let part = (latency_ns >> (exponent - 3)) & (PARTS - 1);
    (((exponent - 2) * PARTS + part) as usize).min(BUCKETS - 1)
}

/// The smallest latency of a bucket.
fn beginning_ns(bucket: usize) -> u64 {
    let (exponent, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if exponent == 0 { part } else { (PARTS + part) << (exponent - 1) }
}

/// Of one worker, not yet told.
#[derive(Debug)]
pub(super) struct LocalLatencies {
    sum_ns: u64,
    /// The buckets with something in them lie between.
    low: usize,
    high: usize,
    counts: [u32; BUCKETS],
}

impl Default for LocalLatencies {
    fn default() -> Self {
        Self { sum_ns: 0, low: BUCKETS, high: 0, counts: [0; BUCKETS] }
    }
}

impl LocalLatencies {
    #[inline]
    pub(super) fn record(&mut self, latency_ns: u64) {
        let bucket = bucket(latency_ns);
        self.sum_ns = self.sum_ns.wrapping_add(latency_ns);
        self.low = self.low.min(bucket);
        self.high = self.high.max(bucket);
        self.counts[bucket] += 1;
    }
}

/// Of all workers.
#[derive(Debug)]
pub(super) struct SharedLatencies {
    sum_ns: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

impl Default for SharedLatencies {
    fn default() -> Self {
        Self { sum_ns: AtomicU64::new(0), counts: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl SharedLatencies {
    /// Adds what a worker has counted, and empties that.
    pub(super) fn take(&self, local: &mut LocalLatencies) {
        if local.low > local.high {
            return;
        }
        for (shared, count) in self.counts.iter().zip(&mut local.counts).take(local.high + 1).skip(local.low)
        {
            if *count > 0 {
                shared.fetch_add(std::mem::take(count).into(), Ordering::Relaxed);
            }
        }
        self.sum_ns.fetch_add(local.sum_ns, Ordering::Relaxed);
        (local.sum_ns, local.low, local.high) = (0, BUCKETS, 0);
    }

    pub(super) fn read(&self) -> Latencies {
        Latencies {
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
        }
    }

    pub(super) fn reset(&self) {
        self.sum_ns.store(0, Ordering::Relaxed);
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// Latencies up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    sum_ns: u64,
    counts: Vec<u64>,
}

impl Latencies {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them added up, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// How many are shorter than 2 to the power of `exponent` nanoseconds; exact.
    pub fn count_below_power(&self, exponent: u32) -> u64 {
        let end = if exponent >= 47 { BUCKETS } else { bucket(1 << exponent) };
        self.counts.iter().take(end).sum()
    }

    /// Adds those of another operation.
    pub fn add(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
    }

    /// Those that have come since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        Self {
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
            counts: self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect(),
        }
    }

    /// In nanoseconds, what the share `quantile` of them is not above, within 7%; none without any.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        // The middle of the bucket.
        Some(u64::midpoint(beginning_ns(found), beginning_ns(found + 1).saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for index in 0..BUCKETS - 1 {
            let (beginning, end) = (beginning_ns(index), beginning_ns(index + 1));
            assert!(beginning < end);
            assert_eq!((bucket(beginning), bucket(end - 1)), (index, index), "{beginning}..{end}");
            assert!((end - beginning) as f64 <= (beginning as f64 / 8.0).max(1.0));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(beginning_ns(BUCKETS), 1 << 47);
    }

    proptest::proptest! {
        #[test]
        fn quantiles_and_counts_are_those_of_a_sorted_list(
            mut latencies in proptest::collection::vec(0u64..1 << 40, 1..200), quantile in 0.0f64..=1.0, power in 0u32..50,
        ) {
            let (shared, mut local) = (SharedLatencies::default(), LocalLatencies::default());
            for (index, latency) in latencies.iter().enumerate() {
                local.record(*latency);
                if index % 7 == 0 {
                    shared.take(&mut local);
                }
            }
            shared.take(&mut local);
            let found = shared.read();
            latencies.sort_unstable();
            assert_eq!((found.count(), found.sum_ns()), (latencies.len() as u64, latencies.iter().sum()));
            let below = latencies.iter().filter(|latency| **latency < 1 << power).count();
            assert_eq!(found.count_below_power(power), below as u64);
            let rank = ((latencies.len() as f64 * quantile).ceil() as usize).max(1) - 1;
            let (wanted, found) = (latencies[rank] as f64, found.quantile_ns(quantile).expect("some") as f64);
            assert!((found - wanted).abs() <= wanted * 0.07 + 1.0, "{found} for {wanted}");
        }
    }

    #[test]
    fn what_came_since_is_a_difference_and_nothing_has_no_quantile() {
        let (shared, mut local) = (SharedLatencies::default(), LocalLatencies::default());
        local.record(1000);
        shared.take(&mut local);
        let before = shared.read();
        local.record(1_000_000);
        shared.take(&mut local);
        let since = shared.read().since(&before);
        assert_eq!((since.count(), since.sum_ns()), (1, 1_000_000));
        assert!(since.quantile_ns(0.5).is_some_and(|found| (930_000..1_070_000).contains(&found)));
        let nothing = before.since(&before);
        assert_eq!((nothing.quantile_ns(0.5), Latencies::default().quantile_ns(0.99)), (None, None));
        let mut sum = Latencies::default();
        sum.add(&before);
        sum.add(&since);
        assert_eq!(sum, shared.read());
    }
}
