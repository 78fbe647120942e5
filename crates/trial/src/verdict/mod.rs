//! The verdict: what became of every fault, why every failing block failed, and whether that is what was expected.
//!
//! Built from three accounts that know nothing of each other: the ledger of what was injected, the failures that the
//! load and the check saw, and the expectations of the trial.

mod attribution;
#[cfg(test)]
mod attribution_tests;
mod by_range;
#[cfg(test)]
mod by_range_tests;
mod failing;
mod fates;
mod finding;
mod gather;
mod injection_group;
mod medium;

use std::collections::{BTreeMap, BTreeSet};

use rotproof_block::{Result, Time};
use rotproof_crash::CrashReport;
use rotproof_fault::{DrawnModel, Injections, RuleReport};
use rotproof_load::personality::{FileOracle, FileReport};
use rotproof_load::{Failure, LoadReport, Oracle, Workload};

pub use attribution::{Cause, Looks, attribute};
pub use failing::Failing;
pub use fates::Fate;
use fates::{Knowledge, outcomes};
pub use finding::{Finding, Sign};
use gather::gather;
pub use injection_group::{Harm, InjectionGroup};
pub use medium::Medium;
pub use rotproof_results::run::{CauseRecord, FateCounts, RuleOutcome};

use crate::expect::{Counts, Expect, Expectation};

/// Where a byte below a place for faults is seen: the place's name and the offset there give the number of a device of the
/// stack and the offset on that; `None` where that can be anywhere.
pub type SeenAt<'a> = dyn Fn(&str, u64) -> Option<(usize, u64)> + 'a;
/// What lies below a place for faults: see [`Evidence::lies_below`].
pub type LiesBelow<'a> = dyn Fn(&str, u64) -> bool + 'a;

/// What a verdict is made from.
pub struct Evidence<'a> {
    /// What was injected.
    pub records: &'a dyn Injections,
    /// The rules, in the order of the plan.
    pub rules: &'a [RuleReport],
    /// The models that some of them were drawn from.
    pub models: &'a [DrawnModel],
    /// What was seen to fail.
    pub failures: &'a dyn Failing,
    /// What the load and the check did.
    pub reports: &'a [LoadReport],
    /// Where a byte below a place for faults is seen.
    pub seen_at: &'a SeenAt<'a>,
    /// Whether what lies at an offset of the device on top of that place for faults may lie below it.
    pub lies_below: &'a LiesBelow<'a>,
    /// Whether an offset in the object is one on the device, as on a subject that moves no blocks.
    pub blocks_stay: bool,
    /// Whether something below the load keeps copies, and may answer from one what another has wrong.
    pub keeps_copies: bool,
    /// Whether others than the load send requests, of whose answers it learns nothing: a kernel flushes by itself, and who looks for
    /// file systems reads.
    pub has_other_users: bool,
    /// Whether the subject was gone after the load, and what was asked of it then refused for that reason.
    pub is_unreachable: bool,
    /// What the device holds now, as the subject would see it; none where nobody can look.
    pub medium: Option<&'a dyn Medium>,
    /// The load and what it knows at the end; none for a command, of which nobody knows what it wrote or saw.
    pub load: Option<(&'a Workload, &'a Oracle)>,
    /// The exit code of the command that was the load.
    pub exit: Option<u64>,
    /// That of the command that looked at the data after.
    pub check_exit: Option<u64>,
    /// Of a load of files, which has an oracle of its own.
    pub files: Option<&'a FileAccount>,
}

/// What a load of files did, and what it knows at the end.
pub struct FileAccount {
    /// Its phases.
    pub reports: Vec<FileReport>,
    /// Which files must be there, and what they hold; nobody knows that of a load that was interrupted.
    pub oracle: Option<FileOracle>,
}

/// What a trial found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The numbers that expectations are held against.
    pub counts: Counts,
    /// Each expectation, held against them.
    pub expectations: Vec<Expectation>,
    /// What came of each rule.
    pub rules: Vec<RuleOutcome>,
    /// Failing blocks by the kind of the worst way in which they failed.
    pub kinds: BTreeMap<&'static str, u64>,
}

