//! A rule at work: where it applies, in blocks, and its counters. Shared by every index that holds it, so that the
//! counters survive when rules are added.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Operation};
use rotproof_spec::{ByteRange, End};

use crate::BLOCK_BYTES;
use crate::effect::{Bit, Effect};
use crate::geometry::Header;
use crate::interval::BlockSet;
use crate::record::TargetKey;
use crate::resolved::ResolvedRule;
use crate::rule::{Persistence, Rule};
use crate::verdict::{BlockHit, RequestHit, Verdict};

#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) rule: Rule,
    pub(crate) index: u32,
    pub(crate) name: Arc<str>,
    /// The blocks of `offset`; `None` is everywhere.
    pub(crate) places: Option<BlockSet>,
    /// The entries of `offset` as written, sorted by start.
    entries: Vec<Range<u64>>,
    /// What `content` and `target` ask for, with labels; `None` is anything.
    pub(crate) contents: Option<HashMap<ContentHash, Arc<str>>>,
    /// Labels of the contents in the order in which the target named them.
    content_order: Vec<ContentHash>,
    matches: AtomicU64,
    hits: AtomicU64,
    /// A sticky rule has hit a flush, which has no place: from now on every flush is hit.
    flush_is_bad: AtomicBool,
}

impl ActiveRule {
    pub(crate) fn new(resolved: ResolvedRule, index: u32, device_size: u64) -> Self {
        let ResolvedRule { rule, contents: of_target } = resolved;
        let mut entries: Vec<Range<u64>> =
            rule.matching.offset.iter().map(|range| blocks_of(range, device_size)).collect();
        entries.sort_unstable_by_key(|entry| (entry.start, entry.end));
        let places = (!entries.is_empty()).then(|| BlockSet::new(entries.iter().cloned()));
        let given: Vec<ContentHash> = rule.matching.content.iter().map(|text| text.0).collect();
        let wanted: HashSet<ContentHash> = given.iter().copied().collect();
        let mut labelled: Vec<(ContentHash, Arc<str>)> = if rule.matching.target.is_some() {
            of_target.into_iter().map(|target| (target.content, target.label.into())).collect()
        } else {
            given.iter().map(|content| (*content, content.to_string().into())).collect()
        };
        if !wanted.is_empty() {
            labelled.retain(|(content, _)| wanted.contains(content));
        }
        let content_order = labelled.iter().map(|(content, _)| *content).collect();
        let contents = rule.matching.is_by_content().then(|| {
            let mut by_content = HashMap::with_capacity(labelled.len());
            for (content, label) in labelled {
                by_content.entry(content).or_insert(label);
            }
            by_content
        });
        Self {
            name: rule.name_or_default(index as usize).into(),
            rule,
            index,
            places,
            entries,
            contents,
            content_order,
            matches: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            flush_is_bad: AtomicBool::new(false),
        }
    }

    pub(crate) fn effect(&self) -> Effect {
        self.rule.effect
    }

    pub(crate) fn is_sticky(&self) -> bool {
        self.rule.persistence == Persistence::Sticky
    }

    /// How many matches the schedule has seen.
    pub(crate) fn matches(&self) -> u64 {
        self.matches.load(Ordering::Relaxed)
    }

    /// How many records the ledger has of this rule.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    pub(crate) fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything that the rule can be said to aim at, in the order in which it was written.
    pub(crate) fn targets(&self) -> Vec<TargetKey> {
        match &self.contents {
            Some(contents) => self
                .content_order
                .iter()
                .map(|content| TargetKey::content(*content, Arc::clone(&contents[content])))
                .collect(),
            None => self.entries.iter().map(|entry| TargetKey::Offset(entry.start * BLOCK_BYTES)).collect(),
        }
    }

    /// What of the rule's aims a hit on `block` belongs to. `content` is that of the block, where the rule has asked
    /// for one.
    fn key(&self, block: u64, content: Option<ContentHash>) -> Option<TargetKey> {
        if let Some(contents) = &self.contents {
            let content = content?;
            return contents.get(&content).map(|label| TargetKey::content(content, Arc::clone(label)));
        }
        let upto = self.entries.partition_point(|entry| entry.start <= block);
        let entry = self.entries[..upto].iter().rev().find(|entry| entry.contains(&block))?;
        Some(TargetKey::Offset(entry.start * BLOCK_BYTES))
    }

