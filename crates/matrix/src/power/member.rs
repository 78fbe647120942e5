//! A member that is recorded, and the moments that the recordings of all members have in common.

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::leaf::{DiskProfile, SimulatedDisk};
use rotproof_block::{
    Completion, Device, DeviceInfo, Error, ErrorKind, Operation, Queue, Request, Result, Runtime, Submission,
};
use rotproof_crash::recording::{Recorder, RecorderOptions};
use rotproof_layers::{RecordDevice, header_of};

const NEVER: u64 = u64::MAX;

/// The moments of all recordings.
#[derive(Default)]
pub(super) struct Journal(Mutex<Moments>);

#[derive(Default)]
struct Moments {
    /// Each, and how many events it had when its power went, if it has.
    recorders: Vec<(Arc<Recorder>, Option<u64>)>,
    all: Vec<Vec<u64>>,
}

impl Journal {
    /// Something has happened on a member.
    fn note(&self) {
        let mut moments = self.0.lock();
        let now: Vec<u64> = moments
            .recorders
            .iter()
            .map(|(recorder, end)| end.unwrap_or_else(|| recorder.events()))
            .collect();
        if moments.all.last() != Some(&now) {
            moments.all.push(now);
        }
    }

    /// From now on the member of this number has its last moment.
    fn end(&self, number: usize) {
        let (recorder, end) = &mut self.0.lock().recorders[number];
        end.get_or_insert_with(|| recorder.events());
    }

    /// How many moments there are so far.
    pub(super) fn count(&self) -> usize {
        self.0.lock().all.len()
    }

    /// Of each moment how many events each recording has. Ends the recordings.
    pub(super) fn finish(&self) -> Result<Vec<Vec<u64>>> {
        let mut moments = self.0.lock();
        moments.recorders.iter().try_for_each(|(recorder, _)| recorder.finish().map(drop))?;
        Ok(std::mem::take(&mut moments.all))
    }
}

/// A simulated disk that is recorded, and whose power may go.
pub(super) struct Member {
    below: Arc<RecordDevice>,
    number: usize,
    plan: Arc<Plan>,
}

struct Plan {
    journal: Arc<Journal>,
    /// Changes until its power goes; [`NEVER`] for never.
    left: AtomicU64,
    is_off: AtomicBool,
    refuses_writes: AtomicBool,
    /// It says that it has flushed, and has not.
    lies: AtomicBool,
}

impl Member {
    /// The next of the members of a journal, recorded in the new file `path`.
    pub(super) fn new(path: &Path, bytes: u64, journal: &Arc<Journal>) -> Result<Arc<Self>> {
        let disk = SimulatedDisk::new(bytes, 512, DiskProfile::NVME)?;
        let mut moments = journal.0.lock();
        let number = moments.recorders.len();
        let header = header_of(disk.info(), number as u128 + 1);
        let recorder = Recorder::create(path, header, RecorderOptions { same_bits: 12 })?;
        moments.recorders.push((Arc::clone(&recorder), None));
        let plan = Plan {
            journal: Arc::clone(journal),
            left: NEVER.into(),
            is_off: false.into(),
            refuses_writes: false.into(),
            lies: false.into(),
        };
        Ok(Arc::new(Self { below: RecordDevice::new(disk, recorder), number, plan: Arc::new(plan) }))
    }

    /// The power goes after so many changes.
    pub(super) fn cut_after(&self, changes: u64) {
        self.plan.left.store(changes, Ordering::Relaxed);
    }

    /// Whether its power has gone.
    pub(super) fn is_off(&self) -> bool {
        self.plan.is_off.load(Ordering::Relaxed)
    }

    /// Whether it refuses writes from now on.
    pub(super) fn refuse_writes(&self, refuses: bool) {
        self.plan.refuses_writes.store(refuses, Ordering::Relaxed);
    }

    /// From now on it acknowledges flushes and does nothing: to see that this is found.
    pub(super) fn lie(&self) {
        self.plan.lies.store(true, Ordering::Relaxed);
    }
}

impl Device for Member {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let (below, plan) = (self.below.open_queue(runtime)?, Arc::clone(&self.plan));
        Ok(Rc::new(MemberQueue { below, number: self.number, plan }))
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.number)
    }
}

struct MemberQueue {
    below: Rc<dyn Queue>,
    number: usize,
    plan: Arc<Plan>,
}

impl Queue for MemberQueue {
    fn submit(&self, request: Request) -> Submission {
        let (plan, is_change) = (&self.plan, request.operation.is_mutation());
        let left = plan.left.load(Ordering::Relaxed);
        match (is_change, left) {
            (false, _) | (_, NEVER) => {}
            (true, 0) => {
                plan.journal.end(self.number);
                plan.is_off.store(true, Ordering::Relaxed);
            }
            (true, left) => plan.left.store(left - 1, Ordering::Relaxed),
        }
        if plan.is_off.load(Ordering::Relaxed) {
            return request.fail(no_power()).into();
        }
        if is_change && plan.refuses_writes.load(Ordering::Relaxed) {
            return request.fail(Error::new(ErrorKind::Medium, "the medium is bad there")).into();
        }
        if request.operation == Operation::Flush && plan.lies.load(Ordering::Relaxed) {
            return request.succeed().into();
        }
        let submission = self.below.submit(request);
        plan.journal.note();
        let plan = Arc::clone(plan);
        Submission::pending(async move {
            let completion = submission.await;
            plan.journal.note();
            match plan.is_off.load(Ordering::Relaxed) {
                // Whether it was done, nobody hears any more.
                true => Completion { result: Err(no_power()), ..completion },
                false => completion,
            }
        })
    }
}

fn no_power() -> Error {
    Error::new(ErrorKind::Gone, "its power is off")
}
