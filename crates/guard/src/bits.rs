//! Bits in memory that processes share: one for each region of a file.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a bit is set.
pub fn has_bit(words: &[AtomicU64], bit: usize) -> bool {
    words[bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
}

/// The bits that are set.
pub fn bits(words: &[AtomicU64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(number, word)| {
        let mut rest = word.load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros();
            (rest != 0).then(|| {
                rest &= rest - 1;
                number * 64 + bit as usize
            })
        })
    })
}

/// Sets a bit.
pub fn set_bit(words: &[AtomicU64], bit: usize) {
    words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
}

/// Clears a bit.
pub fn clear_bit(words: &[AtomicU64], bit: usize) {
    words[bit / 64].fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
}
