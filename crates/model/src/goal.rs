//! How reliable is reliable enough.

use crate::{BLOCK_BYTES, Probability};

/// A bound on the probability that one block is read wrong and nobody notices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal(Probability);

impl Goal {
    /// The words for amounts, with their bytes as powers of two.
    pub const WORDS: [(&'static str, u32); 4] =
        [("zettabyte", 70), ("exabyte", 60), ("petabyte", 50), ("terabyte", 40)];

    /// One undetected corruption in 2^70 bytes read, the goal of Z2: a score of 17.5.
    pub fn zettabyte() -> Self {
        Self::bytes_per_corruption(2f64.powi(70))
    }

    /// From a word of [`Goal::WORDS`].
    pub fn from_word(word: &str) -> Option<Self> {
        let (_, power) = Self::WORDS.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(word))?;
        Some(Self::bytes_per_corruption(2f64.powi(i32::try_from(power).ok()?)))
    }

    /// One undetected corruption in so many bytes read; fewer than a block are a block.
    pub fn bytes_per_corruption(bytes: f64) -> Self {
        Self(Probability::from_ln((f64::from(BLOCK_BYTES) / bytes).ln()))
    }

    /// From a score.
    pub fn of_score(score: f64) -> Self {
        Self(Probability::from_score(score))
    }

    /// The bound.
    pub fn probability(self) -> Probability {
        self.0
    }

    /// Its score.
    pub fn score(self) -> f64 {
        self.0.score()
    }

    /// Whether a design of this probability reaches it.
    pub fn is_met_by(self, undetected: Probability) -> bool {
        undetected <= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_have_the_published_scores() {
        for (word, score) in [("zettabyte", 17.5), ("exabyte", 14.4), ("petabyte", 11.4), ("terabyte", 8.4)] {
            let goal = Goal::from_word(word).expect("a goal");
            assert!((goal.score() - score).abs() < 0.05, "{word}: {}", goal.score());
        }
        assert!((Goal::zettabyte().probability().value() / 3.469446951953614e-18 - 1.0).abs() < 1e-13);
        assert_eq!(Goal::from_word("floppy"), None);
    }
}
