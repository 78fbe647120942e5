//! The threads of a load of files, and the one that looks after them.
//!
//! Where all that is left to wait for is calls that do not return, their threads are left behind: each ends by itself
//! whenever its call does return, and touches nothing any more. What it was to know of its files is lost with it.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result, Time};

use super::hands::{Hands, Job};
use super::metadata::Names;
use super::plan::FilePlan;
use super::report::Tally;
use super::seat::{Doing, Seat};
use crate::effort::EffortMeter;

/// How often threads are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So often a thread that is in a call is looked at after somebody asked to stop, before it is left behind: most calls
/// return by then.
const LOOKS_BEFORE_END: u32 = 20;

/// A thread's work, and its name.
pub(super) type Task = (String, Box<dyn FnOnce(&mut Hands<'_>) -> Result<()> + Send>);

/// Ends a thread that has been left behind. No panic: nobody is told.
pub(super) fn end_left_behind() -> ! {
    resume_unwind(Box::new("left behind"))
}

/// What a thread tells of its end, also if it panics.
struct Ending {
    number: usize,
    job: Arc<Job>,
    result: Option<Result<Tally>>,
    to: Sender<(usize, Result<Tally>)>,
}

impl Ending {
    fn is_known(&mut self, result: Result<Tally>) {
        self.result = Some(result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            // Nobody may wait for it.
            self.job.is_abandoned.store(true, Ordering::Relaxed);
            Err(Error::new(ErrorKind::Internal, "a thread of the load panicked"))
        });
        // Nobody hears of one that was left behind.
        let _ = self.to.send((self.number, result));
    }
}

struct Running {
    thread: JoinHandle<()>,
    seat: Arc<Seat>,
}

/// Carries out each task in a thread of its own. They are the workers from `first` on.
pub(super) fn in_threads(job: &Arc<Job>, first: u32, tasks: Vec<Task>) -> Result<Vec<Tally>> {
    // All of them before the first begins, so that no interval is taken for complete while some are still to come.
    let tasks: Vec<_> =
        (first..).zip(tasks).map(|(worker, task)| (worker, task, job.recorder(worker))).collect();
    let (to, ends) = mpsc::channel();
    let mut running: Vec<Option<Running>> = Vec::new();
    let mut results: Vec<Option<Result<Tally>>> = Vec::new();
    for (number, (worker, (name, task), recorder)) in tasks.into_iter().enumerate() {
        let seat = Arc::new(Seat::new(u16::try_from(worker).unwrap_or(u16::MAX), job.now()));
        let ending = Ending { number, job: Arc::clone(job), result: None, to: to.clone() };
        let own_seat = Arc::clone(&seat);
        let body = move || {
            let mut ending = ending;
            let job = Arc::clone(&ending.job);
            let meter = EffortMeter::start();
            let mut hands = Hands::new(&job, recorder, own_seat);
            let done = task(&mut hands);
            let mut tally = hands.into_tally();
            tally.effort = meter.end();
            ending.is_known(done.map(|()| tally));
        };
        match thread::Builder::new().name(name).spawn(body).doing(|| "starting a thread of the load".into()) {
            Ok(thread) => {
                running.push(Some(Running { thread, seat }));
                results.push(None);
            }
            Err(error) => {
                running.push(None);
                results.push(Some(Err(error)));
            }
        }
    }
    drop(to);
    let mut looks_after_cancel = 0;
    while running.iter().any(Option::is_some) {
        match ends.recv_timeout(LOOK_EVERY) {
            Ok((number, result)) => {
                let Some(Running { thread, .. }) = running[number].take() else { continue };
                // Its files are closed by then.
                let _ = thread.join();
                results[number].get_or_insert(result);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = job.now();
        looks_after_cancel += u32::from(job.cancel.load(Ordering::Relaxed) != 0);
        let has_hung = is_stuck(job, &running, now);
        if !has_hung && looks_after_cancel <= LOOKS_BEFORE_END {
            continue;
        }
        for (running, result) in running.iter_mut().zip(&mut results) {
            let tally = running.as_ref().and_then(|running| running.seat.take_away(job, now, has_hung));
            if let Some(tally) = tally {
                *result = Some(Ok(tally));
                // Not waited for.
                *running = None;
            }
        }
        // Nobody may wait for those that are gone.
        job.is_abandoned.store(true, Ordering::Relaxed);
        if has_hung && let Some(let_go) = &job.let_go {
            let_go();
        }
    }
    let missing = || Err(Error::new(ErrorKind::Internal, "a thread of the load has not said how it ended"));
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

/// Whether some calls do not return and every other thread waits for those that are in them. Until the load is over it
/// has twice the patience.
fn is_stuck(job: &Job, running: &[Option<Running>], now: Time) -> bool {
    let patience = if job.is_over() { job.hung_after } else { job.hung_after.saturating_mul(2) };
    let mut hangs = false;
    let mut works = false;
    for running in running.iter().flatten() {
        match running.seat.look(job, now, patience) {
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
