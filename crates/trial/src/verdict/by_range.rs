//! The verdict of a device with very many failing blocks, a range of it at a time: memory for what failed in that range, and was
//! injected there, instead of for all of it.
//!
//! Where the subject moves no blocks, what a block shows is laid to what happened at its place. So a range needs the hits and
//! failures that lie in it and a little beside it, as far as a request reaches; and those hits that tell of more than their place,
//! which every range has: power cuts, flushes that failed. What comes out is what a look at everything at once would say, which a
//! property test holds it to. Where that cannot be promised - a request without a place failed, and may follow from any hit - it
//! gives up, and the whole is judged at once. For each range, those pieces of the ledger are gone through that have a hit there: all
//! of them for requests in any order, a few where they came one after the other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use rotproof_block::{Phase, Result};
use rotproof_fault::BLOCK_BYTES;

use super::attribution::attribute_part;
use super::fates::{Fates, Knowledge, Part, strange_content};
use super::finding::{self, Finding, Requests};
use super::gather::{Gathering, Told};
use super::injection_group::{Reach, is_wide};
use super::{Evidence, InjectionGroup, Looks, RuleOutcome, TakeFailures, causes_of};

/// What one range has at most, of failures and hits, as far as that can be told before. Each takes some 1,200 bytes. Smaller ones take
/// as much where requests or what is told of them in one piece reach far, as what lies beside a range is looked at with it.
pub(super) const RANGE_MAX: u64 = 3 << 15;
/// Stretches of the device that are counted apart; a range has whole ones.
const STRETCHES: usize = 1 << 13;
/// A request that reaches further beyond a range makes ranges useless.
const REACH_MAX: u64 = 64 << 20;
/// Places apart from their ranges that each of these looks at too, and hits that every range has.
const ISLANDS_MAX: usize = 64;
const WIDE_MAX: u64 = 1 << 14;
/// Hits of one block that stay apart, about: one of each rule and phase.
const HITS_OF_BLOCK: u64 = 2;
/// Contents found that are told apart over all ranges.
const FOUND_MAX: usize = 1 << 17;

/// What is known before the first range.
struct Outline {
    /// Blocks of a stretch.
    stretch: u64,
    ranges: Vec<Range<u64>>,
    /// As far as a request reaches, in bytes.
    reach: u64,
    /// Blocks that hits elsewhere refer to.
    islands: BTreeSet<u64>,
    /// What each piece of the ledger is about.
    pieces: Vec<Piece>,
}

/// What the hits of a piece of the ledger are about.
#[derive(Clone)]
struct Piece {
    /// All of them lie between these, in bytes of the device; of none, nothing does.
    start: u64,
    end: u64,
    /// Some tell of more than their place.
    is_wide: bool,
}

impl Piece {
    const EMPTY: Self = Self { start: u64::MAX, end: 0, is_wide: false };

    fn take(&mut self, suffered: &Range<u64>, is_wide: bool) {
        self.start = self.start.min(suffered.start);
        // A hit without a length lies where it begins.
        self.end = self.end.max(suffered.end).max(suffered.start.saturating_add(1));
        self.is_wide |= is_wide;
    }

    fn concerns(&self, far: &[Range<u64>]) -> bool {
        let meets = |bytes: &Range<u64>| self.start < bytes.end && bytes.start < self.end;
        self.is_wide || far.iter().any(meets)
    }
}

