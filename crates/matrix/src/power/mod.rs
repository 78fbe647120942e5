//! The states that a loss of power may leave of a volume, its members recorded one by one.
//!
//! A story is what happens to a volume, drawn from a seed: it is made, written to, flushed, captured, rolled back, rebuilt, scrubbed
//! and grown, over members each of which is recorded. At every moment of it the power may go, of all members at once, or of one first
//! and of the others at a later write. `rotproof_crash` says what may then be left on each; the volume is opened over that, and must
//! hold what was flushed. In virtual time; the same seed is the same story and the same states.

mod expected;
mod explore;
mod member;
mod story;

pub use explore::{PowerLoss, power_loss};

#[cfg(test)]
mod tests;
