//! Sends a workload through a driver, phase by phase: prefill, run, check.
//!
//! Under io_uring each worker has a thread and a runtime of its own; simulated, all are tasks of one runtime, and the
//! same seed gives the same report and the same oracle, bit for bit.

mod in_flight;
mod latencies;
#[cfg(test)]
mod pace_tests;
mod parked;
mod portable;
mod progress;
mod report;
mod requests;
mod sightings;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod threads;
mod unflushed;
#[cfg(test)]
mod until_steady_tests;
mod watch;
mod worker;
mod wrong_data;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize};
use std::task::Poll;
use std::time::{Duration, Instant};

use rotproof_block::{Error, ErrorKind, Phase, Queue, Result, Runtime};
use rotproof_record::Recording;

use crate::content::Stage;
use crate::driver::Driver;
use crate::effort::Effort;
use crate::oracle::{Drawn, Oracle, OraclePart};
use crate::workload::Workload;
pub use latencies::Latencies;
use parked::Parked;
pub use portable::PortableReport;
pub use progress::{Progress, ProgressCounts, ProgressKind, Unpublished};
pub use report::{CoolDown, INCIDENTS_MAX, Incident, LoadOperation, LoadReport, OperationReport, Sighting};
pub use sightings::Sightings;
use source::Source;
use state::Outcome;
use unflushed::FailedFlushes;
pub use watch::{HungEnd, HungRequest};
use worker::{Times, Worker, WorkerOptions};

/// How to run one phase of a load.
pub struct RunOptions<'a> {
    /// On what.
    pub runtime: RunOn<'a>,
    /// Prefill, run or check. A check reads every block that was ever written.
    pub phase: Phase,
    /// Whether every block gets a content of its own and is verified. Without, writes send the same memory again and
    /// again, reads are not looked at, and the oracle learns nothing: for measuring a device that keeps no data, or what
    /// content and verification cost.
    pub verify: bool,
    /// Anything but zero asks to stop: the phase then ends at once, with the figures up to there.
    pub cancel: Arc<AtomicUsize>,
    /// Where to say how far it has come.
    pub progress: Arc<Progress>,
    /// Where to tell of every request, for intervals and samples; its operations are [`LoadOperation::NAMES`].
    pub recording: Option<Arc<Recording>>,
    /// Where to say that the cool-down has begun, for requests that lose their context on the way: the number of the
    /// phase is stored there.
    pub phase_cell: Option<Arc<AtomicU8>>,
    /// Called when requests that hang have been given up.
    pub let_go: Option<LetGo>,
}

/// Lets what holds requests back let go of them, if it can: nobody waits for them any more, and what they have open stays
/// open until they end.
pub type LetGo = Arc<dyn Fn() + Send + Sync>;

/// The runtime of a load.
#[derive(Clone, Copy)]
pub enum RunOn<'a> {
    /// A thread with an io_uring runtime for each worker.
    Uring {
        /// Time zero of all of them.
        epoch: Instant,
    },
    /// All workers on this runtime, which is simulated.
    Simulated(&'a Runtime),
}

/// Requests that a check keeps in flight for each worker.
const CHECK_DEPTH: usize = 4;
/// How often a worker looks whether it shall stop, and what became of its requests, while they do not complete.
const CANCEL_EVERY: Duration = Duration::from_millis(50);

