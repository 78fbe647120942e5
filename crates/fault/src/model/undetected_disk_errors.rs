//! Undetected disk errors: the disk says that all went well, and it did not.
//!
//! The kinds are those of Rozier et al., *Evaluating the impact of undetected disk errors in RAID systems* (DSN 2009):
//! writes that are dropped, that land beside their track or on another, and reads that bring the wrong data once. How
//! often they come is for the trial to say: there is no default.

use rotproof_spec::{ByteRange, End, Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DRAWN_MAX;
use super::draws::Draws;
use super::form::require_expected;
use super::number::Number;
use crate::BLOCK_BYTES;
use crate::chance::Chance;
use crate::effect::{Bits, Direction, Draw, Effect};
use crate::matching::{Match, OperationMatch};
use crate::one_or_many::OneOrMany;
use crate::rule::Rule;
use crate::schedule::{Per, Schedule};

/// How often a read of a block that was written beside its track brings what was there before.
const OLD_SHARE: &str = "50%";

/// Bits in a row that a read error brings wrong.
const READ_BITS: u32 = 64;

/// Writes that are lost or land elsewhere, reads that bring the wrong data, all without an error. At least one of the
/// probabilities is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "parameters such as dropped and read")]
pub struct UndetectedDiskErrors {
    /// Probability, for each block written, that the write is dropped and the old data stays.
    pub dropped: Number,
    /// Probability, for each block of the device, that it is written beside its track, where the old data stays
    /// readable too: each read of it brings what was there before the last write, or does not.
    pub near_off_track: Number,
    /// Probability, for each block written, that it lands on another track: the old data stays, and another block is
    /// overwritten.
    pub far_off_track: Number,
    /// Probability, for each block read, that a burst of 64 bits comes wrong, that once.
    pub read: Number,
    /// Each of them is multiplied by this, up to 1. Default 1.
    pub acceleration: Number,
}

impl Default for UndetectedDiskErrors {
    fn default() -> Self {
        let never = Number(0.0);
        Self {
            dropped: never,
            near_off_track: never,
            far_off_track: never,
            read: never,
            acceleration: Number(1.0),
        }
    }
}

impl UndetectedDiskErrors {
    fn probability(&self, number: Number) -> f64 {
        (number.0 * self.acceleration.0).min(1.0)
    }

    /// Those that were given, by key.
    fn given(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("dropped", self.dropped),
            ("near_off_track", self.near_off_track),
            ("far_off_track", self.far_off_track),
            ("read", self.read),
        ]
        .map(|(key, number)| (key, self.probability(number)))
        .into_iter()
        .filter(|(_, probability)| *probability > 0.0)
    }

    pub(super) fn rules(&self, draws: &mut Draws, device_size: u64) -> Vec<Rule> {
        self.given()
            .filter_map(|(key, probability)| {
                let rule = match key {
                    "dropped" => per_block(OperationMatch::Write, probability, Effect::LostWrite),
                    "far_off_track" => {
                        let anywhere = Effect::MisdirectedWrite(Direction::Anywhere(Draw::default()));
                        per_block(OperationMatch::Write, probability, anywhere)
                    }
                    "read" => {
                        let bits = Bits::RandomBurst { count: READ_BITS, draw: Draw::default() };
                        per_block(OperationMatch::Read, probability, Effect::BitFlip(bits))
                    }
                    _ => beside_their_track(&near_blocks(draws, probability, device_size)),
                };
                rule.map(|rule| Rule { name: Some(key.to_owned()), ..rule })
            })
            .collect()
    }

    pub(super) fn validate(&self, path: &Path, device_size: Option<u64>, problems: &mut Problems) {
        for (key, number) in [
            ("dropped", self.dropped),
            ("near_off_track", self.near_off_track),
            ("far_off_track", self.far_off_track),
            ("read", self.read),
        ] {
            number.require(0.0..=1.0, &path.key(key), problems);
            let probability = self.probability(number);
            if number.0 > 0.0 && self.acceleration.0 > 0.0 && chance(probability).is_none() {
                problems.add_with_help(
                    &path.key(key),
                    format!("{probability:e} is too small to ever come true"),
                    "give at least 1e-18, or a larger acceleration",
                );
            }
        }
        self.acceleration.require(0.0..=1e18, &path.key("acceleration"), problems);
        if self.given().next().is_none() {
            problems.add_with_help(
                path,
                "nothing ever happens: all probabilities are 0",
                "give at least one of dropped, near_off_track, far_off_track and read, such as 1e-5",
            );
        }
        if let Some(size) = device_size {
            let expected = self.probability(self.near_off_track) * size.div_ceil(BLOCK_BYTES) as f64;
            let path = path.key("near_off_track");
            require_expected(expected, "blocks", "near_off_track or acceleration", &path, problems);
        }
    }
}

