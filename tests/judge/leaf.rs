//! The medium below all faults, for whoever may look at it and write to it past everything: the judge, and the other
//! hand.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, ContentHash, Context, Device, Queue, Request, Runtime};

const BLOCK: usize = 4096;

/// The leaf of a stack.
#[derive(Clone)]
pub struct Leaf(pub Arc<MemoryDevice>);

impl Leaf {
    pub fn new(size: u64) -> Self {
        Self(MemoryDevice::new(size, 512).expect("a size of whole blocks"))
    }

    fn queue(&self) -> Rc<dyn Queue> {
        // It completes within `submit`, so the runtime has nothing to do.
        self.0.open_queue(&Runtime::simulated(0)).expect("memory")
    }

    /// One block.
    pub fn read(&self, offset: u64) -> Vec<u8> {
        let request = Request::read(offset, Buffer::zeroed(BLOCK), Context::default());
        let completion =
            self.queue().submit(request).try_take().unwrap_or_else(|_| panic!("memory is at once"));
        completion.result.expect("it lies within");
        completion.buffer.to_vec()
    }

    /// Writes one block.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let request = Request::write(offset, Buffer::copy_of(bytes), Context::default());
        let completion =
            self.queue().submit(request).try_take().unwrap_or_else(|_| panic!("memory is at once"));
        completion.result.expect("it lies within");
    }

    /// Where each content lies, but for zeros.
    pub fn contents(&self) -> HashMap<u128, Vec<u64>> {
        let mut found: HashMap<u128, Vec<u64>> = HashMap::new();
        let size = self.0.info().size;
        let queue = self.queue();
        let mut buffer = Buffer::zeroed(1 << 20);
        for start in (0..size).step_by(1 << 20) {
            let length = (size - start).min(1 << 20) as usize;
            if length < buffer.len() {
                buffer = Buffer::zeroed(length);
            }
            let request = Request::read(start, buffer, Context::default());
            let completion = queue.submit(request).try_take().unwrap_or_else(|_| panic!("memory is at once"));
            completion.result.expect("it lies within");
            buffer = completion.buffer;
            for (offset, block) in (start..).step_by(BLOCK).zip(buffer.chunks_exact(BLOCK)) {
                if block.iter().any(|&byte| byte != 0) {
                    found.entry(ContentHash::of(block).0).or_default().push(offset);
                }
            }
        }
        found
    }
}
