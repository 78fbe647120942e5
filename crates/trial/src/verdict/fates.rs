//! What became of every fault.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::attribution::{Cause, Finding, Hit};

/// What became of one fault, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The rule never met its block.
    Untriggered,
    /// It happened, and nobody ever saw it.
    Masked,
    /// The subject put the right data back.
    Repaired,
    /// The application got an error.
    Reported,
    /// The application got wrong data as if it were right.
    Silent,
    /// It happened, and there is no oracle to say what the application got.
    Unknown,
}

/// How many faults met each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FateCounts {
    /// See [`Fate::Untriggered`].
    pub untriggered: u64,
    /// See [`Fate::Masked`].
    pub masked: u64,
    /// See [`Fate::Repaired`].
    pub repaired: u64,
    /// See [`Fate::Reported`].
    pub reported: u64,
    /// See [`Fate::Silent`].
    pub silent: u64,
    /// See [`Fate::Unknown`].
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl FateCounts {
    fn add(&mut self, fate: Fate, number: u64) {
        *match fate {
            Fate::Untriggered => &mut self.untriggered,
            Fate::Masked => &mut self.masked,
            Fate::Repaired => &mut self.repaired,
            Fate::Reported => &mut self.reported,
            Fate::Silent => &mut self.silent,
            Fate::Unknown => &mut self.unknown,
        } += number;
    }

    /// Adds another rule's counts.
    pub fn add_all(&mut self, other: &FateCounts) {
        self.untriggered += other.untriggered;
        self.masked += other.masked;
        self.repaired += other.repaired;
        self.reported += other.reported;
        self.silent += other.silent;
        self.unknown += other.unknown;
    }
}

/// What came of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleOutcome {
    /// Injections; a sticky place is injected again each time it is met.
    pub hits: u64,
    /// Faults, one for each place the rule hit or was aimed at.
    pub faults: u64,
    /// Their fates.
    pub fates: FateCounts,
    /// Failing blocks they account for.
    pub failing_blocks: u64,
    /// Objects (files, or the one device) with such blocks.
    pub failing_files: u64,
}

/// Gives every fault its fate.
///
/// `causes[i]` belongs to `findings[i]`; `never_met[r]` counts the aims of rule `r` that no request ever met. Without an
/// oracle nothing is found, and that says nothing.
pub fn outcomes(
    rules: usize,
    hits: &[Hit],
    findings: &[Finding],
    causes: &[Cause],
    never_met: &[u64],
    has_oracle: bool,
) -> Vec<RuleOutcome> {
    let mut outcomes = vec![RuleOutcome::default(); rules];
    let mut fates: BTreeMap<(usize, u64), Fate> = BTreeMap::new();
    for hit in hits {
        outcomes[hit.rule].hits += 1;
        let fate = fates.entry((hit.rule, hit.place)).or_insert(Fate::Masked);
        if !has_oracle && hit.held_until.is_none() {
            *fate = Fate::Unknown;
        } else if hit.repaired {
            *fate = (*fate).max(Fate::Repaired);
        }
    }
    let mut spread: HashMap<usize, (HashSet<usize>, HashSet<u32>)> = HashMap::new();
    for (cause, finding) in causes.iter().zip(findings) {
        let Some(hit) = cause.hit().map(|number| &hits[number]) else { continue };
        let fate = if finding.found.is_some() { Fate::Silent } else { Fate::Reported };
        let entry = fates.entry((hit.rule, hit.place)).or_insert(fate);
        *entry = (*entry).max(fate);
        if let Some(failure) = finding.failure {
            let (blocks, files) = spread.entry(hit.rule).or_default();
            blocks.insert(failure);
            files.insert(finding.object);
        }
    }
    for ((rule, _), fate) in fates {
        outcomes[rule].faults += 1;
        outcomes[rule].fates.add(fate, 1);
    }
    for (rule, outcome) in outcomes.iter_mut().enumerate() {
        if let Some((blocks, files)) = spread.get(&rule) {
            (outcome.failing_blocks, outcome.failing_files) = (blocks.len() as u64, files.len() as u64);
        }
        let missed = never_met.get(rule).copied().unwrap_or(0);
        outcome.faults += missed;
        outcome.fates.add(Fate::Untriggered, missed);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::{ContentHash, Time};

    fn hit(rule: usize, place: u64) -> Hit {
        Hit {
            rule,
            place,
            time: Time(1),
            suffered: place..place + 4096,
            truths: vec![ContentHash(1)],
            lie: Some(ContentHash(2)),
            held_until: None,
            metadata: false,
            repaired: false,
        }
    }

    fn finding(failure: impl Into<Option<usize>>, object: u32, found: Option<u128>) -> Finding {
        Finding {
            failure: failure.into(),
            object,
            expected: vec![ContentHash(1)],
            found: found.map(ContentHash),
            timed_out: false,
            device_offset: None,
            time: Time(2),
            may_be_unwritten: false,
        }
    }

    #[test]
    fn without_an_oracle_only_delays_are_known_to_harm_nothing() {
        let mut hits = vec![hit(0, 0), hit(0, 0), hit(0, 4096), hit(1, 0)];
        hits[0].repaired = true;
        hits[3].held_until = Some(Time(9));
        let outcomes = outcomes(2, &hits, &[], &[], &[1, 0], false);
        let fates = FateCounts { unknown: 2, untriggered: 1, ..FateCounts::default() };
        assert_eq!((outcomes[0].hits, outcomes[0].fates), (3, fates));
        assert_eq!(outcomes[1].fates, FateCounts { masked: 1, ..FateCounts::default() });
    }

    #[test]
    fn every_fault_has_one_fate_and_the_worst_wins() {
        let mut hits = vec![hit(0, 0), hit(0, 0), hit(0, 4096), hit(0, 8192), hit(1, 0)];
        hits[3].repaired = true;
        let findings = [
            finding(0, 0, None),
            finding(0, 0, Some(2)),
            finding(1, 1, None),
            finding(2, 1, Some(2)),
            finding(None, 0, None),
        ];
        let causes = [Cause::Hit(0), Cause::Hit(1), Cause::Consequence(2), Cause::Unexplained, Cause::Hit(4)];
        let outcomes = outcomes(2, &hits, &findings, &causes, &[3, 0], true);
        assert_eq!(
            outcomes[0],
            RuleOutcome {
                hits: 4,
                faults: 6,
                fates: FateCounts {
                    untriggered: 3,
                    masked: 0,
                    repaired: 1,
                    reported: 1,
                    silent: 1,
                    unknown: 0
                },
                failing_blocks: 2,
                failing_files: 2,
            }
        );
        // Told of, then repeated with success: reported, and no block lost.
        assert_eq!(outcomes[1].fates, FateCounts { reported: 1, ..FateCounts::default() });
        assert_eq!(outcomes[1].failing_blocks, 0);
    }
}
