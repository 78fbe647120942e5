//! A rule at work: its counters, and what it decides on a request that concerns it. Shared by every index that holds
//! it, so that the counters survive when rules come and go.

use std::collections::HashSet;
use std::mem::discriminant;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Operation};
use rotproof_spec::Span;

use crate::BLOCK_BYTES;
use crate::aims::Aims;
use crate::at_mark::MarkWait;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::decided::{BlockHit, Decided, Hitter, RequestHit, Rewritten};
use crate::delay::Delay;
use crate::effect::{Bits, Draw, Effect};
use crate::geometry::Header;
use crate::matching::OperationKind;
use crate::record::{TargetKey, Visit};
use crate::recorded::Recorded;
use crate::resolved::ResolvedRule;
use crate::rule::{Persistence, Rule};
use crate::schedule::{Per, Schedule};
use crate::seen::{Moment, Seen};
use crate::statistics::{Choice, Statistics};
use crate::target::Target;

#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) rule: Rule,
    /// Its position among the rules of its engine.
    pub(crate) index: u32,
    /// Its position in the plan, which may have rules for other engines too.
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
    aims: OnceLock<Aims>,
    /// Reads and writes that have come while it waits to know what it aims at.
    awaited: AtomicU64,
    /// What it did in another run and is to do again, instead of what its schedule says.
    recorded: Option<Recorded>,
    matches: AtomicU64,
    /// Bytes of the matches so far, for a schedule that counts them.
    bytes: AtomicU64,
    /// The mark that the schedule waits for.
    mark: MarkWait,
    hits: AtomicU64,
    seed: u64,
    device_size: u64,
    clock: Arc<Clock>,
    /// When the last request under a rate has passed.
    free_at_ns: AtomicU64,
    /// Blocks that can still be remapped.
    spares: AtomicU32,
    /// A sticky rule has hit a flush, which has no place: from now on every flush is hit.
    flush_is_bad: AtomicBool,
    /// It has made the device read-only, or has taken it away.
    has_latched: AtomicBool,
    /// Blocks that went bad by themselves and have been rewritten since.
    healed: Mutex<HashSet<u64>>,
}

impl ActiveRule {
    pub(crate) fn new(
        resolved: ResolvedRule,
        name: Arc<str>,
        (index, number): (u32, u32),
        seed: u64,
        device_size: u64,
        clock: &Arc<Clock>,
    ) -> Self {
        let aims = match resolved.rule.matching.target {
            Some(Target::Seen(_) | Target::Extent { .. } | Target::Type { .. }) => OnceLock::new(),
            _ => OnceLock::from(Aims::of(&resolved, device_size)),
        };
        let ResolvedRule { rule, recorded, .. } = resolved;
        Self {
            name,
            aims,
            awaited: AtomicU64::new(0),
            recorded,
            seed,
            device_size,
            clock: Arc::clone(clock),
            free_at_ns: AtomicU64::new(0),
            spares: AtomicU32::new(match rule.persistence {
                Persistence::UntilRewritten { spares } => spares.unwrap_or(0),
                Persistence::Transient | Persistence::Sticky => 0,
            }),
            rule,
            index,
            number,
            matches: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            mark: MarkWait::default(),
            hits: AtomicU64::new(0),
            flush_is_bad: AtomicBool::new(false),
            has_latched: AtomicBool::new(false),
            healed: Mutex::default(),
        }
    }

    pub(crate) fn effect(&self) -> Effect {
        self.rule.effect
    }

    pub(crate) fn is_sticky(&self) -> bool {
        self.rule.persistence.leaves_place()
    }

    /// What it aims at, as far as that is known.
    pub(crate) fn aims(&self) -> &Aims {
        self.aims.get().unwrap_or_else(|| Aims::nothing())
    }

    /// What it is to choose from what passes by, if it has not.
    pub(crate) fn waits_for(&self) -> Option<Seen> {
        match self.rule.matching.target {
            Some(Target::Seen(seen)) if self.aims.get().is_none() => Some(seen),
            _ => None,
        }
    }

