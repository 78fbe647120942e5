//! What a checksum does not see.

use crate::{BLOCK_BITS, BitErrors, Bound, Probability, Uncertain};

/// Which errors pass a checksum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weakness {
    /// All errors of fewer than `distance` bits are caught, and this fraction of those of exactly `distance` bits is
    /// not: P_udc = P(D, n) F.
    Distance {
        /// Hamming distance n.
        distance: u32,
        /// Undetectable fraction F of the errors of n bits.
        fraction: Uncertain,
    },
    /// This fraction of all errors passes, whatever their size: an ideal hash, or what a campaign has measured.
    Any {
        /// The fraction.
        fraction: Uncertain,
    },
}

/// A checksum by what it does not see.
#[derive(Clone, Debug, PartialEq)]
pub struct Checksum {
    /// How tables call it.
    pub name: String,
    /// Which errors pass.
    pub weakness: Weakness,
}

/// Undetectable fraction of 3-bit errors by Fletcher with 256 bits, over 4 KiB: Zhang, section 4.1.
const FLETCHER_256_FRACTION: f64 = 4.16e-20;

/// Errors of 4 bits in 32,768 that CRC32C (0x1EDC6F41) does not see: multiples of the polynomial with four terms,
/// counted by `crc32c_counts` in the tests. It agrees with Koopman (DSN 2002): none up to 5,275 bits, checksum included.
const CRC32C_UNDETECTED: f64 = 20_764_674.0;

