//! Everything is read and compared, each copy by itself, and what is wrong is mended.

use std::ops::Range;
use std::time::Duration;

use rotproof_block::children::join;
use rotproof_block::{Buffer, Context, Origin, Request, Result, Runtime, Submission};

use super::kind::NEVER;
use super::queue::ChecksumQueue;
use super::repair::First;
use super::{ChecksumDevice, ChecksumReport};
use crate::table::BLOCK_BYTES;
use crate::window::Window;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are read at once.
const CHUNK: u64 = 256;
/// So many of these are under way: a device is never without a request while another part is compared.
const WINDOW: usize = 4;

/// How to go through a device.
#[derive(Clone, Debug, Default)]
pub struct ScrubOptions {
    /// Bytes a second at most; as fast as it goes by default.
    pub bytes_per_second: Option<u64>,
    /// The bytes to go through; all of the device if empty.
    pub ranges: Vec<Range<u64>>,
}

/// How far a scrub has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// The byte up to which all is done: where to go on after a stop.
    pub position: u64,
    /// Bytes done, those left out included that were never written.
    pub done: u64,
    /// Bytes to do.
    pub of: u64,
}

/// What a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes that were read, of all copies together.
    pub read: u64,
    /// Bytes left out, as they were never written.
    pub left_out: u64,
    /// Pages of checksums, and states of them, of which a copy was wrong, and that were written again.
    pub metadata: u64,
    /// What was wrong and what became of it, since the scrub began; reads of others at the time are counted with it.
    pub found: ChecksumReport,
}

impl ChecksumDevice {
    /// Reads every copy of every block that was ever written, compares it with its checksum, and mends it. `progress` is told
    /// after each part, and says whether to go on. Others may use the device meanwhile.
    ///
    /// Fails if the device does; blocks that are lost do not make it fail, they are reported.
    pub async fn scrub(
        &self,
        runtime: &Runtime,
        options: &ScrubOptions,
        mut progress: impl FnMut(Scrub) -> bool,
    ) -> Result<ScrubReport> {
        let queue = self.queue(runtime)?;
        let context = Context { origin: Origin::Scrub, ..Context::default() };
        let in_doubt = self.shared.table.in_doubt();
        let before = self.report();
        let all = 0..self.shared.info.size;
        let ranges = if options.ranges.is_empty() { std::slice::from_ref(&all) } else { &options.ranges[..] };
        let mut scrub =
            Scrub { of: ranges.iter().map(|range| range.end - range.start).sum(), ..Scrub::default() };
        let mut report = ScrubReport::default();
        let began = runtime.now();
        for range in ranges {
            let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
            // Whoever wants it slow gets one part after the other.
            let window = if options.bytes_per_second.is_some() { 1 } else { WINDOW };
            let mut parts =
                Parts { queue: &queue, context, at: blocks.start, end: blocks.end, under_way: Window::new() };
            while let Some((blocks, read)) = parts.next(window).await {
                let read = match read {
                    Ok(read) => read,
                    Err(error) => {
                        parts.end().await;
                        return Err(error);
                    }
                };
                report.read += read;
                report.left_out += if read == 0 { (blocks.end - blocks.start) * BLOCK_BYTES } else { 0 };
                scrub.position = blocks.end * BLOCK_BYTES;
                scrub.done = done_of(ranges, scrub.position);
                if !progress(scrub) {
                    parts.end().await;
                    report.found = self.report().since(&before);
                    return Ok(report);
                }
                if let Some(rate) = options.bytes_per_second.filter(|rate| *rate > 0) {
                    let due = Duration::from_secs_f64(report.read as f64 / rate as f64);
                    runtime.sleep_until(began.after(due)).await;
                }
            }
        }
        if options.ranges.is_empty() {
            report.metadata = self.shared.table.scrub(queue.io(), context).await?;
        }
        report.found = self.report().since(&before);
        for range in in_doubt {
            let bytes = range.start * BLOCK_BYTES..range.end * BLOCK_BYTES;
            if ranges.iter().any(|done| done.start <= bytes.start && bytes.end <= done.end) {
                queue.end_doubt(&range, context).await?;
            }
        }
        Ok(report)
    }

