//! Latencies of one interval in a small fixed table: exact below 128 ns, and within 1/64 above.
//!
//! Half-open buckets, 64 to each power of two (the layout of HdrHistogram by G. Tene, with six bits), so that a value
//! costs a count of leading zeros and an increment, and histograms of several workers add up exactly.

use serde::{Deserialize, Serialize};

const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;

/// Counts of latencies, in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    /// The buckets in use lie within.
    first: usize,
    end: usize,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// All that a histogram knows: what is in each bucket that has something in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HistogramParts {
    buckets: Vec<(u16, u32)>,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let counts = vec![0; BUCKETS].into_boxed_slice().try_into().expect("as long as it was made");
        Self { counts, first: BUCKETS, end: 0, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let exponent = value.ilog2() - SUB_BITS;
    (((u64::from(exponent) + 1) << SUB_BITS) + ((value >> exponent) - SUB)) as usize
}

/// The largest value in a bucket.
fn highest_in(bucket: usize) -> u64 {
    let (row, sub) = (bucket as u64 >> SUB_BITS, bucket as u64 & (SUB - 1));
    if row == 0 {
        return sub;
    }
    let exponent = row - 1;
    (((u128::from(SUB + sub) + 1) << exponent) - 1).min(u128::from(u64::MAX)) as u64
}

impl Histogram {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let bucket = bucket_of(value);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.first = self.first.min(bucket);
        self.end = self.end.max(bucket + 1);
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds everything that another one has counted.
    pub fn add(&mut self, other: &Self) {
        for bucket in other.first..other.end {
            self.counts[bucket] = self.counts[bucket].saturating_add(other.counts[bucket]);
        }
        self.first = self.first.min(other.first);
        self.end = self.end.max(other.end);
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Back to nothing; costs only as much as was in use.
    pub fn clear(&mut self) {
        if self.first < self.end {
            self.counts[self.first..self.end].fill(0);
        }
        (self.first, self.end, self.count, self.sum) = (BUCKETS, 0, 0, 0);
        (self.min, self.max) = (u64::MAX, 0);
    }

    /// Itself, to be sent somewhere.
    pub(crate) fn parts(&self) -> HistogramParts {
        let used = self.first..self.end.max(self.first);
        let buckets = used.clone().zip(&self.counts[used]).filter(|(_, count)| **count > 0);
        HistogramParts {
            buckets: buckets.map(|(bucket, &count)| (bucket as u16, count)).collect(),
            sum: u64::try_from(self.sum).unwrap_or(u64::MAX),
            min: self.min,
            max: self.max,
        }
    }

    /// From what was sent; `None` if that is no histogram.
    pub(crate) fn from_parts(parts: &HistogramParts) -> Option<Self> {
        let mut histogram = Self::default();
        for &(bucket, count) in &parts.buckets {
            let bucket = usize::from(bucket);
            let place = histogram.counts.get_mut(bucket)?;
            *place = place.saturating_add(count);
            histogram.first = histogram.first.min(bucket);
            histogram.end = histogram.end.max(bucket + 1);
            histogram.count += u64::from(count);
        }
        if histogram.count == 0 {
            return Some(histogram);
        }
        if parts.min > parts.max {
            return None;
        }
        (histogram.sum, histogram.min, histogram.max) = (parts.sum.into(), parts.min, parts.max);
        Some(histogram)
    }

    /// As a line of text: `BOUND:COUNT` for each bucket that has something in it, ascending, where `BOUND` is the largest
    /// value of the bucket. The sum is not in it.
    pub fn to_text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for bucket in self.first..self.end {
            let count = self.counts[bucket];
            if count > 0 {
                let gap = if text.is_empty() { "" } else { " " };
                // A text takes whatever is written to it.
                let _ = write!(text, "{gap}{}:{count}", highest_in(bucket));
            }
        }
        text
    }

