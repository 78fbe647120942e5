//! A device for tests that fails as it is told.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Queue, Request, Result, Runtime, Submission};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Pass,
    /// Fails, and nothing has happened.
    Fail(ErrorKind),
    /// Fails, and has happened all the same.
    FailAfter(ErrorKind),
    /// Happens, so much later.
    Delay(Duration),
    /// Never comes back; does not happen.
    Hang,
    /// Is said to have happened, and has not.
    Lose,
}

type Plan = Arc<dyn Fn(&Request, u64) -> Act + Send + Sync>;

/// A device over another.
pub(crate) struct Faulty {
    below: Arc<dyn Device>,
    plan: Arc<Mutex<Plan>>,
    count: Arc<AtomicU64>,
}

impl Faulty {
    pub(crate) fn over(below: Arc<dyn Device>) -> Arc<Self> {
        let pass: Plan = Arc::new(|_, _| Act::Pass);
        Arc::new(Self { below, plan: Arc::new(Mutex::new(pass)), count: Arc::default() })
    }

    /// From now on `plan` decides, of each request and its number.
    pub(crate) fn plan(&self, plan: impl Fn(&Request, u64) -> Act + Send + Sync + 'static) {
        *self.plan.lock() = Arc::new(plan);
    }

    /// How many requests have come.
    pub(crate) fn requests(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(FaultyQueue {
            below: self.below.open_queue(runtime)?,
            runtime: runtime.clone(),
            plan: Arc::clone(&self.plan),
            count: Arc::clone(&self.count),
        }))
    }
}

struct FaultyQueue {
    below: Rc<dyn Queue>,
    runtime: Runtime,
    plan: Arc<Mutex<Plan>>,
    count: Arc<AtomicU64>,
}

impl Queue for FaultyQueue {
    fn submit(&self, request: Request) -> Submission {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let plan = Arc::clone(&*self.plan.lock());
        match plan(&request, number) {
            Act::Pass => self.below.submit(request),
            Act::Fail(kind) => request.fail(Error::new(kind, "on purpose")).into(),
            Act::FailAfter(kind) => {
                let submission = self.below.submit(request);
                Submission::pending(async move {
                    let mut completion = submission.await;
                    completion.result = Err(Error::new(kind, "on purpose, after it was done"));
                    completion
                })
            }
            Act::Delay(time) => {
                let (below, runtime) = (Rc::clone(&self.below), self.runtime.clone());
                Submission::pending(async move {
                    runtime.sleep(time).await;
                    below.submit(request).await
                })
            }
            Act::Hang => Submission::pending(async move {
                let _kept = request;
                std::future::pending().await
            }),
            Act::Lose => request.succeed().into(),
        }
    }
}
