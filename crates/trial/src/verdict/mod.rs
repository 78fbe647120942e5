//! The verdict: what became of every fault, why every failing block failed, and whether that is what was expected.
//!
//! Built from three accounts that know nothing of each other: the ledger of what was injected, the failures that the
//! load and the check saw, and the expectations of the trial.

mod attribution;
mod fates;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rotproof_block::{ContentHash, ErrorKind, Phase, Time};
use rotproof_fault::{BLOCK_BYTES, Record, RuleReport, Target, TargetKey};
use rotproof_load::engine::{Incident, LoadOperation};
use rotproof_load::personality::{FileOracle, FileReport};
use rotproof_load::{ContentId, Failure, LoadReport, Oracle, Workload};
use serde::Serialize;

pub use attribution::{Cause, Finding, Hit, attribute};
pub use fates::{Fate, FateCounts, RuleOutcome, outcomes};

use crate::expect::{Counts, Expect, Expectation};

/// What a verdict is made from.
pub struct Evidence<'a> {
    /// What was injected.
    pub records: &'a [Record],
    /// The rules, in the order of the plan.
    pub rules: &'a [RuleReport],
    /// What was seen to fail.
    pub failures: &'a [Failure],
    /// What the load and the check did.
    pub reports: &'a [LoadReport],
    /// Whether an offset in the object is one on the device, as on a subject that moves no blocks.
    pub blocks_stay: bool,
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
    /// Why each failure failed; `causes[i]` belongs to `failures[i]`.
    pub causes: Vec<Cause>,
    /// Failing blocks by the kind of the worst way in which they failed.
    pub kinds: BTreeMap<&'static str, u64>,
}

impl Verdict {
    /// Judges.
    pub fn reach(evidence: &Evidence<'_>, expect: &Expect) -> Self {
        let hits = hits(evidence);
        let findings = findings(evidence);
        let causes = attribute(&hits, &findings);
        let never_met: Vec<u64> = evidence.rules.iter().map(never_met).collect();
        let rules = outcomes(
            evidence.rules.len(),
            &hits,
            &findings,
            &causes,
            &never_met,
            evidence.load.is_some() || evidence.files.is_some_and(|files| files.oracle.is_some()),
        );
        let mut by_failure = vec![Cause::Unexplained; evidence.failures.len()];
        for (finding, cause) in findings.iter().zip(causes) {
            let Some(failure) = finding.failure else { continue };
            let known = &mut by_failure[failure];
            // Wrong data matters more than an error, an own hit more than a consequence.
            let is_worse = finding.found.is_some() && cause != Cause::Unexplained;
            if *known == Cause::Unexplained || is_worse {
                *known = cause;
            }
        }
        let mut kinds = BTreeMap::new();
        for failure in evidence.failures {
            *kinds.entry(failure.worst().what.kind()).or_default() += 1;
        }
        let counts = count(evidence, &rules, &by_failure);
        let expectations = expect.evaluate(&counts);
        Self { counts, expectations, rules, causes: by_failure, kinds }
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

/// Why a failure failed, for the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseRecord {
    /// The ledger record with this number damaged it.
    Hit(u64),
    /// It depends on something that the ledger record with this number damaged.
    Consequence(u64),
    /// No fault accounts for it.
    Unexplained,
}

impl CauseRecord {
    /// From a cause, whose hits are in the order of `records`.
    pub fn new(cause: Cause, records: &[Record]) -> Self {
        match cause {
            Cause::Hit(hit) => Self::Hit(records[hit].sequence),
            Cause::Consequence(hit) => Self::Consequence(records[hit].sequence),
            Cause::Unexplained => Self::Unexplained,
        }
    }
}

fn hits(evidence: &Evidence<'_>) -> Vec<Hit> {
    // Costs a pass over the oracle, so only where it can matter: a content that the load has named is never metadata.
    let chooses = |rule: &RuleReport| {
        matches!(rule.rule.matching.target, Some(Target::Seen(_) | Target::Extent { .. }))
    };
    let by_place = |record: &Record| {
        !matches!(record.target, Some(TargetKey::Content { .. }))
            || evidence.rules.get(record.rule as usize).is_some_and(chooses)
    };
    let contents = (!evidence.blocks_stay && evidence.records.iter().any(by_place))
        .then(|| contents(evidence))
        .flatten();
    let is_metadata = |hash: &ContentHash| contents.as_ref().is_some_and(|contents| !contents.contains(hash));
    evidence
        .records
        .iter()
        .map(|record| {
            let truths: Vec<ContentHash> =
                record.before.into_iter().chain(record.blocks.iter().map(|block| block.content)).collect();
            Hit {
                rule: record.rule as usize,
                place: place(record),
                time: Time(record.time_ns),
                suffered: record.offset..record.offset + record.length,
                lie: record.after,
                held_until: record.effect.only_delays().then(|| held_until(record)),
                metadata: truths.iter().any(is_metadata),
                repaired: record.repaired_at_ns.is_some(),
                truths,
            }
        })
        .collect()
}

fn held_until(record: &Record) -> Time {
    Time(record.time_ns).after(record.effect.holds_up().unwrap_or_default().0)
}

/// What makes hits of one rule the same fault: for an effect on data the block; for an error or a delay, which hits
/// requests of any shape, what the rule aimed at.
fn place(record: &Record) -> u64 {
    match (&record.effect, &record.target) {
        (effect, Some(TargetKey::Offset(start))) if !effect.is_on_data() => *start,
        (effect, Some(TargetKey::Content { hash, .. })) if !effect.is_on_data() => hash.0 as u64,
        _ => record.offset / BLOCK_BYTES * BLOCK_BYTES,
    }
}

/// Hashes of everything that the load may have on the subject.
fn contents(evidence: &Evidence<'_>) -> Option<HashSet<ContentHash>> {
    if let Some(files) = evidence.files {
        return files.oracle.as_ref().map(FileOracle::hashes);
    }
    let (workload, oracle) = evidence.load?;
    let contents = (0..workload.layout().blocks())
        .flat_map(|block| oracle.legal(block))
        .filter(|&content| content != ContentId::NEVER_WRITTEN)
        .map(|content| workload.content().hash(content))
        .collect();
    Some(contents)
}

fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_cached = evidence.files.is_some()
        || evidence.load.is_some_and(|(workload, _)| workload.spec().file_access().is_cached());
    for (number, failure) in evidence.failures.iter().enumerate() {
        findings.extend(failure.ways.iter().map(|way| Finding {
            failure: Some(number),
            object: failure.object_index,
            expected: way.expected.iter().filter_map(|version| version.hash).collect(),
            found: way.found.filter(|_| way.is_wrong_data()),
            timed_out: way.what.error() == Some(ErrorKind::TimedOut),
            device_offset: evidence.blocks_stay.then_some(failure.offset_bytes),
            time: way.time,
            may_be_unwritten: is_cached,
        }));
    }
    for report in evidence.files.iter().flat_map(|files| &files.reports) {
        findings.extend(report.incidents.iter().map(|incident| Finding {
            failure: None,
            object: 0,
            expected: Vec::new(),
            found: None,
            timed_out: incident.error == ErrorKind::TimedOut,
            device_offset: None,
            time: incident.time,
            may_be_unwritten: false,
        }));
    }
    for report in evidence.reports {
        for incident in &report.incidents {
            // All others have their blocks among the failures.
            let is_silent_retry = report.phase == Phase::Check && incident.operation == LoadOperation::Read;
            let has_no_blocks = matches!(incident.operation, LoadOperation::Flush | LoadOperation::Discard);
            if !is_silent_retry && !has_no_blocks {
                continue;
            }
            findings.push(Finding {
                failure: None,
                object: incident.object,
                expected: evidence.load.map_or_else(Vec::new, |load| contents_of(load, incident)),
                found: None,
                timed_out: incident.error == ErrorKind::TimedOut,
                device_offset: None,
                time: incident.time,
                may_be_unwritten: false,
            });
        }
    }
    findings
}

