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
    /// What the ratio must be.
    pub bar: Option<Bar>,
    /// Whether it is; absent without a bar.
    pub holds: Option<bool>,
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
        let ratio = median(rounds.iter().map(|&(ours, peer)| ours / peer));
        Self { name: name.into(), ours, peer, ratio, unit, bar, holds: bar.map(|bar| bar.holds(ratio)) }
    }

    /// The header of the table that [`Figure`] prints lines of.
    pub fn header() -> String {
        format!("{:<60} {:>9} {:>9} {:>6} {:<6} {:<8} holds", "name", "ours", "peer", "ratio", "unit", "bar")
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bar = self.bar.map_or_else(|| "-".to_owned(), |bar| bar.to_string());
        let holds = match self.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        write!(
            f,
            "{:<60} {:>9} {:>9} {:>6.3} {:<6} {bar:<8} {holds}",
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
        assert_eq!(figure.holds, Some(false));
        assert!(Bar::AtMost(1.05).holds(1.05));
    }
}
