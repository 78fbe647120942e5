//! What stands at the path of requests: a gate for writes while a version is captured, and epochs for reads, so that a place is
//! not used anew before all have left it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Nobody may enter.
const CLOSED: u64 = 1 << 63;

/// Counts writes under way, and can be closed.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    inside: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

/// A write under way.
#[derive(Debug)]
pub(super) struct Inside(Gate);

/// The gate is closed and nobody is inside, until this is dropped.
#[derive(Debug)]
pub(super) struct Closed(Gate);

impl Gate {
    /// Enters, if the gate is open.
    pub(super) fn try_enter(&self) -> Option<Inside> {
        // Looked at first, so that who is refused wakes nobody.
        if self.is_closed() {
            return None;
        }
        let before = self.0.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self.clone());
        (before & CLOSED == 0).then_some(inside)
    }

    fn is_closed(&self) -> bool {
        self.0.inside.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Enters as soon as the gate is open.
    pub(super) async fn enter(&self) -> Inside {
        std::future::poll_fn(|task| {
            if let Some(inside) = self.try_enter() {
                return Poll::Ready(inside);
            }
            self.0.waiting.lock().push(task.waker().clone());
            // It may have been opened before anybody knew who waits.
            self.try_enter().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Closes the gate and waits until all have left. Only one may do so at a time.
    pub(super) async fn close(&self) -> Closed {
        self.0.inside.fetch_or(CLOSED, Ordering::SeqCst);
        let closed = Closed(self.clone());
        std::future::poll_fn(|task| {
            if self.0.inside.load(Ordering::SeqCst) == CLOSED {
                return Poll::Ready(());
            }
            self.0.waiting.lock().push(task.waker().clone());
            if self.0.inside.load(Ordering::SeqCst) == CLOSED { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        closed
    }

    fn leave(&self) {
        let before = self.0.inside.fetch_sub(1, Ordering::SeqCst);
        if before & CLOSED != 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.0.inside.fetch_and(!CLOSED, Ordering::SeqCst);
        self.0.wake();
    }
}

/// Counts reads by the epoch in which they began.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    epoch: AtomicU64,
    readers: [AtomicU64; 2],
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Reading {
    epochs: Epochs,
    slot: usize,
}

impl Epochs {
    pub(super) fn enter(&self) -> Reading {
        loop {
            let epoch = self.0.epoch.load(Ordering::SeqCst);
            let slot = (epoch % 2) as usize;
            self.0.readers[slot].fetch_add(1, Ordering::SeqCst);
            if self.0.epoch.load(Ordering::SeqCst) == epoch {
                return Reading { epochs: self.clone(), slot };
            }
            self.0.readers[slot].fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.0.epoch.load(Ordering::SeqCst)
    }

    /// Begins another epoch if nobody is left from the one before; the epoch of now. What nobody could find any more in an
    /// epoch is left by all two epochs later.
    pub(super) fn advance(&self) -> u64 {
        let epoch = self.now();
        let is_empty = self.0.readers[((epoch + 1) % 2) as usize].load(Ordering::SeqCst) == 0;
        if is_empty {
            // Another may have done the same.
            let _ = self.0.epoch.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.now()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.epochs.0.readers[self.slot].fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::Runtime;
    use std::time::Duration;

    #[test]
    fn a_closed_gate_has_nobody_inside_and_lets_all_in_later() {
        let runtime = Runtime::simulated(1);
        let gate = Gate::default();
        let inside = gate.try_enter().expect("open");
        let (closing, late, clock) = (gate.clone(), gate.clone(), runtime.clone());
        let closer = runtime.spawn(async move {
            let closed = closing.close().await;
            assert!(closing.try_enter().is_none());
            clock.sleep(Duration::from_millis(5)).await;
            drop(closed);
            clock.now()
        });
        let clock = runtime.clone();
        let leaver = runtime.spawn(async move {
            clock.sleep(Duration::from_millis(3)).await;
            drop(inside);
            let _inside = late.enter().await;
            clock.now()
        });
        let (closed, entered) =
            runtime.block_on(async { (closer.await, leaver.await) }).expect("nobody waits for ever");
        assert!(closed.0 == 8_000_000 && entered >= closed);
    }

    #[test]
    fn two_epochs_later_nobody_is_left() {
        let epochs = Epochs::default();
        let reading = epochs.enter();
        let given_up = epochs.now();
        epochs.advance();
        assert!(epochs.advance() < given_up + 2 && epochs.advance() < given_up + 2);
        let later = epochs.enter();
        drop(reading);
        assert!(epochs.advance() >= given_up + 2);
        drop(later);
    }
}
