//! Fail-slow: the device works, and is slow.
//!
//! The four forms are those of Gunawi et al., *Fail-Slow at Scale* (FAST 2018: 101 reports from 12 institutions):
//! permanent and transient slowdown, slowdown of a part, and transient stops. How often a drive is slow follows Hao et
//! al., *The Tail at Store* (FAST 2016), who find disks more than twice as slow as their peers 0.2% of the time, SSDs
//! 0.6%. That a drive becomes a slow one is taken for certain; Lu et al., *Perseus* (FAST 2023), find 304 such drives
//! among 248,000 in ten months.

use rotproof_spec::{ByteRange, End, Path, Percent, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DRAWN_MAX;
use super::draws::Draws;
use super::form::{require_expected, require_share};
use super::slowness::Slowness;
use super::timeline::{self, YEAR, at, rule_from};
use crate::BLOCK_BYTES;
use crate::delay::Delay;
use crate::effect::Effect;
use crate::matching::OperationMatch;
use crate::one_or_many::OneOrMany;
use crate::rule::Rule;

/// Pieces into which a stop is cut, so that whoever comes late waits for the rest of it alone.
const STOP_PIECES: u32 = 4;

/// A device that works, slowly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "parameters such as form and slowness")]
pub struct FailSlow {
    /// In which way it is slow. Default permanent.
    pub form: SlowForm,
    /// What requests suffer while it is slow. Default exponential=50ms, our choice. Not for stops, which last as long
    /// as they last.
    pub slowness: Slowness,
    /// For transient and stops the share of time in which it is slow, by default 0.2%, as published of disks; for
    /// partial the share of the device, by default 12.5%, our choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Percent>,
    /// For transient and stops, how long one spell lasts on average, in the life of the device. Default 1h, our choice.
    pub spell: Span,
    /// The span of the device's life that the run stands for. Default 365d.
    pub life: Span,
    /// The time of the run over which that span is laid out, from its first request on. Default: the `duration` of
    /// the load; without one, permanent and partial have begun when the run begins, and the others need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
}

/// In which way a device is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlowForm {
    /// From some moment on, always.
    #[default]
    Permanent,
    /// In spells.
    Transient,
    /// From some moment on, in a part of the device.
    Partial,
    /// In spells in which it does nothing at all.
    Stops,
}

impl Default for FailSlow {
    fn default() -> Self {
        Self {
            form: SlowForm::Permanent,
            slowness: Slowness::default(),
            share: None,
            spell: Span(std::time::Duration::from_secs(3600)),
            life: YEAR,
            over: None,
        }
    }
}

impl FailSlow {
    fn share(&self) -> f64 {
        self.share.map_or(if self.form == SlowForm::Partial { 0.125 } else { 0.002 }, |share| share.0)
    }

    /// Mean length of a spell and of the time between two, as shares of the span of life.
    fn means(&self) -> (f64, f64) {
        let spell = self.spell.0.as_secs_f64() / self.life.0.as_secs_f64();
        (spell, spell * (1.0 - self.share()) / self.share())
    }

    /// Beginnings and ends of spells, in order, as shares of the span of life.
    fn spells(&self, draws: &mut Draws) -> Vec<(f64, f64)> {
        let (spell, pause) = self.means();
        let mut spells = Vec::new();
        // An alternating process that has been going on for long: it may be within a spell, and what is left of that
        // is distributed as any, having no memory.
        let mut begin = if draws.comes_true(self.share()) { 0.0 } else { draws.exponential(pause) };
        while begin < 1.0 && spells.len() < DRAWN_MAX as usize * 2 {
            let end = begin + draws.exponential(spell);
            spells.push((begin, end.min(1.0)));
            begin = end + draws.exponential(pause);
        }
        spells
    }

    pub(super) fn rules(&self, draws: &mut Draws, device_size: u64) -> Vec<Rule> {
        let effect = self.slowness.0;
        let mut rules = match self.form {
            SlowForm::Permanent => vec![self.onset(draws, effect)],
            SlowForm::Partial => {
                let mut rule = self.onset(draws, effect);
                rule.matching.offset = OneOrMany(vec![self.part(draws, device_size)]);
                vec![rule]
            }
            SlowForm::Transient => {
                self.spells(draws).into_iter().map(|(begin, end)| self.within(begin, end, effect)).collect()
            }
            SlowForm::Stops => {
                self.spells(draws).into_iter().flat_map(|(begin, end)| self.stop(begin, end)).collect()
            }
        };
        // A spell may be shorter than the clock can tell.
        rules.retain(|rule| !matches!(rule.schedule, crate::Schedule::Time { lasts: Some(lasts), .. } if lasts.0.is_zero()));
        for (rule, number) in rules.iter_mut().zip(1..) {
            rule.name = Some(format!("{number}"));
        }
        rules
    }

