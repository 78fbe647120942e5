//! How many bits of one block are wrong: the distributions, exact in log space.

use crate::{BLOCK_BITS, Probability};

/// How errors of a rate come: alone, in bursts, or mostly in a few devices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrival {
    /// Each alone: a Poisson process, as the framework assumes.
    #[default]
    Independent,
    /// In bursts within the block: after each error another one belongs to it with this probability, below 1. The number of
    /// errors is then Pólya-Aeppli (geometric Poisson; Johnson, Kemp, Kotz, *Univariate Discrete Distributions*,
    /// 9.7). The mean rate stays that of the device.
    Bursts {
        /// Probability that a burst goes on; the mean length is 1 / (1 - it).
        continuation: f64,
    },
    /// The rate differs from device to device with a gamma distribution of this shape, so that a block's number of errors
    /// is negative binomial; the smaller the shape, the fewer the devices that have most errors. The mean rate stays.
    Clustered {
        /// Shape of the gamma distribution, above 0; infinity would be `Independent`.
        shape: f64,
    },
}

/// The distribution of the number of wrong bits in a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BitErrors {
    /// Each bit is wrong with this probability: P(i) = C(b, i) u^i (1 - u)^(b - i).
    Binomial {
        /// Probability u of each bit.
        rate: f64,
    },
    /// Errors arrived over time; `mean` is the expected number of wrong bits, b l t.
    Arrivals {
        /// Expected number.
        mean: f64,
        /// How they come.
        arrival: Arrival,
    },
}

impl BitErrors {
    /// The probability of exactly `count` wrong bits.
    pub fn exactly(self, count: u32) -> Probability {
        match self {
            BitErrors::Binomial { rate } => binomial(rate, count),
            BitErrors::Arrivals { mean, arrival } => {
                if mean <= 0.0 {
                    return if count == 0 { Probability::CERTAIN } else { Probability::NEVER };
                }
                match arrival {
                    Arrival::Independent => poisson(mean, count),
                    Arrival::Bursts { continuation } => polya_aeppli(mean, continuation, count),
                    Arrival::Clustered { shape } => negative_binomial(mean, shape, count),
                }
            }
        }
    }

    /// The same, but held at its largest value where more than `count` errors are to be expected: beyond it the formula
    /// of P_udc would fall, though more errors make no block better.
    pub fn exactly_until_peak(self, count: u32) -> Probability {
        let count_f = f64::from(count);
        let held = match self {
            BitErrors::Binomial { rate } => {
                BitErrors::Binomial { rate: rate.min(count_f / f64::from(BLOCK_BITS)) }
            }
            BitErrors::Arrivals { mean, arrival } => BitErrors::Arrivals { mean: mean.min(count_f), arrival },
        };
        held.exactly(count)
    }

    /// The probability of any wrong bit: the sum over all counts from 1 on.
    pub fn any(self) -> Probability {
        match self {
            // 1 - (1 - u)^b.
            BitErrors::Binomial { rate } => {
                Probability::from_ln(f64::from(BLOCK_BITS) * (-rate).ln_1p()).complement()
            }
            BitErrors::Arrivals { mean, arrival: Arrival::Independent } => Probability::any_of_poisson(mean),
            BitErrors::Arrivals { mean, arrival: Arrival::Bursts { continuation } } => {
                Probability::any_of_poisson(mean * (1.0 - continuation))
            }
            // 1 - (1 + mean / shape)^-shape.
            BitErrors::Arrivals { mean, arrival: Arrival::Clustered { shape } } => {
                Probability::from_ln(-shape * (mean / shape).ln_1p()).complement()
            }
        }
    }
}

fn binomial(rate: f64, count: u32) -> Probability {
    if count > BLOCK_BITS {
        return Probability::NEVER;
    }
    if rate <= 0.0 || rate >= 1.0 {
        let is_certain = if rate <= 0.0 { count == 0 } else { count == BLOCK_BITS };
        return if is_certain { Probability::CERTAIN } else { Probability::NEVER };
    }
    let (count_f, all) = (f64::from(count), f64::from(BLOCK_BITS));
    Probability::from_ln(
        ln_choose(BLOCK_BITS, count) + count_f * rate.ln() + (all - count_f) * (-rate).ln_1p(),
    )
}

fn poisson(mean: f64, count: u32) -> Probability {
    Probability::from_ln(f64::from(count) * mean.ln() - mean - ln_factorial(count))
}

