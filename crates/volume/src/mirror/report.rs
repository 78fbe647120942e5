//! What a mirror has to tell: what each member is like, and what it has cost so far.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::copies::MemberState;

/// Something that a mirror did or noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorEvent {
    /// What a member could not read has been written again from another.
    Repaired {
        /// The member, from 0.
        member: usize,
        /// Bytes of the mirror.
        range: Range<u64>,
    },
    /// A member has missed a write of what it had not missed before.
    Missed {
        /// The member, from 0.
        member: usize,
        /// Bytes of the mirror.
        range: Range<u64>,
    },
    /// A member does not answer in time, and is asked last for a while.
    Slow {
        /// The member, from 0.
        member: usize,
    },
    /// A member takes no part any more.
    Failed {
        /// The member, from 0.
        member: usize,
        /// Why.
        why: String,
    },
    /// No copy of a range could be read.
    Unreadable {
        /// Bytes of the mirror.
        range: Range<u64>,
    },
}

/// Is told of every event, on the thread where it happens; must not block.
pub type OnEvent = Arc<dyn Fn(&MirrorEvent) + Send + Sync>;

/// What one member has done so far.
#[derive(Debug, Default)]
pub(super) struct MemberCounts {
    pub(super) failed_reads: AtomicU64,
    pub(super) failed_writes: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) repaired_bytes: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// What one member is like, and has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// What it is like.
    pub state: MemberState,
    /// Reads that it answered with an error.
    pub failed_reads: u64,
    /// Writes and flushes that it answered with an error.
    pub failed_writes: u64,
    /// Requests that it did not answer in time.
    pub late: u64,
    /// Bytes that were written again because it could not read them.
    pub repaired_bytes: u64,
}

impl MemberCounts {
    pub(super) fn report(&self, state: MemberState) -> MemberReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemberReport {
            state,
            failed_reads: get(&self.failed_reads),
            failed_writes: get(&self.failed_writes),
            late: get(&self.late),
            repaired_bytes: get(&self.repaired_bytes),
        }
    }
}
