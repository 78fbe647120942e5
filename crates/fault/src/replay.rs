//! Injecting the faults of a ledger again: exactly those that were decided on in another run, and what they bring about
//! by themselves.
//!
//! The rules of the plan stay, and with them what they match; only whether a match is a hit, and what chance decided
//! of its effect, comes from the ledger. A record says which meeting of which block (or content) with its rule was decided
//! on, so the same requests are hit even if threads come in another order.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use rotproof_block::{Error, ErrorKind, Result};

use crate::BLOCK_BYTES;
use crate::effect::Effect;
use crate::geometry::blocks_in;
use crate::ledger::Injections;
use crate::matching::OperationKind;
use crate::record::{Injection, Visit};
use crate::recorded::Recorded;
use crate::rule::Rule;
use crate::target::Target;

/// The decisions of a ledger, checked against the rules that are to repeat them.
#[derive(Clone, Debug)]
pub struct Replay {
    decisions: HashMap<u32, Vec<Decided>>,
}

#[derive(Clone, Copy, Debug)]
struct Decided {
    sequence: u64,
    visit: Visit,
    effect: Effect,
}

impl Replay {
    /// The decisions in `records`, which may have been edited since they were written. `plan` are the rules of the run
    /// that repeats them.
    ///
    /// Fails with [`ErrorKind::Invalid`], naming the record and what to do, if a rule of the plan cannot have done
    /// what a record says.
    pub fn new(records: &[Injection], plan: &[Rule]) -> Result<Self> {
        let mut decisions: HashMap<u32, Vec<Decided>> = HashMap::new();
        let mut seen = HashSet::new();
        let mut chosen: HashMap<u32, Visit> = HashMap::new();
        for record in records {
            let wrong = |what: String| {
                Error::new(ErrorKind::Invalid, format!("record {} of the ledger: {what}", record.sequence))
            };
            let rule = rule_of(record, plan).map_err(wrong)?;
            let Some(visit) = record.visit else { continue };
            check(record, rule).map_err(wrong)?;
            let first = *chosen.entry(record.rule).or_insert(visit);
            if matches!(rule.matching.target, Some(Target::Seen(_) | Target::Extent { .. }))
                && (first.offset, first.content) != (visit.offset, visit.content)
                && (visit.offset.is_some() || rule.matching.content.is_empty())
            {
                return Err(wrong(format!(
                    "`{}` has one block, and an earlier record has it at another",
                    record.name
                )));
            }
            if !seen.insert((record.rule, visit)) {
                return Err(wrong(format!(
                    "an earlier record has the same visit of `{}`; a visit is hit once",
                    record.name
                )));
            }
            let decided = Decided { sequence: record.sequence, visit, effect: record.effect };
            decisions.entry(record.rule).or_default().push(decided);
        }
        Ok(Self { decisions })
    }

    /// How many faults are to be injected again, without those that they bring about.
    pub fn len(&self) -> usize {
        self.decisions.values().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// What the rule at that position of the plan is to do.
    pub fn of_rule(&self, index: u32) -> Recorded {
        let decided = self.decisions.get(&index);
        decided.into_iter().flatten().map(|decided| (decided.visit, decided.effect)).collect()
    }

    /// The sequence numbers of the records whose faults are not among `injected`, the ledger of the run that repeated
    /// them: requests that did not come again. Fails as [`Injections::each`].
    pub fn missing(&self, injected: &(impl Injections + ?Sized)) -> Result<Vec<u64>> {
        let mut came: HashSet<(u32, Visit)> = HashSet::new();
        injected.each(&mut |record| came.extend(record.visit.map(|visit| (record.rule, visit))))?;
        let all =
            self.decisions.iter().flat_map(|(&rule, decided)| decided.iter().map(move |one| (rule, one)));
        let mut missing: Vec<u64> = all
            .filter(|(rule, decided)| !came.contains(&(*rule, decided.visit)))
            .map(|(_, decided)| decided.sequence)
            .collect();
        missing.sort_unstable();
        Ok(missing)
    }
}

fn rule_of<'a>(record: &Injection, plan: &'a [Rule]) -> Result<&'a Rule, String> {
    let index = record.rule as usize;
    let Some(rule) = plan.get(index) else {
        let (rules, number) = (plan.len(), record.rule);
        return Err(format!(
            "it is of rule number {number} (from 0), but the plan has {rules}; replay a ledger with the plan that it \
             came from"
        ));
    };
    let name = rule.name_or_default(index);
    if name != *record.name {
        return Err(format!(
            "it is of `{}`, but rule number {index} (from 0) of the plan is `{name}`; replay a ledger with the plan \
             that it came from",
            record.name
        ));
    }
    Ok(rule)
}

/// Whether the rule can have done this.
fn check(record: &Injection, rule: &Rule) -> Result<(), String> {
    let Injection { name, operation, phase, effect, tag, .. } = record;
    if !rule.concerns(*operation, *phase) {
        let operation = operation.word();
        return Err(format!("`{name}` hits no {operation} in the phase {}", phase.word()));
    }
    let places = &rule.matching.offset;
    if let Some(offset) = record.visit.and_then(|visit| visit.offset)
        && !places.is_empty()
        && !places.iter().any(|range| blocks_in(range, u64::MAX).contains(&(offset / BLOCK_BYTES)))
    {
        return Err(format!("`{name}` hits nothing at {offset}; its `offset` is elsewhere"));
    }
    if record.visit.is_some_and(|visit| visit.content.is_some() != rule.matching.is_by_content())
        && *operation != OperationKind::Flush
    {
        return Err(format!(
            "the visit must be told by its content if `{name}` goes by contents, and only then"
        ));
    }
    if !rule.matching.permits_tag_name(tag) {
        return Err(format!("`{name}` does not hit requests with the tag `{tag}`"));
    }
    let is_same_kind = discriminant(effect) == discriminant(&rule.effect);
    // A rate shows as the delays that it brought about.
    let is_of_rate = matches!((effect, rule.effect), (Effect::Delay(_), Effect::Bandwidth(_)));
    if !is_same_kind && !is_of_rate {
        return Err(format!("`{name}` cannot have done {effect}; its effect is {}", rule.effect));
    }
    Ok(())
}
