//! Copying and summing in one pass: exclusive or of words of 64 bits, by the widest registers of the machine.
//!
//! The source may be a mapping of a file that others write to. Whatever they do meanwhile, the sum is that of the bytes that
//! were copied: each is loaded once into a register, which is both stored and summed.

use crate::fault::Watch;

/// The exclusive or of the little-endian words of `data`, the last one filled up with zeros.
pub fn xor_words(data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has been asked for just this feature.
            return unsafe { wide::xor_avx512(data) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { wide::xor_avx2(data) };
        }
    }
    xor_each(data)
}

/// Word by word.
fn xor_each(data: &[u8]) -> u64 {
    let (words, tail) = data.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, bytes| sum ^ u64::from_le_bytes(*bytes));
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    sum ^ u64::from_le_bytes(last)
}

/// Copies `length` bytes from a mapping and gives their [`xor_words`].
///
/// # Safety
/// `from` is valid for reads of `length` bytes but for faults that `watch` catches; `to` for writes, and nobody else uses it.
pub unsafe fn copy_and_xor(_watch: &Watch, from: *const u8, to: *mut u8, length: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has been asked for just this feature; the rest is the caller's word.
            return unsafe { wide::copy_avx512(from, to, length) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { wide::copy_avx2(from, to, length) };
        }
    }
    // SAFETY: the caller's word.
    unsafe { copy_words(from, to, length) }
}

/// Copies `length` bytes from a mapping.
///
/// # Safety
/// As [`copy_and_xor`].
pub unsafe fn copy(_watch: &Watch, from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's word. Bytes that others change meanwhile arrive as one of what they were; they are summed after
    // they have arrived.
    unsafe { std::ptr::copy_nonoverlapping(from, to, length) };
}

/// # Safety
/// As [`copy_and_xor`].
unsafe fn copy_words(from: *const u8, to: *mut u8, length: usize) -> u64 {
    let mut sum = 0;
    let mut at = 0;
    while at + 8 <= length {
        // SAFETY: both places are inside what the caller vouches for.
        unsafe {
            // Volatile, so that what is stored and what is summed is one load.
            let word = if from.add(at).cast::<u64>().is_aligned() {
                from.add(at).cast::<u64>().read_volatile()
            } else {
                u64::from_ne_bytes(from.add(at).cast::<[u8; 8]>().read_volatile())
            };
            to.add(at).cast::<u64>().write_unaligned(word);
            sum ^= u64::from_le(word);
        }
        at += 8;
    }
    let mut last = [0; 8];
    for (byte, at) in last.iter_mut().zip(at..length) {
        // SAFETY: as above.
        unsafe {
            *byte = from.add(at).read_volatile();
            to.add(at).write(*byte);
        }
    }
    sum ^ u64::from_le_bytes(last)
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
        _mm512_loadu_si512, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{copy_words, xor_each};

    macro_rules! copy_by {
        ($name:ident, $sum:ident, $feature:literal, $lane:ty, $zero:ident, $load:ident, $store:ident, $xor:ident) => {
            /// `xor_words`. By hand, since a compiler makes gathers of the loop that a person would write.
            #[target_feature(enable = $feature)]
            pub(super) fn $sum(data: &[u8]) -> u64 {
                const WIDTH: usize = size_of::<$lane>();
                let (stripes, rest) = data.as_chunks::<{ 4 * WIDTH }>();
                let mut lanes = [$zero(); 4];
                for stripe in stripes {
                    for (number, lane) in lanes.iter_mut().enumerate() {
                        // SAFETY: inside of the stripe.
                        *lane = $xor(*lane, unsafe { $load(stripe.as_ptr().add(number * WIDTH).cast()) });
                    }
                }
                let all = $xor($xor(lanes[0], lanes[1]), $xor(lanes[2], lanes[3]));
                // SAFETY: both are plain numbers of one size.
                let words: [u64; WIDTH / 8] = unsafe { std::mem::transmute::<$lane, _>(all) };
                words.iter().fold(xor_each(rest), |sum, word| sum ^ word)
            }

            /// # Safety
            /// As `copy_and_xor`, and the CPU has the feature.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(from: *const u8, to: *mut u8, length: usize) -> u64 {
                const WIDTH: usize = size_of::<$lane>();
                let (mut even, mut odd) = ($zero(), $zero());
                let mut at = 0;
                while at + 2 * WIDTH <= length {
                    // SAFETY: both places are inside what the caller vouches for.
                    unsafe {
                        let first = $load(from.add(at).cast());
                        let second = $load(from.add(at + WIDTH).cast());
                        $store(to.add(at).cast(), first);
                        $store(to.add(at + WIDTH).cast(), second);
                        even = $xor(even, first);
                        odd = $xor(odd, second);
                    }
                    at += 2 * WIDTH;
                }
                // SAFETY: both are plain numbers of one size.
                let lanes: [u64; WIDTH / 8] = unsafe { std::mem::transmute::<$lane, _>($xor(even, odd)) };
                let sum = lanes.iter().fold(0, |sum, lane| sum ^ lane);
                // SAFETY: the rest of what the caller vouches for.
                sum ^ unsafe { copy_words(from.add(at), to.add(at), length - at) }
            }
        };
    }

    copy_by!(
        copy_avx2,
        xor_avx2,
        "avx2",
        __m256i,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256
    );
    copy_by!(
        copy_avx512,
        xor_avx512,
        "avx512f",
        __m512i,
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_xor_si512
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_copies_and_sums_alike() {
        let source: Vec<u8> =
            (0..9000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..300).chain([511, 4095, 4096, 8192]) {
            for start in [0, 1, 5, 8] {
                let from = &source[start..start + length];
                let mut padded = from.to_vec();
                padded.resize(length.next_multiple_of(8), 0);
                let wanted = padded
                    .chunks(8)
                    .fold(0u64, |sum, bytes| sum ^ u64::from_le_bytes(bytes.try_into().expect("eight")));
                assert_eq!((xor_words(from), xor_each(from)), (wanted, wanted));
                let mut to = vec![0xEE; length + 1];
                // SAFETY: both are that long.
                let sum = unsafe { copy_and_xor(&Watch::idle(), from.as_ptr(), to.as_mut_ptr(), length) };
                assert_eq!((sum, &to[..length], to[length]), (wanted, from, 0xEE));
                let mut to = vec![0xEE; length + 1];
                // SAFETY: as above.
                let sum = unsafe { copy_words(from.as_ptr(), to.as_mut_ptr(), length) };
                assert_eq!((sum, &to[..length], to[length]), (wanted, from, 0xEE));
            }
        }
    }
}
