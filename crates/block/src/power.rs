//! The ability to lose power: of devices that hold what they have acknowledged in a memory that a power cut empties.
//!
//! Beside [`crate::Device`], for whoever takes the power: a rule, a trial, a test.

/// What becomes of that which a power cut may lose. Each is a state that the contract of [`crate::device`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it reaches the medium, as with a capacitor.
    All,
    /// None of it does, but what was on its way already.
    None,
    /// Some of it does, drawn from this seed: of each write each aligned atomic unit or not.
    Part {
        /// Root of the draws.
        seed: u64,
    },
}

/// Something whose power can go and come back.
pub trait Power: Send + Sync {
    /// Takes the power. From now on every request fails with [`crate::ErrorKind::Gone`], also those under way, which may
    /// have taken effect or not. What was volatile is kept as said. Without effect if there is no power.
    fn cut(&self, kept: Kept);

    /// Gives the power back. The device serves again what its medium has. Without effect if it has power.
    fn restore(&self);

    /// Whether it has power.
    fn is_on(&self) -> bool;
}
