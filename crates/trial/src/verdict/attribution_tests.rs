//! Which hit is to blame for which failing block.

use rotproof_block::{ContentHash, Phase, Time};
use rotproof_fault::OperationKind;

use super::attribution::*;
use super::finding::tests::{unreadable, wrong};
use super::finding::{Finding, Sign};
use super::injection_group::tests::{error, flip, hash};
use super::injection_group::{Harm, InjectionGroup};

/// With all data whole on the device, which lies below every place for faults.
fn causes(hits: &[InjectionGroup], findings: &[Finding]) -> Vec<Cause> {
    attribute(hits, findings, &looks(&|expected| vec![true; expected.len()]))
}

fn looks<'a>(intact: &'a dyn Fn(&[&[ContentHash]]) -> Vec<bool>) -> Looks<'a> {
    Looks { intact, lies_below: &|_, _| true }
}

#[test]
fn a_block_is_traced_by_its_content_wherever_it_lies() {
    let hits = [flip(0, 1, 101), flip(8192, 2, 102)];
    assert_eq!(causes(&hits, &[wrong(2, 102), wrong(1, 101)]), [Cause::Injection(1), Cause::Injection(0)]);
}

#[test]
fn what_a_fault_did_not_leave_there_it_is_not_charged_with() {
    let elsewhere = wrong(1, 9);
    assert_eq!(causes(&[flip(0, 1, 101)], std::slice::from_ref(&elsewhere)), [Cause::Assumed(0)]);
    let placed = Finding { device_offset: Some(0), ..elsewhere };
    assert_eq!(causes(&[flip(0, 1, 101)], std::slice::from_ref(&placed)), [Cause::Assumed(0)]);
    // What it did was gone by then.
    let unread = InjectionGroup { served: None, ..flip(0, 1, 101) };
    assert_eq!(causes(&[unread], &[wrong(1, 101)]), [Cause::Unexplained]);
    let gone = InjectionGroup { gone: Some(Time(15)), ..flip(0, 1, 101) };
    assert_eq!(causes(std::slice::from_ref(&gone), &[placed]), [Cause::Unexplained]);
    // Also if another hand has left the same.
    assert_eq!(causes(&[gone], &[wrong(1, 101)]), [Cause::Unexplained]);
}

#[test]
fn what_was_refused_with_a_bad_block_is_laid_to_what_damaged_that() {
    let at = |offset: u64, expected: u128, request: Option<std::ops::Range<u64>>| Finding {
        offset,
        request,
        failure: Some(offset as usize / 4096),
        ..unreadable(expected)
    };
    let whole = Some(0..16_384);
    let findings =
        [at(4096, 1, whole.clone()), at(0, 2, whole), at(8192, 3, Some(8192..16_384)), at(12_288, 4, None)];
    let found = attribute(&[flip(0, 1, 9)], &findings, &looks(&|expected| vec![false; expected.len()]));
    assert_eq!(found, [Cause::Injection(0), Cause::Consequence(0), Cause::Unexplained, Cause::Unexplained]);
    let gone = InjectionGroup { gone: Some(Time(15)), ..flip(0, 1, 9) };
    let found = causes(&[gone], &findings[..2]);
    assert_eq!(found, [Cause::Unexplained; 2]);
    // Another read, and another time at which the same block failed.
    let later = Finding { time: Time(30), ..findings[1].clone() };
    let again = Finding { time: Time(30), expected: vec![hash(7)], ..findings[0].clone() };
    let found = causes(&[flip(0, 1, 9)], &[findings[0].clone(), later, again]);
    assert_eq!(found, [Cause::Injection(0), Cause::Assumed(0), Cause::Unexplained]);
}

#[test]
fn what_was_read_in_part_is_held_against_that_part() {
    let hit = InjectionGroup { sectors: Some([1, 2, 3, 4, 5, 6, 7, 8]), ..flip(0, 1, 101) };
    let part = |sectors: [Option<u32>; 8]| Finding { found_sectors: Some(Box::new(sectors)), ..wrong(1, 55) };
    let none = [None; 8];
    let first = [Some(1), Some(2), None, None, None, None, None, None];
    let other = [Some(1), Some(9), None, None, None, None, None, None];
    let found = causes(&[hit], &[part(first), part(other), part(none)]);
    assert_eq!(found, [Cause::Injection(0), Cause::Assumed(0), Cause::Injection(0)]);
}

