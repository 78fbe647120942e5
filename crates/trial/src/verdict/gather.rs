//! The hits of a ledger of any length: records that no finding can tell apart are one.
//!
//! A bad block that is read again and again leaves a record each time. They differ in when, and a finding goes by that in
//! one way only: whether one came before it. So the first stands for all, with the time of the last, and a verdict takes the
//! memory of what was damaged, not of how often. Where moments matter each by itself, as of a request that failed while another
//! was under way, records stay apart; and so do the bytes that one left, if somebody found just those.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rotproof_block::{ContentHash, Result};
use rotproof_fault::{Injections, OperationKind, RuleReport};

use super::SeenAt;
use super::finding::Finding;
use super::injection_group::{Harm, InjectionGroup};

/// The hits of all `records`, as far as `findings` can tell them apart. Fails where the records cannot be read.
pub(super) fn gather(
    records: &(impl Injections + ?Sized),
    rules: &[RuleReport],
    seen_at: &SeenAt<'_>,
    findings: &[Finding],
) -> Result<Vec<InjectionGroup>> {
    let mut gathering = Gathering::with(Told::of(findings));
    records.each(&mut |record| gathering.take(InjectionGroup::new(record, rules, seen_at)))?;
    Ok(gathering.hits)
}

/// Hits, one for all that are alike.
pub(super) struct Gathering {
    pub(super) hits: Vec<InjectionGroup>,
    known: HashMap<ContentHash, usize>,
    text: Vec<u8>,
    told: Told,
}

/// What findings tell hits apart by.
pub(super) struct Told {
    /// Something took too long, so that it matters when delays held up whom.
    pub(super) times_out: bool,
    /// The contents that were found.
    pub(super) found: HashSet<ContentHash>,
    /// Some block was read in part, and is held against sectors.
    is_in_part: bool,
}

impl Gathering {
    pub(super) fn with(told: Told) -> Self {
        Self { hits: Vec::new(), known: HashMap::new(), text: Vec::new(), told }
    }

    pub(super) fn take(&mut self, hit: InjectionGroup) {
        self.text.clear();
        self.told.tell(&hit, &mut self.text);
        match self.known.entry(ContentHash::of(&self.text)) {
            Entry::Occupied(same) => self.hits[*same.get()].take_in(&hit),
            Entry::Vacant(new) => {
                new.insert(self.hits.len());
                self.hits.push(hit);
            }
        }
    }
}

impl InjectionGroup {
    /// Another record that says the same, later in the ledger.
    fn take_in(&mut self, other: &InjectionGroup) {
        self.count += other.count;
        // Injections come in the order in which they were written down, which is nearly that of their times.
        self.time = self.time.min(other.time);
        self.last.0 = other.last.0;
        self.last.1 = self.last.1.max(other.last.1);
        self.served = self.served.min(other.served);
        if let (Harm::Delay(until), Harm::Delay(other)) = (&mut self.harm, other.harm) {
            *until = (*until).max(other);
        }
    }
}

impl Told {
    pub(super) fn of(findings: &[Finding]) -> Self {
        Self {
            times_out: findings.iter().any(|finding| finding.timed_out),
            found: findings.iter().filter_map(|finding| finding.found).collect(),
            is_in_part: findings.iter().any(|finding| finding.found_sectors.is_some()),
        }
    }

