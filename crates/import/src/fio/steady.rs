//! fio's `steadystate`: the end of a job that has become steady.
//!
//! Source: fio(1), "Steady state". fio takes a limit of one of two: how far each second lies from the mean of the window,
//! or how much the straight line through them rises from second to second, both as a share of that mean.

use std::str::FromStr;
use std::time::Duration;

use rotproof_record::statistics::{SteadyMeasure, SteadySpec};
use rotproof_spec::{Percent, Span};

use super::value::percent;

/// What is asked for in a word, such as `iops:10%` or `bw_slope:1%`; without a limit both criteria of [`SteadySpec`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FioSteady {
    of: SteadyMeasure,
    limit: Option<Limit>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// From the mean.
    Deviation(f64),
    /// A second.
    Slope(f64),
}

/// What is no criterion of fio's is no limit.
const ANY: Percent = Percent(1.0);

impl FromStr for FioSteady {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, limit) = text.split_once(':').map_or((text, None), |(word, limit)| (word, Some(limit)));
        let (measure, is_slope) =
            word.strip_suffix("_slope").map_or((word, false), |measure| (measure, true));
        let of = match measure {
            "bw" => SteadyMeasure::Throughput,
            "iops" => SteadyMeasure::Iops,
            "lat" => SteadyMeasure::Latency,
            _ => {
                return Err(format!(
                    "`{word}` cannot be steady; bw, iops and lat can, or the _slope of them"
                ));
            }
        };
        let Some(limit) = limit else {
            return match is_slope {
                true => Err(format!("`{word}` needs a limit, such as {word}:1%")),
                false => Ok(Self { of, limit: None }),
            };
        };
        if !limit.ends_with('%') {
            return Err(format!("the limit `{limit}` is no share of the mean; write for example {word}:10%"));
        }
        let share = percent(limit)?.0;
        if share <= 0.0 {
            return Err(format!("nothing is as steady as {limit}; write for example {word}:10%"));
        }
        let limit = if is_slope { Limit::Slope(share) } else { Limit::Deviation(share) };
        Ok(Self { of, limit: Some(limit) })
    }
}

impl FioSteady {
    /// The same as far as we have it, in a window of this length that begins no earlier than `after`: the range from the
    /// lowest to the highest is at most twice as far as either may lie from the mean; the line rises by what its slope is
    /// from the middle of the first interval to that of the last.
    pub fn spec(&self, window: Span, after: Span, interval: Duration) -> SteadySpec {
        let default = SteadySpec { window, after, of: self.of, ..SteadySpec::default() };
        match self.limit {
            None => default,
            Some(Limit::Deviation(share)) => {
                SteadySpec { range: Percent((share * 2.0).min(1.0)), slope: ANY, ..default }
            }
            Some(Limit::Slope(share)) => {
                let seconds = window.0.saturating_sub(interval).as_secs_f64();
                SteadySpec { range: ANY, slope: Percent((share * seconds).min(1.0)), ..default }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_fio_become_a_range_and_a_slope_over_the_window() {
        let second = Duration::from_secs(1);
        let spec = |text: &str| {
            let steady: FioSteady = text.parse().expect(text);
            steady.spec("11s".parse().expect("a span"), Span::default(), second)
        };
        let found = |text: &str| {
            let SteadySpec { of, range, slope, .. } = spec(text);
            (of, range, slope)
        };
        assert_eq!(found("iops:10%"), (SteadyMeasure::Iops, Percent(0.2), ANY));
        assert_eq!(found("bw_slope:0.5%"), (SteadyMeasure::Throughput, ANY, Percent(0.05)));
        assert_eq!(found("bw:90%").1, ANY);
        let default =
            SteadySpec { of: SteadyMeasure::Latency, window: Span(11 * second), ..Default::default() };
        assert_eq!(spec("lat"), default);
        for (text, wanted) in [
            ("iops:100", "no share of the mean"),
            ("iops:0%", "nothing is as steady"),
            ("iops:x%", "no share"),
            ("cpu:10%", "bw, iops and lat"),
            ("bw_slope", "needs a limit"),
        ] {
            let error = text.parse::<FioSteady>().expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
