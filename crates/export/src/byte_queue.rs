//! A device as one thread of an export sees it, in bytes: requests of any alignment become requests of whole blocks on
//! the thread's queue.
//!
//! What fits the device's blocks and completes at once costs no task and no copy here. Everything else runs as a task
//! on the thread's runtime. A write of part of a block reads the rest first, alone with that block ([`Stripes`]). The
//! exports hand in what is to be done with the result; protocols, and what a range beyond the end means in them, are
//! their business.

use std::cell::Cell;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rotproof_block::{
    Buffer, Completion, Context, DeviceInfo, Operation, Phase, Queue, Request, Result, Runtime,
};

use crate::stripes::{Held, Stripes};

/// The device on one thread.
pub(crate) struct ByteQueue {
    pub(crate) runtime: Runtime,
    pub(crate) queue: Rc<dyn Queue>,
    pub(crate) info: DeviceInfo,
    /// Bytes of the device; where its export learns of that, they may become more.
    pub(crate) size: Arc<AtomicU64>,
    pub(crate) stripes: Stripes,
    /// Number of the trial's [`Phase`].
    pub(crate) phase: Arc<AtomicU8>,
    /// Number of the thread, for contexts.
    pub(crate) thread: u16,
    /// Requests made so far.
    pub(crate) requests: Cell<u64>,
}

/// Bytes that were read: a part of the blocks around them.
pub(crate) struct ReadBytes {
    blocks: Buffer,
    range: Range<usize>,
}

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.blocks[self.range.clone()]
    }
}

impl ByteQueue {
    /// Reads `length` bytes, above zero, all of them on the device, and hands them to `finish`. Returns whether that
    /// takes a task.
    pub(crate) fn read(
        &self,
        offset: u64,
        length: usize,
        finish: impl FnOnce(Result<ReadBytes>) + 'static,
    ) -> bool {
        let lead = self.lead(offset);
        let span = (lead + length).next_multiple_of(self.info.block_size as usize);
        let request = Request::read(offset - lead as u64, Buffer::stale(span), self.context());
        self.submit(request, None, move |completion| {
            let Completion { result, buffer, .. } = completion;
            finish(result.map(|()| ReadBytes { blocks: buffer, range: lead..lead + length }));
        })
    }

    /// Stores a payload that is not empty and fits on the device, durable when `finish` is called if so asked. Returns
    /// whether that takes a task.
    pub(crate) fn write(
        self: &Rc<Self>,
        offset: u64,
        payload: Buffer,
        durable: bool,
        finish: impl FnOnce(Result<()>) + 'static,
    ) -> bool {
        let length = payload.len() as u64;
        let needs_flush = durable && self.needs_flush();
        if self.is_aligned(offset, length)
            && !needs_flush
            && let Some(held) = self.stripes.try_shared(offset, length)
        {
            let request = self.write_request(offset, payload, durable);
            return self.submit(request, Some(held), move |completion| finish(completion.result));
        }
        let this = Rc::clone(self);
        self.runtime.spawn_detached(async move {
            finish(this.write_any(offset, payload, durable).await);
        });
        true
    }

    /// Makes everything finished so far durable.
    pub(crate) fn flush(&self, finish: impl FnOnce(Result<()>) + 'static) {
        self.submit(Request::flush(self.context()), None, move |completion| finish(completion.result));
    }

    /// Clears a range that is not empty and on the device by `operation`, [`Operation::Discard`] or
    /// [`Operation::WriteZeroes`], durable when `finish` is called if so asked.
    pub(crate) fn clear(
        self: &Rc<Self>,
        operation: Operation,
        offset: u64,
        length: u64,
        durable: bool,
        finish: impl FnOnce(Result<()>) + 'static,
    ) {
        if self.is_aligned(offset, length)
            && !(durable && self.info.features.flush)
            && let Some(held) = self.stripes.try_shared(offset, length)
        {
            let request = self.clearing_request(operation, offset, length);
            self.submit(request, Some(held), move |completion| finish(completion.result));
            return;
        }
        let this = Rc::clone(self);
        self.runtime.spawn_detached(async move {
            finish(this.clear_any(operation, offset, length, durable).await);
        });
    }

    /// How much of a range the device has.
    pub(crate) fn clip(&self, offset: u64, length: u64) -> u64 {
        length.min(self.size.load(Ordering::Relaxed).saturating_sub(offset))
    }

    /// Submits a request and finishes when it is complete: at once if it is, else in a task; returns whether it took
    /// a task. `held` is given back before that, after which others may rely on it.
    fn submit(
        &self,
        request: Request,
        held: Option<Held>,
        finish: impl FnOnce(Completion) + 'static,
    ) -> bool {
        match self.queue.submit(request).try_take() {
            Ok(completion) => {
                drop(held);
                finish(completion);
                false
            }
            Err(submission) => {
                self.runtime.spawn_detached(async move {
                    let completion = submission.await;
                    drop(held);
                    finish(completion);
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
        if durable && self.needs_flush() {
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
    async fn clear_any(&self, operation: Operation, offset: u64, length: u64, durable: bool) -> Result<()> {
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
        if durable && self.info.features.flush {
            self.queue.submit(Request::flush(self.context())).await.result?;
        }
        Ok(())
    }

    /// Whether a write is durable only once it is flushed: not where there is no volatile cache, and not where the device makes
    /// a write durable by itself.
    fn needs_flush(&self) -> bool {
        self.info.features.flush && !self.info.features.fua
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
}
