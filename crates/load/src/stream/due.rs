//! When each request of a worker is due, counted from the beginning of its load: a function of the seed and the
//! request's number, whatever became of those before it.

use std::time::Duration;

use rotproof_block::hash::mix;

use crate::job::JobSpec;
use crate::pace::Arrivals;

/// Streams of [`mix`] that belong to times.
const ARRIVALS: u64 = 0x0a44_17e5;

const NANOSECONDS: f64 = 1e9;

/// The times of one worker's requests.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// As soon as there is room in the queue.
    AtOnce,
    /// One so long after the other; workers of a job take turns.
    Even { first_ns: f64, step_ns: f64 },
    /// After intervals that are exponentially distributed.
    Poisson { seed: u64, key: u64, mean_ns: f64, next_ns: f64 },
    /// So many at a time.
    Burst { requests: u64, every: Duration },
}

impl Due {
    /// Those of worker `number` of a job.
    pub(super) fn new(job: &JobSpec, number: u32, seed: u64, key: u64) -> Self {
        if let Some(burst) = job.burst {
            return Self::Burst { requests: burst.requests, every: burst.every.0 };
        }
        let Some(rate) = job.rate else { return Self::AtOnce };
        let workers = f64::from(job.workers);
        let step_ns = NANOSECONDS * workers / rate.requests;
        match rate.arrivals {
            Arrivals::Even => Self::Even { first_ns: step_ns * f64::from(number) / workers, step_ns },
            Arrivals::Poisson => Self::Poisson { seed, key, mean_ns: step_ns, next_ns: 0.0 },
        }
    }

    /// When request number `index` is due; must be asked once for each, in order.
    pub(super) fn next(&mut self, index: u64) -> Option<Duration> {
        match self {
            Self::AtOnce => None,
            Self::Even { first_ns, step_ns } => Some(from_ns(*first_ns + *step_ns * index as f64)),
            Self::Poisson { seed, key, mean_ns, next_ns } => {
                let draw = mix(*seed, ARRIVALS ^ *key << 32, index);
                // In (0, 1], so that the logarithm is finite.
                let uniform = ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64;
                *next_ns -= libm::log(uniform) * *mean_ns;
                Some(from_ns(*next_ns))
            }
            Self::Burst { requests, every } => {
                let bursts = u32::try_from(index / *requests).unwrap_or(u32::MAX);
                Some(every.saturating_mul(bursts))
            }
        }
    }
}

fn from_ns(ns: f64) -> Duration {
    // Beyond the end of a u64, in 584 years, it saturates.
    Duration::from_nanos(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_spec::Span;

    use crate::pace::{Burst, Rate};

    fn times(job: &JobSpec, number: u32, count: u64) -> Vec<Duration> {
        let mut due = Due::new(job, number, 1, u64::from(number));
        (0..count).map(|index| due.next(index).expect("it has times")).collect()
    }

    #[test]
    fn an_even_rate_is_shared_by_workers_that_take_turns() {
        let rate = Some(Rate { requests: 1000.0, arrivals: Arrivals::Even });
        let job = JobSpec { rate, workers: 4, ..JobSpec::default() };
        let mut all: Vec<Duration> = (0..4).flat_map(|worker| times(&job, worker, 25)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).map(Duration::from_millis).collect::<Vec<_>>());
    }

    #[test]
    fn poisson_intervals_have_the_mean_and_the_spread_of_the_exponential_law() {
        let rate = Some(Rate { requests: 1000.0, arrivals: Arrivals::Poisson });
        let times = times(&JobSpec { rate, ..JobSpec::default() }, 0, 100_000);
        let intervals: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
        let count = intervals.len() as f64;
        let mean = intervals.iter().sum::<f64>() / count;
        assert!((mean - 1.0).abs() < 0.02, "{mean} ms");
        // Ten classes of equal chance by the law: 9 degrees of freedom, above 35 with probability 1e-4.
        let mut classes = [0u32; 10];
        for interval in intervals {
            classes[((1.0 - (-interval).exp()) * 10.0) as usize] += 1;
        }
        let expected = count / 10.0;
        let chi_square: f64 =
            classes.iter().map(|&found| (f64::from(found) - expected).powi(2) / expected).sum();
        assert!(chi_square < 35.0, "chi-square {chi_square}: {classes:?}");
    }

    #[test]
    fn bursts_come_at_their_times() {
        let every = Span(Duration::from_millis(10));
        let job = JobSpec { burst: Some(Burst { requests: 3, every }), ..JobSpec::default() };
        let milliseconds: Vec<u128> = times(&job, 0, 8).iter().map(Duration::as_millis).collect();
        assert_eq!(milliseconds, [0, 0, 0, 10, 10, 10, 20, 20]);
        assert!(Due::new(&JobSpec::default(), 0, 1, 0).next(5).is_none());
    }
}
