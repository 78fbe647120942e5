//! XXH3-128 of long inputs, compiled for several CPU levels and chosen at run time. Content rules hash every block that
//! passes, and a generic build takes two to three times as long for it, by the CPU.
//!
//! The algorithm: Yann Collet, xxHash specification, "XXH3 algorithm overview", long inputs (above 240 bytes).

/// Where this path begins; shorter inputs have special forms.
pub(super) const LENGTH_MIN: usize = 241;

const STRIPE: usize = 64;
const SECRET_STEP: usize = 8;
const STRIPES_PER_BLOCK: usize = (SECRET.len() - STRIPE) / SECRET_STEP;
const BLOCK: usize = STRIPE * STRIPES_PER_BLOCK;

const PRIME32_1: u64 = 0x9E37_79B1;
const PRIME32_2: u64 = 0x85EB_CA77;
const PRIME32_3: u64 = 0xC2B2_AE3D;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;

/// The default secret of the specification.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde,
    0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79,
    0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46,
    0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb,
    0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2,
    0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c,
    0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59,
    0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3,
    0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3,
    0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8,
    0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb,
    0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// XXH3-128 with seed 0 of at least [`LENGTH_MIN`] bytes, by the best code for this CPU.
pub(super) fn hash(input: &[u8]) -> u128 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has been asked for just this feature.
            return unsafe { avx512::hash(input) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2::hash(input) };
        }
    }
    portable::hash(input)
}

/// The secret as each stripe needs it: one row for every stripe of a block, then the one that scrambles and the one of
/// the last stripe. Rows of a cache line each, because a load over the border of two lines costs twice.
#[repr(align(64))]
struct Rows([[u8; STRIPE]; STRIPES_PER_BLOCK + 2]);

const SCRAMBLE: usize = STRIPES_PER_BLOCK;
const LAST: usize = STRIPES_PER_BLOCK + 1;
static ROWS: Rows = Rows(rows());

const fn rows() -> [[u8; STRIPE]; STRIPES_PER_BLOCK + 2] {
    let mut rows = [[0; STRIPE]; STRIPES_PER_BLOCK + 2];
    let mut row = 0;
    while row < rows.len() {
        // The row that scrambles lies where one more stripe's would.
        let from = if row == LAST { SECRET.len() - STRIPE - 7 } else { row * SECRET_STEP };
        rows[row] = *secret(from);
        row += 1;
    }
    rows
}

/// The way through the input, the same for every level. A level gives `Lanes`, `load`, `store`, `accumulate`, `fold` and
/// `scramble`.
///
/// The specification adds to each lane the data of its neighbour. Here the data are summed by themselves and change
/// places once a block, in `fold`, which saves an exchange per stripe and makes the chain of additions two short ones.
macro_rules! walk {
    ($($feature:meta)?) => {
        $(#[$feature])?
        pub(super) fn hash(input: &[u8]) -> u128 {
            debug_assert!(input.len() >= LENGTH_MIN);
            let rows = &ROWS.0;
            let none = load(&[0; 8]);
            let (mut products, mut sums) = (load(&START), none);
            // The last byte belongs to the last stripe, so a whole number of blocks leaves the last one partial.
            let (blocks, rest) = input.split_at((input.len() - 1) / BLOCK * BLOCK);
            for block in blocks.as_chunks::<BLOCK>().0 {
                for (stripe, row) in block.as_chunks::<STRIPE>().0.iter().zip(rows) {
                    (products, sums) = accumulate(products, sums, stripe, row);
                }
                (products, sums) = (scramble(fold(products, sums), &rows[SCRAMBLE]), none);
            }
            let stripes = &rest[..(rest.len() - 1) / STRIPE * STRIPE];
            for (stripe, row) in stripes.as_chunks::<STRIPE>().0.iter().zip(rows) {
                (products, sums) = accumulate(products, sums, stripe, row);
            }
            let last = input.last_chunk::<STRIPE>().expect("longer than a stripe");
            (products, sums) = accumulate(products, sums, last, &rows[LAST]);
            merge(&store(fold(products, sums)), input.len() as u64)
        }
    };
}

/// The lanes as memory: eight numbers of 64 bits.
type Numbers = [u64; 8];

const START: Numbers =
    [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];

const fn secret(from: usize) -> &'static [u8; STRIPE] {
    SECRET.split_at(from).1.first_chunk().expect("constant offsets inside the secret")
}

