//! Brings members up to date with what they have missed, while the mirror is in use.
//!
//! For a mirror without checksums above: it copies from a member that is current, which it believes. Each piece is copied with
//! writes kept away, and then counts as no longer missed; so a rebuild that ends early goes on where it was.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use rotproof_block::{Buffer, Context, Origin, Request, Result, Runtime, Time};

use super::queue_state::QueueState;
use super::report::add;
use super::{MirrorDevice, missed::GRANULE_BYTES};

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 16 * GRANULE_BYTES;
/// How often a piece that somebody is in the way of is tried again, and how long after.
const TRIES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// How fast work in the background may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes that may be copied or compared in a second; as fast as it goes if none.
    pub bytes_per_second: Option<u64>,
}

/// How far work in the background has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes that there were to be done when it began.
    pub total_bytes: u64,
}

/// What came of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// What could not be copied: no current member could read it, or the member did not take it. It still counts as missed.
    pub left: Vec<Left>,
}

/// What a member still lacks after a rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The member, from 0.
    pub member: usize,
    /// Bytes of the mirror.
    pub range: Range<u64>,
}

/// Keeps work to its pace.
pub(super) struct Pacer {
    runtime: Runtime,
    bytes_per_second: Option<u64>,
    due: Time,
}

impl Pacer {
    pub(super) fn new(runtime: &Runtime, pace: Pace) -> Self {
        Self { runtime: runtime.clone(), bytes_per_second: pace.bytes_per_second, due: runtime.now() }
    }

    /// Waits until so many more bytes may have been done.
    pub(super) async fn done(&mut self, bytes: u64) {
        let Some(per_second) = self.bytes_per_second else { return };
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.max(1));
        let duration = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        // Time in which nothing was done is not made up for.
        self.due = self.due.max(self.runtime.now()).after(duration);
        self.runtime.sleep_until(self.due).await;
    }
}

/// What became of a piece.
enum Outcome {
    Copied,
    /// It may work later.
    InTheWay,
    Left,
}

impl MirrorDevice {
    /// Copies to every member that takes part what it has missed. `progress` is told after each piece.
    ///
    /// What the members miss while it runs is copied too. Fails if no queue can be opened; what cannot be copied is in the report.
    pub async fn rebuild(
        &self,
        runtime: &Runtime,
        pace: Pace,
        mut progress: impl FnMut(Progress),
    ) -> Result<RebuildReport> {
        let all = |told| {
            progress(told);
            true
        };
        self.rebuild_while(runtime, pace, all).await
    }

    /// As [`MirrorDevice::rebuild`], until `progress` says not to go on. What is done stays done.
    pub async fn rebuild_while(
        &self,
        runtime: &Runtime,
        pace: Pace,
        mut progress: impl FnMut(Progress) -> bool,
    ) -> Result<RebuildReport> {
        let queue = QueueState::open(&self.state, runtime)?;
        let mut pacer = Pacer::new(runtime, pace);
        let mut report = RebuildReport::default();
        let total_bytes: u64 =
            self.state.slots.iter().filter(|slot| slot.is_active()).map(|slot| slot.missed.bytes()).sum();
        for member in queue.members() {
            let mut at = 0;
            while let Some(run) = self.state.slots[member].missed.next(at) {
                if !self.state.slots[member].is_active() {
                    break;
                }
                let range = run.start..run.end.min(run.start + COPY_BYTES);
                at = range.end.next_multiple_of(GRANULE_BYTES);
                let bytes = range.end - range.start;
                if queue.copy(member, &range, &mut report.left).await {
                    report.copied_bytes += bytes;
                }
                let goes_on = progress(Progress { done_bytes: report.copied_bytes, total_bytes });
                pacer.done(bytes).await;
                if !goes_on {
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    /// Makes all copies of these ranges equal, from the first member that has them: after an end that was not clean, for
    /// what was being written then. Until [`MirrorDevice::rebuild`] has copied it, only that member is read. Which copy was
    /// the better one nobody can tell; no write that was flushed is lost, as every copy has it.
    pub fn resync(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            for granule in super::write::granules(range.start..range.end.min(self.state.info.size)) {
                let current = self.state.current(&granule);
                let Some(first) = current.first() else { continue };
                for member in
                    (0..self.state.slots.len()).filter(|&member| member != first && current.has(member))
                {
                    self.state.note_missed(member, &granule, current);
                }
            }
        }
    }
}

impl QueueState {
    /// Copies a run of granules to a member; whole, or where that fails one by one. Whether it has all of it now.
    async fn copy(self: &Rc<Self>, member: usize, range: &Range<u64>, left: &mut Vec<Left>) -> bool {
        if matches!(self.copy_patiently(member, range).await, Outcome::Copied) {
            return true;
        }
        let mut is_whole = true;
        for granule in super::write::granules(range.clone()) {
            if !matches!(self.copy_patiently(member, &granule).await, Outcome::Copied) {
                left.push(Left { member, range: granule });
                is_whole = false;
            }
        }
        is_whole
    }

    async fn copy_patiently(self: &Rc<Self>, member: usize, range: &Range<u64>) -> Outcome {
        for _ in 0..TRIES {
            match self.copy_now(member, range).await {
                Outcome::InTheWay => self.runtime.sleep(TRY_AGAIN).await,
                outcome => return outcome,
            }
        }
        Outcome::Left
    }

    async fn copy_now(self: &Rc<Self>, member: usize, range: &Range<u64>) -> Outcome {
        let slot = &self.state.slots[member];
        let _closed = self.state.gate.close(range.clone()).await;
        self.look();
        if !slot.missed.touches(range.clone()) {
            return Outcome::Copied;
        }
        if slot.has_stray(range) {
            return Outcome::InTheWay;
        }
        let context =
            Context { origin: Origin::Rebuild, submitted: self.runtime.now(), ..Context::default() };
        let Some(data) = self.read_current(range, context).await else { return Outcome::Left };
        if !self.put(member, range.clone(), data, context).await {
            return Outcome::Left;
        }
        self.state.set_current(member, range.clone());
        Outcome::Copied
    }

    /// What the members that are current have, the first that can read it.
    pub(super) async fn read_current(
        self: &Rc<Self>,
        range: &Range<u64>,
        context: Context,
    ) -> Option<Buffer> {
        let current = self.state.current(range);
        for source in self.members().filter(|&source| current.has(source)) {
            let space = Buffer::stale((range.end - range.start) as usize);
            let request = Request::read(range.start, space, self.children.of(context));
            let (submission, flight) = self.send(source, request);
            match self.within(self.state.options.patience, submission).await {
                Ok(completion) => {
                    self.note(source, true, &completion.result);
                    if completion.result.is_ok() {
                        return Some(completion.buffer);
                    }
                }
                Err(submission) => {
                    add(&self.state.slots[source].counts.late, 1);
                    self.let_go(submission, flight);
                }
            }
        }
        None
    }
}
