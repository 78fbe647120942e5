//! Whether a rule acts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a rule acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleState {
    /// It acts.
    #[default]
    Active,
    /// It does nothing, counts nothing, and the places that it has left bad are good, until it is active again: then
    /// it goes on with the counters and the places that it had.
    Paused,
    /// It never acts again and its places are forgotten. Its name is free; its counters stay in reports.
    Removed,
}

impl RuleState {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}
