//! What is done to a volume that is in use: it is rebuilt, scrubbed, and closed.

use std::future::Future;
use std::ops::Range;
use std::task::Poll;
use std::time::Duration;

use rotproof_block::{
    Buffer, Completion, Context, Device, Error, ErrorKind, Request, Result, Runtime, Submission,
};

use super::{Candidate, Volume};
use crate::checksum::ScrubOptions;
use crate::copies::Members;
use crate::member::{COPY_BYTES, MemberRecord, places};
use crate::mirror::Pace;

/// How often a rebuild puts on record how far it has come.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// How often it is looked whether a version is complete.
const IDLE_INTERVAL: Duration = Duration::from_millis(1);

/// What a rebuild or a scrub of a volume came to. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Copied to members that had missed it.
    pub copied_bytes: u64,
    /// Written again because a copy was wrong or could not be read.
    pub repaired_bytes: u64,
    /// Still missed by a member, or unreadable.
    pub left_bytes: u64,
    /// In which copies differ, and nobody knows which is right, as there are no checksums.
    pub differing_bytes: u64,
}

impl Volume {
    /// Of each member its mirror, and its number there.
    pub(super) fn seats(&self) -> Vec<(usize, usize)> {
        let ways = usize::from(self.book.layout.ways);
        (0..self.names.lock().len()).map(|member| (member / ways, member % ways)).collect()
    }

    /// What a member has missed, in bytes of its data.
    fn missed(&self, member: usize) -> Vec<Range<u64>> {
        let (mirror, number) = self.seats()[member];
        self.mirrors[mirror].as_ref().map_or_else(Vec::new, |mirror| mirror.missed(number))
    }

    /// What each member has missed, in bytes of its data.
    pub(super) fn all_missed(&self) -> Vec<Vec<Range<u64>>> {
        (0..self.seats().len()).map(|member| self.missed(member)).collect()
    }

    /// Puts on record what members have missed now.
    pub(super) async fn record_missed(&self, runtime: &Runtime) -> Result<()> {
        self.book.set_missed(runtime, &|member| self.missed(member)).await
    }

