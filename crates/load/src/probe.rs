//! A device for tests: remembers every request, sees requests that overlap in flight, and misbehaves as told.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{
    ContentHash, Device, DeviceInfo, Error, Operation, Phase, Queue, Request, Result, Runtime, Submission,
};

use crate::{
    BLOCK_BYTES, DeviceDriver, Driver, LoadReport, LoadSpec, Oracle, Progress, RunOn, RunOptions, Workload,
};

/// What a [`Probe`] does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    Pass,
    /// Fails, without effect.
    Fail,
    /// Takes effect, and fails nevertheless.
    FailAfter,
    /// Succeeds, without effect.
    Ignore,
    /// Passes after so long.
    Delay(Duration),
    /// Never completes.
    Hang,
}

/// A request that a [`Probe`] has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) phase: Phase,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) queue: u16,
    /// Of each block of a write.
    pub(crate) hashes: Vec<ContentHash>,
}

type React = Box<dyn Fn(&Request) -> Reaction + Send + Sync>;

pub(crate) struct Probe(Arc<Inner>);

struct Inner {
    below: Arc<MemoryDevice>,
    react: React,
    seen: Mutex<Vec<Seen>>,
    flying: Mutex<Vec<(u64, u64, bool)>>,
    overlaps: AtomicU64,
}

impl Probe {
    pub(crate) fn new(
        blocks: u64,
        react: impl Fn(&Request) -> Reaction + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Arc::new(Inner {
            below: MemoryDevice::new(blocks * BLOCK_BYTES as u64, 512)?,
            react: Box::new(react),
            seen: Mutex::default(),
            flying: Mutex::default(),
            overlaps: AtomicU64::new(0),
        }))))
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.seen.lock().clone()
    }

    /// Requests that were submitted while one that they overlap was in flight, one of the two a write.
    pub(crate) fn overlaps(&self) -> u64 {
        self.0.overlaps.load(Ordering::Relaxed)
    }
}

impl Device for Probe {
    fn info(&self) -> DeviceInfo {
        self.0.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.0.below.open_queue(runtime)?;
        Ok(Rc::new(ProbeQueue { probe: Arc::clone(&self.0), below, runtime: runtime.clone() }))
    }
}

struct ProbeQueue {
    probe: Arc<Inner>,
    below: Rc<dyn Queue>,
    runtime: Runtime,
}

impl Queue for ProbeQueue {
    fn submit(&self, request: Request) -> Submission {
        let is_write = request.operation.is_mutation();
        self.probe.seen.lock().push(Seen {
            phase: request.context.phase,
            operation: request.operation,
            offset: request.offset,
            length: request.length,
            queue: request.context.queue,
            hashes: if is_write {
                request.buffer.chunks_exact(BLOCK_BYTES).map(ContentHash::of).collect()
            } else {
                Vec::new()
            },
        });
        let flight = (request.offset, request.end(), is_write);
        {
            let mut flying = self.probe.flying.lock();
            let overlaps = |&(start, end, other_writes): &(u64, u64, bool)| {
                start < flight.1 && flight.0 < end && (is_write || other_writes)
            };
            if flying.iter().any(overlaps) {
                self.probe.overlaps.fetch_add(1, Ordering::Relaxed);
            }
            flying.push(flight);
        }
        let (probe, below, runtime) = (Arc::clone(&self.probe), Rc::clone(&self.below), self.runtime.clone());
        let reaction = (self.probe.react)(&request);
        Submission::pending(async move {
            let completion = match reaction {
                Reaction::Pass => below.submit(request).await,
                Reaction::Fail => request.fail(Error::medium()),
                Reaction::Ignore => request.succeed(),
                Reaction::FailAfter => {
                    let mut completion = below.submit(request).await;
                    completion.result = Err(Error::medium());
                    completion
                }
                Reaction::Delay(duration) => {
                    runtime.sleep(duration).await;
                    below.submit(request).await
                }
                Reaction::Hang => std::future::pending().await,
            };
            let mut flying = probe.flying.lock();
            let position = flying.iter().position(|&other| other == flight).expect("it took off");
            flying.swap_remove(position);
            completion
        })
    }
}

/// A load on a [`Probe`], and what it has done so far.
pub(crate) struct Rig {
    pub(crate) workload: Workload,
    pub(crate) driver: DeviceDriver,
    pub(crate) oracle: Oracle,
    pub(crate) runtime: Runtime,
    pub(crate) reports: Vec<LoadReport>,
}

impl Rig {
    pub(crate) fn new(spec: &LoadSpec, seed: u64, device: Arc<dyn Device>) -> Self {
        let driver = DeviceDriver::new(device).expect("the device suits a load");
        let workload = Workload::new(spec, seed, driver.objects()).expect("the load makes sense");
        let oracle = Oracle::new(&workload);
        Self { workload, driver, oracle, runtime: Runtime::simulated(seed), reports: Vec::new() }
    }

    pub(crate) fn try_phase(&mut self, phase: Phase) -> Result<&LoadReport> {
        let options = RunOptions {
            runtime: RunOn::Simulated(&self.runtime),
            phase,
            verify: true,
            cancel: Arc::new(AtomicUsize::new(0)),
            progress: Arc::new(Progress::default()),
            recording: None,
            phase_cell: None,
            let_go: None,
        };
        let report = crate::run(&self.workload, &self.driver, &mut self.oracle, &options)?;
        self.reports.push(report);
        Ok(self.reports.last().expect("just pushed"))
    }

    pub(crate) fn phase(&mut self, phase: Phase) -> &LoadReport {
        self.try_phase(phase).expect("the phase ends")
    }

    /// Changes what a block holds, behind the back of the load.
    pub(crate) fn damage(&self, block: u64, change: impl FnOnce(&mut [u8])) {
        let queues = self.driver.open(&self.runtime).expect("opens");
        let offset = block * BLOCK_BYTES as u64;
        let damage = async {
            let space = rotproof_block::Buffer::zeroed(BLOCK_BYTES);
            let read =
                queues[0].submit(Request::read(offset, space, rotproof_block::Context::default())).await;
            read.result.expect("reads");
            let mut buffer = read.buffer;
            change(&mut buffer);
            let written =
                queues[0].submit(Request::write(offset, buffer, rotproof_block::Context::default())).await;
            written.result.expect("writes");
        };
        self.runtime.block_on(damage).expect("completes");
    }

    pub(crate) fn failures(&self) -> Vec<crate::Failure> {
        crate::classify(&self.workload, &self.oracle, &self.reports)
    }
}

/// Options for the real runtime.
pub(crate) fn uring(phase: Phase) -> RunOptions<'static> {
    RunOptions {
        runtime: RunOn::Uring { epoch: Instant::now() },
        phase,
        verify: true,
        cancel: Arc::new(AtomicUsize::new(0)),
        progress: Arc::new(Progress::default()),
        recording: None,
        phase_cell: None,
        let_go: None,
    }
}