    /// Counts the matches of a request and adds the hits among them to `verdict`.
    ///
    /// `matched` are the blocks that fulfil the rule's conditions, in order, disjoint; it is used up. `content`
    /// gives the content of a block where the rule has asked for it.
    pub(crate) fn evaluate(
        self: &Arc<Self>,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        verdict: &mut Verdict,
    ) {
        if self.effect().is_on_data() {
            self.evaluate_blocks(header, matched, content, verdict);
        } else {
            self.evaluate_request(header, matched, content, verdict);
        }
        matched.clear();
    }

    fn evaluate_blocks(
        self: &Arc<Self>,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        verdict: &mut Verdict,
    ) {
        if let Effect::BitFlip(Bit::At { byte, .. }) = self.effect() {
            keep_blocks_with_byte(matched, header, byte as usize);
        }
        let count: u64 = matched.iter().map(|range| range.end - range.start).sum();
        if count == 0 {
            return;
        }
        let first = self.matches.fetch_add(count, Ordering::Relaxed) + 1;
        let mut ranges = matched.iter();
        // The range at hand and the number of its first block.
        let (mut range, mut number_of_start) = (ranges.next().cloned().unwrap_or_default(), first);
        for number in self.rule.schedule.hits_among(first..first + count) {
            while number - number_of_start >= range.end - range.start {
                number_of_start += range.end - range.start;
                let Some(next) = ranges.next() else { return };
                range = next.clone();
            }
            let block = range.start + (number - number_of_start);
            let key = self.key(block, content(block));
            verdict.blocks.push(BlockHit { rule: Arc::clone(self), block, number, key });
        }
    }

    fn evaluate_request(
        self: &Arc<Self>,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        verdict: &mut Verdict,
    ) {
        let is_flush = header.operation == Operation::Flush;
        let first = matched.first().map(|range| range.start);
        if first.is_none() && !is_flush {
            return;
        }
        let number = self.matches.fetch_add(1, Ordering::Relaxed) + 1;
        let is_bad = is_flush && self.flush_is_bad.load(Ordering::Relaxed);
        if !is_bad && !self.rule.schedule.hits(number) {
            return;
        }
        if is_flush && self.is_sticky() {
            self.flush_is_bad.store(true, Ordering::Relaxed);
        }
        let key = first.and_then(|block| self.key(block, content(block)));
        let rule = Arc::clone(self);
        verdict.requests.push(RequestHit { rule, key, matched: std::mem::take(matched) });
    }

    /// The bit of a random flip among the `part` of a block: a pure function of seed, rule, place and number of the
    /// match.
    pub(crate) fn random_bit(&self, seed: u64, block: u64, number: u64, part: &Range<usize>) -> (usize, u8) {
        let bits = part.len() as u64 * 8;
        let bit = mix(mix(seed, BIT_STREAM, u64::from(self.index)), block, number) % bits.max(1);
        (part.start + (bit / 8) as usize, (bit % 8) as u8)
    }
}

/// Separates the bits of flips from other decisions that may come to draw from the same seed.
const BIT_STREAM: u64 = 0x6269_7466_6c69_7073;

fn blocks_of(range: &ByteRange, device_size: u64) -> Range<u64> {
    let first = range.start / BLOCK_BYTES;
    let end = match range.end {
        End::At(end) => end.min(device_size).div_ceil(BLOCK_BYTES),
        End::Open => device_size.div_ceil(BLOCK_BYTES),
        End::OneBlock => (first + 1).min(device_size.div_ceil(BLOCK_BYTES)),
    };
    first..end
}

/// Leaves out blocks of which the request does not carry `byte`: only its first and its last can be such.
fn keep_blocks_with_byte(matched: &mut Vec<Range<u64>>, header: &Header, byte: usize) {
    let touched = header.blocks();
    if let Some(range) = matched.first_mut()
        && range.start == touched.start
        && !header.part(range.start).contains(&byte)
    {
        range.start += 1;
    }
    if let Some(range) = matched.last_mut()
        && !range.is_empty()
        && range.end == touched.end
        && !header.part(range.end - 1).contains(&byte)
    {
        range.end -= 1;
    }
    matched.retain(|range| !range.is_empty());
}