#[test]
fn neighbours_in_a_merged_request_are_blamed_on_its_error() {
    let hits = [error(0, 12288, &[1, 2, 3])];
    let found = causes(&hits, &[unreadable(1), unreadable(3)]);
    assert_eq!(found, [Cause::Injection(0), Cause::Injection(0)]);
}

#[test]
fn an_error_does_not_explain_wrong_data() {
    assert_eq!(causes(&[error(0, 4096, &[1])], &[wrong(1, 9)]), [Cause::Unexplained]);
}

#[test]
fn an_error_of_one_read_does_not_explain_another_after_the_caches_were_dropped() {
    let passing = InjectionGroup { persists: false, ..error(0, 4096, &[1]) };
    let mut later = unreadable(1);
    assert_eq!(causes(std::slice::from_ref(&passing), std::slice::from_ref(&later)), [Cause::Injection(0)]);
    (later.phase, later.device_offset) = (Phase::Check, Some(0));
    assert_eq!(causes(&[passing], &[later]), [Cause::Unexplained]);
}

#[test]
fn a_flip_explains_the_error_of_a_subject_that_saw_through_it() {
    assert_eq!(causes(&[flip(0, 1, 9)], &[unreadable(1)]), [Cause::Injection(0)]);
    // An error of its own is the better explanation.
    assert_eq!(causes(&[error(0, 4096, &[1]), flip(0, 1, 9)], &[unreadable(1)]), [Cause::Injection(0)]);
    // A bare device cannot see through anything.
    let placed = Finding { device_offset: Some(0), ..unreadable(1) };
    assert_eq!(causes(&[flip(0, 1, 9)], &[placed]), [Cause::Assumed(0)]);
}

#[test]
fn a_power_cut_fails_what_is_under_way_and_takes_what_was_not_flushed() {
    let cut = InjectionGroup { operation: OperationKind::Write, is_dark: true, ..error(0, 0, &[]) };
    let placed = |finding: Finding| Finding { device_offset: Some(8192), ..finding };
    let refused = placed(unreadable(1));
    let unflushed = placed(Finding { is_told: true, phase: Phase::Check, ..wrong(2, 9) });
    let silent = placed(Finding { phase: Phase::Check, ..wrong(3, 9) });
    let neither = Finding { sign: Sign::Torn, ..unflushed.clone() };
    let before = placed(Finding { time: Time(5), ..unreadable(4) });
    let later = placed(Finding { phase: Phase::Check, ..unreadable(5) });
    let early = InjectionGroup { phase: Phase::Prefill, ..cut.clone() };
    assert_eq!(causes(&[early], std::slice::from_ref(&refused)), [Cause::Consequence(0)], "it lasts");
    let gone = |expected: &[&[ContentHash]]| vec![false; expected.len()];
    let findings = [refused, unflushed, silent, before, later, neither];
    let found = attribute(std::slice::from_ref(&cut), &findings, &looks(&gone));
    let [mine, none] = [Cause::Consequence(0), Cause::Unexplained];
    assert_eq!(found, [mine, mine, none, none, none, Cause::Assumed(0)]);
    // Of several devices, only what lies on that one: of this request the second block.
    let [refused, unflushed, ..] = findings;
    let whole = Finding { request: Some(8192..16_384), ..refused.clone() };
    let apart = Looks { intact: &gone, lies_below: &|site, offset| site == "faults" && offset == 12_288 };
    assert_eq!(attribute(&[cut], &[refused, unflushed, whole], &apart), [none, none, mine]);
}

