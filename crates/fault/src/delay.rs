//! How much longer a request takes: always the same, or drawn from a distribution.

use std::collections::HashSet;
use std::f64::consts::TAU;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_spec::Span;

/// A distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delay {
    /// Always this.
    Constant(Span),
    /// All spans between the two equally likely.
    Uniform(Span, Span),
    /// Normal with this mean and standard deviation; below zero it is zero.
    Normal(Span, Span),
    /// Exponential with this mean.
    Exponential(Span),
    /// Each span as often as its weight says.
    Histogram(Histogram),
}

/// Spans with their weights. Kept for the life of the process, once for each that differs, so that rules stay plain
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Histogram(Bars);

type Bars = &'static [(Span, u32)];

static KNOWN: Mutex<Option<HashSet<Bars>>> = Mutex::new(None);

impl Histogram {
    /// A histogram of at least one span with a weight.
    pub fn new(bars: &[(Span, u32)]) -> Result<Self, String> {
        if bars.iter().all(|(_, weight)| *weight == 0) {
            return Err("a histogram needs a span with a weight: 1ms*90|50ms*10".to_owned());
        }
        let mut known = KNOWN.lock();
        let known = known.get_or_insert_default();
        let bars = match known.get(bars) {
            Some(bars) => bars,
            None => {
                let kept: Bars = Box::leak(bars.into());
                known.insert(kept);
                kept
            }
        };
        Ok(Self(bars))
    }

    /// The spans with their weights, as they were given.
    pub fn bars(self) -> &'static [(Span, u32)] {
        self.0
    }

    fn at(self, draw: u64) -> Span {
        let total: u64 = self.0.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut place = ((u128::from(draw) * u128::from(total)) >> 64) as u64;
        for (span, weight) in self.0 {
            match place.checked_sub(u64::from(*weight)) {
                None => return *span,
                Some(rest) => place = rest,
            }
        }
        self.0.last().map_or_else(Span::default, |(span, _)| *span)
    }
}

impl fmt::Display for Histogram {
    /// `1ms*90|50ms*10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (span, weight)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "|" };
            write!(f, "{separator}{span}*{weight}")?;
        }
        Ok(())
    }
}

/// A fraction in (0, 1] from a draw: never zero, whose logarithm there is none of.
fn fraction(draw: u64) -> f64 {
    ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64
}

impl Delay {
    /// The delay that a draw stands for.
    pub(crate) fn sample(self, draw: u64) -> Span {
        let seconds =
            |seconds: f64| Span(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        match self {
            Self::Constant(span) => span,
            Self::Uniform(from, to) => {
                let width = to.0.saturating_sub(from.0).as_nanos();
                let share = (u128::from(draw) * (width + 1)) >> 64;
                Span(from.0 + Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX)))
            }
            Self::Normal(mean, deviation) => {
                // Box and Muller, 1958.
                let radius = (-2.0 * fraction(draw).ln()).sqrt();
                let angle = TAU * fraction(mix(draw, 0, 0));
                seconds(mean.0.as_secs_f64() + deviation.0.as_secs_f64() * radius * angle.cos())
            }
            Self::Exponential(mean) => seconds(-mean.0.as_secs_f64() * fraction(draw).ln()),
            Self::Histogram(histogram) => histogram.at(draw),
        }
    }

    /// Whether it is never longer than nothing.
    pub(crate) fn is_nothing(self) -> bool {
        match self {
            Self::Constant(span) | Self::Exponential(span) => span.0.is_zero(),
            Self::Uniform(_, to) => to.0.is_zero(),
            Self::Normal(mean, deviation) => mean.0.is_zero() && deviation.0.is_zero(),
            Self::Histogram(histogram) => histogram.0.iter().all(|(span, _)| span.0.is_zero()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Span {
        Span(Duration::from_millis(count))
    }

    /// Mean and standard deviation of many samples, in milliseconds.
    fn statistics(delay: Delay) -> (f64, f64) {
        let samples: Vec<f64> =
            (0..100_000).map(|n| delay.sample(mix(9, 9, n)).0.as_secs_f64() * 1e3).collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let variance =
            samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / samples.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn the_samples_have_the_mean_and_deviation_of_their_distribution() {
        let histogram = Histogram::new(&[(ms(1), 3), (ms(5), 1)]).expect("a histogram");
        for (delay, mean, deviation) in [
            (Delay::Constant(ms(7)), 7.0, 0.0),
            (Delay::Uniform(ms(10), ms(40)), 25.0, 30.0 / 12f64.sqrt()),
            (Delay::Normal(ms(100), ms(10)), 100.0, 10.0),
            (Delay::Exponential(ms(20)), 20.0, 20.0),
            (Delay::Histogram(histogram), 2.0, 3f64.sqrt()),
        ] {
            let (found_mean, found_deviation) = statistics(delay);
            assert!((found_mean - mean).abs() <= mean * 0.02, "{delay:?}: mean {found_mean}");
            assert!(
                (found_deviation - deviation).abs() <= mean * 0.02,
                "{delay:?}: deviation {found_deviation}"
            );
        }
    }

    #[test]
    fn equal_histograms_are_one() {
        let bars = [(ms(1), 9), (ms(3), 1)];
        let (one, other) = (Histogram::new(&bars).expect("one"), Histogram::new(&bars).expect("other"));
        assert!(std::ptr::eq(one.0, other.0));
        assert!(Histogram::new(&[(ms(1), 0)]).is_err() && Histogram::new(&[]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_distribution_and_no_draw_makes_it_panic(a: u64, b: u64, draw: u64) {
            let (a, b) = (Span(Duration::from_nanos(a)), Span(Duration::from_nanos(b)));
            for delay in [Delay::Uniform(a, b), Delay::Normal(a, b), Delay::Exponential(a)] {
                delay.sample(draw);
            }
        }
    }
}
