//! What became of every fault. `docs/fates.md` has what each fate claims, and what it rests on.

use std::collections::{BTreeMap, HashMap, HashSet};

use rotproof_block::{ContentHash, Phase, Time};
use rotproof_fault::{BLOCK_BYTES, OperationKind};
use rotproof_load::{ContentId, Oracle, Workload};
use serde::Serialize;

use rotproof_results::run::{FateCounts, RuleOutcome};

use super::Evidence;
use super::attribution::Cause;
use super::finding::{self, Finding};
use super::injection_group::{Harm, InjectionGroup};

/// What became of one fault, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The rule never met its block.
    Untriggered,
    /// It happened, and was seen to harm nobody.
    Masked,
    /// The right data was put back.
    Repaired,
    /// The application got an error.
    Reported,
    /// It happened, and nothing shows what the application got.
    Unknown,
    /// The application got wrong data as if it were right.
    Silent,
}

fn add(counts: &mut FateCounts, fate: Fate, number: u64) {
    *match fate {
        Fate::Untriggered => &mut counts.untriggered,
        Fate::Masked => &mut counts.masked,
        Fate::Repaired => &mut counts.repaired,
        Fate::Reported => &mut counts.reported,
        Fate::Silent => &mut counts.silent,
        Fate::Unknown => &mut counts.unknown,
    } += number;
}

/// What the load can say of blocks that did not fail.
pub(super) struct Knowledge<'a> {
    /// Of the load; none where nobody knows what it wrote, or not all was read back.
    oracle: Option<LoadOracle<'a>>,
    /// Nothing stands between the device and the load: what goes up is what the load gets.
    is_direct: bool,
    /// See [`Evidence::keeps_copies`].
    keeps_copies: bool,
    /// See [`Evidence::has_other_users`].
    has_other_users: bool,
    /// All that the load saw is among the findings; blocks that fail in ever other ways are more than are kept.
    is_complete: bool,
}

enum LoadOracle<'a> {
    Blocks(&'a Workload, &'a Oracle),
    Files,
}

impl<'a> Knowledge<'a> {
    pub(super) fn of(evidence: &Evidence<'a>) -> Self {
        let of_files = evidence.files.filter(|files| files.oracle.is_some()).map(|_| LoadOracle::Files);
        let of_blocks = evidence.load.map(|(workload, oracle)| LoadOracle::Blocks(workload, oracle));
        Self {
            oracle: of_blocks.or(of_files),
            is_direct: evidence.blocks_stay && !evidence.keeps_copies && !finding::is_cached(evidence),
            keeps_copies: evidence.keeps_copies,
            has_other_users: evidence.has_other_users,
            is_complete: evidence.reports.iter().all(|report| report.sightings_omitted == 0)
                && evidence.files.iter().flat_map(|files| &files.reports).all(|report| report.omitted == 0),
        }
    }

    /// What became of wrong data on a bare device that was seen by no finding of its own.
    fn direct(&self, hit: &InjectionGroup, others: Others) -> Fate {
        let Some(LoadOracle::Blocks(workload, oracle)) = self.oracle else { return Fate::Unknown };
        let block = hit.block;
        if hit.served.is_none() {
            return if hit.gone.is_some() { Fate::Masked } else { Fate::Unknown };
        }
        if oracle.was_read_unjudged(block) && hit.phase != Phase::Setup {
            // Nobody compared it, but the engine saw it go up in the place of what the device holds.
            return Fate::Silent;
        }
        if self.has_other_users {
            // It went up, and what the load read was right: then somebody else has it.
            return Fate::Unknown;
        }
        let is_judged = block < workload.layout().blocks()
            && (oracle.expects_zeros() || oracle.legal(block) != [ContentId::NEVER_WRITTEN]);
        // Every read of it was compared, and right.
        if is_judged && others == Others::None && self.is_complete { Fate::Masked } else { Fate::Unknown }
    }

    /// Whether the request may be none of the load's.
    fn is_of_others(&self, hit: &InjectionGroup) -> bool {
        self.has_other_users && hit.operation == OperationKind::Flush
    }

