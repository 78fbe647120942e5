//! A block whose copies are looked at one by one: which is right, what becomes of the others.
//!
//! | the copies | their checksum | what becomes of it |
//! |---|---|---|
//! | one has it | is right | the others that were seen are written anew |
//! | all the same, none has it | was lost with its page | made anew |
//! | none has it | is right | an error, remembered until the block is written |
//!
//! Source: DARC, the three cases of a mismatch, with one difference. There a checksum that none of two equal copies has is
//! taken for wrong. Here the pages of checksums have checksums themselves; so if the page is whole it is the data that are
//! wrong, however many copies say the same.

use std::ops::Range;

use rotproof_block::{Buffer, Completion, Context, Error, ErrorKind, Request, Result};

use super::add;
use super::kind::{NEVER, UNKNOWN};
use super::queue::ChecksumQueue;
use crate::table::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;

/// What is known of a copy of a block before its copies are looked at.
pub(super) enum First {
    /// Nothing.
    Nothing,
    /// This copy has these bytes, which have this checksum.
    Has(usize, Buffer, u128),
    /// This copy cannot be read.
    Fails(usize),
    /// This copy had something else, or could not be read, as part of a larger request: it is asked first, to be mended.
    Suspect(usize),
    /// This copy is better asked last.
    IsLate(usize),
}

/// A copy of a block, as it was read.
struct Seen {
    copy: usize,
    /// What it has; `None` if it cannot be read.
    bytes: Option<Buffer>,
    entry: u128,
}

impl Seen {
    /// Whether it is what an entry says. A block that was never written holds zeros.
    fn has(&self, entry: u128) -> bool {
        let Some(bytes) = &self.bytes else { return false };
        if entry == NEVER { bytes.iter().all(|byte| *byte == 0) } else { self.entry == entry }
    }
}

impl ChecksumQueue {
    /// A block as it should be, and all its copies that were seen to be otherwise mended. The caller has claimed it; `first`
    /// is what has been seen since nobody else could change it. Fails with [`ErrorKind::Medium`] if no copy is right.
    pub(super) async fn right_block(&self, block: u64, first: First, context: Context) -> Result<Buffer> {
        let table = &self.shared().table;
        let page = table.layout().place(block).0;
        table.hold(self.io(), page..page + 1, context).await?;
        let result = self.right_block_of(block, first, context).await;
        table.release(page..page + 1);
        result
    }

    async fn right_block_of(&self, block: u64, first: First, context: Context) -> Result<Buffer> {
        let (table, kind) = (&self.shared().table, self.shared().kind);
        let entry = table.get(block);
        if entry == NEVER {
            if table.legal(block).may_be_torn {
                self.clear_remains(block, context).await?;
            }
            return Ok(Buffer::zeroed(BLOCK));
        }
        let mut copies: Vec<Seen> = Vec::new();
        let (mut suspect, mut last) = (None, None);
        match first {
            First::Nothing => {}
            First::Suspect(copy) => suspect = Some(copy),
            First::Has(copy, bytes, entry) => copies.push(Seen { copy, entry, bytes: Some(bytes) }),
            First::Fails(copy) => copies.push(Seen { copy, entry: NEVER, bytes: None }),
            First::IsLate(copy) => last = Some(copy),
        }
        let mut failure = None;
        for copy in self.order_of(block, suspect, last) {
            if copies.iter().any(|seen| seen.copy == copy) {
                continue;
            }
            if copies.last().is_some_and(|seen| seen.entry == entry) {
                break;
            }
            let completion = self.read_one(copy, block, context).await;
            let bytes = match completion.result {
                Ok(()) => Some(completion.buffer),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            };
            let entry = bytes.as_ref().map_or(NEVER, |bytes| kind.entry_of(bytes));
            copies.push(Seen { copy, bytes, entry });
        }
        if let Some(at) = copies.iter().position(|seen| seen.bytes.is_some() && seen.entry == entry) {
            table.settle(block);
            if table.is_lost(block) {
                table.set_lost(block, false);
            }
            return self.mend(block, copies, at, context).await;
        }
        self.without_match(block, entry, copies, failure, context).await
    }

    /// Before blocks are written that a crash has left in doubt: their copies become the same, durably. Otherwise one that the crash
    /// left behind could be taken for what the write made of it, should the next crash tear that on all others.
    pub(super) async fn resolve(&self, blocks: &Range<u64>, context: Context) -> Result<()> {
        let table = &self.shared().table;
        let (Some(copies), mut is_changed) = (&self.io().copies, false) else { return Ok(()) };
        for block in blocks.clone().filter(|block| table.legal(*block).may_be_torn) {
            let offset = self.shared().data_at + block * BLOCK_BYTES;
            let (mut first, mut differs): (Option<Buffer>, bool) = (None, false);
            for copy in (0..self.io().copy_count).filter(|copy| copies.is_current(*copy, offset, BLOCK_BYTES))
            {
                let bytes = self.io().read_copy(copy, offset, BLOCK, context).await.ok();
                differs |= match (&first, &bytes) {
                    (_, None) => true,
                    (None, Some(bytes)) => table.get(block) == NEVER && bytes.iter().any(|byte| *byte != 0),
                    (Some(first), Some(bytes)) => first[..] != bytes[..],
                };
                first = first.or(bytes);
            }
            if differs {
                self.mend_all(block, context).await;
                is_changed = true;
            }
        }
        match is_changed {
            true => self.io().flush(context).await,
            false => Ok(()),
        }
    }

