//! What the device below a subject does over time, for loads of which nothing else is known there: programs, and files
//! behind a page cache.
//!
//! A layer at the top of the stack tells a recording of each request while a phase goes on. A trial that has no use for
//! it has no such layer. All queues share one recorder behind a lock, which is held for the time of an addition; requests
//! that come from a kernel take a hundred times as long (`docs/decisions/024-device-over-time.md`).

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{
    Completion, Device, DeviceInfo, Operation, Queue, Request, Result, Runtime, Submission, Time,
};
use rotproof_load::Progress;
use rotproof_load::engine::{ProgressKind, Unpublished};
use rotproof_record::{Measured, RecordSpec, Recorder, Recording, RecordingOptions};

/// Their names in what is recorded, by their number.
const OPERATIONS: &[&str] = &["read", "write", "flush", "discard", "write_zeroes"];
/// How often intervals end and counters are told though no request completes.
const TICK: Duration = Duration::from_millis(50);

/// Takes note of what passes the top of a stack, during phases.
pub struct DeviceWatch {
    recording: Arc<Recording>,
    clock: Clock,
    phase: Mutex<Option<Phase>>,
}

struct Phase {
    recorder: Recorder,
    /// Who looks on, where the load counts nothing itself.
    told: Option<(Arc<Progress>, Unpublished)>,
}

impl DeviceWatch {
    /// One that records as `spec` says. Files without a name may grow in `folder`; times count from `epoch`.
    pub fn new(spec: &RecordSpec, folder: &Path, epoch: Instant) -> Result<Arc<Self>> {
        let recording = Recording::of_device(RecordingOptions {
            spec: spec.clone(),
            operations: OPERATIONS,
            workers: 1,
            folder: folder.to_owned(),
        })?;
        Ok(Arc::new(Self { recording, clock: Clock::since(epoch), phase: Mutex::default() }))
    }

    /// What it has recorded.
    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// The same device, watched.
    pub fn over(self: &Arc<Self>, below: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(WatchedDevice { below, watch: Arc::clone(self) })
    }

    /// A phase begins; it ends with what is returned. Requests are counted into `progress`, where the load does not.
    pub fn begin(
        self: &Arc<Self>,
        phase: &'static str,
        progress: Option<Arc<Progress>>,
    ) -> Result<WatchedPhase> {
        let started = self.clock.now();
        self.recording.begin_phase(phase, 1);
        let recorder = self.recording.recorder(0, started);
        let told = progress.map(|progress| {
            let unpublished = progress.unpublished();
            (progress, unpublished)
        });
        *self.phase.lock() = Some(Phase { recorder, told });
        let (ender, ended) = channel::<()>();
        let watch = Arc::clone(self);
        let ticks = move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                watch.tick();
            }
        };
        let thread = std::thread::Builder::new().name("device-ticks".into()).spawn(ticks);
        let thread = thread.doing(|| "starting the thread that ends intervals".into());
        Ok(WatchedPhase { watch: Arc::clone(self), started, ticks: Some((ender, thread?)) })
    }

    fn tick(&self) {
        if let Some(phase) = &mut *self.phase.lock() {
            phase.recorder.tick(self.clock.now());
            phase.publish();
        }
    }

    fn note(&self, measured: &Measured, kind: ProgressKind) {
        if let Some(phase) = &mut *self.phase.lock() {
            phase.recorder.record(measured);
            if let Some((_, unpublished)) = &mut phase.told {
                let latency_ns = measured.ended.0.saturating_sub(measured.began.0);
                unpublished.count(kind, latency_ns, measured.bytes, measured.error.is_some());
            }
        }
    }
}

impl Phase {
    fn publish(&mut self) {
        if let Some((progress, unpublished)) = &mut self.told {
            progress.publish(unpublished);
        }
    }
}

/// A phase that is watched, until it is dropped.
pub struct WatchedPhase {
    watch: Arc<DeviceWatch>,
    started: Time,
    ticks: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Drop for WatchedPhase {
    fn drop(&mut self) {
        if let Some((ender, thread)) = self.ticks.take() {
            drop(ender);
            let _ = thread.join();
        }
        let phase = self.watch.phase.lock().take();
        let ended = self.watch.clock.now();
        if let Some(mut phase) = phase {
            phase.publish();
            phase.recorder.finish(ended);
        }
        self.watch.recording.end_phase(self.started, None, ended);
    }
}

struct WatchedDevice {
    below: Arc<dyn Device>,
    watch: Arc<DeviceWatch>,
}

impl Device for WatchedDevice {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        Ok(Rc::new(WatchedQueue { below, runtime: runtime.clone(), watch: Arc::clone(&self.watch) }))
    }
}

