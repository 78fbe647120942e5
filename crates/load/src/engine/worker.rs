//! One worker: the state its slots share, and the order in which they draw steps.
//!
//! A slot is a task with at most one request in flight; the worker has as many as its queue depth. Steps are drawn
//! and submitted in the order of their source, whatever completes first: a step that overlaps one in flight holds up
//! those behind it, so the order never depends on timing. A worker and its slots belong to one thread; no request
//! costs a lock or, once buffers are warm, an allocation.

use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Phase, Queue, Runtime, Tag, Time};
use rotproof_record::Recording;

use super::LetGo;
use super::parked::Parked;
use super::progress::Progress;
use super::report::CoolDown;
use super::source::Source;
use super::state::{Outcome, Planned, State};
use super::unflushed::{FailedFlushes, Unflushed};
use super::watch::Watch;
use crate::Content;
use crate::oracle::OraclePart;
use crate::pace::{ThinkAfter, ThinkTime};
use crate::retry::Retry;
use crate::stream::{Contents, Step};
use crate::workload::Workload;

/// What a worker is made from.
pub(super) struct WorkerOptions {
    pub(super) number: u16,
    pub(super) phase: Phase,
    pub(super) verify: bool,
    pub(super) runtime: Runtime,
    pub(super) queues: Vec<Rc<dyn Queue>>,
    pub(super) workload: Workload,
    pub(super) source: Source,
    pub(super) part: OraclePart,
    pub(super) slots: usize,
    pub(super) times: Times,
    pub(super) cancel: Arc<AtomicUsize>,
    pub(super) progress: Arc<Progress>,
    pub(super) recording: Option<Arc<Recording>>,
    /// Whether the recording says when it is over.
    pub(super) ends_when_steady: bool,
    pub(super) phase_cell: Option<Arc<AtomicU8>>,
    pub(super) let_go: Option<LetGo>,
    pub(super) failed_flushes: Arc<FailedFlushes>,
    /// Where its books are while it waits in a call; none if its requests hold no thread.
    pub(super) parked: Option<Arc<Parked>>,
}

/// What a worker does by the clock.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    /// How long it runs after the ramp-up, if it ends by time.
    pub(super) duration: Option<Duration>,
    /// For how long nothing is recorded.
    pub(super) ramp_up: Duration,
    /// How long it goes on afterwards, with faults off.
    pub(super) cool_down: Duration,
    pub(super) think_time: Option<ThinkTime>,
}

pub(super) struct Worker {
    pub(super) number: u16,
    pub(super) phase: Phase,
    pub(super) verify: bool,
    pub(super) runtime: Runtime,
    pub(super) queues: Vec<Rc<dyn Queue>>,
    /// The name of each object.
    pub(super) tags: Vec<Tag>,
    pub(super) workload: Workload,
    pub(super) content: Content,
    /// What its writes hold; a check writes nothing.
    pub(super) contents: Option<Contents>,
    pub(super) slots: usize,
    pub(super) times: Times,
    /// What to try again; a check tries nothing.
    pub(super) retry: Option<Retry>,
    pub(super) watch: Watch,
    pub(super) parked: Option<Arc<Parked>>,
    pub(super) cancel: Arc<AtomicUsize>,
    pub(super) progress: Arc<Progress>,
    pub(super) recording: Option<Arc<Recording>>,
    ends_when_steady: bool,
    pub(super) phase_cell: Option<Arc<AtomicU8>>,
    /// Gone while it is parked, and for good if somebody took them from there.
    books: RefCell<Option<Box<State>>>,
}

enum Draw {
    Step(Planned),
    Blocked,
    Pause(Time),
    End,
}

/// Requests that a slot may complete in a row before it lets others run.
const IMMEDIATE_IN_A_ROW_MAX: u32 = 64;
/// So many steps without any time passing mean that a load which ends by time never will.
const STEPS_WITHOUT_TIME_MAX: u64 = 1_000_000;