    /// No copy has the checksum of the block.
    async fn without_match(
        &self,
        block: u64,
        entry: u128,
        copies: Vec<Seen>,
        failure: Option<Error>,
        context: Context,
    ) -> Result<Buffer> {
        let (table, counts) = (&self.shared().table, &self.shared().counts);
        let legal = table.legal(block);
        // A copy that has missed a write may be as it was before a flush that the others took: what may be right for them is
        // wrong on it. Only the checksum itself would prove it right, and it does not have that.
        let offset = self.shared().data_at + block * BLOCK_BYTES;
        let queue = self.io().copies.as_ref();
        let is_current =
            |seen: &Seen| queue.is_none_or(|queue| queue.is_current(seen.copy, offset, BLOCK_BYTES));
        let find = |is_it: &dyn Fn(&Seen) -> bool| {
            copies.iter().position(|seen| seen.bytes.is_some() && is_current(seen) && is_it(seen))
        };
        let newest = legal.also.iter().find_map(|value| find(&|seen| seen.has(*value)));
        if let Some(at) = newest {
            add(&counts.resolved, 1);
            self.believe(block, copies[at].entry);
            return self.mend(block, copies, at, context).await;
        }
        let readable: Vec<&Seen> = copies.iter().filter(|seen| seen.bytes.is_some()).collect();
        // A copy that is as it was long before may have been written so again, but another is better.
        let is_old = |seen: &Seen| legal.stale.iter().any(|value| seen.has(*value));
        let torn = find(&|seen| !is_old(seen)).or_else(|| find(&|_| true));
        if let Some(at) = torn.filter(|_| legal.may_be_torn && !table.is_lost(block)) {
            // Written and not flushed when the power went: nobody was promised anything, and every mixture is allowed.
            add(&counts.torn, 1);
            self.believe(block, copies[at].entry);
            return self.mend(block, copies, at, context).await;
        }
        let are_same = readable.len() > 1
            && readable.len() == copies.len()
            && readable.iter().all(|seen| seen.entry == readable[0].entry);
        if entry == UNKNOWN && are_same {
            add(&counts.sums_made, 1);
            self.believe(block, copies[0].entry);
            return copies.into_iter().next().and_then(|seen| seen.bytes).ok_or_else(Error::medium);
        }
        add(&counts.unrecoverable, 1);
        match failure {
            // Nobody knows what this copy has.
            Some(error) if readable.len() < copies.len() && error.kind() != ErrorKind::Medium => {
                return Err(Error::new(error.kind(), "no copy of a block can be read").caused_by(error));
            }
            _ => table.set_lost(block, true),
        }
        let context = if readable.is_empty() {
            "no copy of a block can be read"
        } else {
            "no copy of a block has its checksum"
        };
        Err(Error::new(ErrorKind::Medium, context))
    }

    /// A block without content after a crash: what a write has left of itself that was never flushed goes, so that nothing of
    /// it can come up again.
    async fn clear_remains(&self, block: u64, context: Context) -> Result<()> {
        let offset = self.shared().data_at + block * BLOCK_BYTES;
        for copy in 0..self.io().copy_count {
            let read = self.io().read_copy(copy, offset, BLOCK, context).await;
            if read.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
                continue;
            }
            let written = self.io().write_copy(copy, offset, Buffer::zeroed(BLOCK), context).await;
            if let (Err(error), None) = (written, &self.io().copies) {
                return Err(error);
            }
        }
        self.shared().table.settle(block);
        Ok(())
    }

    /// From now on the checksum of a block is that of what it holds.
    fn believe(&self, block: u64, entry: u128) {
        self.shared().table.set(block, entry);
    }

    /// Writes copies that are not as number `at` is, and gives that one's bytes.
    async fn mend(&self, block: u64, mut copies: Vec<Seen>, at: usize, context: Context) -> Result<Buffer> {
        let right = copies.swap_remove(at);
        let Some(bytes) = right.bytes else { return Err(Error::medium()) };
        let counts = &self.shared().counts;
        for wrong in copies.iter().filter(|seen| seen.bytes.is_none() || seen.entry != right.entry) {
            add(&counts.wrong_copies, 1);
            let offset = self.shared().data_at + block * BLOCK_BYTES;
            let written = self.io().write_copy(wrong.copy, offset, Buffer::copy_of(&bytes), context).await;
            let Some(queue) = &self.io().copies else { continue };
            match written {
                Ok(()) => {
                    add(&counts.repaired, 1);
                    queue.set_current(wrong.copy, offset, BLOCK_BYTES);
                }
                Err(_) => queue.set_missed(wrong.copy, offset, BLOCK_BYTES),
            }
        }
        Ok(bytes)
    }

    /// The copies of a block, those first that have missed nothing; `first` before its like, and `last` behind.
    fn order_of(&self, block: u64, first: Option<usize>, last: Option<usize>) -> Vec<usize> {
        let Some(copies) = &self.io().copies else { return vec![0] };
        let offset = self.shared().data_at + block * BLOCK_BYTES;
        let mut order: Vec<usize> = (0..self.io().copy_count).collect();
        order.sort_by_key(|copy| {
            let is_behind = !copies.is_current(*copy, offset, BLOCK_BYTES);
            (is_behind, Some(*copy) != first, Some(*copy) == last)
        });
        order
    }

    async fn read_one(&self, copy: usize, block: u64, context: Context) -> Completion {
        let offset = self.shared().data_at + block * BLOCK_BYTES;
        let request = Request::read(offset, Buffer::stale(BLOCK), self.io().child(context));
        let Some(copies) = &self.io().copies else { return self.io().queue.submit(request).await };
        match copies.submit_to(copy, request).try_take() {
            Ok(completion) => completion,
            Err(submission) => self.io().in_time(submission, BLOCK, context).await,
        }
    }
}
