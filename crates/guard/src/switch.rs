//! When a block in memory is verified by the strong sum again, from the reliability model.
//!
//! A block that was verified by its strong sum at some time was right then, however long it had been in memory before. So the
//! residency that counts is the time since the last strong verification, and a machine that verifies again after `t_switch`
//! keeps what the model promises of that residency.

use rotproof_model::systems::{self, Configuration};
use rotproof_model::{Bound, Checksum, Goal, Path, Protection, switch_time};

use crate::format::Pair;
use crate::sum::Algorithm;

/// Z2 with the checksums of a guard, until it switches: light in the writer's memory, both on the disk, light in the reader's
/// memory.
pub fn path_before_switch(pair: Pair) -> Path {
    let mut path = systems::z2_static();
    let known = |algorithm: Algorithm| Checksum::from_word(algorithm.word());
    let [light, both] = [vec![known(pair.light)], vec![known(pair.light), known(pair.strong)]].map(|list| {
        let list: Vec<Checksum> = list.into_iter().flatten().collect();
        Protection::Fixed(list)
    });
    for (stage, protection) in path.stages.iter_mut().zip([light.clone(), both, light]) {
        stage.protection = protection;
    }
    path
}

/// Whole seconds, rounded down, for which the light sum is enough on a machine: `Some(0)` if it never is, `None` if it is for
/// longer than a machine runs.
pub fn switch_seconds(pair: Pair, machine: Configuration, goal: Goal) -> Option<u32> {
    let path = path_before_switch(pair).on(machine.memory, machine.disk);
    let seconds = switch_time(&path, goal, Bound::High);
    (seconds < f64::from(u32::MAX)).then_some(seconds as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_model() {
        let pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Fletcher256 };
        let machine = |word| Configuration::from_word(word).expect("a machine");
        // Published for a consumer's machine: 92 s.
        assert_eq!(switch_seconds(pair, machine("consumer"), Goal::zettabyte()), Some(92));
        assert_eq!(switch_seconds(pair, machine("low-end"), Goal::zettabyte()), Some(0));
        assert!(
            switch_seconds(pair, machine("server"), Goal::zettabyte())
                .is_none_or(|seconds| seconds > 1 << 20)
        );
        let other = Pair { strong: Algorithm::Xxh3, ..pair };
        assert!(
            switch_seconds(other, machine("consumer"), Goal::zettabyte()).is_some_and(|seconds| seconds > 60)
        );
    }

    /// Renewing: a block that is verified strongly every t seconds meets the goal at every moment, which one that is only
    /// looked at by the light sum for longer does not.
    #[test]
    fn time_counts_from_the_last_strong_verification() {
        let pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };
        let machine = Configuration::from_word("consumer").expect("a machine");
        let seconds = switch_seconds(pair, machine, Goal::zettabyte()).expect("limited");
        let path = path_before_switch(pair).on(machine.memory, machine.disk);
        assert!(path.meets(Goal::zettabyte(), f64::from(seconds)));
        assert!(!path.meets(Goal::zettabyte(), f64::from(seconds) * 10.0));
    }
}
