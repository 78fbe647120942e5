//! Writes: each block is hashed; a content that is there is referred to, a new one written to a free block; then all are
//! mapped in one step. Until that step readers see the old data, and a write that fails leaves it in place.
//!
//! A content that another request is writing is waited for, so it is written once only however many ask for it at a
//! time. Nobody waits before its own blocks are written, so two requests cannot wait for each other.
//!
//! A request that covers a block only in part reads the rest of it first. Should another write have mapped the block
//! elsewhere meanwhile, that one comes first, and the rest is read again.

use std::rc::Rc;

use rotproof_block::{
    Buffer, Completion, ContentHash, Context, ErrorKind, Operation, Request, Result, Submission,
};

use super::blocks::{Afterwards, Block, State};
use super::queue_state::{Part, QueueState, join};
use super::store::{Edge, Slot, Step};
use super::{BLOCK, BLOCK_BYTES, blocks_of};

/// Carries out a write that has been checked and is not empty.
pub(super) fn write(queue: &Rc<QueueState>, request: Request) -> Submission {
    queue.begin(carry_out(Rc::clone(queue), request))
}

/// The same as a future.
pub(super) async fn carry_out(queue: Rc<QueueState>, mut request: Request) -> Completion {
    let mut write = Write::new(queue, &mut request);
    let result = write.run(&request).await;
    if write.edges.is_empty() {
        request.buffer = std::mem::replace(&mut write.data, Buffer::empty());
    }
    Completion { result, buffer: request.buffer, context: request.context }
}

/// A write under way.
struct Write {
    queue: Rc<QueueState>,
    context: Context,
    fua: bool,
    /// The first logical block.
    first: u64,
    /// Whole blocks: the buffer of the request, or a copy with what is around it.
    data: Buffer,
    /// One for each block.
    slots: Vec<Slot>,
    /// Blocks covered in part only, at most the first and the last.
    edges: Vec<Edge>,
}

impl Write {
    fn new(queue: Rc<QueueState>, request: &mut Request) -> Self {
        let blocks = blocks_of(request);
        let count = (blocks.end - blocks.start) as usize;
        let mut slots = queue.spare_slots.take();
        slots.resize(count, Slot { hash: ContentHash(0), step: Step::Wanted, not: None });
        let mut edges = Vec::new();
        if !request.offset.is_multiple_of(BLOCK_BYTES) {
            edges.push(Edge { slot: 0, base: None });
        }
        let ends_inside = !request.end().is_multiple_of(BLOCK_BYTES);
        if ends_inside && (count > 1 || edges.is_empty()) {
            edges.push(Edge { slot: count - 1, base: None });
        }
        let data = if edges.is_empty() {
            std::mem::replace(&mut request.buffer, Buffer::empty())
        } else {
            Buffer::stale(count * BLOCK)
        };
        let fua = request.operation == Operation::Write { fua: true };
        Self { queue, context: request.context, fua, first: blocks.start, data, slots, edges }
    }

    async fn run(&mut self, request: &Request) -> Result<()> {
        if !self.edges.is_empty() {
            let start = (request.offset % BLOCK_BYTES) as usize;
            for index in 0..self.edges.len() {
                self.read_around(index).await?;
            }
            self.data[start..start + request.buffer.len()].copy_from_slice(&request.buffer);
        }
        for (slot, block) in self.slots.iter_mut().zip(self.data.chunks_exact(BLOCK)) {
            slot.hash = ContentHash::of(block);
        }
        let mut shares = false;
        loop {
            while self.slots.iter().any(|slot| slot.step == Step::Wanted) {
                if !self.queue.store.reserve(&mut self.slots) {
                    return Err(no_space());
                }
                shares |= self.slots.iter().any(|slot| !matches!(slot.step, Step::Reserved(_)));
                self.write_reserved().await?;
                self.await_others().await;
                self.verify().await;
            }
            // What is shared may lie in a volatile cache still.
            if self.fua && shares {
                let flush = Request::flush(self.queue.child(self.context));
                self.queue.below.submit(flush).await.result?;
            }
            if self.queue.store.commit(self.first, &mut self.slots, &self.edges) {
                return Ok(());
            }
            self.repeat_edges(request).await?;
        }
    }

