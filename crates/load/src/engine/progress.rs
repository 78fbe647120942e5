//! How far a phase has come, for whoever shows it. Workers publish now and then; nobody waits for anybody.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::LoadOperation;
use super::latencies::{Latencies, LocalLatencies, SharedLatencies};
use super::watch::HungRequest;

/// Operations as progress tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressKind {
    /// Data are read.
    Read,
    /// Data are written.
    Write,
    /// Data are made durable.
    Flush,
    /// Blocks are discarded.
    Discard,
    /// What else is done to files.
    Other,
}

impl ProgressKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [ProgressKind; OPERATIONS] =
        [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::Other];

    /// The word for it in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }
}

impl From<LoadOperation> for ProgressKind {
    fn from(operation: LoadOperation) -> Self {
        match operation {
            LoadOperation::Read => Self::Read,
            LoadOperation::Write => Self::Write,
            LoadOperation::Flush => Self::Flush,
            LoadOperation::Discard => Self::Discard,
        }
    }
}

const OPERATIONS: usize = 5;

/// Counters of one phase. They lag behind by a few requests until the phase has ended.
#[derive(Debug, Default)]
pub struct Progress {
    operations: [Shared; OPERATIONS],
    failures: AtomicU64,
    /// Requests that take too long, of which nobody has heard yet.
    hung: Mutex<Vec<HungRequest>>,
    /// By operation; none if nobody asks for them.
    latencies: Option<Box<[SharedLatencies; OPERATIONS]>>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
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

/// What a worker has not told yet.
#[derive(Debug, Default)]
pub struct Unpublished {
    operations: [ProgressCounts; OPERATIONS],
    pub(crate) failures: u64,
    /// Of all operations.
    pub(crate) requests: u64,
    latencies: Option<Box<[LocalLatencies; OPERATIONS]>>,
}

impl Progress {
    /// One that also keeps latencies, which takes a nanosecond or two of each request.
    pub fn with_latencies() -> Self {
        Self { latencies: Some(Box::default()), ..Self::default() }
    }

    /// The counters now.
    pub fn counts(&self) -> ProgressCounts {
        let mut sum =
            ProgressCounts { failures: self.failures.load(Ordering::Relaxed), ..Default::default() };
        for operation in ProgressKind::ALL {
            let counts = self.counts_of(operation);
            sum.requests += counts.requests;
            sum.bytes += counts.bytes;
            sum.errors += counts.errors;
        }
        sum
    }

    /// The counters of one operation now; blocks found wrong belong to none.
    pub fn counts_of(&self, operation: ProgressKind) -> ProgressCounts {
        let shared = &self.operations[operation as usize];
        ProgressCounts {
            requests: shared.requests.load(Ordering::Relaxed),
            bytes: shared.bytes.load(Ordering::Relaxed),
            errors: shared.errors.load(Ordering::Relaxed),
            failures: 0,
        }
    }

    /// The latencies of one operation so far, the ramp-up's among them; none if they are not kept.
    pub fn latencies_of(&self, operation: ProgressKind) -> Option<Latencies> {
        self.latencies.as_ref().map(|latencies| latencies[operation as usize].read())
    }

    /// Requests that have been under way for too long, each once.
    pub fn take_hung(&self) -> Vec<HungRequest> {
        std::mem::take(&mut *self.hung.lock())
    }

    #[cold]
    pub(crate) fn tell_of_hung(&self, hung: HungRequest) {
        self.hung.lock().push(hung);
    }

    /// Back to zero, for the next phase.
    pub fn reset(&self) {
        for shared in &self.operations {
            for counter in [&shared.requests, &shared.bytes, &shared.errors] {
                counter.store(0, Ordering::Relaxed);
            }
        }
        self.failures.store(0, Ordering::Relaxed);
        self.latencies.iter().flat_map(|latencies| latencies.iter()).for_each(SharedLatencies::reset);
    }

    /// What a worker keeps until it tells.
    pub fn unpublished(&self) -> Unpublished {
        Unpublished { latencies: self.latencies.as_ref().map(|_| Box::default()), ..Unpublished::default() }
    }

    /// Adds what others count, such as workers on another machine; failures belong to no operation.
    pub fn add(&self, operation: ProgressKind, counts: ProgressCounts) {
        let shared = &self.operations[operation as usize];
        shared.requests.fetch_add(counts.requests, Ordering::Relaxed);
        shared.bytes.fetch_add(counts.bytes, Ordering::Relaxed);
        shared.errors.fetch_add(counts.errors, Ordering::Relaxed);
        self.failures.fetch_add(counts.failures, Ordering::Relaxed);
    }

    /// Takes what a worker has to tell.
    pub fn publish(&self, unpublished: &mut Unpublished) {
        for (shared, counts) in self.operations.iter().zip(&mut unpublished.operations) {
            for (counter, count) in [
                (&shared.requests, &mut counts.requests),
                (&shared.bytes, &mut counts.bytes),
                (&shared.errors, &mut counts.errors),
            ] {
                if *count > 0 {
                    counter.fetch_add(std::mem::take(count), Ordering::Relaxed);
                }
            }
        }
        self.failures.fetch_add(std::mem::take(&mut unpublished.failures), Ordering::Relaxed);
        unpublished.requests = 0;
        if let (Some(shared), Some(local)) = (&self.latencies, &mut unpublished.latencies) {
            shared.iter().zip(local.iter_mut()).for_each(|(shared, local)| shared.take(local));
        }
    }
}

impl Unpublished {
    /// Counts a request that has completed; `bytes` only if it did well.
    #[inline]
    pub fn count(&mut self, operation: ProgressKind, latency_ns: u64, bytes: u64, is_error: bool) {
        self.requests += 1;
        let counts = &mut self.operations[operation as usize];
        counts.requests += 1;
        if is_error {
            counts.errors += 1;
        } else {
            counts.bytes += bytes;
        }
        if let Some(latencies) = &mut self.latencies {
            latencies[operation as usize].record(latency_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_counted_once_and_by_operation() {
        let progress = Progress::with_latencies();
        let mut worker = progress.unpublished();
        worker.count(ProgressKind::Read, 1000, 4096, false);
        worker.count(ProgressKind::Read, 3000, 4096, true);
        worker.count(ProgressKind::Write, 500, 8192, false);
        worker.failures += 1;
        assert_eq!(progress.counts(), ProgressCounts::default(), "nothing has been told yet");
        progress.publish(&mut worker);
        progress.publish(&mut worker);
        let wanted = ProgressCounts { requests: 3, bytes: 4096 + 8192, errors: 1, failures: 1 };
        assert_eq!(progress.counts(), wanted);
        let reads = ProgressCounts { requests: 2, bytes: 4096, errors: 1, failures: 0 };
        assert_eq!(progress.counts_of(ProgressKind::Read), reads);
        let latencies = progress.latencies_of(ProgressKind::Read).expect("they are kept");
        assert_eq!((latencies.count(), latencies.sum_ns()), (2, 4000));
        progress.reset();
        assert_eq!(progress.counts(), ProgressCounts::default());
        assert_eq!(progress.latencies_of(ProgressKind::Read).map(|latencies| latencies.count()), Some(0));
        assert!(Progress::default().latencies_of(ProgressKind::Read).is_none());
    }
}
