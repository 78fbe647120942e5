//! Looks after requests that do not come back, and ends a worker before its work is done: because somebody asked to
//! stop, or because all that it waits for has been away for too long. The worker has that done between its requests; where
//! a request holds the worker's thread, another thread does it (`parked`).
//!
//! It goes by when the worker sent each request. It cancels nothing in the device: what has been given up may still
//! take effect at any time, so the blocks of such a write may hold anything from then on.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rotproof_block::{ErrorKind, Operation, Phase, Request, Time};
use rotproof_record::Measured;
use serde::{Deserialize, Serialize};

use super::LetGo;
use super::progress::Progress;
use super::report::{Incident, LoadOperation, Sighting, Tally};
use super::state::{Planned, State};
use crate::evidence::Evidence;
use crate::workload::Workload;

/// A request that was under way for longer than the load's limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct HungRequest {
    /// Which worker sent it.
    pub worker: u16,
    /// In which phase, in a word.
    pub phase: Cow<'static, str>,
    /// What it was to do, in a word.
    pub operation: Cow<'static, str>,
    /// Which object, by its name.
    pub object: String,
    /// Where; zero for a flush, and for what is done to a file as a whole.
    pub offset_bytes: u64,
    /// How much; zero for the same.
    pub length_bytes: u64,
    /// When it was sent, in nanoseconds since the start of the run.
    pub sent_ns: u64,
    /// How long it was under way, or had been when it was told of or given up, in nanoseconds.
    pub age_ns: u64,
    /// What became of it.
    pub end: HungEnd,
}

/// What became of a request that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HungEnd {
    /// It is under way.
    Waiting,
    /// It came back.
    Returned,
    /// Nobody waits for it any more.
    GivenUp,
}

/// Requests that are kept for each worker; of more only the number is known.
const HUNG_MAX: usize = 100;

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    operation: LoadOperation,
    object: u32,
    offset_bytes: u64,
    length_bytes: u64,
    sent: Time,
    told: Told,
}

/// Whether somebody knows that a request takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    No,
    /// As the one with this number.
    As(usize),
    /// As one of too many.
    Counted,
}

impl Flight {
    pub(super) fn of(request: &Request, object: u32, sent: Time) -> Self {
        let operation = match request.operation {
            Operation::Read => LoadOperation::Read,
            Operation::Write { .. } => LoadOperation::Write,
            Operation::Flush => LoadOperation::Flush,
            Operation::Discard | Operation::WriteZeroes => LoadOperation::Discard,
        };
        Self {
            operation,
            object,
            offset_bytes: request.offset,
            length_bytes: request.length,
            sent,
            told: Told::No,
        }
    }

    fn age(&self, now: Time) -> Duration {
        now.since(self.sent)
    }
}

/// What took too long, of one worker.
#[derive(Default)]
pub(super) struct Hung {
    pub(super) requests: Vec<HungRequest>,
    pub(super) omitted: u64,
}

impl Tally {
    /// A request has come back that was told of.
    #[cold]
    fn came_back(&mut self, flight: &Flight, now: Time) {
        if let Told::As(number) = flight.told {
            let hung = &mut self.hung.requests[number];
            (hung.age_ns, hung.end) = (nanoseconds(flight.age(now)), HungEnd::Returned);
        }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// The request of a slot has come back.
    #[inline]
    pub(super) fn came_back(&mut self, slot: usize, now: Time) {
        if let Some(flight) = self.flights[slot].take()
            && flight.told != Told::No
        {
            self.tally.came_back(&flight, now);
        }
    }
}

impl State {
    /// A request of this step has timed out.
    #[cold]
    fn gave_up(&mut self, step: Option<Planned>, flight: &Flight, now: Time) {
        let error = Some(ErrorKind::TimedOut);
        let is_cool_down = step.map_or(self.phase == Phase::CoolDown, |step| step.is_cool_down);
        let figures = self.tally.figures(flight.operation, is_cool_down);
        let Some(step) = step.filter(|step| step.is_recorded) else {
            return figures.record_unrecorded_error(ErrorKind::TimedOut);
        };
        let began = step.due.unwrap_or(flight.sent);
        figures.record(now.since(began), 0, error);
        if let Some(recorder) = &mut self.recorder {
            let (operation, bytes) = (flight.operation as u8, flight.length_bytes);
            recorder.record(&Measured { operation, began, ended: now, bytes, retries: 0, error });
        }
    }
}

/// Looks after the requests of one worker. It belongs to no thread.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) worker: u16,
    pub(super) phase: Phase,
    pub(super) verify: bool,
    pub(super) slots: usize,
    pub(super) workload: Workload,
    pub(super) progress: Arc<Progress>,
    pub(super) let_go: Option<LetGo>,
}

