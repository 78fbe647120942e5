//! The layer that counts requests, bytes and errors, per phase of the trial and operation.
//!
//! Each queue counts in memory of its own, which only it writes; reading adds them up. So counting costs a few plain
//! stores, and no queue waits for another.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{
    Completion, Context, Device, DeviceInfo, Operation, Phase, Queue, Request, Result, Runtime, Submission,
};
use rotproof_spec::{Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::below::ability_below;
use crate::kind::{Kind, Stands};
use crate::open::{LayerReport, Opening};

const OPERATIONS: [&str; 5] = ["read", "write", "flush", "discard", "write_zeroes"];
const CELLS: usize = Phase::ALL.len() * OPERATIONS.len();

/// The layer that counts requests and bytes, as a stack has it: `stats`, or `stats: { name: below_fs }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatsSpec {
    /// How results call it. Default: stats-1, stats-2, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl StatsSpec {
    /// The name, or what a layer without one is called that has `before` stats layers before it.
    pub(crate) fn name_or_default(&self, before: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("stats-{}", before + 1))
    }
}

impl Kind for StatsSpec {
    const WORD: &'static str = "stats";
    const EXAMPLE: &'static str = "stats";
    const SUMMARY: &'static str = "counts requests and bytes";
    const STANDS: Stands = Stands::OnOne;

    fn bare() -> Option<Self> {
        Some(Self::default())
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if self.name.as_ref().is_some_and(String::is_empty) {
            problems.add(&path.key("name"), "the name is empty");
        }
    }

    fn describe(&self) -> String {
        self.name.clone().unwrap_or_else(|| "counts what passes".into())
    }

    fn open(&self, mut below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let name = self.name_or_default(opening.count_stats());
        let layer = StatsDevice::new(opening.one(&mut below)?, name);
        let reporter = Arc::clone(&layer);
        opening.reports(move || LayerReport::Stats(reporter.report()));
        Ok(layer)
    }
}

/// A device that counts what passes.
pub struct StatsDevice {
    below: Arc<dyn Device>,
    name: String,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    open: Mutex<Vec<Arc<QueueCounters>>>,
    /// What queues that are gone have counted.
    closed: QueueCounters,
}

/// Written by the thread of one queue only, read by any.
#[derive(Default)]
struct QueueCounters([Cell; CELLS]);

#[derive(Default)]
struct Cell {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// One writer, so a load and a store do, which cost less than a locked addition.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

fn cell_of(phase: Phase, operation: Operation) -> usize {
    let operation = match operation {
        Operation::Read => 0,
        Operation::Write { .. } => 1,
        Operation::Flush => 2,
        Operation::Discard => 3,
        Operation::WriteZeroes => 4,
    };
    phase as usize * OPERATIONS.len() + operation
}

/// What passed a stats layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatsReport {
    /// Name of the layer.
    pub name: String,
    /// A row for each phase and operation that occurred, in the order of the trial.
    pub rows: Vec<StatsRow>,
}

/// What passed in one phase with one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatsRow {
    /// setup, prefill, run or check.
    pub phase: String,
    /// read, write, flush, discard or write_zeroes.
    pub operation: String,
    /// Requests that were submitted.
    pub requests: u64,
    /// Bytes that they concerned.
    pub bytes: u64,
    /// Those that completed with an error.
    pub errors: u64,
}

impl StatsDevice {
    /// Counts what passes to `below`, under the name `name`.
    pub fn new(below: Arc<dyn Device>, name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { below, name: name.into(), counters: Arc::default() })
    }

    /// What has passed so far.
    pub fn report(&self) -> StatsReport {
        let mut rows = Vec::new();
        // A queue closes under this lock, so its counts are seen either here or there.
        let open = self.counters.open.lock();
        let all: Vec<&QueueCounters> =
            open.iter().map(|counters| &**counters).chain(std::iter::once(&self.counters.closed)).collect();
        let sum = |of: fn(&Cell) -> &AtomicU64, cell: usize| -> u64 {
            all.iter().map(|counters| of(&counters.0[cell]).load(Ordering::Relaxed)).sum()
        };
        for (phase, phase_word) in Phase::ALL.map(Phase::word).into_iter().enumerate() {
            for (operation, operation_word) in OPERATIONS.iter().enumerate() {
                let cell = phase * OPERATIONS.len() + operation;
                let requests = sum(|cell| &cell.requests, cell);
                if requests > 0 {
                    rows.push(StatsRow {
                        phase: phase_word.to_owned(),
                        operation: (*operation_word).to_owned(),
                        requests,
                        bytes: sum(|cell| &cell.bytes, cell),
                        errors: sum(|cell| &cell.errors, cell),
                    });
                }
            }
        }
        StatsReport { name: self.name.clone(), rows }
    }
}

