//! A member that was away or is new gets what it has missed: verified, while the device is in use, without what was never
//! written.

use std::ops::Range;
use std::time::Duration;

use rotproof_block::ability;
use rotproof_block::{Buffer, Context, Error, ErrorKind, Origin, Result, Runtime};

use super::ChecksumDevice;
use super::kind::NEVER;
use super::queue::ChecksumQueue;
use super::repair::First;
use super::scrub::Scrub;
use crate::copies::{CopyQueue, Members};
use crate::io::{TRIES, TRY_AGAIN};
use crate::table::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes that are rebuilt at once, kept from others for so long: a multiple of what members note as missed.
const CHUNK_BYTES: u64 = 1 << 20;

/// What a rebuild has done. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes written to members that had missed them.
    pub written: u64,
    /// Bytes left out, as they were never written.
    pub left_out: u64,
    /// Bytes of which there is no right copy.
    pub lost: u64,
    /// Bytes that are still missed: a member did not take them, or somebody said to stop.
    pub remaining: u64,
}

impl ChecksumDevice {
    /// Brings all members up to date that have missed something. `progress` is told after each part, and says whether to go
    /// on; what is done stays done. Others may use the device meanwhile.
    ///
    /// Fails with [`ErrorKind::Unsupported`] if the device below has no members.
    pub async fn rebuild(
        &self,
        runtime: &Runtime,
        bytes_per_second: Option<u64>,
        mut progress: impl FnMut(Scrub) -> bool,
    ) -> Result<RebuildReport> {
        let queue = self.queue(runtime)?;
        let members = ability::find::<dyn Members>(&*self.below);
        let (Some(members), Some(copies)) = (members, queue.io().copies.clone()) else {
            return Err(Error::new(ErrorKind::Unsupported, "the device below has no members to rebuild"));
        };
        let context = Context { origin: Origin::Rebuild, ..Context::default() };
        let size = self.below.info().size;
        let ranges = members.to_rebuild();
        let length = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum();
        let mut scrub = Scrub { of: length(&ranges), ..Scrub::default() };
        let mut report = RebuildReport::default();
        let began = runtime.now();
        'all: for range in ranges {
            let mut at = range.start / CHUNK_BYTES * CHUNK_BYTES;
            while at < range.end {
                let chunk = at..(at + CHUNK_BYTES).min(size);
                queue.rebuild_chunk(&*copies, chunk.clone(), &mut report, context).await?;
                scrub.done += chunk.end.min(range.end) - at.max(range.start);
                (at, scrub.position) = (chunk.end, chunk.end);
                if !progress(scrub) {
                    break 'all;
                }
                if let Some(rate) = bytes_per_second.filter(|rate| *rate > 0) {
                    let due = Duration::from_secs_f64(report.written as f64 / rate as f64);
                    runtime.sleep_until(began.after(due)).await;
                }
            }
        }
        report.remaining = length(&members.to_rebuild());
        Ok(report)
    }
}

impl ChecksumQueue {
    /// Writes a part of the device below to the copies that have missed something of it.
    async fn rebuild_chunk(
        &self,
        copies: &dyn CopyQueue,
        chunk: Range<u64>,
        report: &mut RebuildReport,
        context: Context,
    ) -> Result<()> {
        let length = chunk.end - chunk.start;
        let behind: Vec<usize> =
            (0..self.io().copy_count).filter(|copy| !copies.is_current(*copy, chunk.start, length)).collect();
        if behind.is_empty() {
            return Ok(());
        }
        let data_at = self.shared().data_at;
        let (table, layout) = (&self.shared().table, *self.shared().table.layout());
        let first = chunk.start.max(data_at).saturating_sub(data_at) / BLOCK_BYTES;
        let end = (chunk.end.saturating_sub(data_at) / BLOCK_BYTES).min(layout.entries);
        let blocks = first..end.max(first);
        let _claim = self.shared().claims.claim(blocks.clone()).await;
        let pages = layout.pages_of(&blocks);
        table.hold(self.io(), pages.clone(), context).await?;
        let excluded = match chunk.start < data_at {
            true => Some(table.exclude().await),
            false => None,
        };
        let result = self.rebuild_parts(&behind, &chunk, blocks, report, context).await;
        table.release(pages);
        drop(excluded);
        for copy in behind {
            if result.as_ref().is_ok_and(|failed| !failed.contains(&copy)) {
                copies.set_current(copy, chunk.start, length);
            }
        }
        result.map(drop)
    }

