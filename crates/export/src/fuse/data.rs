//! Reads, writes and their like: from a FUSE request to requests of the device's queue, and back.
//!
//! A request that fits the device's blocks and completes at once costs no task and no copy here. Everything else
//! runs as a task on the thread's runtime. The file has bytes where the device has blocks: a write of part of a
//! block reads the rest first, alone with that block ([`Stripes`]).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rotproof_block::{
    Buffer, Completion, Context, DeviceInfo, Operation, Phase, Queue, Request, Result, Runtime,
};

use super::reply::Reply;
use super::wire::WriteOut;
use crate::stripes::{Held, Stripes};

/// A payload up to this size is copied out of the large buffer it arrived in when the device keeps payloads for a
/// while: that costs less than many large buffers in flight. A device that completes at once gets the buffer itself.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The device as one thread sees it.
pub(super) struct DataPath {
    pub runtime: Runtime,
    pub queue: Rc<dyn Queue>,
    pub info: DeviceInfo,
    pub stripes: Stripes,
    /// Number of the trial's [`Phase`].
    pub phase: Arc<AtomicU8>,
    /// Number of the thread, for contexts.
    pub thread: u16,
    /// Requests made so far.
    pub requests: Cell<u64>,
    /// Whether the last write did not complete at once.
    pub writes_late: Cell<bool>,
}

impl DataPath {
    /// Bytes `offset..offset + size` of the file; fewer at its end.
    pub(super) fn read(&self, reply: Reply, offset: u64, size: usize) {
        let length = self.clip(offset, size as u64) as usize;
        if length == 0 {
            return reply.data(&[]);
        }
        let lead = self.lead(offset);
        let span = (lead + length).next_multiple_of(self.info.block_size as usize);
        let request = Request::read(offset - lead as u64, Buffer::stale(span), self.context());
        self.submit(request, None, reply, move |reply, completion| match completion.result {
            Ok(()) => reply.data(&completion.buffer[lead..lead + length]),
            Err(error) => reply.error(&error),
        });
    }

    /// Stores the first `size` bytes of `arrived`, and leaves another buffer of its size there if it keeps it. At
    /// the end of the device the write is short, and beyond it an error, as on a block device.
    pub(super) fn write(
        self: &Rc<Self>,
        reply: Reply,
        arrived: &mut Buffer,
        offset: u64,
        size: usize,
        durable: bool,
    ) {
        let length = self.clip(offset, size as u64) as usize;
        if length == 0 {
            return if size == 0 { reply.plain(&WriteOut::default()) } else { reply.errno(libc::ENOSPC) };
        }
        let payload = if self.writes_late.get() && length <= COPIED_BYTES_MAX {
            Buffer::copy_of(&arrived[..length])
        } else {
            let room = arrived.len();
            let mut payload = std::mem::replace(arrived, Buffer::stale(room));
            payload.truncate(length);
            payload
        };
        let needs_flush = durable && !self.info.features.fua;
        if self.is_aligned(offset, length as u64)
            && !needs_flush
            && let Some(held) = self.stripes.try_shared(offset, length as u64)
        {
            let request = self.write_request(offset, payload, durable);
            let late = self.submit(request, Some(held), reply, move |reply, completion| {
                answer_write(reply, completion.result, length);
            });
            self.writes_late.set(late);
            return;
        }
        let this = Rc::clone(self);
        self.runtime.spawn_detached(async move {
            let result = this.write_any(offset, payload, durable).await;
            answer_write(reply, result, length);
        });
    }

    /// Makes everything answered so far durable.
    pub(super) fn flush(&self, reply: Reply) {
        self.submit(Request::flush(self.context()), None, reply, answer);
    }

