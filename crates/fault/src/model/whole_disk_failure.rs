//! Whole disk failure: the device is gone from one moment to the next.
//!
//! The time to failure is Weibull distributed, scaled so that the given share fails in the first year. Schroeder and
//! Gibson, *Disk failures in the real world* (FAST 2007: about 100,000 disks), find annual replacement rates of 2% to 4%
//! common and up to 13%, and rates that grow with age early on, which is a shape above 1. The default rate, 1.57%, is
//! that of Backblaze's drives in 2024; the default shape, 1, is the constant hazard that such a rate supposes.

use rotproof_spec::{Path, Percent, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::draws::Draws;
use super::number::Number;
use super::timeline::{self, YEAR, at, rule_from, years};
use crate::effect::Effect;
use crate::matching::OperationMatch;
use crate::rule::Rule;

/// The device is gone from one moment to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "parameters such as afr and over")]
pub struct WholeDiskFailure {
    /// Annual failure rate: the share of new devices that fail within their first year. Default 1.57%, as published
    /// of a large fleet.
    pub afr: Percent,
    /// Shape of the Weibull distribution: below 1 the young fail more, at 1 all ages alike, above 1 the old.
    /// Default 1.
    pub shape: Number,
    /// Age of the device when the run begins. Default 0.
    pub age: Span,
    /// The hazard is multiplied by this. Default 1.
    pub acceleration: Number,
    /// The span of the device's life that the run stands for. Default 365d.
    pub life: Span,
    /// The time of the run over which that span is laid out, from its first request on. Default: the `duration` of
    /// the load; without one, a device that fails is gone when the run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
}

impl Default for WholeDiskFailure {
    fn default() -> Self {
        Self {
            // As it is read from text, so that it reads back as the same.
            afr: Percent(1.57 / 100.0),
            shape: Number(1.0),
            age: Span::default(),
            acceleration: Number(1.0),
            life: YEAR,
            over: None,
        }
    }
}

impl WholeDiskFailure {
    /// The scale in years at which `afr` of new devices fail within one.
    fn scale_years(&self) -> f64 {
        (-(-self.afr.0).ln_1p()).powf(-1.0 / self.shape.0)
    }

    /// When the device fails, as a share of the span of life; above 1 it does not in this run.
    fn fails_at(&self, draws: &mut Draws) -> f64 {
        let (scale, shape, age) = (self.scale_years(), self.shape.0, years(self.age));
        // The hazard that is survived until the failure has an exponential distribution: from what was survived
        // before, by so much more. A hazard multiplied is one of which less is needed.
        let survived = (age / scale).powf(shape);
        let needed = draws.weibull(1.0, 1.0) / self.acceleration.0;
        (scale * (survived + needed).powf(1.0 / shape) - age) / years(self.life)
    }

    pub(super) fn rules(&self, draws: &mut Draws) -> Vec<Rule> {
        let share = self.fails_at(draws);
        if share.is_nan() || share > 1.0 {
            return Vec::new();
        }
        let rule = rule_from(at(share, self.over), None, OperationMatch::Any, Effect::Gone);
        vec![Rule { name: Some("gone".to_owned()), ..rule }]
    }

    pub(super) fn validate(&self, path: &Path, problems: &mut Problems) {
        timeline::validate(self.life, self.over, path, problems);
        if !(self.afr.0 > 0.0 && self.afr.0 < 1.0) {
            problems.add_with_help(
                &path.key("afr"),
                format!("an annual failure rate of {} is none", self.afr),
                "give a share between 0% and 100%; to have the device fail for certain, take the effect gone",
            );
        }
        self.shape.require(0.1..=20.0, &path.key("shape"), problems);
        self.acceleration.require(1e-6..=1e12, &path.key("acceleration"), problems);
        if years(self.age) > 100.0 {
            problems.add_with_help(
                &path.key("age"),
                format!("no device is {} old", self.age),
                "give up to 36500d",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::statistics::{assert_mean, assert_share};
    use super::*;

    const DISKS: usize = 20_000;

    fn times(model: &WholeDiskFailure) -> Vec<f64> {
        (0..DISKS as u64)
            .map(|seed| model.fails_at(&mut Draws::new(seed, "disk", "whole_disk_failure")))
            .collect()
    }

    fn failed(times: &[f64]) -> usize {
        times.iter().filter(|time| **time <= 1.0).count()
    }

    #[test]
    fn the_annual_failure_rate_is_that_of_the_first_year_whatever_the_shape() {
        for shape in [0.7, 1.0, 2.0] {
            let model =
                WholeDiskFailure { afr: Percent(0.04), shape: Number(shape), ..WholeDiskFailure::default() };
            assert_share(&format!("shape {shape}"), failed(&times(&model)), DISKS, 0.04);
        }
        assert_share("by default", failed(&times(&WholeDiskFailure::default())), DISKS, 0.0157);
    }

    #[test]
    fn the_old_fail_more_or_less_than_the_young_as_the_shape_says() {
        let age = Span(YEAR.0 * 4);
        for (shape, grown) in [(0.7, 5f64.powf(0.7) - 4f64.powf(0.7)), (1.0, 1.0), (2.0, 25.0 - 16.0)] {
            let model =
                WholeDiskFailure { afr: Percent(0.04), shape: Number(shape), age, ..Default::default() };
            // The cumulative hazard of a Weibull distribution is (t / scale)^shape.
            let wanted = 1.0 - 0.96f64.powf(grown);
            assert_share(&format!("shape {shape} at four years"), failed(&times(&model)), DISKS, wanted);
        }
    }

    #[test]
    fn an_accelerated_device_fails_by_as_much_more_hazard() {
        let model = WholeDiskFailure { acceleration: Number(50.0), ..WholeDiskFailure::default() };
        let wanted = 1.0 - (1.0f64 - 0.0157).powf(50.0);
        assert_share("accelerated", failed(&times(&model)), DISKS, wanted);
    }

    #[test]
    fn times_to_failure_have_the_mean_of_their_distribution() {
        // Half fail in the first year, so the scale is 1 / ln 2 years for shape 1, of which it is the mean.
        let model = WholeDiskFailure { afr: Percent(0.5), ..WholeDiskFailure::default() };
        let mean = 1.0 / 2f64.ln();
        assert_mean("years", &times(&model), mean, mean);
    }

    #[test]
    fn a_device_that_fails_is_one_rule_and_one_that_does_not_is_none() {
        let over = Some(Span(std::time::Duration::from_secs(10)));
        let sure = WholeDiskFailure { acceleration: Number(1e12), over, ..WholeDiskFailure::default() };
        let rules = sure.rules(&mut Draws::new(1, "disk", "x"));
        assert_eq!(rules.len(), 1);
        let text = rules[0].to_string();
        assert!(text.starts_with("name=gone, any, at=") && text.ends_with(": gone"), "{text}");
        let never = WholeDiskFailure { acceleration: Number(1e-6), ..WholeDiskFailure::default() };
        assert!(never.rules(&mut Draws::new(1, "disk", "x")).is_empty());
    }
}
