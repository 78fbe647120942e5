//! How much memory an exploration may take for what grows with it: what is written to states, and which images are known.

use rotproof_block::{Error, ErrorKind, Result};

/// What may be written to a state if nobody says so.
pub(crate) const SCRATCH_BYTES: u64 = 512 << 20;
/// Less does not hold what the recovery of a small file system writes.
const SCRATCH_BYTES_MIN: u64 = 1 << 20;
/// The least that a bound may be for one worker.
pub const MEMORY_MIN_BYTES: u64 = 4 << 20;
/// An image that is known takes so much at most, while the table of them grows.
const KNOWN_BYTES: u64 = 128;

/// What a bound comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// Bytes that may be written to the state of one worker.
    pub scratch_bytes_max: u64,
    /// Images that are remembered, so that an equal one is not looked at again.
    pub known_max: u64,
}

impl MemoryBound {
    /// No bound on the images, and 512 MiB for each worker.
    pub const NONE: Self = Self { scratch_bytes_max: SCRATCH_BYTES, known_max: u64::MAX };

    /// A quarter of `bytes` for the images, the rest for the workers and the probe that finds what recovery reads. Fails with
    /// [`ErrorKind::Invalid`] if that is too little.
    pub fn of(bytes: u64, workers: usize) -> Result<Self> {
        let lookers = workers.max(1) as u64 + 1;
        let scratch_bytes_max = bytes / 4 * 3 / lookers;
        if bytes < MEMORY_MIN_BYTES || scratch_bytes_max < SCRATCH_BYTES_MIN {
            let least = MEMORY_MIN_BYTES.max((SCRATCH_BYTES_MIN * lookers).div_ceil(3) * 4) >> 20;
            let what = format!(
                "{bytes} bytes of memory are too little for {workers} workers; give at least {}MiB",
                least + 1
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self { scratch_bytes_max, known_max: bytes / 4 / KNOWN_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_out_is_no_more_than_the_bound_and_too_little_says_how_much_is_enough() {
        for (bytes, workers) in [(256 << 20, 1), (256 << 20, 4), (8 << 20, 2)] {
            let bound = MemoryBound::of(bytes, workers).expect("enough");
            let all = bound.scratch_bytes_max * (workers as u64 + 1) + bound.known_max * KNOWN_BYTES;
            assert!(all <= bytes && all > bytes / 10 * 9, "{bound:?}");
        }
        for workers in [1, 4, 16] {
            let words = MemoryBound::of(1 << 20, workers).expect_err("too little").to_string();
            let least = words.rsplit(' ').next().and_then(|word| word.strip_suffix("MiB")).expect("a size");
            let least: u64 = least.parse().expect("a number");
            assert!(MemoryBound::of(least << 20, workers).is_ok(), "{words}");
        }
    }
}
