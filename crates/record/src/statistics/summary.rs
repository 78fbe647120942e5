//! Mean, deviation and how sure the mean is.

use serde::Serialize;

use super::distribution::student_quantile;

/// What several measurements of one thing say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Summary {
    /// How many measurements.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of a sample (n - 1); 0 for one.
    pub deviation: f64,
    /// Where the true mean lies with 95% confidence (Student); absent for a single measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Range>,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// From a number to a number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

/// Part of the distribution beyond each end of a 95% interval.
pub(super) const TAIL: f64 = 0.025;

impl Summary {
    /// Of these measurements; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (first, n) = (*values.first()?, values.len() as f64);
        // Shifted, so that numbers which hardly differ lose no digits.
        let mean = first + values.iter().map(|value| value - first).sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let confidence = (values.len() > 1).then(|| {
            let reach = student_quantile(TAIL, n - 1.0) * deviation / n.sqrt();
            Range { low: mean - reach, high: mean + reach }
        });
        Some(Self {
            count: values.len() as u64,
            mean,
            deviation,
            confidence,
            min: values.iter().copied().fold(first, f64::min),
            max: values.iter().copied().fold(first, f64::max),
        })
    }

    /// The variance of the mean.
    pub(super) fn variance_of_mean(&self) -> f64 {
        self.deviation * self.deviation / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_runs_have_a_mean_a_deviation_and_an_interval() {
        let summary = Summary::of(&[465.0, 467.0, 463.0, 468.0, 462.0]).expect("some");
        assert_eq!((summary.count, summary.mean, summary.min, summary.max), (5, 465.0, 462.0, 468.0));
        assert!((summary.deviation - 6.5f64.sqrt()).abs() < 1e-12);
        let confidence = summary.confidence.expect("more than one");
        assert!((confidence.high - 465.0 - 2.776_445 * (6.5f64 / 5.0).sqrt()).abs() < 1e-4, "{confidence:?}");
        assert!((confidence.high + confidence.low - 930.0).abs() < 1e-9);
        assert_eq!(Summary::of(&[3.0]).expect("one").confidence, None);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn large_numbers_that_hardly_differ_keep_their_deviation() {
        let summary = Summary::of(&[1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0]).expect("some");
        assert_eq!((summary.mean, summary.deviation), (1e15 + 2.0, 1.0));
    }
}