/// Is given failures with their causes, in their order, each once.
pub type TakeFailures<'a> = dyn FnMut(Vec<(Failure, CauseRecord)>) -> Result<()> + 'a;

impl Verdict {
    /// Judges, and gives every failing block with its cause to `take`. Fails where the records cannot be read, or it fails.
    pub fn reach(evidence: &Evidence<'_>, expect: &Expect, take: &mut TakeFailures<'_>) -> Result<Self> {
        Self::reach_in_ranges(evidence, by_range::RANGE_MAX, expect, take)
    }

    /// The same where about so many failures and hits are looked at at once, if that does. It makes no difference to the verdict.
    pub fn reach_in_ranges(
        evidence: &Evidence<'_>,
        range_max: u64,
        expect: &Expect,
        take: &mut TakeFailures<'_>,
    ) -> Result<Self> {
        let mut counted = Counted::default();
        let mut take = |failures: Vec<(Failure, CauseRecord)>| {
            failures.iter().for_each(|(failure, cause)| counted.add(failure, *cause));
            take(failures)
        };
        let never_met: Vec<u64> = evidence.rules.iter().map(never_met).collect();
        let mut taken = 0;
        let rules = by_range::outcomes(evidence, range_max, &never_met, &mut taken, &mut take)?;
        let rules = match rules {
            Some(rules) => rules,
            None => {
                let failures = evidence.failures.of(0..u64::MAX);
                let (rules, causes) = at_once(evidence, &failures, &never_met)?;
                let known = failures.into_iter().zip(causes);
                // Of a device that was judged in ranges so far, the rest.
                take(known.filter(|(failure, _)| taken == 0 || failure.offset_bytes >= taken).collect())?;
                rules
            }
        };
        let counts = count(evidence, &rules, &counted);
        let expectations = expect.evaluate(&counts);
        Ok(Self { counts, expectations, rules, kinds: counted.kinds })
    }

    /// Takes up what an exploration of a power loss has counted.
    pub(crate) fn count_states(&mut self, found: &CrashReport, expect: &Expect) {
        let CrashReport { exploration, partly_judged, .. } = found;
        self.counts.states = Some(exploration.checked);
        self.counts.failing_states = Some(exploration.failures.len() as u64);
        self.counts.unknown_states = Some(exploration.unknown.len() as u64);
        self.counts.partly_judged_states = Some(*partly_judged);
        self.expectations = expect.evaluate(&self.counts);
    }

    /// The run was stopped before everything was read back: nothing that was expected can be held against it.
    pub(crate) fn interrupt(&mut self) {
        self.expectations.clear();
    }

    /// Whether every expectation holds.
    pub fn passes(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.holds)
    }
}

/// Looks at everything at once: what came of each rule, and the cause of each failure.
fn at_once(
    evidence: &Evidence<'_>,
    failures: &[Failure],
    never_met: &[u64],
) -> Result<(Vec<RuleOutcome>, Vec<CauseRecord>)> {
    let findings = finding::findings(evidence, failures);
    let hits = &gather(evidence.records, evidence.rules, evidence.seen_at, &findings)?[..];
    let device = &Looks {
        intact: &|expected| medium::intact(evidence, failures, expected),
        lies_below: evidence.lies_below,
    };
    let causes = attribute(hits, &findings, device);
    let rules = outcomes(hits, &findings, &causes, never_met, &Knowledge::of(evidence));
    Ok((rules, causes_of(&findings, &causes, hits, failures.len())))
}

/// Why each of so many failures failed, by what its findings were laid to.
fn causes_of(
    findings: &[Finding],
    causes: &[Cause],
    hits: &[InjectionGroup],
    failures: usize,
) -> Vec<CauseRecord> {
    let mut by_failure = vec![(Cause::Unexplained, CauseRecord::Unexplained); failures];
    let (mut is_known, mut told) = (vec![false; failures], vec![false; failures]);
    for (finding, &cause) in findings.iter().zip(causes) {
        let Some(failure) = finding.failure else { continue };
        let known = &mut by_failure[failure];
        // A block with one way to fail that nothing accounts for is one that nothing accounts for.
        let weight = |cause: Cause, is_told: bool| (cause.certainty(), is_told);
        let is_first = !std::mem::replace(&mut is_known[failure], true);
        if is_first || weight(cause, finding.is_told) < weight(known.0, told[failure]) {
            let record = recorded(cause, hits, finding.time);
            (*known, told[failure]) = ((cause, record), finding.is_told);
        }
    }
    by_failure.into_iter().map(|(_, record)| record).collect()
}