    /// What became of a hit that no finding was laid to.
    fn without_findings(&self, hit: &InjectionGroup, others: Others) -> Fate {
        if let Harm::Delay(_) = hit.harm {
            // It came back whole, only later.
            return Fate::Masked;
        }
        if self.oracle.is_none() {
            return Fate::Unknown;
        }
        let is_unchanged = hit.corruption().is_some() && hit.corruption() == hit.own;
        // The worst that any reader met counts.
        if let Harm::Data(_) = hit.harm
            && !is_unchanged
            && self.is_direct
            && self.direct(hit, others) == Fate::Silent
        {
            return Fate::Silent;
        }
        match others {
            Others::Silent if matches!(hit.harm, Harm::Data(_)) => return Fate::Silent,
            Others::Told => return Fate::Reported,
            _ => {}
        }
        if hit.repaired {
            return Fate::Repaired;
        }
        // Nobody can have read what was gone before anybody came, and what was never changed harms nobody.
        let is_unseen = hit.served.is_none() && hit.gone.is_some();
        match hit.harm {
            Harm::Data(_) if is_unchanged => Fate::Masked,
            Harm::Data(_) if self.is_direct => self.direct(hit, others),
            Harm::Data(_) if is_unseen => Fate::Masked,
            // A discard is a hint; the data are where they were.
            Harm::Error if hit.operation == OperationKind::Discard => Fate::Masked,
            // There is nobody between who could have swallowed it.
            Harm::Error if self.is_direct && hit.phase != Phase::Setup && !self.is_of_others(hit) => {
                Fate::Reported
            }
            // All that the load has made is read back in the end, and every read of it before was compared.
            _ if hit.of_load == Some(true) && others == Others::None && self.is_complete => Fate::Masked,
            _ => Fate::Unknown,
        }
    }
}

/// What other hits say of what a hit damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Others {
    /// No block failed that was to hold it.
    None,
    /// One did, and that says nothing about this hit.
    Open,
    /// One did, and an error told of it each time, laid to another hit of the same bytes.
    Told,
    /// One did, without a word, laid to another hit of the same bytes, while this one's damage was there too.
    Silent,
}

/// The findings by what they expected, with the hit that each was laid to.
struct Expectations<'a> {
    hits: &'a [InjectionGroup],
    findings: &'a [Finding],
    causes: &'a [Cause],
    by_content: HashMap<ContentHash, Vec<usize>>,
    /// Contents that were found where something else was to be, and are laid to no hit.
    strange: HashSet<ContentHash>,
    /// Where blocks do not move, by the block of the device.
    by_block: HashMap<u64, Vec<usize>>,
    /// See [`Evidence::keeps_copies`].
    keeps_copies: bool,
}

impl<'a> Expectations<'a> {
    fn new(
        hits: &'a [InjectionGroup],
        findings: &'a [Finding],
        causes: &'a [Cause],
        strange_elsewhere: &HashSet<ContentHash>,
    ) -> Self {
        let (mut by_content, mut by_block) =
            (HashMap::<_, Vec<usize>>::new(), HashMap::<_, Vec<usize>>::new());
        let mut strange = strange_elsewhere.clone();
        for (number, finding) in findings.iter().enumerate() {
            for &content in &finding.expected {
                by_content.entry(content).or_default().push(number);
            }
            strange.extend(strange_content(finding, causes[number]));
            if let Some(offset) = finding.device_offset {
                by_block.entry(offset / BLOCK_BYTES).or_default().push(number);
            }
        }
        Self { hits, findings, causes, by_content, strange, by_block, keeps_copies: false }
    }

    /// What they say of the records of a hit: of one record one thing, of several all that they may say of any between the first and
    /// the last, as the times of those are not known.
    fn others(&self, hit: &InjectionGroup) -> Vec<Others> {
        let of_content = hit.truths.iter().filter_map(|truth| self.by_content.get(truth)).flatten();
        // Where blocks do not move, the same content elsewhere is another matter.
        let of_hit = of_content.filter(|&&number| self.findings[number].lies_in(&hit.suffered));
        // What it damaged, or left, turned up where it does not belong.
        let is_strange =
            hit.own.into_iter().chain(hit.corruption()).any(|content| self.strange.contains(&content));
        let mut known = if is_strange { Others::Open } else { Others::None };
        // Until when what the findings say holds, from the worst down: only a record that came before one can have been there.
        let mut until = [(Others::Silent, None), (Others::Told, None), (Others::Open, None)];
        let mut say = |number: usize| {
            let finding = &self.findings[number];
            if hit.stays_until(finding) {
                let said = self.say(hit, number);
                let of_it = until.iter_mut().filter(|(others, _)| *others == said);
                of_it.for_each(|(_, until)| *until = (*until).max(Some(finding.time)));
            }
        };
        for &number in of_hit {
            known = Others::Open;
            say(number);
        }
        // What failed there while its damage was, whatever it was to hold by then.
        self.by_block.get(&hit.block).into_iter().flatten().for_each(|&number| say(number));
        let (mut all, mut from) = (Vec::with_capacity(1), hit.time);
        for (others, until) in until {
            if let Some(until) = until.filter(|&until| from <= until) {
                all.push(others);
                if until >= hit.last.1 {
                    return all;
                }
                from = Time(until.0 + 1);
            }
        }
        all.push(known);
        all
    }

    /// What a finding says of a hit whose damage was there.
    fn say(&self, hit: &InjectionGroup, number: usize) -> Others {
        let other = self.causes[number].hit().map(|other| &self.hits[other]);
        let is_same = other.is_some_and(|other| other.overlaps(hit));
        // What one copy handed out says nothing of what another has wrong.
        let is_apart = self.keeps_copies && other.is_some_and(|other| other.on != hit.on);
        match (is_same, self.findings[number].is_told) {
            (true, true) => Others::Told,
            (true, false) if is_apart => Others::Open,
            (true, false) => Others::Silent,
            (false, _) => Others::Open,
        }
    }
}

