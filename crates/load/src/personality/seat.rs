//! Where a thread leaves its figures for the time of each call, so that another can look after it: a call that does not
//! return leaves the thread no turn to do so itself.
//!
//! Whoever looks tells of a call that takes too long, and takes the figures away where nobody is to wait any longer. A
//! thread that finds them gone ends without a trace.

use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::{ErrorKind, Time};
use rotproof_record::Recorder;

use super::job::Job;
use super::report::{FileIncident, FileOperation, Tally};
use crate::engine::{HungEnd, HungRequest, LoadOperation, Unpublished};
use crate::failure::{Classification, Way};

/// Stands for the number of a file where something is done to the folder as a whole.
pub(super) const NO_FILE: u32 = u32::MAX;
/// Calls that are kept for each thread; of more only the number is known.
const HUNG_MAX: usize = 100;

/// The seat of one thread.
pub(super) struct Seat {
    worker: u16,
    state: Mutex<State>,
}

struct State {
    /// What the thread has left; nothing while it is at work itself, and for good if it was taken away.
    left: Option<Left>,
    /// Since when it is as it is.
    since: Time,
}

/// What a thread leaves for the time of a call.
pub(super) struct Left {
    pub(super) tally: Tally,
    pub(super) recorder: Option<Recorder>,
    pub(super) unpublished: Unpublished,
    pub(super) operation: FileOperation,
    pub(super) file: u32,
    pub(super) told: Told,
}

/// Whether somebody knows that a call takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    No,
    /// As the one with this number.
    As(usize),
    /// As one of too many.
    Counted,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It works, or has not been in its call for too long.
    Works,
    /// It has made no call for so long that it must be waiting for another.
    Waits,
    /// It is in a call that does not return.
    Hangs,
}

impl Seat {
    pub(super) fn new(worker: u16, now: Time) -> Self {
        Self { worker, state: Mutex::new(State { left: None, since: now }) }
    }

    /// The thread begins a call.
    pub(super) fn leave(&self, left: Left, now: Time) {
        *self.state.lock() = State { left: Some(left), since: now };
    }

    /// The call has returned; nothing if the thread was given up.
    pub(super) fn take_back(&self, now: Time) -> Option<Left> {
        let mut state = self.state.lock();
        let mut left = state.left.take()?;
        if let Told::As(number) = left.told {
            let hung = &mut left.tally.hung[number];
            (hung.age_ns, hung.end) = (nanoseconds(now.since(state.since)), HungEnd::Returned);
        }
        state.since = now;
        Some(left)
    }

    /// Looks after the thread, whose patience for one call is this.
    pub(super) fn look(&self, job: &Job, now: Time, patience: Duration) -> Doing {
        let mut state = self.state.lock();
        let age = now.since(state.since);
        let since = state.since;
        let Some(left) = &mut state.left else {
            return if age < patience { Doing::Works } else { Doing::Waits };
        };
        if let Some(recorder) = &mut left.recorder {
            recorder.tick(now);
        }
        if age >= job.hung_after && left.told == Told::No {
            self.tell(left, job, (since, age));
        }
        if age < patience { Doing::Works } else { Doing::Hangs }
    }

    #[cold]
    fn tell(&self, left: &mut Left, job: &Job, (since, age): (Time, Duration)) {
        if left.tally.hung.len() == HUNG_MAX {
            (left.told, left.tally.hung_omitted) = (Told::Counted, left.tally.hung_omitted + 1);
            return;
        }
        let hung = HungRequest {
            worker: self.worker,
            phase: job.phase.word().into(),
            operation: left.operation.word().into(),
            object: name_of(job, left.operation, left.file),
            offset_bytes: 0,
            length_bytes: 0,
            sent_ns: since.0,
            age_ns: nanoseconds(age),
            end: HungEnd::Waiting,
        };
        left.told = Told::As(left.tally.hung.len());
        job.progress.tell_of_hung(hung.clone());
        left.tally.hung.push(hung);
    }

    /// Takes away what a thread has left that is in a call, and closes its books. The call counts as one that timed out
    /// if it `has_hung`, and in none of the figures if not.
    pub(super) fn take_away(&self, job: &Job, now: Time, has_hung: bool) -> Option<Tally> {
        let mut state = self.state.lock();
        let age = now.since(state.since);
        if has_hung && age < job.hung_after {
            // It has come back meanwhile.
            return None;
        }
        let Left { mut tally, recorder, mut unpublished, operation, file, told } = state.left.take()?;
        drop(state);
        if has_hung {
            let error = ErrorKind::TimedOut;
            tally.timed_out(operation);
            unpublished.count(operation.into(), nanoseconds(age), 0, true);
            if let Told::As(number) = told {
                let hung = &mut tally.hung[number];
                (hung.age_ns, hung.end) = (nanoseconds(age), HungEnd::GivenUp);
            }
            if file == NO_FILE {
                tally.told(FileIncident { operation, error, time: now });
            } else {
                let way = Way {
                    phase: job.phase,
                    time: now,
                    operation: LoadOperation::Write,
                    expected: Vec::new(),
                    found: None,
                    found_sectors: None,
                    what: Classification::Refused { operation, error },
                    count: 1,
                };
                let is_new = tally.failed_by_name(file, name_of(job, operation, file), 0, way);
                unpublished.failures += u64::from(is_new);
            }
        }
        job.progress.publish(&mut unpublished);
        tally.ended = now;
        if let Some(recorder) = recorder {
            recorder.finish(now);
        }
        Some(tally)
    }
}

fn name_of(job: &Job, operation: FileOperation, file: u32) -> String {
    match operation {
        _ if file == NO_FILE => ".".to_owned(),
        FileOperation::Mkdir | FileOperation::Dirstat | FileOperation::Rmdir => job.plan.directory_path(file),
        _ => job.plan.path(file),
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
