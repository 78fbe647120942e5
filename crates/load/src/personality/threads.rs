//! The threads of a load of files, and the one that looks after them.
//!
//! Where all that is left to wait for is calls that do not return, their threads are left behind. What they were to know of
//! their files is lost with them.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::panicking;

use parking_lot::Mutex;
use rotproof_block::{Result, Time};

use super::job::Job;
use super::metadata::Names;
use super::plan::FilePlan;
use super::report::Tally;
use super::seat::{Doing, Seat};
use super::worker::FileWorker;
use crate::effort::EffortMeter;
use crate::worker_threads::{Member, WorkerThreads};

/// A thread's work, and its name.
pub(super) type Task = (String, Box<dyn FnOnce(&mut FileWorker<'_>) -> Result<()> + Send>);

/// Ends a thread that has been left behind. No panic: nobody is told.
pub(super) fn end_left_behind() -> ! {
    resume_unwind(Box::new("left behind"))
}

/// Nobody may wait for a thread of these that panics.
struct Alarm<'a>(&'a Job);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if panicking() {
            self.0.abandon();
        }
    }
}

/// Carries out each task in a thread of its own. They are the workers from `first` on.
pub(super) fn in_threads(job: &Arc<Job>, first: u32, tasks: Vec<Task>) -> Result<Vec<Tally>> {
    // All of them before the first begins, so that no interval is taken for complete while some are still to come.
    let tasks: Vec<_> =
        (first..).zip(tasks).map(|(worker, task)| (worker, task, job.recorder(worker))).collect();
    let mut threads = WorkerThreads::new();
    for (worker, (name, task), recorder) in tasks {
        let seat = Arc::new(Seat::new(u16::try_from(worker).unwrap_or(u16::MAX), job.now()));
        let (own_job, own_seat) = (Arc::clone(job), Arc::clone(&seat));
        let is_started = threads.start(&name, seat, move || {
            let _alarm = Alarm(&own_job);
            let meter = EffortMeter::start();
            let mut worker = FileWorker::new(&own_job, recorder, own_seat);
            let done = task(&mut worker);
            let mut tally = worker.into_tally();
            tally.effort = meter.end();
            done.map(|()| tally)
        });
        if !is_started {
            job.abandon();
        }
    }
    let results = threads.wait(&job.cancel, |members, must_end| {
        let now = job.now();
        let has_hung = is_stuck(job, members, now);
        if !has_hung && !must_end {
            return;
        }
        for member in members {
            let tally = member.at_work().and_then(|seat| seat.take_away(job, now, has_hung));
            if let Some(tally) = tally {
                member.leave_behind(Ok(tally));
            }
        }
        job.abandon();
        if has_hung && let Some(let_go) = &job.let_go {
            let_go();
        }
    });
    match job.limit.lock().take() {
        Some(limit) => Err(limit),
        None => results.into_iter().collect(),
    }
}

/// Whether some calls do not return and every other thread waits for those that are in them. Until the load is over it
/// has twice the patience.
fn is_stuck(job: &Job, members: &[Member<Arc<Seat>, Tally>], now: Time) -> bool {
    let patience = if job.is_over() { job.hung_after } else { job.hung_after.saturating_mul(2) };
    let mut hangs = false;
    let mut works = false;
    for seat in members.iter().filter_map(Member::at_work) {
        match seat.look(job, now, patience) {
            Doing::Works => works = true,
            Doing::Waits => {}
            Doing::Hangs => hangs = true,
        }
    }
    hangs && !works
}

/// What each thread knows of its files, while they are at work.
pub(super) struct Home(Vec<Mutex<Option<Names>>>);

impl Home {
    pub(super) fn of(parts: Vec<Names>) -> Arc<Self> {
        Arc::new(Self(parts.into_iter().map(|names| Mutex::new(Some(names))).collect()))
    }

    /// The work of a thread with what it knows.
    pub(super) fn with(&self, thread: u32, work: impl FnOnce(&mut Names)) {
        let place = &self.0[thread as usize];
        let names = place.lock().take();
        if let Some(mut names) = names {
            work(&mut names);
            *place.lock() = Some(names);
        }
    }

    /// All of it after the work. The files of those that were left behind are in doubt.
    pub(super) fn end(&self, plan: &FilePlan) -> Vec<Names> {
        (0..)
            .zip(&self.0)
            .map(|(thread, names)| names.lock().take().unwrap_or_else(|| Names::in_doubt(plan, thread)))
            .collect()
    }
}