fn numbers(bytes: &[u8; STRIPE]) -> Numbers {
    let mut numbers = [0; 8];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    numbers
}

fn merge(lanes: &Numbers, length: u64) -> u128 {
    let half = |from: usize, start: u64| {
        let secret = numbers(secret(from));
        let mut sum = start;
        for pair in 0..4 {
            let product = u128::from(lanes[2 * pair] ^ secret[2 * pair])
                * u128::from(lanes[2 * pair + 1] ^ secret[2 * pair + 1]);
            sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
        }
        sum = (sum ^ (sum >> 37)).wrapping_mul(0x1656_6791_9E37_79F9);
        sum ^ (sum >> 32)
    };
    let low = half(11, length.wrapping_mul(PRIME64_1));
    let high = half(SECRET.len() - STRIPE - 11, !length.wrapping_mul(PRIME64_2));
    u128::from(high) << 64 | u128::from(low)
}

mod portable {
    use super::*;

    type Lanes = Numbers;

    walk!();

    fn load(numbers: &Numbers) -> Lanes {
        *numbers
    }

    fn store(lanes: Lanes) -> Numbers {
        lanes
    }

    #[inline]
    fn accumulate(
        mut products: Lanes,
        mut sums: Lanes,
        stripe: &[u8; STRIPE],
        secret: &[u8; STRIPE],
    ) -> (Lanes, Lanes) {
        let (data, secret) = (numbers(stripe), numbers(secret));
        for index in 0..8 {
            let key = data[index] ^ secret[index];
            products[index] = products[index].wrapping_add((key & 0xffff_ffff).wrapping_mul(key >> 32));
            sums[index] = sums[index].wrapping_add(data[index]);
        }
        (products, sums)
    }

    #[inline]
    fn fold(products: Lanes, sums: Lanes) -> Lanes {
        std::array::from_fn(|index| products[index].wrapping_add(sums[index ^ 1]))
    }

