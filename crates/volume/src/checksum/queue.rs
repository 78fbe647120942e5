//! The path of a request: a write leaves its checksums when the data are below, a read is compared when they come up.
//!
//! Where nothing is in the way - pages in memory, places marked, blocks free - that costs no lock, no allocation and no
//! request more. All else takes the long way, which waits for what it needs.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Buffer, Completion, Context, ErrorKind, Operation, Queue, Request, Result, Submission};

use super::kind::NEVER;
use super::repair::First;
use super::{Shared, add};
use crate::claims::{Claim, Stamp};
use crate::io::Io;
use crate::table::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Lists of checksums that a queue keeps for its next writes.
const KEPT: usize = 256;

#[derive(Clone)]
pub(super) struct ChecksumQueue(pub(super) Rc<Inner>);

pub(super) struct Inner {
    pub(super) io: Io,
    pub(super) shared: Arc<Shared>,
    lists: RefCell<Vec<Vec<u128>>>,
}

/// A write under way: its blocks are claimed, their pages in memory, their places marked.
struct Writing {
    queue: ChecksumQueue,
    blocks: Range<u64>,
    pages: Range<u64>,
    _claim: Claim,
    entries: Vec<u128>,
    is_over: bool,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Inner { shared, lists, .. } = &*self.queue.0;
        if !self.is_over {
            // Nobody knows whether it took effect.
            for (block, entry) in self.blocks.clone().zip(&self.entries) {
                shared.table.also_legal(block, *entry);
            }
        }
        shared.table.leave(&self.pages);
        shared.table.release(self.pages.clone());
        let mut lists = lists.borrow_mut();
        if lists.len() < KEPT {
            let mut list = std::mem::take(&mut self.entries);
            list.clear();
            lists.push(list);
        }
    }
}

