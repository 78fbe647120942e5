//! The workers of a phase on threads of their own, with an io_uring runtime each. They begin together, once every
//! one of them has its queues open.
//!
//! Where requests hold the thread of their worker, one whose call does not return is left behind, with the books as they
//! were.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rotproof_block::runtime::{Clock, RuntimeOptions};
use rotproof_block::{Error, ErrorKind, Result, Runtime, Time};

use super::parked::{GivenUp, Parked};
use super::state::Outcome;
use super::worker::Worker;
use super::{Finished, Job, drive};
use crate::effort::{Effort, EffortMeter};
use crate::oracle::OraclePart;
use crate::worker_threads::WorkerThreads;

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

pub(super) fn run(job: Job, parts: Vec<OraclePart>, epoch: Instant) -> Result<Finished> {
    let job = Arc::new(job);
    let gate = Arc::new(Gate::default());
    let wanted = parts.len();
    let (ready, all_ready) = mpsc::channel();
    let mut threads = WorkerThreads::new();
    for (number, part) in job.workload.running().zip(parts) {
        let parked = job.driver.holds_threads().then(Arc::<Parked>::default);
        let of_thread = (Arc::clone(&job), parked.clone(), ready.clone(), Arc::clone(&gate));
        threads.start(&format!("load-{number}"), parked, move || {
            let (job, parked, ready, gate) = of_thread;
            work(&job, (number, part), parked, epoch, ready, &gate)
        });
    }
    drop(ready);
    // Ends when every thread has reported or died.
    gate.decide(all_ready.iter().count() == wanted);
    let clock = Clock::since(epoch);
    let results = threads.wait(&job.cancel, |members, must_end| {
        for member in members {
            let parked = member.at_work().and_then(Option::as_deref);
            if let Some(GivenUp { outcome, started }) =
                parked.and_then(|parked| parked.look(clock.now(), must_end))
            {
                let effort = Effort::default();
                member.leave_behind(outcome.map(|outcome| ThreadOutcome { outcome, started, effort }));
            }
        }
    });
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
    parked: Option<Arc<Parked>>,
    epoch: Instant,
    ready: Sender<()>,
    gate: &Gate,
) -> Result<ThreadOutcome> {
    let slots = job.workload.job(number).queue_depth;
    let options = RuntimeOptions {
        seed: job.workload.seed(),
        epoch,
        ring_entries: slots.next_power_of_two().clamp(64, 1024),
        fixed_buffers: job.workload.fixed_buffers(number),
        polled: job.workload.spec().polled,
    };
    let runtime = Runtime::uring(options)?;
    let queues = job.driver.open(&runtime)?;
    let worker = job.worker(&runtime, queues, (number, part), parked);
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
