//! What one phase of a load did: counts and latencies by operation, errors, and the blocks that failed.

use std::time::Duration;

use hdrhistogram::Histogram;
use rotproof_block::{ContentHash, ErrorKind, Phase, Time};
use rotproof_record::statistics::SteadyEnd;

use super::sightings::{Entered, Sightings};
use super::watch::{Hung, HungRequest};
use crate::effort::{Effort, EffortPerRequest};
use crate::evidence::Evidence;
use crate::stream::TraceReport;

/// What a load does to its objects.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LoadOperation {
    /// A read, verified.
    Read,
    /// A write.
    Write,
    /// A flush, of the device or of one file.
    Flush,
    /// A discard.
    Discard,
}

impl LoadOperation {
    /// All of them, by their number.
    pub const ALL: [LoadOperation; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Their names in what is recorded, by their number.
    pub const NAMES: &'static [&'static str] = &["read", "write", "flush", "discard"];

    /// The word for it in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// What one phase did. Under the simulated runtime equal seeds give equal reports.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReport {
    /// Which phase.
    pub phase: Phase,
    /// The reads. Reads that the check repeats to find out which block of a failed one is to blame do not count.
    pub reads: OperationReport,
    /// The writes.
    pub writes: OperationReport,
    /// The flushes, those at the end of the phase among them.
    pub flushes: OperationReport,
    /// The discards.
    pub discards: OperationReport,
    /// Discards that the target has no operation for: they had no effect, and are no errors.
    pub unsupported_discards: u64,
    /// What was read of the trace that the load comes from, if it comes from one.
    pub trace: Option<TraceReport>,
    /// What came after the load's end, with faults off; not among the above. `None` if nothing was to come.
    pub cool_down: Option<Box<CoolDown>>,
    /// Whether it ended because it was steady; `None` if it was not to.
    pub until_steady: Option<SteadyEnd>,
    /// When the first worker began, after the ramp-up.
    pub started: Time,
    /// When the last worker ended, its last flush completed.
    pub ended: Time,
    /// What the load's threads took; `None` under the simulated runtime, where it would mean nothing.
    pub effort: Option<Effort>,
    /// Everything that was sent, ramp-up and attempts again among it: what the effort was spent on.
    pub all_requests: u64,
    /// Blocks that failed, by target block; see [`crate::classify()`].
    pub sightings: Sightings,
    /// Sightings that differ from those of their block, which were too many already, and stand nowhere.
    pub sightings_omitted: u64,
    /// Requests that completed with an error, by time, at most [`INCIDENTS_MAX`] for each worker.
    pub incidents: Vec<Incident>,
    /// How many more there were.
    pub incidents_omitted: u64,
    /// Requests that were under way for longer than the load's limit, by when they were sent, at most 100 for each worker.
    pub hung: Vec<HungRequest>,
    /// How many more there were.
    pub hung_omitted: u64,
    /// Whether it was asked to stop before it had come to its end. Then it says what was done up to there, and requests
    /// that were under way are in none of the figures.
    pub is_interrupted: bool,
}

/// What the load did after its end, while nothing failed any more.
#[derive(Clone, Debug, PartialEq)]
pub struct CoolDown {
    /// When the first worker came to it. It lasts to the end of the phase.
    pub started: Time,
    /// When the last one had: the run itself lasted until then.
    pub complete: Time,
    /// The reads.
    pub reads: OperationReport,
    /// The writes.
    pub writes: OperationReport,
    /// The flushes.
    pub flushes: OperationReport,
    /// The discards.
    pub discards: OperationReport,
}

