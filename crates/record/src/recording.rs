//! What a whole run has recorded: puts the workers' intervals together as they end, keeps the latest at hand for
//! whoever shows them, and everything for the folder of the run.
//!
//! Workers come here when an interval ends, never with a request. Rows of intervals that all workers have left behind
//! are final; when there are many of them they go to a nameless file, so that neither a long run nor a short interval
//! takes much memory.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result, Time};

use crate::interval::{self, Interval, Latencies};
use crate::mark::{self, Mark, MarkKind};
use crate::recorder::{Closed, Open, PhaseKey, Recorder};
use crate::remote::RemoteInterval;
use crate::samples::SampleSink;
use crate::scratch::{publish, scratch_file};
use crate::spec::{IntervalLength, RecordSpec};
use crate::statistics::{Point, SteadyEnd, SteadySpec, SteadyWatch};
use crate::table::{TableWriter, write_table};

/// What a recording is made from.
#[derive(Clone, Debug)]
pub struct RecordingOptions {
    /// What is to be recorded.
    pub spec: RecordSpec,
    /// What the load can do, by name; requests name their operation by its position. 256 at most.
    pub operations: &'static [&'static str],
    /// The largest number of workers there will be at once.
    pub workers: u16,
    /// Where files without a name may grow: the folder in which the run's own will be.
    pub folder: PathBuf,
}

/// Everything that a run records over time.
pub struct Recording {
    /// The table that its intervals become.
    table: &'static str,
    /// Whether each worker has rows of its own beside those of all together.
    tells_workers: bool,
    operations: &'static [&'static str],
    length_ns: u64,
    folder: PathBuf,
    samples: Option<SampleSink>,
    /// The load has become steady, and was to end then.
    is_steady: AtomicBool,
    /// Where its intervals go, if the recording that keeps them is somewhere else.
    forward: Option<Forward>,
    shared: Mutex<Shared>,
}

type Forward = Box<dyn Fn(RemoteInterval) + Send + Sync>;

#[derive(Default)]
struct Shared {
    phase: Option<Phase>,
    last_origin: Option<Time>,
    phases: u32,
    /// What all workers together did in intervals that one of them has not left yet.
    open: BTreeMap<(u32, u64), Totals>,
    spare: Vec<Vec<Option<Box<Open>>>>,
    names: Vec<Arc<str>>,
    /// Final rows that are not on disk.
    rows: Vec<Interval>,
    spill: Option<TableWriter<File>>,
    latest: VecDeque<Interval>,
    /// The last interval that is final, and which operations its phase has seen by then.
    last: Option<(u32, u64)>,
    has_seen: Vec<bool>,
    marks: Vec<Mark>,
    /// Looks whether the phase `run` has become steady; in the end what it found.
    steady: Option<SteadyWatch>,
    failed: Option<Error>,
}

struct Phase {
    key: PhaseKey,
    /// When its first worker began.
    origin: Option<Time>,
    /// The interval that each worker has open.
    progress: Vec<(u32, u64)>,
}

struct Totals {
    phase: Arc<str>,
    start_ns: u64,
    end_ns: u64,
    operations: Vec<Option<Box<Open>>>,
}

/// Rows that are kept before they go to disk together.
const ROWS_MAX: usize = 32_768;
/// Rows of all workers together that are kept for whoever looks while the run goes on.
const LATEST_MAX: usize = 4096;
/// Longer stretches of intervals without a request are told as one.
const EMPTY_MAX: u64 = 100_000;
/// A century: no phase on another machine takes longer, and sums of such times have room.
const REMOTE_NS_MAX: u64 = 100 * 366 * 86_400 * 1_000_000_000;
/// What has ended.
const ENDED: (u32, u64) = (u32::MAX, u64::MAX);
/// The phase whose steadiness counts.
const RUN: &str = "run";

impl Recording {
    /// A recording of nothing yet. Fails if there can be no file in the folder for the samples that are to be kept.
    pub fn new(options: RecordingOptions) -> Result<Arc<Self>> {
        Self::of("intervals", true, options)
    }

    /// As [`Recording::new`], of the device below the subject, whoever its requests come from: it becomes `device.parquet`,
    /// and has no rows by worker and no samples.
    pub fn of_device(options: RecordingOptions) -> Result<Arc<Self>> {
        let spec = RecordSpec { samples: false, ..options.spec };
        Self::of("device", false, RecordingOptions { spec, ..options })
    }

