//! All groups of a fleet, over the cores.

use std::sync::atomic::{AtomicU64, Ordering};

use super::group::Model;
use super::random::Stream;
use super::tally::{Outcome, Tally};
use super::{Fleet, Sampling};

/// Groups that are added up together: the unit of work of a thread, and of the order of additions.
const CHUNK: u64 = 1 << 17;

/// Groups after which a thread looks whether it is to end.
const CANCEL_CHECK: u64 = 1 << 10;

/// How to simulate.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Root of everything random.
    pub seed: u64,
    /// Threads; at least one. The result does not depend on it.
    pub threads: usize,
    /// How events are drawn.
    pub sampling: Sampling,
    /// Counts the groups that are done.
    pub done: &'a AtomicU64,
    /// Says whether the simulation is to end early; asked now and then by every thread.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// Simulates a fleet that has no [`Fleet::mistake`]. `None` if it was cancelled.
pub fn simulate(fleet: &Fleet, options: &Options<'_>) -> Option<Outcome> {
    let model = Model::new(fleet, options.sampling);
    let seed = Stream::seed(options.seed);
    let chunks = fleet.groups.div_ceil(CHUNK);
    let next = AtomicU64::new(0);
    let work = || {
        let mut tallies = Vec::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks || (options.is_cancelled)() {
                return tallies;
            }
            let groups = chunk * CHUNK..fleet.groups.min((chunk + 1) * CHUNK);
            let mut tally = Tally { groups: groups.end - groups.start, ..Tally::default() };
            for group in groups {
                if group % CANCEL_CHECK == 0 && (options.is_cancelled)() {
                    return tallies;
                }
                if let Some(fate) = model.live(&mut Stream::new(seed, group)) {
                    tally.add(&fate);
                }
            }
            options.done.fetch_add(tally.groups, Ordering::Relaxed);
            tallies.push((chunk, tally));
        }
    };
    let mut tallies = std::thread::scope(|scope| {
        let others: Vec<_> = (1..options.threads).map(|_| scope.spawn(work)).collect();
        let mut tallies = work();
        for other in others {
            match other.join() {
                Ok(theirs) => tallies.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        tallies
    });
    if (options.is_cancelled)() {
        return None;
    }
    // Floating point sums depend on the order, so it is always that of the chunks.
    tallies.sort_unstable_by_key(|&(chunk, _)| chunk);
    let mut sum = Tally::default();
    for (_, tally) in &tallies {
        sum.merge(tally);
    }
    Some(sum.outcome())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redundancy;
    use crate::fleet::{Estimate, closed_form};

    fn run(fleet: &Fleet, sampling: Sampling, threads: usize, seed: u64) -> Outcome {
        assert_eq!(fleet.mistake(), None);
        let done = AtomicU64::new(0);
        let options = Options { seed, threads, sampling, done: &done, is_cancelled: &|| false };
        let outcome = simulate(fleet, &options).expect("it is not cancelled");
        assert_eq!(done.into_inner(), fleet.groups);
        outcome
    }

    /// Within four standard errors, which must be small enough to say something.
    fn assert_agrees(what: &str, found: Estimate, wanted: f64, precision: f64) {
        let Estimate { value, standard_error } = found;
        assert!(
            standard_error <= precision * wanted,
            "{what}: {value} +- {standard_error} says nothing of {wanted}"
        );
        assert!(
            (value - wanted).abs() <= 4.0 * standard_error,
            "{what}: {value} +- {standard_error}, not {wanted}"
        );
    }

    const MIRROR: Redundancy = Redundancy { data: 1, parity: 1 };

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let fleet = Fleet {
            groups: 3 * CHUNK + 17,
            redundancy: MIRROR,
            clustering: Some(0.5),
            continuation: 0.3,
            undetected: 1e-3,
            ..Fleet::default()
        };
        for sampling in [Sampling::Plain, Sampling::Importance] {
            let alone = run(&fleet, sampling, 1, 5);
            assert_eq!(alone, run(&fleet, sampling, 3, 5));
            assert_ne!(alone, run(&fleet, sampling, 3, 6));
        }
    }

    #[test]
    fn lone_disks_agree_with_the_closed_form_under_either_sampling() {
        let fleet = Fleet { groups: 400_000, undetected: 0.01, continuation: 0.4, ..Fleet::default() };
        let closed = closed_form::of(&fleet);
        for sampling in [Sampling::Plain, Sampling::Importance] {
            let outcome = run(&fleet, sampling, 2, 11);
            assert_agrees("failures", outcome.failures, closed.lost_devices, 0.05);
            assert_agrees("lost devices", outcome.lost_devices, closed.lost_devices, 0.05);
        }
        // Without failures, errors are the only ones to race.
        let fleet = Fleet { failures_per_year: 0.0, ..fleet };
        let closed = closed_form::of(&fleet);
        for sampling in [Sampling::Plain, Sampling::Importance] {
            let outcome = run(&fleet, sampling, 2, 12);
            assert_agrees("silent", outcome.silent, closed.silent, 0.05);
            assert_agrees("lost sectors", outcome.lost_sectors, closed.lost_sectors.expect("exact"), 0.05);
        }
    }

    #[test]
    fn rare_losses_of_mirrors_and_parity_agree_with_the_markov_chain() {
        for (redundancy, precision) in [
            (MIRROR, 0.02),
            (Redundancy { data: 8, parity: 2 }, 0.05),
            (Redundancy { data: 4, parity: 3 }, 0.1),
        ] {
            let fleet = Fleet { groups: 300_000, redundancy, errors_per_year: 0.0, ..Fleet::default() };
            let closed = closed_form::of(&fleet).lost_devices;
            let outcome = run(&fleet, Sampling::Importance, 2, 3);
            assert_agrees("lost devices", outcome.lost_devices, closed, precision);
        }
    }

    #[test]
    fn a_rate_that_plain_sampling_would_never_see_is_estimated() {
        // Once in 10^10 groups.
        let fleet = Fleet {
            groups: 300_000,
            redundancy: MIRROR,
            failures_per_year: 1e-4,
            errors_per_year: 1e-9,
            undetected: 1e-12,
            ..Fleet::default()
        };
        let closed = closed_form::of(&fleet);
        assert!(closed.lost_devices / 300_000.0 < 1e-9);
        let outcome = run(&fleet, Sampling::Importance, 2, 3);
        assert_agrees("lost devices", outcome.lost_devices, closed.lost_devices, 0.02);
        assert_agrees("silent", outcome.silent, closed.silent, 0.02);
        assert_eq!(run(&fleet, Sampling::Plain, 2, 3).lost_devices.value, 0.0);
    }

    #[test]
    fn latent_errors_that_meet_a_rebuild_agree_with_plain_sampling_and_the_first_order() {
        let fleet = Fleet {
            groups: 600_000,
            redundancy: Redundancy { data: 3, parity: 1 },
            failures_per_year: 0.05,
            errors_per_year: 0.2,
            scrub_years: 0.1,
            ..Fleet::default()
        };
        let plain = run(&fleet, Sampling::Plain, 2, 8).lost_sectors;
        let biased = run(&fleet, Sampling::Importance, 2, 9).lost_sectors;
        let both = plain.standard_error.hypot(biased.standard_error);
        assert!((plain.value - biased.value).abs() < 4.0 * both, "{plain:?} {biased:?}");
        // 4 0.05 5 failures find 3 0.2 0.05 errors, a few less at the beginning.
        let first_order = 600_000.0 * 1.0 * 0.03;
        assert!((plain.value / first_order - 1.0).abs() < 0.08, "{plain:?} {first_order}");
    }

    #[test]
    fn clustering_moves_errors_to_few_devices_but_not_their_number() {
        let even =
            Fleet { groups: 400_000, failures_per_year: 0.0, errors_per_year: 0.1, ..Fleet::default() };
        let clustered = Fleet { clustering: Some(0.1), ..even };
        let (a, b) = (run(&even, Sampling::Plain, 2, 1), run(&clustered, Sampling::Plain, 2, 1));
        assert_agrees("errors", b.errors, 400_000.0 * 0.5, 0.01);
        assert_agrees("affected, even", a.lost_sectors, 400_000.0 * (1.0 - (-0.5f64).exp()), 0.01);
        // 1 - (1 + mean / shape)^-shape.
        let affected = 400_000.0 * (1.0 - (1.0 + 0.5 / 0.1f64).powf(-0.1));
        assert_agrees("affected, clustered", b.lost_sectors, affected, 0.01);
        assert_eq!(closed_form::of(&clustered).lost_sectors.map(f64::round), Some(affected.round()));
    }

    #[test]
    fn a_cancelled_simulation_has_no_result() {
        let done = AtomicU64::new(0);
        let options =
            Options { seed: 1, threads: 2, sampling: Sampling::Plain, done: &done, is_cancelled: &|| true };
        assert_eq!(simulate(&Fleet::default(), &options), None);
    }
}
