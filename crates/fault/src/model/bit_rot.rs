//! Bit rot: bits of resting data flip at a constant rate, each for itself.
//!
//! No field study that we know of gives a rate of flipped bits on the medium: what is published are blocks whose
//! checksums do not match, from whatever cause. Bairavasundaram et al., *An Analysis of Data Corruption in the Storage
//! Stack* (FAST 2008), count more than 400,000 of those on 1.53 million disks in 41 months, nearline disks developing
//! them an order of magnitude more often than enterprise disks, and near each other. The default rate is ours.

use std::collections::BTreeSet;

use rotproof_spec::{ByteRange, End, Path, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DRAWN_MAX;
use super::draws::Draws;
use super::form::require_expected;
use super::number::{Count, Number};
use super::timeline::{self, YEAR, at, rule_from, tebibytes, years};
use crate::BLOCK_BYTES;
use crate::effect::{Bits, Effect};
use crate::matching::OperationMatch;
use crate::one_or_many::OneOrMany;
use crate::rule::{Persistence, Rule};

/// Bits that flip while data rests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "parameters such as rate and over")]
pub struct BitRot {
    /// Flips for each TiB and year. Default 1, our choice.
    pub rate: Number,
    /// The rate is multiplied by this: what a small device takes to show any. Default 1.
    pub acceleration: Number,
    /// The span of the device's life that the run stands for. Default 365d.
    pub life: Span,
    /// The time of the run over which that span is laid out, from its first request on. Default: the `duration` of
    /// the load; without one, all bits have flipped when the run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
    /// Bits in a row that flip at once. Default 1.
    pub bits: Count,
}

impl Default for BitRot {
    fn default() -> Self {
        Self { rate: Number(1.0), acceleration: Number(1.0), life: YEAR, over: None, bits: Count(1) }
    }
}

/// Bits that flip at some point of a device's life.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flip {
    block: u64,
    /// The first, counted from the start of the block.
    bit: u32,
    /// When: the share of the span of life that has passed.
    share: f64,
}

impl BitRot {
    fn expected(&self, device_size: u64) -> f64 {
        self.rate.0 * self.acceleration.0 * tebibytes(device_size) * years(self.life)
    }

    fn flips(&self, draws: &mut Draws, device_size: u64) -> Vec<Flip> {
        let count = draws.count(self.expected(device_size), DRAWN_MAX * 2);
        let flip = |_| {
            let byte = draws.below(device_size);
            let (block, within) = (byte / BLOCK_BYTES, (byte % BLOCK_BYTES) as u32);
            // None reaches beyond its block, whose last may be short.
            let bits = (device_size - block * BLOCK_BYTES).min(BLOCK_BYTES) as u32 * 8;
            let bit = (within * 8 + draws.below(8) as u32).min(bits.saturating_sub(self.bits.0));
            Flip { block, bit, share: draws.share() }
        };
        (0..count).map(flip).collect()
    }

    pub(super) fn rules(&self, draws: &mut Draws, device_size: u64) -> Vec<Rule> {
        let mut flips = self.flips(draws, device_size);
        flips.sort_by(|one, other| one.share.total_cmp(&other.share));
        // A bit that flips twice would be right again.
        let mut seen = BTreeSet::new();
        flips.retain(|flip| seen.insert((flip.block, flip.bit)));
        flips.iter().zip(1..).map(|(flip, number): (&Flip, usize)| self.rule(flip, number)).collect()
    }

    fn rule(&self, flip: &Flip, number: usize) -> Rule {
        let (byte, bit) = (flip.bit / 8, (flip.bit % 8) as u8);
        let bits = match self.bits.0 {
            1 => Bits::At { byte, bit },
            count => Bits::Burst { byte, bit, count },
        };
        let mut rule =
            rule_from(at(flip.share, self.over), None, OperationMatch::Read, Effect::BitFlip(bits));
        let place = ByteRange { start: flip.block * BLOCK_BYTES, end: End::OneBlock };
        rule.matching.offset = OneOrMany(vec![place]);
        rule.persistence = Persistence::UntilRewritten { spares: None };
        rule.name = Some(number.to_string());
        rule
    }