    /// Adds what a text of [`Histogram::to_text`] holds; values become the largest of their bucket, none above `max`. `None`
    /// if it is no such text; then nothing is added.
    pub fn add_text(&mut self, text: &str, max: u64) -> Option<()> {
        let read = |part: &str| -> Option<(u64, u32)> {
            let (bound, count) = part.split_once(':')?;
            Some((bound.parse().ok()?, count.parse().ok()?))
        };
        let parts: Vec<(u64, u32)> = text.split_ascii_whitespace().map(read).collect::<Option<_>>()?;
        for (bound, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
            let bucket = bucket_of(bound);
            self.counts[bucket] = self.counts[bucket].saturating_add(count);
            self.first = self.first.min(bucket);
            self.end = self.end.max(bucket + 1);
            self.count += u64::from(count);
            let value = bound.min(max);
            self.sum += u128::from(value) * u128::from(count);
            self.min = self.min.min(value);
            self.max = self.max.max(value);
        }
        Some(())
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest; 0 if there are none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest; 0 if there are none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The exact mean; 0 if there are no values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value that a share of `quantile` (0 to 1) of all values does not exceed: the largest of its bucket, but none
    /// beyond the largest there was. 0 if there are no values.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let wanted = ((quantile * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for bucket in self.first..self.end {
            seen += u64::from(self.counts[bucket]);
            if seen >= wanted {
                return highest_in(bucket).min(self.max);
            }
        }
        self.max
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_histogram_that_was_sent_is_the_same() {
        let mut sent = Histogram::default();
        for value in [0, 5, 77, 1234, 1234, 987_654_321, 1 << 50] {
            sent.record(value);
        }
        let text = serde_json::to_string(&sent.parts()).expect("JSON");
        let parts: HistogramParts = serde_json::from_str(&text).expect("the same");
        let arrived = Histogram::from_parts(&parts).expect("a histogram");
        assert_eq!(arrived.parts(), sent.parts());
        assert_eq!((arrived.count(), arrived.min(), arrived.max()), (7, 0, 1 << 50));
        assert_eq!((arrived.mean(), arrived.quantile(0.5)), (sent.mean(), sent.quantile(0.5)));
        let empty = Histogram::default();
        assert_eq!(Histogram::from_parts(&empty.parts()).map(|empty| empty.count()), Some(0));
        for wrong in [
            HistogramParts { buckets: vec![(u16::MAX, 1)], ..parts.clone() },
            HistogramParts { min: 7, max: 3, ..parts },
        ] {
            assert!(Histogram::from_parts(&wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn histograms_as_texts_add_up_to_what_one_would_have_counted() {
        let (mut one, mut two, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..10_000u64 {
            let value = value * value;
            let part = if value % 3 == 0 { &mut one } else { &mut two };
            part.record(value);
            all.record(value);
        }
        let mut read = Histogram::default();
        for part in [&one, &two, &Histogram::default()] {
            read.add_text(&part.to_text(), part.max()).expect("a text of its own");
        }
        assert_eq!((read.count(), read.max()), (all.count(), all.max()));
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            assert_eq!(read.quantile(quantile), all.quantile(quantile));
        }
        for wrong in ["1", "1:", ":1", "a:1", "1:a", "1:2 3", "-1:1", "1:99999999999"] {
            assert_eq!(read.add_text(wrong, 5), None, "{wrong}");
        }
        assert_eq!(read.count(), all.count());
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values_within_a_sixty_fourth(
            mut values in prop::collection::vec(prop_oneof![0u64..200, 0u64..10_000_000, any::<u64>()], 1..200),
            split in any::<prop::sample::Index>(),
        ) {
            let split = split.index(values.len());
            let (mut all, mut other) = (Histogram::default(), Histogram::default());
            values[..split].iter().for_each(|&value| all.record(value));
            values[split..].iter().for_each(|&value| other.record(value));
            all.add(&other);
            values.sort_unstable();
            prop_assert_eq!(all.count(), values.len() as u64);
            prop_assert_eq!((all.min(), all.max()), (values[0], values[values.len() - 1]));
            for quantile in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
                let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
                let (wanted, found) = (values[rank - 1], all.quantile(quantile));
                prop_assert!(found >= wanted && found - wanted <= wanted / 64, "{found} for {wanted}");
            }
            all.clear();
            prop_assert_eq!((all.count(), all.max(), all.quantile(0.5)), (0, 0, 0));
        }
    }

    #[test]
    fn every_value_has_a_bucket_and_no_bucket_overlaps() {
        for value in [0, 1, 63, 64, 65, 127, 128, 129, 1 << 40, u64::MAX - 1, u64::MAX] {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS && highest_in(bucket) >= value, "{value}");
            assert!(bucket == 0 || highest_in(bucket - 1) < value, "{value}");
        }
    }
}
