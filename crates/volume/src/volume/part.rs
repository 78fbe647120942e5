//! A stretch of a device as a device: the data of a member, without its margins.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Device, DeviceInfo, Operation, Queue, Request, Result, Runtime, Submission};

/// The bytes of a device from an offset on.
pub(super) struct Part {
    below: Arc<dyn Device>,
    offset: u64,
    info: DeviceInfo,
}

impl Part {
    /// `length` bytes of `below` from `offset` on; both multiples of its block, and within it.
    pub(super) fn new(below: Arc<dyn Device>, offset: u64, length: u64) -> Arc<Self> {
        let info = DeviceInfo { size: length, ..below.info() };
        Arc::new(Self { below, offset, info })
    }
}

impl Device for Part {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        Ok(Rc::new(PartQueue { below, offset: self.offset, info: self.info }))
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} bytes at {})", self.info.size, self.offset)
    }
}

struct PartQueue {
    below: Rc<dyn Queue>,
    offset: u64,
    info: DeviceInfo,
}

impl Queue for PartQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.operation == Operation::Flush {
            return self.below.submit(request);
        }
        self.below.submit(Request { offset: request.offset + self.offset, ..request })
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::conformance::{On, check, check_layer};
    use rotproof_block::leaf::MemoryDevice;

    use super::*;

    #[test]
    fn it_is_a_device() {
        for on in [On::Simulated, On::Uring] {
            check(on, &|| Ok(Part::new(MemoryDevice::new(4 << 20, 512)?, 1 << 20, 2 << 20)))
                .expect("keeps the contract");
            check_layer(on, &|below| Ok(Part::new(below, 1 << 20, 3 << 20))).expect("passes contexts on");
        }
    }
}
