//! The engine against a slow, obvious model of it: random rules that come, go and pause, random requests, and every
//! completion, every byte read, every record of the ledger and every counter compared.
//!
//! The model walks the list of rules for each block and keeps the whole device three times: as it should be, as it
//! reads, and which bytes lie.

mod carrier;
mod cases;
#[path = "../carrier/mod.rs"]
mod disk;
mod model;
mod replaying;

use proptest::prelude::*;
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, Rule};

use crate::carrier::Carrier;
use crate::cases::{Case, DEVICE_BYTES, Step, any_case, any_chancy_case};
use crate::model::Model;

fn compare(case: &Case) -> Result<(), TestCaseError> {
    let rules: Vec<ResolvedRule> = case.rules.iter().cloned().map(ResolvedRule::from).collect();
    let engine = Engine::new(rules, EngineOptions { seed: 7, device_size: DEVICE_BYTES });
    let mut carrier = Carrier::new(&engine);
    let mut model = Model::new(&case.rules);
    for (number, step) in case.steps.iter().enumerate() {
        match step {
            Step::Ask(request) => {
                let time_ns = number as u64 * 1000;
                let expected = model.carry(request, time_ns);
                let found = carrier.carry(request, time_ns);
                prop_assert_eq!(found, expected, "step {} {:?}", number, request);
            }
            Step::Add(rule) => {
                let names = engine.add_rules(vec![Rule::clone(rule).into()]);
                let names = names.map_err(|error| TestCaseError::fail(error.to_string()))?;
                let expected = model.add(rule);
                prop_assert_eq!(&*names[0], &*expected);
            }
            Step::Set(rule, state) if model.rule_count() > 0 => {
                let rule = rule % model.rule_count();
                let is_there = model.set_state(rule, *state);
                prop_assert_eq!(engine.set_state(&Model::name(rule), *state).is_ok(), is_there);
            }
            Step::Set(..) => {}
            Step::Mark(text) => {
                engine.mark(text);
                model.mark(text);
            }
        }
    }
    let records = engine.ledger().records().expect("in memory");
    for (record, expected) in records.iter().zip(&model.records) {
        prop_assert_eq!(&model::Injection::of(record), expected);
    }
    prop_assert_eq!(records.len(), model.records.len());
    for (index, report) in engine.report().iter().enumerate() {
        prop_assert_eq!(report.state, model.states[index], "state of rule {}", index);
        prop_assert_eq!(report.matches, model.matches[index], "matches of rule {}", index);
        let hits = model.records.iter().filter(|record| record.rule == index).count();
        prop_assert_eq!(report.hits, hits as u64, "hits of rule {}", index);
    }
    let mut file = Vec::new();
    engine.ledger().write_to(&mut file).expect("memory takes everything");
    let again = rotproof_fault::read_ledger(file.as_slice());
    prop_assert_eq!(again.map_err(|error| TestCaseError::fail(error.to_string()))?, records);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_the_model_does(case in any_case()) {
        compare(&case)?;
    }

    #[test]
    fn a_replayed_ledger_gives_the_same_ledger(case in any_chancy_case()) {
        replaying::same_ledger(&case)?;
    }

    #[test]
    fn of_an_edited_ledger_exactly_what_is_left_comes_again(
        case in any_chancy_case(), kept in proptest::collection::vec(any::<bool>(), 64)
    ) {
        replaying::what_is_left(&case, &kept)?;
    }
}
