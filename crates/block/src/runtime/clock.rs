//! The clock of the machine as the io_uring runtime reads it, for threads that make blocking calls and so have no
//! runtime.

use std::time::Instant;

use super::Time;

/// Tells the time since an epoch; copies tell the same. Threads and runtimes of one run share the epoch, so that their
/// times compare.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Instant,
}

impl Clock {
    /// A clock whose time zero is now.
    pub fn start() -> Self {
        Self::since(Instant::now())
    }

    /// A clock whose time zero is `epoch`, as that of a runtime with the same one.
    pub fn since(epoch: Instant) -> Self {
        Self { epoch }
    }

    /// The time since the epoch.
    pub fn now(&self) -> Time {
        Time::default().after(self.epoch.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::runtime::RuntimeOptions;

    #[test]
    fn a_clock_and_a_runtime_with_one_epoch_tell_one_time() {
        let epoch = Instant::now();
        let clock = Clock::since(epoch);
        let runtime = Runtime::uring(RuntimeOptions { epoch, ..RuntimeOptions::new(1) }).expect("a ring");
        let times = [clock.now(), runtime.now(), clock.now(), runtime.now()];
        assert!(times.is_sorted(), "{times:?}");
    }
}