    #[inline]
    fn scramble(lanes: Lanes, secret: &[u8; STRIPE]) -> Lanes {
        let secret = numbers(secret);
        std::array::from_fn(|index| {
            let lane = lanes[index];
            (lane ^ (lane >> 47) ^ secret[index]).wrapping_mul(PRIME32_1)
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_mul_epu32, _mm256_set1_epi64x, _mm256_shuffle_epi32,
        _mm256_slli_epi64, _mm256_srli_epi64, _mm256_xor_si256,
    };
    use std::mem::transmute;

    use super::*;

    type Lanes = [__m256i; 2];

    walk!(target_feature(enable = "avx2"));

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(numbers: &Numbers) -> Lanes {
        // SAFETY: both are 64 bytes of plain numbers.
        unsafe { transmute::<Numbers, Lanes>(*numbers) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(lanes: Lanes) -> Numbers {
        // SAFETY: both are 64 bytes of plain numbers.
        unsafe { transmute::<Lanes, Numbers>(lanes) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn bytes(bytes: &[u8; STRIPE]) -> Lanes {
        // SAFETY: both are 64 bytes of plain numbers, and the copy has no alignment to keep.
        unsafe { transmute::<[u8; STRIPE], Lanes>(*bytes) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn accumulate(
        mut products: Lanes,
        mut sums: Lanes,
        stripe: &[u8; STRIPE],
        secret: &[u8; STRIPE],
    ) -> (Lanes, Lanes) {
        let (data, secret) = (bytes(stripe), bytes(secret));
        for half in 0..2 {
            let key = _mm256_xor_si256(data[half], secret[half]);
            let product = _mm256_mul_epu32(key, _mm256_srli_epi64::<32>(key));
            products[half] = _mm256_add_epi64(products[half], product);
            sums[half] = _mm256_add_epi64(sums[half], data[half]);
        }
        (products, sums)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn fold(mut products: Lanes, sums: Lanes) -> Lanes {
        for half in 0..2 {
            let swapped = _mm256_shuffle_epi32::<SWAP>(sums[half]);
            products[half] = _mm256_add_epi64(products[half], swapped);
        }
        products
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn scramble(mut lanes: Lanes, secret: &[u8; STRIPE]) -> Lanes {
        let (secret, prime) = (bytes(secret), _mm256_set1_epi64x(PRIME32_1.cast_signed()));
        for half in 0..2 {
            let shifted = _mm256_srli_epi64::<47>(lanes[half]);
            let mixed = _mm256_xor_si256(_mm256_xor_si256(lanes[half], shifted), secret[half]);
            let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(mixed), prime);
            lanes[half] = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64::<32>(high));
        }
        lanes
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_mul_epu32, _mm512_set1_epi64, _mm512_shuffle_epi32,
        _mm512_slli_epi64, _mm512_srli_epi64, _mm512_xor_si512,
    };
    use std::mem::transmute;

    use super::*;

    type Lanes = __m512i;

    walk!(target_feature(enable = "avx512f"));

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(numbers: &Numbers) -> Lanes {
        // SAFETY: both are 64 bytes of plain numbers.
        unsafe { transmute::<Numbers, Lanes>(*numbers) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(lanes: Lanes) -> Numbers {
        // SAFETY: both are 64 bytes of plain numbers.
        unsafe { transmute::<Lanes, Numbers>(lanes) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn bytes(bytes: &[u8; STRIPE]) -> Lanes {
        // SAFETY: both are 64 bytes of plain numbers, and the copy has no alignment to keep.
        unsafe { transmute::<[u8; STRIPE], Lanes>(*bytes) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn accumulate(
        products: Lanes,
        sums: Lanes,
        stripe: &[u8; STRIPE],
        secret: &[u8; STRIPE],
    ) -> (Lanes, Lanes) {
        let data = bytes(stripe);
        let key = _mm512_xor_si512(data, bytes(secret));
        let product = _mm512_mul_epu32(key, _mm512_srli_epi64::<32>(key));
        (_mm512_add_epi64(products, product), _mm512_add_epi64(sums, data))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fold(products: Lanes, sums: Lanes) -> Lanes {
        _mm512_add_epi64(products, _mm512_shuffle_epi32::<SWAP>(sums))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scramble(lanes: Lanes, secret: &[u8; STRIPE]) -> Lanes {
        let prime = _mm512_set1_epi64(PRIME32_1.cast_signed());
        let shifted = _mm512_srli_epi64::<47>(lanes);
        let mixed = _mm512_xor_si512(_mm512_xor_si512(lanes, shifted), bytes(secret));
        let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(mixed), prime);
        _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64::<32>(high))
    }
}

/// Exchanges the two numbers of each pair, in the words of the shuffle instructions.
#[cfg(target_arch = "x86_64")]
const SWAP: i32 = 0b01_00_11_10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn every_level_agrees_with_the_reference_for_every_length() {
        let random: Vec<u8> = (0..12_000).map(|index| mix(1, 2, index) as u8).collect();
        for content in [random, vec![0; 12_000], vec![0xff; 12_000]] {
            for length in (LENGTH_MIN..5000).chain([8191, 8192, 8193, 12_000]) {
                for start in [0, 1, 7] {
                    let Some(input) = content.get(start..start + length) else { continue };
                    let wanted = xxhash_rust::xxh3::xxh3_128(input);
                    assert_eq!(portable::hash(input), wanted, "portable, {length} bytes");
                    assert_eq!(hash(input), wanted, "best, {length} bytes");
                    #[cfg(target_arch = "x86_64")]
                    if is_x86_feature_detected!("avx2") {
                        // SAFETY: the CPU has been asked for this feature.
                        assert_eq!(unsafe { avx2::hash(input) }, wanted, "avx2, {length} bytes");
                    }
                }
            }
        }
    }
}
