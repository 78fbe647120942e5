//! A version as a device that can be read.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Device, DeviceInfo, Features, Operation, Queue, Request, Result, Runtime, Submission};

use super::queue::{VersionsQueue, blocks_of};
use super::space_block::SpaceBlock;
use super::{PATIENCE, Shared};
use crate::io::Io;

/// A version of a [`super::VersionsDevice`], read-only. When it is given up, reads fail.
pub struct VersionView {
    below: Arc<dyn Device>,
    shared: Arc<Shared>,
    id: u64,
}

impl VersionView {
    pub(super) fn new(below: Arc<dyn Device>, shared: Arc<Shared>, id: u64) -> Self {
        Self { below, shared, id }
    }
}

impl Device for VersionView {
    fn info(&self) -> DeviceInfo {
        let features = Features { flush: false, fua: false, discard: false, write_zeroes: false };
        DeviceInfo { read_only: true, features, ..self.shared.info }
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let io = Io::open(&self.below, runtime, PATIENCE)?;
        let queue = VersionsQueue::new(io.clone(), Arc::clone(&self.shared));
        let view = ViewQueue { io, queue, shared: Arc::clone(&self.shared), id: self.id, info: self.info() };
        Ok(Rc::new(view))
    }
}

impl fmt::Debug for VersionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionView({})", self.id)
    }
}

#[derive(Clone)]
struct ViewQueue {
    io: Io,
    queue: VersionsQueue,
    shared: Arc<Shared>,
    id: u64,
    info: DeviceInfo,
}

impl Queue for ViewQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.length == 0 || request.operation == Operation::Flush {
            return request.succeed().into();
        }
        let view = self.clone();
        Submission::pending(async move {
            let reading = view.shared.epochs.enter();
            let table = &view.shared.table;
            let pages = table.layout().pages_of(&blocks_of(&request));
            if let Err(error) = table.hold(&view.io, pages.clone(), request.context).await {
                return request.fail(error);
            }
            let submission = view.queue.read_at(request, |block| view.place(block));
            table.release(pages);
            let completion = submission.await;
            drop(reading);
            completion
        })
    }
}

impl ViewQueue {
    /// Where the version has a block, whose page is held.
    fn place(&self, block: u64) -> Result<SpaceBlock> {
        // Under the lock: a block that is moved is in the history before the map says so.
        let present = self.shared.place(block);
        match self.shared.kept.state.lock().place_in(self.id, block as u32)? {
            Some(place) => Ok(place),
            None => present,
        }
    }
}
