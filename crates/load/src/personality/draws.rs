//! Numbers drawn from a key: the same for the same key, whatever else is drawn.

use rotproof_block::hash::mix;

/// A row of draws.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    key: u64,
    next: u64,
}

impl Draws {
    /// The row that belongs to `purpose` and `number` in the run with this seed.
    pub(super) fn new(seed: u64, purpose: u64, number: u64) -> Self {
        Self { key: mix(seed, purpose, number), next: 0 }
    }

    fn word(&mut self) -> u64 {
        self.next += 1;
        mix(self.key, 0, self.next)
    }

    /// Uniform from 0 to `end` - 1.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform between 0 and 1, never either of them.
    fn unit(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// By Box and Muller (1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Gamma-distributed with this mean; the shape is at least 1. By rejection as in Marsaglia and Tsang, "A simple
    /// method for generating gamma variables" (2000).
    pub(super) fn gamma(&mut self, mean: f64, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && libm::log(self.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v * mean / shape;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_draws_have_the_moments_of_the_distribution() {
        const DRAWS: u32 = 50_000;
        let (mean, shape) = (16384.0, 1.5);
        let mut draws = Draws::new(1, 2, 3);
        let all: Vec<f64> = (0..DRAWS).map(|_| draws.gamma(mean, shape)).collect();
        let count = f64::from(DRAWS);
        let found = all.iter().sum::<f64>() / count;
        let variance = all.iter().map(|x| (x - found).powi(2)).sum::<f64>() / count;
        let skewness = all.iter().map(|x| (x - found).powi(3)).sum::<f64>() / count / variance.powf(1.5);
        // Mean k t, variance k t^2, skewness 2 / sqrt(k); six deviations of the sample mean.
        assert!((found / mean - 1.0).abs() < 6.0 / (shape * count).sqrt(), "{found}");
        assert!((variance / (mean * mean / shape) - 1.0).abs() < 0.05, "{variance}");
        assert!((skewness / (2.0 / shape.sqrt()) - 1.0).abs() < 0.1, "{skewness}");
    }

    #[test]
    fn gamma_draws_fill_the_classes_of_the_distribution_evenly() {
        // Deciles of the gamma distribution with shape 1.5 and scale 1, which is half of chi-square with 3 degrees of
        // freedom, whose deciles are tabulated.
        let chi_square_deciles = [0.584, 1.005, 1.424, 1.869, 2.366, 2.946, 3.665, 4.642, 6.251];
        let deciles = chi_square_deciles.map(|decile| decile / 2.0);
        const DRAWS: u32 = 20_000;
        let mut draws = Draws::new(7, 7, 7);
        let mut counts = [0u32; 10];
        for _ in 0..DRAWS {
            let draw = draws.gamma(1.5, 1.5);
            counts[deciles.iter().filter(|&&decile| draw > decile).count()] += 1;
        }
        let expected = f64::from(DRAWS) / 10.0;
        let chi_square: f64 =
            counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        // 9 degrees of freedom: above 33.7 with probability 1e-4.
        assert!(chi_square < 33.7, "{counts:?}: {chi_square}");
    }

    #[test]
    fn uniform_draws_reach_both_ends_and_follow_their_key() {
        let draws = |number| {
            let mut draws = Draws::new(1, 2, number);
            (0..200).map(move |_| draws.below(5)).collect::<Vec<_>>()
        };
        assert!((0..5).all(|value| draws(1).contains(&value)) && draws(1).iter().all(|&value| value < 5));
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