    pub(super) fn validate(&self, path: &Path, device_size: Option<u64>, problems: &mut Problems) {
        let before = problems.iter().count();
        timeline::validate(self.life, self.over, path, problems);
        self.rate.require(0.0..=1e12, &path.key("rate"), problems);
        self.acceleration.require(0.0..=1e12, &path.key("acceleration"), problems);
        if !(1..=4096).contains(&self.bits.0) {
            problems.add_with_help(
                &path.key("bits"),
                format!("{} bits in a row cannot flip", self.bits),
                "give from 1 to 4096",
            );
        }
        // Of what makes no sense nothing can be expected.
        if let Some(size) = device_size.filter(|_| problems.iter().count() == before) {
            require_expected(self.expected(size), "flips", "rate or acceleration", path, problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::statistics::assert_mean;
    use super::*;

    const SIZE: u64 = 64 << 20;

    fn model() -> BitRot {
        // 20 flips on 64 MiB.
        BitRot { acceleration: Number(20.0 / tebibytes(SIZE)), ..BitRot::default() }
    }

    fn many() -> Vec<Vec<Flip>> {
        (0..500).map(|seed| model().flips(&mut Draws::new(seed, "rot", "bit_rot"), SIZE)).collect()
    }

    #[test]
    fn bits_flip_at_the_rate_that_was_asked_for_anywhere_and_any_time() {
        let found = many();
        let counts: Vec<f64> = found.iter().map(|flips| flips.len() as f64).collect();
        assert_mean("flips", &counts, 20.0, 20f64.sqrt());
        let all: Vec<&Flip> = found.iter().flatten().collect();
        let uniform = |what: &str, value: &dyn Fn(&Flip) -> f64| {
            let values: Vec<f64> = all.iter().map(|flip| value(flip)).collect();
            assert_mean(what, &values, 0.5, (1.0f64 / 12.0).sqrt());
        };
        uniform("place", &|flip| (flip.block as f64 + 0.5) / (SIZE / BLOCK_BYTES) as f64);
        uniform("bit of the block", &|flip| (f64::from(flip.bit) + 0.5) / (BLOCK_BYTES * 8) as f64);
        uniform("bit of the byte", &|flip| (f64::from(flip.bit % 8) + 0.5) / 8.0);
        uniform("time", &|flip| flip.share);
    }

    #[test]
    fn a_flip_is_a_rule_for_its_bit_from_its_time_on() {
        let over = Some(Span(std::time::Duration::from_secs(10)));
        let flip = Flip { block: 5, bit: 8 * 100 + 3, share: 0.25 };
        let rule = BitRot { over, ..model() }.rule(&flip, 7);
        assert_eq!(
            rule.to_string(),
            "name=7, read, offset=20KiB, at=2500ms, until_rewritten: bit_flip(byte=100, bit=3)"
        );
        let rule = BitRot { bits: Count(12), ..model() }.rule(&flip, 7);
        assert!(rule.to_string().ends_with("at=0ms, until_rewritten: bit_flip(byte=100, bit=3, burst=12)"));
    }

    #[test]
    fn no_flip_reaches_beyond_its_block_nor_beyond_the_device() {
        let size = 4096 + 512;
        let model =
            BitRot { acceleration: Number(1000.0 / tebibytes(size)), bits: Count(40), ..BitRot::default() };
        for flip in model.flips(&mut Draws::new(1, "rot", "x"), size) {
            let bits = if flip.block == 0 { 4096 * 8 } else { 512 * 8 };
            assert!(flip.block < 2 && flip.bit + 40 <= bits, "{flip:?}");
        }
    }
}