    /// As [`Self::right_block`], tried again while a medium refuses it: what cannot be had counts as lost, and the member that has it may be
    /// let go.
    async fn right_block_again(&self, block: u64, context: Context) -> Result<Buffer> {
        let mut tried = 0;
        loop {
            let right = self.right_block(block, First::Nothing, context).await;
            tried += 1;
            match right {
                Err(error) if error.kind() == ErrorKind::Medium && tried <= TRIES => {
                    self.io().runtime.sleep(TRY_AGAIN).await;
                }
                right => return right,
            }
        }
    }

    /// The copies that did not take all.
    async fn rebuild_parts(
        &self,
        behind: &[usize],
        chunk: &Range<u64>,
        blocks: Range<u64>,
        report: &mut RebuildReport,
        context: Context,
    ) -> Result<Vec<usize>> {
        let data_at = self.shared().data_at;
        let mut failed = Vec::new();
        let metadata = chunk.start..chunk.end.min(data_at);
        if metadata.start < metadata.end {
            // What it holds has sums of its own, and each part of it has a second copy.
            let length = (metadata.end - metadata.start) as usize;
            let bytes = self.io().read(metadata.start, length, context).await?;
            for copy in behind {
                report.written += length as u64;
                let data = Buffer::copy_of(&bytes);
                if self.io().write_copy(*copy, metadata.start, data, context).await.is_err() {
                    failed.push(*copy);
                }
            }
        }
        let table = &self.shared().table;
        for copy in behind {
            let empty: Vec<u64> = blocks.clone().filter(|block| table.get(*block) == NEVER).collect();
            for run in empty.chunk_by(|one, next| one + 1 == *next) {
                let (at, length) = (data_at + run[0] * BLOCK_BYTES, run.len() as u64 * BLOCK_BYTES);
                if self.io().clear_copy(*copy, at, length, context).await.is_err() {
                    failed.push(*copy);
                }
            }
        }
        let (mut run, mut bytes) = (blocks.start, Vec::new());
        for block in blocks.start..=blocks.end {
            let is_content = block < blocks.end && table.get(block) != NEVER;
            let right = match is_content {
                true => self.right_block_again(block, context).await,
                false => Err(Error::medium()),
            };
            if let Err(error) = &right
                && is_content
                && error.kind() != ErrorKind::Medium
            {
                // It may be there, and nobody but this rebuild would have written it to them.
                failed.extend_from_slice(behind);
            }
            if let Ok(right) = &right {
                if bytes.is_empty() {
                    run = block;
                }
                bytes.extend_from_slice(right);
            }
            report.lost += if is_content && right.is_err() { BLOCK_BYTES } else { 0 };
            report.left_out += if block < blocks.end && !is_content { BLOCK_BYTES } else { 0 };
            if right.is_err() && !bytes.is_empty() {
                for copy in behind {
                    report.written += bytes.len() as u64;
                    let data = Buffer::copy_of(&bytes);
                    let at = data_at + run * BLOCK_BYTES;
                    if self.io().write_copy(*copy, at, data, context).await.is_err() {
                        failed.push(*copy);
                    }
                }
                bytes.clear();
            }
        }
        debug_assert!(bytes.len() < BLOCK, "the last turn has written the rest");
        Ok(failed)
    }
}
