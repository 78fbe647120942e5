//! A sample of the states; `./bench soak` looks at many more.

use super::explore::explore;
use super::story::tell;
use super::*;

/// `ROTPROOF_POWER=7` is that story again, `ROTPROOF_POWER=0..100` so many; `ROTPROOF_POWER_STATES` of each so many states.
#[test]
fn what_a_loss_of_power_leaves_of_a_volume_opens_and_holds_what_was_flushed() {
    let asked = std::env::var("ROTPROOF_POWER").ok();
    let range = |text: &str| {
        let (first, end) = text.split_once("..").unwrap_or((text, ""));
        let first: u64 = first.parse().expect("a number");
        first..end.parse().unwrap_or(first + 1)
    };
    let states =
        std::env::var("ROTPROOF_POWER_STATES").map_or(24, |states| states.parse().expect("a number"));
    let (mut sum, mut broken) = (PowerLoss::default(), Vec::new());
    for seed in asked.as_deref().map_or(0..40, range) {
        match power_loss(seed, states) {
            Ok(one) => {
                sum.states += one.states;
                sum.one_first += one.one_first;
                sum.alone += one.alone;
                for (operation, states) in one.by_operation {
                    *sum.by_operation.entry(operation).or_default() += states;
                }
            }
            Err(why) => broken.push(format!("ROTPROOF_POWER={seed}: {why}")),
        }
    }
    assert!(broken.is_empty(), "{} broke a promise:\n{}", broken.len(), broken.join("\n"));
    if asked.is_none() {
        assert!(sum.states > 300 && sum.one_first > 10 && sum.alone > 10, "{sum:?}");
        let of_use =
            ["create", "open", "write", "flush", "discard", "scrub", "rebuild", "capture", "rollback"];
        for operation in of_use.into_iter().chain(["grow", "add a copy", "remove a copy", "grow in use"]) {
            assert!(sum.by_operation.contains_key(operation), "{operation}: {sum:?}");
        }
        assert_eq!(power_loss(3, 20), power_loss(3, 20), "a seed is a story");
    }
}

/// Were the flushes of the members none, promises would be broken, and this would see it.
#[test]
fn members_that_do_not_flush_are_found_out() {
    let found = (0..6).any(|seed| explore(&tell(seed, true).expect("a story"), seed, 200).is_err());
    assert!(found, "nothing was ever durable, and nobody has noticed");
}
