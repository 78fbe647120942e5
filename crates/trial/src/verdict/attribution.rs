//! Which injected fault is to blame for which failing block.
//!
//! A file system moves blocks about, so a place alone says little. The content does: the ledger names the hash of the
//! truth that a fault damaged, the load the hash of what it expected and of what it found.

use std::collections::HashMap;

use rotproof_block::{ContentHash, Time};
use rotproof_fault::BLOCK_BYTES;

/// What one ledger record means for the verdict.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Index of the rule.
    pub rule: usize,
    /// Offset on the device of the block that matched; what makes two hits of a rule the same fault.
    pub place: u64,
    /// When.
    pub time: Time,
    /// Bytes of the device that suffered.
    pub suffered: std::ops::Range<u64>,
    /// Hashes of the true content of every whole block that suffered.
    pub truths: Vec<ContentHash>,
    /// Hash of what took its place; `None` for errors and delays.
    pub lie: Option<ContentHash>,
    /// Until when it held up a request, if that is all it did: nothing fails of it but by taking too long.
    pub held_until: Option<Time>,
    /// Whether what suffered is no content of the load: the subject's own metadata.
    pub metadata: bool,
    /// Whether the subject later put the truth back.
    pub repaired: bool,
}

impl Hit {
    /// Wrong data takes a lie; an error also comes of a lie that the subject saw through, and of a delay only that the time
    /// was over.
    fn can_cause(&self, finding: &Finding) -> bool {
        match self.held_until {
            Some(until) => finding.timed_out && finding.time <= until,
            None => self.lie.is_some() || finding.found.is_none() || finding.may_be_unwritten,
        }
    }
}

/// What one way in which a block failed means for the verdict.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which failing block; several findings may be of one. `None` for a request that failed and then succeeded when
    /// it was repeated: the application was told, but no block is lost.
    pub failure: Option<usize>,
    /// Which object it is in.
    pub object: u32,
    /// Hashes of what may be there.
    pub expected: Vec<ContentHash>,
    /// Hash of what was read; `None` if there was an error.
    pub found: Option<ContentHash>,
    /// That error is that it took too long.
    pub timed_out: bool,
    /// The place on the device, where the subject does not move blocks.
    pub device_offset: Option<u64>,
    /// When it was first seen.
    pub time: Time,
    /// What should be there was left to the page cache: an error below may have kept it from ever being written, with
    /// nobody told.
    pub may_be_unwritten: bool,
}

/// Why a block failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This hit damaged this very block.
    Hit(usize),
    /// This hit damaged something the block depends on: metadata, or a file system that gave up after an error.
    Consequence(usize),
    /// No injected fault accounts for it.
    Unexplained,
}

impl Cause {
    /// The hit to blame, if there is one.
    pub fn hit(self) -> Option<usize> {
        match self {
            Cause::Hit(hit) | Cause::Consequence(hit) => Some(hit),
            Cause::Unexplained => None,
        }
    }
}

/// Finds the cause of every finding; `causes[i]` belongs to `findings[i]`.
pub fn attribute(hits: &[Hit], findings: &[Finding]) -> Vec<Cause> {
    let mut index = Index::new(hits, findings);
    findings.iter().map(|finding| index.cause_of(finding)).collect()
}

struct Index<'a> {
    hits: &'a [Hit],
    by_truth: HashMap<ContentHash, Candidates>,
    /// The hits that a block of the device suffered, by its number.
    by_block: HashMap<u64, Vec<usize>>,
    /// Hits that can bring down more than their own block, in order of time: damage to metadata, and errors.
    metadata: Vec<usize>,
    errors: Vec<usize>,
    /// Hits that only held up requests, in order of time.
    delays: Vec<usize>,
}

/// Hits that damaged one content. Where it lies in several places and the finding's place on the device is unknown,
/// findings are dealt out among them in turn.
#[derive(Default)]
struct Candidates {
    hits: Vec<usize>,
    next: usize,
}

impl<'a> Index<'a> {
    fn new(hits: &'a [Hit], findings: &[Finding]) -> Self {
        let mut index = Self {
            hits,
            by_truth: HashMap::new(),
            by_block: HashMap::new(),
            metadata: Vec::new(),
            errors: Vec::new(),
            delays: Vec::new(),
        };
        // No delay accounts for anything where nothing took too long.
        let times_out = findings.iter().any(|finding| finding.timed_out);
        for (number, hit) in hits.iter().enumerate().filter(|(_, hit)| times_out || hit.held_until.is_none())
        {
            for &truth in &hit.truths {
                index.by_truth.entry(truth).or_default().hits.push(number);
            }
            for block in hit.suffered.start / BLOCK_BYTES..hit.suffered.end.div_ceil(BLOCK_BYTES) {
                index.by_block.entry(block).or_default().push(number);
            }
            if hit.held_until.is_some() {
                index.delays.push(number);
                continue;
            }
            if hit.metadata {
                index.metadata.push(number);
            }
            if hit.lie.is_none() {
                index.errors.push(number);
            }
        }
        index.delays.sort_by_key(|&number| hits[number].time);
        index.metadata.sort_by_key(|&number| hits[number].time);
        index.errors.sort_by_key(|&number| hits[number].time);
        index
    }

