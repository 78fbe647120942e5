//! A rule at work: where it applies, in blocks, and its counters. Shared by every index that holds it, so that the
//! counters survive when rules come and go.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Operation};
use rotproof_spec::{ByteRange, End, Span};

use crate::BLOCK_BYTES;
use crate::clock::Clock;
use crate::delay::Delay;
use crate::effect::{Bits, Draw, Effect};
use crate::geometry::Header;
use crate::interval::{BlockSet, IntervalIndex};
use crate::matching::OperationKind;
use crate::record::TargetKey;
use crate::resolved::ResolvedRule;
use crate::rule::{Persistence, Rule};
use crate::schedule::{Per, Schedule};
use crate::verdict::{BlockHit, RequestHit, Verdict};
use crate::visits::Visits;

#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) rule: Rule,
    pub(crate) index: u32,
    pub(crate) name: Arc<str>,
    /// The blocks of `offset`; `None` is everywhere.
    pub(crate) places: Option<BlockSet>,
    /// What `content` and `target` ask for, with the number of the aim; `None` is anything.
    pub(crate) contents: Option<HashMap<ContentHash, WantedContent>>,
    /// What can be said to be hit or missed: each content, else each range of `offset`, as they were written.
    aims: Vec<Aim>,
    /// From blocks to aims, for a rule by place alone.
    aims_by_place: IntervalIndex,
    matches: AtomicU64,
    hits: AtomicU64,
    /// Where chance decides.
    visits: Option<Visits>,
    seed: u64,
    clock: Arc<Clock>,
    /// When the last request under a rate has passed.
    free_at_ns: AtomicU64,
    /// Blocks that can still be remapped.
    spares: AtomicU32,
    /// A sticky rule has hit a flush, which has no place: from now on every flush is hit.
    flush_is_bad: AtomicBool,
    /// It has made the device read-only, or has taken it away.
    has_latched: AtomicBool,
}

/// A content that a rule asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedContent {
    /// The number of the aim.
    aim: u32,
    /// Its first eight bytes, where they are known.
    pub(crate) beginning: Option<u64>,
}

#[derive(Debug)]
struct Aim {
    key: TargetKey,
    hits: AtomicU64,
}

impl ActiveRule {
    pub(crate) fn new(
        resolved: ResolvedRule,
        name: Arc<str>,
        index: u32,
        seed: u64,
        device_size: u64,
        clock: &Arc<Clock>,
    ) -> Self {
        let contents = resolved.rule.matching.is_by_content().then(|| wanted_contents(&resolved));
        let rule = resolved.rule;
        let ranges: Vec<Range<u64>> =
            rule.matching.offset.iter().map(|range| blocks_of(range, device_size)).collect();
        let places = (!ranges.is_empty()).then(|| BlockSet::new(ranges.iter().cloned()));
        let (keys, ranges): (Vec<TargetKey>, _) = match &contents {
            Some(wanted) => (
                wanted.iter().map(|wanted| TargetKey::content(wanted.content, &wanted.label)).collect(),
                vec![],
            ),
            None => {
                (ranges.iter().map(|range| TargetKey::Offset(range.start * BLOCK_BYTES)).collect(), ranges)
            }
        };
        let ranges = ranges.into_iter().zip(0..).filter(|(range, _)| !range.is_empty());
        Self {
            name,
            visits: matches!(rule.schedule, Schedule::Probability { .. })
                .then(|| Visits::new(device_size.div_ceil(BLOCK_BYTES))),
            seed,
            clock: Arc::clone(clock),
            free_at_ns: AtomicU64::new(0),
            spares: AtomicU32::new(match rule.persistence {
                Persistence::UntilRewritten { spares } => spares.unwrap_or(0),
                Persistence::Transient | Persistence::Sticky => 0,
            }),
            rule,
            index,
            places,
            contents: contents.map(|wanted| {
                let numbered = wanted.iter().zip(0..);
                numbered
                    .map(|(wanted, aim)| (wanted.content, WantedContent { aim, beginning: wanted.beginning }))
                    .collect()
            }),
            aims: keys.into_iter().map(|key| Aim { key, hits: AtomicU64::new(0) }).collect(),
            aims_by_place: IntervalIndex::new(ranges),
            matches: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            flush_is_bad: AtomicBool::new(false),
            has_latched: AtomicBool::new(false),
        }
    }

    pub(crate) fn effect(&self) -> Effect {
        self.rule.effect
    }

    pub(crate) fn is_sticky(&self) -> bool {
        self.rule.persistence.leaves_place()
    }

    /// Whether `block` is one of its places, or it has none in particular.
    pub(crate) fn covers(&self, block: u64) -> bool {
        self.places.as_ref().is_none_or(|places| places.contains(block))
    }