    /// One that keeps nothing: what its workers did goes to `send`, interval by interval, from their threads, and from there
    /// to the [`Recording::add_remote`] of the one that has them all.
    pub fn forwarding(
        operations: &'static [&'static str],
        interval: IntervalLength,
        send: impl Fn(RemoteInterval) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            table: "intervals",
            tells_workers: false,
            operations,
            length_ns: interval.nanoseconds(),
            folder: PathBuf::new(),
            samples: None,
            is_steady: AtomicBool::new(false),
            forward: Some(Box::new(send)),
            shared: Mutex::default(),
        })
    }

    fn of(table: &'static str, tells_workers: bool, options: RecordingOptions) -> Result<Arc<Self>> {
        let RecordingOptions { spec, operations, workers, folder } = options;
        let samples = spec.samples.then(|| SampleSink::start(&folder, operations, workers)).transpose()?;
        let names = operations.iter().map(|&name| name.into()).collect();
        let shared = Shared { names, has_seen: vec![false; operations.len()], ..Shared::default() };
        let length_ns = spec.interval.nanoseconds();
        Ok(Arc::new(Self {
            table,
            tells_workers,
            operations,
            length_ns,
            folder,
            samples,
            is_steady: AtomicBool::new(false),
            forward: None,
            shared: Mutex::new(shared),
        }))
    }

    /// The names of the operations.
    pub fn operations(&self) -> &'static [&'static str] {
        self.operations
    }

    pub(crate) fn samples(&self) -> Option<&SampleSink> {
        self.samples.as_ref()
    }

    /// A phase of the load begins, with so many workers. Each of them asks for a [`Recorder`] when it begins; intervals wait
    /// until all of them have left them behind. Others may join as they come.
    pub fn begin_phase(&self, name: &str, workers: u16) {
        let mut shared = self.shared.lock();
        // An odd number is that of the cool-down after it.
        let key = PhaseKey { number: shared.phases * 2, name: name.into() };
        shared.phases += 1;
        let progress = vec![(key.number, 0); usize::from(workers)];
        shared.phase = Some(Phase { key, origin: None, progress });
        shared.has_seen.fill(false);
        shared.last = None;
    }

    /// Where a worker of the phase tells of its requests. Intervals count from when the first of the workers began.
    pub fn recorder(self: &Arc<Self>, worker: u16, now: Time) -> Recorder {
        let (key, origin, index) = {
            let mut shared = self.shared.lock();
            match &mut shared.phase {
                Some(phase) => {
                    let origin = *phase.origin.get_or_insert(now);
                    let index = phase.join(worker, now.0.saturating_sub(origin.0) / self.length_ns);
                    (phase.key.clone(), origin, index)
                }
                None => (PhaseKey { number: 0, name: "run".into() }, now, 0),
            }
        };
        Recorder::new(Arc::clone(self), worker, key, (origin.0, self.length_ns), index)
    }

    /// The phase `run` is to end as soon as it is as steady as that: whoever runs it asks [`Recording::is_steady`].
    pub fn watch_steadiness(&self, spec: SteadySpec) {
        self.shared.lock().steady = Some(SteadyWatch::new(spec));
    }

    /// Whether the load has become steady, as [`Recording::watch_steadiness`] asks. Looked at when an interval ends.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.is_steady.load(Ordering::Relaxed)
    }

    /// What was found of that; `None` if nobody asked.
    pub fn steady_end(&self) -> Option<SteadyEnd> {
        self.shared.lock().steady.as_ref().map(SteadyWatch::end)
    }

    /// The phase has ended, its last request at `ended`. What was recorded of it began at `started`, after a ramp-up; if there
    /// was a cool-down, the run ended for the last worker at the first of its times, and the cool-down began for the first
    /// worker at the second. All three become marks.
    pub fn end_phase(&self, started: Time, recovered: Option<(Time, Time)>, ended: Time) {
        let mut shared = self.shared.lock();
        // The rest of an interval shows nothing of how steady the load was.
        let steady = shared.steady.take();
        shared.settle(ENDED, self.length_ns);
        shared.steady = steady;
        let Some(phase) = shared.phase.take() else { return };
        let origin = phase.origin.unwrap_or(started);
        shared.last_origin = Some(origin);
        if started > origin {
            shared.marks.push(Mark::span(MarkKind::Phase, "ramp_up", origin, started));
        }
        let until = recovered.map_or(ended, |(until, _)| until);
        shared.marks.push(Mark::span(MarkKind::Phase, &phase.key.name, started, until));
        if let Some((_, from)) = recovered {
            shared.marks.push(Mark::span(MarkKind::Phase, "cool_down", from, ended));
        }
        let found = shared.steady.as_ref().filter(|_| &*phase.key.name == RUN).map(SteadyWatch::end);
        if let Some(SteadyEnd { at_ns: Some(at), state: Some(state), .. }) = found {
            let since = state.since_ns.unwrap_or(at) as f64 / 1e9;
            let text = format!("steady since {since:.3} s, so the load was ended").into();
            shared.marks.push(Mark { text, ..Mark::moment(MarkKind::Event, "steady", Time(at)) });
        }
    }

    /// Takes an interval of a worker on another machine, for the phase that goes on here, which began at its first
    /// [`Recording::begin_at`]. One that makes no sense is refused.
    pub fn add_remote(&self, interval: &RemoteInterval) -> Result<()> {
        let wrong = || Error::new(ErrorKind::Invalid, "an interval from another machine that makes no sense");
        let (key, origin) = {
            let shared = self.shared.lock();
            let phase = shared.phase.as_ref().ok_or_else(wrong)?;
            (phase.key.clone(), phase.origin.ok_or_else(wrong)?)
        };
        if interval.index != interval.start_ns / self.length_ns || interval.end_ns > REMOTE_NS_MAX {
            return Err(wrong());
        }
        let operations = interval.operations(self.operations.len(), origin).ok_or_else(wrong)?;
        let key = if interval.is_cool_down { self.cool_down_of(&key) } else { key };
        self.add(&Closed {
            worker: interval.worker,
            phase: &key,
            index: interval.index,
            start_ns: origin.0.saturating_add(interval.start_ns),
            end_ns: origin.0.saturating_add(interval.end_ns),
            operations: &operations,
        });
        self.is_at(interval.worker, &key, interval.index.saturating_add(1));
        Ok(())
    }

    /// The phase that goes on began at this time, if no worker has said so before.
    pub fn begin_at(&self, origin: Time) {
        if let Some(phase) = &mut self.shared.lock().phase {
            phase.origin.get_or_insert(origin);
        }
    }

    /// When the phase that goes on, or the last one, began.
    pub fn began(&self) -> Option<Time> {
        let shared = self.shared.lock();
        shared.phase.as_ref().map_or(shared.last_origin, |phase| phase.origin)
    }

    /// When the phase that goes on began; none between two.
    pub fn origin(&self) -> Option<Time> {
        self.shared.lock().phase.as_ref()?.origin
    }

    /// Puts a mark beside the intervals.
    pub fn mark(&self, mark: Mark) {
        self.shared.lock().marks.push(mark);
    }

    /// The marks so far, in the order in which they came.
    pub fn marks(&self) -> Vec<Mark> {
        self.shared.lock().marks.clone()
    }

    /// The latest rows of all workers together that begin at `from` or later, in their order: for whoever shows them while
    /// the run goes on. Older ones may be gone; [`crate::RunFolder`] has them all in the end.
    pub fn latest(&self, from: Time) -> Vec<Interval> {
        self.shared.lock().latest.iter().filter(|row| row.start >= from).cloned().collect()
    }

    /// Writes `intervals.parquet`, `marks.parquet` and, if samples were to be kept, `samples.parquet` into the folder of
    /// the run. Whatever could not be kept on the way is told now.
    pub fn write_to(&self, folder: &Path) -> Result<()> {
        self.write_intervals(folder)?;
        let mut marks = self.marks();
        marks.sort_by(|a, b| (a.from_ns, a.kind, &a.name).cmp(&(b.from_ns, b.kind, &b.name)));
        write_table(&folder.join("marks.parquet"), "marks", &mark::COLUMNS, &mark::to_columns(&marks))?;
        match &self.samples {
            Some(samples) => samples.finish(&folder.join("samples.parquet")),
            None => Ok(()),
        }
    }

    /// Writes the table of its intervals alone.
    pub fn write_intervals(&self, folder: &Path) -> Result<()> {
        let (rows, spill) = {
            let mut shared = self.shared.lock();
            if let Some(error) = shared.failed.take() {
                return Err(error);
            }
            shared.settle(ENDED, self.length_ns);
            (std::mem::take(&mut shared.rows), shared.spill.take())
        };
        let mut table = match spill {
            Some(table) => table,
            None => new_table(&self.folder, self.table)?,
        };
        table.write(&interval::to_columns(&rows))?;
        publish(table.finish()?, &folder.join(format!("{}.parquet", self.table)))
    }

    pub(crate) fn cool_down_of(&self, phase: &PhaseKey) -> PhaseKey {
        PhaseKey { number: phase.number | 1, name: "cool_down".into() }
    }

    /// A worker has this interval open now.
    pub(crate) fn is_at(&self, worker: u16, phase: &PhaseKey, index: u64) {
        self.shared.lock().advance(worker, (phase.number, index), self);
    }

    /// A worker has nothing more to tell in this phase.
    pub(crate) fn ended(&self, worker: u16) {
        self.shared.lock().advance(worker, ENDED, self);
    }

    /// Takes an interval of one worker.
    pub(crate) fn add(&self, closed: &Closed<'_>) {
        if let Some(forward) = &self.forward {
            let origin = self.origin().unwrap_or_default();
            return forward(RemoteInterval::of(closed, origin));
        }
        let mut shared = self.shared.lock();
        let shared = &mut *shared;
        let row = |operation: usize, open: &Open| {
            let start_and_end = (closed.start_ns, closed.end_ns);
            let operation = Arc::clone(&shared.names[operation]);
            to_row(&closed.phase.name, start_and_end, Some(closed.worker), operation, open)
        };
        let did_something = |open: &&Open| open.latency.count() > 0;
        let operations = closed.operations.iter().enumerate();
        let rows: Vec<Interval> = operations
            .filter(|_| self.tells_workers)
            .filter_map(|(operation, open)| {
                open.as_deref().filter(did_something).map(|open| row(operation, open))
            })
            .collect();
        shared.rows.extend(rows);
        let totals = shared.open.entry((closed.phase.number, closed.index)).or_insert_with(|| Totals {
            phase: Arc::clone(&closed.phase.name),
            start_ns: closed.start_ns,
            end_ns: closed.end_ns,
            operations: shared
                .spare
                .pop()
                .unwrap_or_else(|| std::iter::repeat_with(|| None).take(self.operations.len()).collect()),
        });
        totals.start_ns = totals.start_ns.min(closed.start_ns);
        totals.end_ns = totals.end_ns.max(closed.end_ns);
        for (all, one) in totals.operations.iter_mut().zip(closed.operations) {
            if let Some(one) = one.as_deref().filter(did_something) {
                all.get_or_insert_with(Box::default).add(one);
            }
        }
    }
}

