//! A cell of the table, and what it has shown.

use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::judge::Reaction;
use crate::operation::Operation;

/// How many copies of the block are bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Copies {
    /// One.
    One,
    /// All that there are, at least two.
    All,
}

impl Copies {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Copies::One => "one",
            Copies::All => "all",
        }
    }
}

/// A kind of block, an effect and an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The kind of block, by its word.
    pub kind: String,
    /// How many copies of it.
    pub copies: Copies,
    /// What is wrong with it.
    pub effect: Effect,
    /// What is done meanwhile.
    pub operation: Operation,
}

impl Cell {
    /// Its name, such as `inode_table/one/flip/lookup`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.kind, self.copies.word(), self.effect, self.operation)
    }

    /// A number of its own, for what chance decides.
    pub(crate) fn key(&self) -> u64 {
        // FNV-1a.
        self.name()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// What came of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The operation never met a bad block of that kind.
    NotReached,
    /// It met it, and this is how the file system reacted.
    Reached(Reaction),
    /// It met it, or was about to, and did not come back.
    Hung(String),
    /// Nobody could see it.
    Unknown(String),
}

/// A cell that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Which.
    #[serde(flatten)]
    pub cell: Cell,
    /// What was done to the device.
    pub harm: String,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub milliseconds: u64,
}

impl Done {
    /// What the table shows: the letters, `-` where it was not reached, `?` where nobody knows.
    pub fn letters(&self) -> &str {
        match &self.outcome {
            Outcome::NotReached => "-",
            Outcome::Reached(reaction) => &reaction.letters,
            Outcome::Hung(_) => "C",
            Outcome::Unknown(_) => "?",
        }
    }
}
