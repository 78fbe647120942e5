//! A device whose every request is decided on by the test.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result, Runtime, Submission,
};

/// What becomes of a request.
pub enum Action {
    /// It goes to the memory below.
    Pass,
    /// It goes there after this time.
    Late(Duration),
    /// It fails.
    Fail(ErrorKind),
    /// The queue panics.
    Panic,
    /// The task that works on it panics.
    PanicLater,
    /// It never completes.
    Hang,
}

type Script = dyn Fn(&Request) -> Action + Send + Sync;

/// Memory behind a script.
pub struct Scripted {
    below: Arc<MemoryDevice>,
    info: DeviceInfo,
    script: Arc<Script>,
}

impl Scripted {
    /// `size` bytes in blocks of `block_size`, with every feature.
    pub fn new(
        size: u64,
        block_size: u32,
        script: impl Fn(&Request) -> Action + Send + Sync + 'static,
    ) -> Self {
        let below = MemoryDevice::new(size, block_size).expect("sizes that fit each other");
        let info = DeviceInfo {
            features: Features { flush: true, fua: true, discard: true, write_zeroes: true },
            ..below.info()
        };
        Self { below, info, script: Arc::new(script) }
    }

    /// With other features or read-only.
    pub fn with(mut self, change: impl FnOnce(&mut DeviceInfo)) -> Self {
        change(&mut self.info);
        self
    }
}

impl Device for Scripted {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        Ok(Rc::new(ScriptedQueue {
            below,
            runtime: runtime.clone(),
            info: self.info,
            script: Arc::clone(&self.script),
        }))
    }
}

struct ScriptedQueue {
    below: Rc<dyn Queue>,
    runtime: Runtime,
    info: DeviceInfo,
    script: Arc<Script>,
}

impl Queue for ScriptedQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if let Operation::Write { fua: true } = request.operation {
            assert!(self.info.features.fua, "nobody asks for what the device has not");
        }
        match (self.script)(&request) {
            Action::Pass => self.below.submit(request),
            Action::Late(delay) => {
                let (below, runtime) = (Rc::clone(&self.below), self.runtime.clone());
                Submission::pending(async move {
                    runtime.sleep(delay).await;
                    below.submit(request).await
                })
            }
            Action::Fail(kind) => request.fail(Error::new(kind, "as the test wants it")).into(),
            Action::Panic => panic!("the queue panics, as the test wants it"),
            Action::PanicLater => {
                let runtime = self.runtime.clone();
                Submission::pending(async move {
                    runtime.sleep(Duration::from_millis(20)).await;
                    panic!("the task panics, as the test wants it")
                })
            }
            Action::Hang => Submission::pending(std::future::pending()),
        }
    }
}
