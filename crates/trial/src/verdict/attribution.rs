//! Which injected fault is to blame for which failing block.
//!
//! A file system moves blocks about, so a place alone says little. The content does: the ledger names the hash of the
//! truth that a fault damaged, the load the hash of what it expected and of what it found.

use std::collections::{HashMap, HashSet};

use rotproof_block::{ContentHash, Phase};
use rotproof_fault::{BLOCK_BYTES, OperationKind};

use super::LiesBelow;
use super::finding::{Finding, Sign};
use super::hit::{Harm, Hit};

/// Why a block failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This hit damaged this very block.
    Hit(usize),
    /// This hit damaged something the block depends on: metadata, or a file system that gave up after an error.
    Consequence(usize),
    /// It may be a consequence of this hit, or of what it did to this very block; nothing shows that it is.
    Assumed(usize),
    /// No injected fault accounts for it.
    Unexplained,
}

impl Cause {
    /// The hit to blame, if one is known.
    pub fn hit(self) -> Option<usize> {
        match self {
            Cause::Hit(hit) | Cause::Consequence(hit) => Some(hit),
            Cause::Assumed(_) | Cause::Unexplained => None,
        }
    }

    /// How much is known, from nothing up.
    pub(super) fn certainty(self) -> u8 {
        match self {
            Cause::Unexplained => 0,
            Cause::Assumed(_) => 1,
            Cause::Consequence(_) => 2,
            Cause::Hit(_) => 3,
        }
    }
}

/// What looks at the device and the stack below it can tell.
pub struct Looks<'a> {
    /// Of findings, by what they expected: whether one of that is whole on the device, as the subject would see it now. Then it
    /// is out of reach, and what was to lead there may be to blame; if not, somebody has destroyed it. It is asked once.
    pub intact: &'a dyn Fn(&[&[ContentHash]]) -> Vec<bool>,
    /// See [`Evidence::lies_below`](super::Evidence::lies_below).
    pub lies_below: &'a LiesBelow<'a>,
}

/// Finds the cause of every finding; `causes[i]` belongs to `findings[i]`.
pub fn attribute(hits: &[Hit], findings: &[Finding], looks: &Looks<'_>) -> Vec<Cause> {
    let mut index = Index::new(hits, findings, looks);
    let mut causes: Vec<Cause> = findings.iter().map(|finding| index.cause_of(finding)).collect();
    let of_neighbours = lay_to_neighbours(hits, findings, &mut causes);
    let in_question: Vec<usize> = (0..findings.len())
        // What a power cut took was never to be found again.
        .filter(|&number| matches!(causes[number], Cause::Consequence(hit) if !hits[hit].is_dark))
        .filter(|&number| findings[number].takes_data() && !of_neighbours.contains(&number))
        .collect();
    if !in_question.is_empty() {
        let expected: Vec<&[ContentHash]> =
            in_question.iter().map(|&number| findings[number].expected.as_slice()).collect();
        for (number, is_intact) in in_question.into_iter().zip((looks.intact)(&expected)) {
            if let (Cause::Consequence(hit), false) = (causes[number], is_intact) {
                causes[number] = Cause::Assumed(hit);
            }
        }
    }
    causes
}

