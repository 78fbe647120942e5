//! Where request number `index` of a worker goes: a pure function for each pattern, over `count` places.
//!
//! Logarithms come from `libm`, whose results are the same on every machine, so that a seed means the same everywhere.

use rotproof_block::hash::mix;

use crate::pattern::Pattern;

/// The `k`-th random number of a request is that of the stream `DRAWS + k`.
const DRAWS: u64 = 0x91_ace5;
/// Numbers that a request may draw; the chance that a rejection needs more is below 2^-64.
const DRAWS_MAX: u64 = 1 << 16;
const SCATTER: u64 = 0x5ca7_7e12;
const NURAND_C: u64 = 0xc0c0;

/// The places of one worker's part in one pattern.
#[derive(Clone, Debug)]
pub(super) struct Places {
    seed: u64,
    key: u64,
    count: u64,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Strided {
        stride: u64,
    },
    Nurand {
        a: u64,
        c: u64,
    },
    Zipf(Zipf),
    Pareto {
        exponent: f64,
    },
    Normal {
        deviation: f64,
    },
    /// For each zone the share of requests up to its end, and its places.
    Zoned(Vec<(f64, std::ops::Range<u64>)>),
}

impl Places {
    /// For `count` places, above zero, of `place_bytes` each.
    pub(super) fn new(pattern: &Pattern, seed: u64, key: u64, count: u64, place_bytes: u64) -> Self {
        let shape = match pattern {
            Pattern::Sequential | Pattern::Random => Shape::Uniform,
            Pattern::Strided { by } => Shape::Strided { stride: (by.0 / place_bytes).max(1) },
            Pattern::Nurand { a } => {
                let a = a.unwrap_or_else(|| ((count / 4).max(1) + 1).next_power_of_two() / 2 - 1);
                Shape::Nurand { a, c: mix(seed, NURAND_C ^ key << 32, 0) % a.max(1) }
            }
            Pattern::Zipf { theta } => Shape::Zipf(Zipf::new(*theta, count)),
            // The share `hot` of the places gets 1 - hot of the requests.
            Pattern::Pareto { hot } => Shape::Pareto { exponent: libm::log(hot.0) / libm::log(1.0 - hot.0) },
            Pattern::Normal { deviation } => Shape::Normal { deviation: deviation.0 * count as f64 },
            Pattern::Zoned(zones) => {
                let (mut requests, mut space, mut start) = (0.0, 0.0, 0);
                let zones = zones.iter().filter_map(|zone| {
                    requests += zone.requests.0;
                    space += zone.space.0;
                    let end = ((space * count as f64).round() as u64).clamp(start, count);
                    let places = start..end;
                    start = end;
                    // A zone too small for a place gives its requests to the next.
                    (!places.is_empty()).then_some((requests, places))
                });
                Shape::Zoned(zones.collect())
            }
        };
        Self { seed, key, count, shape }
    }

    /// The place of request `index`.
    #[inline]
    pub(super) fn place(&self, index: u64) -> u64 {
        let draw = |number: u64| mix(self.seed, (DRAWS + number) ^ self.key << 32, index);
        match &self.shape {
            Shape::Uniform => below(draw(0), self.count),
            Shape::Strided { stride } => strided(index % self.count, *stride, self.count),
            Shape::Nurand { a, c } => ((below(draw(0), a + 1) | below(draw(1), self.count)) + c) % self.count,
            Shape::Zipf(zipf) => self.scattered(zipf.rank(draw)),
            Shape::Pareto { exponent } => {
                let rank = libm::pow(unit(draw(0)), *exponent) * self.count as f64;
                self.scattered((rank as u64).min(self.count - 1))
            }
            Shape::Normal { deviation } => self.normal(*deviation, draw),
            Shape::Zoned(zones) => {
                let chosen = unit(draw(0));
                let zone = zones.iter().find(|(requests, _)| chosen < *requests).or(zones.last());
                zone.map_or(0, |(_, places)| places.start + below(draw(1), places.end - places.start))
            }
        }
    }

    /// Box and Muller; what falls beside the part is drawn again.
    fn normal(&self, deviation: f64, draw: impl Fn(u64) -> u64) -> u64 {
        for attempt in 0..DRAWS_MAX / 2 {
            let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(draw(2 * attempt))));
            let angle = 2.0 * std::f64::consts::PI * unit(draw(2 * attempt + 1));
            let place = self.count as f64 / 2.0 + deviation * radius * libm::cos(angle);
            if (0.0..self.count as f64).contains(&place) {
                return (place as u64).min(self.count - 1);
            }
        }
        self.count / 2
    }

    /// Spreads ranks over the part, each to a place of its own: a Feistel network over the next power of four, walked
    /// until it is inside (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
    fn scattered(&self, rank: u64) -> u64 {
        let half_bits = (64 - (self.count - 1).leading_zeros()).div_ceil(2).max(1);
        let mask = (1u64 << half_bits) - 1;
        let mut number = rank;
        loop {
            let (mut left, mut right) = (number >> half_bits, number & mask);
            for round in 0..4 {
                let next = left ^ mix(self.seed ^ self.key, SCATTER + round, right) & mask;
                (left, right) = (right, next);
            }
            number = left << half_bits | right;
            if number < self.count {
                return number;
            }
        }
    }
}

