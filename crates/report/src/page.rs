//! What a page shows, as plain numbers and texts. Times are in seconds from the beginning of the run.

use crate::Unit;

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Name of the trial.
    pub name: String,
    /// One sentence: what was on trial, from which seed.
    pub subtitle: String,
    /// Whether everything expected holds; none where nothing was to be judged.
    pub passes: Option<bool>,
    /// The verdict in a sentence.
    pub summary: String,
    /// What was expected.
    pub expectations: Vec<Expectation>,
    /// The stack, bottom to top, and the subject over it.
    pub stack: Vec<Device>,
    /// The load.
    pub load: Vec<Fact>,
    /// What came of each rule.
    pub faults: Vec<FaultRow>,
    /// Figures by phase and operation.
    pub performance: Vec<Row>,
    /// What each fault took away, by its window.
    pub degradation: Vec<Row>,
    /// What happened when.
    pub timeline: Timeline,
    /// Latencies of the load, by operation.
    pub latencies: Vec<Histogram>,
    /// Where faults and failures lie: devices first, then files.
    pub places: Vec<Strip>,
    /// Blocks that failed, one by one; of very many some.
    pub failing: Vec<FailingBlock>,
    /// How many failed in all.
    pub failing_total: u64,
    /// What a power loss during the load may leave, if that was explored.
    pub power_loss: Option<PowerLoss>,
    /// The machine, versions, cost.
    pub environment: Vec<Fact>,
    /// What the kernel said meanwhile, line by line.
    pub kernel_messages: Vec<String>,
    /// The command that repeats the run; empty if it is not known.
    pub command: String,
    /// What else a reader should know, a paragraph each.
    pub notes: Vec<String>,
}

/// A name and what it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub value: String,
}

/// States that a power loss may leave: the recording that they come from, what was looked at, what fails.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PowerLoss {
    /// The recording, and how many states were looked at.
    pub facts: Vec<Fact>,
    /// The recording over time: its epochs as phases, the marks of the load, failing states as hits by what was found.
    pub timeline: Timeline,
    /// States by the way in which they were chosen.
    pub ways: Vec<Row>,
    /// The smallest failure of each kind: a title, and the story in lines.
    pub witnesses: Vec<(String, String)>,
}

/// A line of the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// What was counted.
    pub name: String,
    /// What was wanted.
    pub wanted: String,
    /// What was found.
    pub found: String,
    /// Whether that is right.
    pub holds: bool,
}

/// An element of the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub name: String,
    /// Its parameters.
    pub detail: String,
    /// Whether the faults act here.
    pub has_faults: bool,
}

/// What came of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultRow {
    /// Its name.
    pub name: String,
    /// The rule in its short form.
    pub rule: String,
    /// Injections.
    pub hits: u64,
    /// Faults: places that were hit.
    pub faults: u64,
    /// How many had each fate.
    pub fates: Vec<(String, u64)>,
    /// Blocks that failed by it.
    pub failing_blocks: u64,
    /// What wants explaining.
    pub note: Option<String>,
}

/// A block that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailingBlock {
    /// The device or file.
    pub object: String,
    /// The block, counted within it.
    pub block: u64,
    /// The byte where it begins.
    pub offset: u64,
    /// What it was found to be.
    pub what: String,
    /// When first, doing what.
    pub seen: String,
    /// What it is laid to.
    pub cause: String,
}

/// A line of a table, ready to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Whose line it is.
    pub name: String,
    /// The cells of [`Row::PERFORMANCE`] or [`Row::DEGRADATION`].
    pub cells: Vec<String>,
}

impl Row {
    /// Columns of what an operation did in a phase.
    pub const PERFORMANCE: [&'static str; 8] =
        ["requests", "throughput", "requests/s", "errors", "p50", "p99", "p99.9", "max"];

    /// Columns of the states that a way has chosen.
    pub const STATES: [&'static str; 4] = ["chosen", "equal to others", "looked at", "failing"];

    /// Columns of what a fault took away.
    pub const DEGRADATION: [&'static str; 8] =
        ["before", "during", "of before, at 95%", "mean latency", "p99", "noticed", "back after", "lost"];
}

/// What happened when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Seconds from the first to the last thing to be seen.
    pub seconds: f64,
    /// The phases of the run.
    pub phases: Vec<Span>,
    /// What they are called, if not phases.
    pub phases_are: Option<&'static str>,
    /// When rules were at work.
    pub windows: Vec<Span>,
    /// Every injection.
    pub hits: Vec<ShownInjection>,
    /// Events.
    pub marks: Vec<Mark>,
    /// What the load saw.
    pub charts: Vec<Chart>,
    /// What the machine did.
    pub probes: Vec<Chart>,
}

impl Timeline {
    /// Whether there is anything but charts.
    pub fn has_ribbon(&self) -> bool {
        !(self.phases.is_empty() && self.windows.is_empty() && self.hits.is_empty() && self.marks.is_empty())
    }
}

/// A stretch of time with a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

/// An injection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownInjection {
    /// When.
    pub at: f64,
    /// The name of the rule.
    pub rule: String,
    /// What and where, in a few words; of the first, if they are several.
    pub what: String,
    /// How many of one rule it stands for, at about the same time: of very many, not each has an entry of its own.
    pub count: u64,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mark {
    /// When.
    pub at: f64,
    /// What.
    pub name: String,
}

/// Lines over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What its numbers are.
    pub unit: Unit,
    /// The lines.
    pub lines: Vec<Line>,
    /// Powers of ten are as far apart as each other: for latencies.
    pub is_logarithmic: bool,
}

/// A line over time: each point is the value of the interval that ends there. Broken where it is not finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Time and value.
    pub points: Vec<(f64, f64)>,
}

/// How often latencies were met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Whose.
    pub name: String,
    /// Upper bound in nanoseconds, and how many were up to it and above the one before; ascending.
    pub counts: Vec<(u64, u64)>,
}

/// A device or file from its beginning to its end, and what lies where on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strip {
    /// Its name.
    pub name: String,
    /// Whether the kinds of its marks are names of rules, which have a colour on the whole page; otherwise they are ways in
    /// which blocks failed.
    pub shows_rules: bool,
    /// Bytes.
    pub bytes: u64,
    /// What lies on it.
    pub marks: Vec<StripMark>,
}

/// Something at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripMark {
    /// The byte where it begins.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Which kind: marks of one kind have one colour.
    pub kind: String,
    /// How many of one kind it stands for, at about the same place.
    pub count: u64,
}
