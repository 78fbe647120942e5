//! How far a phase has come, for whoever shows it. Workers publish now and then; nobody waits for anybody.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one phase. They lag behind by a few requests until the phase has ended.
#[derive(Debug, Default)]
pub struct Progress {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    failures: AtomicU64,
}

/// What [`Progress`] says at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressCounts {
    /// Requests that have completed, flushes among them.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests that completed with an error.
    pub errors: u64,
    /// Blocks found wrong or unreadable.
    pub failures: u64,
}

impl Progress {
    /// The counters now.
    pub fn counts(&self) -> ProgressCounts {
        ProgressCounts {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Back to zero, for the next phase.
    pub fn reset(&self) {
        for counter in [&self.requests, &self.bytes, &self.errors, &self.failures] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, counts: ProgressCounts) {
        self.requests.fetch_add(counts.requests, Ordering::Relaxed);
        self.bytes.fetch_add(counts.bytes, Ordering::Relaxed);
        self.errors.fetch_add(counts.errors, Ordering::Relaxed);
        self.failures.fetch_add(counts.failures, Ordering::Relaxed);
    }
}
