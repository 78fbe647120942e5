//! A stretch of a device as a device: the data of a member, without its margins; a segment of a mirror, whose copies it has.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::ability::{Ability, Wanted, find};
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Operation, Queue, Request, Result, Runtime, Submission,
};

use crate::copies::{Copies, CopyQueue, MemberState, Members};

/// The bytes of a device from an offset on.
pub(crate) struct Part {
    below: Arc<dyn Device>,
    offset: u64,
    info: DeviceInfo,
}

impl Part {
    /// `length` bytes of `below` from `offset` on; both multiples of its block, and within it.
    pub(crate) fn new(below: Arc<dyn Device>, offset: u64, length: u64) -> Arc<Self> {
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

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        let (offset, info) = (self.offset, self.info);
        if wanted.is::<dyn Copies>() {
            let below = find::<dyn Copies>(&*self.below)?;
            return wanted.offer::<dyn Copies>(|| Arc::new(PartCopies { below, offset, info }));
        }
        if wanted.is::<dyn Members>() {
            let below = find::<dyn Members>(&*self.below)?;
            return wanted.offer::<dyn Members>(|| Arc::new(PartMembers { below, offset, info }));
        }
        None
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

struct PartCopies {
    below: Arc<dyn Copies>,
    offset: u64,
    info: DeviceInfo,
}

impl Copies for PartCopies {
    fn count(&self) -> usize {
        self.below.count()
    }

    fn open_copies(&self, runtime: &Runtime) -> Result<Rc<dyn CopyQueue>> {
        let below = self.below.open_copies(runtime)?;
        Ok(Rc::new(PartCopyQueue { below, offset: self.offset, info: self.info }))
    }
}

struct PartCopyQueue {
    below: Rc<dyn CopyQueue>,
    offset: u64,
    info: DeviceInfo,
}

impl CopyQueue for PartCopyQueue {
    fn choose(&self, offset: u64, length: u64) -> usize {
        self.below.choose(offset + self.offset, length)
    }

    fn is_current(&self, copy: usize, offset: u64, length: u64) -> bool {
        self.below.is_current(copy, offset + self.offset, length)
    }

    fn submit_to(&self, copy: usize, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        if request.operation == Operation::Flush {
            return self.below.submit_to(copy, request);
        }
        self.below.submit_to(copy, Request { offset: request.offset + self.offset, ..request })
    }

    fn set_current(&self, copy: usize, offset: u64, length: u64) {
        self.below.set_current(copy, offset + self.offset, length);
    }

    fn set_missed(&self, copy: usize, offset: u64, length: u64) {
        self.below.set_missed(copy, offset + self.offset, length);
    }
}

struct PartMembers {
    below: Arc<dyn Members>,
    offset: u64,
    info: DeviceInfo,
}

impl PartMembers {
    /// What of these bytes below is here.
    fn within(&self, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let here = |at: u64| at.clamp(self.offset, self.offset + self.info.size) - self.offset;
        let ranges = ranges.into_iter().map(|range| here(range.start)..here(range.end));
        ranges.filter(|range| !range.is_empty()).collect()
    }
}

impl Members for PartMembers {
    fn states(&self) -> Vec<MemberState> {
        self.below.states()
    }

    fn fail(&self, member: usize, why: &str) -> Result<()> {
        self.below.fail(member, why)
    }

    fn replace(&self, _member: usize, _device: Arc<dyn Device>, _missed: &[Range<u64>]) -> Result<()> {
        let context = "a member is replaced as a whole, not for a stretch of it";
        Err(Error::new(ErrorKind::Unsupported, context))
    }

    fn missed(&self, member: usize) -> Vec<Range<u64>> {
        self.within(self.below.missed(member))
    }

    fn to_rebuild(&self) -> Vec<Range<u64>> {
        self.within(self.below.to_rebuild())
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
