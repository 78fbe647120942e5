//! Copy on write: what is written stays in memory, and the device below is only read.
//!
//! One bit for each block says whether it has been written. Memory answers at once, so a block is in memory before its bit
//! says so, and a read that comes after a write has completed finds the bit.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rotproof_block::children::{Children, join};
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{
    Buffer, Completion, Device, DeviceInfo, Features, Operation, Queue, Request, Result, Runtime, Submission,
};

/// A device that begins as the one below it, and never changes that.
pub struct SnapshotDevice {
    below: Arc<dyn Device>,
    changed: Arc<Changed>,
    memory: Arc<MemoryDevice>,
    info: DeviceInfo,
}

/// Which blocks are in memory.
struct Changed {
    bits: Box<[AtomicU64]>,
    block_size: u64,
}

impl SnapshotDevice {
    /// A copy of `below` that costs memory only for what is written. Fails as [`MemoryDevice::new`] does.
    pub fn new(below: Arc<dyn Device>) -> Result<Arc<Self>> {
        let info = below.info();
        let memory = MemoryDevice::new(info.size, info.block_size)?;
        let block_size = u64::from(info.block_size);
        let words = (info.size / block_size).div_ceil(u64::from(u64::BITS)) as usize;
        let bits = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        let info = DeviceInfo {
            read_only: false,
            // Blocks change from one place to the other one by one.
            atomic_write_bytes: info.block_size,
            // What is in memory only is as durable as it will ever be.
            features: Features { flush: false, fua: true, discard: true, write_zeroes: true },
            ..info
        };
        Ok(Arc::new(Self { below, changed: Arc::new(Changed { bits, block_size }), memory, info }))
    }
}

impl Changed {
    fn has(&self, block: u64) -> bool {
        let word = self.bits[(block / 64) as usize].load(Ordering::Acquire);
        word >> (block % 64) & 1 == 1
    }

    fn note(&self, range: Range<u64>) {
        for block in range.start / self.block_size..range.end / self.block_size {
            self.bits[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Release);
        }
    }

    /// The end of the part of `range` from its start on that is all in memory, or all not, and which of the two.
    fn run(&self, range: Range<u64>) -> (u64, bool) {
        let mut block = range.start / self.block_size;
        let is_changed = self.has(block);
        let last = range.end / self.block_size;
        while block < last && self.has(block) == is_changed {
            block += 1;
        }
        (block * self.block_size, is_changed)
    }
}

impl Device for SnapshotDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(SnapshotQueue {
            below: self.below.open_queue(runtime)?,
            memory: self.memory.open_queue(runtime)?,
            changed: Arc::clone(&self.changed),
            info: self.info,
            children: Children::default(),
        }))
    }
}

impl fmt::Debug for SnapshotDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotDevice({} bytes)", self.info.size)
    }
}

struct SnapshotQueue {
    below: Rc<dyn Queue>,
    memory: Rc<dyn Queue>,
    changed: Arc<Changed>,
    info: DeviceInfo,
    children: Children,
}

impl Queue for SnapshotQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        let range = request.offset..request.end();
        match request.operation {
            // Nothing below was written.
            Operation::Flush => request.succeed().into(),
            Operation::Read if range.is_empty() => request.succeed().into(),
            Operation::Read => match self.changed.run(range.clone()) {
                (end, true) if end == range.end => self.memory.submit(request),
                (end, false) if end == range.end => self.below.submit(request),
                _ => self.read_of_both(request),
            },
            Operation::Write { .. } | Operation::Discard | Operation::WriteZeroes => {
                // Memory is done when it has been asked.
                let done = self.memory.submit(request);
                self.changed.note(range);
                done
            }
        }
    }
}