#[test]
fn what_a_file_system_does_not_hand_out_when_the_power_is_back_is_only_assumed_to_follow_from_its_loss() {
    let cut = InjectionGroup { operation: OperationKind::Write, is_dark: true, ..error(0, 0, &[]) };
    let at_once = unreadable(1);
    let afterwards = Finding { phase: Phase::Check, ..unreadable(2) };
    let never_written = Finding { sign: Sign::Name, may_be_unwritten: true, ..afterwards.clone() };
    let found = causes(std::slice::from_ref(&cut), &[at_once, afterwards, never_written]);
    assert_eq!(found, [Cause::Consequence(0), Cause::Assumed(0), Cause::Consequence(0)]);
    // Any other error may have gone before it.
    let refused = InjectionGroup { is_dark: false, ..cut };
    assert_eq!(
        causes(&[refused], &[Finding { phase: Phase::Check, ..unreadable(2) }]),
        [Cause::Consequence(0)]
    );
}

#[test]
fn a_flush_that_is_refused_is_laid_to_the_one_that_failed_meanwhile() {
    let at = |hit: InjectionGroup, time: u64| InjectionGroup { time: Time(time), ..hit };
    let flush = InjectionGroup { operation: OperationKind::Flush, suffered: 0..0, ..error(0, 0, &[]) };
    let hits = [at(flush, 20), at(error(0, 4096, &[1]), 30)];
    let asked = |sent: Option<u64>, operation: Option<OperationKind>| Finding {
        sign: Sign::Refused,
        sent: sent.map(Time),
        operation,
        expected: Vec::new(),
        time: Time(40),
        ..unreadable(2)
    };
    let flush = Some(OperationKind::Flush);
    let found = causes(&hits, &[asked(Some(15), flush), asked(Some(25), flush), asked(None, None)]);
    assert_eq!(found, [Cause::Consequence(0), Cause::Consequence(1), Cause::Consequence(1)]);
}

#[test]
fn a_durable_write_fails_with_its_flush() {
    let flush = InjectionGroup { operation: OperationKind::Flush, suffered: 0..0, ..error(0, 0, &[]) };
    let write = Finding { sign: Sign::Refused, device_offset: Some(8192), ..unreadable(1) };
    let read = Finding { sign: Sign::Unreadable, ..write.clone() };
    let before = Finding { time: Time(5), ..write.clone() };
    let found = causes(&[flush], &[write, read, before]);
    assert_eq!(found, [Cause::Consequence(0), Cause::Unexplained, Cause::Unexplained]);
}

#[test]
fn a_write_that_was_refused_may_have_been_carried_out_all_the_same() {
    let refused = InjectionGroup { operation: OperationKind::Write, ..error(0, 4096, &[9]) };
    assert_eq!(
        causes(std::slice::from_ref(&refused), &[wrong(1, 9), wrong(1, 8)]),
        [Cause::Assumed(0), Cause::Unexplained]
    );
    let placed = Finding { device_offset: Some(8192), ..wrong(1, 9) };
    let read = InjectionGroup { operation: OperationKind::Read, ..refused.clone() };
    assert_eq!(causes(&[refused], &[placed]), [Cause::Unexplained], "a bare device does what it says");
    assert_eq!(causes(&[read], &[wrong(1, 9)]), [Cause::Unexplained]);
}

#[test]
fn a_write_that_failed_may_have_taken_others_with_it_that_nobody_was_told_of() {
    let refused = InjectionGroup { operation: OperationKind::Write, ..error(0, 4096, &[9]) };
    let older = Finding { is_older: true, ..wrong(1, 8) };
    let of = |finding: &Finding| causes(std::slice::from_ref(&refused), std::slice::from_ref(finding));
    assert_eq!(of(&older), [Cause::Assumed(0)]);
    assert_eq!(of(&wrong(1, 8)), [Cause::Unexplained], "it has not made anything new");
    assert_eq!(of(&Finding { time: Time(5), ..older.clone() }), [Cause::Unexplained]);
    assert_eq!(of(&Finding { device_offset: Some(8192), ..older.clone() }), [Cause::Unexplained]);
    assert_eq!(causes(&[error(0, 4096, &[9])], &[older]), [Cause::Unexplained], "a read takes nothing");
}

#[test]
fn a_finding_before_the_fault_is_not_its_doing() {
    let early = Finding { time: Time(5), ..wrong(1, 101) };
    assert_eq!(causes(&[flip(0, 1, 101)], &[early]), [Cause::Unexplained]);
}

