//! Fates of faults, by what the verdict knows.

use super::super::finding::tests::{unreadable, wrong};
use super::super::injection_group::tests::{error, flip};
use super::*;
use rotproof_fault::MEMORY;
use rotproof_load::{LoadSpec, ObjectInfo};

pub(in crate::verdict) const BLIND: Knowledge<'_> = Knowledge {
    oracle: None,
    is_direct: false,
    keeps_copies: false,
    has_other_users: true,
    is_complete: true,
};
pub(in crate::verdict) const FILES: Knowledge<'_> = Knowledge { oracle: Some(LoadOracle::Files), ..BLIND };

fn fate(hit: &InjectionGroup, knowledge: &Knowledge<'_>) -> Fate {
    knowledge.without_findings(hit, Others::None)
}

#[test]
fn without_an_oracle_only_delays_are_known_to_harm_nothing() {
    let repaired = InjectionGroup { repaired: true, gone: Some(Time(11)), ..flip(0, 1, 2) };
    assert_eq!(fate(&repaired, &BLIND), Fate::Unknown);
    let delay = InjectionGroup { harm: Harm::Delay(Time(30)), ..flip(0, 1, 2) };
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
    let metadata = InjectionGroup { of_load: Some(false), ..data.clone() };
    assert_eq!(fate(&metadata, &FILES), Fate::Unknown);
    let gone = InjectionGroup { served: None, gone: Some(Time(15)), ..metadata.clone() };
    assert_eq!(fate(&gone, &FILES), Fate::Masked, "overwritten before anybody came");
    let read_before = InjectionGroup { served: Some(Time(12)), ..gone };
    assert_eq!(fate(&read_before, &FILES), Fate::Unknown);
    assert_eq!(fate(&InjectionGroup { repaired: true, ..read_before }, &FILES), Fate::Repaired);
    let incomplete = Knowledge { is_complete: false, ..FILES };
    assert_eq!(fate(&data, &incomplete), Fate::Unknown, "what the load saw of it may be among the rest");
    assert_eq!(fate(&InjectionGroup { of_load: None, ..data }, &FILES), Fate::Unknown);
    assert_eq!(
        fate(&InjectionGroup { of_load: Some(false), ..flip(0, 1, 1) }, &FILES),
        Fate::Masked,
        "no change"
    );
    assert_eq!(fate(&error(0, 8192, &[1, 2]), &FILES), Fate::Masked);
    let flush = InjectionGroup { operation: OperationKind::Flush, of_load: None, ..error(0, 0, &[]) };
    assert_eq!(fate(&flush, &FILES), Fate::Unknown);
    let raw = Knowledge { is_direct: true, has_other_users: false, ..FILES };
    let device = Knowledge { is_direct: true, ..FILES };
    assert_eq!(fate(&flush, &device), Fate::Unknown, "the kernel may have sent it");
    assert_eq!(fate(&flush, &raw), Fate::Reported);
    let read = InjectionGroup { operation: OperationKind::Read, ..flush };
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
    let served = InjectionGroup { of_load: None, served: Some(Time(12)), ..flip(4096, 1, 2) };
    assert_eq!(fate(&served, &bare(&workload, &oracle)), Fate::Unknown, "somebody has read it, not the load");
    let latent = InjectionGroup { served: None, ..served.clone() };
    assert_eq!(fate(&latent, &bare(&workload, &oracle)), Fate::Unknown);
    assert_eq!(
        fate(&InjectionGroup { gone: Some(Time(13)), ..latent }, &bare(&workload, &oracle)),
        Fate::Masked
    );
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
    let at = |rule, place| InjectionGroup { rule, ..flip(place, 1, 2) };
    let alone = InjectionGroup { rule: 1, ..flip(16_384, 3, 4) };
    let mut hits = vec![at(0, 0), at(0, 0), at(0, 4096), at(0, 8192), alone];
    hits[3].repaired = true;
    let of = |failure: Option<usize>, object: u32, finding: Finding| Finding { failure, object, ..finding };
    let findings = [
        of(Some(0), 0, unreadable(1)),
        of(Some(0), 0, wrong(1, 2)),
        of(Some(1), 1, unreadable(1)),
        of(Some(2), 1, wrong(1, 2)),
        of(None, 0, unreadable(3)),
    ];
    let causes = [
        Cause::Injection(0),
        Cause::Injection(1),
        Cause::Consequence(2),
        Cause::Unexplained,
        Cause::Injection(4),
    ];
    let outcomes = outcomes(&hits, &findings, &causes, &[3, 0], &FILES);
    assert_eq!(
        outcomes[0],
        RuleOutcome {
            hits: 4,
            faults: 6,
            fates: FateCounts { untriggered: 3, masked: 0, repaired: 1, reported: 1, silent: 1, unknown: 0 },
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
    let above = InjectionGroup { rule: 1, time: Time(12), ..flip(0, 1, 3) };
    let elsewhere = InjectionGroup { rule: 2, ..flip(8192, 1, 4) };
    let gone = InjectionGroup { rule: 3, served: None, gone: Some(Time(11)), ..flip(0, 1, 5) };
    let hits = [beneath, above, elsewhere, gone];
    let fates = |finding: Finding| -> Vec<FateCounts> {
        let outcomes = outcomes(&hits, &[finding], &[Cause::Injection(1)], &[0; 4], &FILES);
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
    let of = |on: &str, corruption: u128| InjectionGroup { on: on.into(), ..flip(0, 1, corruption) };
    let hits = [of("left", 2), InjectionGroup { rule: 1, ..of("right", 3) }];
    let knowledge = |keeps_copies| Knowledge { keeps_copies, ..FILES };
    let fates = |keeps_copies: bool, finding: Finding| -> Vec<FateCounts> {
        let outcomes = outcomes(&hits, &[finding], &[Cause::Injection(0)], &[0; 2], &knowledge(keeps_copies));
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
        Expectations::new(&hits, &findings, &[cause], &HashSet::new()).others(&hit)
    };
    assert_eq!(others(2, Cause::Unexplained), [Others::Open], "what it left");
    assert_eq!(others(1, Cause::Assumed(0)), [Others::Open], "what another hand had put there before");
    assert_eq!(others(9, Cause::Unexplained), [Others::None]);
    assert_eq!(others(2, Cause::Injection(0)), [Others::None], "laid to what left the same elsewhere");
}

#[test]
fn where_a_block_failed_nothing_that_was_there_is_masked() {
    let of_content = flip(4096, 1, 2);
    let failed_later = Finding { device_offset: Some(4096), ..wrong(7, 9) };
    let expectations = |hit: &InjectionGroup| {
        let (hits, findings) = ([hit.clone()], [failed_later.clone()]);
        Expectations::new(&hits, &findings, &[Cause::Unexplained], &HashSet::new()).others(hit)
    };
    assert_eq!(expectations(&of_content), [Others::Open]);
    assert_eq!(expectations(&InjectionGroup { gone: Some(Time(15)), ..of_content.clone() }), [Others::None]);
    assert_eq!(
        expectations(&InjectionGroup { block: 2, suffered: 8192..12_288, ..of_content }),
        [Others::None]
    );
}

#[test]
fn what_a_hit_may_have_caused_leaves_its_fate_unknown() {
    let outcomes = outcomes(&[flip(0, 1, 2)], &[wrong(7, 9)], &[Cause::Assumed(0)], &[0], &FILES);
    assert_eq!(outcomes[0].fates, FateCounts { unknown: 1, ..FateCounts::default() });
    assert_eq!(outcomes[0].failing_blocks, 0);
}

#[test]
fn each_flip_in_memory_is_a_fault_of_its_own_and_what_hits_a_block_of_a_device_again_is_not() {
    let on_device = [flip(4096, 1, 2), InjectionGroup { number: 1, ..flip(4096, 1, 3) }];
    assert_eq!(outcomes(&on_device, &[], &[], &[0], &FILES)[0].faults, 1);
    // Two bits of one page.
    let in_memory = on_device.map(|hit| InjectionGroup { flip: Some(hit.number), on: MEMORY.into(), ..hit });
    let outcome = &outcomes(&in_memory, &[], &[], &[0], &FILES)[0];
    assert_eq!((outcome.hits, outcome.faults, outcome.fates.masked), (2, 2, 2));
}
