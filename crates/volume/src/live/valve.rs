//! Lets requests through, or holds them while what lies below them is exchanged.
//!
//! Each queue counts its own requests, so that those of two threads share no cache line. Whoever closes the valve raises a flag, then
//! reads all counts; whoever enters counts himself, then reads the flag. One of the two sees the other.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result, Runtime};

/// How many requests of one queue are under way. Alone in its cache line.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Count(AtomicUsize);

/// Open, or closed by one at a time.
#[derive(Default)]
pub(super) struct Valve {
    is_closed: AtomicBool,
    counts: Mutex<Vec<Weak<Count>>>,
    /// Requests that are held.
    held: Mutex<Vec<Waker>>,
    /// Whoever waits until nothing is under way.
    closing: Mutex<Option<Waker>>,
}

impl Valve {
    /// The count of a new queue.
    pub(super) fn count(&self) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let mut counts = self.counts.lock();
        counts.retain(|known| known.strong_count() > 0);
        counts.push(Arc::downgrade(&count));
        count
    }

    /// Lets a request through, if the valve is open. It must [`Valve::leave`].
    pub(super) fn try_enter(&self, count: &Count) -> bool {
        count.0.fetch_add(1, Ordering::SeqCst);
        if !self.is_closed.load(Ordering::SeqCst) {
            return true;
        }
        self.leave(count);
        false
    }

    /// Lets a request through once the valve is open. It must [`Valve::leave`].
    pub(super) async fn enter(&self, count: &Count) {
        poll_fn(|context| {
            if self.try_enter(count) {
                return Poll::Ready(());
            }
            self.held.lock().push(context.waker().clone());
            // It may have been opened before anybody could see the waker.
            if self.try_enter(count) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A request is done.
    pub(super) fn leave(&self, count: &Count) {
        if count.0.fetch_sub(1, Ordering::SeqCst) == 1
            && self.is_closed.load(Ordering::SeqCst)
            && let Some(waker) = self.closing.lock().take()
        {
            waker.wake();
        }
    }

    fn is_empty(&self) -> bool {
        let counts = self.counts.lock();
        counts.iter().filter_map(Weak::upgrade).all(|count| count.0.load(Ordering::SeqCst) == 0)
    }

    /// Holds every new request until what it gives is dropped. Completes when none is under way any more.
    ///
    /// Fails with [`ErrorKind::Refused`] if it is closed already, and with [`ErrorKind::TimedOut`] if requests are still under way
    /// after `patience`.
    pub(super) async fn close(&self, runtime: &Runtime, patience: Duration) -> Result<Closed<'_>> {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            let context = "another change of the volume is under way; try again when it is done";
            return Err(Error::new(ErrorKind::Refused, context));
        }
        let closed = Closed(self);
        let mut end = runtime.sleep(patience);
        poll_fn(|context| {
            *self.closing.lock() = Some(context.waker().clone());
            if self.is_empty() {
                return Poll::Ready(Ok(()));
            }
            Pin::new(&mut end).poll(context).map(|()| {
                let context = format!(
                    "requests that are under way have not ended within {} s, so nothing was changed; if they hang, have the \
                     member that does not answer replaced first",
                    patience.as_secs()
                );
                Err(Error::new(ErrorKind::TimedOut, context))
            })
        })
        .await?;
        Ok(closed)
    }
}

/// A valve that is closed until this is dropped.
pub(super) struct Closed<'a>(&'a Valve);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(false, Ordering::SeqCst);
        self.0.closing.lock().take();
        let held = std::mem::take(&mut *self.0.held.lock());
        held.into_iter().for_each(Waker::wake);
    }
}