/// What comes of each rule, with all failures and their causes given to `take`, range by range in their order. `None` if there are
/// few, or everything must be looked at at once; then some of the failures may have been taken, in whole blocks from the first on, and
/// their end in bytes is in `taken`.
pub(super) fn outcomes(
    evidence: &Evidence<'_>,
    range_max: u64,
    never_met: &[u64],
    taken: &mut u64,
    take: &mut TakeFailures<'_>,
) -> Result<Option<Vec<RuleOutcome>>> {
    if !evidence.blocks_stay || evidence.files.is_some() {
        return Ok(None);
    }
    let requests = finding::of_requests(evidence);
    let Some(outline) = Outline::of(evidence, range_max, &requests)? else { return Ok(None) };
    let found = evidence.failures.found(FOUND_MAX);
    let by_block = Requests::of(evidence);
    let knowledge = Knowledge::of(evidence);
    let mut fates = Fates::new(never_met.len());
    loop {
        let mut strange = Vec::new();
        for core in &outline.ranges {
            let near = outline.extent(core, 1);
            let far = outline.extent(core, 2);
            let is_first = core.start == 0;
            let failures: Vec<_> =
                far.iter().flat_map(|bytes| evidence.failures.of(blocks_of(bytes))).collect();
            let mut findings = finding::of_blocks(evidence, &by_block, &failures);
            let is_near = |finding: &&Finding| match &finding.asked {
                Some(asked) => is_in(&near, asked.start),
                None => is_first,
            };
            findings.extend(requests.iter().filter(is_near).cloned());
            let mut told = Told::of(&findings);
            told.times_out |= evidence.failures.times_out() || requests.iter().any(|one| one.timed_out);
            told.found.extend(found.iter().flatten());
            told.found.extend(&fates.strange);
            let hits = hits_in(evidence, &outline.pieces, &far, told)?;
            let looks = Looks {
                // Where blocks do not move, nothing that only follows from a hit takes data.
                intact: &|expected| vec![false; expected.len()],
                lies_below: evidence.lies_below,
            };
            let Some(causes) = attribute_part(&hits, &findings, &looks) else { return Ok(None) };
            let counts_finding = |finding: &Finding| match (finding.device_offset, &finding.asked) {
                (Some(offset), _) => core.contains(&offset),
                (None, Some(asked)) => core.contains(&asked.start),
                (None, None) => is_first,
            };
            let counts_hit = |hit: &InjectionGroup| core.contains(&hit.suffered.start);
            let part = Part {
                findings: &findings,
                causes: &causes,
                counts_hit: &counts_hit,
                counts_finding: &counts_finding,
            };
            fates.add(&hits, &part, &knowledge);
            let own = findings.iter().zip(&causes).filter(|(finding, _)| counts_finding(finding));
            strange.extend(own.filter_map(|(finding, &cause)| strange_content(finding, cause)));
            if core.start >= *taken {
                let causes = causes_of(&findings, &causes, &hits, failures.len());
                let known = failures.into_iter().zip(causes);
                take(known.filter(|(failure, _)| core.contains(&failure.offset_bytes)).collect())?;
                *taken = core.end;
            }
        }
        // What turned up in one range in the place of something else may be what another lost.
        let is_told = strange.iter().all(|content| fates.strange.contains(content));
        if is_told {
            return Ok(Some(fates.finish(never_met)));
        }
        fates = Fates::new(never_met.len());
        fates.strange.extend(strange);
    }
}

/// The hits that lie in `far` or tell of more than their place, as far as can be told apart.
fn hits_in(
    evidence: &Evidence<'_>,
    pieces: &[Piece],
    far: &[Range<u64>],
    told: Told,
) -> Result<Vec<InjectionGroup>> {
    let mut gathering = Gathering::with(told);
    let mut is_wanted = |piece: usize| pieces.get(piece).is_none_or(|piece| piece.concerns(far));
    evidence.records.each_of(&mut is_wanted, &mut |record| {
        let Reach { suffered, .. } = Reach::of(record, evidence.seen_at);
        let lies_in = |bytes: &Range<u64>| {
            bytes.contains(&suffered.start) || suffered.start < bytes.end && bytes.start < suffered.end
        };
        if far.iter().any(lies_in) || is_wide(record) {
            gathering.take(InjectionGroup::new(record, evidence.rules, evidence.seen_at));
        }
    })?;
    Ok(gathering.hits)
}

fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)
}

