//! What was written since it was flushed last: a bit for each granule of a mirror.
//!
//! A member that loses power forgets what it has taken and was not flushed. The others go on and flush it, so whoever takes the
//! member back must know. A write is noted when its answers are in and before it is acknowledged; a flush takes what is noted
//! before it is sent, and keeps it at hand until it is answered.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::missed::{GRANULE_BYTES, masks};

/// See the head of the module.
pub(super) struct Unflushed {
    size: u64,
    words: OnceLock<Box<[AtomicU64]>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Words that have a bit.
    touched: Vec<usize>,
    /// What flushes under way have taken, with their numbers.
    flushing: Vec<(u64, Vec<(usize, u64)>)>,
    next: u64,
}

impl Unflushed {
    /// Nothing of a mirror of so many bytes.
    pub(super) fn new(size: u64) -> Self {
        Self { size, words: OnceLock::new(), inner: Mutex::default() }
    }

    /// Something was written.
    pub(super) fn note(&self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let words = self.words.get_or_init(|| {
            let count = self.size.div_ceil(GRANULE_BYTES).div_ceil(64);
            (0..count).map(|_| AtomicU64::new(0)).collect()
        });
        let last = range.end.div_ceil(GRANULE_BYTES).min(self.size.div_ceil(GRANULE_BYTES));
        for (word, mask) in masks(range.start / GRANULE_BYTES..last) {
            // Mostly it is noted already: then nothing is written.
            if words[word].load(Ordering::Acquire) & mask != mask
                && words[word].fetch_or(mask, Ordering::AcqRel) == 0
            {
                self.inner.lock().touched.push(word);
            }
        }
    }

    /// A flush is about to be sent: what it will make durable. It must be given to [`Unflushed::end`].
    pub(super) fn begin(&self) -> u64 {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        let touched = std::mem::take(&mut inner.touched);
        let Some(words) = self.words.get().filter(|_| !touched.is_empty()) else { return number };
        let taken = touched.into_iter().map(|word| (word, words[word].swap(0, Ordering::AcqRel)));
        let taken = taken.collect();
        inner.flushing.push((number, taken));
        number
    }

    /// A flush was answered. If it failed, what it should have made durable is as it was.
    pub(super) fn end(&self, number: u64, is_done: bool) {
        let mut inner = self.inner.lock();
        let Some(at) = inner.flushing.iter().position(|(known, _)| *known == number) else { return };
        let (_, taken) = inner.flushing.swap_remove(at);
        let Some(words) = self.words.get().filter(|_| !is_done) else { return };
        for (word, bits) in taken {
            if bits != 0 && words[word].fetch_or(bits, Ordering::AcqRel) == 0 {
                inner.touched.push(word);
            }
        }
    }

    /// All that may not be durable.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let inner = self.inner.lock();
        let Some(words) = self.words.get() else { return Vec::new() };
        let mut all: Vec<(usize, u64)> = inner.flushing.iter().flat_map(|(_, taken)| taken.clone()).collect();
        all.extend(inner.touched.iter().map(|word| (*word, words[*word].load(Ordering::Acquire))));
        all.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (word, mut bits) in all {
            while bits != 0 {
                let start = (word as u64 * 64 + u64::from(bits.trailing_zeros())) * GRANULE_BYTES;
                bits &= bits - 1;
                let range = start..(start + GRANULE_BYTES).min(self.size);
                match ranges.last_mut() {
                    Some(last) if last.start <= range.start && range.start <= last.end => {
                        last.end = last.end.max(range.end);
                    }
                    _ => ranges.push(range),
                }
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = GRANULE_BYTES;

    #[test]
    fn what_was_written_is_there_until_a_flush_that_was_sent_later_has_ended_well() {
        let unflushed = Unflushed::new(200 * G - 5);
        unflushed.note(&(0..1));
        unflushed.note(&(70 * G..72 * G));
        let failing = unflushed.begin();
        unflushed.note(&(199 * G..199 * G + 1));
        assert_eq!(unflushed.ranges(), [0..G, 70 * G..72 * G, 199 * G..200 * G - 5]);
        unflushed.end(failing, false);
        assert_eq!(unflushed.ranges(), [0..G, 70 * G..72 * G, 199 * G..200 * G - 5]);
        let flush = unflushed.begin();
        unflushed.note(&(G..G + 1));
        unflushed.end(flush, true);
        assert_eq!(unflushed.ranges(), [G..2 * G]);
        let (first, second) = (unflushed.begin(), unflushed.begin());
        unflushed.end(second, true);
        assert_eq!(unflushed.ranges(), [G..2 * G], "the first flush has it, and has not ended");
        unflushed.end(first, true);
        assert!(unflushed.ranges().is_empty());
    }
}
