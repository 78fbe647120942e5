//! What a trial says of a guard over its files.

use rotproof_spec::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SubjectSpec;

/// A guard, through its mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSpec {
    /// Whose files: those of a file system, or of a machine.
    pub over: Box<SubjectSpec>,
    /// What it does with them.
    pub mode: GuardMode,
    /// After how long in memory a block is verified by the strong sum again. Default: never.
    pub switch: Option<Span>,
}

/// What of a guard is switched on, to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GuardMode {
    /// Nothing: what is read and written is passed on.
    #[serde(rename = "plain")]
    Plain,
    /// One sum, which the writer makes and the reader verifies, and nobody between.
    #[serde(rename = "e2e")]
    EndToEnd,
    /// Two sums, and verified at every boundary.
    #[default]
    #[serde(rename = "z2")]
    Z2,
}

impl GuardMode {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            GuardMode::Plain => "plain",
            GuardMode::EndToEnd => "e2e",
            GuardMode::Z2 => "z2",
        }
    }
}