fn is_in(extents: &[Range<u64>], offset: u64) -> bool {
    extents.iter().any(|bytes| bytes.contains(&offset))
}

impl Outline {
    /// `None` where ranges do not pay, or will not do.
    fn of(evidence: &Evidence<'_>, range_max: u64, requests: &[Finding]) -> Result<Option<Self>> {
        let stretch = evidence.failures.blocks().div_ceil(STRETCHES as u64).max(1);
        let ways = evidence.failures.ways_by_stretch(stretch, STRETCHES);
        let mut records = vec![0u64; STRETCHES];
        let (mut reach, mut wide, mut islands) = (BLOCK_BYTES, 0, BTreeSet::new());
        let (mut pieces, at) = (Vec::new(), Cell::new(0));
        let mut is_wanted = |piece| {
            at.set(piece);
            true
        };
        evidence.records.each_of(&mut is_wanted, &mut |record| {
            let Reach { suffered, block, .. } = Reach::of(record, evidence.seen_at);
            let number = usize::try_from(suffered.start / BLOCK_BYTES / stretch).unwrap_or(STRETCHES);
            records[number.min(STRETCHES - 1)] += 1;
            reach = reach.max(suffered.end - suffered.start);
            wide += u64::from(is_wide(record));
            if pieces.len() <= at.get() {
                pieces.resize(at.get() + 1, Piece::EMPTY);
            }
            pieces[at.get()].take(&suffered, is_wide(record));
            if !blocks_of(&suffered).contains(&block) && islands.len() <= ISLANDS_MAX {
                islands.insert(block);
            }
        })?;
        let of_request =
            |finding: &Finding| finding.asked.as_ref().map_or(0, |asked| asked.end - asked.start);
        reach = reach.max(requests.iter().map(of_request).max().unwrap_or(0));
        let incidents = evidence.reports.iter().filter(|report| report.phase != Phase::Check);
        let lengths = incidents.flat_map(|report| &report.incidents).map(|incident| incident.length_bytes);
        reach = reach.max(lengths.max().unwrap_or(0)).next_multiple_of(BLOCK_BYTES);
        let weight = |(ways, records): (&u64, &u64)| ways + records.min(&(stretch * HITS_OF_BLOCK));
        let weights: Vec<u64> = ways.iter().zip(&records).map(weight).collect();
        let is_small = weights.iter().sum::<u64>() <= range_max;
        if is_small || reach > REACH_MAX || islands.len() > ISLANDS_MAX || wide > WIDE_MAX {
            return Ok(None);
        }
        let mut outline = Self { stretch, ranges: Vec::new(), reach, islands, pieces };
        outline.cut(&weights, range_max);
        Ok(Some(outline))
    }

    fn cut(&mut self, weights: &[u64], range_max: u64) {
        let (mut start, mut sum) = (0, 0);
        for (number, &weight) in (0..).zip(weights) {
            let here = number * self.stretch * BLOCK_BYTES;
            if sum > 0 && sum + weight > range_max {
                self.ranges.push(start..here);
                (start, sum) = (here, 0);
            }
            sum += weight;
        }
        self.ranges.push(start..u64::MAX);
    }

    /// A range with so many times the reach on each side, and its islands with as much; in order, none overlaps another.
    fn extent(&self, core: &Range<u64>, times: u64) -> Vec<Range<u64>> {
        let more = self.reach * times;
        let around = |bytes: Range<u64>| bytes.start.saturating_sub(more)..bytes.end.saturating_add(more);
        let island = |&block: &u64| around(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES);
        let mut all: Vec<Range<u64>> = self.islands.iter().map(island).collect();
        all.push(around(core.clone()));
        all.sort_unstable_by_key(|bytes| bytes.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for bytes in all {
            match merged.last_mut() {
                Some(last) if bytes.start <= last.end => last.end = last.end.max(bytes.end),
                _ => merged.push(bytes),
            }
        }
        merged
    }
}