    /// Chooses what it aims at, if the moment has come with this read or write and there is something to choose from.
    /// The caller holds the lock on `statistics`. Returns whether it has chosen.
    pub(crate) fn choose(
        &self,
        statistics: &mut Statistics,
        header: &Header,
        payload: &[u8],
        device_size: u64,
    ) -> bool {
        let Some(seen) = self.waits_for() else { return false };
        let before = self.awaited.fetch_add(1, Ordering::Relaxed);
        let has_come = match seen.moment {
            Moment::After(requests) => before >= requests,
            Moment::At(at) => {
                let since = self.clock.since_begin_ns(header.context.phase, header.context.submitted);
                since.is_some_and(|since| u128::from(since) >= at.0.as_nanos())
            }
        };
        if !has_come {
            return false;
        }
        let Some(choice) = statistics.choose(seen.block, header, payload) else { return false };
        // A replay chooses at the same moment what was chosen then.
        let recorded = self.recorded.as_ref().and_then(Recorded::choice);
        let choice = recorded.filter(|then| discriminant(then) == discriminant(&choice)).unwrap_or(choice);
        self.aims.set(Aims::chosen(&self.rule, choice, device_size)).is_ok()
    }

    /// Lets it aim at a block of the device; in a replay at that which it had hit then. Returns whether it did not know
    /// before what it aims at.
    pub(crate) fn set_place(&self, block: u64) -> bool {
        let recorded = self.recorded.as_ref().and_then(Recorded::choice);
        let choice = recorded.filter(|then| matches!(then, Choice::Place(_))).unwrap_or(Choice::Place(block));
        self.aims.set(Aims::chosen(&self.rule, choice, self.device_size)).is_ok()
    }

    /// The same, of stretches of blocks. In a replay they are what they are: its hits go by blocks, and the blocks that
    /// were hit then are among them or do not come again, which the replay tells.
    pub(crate) fn set_places(&self, blocks: Vec<Range<u64>>) -> bool {
        self.aims.set(Aims::placed(&self.rule, blocks, self.device_size)).is_ok()
    }

    /// Whether it has made the device read-only, or has taken it away.
    pub(crate) fn has_latched(&self) -> bool {
        self.has_latched.load(Ordering::Relaxed)
    }

