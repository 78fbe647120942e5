//! Devices that break one clause each, for the tests of the kit.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::ThreadId;

use crate::leaf::MemoryDevice;
use crate::{Completion, Device, DeviceInfo, ErrorKind, Queue, Request, Result, Runtime, Submission};

/// How a device is broken.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    /// Changes what the device says of itself.
    pub(super) info: fn(DeviceInfo) -> DeviceInfo,
    /// Serves a request, by the sound queue below or otherwise.
    pub(super) serve: fn(&Below, Request) -> Submission,
    /// Every queue has memory of its own.
    pub(super) apart: bool,
}

/// Nothing is broken.
pub(super) const SOUND: Fault =
    Fault { info: |info| info, serve: |below, request| below.queue.submit(request), apart: false };

/// What a fault has to work with.
#[derive(Clone)]
pub(super) struct Below {
    pub(super) queue: Rc<dyn Queue>,
    pub(super) runtime: Runtime,
    /// The bytes of the device.
    pub(super) size: u64,
    /// Requests so far on this queue, with the one that is served.
    pub(super) count: u64,
    /// On another thread than the one that made the device.
    pub(super) away: bool,
}

impl Below {
    /// Serves the request soundly and then changes the completion.
    pub(super) fn and_then(
        &self,
        request: Request,
        change: impl FnOnce(Completion) -> Completion + 'static,
    ) -> Submission {
        let below = self.queue.submit(request);
        Submission::pending(async move { change(below.await) })
    }

    /// As [`Below::and_then`], where the request fails with `kind`.
    pub(super) fn if_failed(
        &self,
        request: Request,
        kind: ErrorKind,
        change: impl FnOnce(Completion) -> Completion + 'static,
    ) -> Submission {
        self.and_then(request, move |completion| match &completion.result {
            Err(error) if error.kind() == kind => change(completion),
            _ => completion,
        })
    }
}

/// Memory behind a fault.
pub(super) struct Broken {
    memory: Arc<MemoryDevice>,
    fault: Fault,
    home: ThreadId,
}

impl Broken {
    pub(super) fn new(fault: Fault) -> Result<Arc<Self>> {
        let memory = MemoryDevice::new(2 << 20, 512)?;
        Ok(Arc::new(Self { memory, fault, home: std::thread::current().id() }))
    }
}

impl Device for Broken {
    fn info(&self) -> DeviceInfo {
        (self.fault.info)(self.memory.info())
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let size = self.memory.info().size;
        let memory = if self.fault.apart { MemoryDevice::new(size, 512)? } else { Arc::clone(&self.memory) };
        let below = Below {
            queue: memory.open_queue(runtime)?,
            runtime: runtime.clone(),
            size,
            count: 0,
            away: std::thread::current().id() != self.home,
        };
        Ok(Rc::new(BrokenQueue { below, serve: self.fault.serve, count: Cell::new(0) }))
    }
}

struct BrokenQueue {
    below: Below,
    serve: fn(&Below, Request) -> Submission,
    count: Cell<u64>,
}

impl Queue for BrokenQueue {
    fn submit(&self, request: Request) -> Submission {
        self.count.set(self.count.get() + 1);
        (self.serve)(&Below { count: self.count.get(), ..self.below.clone() }, request)
    }
}
