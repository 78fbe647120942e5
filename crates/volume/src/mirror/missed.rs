//! What a member has missed: a bit for each granule. Coarse, never too little.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a bit stands for.
pub(crate) const GRANULE_BYTES: u64 = 64 << 10;

/// The granules of a device that are not what they should be. Nothing is allocated before there is one.
pub(super) struct Missed {
    size: u64,
    words: OnceLock<Box<[AtomicU64]>>,
    /// How many bits are set; what the path asks first.
    count: AtomicU64,
}

impl Missed {
    /// Of a device of `size` bytes, nothing.
    pub(super) fn new(size: u64) -> Self {
        Self { size, words: OnceLock::new(), count: AtomicU64::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Bytes that are missed, at most.
    pub(super) fn bytes(&self) -> u64 {
        self.count.load(Ordering::Acquire).saturating_mul(GRANULE_BYTES).min(self.size)
    }

    /// Takes note of every granule that the range touches; whether one of them was not noted before.
    pub(super) fn mark(&self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let granules = self.granules(range.start / GRANULE_BYTES, range.end.div_ceil(GRANULE_BYTES));
        let words = self.words.get_or_init(|| {
            let count = self.size.div_ceil(GRANULE_BYTES).div_ceil(64);
            (0..count).map(|_| AtomicU64::new(0)).collect()
        });
        let mut added = 0;
        for (word, mask) in masks(granules) {
            // Where all is noted already, as it is below a member that is out, nothing is written.
            if words[word].load(Ordering::Acquire) & mask != mask {
                let before = words[word].fetch_or(mask, Ordering::AcqRel);
                added += u64::from((mask & !before).count_ones());
            }
        }
        if added > 0 {
            self.count.fetch_add(added, Ordering::AcqRel);
        }
        added > 0
    }

    /// Forgets every granule that lies in the range as a whole.
    pub(super) fn clear(&self, range: Range<u64>) {
        let Some(words) = self.words.get() else { return };
        // The last granule may be cut off by the end of the device.
        let end = if range.end >= self.size {
            self.size.div_ceil(GRANULE_BYTES)
        } else {
            range.end / GRANULE_BYTES
        };
        let mut removed = 0;
        for (word, mask) in masks(self.granules(range.start.div_ceil(GRANULE_BYTES), end)) {
            let before = words[word].fetch_and(!mask, Ordering::AcqRel);
            removed += u64::from((mask & before).count_ones());
        }
        self.count.fetch_sub(removed, Ordering::AcqRel);
    }

    /// Whether a byte of the range is missed.
    pub(super) fn touches(&self, range: Range<u64>) -> bool {
        if self.is_empty() || range.is_empty() {
            return false;
        }
        let Some(words) = self.words.get() else { return false };
        let granules = self.granules(range.start / GRANULE_BYTES, range.end.div_ceil(GRANULE_BYTES));
        masks(granules).any(|(word, mask)| words[word].load(Ordering::Acquire) & mask != 0)
    }

    /// The first run of missed granules at or after `from`, in bytes.
    pub(super) fn next(&self, from: u64) -> Option<Range<u64>> {
        let words = self.words.get().filter(|_| !self.is_empty())?;
        let end = self.size.div_ceil(GRANULE_BYTES);
        let first = seek(words, from / GRANULE_BYTES, end, true)?;
        let last = seek(words, first, end, false).unwrap_or(end);
        Some(first * GRANULE_BYTES..(last * GRANULE_BYTES).min(self.size))
    }

    /// All runs, in order.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut at = 0;
        std::iter::from_fn(|| {
            let range = self.next(at)?;
            at = range.end.max(at + 1).next_multiple_of(GRANULE_BYTES);
            Some(range)
        })
        .collect()
    }

    fn granules(&self, start: u64, end: u64) -> Range<u64> {
        start..end.min(self.size.div_ceil(GRANULE_BYTES))
    }
}

/// The first granule from `from` on that is set, or is not.
fn seek(words: &[AtomicU64], from: u64, end: u64, is_set: bool) -> Option<u64> {
    let mut granule = from;
    while granule < end {
        let word = words[(granule / 64) as usize].load(Ordering::Acquire);
        let wanted = if is_set { word } else { !word } >> (granule % 64);
        if wanted != 0 {
            return Some(granule + u64::from(wanted.trailing_zeros())).filter(|&found| found < end);
        }
        granule = (granule / 64 + 1) * 64;
    }
    None
}

/// The words that hold these bits, each with their mask.
pub(super) fn masks(bits: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = bits.start;
    std::iter::from_fn(move || {
        (at < bits.end).then(|| {
            let word = at / 64;
            let end = bits.end.min((word + 1) * 64);
            let mask = (u64::MAX >> (64 - (end - at))) << (at % 64);
            at = end;
            (word as usize, mask)
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_knows_what_a_plain_set_of_granules_does(
            size in 1u64..300 * GRANULE_BYTES,
            steps in proptest::collection::vec((any::<bool>(), 0u64..300 * GRANULE_BYTES, 1u64..80 * GRANULE_BYTES), 1..40),
        ) {
            let missed = Missed::new(size);
            let count = size.div_ceil(GRANULE_BYTES) as usize;
            let mut model = vec![false; count];
            for (marks, start, length) in steps {
                let range = start.min(size)..(start + length).min(size);
                for (granule, is_missed) in model.iter_mut().enumerate() {
                    let own = granule as u64 * GRANULE_BYTES..((granule as u64 + 1) * GRANULE_BYTES).min(size);
                    if marks && own.start < range.end && range.start < own.end {
                        *is_missed = true;
                    } else if !marks && range.start <= own.start && own.end <= range.end {
                        *is_missed = false;
                    }
                }
                if marks { missed.mark(range.clone()); } else { missed.clear(range.clone()); }
                prop_assert_eq!(missed.is_empty(), !model.contains(&true));
                let mut found = vec![false; count];
                for run in missed.ranges() {
                    prop_assert!(run.start < run.end && run.end <= size);
                    for granule in run.start / GRANULE_BYTES..run.end.div_ceil(GRANULE_BYTES) {
                        found[granule as usize] = true;
                    }
                }
                prop_assert_eq!(&found, &model);
                let slow = !range.is_empty()
                    && (range.start / GRANULE_BYTES..range.end.div_ceil(GRANULE_BYTES)).any(|granule| model[granule as usize]);
                prop_assert_eq!(missed.touches(range), slow);
            }
        }
    }

    #[test]
    fn only_what_is_new_is_told_as_new() {
        let missed = Missed::new(1 << 30);
        assert!(missed.mark(0..1));
        assert!(!missed.mark(100..GRANULE_BYTES));
        assert!(missed.mark(0..GRANULE_BYTES + 1));
        assert_eq!(missed.bytes(), 2 * GRANULE_BYTES);
        assert!(missed.mark(0..1 << 30));
        assert_eq!(missed.bytes(), 1 << 30);
        assert_eq!(missed.ranges(), [0..1 << 30]);
    }
}
