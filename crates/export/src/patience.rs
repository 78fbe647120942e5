//! Whether to look for the next request for a moment before going to sleep.
//!
//! A client that waits for each reply sends its next request within microseconds; to sleep and be woken costs more than
//! that. A client that pauses longer must not cost a core. So the thread looks for a moment if its last sleep was so
//! short that looking would have saved it. QEMU's event loop decides in the same way (`poll-max-ns`, 32 us).

use std::time::{Duration, Instant};

/// The longest look.
const LOOK: Duration = Duration::from_micros(32);

/// What the last waits have taught.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    pays: bool,
}

impl Patience {
    /// Whether a look is likely to find something.
    pub(crate) fn pays(&self) -> bool {
        self.pays
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + LOOK
    }

    pub(crate) fn is_over(&self, deadline: Instant) -> bool {
        Instant::now() >= deadline
    }

    pub(crate) fn fall_asleep(&self) -> Instant {
        Instant::now()
    }

    pub(crate) fn wake_up(&mut self, asleep: Instant) {
        self.slept(asleep.elapsed());
    }

    /// Learns from a sleep that came after a look, if there was one.
    fn slept(&mut self, sleep: Duration) {
        let waited = if self.pays { sleep + LOOK } else { sleep };
        self.pays = waited <= 2 * LOOK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_pays_after_short_sleeps_only() {
        let mut patience = Patience::default();
        assert!(!patience.pays(), "nothing is known of the client");
        patience.slept(Duration::from_micros(20));
        assert!(patience.pays());
        patience.slept(Duration::from_micros(5));
        assert!(patience.pays(), "just missed");
        patience.slept(Duration::from_millis(1));
        assert!(!patience.pays(), "the client pauses");
    }
}
