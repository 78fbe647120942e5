//! What `run.json` holds, by type: of a trial ([`TrialRun`]), of a load without a trial ([`LoadRun`]), of a recording that was
//! explored ([`CrashRun`]).
//!
//! Whoever writes one fills these in, and whoever reads one reads them. Within a form ([`FORMAT`](crate::FORMAT)) fields are only
//! added; one that a run does not have is as by default, so older runs are read.

mod crash;
mod load;
mod trial;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crash::CrashRun;
pub use load::{ClientRun, LoadRun, LoadTrace, LoadWallClock};
pub use trial::{
    CauseRecord, CommandReport, Counts, Expectation, ExternalReport, FailureRecord, FailureSummary,
    FateCounts, GateOutcome, GateReport, ModelReport, ReplayReport, RuleOutcome, RuleReport, SiteReport,
    TrialRun, VerdictWord, WallClock, WantedCount,
};

use crate::performance::Performance;

/// What a run says that it found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Run {
    /// That of a trial.
    Trial(Box<TrialRun>),
    /// That of a load without a trial.
    Load(Box<LoadRun>),
    /// That of a recording that was explored.
    Crash(Box<CrashRun>),
}

impl Run {
    /// Figures by phase and operation.
    pub fn performance(&self) -> &[Performance] {
        match self {
            Self::Trial(run) => &run.performance,
            Self::Load(run) => &run.performance,
            Self::Crash(_) => &[],
        }
    }

    /// That of a trial, if it is one.
    pub fn trial(&self) -> Option<&TrialRun> {
        match self {
            Self::Trial(run) => Some(run),
            _ => None,
        }
    }
}

/// The JSON Schema of `run.json`.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Run);
    schema.insert("title".into(), "What a run of Rotproof found".into());
    schema.to_value()
}
