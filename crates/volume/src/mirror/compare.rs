//! Reads all copies of everything and compares them.
//!
//! What one copy cannot read is written there again from another. Of two copies that differ a mirror without checksums cannot
//! tell which is right: it reports them, and leaves them as they are.

use std::ops::Range;
use std::rc::Rc;

use rotproof_block::{Buffer, Context, Origin, Request, Result, Runtime};

use super::MirrorDevice;
use super::missed::GRANULE_BYTES;
use super::queue_state::QueueState;
use super::rebuild::{Pace, Pacer, Progress};
use super::report::{MirrorEvent, add};
use super::state::Set;
use crate::window::Window;

/// Bytes that are compared at a time.
const COMPARE_BYTES: u64 = 8 * GRANULE_BYTES;
/// So many of these are under way: a device is never without a request while others are compared.
const WINDOW: usize = 4;
/// The unit in which differences are told.
const BLOCK_BYTES: u64 = 4096;
/// How many differences are told one by one.
const DIFFERENCES_MAX: usize = 1000;

/// What comparing all copies found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompareReport {
    /// Bytes of the mirror that were read from every member which takes part and has them.
    pub compared_bytes: u64,
    /// Bytes that a member could not read, and that were written there again.
    pub repaired_bytes: u64,
    /// Bytes that no member could read.
    pub unreadable_bytes: u64,
    /// Blocks of 4 KiB in which copies differ. Which is right, nobody knows here.
    pub differing_blocks: u64,
    /// The first of them, at most a thousand.
    pub differences: Vec<Difference>,
}

/// A block in which copies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Bytes of the mirror.
    pub range: Range<u64>,
    /// The members that differ from the first that was read.
    pub members: Vec<usize>,
}

impl MirrorDevice {
    /// Compares all copies, while the mirror is in use. `progress` is told after each piece. `from` is where to begin: a
    /// comparison that was given up goes on there.
    pub async fn compare(
        &self,
        runtime: &Runtime,
        from: u64,
        pace: Pace,
        mut progress: impl FnMut(Progress),
    ) -> Result<CompareReport> {
        let queue = QueueState::open(&self.state, runtime)?;
        let mut pacer = Pacer::new(runtime, pace);
        let mut report = CompareReport::default();
        let size = self.state.info.size;
        let mut at = from.min(size) / GRANULE_BYTES * GRANULE_BYTES;
        // Whoever wants it slow gets one piece after the other.
        let most = if pace.bytes_per_second.is_some() { 1 } else { WINDOW };
        let mut under_way = Window::new();
        loop {
            while under_way.len() < most && at < size {
                let range = at..(at + COMPARE_BYTES).min(size);
                at = range.end;
                let queue = &queue;
                under_way.begin(async move {
                    let mut found = CompareReport::default();
                    queue.compare(&range, &mut found).await;
                    (range, found)
                });
            }
            let Some((range, found)) = under_way.next().await else { break };
            report.add(found);
            progress(Progress { done_bytes: range.end, total_bytes: size });
            pacer.done(range.end - range.start).await;
        }
        Ok(report)
    }
}

impl CompareReport {
    /// Adds what was found in a later piece.
    fn add(&mut self, later: Self) {
        self.compared_bytes += later.compared_bytes;
        self.repaired_bytes += later.repaired_bytes;
        self.unreadable_bytes += later.unreadable_bytes;
        self.differing_blocks += later.differing_blocks;
        let room = DIFFERENCES_MAX.saturating_sub(self.differences.len());
        self.differences.extend(later.differences.into_iter().take(room));
    }
}

impl QueueState {
    /// Compares a range; block by block where a copy cannot be read as a whole.
    async fn compare(self: &Rc<Self>, range: &Range<u64>, report: &mut CompareReport) {
        let _closed = self.state.gate.close(range.clone()).await;
        self.look();
        if self.compare_once(range, report, false).await {
            return;
        }
        let block = BLOCK_BYTES.max(self.state.info.block_size.into());
        let mut at = range.start;
        while at < range.end {
            let piece = at..(at + block).min(range.end);
            self.compare_once(&piece, report, true).await;
            at = piece.end;
        }
    }

    /// Compares a range that is closed. Gives up if a copy cannot be read, unless it `is_last`.
    async fn compare_once(
        self: &Rc<Self>,
        range: &Range<u64>,
        report: &mut CompareReport,
        is_last: bool,
    ) -> bool {
        let context = Context { origin: Origin::Scrub, submitted: self.runtime.now(), ..Context::default() };
        let current = self.state.current(range);
        let (mut copies, mut unread): (Vec<(usize, Buffer)>, Set) = (Vec::new(), Set::default());
        // All copies at once: they lie on different devices.
        let sent = self.members().filter(|&member| current.has(member)).map(|member| {
            let space = Buffer::stale((range.end - range.start) as usize);
            let request = Request::read(range.start, space, self.children.of(context));
            (member, self.send(member, request))
        });
        for (member, (submission, flight)) in sent.collect::<Vec<_>>() {
            match self.within(self.state.options.patience, submission).await {
                Ok(completion) => {
                    self.note(member, true, &completion.result);
                    match completion.result {
                        Ok(()) => copies.push((member, completion.buffer)),
                        Err(_) => unread = unread.with(member),
                    }
                }
                // One that is slow is not one that is bad.
                Err(submission) => {
                    self.note_late_read(member);
                    self.let_go(submission, flight);
                }
            }
        }
        // Nobody may have all of a range of which everybody has a part.
        if (!unread.is_empty() || copies.is_empty()) && !is_last {
            return false;
        }
        let length = range.end - range.start;
        let Some(((first, data), others)) = copies.split_first() else {
            report.unreadable_bytes += length;
            self.state.tell(&MirrorEvent::Unreadable { range: range.clone() });
            return true;
        };
        report.compared_bytes += length;
        tell_apart(range, data, others, report);
        if self.state.info.read_only {
            return true;
        }
        for member in self.members().filter(|&member| unread.has(member)) {
            let is_active = self.state.slots[member].is_active();
            if is_active
                && member != *first
                && self.put(member, range.clone(), Buffer::copy_of(data), context).await
            {
                report.repaired_bytes += length;
                add(&self.state.slots[member].counts.repaired_bytes, length);
                self.state.tell(&MirrorEvent::Repaired { member, range: range.clone() });
            }
        }
        true
    }
}

/// Notes the blocks of a range in which copies differ from the first.
fn tell_apart(range: &Range<u64>, data: &[u8], others: &[(usize, Buffer)], report: &mut CompareReport) {
    if others.iter().all(|(_, copy)| copy[..] == *data) {
        return;
    }
    let mut at = 0;
    while at < data.len() {
        let block = at..(at + BLOCK_BYTES as usize).min(data.len());
        let differs = |(member, copy): &(usize, Buffer)| {
            (copy[block.clone()] != data[block.clone()]).then_some(*member)
        };
        let members: Vec<usize> = others.iter().filter_map(differs).collect();
        if !members.is_empty() {
            report.differing_blocks += 1;
            if report.differences.len() < DIFFERENCES_MAX {
                let range = range.start + block.start as u64..range.start + block.end as u64;
                report.differences.push(Difference { range, members });
            }
        }
        at = block.end;
    }
}