/// A subject that sees through damage to one block refuses the whole read that asked for it. Lays what was refused with it, in one
/// read, to the same hit; gives those findings. What was refused beside it at another time is only likely to come of it: by then
/// the subject may have moved that block.
fn lay_to_neighbours(hits: &[Hit], findings: &[Finding], causes: &mut [Cause]) -> HashSet<usize> {
    let mut by_place: HashMap<(u32, u64), Vec<usize>> = HashMap::new();
    for (number, finding) in findings.iter().enumerate() {
        if finding.failure.is_some() && matches!(causes[number], Cause::Hit(_)) {
            by_place.entry((finding.object, finding.offset)).or_default().push(number);
        }
    }
    let mut laid = HashSet::new();
    for (number, finding) in findings.iter().enumerate() {
        let is_open =
            matches!(causes[number], Cause::Unexplained | Cause::Assumed(_) | Cause::Consequence(_));
        let Some(request) = finding.request.clone().filter(|_| is_open && finding.sign == Sign::Unreadable)
        else {
            continue;
        };
        let beside = request
            .step_by(BLOCK_BYTES as usize)
            .filter(|&at| at != finding.offset)
            .filter_map(|at| by_place.get(&(finding.object, at)))
            .flatten();
        let blamed: Vec<(usize, bool)> = beside
            .filter_map(|&other| Some((causes[other].hit()?, findings[other].time == finding.time)))
            .filter(|&(hit, _)| hits[hit].was_there(finding))
            .collect();
        if let Some(&(hit, _)) = blamed.iter().find(|(_, is_one_read)| *is_one_read) {
            causes[number] = Cause::Consequence(hit);
            laid.insert(number);
        } else if let (Cause::Unexplained, Some(&(hit, _))) = (causes[number], blamed.first()) {
            causes[number] = Cause::Assumed(hit);
        }
    }
    laid
}

impl Finding {
    /// Whether data was wanted that had been there, so that it matters whether it still is.
    fn takes_data(&self) -> bool {
        matches!(self.sign, Sign::Unreadable | Sign::Elsewhere)
            && !self.expected.is_empty()
            && !self.timed_out
    }
}

struct Index<'a> {
    hits: &'a [Hit],
    by_truth: HashMap<ContentHash, Candidates>,
    /// The hits that a block of the device suffered, by its number.
    by_block: HashMap<u64, Vec<usize>>,
    /// Hits that can bring down more than their own block, in order of time: damage to what is shown to be metadata, and
    /// errors.
    metadata: Vec<usize>,
    errors: Vec<usize>,
    /// Damage to what may be metadata, in order of time.
    unknown: Vec<usize>,
    /// Hits that only held up requests, in order of time.
    delays: Vec<usize>,
    lies_below: &'a LiesBelow<'a>,
}

/// Hits that damaged one content. Where it lies in several places and the finding's place on the device is unknown,
/// findings are dealt out among them in turn.
#[derive(Default)]
struct Candidates {
    hits: Vec<usize>,
    next: usize,
}

impl<'a> Index<'a> {
    fn new(hits: &'a [Hit], findings: &[Finding], looks: &Looks<'a>) -> Self {
        let mut index = Self {
            hits,
            by_truth: HashMap::new(),
            by_block: HashMap::new(),
            metadata: Vec::new(),
            errors: Vec::new(),
            unknown: Vec::new(),
            delays: Vec::new(),
            lies_below: looks.lies_below,
        };
        // No delay accounts for anything where nothing took too long.
        let times_out = findings.iter().any(|finding| finding.timed_out);
        for (number, hit) in hits.iter().enumerate() {
            if matches!(hit.harm, Harm::Delay(_)) && !times_out {
                continue;
            }
            for &truth in &hit.truths {
                index.by_truth.entry(truth).or_default().hits.push(number);
            }
            for block in hit.suffered.start / BLOCK_BYTES..hit.suffered.end.div_ceil(BLOCK_BYTES) {
                index.by_block.entry(block).or_default().push(number);
            }
            match (hit.harm, hit.of_load) {
                (Harm::Delay(_), _) => index.delays.push(number),
                (Harm::Error, _) => index.errors.push(number),
                (Harm::Data(_), Some(true)) => {}
                (Harm::Data(_), Some(false)) => index.metadata.push(number),
                (Harm::Data(_), None) => index.unknown.push(number),
            }
        }
        for numbers in [&mut index.metadata, &mut index.errors, &mut index.unknown, &mut index.delays] {
            numbers.sort_by_key(|&number| hits[number].time);
        }
        index
    }