/// The failures in numbers.
#[derive(Default)]
struct Counted {
    failures: u64,
    files: BTreeSet<u32>,
    kinds: BTreeMap<&'static str, u64>,
    assumed: u64,
    unexplained: u64,
}

impl Counted {
    fn add(&mut self, failure: &Failure, cause: CauseRecord) {
        self.failures += 1;
        self.files.insert(failure.object_index);
        *self.kinds.entry(failure.worst().what.kind()).or_default() += 1;
        self.assumed += u64::from(matches!(cause, CauseRecord::Assumed(_)));
        self.unexplained += u64::from(cause == CauseRecord::Unexplained);
    }
}

/// The cause, among `hits`, of what was seen at that time, as results have it.
fn recorded(cause: Cause, hits: &[InjectionGroup], time: Time) -> CauseRecord {
    let number = |hit: usize| hits[hit].latest(time);
    match cause {
        Cause::Injection(hit) => CauseRecord::Injection(number(hit)),
        Cause::Consequence(hit) => CauseRecord::Consequence(number(hit)),
        Cause::Assumed(hit) => CauseRecord::Assumed(number(hit)),
        Cause::Unexplained => CauseRecord::Unexplained,
    }
}

/// Aims of a rule that no request ever met.
fn never_met(rule: &RuleReport) -> u64 {
    if rule.targets.is_empty() {
        return u64::from(rule.hits == 0);
    }
    // With a schedule, an aim may be met and spared; then the rule as a whole has been triggered.
    let spares = rule.rule.schedule != rotproof_fault::Schedule::All;
    if spares && rule.hits > 0 {
        return 0;
    }
    rule.targets.iter().filter(|target| target.hits == 0).count() as u64
}

/// Rules without a hit; the rules of a model count as one, and a model that was drawn into none as one without.
fn idle_rules(evidence: &Evidence<'_>) -> u64 {
    let hits = |rules: std::ops::Range<usize>| -> u64 {
        evidence.rules.get(rules).unwrap_or_default().iter().map(|rule| rule.hits).sum()
    };
    let of_models = evidence.models.iter().filter(|model| hits(model.rules.clone()) == 0).count();
    let is_of_model = |rule: &usize| evidence.models.iter().any(|model| model.rules.contains(rule));
    let by_themselves = (0..evidence.rules.len()).filter(|rule| !is_of_model(rule));
    (of_models + by_themselves.filter(|&rule| hits(rule..rule + 1) == 0).count()) as u64
}

fn count(evidence: &Evidence<'_>, rules: &[RuleOutcome], counted: &Counted) -> Counts {
    let mut fates = FateCounts::default();
    for rule in rules {
        fates.add_all(&rule.fates);
    }
    Counts {
        failures: counted.failures,
        failing_files: counted.files.len() as u64,
        errors: evidence.reports.iter().map(LoadReport::error_count).sum::<u64>()
            + evidence.files.map_or(0, |files| files.reports.iter().map(FileReport::error_count).sum()),
        injections: rules.iter().map(|rule| rule.hits).sum(),
        masked: fates.masked,
        reported: fates.reported,
        repaired: fates.repaired,
        silent: fates.silent,
        untriggered: fates.untriggered,
        unknown: fates.unknown,
        exit: evidence.exit,
        check_exit: evidence.check_exit,
        assumed: counted.assumed,
        unexplained: counted.unexplained,
        failing_states: None,
        unknown_states: None,
        partly_judged_states: None,
        states: None,
        idle_rules: idle_rules(evidence),
    }
}
