//! Whether a level of a load is another one in a window than before it, or whether that is noise.
//!
//! A change is told only where three looks agree, so that it holds for noise of many kinds, and never of a handful of
//! intervals that would look like that by chance. Mann and Whitney's test
//! takes nothing for normal, and one interval that is far out moves it little; but it takes intervals for independent.
//! The t test with a pooled deviation is corrected for intervals that follow each other and are alike (by the
//! autocorrelation of the first order, with its bias for short series: Kendall, *Biometrika* 41, 1954; the number of
//! intervals that this is worth: Zwiers and von Storch, *Journal of Climate* 8, 1995). And the 95% interval of the ratio
//! has to lie beside 1, by 1% at the least.

use serde::Serialize;

use super::compare::{mann_whitney, ratio_of_means};
use super::distribution::{student_quantile, student_survival};
use super::summary::{Range, Summary, TAIL};

/// What became of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is lower than before.
    Lower,
    /// It is higher than before.
    Higher,
    /// It cannot be told from noise.
    None,
    /// There are too few intervals to tell.
    Unknown,
}

/// A level, and what share it is of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Level {
    /// Intervals it is taken from, mean and deviation of what they measure.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its share of the level before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Where that lies with 95% confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_confidence: Option<Range>,
}

/// What is told with 95% confidence may happen so often where there is nothing.
const LIKELY: f64 = 0.05;
/// Three measures of a load are tested beside each other (throughput, mean latency, a percentile of it); that any of them
/// seems to change though nothing did is to happen no more often than that. So one alone has to be surer, or two agree.
const SURE: f64 = 0.017;
/// No change is smaller than this share of the level.
const CHANGE_MIN: f64 = 0.01;
/// Fewer intervals make no level that anything can be held against.
const LEVEL_MIN: usize = 3;
/// A deviation is no smaller than this share of the mean: what is counted is whole requests.
const DEVIATION_MIN: f64 = 0.002;
/// Intervals that follow each other are no more alike than this.
const CORRELATION_MAX: f64 = 0.9;
/// So many standard errors are allowed for when it is estimated how alike intervals are.
const ERRORS: f64 = 1.25;
/// However alike they are, a deviation is known as well as that of so many intervals more than two.
const DEGREES_MIN: f64 = 3.0;

/// An interval does not belong to a level if it is so many deviations away from its median, and this share of it: a load
/// that catches up, a moment at which nothing went on.
const OUTLIER_DEVIATIONS: f64 = 6.0;
const OUTLIER_MIN: f64 = 0.10;
/// The deviation of a normal distribution, in median absolute deviations.
const DEVIATION_OF_MEDIANS: f64 = 1.4826;

/// What a test of one measure says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    /// What it looks like.
    seems: Change,
    /// How probable that would be if there were no change.
    p: f64,
    /// So few intervals could say it no more surely.
    is_surest: bool,
}

impl Test {
    /// What can be told of it by itself, with 95% confidence.
    pub(super) fn alone(self) -> Change {
        if self.p < LIKELY || self.seems == Change::Unknown { self.seems } else { Change::None }
    }

    /// What can be told of measures that were tested beside each other, of each of which `more_is_better` or not.
    pub(super) fn together<const N: usize>(tests: [(Self, bool); N]) -> [Change; N] {
        let goes_well =
            |(test, more_is_better): &(Self, bool)| (test.seems == Change::Higher) == *more_is_better;
        tests.map(|own| {
            let agree =
                tests.iter().filter(|other| other.0.p < LIKELY && goes_well(other) == goes_well(&own));
            let limit = if agree.count() > 1 { LIKELY } else { SURE };
            match own.0 {
                Self { seems, p, .. } if p < limit || seems == Change::Unknown => seems,
                Self { is_surest: true, .. } => Change::Unknown,
                _ => Change::None,
            }
        })
    }
}

/// A level before, to which others are compared.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// Each interval.
    all: Vec<f64>,
    /// Those that belong to the level.
    steady: Vec<f64>,
    /// The level; `None` without an interval.
    pub(super) summary: Option<Summary>,
}

impl Base {
    /// From the intervals before.
    pub(super) fn of(all: Vec<f64>) -> Self {
        let steady = steady(&all);
        let summary = Summary::of(&steady);
        Self { all, steady, summary }
    }

    /// Another level beside this one.
    pub(super) fn level(&self, values: &[f64]) -> Option<Level> {
        let summary = Summary::of(values)?;
        let ratio = self.summary.and_then(|base| ratio_of_means(&base, &summary));
        let (ratio, confidence) = ratio.map_or((None, None), |(ratio, range)| (Some(ratio), range));
        let is_none = summary.mean <= 0.0;
        let ratio_confidence =
            if is_none { confidence } else { ratio.and_then(|ratio| self.around(ratio, &summary, values)) };
        Some(Level { summary, ratio, ratio_confidence })
    }

    /// Where a ratio above 0 to this level lies with 95% confidence: by the delta method on its logarithm, with the
    /// deviation that both have in common as a share of their means.
    fn around(&self, ratio: f64, other: &Summary, values: &[f64]) -> Option<Range> {
        let own = self.summary?;
        let (n, m) = (own.count as f64, other.count as f64);
        if n + m < 4.0 {
            return None;
        }
        let squares = |of: &Summary, count: f64| (of.deviation / of.mean).powi(2) * (count - 1.0);
        let widening = self.widening(values);
        let deviation = ((squares(&own, n) + squares(other, m)) / (n + m - 2.0)).sqrt() * widening;
        let degrees = ((n + m - 2.0) / widening.powi(2)).max(DEGREES_MIN);
        let reach = (student_quantile(TAIL, degrees) * deviation * (1.0 / n + 1.0 / m).sqrt()).exp();
        Some(Range { low: ratio / reach, high: ratio * reach })
    }

