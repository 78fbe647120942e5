//! Checksum switching: how long a weak checksum in memory is enough.

use crate::{Bound, Goal, Path};

/// When a path goes over to the protection it has `after` the switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Switch {
    /// As soon as the protection `before` would miss this goal: t_switch.
    AtGoal(Goal),
    /// After so many seconds in memory.
    After(f64),
}

/// Longest residency that is looked at, in seconds: a thousand years.
const RESIDENCY_MAX: f64 = 1000.0 * crate::SECONDS_PER_YEAR;

/// Shortest one.
const RESIDENCY_MIN: f64 = 1e-9;

/// Steps per decade of the search for the first miss; the parts are powers of the time, so that nothing hides between two.
const STEPS_PER_DECADE: f64 = 8.0;

/// Whether a block that has been in memory for `residency` seconds is checked with what comes after the switch.
pub fn is_switched(path: &Path, residency: f64) -> bool {
    match path.switch {
        None => false,
        Some(Switch::After(seconds)) => residency > seconds,
        Some(Switch::AtGoal(goal)) => !goal.is_met_by(path.undetected_as(residency, false, Bound::Value)),
    }
}

/// The largest residency in seconds at which the protection before the switch still meets the goal: the solution of
/// P_sys(t) = goal. 0 if not even a block that is used at once meets it, infinity if a thousand years do not miss it.
pub fn switch_time(path: &Path, goal: Goal, bound: Bound) -> f64 {
    let meets = |residency: f64| goal.is_met_by(path.undetected_as(residency, false, bound));
    if !meets(0.0) {
        return 0.0;
    }
    let steps = ((RESIDENCY_MAX / RESIDENCY_MIN).log10() * STEPS_PER_DECADE).ceil() as i32;
    let step = |number: i32| RESIDENCY_MIN * 10f64.powf(f64::from(number) / STEPS_PER_DECADE);
    let Some(first) = (0..=steps).find(|&number| !meets(step(number))) else {
        return f64::INFINITY;
    };
    let (mut holds, mut misses) = (if first == 0 { 0.0 } else { step(first - 1) }, step(first));
    // Until the two are neighbours among doubles, or as good as.
    for _ in 0..200 {
        let middle = f64::midpoint(holds, misses);
        if middle <= holds || middle >= misses {
            break;
        }
        if meets(middle) { holds = middle } else { misses = middle }
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::{self, Configuration};

    #[test]
    fn consumer_machines_switch_after_92_seconds() {
        let consumer = Configuration::from_word("consumer").expect("a configuration");
        let path = systems::z2_static().on(consumer.memory, consumer.disk);
        let seconds = switch_time(&path, Goal::zettabyte(), Bound::Value);
        assert!((seconds - 92.4).abs() < 0.1, "{seconds}");
        assert!(path.meets(Goal::zettabyte(), seconds) && !path.meets(Goal::zettabyte(), seconds * 1.0001));
    }

    #[test]
    fn bad_memory_has_no_time_and_a_modest_goal_all_of_it() {
        let low_end = Configuration::from_word("low-end").expect("a configuration");
        let path = systems::z2_static().on(low_end.memory, low_end.disk);
        assert_eq!(switch_time(&path, Goal::zettabyte(), Bound::Value), 0.0);
        assert_eq!(switch_time(&path, Goal::of_score(0.0), Bound::Value), f64::INFINITY);
    }

    #[test]
    fn the_dynamic_system_never_does_worse_than_its_goal_where_the_strong_checksum_can_keep_it() {
        let consumer = Configuration::from_word("consumer").expect("a configuration");
        let path = systems::z2_dynamic(Goal::zettabyte()).on(consumer.memory, consumer.disk);
        for residency in [0.0, 1.0, 92.0, 93.0, 1e4, 1e6] {
            assert!(path.meets(Goal::zettabyte(), residency), "{residency}");
        }
        assert!(!path.outcome(92.0).is_switched && path.outcome(93.0).is_switched);
        let mut fixed = path;
        fixed.switch = Some(Switch::After(10.0));
        assert!(!fixed.outcome(10.0).is_switched && fixed.outcome(10.1).is_switched);
    }
}