    /// Returns whether it had not before.
    pub(crate) fn latch(&self) -> bool {
        !self.has_latched.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn unlatch(&self) {
        self.has_latched.store(false, Ordering::Relaxed);
    }

    /// The load has set a mark.
    pub(crate) fn note_mark(&self, text: &str) {
        if let Some(wanted) = self.rule.schedule.mark() {
            self.mark.note(wanted, text);
        }
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
        self.aims().count_hit(aims);
    }

    /// What the ledger calls an aim.
    pub(crate) fn key(&self, aim: Option<u32>) -> Option<TargetKey> {
        aim.map(|aim| self.aims().key(aim))
    }

    /// Counts the matches of a request and adds the hits among them to `decided`.
    ///
    /// `matched` are the blocks that fulfil the rule's conditions, in order, disjoint; it is used up. `content`
    /// gives the content of a block where the rule has asked for it.
    pub(crate) fn evaluate(
        &self,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        decided: &mut Decided,
    ) {
        if !self.rule.matching.permits(&header.context) {
            // Other requests at this place concern it, this one does not.
        } else if self.rule.watches(OperationKind::from(header.operation)) {
            decided.watched.append(matched);
        } else if self.rule.is_healed_by(OperationKind::from(header.operation)) {
            self.note_rewritten(header, matched, decided);
        } else if self.effect().is_on_data() {
            self.evaluate_blocks(header, matched, content, decided);
        } else {
            self.evaluate_request(header, matched, content, decided);
        }
        matched.clear();
    }

    fn evaluate_blocks(
        &self,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        decided: &mut Decided,
    ) {
        if let Some(byte) = self.effect().byte_needed() {
            keep_blocks_with_byte(matched, header, byte);
        }
        let count: u64 = matched.iter().map(|range| range.end - range.start).sum();
        if count == 0 {
            return;
        }
        let first = self.matches.fetch_add(count, Ordering::Relaxed) + 1;
        let block_of_byte = self.count_bytes(header, matched);
        // Where it is decided for all blocks at once: what was.
        let mut of_request = None;
        for (block, number) in matched.iter().cloned().flatten().zip(first..) {
            let visit = self.aims().visit(Some(block), &content);
            let effect = match &self.recorded {
                Some(recorded) => recorded.effect_at(visit),
                None if self.rule.schedule.is_counted() => {
                    self.rule.schedule.hits(number).then(|| self.effect_on(header, block, Some(visit)))
                }
                None if self.rule.schedule.byte().is_some() => {
                    (block_of_byte == Some(block)).then(|| self.effect_on(header, block, Some(visit)))
                }
                None if self.rule.schedule.mark().is_some() => {
                    self.mark.is_first_after().then(|| self.effect_on(header, block, Some(visit)))
                }
                None => {
                    let comes_true = if self.draws_per_block(Per::Block) {
                        self.comes_true(header, visit)
                    } else {
                        *of_request.get_or_insert_with(|| self.comes_true(header, visit))
                    };
                    let is_hit = comes_true && !(self.rule.goes_bad_once() && self.is_healed(block));
                    is_hit.then(|| self.effect_on(header, block, Some(visit)))
                }
            };
            if let Some(effect) = effect {
                let aims = self.aims().among(std::slice::from_ref(&(block..block + 1)), &content);
                let (rule, visit) = (self.index, Some(visit));
                decided.blocks.push(BlockHit { rule, block, effect, aims, visit });
            }
        }
    }

    /// Counts the bytes of the request that lie in `matched`, where the schedule goes by bytes. Gives the block with the byte
    /// that it waits for, if that is among them.
    fn count_bytes(&self, header: &Header, matched: &[Range<u64>]) -> Option<u64> {
        let wanted = self.rule.schedule.byte()?;
        let within = |blocks: &Range<u64>| {
            let start = header.offset.max(blocks.start.saturating_mul(BLOCK_BYTES));
            start..header.end().min(blocks.end.saturating_mul(BLOCK_BYTES)).max(start)
        };
        let count: u64 = matched.iter().map(within).map(|bytes| bytes.end - bytes.start).sum();
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        // Bytes are counted from 1.
        let mut left = wanted.checked_sub(1)?.checked_sub(before)?;
        for bytes in matched.iter().map(within) {
            let length = bytes.end - bytes.start;
            if left < length {
                return Some((bytes.start + left) / BLOCK_BYTES);
            }
            left -= length;
        }
        None
    }

    /// Adds the blocks of `matched` that a write or discard replaces whole while the window in time is open.
    fn note_rewritten(&self, header: &Header, matched: &[Range<u64>], decided: &mut Decided) {
        let since = self.clock.since_begin_ns(header.context.phase, header.context.submitted);
        if !since.is_some_and(|since| self.rule.schedule.is_open(since)) {
            return;
        }
        // The last block of a device may be short, and is whole all the same.
        let is_whole = |block: &u64| {
            header.offset <= block * BLOCK_BYTES
                && header.end() >= ((block + 1) * BLOCK_BYTES).min(self.device_size)
        };
        let blocks = matched.iter().cloned().flatten().filter(is_whole);
        let unhealed = blocks.filter(|&block| !self.is_healed(block));
        decided.rewritten.extend(unhealed.map(|block| Rewritten { rule: self.index, block }));
    }

    /// Whether a block that went bad by itself has been rewritten since.
    fn is_healed(&self, block: u64) -> bool {
        self.healed.lock().contains(&block)
    }

    /// From now on the block is good.
    pub(crate) fn heal(&self, block: u64) {
        self.healed.lock().insert(block);
    }

    /// Whether a schedule that does not count draws for each block; `default` is the unit of the effect.
    fn draws_per_block(&self, default: Per) -> bool {
        match self.rule.schedule {
            Schedule::Probability { per, .. } | Schedule::Within { per, .. } => {
                per.unwrap_or(default) == Per::Block
            }
            _ => false,
        }
    }

    /// What time or chance says of a block that the request meets, or of a request that begins with it.
    fn comes_true(&self, header: &Header, visit: Visit) -> bool {
        let says_chance = |chance: Chance| {
            let stream = mix(self.seed, CHANCE_STREAM, u64::from(self.number));
            chance.comes_true(mix(stream, visit.key(), u64::from(visit.number.wrapping_sub(1))))
        };
        let says_time = || {
            let since = self.clock.since_begin_ns(header.context.phase, header.context.submitted);
            since.is_some_and(|since| self.rule.schedule.is_open(since))
        };
        match self.rule.schedule {
            Schedule::Probability { chance, .. } => says_chance(chance),
            Schedule::Within { chance, .. } => says_time() && says_chance(chance),
            _ => says_time(),
        }
    }

    fn evaluate_request(
        &self,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        decided: &mut Decided,
    ) {
        let is_flush = header.operation == Operation::Flush;
        if matched.is_empty() && !is_flush {
            return;
        }
        let number = self.matches.fetch_add(1, Ordering::Relaxed) + 1;
        let has_byte = self.count_bytes(header, matched).is_some();
        let visit = self.aims().visit(matched.first().map(|range| range.start), &content);
        let is_bad = is_flush && self.flush_is_bad.load(Ordering::Relaxed);
        let hit = self.decide_on_request(header, matched, &content, visit, (number, has_byte));
        let effect = hit.or_else(|| is_bad.then(|| self.effect_on_request(header, Some(visit))));
        let Some(effect) = effect else { return };
        if is_flush && self.is_sticky() {
            self.flush_is_bad.store(true, Ordering::Relaxed);
        }
        let aims = self.aims().among(matched, content);
        let (rule, visit) = (Hitter::Own(self.index), hit.map(|_| visit));
        decided.requests.push(RequestHit { rule, effect, aims, matched: std::mem::take(matched), visit });
    }

    /// What match `number` is hit with, if it is; of `matched` it leaves the blocks that are to blame. `has_byte`: it has the byte
    /// that the schedule waits for.
    fn decide_on_request(
        &self,
        header: &Header,
        matched: &mut Vec<Range<u64>>,
        content: impl Fn(u64) -> Option<ContentHash>,
        visit: Visit,
        (number, has_byte): (u64, bool),
    ) -> Option<Effect> {
        let blamed = (self.draws_per_block(Per::Request) && !matched.is_empty())
            .then(|| self.blocks_drawn(header, matched, content, visit));
        let effect = match (&self.recorded, &blamed) {
            (Some(recorded), _) => recorded.effect_at(visit).inspect(|_| {
                // Under a rate, those behind it wait for their turn as they did.
                self.effect_on_request(header, Some(visit));
            }),
            (None, Some(blamed)) => (!blamed.is_empty()).then(|| self.effect_on_request(header, Some(visit))),
            (None, None) => {
                let is_hit = if self.rule.schedule.is_counted() {
                    self.rule.schedule.hits(number)
                } else if self.rule.schedule.byte().is_some() {
                    has_byte
                } else if self.rule.schedule.mark().is_some() {
                    self.mark.is_first_after()
                } else {
                    self.comes_true(header, visit)
                };
                is_hit.then(|| self.effect_on_request(header, Some(visit)))
            }
        }?;
        if let Some(blamed) = blamed.filter(|blamed| !blamed.is_empty()) {
            *matched = blamed;
        }
        Some(effect)
    }

    /// The blocks of a request for which chance says so; `first` is the visit of the first of them.
    fn blocks_drawn(
        &self,
        header: &Header,
        matched: &[Range<u64>],
        content: impl Fn(u64) -> Option<ContentHash>,
        first: Visit,
    ) -> Vec<Range<u64>> {
        let blocks = matched.iter().cloned().flatten().enumerate();
        let drawn = blocks.filter(|&(position, block)| {
            let visit = if position == 0 { first } else { self.aims().visit(Some(block), &content) };
            self.comes_true(header, visit)
        });
        drawn.map(|(_, block)| block..block + 1).collect()
    }

    /// What chance decides on one hit: a pure function of seed, rule and visit, or of the block where that was bad
    /// already.
    fn draw(&self, visit: Option<Visit>, block: u64) -> u64 {
        let (key, number) = visit.map_or((block, 0), |visit| (visit.key(), visit.number));
        mix(mix(self.seed, EFFECT_STREAM, u64::from(self.number)), key, u64::from(number))
    }

    /// The effect on a block, with what chance decides filled in; `visit` is `None` for one that was bad already.
    pub(crate) fn effect_on(&self, header: &Header, block: u64, visit: Option<Visit>) -> Effect {
        let draw = self.draw(visit, block);
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

    /// The effect on a request, with what chance, the rate and the time decide filled in; `visit` is `None` for one that
    /// meets a place that was bad already.
    pub(crate) fn effect_on_request(&self, header: &Header, visit: Option<Visit>) -> Effect {
        match self.effect() {
            Effect::Bandwidth(rate) => Effect::Delay(Delay::Constant(self.turn(header, rate.0))),
            effect => effect.resolved(self.draw(visit, header.offset / BLOCK_BYTES)),
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
}

/// Keep apart what is drawn from the same seed.
const EFFECT_STREAM: u64 = 0x6566_6665_6374_7300;
const CHANCE_STREAM: u64 = 0x6368_616e_6365_7300;

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
