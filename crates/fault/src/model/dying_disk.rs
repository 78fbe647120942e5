//! A dying disk: more and more of its blocks turn bad, and it gets slower and slower.
//!
//! That errors announce a failure is known - Pinheiro, Weber and Barroso, *Failure Trends in a Large Disk Drive
//! Population* (FAST 2007), find a drive 39 times more likely to fail within 60 days of its first scan error than one
//! without - but no publication that we know of gives the course of a death. Ours: bad blocks come at a rate that grows
//! exponentially, and so does the mean of an exponential delay.

use std::time::Duration;

use rotproof_spec::{Path, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DRAWN_MAX;
use super::bad_blocks::{BadBlock, rules_of};
use super::draws::Draws;
use super::form::require_expected;
use super::number::{Count, Number};
use super::timeline::{at, rule_from, validate_over};
use crate::BLOCK_BYTES;
use crate::delay::Delay;
use crate::effect::Effect;
use crate::matching::OperationMatch;
use crate::rule::{Persistence, Rule};

/// Steps in which the delay rises.
const DELAY_STEPS: u32 = 16;

/// The longest mean delay.
const DELAY_MAX: Span = Span(Duration::from_secs(3600));

/// More and more bad blocks, and ever slower.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "parameters such as errors and over")]
pub struct DyingDisk {
    /// Blocks that have turned bad in the end, on average. Default 100, our choice.
    pub errors: Number,
    /// How many times more often blocks turn bad in the end than at first. Default 100, our choice.
    pub growth: Number,
    /// So many of the bad blocks, the first ones, can be remapped by rewriting them; those after stay bad. Default
    /// 50, our choice.
    pub spares: Count,
    /// Mean of what every request takes longer at first. Default 1ms, our choice.
    pub delay_from: Span,
    /// Mean of what every request takes longer in the end. Default 100ms, our choice.
    pub delay_to: Span,
    /// The time of the run that the death takes, from its first request on. Default: the `duration` of the load;
    /// without one, the disk is as it is in the end when the run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
}

impl Default for DyingDisk {
    fn default() -> Self {
        Self {
            errors: Number(100.0),
            growth: Number(100.0),
            spares: Count(50),
            delay_from: Span(Duration::from_millis(1)),
            delay_to: Span(Duration::from_millis(100)),
            over: None,
        }
    }
}

impl DyingDisk {
    /// The blocks that turn bad, in the order in which they do.
    fn bad_blocks(&self, draws: &mut Draws, device_size: u64) -> Vec<BadBlock> {
        let blocks = device_size.div_ceil(BLOCK_BYTES);
        let count = draws.count(self.errors.0, DRAWN_MAX * 2);
        let mut bad: Vec<BadBlock> = (0..count)
            .map(|_| {
                let share = draws.share();
                // The inverse of what has come by then: (growth^t - 1) / (growth - 1).
                let log = self.growth.0.ln();
                let share = if log < 1e-9 { share } else { (share * log.exp_m1()).ln_1p() / log };
                BadBlock { block: draws.below(blocks), share }
            })
            .collect();
        bad.sort_by(|one, other| one.share.total_cmp(&other.share));
        let mut seen = std::collections::BTreeSet::new();
        bad.retain(|bad| seen.insert(bad.block));
        bad
    }

    /// The mean delay in that step.
    fn delay(&self, step: u32) -> Span {
        let (from, to) = (self.delay_from.0.as_secs_f64(), self.delay_to.0.as_secs_f64());
        let risen = f64::from(step) / f64::from(DELAY_STEPS - 1);
        // From nothing there is no factor; then it rises evenly.
        let seconds = if from > 0.0 { from * (to / from).powf(risen) } else { to * risen };
        // What is told in whole microseconds reads better, and no disk is that exact.
        Span(Duration::from_micros((seconds * 1e6).round() as u64))
    }

    pub(super) fn rules(&self, draws: &mut Draws, device_size: u64) -> Vec<Rule> {
        let bad = self.bad_blocks(draws, device_size);
        let (spared, lost) = bad.split_at(bad.len().min(self.spares.0 as usize));
        let mut rules = rules_of(spared, self.over, Persistence::UntilRewritten { spares: None }, 1);
        rules.extend(rules_of(lost, self.over, Persistence::Sticky, rules.len() + 1));
        for rule in &mut rules {
            rule.name = rule.name.take().map(|number| format!("bad-{number}"));
        }
        rules.extend(self.delays());
        rules
    }

    fn delays(&self) -> Vec<Rule> {
        let first = if self.over.is_some() { 0 } else { DELAY_STEPS - 1 };
        let begin = |step: u32| at(f64::from(step) / f64::from(DELAY_STEPS), self.over);
        (first..DELAY_STEPS)
            .filter(|step| !self.delay(*step).0.is_zero())
            .map(|step| {
                let until = (step + 1 < DELAY_STEPS).then(|| begin(step + 1));
                let delay = Effect::Delay(Delay::Exponential(self.delay(step)));
                let from = if self.over.is_some() { begin(step) } else { Span::default() };
                let rule = rule_from(from, until, OperationMatch::Any, delay);
                Rule { name: Some(format!("slow-{}", step + 1)), ..rule }
            })
            .collect()
    }

    pub(super) fn validate(&self, path: &Path, problems: &mut Problems) {
        validate_over(self.over, path, problems);
        self.growth.require(1.0..=1e9, &path.key("growth"), problems);
        require_expected(self.errors.0, "bad blocks", "errors", &path.key("errors"), problems);
        for (key, delay) in [("delay_from", self.delay_from), ("delay_to", self.delay_to)] {
            if delay > DELAY_MAX {
                problems.add_with_help(
                    &path.key(key),
                    format!("a mean delay of {delay} is longer than any request waits"),
                    format!("give from 0 to {DELAY_MAX}"),
                );
            }
        }
        if self.delay_to < self.delay_from {
            problems.add_with_help(
                &path.key("delay_to"),
                format!("the delay falls from {} to {}", self.delay_from, self.delay_to),
                "give at least as much as `delay_from`; a disk does not recover by dying",
            );
        }
        if self.errors.0 <= 0.0 && self.delay_to.0.is_zero() {
            problems.add_with_help(path, "nothing ever happens", "give `errors` or `delay_to`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::statistics::{assert_mean, assert_share};
    use super::*;

    const SIZE: u64 = 1 << 40;

    fn many(model: &DyingDisk) -> Vec<Vec<BadBlock>> {
        (0..500).map(|seed| model.bad_blocks(&mut Draws::new(seed, "disk", "dying_disk"), SIZE)).collect()
    }

    #[test]
    fn blocks_turn_bad_so_often_and_ever_more_often() {
        let found = many(&DyingDisk { errors: Number(40.0), growth: Number(16.0), ..DyingDisk::default() });
        let counts: Vec<f64> = found.iter().map(|bad| bad.len() as f64).collect();
        assert_mean("bad blocks", &counts, 40.0, 40f64.sqrt());
        let all: Vec<&BadBlock> = found.iter().flatten().collect();
        // Of a rate that grows by 16, a quarter of the time each sees 2 times as many as the one before: 1, 2, 4, 8.
        for (quarter, share) in [1.0, 2.0, 4.0, 8.0].map(|part| part / 15.0).into_iter().enumerate() {
            let begin = quarter as f64 / 4.0;
            let hits = all.iter().filter(|bad| (begin..begin + 0.25).contains(&bad.share)).count();
            assert_share("of a quarter", hits, all.len(), share);
        }
        let steady = many(&DyingDisk { errors: Number(40.0), growth: Number(1.0), ..DyingDisk::default() });
        let shares: Vec<f64> = steady.iter().flatten().map(|bad| bad.share).collect();
        assert_mean("when it does not grow", &shares, 0.5, (1.0f64 / 12.0).sqrt());
    }

    #[test]
    fn the_delay_rises_by_the_same_factor_with_every_step() {
        let over = Some(Span(Duration::from_secs(16)));
        let model = DyingDisk { errors: Number(0.0), over, ..DyingDisk::default() };
        let rules = model.rules(&mut Draws::new(1, "disk", "x"), SIZE);
        assert_eq!(rules.len(), 16);
        assert_eq!(rules[0].to_string(), "name=slow-1, any, at=0ms+1s: delay(exponential=1ms)");
        assert_eq!(rules[15].to_string(), "name=slow-16, any, at=15s: delay(exponential=100ms)");
        let means: Vec<f64> = (0..16).map(|step| model.delay(step).0.as_secs_f64()).collect();
        let factor = 100f64.powf(1.0 / 15.0);
        assert!(means.windows(2).all(|pair| (pair[1] / pair[0] / factor - 1.0).abs() < 0.002), "{means:?}");
        let dead = DyingDisk { over: None, ..model };
        let dead: Vec<String> =
            dead.rules(&mut Draws::new(1, "disk", "x"), SIZE).iter().map(ToString::to_string).collect();
        assert_eq!(dead, ["name=slow-16, any, at=0ms: delay(exponential=100ms)"]);
    }

    #[test]
    fn the_first_bad_blocks_can_be_remapped_and_those_after_the_spares_cannot() {
        let model = DyingDisk { spares: Count(3), delay_to: Span::default(), ..DyingDisk::default() };
        let model = DyingDisk { delay_from: Span::default(), ..model };
        let rules = model.rules(&mut Draws::new(1, "disk", "x"), SIZE);
        let [spared, lost] = &rules[..] else { panic!("{rules:?}") };
        assert_eq!((spared.matching.offset.0.len(), spared.persistence.leaves_place()), (3, true));
        assert_eq!((lost.persistence, lost.matching.operation), (Persistence::Sticky, None));
        assert!(lost.matching.offset.0.len() > 50, "{lost}");
    }
}