    /// Whether it has made the device read-only, or has taken it away.
    pub(crate) fn has_latched(&self) -> bool {
        self.has_latched.load(Ordering::Relaxed)
    }

    pub(crate) fn latch(&self) {
        self.has_latched.store(true, Ordering::Relaxed);
    }

    /// How many matches the schedule has seen.
    pub(crate) fn matches(&self) -> u64 {
        self.matches.load(Ordering::Relaxed)
    }

    /// How many records the ledger has of this rule.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Counts a record of the ledger, for all the aims that it is a hit on.
    pub(crate) fn count_hit(&self, aims: &[u32]) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        for &aim in aims {
            self.aims[aim as usize].hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the ledger calls an aim.
    pub(crate) fn key(&self, aim: Option<u32>) -> Option<TargetKey> {
        aim.map(|aim| self.aims[aim as usize].key.clone())
    }

    /// Every aim with its hits, in the order in which they were written.
    pub(crate) fn aims(&self) -> impl Iterator<Item = (&TargetKey, u64)> {
        self.aims.iter().map(|aim| (&aim.key, aim.hits.load(Ordering::Relaxed)))
    }

    /// The aims that blocks belong to, each once, in order. `content` is that of a block, where the rule has asked
    /// for it.
    fn aims_of(&self, matched: &[Range<u64>], content: impl Fn(u64) -> Option<ContentHash>) -> Vec<u32> {
        let mut aims = Vec::new();
        match &self.contents {
            Some(contents) => {
                let blocks = matched.iter().cloned().flatten();
                aims.extend(blocks.filter_map(|block| Some(contents.get(&content(block)?)?.aim)));
            }
            None => {
                for range in matched {
                    self.aims_by_place.find(range.clone(), |aim| aims.push(aim));
                }
            }
        }
        aims.sort_unstable();
        aims.dedup();
        aims
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
        if !self.rule.matching.permits_tag(header.context.tag) {
            // Other requests at this place concern it, this one does not.
        } else if self.rule.watches(OperationKind::from(header.operation)) {
            verdict.watched.append(matched);
        } else if self.effect().is_on_data() {
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
        if let Some(byte) = self.effect().byte_needed() {
            keep_blocks_with_byte(matched, header, byte);
        }
        let count: u64 = matched.iter().map(|range| range.end - range.start).sum();
        if count == 0 {
            return;
        }
        let first = self.matches.fetch_add(count, Ordering::Relaxed) + 1;
        let mut push = |block: u64, number: u64| {
            let aims = self.aims_of(std::slice::from_ref(&(block..block + 1)), &content);
            let effect = self.effect_on(header, block, number);
            verdict.blocks.push(BlockHit { rule: Arc::clone(self), block, effect, aims });
        };
        if !self.rule.schedule.is_counted() {
            let per_block = self.draws_per_block(Per::Block);
            if !per_block && !self.comes_true(header, matched[0].start) {
                return;
            }
            for (block, number) in matched.iter().cloned().flatten().zip(first..) {
                if !per_block || self.comes_true(header, block) {
                    push(block, number);
                }
            }
            return;
        }
        let mut ranges = matched.iter();
        // The range at hand and the number of its first block.
        let (mut range, mut number_of_start) = (ranges.next().cloned().unwrap_or_default(), first);
        for number in self.rule.schedule.hits_among(first..first + count) {
            while number - number_of_start >= range.end - range.start {
                number_of_start += range.end - range.start;
                let Some(next) = ranges.next() else { return };
                range = next.clone();
            }
            push(range.start + (number - number_of_start), number);
        }
    }

    /// Whether a schedule that does not count draws for each block; `default` is the unit of the effect.
    fn draws_per_block(&self, default: Per) -> bool {
        match self.rule.schedule {
            Schedule::Probability { per, .. } => per.unwrap_or(default) == Per::Block,
            _ => false,
        }
    }

    /// What time or chance says of a block, or of a request that begins with it.
    fn comes_true(&self, header: &Header, block: u64) -> bool {
        match (self.rule.schedule, &self.visits) {
            (Schedule::Probability { chance, .. }, Some(visits)) => {
                let visit = u64::from(visits.next(block));
                let stream = mix(self.seed, CHANCE_STREAM, u64::from(self.index));
                chance.comes_true(mix(stream, block, visit))
            }
            _ => {
                let since = self.clock.since_begin_ns(header.context.phase, header.context.submitted);
                since.is_some_and(|since| self.rule.schedule.is_open(since))
            }
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
        if matched.is_empty() && !is_flush {
            return;
        }
        let number = self.matches.fetch_add(1, Ordering::Relaxed) + 1;
        let is_bad = is_flush && self.flush_is_bad.load(Ordering::Relaxed);
        if !is_bad && !self.hits_request(header, matched, number) {
            return;
        }
        if is_flush && self.is_sticky() {
            self.flush_is_bad.store(true, Ordering::Relaxed);
        }
        let aims = self.aims_of(matched, content);
        let rule = Arc::clone(self);
        let effect = self.effect_on_request(header, number);
        verdict.requests.push(RequestHit { rule, effect, aims, matched: std::mem::take(matched) });
    }

    /// What chance decides on one hit: a pure function of seed, rule, place and number.
    fn draw(&self, place: u64, number: u64) -> u64 {
        mix(mix(self.seed, EFFECT_STREAM, u64::from(self.index)), place, number)
    }

    /// The effect of match `number` on a block, with what chance decides filled in.
    pub(crate) fn effect_on(&self, header: &Header, block: u64, number: u64) -> Effect {
        let draw = self.draw(block, number);
        match self.effect() {
            // One bit can be named.
            Effect::BitFlip(Bits::Random { count: 1, draw: Draw(None) }) => {
                let part = header.part(block);
                let bit = draw % (part.len() as u64 * 8).max(1);
                let byte = u32::try_from(part.start as u64 + bit / 8).unwrap_or_default();
                Effect::BitFlip(Bits::At { byte, bit: (bit % 8) as u8 })
            }
            effect if effect.draw().is_some() => effect,
            effect => effect.resolved(draw),
        }
    }

    /// The effect on a request, with what chance, the rate and the time decide filled in.
    pub(crate) fn effect_on_request(&self, header: &Header, number: u64) -> Effect {
        match self.effect() {
            Effect::Bandwidth(rate) => Effect::Delay(Delay::Constant(self.turn(header, rate.0))),
            effect => effect.resolved(self.draw(header.offset / BLOCK_BYTES, number)),
        }
    }

    /// How long the request waits for its turn where only so many bytes a second pass, its own transfer included.
    fn turn(&self, header: &Header, bytes_per_second: u64) -> Span {
        let now = header.context.submitted.0;
        let takes = u128::from(header.length) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        let mut free = self.free_at_ns.load(Ordering::Relaxed);
        loop {
            let done = free.max(now).saturating_add(takes);
            match self.free_at_ns.compare_exchange_weak(free, done, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Span(Duration::from_nanos(done - now)),
                Err(other) => free = other,
            }
        }
    }

    /// Whether a place that this rule has left bad may become good again; uses up a spare.
    pub(crate) fn remaps(&self) -> bool {
        match self.rule.persistence {
            Persistence::UntilRewritten { spares: None } => true,
            Persistence::UntilRewritten { spares: Some(_) } => self
                .spares
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spares| spares.checked_sub(1))
                .is_ok(),
            Persistence::Transient | Persistence::Sticky => false,
        }
    }

    /// Whether match `number` is a hit; of `matched` it leaves the blocks that are to blame.
    fn hits_request(&self, header: &Header, matched: &mut Vec<Range<u64>>, number: u64) -> bool {
        if self.rule.schedule.is_counted() {
            return self.rule.schedule.hits(number);
        }
        if !self.draws_per_block(Per::Request) || matched.is_empty() {
            // A flush has no block of its own.
            let first = matched.first().map_or(u64::MAX, |range| range.start);
            return self.comes_true(header, first);
        }
        let blocks: Vec<u64> =
            matched.iter().cloned().flatten().filter(|&block| self.comes_true(header, block)).collect();
        *matched = blocks.into_iter().map(|block| block..block + 1).collect();
        !matched.is_empty()
    }
}

/// Keep apart what is drawn from the same seed.
const EFFECT_STREAM: u64 = 0x6566_6665_6374_7300;
const CHANCE_STREAM: u64 = 0x6368_616e_6365_7300;

/// A content that a rule wants, with what people call it.
struct NamedContent {
    content: ContentHash,
    label: Arc<str>,
    beginning: Option<u64>,
}

/// The contents that a rule wants, in the order in which they were written.
fn wanted_contents(resolved: &ResolvedRule) -> Vec<NamedContent> {
    let matching = &resolved.rule.matching;
    let given: HashSet<ContentHash> = matching.content.iter().map(|text| text.0).collect();
    let mut wanted: Vec<NamedContent> = match matching.target {
        Some(_) => resolved
            .contents
            .iter()
            .map(|target| NamedContent {
                content: target.content,
                label: target.label.as_str().into(),
                beginning: target.beginning,
            })
            .collect(),
        None => matching
            .content
            .iter()
            .map(|text| NamedContent { content: text.0, label: text.to_string().into(), beginning: None })
            .collect(),
    };
    // Both conditions given, both must hold. And a content that is named twice is one aim.
    let mut seen = HashSet::new();
    wanted.retain(|wanted| {
        (given.is_empty() || given.contains(&wanted.content)) && seen.insert(wanted.content)
    });
    wanted
}

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
