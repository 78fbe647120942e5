//! One look at a machine after the other: what lies between two of them, and when the next is due.

use std::time::{Duration, Instant};

use crate::counters::Counters;
use crate::machine::Machine;
use crate::rates::{self, Take};

/// Two looks closer to each other than this would show ticks of the kernel and not what it does.
pub(crate) const APART_MIN: Duration = Duration::from_millis(50);

/// A machine, and what was read of it last.
#[derive(Debug)]
pub(crate) struct Looks {
    pub(crate) machine: Machine,
    before: (Instant, Counters),
    interval: Duration,
    next: Instant,
}

impl Looks {
    /// Looks at it for the first time.
    pub(crate) fn begin(mut machine: Machine, interval: Duration) -> Self {
        let counters = machine.read();
        let now = Instant::now();
        Self { machine, before: (now, counters), interval, next: now + interval }
    }

    /// How long it is until the next look is due.
    pub(crate) fn until_next(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// The look that was due was taken; says how many after it have come and gone meanwhile.
    pub(crate) fn plan_next(&mut self) -> u64 {
        self.next += self.interval;
        let late = Instant::now().saturating_duration_since(self.next).as_nanos();
        let missed = u32::try_from(late.div_ceil(self.interval.as_nanos().max(1))).unwrap_or(u32::MAX);
        self.next += self.interval.saturating_mul(missed);
        missed.into()
    }

    /// Looks, and tells what lies between this look and the one before. Says when, and how long that time was; nothing if
    /// it is too short: at the border of two phases this gives the second a little of the first.
    pub(crate) fn look(&mut self, take: &mut Take<'_>) -> Option<(Instant, Duration)> {
        let now = Instant::now();
        let span = now.saturating_duration_since(self.before.0);
        if span < APART_MIN {
            return None;
        }
        let after = self.machine.read();
        rates::between(&self.machine, &self.before.1, &after, span, take);
        self.before = (now, after);
        Some((now, span))
    }
}