impl fmt::Debug for WatchedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedDevice({:?})", self.info())
    }
}

struct WatchedQueue {
    below: Rc<dyn Queue>,
    runtime: Runtime,
    watch: Arc<DeviceWatch>,
}

/// A request under way.
struct Begun {
    operation: Operation,
    bytes: u64,
    at: Time,
}

impl Begun {
    fn ended(&self, completion: &Completion, at: Time, watch: &DeviceWatch) {
        let (operation, kind) = match self.operation {
            Operation::Read => (0, ProgressKind::Read),
            Operation::Write { .. } => (1, ProgressKind::Write),
            Operation::Flush => (2, ProgressKind::Flush),
            Operation::Discard => (3, ProgressKind::Discard),
            Operation::WriteZeroes => (4, ProgressKind::Other),
        };
        // What is discarded or zeroed moves no bytes.
        let bytes = if operation < 2 { self.bytes } else { 0 };
        let error = completion.result.as_ref().err().map(rotproof_block::Error::kind);
        watch.note(&Measured { operation, began: self.at, ended: at, bytes, retries: 0, error }, kind);
    }
}

impl Queue for WatchedQueue {
    fn submit(&self, request: Request) -> Submission {
        let begun = Begun { operation: request.operation, bytes: request.length, at: self.runtime.now() };
        match self.below.submit(request).try_take() {
            Ok(completion) => {
                begun.ended(&completion, self.runtime.now(), &self.watch);
                completion.into()
            }
            Err(submission) => {
                let (runtime, watch) = (self.runtime.clone(), Arc::clone(&self.watch));
                Submission::pending(async move {
                    let completion = submission.await;
                    begun.ended(&completion, runtime.now(), &watch);
                    completion
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::conformance::{On, check};
    use rotproof_block::leaf::{DiskProfile, MemoryDevice, SimulatedDisk};
    use rotproof_block::runtime::RuntimeOptions;
    use rotproof_block::{Buffer, Context};
    use rotproof_record::RunFolder;

    use super::*;

    fn watch(folder: &Path, epoch: Instant) -> Arc<DeviceWatch> {
        DeviceWatch::new(&RecordSpec::default(), folder, epoch).expect("a folder")
    }

    #[test]
    fn a_watched_device_keeps_the_contract() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = || -> Result<Arc<dyn Device>> {
            let watch = watch(folder.path(), Instant::now());
            Ok(watch.over(MemoryDevice::new(4 << 20, 512)?))
        };
        for on in [On::Simulated, On::Uring] {
            check(on, &make).unwrap_or_else(|breach| panic!("{on:?}: {breach}"));
        }
    }

    #[test]
    fn requests_of_a_phase_are_recorded_and_counted_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let epoch = Instant::now();
        let watch = watch(folder.path(), epoch);
        let disk: Arc<dyn Device> = SimulatedDisk::new(1 << 20, 512, DiskProfile::NVME).expect("a disk");
        let memory: Arc<dyn Device> = MemoryDevice::new(1 << 20, 512).expect("memory");
        let progress = Arc::new(Progress::with_latencies());
        for (name, below) in [("run", memory), ("check", disk)] {
            let runtime =
                Runtime::uring(RuntimeOptions { epoch, ..RuntimeOptions::new(1) }).expect("io_uring");
            let queue = watch.over(below).open_queue(&runtime).expect("a queue");
            let send = |request| runtime.block_on(queue.submit(request)).expect("completes");
            send(Request::read(0, Buffer::zeroed(512), Context::default()));
            let phase = watch.begin(name, Some(Arc::clone(&progress))).expect("a thread");
            send(Request::write(0, Buffer::zeroed(4096), Context::default()));
            send(Request::write(1 << 20, Buffer::zeroed(512), Context::default()));
            send(Request::flush(Context::default()));
            drop(phase);
            send(Request::flush(Context::default()));
        }
        assert_eq!((progress.counts().requests, progress.counts().errors), (6, 2));
        watch.recording().write_intervals(folder.path()).expect("written");
        let none = Recording::new(RecordingOptions {
            spec: RecordSpec::default(),
            operations: &[],
            workers: 0,
            folder: folder.path().to_owned(),
        });
        none.and_then(|none| none.write_to(folder.path())).expect("written");
        let rows = RunFolder::open(folder.path()).and_then(|run| run.device_intervals()).expect("a table");
        let found: Vec<_> = rows
            .iter()
            .filter(|row| row.requests > 0)
            .map(|row| (&*row.phase, &*row.operation, row.requests, row.bytes, row.errors))
            .collect();
        let of = |phase| [(phase, "write", 2, 4096, 1), (phase, "flush", 1, 0, 0)];
        assert_eq!(found, [of("run"), of("check")].concat());
    }
}
