//! Reliability mathematics: how probable it is that a block is read wrong and nobody notices.
//!
//! The framework is that of Y. Zhang, *Cooperative Data Protection*, section 4.1. A block travels a [`Path`] of
//! [`Stage`]s; each is a device with its error rate, a time, and what protects the block there. NC, ZFS, E2E and Z2 are
//! [`systems`] built from the same stages. Every probability is a [`Probability`], kept as its logarithm.
//!
//! No I/O, no clock, nothing of the other crates: numbers in, numbers out.

pub mod contour;
pub mod estimate;
pub mod fleet;

pub mod systems;

mod bit_errors;
mod checksum;
mod device;
mod goal;
mod path;
mod probability;
mod switching;
mod uncertain;

pub use bit_errors::{Arrival, BitErrors};
pub use checksum::{Checksum, Weakness};
pub use device::{Device, Disk, Memory, Rot, SECONDS_PER_YEAR, fit_per_mbit, index_of, rate_of_index};
pub use goal::Goal;
pub use path::{Fate, Outcome, Path, Protection, Redundancy, Repair, Stage, StageFate, Time};
pub use probability::Probability;
pub use switching::{Switch, switch_time};
pub use uncertain::{Bound, Uncertain};

/// Bits of a block: 4 KiB.
pub const BLOCK_BITS: u32 = 32_768;

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = BLOCK_BITS / 8;
