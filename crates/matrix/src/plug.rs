//! A member whose power goes in the middle of something, or that misbehaves.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Kept, Operation, Power, Queue, Request, Result, Runtime, Submission,
};
use rotproof_layers::{WriteBack, WriteCacheDevice, WriteCacheOptions};

/// What is the matter with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Trouble {
    /// Nothing.
    None = 0,
    /// Some reads fail.
    ReadErrors = 1,
    /// Some writes fail.
    WriteErrors = 2,
    /// Some reads take longer than anybody waits.
    LateReads = 3,
    /// Some reads never come back.
    HangingReads = 4,
}

impl Trouble {
    pub(crate) const ALL: [Self; 5] =
        [Self::None, Self::ReadErrors, Self::WriteErrors, Self::LateReads, Self::HangingReads];
}

/// RAM behind a write cache that a loss of power empties.
pub(crate) struct Plug {
    cache: Arc<WriteCacheDevice>,
    plan: Arc<Plan>,
}

/// What becomes of requests.
#[derive(Default)]
struct Plan {
    seed: AtomicU64,
    trouble: AtomicU64,
    requests: AtomicU64,
    /// Changes until the power goes; [`NEVER`] for never.
    left: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Plug {
    pub(crate) fn new(bytes: u64) -> Result<Arc<Self>> {
        let options = WriteCacheOptions {
            bytes: 1 << 20,
            write_back: WriteBack::Random,
            atomic_unit_bytes: 512,
            ..WriteCacheOptions::default()
        };
        let cache = WriteCacheDevice::new(MemoryDevice::new(bytes, 512)?, options)?;
        let plan = Plan { left: AtomicU64::new(NEVER), ..Plan::default() };
        Ok(Arc::new(Self { cache, plan: Arc::new(plan) }))
    }

    /// The power goes after so many changes.
    pub(crate) fn cut_after(&self, changes: u64, seed: u64) {
        self.plan.seed.store(seed, Ordering::Relaxed);
        self.plan.left.store(changes, Ordering::Relaxed);
    }

    pub(crate) fn set_trouble(&self, trouble: Trouble, seed: u64) {
        self.plan.seed.store(seed, Ordering::Relaxed);
        self.plan.trouble.store(trouble as u64, Ordering::Relaxed);
    }

    /// Whether its power has gone.
    pub(crate) fn is_off(&self) -> bool {
        !self.cache.is_on()
    }

    /// The power goes now, if it has not, and comes back; all trouble is over.
    pub(crate) fn cycle(&self, seed: u64) {
        self.cache.cut(kept(seed));
        self.cache.restore();
        self.plan.left.store(NEVER, Ordering::Relaxed);
        self.plan.trouble.store(0, Ordering::Relaxed);
    }
}

/// What a loss of power leaves, drawn.
fn kept(seed: u64) -> Kept {
    [Kept::None, Kept::All, Kept::Part { seed }][(mix(seed, 9, 9) % 3) as usize]
}

impl Device for Plug {
    fn info(&self) -> DeviceInfo {
        self.cache.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(PlugQueue {
            below: self.cache.open_queue(runtime)?,
            cache: Arc::clone(&self.cache),
            plan: Arc::clone(&self.plan),
            runtime: runtime.clone(),
        }))
    }
}

impl fmt::Debug for Plug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plug({:?})", self.info())
    }
}

struct PlugQueue {
    below: Rc<dyn Queue>,
    cache: Arc<WriteCacheDevice>,
    plan: Arc<Plan>,
    runtime: Runtime,
}

impl Queue for PlugQueue {
    fn submit(&self, request: Request) -> Submission {
        let plan = &self.plan;
        let seed = plan.seed.load(Ordering::Relaxed);
        if request.operation.is_mutation() && plan.left.load(Ordering::Relaxed) != NEVER {
            match plan.left.load(Ordering::Relaxed) {
                0 => self.cache.cut(kept(seed)),
                left => plan.left.store(left - 1, Ordering::Relaxed),
            }
        }
        let number = plan.requests.fetch_add(1, Ordering::Relaxed);
        let trouble = Trouble::ALL[plan.trouble.load(Ordering::Relaxed) as usize];
        let (is_hit, is_read) =
            (mix(seed, 3, number).is_multiple_of(4), request.operation == Operation::Read);
        match trouble {
            Trouble::ReadErrors if is_hit && is_read => failed(request),
            Trouble::WriteErrors if is_hit && request.operation.is_mutation() => failed(request),
            Trouble::LateReads if is_hit && is_read => {
                let (below, runtime) = (Rc::clone(&self.below), self.runtime.clone());
                Submission::pending(async move {
                    runtime.sleep(Duration::from_secs(2)).await;
                    below.submit(request).await
                })
            }
            Trouble::HangingReads if is_hit && is_read => Submission::pending(async move {
                let _kept = request;
                std::future::pending().await
            }),
            _ => self.below.submit(request),
        }
    }
}

fn failed(request: Request) -> Submission {
    request.fail(Error::new(ErrorKind::Medium, "the medium is bad there")).into()
}
