//! One line of a benchmark: our figure, the peer's from the same run, their ratio, and the bar asked for.

use std::fmt;

use rotproof_block::Result;
use serde::{Serialize, Serializer};

/// A measured pair.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Our median.
    pub ours: f64,
    /// The peer's median, taken in turns with ours.
    pub peer: f64,
    /// Median over the rounds of ours / peer, so that a slow minute of the machine hits both sides.
    pub ratio: f64,
    /// Unit of `ours` and `peer`.
    pub unit: &'static str,
    /// Where the median of the ratio lies, with a probability of at least 95% if there are six rounds; else the least and the
    /// greatest of the rounds.
    pub interval: (f64, f64),
    /// What the ratio must be.
    pub bar: Option<Bar>,
    /// Whether it is; absent without a bar.
    pub holds: Option<Holds>,
}

/// Whether a bar holds, as far as the rounds show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// All of the interval is within it.
    Yes,
    /// None of it is.
    No,
    /// Part of it is.
    TooNoisyToTell,
    /// There are too few rounds for an interval of 95%.
    TooFewRoundsToTell,
}

/// A bound on a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
    /// Exactly: for counts.
    Is(f64),
}

impl Bar {
    fn judge(self, ratios: &[f64], (least, greatest): (f64, f64)) -> Holds {
        if let Bar::Is(_) = self {
            // What is counted has no noise.
            return if ratios.iter().all(|&ratio| self.holds(ratio)) { Holds::Yes } else { Holds::No };
        }
        match (self.holds(least), self.holds(greatest)) {
            _ if ratios.len() < ROUNDS_MIN => Holds::TooFewRoundsToTell,
            (true, true) => Holds::Yes,
            (false, false) => Holds::No,
            _ => Holds::TooNoisyToTell,
        }
    }

    fn holds(self, ratio: f64) -> bool {
        match self {
            Bar::AtLeast(bound) => ratio >= bound,
            Bar::AtMost(bound) => ratio <= bound,
            Bar::Is(value) => (ratio - value).abs() < 1e-9,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::AtLeast(bound) => write!(f, ">= {bound:.2}"),
            Bar::AtMost(bound) => write!(f, "<= {bound:.2}"),
            Bar::Is(value) => write!(f, "= {value:.2}"),
        }
    }
}

impl Serialize for Bar {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Figure {
    /// From the rounds of one run: `rounds[i]` is (ours, peer), measured one after the other.
    pub fn from_rounds(
        name: impl Into<String>,
        unit: &'static str,
        rounds: &[(f64, f64)],
        bar: Option<Bar>,
    ) -> Self {
        let ours = median(rounds.iter().map(|&(ours, _)| ours));
        let peer = median(rounds.iter().map(|&(_, peer)| peer));
        let mut ratios: Vec<f64> = rounds.iter().map(|&(ours, peer)| ours / peer).collect();
        ratios.sort_by(f64::total_cmp);
        let interval = interval_of_the_median(&ratios);
        let holds = bar.map(|bar| bar.judge(&ratios, interval));
        Self { name: name.into(), ours, peer, ratio: median(ratios), unit, interval, bar, holds }
    }