fn new_table(folder: &Path, table: &'static str) -> Result<TableWriter<File>> {
    TableWriter::new(scratch_file(folder)?, table, &interval::COLUMNS)
}

fn to_row(
    phase: &Arc<str>,
    (start_ns, end_ns): (u64, u64),
    worker: Option<u16>,
    operation: Arc<str>,
    open: &Open,
) -> Interval {
    Interval {
        phase: Arc::clone(phase),
        start: Time(start_ns),
        length_ns: end_ns - start_ns,
        worker,
        operation,
        requests: open.latency.count(),
        bytes: open.bytes,
        errors: open.errors,
        retries: open.retries,
        first_error: open.first_error,
        latency_ns: Latencies::of(&open.latency),
        histogram: (worker.is_none() && open.latency.count() > 0).then(|| open.latency.to_text().into()),
    }
}

/// An interval of all operations together.
fn point((start_ns, end_ns): (u64, u64), operations: &[Option<Box<Open>>]) -> Point {
    let mut point =
        Point { start_ns, end_ns, bytes: 0, requests: 0, first_error: None, latency_sum_ns: 0.0, p99_ns: 0 };
    for open in operations.iter().flatten() {
        point.bytes += open.bytes;
        point.requests += open.latency.count();
        point.first_error = [point.first_error, open.first_error].into_iter().flatten().min();
        point.latency_sum_ns += open.latency.mean() * open.latency.count() as f64;
        point.p99_ns = point.p99_ns.max(open.latency.quantile(0.99));
    }
    point
}

