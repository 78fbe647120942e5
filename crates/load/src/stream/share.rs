//! Choosing a share of a row of numbers so that the realised share is exact, at any length.
//!
//! Independent draws miss the nominal share by chance, and by far where they also depend on what was drawn before
//! (DEDISbench realises 13% of duplicates where 61% are asked for). Here a running count decides instead.

use rotproof_block::hash::mix;

/// A share with 32 bits after the point: exact arithmetic, the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

const ONE: u64 = 1 << 32;

impl Share {
    /// From a fraction; below 0 is 0, above 1 is 1.
    pub fn new(fraction: f64) -> Self {
        Self((fraction.clamp(0.0, 1.0) * ONE as f64).round() as u64)
    }

    /// How many of the first `count` numbers are chosen: the share of them, rounded down.
    #[inline]
    pub fn of(self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.0)) >> 32) as u64
    }

    /// Whether none is ever chosen.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether every one is chosen.
    pub fn is_one(self) -> bool {
        self.0 == ONE
    }
}

/// Numbers are shuffled within windows of this many, so that choices are exact per window but follow no period.
const WINDOW: u64 = 64;

/// Whether `index` is chosen, in an order that is irregular within windows of 64 and exact over each of them.
#[inline]
pub fn is_chosen_irregularly(share: Share, seed: u64, stream: u64, index: u64) -> bool {
    if share.is_zero() || share.is_one() {
        return share.is_one();
    }
    let window = index / WINDOW;
    let chosen = share.of((window + 1) * WINDOW) - share.of(window * WINDOW);
    permuted(mix(seed, stream, window), index % WINDOW, WINDOW.ilog2()) < chosen
}

/// A permutation of the numbers below 2^`bits`, chosen by `key`: rounds of odd multiplication, addition and an xor-shift,
/// each of which is invertible modulo a power of two.
#[inline]
pub fn permuted(key: u64, number: u64, bits: u32) -> u64 {
    let mask = (1u64 << bits) - 1;
    let shift = (bits / 2).max(1);
    let mut number = number;
    for round in 0..3 {
        let key = key >> (round * 16);
        number = number.wrapping_mul(key | 1).wrapping_add(key >> 7) & mask;
        number ^= number >> shift;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_shuffle_is_a_permutation_and_keys_give_different_ones() {
        let mut orders = std::collections::HashSet::new();
        for bits in [0, 1, 2, 7, 12] {
            let mut sorted: Vec<u64> =
                (0..1 << bits).map(|number| permuted(mix(1, 3, 5), number, bits)).collect();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..1 << bits).collect::<Vec<_>>());
        }
        for key in 0..500 {
            let order: Vec<u64> = (0..WINDOW).map(|number| permuted(mix(1, 2, key), number, 6)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..WINDOW).collect::<Vec<_>>());
            orders.insert(order);
        }
        assert!(orders.len() > 490, "only {} orders of 500 keys", orders.len());
    }

    #[test]
    fn the_choice_follows_no_period() {
        let half = Share::new(0.5);
        let chosen = |index| is_chosen_irregularly(half, 7, 1, index);
        // Of neighbours in a fair row half are equal, whatever the distance; a period would show as all or none.
        for distance in [1, 2, 3, 4, 8, 16, 32, 64, 128] {
            let equal = (0..20_000).filter(|&index| chosen(index) == chosen(index + distance)).count();
            assert!((8_000..12_000).contains(&equal), "distance {distance}: {equal} of 20000 equal");
        }
    }

    proptest! {
        #[test]
        fn the_realised_share_is_exact_to_the_window(fraction in 0.0f64..=1.0, seed: u64, windows in 1u64..50) {
            let share = Share::new(fraction);
            let count = windows * WINDOW;
            let chosen = (0..count).filter(|&index| is_chosen_irregularly(share, seed, 3, index)).count();
            prop_assert!((chosen as f64 - fraction * count as f64).abs() <= 1.0, "{} of {}", chosen, count);
        }
    }
}
