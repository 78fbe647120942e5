//! Where the time of rules begins: with the first request of the phase *run*, so that the set-up of a subject, which
//! takes as long as it takes, does not count.

use std::sync::atomic::{AtomicU64, Ordering};

use rotproof_block::{Phase, Time};

const NOT_YET: u64 = u64::MAX;

/// Shared by all rules of an engine. Only rules with a window in time look at it.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Default for Clock {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_YET))
    }
}

impl Clock {
    /// When it was; `None` before, and where nobody asked.
    pub(crate) fn began(&self) -> Option<Time> {
        let begin = self.0.load(Ordering::Relaxed);
        (begin != NOT_YET).then_some(Time(begin))
    }

    /// Nanoseconds since the beginning, for a request that entered the stack at `submitted`; it may be the one that
    /// begins. `None` before.
    pub(crate) fn since_begin_ns(&self, phase: Phase, submitted: Time) -> Option<u64> {
        let mut begin = self.0.load(Ordering::Relaxed);
        if begin == NOT_YET {
            if phase != Phase::Run {
                return None;
            }
            let begun = self.0.compare_exchange(NOT_YET, submitted.0, Ordering::Relaxed, Ordering::Relaxed);
            begin = begun.err().unwrap_or(submitted.0);
        }
        Some(submitted.0.saturating_sub(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_with_the_first_request_of_the_load() {
        let clock = Clock::default();
        assert_eq!(clock.since_begin_ns(Phase::Prefill, Time(5)), None);
        assert_eq!(clock.since_begin_ns(Phase::Run, Time(10)), Some(0));
        assert_eq!(clock.since_begin_ns(Phase::Run, Time(25)), Some(15));
        assert_eq!(clock.since_begin_ns(Phase::Check, Time(30)), Some(20));
        // Entered before, on another thread.
        assert_eq!(clock.since_begin_ns(Phase::Run, Time(9)), Some(0));
    }
}
