//! What a run found, as `run.json` holds it.

use std::collections::BTreeMap;

use rotproof_crash::CrashReport;
use rotproof_fault::DrawnModel;
use rotproof_layers::LayerReport;
use rotproof_load::engine::HungRequest;
use rotproof_load::{EffortPerRequest, RealisedContent, TraceReport};
use rotproof_machine::{Environment, Usage};
use rotproof_measure::Performance;
use rotproof_probe::ProbeReport;
use rotproof_record::statistics::{Degradation, SteadyEnd, SteadyState, WindowFigures};
use rotproof_subject::SubjectDescription;
use serde::Serialize;

use super::external::ExternalReport;
use super::replay::ReplayReport;
use crate::expect::{Counts, Expectation};
use crate::file::RuntimeKind;
use crate::gate::GateReport;
use crate::verdict::RuleOutcome;

/// The content of `run.json`. Under the simulated runtime everything but [`Report::wall_clock`] is the same for
/// equal trials, to the byte.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this form.
    pub format: u32,
    /// Version of the program.
    pub rotproof: &'static str,
    /// Name of the trial.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Its runtime.
    pub runtime: RuntimeKind,
    /// What was on trial, and how it was made.
    pub subject: SubjectDescription,
    /// `pass` or `fail`; `interrupted` if somebody asked to stop before all was read back.
    pub verdict: &'static str,
    /// What was expected, and whether it holds.
    pub expectations: Vec<Expectation>,
    /// Each limit of a gate held against its figure; absent without gates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateReport>,
    /// Every number that can be expected.
    pub counts: Counts,
    /// What came of each rule, in the order of the plan.
    pub faults: Vec<RuleReport>,
    /// The places for faults, each with the size of the device below it; absent without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteReport>,
    /// What each model was drawn into; absent without models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelReport>,
    /// The failing blocks in numbers; `failures.jsonl` has them one by one.
    pub failures: FailureSummary,
    /// What the subject noticed by itself between load and check.
    pub noticed: Vec<String>,
    /// What the load wrote: how much of it repeated; absent where a command is the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<RealisedContent>,
    /// How the command that is the load ended; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalReport>,
    /// How much the throughput of the load varied over time: the standard deviation of its whole intervals as a share of
    /// their mean; absent of fewer than three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_variation: Option<f64>,
    /// What was read of the trace that was replayed; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceReport>,
    /// Figures by phase and operation.
    pub performance: Vec<Performance>,
    /// Requests that were under way for too long; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hung: Vec<HungRequest>,
    /// What each fault took away from the load while it ran; absent where no fault hit it for long enough to tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degradation: Vec<Degradation>,
    /// What the load did in the window of each fault and before, in figures that gates can limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowFigures>,
    /// Since when the load was steady; absent if that was not asked, or the load ended before it could be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_state: Option<SteadyState>,
    /// Whether the load ended because it was steady; absent if it was not to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_steady: Option<SteadyEnd>,
    /// What each `stats` layer counted and how much a `dedup` layer saved, bottom to top.
    pub layers: Vec<LayerReport>,
    /// One hash of all injections without their times: equal for equal runs. Absent without a fault layer.
    pub ledger_digest: Option<String>,
    /// What a power loss during the load may leave; absent without `crash`. The failing states lie beside, a file each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashReport>,
    /// Whether the faults of another run came again; absent if none were to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayReport>,
    /// What differs between two equal runs.
    pub wall_clock: WallClock,
}

/// A place in the stack where faults acted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteReport {
    /// What rules call it in `on`.
    pub name: String,
    /// Bytes of the device below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What a model was drawn into.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub name: String,
    /// Which model, with the parameters that are not as by default.
    pub model: String,
    /// How many rules it was drawn into.
    pub rules: u64,
}

impl ModelReport {
    pub(super) fn of(model: &DrawnModel) -> Self {
        Self { name: model.name.clone(), model: model.model.clone(), rules: model.rules.len() as u64 }
    }
}

/// What came of one rule.
#[derive(Clone, Debug, Serialize)]
pub struct RuleReport {
    /// Its name.
    pub name: String,
    /// The rule in its short form.
    pub rule: String,
    /// The name of the model that it was drawn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its numbers.
    #[serde(flatten)]
    pub outcome: RuleOutcome,
    /// What may surprise in the numbers, explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The failing blocks in numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FailureSummary {
    /// By what they are.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// By the object they are in; objects without any are not listed.
    pub by_object: BTreeMap<String, u64>,
    /// Sizes of those objects in bytes.
    pub object_bytes: BTreeMap<String, u64>,
}

/// What differs between two equal runs: times of day, cost, machine.
#[derive(Clone, Debug, Serialize)]
pub struct WallClock {
    /// When the run began, in seconds since 1970.
    pub started_unix_seconds: f64,
    /// What it cost.
    pub usage: Usage,
    /// What the load's own threads took for each request of the phase *run*; absent where a command is the load, and
    /// under the simulated runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<EffortPerRequest>,
    /// What probes found in the phase *run*; absent without probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeReport>,
    /// The machine.
    pub environment: Environment,
    /// What the kernel said about the subject's devices.
    pub kernel_messages: Vec<String>,
}
