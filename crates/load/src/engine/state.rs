//! What the slots of a worker share: one of them has it at a time, and none while it waits.

use std::task::Waker;

use rotproof_block::{Buffer, Error, Phase, Time};
use rotproof_record::Recorder;

use super::in_flight::InFlight;
use super::progress::{Progress, Unpublished};
use super::report::Tally;
use super::source::Source;
use super::unflushed::Unflushed;
use super::watch::Flight;
use crate::oracle::OraclePart;
use crate::stream::Step;

/// A step, and what is to be known of it beside what to do.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    pub(super) step: Step,
    /// When it was meant to begin, whenever it does: its latency counts from then.
    pub(super) due: Option<Time>,
    /// Counted and timed: no part of the ramp-up.
    pub(super) is_recorded: bool,
    /// After the load's end.
    pub(super) is_cool_down: bool,
}

pub(super) struct State {
    pub(super) source: Source,
    pub(super) part: OraclePart,
    pub(super) in_flight: InFlight,
    pub(super) unflushed: Unflushed,
    /// The step that each slot is at.
    pub(super) steps: Vec<Option<Planned>>,
    /// What each slot waits for.
    pub(super) flights: Vec<Option<Flight>>,
    /// Drawn, but waiting for a request that it overlaps.
    pub(super) pending: Option<Planned>,
    /// Slots that wait for the same.
    pub(super) blocked: Vec<Waker>,
    /// When the worker began.
    pub(super) started: Time,
    /// From here on steps are recorded.
    pub(super) ramp_up_until: Time,
    /// Steps that slots are busy with.
    pub(super) busy: usize,
    /// Requests since the last pause, when that ended, and when the present one ends.
    pub(super) since_pause: u64,
    pub(super) busy_since: Time,
    pub(super) pause_until: Option<Time>,
    pub(super) active_slots: usize,
    pub(super) has_ended: bool,
    /// It has ended with slots under way.
    pub(super) is_cut_off: bool,
    /// Who waits for the end.
    pub(super) waiting: Option<Waker>,
    /// No more steps: time is over, or something is wrong with the load itself.
    pub(super) is_stopped: bool,
    pub(super) broken: Option<Error>,
    pub(super) deadline: Option<Time>,
    /// When the cool-down begins, if it does by time.
    pub(super) cool_down_at: Option<Time>,
    /// What requests say of when they were made.
    pub(super) phase: Phase,
    pub(super) recorder: Option<Recorder>,
    /// The last time that any slot read.
    pub(super) now: Time,
    /// Steps since `now` last changed.
    pub(super) steps_at_now: u64,
    /// Objects written to since their last flush.
    pub(super) is_dirty: Vec<bool>,
    /// Memory that writes send again, where contents do not matter.
    pub(super) spare: Vec<Buffer>,
    pub(super) requests: u64,
    pub(super) unpublished: Unpublished,
    pub(super) published: Time,
    pub(super) tally: Tally,
}

/// What a worker leaves behind.
pub(super) struct Outcome {
    pub(super) part: OraclePart,
    pub(super) tally: Tally,
    /// Requests drawn from its stream and carried out.
    pub(super) requests: u64,
}

impl State {
    /// Before the first step of so many slots, on so many objects.
    pub(super) fn new(
        phase: Phase,
        source: Source,
        part: OraclePart,
        (slots, objects): (usize, usize),
        unflushed: Unflushed,
        unpublished: Unpublished,
    ) -> Self {
        Self {
            source,
            part,
            in_flight: InFlight::new(slots),
            unflushed,
            steps: vec![None; slots],
            flights: vec![None; slots],
            pending: None,
            blocked: Vec::new(),
            started: Time::default(),
            ramp_up_until: Time::default(),
            busy: 0,
            since_pause: 0,
            busy_since: Time::default(),
            pause_until: None,
            active_slots: slots,
            has_ended: false,
            is_cut_off: false,
            waiting: None,
            is_stopped: false,
            broken: None,
            deadline: None,
            cool_down_at: None,
            phase,
            recorder: None,
            now: Time::default(),
            steps_at_now: 0,
            is_dirty: vec![false; objects],
            spare: Vec::new(),
            requests: 0,
            unpublished,
            published: Time::default(),
            tally: Tally::new(),
        }
    }

    /// What a worker leaves behind that has ended. Fails if the load itself turned out to be senseless.
    pub(super) fn into_outcome(mut self: Box<Self>) -> Result<Outcome, Error> {
        if let Source::Stream(stream) = &mut self.source {
            self.tally.trace = stream.trace();
            self.broken = self.broken.or_else(|| stream.take_trouble());
        }
        if let Some(error) = self.broken {
            return Err(error);
        }
        let requests = match &self.source {
            Source::Stream(stream) => {
                let is_undone = self.pending.is_some_and(|planned| planned.step != Step::Flush);
                stream.requests() - u64::from(is_undone)
            }
            Source::Sweep(_) => 0,
        };
        Ok(Outcome { part: self.part, tally: self.tally, requests })
    }

    pub(super) fn publish(&mut self, progress: &Progress) {
        progress.publish(&mut self.unpublished);
        self.published = self.now;
    }
}