impl Checksum {
    /// The words for known checksums.
    pub const WORDS: [&'static str; 6] =
        ["xor-64", "fletcher-256", "crc32c", "xxh3-64", "xxh3-128", "blake3"];

    /// From one of [`Checksum::WORDS`].
    pub fn from_word(word: &str) -> Option<Self> {
        let weakness = match word {
            "xor-64" => return Some(Self::xor_64()),
            "fletcher-256" => return Some(Self::fletcher_256()),
            "crc32c" => {
                let [b, f] = [f64::from(BLOCK_BITS), CRC32C_UNDETECTED];
                let fraction = f * 24.0 / (b * (b - 1.0) * (b - 2.0) * (b - 3.0));
                Weakness::Distance { distance: 4, fraction: Uncertain::exact(fraction) }
            }
            // Hashes without a guaranteed distance, taken as ideal: two different blocks collide with 2^-bits.
            "xxh3-64" => Weakness::Any { fraction: Uncertain::exact(2f64.powi(-64)) },
            "xxh3-128" => Weakness::Any { fraction: Uncertain::exact(2f64.powi(-128)) },
            "blake3" => Weakness::Any { fraction: Uncertain::exact(2f64.powi(-256)) },
            _ => return None,
        };
        Some(Self { name: word.to_owned(), weakness })
    }

    /// The exclusive or of all words of 64 bits: n = 2, F = (b - k) / (k (b - 1)) with k = 64, from Zhang, section 4.1:
    /// two errors pass if they are in the same column.
    pub fn xor_64() -> Self {
        let (b, k) = (f64::from(BLOCK_BITS), 64.0);
        let fraction = Uncertain::exact((b - k) / (k * (b - 1.0)));
        Self { name: "xor-64".into(), weakness: Weakness::Distance { distance: 2, fraction } }
    }

    /// Fletcher with 256 bits, as ZFS: n = 3, F = 4.16e-20 (Zhang, section 4.1).
    pub fn fletcher_256() -> Self {
        let fraction = Uncertain::exact(FLETCHER_256_FRACTION);
        Self { name: "fletcher-256".into(), weakness: Weakness::Distance { distance: 3, fraction } }
    }

    /// The probability that a block has errors that this checksum does not see.
    pub fn undetected(&self, errors: BitErrors, bound: Bound) -> Probability {
        let (of_errors, fraction) = match self.weakness {
            Weakness::Distance { distance, fraction } => (errors.exactly_until_peak(distance), fraction),
            Weakness::Any { fraction } => (errors.any(), fraction),
        };
        of_errors.and(Probability::from_ln(fraction.at(bound).ln()))
    }
}

/// The probability of errors that none of these checksums sees. With none of them, any error; with several, the least of
/// what each lets pass, which is true however they depend on each other.
pub fn undetected_by_all(checksums: &[Checksum], errors: BitErrors, bound: Bound) -> Probability {
    let each = checksums.iter().map(|checksum| checksum.undetected(errors, bound));
    each.reduce(|a, b| if a <= b { a } else { b }).unwrap_or_else(|| errors.any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arrival;

    fn fraction(word: &str) -> (u32, f64) {
        match Checksum::from_word(word).expect("a known checksum").weakness {
            Weakness::Distance { distance, fraction } => (distance, fraction.value()),
            Weakness::Any { fraction } => (1, fraction.value()),
        }
    }

    /// Multiples of the CRC32C polynomial with four terms and a degree below `bits`, found by trying: for each pair of
    /// terms the remainder that the other two must have is looked up.
    fn crc32c_counts(bits: usize) -> u64 {
        let remainders: Vec<u32> = std::iter::successors(Some(1u32), |&last| {
            Some(if last >> 31 == 1 { (last << 1) ^ 0x1EDC_6F41 } else { last << 1 })
        })
        .take(bits)
        .collect();
        let mut seen = vec![0u64; 1 << 18];
        let place = |remainder: u32| ((remainder >> 14) as usize, remainder >> 8 & 63);
        for &remainder in &remainders {
            let (word, bit) = place(remainder);
            seen[word] |= 1 << bit;
        }
        let exact: std::collections::HashMap<u32, usize> =
            remainders.iter().enumerate().map(|(at, &remainder)| (remainder, at)).collect();
        let mut count = 0;
        // Every multiple is a shift of one that begins with 1: 1 + x^b + x^c + x^d, b < c < d.
        for d in 3..bits {
            for c in 2..d {
                let wanted = 1 ^ remainders[d] ^ remainders[c];
                let (word, bit) = place(wanted);
                if seen[word] >> bit & 1 == 1 && exact.get(&wanted).is_some_and(|&b| 0 < b && b < c) {
                    count += (bits - d) as u64;
                }
            }
        }
        count
    }

    #[test]
    fn crc32c_misses_as_many_four_bit_errors_as_counted() {
        assert_eq!(crc32c_counts(5275), 0, "Koopman: distance 6 up to 5,243 bits of data and 32 of checksum");
        let counted = crc32c_counts(BLOCK_BITS as usize);
        assert_eq!(counted as f64, CRC32C_UNDETECTED);
        let (distance, fraction) = fraction("crc32c");
        assert_eq!(distance, 4);
        assert!((fraction / 4.323_307_672e-10 - 1.0).abs() < 1e-9, "{fraction}");
        // Near the 2^-31 of a random polynomial with the factor x + 1.
        assert!((fraction * 2f64.powi(31) - 1.0).abs() < 0.1, "{fraction}");
    }

    #[test]
    fn the_fraction_of_xor_is_that_of_pairs_in_one_column() {
        // Over all pairs of bits of a small block: 8 words of 4 bits.
        let (words, k) = (8usize, 4usize);
        let b = words * k;
        let pairs = (0..b).flat_map(|i| (i + 1..b).map(move |j| (i, j)));
        let missed = pairs.clone().filter(|(i, j)| i % k == j % k).count() as f64;
        let formula = (b - k) as f64 / (k * (b - 1)) as f64;
        assert!((missed / pairs.count() as f64 - formula).abs() < 1e-15);
        let (distance, fraction) = fraction("xor-64");
        assert_eq!(distance, 2);
        assert!((fraction - 32_704.0 / (64.0 * 32_767.0)).abs() < 1e-16);
    }

    #[test]
    fn ideal_hashes_miss_one_in_two_to_the_bits() {
        assert_eq!(fraction("xxh3-64").1, 2f64.powi(-64));
        assert_eq!(fraction("blake3").1, 2f64.powi(-256));
        assert!(Checksum::from_word("crc7").is_none());
        assert!(Checksum::WORDS.iter().all(|word| Checksum::from_word(word).is_some()));
    }

    #[test]
    fn two_checksums_are_as_good_as_the_better_one() {
        let errors = BitErrors::Arrivals { mean: 1e-9, arrival: Arrival::Independent };
        let both = [Checksum::xor_64(), Checksum::fletcher_256()];
        let better = both[1].undetected(errors, Bound::Value);
        assert_eq!(undetected_by_all(&both, errors, Bound::Value), better);
        assert_eq!(undetected_by_all(&[], errors, Bound::Value), errors.any());
    }

    #[test]
    fn more_errors_than_a_checksum_is_made_for_do_not_make_it_better() {
        let xor = Checksum::xor_64();
        let at = |mean| {
            let errors = BitErrors::Arrivals { mean, arrival: Arrival::Independent };
            xor.undetected(errors, Bound::Value)
        };
        assert!(at(1.0) < at(2.0));
        assert_eq!(at(2.0), at(1000.0));
    }
}