/// What was found where something else was to be, if that is laid to no hit.
pub(super) fn strange_content(finding: &Finding, cause: Cause) -> Option<ContentHash> {
    finding.found.filter(|_| cause.hit().is_none())
}

/// Gives every fault its fate.
///
/// `causes[i]` belongs to `findings[i]`; `never_met[r]` counts the aims of rule `r` that no request ever met, one for each rule.
pub(super) fn outcomes(
    hits: &[InjectionGroup],
    findings: &[Finding],
    causes: &[Cause],
    never_met: &[u64],
    knowledge: &Knowledge<'_>,
) -> Vec<RuleOutcome> {
    let mut fates = Fates::new(never_met.len());
    fates.add(hits, &Part { findings, causes, counts_hit: &|_| true, counts_finding: &|_| true }, knowledge);
    fates.finish(never_met)
}

/// What became of faults, as far as their hits have been looked at.
pub(super) struct Fates {
    outcomes: Vec<RuleOutcome>,
    /// By rule and place: what the findings say of a fault, and what the rest of its hits does.
    known: BTreeMap<(usize, u64), (Option<Fate>, Fate)>,
    /// Contents that were found in the place of others, wherever, and are laid to no hit.
    pub(super) strange: HashSet<ContentHash>,
    /// Files with blocks that failed, by rule.
    files: HashMap<usize, HashSet<u32>>,
}

/// Some of the findings with their causes, and which of them and of the hits beside them are not counted with others.
pub(super) struct Part<'a> {
    pub(super) findings: &'a [Finding],
    pub(super) causes: &'a [Cause],
    pub(super) counts_hit: &'a dyn Fn(&InjectionGroup) -> bool,
    pub(super) counts_finding: &'a dyn Fn(&Finding) -> bool,
}

impl Fates {
    pub(super) fn new(rules: usize) -> Self {
        Self {
            outcomes: vec![RuleOutcome::default(); rules],
            known: BTreeMap::new(),
            strange: HashSet::new(),
            files: HashMap::new(),
        }
    }

    /// Adds hits, of which each counts once; the findings are all that say something of them.
    pub(super) fn add(&mut self, hits: &[InjectionGroup], part: &Part<'_>, knowledge: &Knowledge<'_>) {
        let Part { findings, causes, .. } = *part;
        let expectations = Expectations {
            keeps_copies: knowledge.keeps_copies,
            ..Expectations::new(hits, findings, causes, &self.strange)
        };
        for hit in hits.iter().filter(|hit| (part.counts_hit)(hit)) {
            self.outcomes[hit.rule].hits += hit.count;
            let others = expectations.others(hit).into_iter();
            let fate =
                others.map(|others| knowledge.without_findings(hit, others)).max().unwrap_or(Fate::Unknown);
            let (_, known) = self.known.entry(hit.fault()).or_insert((None, fate));
            *known = (*known).max(fate);
        }
        let mut blocks: HashSet<(usize, usize)> = HashSet::new();
        for (cause, finding) in causes.iter().zip(findings) {
            if !(part.counts_finding)(finding) {
                continue;
            }
            if let Cause::Assumed(number) = *cause {
                let hit = &hits[number];
                let (_, known) = self.known.entry(hit.fault()).or_insert((None, Fate::Unknown));
                *known = (*known).max(Fate::Unknown);
            }
            let Some(hit) = cause.hit().map(|number| &hits[number]) else { continue };
            let fate = if finding.is_told { Fate::Reported } else { Fate::Silent };
            let (found, _) = self.known.entry(hit.fault()).or_insert((None, fate));
            *found = (*found).max(Some(fate));
            if let Some(failure) = finding.failure {
                self.outcomes[hit.rule].failing_blocks += u64::from(blocks.insert((hit.rule, failure)));
                self.files.entry(hit.rule).or_default().insert(finding.object);
            }
        }
    }

    pub(super) fn finish(mut self, never_met: &[u64]) -> Vec<RuleOutcome> {
        for ((rule, _), (found, known)) in self.known {
            // That somebody was told of a fault says enough of it, unless somebody else was not.
            let fate = found.map_or(known, |found| if known == Fate::Silent { known } else { found });
            self.outcomes[rule].faults += 1;
            add(&mut self.outcomes[rule].fates, fate, 1);
        }
        for (rule, outcome) in self.outcomes.iter_mut().enumerate() {
            outcome.failing_files = self.files.get(&rule).map_or(0, |files| files.len() as u64);
            outcome.faults += never_met[rule];
            add(&mut outcome.fates, Fate::Untriggered, never_met[rule]);
        }
        self.outcomes
    }
}

#[cfg(test)]
#[path = "fates_tests.rs"]
pub(super) mod tests;