#[test]
fn copies_of_one_content_are_dealt_out_among_its_hits() {
    let hits = [flip(0, 1, 101), flip(4096, 1, 101)];
    assert_eq!(causes(&hits, &[wrong(1, 101), wrong(1, 101)]), [Cause::Injection(0), Cause::Injection(1)]);
    let placed = Finding { device_offset: Some(4096), ..wrong(1, 101) };
    assert_eq!(causes(&hits, &[placed.clone(), placed]), [Cause::Injection(1), Cause::Injection(1)]);
}

#[test]
fn the_place_decides_where_the_content_is_unknown() {
    let placed = Finding { expected: Vec::new(), device_offset: Some(4096), ..wrong(0, 102) };
    let unknown = InjectionGroup { own: None, truths: Vec::new(), ..flip(4096, 2, 102) };
    assert_eq!(causes(&[flip(0, 1, 101), unknown], std::slice::from_ref(&placed)), [Cause::Injection(1)]);
    // What another hand had left there, and the fault then changed, is not what the block was to hold; a write on its way
    // may not have arrived by then, though.
    let of_others = Finding { expected: vec![hash(1)], ..placed };
    let found = causes(&[flip(4096, 2, 102)], std::slice::from_ref(&of_others));
    assert_eq!(found, [Cause::Assumed(0)]);
    let other = Finding { found: Some(hash(103)), ..of_others };
    assert_eq!(causes(&[flip(4096, 2, 102)], &[other]), [Cause::Unexplained]);
}

#[test]
fn damaged_metadata_explains_what_comes_after_it_if_somebody_has_read_it() {
    let metadata = InjectionGroup { of_load: Some(false), served: Some(Time(15)), ..flip(0, 500, 501) };
    let findings = [wrong(1, 9), unreadable(2)];
    assert_eq!(causes(std::slice::from_ref(&metadata), &findings), [Cause::Consequence(0); 2]);
    let unread = InjectionGroup { served: None, ..metadata.clone() };
    assert_eq!(causes(std::slice::from_ref(&unread), &findings), [Cause::Unexplained; 2]);
    let read_later = InjectionGroup { served: Some(Time(21)), ..metadata.clone() };
    assert_eq!(causes(std::slice::from_ref(&read_later), &findings), [Cause::Unexplained; 2]);
    let unknown = InjectionGroup { of_load: None, ..metadata.clone() };
    assert_eq!(causes(std::slice::from_ref(&unknown), &findings), [Cause::Assumed(0); 2]);
    // Nor does it change bits of what it leads to.
    let bits = Finding { sign: Sign::Within, ..wrong(1, 9) };
    assert_eq!(causes(std::slice::from_ref(&metadata), &[bits]), [Cause::Unexplained]);
    // Damage to other data explains nothing, also if that was overwritten since.
    let data = InjectionGroup { of_load: Some(true), ..metadata };
    assert_eq!(causes(&[data], &findings), [Cause::Unexplained; 2]);
}

#[test]
fn a_write_that_failed_below_may_leave_versions_mixed_and_nothing_shows_that_it_did() {
    let torn = Finding { sign: Sign::Torn, may_be_unwritten: true, ..wrong(1, 9) };
    let write = InjectionGroup { operation: OperationKind::Write, ..error(0, 8192, &[7]) };
    assert_eq!(causes(std::slice::from_ref(&write), std::slice::from_ref(&torn)), [Cause::Assumed(0)]);
    let bits = Finding { sign: Sign::Within, ..torn.clone() };
    let uncached = Finding { may_be_unwritten: false, ..torn.clone() };
    assert_eq!(causes(&[write], &[bits, uncached]), [Cause::Unexplained; 2]);
    let metadata = InjectionGroup { of_load: Some(false), served: Some(Time(15)), ..flip(0, 500, 501) };
    // Metadata that is an old one has the old end of the file, too.
    assert_eq!(causes(&[metadata], &[torn]), [Cause::Assumed(0)]);
}

