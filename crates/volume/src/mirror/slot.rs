//! One member of a mirror, as all its queues see it: what it has missed, and how it has answered of late.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::{Device, Time};

use super::missed::Missed;
use super::report::MemberCounts;

/// Reads in a row that must be late for a member to be taken for slow.
const LATE_IN_A_ROW: u32 = 3;
/// How long a slow member is asked last, at first; twice as long each time, up to 64 times.
const SLOW_NS: u64 = 1_000_000_000;

/// A place for a member.
pub(super) struct Slot {
    /// Out of use, with why; else its device.
    pub(super) seat: Mutex<Seat>,
    /// Whether it takes part.
    pub(super) is_active: AtomicBool,
    /// Counts the devices that have been in this place, and each time one went out of use.
    pub(super) incarnation: AtomicU64,
    pub(super) missed: Missed,
    pub(super) counts: MemberCounts,
    /// Requests in a row that failed, or writes that were late.
    failures_in_row: AtomicU32,
    late_in_row: AtomicU32,
    /// When it may be asked again like the others, in nanoseconds; 0 if it is not slow.
    slow_until: AtomicU64,
    slow_times: AtomicU32,
    /// Writes that nobody waits for any more, and that may still arrive.
    strays: Mutex<Vec<(u64, Range<u64>)>>,
    stray_count: AtomicU64,
}

/// Who is in a place.
pub(super) enum Seat {
    Taken(Arc<dyn Device>),
    Failed { why: String },
}

impl Slot {
    pub(super) fn new(device: Arc<dyn Device>, size: u64) -> Self {
        Self {
            seat: Mutex::new(Seat::Taken(device)),
            is_active: AtomicBool::new(true),
            incarnation: AtomicU64::new(0),
            missed: Missed::new(size),
            counts: MemberCounts::default(),
            failures_in_row: AtomicU32::new(0),
            late_in_row: AtomicU32::new(0),
            slow_until: AtomicU64::new(0),
            slow_times: AtomicU32::new(0),
            strays: Mutex::default(),
            stray_count: AtomicU64::new(0),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Whether it takes part and has all of the range.
    pub(super) fn is_current(&self, range: Range<u64>) -> bool {
        self.is_active() && !self.missed.touches(range)
    }

    /// It has answered, in time.
    pub(super) fn answered(&self) {
        if self.failures_in_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_row.store(0, Ordering::Relaxed);
        }
        if self.late_in_row.load(Ordering::Relaxed) != 0 {
            self.late_in_row.store(0, Ordering::Relaxed);
        }
        if self.slow_times.load(Ordering::Relaxed) != 0 && self.slow_until.load(Ordering::Relaxed) == 0 {
            self.slow_times.store(0, Ordering::Relaxed);
        }
    }

    /// It has failed once more; gives how often in a row.
    pub(super) fn failed_again(&self) -> u32 {
        self.failures_in_row.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// It has not answered a read in time; whether it is taken for slow from now on.
    pub(super) fn late_again(&self, now: Time) -> bool {
        let in_row = self.late_in_row.fetch_add(1, Ordering::Relaxed) + 1;
        if in_row < LATE_IN_A_ROW {
            return false;
        }
        // When it is asked again after that, one late answer is enough.
        let times = self.slow_times.fetch_add(1, Ordering::Relaxed).min(6);
        self.slow_until.store(now.0.saturating_add(SLOW_NS << times).max(1), Ordering::Relaxed);
        true
    }

    /// Whether it is asked last; `now` is asked for only where that may be.
    pub(super) fn is_slow(&self, now: impl FnOnce() -> Time) -> bool {
        let until = self.slow_until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        if now().0 < until {
            return true;
        }
        self.slow_until.store(0, Ordering::Relaxed);
        false
    }

    /// Forgets how the device that was here before has answered.
    pub(super) fn begin_anew(&self) {
        for counter in [&self.failures_in_row, &self.late_in_row, &self.slow_times] {
            counter.store(0, Ordering::Relaxed);
        }
        self.slow_until.store(0, Ordering::Relaxed);
        // They can only reach the device that was here before.
        self.strays.lock().clear();
        self.stray_count.store(0, Ordering::Release);
    }

    /// A write of this range is given up waiting for; it may still arrive, until [`Slot::stray_came`].
    pub(super) fn stray(&self, id: u64, range: Range<u64>) {
        let mut strays = self.strays.lock();
        strays.push((id, range));
        self.stray_count.store(strays.len() as u64, Ordering::Release);
    }

    pub(super) fn stray_came(&self, id: u64) {
        let mut strays = self.strays.lock();
        strays.retain(|(known, _)| *known != id);
        self.stray_count.store(strays.len() as u64, Ordering::Release);
    }

    /// Whether a write may still arrive in this range.
    pub(super) fn has_stray(&self, range: &Range<u64>) -> bool {
        self.stray_count.load(Ordering::Acquire) != 0
            && self.strays.lock().iter().any(|(_, own)| own.start < range.end && range.start < own.end)
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::leaf::MemoryDevice;

    use super::*;

    fn slot() -> Slot {
        Slot::new(MemoryDevice::new(1 << 20, 512).expect("sizes that fit"), 1 << 20)
    }

    #[test]
    fn who_is_late_three_times_in_a_row_is_asked_last_for_a_while_and_then_again() {
        let slot = slot();
        let now = |ns: u64| move || Time(ns);
        assert!(!slot.late_again(Time(5)) && !slot.late_again(Time(5)));
        slot.answered();
        assert!(!slot.late_again(Time(5)) && !slot.late_again(Time(5)) && slot.late_again(Time(5)));
        assert!(slot.is_slow(now(1_000_000_004)));
        assert!(!slot.is_slow(now(1_000_000_005)));
        // Once more is enough then, and it is for longer.
        assert!(slot.late_again(Time(2_000_000_000)));
        assert!(slot.is_slow(now(3_999_999_999)) && !slot.is_slow(now(4_000_000_000)));
        slot.answered();
        assert!(!slot.late_again(Time(9_000_000_000)));
    }

    #[test]
    fn a_write_that_may_still_arrive_is_known_until_it_has() {
        let slot = slot();
        slot.stray(7, 4096..8192);
        slot.stray(8, 8192..12_288);
        assert!(slot.has_stray(&(0..4097)) && !slot.has_stray(&(0..4096)));
        slot.stray_came(7);
        assert!(!slot.has_stray(&(4096..8192)) && slot.has_stray(&(8191..8193)));
        slot.begin_anew();
        assert!(!slot.has_stray(&(0..1 << 20)));
    }
}
