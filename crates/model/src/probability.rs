//! A probability as its natural logarithm, so that 1e-300 is as exact as 0.1.
//!
//! Nothing here subtracts two numbers that are nearly equal: 1 - p goes through `ln_1p` and `exp_m1`, sums through
//! log-sum-exp.

use std::f64::consts::LN_10;

/// A probability from 0 to 1, kept as its logarithm.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Probability(f64);

/// Below this logarithm, e^x is lost beside 1 in a double.
const NEGLIGIBLE_LN: f64 = -37.0;

impl Probability {
    /// What cannot happen.
    pub const NEVER: Self = Self(f64::NEG_INFINITY);
    /// What must happen.
    pub const CERTAIN: Self = Self(0.0);

    /// From the number itself; `None` outside 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then(|| Self(value.ln()))
    }

    /// From the natural logarithm. What rounding has put above 1 is 1, and no number at all is 1 too: the model errs
    /// towards danger.
    pub fn from_ln(ln: f64) -> Self {
        if ln.is_nan() { Self::CERTAIN } else { Self(ln.min(0.0)) }
    }

    /// From a score.
    pub fn from_score(score: f64) -> Self {
        Self::from_ln(-score * LN_10)
    }

    /// Its natural logarithm; minus infinity for 0.
    pub fn ln(self) -> f64 {
        self.0
    }

    /// The number itself; 0 where it is below what a double holds, about 1e-308.
    pub fn value(self) -> f64 {
        self.0.exp()
    }

    /// The reliability score, -log10 p; infinity for 0.
    pub fn score(self) -> f64 {
        // Without the zero's sign of `-ln(1)`.
        -self.0 / LN_10 + 0.0
    }

    /// 1 - p.
    #[must_use]
    pub fn complement(self) -> Self {
        // Either form is exact where the other is not (Mächler 2012, "Accurately computing log(1 - exp(-|a|))").
        if self.0 > -std::f64::consts::LN_2 {
            Self::from_ln((-self.0.exp_m1()).ln())
        } else {
            Self::from_ln((-self.0.exp()).ln_1p())
        }
    }

    /// The probability that both happen, which have nothing to do with each other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::from_ln(self.0 + other.0)
    }

    /// The sum: the probability of either, if they exclude each other. At most 1.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (large, small) = if self.0 >= other.0 { (self.0, other.0) } else { (other.0, self.0) };
        if small == f64::NEG_INFINITY {
            return Self(large);
        }
        Self::from_ln(large + (small - large).exp().ln_1p())
    }

    /// The probability that it happens at least once in `times` independent tries; `times` may be a fraction.
    #[must_use]
    pub fn at_least_once(self, times: f64) -> Self {
        if times <= 0.0 {
            return Self::NEVER;
        }
        let expected = self.0 + times.ln();
        if expected.max(self.0) < NEGLIGIBLE_LN {
            return Self::from_ln(expected);
        }
        // 1 - (1 - p)^times.
        Self::from_ln(times * self.complement().0).complement()
    }

    /// 1 - e^-mean: at least one event of a Poisson process.
    pub fn any_of_poisson(mean: f64) -> Self {
        Self::from_ln(-mean).complement()
    }
}

impl std::fmt::Debug for Probability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Probability(score {})", self.score())
    }
}

impl std::iter::Sum for Probability {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::NEVER, Self::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(value: f64) -> Probability {
        Probability::new(value).expect("a probability")
    }

    fn assert_near(found: Probability, wanted_ln: f64) {
        let error = (found.ln() - wanted_ln).abs();
        assert!(error <= 1e-14 * wanted_ln.abs().max(1.0), "{} instead of {wanted_ln}", found.ln());
    }

    #[test]
    fn a_tiny_probability_survives_what_would_cancel() {
        let tiny = Probability::from_score(200.0);
        assert_near(tiny.complement().complement(), tiny.ln());
        assert_near(tiny.plus(tiny), tiny.ln() + std::f64::consts::LN_2);
        assert_near(p(1e-20).at_least_once(3.0), (3e-20f64).ln());
        assert_near(Probability::any_of_poisson(1e-30), (1e-30f64).ln());
        assert_near(Probability::from_score(400.0).at_least_once(1e6), Probability::from_score(394.0).ln());
    }

    #[test]
    fn ordinary_probabilities_are_as_usual() {
        assert_near(p(0.25).complement(), 0.75f64.ln());
        assert_near(p(0.25).plus(p(0.5)), 0.75f64.ln());
        assert_near(p(0.5).at_least_once(2.0), 0.75f64.ln());
        assert_near(p(0.5).and(p(0.5)), 0.25f64.ln());
        assert_eq!(p(0.75).plus(p(0.75)), Probability::CERTAIN);
        assert_eq!(Probability::CERTAIN.complement(), Probability::NEVER);
        assert_eq!(Probability::NEVER.complement(), Probability::CERTAIN);
        assert_eq!(Probability::CERTAIN.score(), 0.0);
        assert!(Probability::new(1.1).is_none() && Probability::new(f64::NAN).is_none());
        assert_eq!(Probability::CERTAIN.at_least_once(0.0), Probability::NEVER);
    }
}