#[test]
fn data_that_is_gone_is_not_the_work_of_what_led_to_it() {
    let metadata = InjectionGroup { of_load: Some(false), served: Some(Time(15)), ..flip(0, 500, 501) };
    let gone = |expected: &[&[ContentHash]]| vec![false; expected.len()];
    let name = Finding { sign: Sign::Name, found: None, ..wrong(3, 0) };
    let told = Finding { is_told: true, ..name.clone() };
    assert_eq!(
        attribute(&[flip(0, 3, 9)], &[told], &looks(&gone)),
        [Cause::Unexplained],
        "data holds no names"
    );
    let found =
        attribute(std::slice::from_ref(&metadata), &[wrong(1, 9), unreadable(2), name], &looks(&gone));
    assert_eq!(found, [Cause::Assumed(0), Cause::Assumed(0), Cause::Consequence(0)]);
}

#[test]
fn a_file_system_that_gave_up_after_an_error_on_other_data_refuses_what_comes_then() {
    let refused = Finding { sign: Sign::Refused, ..unreadable(2) };
    let bad = error(0, 4096, &[77]);
    assert_eq!(causes(std::slice::from_ref(&bad), std::slice::from_ref(&refused)), [Cause::Consequence(0)]);
    // A read that failed once, and caches that were dropped since.
    let passing = InjectionGroup { persists: false, ..bad };
    let later = Finding { phase: Phase::Check, ..refused };
    assert_eq!(causes(&[passing], &[later]), [Cause::Unexplained]);
}

#[test]
fn a_delay_accounts_for_what_took_too_long_while_it_held_somebody_up_and_for_nothing_else() {
    let held = InjectionGroup { harm: Harm::Delay(Time(30)), ..flip(4096, 1, 0) };
    let timed_out = Finding { timed_out: true, ..unreadable(1) };
    assert_eq!(causes(std::slice::from_ref(&held), std::slice::from_ref(&timed_out)), [Cause::Injection(0)]);
    let placed = Finding { expected: Vec::new(), device_offset: Some(4096), ..timed_out.clone() };
    assert_eq!(causes(std::slice::from_ref(&held), &[placed]), [Cause::Injection(0)]);
    // A file system that waited for something else.
    let other = Finding { expected: vec![hash(7)], ..timed_out.clone() };
    assert_eq!(causes(std::slice::from_ref(&held), &[other]), [Cause::Consequence(0)]);
    let late = Finding { time: Time(31), ..timed_out.clone() };
    let found = causes(std::slice::from_ref(&held), &[late, unreadable(1), wrong(1, 9)]);
    assert_eq!(found, [Cause::Unexplained; 3]);
    let hits = [error(4096, 4096, &[1]), held];
    assert_eq!(causes(&hits, &[timed_out, unreadable(1)]), [Cause::Injection(1), Cause::Injection(0)]);
}

#[test]
fn a_name_that_is_gone_follows_from_an_error_and_is_not_the_data_that_it_refused() {
    let refused = InjectionGroup { operation: OperationKind::Write, ..error(0, 4096, &[1]) };
    let name = Finding { sign: Sign::Name, ..unreadable(1) };
    assert_eq!(causes(&[refused], &[name]), [Cause::Consequence(0)]);
}

#[test]
fn an_error_accounts_for_data_that_never_left_the_page_cache() {
    let refused = InjectionGroup { operation: OperationKind::Write, ..error(0, 4096, &[1]) };
    let cached = Finding { may_be_unwritten: true, ..wrong(1, 101) };
    assert_eq!(causes(std::slice::from_ref(&refused), std::slice::from_ref(&cached)), [Cause::Injection(0)]);
    // Of other data nothing shows that it ever was to be written then.
    let elsewhere = Finding { expected: vec![hash(7)], ..cached };
    let gone = |expected: &[&[ContentHash]]| vec![false; expected.len()];
    let found = attribute(std::slice::from_ref(&refused), std::slice::from_ref(&elsewhere), &looks(&gone));
    assert_eq!(found, [Cause::Assumed(0)]);
    assert_eq!(causes(&[refused], &[wrong(1, 101)]), [Cause::Unexplained]);
}
