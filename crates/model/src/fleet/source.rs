//! What damages sectors: clusters of errors, near each other in time and in place.

use super::random::Stream;

/// Of a device, the share at its beginning that may have more errors than the rest: in the first tenth lie 20% to 50% of
/// the latent sector errors, by drive model (Schroeder, Damouras, Gill, FAST 2010).
pub const FRONT: f64 = 0.1;

/// Errors of one kind. They come in clusters: a Poisson process in the life of each device.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// What reports call it.
    pub name: String,
    /// Clusters per device and year.
    pub per_year: f64,
    /// Further errors of a cluster, on average (geometric).
    pub further: f64,
    /// Years from one error of a cluster to the next, on average (exponential).
    pub spread_years: f64,
    /// Share of the errors that damage one sector alone.
    pub single: f64,
    /// Sectors that the others damage, on average: 2, and a geometric number more.
    pub run: f64,
    /// Share of the clusters that lie in the first tenth of the device; [`FRONT`] if they lie anywhere.
    pub front: f64,
    /// Fraction of damaged sectors that nobody notices when they are read: what neither the device reports nor a checksum
    /// sees.
    pub undetected: f64,
    /// Whether the sector is right again with the next read, so that nothing stays damaged.
    pub is_transient: bool,
}

impl Source {
    /// Single sectors anywhere, each for itself.
    pub fn singles(name: impl Into<String>, per_year: f64, undetected: f64) -> Self {
        Self {
            name: name.into(),
            per_year,
            further: 0.0,
            spread_years: 0.0,
            single: 1.0,
            run: 2.0,
            front: FRONT,
            undetected,
            is_transient: false,
        }
    }

    /// The same, where each damaged sector has a damaged neighbour with the probability `continuation`, below 1.
    pub fn with_bursts(self, continuation: f64) -> Self {
        Self { single: 1.0 - continuation, run: 1.0 + 1.0 / (1.0 - continuation), ..self }
    }

    /// Damaged sectors of a cluster, on average.
    pub fn sectors(&self) -> f64 {
        (1.0 + self.further) * (self.single + (1.0 - self.single) * self.run)
    }

    /// The probability that nobody ever notices a cluster: that all of its sectors pass.
    pub(super) fn unnoticed(&self) -> f64 {
        // Generating functions: of a length, and of the number of errors.
        let u = self.undetected;
        let longer = self.longer();
        let length = self.single * u + (1.0 - self.single) * u * u * (1.0 - longer) / (1.0 - longer * u);
        let another = self.another();
        length * (1.0 - another) / (1.0 - another * length)
    }

    /// After each error of a cluster, the probability of another.
    fn another(&self) -> f64 {
        self.further / (1.0 + self.further)
    }

    /// After the second and each further sector of an error, the probability of another.
    fn longer(&self) -> f64 {
        (self.run - 2.0) / (self.run - 1.0)
    }

    /// Draws how many errors a cluster has.
    pub(super) fn draw_errors(&self, stream: &mut Stream) -> u64 {
        stream.geometric(self.another()) as u64
    }

    /// Draws how many sectors an error damages.
    pub(super) fn draw_sectors(&self, stream: &mut Stream) -> f64 {
        if self.single >= 1.0 || stream.uniform() < self.single {
            return 1.0;
        }
        1.0 + stream.geometric(self.longer())
    }

    /// Draws whether a cluster lies in the first tenth.
    pub(super) fn draw_front(&self, stream: &mut Stream) -> bool {
        stream.uniform() < self.front
    }

    /// What makes no sense about it, with what is valid.
    pub(super) fn mistake(&self) -> Option<String> {
        let within = |what: &str, value: f64, from: f64, to: f64| {
            let is_wrong = !(from..=to).contains(&value);
            is_wrong.then(|| format!("of {}: {what} is {value}; it must be from {from} to {to}", self.name))
        };
        within("the rate", self.per_year, 0.0, 1e12)
            .or_else(|| within("the number of further errors", self.further, 0.0, 1000.0))
            .or_else(|| within("the spread", self.spread_years, 0.0, 1000.0))
            .or_else(|| within("the share of single sectors", self.single, 0.0, 1.0))
            .or_else(|| within("the mean run", self.run, 2.0, 1e9))
            .or_else(|| within("the share in front", self.front, 0.0, 1.0))
            .or_else(|| within("the undetected fraction", self.undetected, 0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_has_the_mean_and_the_generating_function_of_its_formula() {
        let source = Source {
            further: 2.0,
            single: 0.6,
            run: 4.0,
            undetected: 0.7,
            ..Source::singles("media", 1.0, 0.0)
        };
        let seed = Stream::seed(3);
        let count = 200_000u64;
        let (mut sectors, mut unnoticed, mut front) = (0.0, 0.0, 0u64);
        for group in 0..count {
            let mut stream = Stream::new(seed, group);
            let all: f64 =
                (0..source.draw_errors(&mut stream)).map(|_| source.draw_sectors(&mut stream)).sum();
            sectors += all;
            unnoticed += source.undetected.powf(all);
            front += u64::from(source.draw_front(&mut stream));
        }
        let mean = |sum: f64| sum / count as f64;
        assert!((mean(sectors) / source.sectors() - 1.0).abs() < 0.01, "{}", mean(sectors));
        assert!((mean(unnoticed) / source.unnoticed() - 1.0).abs() < 0.01, "{}", mean(unnoticed));
        assert!((mean(front as f64) - FRONT).abs() < 0.004);
    }

    #[test]
    fn bursts_are_a_geometric_number_of_sectors() {
        let source = Source::singles("errors", 1.0, 0.2).with_bursts(0.75);
        assert!((source.sectors() - 4.0).abs() < 1e-12);
        // u (1 - c) / (1 - c u).
        assert!((source.unnoticed() - 0.2 * 0.25 / (1.0 - 0.75 * 0.2)).abs() < 1e-12);
    }
}
