//! What several runs say together: figures with their means and how sure those are, and whether two set-ups differ.
//!
//! It reads the folders that runs have left, and knows nothing of how they came about. A *set-up* is one run, or the
//! folder of a repeated trial with all its runs.

mod figures;
mod set_up;

use rotproof_block::hash::mix;
use rotproof_record::statistics::{Comparison, Summary, compare};
use serde::Serialize;

pub use figures::{Figure, Unit};
pub use set_up::SetUp;

/// Stream of [`rotproof_block::hash::mix`] that seeds of repetitions come from.
const REPETITION: u64 = 0x4e_9ea7;

/// The seed of repetition `number`, from 0: the first has the trial's own, so that one run is what it would be alone.
pub fn repetition_seed(seed: u64, number: u32) -> u64 {
    if number == 0 { seed } else { mix(seed, REPETITION, number.into()) }
}

/// A figure over the runs of one set-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summarised {
    /// Which one.
    #[serde(flatten)]
    pub figure: Figure,
    /// What its values say.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Every figure that all runs of a set-up have.
pub fn summarise_runs(set_up: &SetUp) -> Vec<Summarised> {
    let figures = set_up.figures().into_iter();
    figures
        .filter_map(|figure| {
            let summary = Summary::of(&set_up.values(&figure))?;
            Some(Summarised { figure, summary })
        })
        .collect()
}

/// A figure of two set-ups, side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Which one.
    #[serde(flatten)]
    pub figure: Figure,
    /// Both, and whether they differ.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// What follows.
    pub finding: Finding,
}

/// What a comparison shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// All values of both are the same.
    Same,
    /// The means differ, with 95% confidence.
    Differ,
    /// What differs is within what the runs of one set-up vary by.
    NotShown,
    /// One run on a side says nothing of how much runs vary.
    TooFewRuns,
}

/// Compares every figure that both set-ups have; the first is the base.
pub fn compare_set_ups(base: &SetUp, other: &SetUp) -> Vec<Compared> {
    let known = other.figures();
    let is_known = |figure: &Figure| known.iter().any(|other| other.name == figure.name);
    let shared = base.figures().into_iter().filter(is_known);
    shared
        .filter_map(|figure| {
            let comparison = compare(&base.values(&figure), &other.values(&figure))?;
            let finding = finding(&comparison);
            Some(Compared { figure, comparison, finding })
        })
        .collect()
}

fn finding(comparison: &Comparison) -> Finding {
    let Comparison { base, other, .. } = comparison;
    let is_constant = base.deviation == 0.0 && other.deviation == 0.0;
    if base.mean == other.mean && is_constant {
        return Finding::Same;
    }
    if base.count < 2 || other.count < 2 {
        return Finding::TooFewRuns;
    }
    match comparison.welch {
        // Neither varies at all, and they are not the same.
        None => Finding::Differ,
        Some(welch) if welch.p < 0.05 => Finding::Differ,
        Some(_) => Finding::NotShown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_have_seeds_of_their_own_and_the_first_is_the_trial_itself() {
        let seeds: Vec<u64> = (0..100).map(|number| repetition_seed(42, number)).collect();
        assert_eq!(seeds[0], 42);
        let mut distinct = seeds.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), seeds.len());
        assert_ne!(repetition_seed(43, 1), seeds[1]);
    }

    #[test]
    fn one_run_a_side_shows_nothing_and_five_do() {
        let of = |a: &[f64], b: &[f64]| finding(&compare(a, b).expect("values"));
        assert_eq!(of(&[1.0], &[2.0]), Finding::TooFewRuns);
        assert_eq!(of(&[64.0], &[64.0]), Finding::Same);
        assert_eq!(of(&[64.0, 64.0], &[64.0, 64.0]), Finding::Same);
        assert_eq!(of(&[64.0, 64.0], &[65.0, 65.0]), Finding::Differ);
        assert_eq!(of(&[10.0, 11.0, 9.0, 10.0, 10.5], &[10.2, 9.5, 10.4, 11.0, 9.4]), Finding::NotShown);
        assert_eq!(of(&[10.0, 11.0, 9.0, 10.0, 10.5], &[20.2, 19.5, 20.4, 21.0, 19.4]), Finding::Differ);
    }
}
