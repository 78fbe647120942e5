//! Requests as those of a load: faults sleep while a device is made, and act on what is marked as a run.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rotproof_block::{Context, Device, DeviceInfo, Phase, Queue, Request, Result, Runtime, Submission};

/// A device over one with faults, which act as long as they are awake.
pub(crate) struct Awake {
    below: Arc<dyn Device>,
    is_awake: Arc<AtomicBool>,
}

impl Awake {
    pub(crate) fn new(below: Arc<dyn Device>, is_awake: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { below, is_awake })
    }
}

impl Device for Awake {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        Ok(Rc::new(AwakeQueue { below, is_awake: Arc::clone(&self.is_awake) }))
    }
}

impl fmt::Debug for Awake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Awake({:?})", self.info())
    }
}

struct AwakeQueue {
    below: Rc<dyn Queue>,
    is_awake: Arc<AtomicBool>,
}

impl Queue for AwakeQueue {
    fn submit(&self, request: Request) -> Submission {
        let phase = if self.is_awake.load(Ordering::Relaxed) { Phase::Run } else { Phase::Setup };
        let context = Context { phase, ..request.context };
        self.below.submit(Request { context, ..request })
    }
}
