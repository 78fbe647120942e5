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
            let mut tally = Tally::of(groups.end - groups.start);
            for group in groups {
                if group % CANCEL_CHECK == 0 && (options.is_cancelled)() {
                    return tallies;
                }
                if let Some(fate) = model.live(&mut Stream::new(seed, group)) {
                    tally.add(&fate, fleet.years);
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
    use crate::fleet::{COURSE_POINTS, Death, Estimate, Hazard, Source, closed_form};

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
            sources: vec![Source::singles("errors", 0.01, 1e-3).with_bursts(0.3)],
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
        let sources = vec![Source::singles("errors", 0.01, 0.01).with_bursts(0.4)];
        let fleet = Fleet { groups: 400_000, sources, ..Fleet::default() };
        let closed = closed_form::of(&fleet);
        for sampling in [Sampling::Plain, Sampling::Importance] {
            let outcome = run(&fleet, sampling, 2, 11);
            let lost = closed.lost_devices.expect("exact");
            assert_agrees("failures", outcome.failures, lost, 0.05);
            assert_agrees("lost devices", outcome.lost_devices, lost, 0.05);
        }
        // Without failures, errors are the only ones to race.
        let fleet = Fleet { hazard: Hazard::constant(0.0), ..fleet };
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
            let fleet = Fleet { groups: 300_000, redundancy, sources: Vec::new(), ..Fleet::default() };
            let closed = closed_form::of(&fleet).lost_devices.expect("exact");
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
            hazard: Hazard::constant(1e-4),
            sources: vec![Source::singles("errors", 1e-9, 1e-12)],
            ..Fleet::default()
        };
        let closed = closed_form::of(&fleet);
        let lost = closed.lost_devices.expect("exact");
        assert!(lost / 300_000.0 < 1e-9);
        let outcome = run(&fleet, Sampling::Importance, 2, 3);
        assert_agrees("lost devices", outcome.lost_devices, lost, 0.02);
        assert_agrees("silent", outcome.silent, closed.silent, 0.02);
        assert_eq!(run(&fleet, Sampling::Plain, 2, 3).lost_devices.value, 0.0);
    }

    #[test]
    fn latent_errors_that_meet_a_rebuild_agree_with_plain_sampling_and_the_first_order() {
        let fleet = Fleet {
            groups: 600_000,
            redundancy: Redundancy { data: 3, parity: 1 },
            hazard: Hazard::constant(0.05),
            sources: vec![Source::singles("errors", 0.2, 0.0)],
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
        let even = Fleet {
            groups: 400_000,
            hazard: Hazard::constant(0.0),
            sources: vec![Source::singles("errors", 0.1, 0.0)],
            ..Fleet::default()
        };
        let clustered = Fleet { clustering: Some(0.1), ..even.clone() };
        let (a, b) = (run(&even, Sampling::Plain, 2, 1), run(&clustered, Sampling::Plain, 2, 1));
        assert_agrees("errors", b.errors, 400_000.0 * 0.5, 0.01);
        assert_agrees("affected, even", a.lost_sectors, 400_000.0 * (1.0 - (-0.5f64).exp()), 0.01);
        // 1 - (1 + mean / shape)^-shape.
        let affected = 400_000.0 * (1.0 - (1.0 + 0.5 / 0.1f64).powf(-0.1));
        assert_agrees("affected, clustered", b.lost_sectors, affected, 0.01);
        assert_eq!(closed_form::of(&clustered).lost_sectors.map(f64::round), Some(affected.round()));
    }

    #[test]
    fn devices_that_age_fail_as_their_distribution_says_under_either_sampling() {
        for (shape, age_years) in [(0.6, 0.0), (0.6, 3.0), (2.5, 0.0), (2.5, 4.0)] {
            let hazard = Hazard { first_year: 0.005, shape };
            let fleet = Fleet { groups: 200_000, hazard, age_years, sources: Vec::new(), ..Fleet::default() };
            let wanted = closed_form::of(&fleet).lost_devices.expect("exact");
            for sampling in [Sampling::Plain, Sampling::Importance] {
                let outcome = run(&fleet, sampling, 2, 4);
                assert_agrees(&format!("shape {shape}"), outcome.lost_devices, wanted, 0.05);
                assert_eq!(outcome.lost_devices_course.len(), COURSE_POINTS);
                assert_eq!(outcome.lost_devices_course.last(), Some(&outcome.lost_devices));
            }
        }
    }

    #[test]
    fn mirrors_of_devices_that_age_agree_with_the_first_order() {
        let hazard = Hazard { first_year: 1e-3, shape: 3.0 };
        let rebuild_years = 1e-3;
        let fleet = Fleet {
            groups: 300_000,
            redundancy: MIRROR,
            hazard,
            rebuild_years,
            sources: Vec::new(),
            ..Fleet::default()
        };
        // Both old ones within a rebuild of each other: the integral of 2 h(t)^2 r, with h = 3 c t^2.
        let wanted = 300_000.0 * 2.0 * 9.0 * 1e-6 * 5f64.powi(5) / 5.0 * rebuild_years;
        let found = run(&fleet, Sampling::Importance, 2, 5).lost_devices;
        assert!(found.standard_error < 0.03 * wanted, "{found:?}");
        assert!((found.value / wanted - 1.0).abs() < 0.15, "{found:?}, not {wanted}");
        assert_eq!(closed_form::of(&fleet).lost_devices, None);
    }

    #[test]
    fn clusters_of_several_sources_agree_with_the_closed_form_under_either_sampling() {
        let media = Source {
            further: 2.0,
            single: 0.9,
            run: 4.0,
            front: 0.35,
            spread_years: 0.01,
            ..Source::singles("media", 0.02, 0.0)
        };
        let rot = Source::singles("rot", 1e-4, 0.25);
        let reads = Source { is_transient: true, ..Source::singles("reads", 1e-3, 0.5) };
        let fleet = Fleet {
            groups: 300_000,
            hazard: Hazard::constant(0.0),
            sources: vec![media, rot, reads],
            ..Fleet::default()
        };
        let closed = closed_form::of(&fleet);
        for (sampling, precision) in [(Sampling::Plain, 0.1), (Sampling::Importance, 0.03)] {
            let outcome = run(&fleet, sampling, 2, 12);
            assert_agrees("silent", outcome.silent, closed.silent, precision);
            assert_agrees("lost", outcome.lost_sectors, closed.lost_sectors.expect("exact"), precision);
            assert_agrees("errors", outcome.errors, 300_000.0 * 5.0 * 0.0211, precision);
        }
    }

    #[test]
    fn damage_of_two_mirrors_in_one_stripe_agrees_with_the_first_order_and_is_likelier_in_front() {
        let lost = |front: f64| {
            let media = Source { front, single: 0.0, run: 10.0, ..Source::singles("media", 0.2, 0.0) };
            let fleet = Fleet {
                groups: 400_000,
                redundancy: MIRROR,
                hazard: Hazard::constant(0.0),
                sources: vec![media],
                scrub_years: 0.1,
                sectors: Some(1e6),
                ..Fleet::default()
            };
            run(&fleet, Sampling::Plain, 2, 6).lost_sectors
        };
        // 5 years of 2 times 0.2 clusters that meet those of the other in half of 0.1 years; 10 sectors by 10 of a million.
        let wanted = 400_000.0 * 5.0 * 0.4 * (0.2 * 0.05) * 100.0 / 1e6;
        assert_agrees("anywhere", lost(0.1), wanted, 0.05);
        let wanted = wanted * (0.5 * 0.5 / 0.1 + 0.5 * 0.5 / 0.9);
        assert_agrees("half of them in front", lost(0.5), wanted, 0.05);
    }

    #[test]
    fn a_dying_device_loses_sectors_when_another_one_fails() {
        let death = Death { years: 0.05, errors: 50.0, growth: 1.0, spares: 0 };
        let hazard = Hazard::constant(0.04);
        let alone =
            Fleet { groups: 200_000, hazard, death: Some(death), sources: Vec::new(), ..Fleet::default() };
        let closed = closed_form::of(&alone).lost_devices.expect("exact");
        assert_agrees("failures", run(&alone, Sampling::Plain, 2, 3).lost_devices, closed, 0.02);
        let mirrors = Fleet { redundancy: MIRROR, ..alone };
        let plain = run(&mirrors, Sampling::Plain, 2, 7).lost_sectors;
        let biased = run(&mirrors, Sampling::Importance, 2, 8).lost_sectors;
        let both = plain.standard_error.hypot(biased.standard_error);
        assert!((plain.value - biased.value).abs() < 4.0 * both, "{plain:?} {biased:?}");
        // One begins to die while the other dies or is rebuilt: 2 0.04^2 5 years for 0.05 years and a day.
        let first_order = 200_000.0 * 2.0 * 0.04 * 0.04 * 5.0 * (0.05 + mirrors.rebuild_years);
        assert!((plain.value / first_order - 1.0).abs() < 0.25, "{plain:?} {first_order}");
        let sound = Fleet { death: None, ..mirrors };
        assert_eq!(run(&sound, Sampling::Plain, 2, 7).lost_sectors.value, 0.0);
    }

    #[test]
    fn a_cancelled_simulation_has_no_result() {
        let done = AtomicU64::new(0);
        let options =
            Options { seed: 1, threads: 2, sampling: Sampling::Plain, done: &done, is_cancelled: &|| true };
        assert_eq!(simulate(&Fleet::default(), &options), None);
    }
}
