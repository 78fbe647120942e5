//! Fault models: named, parameterised ways in which real devices go wrong, with the published figures they follow.
//!
//! A model is *drawn* before the run into ordinary rules, called `NAME.part`, as a pure function of the seed, its
//! name, its parameters and the size of the device ([`DrawnFrom`]). What comes after - decisions, ledger, replay,
//! attribution - knows rules alone, and this module knows no request.
//!
//! One file per model. Each says which figures it follows; a default that no publication gives is said to be ours.

mod bad_blocks;
mod bit_rot;
mod draws;
mod dying_disk;
mod entry;
mod fail_slow;
mod form;
mod latent_sector_errors;
mod number;
mod plan;
mod slowness;
mod timeline;
mod undetected_disk_errors;
mod whole_disk_failure;

use rotproof_spec::{Path, Problems, Span};

pub use bit_rot::BitRot;
pub use dying_disk::DyingDisk;
pub use entry::{FaultEntry, ModelEntry};
pub use fail_slow::{FailSlow, SlowForm};
pub use latent_sector_errors::LatentSectorErrors;
pub use number::{Count, Number};
pub use plan::{DrawnModel, Plan, validate_plan};
pub use slowness::Slowness;
pub use undetected_disk_errors::UndetectedDiskErrors;
pub use whole_disk_failure::WholeDiskFailure;

use crate::rule::Rule;
use draws::Draws;

/// A fault model with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// Sectors that turn unreadable unnoticed, near each other in place and in time.
    LatentSectorErrors(LatentSectorErrors),
    /// Writes that are lost or land elsewhere, reads that bring the wrong data, all without an error.
    UndetectedDiskErrors(UndetectedDiskErrors),
    /// Bits that flip while data rests.
    BitRot(BitRot),
    /// A device that works, slowly.
    FailSlow(FailSlow),
    /// More and more bad blocks, and ever slower.
    DyingDisk(DyingDisk),
    /// The device is gone from one moment to the next.
    WholeDiskFailure(WholeDiskFailure),
}

/// What a model is drawn from, beside its own parameters.
#[derive(Clone, Copy, Debug)]
pub struct DrawnFrom<'a> {
    /// Seed of the trial.
    pub seed: u64,
    /// What reports call the model: two of the same kind are drawn apart.
    pub name: &'a str,
    /// Size in bytes of the device that the faults act on.
    pub device_size: u64,
}

/// Of bad blocks, flipped bits or spells of slowness a model may be expected to draw no more than this, and of those
/// of one kind it draws no more than twice as many: it is a trial, not a census.
pub(crate) const DRAWN_MAX: u64 = 10_000;

impl Model {
    /// The words they are written with.
    pub const WORDS: [&'static str; 6] = [
        "latent_sector_errors",
        "undetected_disk_errors",
        "bit_rot",
        "fail_slow",
        "dying_disk",
        "whole_disk_failure",
    ];

    /// The word it is written with.
    pub fn word(&self) -> &'static str {
        match self {
            Self::LatentSectorErrors(_) => "latent_sector_errors",
            Self::UndetectedDiskErrors(_) => "undetected_disk_errors",
            Self::BitRot(_) => "bit_rot",
            Self::FailSlow(_) => "fail_slow",
            Self::DyingDisk(_) => "dying_disk",
            Self::WholeDiskFailure(_) => "whole_disk_failure",
        }
    }

    /// The rules that chance makes of it, each named by its part alone. The same for the same arguments, always.
    pub(crate) fn draw(&self, from: &DrawnFrom<'_>) -> Vec<Rule> {
        let draws = &mut Draws::new(from.seed, from.name, self.word());
        let size = from.device_size;
        match self {
            Self::LatentSectorErrors(model) => model.rules(draws, size),
            Self::UndetectedDiskErrors(model) => model.rules(draws, size),
            Self::BitRot(model) => model.rules(draws, size),
            Self::FailSlow(model) => model.rules(draws, size),
            Self::DyingDisk(model) => model.rules(draws, size),
            Self::WholeDiskFailure(model) => model.rules(draws),
        }
    }

    /// Reports parameters that make no sense. `path` is where they stand, `device_size` that of the device in bytes,
    /// as far as it is known.
    pub(crate) fn validate(&self, path: &Path, device_size: Option<u64>, problems: &mut Problems) {
        match self {
            Self::LatentSectorErrors(model) => model.validate(path, device_size, problems),
            Self::UndetectedDiskErrors(model) => model.validate(path, device_size, problems),
            Self::BitRot(model) => model.validate(path, device_size, problems),
            Self::FailSlow(model) => model.validate(path, problems),
            Self::DyingDisk(model) => model.validate(path, problems),
            Self::WholeDiskFailure(model) => model.validate(path, problems),
        }
    }

    /// Lays the model out over a run that takes so long, unless it says itself over how much of it.
    pub fn fill_in_over(&mut self, run: Span) {
        let over = match self {
            Self::LatentSectorErrors(model) => &mut model.over,
            Self::UndetectedDiskErrors(_) => return,
            Self::BitRot(model) => &mut model.over,
            Self::FailSlow(model) => &mut model.over,
            Self::DyingDisk(model) => &mut model.over,
            Self::WholeDiskFailure(model) => &mut model.over,
        };
        over.get_or_insert(run);
    }
}
