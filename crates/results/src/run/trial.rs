//! `run.json` of a trial.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use rotproof_crash::{CrashReport, Pace};
use rotproof_layers::LayerReport;
use rotproof_load::engine::HungRequest;
use rotproof_load::{EffortPerRequest, Failure, RealisedContent, TraceReport};
use rotproof_machine::{Environment, Usage};
use rotproof_probe::ProbeReport;
use rotproof_record::statistics::{Degradation, SteadyEnd, SteadyState, WindowFigures};
use rotproof_subject::SubjectDescription;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::performance::Performance;

/// The content of `run.json` of a trial. Under the simulated runtime everything but [`TrialRun::wall_clock`] is the same for
/// equal trials, to the byte.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TrialRun {
    /// Version of this form.
    pub format: u32,
    /// Version of the program.
    pub rotproof: Cow<'static, str>,
    /// Name of the trial.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Its runtime: `io_uring` or `simulated`.
    pub runtime: Cow<'static, str>,
    /// What was on trial, and how it was made.
    pub subject: SubjectDescription,
    /// What came of it.
    pub verdict: VerdictWord,
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

/// What came of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictWord {
    /// Every expectation and every gate holds.
    Pass,
    /// One does not. What does not say what came of it did not pass.
    #[default]
    Fail,
    /// Somebody asked to stop before all was read back.
    Interrupted,
}

impl VerdictWord {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether the trial passed.
    pub fn passes(self) -> bool {
        self == Self::Pass
    }
}

/// What a verdict counted, named as in `expect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Blocks that the load or the check found wrong or unreadable.
    pub failures: u64,
    /// Files with such blocks.
    pub failing_files: u64,
    /// Requests of the load and the check that ended with an error.
    pub errors: u64,
    /// Injections; `hits` in form 1.
    #[serde(alias = "hits")]
    pub injections: u64,
    /// Faults that were seen to harm nobody.
    pub masked: u64,
    /// Faults that came back as an error.
    pub reported: u64,
    /// Faults over which the right data was put back.
    pub repaired: u64,
    /// Faults that were handed out as if they were right.
    pub silent: u64,
    /// Faults that never met a request.
    pub untriggered: u64,
    /// Faults that happened, and nothing shows what became of them.
    pub unknown: u64,
    /// The exit code of the command that is the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u64>,
    /// The exit code of its `check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_exit: Option<u64>,
    /// Failures that may come of an injected fault, which nothing shows.
    pub assumed: u64,
    /// Failures that no injected fault accounts for.
    pub unexplained: u64,
    /// States of a power loss that fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_states: Option<u64>,
    /// Those at which nobody could look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_states: Option<u64>,
    /// Those in which nothing wrong was found, but of which only a part was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partly_judged_states: Option<u64>,
    /// Those that were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<u64>,
    /// Rules that never did anything; a model counts as one.
    pub idle_rules: u64,
}

/// What a count had to be: a number, or a comparison such as `>= 1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WantedCount {
    /// Exactly this.
    Exactly(u64),
    /// As it was written.
    Said(String),
}

impl fmt::Display for WantedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => f.pad(&number.to_string()),
            Self::Said(text) => f.pad(text),
        }
    }
}

/// One line of `expect` held against what was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The key in `expect`.
    pub name: Cow<'static, str>,
    /// What it must be.
    pub wanted: WantedCount,
    /// What it is.
    pub found: u64,
    /// Whether it is as it must be.
    pub holds: bool,
}

/// One limit held against its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateReport {
    /// What it is about: `run read`, or the name of a fault and an operation.
    pub of: String,
    /// Which figure of it.
    pub figure: Cow<'static, str>,
    /// The limit, as it is written.
    pub wanted: String,
    /// What was found, in bytes or requests a second or in nanoseconds; absent if it cannot be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<f64>,
    /// What that is a share of; absent of a limit that is an amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<f64>,
    /// What came of it.
    pub outcome: GateOutcome,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the trial may pass with it: it holds, or is unknown and that is allowed.
    pub passes: bool,
}

/// What came of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateOutcome {
    /// The figure is as wanted.
    Holds,
    /// It is not.
    Fails,
    /// The figure cannot be had, or not as exactly as it would take.
    Unknown,
}

/// A place in the stack where faults acted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteReport {
    /// What rules call it in `on`.
    pub name: String,
    /// Bytes of the device below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What a model was drawn into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelReport {
    /// Its name.
    pub name: String,
    /// Which model, with the parameters that are not as by default.
    pub model: String,
    /// How many rules it was drawn into.
    pub rules: u64,
}

