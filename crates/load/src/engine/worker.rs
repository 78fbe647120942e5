//! One worker: its lanes draw steps, send them as requests, verify what comes back and keep the books.
//!
//! A lane is a task with at most one request in flight; the worker has as many as its queue depth. Steps are drawn
//! and submitted in the order of their source, whatever completes first: a step that overlaps one in flight holds up
//! those behind it, so the order never depends on timing. A worker and its lanes belong to one thread; no request
//! costs a lock or, once buffers are warm, an allocation.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use rotproof_block::{
    Buffer, Completion, Context, Error, ErrorKind, Phase, Queue, Request, Runtime, Tag, Time,
};

use super::in_flight::InFlight;
use super::progress::{Progress, ProgressCounts};
use super::report::{Incident, LoadOperation, Sighting, Tally};
use super::source::Source;
use crate::content::{ContentId, SECTOR_BYTES};
use crate::evidence::Evidence;
use crate::layout::Extent;
use crate::oracle::OraclePart;
use crate::stream::{Contents, Step};
use crate::workload::Workload;
use crate::{BLOCK_BYTES, Content};

/// What a worker is made from.
pub(super) struct WorkerOptions {
    pub(super) number: u16,
    pub(super) phase: Phase,
    pub(super) runtime: Runtime,
    pub(super) queues: Vec<Rc<dyn Queue>>,
    pub(super) workload: Workload,
    pub(super) source: Source,
    pub(super) part: OraclePart,
    pub(super) lanes: usize,
    pub(super) duration: Option<Duration>,
    pub(super) cancel: Arc<AtomicUsize>,
    pub(super) progress: Arc<Progress>,
}

pub(super) struct Worker {
    number: u16,
    phase: Phase,
    runtime: Runtime,
    queues: Vec<Rc<dyn Queue>>,
    /// The name of each object.
    tags: Vec<Tag>,
    workload: Workload,
    content: Content,
    /// What its writes hold; a check writes nothing.
    contents: Option<Contents>,
    lanes: usize,
    duration: Option<Duration>,
    cancel: Arc<AtomicUsize>,
    progress: Arc<Progress>,
    state: RefCell<State>,
}

struct State {
    source: Source,
    part: OraclePart,
    in_flight: InFlight,
    /// Drawn, but waiting for a request that it overlaps.
    pending: Option<Step>,
    /// Lanes that wait for the same.
    blocked: Vec<Waker>,
    active_lanes: usize,
    has_ended: bool,
    /// Who waits for the end.
    waiting: Option<Waker>,
    /// No more steps: time is over, or something is wrong with the load itself.
    is_stopped: bool,
    broken: Option<Error>,
    deadline: Option<Time>,
    /// The last time that any lane read.
    now: Time,
    /// Steps since `now` last changed.
    steps_at_now: u64,
    /// Objects written to since their last flush.
    is_dirty: Vec<bool>,
    requests: u64,
    unpublished: ProgressCounts,
    published: Time,
    tally: Tally,
}

/// What a worker leaves behind.
pub(super) struct Outcome {
    pub(super) part: OraclePart,
    pub(super) tally: Tally,
    /// Requests drawn from its stream and carried out.
    pub(super) requests: u64,
}

enum Draw {
    Step(Step),
    Blocked,
    End,
}

/// One request's answer.
struct Answer {
    error: Option<Error>,
    buffer: Buffer,
    submitted: Time,
    completed: Time,
    /// The lane never had to wait.
    was_immediate: bool,
}

const PUBLISHED_REQUESTS: u64 = 64;
const PUBLISHED_EVERY: Duration = Duration::from_millis(50);
/// Requests that a lane may complete in a row before it lets others run.
const IMMEDIATE_IN_A_ROW_MAX: u32 = 64;
/// So many steps without any time passing mean that a load which ends by time never will.
const STEPS_WITHOUT_TIME_MAX: u64 = 1_000_000;

