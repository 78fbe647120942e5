//! What may be right beside that which an entry says: after a crash, and after a write that failed.
//!
//! A crash leaves the granules in doubt that were marked: each of their blocks may be as it was flushed last, as any later
//! write made it, or torn between the two. A block that was seen to be right, or written since, is in doubt no more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// What a block may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Legal {
    /// Other values that are as right as that of the entry, the newest first.
    pub also: Vec<u128>,
    /// Values that it had before a later one was durable: a copy like that has lost a write, or somebody has written the
    /// same once more.
    pub stale: Vec<u128>,
    /// It may have been torn by a crash, so that it holds what nobody wrote.
    pub may_be_torn: bool,
}

#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Whether there is anything in here.
    any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    granules: BTreeSet<u64>,
    /// Entries of these granules that are in doubt no more.
    settled: HashSet<u64>,
    legal: HashMap<u64, Legal>,
}

impl Doubts {
    /// Puts a whole granule in doubt.
    pub(super) fn begin(&self, granule: u64) {
        self.inner.lock().granules.insert(granule);
        self.any.store(true, Ordering::Release);
    }

    /// The granules in doubt.
    pub(super) fn granules(&self) -> BTreeSet<u64> {
        self.inner.lock().granules.clone()
    }

    pub(super) fn has(&self, granule: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.inner.lock().granules.contains(&granule)
    }

    /// Says what else an entry in doubt may be.
    pub(super) fn put(&self, entry: u64, also: Vec<u128>, stale: Vec<u128>) {
        let mut inner = self.inner.lock();
        if !inner.settled.contains(&entry) {
            inner.legal.insert(entry, Legal { also, stale, may_be_torn: false });
            self.any.store(true, Ordering::Release);
        }
    }

    /// A value more that is right from now on.
    pub(super) fn add(&self, entry: u64, value: u128) {
        self.inner.lock().legal.entry(entry).or_default().also.insert(0, value);
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn legal(&self, granule: u64, entry: u64) -> Legal {
        if !self.any.load(Ordering::Acquire) {
            return Legal::default();
        }
        let inner = self.inner.lock();
        let may_be_torn = inner.granules.contains(&granule) && !inner.settled.contains(&entry);
        Legal { may_be_torn, ..inner.legal.get(&entry).cloned().unwrap_or_default() }
    }

    pub(super) fn settle(&self, granule: u64, entry: u64) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut inner = self.inner.lock();
        inner.legal.remove(&entry);
        if inner.granules.contains(&granule) {
            inner.settled.insert(entry);
        }
        let any = !inner.granules.is_empty() || !inner.legal.is_empty();
        self.any.store(any, Ordering::Release);
    }

    /// A granule is in doubt no more.
    pub(super) fn end(&self, granule: u64) {
        let mut inner = self.inner.lock();
        inner.granules.remove(&granule);
        if inner.granules.is_empty() {
            inner.settled = HashSet::new();
        }
        let any = !inner.granules.is_empty() || !inner.legal.is_empty();
        self.any.store(any, Ordering::Release);
    }
}