impl ChecksumQueue {
    pub(super) fn new(io: Io, shared: Arc<Shared>) -> Self {
        Self(Rc::new(Inner { io, shared, lists: RefCell::default() }))
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    pub(super) fn io(&self) -> &Io {
        &self.0.io
    }

    /// Checksums of whole blocks, in a list of the queue's.
    fn entries_of(&self, data: &[u8]) -> Vec<u128> {
        let mut list = self.0.lists.borrow_mut().pop().unwrap_or_default();
        list.extend(data.chunks_exact(BLOCK).map(|block| self.shared().kind.entry_of(block)));
        list
    }

    fn writing(&self, blocks: Range<u64>, pages: Range<u64>, claim: Claim, data: &[u8]) -> Writing {
        let entries = self.entries_of(data);
        Writing { queue: self.clone(), blocks, pages, _claim: claim, entries, is_over: false }
    }

    /// All that a write needs, if nothing has to be waited for.
    fn try_begin(&self, blocks: &Range<u64>, data: &[u8]) -> Option<Writing> {
        let Shared { table, claims, .. } = self.shared();
        if blocks.end - blocks.start > claims.most() {
            return None;
        }
        let claim = claims.try_claim(blocks.clone())?;
        let pages = table.layout().pages_of(blocks);
        if !table.try_hold(pages.clone()) {
            return None;
        }
        if table.has_doubt(&pages) || !table.try_enter(&pages) {
            table.release(pages);
            return None;
        }
        Some(self.writing(blocks.clone(), pages, claim, data))
    }

    /// As [`ChecksumQueue::try_begin`], for blocks that are claimed, and waiting for what it takes.
    async fn begin(
        &self,
        blocks: Range<u64>,
        claim: Claim,
        data: &[u8],
        context: Context,
    ) -> Result<Writing> {
        let table = &self.shared().table;
        let pages = table.layout().pages_of(&blocks);
        table.hold(self.io(), pages.clone(), context).await?;
        while !table.try_enter(&pages) {
            if let Err(error) = table.mark(self.io(), &pages, context).await {
                table.release(pages);
                return Err(error);
            }
        }
        let resolved = match table.has_doubt(&pages) {
            true => self.resolve(&blocks, context).await,
            false => Ok(()),
        };
        if let Err(error) = resolved {
            table.leave(&pages);
            table.release(pages);
            return Err(error);
        }
        Ok(self.writing(blocks, pages, claim, data))
    }

    fn below(&self, request: Request) -> Request {
        Request { offset: request.offset + self.shared().data_at, ..request }
    }

    /// Whether a request is of whole blocks.
    fn is_aligned(request: &Request) -> bool {
        (request.offset | request.length) & (BLOCK_BYTES - 1) == 0
    }

    // Writes

    fn write(&self, request: Request, fua: bool) -> Submission {
        let blocks = blocks_of(&request);
        let is_short = Self::is_aligned(&request) && !fua;
        let Some(writing) = is_short.then(|| self.try_begin(&blocks, &request.buffer)).flatten() else {
            let queue = self.clone();
            return Submission::pending(async move { queue.write_long(request, fua).await });
        };
        let context = request.context;
        match self.0.io.queue.submit(self.below(request)).try_take() {
            Ok(Completion { result: Ok(()), buffer, .. }) => {
                writing.succeed();
                Completion { result: Ok(()), buffer, context }.into()
            }
            Ok(completion) => Submission::pending(writing.fail(completion, context)),
            Err(submission) => Submission::pending(async move {
                let completion = submission.await;
                if completion.result.is_ok() {
                    writing.succeed();
                    return Completion { context, ..completion };
                }
                writing.fail(completion, context).await
            }),
        }
    }

    async fn write_long(&self, request: Request, fua: bool) -> Completion {
        let context = request.context;
        let (result, buffer) = self.write_parts(request, context).await;
        let result = match result {
            Ok(()) if fua => self.shared().table.flush(self.io(), context).await,
            other => other,
        };
        Completion { result, buffer, context }
    }

    /// Any write, part by part if it is larger than a claim can be.
    async fn write_parts(&self, mut request: Request, context: Context) -> (Result<()>, Buffer) {
        if Self::is_aligned(&request) && request.length / BLOCK_BYTES <= self.shared().claims.most() {
            let blocks = blocks_of(&request);
            let claim = self.shared().claims.claim(blocks.clone()).await;
            let writing = match self.begin(blocks, claim, &request.buffer, context).await {
                Ok(writing) => writing,
                Err(error) => return (Err(error), request.buffer),
            };
            request.context = self.io().child(context);
            let completion = self.0.io.queue.submit(self.below(request)).await;
            if completion.result.is_ok() {
                writing.succeed();
                return (Ok(()), completion.buffer);
            }
            let completion = writing.fail(completion, context).await;
            return (completion.result, completion.buffer);
        }
        let mut result = Ok(());
        for part in self.parts(request.offset..request.end()) {
            let within = (part.start - request.offset) as usize..(part.end - request.offset) as usize;
            let done = self.write_part(part, &request.buffer[within], context).await;
            result = result.and(done);
        }
        (result, request.buffer)
    }

    /// Cuts a range of bytes so that each part is within a claim, and only the first and the last are of parts of blocks.
    fn parts(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let step = self.shared().claims.most().min(1024) * BLOCK_BYTES;
        let (mut at, mut parts) = (bytes.start, Vec::new());
        while at < bytes.end {
            let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
            let end = if !at.is_multiple_of(BLOCK_BYTES) {
                block_end.min(bytes.end)
            } else if bytes.end - at < BLOCK_BYTES {
                bytes.end
            } else {
                (at + step).min(bytes.end / BLOCK_BYTES * BLOCK_BYTES)
            };
            parts.push(at..end);
            at = end;
        }
        parts
    }

    /// Writes whole blocks, or a part of one, which is read and verified first.
    async fn write_part(&self, bytes: Range<u64>, data: &[u8], context: Context) -> Result<()> {
        let first = bytes.start / BLOCK_BYTES;
        let blocks = first..bytes.end.div_ceil(BLOCK_BYTES);
        let claim = self.shared().claims.claim(blocks.clone()).await;
        let data = if (bytes.start | bytes.end).is_multiple_of(BLOCK_BYTES) {
            Buffer::copy_of(data)
        } else {
            let mut block = self.right_block(first, First::Nothing, context).await?;
            let within = (bytes.start % BLOCK_BYTES) as usize;
            block[within..within + data.len()].copy_from_slice(data);
            block
        };
        let writing = self.begin(blocks, claim, &data, context).await?;
        let request = Request::write(first * BLOCK_BYTES, data, self.io().child(context));
        let completion = self.0.io.queue.submit(self.below(request)).await;
        if completion.result.is_ok() {
            writing.succeed();
            return Ok(());
        }
        writing.fail(completion, context).await.result
    }

    /// From now on these bytes read as zeros. Whole blocks that were never written need no request for that. What is discarded
    /// `frees` room below.
    async fn clear(&self, bytes: Range<u64>, frees: bool, context: Context) -> Result<()> {
        let table = &self.shared().table;
        for part in self.parts(bytes) {
            if !(part.start | part.end).is_multiple_of(BLOCK_BYTES) {
                let zeros = Buffer::zeroed((part.end - part.start) as usize);
                self.write_part(part, &zeros, context).await?;
                continue;
            }
            let blocks = part.start / BLOCK_BYTES..part.end / BLOCK_BYTES;
            for page in table.layout().pages_of(&blocks) {
                if table.is_used(table.layout().granule_of(page)) {
                    let entries = table.layout().entries_of(page);
                    let blocks = blocks.start.max(entries.start)..blocks.end.min(entries.end);
                    self.clear_blocks(blocks, frees, context).await?;
                }
            }
        }
        Ok(())
    }

    /// Clears blocks of one page. They become zeros below too: what has no checksum must leave nothing that a torn write could
    /// bring up again.
    async fn clear_blocks(&self, blocks: Range<u64>, frees: bool, context: Context) -> Result<()> {
        let table = &self.shared().table;
        let claim = self.shared().claims.claim(blocks.clone()).await;
        let mut writing = self.begin(blocks.clone(), claim, &[], context).await?;
        let written: Vec<u64> = blocks.clone().filter(|block| table.get(*block) != NEVER).collect();
        writing.entries.resize((blocks.end - blocks.start) as usize, NEVER);
        for run in written.chunk_by(|one, next| one + 1 == *next) {
            let offset = self.shared().data_at + run[0] * BLOCK_BYTES;
            let length = run.len() as u64 * BLOCK_BYTES;
            match frees {
                true => self.io().discard(offset, length, true, context).await?,
                false => self.io().write_zeroes(offset, length, context).await?,
            }
        }
        for block in written {
            table.set(block, NEVER);
        }
        writing.is_over = true;
        Ok(())
    }

    // Reads

    fn read(&self, mut request: Request) -> Submission {
        let Shared { table, claims, .. } = self.shared();
        let blocks = blocks_of(&request);
        let pages = table.layout().pages_of(&blocks);
        if !Self::is_aligned(&request) || !table.try_hold(pages.clone()) {
            let queue = self.clone();
            return Submission::pending(async move { queue.read_long(request).await });
        }
        let is_empty = blocks.clone().all(|block| table.get(block) == NEVER) && !table.has_doubt(&pages);
        table.release(pages);
        if is_empty {
            request.buffer.fill(0);
            return request.succeed().into();
        }
        let stamp = claims.stamp(&blocks);
        let context = request.context;
        match &self.0.io.copies {
            None => match self.0.io.queue.submit(self.below(request)).try_take() {
                Ok(completion) => self.compare(blocks, 0, stamp, Completion { context, ..completion }),
                Err(submission) => {
                    let queue = self.clone();
                    Submission::pending(async move {
                        let completion = Completion { context, ..submission.await };
                        queue.compare(blocks, 0, stamp, completion).await
                    })
                }
            },
            Some(copies) => {
                let request = self.below(request);
                let (length, copy) = (request.length, copies.choose(request.offset, request.length));
                match copies.submit_to(copy, request).try_take() {
                    Ok(completion) => self.compare(blocks, copy, stamp, Completion { context, ..completion }),
                    Err(submission) => {
                        let queue = self.clone();
                        Submission::pending(async move {
                            let completion = queue.io().in_time(submission, length as usize, context).await;
                            queue.compare(blocks, copy, stamp, completion).await
                        })
                    }
                }
            }
        }
    }

    /// The checksum of a block, unless that is as its entry says; `known` if it was computed before. A block without an entry is filled
    /// with zeros.
    fn wrong(&self, block: u64, bytes: &mut [u8], known: Option<u128>) -> Option<u128> {
        let table = &self.shared().table;
        let entry = table.get(block);
        let sum = |bytes: &[u8]| known.unwrap_or_else(|| self.shared().kind.entry_of(bytes));
        if entry != NEVER {
            let sum = sum(bytes);
            return (sum != entry).then_some(sum);
        }
        // Believed only while its page is held.
        let page = table.layout().place(block).0;
        if !table.try_hold(page..page + 1) {
            return Some(sum(bytes));
        }
        let is_never = table.get(block) == NEVER && !table.legal(block).may_be_torn;
        table.release(page..page + 1);
        if is_never {
            bytes.fill(0);
            return None;
        }
        Some(sum(bytes))
    }

    /// Compares what came up with its checksums.
    fn compare(
        &self,
        blocks: Range<u64>,
        copy: usize,
        stamp: Option<Stamp>,
        mut completion: Completion,
    ) -> Submission {
        let counts = &self.shared().counts;
        let mut wrong = None;
        if completion.result.is_ok() {
            for (block, bytes) in blocks.clone().zip(completion.buffer.chunks_exact_mut(BLOCK)) {
                if let Some(sum) = self.wrong(block, bytes, None) {
                    wrong = Some((block, sum));
                    break;
                }
            }
            if wrong.is_none() {
                add(&counts.verified, blocks.end - blocks.start);
                return completion.into();
            }
        }
        let queue = self.clone();
        Submission::pending(async move {
            // Nobody wrote meanwhile, so what was read is what the copy has.
            let is_true = stamp.is_some() && queue.shared().claims.stamp(&blocks) == stamp;
            let first = wrong.map_or(blocks.start, |(block, _)| block);
            let context = completion.context;
            let is_read = completion.result.is_ok();
            let is_late = matches!(&completion.result, Err(error) if error.kind() == ErrorKind::TimedOut);
            // The error of a request of several blocks may be that of any of them.
            let fails = !is_read && blocks.end - blocks.start == 1 && queue.io().copies.is_some();
            let mut result = Ok(());
            for block in first..blocks.end {
                let at = (block - blocks.start) as usize * BLOCK;
                let bytes = &mut completion.buffer[at..at + BLOCK];
                let known = wrong.filter(|(first, _)| *first == block).map(|(_, sum)| sum);
                let sum = if is_read { queue.wrong(block, bytes, known) } else { None };
                if is_read && sum.is_none() {
                    continue;
                }
                let first = match sum {
                    Some(sum) if is_true => First::Has(copy, Buffer::copy_of(bytes), sum),
                    Some(_) => First::Suspect(copy),
                    None if is_late => First::IsLate(copy),
                    None if fails && is_true => First::Fails(copy),
                    None => First::Suspect(copy),
                };
                let _claim = queue.shared().claims.claim(block..block + 1).await;
                match queue.right_block(block, first, context).await {
                    Ok(right) => bytes.copy_from_slice(&right),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            add(&queue.shared().counts.verified, blocks.end - blocks.start);
            Completion { result, buffer: completion.buffer, context }
        })
    }

    /// A read of parts of blocks, or of blocks whose checksums have to be loaded.
    async fn read_long(&self, mut request: Request) -> Completion {
        let blocks = blocks_of(&request);
        let (table, context) = (&self.shared().table, request.context);
        let pages = table.layout().pages_of(&blocks);
        // A few pages at a time, however large the request is.
        for page in pages {
            let entries = table.layout().entries_of(page);
            let blocks = blocks.start.max(entries.start)..blocks.end.min(entries.end);
            if let Err(error) = table.hold(self.io(), page..page + 1, context).await {
                return request.fail(error);
            }
            let length = (blocks.end - blocks.start) as usize * BLOCK;
            let read =
                Request::read(blocks.start * BLOCK_BYTES, Buffer::stale(length), self.io().child(context));
            let completion = self.read(read).await;
            table.release(page..page + 1);
            if let Err(error) = completion.result {
                return request.fail(error);
            }
            let (start, end) = (blocks.start * BLOCK_BYTES, blocks.end * BLOCK_BYTES);
            let (from, to) = (request.offset.max(start), request.end().min(end));
            let (into, at) = ((from - request.offset) as usize, (from - start) as usize);
            let count = (to - from) as usize;
            request.buffer[into..into + count].copy_from_slice(&completion.buffer[at..at + count]);
        }
        request.succeed()
    }
}

/// The blocks that a request touches.
fn blocks_of(request: &Request) -> Range<u64> {
    request.offset / BLOCK_BYTES..request.end().div_ceil(BLOCK_BYTES)
}

impl Writing {
    /// The data are below.
    fn succeed(mut self) {
        let table = &self.queue.shared().table;
        for (block, entry) in self.blocks.clone().zip(&self.entries) {
            table.set(block, *entry);
        }
        self.is_over = true;
    }

    /// The write failed: each block is looked at, as it may be old or new. What is neither stays wrong until it is written.
    async fn fail(self, completion: Completion, context: Context) -> Completion {
        let queue = self.queue.clone();
        for (block, entry) in self.blocks.clone().zip(&self.entries) {
            queue.shared().table.also_legal(block, *entry);
            // Takes the side of what is there; without success both stay right.
            let _ = queue.right_block(block, First::Nothing, context).await;
        }
        let mut writing = self;
        writing.is_over = true;
        Completion { context, ..completion }
    }
}

impl Queue for ChecksumQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.shared().info.check(&request) {
            return request.fail(error).into();
        }
        if request.length == 0 && request.operation != Operation::Flush {
            return request.succeed().into();
        }
        match request.operation {
            Operation::Read => self.read(request),
            Operation::Write { fua } => self.write(request, fua),
            Operation::Flush => {
                let queue = self.clone();
                Submission::pending(async move {
                    match queue.shared().table.flush(queue.io(), request.context).await {
                        Ok(()) => request.succeed(),
                        Err(error) => request.fail(error),
                    }
                })
            }
            Operation::Discard | Operation::WriteZeroes => {
                let queue = self.clone();
                Submission::pending(async move {
                    let frees = request.operation == Operation::Discard;
                    match queue.clear(request.offset..request.end(), frees, request.context).await {
                        Ok(()) => request.succeed(),
                        Err(error) => request.fail(error),
                    }
                })
            }
        }
    }
}
