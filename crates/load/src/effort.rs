//! What a load itself took: processor time, context switches and calls into the kernel of its own threads.
//!
//! A load that spends more than the storage below it measures itself, so what it spends is told beside its figures. The
//! threads of the stack and of the kernel are not among it.

use std::mem::MaybeUninit;
use std::ops::AddAssign;
use std::time::Duration;

use rotproof_block::system_calls;
use serde::Serialize;

/// What a stretch of work took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Processor time, in the kernel and outside.
    pub cpu: Duration,
    /// Times that a thread waited for something.
    pub voluntary_context_switches: u64,
    /// Times that a thread had to give way.
    pub involuntary_context_switches: u64,
    /// Calls into the kernel that moved requests or waited for them ([`system_calls`]).
    pub system_calls: u64,
}

/// The same for each of so many requests, on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct EffortPerRequest {
    /// Requests that it was spent on: all that were sent, ramp-up and attempts again among them.
    pub requests: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: f64,
    /// Times that a thread waited for something.
    pub voluntary_context_switches: f64,
    /// Times that a thread had to give way.
    pub involuntary_context_switches: f64,
    /// Calls into the kernel that moved requests or waited for them.
    pub system_calls: f64,
}

impl Effort {
    /// Spread over `requests`; `None` if there were none.
    pub fn per_request(&self, requests: u64) -> Option<EffortPerRequest> {
        let each = |amount: f64| amount / requests as f64;
        (requests > 0).then(|| EffortPerRequest {
            requests,
            cpu_ns: each(self.cpu.as_nanos() as f64),
            voluntary_context_switches: each(self.voluntary_context_switches as f64),
            involuntary_context_switches: each(self.involuntary_context_switches as f64),
            system_calls: each(self.system_calls as f64),
        })
    }
}

impl AddAssign for Effort {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.voluntary_context_switches += other.voluntary_context_switches;
        self.involuntary_context_switches += other.involuntary_context_switches;
        self.system_calls += other.system_calls;
    }
}

/// Measures the calling thread, from its making on.
pub(crate) struct EffortMeter(Effort);

impl EffortMeter {
    pub(crate) fn start() -> Self {
        Self(so_far())
    }

    /// What the thread has done since; the same thread that started.
    pub(crate) fn end(self) -> Effort {
        let (now, then) = (so_far(), self.0);
        Effort {
            cpu: now.cpu.saturating_sub(then.cpu),
            voluntary_context_switches: now.voluntary_context_switches - then.voluntary_context_switches,
            involuntary_context_switches: now.involuntary_context_switches
                - then.involuntary_context_switches,
            system_calls: now.system_calls - then.system_calls,
        }
    }
}

/// Of the calling thread since it began.
fn so_far() -> Effort {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and the structure is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is large enough, and all zeros is a valid `rusage` too, should the call not fill it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    Effort {
        cpu: Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)),
        voluntary_context_switches: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        involuntary_context_switches: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
        system_calls: system_calls::made(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_switches_and_what_it_counts_is_its_own() {
        let meter = EffortMeter::start();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(1));
            system_calls::count_one();
        }
        std::thread::spawn(system_calls::count_one).join().expect("ends well");
        let found = meter.end();
        assert_eq!(found.system_calls, 5);
        assert!(found.voluntary_context_switches >= 5, "{found:?}");
        let each = found.per_request(5).expect("there were some");
        assert_eq!((each.requests, each.system_calls), (5, 1.0));
        assert_eq!(found.per_request(0), None);
    }
}