impl Worker {
    pub(super) fn new(options: WorkerOptions) -> Rc<Self> {
        let WorkerOptions { number, phase, runtime, queues, workload, source, part, lanes, .. } = options;
        let contents = match &source {
            Source::Stream(stream) => Some(stream.contents()),
            Source::Sweep(_) => None,
        };
        let state = State {
            source,
            part,
            in_flight: InFlight::new(lanes),
            pending: None,
            blocked: Vec::new(),
            active_lanes: lanes,
            has_ended: false,
            waiting: None,
            is_stopped: false,
            broken: None,
            deadline: None,
            now: Time::default(),
            steps_at_now: 0,
            is_dirty: vec![false; queues.len()],
            requests: 0,
            unpublished: ProgressCounts::default(),
            published: Time::default(),
            tally: Tally::new(),
        };
        Rc::new(Self {
            number,
            phase,
            runtime,
            queues,
            tags: workload.objects().iter().map(|object| Tag::intern(&object.name)).collect(),
            content: *workload.content(),
            workload,
            contents,
            lanes,
            duration: options.duration,
            cancel: options.cancel,
            progress: options.progress,
            state: RefCell::new(state),
        })
    }

    /// Starts the lanes on the worker's runtime.
    pub(super) fn start(self: &Rc<Self>) {
        let now = self.runtime.now();
        {
            let mut state = self.state.borrow_mut();
            state.now = now;
            state.published = now;
            state.deadline = self.duration.map(|duration| now.after(duration));
        }
        for lane in 0..self.lanes {
            let worker = Rc::clone(self);
            self.runtime.spawn_detached(async move { worker.run_lane(lane).await });
        }
    }