    /// What these intervals say of a change.
    pub(super) fn test(&self, values: &[f64]) -> Test {
        let (n, m) = (self.all.len() as f64, values.len() as f64);
        // What the most extreme of all orders would say.
        let surest = 2.0 / ways_to_choose(n + m, n.min(m));
        let level = self.level(values).filter(|_| self.all.len() >= LEVEL_MIN && surest < LIKELY);
        let Some((level, ratio)) = level.and_then(|level| Some((level, level.ratio?))) else {
            return Test { seems: Change::Unknown, p: 1.0, is_surest: false };
        };
        let holds_one = level.ratio_confidence.is_some_and(|range| range.low <= 1.0 && 1.0 <= range.high);
        if holds_one || (ratio - 1.0).abs() < CHANGE_MIN {
            return Test { seems: Change::None, p: 1.0, is_surest: false };
        }
        let most = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
        let least = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
        // Ties within one of the two do not matter then.
        let is_apart = most(&self.all) < least(values) || most(values) < least(&self.all);
        let by_rank = if is_apart {
            surest
        } else {
            mann_whitney(&self.all, values).map_or(1.0, |test| test.p.max(surest))
        };
        let seems = if ratio < 1.0 { Change::Lower } else { Change::Higher };
        let p = by_rank.max(self.t_test(values));
        Test { seems, p, is_surest: p <= surest }
    }

    /// How probable such a difference of the means would be without any, by the pooled t test. Of the logarithms, if they
    /// have any: latencies that pile up reach from microseconds to seconds.
    fn t_test(&self, values: &[f64]) -> f64 {
        let has_logarithms = self.steady.iter().chain(values).all(|&value| value > 0.0);
        let scaled = |values: &[f64]| -> Vec<f64> {
            values.iter().map(|&value| if has_logarithms { value.ln() } else { value }).collect()
        };
        let (own, other) = (Summary::of(&scaled(&self.steady)), Summary::of(&scaled(values)));
        let (Some(own), Some(other)) = (own, other) else { return 1.0 };
        let (n, m) = (own.count as f64, other.count as f64);
        let squares = |summary: &Summary, count: f64| summary.deviation.powi(2) * (count - 1.0);
        let pooled = (squares(&own, n) + squares(&other, m)) / (n + m - 2.0).max(1.0);
        let size = if has_logarithms { 1.0 } else { own.mean.abs().max(other.mean.abs()) };
        let widening = self.widening(values);
        let deviation = pooled.sqrt().max(DEVIATION_MIN * size) * widening;
        if deviation <= 0.0 {
            return 1.0;
        }
        let t = (other.mean - own.mean).abs() / (deviation * (1.0 / n + 1.0 / m).sqrt());
        let degrees = ((n + m - 2.0) / widening.powi(2)).max(DEGREES_MIN);
        (2.0 * student_survival(t, degrees)).min(1.0)
    }

    /// By how much the deviation of a mean is wider than that of as many independent intervals.
    fn widening(&self, values: &[f64]) -> f64 {
        let centre = median(&self.steady);
        let own = median(values);
        // What does not belong to the level says nothing on how it varies.
        let before: Vec<f64> = self
            .all
            .iter()
            .map(|&value| if self.steady.contains(&value) { value - centre } else { 0.0 })
            .collect();
        let during: Vec<f64> = values.iter().map(|value| value - own).collect();
        let squares: f64 = before.iter().chain(&during).map(|value| value * value).sum();
        let together = |values: &[f64]| values.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        if squares <= 0.0 {
            return 1.0;
        }
        let found = (together(&before) + together(&during)) / squares;
        let count = (before.len() + during.len()) as f64;
        // Few intervals do not show how alike they are, so the error of the estimate is allowed for, too.
        let bias = (1.0 + 3.0 * found.max(0.0)) / count;
        let correlation = (found + bias.max(ERRORS / count.sqrt())).clamp(0.0, CORRELATION_MAX);
        ((1.0 + correlation) / (1.0 - correlation)).sqrt()
    }

    /// Whether the level is there again in these intervals, or better, where more is better: within 5% of it, or within
    /// what it varies by itself.
    pub(super) fn is_back(&self, values: &[f64], recovered: f64, more_is_better: bool) -> bool {
        let (Some(own), Some(now)) = (self.summary, Summary::of(values)) else { return false };
        let (mean, deviation) = (own.mean, own.deviation);
        let sign = if more_is_better { 1.0 } else { -1.0 };
        let near = (1.0 - recovered) * mean;
        let reaches = |value: f64, noise: f64| sign * (value - mean) >= -near.max(noise);
        let worst = if more_is_better { now.min } else { now.max };
        reaches(now.mean, 2.0 * deviation / (values.len() as f64).sqrt()) && reaches(worst, 4.0 * deviation)
    }
}

/// Those of the intervals that belong to one level: all but a few that lie far out. Where many do, that is how the load is.
pub(super) fn steady(values: &[f64]) -> Vec<f64> {
    let centre = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let deviation = median(&distances) * DEVIATION_OF_MEDIANS;
    let limit = (OUTLIER_DEVIATIONS * deviation).max(OUTLIER_MIN * centre.abs());
    let kept: Vec<f64> = values.iter().copied().filter(|value| (value - centre).abs() <= limit).collect();
    let is_few = values.len() >= LEVEL_MIN && values.len() - kept.len() <= (values.len() / 4).max(1);
    if is_few { kept } else { values.to_vec() }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// In how many ways `chosen` of `all` can be chosen.
fn ways_to_choose(all: f64, chosen: f64) -> f64 {
    (0..chosen as u64).map(|step| (all - step as f64) / (step as f64 + 1.0)).product()
}

#[cfg(test)]
mod tests;
