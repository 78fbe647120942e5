//! What became of every fault. `docs/fates.md` has what each fate claims, and what it rests on.

use std::collections::{BTreeMap, HashMap, HashSet};

use rotproof_block::{ContentHash, Phase};
use rotproof_fault::{BLOCK_BYTES, OperationKind};
use rotproof_load::{ContentId, Oracle, Workload};
use serde::Serialize;

use super::Evidence;
use super::attribution::Cause;
use super::finding::{self, Finding};
use super::hit::{Harm, Hit};

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
    fn direct(&self, hit: &Hit, others: Others) -> Fate {
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
    fn is_of_others(&self, hit: &Hit) -> bool {
        self.has_other_users && hit.operation == OperationKind::Flush
    }

    /// What became of a hit that no finding was laid to.
    fn without_findings(&self, hit: &Hit, others: Others) -> Fate {
        if let Harm::Delay(_) = hit.harm {
            // It came back whole, only later.
            return Fate::Masked;
        }
        if self.oracle.is_none() {
            return Fate::Unknown;
        }
        let is_unchanged = hit.lie().is_some() && hit.lie() == hit.own;
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
    hits: &'a [Hit],
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
    fn new(hits: &'a [Hit], findings: &'a [Finding], causes: &'a [Cause]) -> Self {
        let (mut by_content, mut by_block) =
            (HashMap::<_, Vec<usize>>::new(), HashMap::<_, Vec<usize>>::new());
        let mut strange = HashSet::new();
        for (number, finding) in findings.iter().enumerate() {
            for &content in &finding.expected {
                by_content.entry(content).or_default().push(number);
            }
            strange.extend(finding.found.filter(|_| causes[number].hit().is_none()));
            if let Some(offset) = finding.device_offset {
                by_block.entry(offset / BLOCK_BYTES).or_default().push(number);
            }
        }
        Self { hits, findings, causes, by_content, strange, by_block, keeps_copies: false }
    }

    fn others(&self, hit: &Hit) -> Others {
        let of_content = hit.truths.iter().filter_map(|truth| self.by_content.get(truth)).flatten();
        // Where blocks do not move, the same content elsewhere is another matter.
        let of_hit = of_content.filter(|&&number| {
            self.findings[number].device_offset.is_none_or(|offset| hit.suffered.contains(&offset))
        });
        let of_one = |&number: &usize| {
            let finding = &self.findings[number];
            let other = self.causes[number].hit().map(|other| &self.hits[other]);
            let is_same = other.is_some_and(|other| other.overlaps(hit));
            // What one copy handed out says nothing of what another has wrong.
            let is_apart = self.keeps_copies && other.is_some_and(|other| other.on != hit.on);
            match (is_same && hit.was_there(finding), finding.is_told) {
                (true, true) => Others::Told,
                (true, false) if is_apart => Others::Open,
                (true, false) => Others::Silent,
                (false, _) => Others::Open,
            }
        };
        // What failed there while its damage was, whatever it was to hold by then.
        let of_place = self.by_block.get(&hit.block).into_iter().flatten();
        let of_place = of_place.filter(|&&number| hit.was_there(&self.findings[number]));
        // What it damaged, or left, turned up where it does not belong.
        let is_strange = hit.own.into_iter().chain(hit.lie()).any(|content| self.strange.contains(&content));
        let known = if is_strange { Others::Open } else { Others::None };
        of_hit.chain(of_place).map(of_one).max().unwrap_or(known)
    }
}

/// Gives every fault its fate.
///
/// `causes[i]` belongs to `findings[i]`; `never_met[r]` counts the aims of rule `r` that no request ever met, one for each rule.
pub(super) fn outcomes(
    hits: &[Hit],
    findings: &[Finding],
    causes: &[Cause],
    never_met: &[u64],
    knowledge: &Knowledge<'_>,
) -> Vec<RuleOutcome> {
    let mut outcomes = vec![RuleOutcome::default(); never_met.len()];
    let expectations =
        Expectations { keeps_copies: knowledge.keeps_copies, ..Expectations::new(hits, findings, causes) };
    // What the findings say of a fault, and what the rest of its hits does.
    let mut fates: BTreeMap<(usize, u64), (Option<Fate>, Fate)> = BTreeMap::new();
    for hit in hits {
        outcomes[hit.rule].hits += 1;
        let fate = knowledge.without_findings(hit, expectations.others(hit));
        let (_, known) = fates.entry((hit.rule, hit.place)).or_insert((None, fate));
        *known = (*known).max(fate);
    }
    let mut spread: HashMap<usize, (HashSet<usize>, HashSet<u32>)> = HashMap::new();
    for (cause, finding) in causes.iter().zip(findings) {
        if let Cause::Assumed(number) = *cause {
            let hit = &hits[number];
            let (_, known) = fates.entry((hit.rule, hit.place)).or_insert((None, Fate::Unknown));
            *known = (*known).max(Fate::Unknown);
        }
        let Some(hit) = cause.hit().map(|number| &hits[number]) else { continue };
        let fate = if finding.is_told { Fate::Reported } else { Fate::Silent };
        let (found, _) = fates.entry((hit.rule, hit.place)).or_insert((None, fate));
        *found = (*found).max(Some(fate));
        if let Some(failure) = finding.failure {
            let (blocks, files) = spread.entry(hit.rule).or_default();
            blocks.insert(failure);
            files.insert(finding.object);
        }
    }
    for ((rule, _), (found, known)) in fates {
        // That somebody was told of a fault says enough of it, unless somebody else was not.
        let fate = found.map_or(known, |found| if known == Fate::Silent { known } else { found });
        outcomes[rule].faults += 1;
        outcomes[rule].fates.add(fate, 1);
    }
    for (rule, outcome) in outcomes.iter_mut().enumerate() {
        if let Some((blocks, files)) = spread.get(&rule) {
            (outcome.failing_blocks, outcome.failing_files) = (blocks.len() as u64, files.len() as u64);
        }
        outcome.faults += never_met[rule];
        outcome.fates.add(Fate::Untriggered, never_met[rule]);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::{unreadable, wrong};
    use super::super::hit::tests::{error, flip};
    use super::*;
    use rotproof_block::Time;
    use rotproof_load::{LoadSpec, ObjectInfo};

    const BLIND: Knowledge<'_> = Knowledge {
        oracle: None,
        is_direct: false,
        keeps_copies: false,
        has_other_users: true,
        is_complete: true,
    };
    const FILES: Knowledge<'_> = Knowledge { oracle: Some(LoadOracle::Files), ..BLIND };

    fn fate(hit: &Hit, knowledge: &Knowledge<'_>) -> Fate {
        knowledge.without_findings(hit, Others::None)
    }

    #[test]
    fn without_an_oracle_only_delays_are_known_to_harm_nothing() {
        let repaired = Hit { repaired: true, gone: Some(Time(11)), ..flip(0, 1, 2) };
        assert_eq!(fate(&repaired, &BLIND), Fate::Unknown);
        let delay = Hit { harm: Harm::Delay(Time(30)), ..flip(0, 1, 2) };
        assert_eq!(fate(&delay, &BLIND), Fate::Masked);
        let outcomes = outcomes(&[repaired.clone(), repaired, delay], &[], &[], &[1], &BLIND);
        let fates = FateCounts { unknown: 1, untriggered: 1, ..FateCounts::default() };
        assert_eq!((outcomes[0].hits, outcomes[0].faults, outcomes[0].fates), (3, 2, fates));
    }

    #[test]
    fn masked_is_what_was_seen_to_be_right_or_seen_by_nobody() {
        let data = flip(0, 1, 2);
        assert_eq!(fate(&data, &FILES), Fate::Masked, "all that the load made was read back");
        assert_eq!(FILES.without_findings(&data, Others::Open), Fate::Unknown, "what was to hold it failed");
        let metadata = Hit { of_load: Some(false), ..data.clone() };
        assert_eq!(fate(&metadata, &FILES), Fate::Unknown);
        let gone = Hit { served: None, gone: Some(Time(15)), ..metadata.clone() };
        assert_eq!(fate(&gone, &FILES), Fate::Masked, "overwritten before anybody came");
        let read_before = Hit { served: Some(Time(12)), ..gone };
        assert_eq!(fate(&read_before, &FILES), Fate::Unknown);
        assert_eq!(fate(&Hit { repaired: true, ..read_before }, &FILES), Fate::Repaired);
        let incomplete = Knowledge { is_complete: false, ..FILES };
        assert_eq!(fate(&data, &incomplete), Fate::Unknown, "what the load saw of it may be among the rest");
        assert_eq!(fate(&Hit { of_load: None, ..data }, &FILES), Fate::Unknown);
        assert_eq!(fate(&Hit { of_load: Some(false), ..flip(0, 1, 1) }, &FILES), Fate::Masked, "no change");
        assert_eq!(fate(&error(0, 8192, &[1, 2]), &FILES), Fate::Masked);
        let flush = Hit { operation: OperationKind::Flush, of_load: None, ..error(0, 0, &[]) };
        assert_eq!(fate(&flush, &FILES), Fate::Unknown);
        let raw = Knowledge { is_direct: true, has_other_users: false, ..FILES };
        let device = Knowledge { is_direct: true, ..FILES };
        assert_eq!(fate(&flush, &device), Fate::Unknown, "the kernel may have sent it");
        assert_eq!(fate(&flush, &raw), Fate::Reported);
        let read = Hit { operation: OperationKind::Read, ..flush };
        assert_eq!(fate(&read, &device), Fate::Reported);
    }

    #[test]
    fn on_a_bare_device_what_went_up_unseen_by_the_load_is_silent() {
        let objects = [ObjectInfo::new("device", 8 * 4096)];
        let workload = Workload::new(&LoadSpec::default(), 1, &objects).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        fn bare<'a>(workload: &'a Workload, oracle: &'a Oracle) -> Knowledge<'a> {
            let oracle = Some(LoadOracle::Blocks(workload, oracle));
            Knowledge { oracle, is_direct: true, has_other_users: false, ..BLIND }
        }
        let served = Hit { of_load: None, served: Some(Time(12)), ..flip(4096, 1, 2) };
        assert_eq!(
            fate(&served, &bare(&workload, &oracle)),
            Fate::Unknown,
            "somebody has read it, not the load"
        );
        let latent = Hit { served: None, ..served.clone() };
        assert_eq!(fate(&latent, &bare(&workload, &oracle)), Fate::Unknown);
        assert_eq!(fate(&Hit { gone: Some(Time(13)), ..latent }, &bare(&workload, &oracle)), Fate::Masked);
        oracle.expect_zeros_where_never_written();
        assert_eq!(
            fate(&served, &bare(&workload, &oracle)),
            Fate::Masked,
            "the load knew what it read, and took it"
        );
        assert_eq!(bare(&workload, &oracle).without_findings(&served, Others::Open), Fate::Unknown);
        let device = Knowledge { has_other_users: true, ..bare(&workload, &oracle) };
        assert_eq!(fate(&served, &device), Fate::Unknown, "somebody else may have read it, and taken it");
    }

    #[test]
    fn every_fault_has_one_fate_and_the_worst_wins() {
        let at = |rule, place| Hit { rule, ..flip(place, 1, 2) };
        let alone = Hit { rule: 1, ..flip(16_384, 3, 4) };
        let mut hits = vec![at(0, 0), at(0, 0), at(0, 4096), at(0, 8192), alone];
        hits[3].repaired = true;
        let of =
            |failure: Option<usize>, object: u32, finding: Finding| Finding { failure, object, ..finding };
        let findings = [
            of(Some(0), 0, unreadable(1)),
            of(Some(0), 0, wrong(1, 2)),
            of(Some(1), 1, unreadable(1)),
            of(Some(2), 1, wrong(1, 2)),
            of(None, 0, unreadable(3)),
        ];
        let causes = [Cause::Hit(0), Cause::Hit(1), Cause::Consequence(2), Cause::Unexplained, Cause::Hit(4)];
        let outcomes = outcomes(&hits, &findings, &causes, &[3, 0], &FILES);
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

    #[test]
    fn what_lay_beneath_the_damage_that_was_found_was_handed_out_with_it() {
        let beneath = flip(0, 1, 2);
        let above = Hit { rule: 1, time: Time(12), ..flip(0, 1, 3) };
        let elsewhere = Hit { rule: 2, ..flip(8192, 1, 4) };
        let gone = Hit { rule: 3, served: None, gone: Some(Time(11)), ..flip(0, 1, 5) };
        let hits = [beneath, above, elsewhere, gone];
        let fates = |finding: Finding| -> Vec<FateCounts> {
            let outcomes = outcomes(&hits, &[finding], &[Cause::Hit(1)], &[0; 4], &FILES);
            outcomes.iter().map(|outcome| outcome.fates).collect()
        };
        let silent = FateCounts { silent: 1, ..FateCounts::default() };
        let reported = FateCounts { reported: 1, ..FateCounts::default() };
        let unknown = FateCounts { unknown: 1, ..FateCounts::default() };
        let masked = FateCounts { masked: 1, ..FateCounts::default() };
        assert_eq!(fates(wrong(1, 3)), [silent, silent, unknown, masked]);
        assert_eq!(fates(unreadable(1)), [reported, reported, unknown, masked]);
    }

    #[test]
    fn what_one_copy_handed_out_is_not_laid_to_what_another_has_wrong() {
        let of = |on: &str, lie: u128| Hit { on: on.into(), ..flip(0, 1, lie) };
        let hits = [of("left", 2), Hit { rule: 1, ..of("right", 3) }];
        let knowledge = |keeps_copies| Knowledge { keeps_copies, ..FILES };
        let fates = |keeps_copies: bool, finding: Finding| -> Vec<FateCounts> {
            let outcomes = outcomes(&hits, &[finding], &[Cause::Hit(0)], &[0; 2], &knowledge(keeps_copies));
            outcomes.iter().map(|outcome| outcome.fates).collect()
        };
        let silent = FateCounts { silent: 1, ..FateCounts::default() };
        let unknown = FateCounts { unknown: 1, ..FateCounts::default() };
        let reported = FateCounts { reported: 1, ..FateCounts::default() };
        assert_eq!(fates(true, wrong(1, 2)), [silent, unknown]);
        assert_eq!(fates(false, wrong(1, 2)), [silent, silent]);
        // An error is one only if no copy was good.
        assert_eq!(fates(true, unreadable(1)), [reported, reported]);
    }

    #[test]
    fn nothing_is_masked_that_turned_up_where_another_content_was_to_be() {
        let hit = flip(0, 1, 2);
        let others = |found: u128, cause: Cause| {
            let (hits, findings) = ([hit.clone()], [wrong(7, found)]);
            Expectations::new(&hits, &findings, &[cause]).others(&hit)
        };
        assert_eq!(others(2, Cause::Unexplained), Others::Open, "what it left");
        assert_eq!(others(1, Cause::Assumed(0)), Others::Open, "what another hand had put there before");
        assert_eq!(others(9, Cause::Unexplained), Others::None);
        assert_eq!(others(2, Cause::Hit(0)), Others::None, "laid to what left the same elsewhere");
    }

    #[test]
    fn where_a_block_failed_nothing_that_was_there_is_masked() {
        let of_content = flip(4096, 1, 2);
        let failed_later = Finding { device_offset: Some(4096), ..wrong(7, 9) };
        let expectations = |hit: &Hit| {
            let (hits, findings) = ([hit.clone()], [failed_later.clone()]);
            Expectations::new(&hits, &findings, &[Cause::Unexplained]).others(hit)
        };
        assert_eq!(expectations(&of_content), Others::Open);
        assert_eq!(expectations(&Hit { gone: Some(Time(15)), ..of_content.clone() }), Others::None);
        assert_eq!(expectations(&Hit { block: 2, suffered: 8192..12_288, ..of_content }), Others::None);
    }

    #[test]
    fn what_a_hit_may_have_caused_leaves_its_fate_unknown() {
        let outcomes = outcomes(&[flip(0, 1, 2)], &[wrong(7, 9)], &[Cause::Assumed(0)], &[0], &FILES);
        assert_eq!(outcomes[0].fates, FateCounts { unknown: 1, ..FateCounts::default() });
        assert_eq!(outcomes[0].failing_blocks, 0);
    }
}