impl Worker {
    pub(super) fn new(options: WorkerOptions) -> Rc<Self> {
        let WorkerOptions { number, phase, verify, runtime, queues, workload, source, part, slots, .. } =
            options;
        let contents = match &source {
            Source::Stream(stream) => Some(stream.contents()),
            Source::Sweep(_) => None,
        };
        let unflushed = Unflushed::new(slots, options.failed_flushes);
        let unpublished = options.progress.unpublished();
        let state = State::new(phase, source, part, (slots, queues.len()), unflushed, unpublished);
        let watch = Watch {
            worker: number,
            phase,
            verify,
            slots,
            workload: workload.clone(),
            progress: Arc::clone(&options.progress),
            let_go: options.let_go,
        };
        if let Some(parked) = &options.parked {
            parked.set_watch(watch.clone());
        }
        let retry = if contents.is_some() { workload.spec().retry.clone() } else { None };
        Rc::new(Self {
            number,
            phase,
            verify,
            runtime,
            queues,
            tags: workload.objects().iter().map(|object| Tag::intern(&object.name)).collect(),
            content: *workload.content(),
            workload,
            contents,
            slots,
            times: options.times,
            retry,
            watch,
            parked: options.parked,
            cancel: options.cancel,
            progress: options.progress,
            recording: options.recording,
            ends_when_steady: options.ends_when_steady,
            phase_cell: options.phase_cell,
            books: RefCell::new(Some(Box::new(state))),
        })
    }