/// Runs one phase of a load. The oracle learns what was written, and judges what is read.
///
/// An error of a request is no error of the phase: it is counted, and the blocks concerned appear among
/// [`LoadReport::sightings`]. If it was asked to stop, [`LoadReport::is_interrupted`] says so, and the oracle is of no
/// further use but to [`crate::classify()`]. The phase itself fails with [`ErrorKind::Invalid`] if driver and workload do
/// not fit; and with whatever prevented the objects from being opened.
pub fn run(
    workload: &Workload,
    driver: &dyn Driver,
    oracle: &mut Oracle,
    options: &RunOptions<'_>,
) -> Result<LoadReport> {
    if driver.objects() != workload.objects() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the driver's objects are not those that the workload was made for; make the workload from \
             `Driver::objects`",
        ));
    }
    if oracle.is_lost() {
        return Err(Error::new(ErrorKind::Invalid, "the oracle belongs to a phase that did not end"));
    }
    let stage = match options.phase {
        Phase::Prefill => Some(Stage::Prefill),
        Phase::Run => Some(Stage::Run),
        Phase::Check => None,
        Phase::Setup | Phase::CoolDown => {
            let message = format!("a load cannot be run as its phase {}", options.phase.word());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    };
    let RunOptions { phase, verify, cancel, progress, recording, phase_cell, let_go, .. } = options;
    let job = Job {
        workload: workload.clone(),
        driver: driver.shared(),
        stage,
        phase: *phase,
        verify: *verify,
        cancel: Arc::clone(cancel),
        progress: Arc::clone(progress),
        recording: recording.clone(),
        phase_cell: phase_cell.clone(),
        let_go: let_go.clone(),
        failed_flushes: FailedFlushes::of(workload.objects().len()),
    };
    let until_steady = workload.spec().until_steady.filter(|_| stage == Some(Stage::Run));
    match (until_steady, recording) {
        (Some(steady), Some(recording)) => recording.watch_steadiness(steady),
        (Some(_), None) => {
            let message = "a load that ends when it is steady has to be recorded: its intervals tell";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        (None, _) => {}
    }
    if let Some(recording) = recording {
        recording.begin_phase(phase.word(), workload.workers());
    }
    let mut all_parts = oracle.take_parts();
    let here = usize::from(workload.running().start)..usize::from(workload.running().end);
    let parts: Vec<OraclePart> = all_parts.splice(here.clone(), []).collect();
    let finished = match options.runtime {
        RunOn::Uring { epoch } => threads::run(job, parts, epoch)?,
        RunOn::Simulated(runtime) => job.run_simulated(runtime, parts)?,
    };
    let Finished { outcomes, started, effort } = finished;
    // Of workers that run elsewhere nothing is known.
    let mut requests = vec![0; usize::from(workload.workers())];
    let (mut parts, mut tallies) = (Vec::new(), Vec::new());
    for (outcome, requests) in outcomes.into_iter().zip(&mut requests[here.clone()]) {
        parts.push(outcome.part);
        tallies.push(outcome.tally);
        *requests = outcome.requests;
    }
    all_parts.splice(here.start..here.start, parts);
    oracle.restore(all_parts);
    if tallies.iter().any(|tally| tally.is_interrupted) {
        oracle.cut_off();
    }
    if stage == Some(Stage::Run) {
        workload.check_trace()?;
    }
    if let Some(stage) = stage {
        oracle.record_drawn(Drawn { stage, requests });
    }
    let mut report = LoadReport::merge(options.phase, started, effort, tallies);
    if stage == Some(Stage::Run) && !report.is_interrupted {
        workload.check_replayed(report.trace.as_ref())?;
    }
    if let Some(recording) = recording {
        let cooled_down = report.cool_down.as_ref().map(|cool_down| (cool_down.complete, cool_down.started));
        recording.end_phase(report.started, cooled_down, report.ended);
        report.until_steady = until_steady.and_then(|_| recording.steady_end());
    }
    Ok(report)
}

/// All that the workers of one phase have in common.
struct Job {
    workload: Workload,
    driver: Arc<dyn Driver>,
    /// Whose streams to run; none for a check.
    stage: Option<Stage>,
    phase: Phase,
    verify: bool,
    cancel: Arc<AtomicUsize>,
    progress: Arc<Progress>,
    recording: Option<Arc<Recording>>,
    phase_cell: Option<Arc<AtomicU8>>,
    let_go: Option<LetGo>,
    failed_flushes: Arc<FailedFlushes>,
}

struct Finished {
    /// By worker.
    outcomes: Vec<Outcome>,
    started: rotproof_block::Time,
    effort: Option<Effort>,
}

impl Job {
    fn worker(
        &self,
        runtime: &Runtime,
        queues: Vec<Rc<dyn Queue>>,
        (number, part): (u16, OraclePart),
        parked: Option<Arc<Parked>>,
    ) -> Rc<Worker> {
        let job = self.workload.job(number);
        let (source, slots) = match self.stage {
            Some(stage) => (Source::Stream(self.workload.stream(stage, number)), job.queue_depth as usize),
            None => (Source::Sweep(part.blocks()), CHECK_DEPTH),
        };
        // A request that holds the thread leaves nothing to do for another slot.
        let slots = if parked.is_some() { 1 } else { slots };
        let times = match self.stage {
            Some(Stage::Run) => Times {
                duration: self.workload.duration().map(|span| span.0),
                ramp_up: self.workload.ramp_up_time().map_or(Duration::ZERO, |span| span.0),
                cool_down: self.workload.cool_down_time().map_or(Duration::ZERO, |span| span.0),
                think_time: job.think_time,
            },
            Some(Stage::Prefill) | None => Times::default(),
        };
        Worker::new(WorkerOptions {
            number,
            phase: self.phase,
            verify: self.verify,
            runtime: runtime.clone(),
            queues,
            workload: self.workload.clone(),
            source,
            part,
            slots,
            times,
            cancel: Arc::clone(&self.cancel),
            progress: Arc::clone(&self.progress),
            recording: self.recording.clone(),
            ends_when_steady: self.stage == Some(Stage::Run) && self.workload.spec().until_steady.is_some(),
            phase_cell: self.phase_cell.clone(),
            let_go: self.let_go.clone(),
            failed_flushes: Arc::clone(&self.failed_flushes),
            parked,
        })
    }

    fn run_simulated(&self, runtime: &Runtime, parts: Vec<OraclePart>) -> Result<Finished> {
        if !runtime.is_simulated() {
            return Err(Error::new(ErrorKind::Invalid, "a simulated load needs a simulated runtime"));
        }
        let mut workers = Vec::new();
        for (number, part) in self.workload.running().zip(parts) {
            let queues = self.driver.open(runtime)?;
            workers.push(self.worker(runtime, queues, (number, part), None));
        }
        let started = runtime.now();
        drive(runtime, &workers)?;
        let outcomes = workers.into_iter().map(Worker::into_outcome).collect::<Result<_>>()?;
        Ok(Finished { outcomes, started, effort: None })
    }
}

/// Runs the workers of one runtime to their end, or until they are asked to stop.
fn drive(runtime: &Runtime, workers: &[Rc<Worker>]) -> Result<()> {
    for worker in workers {
        worker.start();
    }
    let is_cancelled = || workers.iter().any(|worker| worker.is_cancelled());
    // Virtual time needs no watch: it never waits for anything. A timer would also hide a lost completion, which
    // shows as a simulation that has nothing left to do.
    let mut watch = (!runtime.is_simulated()).then(|| Box::pin(runtime.sleep(CANCEL_EVERY)));
    runtime.block_on(poll_fn(|context| {
        let mut all_ended = true;
        for worker in workers {
            all_ended &= worker.poll_ended(context.waker()).is_ready();
        }
        if all_ended {
            return Poll::Ready(());
        }
        while let Some(sleep) = &mut watch {
            if is_cancelled() {
                return Poll::Ready(());
            }
            if Pin::as_mut(sleep).poll(context).is_pending() {
                break;
            }
            workers.iter().for_each(|worker| worker.tick());
            *sleep = Box::pin(runtime.sleep(CANCEL_EVERY));
        }
        Poll::Pending
    }))?;
    if is_cancelled() {
        workers.iter().for_each(|worker| worker.interrupt());
    }
    if workers.iter().any(|worker| worker.is_cut_off()) {
        runtime.abandon_tasks();
    }
    Ok(())
}