impl Phase {
    /// A worker begins in this interval; one that was announced has been waited for from the first on. Says from which on
    /// it tells.
    fn join(&mut self, worker: u16, index: u64) -> u64 {
        let place = usize::from(worker);
        if self.progress.len() <= place {
            self.progress.resize(place + 1, ENDED);
        }
        if self.progress[place] == ENDED {
            self.progress[place] = (self.key.number, index);
        }
        self.progress[place].1
    }
}

impl Shared {
    /// Makes final what all workers have left behind.
    fn advance(&mut self, worker: u16, to: (u32, u64), recording: &Recording) {
        let Some(phase) = &mut self.phase else { return };
        if let Some(at) = phase.progress.get_mut(usize::from(worker)) {
            *at = to;
        }
        // Where all have ended another may yet join, in the interval that they left.
        match phase.progress.iter().min() {
            Some(&past) if past != ENDED => self.settle(past, recording.length_ns),
            _ => {}
        }
        if self.steady.as_ref().is_some_and(|steady| steady.end().attained) {
            recording.is_steady.store(true, Ordering::Relaxed);
        }
        if self.rows.len() >= ROWS_MAX {
            self.spill(&recording.folder, recording.table);
        }
    }

    /// Makes final what lies before `past`.
    fn settle(&mut self, past: (u32, u64), length_ns: u64) {
        let origin = self.phase.as_ref().and_then(|phase| phase.origin);
        while let Some(entry) = self.open.first_entry()
            && *entry.key() < past
        {
            let (key, totals) = entry.remove_entry();
            self.fill_gap(key, origin.unwrap_or_default().0, &totals.phase, length_ns);
            self.finalise(key, totals);
        }
    }

