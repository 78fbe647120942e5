//! Which injected fault is to blame for which failing block.
//!
//! A file system moves blocks about, so a place alone says little. The content does: the ledger names the hash of the
//! truth that a fault damaged, the load the hash of what it expected and of what it found.

use std::collections::{HashMap, HashSet};

use rotproof_block::{ContentHash, Phase, Time};
use rotproof_fault::{BLOCK_BYTES, OperationKind};

use super::LiesBelow;
use super::finding::{Finding, Sign};
use super::injection_group::{Harm, InjectionGroup};

/// Why a block failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This hit damaged this very block.
    Injection(usize),
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
            Cause::Injection(hit) | Cause::Consequence(hit) => Some(hit),
            Cause::Assumed(_) | Cause::Unexplained => None,
        }
    }

    /// How much is known, from nothing up.
    pub(super) fn certainty(self) -> u8 {
        match self {
            Cause::Unexplained => 0,
            Cause::Assumed(_) => 1,
            Cause::Consequence(_) => 2,
            Cause::Injection(_) => 3,
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
pub fn attribute(hits: &[InjectionGroup], findings: &[Finding], looks: &Looks<'_>) -> Vec<Cause> {
    attribute_all(&mut Index::new(hits, findings, looks), hits, findings, looks)
}

/// The same with only those of all hits that lie where the findings do, and all that tell of more than their place. `None` where
/// that does not do: something has no place, and may follow from any hit.
pub(super) fn attribute_part(
    hits: &[InjectionGroup],
    findings: &[Finding],
    looks: &Looks<'_>,
) -> Option<Vec<Cause>> {
    let mut index = Index::new(hits, findings, looks);
    let causes = attribute_all(&mut index, hits, findings, looks);
    (!index.asks_for_all).then_some(causes)
}

fn attribute_all(
    index: &mut Index<'_>,
    hits: &[InjectionGroup],
    findings: &[Finding],
    looks: &Looks<'_>,
) -> Vec<Cause> {
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
fn lay_to_neighbours(hits: &[InjectionGroup], findings: &[Finding], causes: &mut [Cause]) -> HashSet<usize> {
    let mut by_place: HashMap<(u32, u64), Vec<usize>> = HashMap::new();
    for (number, finding) in findings.iter().enumerate() {
        if finding.failure.is_some() && matches!(causes[number], Cause::Injection(_)) {
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
    hits: &'a [InjectionGroup],
    by_truth: HashMap<ContentHash, Candidates>,
    /// The hits that a block of the device suffered, by its number.
    by_block: HashMap<u64, Vec<usize>>,
    /// Hits that can bring down more than their own block: damage to what is shown to be metadata, and errors.
    metadata: InTime,
    errors: InTime,
    /// Damage to what may be metadata.
    unknown: InTime,
    /// Hits that only held up requests.
    delays: InTime,
    lies_below: &'a LiesBelow<'a>,
    /// The place that was looked for last, and how often each content has been dealt out there.
    turns: (Option<u64>, HashMap<ContentHash, usize>),
    /// Something had no place and was laid to the last of all hits, or to none.
    asks_for_all: bool,
}

/// Hits in order of time.
#[derive(Default)]
struct InTime {
    /// By their first record.
    by_first: Vec<usize>,
    /// By their last.
    by_last: Vec<usize>,
}

impl InTime {
    fn of(mut numbers: Vec<usize>, hits: &[InjectionGroup]) -> Self {
        numbers.sort_by_key(|&number| hits[number].time);
        let mut by_last = numbers.clone();
        by_last.sort_by_key(|&number| hits[number].last.1);
        Self { by_first: numbers, by_last }
    }

    /// The last before that time that is one.
    fn last(
        &self,
        hits: &[InjectionGroup],
        time: Time,
        is_one: &dyn Fn(&InjectionGroup) -> bool,
    ) -> Option<usize> {
        let before = |numbers: &[usize], when: &dyn Fn(&InjectionGroup) -> Time| {
            let end = numbers.partition_point(|&number| when(&hits[number]) <= time);
            numbers[..end].iter().copied().rev().find(|&number| is_one(&hits[number]))
        };
        let ended = before(&self.by_last, &|hit| hit.last.1);
        let begun = before(&self.by_first, &|hit| hit.time);
        ended.into_iter().chain(begun).max_by_key(|&number| (hits[number].latest(time), number))
    }
}

/// Hits that damaged one content. Where it lies in several places and the finding's place on the device is unknown,
/// findings are dealt out among them in turn.
#[derive(Default)]
struct Candidates {
    hits: Vec<usize>,
    next: usize,
}

impl<'a> Index<'a> {
    fn new(hits: &'a [InjectionGroup], findings: &[Finding], looks: &Looks<'a>) -> Self {
        let mut index = Self {
            hits,
            by_truth: HashMap::new(),
            by_block: HashMap::new(),
            metadata: InTime::default(),
            errors: InTime::default(),
            unknown: InTime::default(),
            delays: InTime::default(),
            lies_below: looks.lies_below,
            turns: (None, HashMap::new()),
            asks_for_all: false,
        };
        let (mut metadata, mut errors, mut unknown, mut delays) = (vec![], vec![], vec![], vec![]);
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
                (Harm::Delay(_), _) => delays.push(number),
                (Harm::Error, _) => errors.push(number),
                (Harm::Data(_), Some(true)) => {}
                (Harm::Data(_), Some(false)) => metadata.push(number),
                (Harm::Data(_), None) => unknown.push(number),
            }
        }
        index.metadata = InTime::of(metadata, hits);
        index.errors = InTime::of(errors, hits);
        index.unknown = InTime::of(unknown, hits);
        index.delays = InTime::of(delays, hits);
        index
    }

    fn cause_of(&mut self, finding: &Finding) -> Cause {
        if let Some(hit) = self.by_content(finding).or_else(|| self.by_place(finding)) {
            return Cause::Injection(hit);
        }
        if let Some(hit) = finding.operation.and_then(|operation| self.failed_while(operation, finding)) {
            return Cause::Consequence(hit);
        }
        if let Some(hit) = self.power_cut(finding) {
            let is_version = finding.sign != Sign::Torn;
            return if is_version { Cause::Consequence(hit) } else { Cause::Assumed(hit) };
        }
        self.asks_for_all |= finding.device_offset.is_none();
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
                hit.can_cause(finding) && finding.lies_in(&hit.suffered)
            };
            let mut chosen: Vec<usize> = candidates.hits.iter().filter(fits).copied().collect();
            // Best: it left exactly what was found, here nothing. A later fault of the same block may have changed that since.
            let is_exact = |number: &usize| match finding.found {
                Some(_) => self.hits[*number].shows(finding),
                None => self.hits[*number].corruption().is_none(),
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
            let turn = match (finding.device_offset, &finding.asked) {
                (None, None) => &mut candidates.next,
                // What has a place is dealt out among what lies there, and the findings of a block follow each other.
                (place, _) => {
                    if self.turns.0 != place || place.is_none() {
                        self.turns = (place, HashMap::new());
                    }
                    self.turns.1.entry(*truth).or_default()
                }
            };
            let turn = std::mem::replace(turn, *turn + 1);
            (!chosen.is_empty()).then(|| chosen[turn % chosen.len()])
        })
    }

    /// The last hit of the right kind at the finding's place, where blocks do not move.
    fn by_place(&self, finding: &Finding) -> Option<usize> {
        let offset = finding.device_offset?;
        let suffered = self.by_block.get(&(offset / BLOCK_BYTES))?;
        let explains = |&number: &usize| {
            let hit = &self.hits[number];
            // Damage to something else that lay there is not damage to what should have.
            let is_of_content = match hit.harm {
                Harm::Data(_) => hit.own.is_none_or(|own| finding.expected.contains(&own)),
                Harm::Error | Harm::Delay(_) => true,
            };
            hit.can_cause(finding) && hit.suffered.contains(&offset) && is_of_content
        };
        suffered.iter().copied().filter(explains).max_by_key(|&number| self.hits[number].latest(finding.time))
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
                && finding.lies_in(&hit.suffered)
                && hit.gone.is_none_or(|gone| finding.time <= gone)
                && hit.served.is_some_and(|served| served <= finding.time)
        })
        .max_by_key(|&number| self.hits[number].latest(finding.time))
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
        let explains =
            |hit: &InjectionGroup| hit.operation == OperationKind::Write && hit.time <= finding.time;
        if !is_lost {
            return None;
        }
        self.errors.by_first.iter().copied().rev().find(|&number| explains(&self.hits[number]))
    }

    /// A flush of the same phase that failed before a write did: the kernel makes a durable write of the two.
    fn failed_flush(&self, finding: &Finding) -> Option<usize> {
        let is_flush = |hit: &InjectionGroup| {
            hit.operation == OperationKind::Flush && hit.phase == finding.phase && hit.time <= finding.time
        };
        let is_write = finding.is_told && finding.sign == Sign::Refused && !finding.timed_out;
        if !is_write {
            return None;
        }
        self.errors.by_first.iter().copied().rev().find(|&number| is_flush(&self.hits[number]))
    }

    /// The last such request that failed while what was refused was under way, as far as its times tell.
    fn failed_while(&self, operation: OperationKind, finding: &Finding) -> Option<usize> {
        let times = finding.sent?..=finding.time;
        self.errors.by_first.iter().copied().rev().find(|&number| {
            let hit = &self.hits[number];
            hit.operation == operation && hit.phase == finding.phase && times.contains(&hit.time)
        })
    }

    /// The last request that failed while what was refused was under way.
    fn error_meanwhile(&self, finding: &Finding) -> Option<usize> {
        let times = finding.sent?..=finding.time;
        self.errors.by_first.iter().copied().rev().find(|&number| times.contains(&self.hits[number].time))
    }

    /// A power cut before what failed with an error in the same phase, or was lost with a flush that failed: requests under way
    /// fail without meeting the rule, and what a volatile cache held is gone without a hit of its own.
    fn power_cut(&self, finding: &Finding) -> Option<usize> {
        let is_lost = matches!(finding.sign, Sign::Elsewhere | Sign::Torn);
        // It comes back when the subject is down after the load.
        let is_same = |hit: &InjectionGroup| {
            hit.phase == finding.phase || (hit.phase, finding.phase) == (Phase::Prefill, Phase::Run)
        };
        let explains =
            |hit: &InjectionGroup| hit.is_dark && hit.time <= finding.time && (is_lost || is_same(hit));
        let is_told = finding.is_told && !finding.timed_out;
        // Of several devices it took only what lies on its own.
        let reaches = |hit: &InjectionGroup| {
            let asked = finding
                .device_offset
                .map(|offset| finding.request.clone().unwrap_or(offset..offset + BLOCK_BYTES));
            asked.is_none_or(|bytes| {
                bytes.step_by(BLOCK_BYTES as usize).any(|offset| (self.lies_below)(&hit.on, offset))
            })
        };
        let is_its = |hit: &InjectionGroup| explains(hit) && reaches(hit);
        if !is_told {
            return None;
        }
        self.errors.by_first.iter().copied().find(|&number| is_its(&self.hits[number]))
    }

    /// Whether the hit is a power cut that was over when this was found: what was wrong then, and could be read or must be there, is nothing
    /// that a file system may leave after one.
    fn is_over(&self, hit: usize, finding: &Finding) -> bool {
        let hit = &self.hits[hit];
        hit.is_dark
            && hit.phase != Phase::Check
            && finding.phase == Phase::Check
            && (finding.sign == Sign::Unreadable || !finding.may_be_unwritten)
    }

    /// The last hit before the finding that can bring down more than its own block: for what took too long any that holds up a
    /// request at that moment; else damage to metadata that somebody has read since, or, for an error, any error (a journal
    /// that aborts refuses every later write).
    fn consequence_of(&self, finding: &Finding) -> Cause {
        if finding.device_offset.is_some() {
            return self.failed_flush(finding).map_or(Cause::Unexplained, Cause::Consequence);
        }
        let holds_up = |number: &&usize| self.hits[**number].can_cause(finding);
        if let Some(&delay) = self.delays.by_first.iter().rev().find(holds_up) {
            // An error that says the same is a better explanation than a request that was held up meanwhile.
            return Cause::Consequence(self.error_meanwhile(finding).unwrap_or(delay));
        }
        // Metadata leads to blocks; it does not change some of their bits.
        if finding.sign == Sign::Within {
            return Cause::Unexplained;
        }
        let last = |hits: &InTime, has_acted: &dyn Fn(&InjectionGroup) -> bool| {
            hits.last(self.hits, finding.time, has_acted)
        };
        let was_read = |hit: &InjectionGroup| hit.served.is_some_and(|served| served <= finding.time);
        let is_of_errors = finding.is_told || finding.may_be_unwritten;
        // What only failed a read is forgotten with the caches of its phase.
        let lasts = |hit: &InjectionGroup| hit.persists || hit.phase == finding.phase;
        let error = if is_of_errors { last(&self.errors, &lasts) } else { None };
        let metadata = last(&self.metadata, &was_read);
        // Nor does it mix versions. A file system that could not write may, or one whose metadata is an old one, where an old end
        // of the file lies within the block.
        if finding.sign == Sign::Torn {
            let any = error.or(metadata).or_else(|| last(&self.unknown, &was_read));
            return any.map_or(Cause::Unexplained, Cause::Assumed);
        }
        let latest = |&number: &usize| (self.hits[number].latest(finding.time), number);
        match metadata.into_iter().chain(error).max_by_key(latest) {
            // The power is back, and what was not durable is accounted for: a file system that does not come back, or not whole,
            // may follow from the cut, or from a disk that has lost what it had called durable.
            Some(hit) if self.is_over(hit, finding) => Cause::Assumed(hit),
            Some(hit) => Cause::Consequence(hit),
            None => last(&self.unknown, &was_read).map_or(Cause::Unexplained, Cause::Assumed),
        }
    }
}
