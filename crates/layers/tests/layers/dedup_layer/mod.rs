//! The dedup layer, and the stand on which it is tried.

mod failures;
mod history;
mod sharing;
mod together;

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::task::Poll;

use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::{DiskProfile, FileDevice, FileOptions, MemoryDevice, SimulatedDisk};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Completion, Context, Device, ErrorKind, Operation, Phase, Queue, Request, Result, Runtime,
    Submission,
};
use rotproof_layers::{DedupDevice, DedupOptions, StatsDevice};

use crate::devices::{Awake, with_faults};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

fn memory(size: u64, block_size: u32) -> Arc<dyn Device> {
    MemoryDevice::new(size, block_size).expect("memory")
}

/// A leaf that takes time, so that requests overlap.
fn disk(size: u64) -> Arc<dyn Device> {
    SimulatedDisk::new(size, 512, DiskProfile::NVME).expect("a simulated disk")
}

/// A queue over a dedup layer that counts below.
struct Stand {
    runtime: Runtime,
    queue: Rc<dyn Queue>,
    device: Arc<DedupDevice>,
    below: Arc<StatsDevice>,
}

impl Stand {
    fn new(below: Arc<dyn Device>) -> Self {
        Self::with(below, DedupOptions::default())
    }

    fn with(below: Arc<dyn Device>, options: DedupOptions) -> Self {
        let runtime = Runtime::simulated(1);
        let below = StatsDevice::new(below, "below");
        let device = DedupDevice::new(Arc::<StatsDevice>::clone(&below), options).expect("fits");
        let queue = device.open_queue(&runtime).expect("a queue");
        Self { runtime, queue, device, below }
    }

    fn complete(&self, request: Request) -> Completion {
        self.runtime.block_on(self.queue.submit(request)).expect("every request completes")
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let Completion { result, buffer, .. } = self.complete(write(offset, data));
        assert_eq!(&buffer[..], data, "the caller's buffer is never changed");
        result
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let Completion { result, buffer, .. } = self.complete(read(offset, length));
        result.expect("reads");
        buffer.to_vec()
    }

    /// Drives submissions at the same time; their completions in the same order.
    fn together(&self, submissions: Vec<Submission>) -> Vec<Completion> {
        self.runtime.block_on(all(submissions)).expect("every request completes")
    }

    /// Logical and physical blocks in use.
    fn usage(&self) -> (u64, u64) {
        let report = self.device.report();
        (report.logical_blocks, report.physical_blocks)
    }

    /// Requests and bytes of an operation that the device below got.
    fn below(&self, operation: &str) -> (u64, u64) {
        let rows = self.below.report().rows;
        rows.iter()
            .filter(|row| row.operation == operation)
            .fold((0, 0), |(requests, bytes), row| (requests + row.requests, bytes + row.bytes))
    }
}

async fn all(mut submissions: Vec<Submission>) -> Vec<Completion> {
    let mut completions: Vec<Option<Completion>> = submissions.iter().map(|_| None).collect();
    poll_fn(|task| {
        for (submission, completion) in submissions.iter_mut().zip(&mut completions) {
            if completion.is_none()
                && let Poll::Ready(done) = Pin::new(submission).poll(task)
            {
                *completion = Some(done);
            }
        }
        if completions.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    completions.into_iter().flatten().collect()
}

fn context() -> Context {
    Context { phase: Phase::Run, ..Context::default() }
}

fn write(offset: u64, data: &[u8]) -> Request {
    Request::write(offset, Buffer::copy_of(data), context())
}

fn read(offset: u64, length: usize) -> Request {
    Request::read(offset, Buffer::stale(length), context())
}

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK]
}

/// A content of its own for each number.
fn unique(number: u64) -> Vec<u8> {
    let mut data = block(0xa5);
    data[..8].copy_from_slice(&number.to_le_bytes());
    data
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}
