//! When whole devices fail: the hazard of a Weibull distribution, and the death that may come before.

use super::random::Stream;

/// The time to failure of a device: Weibull, by what a new device suffers in its first year.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hazard {
    /// Cumulative hazard of the first year: -ln(1 - annual failure rate). With shape 1, failures per year at any age.
    pub first_year: f64,
    /// Below 1 the young fail more, at 1 all ages alike, above 1 the old.
    pub shape: f64,
}

impl Hazard {
    /// The same at all ages.
    pub const fn constant(per_year: f64) -> Self {
        Self { first_year: per_year, shape: 1.0 }
    }

    /// Whether age makes no difference.
    pub fn is_constant(self) -> bool {
        self.shape == 1.0
    }

    /// What a device suffers from one age in years to another.
    pub fn between(self, from: f64, to: f64) -> f64 {
        if self.is_constant() {
            return self.first_year * (to - from);
        }
        self.first_year * (to.powf(self.shape) - from.powf(self.shape))
    }

    /// The rate at an age, per year.
    pub(super) fn at(self, age: f64) -> f64 {
        if self.is_constant() {
            return self.first_year;
        }
        // A rate at the very first moment is infinite for shapes below 1, and nothing happens at it.
        self.first_year * self.shape * age.max(1e-12).powf(self.shape - 1.0)
    }

    /// Years after the age `from` until so much more has been suffered.
    pub(super) fn until(self, from: f64, more: f64) -> f64 {
        if self.first_year <= 0.0 {
            return f64::INFINITY;
        }
        if self.is_constant() {
            return more / self.first_year;
        }
        let suffered = from.powf(self.shape) + more / self.first_year;
        (suffered.powf(1.0 / self.shape) - from).max(0.0)
    }
}

/// How a device dies: from the moment at which its failure is decided, blocks turn bad ever more often, until it fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Death {
    /// How long it takes, in years.
    pub years: f64,
    /// Sectors that have turned bad in the end, on average (Poisson).
    pub errors: f64,
    /// How many times more often sectors turn bad in the end than at first.
    pub growth: f64,
    /// So many of them, the first, can be repaired; those after stay bad until the device has failed.
    pub spares: u64,
}

impl Death {
    /// When sectors turn bad, as shares of the death, in order.
    pub(super) fn draw(self, stream: &mut Stream) -> Vec<f64> {
        let mut shares = Vec::new();
        let mut passed = stream.exponential();
        while passed <= self.errors {
            // The inverse of what has come by then: (growth^t - 1) / (growth - 1).
            let (share, log) = (stream.uniform(), self.growth.ln());
            shares.push(if log < 1e-9 { share } else { (share * log.exp_m1()).ln_1p() / log });
            passed += stream.exponential();
        }
        shares.sort_by(f64::total_cmp);
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hazard_and_its_inverse_fit_together_at_every_shape_and_age() {
        for shape in [0.5, 1.0, 2.5] {
            let hazard = Hazard { first_year: 0.04, shape };
            assert!((hazard.between(0.0, 1.0) - 0.04).abs() < 1e-15);
            for (age, more) in [(0.0, 0.01), (0.3, 2.0), (7.0, 1e-6)] {
                let years = hazard.until(age, more);
                assert!((hazard.between(age, age + years) / more - 1.0).abs() < 1e-6, "{shape} {age} {more}");
                let (at, step) = (age + 1.0, 1e-5);
                let slope = hazard.between(at - step, at + step) / (2.0 * step);
                assert!((hazard.at(at) / slope - 1.0).abs() < 1e-6);
            }
        }
        assert_eq!(Hazard::constant(0.0).until(1.0, 1.0), f64::INFINITY);
    }

    #[test]
    fn a_death_has_its_errors_most_of_them_late() {
        let death = Death { years: 0.1, errors: 40.0, growth: 100.0, spares: 0 };
        let seed = Stream::seed(1);
        let deaths: Vec<Vec<f64>> =
            (0..5000).map(|group| death.draw(&mut Stream::new(seed, group))).collect();
        let all = deaths.iter().map(Vec::len).sum::<usize>() as f64;
        assert!((all / 5000.0 - 40.0).abs() < 0.5, "{all}");
        // By half of the time a tenth, less what has come at first: (sqrt g - 1) / (g - 1).
        let early = deaths.iter().flatten().filter(|share| **share < 0.5).count() as f64;
        assert!((early / all - 9.0 / 99.0).abs() < 0.005, "{}", early / all);
        assert!(deaths.iter().all(|death| death.is_sorted()));
    }
}