    /// Reads the whole block of an edge.
    async fn read_around(&mut self, index: usize) -> Result<()> {
        let edge = &mut self.edges[index];
        edge.base = self.queue.store.base(self.first + edge.slot as u64);
        let place = edge.slot * BLOCK..(edge.slot + 1) * BLOCK;
        match edge.base {
            None => self.data[place].fill(0),
            Some(block) => {
                let found = self.read_block(block).await?;
                self.data[place].copy_from_slice(&found);
            }
        }
        Ok(())
    }

    async fn read_block(&self, block: Block) -> Result<Buffer> {
        let context = self.queue.child(self.context);
        let read = Request::read(u64::from(block) * BLOCK_BYTES, Buffer::stale(BLOCK), context);
        let Completion { result, buffer, .. } = self.queue.below.submit(read).await;
        result.map(|()| buffer)
    }

    /// Makes the edges anew that somebody has mapped elsewhere since they were read.
    async fn repeat_edges(&mut self, request: &Request) -> Result<()> {
        for index in 0..self.edges.len() {
            let Edge { slot: number, base } = self.edges[index];
            if self.queue.store.is_current(self.first, &self.edges[index]) {
                continue;
            }
            let slot = &mut self.slots[number];
            if let Step::Held(block) = slot.step {
                self.queue.store.release(block);
            }
            (slot.step, slot.not) = (Step::Wanted, None);
            self.edges[index].base = None;
            if let Some(block) = base {
                self.queue.store.release(block);
            }
            self.read_around(index).await?;
            let block = (self.first + number as u64) * BLOCK_BYTES;
            let (start, end) = (request.offset.max(block), request.end().min(block + BLOCK_BYTES));
            let place = (start - self.first * BLOCK_BYTES) as usize;
            let part = &request.buffer[(start - request.offset) as usize..(end - request.offset) as usize];
            self.data[place..place + part.len()].copy_from_slice(part);
            self.slots[number].hash = ContentHash::of(&self.data[number * BLOCK..(number + 1) * BLOCK]);
        }
        Ok(())
    }

    /// Writes what has got new blocks, a run of neighbours in one request, all at the same time.
    async fn write_reserved(&mut self) -> Result<()> {
        let Some((start, count)) = self.next_run(0) else { return Ok(()) };
        if count == self.slots.len() {
            return self.write_all(start).await;
        }
        let mut parts = Vec::new();
        let mut runs = Vec::new();
        let mut next = Some((start, count));
        while let Some((start, count)) = next {
            let data = Buffer::copy_of(&self.data[start * BLOCK..(start + count) * BLOCK]);
            let write = self.request(start, data, self.queue.child(self.context));
            self.launch(start, count);
            parts.push(Part::Submitted(self.queue.below.submit(write)));
            runs.push((start, count));
            next = self.next_run(start + count);
        }
        join(&mut parts).await;
        let mut all = Ok(());
        for (part, (start, count)) in parts.into_iter().zip(runs) {
            let Part::Completed(Completion { result, .. }) = part else { unreachable!("joined") };
            self.land(start, count, result.is_ok());
            if result.is_err() {
                all = result;
            }
        }
        all
    }

    /// Everything is new and lies in a row: the data goes down as it came.
    async fn write_all(&mut self, start: usize) -> Result<()> {
        let data = std::mem::replace(&mut self.data, Buffer::empty());
        let context = if self.edges.is_empty() { self.context } else { self.queue.child(self.context) };
        let write = self.request(start, data, context);
        let count = self.slots.len();
        self.launch(start, count);
        let Completion { result, buffer, .. } = self.queue.below.submit(write).await;
        self.data = buffer;
        self.land(start, count, result.is_ok());
        result
    }