    /// The header of the table that [`Figure`] prints lines of.
    pub fn header() -> String {
        format!(
            "{:<60} {:>9} {:>9} {:>6} {:<14} {:<6} {:<8} holds",
            "name", "ours", "peer", "ratio", "95%", "unit", "bar"
        )
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bar = self.bar.map_or_else(|| "-".to_owned(), |bar| bar.to_string());
        let holds = match self.holds {
            Some(Holds::Yes) => "yes",
            Some(Holds::No) => "NO",
            Some(Holds::TooNoisyToTell) => "too noisy to tell",
            Some(Holds::TooFewRoundsToTell) => "too few rounds to tell",
            None => "-",
        };
        let interval = format!("{:.3} to {:.3}", self.interval.0, self.interval.1);
        write!(
            f,
            "{:<60} {:>9} {:>9} {:>6.3} {interval:<14} {:<6} {bar:<8} {holds}",
            self.name,
            rounded(self.ours),
            rounded(self.peer),
            self.ratio,
            self.unit
        )
    }
}

/// Four significant digits at the most.
fn rounded(number: f64) -> String {
    match number.abs() {
        size if size >= 1000.0 => format!("{number:.0}"),
        size if size >= 100.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// So many rounds give an interval of 95%.
const ROUNDS_MIN: usize = 6;

/// An interval that holds the median of what `sorted` was drawn from with a probability of at least 95%, whatever its distribution
/// (a sign test turned around: of `n` values the `k`-th from either end, with `k - 1` the most of `n` coins that fall on one side
/// with at most 2.5%); the whole range where there are fewer than six.
fn interval_of_the_median(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len();
    let (Some(&least), Some(&greatest)) = (sorted.first(), sorted.last()) else { return (0.0, 0.0) };
    // What is outside of the `k`-th values, on one side.
    let (mut outside, mut term, mut skipped) = (0.0, 0.5f64.powi(count as i32), 0);
    while skipped < count / 2 && outside + term <= 0.025 {
        outside += term;
        term *= (count - skipped) as f64 / (skipped + 1) as f64;
        skipped += 1;
    }
    match skipped {
        0 => (least, greatest),
        _ => (sorted[skipped - 1], sorted[count - skipped]),
    }
}

/// The middle value; the mean of the two middle ones where their number is even. Zero of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

/// Measures ours and the peer, in an order that changes from round to round.
pub fn in_turns(
    round: usize,
    ours: impl FnOnce() -> Result<f64>,
    peer: impl FnOnce() -> Result<f64>,
) -> Result<(f64, f64)> {
    if round.is_multiple_of(2) {
        let ours = ours()?;
        Ok((ours, peer()?))
    } else {
        let peer = peer()?;
        Ok((ours()?, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_rounds_not_of_the_medians() {
        // A machine that halves its speed in every second round: each round still says 0.9.
        let rounds = [(90.0, 100.0), (45.0, 50.0), (90.0, 100.0)];
        let figure = Figure::from_rounds("x", "k/s", &rounds, Some(Bar::AtLeast(0.98)));
        assert!((figure.ratio - 0.9).abs() < 1e-9);
        assert_eq!(figure.holds, Some(Holds::TooFewRoundsToTell));
        assert!(Bar::AtMost(1.05).holds(1.05));
    }

    #[test]
    fn a_bar_is_judged_by_the_interval() {
        let judge = |ratios: &[f64], bar| {
            let rounds: Vec<(f64, f64)> = ratios.iter().map(|&ratio| (ratio, 1.0)).collect();
            Figure::from_rounds("x", "k/s", &rounds, Some(bar)).holds
        };
        let quiet = [0.99, 1.0, 1.01, 1.0, 0.99, 1.01, 1.0, 1.0, 1.0, 0.99, 1.01];
        assert_eq!(judge(&quiet, Bar::AtLeast(0.95)), Some(Holds::Yes));
        assert_eq!(judge(&quiet, Bar::AtLeast(1.05)), Some(Holds::No));
        assert_eq!(judge(&quiet, Bar::AtLeast(1.0)), Some(Holds::TooNoisyToTell));
        assert_eq!(judge(&[1.0], Bar::Is(1.0)), Some(Holds::Yes));
        assert_eq!(judge(&[1.0, 2.0], Bar::Is(1.0)), Some(Holds::No));
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_the_tables() {
        // Conover, Practical Nonparametric Statistics: ranks 1 and 6 of 6, 2 and 10 of 11, 6 and 15 of 20.
        let of = |count: usize| {
            let sorted: Vec<f64> = (1..=count).map(|rank| rank as f64).collect();
            interval_of_the_median(&sorted)
        };
        assert_eq!((of(5), of(6), of(11), of(20)), ((1.0, 5.0), (1.0, 6.0), (2.0, 10.0), (6.0, 15.0)));
    }
}