    /// Brings members up to date with what they have missed, while the volume is in use. `progress` is told how many bytes
    /// are done, and of how many. What is done stays done if it is given up, and is on record every few seconds: after a loss of
    /// power it goes on from there.
    pub async fn rebuild(
        &self,
        runtime: &Runtime,
        pace: Pace,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Upkeep> {
        let mut upkeep = Upkeep::default();
        let has_sums = self.book.layout.ways > 1 && !self.checksums.is_empty();
        let parts = if has_sums { self.checksums.len() } else { self.mirrors.iter().flatten().count() };
        // What a crash has left in doubt becomes the same on all members, so that none of them alone has what was believed.
        for checksum in self.checksums.iter().filter(|_| has_sums) {
            let options = ScrubOptions {
                bytes_per_second: pace.bytes_per_second,
                ranges: checksum
                    .in_doubt()
                    .into_iter()
                    .map(|blocks| blocks.start * 4096..blocks.end * 4096)
                    .collect(),
            };
            if !options.ranges.is_empty() {
                checksum.scrub(runtime, &options, |_| true).await?;
            }
        }
        // Of the parts before: bytes that are done.
        let mut before = 0;
        for part in 0..parts {
            loop {
                let (until, mut is_whole, mut done) = (runtime.now().after(RECORD_EVERY), true, 0);
                let left_bytes;
                if has_sums {
                    let told = |scrub: crate::checksum::Scrub| {
                        done = scrub.done;
                        progress(before + scrub.done, before + scrub.of);
                        is_whole = runtime.now() < until;
                        is_whole
                    };
                    let report = self.checksums[part].rebuild(runtime, pace.bytes_per_second, told).await?;
                    upkeep.copied_bytes += report.written;
                    left_bytes = report.lost + report.remaining;
                } else {
                    let Some(mirror) = self.mirrors.iter().flatten().nth(part) else { break };
                    let told = |told: crate::mirror::Progress| {
                        done = told.done_bytes;
                        progress(before + told.done_bytes, before + told.total_bytes);
                        is_whole = runtime.now() < until;
                        is_whole
                    };
                    let report = mirror.rebuild_while(runtime, pace, told).await?;
                    upkeep.copied_bytes += report.copied_bytes;
                    left_bytes = report.left.iter().map(|left| left.range.end - left.range.start).sum();
                }
                before += done;
                if is_whole {
                    upkeep.left_bytes += left_bytes;
                    break;
                }
                // Only what is durable is no longer missed.
                self.flush(runtime).await?;
                self.record_missed(runtime).await?;
            }
        }
        self.flush(runtime).await?;
        self.record_missed(runtime).await?;
        Ok(upkeep)
    }

    /// Reads every copy of everything, puts right what can be, and tells of the rest, while the volume is in use.
    pub async fn scrub(
        &self,
        runtime: &Runtime,
        pace: Pace,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Upkeep> {
        let mut upkeep = Upkeep { repaired_bytes: self.scrub_records(runtime).await?, ..Upkeep::default() };
        if !self.checksums.is_empty() {
            let options = ScrubOptions { bytes_per_second: pace.bytes_per_second, ..ScrubOptions::default() };
            let of = self.checksums.iter().map(|checksum| checksum.info().size).sum();
            let mut before = 0;
            for checksum in &self.checksums {
                let told = |scrub: crate::checksum::Scrub| {
                    progress(before + scrub.done, of);
                    true
                };
                let report = checksum.scrub(runtime, &options, told).await?;
                before += checksum.info().size;
                upkeep.repaired_bytes += (report.found.repaired + report.metadata) * 4096;
                upkeep.left_bytes += report.found.lost * 4096;
            }
            return Ok(upkeep);
        }
        for mirror in self.mirrors.iter().flatten() {
            let report =
                mirror.compare(runtime, 0, pace, |told| progress(told.done_bytes, told.total_bytes)).await?;
            upkeep.repaired_bytes += report.repaired_bytes;
            upkeep.left_bytes += report.unreadable_bytes;
            upkeep.differing_bytes += report.differing_blocks * 4096;
        }
        Ok(upkeep)
    }

    /// Looks at every copy of every record; where one is not whole all are written again. Bytes of those that were not.
    async fn scrub_records(&self, runtime: &Runtime) -> Result<u64> {
        let devices: Vec<_> = self.book.pages.lock().iter().filter_map(|page| page.device.clone()).collect();
        let mut bad = 0;
        for device in devices {
            let queue = device.open_queue(runtime)?;
            for place in places(device.info().size).into_iter().flatten() {
                let read = Request::read(place, Buffer::stale(COPY_BYTES as usize), Context::default());
                let Some(read) = first_of(runtime, self.book.patience, queue.submit(read)).await else {
                    continue;
                };
                let is_whole =
                    read.result.is_ok() && matches!(MemberRecord::decode(&read.buffer, place), Ok(Some(_)));
                bad += u64::from(!is_whole);
            }
        }
        if bad > 0 {
            // An even generation is written to one copy at each end, an odd one to the other.
            for _ in 0..2 {
                self.record_missed(runtime).await?;
            }
        }
        Ok(bad * COPY_BYTES)
    }

    /// Whether a rebuild would find something to do: a member is behind, or a crash has left something in doubt.
    pub fn is_to_rebuild(&self) -> bool {
        let is_behind = self.mirrors.iter().flatten().any(|mirror| !mirror.to_rebuild().is_empty());
        let has_copies = self.book.layout.ways > 1;
        is_behind || has_copies && self.checksums.iter().any(|checksum| !checksum.in_doubt().is_empty())
    }

    pub(super) async fn flush(&self, runtime: &Runtime) -> Result<()> {
        let queue = self.top.open_queue(runtime)?;
        queue.submit(Request::flush(Context::default())).await.result
    }

    /// All is flushed and written back, and no mark left. Nothing may be under way.
    pub(super) async fn settle(&self, runtime: &Runtime) -> Result<()> {
        self.flush(runtime).await?;
        if let Some(versions) = &self.versions {
            versions.settle(runtime).await?;
        }
        for checksum in &self.checksums {
            checksum.settle(runtime).await?;
        }
        self.flush(runtime).await
    }

    /// As [`Volume::close`], once a version that is being captured by itself is complete.
    ///
    /// Fails with [`ErrorKind::TimedOut`] if that takes longer than `patience`.
    pub(crate) async fn close_idle(&self, runtime: &Runtime, patience: Duration) -> Result<()> {
        let end = runtime.now().after(patience);
        while self.versions.as_ref().is_some_and(|versions| versions.is_capturing()) {
            if runtime.now() >= end {
                let context = "a version is being captured, and that does not come to its end";
                return Err(Error::new(ErrorKind::TimedOut, context));
            }
            runtime.sleep(IDLE_INTERVAL).await;
        }
        self.close(runtime).await
    }

    /// Puts on record that it is in use, after it could not be closed.
    pub(crate) async fn set_open(&self, runtime: &Runtime) -> Result<()> {
        self.book.set_open(runtime, true).await
    }

    /// The members that are there, each with its number, then the spares that are.
    pub(crate) fn candidates(&self) -> Vec<(Option<usize>, Candidate)> {
        let names = self.names.lock().clone();
        let pages = self.book.pages.lock().clone();
        let mut all = Vec::new();
        for (number, (name, page)) in names.into_iter().zip(pages).enumerate() {
            if let (Ok(name), Some(device)) = (name, page.device) {
                all.push((Some(number), Candidate { name, device }));
            }
        }
        let spares = self.book.spares.lock().clone();
        all.extend(spares.into_iter().filter_map(|spare| Some((None, spare.candidate?))));
        all
    }

    /// Ends its use in order: all is flushed, and no mark left. Nothing may be under way.
    pub async fn close(&self, runtime: &Runtime) -> Result<()> {
        self.settle(runtime).await?;
        self.book.set_open(runtime, false).await
    }
}

/// An answer, if it comes in time.
async fn first_of(runtime: &Runtime, patience: Duration, submission: Submission) -> Option<Completion> {
    let (mut submission, mut end) = (std::pin::pin!(submission), std::pin::pin!(runtime.sleep(patience)));
    std::future::poll_fn(|task| match submission.as_mut().poll(task) {
        Poll::Ready(completion) => Poll::Ready(Some(completion)),
        Poll::Pending => end.as_mut().poll(task).map(|()| None),
    })
    .await
}