impl CoolDown {
    pub(super) fn new(started: Time) -> Self {
        Self {
            started,
            complete: started,
            reads: OperationReport::new(),
            writes: OperationReport::new(),
            flushes: OperationReport::new(),
            discards: OperationReport::new(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.started = self.started.min(other.started);
        self.complete = self.complete.max(other.complete);
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
        self.discards.add(&other.discards);
    }

    /// The figures of one operation.
    pub fn operation(&self, operation: LoadOperation) -> &OperationReport {
        match operation {
            LoadOperation::Read => &self.reads,
            LoadOperation::Write => &self.writes,
            LoadOperation::Flush => &self.flushes,
            LoadOperation::Discard => &self.discards,
        }
    }

    fn error_count(&self) -> u64 {
        let operations = [&self.reads, &self.writes, &self.flushes, &self.discards];
        operations.iter().map(|operation| operation.error_count()).sum()
    }
}

/// How many [`Incident`]s are kept for each worker.
pub const INCIDENTS_MAX: usize = 10_000;

/// What one kind of operation did.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationReport {
    /// Requests that completed, whatever the result.
    pub requests: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Requests that completed with an error, by its kind.
    pub errors: Vec<(ErrorKind, u64)>,
    /// How often a failed request was tried again; what counts above is how it ended.
    pub retries: u64,
    /// From submission to completion, for a request with a time of its own from that, in nanoseconds, of all requests
    /// that completed; to three digits, a day at most.
    pub latency: Histogram<u64>,
}

/// A request of the load that completed with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Which object, by its position.
    pub object: u32,
    /// Where; zero for a flush.
    pub offset_bytes: u64,
    /// How much; zero for a flush.
    pub length_bytes: u64,
    /// What was tried.
    pub operation: LoadOperation,
    /// With what result.
    pub error: ErrorKind,
    /// When it was sent.
    pub sent: Time,
    /// When it completed.
    pub time: Time,
}

/// One way in which one block was seen to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Which block of the target.
    pub block: u64,
    /// In which phase.
    pub phase: Phase,
    /// When first.
    pub time: Time,
    /// What was being done.
    pub operation: LoadOperation,
    /// What it might have held: the contents that were legal then. For a write, what was to be written.
    pub expected: Vec<crate::ContentId>,
    /// What was seen instead.
    pub evidence: Evidence,
    /// How often.
    pub count: u64,
}

/// Latencies are told apart to so many decimal digits: within 0.1%.
const LATENCY_DIGITS: u8 = 3;
/// Longer ones count as this, a day.
pub(super) const LATENCY_MAX_NS: u64 = 86_400_000_000_000;

impl OperationReport {
    pub(crate) fn new() -> Self {
        // Grows by itself, to the largest order of magnitude seen.
        let latency = Histogram::new(LATENCY_DIGITS).expect("at most five digits are possible");
        Self { requests: 0, bytes: 0, errors: Vec::new(), retries: 0, latency }
    }

    /// Requests that completed with an error.
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum()
    }

    #[inline]
    pub(crate) fn record(&mut self, latency: Duration, bytes: u64, error: Option<ErrorKind>) {
        self.requests += 1;
        let latency_ns =
            u64::try_from(latency.as_nanos()).map_or(LATENCY_MAX_NS, |ns| ns.min(LATENCY_MAX_NS));
        self.latency.record(latency_ns).expect("a histogram that grows takes every latency");
        match error {
            None => self.bytes += bytes,
            Some(kind) => self.count_error(kind, 1),
        }
    }

    /// Of a ramp-up only errors count: none may be lost.
    #[cold]
    pub(crate) fn record_unrecorded_error(&mut self, error: ErrorKind) {
        self.requests += 1;
        self.count_error(error, 1);
    }

    #[cold]
    fn count_error(&mut self, kind: ErrorKind, count: u64) {
        match self.errors.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, known)) => *known += count,
            None => self.errors.push((kind, count)),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.retries += other.retries;
        for &(kind, count) in &other.errors {
            self.count_error(kind, count);
        }
        self.latency.add(&other.latency).expect("a histogram that grows takes every latency");
    }
}