impl Watch {
    /// Lets intervals end though nothing completes, and looks after what does not come back. For a worker that waits.
    pub(super) fn look(&self, state: &mut State, now: Time) {
        if let Some(recorder) = &mut state.recorder {
            recorder.tick(now);
        }
        if state.has_ended {
            return;
        }
        self.tell_of_hung(state, now);
        if self.waits_in_vain(state, now) {
            self.give_up(state, now);
        }
    }

    /// Tells once of each request that has been under way for too long.
    fn tell_of_hung(&self, state: &mut State, now: Time) {
        let State { flights, tally, phase, .. } = state;
        let hung_after = self.workload.hung_after();
        for flight in flights.iter_mut().flatten() {
            if flight.told != Told::No || flight.age(now) < hung_after {
                continue;
            }
            if tally.hung.requests.len() == HUNG_MAX {
                flight.told = Told::Counted;
                tally.hung.omitted += 1;
                continue;
            }
            flight.told = Told::As(tally.hung.requests.len());
            let hung = HungRequest {
                worker: self.worker,
                phase: phase.word().into(),
                operation: flight.operation.word().into(),
                object: self.workload.objects()[flight.object as usize].name.clone(),
                offset_bytes: flight.offset_bytes,
                length_bytes: flight.length_bytes,
                sent_ns: flight.sent.0,
                age_ns: nanoseconds(flight.age(now)),
                end: HungEnd::Waiting,
            };
            self.progress.tell_of_hung(hung.clone());
            tally.hung.requests.push(hung);
        }
    }

    /// Whether the worker can do nothing but wait, and has done so for too long: for its limit if the load is over, for
    /// twice that if it is not.
    fn waits_in_vain(&self, state: &State, now: Time) -> bool {
        let is_over =
            state.active_slots < self.slots || state.deadline.is_some_and(|deadline| now >= deadline);
        let hung_after = self.workload.hung_after();
        let patience = if is_over { hung_after } else { hung_after.saturating_mul(2) };
        let overdue = state.flights.iter().flatten().filter(|flight| flight.age(now) >= patience).count();
        overdue > 0 && overdue + state.blocked.len() >= state.active_slots
    }

    /// Ends without what is under way, each request of which counts as one that timed out.
    #[cold]
    fn give_up(&self, state: &mut State, now: Time) {
        for slot in 0..self.slots {
            let Some(flight) = state.flights[slot].take() else { continue };
            let error = ErrorKind::TimedOut;
            state.gave_up(state.steps[slot], &flight, now);
            state.unpublished.count(flight.operation.into(), nanoseconds(flight.age(now)), 0, true);
            state.tally.failed(Incident {
                object: flight.object,
                offset_bytes: flight.offset_bytes,
                length_bytes: flight.length_bytes,
                operation: flight.operation,
                error,
                sent: flight.sent,
                time: now,
            });
            if let Told::As(number) = flight.told {
                let hung = &mut state.tally.hung.requests[number];
                (hung.age_ns, hung.end) = (nanoseconds(flight.age(now)), HungEnd::GivenUp);
            }
            let blocks = state.in_flight.blocks(slot);
            if !self.verify || !matches!(flight.operation, LoadOperation::Read | LoadOperation::Write) {
                continue;
            }
            for block in blocks {
                let sighting = Sighting {
                    block,
                    phase: self.phase,
                    time: now,
                    operation: flight.operation,
                    expected: state.part.legal(block),
                    evidence: Evidence::Error(error),
                    count: 1,
                };
                state.unpublished.failures += u64::from(state.tally.saw(sighting));
                if flight.operation == LoadOperation::Write {
                    state.part.discarded(block);
                }
            }
        }
        state.is_cut_off = true;
        self.end(state, now);
        if let Some(let_go) = &self.let_go {
            let_go();
        }
    }

    /// Ends because somebody asked to stop, with the figures up to now. Whoever ended before stays as it is.
    #[cold]
    pub(super) fn interrupt(&self, state: &mut State, now: Time) {
        if !state.has_ended {
            (state.tally.is_interrupted, state.is_cut_off) = (true, true);
            self.end(state, now);
        }
    }

    /// Closes the books.
    pub(super) fn end(&self, state: &mut State, now: Time) {
        state.tally.ended = now;
        if let Some(recorder) = state.recorder.take() {
            recorder.finish(now);
        }
        state.tally.all_requests = state.requests;
        state.publish(&self.progress);
        state.has_ended = true;
        state.waiting.take().into_iter().for_each(Waker::wake);
    }
}
