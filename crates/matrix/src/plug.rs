//! A member whose power goes in the middle of something, or that misbehaves.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::hash::mix;
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Kept, Operation, Power, Queue, Request, Resize, Result, Runtime,
    Submission,
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
    /// Requests take some time, so that others come in between.
    takes_time: AtomicBool,
    /// Bytes that it has; those that are known of it; those that it can have.
    bytes: AtomicU64,
    known_bytes: AtomicU64,
    bytes_max: u64,
}

const NEVER: u64 = u64::MAX;
/// How long a request hangs where requests take time.
const HANG: Duration = Duration::from_secs(300);

impl Plug {
    pub(crate) fn new(bytes: u64) -> Result<Arc<Self>> {
        Self::of_up_to(bytes, bytes)
    }

    /// One that may become larger, and whose requests take some time.
    pub(crate) fn slow(bytes: u64, bytes_max: u64) -> Result<Arc<Self>> {
        let plug = Self::of_up_to(bytes, bytes_max)?;
        plug.plan.takes_time.store(true, Ordering::Relaxed);
        Ok(plug)
    }

    fn of_up_to(bytes: u64, bytes_max: u64) -> Result<Arc<Self>> {
        let options = WriteCacheOptions {
            bytes: 1 << 20,
            write_back: WriteBack::Random,
            atomic_unit_bytes: 512,
            ..WriteCacheOptions::default()
        };
        let cache = WriteCacheDevice::new(MemoryDevice::new(bytes_max, 512)?, options)?;
        let plan = Plan {
            left: NEVER.into(),
            bytes: bytes.into(),
            known_bytes: bytes.into(),
            bytes_max,
            ..Plan::default()
        };
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

    /// Becomes larger, if it can. Nobody knows until it is measured.
    pub(crate) fn enlarge(&self, bytes: u64) {
        let larger = self.plan.bytes.load(Ordering::Relaxed) + bytes;
        self.plan.bytes.store(larger.min(self.plan.bytes_max), Ordering::Relaxed);
    }

    /// Whether something is or was the matter with it since its power came last.
    pub(crate) fn is_well(&self) -> bool {
        !self.is_off() && self.plan.trouble.load(Ordering::Relaxed) == 0
    }

    /// What is the matter with it, for people.
    pub(crate) fn matter(&self) -> String {
        let trouble = Trouble::ALL[self.plan.trouble.load(Ordering::Relaxed) as usize];
        if self.is_off() { "without power".into() } else { format!("{trouble:?}") }
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
        self.plan.measure();
    }
}

impl Plan {
    fn measure(&self) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.known_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }
}

impl Resize for Plan {
    fn measure(&self) -> Result<u64> {
        Ok(Self::measure(self))
    }
}

/// What a loss of power leaves, drawn.
fn kept(seed: u64) -> Kept {
    [Kept::None, Kept::All, Kept::Part { seed }][(mix(seed, 9, 9) % 3) as usize]
}

impl Device for Plug {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { size: self.plan.known_bytes.load(Ordering::Relaxed), ..self.cache.info() }
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(PlugQueue {
            below: self.cache.open_queue(runtime)?,
            cache: Arc::clone(&self.cache),
            plan: Arc::clone(&self.plan),
            runtime: runtime.clone(),
        }))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        wanted.offer::<dyn Resize>(|| Arc::clone(&self.plan) as _)
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
        let number = self.plan.requests.fetch_add(1, Ordering::Relaxed);
        let at_work = AtWork {
            below: Rc::clone(&self.below),
            cache: Arc::clone(&self.cache),
            plan: Arc::clone(&self.plan),
            runtime: self.runtime.clone(),
        };
        if !self.plan.takes_time.load(Ordering::Relaxed) {
            return at_work.submit(request, number);
        }
        let draw = mix(self.plan.seed.load(Ordering::Relaxed), 8, number);
        let (before, after) = (10 + draw % 60, (draw >> 32) % 30);
        Submission::pending(async move {
            at_work.runtime.sleep(Duration::from_micros(before)).await;
            let completion = at_work.submit(request, number).await;
            at_work.runtime.sleep(Duration::from_micros(after)).await;
            completion
        })
    }
}

/// What a request needs when its time has come.
struct AtWork {
    below: Rc<dyn Queue>,
    cache: Arc<WriteCacheDevice>,
    plan: Arc<Plan>,
    runtime: Runtime,
}

impl AtWork {
    fn submit(&self, request: Request, number: u64) -> Submission {
        let plan = &self.plan;
        let seed = plan.seed.load(Ordering::Relaxed);
        if request.operation.is_mutation() && plan.left.load(Ordering::Relaxed) != NEVER {
            match plan.left.load(Ordering::Relaxed) {
                0 => self.cache.cut(kept(seed)),
                left => plan.left.store(left - 1, Ordering::Relaxed),
            }
        }
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
            // Of one copy alone they are waited for, so they come back at some time.
            Trouble::HangingReads if is_hit && is_read && plan.takes_time.load(Ordering::Relaxed) => {
                let (below, runtime) = (Rc::clone(&self.below), self.runtime.clone());
                Submission::pending(async move {
                    runtime.sleep(HANG).await;
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
