//! What is being written is marked on record before, so that after a loss of power it is known where copies may differ.
//!
//! A region that is marked costs a write two additions. A mark goes away once a flush has come after the last write of its
//! region; on the members that shows with the next record, and until then a region too many is made equal.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{Device, DeviceInfo, Operation, Queue, Request, Result, Runtime, Submission};

use super::book::{Book, MARKED, TOUCHED};
use crate::copies::Copies;

/// Every so many flushes it is looked which marks can go.
const FLUSHES: u64 = 16;

/// A mirror whose writes are marked.
pub(super) struct IntentDevice {
    below: Arc<dyn Device>,
    shared: Arc<Shared>,
}

struct Shared {
    book: Arc<Book>,
    mirror: usize,
    regions: Arc<[AtomicU32]>,
    info: DeviceInfo,
    flushes: AtomicU64,
    /// Somebody looks which marks can go; two would take each other's writes for their own.
    is_looked_at: AtomicBool,
}

impl IntentDevice {
    pub(super) fn new(below: Arc<dyn Device>, book: &Arc<Book>, mirror: usize) -> Arc<Self> {
        let shared = Shared {
            book: Arc::clone(book),
            mirror,
            regions: Arc::clone(&book.regions[mirror]),
            info: below.info(),
            flushes: AtomicU64::new(0),
            is_looked_at: AtomicBool::new(false),
        };
        Arc::new(Self { below, shared: Arc::new(shared) })
    }
}

impl Device for IntentDevice {
    fn info(&self) -> DeviceInfo {
        self.shared.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.below.open_queue(runtime)?;
        Ok(Rc::new(IntentQueue { below, shared: Arc::clone(&self.shared), runtime: runtime.clone() }))
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        // Whoever writes to a copy would do so without a mark.
        if wanted.is::<dyn Copies>() { None } else { self.below.ability(wanted) }
    }
}

impl fmt::Debug for IntentDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IntentDevice({})", self.shared.mirror)
    }
}

struct IntentQueue {
    below: Rc<dyn Queue>,
    shared: Arc<Shared>,
    runtime: Runtime,
}

/// A write that is under way in some regions, as long as it lives.
struct Writing {
    shared: Arc<Shared>,
    regions: Range<u64>,
}

impl Writing {
    /// Begins; whether all its regions are marked.
    fn begin(shared: &Arc<Shared>, regions: Range<u64>) -> (Self, bool) {
        let mut is_marked = true;
        for region in regions.clone() {
            is_marked &= shared.regions[region as usize].fetch_add(1, Ordering::AcqRel) & MARKED != 0;
        }
        (Self { shared: Arc::clone(shared), regions }, is_marked)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        for region in self.regions.clone() {
            let region = &self.shared.regions[region as usize];
            // Only then is it clear that a flush which comes now takes it along.
            region.fetch_or(TOUCHED, Ordering::AcqRel);
            region.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Queue for IntentQueue {
    fn submit(&self, request: Request) -> Submission {
        if self.shared.info.check(&request).is_err() || request.length == 0 && request.operation.is_mutation()
        {
            return self.below.submit(request);
        }
        if request.operation == Operation::Flush {
            return self.flush(request);
        }
        if !request.operation.is_mutation() {
            return self.below.submit(request);
        }
        let regions = self.shared.book.regions_of(&(request.offset..request.end()));
        let (writing, is_marked) = Writing::begin(&self.shared, regions.clone());
        if is_marked {
            return match self.below.submit(request).try_take() {
                Ok(completion) => completion.into(),
                Err(submission) => Submission::pending(async move {
                    let completion = submission.await;
                    drop(writing);
                    completion
                }),
            };
        }
        let (shared, runtime, below) =
            (Arc::clone(&self.shared), self.runtime.clone(), Rc::clone(&self.below));
        Submission::pending(async move {
            if let Err(error) = shared.book.intend(&runtime, shared.mirror, regions).await {
                return request.fail(error);
            }
            let completion = below.submit(request).await;
            drop(writing);
            completion
        })
    }
}

impl IntentQueue {
    fn flush(&self, request: Request) -> Submission {
        let number = self.shared.flushes.fetch_add(1, Ordering::Relaxed) + 1;
        if !number.is_multiple_of(FLUSHES) || self.shared.is_looked_at.swap(true, Ordering::AcqRel) {
            return self.below.submit(request);
        }
        for region in self.shared.regions.iter() {
            if region.load(Ordering::Relaxed) & TOUCHED != 0 {
                region.fetch_and(!TOUCHED, Ordering::AcqRel);
            }
        }
        let looking = Looking(Arc::clone(&self.shared));
        let (submission, shared) = (self.below.submit(request), Arc::clone(&self.shared));
        Submission::pending(async move {
            let completion = submission.await;
            if completion.result.is_ok() {
                for region in shared.regions.iter() {
                    // Neither under way nor written since the flush was sent.
                    let _ = region.compare_exchange(MARKED, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
            drop(looking);
            completion
        })
    }
}

/// It is being looked which marks can go, until this is dropped.
struct Looking(Arc<Shared>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.is_looked_at.store(false, Ordering::Release);
    }
}