    /// `fallocate`: punching a hole is a discard, zeroing a range a write of zeros; both leave the size alone, so
    /// nothing happens beyond the end. Other modes are not supported.
    pub(super) fn allocate(self: &Rc<Self>, reply: Reply, offset: u64, length: u64, mode: u32) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let features = self.info.features;
        let mode = mode.cast_signed();
        let operation = match mode {
            PUNCH if features.discard => Operation::Discard,
            // A hole reads as zeros, and that is all a program can tell.
            PUNCH | ZERO | ZERO_KEEP if features.write_zeroes => Operation::WriteZeroes,
            _ => return reply.errno(libc::EOPNOTSUPP),
        };
        let within = self.clip(offset, length);
        if mode == ZERO && within < length {
            return reply.errno(libc::ENOSPC);
        }
        if self.info.read_only {
            return reply.errno(libc::EROFS);
        }
        if within == 0 {
            return reply.status(if length == 0 { Err(libc::EINVAL) } else { Ok(()) });
        }
        if self.is_aligned(offset, within)
            && let Some(held) = self.stripes.try_shared(offset, within)
        {
            self.submit(self.clearing_request(operation, offset, within), Some(held), reply, answer);
            return;
        }
        let this = Rc::clone(self);
        self.runtime.spawn_detached(async move {
            match this.clear_any(operation, offset, within).await {
                Ok(()) => reply.status(Ok(())),
                Err(error) => reply.error(&error),
            }
        });
    }

    /// Submits a request and answers when it is complete: at once if it is, else in a task; returns whether it took
    /// a task. `held` is given back before the answer, after which the caller may rely on it.
    fn submit(
        &self,
        request: Request,
        held: Option<Held>,
        reply: Reply,
        answer: impl FnOnce(Reply, Completion) + 'static,
    ) -> bool {
        match self.queue.submit(request).try_take() {
            Ok(completion) => {
                drop(held);
                answer(reply, completion);
                false
            }
            Err(submission) => {
                self.runtime.spawn_detached(async move {
                    let completion = submission.await;
                    drop(held);
                    answer(reply, completion);
                });
                true
            }
        }
    }

    /// A write of any alignment, durable by flush where the device has nothing better.
    async fn write_any(&self, offset: u64, payload: Buffer, durable: bool) -> Result<()> {
        let length = payload.len() as u64;
        if self.is_aligned(offset, length) {
            let _held = self.stripes.shared(offset, length).await;
            self.queue.submit(self.write_request(offset, payload, durable)).await.result?;
        } else {
            let _held = self.stripes.exclusive(offset, length).await;
            let (start, buffer) = self.fill_up(offset, &payload).await?;
            self.queue.submit(self.write_request(start, buffer, durable)).await.result?;
        }
        if durable && !self.info.features.fua {
            self.queue.submit(Request::flush(self.context())).await.result?;
        }
        Ok(())
    }

    /// Whole blocks around `payload`, the bytes before and after it as they are on the device; and where they
    /// begin. The caller holds the blocks exclusive.
    async fn fill_up(&self, offset: u64, payload: &[u8]) -> Result<(u64, Buffer)> {
        let block_bytes = self.info.block_size as usize;
        let lead = self.lead(offset);
        let start = offset - lead as u64;
        let mut buffer = Buffer::stale((lead + payload.len()).next_multiple_of(block_bytes));
        let last_block = buffer.len() - block_bytes;
        let ends_inside = lead + payload.len() < buffer.len();
        let partly_covered = [(lead > 0, 0), (ends_inside && (lead == 0 || last_block > 0), last_block)];
        for (_, at) in partly_covered.into_iter().filter(|(partly, _)| *partly) {
            let request = Request::read(start + at as u64, Buffer::stale(block_bytes), self.context());
            let completion = self.queue.submit(request).await;
            completion.result?;
            buffer[at..at + block_bytes].copy_from_slice(&completion.buffer);
        }
        buffer[lead..lead + payload.len()].copy_from_slice(payload);
        Ok((start, buffer))
    }

    /// Clears a range of any alignment: the whole blocks by `operation`, what is left at its ends by writing zeros.
    async fn clear_any(&self, operation: Operation, offset: u64, length: u64) -> Result<()> {
        let block_bytes = u64::from(self.info.block_size);
        let end = offset + length;
        let blocks_start = offset.next_multiple_of(block_bytes).min(end);
        let blocks_end = (end - end % block_bytes).max(blocks_start);
        for (start, end) in [(offset, blocks_start), (blocks_end, end)] {
            if start < end {
                self.write_any(start, Buffer::zeroed((end - start) as usize), false).await?;
            }
        }
        if blocks_start < blocks_end {
            let length = blocks_end - blocks_start;
            let _held = self.stripes.shared(blocks_start, length).await;
            self.queue.submit(self.clearing_request(operation, blocks_start, length)).await.result?;
        }
        Ok(())
    }

    fn write_request(&self, offset: u64, payload: Buffer, durable: bool) -> Request {
        let fua = durable && self.info.features.fua;
        Request { operation: Operation::Write { fua }, ..Request::write(offset, payload, self.context()) }
    }

    fn clearing_request(&self, operation: Operation, offset: u64, length: u64) -> Request {
        Request { operation, ..Request::discard(offset, length, self.context()) }
    }

    fn context(&self) -> Context {
        let id = self.requests.get() + 1;
        self.requests.set(id);
        Context {
            id,
            submitted: self.runtime.now(),
            queue: self.thread,
            phase: Phase::from_u8(self.phase.load(Ordering::Relaxed)).unwrap_or_default(),
            ..Context::default()
        }
    }

    /// Bytes from the beginning of its block to `offset`.
    fn lead(&self, offset: u64) -> usize {
        (offset % u64::from(self.info.block_size)) as usize
    }

    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        (offset | length) & u64::from(self.info.block_size - 1) == 0
    }

    /// How much of a range the device has.
    fn clip(&self, offset: u64, length: u64) -> u64 {
        length.min(self.info.size.saturating_sub(offset))
    }
}

fn answer(reply: Reply, completion: Completion) {
    match completion.result {
        Ok(()) => reply.status(Ok(())),
        Err(error) => reply.error(&error),
    }
}

fn answer_write(reply: Reply, result: Result<()>, length: usize) {
    match result {
        Ok(()) => reply.plain(&WriteOut {
            size: u32::try_from(length).expect("a payload was checked to be 1 MiB at the most"),
            padding: 0,
        }),
        Err(error) => reply.error(&error),
    }
}