    /// From some moment on, for good.
    fn onset(&self, draws: &mut Draws, effect: Effect) -> Rule {
        rule_from(at(draws.share(), self.over), None, OperationMatch::Any, effect)
    }

    fn within(&self, begin: f64, end: f64, effect: Effect) -> Rule {
        rule_from(at(begin, self.over), Some(at(end, self.over)), OperationMatch::Any, effect)
    }

    /// Nothing comes back before `end`.
    fn stop(&self, begin: f64, end: f64) -> Vec<Rule> {
        let (start, stop) = (at(begin, self.over).0, at(end, self.over).0);
        let piece = stop.saturating_sub(start) / STOP_PIECES;
        (0..STOP_PIECES)
            .map(|number| {
                let from = start + piece * number;
                let until = if number + 1 == STOP_PIECES { stop } else { from + piece };
                let hang = Effect::Hang(Some(Span(stop.saturating_sub(from))));
                rule_from(Span(from), Some(Span(until)), OperationMatch::Any, hang)
            })
            .collect()
    }

    /// A stretch of the device.
    fn part(&self, draws: &mut Draws, device_size: u64) -> ByteRange {
        let blocks = device_size.div_ceil(BLOCK_BYTES);
        let length = ((blocks as f64 * self.share()).round() as u64).clamp(1, blocks.max(1));
        let start = draws.below(blocks - length.min(blocks) + 1);
        let end = ((start + length) * BLOCK_BYTES).min(device_size);
        ByteRange { start: start * BLOCK_BYTES, end: End::At(end) }
    }

    pub(super) fn validate(&self, path: &Path, problems: &mut Problems) {
        timeline::validate(self.life, self.over, path, problems);
        if let Some(share) = self.share {
            require_share(share, &path.key("share"), problems);
        }
        let is_slow = match self.slowness.0 {
            Effect::Delay(delay) => {
                !delay.is_nothing() && !matches!(delay, Delay::Uniform(from, to) if from > to)
            }
            Effect::Bandwidth(rate) => rate.0 > 0,
            _ => false,
        };
        if !is_slow {
            problems.add_with_help(
                &path.key("slowness"),
                format!("{} is no slowness", self.slowness),
                "give for example 100ms, exponential=50ms or bandwidth=100KiB",
            );
        }
        match self.form {
            SlowForm::Permanent if self.share.is_some() => problems.add_with_help(
                &path.key("share"),
                "a device that is slow for good is not slow at times or in parts",
                "leave it out, or take form transient, partial or stops",
            ),
            SlowForm::Permanent => {}
            _ if self.share() <= 0.0 || self.share() >= 1.0 => problems.add_with_help(
                &path.key("share"),
                "a share of all or nothing is no spell and no part",
                "give a share between 0% and 100%, or take form permanent",
            ),
            SlowForm::Partial => {}
            SlowForm::Transient | SlowForm::Stops => self.validate_spells(path, problems),
        }
    }