/// Multiply and shift: every number below `count`, with a bias below 2^-32 for any real target.
#[inline]
fn below(draw: u64, count: u64) -> u64 {
    ((u128::from(draw) * u128::from(count)) >> 64) as u64
}

/// In [0, 1).
fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1u64 << 53) as f64
}

/// The `turn`-th place, below `count`, of a walk in strides: all places that are 0 modulo the stride, then those that are
/// 1, and so forth.
fn strided(turn: u64, stride: u64, count: u64) -> u64 {
    let (full, longer) = (count / stride, count % stride);
    // The first columns have one place more.
    let in_longer = longer * (full + 1);
    let (column, step) = if turn < in_longer {
        (turn / (full + 1), turn % (full + 1))
    } else {
        (longer + (turn - in_longer) / full, (turn - in_longer) % full)
    };
    column + step * stride
}

/// Ranks by rejection-inversion. Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", ACM TOMACS 6(3), 1996, algorithm ZRI for all exponents of zero and above.
#[derive(Clone, Debug)]
struct Zipf {
    theta: f64,
    count: u64,
    h_first: f64,
    h_last: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(theta: f64, count: u64) -> Self {
        let mut zipf = Self { theta, count, h_first: 0.0, h_last: 0.0, shortcut: 0.0 };
        zipf.h_first = zipf.h(1.5) - 1.0;
        zipf.h_last = zipf.h(count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.h_inverse(zipf.h(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The rank, from zero.
    fn rank(&self, draw: impl Fn(u64) -> u64) -> u64 {
        for attempt in 0..DRAWS_MAX {
            let u = self.h_last + unit(draw(attempt)) * (self.h_first - self.h_last);
            let x = self.h_inverse(u);
            let rank = libm::round(x).clamp(1.0, self.count as f64);
            if rank - x <= self.shortcut || u >= self.h(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
        0
    }

    fn weight(&self, rank: f64) -> f64 {
        libm::exp(-self.theta * libm::log(rank))
    }

    /// The integral of the weight, (x^(1-theta) - 1) / (1 - theta), without cancellation where theta is 1.
    fn h(&self, x: f64) -> f64 {
        let log = libm::log(x);
        relative_exp((1.0 - self.theta) * log) * log
    }

    fn h_inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.theta)).max(-1.0);
        libm::exp(relative_log(t) * x)
    }
}

/// (e^x - 1) / x.
fn relative_exp(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

/// ln(1 + x) / x.
fn relative_log(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_spec::{Bytes, Percent};

    use crate::pattern::Zone;

    const DRAWN: u64 = 200_000;

    fn counts(pattern: &Pattern, count: u64) -> Vec<u64> {
        let places = Places::new(pattern, 5, 1, count, 4096);
        let mut counts = vec![0; count as usize];
        (0..DRAWN).for_each(|index| counts[places.place(index) as usize] += 1);
        counts
    }

    /// How far the counts are from what is expected, in standard deviations of chi-square.
    fn deviation(counts: &[u64], expected: impl Fn(u64) -> f64) -> f64 {
        let chi_square: f64 = counts
            .iter()
            .zip(0..)
            .map(|(&count, index)| (count as f64 - expected(index)).powi(2) / expected(index))
            .sum();
        let freedom = (counts.len() - 1) as f64;
        (chi_square - freedom) / (2.0 * freedom).sqrt()
    }

    fn assert_follows(counts: &[u64], expected: impl Fn(u64) -> f64, what: &str) {
        let deviation = deviation(counts, expected);
        assert!(deviation < 5.0, "{what}: {deviation} standard deviations");
    }

    #[test]
    fn a_stride_visits_every_place_once_in_every_round() {
        for (count, by) in [(10, 3), (12, 4), (7, 1), (5, 9), (1, 1), (100, 99)] {
            let pattern = Pattern::Strided { by: Bytes(by * 4096) };
            let places = Places::new(&pattern, 1, 0, count, 4096);
            let walk: Vec<u64> = (0..count).map(|index| places.place(index)).collect();
            let mut sorted = walk.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>(), "{count} by {by}");
            assert_eq!(places.place(count), walk[0]);
            if by < count {
                assert_eq!(walk[1] - walk[0], by);
            }
        }
    }

    #[test]
    fn zipf_ranks_have_the_chances_of_the_law() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2, 3.0] {
            let zipf = Zipf::new(theta, 50);
            let mut counts = vec![0u64; 50];
            for index in 0..DRAWN {
                counts[zipf.rank(|draw| mix(9, draw, index)) as usize] += 1;
            }
            let total: f64 = (1..=50).map(|rank| (rank as f64).powf(-theta)).sum();
            // Ranks that are hardly ever drawn say nothing.
            let known = counts.len().min(if theta > 2.0 { 8 } else { 50 });
            let expected = |rank: u64| DRAWN as f64 * ((rank + 1) as f64).powf(-theta) / total;
            assert_follows(&counts[..known], expected, &format!("theta {theta}"));
        }
    }

    #[test]
    fn ranks_are_scattered_each_to_a_place_of_its_own() {
        for count in [1, 2, 3, 1000, 4096, 5000] {
            let places = Places::new(&Pattern::Zipf { theta: 1.0 }, 3, 0, count, 4096);
            let mut seen: Vec<u64> = (0..count).map(|rank| places.scattered(rank)).collect();
            let in_order = seen.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(count < 1000 || in_order < 20, "{in_order} neighbours stay neighbours");
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_fifth_of_the_places_gets_four_fifths_of_the_requests() {
        let mut counts = counts(&Pattern::Pareto { hot: Percent(0.2) }, 1000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = counts[..200].iter().sum();
        let hottest: u64 = counts[..40].iter().sum();
        assert!((hot as f64 / DRAWN as f64 - 0.8).abs() < 0.01, "{hot}");
        assert!((hottest as f64 / DRAWN as f64 - 0.64).abs() < 0.01, "{hottest}: and so within them");
        let uniform = Places::new(&Pattern::Pareto { hot: Percent(0.5) }, 5, 1, 100, 4096);
        let mut counts = vec![0; 100];
        (0..DRAWN).for_each(|index| counts[uniform.place(index) as usize] += 1);
        assert_follows(&counts, |_| DRAWN as f64 / 100.0, "a hot half is uniform");
    }

    #[test]
    fn a_normal_load_lies_around_the_middle() {
        let counts = counts(&Pattern::Normal { deviation: Percent(0.1) }, 100);
        // In bins of the standard deviation: 34.13% in the first, 13.59% in the second, 2.14% in the third.
        for (bin, share) in [(5, 0.3413), (4, 0.3413), (6, 0.1359), (3, 0.1359), (7, 0.0214), (2, 0.0214)] {
            let found: u64 = counts[bin * 10..bin * 10 + 10].iter().sum();
            assert!((found as f64 / DRAWN as f64 - share).abs() < 0.005, "bin {bin}: {found}");
        }
    }

    #[test]
    fn zones_get_their_shares_and_are_uniform_within() {
        let zone = |requests, space| Zone { requests: Percent(requests), space: Percent(space) };
        let counts = counts(&Pattern::Zoned(vec![zone(0.6, 0.1), zone(0.3, 0.2), zone(0.1, 0.7)]), 100);
        let expected = |place: u64| {
            DRAWN as f64
                * if place < 10 {
                    0.06
                } else if place < 30 {
                    0.015
                } else {
                    0.1 / 70.0
                }
        };
        assert_follows(&counts, expected, "zones");
    }

    #[test]
    fn nurand_has_the_chances_of_its_formula() {
        let (count, a) = (100, 15);
        let places = Places::new(&Pattern::Nurand { a: Some(a) }, 5, 1, count, 4096);
        let Shape::Nurand { c, .. } = places.shape else { panic!("it is NURand") };
        let mut chances = vec![0.0; count as usize];
        for low in 0..=a {
            for any in 0..count {
                chances[(((low | any) + c) % count) as usize] += 1.0 / ((a + 1) * count) as f64;
            }
        }
        let counts = counts(&Pattern::Nurand { a: Some(a) }, count);
        for (place, &count) in counts.iter().enumerate() {
            assert!(chances[place] > 0.0 || count == 0, "place {place} cannot be drawn");
        }
        let (possible, expected): (Vec<u64>, Vec<f64>) = counts
            .iter()
            .zip(&chances)
            .filter(|(_, chance)| **chance > 0.0)
            .map(|(&count, &chance)| (count, chance))
            .unzip();
        assert_follows(&possible, |index| DRAWN as f64 * expected[index as usize], "NURand");
        let most = *counts.iter().max().expect("some");
        assert!(most > 3 * DRAWN / count, "a hot spot");
    }

    #[test]
    fn one_place_and_huge_parts_are_no_trouble() {
        for pattern in [
            Pattern::Random,
            Pattern::Nurand { a: None },
            Pattern::Zipf { theta: 0.99 },
            Pattern::Pareto { hot: Percent(0.2) },
            Pattern::Normal { deviation: Percent(0.2) },
            Pattern::Strided { by: Bytes(1 << 20) },
            Pattern::Zoned(vec![Zone { requests: Percent(1.0), space: Percent(1.0) }]),
        ] {
            for count in [1, 2, 1 << 40] {
                let places = Places::new(&pattern, 1, 0, count, 4096);
                for index in 0..100 {
                    assert!(places.place(index) < count, "{pattern:?} of {count}");
                }
            }
        }
    }
}