    /// The next slots from `from` on whose new blocks lie in a row: the first and their number.
    fn next_run(&self, from: usize) -> Option<(usize, usize)> {
        let reserved = |slot: &Slot| match slot.step {
            Step::Reserved(block) => Some(block),
            _ => None,
        };
        let start = from + self.slots[from..].iter().position(|slot| reserved(slot).is_some())?;
        let first = reserved(&self.slots[start])?;
        let count =
            (first..).zip(&self.slots[start..]).take_while(|(block, slot)| reserved(slot) == Some(*block));
        Some((start, count.count()))
    }

    /// The write of a run that begins with slot number `start`.
    fn request(&self, start: usize, data: Buffer, context: Context) -> Request {
        let block = physical(&self.slots[start]).expect("a slot of a run has its block");
        let write = Request::write(u64::from(block) * BLOCK_BYTES, data, context);
        Request { operation: Operation::Write { fua: self.fua }, ..write }
    }

    fn launch(&mut self, start: usize, count: usize) {
        for slot in &mut self.slots[start..start + count] {
            if let Step::Reserved(block) = slot.step {
                slot.step = Step::InFlight(block);
            }
        }
    }

    /// Takes note of how writing a run has ended.
    fn land(&mut self, start: usize, count: usize, is_stored: bool) {
        let slots = &mut self.slots[start..start + count];
        let state = if is_stored { State::Stored } else { State::Void(Afterwards::LastResort) };
        self.queue.store.settle(slots.iter().filter_map(physical), state);
        for slot in slots {
            if let Some(block) = physical(slot) {
                slot.step = Step::Held(block);
            }
        }
    }

    /// Waits for the blocks that others write. One that failed was not ours to fail: it is wanted again.
    async fn await_others(&mut self) {
        for slot in &mut self.slots {
            let Step::Awaited(block) = slot.step else { continue };
            if self.queue.store.settled(block).await {
                slot.step = self.queue.store.shared(block);
            } else {
                slot.step = Step::Wanted;
                self.queue.store.release(block);
            }
        }
    }

    /// Compares, byte by byte, what is shared on the word of a hash alone. What cannot be read is not shared.
    async fn verify(&mut self) {
        for number in 0..self.slots.len() {
            let Step::Unverified(block) = self.slots[number].step else { continue };
            let found = self.read_block(block).await;
            let is_equal = found.is_ok_and(|data| *data == self.data[number * BLOCK..(number + 1) * BLOCK]);
            let slot = &mut self.slots[number];
            if is_equal {
                slot.step = Step::Held(block);
            } else {
                (slot.step, slot.not) = (Step::Wanted, Some(block));
                self.queue.store.release(block);
            }
        }
    }
}

/// The physical block of a slot that has one.
fn physical(slot: &Slot) -> Option<Block> {
    match slot.step {
        Step::Wanted => None,
        Step::Reserved(block)
        | Step::InFlight(block)
        | Step::Awaited(block)
        | Step::Unverified(block)
        | Step::Held(block) => Some(block),
    }
}

impl Drop for Write {
    /// Gives back what was not mapped: all of it after an error or when the runtime drops its tasks, else nothing.
    fn drop(&mut self) {
        let store = &self.queue.store;
        for slot in &self.slots {
            match slot.step {
                Step::Reserved(block) => store.settle([block].into_iter(), State::Void(Afterwards::Free)),
                Step::InFlight(block) => store.settle([block].into_iter(), State::Void(Afterwards::Gone)),
                _ => {}
            }
            if let Some(block) = physical(slot) {
                store.release(block);
            }
        }
        for base in self.edges.iter().filter_map(|edge| edge.base) {
            store.release(base);
        }
        self.queue.spare_slots.give(std::mem::take(&mut self.slots));
    }
}

fn no_space() -> rotproof_block::Error {
    rotproof_block::Error::new(
        ErrorKind::NoSpace,
        "the dedup layer has no free block for a new content; give it a `size` below that of the device under it",
    )
}
