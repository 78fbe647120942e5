//! `run.json` of a load without a trial (`rotproof load --results`), of blocks or of files.

use std::borrow::Cow;
use std::path::PathBuf;

use rotproof_load::engine::HungRequest;
use rotproof_load::personality::Personality;
use rotproof_load::{EffortPerRequest, Failure, LoadSpec, TraceReport};
use rotproof_machine::Environment;
use rotproof_probe::ProbeReport;
use rotproof_record::statistics::SteadyEnd;
use rotproof_spec::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::performance::Performance;

/// The content of `run.json` of a load, and what `rotproof load --json` prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadRun {
    /// Version of this form; absent where nothing was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    /// Version of the program; absent where nothing was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotproof: Option<Cow<'static, str>>,
    /// The command line that does it again; absent where nothing was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What it worked on.
    pub target: String,
    /// Bytes of that; absent of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Its seed.
    pub seed: u64,
    /// The load with every default filled in; absent of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadSpec>,
    /// Of files: which load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personality: Option<Personality>,
    /// Of files: how long it was to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// What was read of the trace that was replayed.
    pub trace: Option<LoadTrace>,
    /// Figures by phase and operation.
    pub performance: Vec<Performance>,
    /// Processor time of the load's own threads for each request of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_request: Option<f64>,
    /// What they took for it all in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort_per_request: Option<EffortPerRequest>,
    /// The same of files, for each operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_operation: Option<f64>,
    /// The same of files, for each operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort_per_operation: Option<EffortPerRequest>,
    /// What probes found.
    pub probes: Option<ProbeReport>,
    /// Whether what was read was verified; absent of files, which always are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// Whether its times are virtual.
    pub virtual_time: bool,
    /// Blocks that were written and read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_blocks: Option<u64>,
    /// Files that had to be there in the end, and were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Bytes of them that were right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Blocks that were wrong or unreadable, or could not be written.
    pub failures: Vec<Failure>,
    /// Requests that were under way for too long.
    pub hung: Vec<HungRequest>,
    /// Whether it ended because it was steady; absent if it was not to.
    pub until_steady: Option<SteadyEnd>,
    /// What each client did; absent where there were none.
    pub clients: Option<Vec<ClientRun>>,
    /// Whether it was interrupted: what is here was done up to then.
    pub interrupted: bool,
    /// Where its files are left, because something is wrong with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<PathBuf>,
    /// The folder of the results.
    pub results: Option<String>,
    /// Why they could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results_error: Option<String>,
    /// How much the throughput varied over time, as in a trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_variation: Option<f64>,
    /// What differs between two equal loads; absent where nothing was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_clock: Option<LoadWallClock>,
}

impl LoadRun {
    /// Whether it is one of files.
    pub fn is_of_files(&self) -> bool {
        self.personality.is_some()
    }
}

/// What was read of a trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadTrace {
    /// As in a trial.
    #[serde(flatten)]
    pub read: TraceReport,
    /// Its discards that the target has no operation for.
    pub unsupported_discards: u64,
}

/// What one client did.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientRun {
    /// What it is called here.
    pub client: String,
    /// What it calls itself.
    pub host: String,
    /// The first of its workers, and that behind the last.
    pub workers: (u16, u16),
    /// Its figures.
    pub performance: Vec<Performance>,
    /// Requests of its that ended with an error.
    pub errors: u64,
    /// How many blocks failed that are its own.
    pub failing_blocks: u64,
}

/// What differs between two equal loads.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadWallClock {
    /// When it began, in seconds since 1970.
    pub started_unix_seconds: f64,
    /// What its own threads took for each request or operation of the run.
    pub load: Option<EffortPerRequest>,
    /// The machine.
    pub environment: Option<Environment>,
}
