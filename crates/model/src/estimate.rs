//! From counts of trials to probabilities with 95% intervals: Zhang, section 3.4.
//!
//! The interval is Clopper and Pearson's (Biometrika 26, 1934): both limits solve a binomial tail of 2.5%, so it holds
//! the true value in at least 95 of 100 campaigns whatever that value is. Wilson's is shorter but holds it less often for
//! rates near 0 and 1, which is where fault injection lives; and it is Clopper and Pearson's that gives the published
//! 9% [4, 17] of 9 in 100, its ends rounded outwards.

use crate::{Probability, Uncertain};

/// Part of the distribution beyond each end of a 95% interval.
const TAIL: f64 = 0.025;

/// P_k: the share of trials with an outcome. `None` for no trials, or more outcomes than trials.
///
/// Without any such outcome the best estimate is 0 here; where a rate is needed to reckon with, see
/// [`undetected_fraction`].
pub fn share(outcomes: u64, trials: u64) -> Option<Uncertain> {
    if trials == 0 || outcomes > trials {
        return None;
    }
    let (x, n) = (outcomes as f64, trials as f64);
    let low = if outcomes == 0 { 0.0 } else { beta_quantile(TAIL, x, n - x + 1.0) };
    let high = if outcomes == trials { 1.0 } else { beta_quantile(1.0 - TAIL, x + 1.0, n - x) };
    Uncertain::new(low.min(x / n), x / n, high.max(x / n))
}

/// P_1 of an outcome that k injected faults bring about: 1 - (1 - P_k)^(1/k).
pub fn of_one_fault(share: Uncertain, faults: u32) -> Uncertain {
    let each = 1.0 / f64::from(faults.max(1));
    share.map(|p| Probability::new(p).map_or(1.0, |p| p.complement().ln() * each).exp_m1().abs())
}

/// P_1 of surviving: P_k^(1/k).
pub fn of_surviving_one_fault(share: Uncertain, faults: u32) -> Uncertain {
    let each = 1.0 / f64::from(faults.max(1));
    share.map(|p| p.powf(each))
}

/// The fraction of errors that passes undetected, from a campaign in which `undetected` of `all` did. With none, the best
/// estimate is the median-unbiased one, the fraction at which none would be found in every second campaign:
/// nothing found is not nothing there.
pub fn undetected_fraction(undetected: u64, all: u64) -> Option<Uncertain> {
    let share = share(undetected, all)?;
    if undetected > 0 {
        return Some(share);
    }
    let median = -(-std::f64::consts::LN_2 / all as f64).exp_m1();
    Uncertain::new(0.0, median, share.at(crate::Bound::High))
}

/// The x at which the regularised incomplete beta function is `probability`, by bisection.
fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..1100 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if incomplete_beta(middle, a, b) < probability { low = middle } else { high = middle }
    }
    low
}

/// The regularised incomplete beta function by its continued fraction (Press et al., *Numerical Recipes*, 6.4).
pub fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let ln_front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    // The fraction converges fast on this side of the mean only.
    if x < (a + 1.0) / (a + b + 2.0) {
        ln_front.exp() * continued_fraction(x, a, b) / a
    } else {
        1.0 - ln_front.exp() * continued_fraction(1.0 - x, b, a) / b
    }
}

/// Lentz's method.
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let apart = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / apart(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    // The number of terms grows with the square root of the larger parameter.
    for m in 1..100_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = result;
        for term in [even, odd] {
            d = 1.0 / apart(1.0 + term * d);
            c = apart(1.0 + term / c);
            result *= d * c;
        }
        if (result / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Stirling's series, after the argument was raised to where eight terms are exact.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut z = x;
    while z < 12.0 {
        shift += z.ln();
        z += 1.0;
    }
    let inverse = 1.0 / (z * z);
    let series = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
    ];
    let tail = series.iter().rev().fold(0.0, |sum, term| sum * inverse + term) / z;
    (z - 0.5) * z.ln() - z + 0.5 * (2.0 * std::f64::consts::PI).ln() + tail - shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bound;

    fn percent(number: Uncertain) -> [f64; 3] {
        [Bound::Low, Bound::Value, Bound::High].map(|bound| number.at(bound) * 100.0)
    }

    #[test]
    fn the_published_example_comes_out_with_its_ends_rounded_outwards() {
        // varmail: P16(R) = 9% [4, 17], P1(R) = 0.6% [0.2, 1.2].
        let share = share(9, 100).expect("a share");
        let [low, value, high] = percent(share);
        assert_eq!((low.floor(), value.round(), high.ceil()), (4.0, 9.0, 17.0));
        let [low, value, high] = percent(of_one_fault(share, 16)).map(|percent| percent * 10.0);
        assert_eq!((low.floor(), value.round(), high.ceil()), (2.0, 6.0, 12.0));
    }

    /// P(X >= x) by adding up, the definition.
    fn upper_tail(x: u64, n: u64, p: f64) -> f64 {
        let ln_choose = |k: u64| (0..k).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum::<f64>();
        (x..=n).map(|k| (ln_choose(k) + k as f64 * p.ln() + (n - k) as f64 * (-p).ln_1p()).exp()).sum()
    }

    #[test]
    fn the_limits_are_where_the_binomial_tails_are_two_and_a_half_percent() {
        for (x, n) in [(1, 2), (9, 100), (1, 1000), (999, 1000), (50, 51), (300, 1000)] {
            let share = share(x, n).expect("a share");
            assert!((upper_tail(x, n, share.at(Bound::Low)) - 0.025).abs() < 1e-9, "{x} of {n}");
            assert!((1.0 - upper_tail(x + 1, n, share.at(Bound::High)) - 0.025).abs() < 1e-9, "{x} of {n}");
        }
    }

    #[test]
    fn none_and_all_have_one_sided_limits_in_closed_form() {
        let none = share(0, 100).expect("a share");
        assert_eq!((none.at(Bound::Low), none.value()), (0.0, 0.0));
        assert!((none.at(Bound::High) - (1.0 - 0.025f64.powf(0.01))).abs() < 1e-12);
        let all = share(100, 100).expect("a share");
        assert_eq!((all.value(), all.at(Bound::High)), (1.0, 1.0));
        assert!((all.at(Bound::Low) - 0.025f64.powf(0.01)).abs() < 1e-12);
        assert!(share(0, 0).is_none() && share(3, 2).is_none());
        // As many trials as anybody will ever have.
        let many = share(1_000_000, 1_000_000_000).expect("a share");
        assert!(many.at(Bound::Low) < 1e-3 && many.at(Bound::Low) > 0.99e-3);
    }

    #[test]
    fn nothing_found_is_not_nothing_there() {
        let fraction = undetected_fraction(0, 1000).expect("a fraction");
        assert!((fraction.value() - 6.929e-4).abs() < 1e-6, "{fraction:?}");
        assert!(fraction.at(Bound::High) > 0.003);
        assert_eq!(undetected_fraction(3, 1000), share(3, 1000));
    }

    #[test]
    fn one_fault_out_of_k_is_undone_by_k_of_them() {
        let share = share(30, 200).expect("a share");
        let one = of_one_fault(share, 16).value();
        assert!((1.0 - (1.0 - one).powi(16) - 0.15).abs() < 1e-12);
        let survive = of_surviving_one_fault(share, 16).value();
        assert!((survive.powi(16) - 0.15).abs() < 1e-12);
        assert_eq!(of_one_fault(Uncertain::exact(1.0), 16).value(), 1.0);
    }
}