    /// Looks at all that a crash has left in doubt, so that nothing is any more. It is not needed before the device is used:
    /// each block is looked at when it is read.
    pub async fn resolve(&self, runtime: &Runtime) -> Result<ScrubReport> {
        let blocks = self.shared.table.in_doubt();
        if blocks.is_empty() {
            return Ok(ScrubReport::default());
        }
        let ranges = blocks.iter().map(|range| range.start * BLOCK_BYTES..range.end * BLOCK_BYTES).collect();
        self.scrub(runtime, &ScrubOptions { ranges, ..ScrubOptions::default() }, |_| true).await
    }
}

/// Goes through the parts of a range in their order, of which some are under way at once, so that the devices read while others are
/// compared.
struct Parts<'a> {
    queue: &'a ChecksumQueue,
    context: Context,
    /// The first block that is not begun.
    at: u64,
    end: u64,
    under_way: Window<'a, (Range<u64>, Result<u64>)>,
}

impl Parts<'_> {
    /// The next part, and the bytes that were read of it, with up to `window` under way.
    async fn next(&mut self, window: usize) -> Option<(Range<u64>, Result<u64>)> {
        while self.under_way.len() < window && self.at < self.end {
            let (queue, context, (blocks, is_used)) =
                (self.queue, self.context, self.queue.part_from(self.at, self.end));
            self.at = blocks.end;
            self.under_way.begin(async move {
                let read = if is_used { queue.scrub_part(blocks.clone(), context).await } else { Ok(0) };
                (blocks, read)
            });
        }
        self.under_way.next().await
    }

    /// Lets those under way end, as they hold pages and blocks.
    async fn end(&mut self) {
        while self.under_way.next().await.is_some() {}
    }
}

/// Bytes of these ranges before a position; they are in order.
fn done_of(ranges: &[Range<u64>], position: u64) -> u64 {
    ranges.iter().map(|range| position.clamp(range.start, range.end.max(range.start)) - range.start).sum()
}

impl ChecksumReport {
    /// This and another, of two parts of one device.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            verified: self.verified + other.verified,
            wrong_copies: self.wrong_copies + other.wrong_copies,
            repaired: self.repaired + other.repaired,
            sums_made: self.sums_made + other.sums_made,
            torn: self.torn + other.torn,
            resolved: self.resolved + other.resolved,
            unrecoverable: self.unrecoverable + other.unrecoverable,
            lost: self.lost + other.lost,
            pages_lost: self.pages_lost + other.pages_lost,
            pages_mended: self.pages_mended + other.pages_mended,
            log_lost: self.log_lost + other.log_lost,
            metadata_requests: self.metadata_requests + other.metadata_requests,
        }
    }

    /// What was counted since an earlier report; what is so now is as it is.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        Self {
            verified: self.verified - earlier.verified,
            wrong_copies: self.wrong_copies - earlier.wrong_copies,
            repaired: self.repaired - earlier.repaired,
            sums_made: self.sums_made - earlier.sums_made,
            torn: self.torn - earlier.torn,
            resolved: self.resolved - earlier.resolved,
            unrecoverable: self.unrecoverable - earlier.unrecoverable,
            lost: self.lost,
            pages_lost: self.pages_lost - earlier.pages_lost,
            pages_mended: self.pages_mended - earlier.pages_mended,
            log_lost: self.log_lost - earlier.log_lost,
            metadata_requests: self.metadata_requests - earlier.metadata_requests,
        }
    }
}

impl ChecksumQueue {
    /// Some blocks from `at` on that are gone through at once, and whether any of them may have been written.
    fn part_from(&self, at: u64, end: u64) -> (Range<u64>, bool) {
        let table = &self.shared().table;
        let layout = table.layout();
        let (page, _) = layout.place(at);
        if !table.is_used(layout.granule_of(page)) {
            let pages = layout.pages_in(layout.granule_of(page));
            return (at..layout.entries_of(pages.end - 1).end.min(end), false);
        }
        (at..(at + CHUNK).min(end).min(layout.entries_of(page).end), true)
    }

    /// Goes through blocks of one page. The bytes that were read.
    async fn scrub_part(&self, blocks: Range<u64>, context: Context) -> Result<u64> {
        let table = &self.shared().table;
        let (page, _) = table.layout().place(blocks.start);
        table.hold(self.io(), page..page + 1, context).await?;
        let result = self.scrub_blocks(blocks, context).await;
        table.release(page..page + 1);
        result
    }

