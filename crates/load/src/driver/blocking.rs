//! The queue of what answers in a call: whoever submits waits in it, so there is one request in flight whatever the depth
//! of the queue.
//!
//! Neither discards nor zeros without a payload are offered. A trace may hold discards all the same: they are refused
//! here as not supported, and the load counts them apart.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{
    Device, DeviceInfo, Error, Features, Operation, Queue, Request, Result, Runtime, Submission,
};

/// What is read and written by calls that return once it is done. The ranges lie within the device.
pub(super) trait Blocking: Send + Sync + 'static {
    /// Fills the buffer from `offset` on.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all bytes from `offset` on; with `durable` they are so on return.
    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()>;

    /// Makes durable what has been written.
    fn flush(&self) -> io::Result<()>;

    /// An error of these calls as one of a device.
    fn error(error: io::Error) -> Error;
}

/// A device that is all calls, opened once for all workers.
#[derive(Debug)]
pub(super) struct BlockingDevice<T> {
    calls: Arc<T>,
    info: DeviceInfo,
}

impl<T: Blocking> BlockingDevice<T> {
    /// `info` is what the same thing says of itself as a device that can do more.
    pub(super) fn new(calls: T, info: DeviceInfo) -> Self {
        let features = Features { discard: false, write_zeroes: false, ..info.features };
        Self { calls: Arc::new(calls), info: DeviceInfo { features, ..info } }
    }
}

impl<T: Blocking> Device for BlockingDevice<T> {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(BlockingQueue { calls: Arc::clone(&self.calls), info: self.info }))
    }
}

struct BlockingQueue<T> {
    calls: Arc<T>,
    info: DeviceInfo,
}

impl<T: Blocking> Queue for BlockingQueue<T> {
    fn submit(&self, mut request: Request) -> Submission {
        // Refuses what is not offered, too.
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        let offset = request.offset;
        let done = match request.operation {
            Operation::Read => self.calls.read(offset, &mut request.buffer),
            Operation::Write { fua } => self.calls.write(offset, &request.buffer, fua),
            Operation::Flush => self.calls.flush(),
            Operation::Discard | Operation::WriteZeroes => Err(io::ErrorKind::Unsupported.into()),
        };
        match done {
            Ok(()) => request.succeed().into(),
            Err(error) => request.fail(T::error(error)).into(),
        }
    }
}
