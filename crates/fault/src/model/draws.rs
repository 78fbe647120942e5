//! What chance decides for a model: a stream of numbers that depends on the seed, the name and the kind of the model
//! alone, and the distributions that models need.

use rotproof_block::ContentHash;
use rotproof_block::hash::mix;

/// A stream of random numbers. Equal streams give equal numbers in the same order.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    seed: u64,
    stream: u64,
    drawn: u64,
}

impl Draws {
    /// The stream of the model of that kind and name.
    pub(crate) fn new(seed: u64, name: &str, kind: &str) -> Self {
        let key = ContentHash::of(format!("{kind}\0{name}").as_bytes());
        Self { seed, stream: key.0 as u64, drawn: 0 }
    }

    fn next(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.stream, self.drawn)
    }

    /// Evenly in (0, 1].
    pub(crate) fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// True with that probability.
    pub(crate) fn comes_true(&mut self, probability: f64) -> bool {
        self.share() <= probability
    }

    /// Evenly among `0..bound`; 0 if there is nothing to choose.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // 2^-64 of bias at most, by multiplication instead of a remainder.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.share().ln()
    }

    /// How many of what happens `mean` times on average, each for itself (Poisson); at most `most`.
    pub(crate) fn count(&mut self, mean: f64, most: u64) -> u64 {
        let mut passed = 0.0;
        (0..most)
            .find(|_| {
                passed += self.exponential(1.0);
                passed > mean
            })
            .unwrap_or(most)
    }

    /// How many tries fail before the first success, `mean` on average (geometric).
    pub(crate) fn failures(&mut self, mean: f64) -> u64 {
        if mean <= 0.0 {
            return 0;
        }
        // A success has the probability 1 / (1 + mean), so a failure mean / (1 + mean).
        (self.share().ln() / (mean / (1.0 + mean)).ln()) as u64
    }

    /// Weibull with this scale and shape.
    pub(crate) fn weibull(&mut self, scale: f64, shape: f64) -> f64 {
        scale * self.exponential(1.0).powf(1.0 / shape)
    }
}

#[cfg(test)]
pub(crate) mod statistics {
    //! Whether samples are what a distribution says.

    /// Fails unless the mean of `samples` is within five standard errors of `mean`; `deviation` is the standard
    /// deviation of one sample.
    pub(crate) fn assert_mean(what: &str, samples: &[f64], mean: f64, deviation: f64) {
        let found = samples.iter().sum::<f64>() / samples.len() as f64;
        let error = deviation / (samples.len() as f64).sqrt();
        assert!((found - mean).abs() <= 5.0 * error, "{what}: {found}, not {mean} +- {error}");
    }

    /// Fails unless about `share` of `all` are `hits`, within five standard deviations of a binomial.
    pub(crate) fn assert_share(what: &str, hits: usize, all: usize, share: f64) {
        let found = hits as f64 / all as f64;
        let error = (share * (1.0 - share) / all as f64).sqrt();
        assert!((found - share).abs() <= 5.0 * error, "{what}: {found} of {all}, not {share} +- {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::statistics::{assert_mean, assert_share};
    use super::*;

    fn draws() -> Draws {
        Draws::new(1, "media", "bit_rot")
    }

    #[test]
    fn a_stream_depends_on_seed_name_and_kind_and_on_nothing_else() {
        let first = |mut draws: Draws| [draws.next(), draws.next()];
        let same = first(Draws::new(1, "a", "bit_rot"));
        assert_eq!(first(Draws::new(1, "a", "bit_rot")), same);
        for (seed, name, kind) in [(2, "a", "bit_rot"), (1, "b", "bit_rot"), (1, "a", "fail_slow")] {
            assert_ne!(first(Draws::new(seed, name, kind)), same);
        }
    }

    #[test]
    fn each_distribution_has_its_mean() {
        let mut draws = draws();
        let mut mean_of = |what: &str, mean: f64, deviation: f64, draw: &mut dyn FnMut(&mut Draws) -> f64| {
            let samples: Vec<f64> = (0..20_000).map(|_| draw(&mut draws)).collect();
            assert_mean(what, &samples, mean, deviation);
        };
        mean_of("share", 0.5, (1.0f64 / 12.0).sqrt(), &mut Draws::share);
        mean_of("below", 4.5, (99.0f64 / 12.0).sqrt(), &mut |draws| draws.below(10) as f64);
        mean_of("exponential", 3.0, 3.0, &mut |draws| draws.exponential(3.0));
        mean_of("count", 7.5, 7.5f64.sqrt(), &mut |draws| draws.count(7.5, 1000) as f64);
        mean_of("failures", 2.0, 6.0f64.sqrt(), &mut |draws| draws.failures(2.0) as f64);
        // Gamma(1.5) = sqrt(pi) / 2; the second moment is Gamma(2) = 1.
        let mean = std::f64::consts::PI.sqrt() / 2.0;
        mean_of("weibull", mean, (1.0 - mean * mean).sqrt(), &mut |draws| draws.weibull(1.0, 2.0));
        let hits = (0..20_000).filter(|_| draws.comes_true(0.03)).count();
        assert_share("comes true", hits, 20_000, 0.03);
    }

    #[test]
    fn nothing_and_certainty_are_exact() {
        let mut draws = draws();
        assert_eq!((draws.failures(0.0), draws.count(0.0, 10), draws.below(0)), (0, 0, 0));
        assert_eq!(draws.count(1e300, 10), 10);
        assert!((0..1000).all(|_| draws.comes_true(1.0) && !draws.comes_true(0.0)));
    }
}