impl SnapshotQueue {
    /// A read of blocks that are in memory and of others.
    fn read_of_both(&self, mut request: Request) -> Submission {
        let mut parts = Vec::new();
        let mut offset = request.offset;
        while offset < request.end() {
            let (end, is_changed) = self.changed.run(offset..request.end());
            let bytes = (offset - request.offset) as usize..(end - request.offset) as usize;
            let child = Request::read(offset, Buffer::stale(bytes.len()), self.children.of(request.context));
            let queue = if is_changed { &self.memory } else { &self.below };
            parts.push((bytes, queue.submit(child)));
            offset = end;
        }
        Submission::pending(async move {
            let (places, submissions): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let mut result = Ok(());
            for (place, completion) in places.into_iter().zip(join(submissions).await) {
                if completion.result.is_ok() {
                    request.buffer[place].copy_from_slice(&completion.buffer);
                }
                result = result.and(completion.result);
            }
            Completion { result, buffer: request.buffer, context: request.context }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rotproof_block::{Context, conformance};

    use super::*;

    const BYTES: u64 = 4 << 20;

    #[test]
    fn it_is_a_device() {
        for block_size in [512, 4096] {
            let make = || -> Result<Arc<dyn Device>> {
                Ok(SnapshotDevice::new(MemoryDevice::new(BYTES, block_size)?)?)
            };
            for on in [conformance::On::Simulated, conformance::On::Uring] {
                conformance::check(on, &make).unwrap_or_else(|breach| panic!("{on:?}: {breach}"));
            }
        }
    }

    /// Offset and length in blocks, what is done.
    fn steps() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
        prop::collection::vec((0u64..64, 1u64..20, 0u8..4), 1..60)
    }

    proptest! {
        #[test]
        fn it_reads_as_a_copy_would_and_what_is_below_never_changes(steps in steps()) {
            const BLOCK: usize = 512;
            let runtime = Runtime::simulated(1);
            let below = MemoryDevice::new(64 * BLOCK as u64, BLOCK as u32).expect("sizes that fit");
            let original: Vec<u8> = (0..64 * BLOCK).map(|at| (at / BLOCK) as u8 + 1).collect();
            let (of_below, snapshot) = {
                let queue = below.open_queue(&runtime).expect("a queue");
                let write = Request::write(0, Buffer::copy_of(&original), Context::default());
                runtime.block_on(queue.submit(write)).expect("it ends").result.expect("written");
                let snapshot = SnapshotDevice::new(Arc::clone(&below) as Arc<dyn Device>).expect("room");
                (queue, snapshot.open_queue(&runtime).expect("a queue"))
            };
            let mut model = original.clone();
            let submit = |queue: &Rc<dyn Queue>, request| {
                let done = runtime.block_on(queue.submit(request)).expect("it ends");
                done.result.expect("it succeeds");
                done.buffer
            };
            for (number, (first, count, what)) in (100u8..).zip(steps) {
                let count = count.min(64 - first);
                let bytes = first as usize * BLOCK..(first + count) as usize * BLOCK;
                let (offset, length) = (first * BLOCK as u64, count * BLOCK as u64);
                match what {
                    0 => {
                        let data = vec![number; bytes.len()];
                        submit(&snapshot, Request::write(offset, Buffer::copy_of(&data), Context::default()));
                        model[bytes].copy_from_slice(&data);
                    }
                    1 => {
                        submit(&snapshot, Request::discard(offset, length, Context::default()));
                        model[bytes].fill(0);
                    }
                    2 => {
                        submit(&snapshot, Request::write_zeroes(offset, length, Context::default()));
                        model[bytes].fill(0);
                    }
                    _ => {
                        let read = Request::read(offset, Buffer::stale(bytes.len()), Context::default());
                        prop_assert_eq!(&submit(&snapshot, read)[..], &model[bytes]);
                    }
                }
            }
            let all = |queue| submit(queue, Request::read(0, Buffer::stale(64 * BLOCK), Context::default()));
            prop_assert_eq!(&all(&snapshot)[..], &model[..]);
            prop_assert_eq!(&all(&of_below)[..], &original[..]);
        }
    }
}