    /// Intervals in which nothing completed are rows too, of zeros, so that nobody draws a line across them.
    fn fill_gap(&mut self, (number, index): (u32, u64), origin_ns: u64, phase: &Arc<str>, length_ns: u64) {
        let Some((last_number, last)) = self.last else { return };
        // The cool-down goes on with the intervals of the run; where one worker is late both share one.
        if last_number | 1 != number | 1 || last + 1 >= index {
            return;
        }
        let (first, step) =
            if index - last - 1 > EMPTY_MAX { (last + 1, index - last - 1) } else { (last + 1, 1) };
        let mut at = first;
        while at < index {
            let span = (origin_ns + at * length_ns, origin_ns + (at + step) * length_ns);
            self.push_totals(phase, span, &[]);
            at += step;
        }
    }

    fn finalise(&mut self, key: (u32, u64), mut totals: Totals) {
        self.last = Some(key);
        let span = (totals.start_ns, totals.end_ns);
        for (has_seen, open) in self.has_seen.iter_mut().zip(&totals.operations) {
            *has_seen |= open.as_ref().is_some_and(|open| open.latency.count() > 0);
        }
        self.push_totals(&totals.phase, span, &totals.operations);
        totals.operations.iter_mut().flatten().for_each(|open| open.clear());
        self.spare.push(totals.operations);
    }

    /// A row for each operation that the phase has seen.
    fn push_totals(&mut self, phase: &Arc<str>, span: (u64, u64), operations: &[Option<Box<Open>>]) {
        let nothing = Open::default();
        if let Some(steady) =
            self.steady.as_mut().filter(|_| &**phase == RUN && self.has_seen.contains(&true))
        {
            steady.push(point(span, operations));
        }
        for operation in 0..self.names.len() {
            if !self.has_seen[operation] {
                continue;
            }
            let open = operations.get(operation).and_then(Option::as_deref).unwrap_or(&nothing);
            let row = to_row(phase, span, None, Arc::clone(&self.names[operation]), open);
            if self.latest.len() == LATEST_MAX {
                self.latest.pop_front();
            }
            self.latest.push_back(row.clone());
            self.rows.push(row);
        }
    }

    fn spill(&mut self, folder: &Path, table: &'static str) {
        let rows = std::mem::take(&mut self.rows);
        if self.failed.is_some() {
            return;
        }
        let written = match &mut self.spill {
            Some(table) => table.write(&interval::to_columns(&rows)),
            none => new_table(folder, table)
                .and_then(|table| none.insert(table).write(&interval::to_columns(&rows))),
        };
        self.failed = written.err();
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("interval_ns", &self.length_ns).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