    fn cause_of(&mut self, finding: &Finding) -> Cause {
        let (by_content, by_place) = (self.by_content(finding), self.by_place(finding));
        match by_content.or(by_place) {
            Some(hit) => Cause::Hit(hit),
            None => self.consequence_of(finding).map_or(Cause::Unexplained, Cause::Consequence),
        }
    }

    fn by_content(&mut self, finding: &Finding) -> Option<usize> {
        finding.expected.iter().find_map(|truth| {
            let candidates = self.by_truth.get_mut(truth)?;
            let fits = |number: &&usize| {
                let hit = &self.hits[**number];
                hit.time <= finding.time
                    && hit.can_cause(finding)
                    && finding.device_offset.is_none_or(|offset| hit.suffered.contains(&offset))
            };
            // Best: it left exactly what was found. A later fault of the same block may have changed the lie since.
            let fitting: Vec<usize> = candidates.hits.iter().filter(fits).copied().collect();
            let exact: Vec<usize> =
                fitting.iter().copied().filter(|&number| self.hits[number].lie == finding.found).collect();
            let mut chosen = if exact.is_empty() { fitting } else { exact };
            // What holds it up at that moment is a better explanation than an error before.
            if finding.timed_out && chosen.iter().any(|&number| self.hits[number].held_until.is_some()) {
                chosen.retain(|&number| self.hits[number].held_until.is_some());
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
            hit.time <= finding.time && hit.can_cause(finding) && hit.suffered.contains(&offset)
        })
    }

    /// The last hit before the finding that can bring down more than its own block: for what took too long any that holds up a
    /// request at that moment, else any damage to metadata, or, for an error, any error (a journal that aborts refuses
    /// every later write).
    fn consequence_of(&self, finding: &Finding) -> Option<usize> {
        if finding.device_offset.is_some() {
            return None;
        }
        let last = |numbers: &[usize]| {
            let earlier = numbers.partition_point(|&number| self.hits[number].time <= finding.time);
            earlier.checked_sub(1).map(|last| numbers[last])
        };
        let holds_up = |number: &&usize| {
            let hit = &self.hits[**number];
            hit.time <= finding.time && hit.can_cause(finding)
        };
        if let Some(&delay) = self.delays.iter().rev().find(holds_up) {
            return Some(delay);
        }
        let is_of_errors = finding.found.is_none() || finding.may_be_unwritten;
        let error = if is_of_errors { last(&self.errors) } else { None };
        last(&self.metadata).max(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u128) -> ContentHash {
        ContentHash(number)
    }

    fn flip(place: u64, truth: u128, lie: u128) -> Hit {
        Hit {
            rule: 0,
            place,
            time: Time(10),
            suffered: place..place + 4096,
            truths: vec![hash(truth)],
            lie: Some(hash(lie)),
            held_until: None,
            metadata: false,
            repaired: false,
        }
    }

    fn error(place: u64, length: u64, truths: &[u128]) -> Hit {
        let truths = truths.iter().copied().map(hash).collect();
        Hit { suffered: place..place + length, truths, lie: None, ..flip(place, 0, 0) }
    }

    fn wrong(expected: u128, found: u128) -> Finding {
        Finding {
            failure: Some(0),
            object: 0,
            expected: vec![hash(expected)],
            found: Some(hash(found)),
            timed_out: false,
            device_offset: None,
            time: Time(20),
            may_be_unwritten: false,
        }
    }

    fn unreadable(expected: u128) -> Finding {
        Finding { found: None, ..wrong(expected, 0) }
    }

    #[test]
    fn a_block_is_traced_by_its_content_wherever_it_lies() {
        let hits = [flip(0, 1, 101), flip(8192, 2, 102)];
        assert_eq!(attribute(&hits, &[wrong(2, 102), wrong(1, 101)]), [Cause::Hit(1), Cause::Hit(0)]);
    }

    #[test]
    fn neighbours_in_a_merged_request_are_blamed_on_its_error() {
        let hits = [error(0, 12288, &[1, 2, 3])];
        let causes = attribute(&hits, &[unreadable(1), unreadable(3)]);
        assert_eq!(causes, [Cause::Hit(0), Cause::Hit(0)]);
    }

    #[test]
    fn an_error_does_not_explain_wrong_data() {
        assert_eq!(attribute(&[error(0, 4096, &[1])], &[wrong(1, 9)]), [Cause::Unexplained]);
    }

    #[test]
    fn a_flip_explains_the_error_of_a_subject_that_saw_through_it() {
        assert_eq!(attribute(&[flip(0, 1, 9)], &[unreadable(1)]), [Cause::Hit(0)]);
        // An error of its own is the better explanation.
        assert_eq!(attribute(&[error(0, 4096, &[1]), flip(0, 1, 9)], &[unreadable(1)]), [Cause::Hit(0)]);
    }

    #[test]
    fn a_finding_before_the_fault_is_not_its_doing() {
        let early = Finding { time: Time(5), ..wrong(1, 101) };
        assert_eq!(attribute(&[flip(0, 1, 101)], &[early]), [Cause::Unexplained]);
    }

    #[test]
    fn copies_of_one_content_are_dealt_out_among_its_hits() {
        let hits = [flip(0, 1, 101), flip(4096, 1, 101)];
        assert_eq!(attribute(&hits, &[wrong(1, 101), wrong(1, 101)]), [Cause::Hit(0), Cause::Hit(1)]);
        let placed = Finding { device_offset: Some(4096), ..wrong(1, 101) };
        assert_eq!(attribute(&hits, &[placed.clone(), placed]), [Cause::Hit(1), Cause::Hit(1)]);
    }

    #[test]
    fn the_place_decides_where_the_content_is_unknown() {
        let placed = Finding { expected: Vec::new(), device_offset: Some(4096), ..wrong(0, 7) };
        assert_eq!(attribute(&[flip(0, 1, 101), flip(4096, 2, 102)], &[placed]), [Cause::Hit(1)]);
    }

    #[test]
    fn damaged_metadata_explains_what_comes_after_it() {
        let metadata = Hit { metadata: true, ..flip(0, 500, 501) };
        assert_eq!(attribute(&[metadata], &[wrong(1, 9), unreadable(2)]), [Cause::Consequence(0); 2]);
        // A file system that gave up after an error on other data.
        assert_eq!(attribute(&[error(0, 4096, &[77])], &[unreadable(2)]), [Cause::Consequence(0)]);
        // Damage to other data explains nothing.
        assert_eq!(attribute(&[flip(0, 77, 78)], &[wrong(1, 9)]), [Cause::Unexplained]);
    }

    #[test]
    fn a_delay_accounts_for_what_took_too_long_while_it_held_somebody_up_and_for_nothing_else() {
        let held = Hit { held_until: Some(Time(30)), lie: None, ..flip(4096, 1, 0) };
        let timed_out = Finding { timed_out: true, ..unreadable(1) };
        assert_eq!(attribute(std::slice::from_ref(&held), std::slice::from_ref(&timed_out)), [Cause::Hit(0)]);
        let placed = Finding { expected: Vec::new(), device_offset: Some(4096), ..timed_out.clone() };
        assert_eq!(attribute(std::slice::from_ref(&held), &[placed]), [Cause::Hit(0)]);
        // A file system that waited for something else.
        let other = Finding { expected: vec![hash(7)], ..timed_out.clone() };
        assert_eq!(attribute(std::slice::from_ref(&held), &[other]), [Cause::Consequence(0)]);
        let late = Finding { time: Time(31), ..timed_out.clone() };
        let causes = attribute(std::slice::from_ref(&held), &[late, unreadable(1), wrong(1, 9)]);
        assert_eq!(causes, [Cause::Unexplained; 3]);
        let hits = [error(4096, 4096, &[1]), held];
        assert_eq!(attribute(&hits, &[timed_out, unreadable(1)]), [Cause::Hit(1), Cause::Hit(0)]);
    }

    #[test]
    fn an_error_accounts_for_data_that_never_left_the_page_cache() {
        let refused = Hit { lie: None, ..flip(0, 1, 0) };
        let cached = Finding { may_be_unwritten: true, ..wrong(1, 101) };
        assert_eq!(attribute(std::slice::from_ref(&refused), std::slice::from_ref(&cached)), [Cause::Hit(0)]);
        let elsewhere = Finding { expected: vec![hash(7)], ..cached };
        assert_eq!(attribute(std::slice::from_ref(&refused), &[elsewhere]), [Cause::Consequence(0)]);
        assert_eq!(attribute(&[refused], &[wrong(1, 101)]), [Cause::Unexplained]);
    }
}