impl Device for StatsDevice {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        let own = Arc::new(QueueCounters::default());
        self.counters.open.lock().push(Arc::clone(&own));
        Ok(Rc::new(StatsQueue { below, own, all: Arc::clone(&self.counters) }))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        ability_below(&*self.below, wanted)
    }
}

impl fmt::Debug for StatsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatsDevice({})", self.name)
    }
}

struct StatsQueue {
    below: Rc<dyn Queue>,
    own: Arc<QueueCounters>,
    all: Arc<Counters>,
}

impl Queue for StatsQueue {
    fn submit(&self, request: Request) -> Submission {
        let Request { operation, length, context: Context { phase, .. }, .. } = request;
        let cell = cell_of(phase, operation);
        add(&self.own.0[cell].requests, 1);
        add(&self.own.0[cell].bytes, length);
        match self.below.submit(request).try_take() {
            Ok(completion) => {
                self.own.note(cell, &completion);
                completion.into()
            }
            Err(submission) => {
                let own = Arc::clone(&self.own);
                Submission::pending(async move {
                    let completion = submission.await;
                    own.note(cell, &completion);
                    completion
                })
            }
        }
    }
}

impl QueueCounters {
    fn note(&self, cell: usize, completion: &Completion) {
        if completion.result.is_err() {
            add(&self.0[cell].errors, 1);
        }
    }
}

impl Drop for StatsQueue {
    fn drop(&mut self) {
        // Requests under way still hold the counters; they may count errors after this, so only a queue without any
        // is folded away.
        let mut open = self.all.open.lock();
        let under_way = Arc::strong_count(&self.own) > 2;
        if under_way {
            return;
        }
        open.retain(|counters| !Arc::ptr_eq(counters, &self.own));
        for (total, own) in self.all.closed.0.iter().zip(&self.own.0) {
            // The lock makes this the only writer of the total.
            add(&total.requests, own.requests.load(Ordering::Relaxed));
            add(&total.bytes, own.bytes.load(Ordering::Relaxed));
            add(&total.errors, own.errors.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::Buffer;
    use rotproof_block::leaf::{DiskProfile, MemoryDevice, SimulatedDisk};

    fn context(phase: Phase) -> Context {
        Context { phase, ..Context::default() }
    }

    fn row(phase: &str, operation: &str, requests: u64, bytes: u64, errors: u64) -> StatsRow {
        StatsRow { phase: phase.to_owned(), operation: operation.to_owned(), requests, bytes, errors }
    }

    #[test]
    fn requests_are_counted_by_phase_and_operation_also_when_they_fail_or_take_time() {
        let memory: Arc<dyn Device> = MemoryDevice::new(1 << 20, 512).expect("memory");
        let disk: Arc<dyn Device> = SimulatedDisk::new(1 << 20, 512, DiskProfile::NVME).expect("memory");
        for below in [memory, disk] {
            let device = StatsDevice::new(below, "below");
            let runtime = Runtime::simulated(1);
            let queue = device.open_queue(&runtime).expect("a queue");
            let beyond = 1 << 20;
            for request in [
                Request::write(0, Buffer::zeroed(4096), context(Phase::Prefill)),
                Request::write(0, Buffer::zeroed(512), context(Phase::Run)),
                Request::write(beyond, Buffer::zeroed(512), context(Phase::Run)),
                Request::read(0, Buffer::zeroed(1024), context(Phase::Run)),
                Request::flush(context(Phase::Run)),
                Request::discard(0, 8192, context(Phase::Check)),
                Request::write_zeroes(0, 512, context(Phase::Setup)),
            ] {
                runtime.block_on(queue.submit(request)).expect("completes");
            }
            let expected = [
                row("setup", "write_zeroes", 1, 512, 0),
                row("prefill", "write", 1, 4096, 0),
                row("run", "read", 1, 1024, 0),
                row("run", "write", 2, 1024, 1),
                row("run", "flush", 1, 0, 0),
                row("check", "discard", 1, 8192, 0),
            ];
            assert_eq!(device.report(), StatsReport { name: "below".to_owned(), rows: expected.to_vec() });
            drop(queue);
            assert_eq!(device.report().rows, expected, "counts outlive their queue");
        }
    }

    #[test]
    fn queues_of_many_threads_add_up_and_leave_no_counters_behind() {
        let device = StatsDevice::new(MemoryDevice::new(1 << 20, 512).expect("memory"), "all");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let runtime = Runtime::simulated(1);
                        let queue = device.open_queue(&runtime).expect("a queue");
                        for _ in 0..100 {
                            let request = Request::read(0, Buffer::zeroed(512), context(Phase::Run));
                            runtime.block_on(queue.submit(request)).expect("completes");
                        }
                    }
                });
            }
        });
        assert_eq!(device.report().rows, [row("run", "read", 4000, 4000 * 512, 0)]);
        assert!(device.counters.open.lock().is_empty());
    }
}
