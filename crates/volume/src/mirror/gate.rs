//! Keeps writes away from a range while a copy of it is put right.
//!
//! Whoever writes goes through at the cost of two additions. Whoever puts a copy right reads one copy and writes another; a
//! write between the two would be undone on one copy, so he closes the range first, and waits until those are out that are in.
//! Granules share a fixed number of gates, so a closed range may keep others out that only share a gate with it, for as long
//! as a repair takes.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use super::missed::GRANULE_BYTES;

const GATES: u64 = 256;
/// The bit of a gate that is closed; the others count who is in.
const CLOSED: u32 = 1 << 31;

/// The gates of one mirror.
pub(crate) struct Gate {
    gates: Box<[AtomicU32]>,
    waiting: Mutex<Vec<Waker>>,
}

/// The gates of a range in ascending order, which everybody keeps to, so that no two wait for each other.
fn gates_of(range: &Range<u64>) -> impl DoubleEndedIterator<Item = usize> + Clone + use<> {
    let (first, last) =
        (range.start / GRANULE_BYTES, range.end.max(range.start + 1).div_ceil(GRANULE_BYTES) - 1);
    let (low, high) = if last - first >= GATES {
        (0..GATES, 0..0)
    } else if first % GATES <= last % GATES {
        (first % GATES..last % GATES + 1, 0..0)
    } else {
        (0..last % GATES + 1, first % GATES..GATES)
    };
    low.chain(high).map(|gate| gate as usize)
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { gates: (0..GATES).map(|_| AtomicU32::new(0)).collect(), waiting: Mutex::default() }
    }

    /// Goes in at once, if no gate of the range is closed. Whoever is in must [`Gate::leave`].
    pub(crate) fn try_enter(&self, range: &Range<u64>) -> bool {
        for (entered, gate) in gates_of(range).enumerate() {
            if self.gates[gate].fetch_add(1, Ordering::AcqRel) & CLOSED != 0 {
                for gate in gates_of(range).take(entered + 1) {
                    self.leave_one(gate);
                }
                return false;
            }
        }
        true
    }

    /// Goes in once every gate of the range is open.
    pub(crate) async fn enter(&self, range: &Range<u64>) {
        let mut entering = Entering { gate: self, gates: Vec::new() };
        for gate in gates_of(range) {
            loop {
                if self.gates[gate].fetch_add(1, Ordering::AcqRel) & CLOSED == 0 {
                    break;
                }
                self.leave_one(gate);
                self.wait_until(|| self.gates[gate].load(Ordering::Acquire) & CLOSED == 0).await;
            }
            entering.gates.push(gate);
        }
        entering.gates.clear();
    }

    /// Goes out again.
    pub(crate) fn leave(&self, range: &Range<u64>) {
        gates_of(range).for_each(|gate| self.leave_one(gate));
    }

    fn leave_one(&self, gate: usize) {
        if self.gates[gate].fetch_sub(1, Ordering::AcqRel) & CLOSED != 0 {
            self.wake();
        }
    }

    /// Keeps everybody out of the range until what it gives is dropped. Completes when nobody is in.
    pub(crate) async fn close(&self, range: Range<u64>) -> Closed<'_> {
        let mut closed = Closed { gate: self, gates: Vec::new() };
        for gate in gates_of(&range) {
            while self.gates[gate].fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
                self.wait_until(|| self.gates[gate].load(Ordering::Acquire) & CLOSED == 0).await;
            }
            closed.gates.push(gate);
            self.wait_until(|| self.gates[gate].load(Ordering::Acquire) == CLOSED).await;
        }
        closed
    }

    async fn wait_until(&self, holds: impl Fn() -> bool) {
        poll_fn(|context| {
            if holds() {
                return Poll::Ready(());
            }
            self.waiting.lock().push(context.waker().clone());
            // It may have come true before anybody could see the waker.
            if holds() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The gates that somebody is through who may give up before the last.
struct Entering<'a> {
    gate: &'a Gate,
    gates: Vec<usize>,
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.gates.iter().for_each(|&gate| self.gate.leave_one(gate));
    }
}

/// A range that is closed, as long as this lives.
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
    gates: Vec<usize>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        for &gate in &self.gates {
            self.gate.gates[gate].fetch_and(!CLOSED, Ordering::AcqRel);
        }
        self.gate.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use rotproof_block::Runtime;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_gates_of_a_range_ascend_and_are_no_more_than_there_are() {
        for range in [0..1, 0..MIB, 15 * MIB..17 * MIB, 100 * MIB..200 * MIB, 7..7, 0..16 * MIB] {
            let gates: Vec<usize> = gates_of(&range).collect();
            assert!(gates.is_sorted() && gates.windows(2).all(|pair| pair[0] != pair[1]), "{range:?}");
            let granules =
                (range.end.max(range.start + 1)).div_ceil(GRANULE_BYTES) - range.start / GRANULE_BYTES;
            assert_eq!(gates.len() as u64, granules.min(GATES), "{range:?}");
        }
    }

    #[test]
    fn nobody_is_in_where_it_is_closed_whatever_the_threads_do() {
        let gate = Arc::new(Gate::new());
        let is_closed: Arc<Vec<AtomicBool>> = Arc::new((0..32).map(|_| AtomicBool::new(false)).collect());
        let inside: Arc<Vec<AtomicU64>> = Arc::new((0..32).map(|_| AtomicU64::new(0)).collect());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (gate, is_closed, inside) =
                    (Arc::clone(&gate), Arc::clone(&is_closed), Arc::clone(&inside));
                scope.spawn(move || {
                    let runtime = Runtime::uring(rotproof_block::runtime::RuntimeOptions::new(1))
                        .expect("this machine has io_uring");
                    for round in 0..2000u64 {
                        let draw = runtime.random(thread, round);
                        let first = draw % 32;
                        let last = (first + draw / 32 % 4).min(31);
                        let range = first * GRANULE_BYTES..(last + 1) * GRANULE_BYTES;
                        let granules = first as usize..=last as usize;
                        if thread == 0 {
                            runtime
                                .block_on(async {
                                    let _closed = gate.close(range.clone()).await;
                                    for granule in granules.clone() {
                                        is_closed[granule].store(true, Ordering::SeqCst);
                                        assert_eq!(inside[granule].load(Ordering::SeqCst), 0);
                                    }
                                    for granule in granules {
                                        is_closed[granule].store(false, Ordering::SeqCst);
                                    }
                                })
                                .expect("completes");
                        } else {
                            if !gate.try_enter(&range) {
                                runtime.block_on(gate.enter(&range)).expect("completes");
                            }
                            for granule in granules.clone() {
                                inside[granule].fetch_add(1, Ordering::SeqCst);
                                assert!(!is_closed[granule].load(Ordering::SeqCst));
                            }
                            for granule in granules {
                                inside[granule].fetch_sub(1, Ordering::SeqCst);
                            }
                            gate.leave(&range);
                        }
                    }
                });
            }
        });
        assert!(gate.gates.iter().all(|gate| gate.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn a_close_that_is_given_up_leaves_the_range_open() {
        let gate = Gate::new();
        let runtime = Runtime::simulated(1);
        let range = 0..MIB;
        assert!(gate.try_enter(&(GRANULE_BYTES..GRANULE_BYTES + 1)));
        let mut closing = Box::pin(gate.close(range.clone()));
        let polled =
            runtime.block_on(poll_fn(|context| Poll::Ready(closing.as_mut().poll(context).is_pending())));
        assert!(polled.expect("at once"), "somebody is in");
        assert!(!gate.try_enter(&(0..1)));
        drop(closing);
        assert!(gate.try_enter(&(0..1)));
        gate.leave(&(0..1));
        gate.leave(&(GRANULE_BYTES..GRANULE_BYTES + 1));
        drop(runtime.block_on(gate.close(range)).expect("nobody is in"));
    }
}
