//! Random numbers of one group: a stream that depends on the seed and the group's number only.

/// A stream: splitmix64 (Steele, Lea, Flood, OOPSLA 2014), begun at a mixture of seed and number.
#[derive(Clone, Debug)]
pub struct Stream(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream of a group; `seed` went through [`Stream::seed`].
    pub fn new(seed: u64, group: u64) -> Self {
        // Without the second mixing the streams of neighbouring groups would be one stream, shifted.
        Self(mix(seed ^ mix(group.wrapping_mul(GOLDEN))))
    }

    /// What all groups share of a seed.
    pub fn seed(seed: u64) -> u64 {
        mix(seed.wrapping_add(GOLDEN))
    }

    /// A number from 0 to 1, both excluded, of 52 bits.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        ((mix(self.0) >> 12) as f64 + 0.5) * 2f64.powi(-52)
    }

    /// A waiting time in units of its mean.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// How many, if after each there is another one with this probability; at least 1.
    pub fn geometric(&mut self, continuation: f64) -> f64 {
        if continuation <= 0.0 { 1.0 } else { 1.0 + (self.uniform().ln() / continuation.ln()).floor() }
    }

    /// A number of the gamma distribution with this shape and the mean 1 (Marsaglia, Tsang, *ACM TOMS* 26(3), 2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        // Below 1 through the next shape: G(a) = G(a + 1) U^(1/a).
        let (raised, factor) =
            if shape < 1.0 { (shape + 1.0, self.uniform().powf(1.0 / shape)) } else { (shape, 1.0) };
        let d = raised - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * factor / shape;
            }
        }
    }

    /// A standard normal number (Box, Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of many draws, the n-th of the stream of group n, as a fleet draws them.
    fn moments(draw: impl Fn(&mut Stream) -> f64) -> (f64, f64) {
        let count = 200_000u64;
        let seed = Stream::seed(7);
        let values: Vec<f64> = (0..count).map(|group| draw(&mut Stream::new(seed, group))).collect();
        let mean = values.iter().sum::<f64>() / count as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
        (mean, variance)
    }

    #[test]
    fn the_first_draws_of_all_groups_have_the_moments_of_their_distribution() {
        let near = |(mean, variance): (f64, f64), wanted: (f64, f64)| {
            assert!((mean - wanted.0).abs() < 0.01 * wanted.0.max(1.0), "{mean} for {}", wanted.0);
            assert!((variance - wanted.1).abs() < 0.05 * wanted.1.max(0.05), "{variance} for {}", wanted.1);
        };
        near(moments(Stream::uniform), (0.5, 1.0 / 12.0));
        near(moments(Stream::exponential), (1.0, 1.0));
        near(moments(|stream| stream.geometric(0.5)), (2.0, 2.0));
        near(moments(|stream| stream.geometric(0.0)), (1.0, 0.0));
        near(moments(|stream| stream.gamma(4.0)), (1.0, 0.25));
        near(moments(|stream| stream.gamma(0.5)), (1.0, 2.0));
    }

    #[test]
    fn neighbouring_groups_do_not_share_their_numbers() {
        let seed = Stream::seed(1);
        let mut seen = std::collections::HashSet::new();
        for group in 0..1000 {
            let mut stream = Stream::new(seed, group);
            for _ in 0..20 {
                assert!(seen.insert(stream.uniform().to_bits()));
            }
        }
    }
}
