//! A volume in use as a device: its present, or one of its versions, whatever becomes of the volume below.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{Device, DeviceInfo, Features, Queue, Request, Result, Runtime, Submission};

use super::LiveVolume;
use super::valve::Count;

/// The present of a volume in use, or one of its versions. What it is like may change while queues are open: it gets larger.
pub(super) struct LiveDevice {
    pub(super) live: Arc<LiveVolume>,
    pub(super) version: Option<u64>,
}

impl LiveVolume {
    /// What the present or a version is now.
    fn top(&self, version: Option<u64>) -> Result<Arc<dyn Device>> {
        let volume = self.usable()?;
        match version {
            None => Ok(volume),
            Some(version) => Ok(volume.view(version)?),
        }
    }
}

impl Device for LiveDevice {
    fn info(&self) -> DeviceInfo {
        match self.live.top(self.version) {
            Ok(top) => top.info(),
            // Requests say what has become of it.
            Err(_) => {
                let info = self.live.volume().info();
                let none = Features { flush: false, fua: false, discard: false, write_zeroes: false };
                match self.version {
                    None => info,
                    Some(_) => DeviceInfo { read_only: true, features: none, ..info },
                }
            }
        }
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let queue = QueueState {
            count: self.live.valve.count(),
            live: Arc::clone(&self.live),
            version: self.version,
            runtime: runtime.clone(),
            below: RefCell::default(),
        };
        // What cannot be opened now is better known now.
        queue.below()?;
        Ok(Rc::new(LiveQueue(Rc::new(queue))))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        self.live.top(self.version).ok()?.ability(wanted)
    }
}

impl fmt::Debug for LiveDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveDevice({:?}, {:?})", self.live.volume(), self.version)
    }
}

struct LiveQueue(Rc<QueueState>);

struct QueueState {
    live: Arc<LiveVolume>,
    version: Option<u64>,
    count: Arc<Count>,
    runtime: Runtime,
    /// The queue below, and of which opening of the volume it is.
    below: RefCell<Option<(u64, Rc<dyn Queue>)>>,
}

impl QueueState {
    /// The queue of the volume as it is now, for a request that was let through.
    fn below(&self) -> Result<Rc<dyn Queue>> {
        let opening = self.live.opening.load(Ordering::Acquire);
        if let Some((known, queue)) = &*self.below.borrow()
            && *known == opening
        {
            return Ok(Rc::clone(queue));
        }
        let queue = self.live.top(self.version)?.open_queue(&self.runtime)?;
        let former = self.below.replace(Some((opening, Rc::clone(&queue))));
        drop(former);
        Ok(queue)
    }

    fn submit(self: &Rc<Self>, request: Request) -> (Flight, Submission) {
        let flight = Flight(Rc::clone(self));
        let submission = match self.below() {
            Ok(queue) => queue.submit(request),
            Err(error) => request.fail(error).into(),
        };
        (flight, submission)
    }
}

/// A request that was let through, until this is dropped.
struct Flight(Rc<QueueState>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.live.valve.leave(&self.0.count);
    }
}

impl Queue for LiveQueue {
    fn submit(&self, request: Request) -> Submission {
        let queue = &self.0;
        if !queue.live.valve.try_enter(&queue.count) {
            let queue = Rc::clone(queue);
            return Submission::pending(async move {
                queue.live.valve.enter(&queue.count).await;
                let (_flight, submission) = queue.submit(request);
                submission.await
            });
        }
        let (flight, submission) = queue.submit(request);
        match submission.try_take() {
            Ok(completion) => completion.into(),
            Err(submission) => Submission::pending(async move {
                let _flight = flight;
                submission.await
            }),
        }
    }
}