    fn cause_of(&mut self, finding: &Finding) -> Cause {
        if let Some(hit) = self.by_content(finding).or_else(|| self.by_place(finding)) {
            return Cause::Hit(hit);
        }
        if let Some(hit) = finding.operation.and_then(|operation| self.failed_while(operation, finding)) {
            return Cause::Consequence(hit);
        }
        if let Some(hit) = self.power_cut(finding) {
            let is_version = finding.sign != Sign::Torn;
            return if is_version { Cause::Consequence(hit) } else { Cause::Assumed(hit) };
        }
        let cause = self.consequence_of(finding);
        if cause != Cause::Unexplained {
            return cause;
        }
        let seems = self.touched(finding).or_else(|| self.refused_before(finding));
        seems.or_else(|| self.lost_beside(finding)).map_or(cause, Cause::Assumed)
    }

    fn by_content(&mut self, finding: &Finding) -> Option<usize> {
        finding.expected.iter().find_map(|truth| {
            let candidates = self.by_truth.get_mut(truth)?;
            let fits = |number: &&usize| {
                let hit = &self.hits[**number];
                hit.can_cause(finding)
                    && finding.device_offset.is_none_or(|offset| hit.suffered.contains(&offset))
            };
            let mut chosen: Vec<usize> = candidates.hits.iter().filter(fits).copied().collect();
            // Best: it left exactly what was found, here nothing. A later fault of the same block may have changed that since.
            let is_exact = |number: &usize| match finding.found {
                Some(_) => self.hits[*number].shows(finding),
                None => self.hits[*number].lie().is_none(),
            };
            if chosen.iter().any(is_exact) {
                chosen.retain(is_exact);
            }
            // The block itself rather than one that suffered with another.
            if chosen.iter().any(|&number| self.hits[number].own == Some(*truth)) {
                chosen.retain(|&number| self.hits[number].own == Some(*truth));
            }
            // What holds it up at that moment is a better explanation than an error before.
            let holds_up = |number: &usize| matches!(self.hits[*number].harm, Harm::Delay(_));
            if finding.timed_out && chosen.iter().any(holds_up) {
                chosen.retain(holds_up);
            }
            let turn = candidates.next;
            candidates.next += 1;
            (!chosen.is_empty()).then(|| chosen[turn % chosen.len()])
        })
    }

    /// The last hit of the right kind at the finding's place, where blocks do not move.
    fn by_place(&self, finding: &Finding) -> Option<usize> {
        let offset = finding.device_offset?;
        let suffered = self.by_block.get(&(offset / BLOCK_BYTES))?;
        suffered.iter().copied().rev().find(|&number| {
            let hit = &self.hits[number];
            // Damage to something else that lay there is not damage to what should have.
            let is_of_content = match hit.harm {
                Harm::Data(_) => hit.own.is_none_or(|own| finding.expected.contains(&own)),
                Harm::Error | Harm::Delay(_) => true,
            };
            hit.can_cause(finding) && hit.suffered.contains(&offset) && is_of_content
        })
    }

    /// The last hit before the finding that damaged this very block, and was read, but left something else there than was found;
    /// or left just that, in the place of something else than the block was to hold.
    fn touched(&self, finding: &Finding) -> Option<usize> {
        if finding.sign == Sign::Name {
            return None;
        }
        let of_content = finding.expected.iter().filter_map(|truth| self.by_truth.get(truth));
        let of_place = finding.device_offset.and_then(|offset| self.by_block.get(&(offset / BLOCK_BYTES)));
        let left = of_place.into_iter().flatten().filter(|&&number| self.hits[number].shows(finding));
        let here = of_content.flat_map(|candidates| &candidates.hits).chain(left).copied();
        here.filter(|&number| {
            let hit = &self.hits[number];
            hit.time <= finding.time
                && matches!(hit.harm, Harm::Data(_))
                && finding.device_offset.is_none_or(|offset| hit.suffered.contains(&offset))
                && hit.gone.is_none_or(|gone| finding.time <= gone)
                && hit.served.is_some_and(|served| served <= finding.time)
        })
        .max_by_key(|&number| self.hits[number].time)
    }