    /// Whether the last lane has ended; if not, `waker` is called when it does.
    pub(super) fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if state.has_ended {
            return Poll::Ready(());
        }
        state.waiting = Some(waker.clone());
        Poll::Pending
    }

    /// What the worker leaves behind, once it has ended. Fails if the load itself turned out to be senseless.
    pub(super) fn into_outcome(self: Rc<Self>) -> Result<Outcome, Error> {
        let worker = Rc::into_inner(self).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a lane of the load is still running after its end")
        })?;
        let state = worker.state.into_inner();
        if let Some(error) = state.broken {
            return Err(error);
        }
        let requests = match &state.source {
            Source::Stream(stream) => {
                let is_undone = matches!(state.pending, Some(Step::Read(_) | Step::Write { .. }));
                stream.requests() - u64::from(is_undone)
            }
            Source::Sweep(_) => 0,
        };
        Ok(Outcome { part: state.part, tally: state.tally, requests })
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) != 0
    }

    async fn run_lane(&self, lane: usize) {
        let mut immediate_in_a_row = 0;
        loop {
            let was_immediate = match self.draw(lane) {
                Draw::End => break,
                Draw::Blocked => {
                    self.wait_for_completion().await;
                    false
                }
                Draw::Step(Step::Write { extent, first }) => self.write(lane, extent, first).await,
                Draw::Step(Step::Read(extent)) => self.read(lane, extent).await,
                Draw::Step(Step::Flush) => {
                    self.flush().await;
                    false
                }
            };
            immediate_in_a_row = if was_immediate { immediate_in_a_row + 1 } else { 0 };
            if immediate_in_a_row == IMMEDIATE_IN_A_ROW_MAX {
                immediate_in_a_row = 0;
                self.runtime.yield_now().await;
            }
        }
        let is_last = {
            let mut state = self.state.borrow_mut();
            state.active_lanes -= 1;
            state.active_lanes == 0
        };
        if is_last {
            // An error of a write that the kernel kept back shows here or never.
            self.flush().await;
            let mut state = self.state.borrow_mut();
            state.tally.ended = self.runtime.now();
            self.publish(&mut state);
            state.has_ended = true;
            if let Some(waker) = state.waiting.take() {
                waker.wake();
            }
        }
    }

    fn draw(&self, lane: usize) -> Draw {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if let Some(deadline) = state.deadline {
            self.watch_the_time(state, deadline);
        }
        if state.is_stopped || self.is_cancelled() {
            return Draw::End;
        }
        let next = state.pending.take().or_else(|| state.source.next(self.workload.layout(), &state.part));
        let Some(step) = next else { return Draw::End };
        let (extent, is_write) = match &step {
            Step::Read(extent) => (extent, false),
            Step::Write { extent, .. } => (extent, true),
            Step::Flush => return Draw::Step(step),
        };
        if self.lanes > 1 && state.in_flight.conflicts(extent, is_write) {
            state.pending = Some(step);
            return Draw::Blocked;
        }
        state.in_flight.begin(lane, extent, is_write);
        Draw::Step(step)
    }

    fn watch_the_time(&self, state: &mut State, deadline: Time) {
        if state.now >= deadline {
            state.is_stopped = true;
            return;
        }
        state.steps_at_now += 1;
        if state.steps_at_now > STEPS_WITHOUT_TIME_MAX && self.runtime.is_simulated() {
            state.is_stopped = true;
            state.broken = Some(Error::new(
                ErrorKind::Invalid,
                "the load ends by time, but on this stack no virtual time passes; give `total` or `requests` \
                 instead of `duration`, or use a `disk` as the leaf",
            ));
        }
    }

    /// Completes with the next completion of any lane.
    async fn wait_for_completion(&self) {
        let mut is_registered = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_registered, true) {
                return Poll::Ready(());
            }
            self.state.borrow_mut().blocked.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    async fn submit(&self, object: u32, request: impl FnOnce(Context) -> Request) -> Answer {
        let id = {
            let mut state = self.state.borrow_mut();
            state.requests += 1;
            state.requests
        };
        let submitted = self.runtime.now();
        let object = object as usize;
        let context = Context {
            id,
            submitted,
            tag: self.tags[object],
            queue: self.number,
            phase: self.phase,
            ..Context::default()
        };
        let (completion, was_immediate) = match self.queues[object].submit(request(context)).try_take() {
            Ok(completion) => (completion, true),
            Err(submission) => (submission.await, false),
        };
        let Completion { result, buffer, .. } = completion;
        Answer { error: result.err(), buffer, submitted, completed: self.runtime.now(), was_immediate }
    }

    async fn write(&self, lane: usize, extent: Extent, first: u64) -> bool {
        let contents = self.contents.expect("only a stream writes, and it has contents");
        let mut buffer = Buffer::stale(extent.len_bytes());
        for (block, n) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(first..) {
            self.content.fill(contents.content(n), block);
        }
        let answer = self
            .submit(extent.object, |context| Request::write(extent.offset_bytes(), buffer, context))
            .await;
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        state.is_dirty[extent.object as usize] = true;
        let written = extent.target_blocks().zip(first..).map(|(block, n)| (block, contents.content(n)));
        if answer.error.is_none() {
            for (block, content) in written {
                state.part.written(block, content);
            }
        } else {
            for (block, content) in written {
                state.part.write_failed(block, content);
                self.saw_error(state, block, LoadOperation::Write, vec![content], &answer);
            }
        }
        self.complete(state, LoadOperation::Write, Some((lane, &extent)), &answer);
        answer.was_immediate
    }

    async fn read(&self, lane: usize, extent: Extent) -> bool {
        let answer = self.submit_read(extent).await;
        if answer.error.is_some() && self.phase == Phase::Check {
            self.narrow_down(extent).await;
        }
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if answer.error.is_none() {
            self.verify(state, &extent, &answer);
        } else if self.phase != Phase::Check {
            // The request failed as a whole, and so did every block that its user wanted.
            for block in extent.target_blocks() {
                let expected = state.part.legal(block);
                self.saw_error(state, block, LoadOperation::Read, expected, &answer);
            }
        }
        self.complete(state, LoadOperation::Read, Some((lane, &extent)), &answer);
        answer.was_immediate
    }

    async fn submit_read(&self, extent: Extent) -> Answer {
        let mut buffer = Buffer::stale(extent.len_bytes());
        // Old memory may hold the very content that is expected. No sector without its first word is recognised, so
        // a read that returns without having read is seen.
        for sector in buffer.chunks_exact_mut(SECTOR_BYTES) {
            sector[..8].fill(0);
        }
        self.submit(extent.object, |context| Request::read(extent.offset_bytes(), buffer, context)).await
    }

    /// Reads the halves of an extent that failed, and theirs, down to the single blocks that cannot be read.
    async fn narrow_down(&self, failed: Extent) {
        let mut open =
            if failed.blocks == 1 { vec![failed] } else { halves(self.workload.layout(), failed).to_vec() };
        while let Some(extent) = open.pop() {
            if self.is_cancelled() {
                return;
            }
            let answer = self.submit_read(extent).await;
            let mut state = self.state.borrow_mut();
            if answer.error.is_none() {
                self.verify(&mut state, &extent, &answer);
            } else if extent.blocks == 1 {
                let expected = state.part.legal(extent.first_block);
                self.saw_error(&mut state, extent.first_block, LoadOperation::Read, expected, &answer);
            } else {
                open.extend(halves(self.workload.layout(), extent));
            }
        }
    }

    #[inline]
    fn verify(&self, state: &mut State, extent: &Extent, answer: &Answer) {
        for (block, data) in extent.target_blocks().zip(answer.buffer.chunks_exact(BLOCK_BYTES)) {
            if !state.part.accepts(&self.content, block, data) {
                let expected = state.part.legal(block);
                let evidence = Evidence::of(&self.content, &expected, data);
                self.saw(state, block, LoadOperation::Read, expected, evidence, answer.completed);
            }
        }
    }

    #[cold]
    fn saw_error(
        &self,
        state: &mut State,
        block: u64,
        operation: LoadOperation,
        expected: Vec<ContentId>,
        answer: &Answer,
    ) {
        if let Some(error) = &answer.error {
            self.saw(state, block, operation, expected, Evidence::Error(error.kind()), answer.completed);
        }
    }

    #[cold]
    fn saw(
        &self,
        state: &mut State,
        block: u64,
        operation: LoadOperation,
        expected: Vec<ContentId>,
        evidence: Evidence,
        time: Time,
    ) {
        let sighting = Sighting { block, phase: self.phase, time, operation, expected, evidence, count: 1 };
        if state.tally.saw(sighting) {
            state.unpublished.failures += 1;
        }
    }

    /// Makes durable what has been written, object by object.
    async fn flush(&self) {
        for object in 0..self.queues.len() {
            if !std::mem::take(&mut self.state.borrow_mut().is_dirty[object]) {
                continue;
            }
            let answer = self.submit(object as u32, Request::flush).await;
            let mut state = self.state.borrow_mut();
            if let Some(error) = &answer.error {
                state.tally.failed(Incident {
                    object: object as u32,
                    offset_bytes: 0,
                    length_bytes: 0,
                    operation: LoadOperation::Flush,
                    error: error.kind(),
                    time: answer.completed,
                });
            }
            self.complete(&mut state, LoadOperation::Flush, None, &answer);
        }
    }

    /// Enters a completed request into the books and lets those go on that waited for it.
    fn complete(
        &self,
        state: &mut State,
        operation: LoadOperation,
        transfer: Option<(usize, &Extent)>,
        answer: &Answer,
    ) {
        let error = answer.error.as_ref().map(Error::kind);
        let mut bytes = 0;
        if let Some((lane, extent)) = transfer {
            bytes = extent.len_bytes() as u64;
            state.in_flight.end(lane);
            if let Some(error) = error {
                state.tally.failed(Incident {
                    object: extent.object,
                    offset_bytes: extent.offset_bytes(),
                    length_bytes: bytes,
                    operation,
                    error,
                    time: answer.completed,
                });
            }
        }
        let report = match operation {
            LoadOperation::Read => &mut state.tally.reads,
            LoadOperation::Write => &mut state.tally.writes,
            LoadOperation::Flush => &mut state.tally.flushes,
        };
        report.record(answer.completed.since(answer.submitted), bytes, error);
        for waker in state.blocked.drain(..) {
            waker.wake();
        }
        if state.now != answer.completed {
            state.now = answer.completed;
            state.steps_at_now = 0;
        }
        state.unpublished.requests += 1;
        match error {
            None => state.unpublished.bytes += bytes,
            Some(_) => state.unpublished.errors += 1,
        }
        if state.unpublished.requests >= PUBLISHED_REQUESTS
            || state.now.since(state.published) >= PUBLISHED_EVERY
        {
            self.publish(state);
        }
    }

    fn publish(&self, state: &mut State) {
        self.progress.add(std::mem::take(&mut state.unpublished));
        state.published = state.now;
    }
}

/// Both halves of an extent of more than one block.
fn halves(layout: &crate::layout::Layout, extent: Extent) -> [Extent; 2] {
    let first = u64::from(extent.blocks / 2);
    let second = u64::from(extent.blocks) - first;
    [layout.extent_at(extent.first_block, first), layout.extent_at(extent.first_block + first, second)]
}
