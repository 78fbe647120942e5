//! What a phase of a load of files did: figures by operation, and the files that failed.

use std::collections::HashMap;
use std::time::Duration;

use rotproof_block::{ErrorKind, Phase, Time};
use rotproof_record::statistics::SteadyEnd;
use serde::{Deserialize, Serialize};

use super::plan::FilePlan;
use crate::BLOCK_BYTES;
use crate::effort::{Effort, EffortPerRequest};
use crate::engine::{HungRequest, OperationReport, ProgressKind};
use crate::failure::{Failure, Way};

/// What a load of files does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FileOperation {
    /// A file is made, and open.
    Create,
    /// A file is opened.
    Open,
    /// ... and closed.
    Close,
    /// A file is read as a whole, or a piece of it, and verified.
    Read,
    /// A file is written as a whole, or a piece of it.
    Write,
    /// Bytes are written behind the end of a file.
    Append,
    /// A file is made durable.
    Fsync,
    /// A file is deleted.
    Delete,
    /// A file is asked for its size.
    Stat,
    /// An entry is written to the log.
    Log,
    /// A message is added to a mailbox.
    Insert,
    /// A message is read and written anew.
    Replace,
    /// A message is wiped out.
    Erase,
    /// A directory is made.
    Mkdir,
    /// A directory is asked for its attributes.
    Dirstat,
    /// A directory is removed.
    Rmdir,
    /// Everything is made durable, at the end of a phase.
    Sync,
}

impl From<FileOperation> for ProgressKind {
    fn from(operation: FileOperation) -> Self {
        use FileOperation as Operation;
        match operation {
            Operation::Read => Self::Read,
            Operation::Write
            | Operation::Append
            | Operation::Log
            | Operation::Insert
            | Operation::Replace => Self::Write,
            Operation::Fsync | Operation::Sync => Self::Flush,
            Operation::Create
            | Operation::Open
            | Operation::Close
            | Operation::Delete
            | Operation::Stat
            | Operation::Erase
            | Operation::Mkdir
            | Operation::Dirstat
            | Operation::Rmdir => Self::Other,
        }
    }
}

impl FileOperation {
    /// Their names in what is recorded, by their number.
    pub const NAMES: &'static [&'static str] = &[
        "create", "open", "close", "read", "write", "append", "fsync", "delete", "stat", "log", "insert",
        "replace", "erase", "mkdir", "dirstat", "rmdir", "sync",
    ];

    /// The word for it in results.
    pub fn word(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The figures of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct FileOperationReport {
    /// Which.
    pub operation: FileOperation,
    /// Its figures; a file that is read as a whole counts once.
    pub figures: OperationReport,
    /// How long it was done for: the phase, or of operations that come one kind after the other (metadata) the time of
    /// that kind.
    pub elapsed: Duration,
}

/// An error that left no file failing: somebody was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIncident {
    /// What was tried.
    pub operation: FileOperation,
    /// With what result.
    pub error: ErrorKind,
    /// When it was told.
    pub time: Time,
}

/// What one phase did.
#[derive(Clone, Debug, PartialEq)]
pub struct FileReport {
    /// Which phase.
    pub phase: Phase,
    /// What was done, in the order of the operations.
    pub operations: Vec<FileOperationReport>,
    /// Whether it ended because it was steady; `None` if it was not to.
    pub until_steady: Option<SteadyEnd>,
    /// When the first thread began.
    pub started: Time,
    /// When the last one ended.
    pub ended: Time,
    /// What the threads took.
    pub effort: Effort,
    /// Blocks of files that failed, and files as a whole (block 0).
    pub failures: Vec<Failure>,
    /// Errors that left no file failing, as of an fsync; the first [`INCIDENTS_MAX`] of each thread.
    pub incidents: Vec<FileIncident>,
    /// Failures and incidents beyond those that are kept.
    pub omitted: u64,
    /// Files that a check has looked at.
    pub files: u64,
    /// Bytes of them that it has found right.
    pub verified_bytes: u64,
    /// Calls that took longer than the limit, by when they were made, at most 100 for each thread.
    pub hung: Vec<HungRequest>,
    /// How many more there were.
    pub hung_omitted: u64,
    /// Whether it was asked to stop before it had come to its end. Then it says what was done up to there.
    pub is_interrupted: bool,
}

/// How many [`FileIncident`]s are kept for each thread.
pub const INCIDENTS_MAX: usize = 1000;
/// More ways of one block to fail than this are counted with the last.
const WAYS_PER_BLOCK_MAX: usize = 8;

impl FileReport {
    /// How long the phase took.
    pub fn elapsed(&self) -> Duration {
        self.ended.since(self.started)
    }

    /// Operations that ended with an error.
    pub fn error_count(&self) -> u64 {
        self.operations.iter().map(|line| line.figures.error_count()).sum()
    }

    /// Everything that was done.
    pub fn operation_count(&self) -> u64 {
        self.operations.iter().map(|line| line.figures.requests).sum()
    }

    /// What the threads took for each operation; `None` without any.
    pub fn effort_per_operation(&self) -> Option<EffortPerRequest> {
        self.effort.per_request(self.operation_count())
    }

    /// The figures of one operation, if it was done at all.
    pub fn operation(&self, operation: FileOperation) -> Option<&OperationReport> {
        self.operations.iter().find(|line| line.operation == operation).map(|line| &line.figures)
    }
}