    /// The last write of just what was found that was refused before, on a subject that may have carried it out all the same, or
    /// later: it made requests of its own of it.
    fn refused_before(&self, finding: &Finding) -> Option<usize> {
        let written = self.by_truth.get(&finding.found?).filter(|_| finding.device_offset.is_none())?;
        written.hits.iter().copied().rev().find(|&number| {
            let hit = &self.hits[number];
            hit.harm == Harm::Error && hit.operation == OperationKind::Write && hit.time <= finding.time
        })
    }

    /// Of a block that holds what it held before: the last write that failed before. A file system may have made one of several
    /// writes, given up all of it when a part failed, and told only one of those who asked; btrfs does.
    fn lost_beside(&self, finding: &Finding) -> Option<usize> {
        let is_lost = finding.is_older && !finding.is_told && finding.device_offset.is_none();
        let explains = |hit: &Hit| hit.operation == OperationKind::Write && hit.time <= finding.time;
        self.errors.iter().copied().rev().find(|&number| is_lost && explains(&self.hits[number]))
    }

    /// A flush of the same phase that failed before a write did: the kernel makes a durable write of the two.
    fn failed_flush(&self, finding: &Finding) -> Option<usize> {
        let is_flush = |hit: &Hit| {
            hit.operation == OperationKind::Flush && hit.phase == finding.phase && hit.time <= finding.time
        };
        let is_write = finding.is_told && finding.sign == Sign::Refused && !finding.timed_out;
        self.errors.iter().copied().rev().find(|&number| is_write && is_flush(&self.hits[number]))
    }

    /// The last such request that failed while what was refused was under way, as far as its times tell.
    fn failed_while(&self, operation: OperationKind, finding: &Finding) -> Option<usize> {
        let times = finding.sent?..=finding.time;
        self.errors.iter().copied().rev().find(|&number| {
            let hit = &self.hits[number];
            hit.operation == operation && hit.phase == finding.phase && times.contains(&hit.time)
        })
    }

    /// The last request that failed while what was refused was under way.
    fn error_meanwhile(&self, finding: &Finding) -> Option<usize> {
        let times = finding.sent?..=finding.time;
        self.errors.iter().copied().rev().find(|&number| times.contains(&self.hits[number].time))
    }

    /// A power cut before what failed with an error in the same phase, or was lost with a flush that failed: requests under way
    /// fail without meeting the rule, and what a volatile cache held is gone without a hit of its own.
    fn power_cut(&self, finding: &Finding) -> Option<usize> {
        let is_lost = matches!(finding.sign, Sign::Elsewhere | Sign::Torn);
        // It comes back when the subject is down after the load.
        let is_same = |hit: &Hit| {
            hit.phase == finding.phase || (hit.phase, finding.phase) == (Phase::Prefill, Phase::Run)
        };
        let explains = |hit: &Hit| hit.is_dark && hit.time <= finding.time && (is_lost || is_same(hit));
        let is_told = finding.is_told && !finding.timed_out;
        // Of several devices it took only what lies on its own.
        let reaches = |hit: &Hit| {
            let asked = finding
                .device_offset
                .map(|offset| finding.request.clone().unwrap_or(offset..offset + BLOCK_BYTES));
            asked.is_none_or(|bytes| {
                bytes.step_by(BLOCK_BYTES as usize).any(|offset| (self.lies_below)(&hit.on, offset))
            })
        };
        let is_its = |hit: &Hit| explains(hit) && reaches(hit);
        self.errors.iter().copied().find(|&number| is_told && is_its(&self.hits[number]))
    }