/// What one worker did in a phase.
pub(super) struct Tally {
    pub(super) reads: OperationReport,
    pub(super) writes: OperationReport,
    pub(super) flushes: OperationReport,
    pub(super) discards: OperationReport,
    pub(super) unsupported_discards: u64,
    pub(super) trace: Option<TraceReport>,
    /// From the first step of the cool-down on.
    pub(super) cool_down: Option<Box<CoolDown>>,
    /// When the first step after a ramp-up began; none without a ramp-up.
    pub(super) started: Option<Time>,
    pub(super) ended: Time,
    pub(super) all_requests: u64,
    sightings: Sightings,
    sightings_omitted: u64,
    incidents: Vec<Incident>,
    incidents_omitted: u64,
    pub(super) hung: Hung,
    /// Somebody asked to stop before all was done.
    pub(super) is_interrupted: bool,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            reads: OperationReport::new(),
            writes: OperationReport::new(),
            flushes: OperationReport::new(),
            discards: OperationReport::new(),
            unsupported_discards: 0,
            trace: None,
            cool_down: None,
            started: None,
            ended: Time::default(),
            all_requests: 0,
            sightings: Sightings::default(),
            sightings_omitted: 0,
            incidents: Vec::new(),
            incidents_omitted: 0,
            hung: Hung::default(),
            is_interrupted: false,
        }
    }

    /// Where a request counts that was begun in the cool-down, or before.
    #[inline]
    pub(super) fn figures(&mut self, operation: LoadOperation, is_cool_down: bool) -> &mut OperationReport {
        if is_cool_down && let Some(cool_down) = &mut self.cool_down {
            return match operation {
                LoadOperation::Read => &mut cool_down.reads,
                LoadOperation::Write => &mut cool_down.writes,
                LoadOperation::Flush => &mut cool_down.flushes,
                LoadOperation::Discard => &mut cool_down.discards,
            };
        }
        match operation {
            LoadOperation::Read => &mut self.reads,
            LoadOperation::Write => &mut self.writes,
            LoadOperation::Flush => &mut self.flushes,
            LoadOperation::Discard => &mut self.discards,
        }
    }

    /// Adds what was seen, to what was seen of the block before if it is the same. Whether the block is a new one.
    pub(super) fn saw(&mut self, sighting: Sighting) -> bool {
        let count = sighting.count;
        let entered = self.sightings.enter(sighting);
        if entered == Entered::Omitted {
            self.sightings_omitted += count;
        }
        entered == Entered::First
    }

    /// Counts a block that was read and had this hash where these contents are legal, if [`Tally::saw`] would only count
    /// it too: it was seen like that before, or there are as many ways as are kept. Without that, nothing happens.
    pub(super) fn saw_again(
        &mut self,
        block: u64,
        found: ContentHash,
        is_legal: impl Fn(&[crate::ContentId]) -> bool,
    ) -> bool {
        let entered = self.sightings.enter_again(block, found, is_legal);
        if entered == Some(Entered::Omitted) {
            self.sightings_omitted += 1;
        }
        entered.is_some()
    }

    pub(super) fn failed(&mut self, incident: Incident) {
        if self.incidents.len() < INCIDENTS_MAX {
            self.incidents.push(incident);
        } else {
            self.incidents_omitted += 1;
        }
    }

    /// What failed, by block, the ways of each in the order in which they were seen.
    #[cfg(test)]
    pub(super) fn into_sightings(self) -> Vec<Sighting> {
        self.sightings.iter().collect()
    }

    /// What this worker did, as if it had been alone in a phase that began at `started`.
    fn into_report(self, phase: Phase, started: Time) -> LoadReport {
        LoadReport {
            phase,
            reads: self.reads,
            writes: self.writes,
            flushes: self.flushes,
            discards: self.discards,
            unsupported_discards: self.unsupported_discards,
            trace: self.trace,
            cool_down: self.cool_down,
            until_steady: None,
            started,
            ended: started.max(self.ended),
            effort: None,
            all_requests: self.all_requests,
            sightings: self.sightings,
            sightings_omitted: self.sightings_omitted,
            incidents: self.incidents,
            incidents_omitted: self.incidents_omitted,
            hung: self.hung.requests,
            hung_omitted: self.hung.omitted,
            is_interrupted: self.is_interrupted,
        }
    }
}

impl LoadReport {
    /// Of a phase that began at `started`, in which nothing was done.
    pub fn empty(phase: Phase, started: Time) -> Self {
        Tally::new().into_report(phase, started)
    }

    /// Puts the workers' tallies together.
    pub(super) fn merge(phase: Phase, started: Time, effort: Option<Effort>, tallies: Vec<Tally>) -> Self {
        let started = tallies.iter().filter_map(|tally| tally.started).min().unwrap_or(started);
        let mut report = Self { effort, ..Self::empty(phase, started) };
        for tally in tallies {
            report.take(tally.into_report(phase, started));
        }
        report.sort();
        report
    }

    /// Adds what other workers did in the same phase.
    pub fn add(&mut self, other: Self) {
        self.take(other);
        self.sort();
    }