/// Sum over the number k of bursts: Poisson(theta, k) C(n-1, k-1) (1 - p)^k p^(n-k), theta the expected number of bursts.
fn polya_aeppli(mean: f64, continuation: f64, count: u32) -> Probability {
    let bursts = mean * (1.0 - continuation);
    if count == 0 || continuation <= 0.0 {
        return poisson(bursts, count);
    }
    (1..=count)
        .map(|k| {
            let shares = ln_choose(count - 1, k - 1)
                + f64::from(k) * (-continuation).ln_1p()
                + f64::from(count - k) * continuation.ln();
            poisson(bursts, k).and(Probability::from_ln(shares))
        })
        .sum()
}

/// Gamma(r + n) / (n! Gamma(r)) (r / (r + m))^r (m / (r + m))^n, the quotient of gammas as the product it is.
fn negative_binomial(mean: f64, shape: f64, count: u32) -> Probability {
    let rising: f64 = (0..count).map(|k| (shape + f64::from(k)).ln()).sum();
    let ln = rising - ln_factorial(count) - shape * (mean / shape).ln_1p()
        + f64::from(count) * (mean.ln() - shape.ln() - (mean / shape).ln_1p());
    Probability::from_ln(ln)
}

fn ln_factorial(number: u32) -> f64 {
    (2..=number).map(|factor| f64::from(factor).ln()).sum()
}

/// The logarithm of C(n, k), exact to the last digits as long as k or n - k is small, which is all we need.
pub(crate) fn ln_choose(n: u32, k: u32) -> f64 {
    let k = k.min(n - k);
    (0..k).map(|i| (f64::from(n - i) / f64::from(i + 1)).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVALS: [Arrival; 3] =
        [Arrival::Independent, Arrival::Bursts { continuation: 0.3 }, Arrival::Clustered { shape: 0.2 }];

    #[test]
    fn each_distribution_sums_to_one_and_has_its_mean() {
        let mut laws: Vec<BitErrors> =
            ARRIVALS.map(|arrival| BitErrors::Arrivals { mean: 1.5, arrival }).to_vec();
        laws.push(BitErrors::Binomial { rate: 1.5 / f64::from(BLOCK_BITS) });
        for law in laws {
            let probabilities: Vec<f64> = (0..400).map(|count| law.exactly(count).value()).collect();
            let sum: f64 = probabilities.iter().sum();
            let mean: f64 = probabilities.iter().enumerate().map(|(count, p)| count as f64 * p).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{law:?}: {sum}");
            assert!((mean - 1.5).abs() < 1e-9, "{law:?}: {mean}");
            assert!((law.any().value() - (1.0 - probabilities[0])).abs() < 1e-12, "{law:?}");
        }
    }

    #[test]
    fn bursts_and_clusters_make_several_errors_in_one_block_likelier() {
        let twice = |arrival| BitErrors::Arrivals { mean: 1e-9, arrival }.exactly(2).value();
        let [alone, bursts, clustered] = ARRIVALS.map(twice);
        assert!(bursts > 1e6 * alone, "{bursts} {alone}");
        assert!((clustered / alone - 6.0).abs() < 1e-6, "(1 + 1/shape) times: {}", clustered / alone);
    }

    #[test]
    fn the_limits_are_the_independent_law() {
        for count in 0..5 {
            let alone = BitErrors::Arrivals { mean: 0.3, arrival: Arrival::Independent }.exactly(count).ln();
            for arrival in [Arrival::Bursts { continuation: 0.0 }, Arrival::Clustered { shape: 1e12 }] {
                let other = BitErrors::Arrivals { mean: 0.3, arrival }.exactly(count).ln();
                assert!((alone - other).abs() < 1e-9, "{arrival:?} {count}");
            }
        }
    }

    #[test]
    fn without_a_rate_nothing_goes_wrong_and_with_the_largest_everything_does() {
        assert_eq!(BitErrors::Binomial { rate: 0.0 }.any(), Probability::NEVER);
        assert_eq!(BitErrors::Binomial { rate: 0.0 }.exactly(0), Probability::CERTAIN);
        assert_eq!(BitErrors::Binomial { rate: 1.0 }.any(), Probability::CERTAIN);
        assert_eq!(BitErrors::Binomial { rate: 1.0 }.exactly(3), Probability::NEVER);
        for arrival in ARRIVALS {
            assert_eq!(BitErrors::Arrivals { mean: 0.0, arrival }.any(), Probability::NEVER);
            assert_eq!(BitErrors::Arrivals { mean: 0.0, arrival }.exactly(1), Probability::NEVER);
        }
    }
}
