//! What is done to a block, and when it can be met.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A way in which a device fails a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// One bit of what is stored is turned around.
    Flip,
    /// Zeros are stored.
    Zeros,
    /// Noise is stored.
    Noise,
    /// What was stored there earlier.
    Stale,
    /// Reading it fails with EIO, until it is rewritten.
    ReadError,
    /// Writing it fails with EIO.
    WriteError,
    /// A write is acknowledged and not done.
    LostWrite,
    /// A write goes to another block; the right one keeps what it had.
    MisdirectedWrite,
}

impl Effect {
    /// All of them, in the order of the table.
    pub const ALL: [Effect; 8] = [
        Effect::Flip,
        Effect::Zeros,
        Effect::Noise,
        Effect::Stale,
        Effect::ReadError,
        Effect::WriteError,
        Effect::LostWrite,
        Effect::MisdirectedWrite,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Flip => "flip",
            Effect::Zeros => "zeros",
            Effect::Noise => "noise",
            Effect::Stale => "stale",
            Effect::ReadError => "read_error",
            Effect::WriteError => "write_error",
            Effect::LostWrite => "lost_write",
            Effect::MisdirectedWrite => "misdirected_write",
        }
    }

    /// Whether it is met by who reads the block; otherwise by who writes it.
    pub fn is_on_reads(self) -> bool {
        matches!(self, Effect::Flip | Effect::Zeros | Effect::Noise | Effect::Stale | Effect::ReadError)
    }

    /// Whether the device says that something is wrong.
    pub fn is_reported(self) -> bool {
        matches!(self, Effect::ReadError | Effect::WriteError)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