    fn validate_spells(&self, path: &Path, problems: &mut Problems) {
        if self.over.is_none() {
            problems.add_with_help(
                path,
                "spells need a time of the run over which they are laid out, and this load has no duration",
                "add for example `over: 10s`",
            );
        }
        if self.spell.0.is_zero() {
            problems.add_with_help(
                &path.key("spell"),
                "a spell of no time slows nothing",
                "give for example 1h",
            );
        } else if !self.life.0.is_zero() {
            let (spell, pause) = self.means();
            let pieces = if self.form == SlowForm::Stops { f64::from(STOP_PIECES) } else { 1.0 };
            let expected = pieces / (spell + pause);
            require_expected(expected, "rules", "share or life, or lengthen spell", path, problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::draws::statistics::assert_mean;
    use super::*;

    fn draws(seed: u64) -> Draws {
        Draws::new(seed, "slow", "fail_slow")
    }

    fn hour(hours: u64) -> Span {
        Span(Duration::from_secs(3600 * hours))
    }

    fn texts(model: &FailSlow, seed: u64) -> Vec<String> {
        model.rules(&mut draws(seed), 1 << 20).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_device_is_slow_for_its_share_of_the_time_in_spells_of_their_mean_length() {
        let model = FailSlow {
            form: SlowForm::Transient,
            share: Some(Percent(0.02)),
            spell: hour(2),
            life: hour(10_000),
            ..FailSlow::default()
        };
        let found: Vec<Vec<(f64, f64)>> = (0..400).map(|seed| model.spells(&mut draws(seed))).collect();
        let slow = |spells: &Vec<(f64, f64)>| spells.iter().map(|(begin, end)| end - begin).sum::<f64>();
        let shares: Vec<f64> = found.iter().map(slow).collect();
        // Of an alternating renewal process with exponential times the variance of the time in one state tends to
        // 2 mean1^2 mean2^2 / (mean1 + mean2)^3 per unit of time (Cox, Renewal Theory, 1962).
        let (spell, pause) = model.means();
        let variance = 2.0 * spell.powi(2) * pause.powi(2) / (spell + pause).powi(3);
        assert_mean("share", &shares, 0.02, variance.sqrt());
        let whole = found.iter().flatten().filter(|(begin, end)| *begin > 0.0 && *end < 1.0);
        let hours: Vec<f64> = whole.map(|(begin, end)| (end - begin) * 10_000.0).collect();
        assert_mean("hours of a spell", &hours, 2.0, 2.0);
        for spells in &found {
            assert!(spells.windows(2).all(|pair| pair[0].1 < pair[1].0), "spells are apart");
        }
    }

    #[test]
    fn each_form_is_the_rules_that_it_says() {
        let over = Some(Span(Duration::from_secs(10)));
        let slowness: Slowness = "100ms".parse().expect("a delay");
        let model = FailSlow { slowness, over, ..FailSlow::default() };
        let [permanent] = &texts(&model, 1)[..] else { panic!("one rule") };
        assert!(
            permanent.starts_with("name=1, any, at=") && permanent.ends_with(": delay(100ms)"),
            "{permanent}"
        );
        let partial = FailSlow { form: SlowForm::Partial, over: None, ..model.clone() };
        let [partial] = &texts(&partial, 1)[..] else { panic!("one rule") };
        assert!(
            partial.starts_with("name=1, any, offset=") && partial.ends_with(", at=0ms: delay(100ms)"),
            "{partial}"
        );
        let spells =
            FailSlow { form: SlowForm::Transient, share: Some(Percent(0.5)), spell: hour(2000), ..model };
        let rules = texts(&spells, 1);
        assert!(
            rules.len() > 1
                && rules.iter().all(|rule| rule.contains("+") && rule.ends_with(": delay(100ms)"))
        );
        let stops = FailSlow { form: SlowForm::Stops, ..spells.clone() };
        assert_eq!(texts(&stops, 1).len(), 4 * rules.len());
    }

    #[test]
    fn a_slow_part_has_its_share_of_the_device_and_lies_anywhere_on_it() {
        let model = FailSlow { form: SlowForm::Partial, share: Some(Percent(0.25)), ..FailSlow::default() };
        let starts: Vec<f64> = (0..2000)
            .map(|seed| {
                let part = model.part(&mut draws(seed), 1 << 22);
                assert_eq!(part.end, End::At(part.start + (1 << 20)));
                part.start as f64 / 4096.0
            })
            .collect();
        // Evenly from block 0 to 768.
        assert_mean("start", &starts, 384.0, (769.0f64.powi(2) / 12.0).sqrt());
    }

    #[test]
    fn a_stop_lets_nobody_go_before_its_end() {
        let model = FailSlow { over: Some(Span(Duration::from_secs(8))), ..FailSlow::default() };
        let stop: Vec<String> = model.stop(0.25, 0.75).iter().map(ToString::to_string).collect();
        assert_eq!(
            stop,
            [
                "any, at=2s+1s: hang(4s)",
                "any, at=3s+1s: hang(3s)",
                "any, at=4s+1s: hang(2s)",
                "any, at=5s+1s: hang(1s)"
            ]
        );
    }
}