    fn take(&mut self, other: Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
        self.discards.add(&other.discards);
        self.unsupported_discards += other.unsupported_discards;
        // Each worker reads the trace for itself; the one that came furthest has seen what there is.
        let accesses = |trace: &Option<TraceReport>| trace.as_ref().map(|trace| trace.accesses);
        if accesses(&other.trace) > accesses(&self.trace) {
            self.trace = other.trace;
        }
        match (&mut self.cool_down, other.cool_down) {
            (Some(all), Some(one)) => all.add(&one),
            // Who never came to it ran to the end.
            (Some(all), None) => all.complete = all.complete.max(other.ended),
            (all @ None, Some(mut one)) => {
                one.complete = one.complete.max(self.ended);
                *all = Some(one);
            }
            (None, None) => {}
        }
        self.started = self.started.min(other.started);
        self.ended = self.ended.max(other.ended);
        if let (Some(all), Some(one)) = (&mut self.effort, other.effort) {
            *all += one;
        }
        self.all_requests += other.all_requests;
        self.sightings.append(other.sightings);
        self.incidents.extend(other.incidents);
        self.sightings_omitted += other.sightings_omitted;
        self.incidents_omitted += other.incidents_omitted;
        self.hung.extend(other.hung);
        self.hung_omitted += other.hung_omitted;
        self.is_interrupted |= other.is_interrupted;
    }

    fn sort(&mut self) {
        self.hung.sort_by_key(|hung| (hung.sent_ns, hung.worker));
        self.incidents.sort_by_key(|incident| (incident.time, incident.object, incident.offset_bytes));
    }

    /// How long the phase took, without the cool-down after it: until the last worker came to that.
    pub fn elapsed(&self) -> Duration {
        let ended = self.cool_down.as_ref().map_or(self.ended, |cool_down| cool_down.complete);
        ended.since(self.started)
    }

    /// How long the cool-down took; zero if there was none.
    pub fn cool_down_elapsed(&self) -> Duration {
        self.cool_down.as_ref().map_or(Duration::ZERO, |cool_down| self.ended.since(cool_down.started))
    }

    /// What the load's threads took for each request; `None` under the simulated runtime, and without requests.
    pub fn effort_per_request(&self) -> Option<EffortPerRequest> {
        self.effort?.per_request(self.all_requests)
    }

    /// Requests that completed with an error.
    pub fn error_count(&self) -> u64 {
        let operations = [&self.reads, &self.writes, &self.flushes, &self.discards];
        let cool_down = self.cool_down.as_ref().map_or(0, |cool_down| cool_down.error_count());
        operations.iter().map(|operation| operation.error_count()).sum::<u64>() + cool_down
    }

    /// The figures of one operation.
    pub fn operation(&self, operation: LoadOperation) -> &OperationReport {
        match operation {
            LoadOperation::Read => &self.reads,
            LoadOperation::Write => &self.writes,
            LoadOperation::Flush => &self.flushes,
            LoadOperation::Discard => &self.discards,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_every_magnitude_are_kept_to_three_digits() {
        let mut report = OperationReport::new();
        let latencies = [0, 5, 1234, 987_654, 123_456_789, 3_600_000_000_000, u64::MAX];
        for latency in latencies {
            report.record(Duration::from_nanos(latency), 1, None);
        }
        let mut sum = OperationReport::new();
        sum.add(&report);
        for (position, latency) in (0..).zip(latencies) {
            let quantile = (f64::from(position) + 0.5) / latencies.len() as f64;
            let expected = latency.min(LATENCY_MAX_NS);
            let found = sum.latency.value_at_quantile(quantile);
            assert!(found.abs_diff(expected) <= expected / 1000, "{found} instead of {expected}");
        }
    }

    #[test]
    fn errors_are_counted_by_kind_and_move_no_bytes() {
        let mut report = OperationReport::new();
        report.record(Duration::ZERO, 4096, None);
        report.record(Duration::ZERO, 4096, Some(ErrorKind::Medium));
        report.record(Duration::ZERO, 4096, Some(ErrorKind::TimedOut));
        let mut sum = report.clone();
        sum.add(&report);
        assert_eq!((sum.requests, sum.bytes, sum.error_count()), (6, 8192, 4));
        assert_eq!(sum.errors, [(ErrorKind::Medium, 2), (ErrorKind::TimedOut, 2)]);
    }
}