    async fn scrub_blocks(&self, blocks: Range<u64>, context: Context) -> Result<u64> {
        let table = &self.shared().table;
        if blocks.clone().all(|block| table.get(block) == NEVER) {
            self.set_current(&blocks);
            return Ok(0);
        }
        let length = (blocks.end - blocks.start) as usize * BLOCK;
        let mut read = 0;
        let mut suspects: Vec<u64> = Vec::new();
        let offset = self.shared().data_at + blocks.start * BLOCK_BYTES;
        let reads = (0..self.io().copy_count).map(|copy| {
            let is_current =
                self.io().copies.as_ref().is_none_or(|copies| copies.is_current(copy, offset, length as u64));
            let request = Request::read(offset, Buffer::stale(length), self.io().child(context));
            match &self.io().copies {
                // What it has is of no interest: it is to be written.
                Some(_) if !is_current => request.fail(rotproof_block::Error::medium()).into(),
                Some(copies) => {
                    let (io, submission) = (self.io().clone(), copies.submit_to(copy, request));
                    Submission::pending(async move { io.in_time(submission, length, context).await })
                }
                None => self.io().queue.submit(request),
            }
        });
        // Both copies at once: they lie on different devices.
        for completion in join(reads.collect()).await {
            let is_read = completion.result.is_ok();
            read += if is_read { length as u64 } else { 0 };
            for (block, bytes) in blocks.clone().zip(completion.buffer.chunks_exact(BLOCK)) {
                let entry = table.get(block);
                if entry != NEVER && !(is_read && self.shared().kind.entry_of(bytes) == entry) {
                    suspects.push(block);
                }
            }
        }
        suspects.sort_unstable();
        suspects.dedup();
        for block in &suspects {
            let _claim = self.shared().claims.claim(*block..*block + 1).await;
            self.mend_all(*block, context).await;
        }
        for block in blocks.filter(|block| suspects.binary_search(block).is_err()) {
            table.settle(block);
        }
        Ok(read)
    }

    /// A granule was gone through: what of it is still in doubt is looked at once more, and is then what it is.
    async fn end_doubt(&self, blocks: &Range<u64>, context: Context) -> Result<()> {
        let table = &self.shared().table;
        for block in blocks.clone() {
            if !table.legal(block).may_be_torn || table.is_lost(block) {
                continue;
            }
            let _claim = self.shared().claims.claim(block..block + 1).await;
            if let Err(error) = self.right_block(block, First::Nothing, context).await
                && !table.is_lost(block)
            {
                // It cannot be read now, so it stays in doubt.
                return Err(error);
            }
        }
        table.end_doubt(blocks);
        Ok(())
    }

    /// Looks at every copy of a block that is claimed, and mends each.
    pub(super) async fn mend_all(&self, block: u64, context: Context) {
        // The first look finds the right one and mends those before it.
        let Ok(right) = self.right_block(block, First::Nothing, context).await else { return };
        let Some(copies) = &self.io().copies else { return };
        if self.shared().table.get(block) == NEVER {
            return;
        }
        let offset = self.shared().data_at + block * BLOCK_BYTES;
        for copy in 0..self.io().copy_count {
            let is_current = copies.is_current(copy, offset, BLOCK_BYTES);
            let has = match is_current {
                true => self.io().read_copy(copy, offset, BLOCK, context).await.ok(),
                false => None,
            };
            if has.is_some_and(|bytes| bytes[..] == right[..]) {
                continue;
            }
            let counts = &self.shared().counts;
            super::add(&counts.wrong_copies, u64::from(is_current));
            match self.io().write_copy(copy, offset, Buffer::copy_of(&right), context).await {
                Ok(()) => {
                    super::add(&counts.repaired, u64::from(is_current));
                    copies.set_current(copy, offset, BLOCK_BYTES);
                }
                Err(_) => copies.set_missed(copy, offset, BLOCK_BYTES),
            }
        }
    }

    /// Blocks without content are the same on all copies, whatever those hold.
    fn set_current(&self, blocks: &Range<u64>) {
        let Some(copies) = &self.io().copies else { return };
        let offset = self.shared().data_at + blocks.start * BLOCK_BYTES;
        for copy in 0..self.io().copy_count {
            copies.set_current(copy, offset, (blocks.end - blocks.start) * BLOCK_BYTES);
        }
    }
}