    /// Everything by which findings tell a hit from others.
    fn tell(&self, hit: &InjectionGroup, text: &mut Vec<u8>) {
        let mut put = |number: u64| text.extend_from_slice(&number.to_le_bytes());
        let moment_matters = match hit.harm {
            Harm::Data(_) => false,
            Harm::Delay(_) => self.times_out,
            Harm::Error => {
                self.times_out || !matches!(hit.operation, OperationKind::Read | OperationKind::Write)
            }
        };
        if moment_matters {
            put(hit.number);
        }
        let flags = [hit.persists, hit.repaired, hit.is_dark, hit.served.is_some(), hit.gone.is_some()];
        put(flags.into_iter().fold(0, |all, flag| all << 1 | u64::from(flag)));
        put(hit.of_load.map_or(0, |is_of_load| 1 + u64::from(is_of_load)));
        put(hit.gone.map_or(0, |gone| gone.0));
        put(hit.rule as u64);
        put(hit.place);
        put(hit.flip.map_or(0, |number| number + 1));
        put(hit.device.map_or(u64::MAX, |device| device as u64));
        put(hit.block);
        put(hit.phase as u64);
        put(hit.operation as u64);
        put(hit.suffered.start);
        put(hit.suffered.end);
        put(match hit.harm {
            Harm::Data(None) => 0,
            Harm::Data(Some(_)) => 1,
            Harm::Error => 2,
            Harm::Delay(_) => 3,
        });
        put(hit.truths.len() as u64);
        put(u64::from(hit.own.is_some()));
        // What it left matters to whoever found that, or where it is what was there before.
        let corruption = hit.corruption().filter(|corruption| {
            self.is_in_part || self.found.contains(corruption) || hit.own == Some(*corruption)
        });
        put(u64::from(corruption.is_some()));
        for hash in corruption.into_iter().chain(hit.own).chain(hit.truths.iter().copied()) {
            text.extend_from_slice(&hash.0.to_le_bytes());
        }
        for sector in hit.sectors.filter(|_| self.is_in_part).into_iter().flatten() {
            text.extend_from_slice(&sector.to_le_bytes());
        }
        text.extend_from_slice(hit.on.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fates::tests::FILES;
    use rotproof_results::run::FateCounts;

    use super::super::fates::outcomes;
    use super::super::finding::Finding;
    use super::super::finding::tests::{unreadable, wrong};
    use super::super::injection_group::tests::flip;
    use super::super::{Looks, attribute};
    use super::*;
    use proptest::prelude::*;
    use rotproof_block::{Phase, Time};
    use rotproof_fault::Injection;
    use serde_json::{Value, json};

    fn record(sequence: u64, change: &Value) -> Injection {
        let mut record = json!({
            "sequence": sequence, "rule": 0, "name": "rot", "operation": "read", "offset": 8192, "length": 4096,
            "effect": "medium_error", "time_ns": 100 + sequence, "phase": "run", "request": sequence,
            "before": "00000000000000000000000000000001",
        });
        for (key, value) in change.as_object().into_iter().flatten() {
            record[key] = value.clone();
        }
        serde_json::from_value(record).expect("a record")
    }

    fn gathered(records: &[Injection], findings: &[Finding]) -> Vec<InjectionGroup> {
        gather(records, &[], &|_, offset| Some((0, offset)), findings).expect("in memory")
    }

    #[test]
    fn a_block_that_fails_again_and_again_is_one_hit() {
        let records: Vec<Injection> = (0..1_000).map(|number| record(number, &Value::Null)).collect();
        let hits = gathered(&records, &[]);
        let [hit] = &hits[..] else { panic!("{} hits", hits.len()) };
        assert_eq!((hit.number, hit.count, hit.time, hit.last), (0, 1_000, Time(100), (999, Time(1_099))));
        assert_eq!([50, 99, 5_000].map(|time| hit.latest(Time(time))), [0, 0, 999]);
        let late = Finding { timed_out: true, ..unreadable(1) };
        assert_eq!(gathered(&records, &[late]).len(), 1_000, "what failed meanwhile is a matter of moments");
    }

    #[test]
    fn what_a_finding_can_tell_apart_stays_apart() {
        let others = [
            json!({ "offset": 4096 }),
            json!({ "rule": 1 }),
            json!({ "on": "left" }),
            json!({ "phase": "check" }),
            json!({ "operation": "write" }),
            json!({ "before": "00000000000000000000000000000002" }),
            json!({ "effect": "noise(draw=1)", "after": "00000000000000000000000000000003" }),
            json!({ "effect": "noise(draw=1)", "after": "00000000000000000000000000000004" }),
            json!({ "effect": "noise(draw=1)", "after": "00000000000000000000000000000004", "served_at_ns": 7 }),
            json!({ "effect": "noise(draw=1)", "after": "00000000000000000000000000000004", "replaced_at_ns": 7 }),
            json!({ "effect": "noise(draw=1)", "after": "00000000000000000000000000000004", "repaired_at_ns": 7 }),
            json!({ "effect": "noise(draw=1)", "after": "00000000000000000000000000000004", "of_load": true }),
        ];
        let records: Vec<Injection> = (0..)
            .zip([Value::Null].iter().chain(&others))
            .map(|(number, change)| record(number, change))
            .collect();
        let found = [wrong(2, 3), wrong(2, 4)];
        assert_eq!(gathered(&records, &found).len(), records.len());
        // Nobody found the one or the other.
        assert_eq!(gathered(&records, &[]).len(), records.len() - 1);
    }

    #[test]
    fn flushes_that_failed_are_told_apart_by_their_moments() {
        let flush =
            json!({ "operation": "flush", "offset": 0, "length": 0, "effect": "error(EIO)", "before": null });
        let records: Vec<Injection> = (0..3).map(|number| record(number, &flush)).collect();
        assert_eq!(gathered(&records, &[]).len(), 3);
    }

    /// A hit of one of three blocks, each with a content and a rule of its own.
    fn any_hit() -> impl Strategy<Value = InjectionGroup> {
        let moments = (0u64..40, prop::option::of(0u64..40), prop::option::of(0u64..40));
        (0u64..3, 0u8..3, any::<bool>(), any::<bool>(), moments).prop_map(
            |(block, way, persists, is_in_run, (time, served, gone))| {
                let (harm, operation) = match way {
                    0 => (Harm::Error, OperationKind::Read),
                    1 => (Harm::Error, OperationKind::Write),
                    _ => (Harm::Data(Some(ContentHash(100 + u128::from(block)))), OperationKind::Read),
                };
                let is_data = matches!(harm, Harm::Data(_));
                InjectionGroup {
                    rule: block as usize,
                    time: Time(time),
                    last: (0, Time(time)),
                    phase: if is_in_run { Phase::Run } else { Phase::Check },
                    operation,
                    harm,
                    own: is_data.then_some(ContentHash(u128::from(block))),
                    persists,
                    served: served.filter(|_| is_data).map(|after| Time(time + after)),
                    gone: gone.filter(|_| is_data).map(|after| Time(time + after)),
                    ..flip(block * 4096, u128::from(block), 0)
                }
            },
        )
    }

    fn any_finding() -> impl Strategy<Value = Finding> {
        (0u64..3, 0u8..3, any::<bool>(), any::<bool>(), 0u64..60, any::<bool>()).prop_map(
            |(block, way, is_placed, is_in_run, time, may_be_unwritten)| {
                let expected = u128::from(block);
                let finding = match way {
                    0 => unreadable(expected),
                    1 => wrong(expected, 100 + expected),
                    _ => wrong(expected, 7),
                };
                Finding {
                    device_offset: is_placed.then_some(block * 4096),
                    phase: if is_in_run { Phase::Run } else { Phase::Check },
                    time: Time(time),
                    may_be_unwritten,
                    ..finding
                }
            },
        )
    }

    proptest! {
        /// Against a verdict on every record by itself: what is known of each failure is the same, and no fate is better.
        #[test]
        fn what_is_gathered_is_judged_like_each_by_itself(
            hits in prop::collection::vec(any_hit(), 1..60),
            findings in prop::collection::vec(any_finding(), 0..8),
        ) {
            let mut hits = hits;
            hits.sort_by_key(|hit| hit.time);
            for (hit, number) in hits.iter_mut().zip(0..) {
                (hit.number, hit.last.0) = (number, number);
            }
            let mut gathering = Gathering::with(Told::of(&findings));
            hits.iter().for_each(|hit| gathering.take(hit.clone()));
            let looks = Looks { intact: &|expected| vec![true; expected.len()], lies_below: &|_, _| true };
            let judge = |hits: &[InjectionGroup]| {
                let causes = attribute(hits, &findings, &looks);
                let outcomes = outcomes(hits, &findings, &causes, &[0; 3], &FILES);
                (causes.iter().map(|cause| cause.certainty()).collect::<Vec<_>>(), outcomes)
            };
            let ((known, each), (known_of_all, all)) = (judge(&hits), judge(&gathering.hits));
            prop_assert_eq!(&known, &known_of_all);
            // Which of several errors a block depends on that it only follows from, no time says for sure.
            prop_assume!(known.iter().all(|&certainty| certainty == 0 || certainty == 3));
            let order = |fates: FateCounts| {
                let counts =
                    [fates.masked, fates.repaired, fates.reported, fates.unknown, fates.silent];
                counts.iter().rposition(|&count| count > 0)
            };
            for (each, all) in each.iter().zip(&all) {
                prop_assert_eq!((each.hits, each.faults, each.failing_blocks), (all.hits, all.faults, all.failing_blocks));
                prop_assert!(order(each.fates) <= order(all.fates), "{:?} became {:?}", each.fates, all.fates);
            }
        }
    }
}