/// The failures of several phases, those of one block together.
pub fn failures_of<'a>(reports: impl IntoIterator<Item = &'a FileReport>) -> Vec<Failure> {
    let mut all: Vec<Failure> = Vec::new();
    let mut known: HashMap<(String, u64), usize> = HashMap::new();
    for failure in reports.into_iter().flat_map(|report| &report.failures) {
        match known.entry((failure.object.clone(), failure.block)) {
            std::collections::hash_map::Entry::Occupied(entry) => {
                all[*entry.get()].ways.extend(failure.ways.iter().cloned());
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(all.len());
                all.push(failure.clone());
            }
        }
    }
    all.sort_by(|one, other| {
        (one.object_index, &one.object, one.block).cmp(&(other.object_index, &other.object, other.block))
    });
    all
}

/// What one thread did in a phase.
#[derive(Default)]
pub(super) struct Tally {
    figures: Vec<(FileOperation, OperationReport)>,
    /// How long each kind of operation took, where one comes after the other.
    pub(super) spans: Vec<(FileOperation, Duration)>,
    failures: HashMap<(String, u64), Failure>,
    incidents: Vec<FileIncident>,
    omitted: u64,
    pub(super) files: u64,
    pub(super) verified_bytes: u64,
    pub(super) effort: Effort,
    pub(super) ended: Time,
    pub(super) hung: Vec<HungRequest>,
    pub(super) hung_omitted: u64,
}

impl Tally {
    pub(super) fn record(
        &mut self,
        operation: FileOperation,
        took: Duration,
        bytes: u64,
        error: Option<ErrorKind>,
    ) {
        self.figures_of(operation).record(took, bytes, error);
    }

    /// Counts a call that nobody waits for any more; how long it takes, nobody knows.
    pub(super) fn timed_out(&mut self, operation: FileOperation) {
        self.figures_of(operation).record_unrecorded_error(ErrorKind::TimedOut);
    }

    fn figures_of(&mut self, operation: FileOperation) -> &mut OperationReport {
        let known = self.figures.iter().position(|(known, _)| *known == operation);
        let place = known.unwrap_or_else(|| {
            self.figures.push((operation, OperationReport::new()));
            self.figures.len() - 1
        });
        &mut self.figures[place].1
    }

    pub(super) fn told(&mut self, incident: FileIncident) {
        if self.incidents.len() < INCIDENTS_MAX {
            self.incidents.push(incident);
        } else {
            self.omitted += 1;
        }
    }

    /// Adds a way in which a block of `file` failed. Whether it is the first of that block.
    pub(super) fn failed(&mut self, plan: &FilePlan, file: u32, block: u64, way: Way) -> bool {
        let object = plan.path(file);
        self.failed_by_name(file, object, block, way)
    }

    pub(super) fn failed_by_name(&mut self, file: u32, object: String, block: u64, way: Way) -> bool {
        let failure = self.failures.entry((object.clone(), block)).or_insert_with(|| Failure {
            object_index: file,
            object,
            block,
            offset_bytes: block * BLOCK_BYTES as u64,
            ways: Vec::new(),
        });
        let is_new = failure.ways.is_empty();
        let same = |known: &&mut Way| {
            known.operation == way.operation && known.what == way.what && known.expected == way.expected
        };
        if let Some(known) = failure.ways.iter_mut().find(same) {
            known.count += way.count;
        } else if failure.ways.len() < WAYS_PER_BLOCK_MAX {
            failure.ways.push(way);
        } else if let Some(last) = failure.ways.last_mut() {
            last.count += way.count;
            self.omitted += way.count;
        }
        is_new
    }

    /// The tallies of all threads of a phase as one report.
    pub(super) fn merge(phase: Phase, started: Time, tallies: Vec<Self>) -> FileReport {
        let mut figures: Vec<(FileOperation, OperationReport)> = Vec::new();
        let mut spans: HashMap<FileOperation, Duration> = HashMap::new();
        let mut report = FileReport {
            phase,
            operations: Vec::new(),
            until_steady: None,
            started,
            ended: started,
            effort: Effort::default(),
            failures: Vec::new(),
            incidents: Vec::new(),
            omitted: 0,
            files: 0,
            verified_bytes: 0,
            hung: Vec::new(),
            hung_omitted: 0,
            is_interrupted: false,
        };
        for tally in tallies {
            for (operation, own) in tally.figures {
                match figures.iter_mut().find(|(known, _)| *known == operation) {
                    Some((_, known)) => known.add(&own),
                    None => figures.push((operation, own)),
                }
            }
            for (operation, span) in tally.spans {
                *spans.entry(operation).or_default() += span;
            }
            report.ended = report.ended.max(tally.ended);
            report.effort += tally.effort;
            report.files += tally.files;
            report.verified_bytes += tally.verified_bytes;
            report.failures.extend(tally.failures.into_values());
            report.incidents.extend(tally.incidents);
            report.omitted += tally.omitted;
            report.hung.extend(tally.hung);
            report.hung_omitted += tally.hung_omitted;
        }
        let elapsed = report.elapsed();
        figures.sort_by_key(|(operation, _)| *operation);
        report.operations = figures
            .into_iter()
            .map(|(operation, figures)| FileOperationReport {
                operation,
                figures,
                elapsed: spans.get(&operation).copied().unwrap_or(elapsed),
            })
            .collect();
        report.failures.sort_by(|one, other| (&one.object, one.block).cmp(&(&other.object, other.block)));
        report.incidents.sort_by_key(|incident| incident.time);
        report.hung.sort_by_key(|hung| hung.sent_ns);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_the_word_that_it_is_written_with() {
        use FileOperation as Operation;
        let some =
            [Operation::Create, Operation::Append, Operation::Log, Operation::Dirstat, Operation::Sync];
        for operation in some {
            let json = serde_json::to_value(operation).expect("a word");
            assert_eq!(json, operation.word());
        }
        assert_eq!(FileOperation::NAMES.len(), Operation::Sync as usize + 1);
    }
}
