//! Replay against what it promises: the ledger of a run, injected again, gives that ledger.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rotproof_fault::{
    Effect, Engine, EngineOptions, Injection, Replay, ResolvedRule, Rule, Visit, read_ledger,
};

use crate::carrier::{Carrier, Outcome};
use crate::cases::{Case, DEVICE_BYTES, Step};

/// The ledger, as a file, and the outcomes of all requests.
fn run(case: &Case, replay: Option<&Replay>) -> (Vec<Injection>, Vec<Outcome>) {
    let rules = case.rules.iter().cloned().zip(0..).map(|(rule, index)| ResolvedRule {
        recorded: replay.map(|replay| replay.of_rule(index)),
        ..ResolvedRule::from(rule)
    });
    let engine = Engine::new(rules.collect(), EngineOptions { seed: 7, device_size: DEVICE_BYTES });
    let mut carrier = Carrier::new(&engine);
    let outcomes = case.steps.iter().zip(0..).filter_map(|(step, number)| match step {
        Step::Ask(ask) => Some(carrier.carry(ask, number * 1000)),
        Step::Mark(text) => {
            engine.mark(text);
            None
        }
        Step::Add(_) | Step::Set(..) => None,
    });
    let outcomes = outcomes.collect();
    let mut file = Vec::new();
    engine.ledger().write_to(&mut file).expect("memory takes everything");
    (read_ledger(file.as_slice()).expect("what was written is valid"), outcomes)
}

pub fn same_ledger(case: &Case) -> Result<(), TestCaseError> {
    let (ledger, outcomes) = run(case, None);
    let replay = Replay::new(&ledger, &case.rules).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let (again, same_outcomes) = run(case, Some(&replay));
    for (one, other) in again.iter().zip(&ledger) {
        prop_assert_eq!(one, other);
    }
    prop_assert_eq!(again.len(), ledger.len());
    prop_assert_eq!(same_outcomes, outcomes);
    prop_assert_eq!(replay.missing(&ledger[..]).expect("in memory"), [0u64; 0]);
    Ok(())
}

pub fn what_is_left(case: &Case, kept: &[bool]) -> Result<(), TestCaseError> {
    // Where a fault that is left out changes what is asked later, the others come at other visits: a device that was
    // gone meets rules again, a write that had failed now stores its content.
    let changes_visits =
        |rule: &Rule| matches!(rule.effect, Effect::ReadOnly | Effect::Gone) || rule.matching.is_by_content();
    let mut case = case.clone();
    case.rules.retain(|rule| !changes_visits(rule));
    let case = &case;
    let (mut ledger, _) = run(case, None);
    let mut kept = kept.iter().cycle();
    ledger.retain(|_| kept.next() == Some(&true));
    let replay = Replay::new(&ledger, &case.rules).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let (again, _) = run(case, Some(&replay));
    let decided = |records: &[Injection]| -> BTreeSet<(u32, Visit)> {
        records.iter().filter_map(|record| Some((record.rule, record.visit?))).collect()
    };
    prop_assert_eq!(decided(&again), decided(&ledger));
    prop_assert_eq!(replay.missing(&again[..]).expect("in memory"), [0u64; 0]);
    Ok(())
}