    /// The last hit before the finding that can bring down more than its own block: for what took too long any that holds up a
    /// request at that moment; else damage to metadata that somebody has read since, or, for an error, any error (a journal
    /// that aborts refuses every later write).
    fn consequence_of(&self, finding: &Finding) -> Cause {
        if finding.device_offset.is_some() {
            return self.failed_flush(finding).map_or(Cause::Unexplained, Cause::Consequence);
        }
        let holds_up = |number: &&usize| self.hits[**number].can_cause(finding);
        if let Some(&delay) = self.delays.iter().rev().find(holds_up) {
            // An error that says the same is a better explanation than a request that was held up meanwhile.
            return Cause::Consequence(self.error_meanwhile(finding).unwrap_or(delay));
        }
        // Metadata leads to blocks; it does not change some of their bits.
        if finding.sign == Sign::Within {
            return Cause::Unexplained;
        }
        let last = |numbers: &[usize], has_acted: &dyn Fn(&Hit) -> bool| {
            let earlier = numbers.partition_point(|&number| self.hits[number].time <= finding.time);
            numbers[..earlier].iter().copied().rev().find(|&number| has_acted(&self.hits[number]))
        };
        let was_read = |hit: &Hit| hit.served.is_some_and(|served| served <= finding.time);
        let is_of_errors = finding.is_told || finding.may_be_unwritten;
        // What only failed a read is forgotten with the caches of its phase.
        let lasts = |hit: &Hit| hit.persists || hit.phase == finding.phase;
        let error = if is_of_errors { last(&self.errors, &lasts) } else { None };
        let metadata = last(&self.metadata, &was_read);
        // Nor does it mix versions. A file system that could not write may, or one whose metadata is an old one, where an old end
        // of the file lies within the block.
        if finding.sign == Sign::Torn {
            let any = error.or(metadata).or_else(|| last(&self.unknown, &was_read));
            return any.map_or(Cause::Unexplained, Cause::Assumed);
        }
        match metadata.max(error) {
            Some(hit) => Cause::Consequence(hit),
            None => last(&self.unknown, &was_read).map_or(Cause::Unexplained, Cause::Assumed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::{unreadable, wrong};
    use super::super::hit::tests::{error, flip, hash};
    use super::*;
    use rotproof_block::Time;

    /// With all data whole on the device, which lies below every place for faults.
    fn causes(hits: &[Hit], findings: &[Finding]) -> Vec<Cause> {
        attribute(hits, findings, &looks(&|expected| vec![true; expected.len()]))
    }

    fn looks<'a>(intact: &'a dyn Fn(&[&[ContentHash]]) -> Vec<bool>) -> Looks<'a> {
        Looks { intact, lies_below: &|_, _| true }
    }

    #[test]
    fn a_block_is_traced_by_its_content_wherever_it_lies() {
        let hits = [flip(0, 1, 101), flip(8192, 2, 102)];
        assert_eq!(causes(&hits, &[wrong(2, 102), wrong(1, 101)]), [Cause::Hit(1), Cause::Hit(0)]);
    }

    #[test]
    fn what_a_fault_did_not_leave_there_it_is_not_charged_with() {
        let elsewhere = wrong(1, 9);
        assert_eq!(causes(&[flip(0, 1, 101)], std::slice::from_ref(&elsewhere)), [Cause::Assumed(0)]);
        let placed = Finding { device_offset: Some(0), ..elsewhere };
        assert_eq!(causes(&[flip(0, 1, 101)], std::slice::from_ref(&placed)), [Cause::Assumed(0)]);
        // What it did was gone by then.
        let unread = Hit { served: None, ..flip(0, 1, 101) };
        assert_eq!(causes(&[unread], &[wrong(1, 101)]), [Cause::Unexplained]);
        let gone = Hit { gone: Some(Time(15)), ..flip(0, 1, 101) };
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
        let findings = [
            at(4096, 1, whole.clone()),
            at(0, 2, whole),
            at(8192, 3, Some(8192..16_384)),
            at(12_288, 4, None),
        ];
        let found = attribute(&[flip(0, 1, 9)], &findings, &looks(&|expected| vec![false; expected.len()]));
        assert_eq!(found, [Cause::Hit(0), Cause::Consequence(0), Cause::Unexplained, Cause::Unexplained]);
        let gone = Hit { gone: Some(Time(15)), ..flip(0, 1, 9) };
        let found = causes(&[gone], &findings[..2]);
        assert_eq!(found, [Cause::Unexplained; 2]);
        // Another read, and another time at which the same block failed.
        let later = Finding { time: Time(30), ..findings[1].clone() };
        let again = Finding { time: Time(30), expected: vec![hash(7)], ..findings[0].clone() };
        let found = causes(&[flip(0, 1, 9)], &[findings[0].clone(), later, again]);
        assert_eq!(found, [Cause::Hit(0), Cause::Assumed(0), Cause::Unexplained]);
    }

    #[test]
    fn what_was_read_in_part_is_held_against_that_part() {
        let hit = Hit { sectors: Some([1, 2, 3, 4, 5, 6, 7, 8]), ..flip(0, 1, 101) };
        let part = |sectors: [Option<u32>; 8]| Finding { found_sectors: Some(sectors), ..wrong(1, 55) };
        let none = [None; 8];
        let first = [Some(1), Some(2), None, None, None, None, None, None];
        let other = [Some(1), Some(9), None, None, None, None, None, None];
        let found = causes(&[hit], &[part(first), part(other), part(none)]);
        assert_eq!(found, [Cause::Hit(0), Cause::Assumed(0), Cause::Hit(0)]);
    }

    #[test]
    fn neighbours_in_a_merged_request_are_blamed_on_its_error() {
        let hits = [error(0, 12288, &[1, 2, 3])];
        let found = causes(&hits, &[unreadable(1), unreadable(3)]);
        assert_eq!(found, [Cause::Hit(0), Cause::Hit(0)]);
    }

    #[test]
    fn an_error_does_not_explain_wrong_data() {
        assert_eq!(causes(&[error(0, 4096, &[1])], &[wrong(1, 9)]), [Cause::Unexplained]);
    }

    #[test]
    fn an_error_of_one_read_does_not_explain_another_after_the_caches_were_dropped() {
        let passing = Hit { persists: false, ..error(0, 4096, &[1]) };
        let mut later = unreadable(1);
        assert_eq!(causes(std::slice::from_ref(&passing), std::slice::from_ref(&later)), [Cause::Hit(0)]);
        (later.phase, later.device_offset) = (Phase::Check, Some(0));
        assert_eq!(causes(&[passing], &[later]), [Cause::Unexplained]);
    }

    #[test]
    fn a_flip_explains_the_error_of_a_subject_that_saw_through_it() {
        assert_eq!(causes(&[flip(0, 1, 9)], &[unreadable(1)]), [Cause::Hit(0)]);
        // An error of its own is the better explanation.
        assert_eq!(causes(&[error(0, 4096, &[1]), flip(0, 1, 9)], &[unreadable(1)]), [Cause::Hit(0)]);
        // A bare device cannot see through anything.
        let placed = Finding { device_offset: Some(0), ..unreadable(1) };
        assert_eq!(causes(&[flip(0, 1, 9)], &[placed]), [Cause::Assumed(0)]);
    }

    #[test]
    fn a_power_cut_fails_what_is_under_way_and_takes_what_was_not_flushed() {
        let cut = Hit { operation: OperationKind::Write, is_dark: true, ..error(0, 0, &[]) };
        let placed = |finding: Finding| Finding { device_offset: Some(8192), ..finding };
        let refused = placed(unreadable(1));
        let unflushed = placed(Finding { is_told: true, phase: Phase::Check, ..wrong(2, 9) });
        let silent = placed(Finding { phase: Phase::Check, ..wrong(3, 9) });
        let neither = Finding { sign: Sign::Torn, ..unflushed.clone() };
        let before = placed(Finding { time: Time(5), ..unreadable(4) });
        let later = placed(Finding { phase: Phase::Check, ..unreadable(5) });
        let early = Hit { phase: Phase::Prefill, ..cut.clone() };
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
    fn a_flush_that_is_refused_is_laid_to_the_one_that_failed_meanwhile() {
        let at = |hit: Hit, time: u64| Hit { time: Time(time), ..hit };
        let flush = Hit { operation: OperationKind::Flush, suffered: 0..0, ..error(0, 0, &[]) };
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
        let flush = Hit { operation: OperationKind::Flush, suffered: 0..0, ..error(0, 0, &[]) };
        let write = Finding { sign: Sign::Refused, device_offset: Some(8192), ..unreadable(1) };
        let read = Finding { sign: Sign::Unreadable, ..write.clone() };
        let before = Finding { time: Time(5), ..write.clone() };
        let found = causes(&[flush], &[write, read, before]);
        assert_eq!(found, [Cause::Consequence(0), Cause::Unexplained, Cause::Unexplained]);
    }

    #[test]
    fn a_write_that_was_refused_may_have_been_carried_out_all_the_same() {
        let refused = Hit { operation: OperationKind::Write, ..error(0, 4096, &[9]) };
        assert_eq!(
            causes(std::slice::from_ref(&refused), &[wrong(1, 9), wrong(1, 8)]),
            [Cause::Assumed(0), Cause::Unexplained]
        );
        let placed = Finding { device_offset: Some(8192), ..wrong(1, 9) };
        let read = Hit { operation: OperationKind::Read, ..refused.clone() };
        assert_eq!(causes(&[refused], &[placed]), [Cause::Unexplained], "a bare device does what it says");
        assert_eq!(causes(&[read], &[wrong(1, 9)]), [Cause::Unexplained]);
    }

    #[test]
    fn a_write_that_failed_may_have_taken_others_with_it_that_nobody_was_told_of() {
        let refused = Hit { operation: OperationKind::Write, ..error(0, 4096, &[9]) };
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
        assert_eq!(causes(&hits, &[wrong(1, 101), wrong(1, 101)]), [Cause::Hit(0), Cause::Hit(1)]);
        let placed = Finding { device_offset: Some(4096), ..wrong(1, 101) };
        assert_eq!(causes(&hits, &[placed.clone(), placed]), [Cause::Hit(1), Cause::Hit(1)]);
    }

    #[test]
    fn the_place_decides_where_the_content_is_unknown() {
        let placed = Finding { expected: Vec::new(), device_offset: Some(4096), ..wrong(0, 102) };
        let unknown = Hit { own: None, truths: Vec::new(), ..flip(4096, 2, 102) };
        assert_eq!(causes(&[flip(0, 1, 101), unknown], std::slice::from_ref(&placed)), [Cause::Hit(1)]);
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
        let metadata = Hit { of_load: Some(false), served: Some(Time(15)), ..flip(0, 500, 501) };
        let findings = [wrong(1, 9), unreadable(2)];
        assert_eq!(causes(std::slice::from_ref(&metadata), &findings), [Cause::Consequence(0); 2]);
        let unread = Hit { served: None, ..metadata.clone() };
        assert_eq!(causes(std::slice::from_ref(&unread), &findings), [Cause::Unexplained; 2]);
        let read_later = Hit { served: Some(Time(21)), ..metadata.clone() };
        assert_eq!(causes(std::slice::from_ref(&read_later), &findings), [Cause::Unexplained; 2]);
        let unknown = Hit { of_load: None, ..metadata.clone() };
        assert_eq!(causes(std::slice::from_ref(&unknown), &findings), [Cause::Assumed(0); 2]);
        // Nor does it change bits of what it leads to.
        let bits = Finding { sign: Sign::Within, ..wrong(1, 9) };
        assert_eq!(causes(std::slice::from_ref(&metadata), &[bits]), [Cause::Unexplained]);
        // Damage to other data explains nothing, also if that was overwritten since.
        let data = Hit { of_load: Some(true), ..metadata };
        assert_eq!(causes(&[data], &findings), [Cause::Unexplained; 2]);
    }

    #[test]
    fn a_write_that_failed_below_may_leave_versions_mixed_and_nothing_shows_that_it_did() {
        let torn = Finding { sign: Sign::Torn, may_be_unwritten: true, ..wrong(1, 9) };
        let write = Hit { operation: OperationKind::Write, ..error(0, 8192, &[7]) };
        assert_eq!(causes(std::slice::from_ref(&write), std::slice::from_ref(&torn)), [Cause::Assumed(0)]);
        let bits = Finding { sign: Sign::Within, ..torn.clone() };
        let uncached = Finding { may_be_unwritten: false, ..torn.clone() };
        assert_eq!(causes(&[write], &[bits, uncached]), [Cause::Unexplained; 2]);
        let metadata = Hit { of_load: Some(false), served: Some(Time(15)), ..flip(0, 500, 501) };
        // Metadata that is an old one has the old end of the file, too.
        assert_eq!(causes(&[metadata], &[torn]), [Cause::Assumed(0)]);
    }

    #[test]
    fn data_that_is_gone_is_not_the_work_of_what_led_to_it() {
        let metadata = Hit { of_load: Some(false), served: Some(Time(15)), ..flip(0, 500, 501) };
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
        assert_eq!(
            causes(std::slice::from_ref(&bad), std::slice::from_ref(&refused)),
            [Cause::Consequence(0)]
        );
        // A read that failed once, and caches that were dropped since.
        let passing = Hit { persists: false, ..bad };
        let later = Finding { phase: Phase::Check, ..refused };
        assert_eq!(causes(&[passing], &[later]), [Cause::Unexplained]);
    }

    #[test]
    fn a_delay_accounts_for_what_took_too_long_while_it_held_somebody_up_and_for_nothing_else() {
        let held = Hit { harm: Harm::Delay(Time(30)), ..flip(4096, 1, 0) };
        let timed_out = Finding { timed_out: true, ..unreadable(1) };
        assert_eq!(causes(std::slice::from_ref(&held), std::slice::from_ref(&timed_out)), [Cause::Hit(0)]);
        let placed = Finding { expected: Vec::new(), device_offset: Some(4096), ..timed_out.clone() };
        assert_eq!(causes(std::slice::from_ref(&held), &[placed]), [Cause::Hit(0)]);
        // A file system that waited for something else.
        let other = Finding { expected: vec![hash(7)], ..timed_out.clone() };
        assert_eq!(causes(std::slice::from_ref(&held), &[other]), [Cause::Consequence(0)]);
        let late = Finding { time: Time(31), ..timed_out.clone() };
        let found = causes(std::slice::from_ref(&held), &[late, unreadable(1), wrong(1, 9)]);
        assert_eq!(found, [Cause::Unexplained; 3]);
        let hits = [error(4096, 4096, &[1]), held];
        assert_eq!(causes(&hits, &[timed_out, unreadable(1)]), [Cause::Hit(1), Cause::Hit(0)]);
    }

    #[test]
    fn a_name_that_is_gone_follows_from_an_error_and_is_not_the_data_that_it_refused() {
        let refused = Hit { operation: OperationKind::Write, ..error(0, 4096, &[1]) };
        let name = Finding { sign: Sign::Name, ..unreadable(1) };
        assert_eq!(causes(&[refused], &[name]), [Cause::Consequence(0)]);
    }

    #[test]
    fn an_error_accounts_for_data_that_never_left_the_page_cache() {
        let refused = Hit { operation: OperationKind::Write, ..error(0, 4096, &[1]) };
        let cached = Finding { may_be_unwritten: true, ..wrong(1, 101) };
        assert_eq!(causes(std::slice::from_ref(&refused), std::slice::from_ref(&cached)), [Cause::Hit(0)]);
        // Of other data nothing shows that it ever was to be written then.
        let elsewhere = Finding { expected: vec![hash(7)], ..cached };
        let gone = |expected: &[&[ContentHash]]| vec![false; expected.len()];
        let found =
            attribute(std::slice::from_ref(&refused), std::slice::from_ref(&elsewhere), &looks(&gone));
        assert_eq!(found, [Cause::Assumed(0)]);
        assert_eq!(causes(&[refused], &[wrong(1, 101)]), [Cause::Unexplained]);
    }
}
