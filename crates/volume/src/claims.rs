//! Who may change a block now: one at a time, without a lock where nobody else wants it.
//!
//! A claim is a slot that blocks share by number. Readers take none: they read, compare, and only who meets a difference
//! asks whether a claim was held or given back meanwhile ([`Claims::stamp`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Somebody has the slot.
const HELD: u32 = 1;
/// Somebody waits for it.
const WANTED: u32 = 2;
/// Counts how often it was given back.
const ROUND: u32 = 4;

/// Slots at most, which is also the most blocks that one claim can be for.
pub(crate) const SLOTS_MAX: u64 = 1 << 16;
/// Blocks for which a stamp is worth its time.
const STAMPED_MAX: u64 = 16;

#[derive(Debug)]
pub(crate) struct Claims {
    slots: Box<[AtomicU32]>,
    waiting: Mutex<HashMap<u64, Vec<Waker>>>,
}

/// A range of blocks that nobody else may change.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    blocks: Range<u64>,
}

/// How the slots of some blocks stood; equal stamps mean that nobody has changed the blocks between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Claims {
    /// For a device of so many blocks.
    pub(crate) fn new(blocks: u64) -> Arc<Self> {
        let slots = blocks.clamp(1, SLOTS_MAX).next_power_of_two();
        Arc::new(Self { slots: (0..slots).map(|_| AtomicU32::new(0)).collect(), waiting: Mutex::default() })
    }

    /// The most blocks that one claim can be for.
    pub(crate) fn most(&self) -> u64 {
        self.slots.len() as u64
    }

    fn slot_of(&self, block: u64) -> u64 {
        block & (self.slots.len() as u64 - 1)
    }

    /// The slots of a range of blocks, lowest first, so that nobody waits for somebody who waits for him.
    fn slots_of(&self, blocks: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let (first, count) = (self.slot_of(blocks.start), blocks.end - blocks.start);
        let all = self.slots.len() as u64;
        debug_assert!(count <= all);
        let wrapped = (first + count).saturating_sub(all);
        (0..wrapped).chain(first..(first + count).min(all))
    }

    fn try_slot(&self, slot: u64) -> bool {
        self.slots[slot as usize].fetch_or(HELD, Ordering::SeqCst) & HELD == 0
    }

    fn give_back(&self, slot: u64) {
        let before = self.slots[slot as usize].fetch_add(ROUND - HELD, Ordering::SeqCst);
        if before & WANTED != 0 {
            let mut waiting = self.waiting.lock();
            self.slots[slot as usize].fetch_and(!WANTED, Ordering::SeqCst);
            let woken = waiting.remove(&slot).unwrap_or_default();
            drop(waiting);
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Claims blocks, at most [`Claims::most`], if nobody has one of them.
    pub(crate) fn try_claim(self: &Arc<Self>, blocks: Range<u64>) -> Option<Claim> {
        for slot in self.slots_of(&blocks) {
            if !self.try_slot(slot) {
                self.slots_of(&blocks)
                    .take_while(|taken| *taken != slot)
                    .for_each(|slot| self.give_back(slot));
                return None;
            }
        }
        Some(Claim { claims: Arc::clone(self), blocks })
    }

    /// Claims blocks, at most [`Claims::most`], as soon as all are free.
    pub(crate) async fn claim(self: &Arc<Self>, blocks: Range<u64>) -> Claim {
        // Grows slot by slot, so that what it has is given back if nobody waits for it any more.
        let mut taken = Taken { claims: self, slots: Vec::new() };
        for slot in self.slots_of(&blocks) {
            std::future::poll_fn(|task| {
                if self.try_slot(slot) {
                    return Poll::Ready(());
                }
                let mut waiting = self.waiting.lock();
                if self.slots[slot as usize].fetch_or(WANTED, Ordering::SeqCst) & HELD == 0 {
                    // It was given back before anybody knew that it is wanted.
                    drop(waiting);
                    task.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let wakers = waiting.entry(slot).or_default();
                if !wakers.iter().any(|waker| waker.will_wake(task.waker())) {
                    wakers.push(task.waker().clone());
                }
                Poll::Pending
            })
            .await;
            taken.slots.push(slot);
        }
        taken.slots.clear();
        Claim { claims: Arc::clone(self), blocks }
    }

    /// How the slots of these blocks stand, if none is held; `None` too for more blocks than it is worth.
    pub(crate) fn stamp(&self, blocks: &Range<u64>) -> Option<Stamp> {
        if blocks.end - blocks.start > STAMPED_MAX {
            return None;
        }
        let mut sum = 0;
        for block in blocks.clone() {
            let word = self.slots[self.slot_of(block) as usize].load(Ordering::SeqCst);
            if word & HELD != 0 {
                return None;
            }
            // Rounds only grow, so that no two changes cancel out.
            sum += u64::from(word / ROUND);
        }
        Some(Stamp(sum))
    }
}

struct Taken<'a> {
    claims: &'a Claims,
    slots: Vec<u64>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.slots.iter().for_each(|slot| self.claims.give_back(*slot));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.slots_of(&self.blocks).for_each(|slot| self.claims.give_back(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::Runtime;
    use rotproof_block::hash::mix;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn a_block_has_one_at_a_time_and_stamps_tell_of_it() {
        let claims = Claims::new(100);
        let before = claims.stamp(&(3..5));
        assert!(before.is_some());
        let claim = claims.try_claim(4..7).expect("free");
        assert!(claims.try_claim(6..9).is_none() && claims.try_claim(8..9).is_some());
        assert_eq!(claims.stamp(&(3..5)), None);
        assert_eq!(claims.stamp(&(0..100)), None);
        drop(claim);
        assert_ne!(claims.stamp(&(3..5)), before);
        assert!(claims.try_claim(120..136).is_some(), "over the end of the slots");
    }

    #[test]
    fn all_who_wait_come_to_it_and_no_two_at_once() {
        let runtime = Runtime::simulated(1);
        let claims = Claims::new(64);
        let inside: Rc<Vec<Cell<u32>>> = Rc::new((0..64).map(|_| Cell::new(0)).collect());
        let tasks: Vec<_> = (0..200)
            .map(|index| {
                let (claims, inside, clock) = (Arc::clone(&claims), Rc::clone(&inside), runtime.clone());
                runtime.spawn(async move {
                    clock.sleep(Duration::from_nanos(mix(1, 0, index) % 500)).await;
                    let first = mix(1, 1, index) % 64;
                    let blocks = first..first + 1 + mix(1, 2, index) % 40;
                    let claim = claims.claim(blocks.clone()).await;
                    for block in blocks.clone() {
                        let there = &inside[(block % 64) as usize];
                        assert_eq!(there.replace(there.get() + 1), 0);
                    }
                    clock.sleep(Duration::from_nanos(mix(1, 3, index) % 50)).await;
                    blocks.for_each(|block| inside[(block % 64) as usize].set(0));
                    drop(claim);
                })
            })
            .collect();
        runtime
            .block_on(async {
                for task in tasks {
                    task.await;
                }
            })
            .expect("nobody waits for ever");
    }
}