/// The probability in decimal; `None` for one that is nothing when written so.
fn chance(probability: f64) -> Option<Chance> {
    format!("{probability:.18}").parse().ok().filter(|chance| *chance != Chance::NEVER)
}

fn per_block(operation: OperationMatch, probability: f64, effect: Effect) -> Option<Rule> {
    Some(Rule {
        matching: Match { operation: Some(operation), ..Match::default() },
        schedule: Schedule::Probability { chance: chance(probability)?, per: Some(Per::Block) },
        ..Rule::new(effect)
    })
}

/// Each block of the device with that probability, in order.
fn near_blocks(draws: &mut Draws, probability: f64, device_size: u64) -> Vec<u64> {
    let blocks = device_size.div_ceil(BLOCK_BYTES);
    // From one to the next, as many are passed over as tries fail before a success.
    let failures = (1.0 - probability) / probability;
    let mut found = Vec::new();
    let mut block = draws.failures(failures);
    while block < blocks && found.len() < DRAWN_MAX as usize * 2 {
        found.push(block);
        block = block.saturating_add(1).saturating_add(draws.failures(failures));
    }
    found
}

fn beside_their_track(blocks: &[u64]) -> Option<Rule> {
    if blocks.is_empty() {
        return None;
    }
    let place = |block: &u64| ByteRange { start: block * BLOCK_BYTES, end: End::OneBlock };
    let mut rule = per_block(OperationMatch::Read, 0.5, Effect::StaleRead)?;
    rule.schedule = Schedule::Probability { chance: OLD_SHARE.parse().ok()?, per: Some(Per::Block) };
    rule.matching.offset = blocks.iter().map(place).collect::<OneOrMany<_>>();
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::super::draws::statistics::assert_mean;
    use super::*;

    fn texts(model: &UndetectedDiskErrors, seed: u64, size: u64) -> Vec<String> {
        let draws = &mut Draws::new(seed, "ude", "undetected_disk_errors");
        model.rules(draws, size).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_kind_is_one_rule_with_its_accelerated_probability() {
        let model = UndetectedDiskErrors {
            dropped: Number(1e-12),
            near_off_track: Number(1e-9),
            far_off_track: Number(3e-13),
            read: Number(2.5e-14),
            acceleration: Number(1e9),
        };
        // Of two blocks, each with a probability of 1.
        assert_eq!(
            texts(&model, 1, 8192),
            [
                "name=dropped, write, probability=0.001/block: lost_write",
                "name=near_off_track, read, offset=0|4KiB, probability=0.5/block: stale_read",
                "name=far_off_track, write, probability=0.0003/block: misdirected_write",
                "name=read, read, probability=2.5e-5/block: bit_flip(burst=64)",
            ]
        );
        let one = UndetectedDiskErrors { read: Number(0.25), ..Default::default() };
        assert_eq!(texts(&one, 1, 8192), ["name=read, read, probability=0.25/block: bit_flip(burst=64)"]);
    }

    #[test]
    fn so_many_blocks_are_written_beside_their_track_as_the_probability_says() {
        let blocks = 10_000u64;
        for probability in [0.001, 0.1, 0.5] {
            let found: Vec<f64> = (0..1000)
                .map(|seed| {
                    let found =
                        near_blocks(&mut Draws::new(seed, "ude", "x"), probability, blocks * BLOCK_BYTES);
                    assert!(
                        found.is_sorted_by(|one, next| one < next) && found.iter().all(|one| *one < blocks)
                    );
                    found.len() as f64
                })
                .collect();
            let mean = blocks as f64 * probability;
            assert_mean("blocks", &found, mean, (mean * (1.0 - probability)).sqrt());
        }
    }
}