/// What came of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
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

/// The numbers of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RuleOutcome {
    /// How often it hit, each time an injection; a sticky place is hit each time it is met.
    pub hits: u64,
    /// Faults, one for each place the rule hit or was aimed at.
    pub faults: u64,
    /// Their fates.
    pub fates: FateCounts,
    /// Failing blocks they account for.
    pub failing_blocks: u64,
    /// Objects (files, or the one device) with such blocks.
    pub failing_files: u64,
}

/// How many faults met each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FateCounts {
    /// The rule never met its block.
    pub untriggered: u64,
    /// They happened, and were seen to harm nobody.
    pub masked: u64,
    /// The right data was put back.
    pub repaired: u64,
    /// The application got an error.
    pub reported: u64,
    /// The application got wrong data as if it were right.
    pub silent: u64,
    /// They happened, and nothing shows what the application got.
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl FateCounts {
    /// Adds another rule's counts.
    pub fn add_all(&mut self, other: &FateCounts) {
        self.untriggered += other.untriggered;
        self.masked += other.masked;
        self.repaired += other.repaired;
        self.reported += other.reported;
        self.silent += other.silent;
        self.unknown += other.unknown;
    }
}

/// The failing blocks in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FailureSummary {
    /// By what they are.
    pub by_kind: BTreeMap<Cow<'static, str>, u64>,
    /// By the object they are in; objects without any are not listed.
    pub by_object: BTreeMap<String, u64>,
    /// Sizes of those objects in bytes.
    pub object_bytes: BTreeMap<String, u64>,
}

/// A line of `failures.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureRecord {
    /// Where and how.
    #[serde(flatten)]
    pub failure: Failure,
    /// Why.
    pub cause: CauseRecord,
}

/// Why a failure failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseRecord {
    /// The ledger record with this number damaged it; `hit` in form 1.
    #[serde(alias = "hit")]
    Injection(u64),
    /// It depends on something that the ledger record with this number damaged.
    Consequence(u64),
    /// It may come of what the ledger record with this number did; nothing shows it.
    Assumed(u64),
    /// No fault accounts for it.
    Unexplained,
}

impl CauseRecord {
    /// The number of the ledger record.
    pub fn record(self) -> Option<u64> {
        match self {
            Self::Injection(number) | Self::Consequence(number) | Self::Assumed(number) => Some(number),
            Self::Unexplained => None,
        }
    }
}

/// How the commands of an external load ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExternalReport {
    /// `prepare`, `run` and `check`, as far as they were run.
    pub commands: Vec<CommandReport>,
    /// Jobs of fio's that ended with an error; absent if it was not fio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio_failed_jobs: Option<u64>,
}

impl ExternalReport {
    /// The exit code of a command, if it was run.
    pub fn exit(&self, name: &str) -> Option<u64> {
        self.commands.iter().find(|command| command.name == name).map(|command| command.exit)
    }
}

/// How one command ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandReport {
    /// `prepare`, `run` or `check`.
    pub name: Cow<'static, str>,
    /// What was run.
    pub command: String,
    /// Its exit code as a shell tells it.
    pub exit: u64,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// Whether it was ended because somebody asked to stop.
    pub interrupted: bool,
    /// How long it ran.
    pub seconds: f64,
    /// The end of what it printed, errors first.
    pub said: String,
}

/// Whether the faults of a ledger came again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayReport {
    /// The ledger that was repeated.
    pub ledger: String,
    /// Faults that it has, without those that others bring about by themselves.
    pub recorded: u64,
    /// Those of them that were injected again.
    pub injected: u64,
    /// The sequence numbers of the others: their requests did not come again.
    pub missing: Vec<u64>,
    /// Whether the ledger of this run says the same, but for times and order.
    pub is_same_ledger: bool,
}

/// What differs between two equal runs: times of day, cost, machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WallClock {
    /// When the run began, in seconds since 1970.
    pub started_unix_seconds: f64,
    /// What it cost.
    pub usage: Option<Usage>,
    /// What the load's own threads took for each request of the phase *run*; absent where a command is the load, and
    /// under the simulated runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<EffortPerRequest>,
    /// What probes found in the phase *run*; absent without probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeReport>,
    /// How fast states of a power loss were looked at; absent without `crash`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Pace>,
    /// The machine.
    pub environment: Option<Environment>,
    /// What the kernel said about the subject's devices.
    pub kernel_messages: Vec<String>,
}