/// Hashes of all that may lie where a request of the check failed; none for a flush or a discard.
fn contents_of((workload, oracle): (&Workload, &Oracle), incident: &Incident) -> Vec<ContentHash> {
    let block_bytes = rotproof_load::BLOCK_BYTES as u64;
    let first = workload.layout().object_blocks(incident.object).start + incident.offset_bytes / block_bytes;
    if incident.operation == LoadOperation::Discard {
        return Vec::new();
    }
    (first..first + incident.length_bytes / block_bytes)
        .flat_map(|block| oracle.legal(block))
        .filter(|&content| content != ContentId::NEVER_WRITTEN)
        .map(|content| workload.content().hash(content))
        .collect()
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

fn count(evidence: &Evidence<'_>, rules: &[RuleOutcome], causes: &[Cause]) -> Counts {
    let mut fates = FateCounts::default();
    for rule in rules {
        fates.add_all(&rule.fates);
    }
    let files: BTreeSet<u32> = evidence.failures.iter().map(|failure| failure.object_index).collect();
    Counts {
        failures: evidence.failures.len() as u64,
        failing_files: files.len() as u64,
        errors: evidence.reports.iter().map(LoadReport::error_count).sum::<u64>()
            + evidence.files.map_or(0, |files| files.reports.iter().map(FileReport::error_count).sum()),
        hits: evidence.records.len() as u64,
        masked: fates.masked,
        reported: fates.reported,
        repaired: fates.repaired,
        silent: fates.silent,
        untriggered: fates.untriggered,
        unknown: fates.unknown,
        exit: evidence.exit,
        check_exit: evidence.check_exit,
        unexplained: causes.iter().filter(|&&cause| cause == Cause::Unexplained).count() as u64,
    }
}