    /// What the slots share.
    #[inline]
    pub(super) fn state(&self) -> RefMut<'_, State> {
        RefMut::map(self.books.borrow_mut(), |books| {
            books.as_deref_mut().expect("who has been given up does nothing any more")
        })
    }

    /// Parks the state for the time of a call. Whether it is still there after it; if not, somebody has
    /// given this worker up.
    pub(super) fn in_call<T>(&self, parked: &Parked, call: impl FnOnce() -> T) -> Option<T> {
        parked.leave(self.books.take());
        let answer = call();
        *self.books.borrow_mut() = parked.take_back();
        self.books.borrow().is_some().then_some(answer)
    }

    /// Starts the slots on the worker's runtime.
    pub(super) fn start(self: &Rc<Self>) {
        let now = self.runtime.now();
        {
            let mut state = self.state();
            state.now = now;
            state.published = now;
            state.started = now;
            state.busy_since = now;
            state.ramp_up_until = now.after(self.times.ramp_up);
            let end = self.times.duration.map(|duration| now.after(self.times.ramp_up).after(duration));
            state.deadline = end.map(|end| end.after(self.times.cool_down));
            state.cool_down_at = end.filter(|_| !self.times.cool_down.is_zero());
            state.recorder = self.recording.as_ref().map(|recording| recording.recorder(self.number, now));
        }
        for slot in 0..self.slots {
            let worker = Rc::clone(self);
            self.runtime.spawn_detached(async move { worker.run_lane(slot).await });
        }
    }

    /// Whether the last slot has ended; if not, `waker` is called when it does.
    pub(super) fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        let mut books = self.books.borrow_mut();
        let Some(state) = books.as_mut().filter(|state| !state.has_ended) else { return Poll::Ready(()) };
        state.waiting = Some(waker.clone());
        Poll::Pending
    }

    /// What the worker leaves behind, once it has ended. Fails if the load itself turned out to be senseless.
    pub(super) fn into_outcome(self: Rc<Self>) -> Result<Outcome, Error> {
        let worker = Rc::into_inner(self).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a slot of the load is still running after its end")
        })?;
        match worker.books.into_inner() {
            Some(state) => state.into_outcome(),
            None => Err(Error::new(ErrorKind::Cancelled, "the worker has been given up")),
        }
    }

    /// Lets intervals end though nothing completes, and looks after what does not come back.
    pub(super) fn tick(&self) {
        if let Some(state) = &mut *self.books.borrow_mut() {
            self.watch.look(state, self.runtime.now());
        }
    }

    /// Ends because somebody asked to stop.
    pub(super) fn interrupt(&self) {
        if let Some(state) = &mut *self.books.borrow_mut() {
            self.watch.interrupt(state, self.runtime.now());
        }
    }

    /// Whether it has ended with slots under way, which are to be dropped.
    pub(super) fn is_cut_off(&self) -> bool {
        self.books.borrow().as_ref().is_none_or(|state| state.is_cut_off)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) != 0
    }

    async fn run_lane(&self, slot: usize) {
        let mut immediate_in_a_row = 0;
        loop {
            let was_immediate = match self.draw(slot) {
                Draw::End => break,
                Draw::Blocked => {
                    self.wait_for_completion().await;
                    false
                }
                Draw::Pause(until) => {
                    self.runtime.sleep_until(until).await;
                    false
                }
                Draw::Step(planned) => self.carry_out(slot, planned).await,
            };
            immediate_in_a_row = if was_immediate { immediate_in_a_row + 1 } else { 0 };
            if immediate_in_a_row == IMMEDIATE_IN_A_ROW_MAX {
                immediate_in_a_row = 0;
                self.runtime.yield_now().await;
            }
        }
        let is_last = {
            let mut state = self.state();
            state.active_slots -= 1;
            state.active_slots == 0
        };
        if is_last {
            // An error of a write that the kernel kept back shows here or never.
            let is_cool_down = self.state().tally.cool_down.is_some();
            let planned = Planned { step: Step::Flush, due: None, is_recorded: true, is_cool_down };
            self.state().steps[slot] = Some(planned);
            self.flush(slot, planned).await;
            self.watch.end(&mut self.state(), self.runtime.now());
        }
    }

    /// Does one step, at its time. Whether the slot never had to wait.
    async fn carry_out(&self, slot: usize, planned: Planned) -> bool {
        if let Some(due) = planned.due
            && due > self.runtime.now()
        {
            self.runtime.sleep_until(due).await;
        }
        let was_immediate = match planned.step {
            Step::Write { .. } => self.write(slot, planned).await,
            Step::Read(extent) => self.read(slot, extent, planned).await,
            Step::Discard(extent) => self.discard(slot, extent, planned).await,
            Step::Flush => {
                self.flush(slot, planned).await;
                false
            }
        };
        let mut state = self.state();
        state.busy -= 1;
        if self.times.think_time.is_some() {
            // Those that wait for the last request before a pause.
            for waker in state.blocked.drain(..) {
                waker.wake();
            }
        }
        was_immediate
    }

    fn draw(&self, slot: usize) -> Draw {
        let mut guard = self.state();
        let state = &mut *guard;
        if self.is_cancelled() {
            state.tally.is_interrupted = true;
            return Draw::End;
        }
        if self.ends_when_steady && self.recording.as_ref().is_some_and(|recording| recording.is_steady()) {
            state.is_stopped = true;
        }
        // A pause lets time pass, perhaps up to the end, and so comes before a look at it.
        if let Some(think_time) = self.times.think_time
            && !state.is_stopped
            && let Some(wait) = self.pause(state, think_time)
        {
            return wait;
        }
        if let Some(deadline) = state.deadline {
            self.watch_the_time(state, deadline);
        }
        if state.is_stopped {
            return Draw::End;
        }
        let Some(planned) = self.next_planned(state) else { return Draw::End };
        if let (Some(due), Some(deadline)) = (planned.due, state.deadline)
            && due >= deadline
        {
            state.pending = Some(planned);
            let now = self.runtime.now();
            if now < deadline {
                // Up to its end the load is one in which nothing was due.
                (state.now, state.steps_at_now) = (now, 0);
                return Draw::Pause(deadline);
            }
            state.is_stopped = true;
            return Draw::End;
        }
        let (extent, is_write) = match &planned.step {
            Step::Read(extent) => (extent, false),
            Step::Write { extent, .. } | Step::Discard(extent) => (extent, true),
            Step::Flush => {
                state.steps[slot] = Some(planned);
                state.busy += 1;
                return Draw::Step(planned);
            }
        };
        if self.slots > 1 && state.in_flight.conflicts(extent, is_write) {
            state.pending = Some(planned);
            return Draw::Blocked;
        }
        state.in_flight.begin(slot, extent, is_write);
        state.unflushed.begin(slot, &planned.step);
        state.steps[slot] = Some(planned);
        state.busy += 1;
        state.since_pause += 1;
        Draw::Step(planned)
    }

    #[inline]
    fn next_planned(&self, state: &mut State) -> Option<Planned> {
        if let Some(pending) = state.pending.take() {
            return Some(pending);
        }
        let step = state.source.next(self.workload.layout(), &state.part)?;
        let Source::Stream(stream) = &state.source else {
            return Some(Planned { step, due: None, is_recorded: true, is_cool_down: false });
        };
        let due = stream.due().map(|due| state.started.after(due));
        let is_cool_down = stream.is_cooling_down()
            || state.cool_down_at.is_some_and(|cool_down| due.unwrap_or(state.now) >= cool_down);
        let has_ramp_up = stream.has_ramp_up() || state.ramp_up_until > state.started;
        let is_ramping_up = has_ramp_up && stream.is_ramping_up();
        if is_cool_down && state.tally.cool_down.is_none() {
            self.recover(state, due);
        }
        if !has_ramp_up {
            return Some(Planned { step, due, is_recorded: true, is_cool_down });
        }
        let now = due.unwrap_or_else(|| self.runtime.now());
        let is_recorded = !is_ramping_up && now >= state.ramp_up_until;
        if is_recorded && state.tally.started.is_none() {
            state.tally.started = Some(now);
            if let Some(recorder) = &mut state.recorder {
                recorder.begin_at(now);
            }
        }
        Some(Planned { step, due, is_recorded, is_cool_down })
    }

    /// The load has come to its end, and goes on without faults.
    #[cold]
    fn recover(&self, state: &mut State, due: Option<Time>) {
        let now = self.runtime.now();
        let began = due.unwrap_or(now).max(now);
        state.phase = Phase::CoolDown;
        state.tally.cool_down = Some(Box::new(CoolDown::new(began)));
        if !self.times.cool_down.is_zero() {
            // By the clock it would have come later, or comes now.
            let end = began.after(self.times.cool_down);
            state.deadline = state.deadline.map(|deadline| deadline.min(end));
        }
        if let Some(recorder) = &mut state.recorder {
            recorder.recover(now);
        }
        if let Some(cell) = &self.phase_cell {
            cell.store(Phase::CoolDown as u8, Ordering::Relaxed);
        }
    }

    /// What a slot has to wait for before the next request, if it is time for a pause.
    fn pause(&self, state: &mut State, think_time: ThinkTime) -> Option<Draw> {
        let is_time = match think_time.after {
            ThinkAfter::Requests(requests) => state.since_pause >= requests,
            ThinkAfter::Time(busy) => state.since_pause > 0 && state.now.since(state.busy_since) >= busy.0,
        };
        if !is_time {
            return None;
        }
        if state.busy > 0 {
            return Some(Draw::Blocked);
        }
        let now = self.runtime.now();
        state.now = now;
        state.steps_at_now = 0;
        let mut until = *state.pause_until.get_or_insert_with(|| now.after(think_time.pause.0));
        if let Some(deadline) = state.deadline {
            // Nothing comes after the end, so nobody waits beyond it.
            until = until.min(deadline);
        }
        if now < until {
            return Some(Draw::Pause(until));
        }
        state.pause_until = None;
        state.since_pause = 0;
        state.busy_since = now;
        None
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

    /// Completes with the next completion of any slot.
    async fn wait_for_completion(&self) {
        let mut is_registered = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_registered, true) {
                return Poll::Ready(());
            }
            self.state().blocked.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
