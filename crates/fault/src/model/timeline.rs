//! From the life of a device, which takes years, to the time of a run, which takes seconds.
//!
//! Models think in shares of the span of life that the run stands for, from 0 to 1. With `over` that span is laid out
//! over so much of the run, from its first request on; without it, it lies behind the device when the run begins.

use std::num::NonZero;
use std::time::Duration;

use rotproof_spec::{Path, Problems, Span};

use crate::effect::Effect;
use crate::matching::{Match, OperationMatch};
use crate::rule::Rule;
use crate::schedule::Schedule;

const HOUR_SECONDS: f64 = 3600.0;
const YEAR_SECONDS: f64 = 365.0 * 24.0 * HOUR_SECONDS;
const TIB: f64 = (1u64 << 40) as f64;

/// A year, of 365 days: the default of `life`.
pub(super) const YEAR: Span = Span(Duration::from_secs(365 * 24 * 3600));

/// The longest life of a device that a run can stand for.
const LIFE_MAX: Span = Span(Duration::from_secs(100 * 365 * 24 * 3600));

/// How many years that is.
pub(super) fn years(life: Span) -> f64 {
    life.0.as_secs_f64() / YEAR_SECONDS
}

/// How many TiB that is.
pub(super) fn tebibytes(device_size: u64) -> f64 {
    device_size as f64 / TIB
}

/// The time in the run at which so much of the span of life has passed.
pub(super) fn at(share: f64, over: Option<Span>) -> Span {
    over.map_or_else(Span::default, |over| Span(over.0.mul_f64(share.clamp(0.0, 1.0))))
}

/// A rule for operations that come at `at` or later, up to `until`, with everything else by default.
pub(super) fn rule_from(at: Span, until: Option<Span>, operation: OperationMatch, effect: Effect) -> Rule {
    let lasts = until.map(|until| Span(until.0.saturating_sub(at.0)));
    Rule {
        matching: Match { operation: Some(operation), ..Match::default() },
        schedule: Schedule::Time { at, lasts },
        ..Rule::new(effect)
    }
}

/// The number of steps in which a share rounds down to `step / steps`.
pub(super) fn step_of(share: f64, steps: NonZero<u64>) -> u64 {
    ((share * steps.get() as f64) as u64).min(steps.get() - 1)
}

/// Reports a `life` or an `over` that makes no sense.
pub(super) fn validate(life: Span, over: Option<Span>, path: &Path, problems: &mut Problems) {
    if life.0.is_zero() || life > LIFE_MAX {
        problems.add_with_help(
            &path.key("life"),
            format!("a device does not live for {life}"),
            "give the span of its life that the run stands for, from above 0 to 36500d",
        );
    }
    validate_over(over, path, problems);
}

/// Reports an `over` that makes no sense.
pub(super) fn validate_over(over: Option<Span>, path: &Path, problems: &mut Problems) {
    if over.is_some_and(|over| over.0.is_zero() || over > LIFE_MAX) {
        problems.add_with_help(
            &path.key("over"),
            "a model is laid out over some time of the run",
            "give for example 10s; or leave it out, and all of it lies behind the device when the run begins",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_life_is_the_same_share_of_the_run() {
        let over = Some(Span(Duration::from_secs(10)));
        assert_eq!(at(0.25, over), Span(Duration::from_millis(2500)));
        assert_eq!(at(7.0, over), Span(Duration::from_secs(10)));
        assert_eq!(at(0.5, None), Span::default());
        assert!((years(YEAR) - 1.0).abs() < 1e-12 && (tebibytes(1 << 39) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn steps_cover_all_shares() {
        let steps = NonZero::new(4).expect("not zero");
        assert_eq!([0.0, 0.24, 0.25, 0.99, 1.0].map(|share| step_of(share, steps)), [0, 0, 1, 3, 3]);
    }
}
