//! The medium below all faults, for whoever may look at it and write to it past everything: the judge, and the other
//! hand.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{
    Buffer, ContentHash, Context, Device, DeviceInfo, Queue, Request, Result, Runtime, Submission,
};

const BLOCK: usize = 4096;

/// The leaf of a stack.
#[derive(Clone)]
pub struct Leaf(pub Arc<dyn Device>);

impl Leaf {
    fn with<T>(&self, work: impl FnOnce(&Runtime, &dyn Queue) -> T) -> T {
        // One of its own: what is done here takes no time of the trial's.
        let runtime = Runtime::simulated(0);
        let queue = self.0.open_queue(&runtime).expect("it is in memory");
        work(&runtime, &*queue)
    }

    /// One block.
    pub fn read(&self, offset: u64) -> Vec<u8> {
        let request = Request::read(offset, Buffer::zeroed(BLOCK), Context::default());
        self.with(|runtime, queue| done(runtime, queue, request).to_vec())
    }

    /// Writes one block.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let request = Request::write(offset, Buffer::copy_of(bytes), Context::default());
        self.with(|runtime, queue| drop(done(runtime, queue, request)));
    }

    /// Where each content lies, but for zeros.
    pub fn contents(&self) -> HashMap<u128, Vec<u64>> {
        let mut found: HashMap<u128, Vec<u64>> = HashMap::new();
        let size = self.0.info().size;
        self.with(|runtime, queue| {
            for start in (0..size).step_by(1 << 20) {
                let length = (size - start).min(1 << 20) as usize;
                let request = Request::read(start, Buffer::zeroed(length), Context::default());
                let bytes = done(runtime, queue, request);
                for (offset, block) in (start..).step_by(BLOCK).zip(bytes.chunks_exact(BLOCK)) {
                    if block.iter().any(|&byte| byte != 0) {
                        found.entry(ContentHash::of(block).0).or_default().push(offset);
                    }
                }
            }
        });
        found
    }
}

fn done(runtime: &Runtime, queue: &dyn Queue, request: Request) -> Buffer {
    let completion = runtime.block_on(queue.submit(request)).expect("it is in memory");
    completion.result.expect("it lies within");
    completion.buffer
}

/// A device that takes a while: under virtual time nothing comes before anything else where nothing takes any.
pub struct Slow(pub Arc<dyn Device>);

impl Device for Slow {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(SlowQueue(self.0.open_queue(runtime)?, runtime.clone())))
    }
}

struct SlowQueue(Rc<dyn Queue>, Runtime);

impl Queue for SlowQueue {
    fn submit(&self, request: Request) -> Submission {
        let (below, runtime) = (Rc::clone(&self.0), self.1.clone());
        Submission::pending(async move {
            runtime.sleep(Duration::from_micros(1)).await;
            let completion = below.submit(request).await;
            runtime.sleep(Duration::from_micros(1)).await;
            completion
        })
    }
}
