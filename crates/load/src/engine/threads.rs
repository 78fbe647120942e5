//! The workers of a phase on threads of their own, with an io_uring runtime each. They begin together, once every
//! one of them has its queues open.
//!
//! Where requests hold the thread of their worker, a worker whose call does not return is left behind: its thread ends by
//! itself whenever the call does return, and touches nothing any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rotproof_block::error::IoContext;
use rotproof_block::runtime::{Clock, RuntimeOptions};
use rotproof_block::{Error, ErrorKind, Result, Runtime, Time};

use super::desk::{Desk, GivenUp};
use super::worker::{Outcome, Worker};
use super::{CANCEL_EVERY, Finished, Job, drive};
use crate::effort::{Effort, EffortMeter};
use crate::oracle::OraclePart;

/// So often a worker that is in a call is looked at after somebody asked to stop, before it is left behind: most calls
/// return by then.
const LOOKS_BEFORE_END: u32 = 20;

/// Holds the threads back until all are ready, or tells them that it was in vain.
#[derive(Default)]
struct Gate {
    may_pass: Mutex<Option<bool>>,
    decided: Condvar,
}

impl Gate {
    fn decide(&self, may_pass: bool) {
        *self.may_pass.lock() = Some(may_pass);
        self.decided.notify_all();
    }

    fn wait(&self) -> bool {
        let mut may_pass = self.may_pass.lock();
        loop {
            match *may_pass {
                Some(decision) => return decision,
                None => self.decided.wait(&mut may_pass),
            }
        }
    }
}

struct ThreadOutcome {
    outcome: Outcome,
    started: Time,
    effort: Effort,
}

/// What a thread tells of its end, also if it panics.
struct Ending {
    place: usize,
    result: Option<Result<ThreadOutcome>>,
    to: Sender<(usize, Result<ThreadOutcome>)>,
}

impl Ending {
    fn is_known(&mut self, result: Result<ThreadOutcome>) {
        self.result = Some(result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let panicked = || Err(Error::new(ErrorKind::Internal, "a worker of the load panicked"));
        // Nobody hears of one that was left behind.
        let _ = self.to.send((self.place, self.result.take().unwrap_or_else(panicked)));
    }
}

/// A thread that was started, and where its worker's books are while it is in a call.
struct Running {
    thread: JoinHandle<()>,
    desk: Option<Arc<Desk>>,
}

pub(super) fn run(job: Job, parts: Vec<OraclePart>, epoch: Instant) -> Result<Finished> {
    let job = Arc::new(job);
    let gate = Arc::new(Gate::default());
    let wanted = parts.len();
    let (ready, all_ready) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    let mut running: Vec<Option<Running>> = Vec::new();
    let mut results: Vec<Option<Result<ThreadOutcome>>> = Vec::new();
    for (place, (number, part)) in job.workload.running().zip(parts).enumerate() {
        let desk = job.driver.holds_threads().then(Arc::<Desk>::default);
        let of_thread = (Arc::clone(&job), desk.clone(), ready.clone(), Arc::clone(&gate));
        let mut ending = Ending { place, result: None, to: ended.clone() };
        let body = move || {
            let (job, desk, ready, gate) = of_thread;
            ending.is_known(work(&job, (number, part), desk, epoch, ready, &gate));
        };
        let thread = thread::Builder::new().name(format!("load-{number}")).spawn(body);
        match thread.doing(|| format!("starting a thread for worker {number}")) {
            Ok(thread) => {
                running.push(Some(Running { thread, desk }));
                results.push(None);
            }
            Err(error) => {
                running.push(None);
                results.push(Some(Err(error)));
            }
        }
    }
    drop((ready, ended));
    // Ends when every thread has reported or died.
    gate.decide(all_ready.iter().count() == wanted);
    let (clock, mut looks_after_cancel) = (Clock::since(epoch), 0);
    while running.iter().any(Option::is_some) {
        match ends.recv_timeout(CANCEL_EVERY) {
            Ok((place, result)) => {
                let Some(Running { thread, .. }) = running[place].take() else { continue };
                // Its files are closed by then.
                let _ = thread.join();
                results[place].get_or_insert(result);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        looks_after_cancel += u32::from(job.cancel.load(Ordering::Relaxed) != 0);
        for (running, result) in running.iter_mut().zip(&mut results) {
            let desk = running.as_ref().and_then(|running| running.desk.as_deref());
            let given_up =
                desk.and_then(|desk| desk.look(clock.now(), looks_after_cancel > LOOKS_BEFORE_END));
            if let Some(GivenUp { outcome, started }) = given_up {
                let effort = Effort::default();
                *result = Some(outcome.map(|outcome| ThreadOutcome { outcome, started, effort }));
                // Not waited for.
                *running = None;
            }
        }
    }
    let missing = || Err(Error::new(ErrorKind::Internal, "a worker of the load has not said how it ended"));
    let results: Vec<_> = results.into_iter().map(|result| result.unwrap_or_else(missing)).collect();
    // A thread that was held back reports that it was; the one that failed says why.
    if let Some(first) = first_failure(&results) {
        return Err(results.into_iter().nth(first).and_then(Result::err).expect("it is a failure"));
    }
    let (mut outcomes, mut started, mut effort) = (Vec::new(), Time(u64::MAX), Effort::default());
    for thread in results.into_iter().flatten() {
        outcomes.push(thread.outcome);
        started = started.min(thread.started);
        effort += thread.effort;
    }
    Ok(Finished { outcomes, started, effort: Some(effort) })
}

/// The failure to report: one that says more than that somebody stopped, if there is one.
fn first_failure(results: &[Result<ThreadOutcome>]) -> Option<usize> {
    let failed = |result: &Result<ThreadOutcome>| result.as_ref().err().map(Error::kind);
    results
        .iter()
        .position(|result| failed(result).is_some_and(|kind| kind != ErrorKind::Cancelled))
        .or_else(|| results.iter().position(Result::is_err))
}

fn work(
    job: &Job,
    (number, part): (u16, OraclePart),
    desk: Option<Arc<Desk>>,
    epoch: Instant,
    ready: Sender<()>,
    gate: &Gate,
) -> Result<ThreadOutcome> {
    let lanes = job.workload.job(number).queue_depth;
    let options = RuntimeOptions {
        seed: job.workload.seed(),
        epoch,
        ring_entries: lanes.next_power_of_two().clamp(64, 1024),
        fixed_buffers: job.workload.fixed_buffers(number),
        polled: job.workload.spec().polled,
    };
    let runtime = Runtime::uring(options)?;
    let queues = job.driver.open(&runtime)?;
    let worker = job.worker(&runtime, queues, (number, part), desk);
    // The other end lives until all threads have reported; if it is gone, the gate is decided as well.
    let _ = ready.send(());
    drop(ready);
    if !gate.wait() {
        return Err(Error::new(ErrorKind::Cancelled, "another worker of the load could not start"));
    }
    let started = runtime.now();
    let meter = EffortMeter::start();
    let driven = drive(&runtime, std::slice::from_ref(&worker));
    let effort = meter.end();
    let outcome = driven.and_then(|()| Worker::into_outcome(worker));
    // Tasks of layers below may still be pending.
    runtime.abandon_tasks();
    Ok(ThreadOutcome { outcome: outcome?, started, effort })
}
