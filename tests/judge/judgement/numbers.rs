//! Whether the numbers of a verdict are those of the ledger and of its own lists, and whether it passes what may pass.

use std::collections::BTreeSet;

use super::evidence::Evidence;
use crate::ledger::Line;
use crate::told::{Cause, FATES, Told};

pub fn judge(evidence: &Evidence<'_>, told: &Told, wrong: &mut Vec<String>) {
    let lines = evidence.lines;
    let mut equal = |what: &str, said: u64, found: u64| {
        if said != found {
            wrong.push(format!("{what}: the verdict says {said}, and there are {found}"));
        }
    };
    let count = |is_it: &dyn Fn(&Cause) -> bool| {
        told.failures.iter().filter(|failure| is_it(&failure.cause)).count() as u64
    };
    equal("failures", told.count("failures"), told.failures.len() as u64);
    let files: BTreeSet<u32> = told.failures.iter().map(|failure| failure.object).collect();
    equal("failing files", told.count("failing_files"), files.len() as u64);
    equal("unexplained", told.count("unexplained"), count(&|cause| *cause == Cause::Unexplained));
    equal("assumed", told.count("assumed"), count(&|cause| matches!(cause, Cause::Assumed(_))));
    equal("injections", told.count("injections"), lines.len() as u64);
    for fate in FATES {
        equal(fate, told.count(fate), told.rules.iter().map(|rule| rule.fate(fate)).sum());
    }
    let models = &evidence.trial.facts.models;
    let mut idle = BTreeSet::new();
    for (number, rule) in told.rules.iter().enumerate() {
        let own = || lines.iter().filter(|line| line.rule == number);
        let faults: BTreeSet<u64> = own().map(Line::place).collect();
        let sum = FATES.iter().map(|fate| rule.fate(fate)).sum();
        equal(&format!("hits of rule {number}"), rule.hits, own().count() as u64);
        equal(&format!("faults of rule {number}"), rule.faults, sum);
        let untriggered = rule.fate("untriggered");
        equal(&format!("faults of rule {number} that hit"), rule.faults - untriggered, faults.len() as u64);
        if faults.is_empty() {
            equal(&format!("aims of rule {number}, if any"), untriggered.max(1), untriggered);
            let is_of_busy_model =
                models[number].is_some_and(|model| lines.iter().any(|line| models[line.rule] == Some(model)));
            if !is_of_busy_model {
                idle.insert(models[number].map_or(number, |model| usize::MAX - model));
            }
        }
    }
    if !evidence.trial.facts.is_by_default {
        return;
    }
    let has_failed = !evidence.account.seen.is_empty();
    let is_clean =
        ["failures", "silent", "unknown", "assumed", "unexplained"].iter().all(|name| told.count(name) == 0);
    if told.passes && (has_failed || !idle.is_empty() || !is_clean) {
        wrong.push(format!(
            "acquitted: it passes, though blocks failed ({has_failed}), rules {idle:?} never hit, or {:?}",
            told.counts
        ));
    }
    if !told.passes && !has_failed && is_clean && told.count("idle_rules") == 0 {
        wrong.push("charged: it fails, and nothing failed in it".to_owned());
    }
}
