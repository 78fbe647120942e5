//! What is decided on a request, before it is passed on and when it has come back.
//!
//! [`Passage`](crate::passage::Passage) asks, in the order in which a request goes its way. Both decisions hold the rules that they
//! were made by, and what is done at the end goes by the same.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::{Buffer, ContentHash, Operation};

use crate::active_rule::ActiveRule;
use crate::block_state::{StickyFault, StickyKind};
use crate::corruption::{ALL_SECTORS, Corruption};
use crate::decided::{BlockHit, Decided, Hitter, RequestHit};
use crate::effect::{Effect, SECTOR_BYTES};
use crate::engine::Engine;
use crate::geometry::{Header, extent};
use crate::hang::Hang;
use crate::index::{Index, Table};
use crate::matching::OperationKind;
use crate::rule_set::{Newest, RuleSet};
use crate::zeros::zeros_hash;

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing can happen to it.
    Pass,
    /// A read that only its data can concern, by these rules.
    Look(RuleSet),
    /// Nothing has happened yet, but what it brings back or leaves behind must be looked at, by these rules.
    Inspect(RuleSet),
    /// Something happens to it.
    Act(Decided),
}

/// Bytes of the device that the caller has read below on the engine's behalf.
#[derive(Debug)]
pub(crate) struct Piece {
    /// First byte on the device.
    pub(crate) offset: u64,
    /// What the device holds there.
    pub(crate) bytes: Buffer,
}

/// The engine as one queue sees it. Not shared between threads: it keeps a copy of the pointer to the rules, and
/// memory to work in.
#[derive(Debug)]
pub(crate) struct Evaluator {
    pub(crate) engine: Arc<Engine>,
    rules: RefCell<Newest>,
    scratch: RefCell<Scratch>,
}

#[derive(Debug, Default)]
struct Scratch {
    rules: Vec<u32>,
    contents: Vec<WantedContent>,
    matched: Vec<Range<u64>>,
}

/// A block of a request whose content a rule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantedContent {
    rule: u32,
    block: u64,
    content: ContentHash,
}

impl Evaluator {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let rules = RefCell::new(Newest::new(&engine.index));
        Self { engine, rules, scratch: RefCell::default() }
    }

    /// Decides on a request that is about to be passed on, and counts its matches. `payload` is the data of a write,
    /// empty otherwise. The request must be one that the device below accepts.
    pub(crate) fn decide(&self, header: &Header, payload: &[u8]) -> Decision {
        let operation = OperationKind::from(header.operation);
        let blocks = header.blocks();
        if blocks.is_empty() && operation != OperationKind::Flush {
            return Decision::Pass;
        }
        let mut newest = self.rules.borrow_mut();
        let rules = newest.load();
        if let Some(decided) = self.meet_latch(rules, header, operation) {
            return Decision::Act(decided);
        }
        if rules.index().has_clock {
            // Time begins whether or not the rules that go by it are enabled.
            self.engine.clock.since_begin_ns(header.context.phase, header.context.submitted);
        }
        let rules = if rules.index().waiting.is_empty() {
            rules
        } else {
            self.engine.observe(rules.index(), header, payload);
            newest.load()
        };
        let is_touched = self.engine.overlay.touches(&blocks);
        let index = rules.index();
        let table = index.table(operation, header.context.phase);
        let has_place = table.is_some_and(|table| table.has_place(&blocks));
        // Of a read it takes the data to know.
        let wants_content = match (operation, table.and_then(|table| table.contents.as_ref())) {
            (OperationKind::Read, contents) => contents.is_some(),
            (_, contents) => contents.is_some_and(|contents| contents.concerns(header, payload)),
        };
        let tagged = table.and_then(|table| table.tagged.as_ref()).map(|tags| tags.find(header.context.tag));
        let is_anywhere = tagged.is_some_and(|rules| !rules.is_empty())
            || table.is_some_and(|table| !table.always.is_empty());
        if !has_place && !wants_content && !is_touched && !is_anywhere {
            return Decision::Pass;
        }
        if operation == OperationKind::Read && !has_place && !is_touched && !is_anywhere {
            return Decision::Look(rules.clone());
        }
        let mut decided = Decided::from(rules.clone());
        if let Some(table) = table {
            let mut scratch = self.scratch.borrow_mut();
            scratch.find_rules(table, tagged.unwrap_or_default(), &blocks, has_place);
            scratch.evaluate_rules(index, header, &mut decided);
            if wants_content && operation == OperationKind::Write {
                scratch.find_contents(table, header, payload);
                scratch.evaluate_contents(index, header, &mut decided);
            }
        }
        if is_touched {
            self.meet_bad_places(header, operation, &mut decided);
        }
        let must_inspect = is_touched || (operation == OperationKind::Read && wants_content);
        match (decided.is_empty(), must_inspect) {
            (false, _) => {
                decided.settle();
                Decision::Act(decided)
            }
            (true, true) => Decision::Inspect(decided.rules),
            (true, false) => Decision::Pass,
        }
    }

    /// Whether a read on which nothing was decided before is the business of any of `rules`, by which it goes, now that
    /// it has come back: whether [`Evaluator::read_done`] has anything to do.
    pub(crate) fn concerns_read(&self, header: &Header, rules: &RuleSet, data: &[u8]) -> bool {
        if self.engine.overlay.touches(&header.blocks()) {
            return true;
        }
        let table = rules.index().table(OperationKind::Read, header.context.phase);
        let contents = table.and_then(|table| table.contents.as_ref());
        contents.is_some_and(|contents| contents.concerns(header, data))
    }

    /// What a device that has become read-only, or is gone, says to everything.
    fn meet_latch(&self, rules: &RuleSet, header: &Header, operation: OperationKind) -> Option<Decided> {
        if !self.engine.has_latched.load(Ordering::Relaxed) {
            return None;
        }
        let index = rules.index();
        let latched = || {
            let rules = index.latching.iter().map(|&number| &index.rules[number as usize]);
            rules.filter(|rule| rule.has_latched() && rule.rule.is_enabled(header.context.phase))
        };
        let refuses_mutations = |rule: &&Arc<ActiveRule>| {
            rule.effect() == Effect::ReadOnly
                && !matches!(operation, OperationKind::Read | OperationKind::Flush)
        };
        // What is gone is gone, whatever else it is.
        let blackout = self.engine.blackout.load_full();
        let (rule, effect) = match blackout {
            Some(rule) => (Hitter::Elsewhere(Arc::clone(&rule)), rule.effect()),
            None => {
                let takes_device = latched().find(|rule| rule.effect().takes_device());
                let rule = takes_device.or_else(|| latched().find(refuses_mutations))?;
                (Hitter::Own(rule.index), rule.effect())
            }
        };
        let hit = RequestHit { rule, effect, aims: Vec::new(), matched: Vec::new(), visit: None };
        Some(Decided { requests: vec![hit], ..Decided::from(rules.clone()) })
    }

    /// Decides on the content of a read that has come back pristine.
    pub(crate) fn decide_on_content(&self, header: &Header, data: &[u8], decided: &mut Decided) {
        let rules = decided.rules.clone();
        let index = rules.index();
        let Some(table) = index.table(OperationKind::Read, header.context.phase) else { return };
        let mut scratch = self.scratch.borrow_mut();
        scratch.find_contents(table, header, data);
        scratch.evaluate_contents(index, header, decided);
        decided.settle();
    }

    /// Adds what sticky rules do to requests that touch the places they have hit.
    fn meet_bad_places(&self, header: &Header, operation: OperationKind, decided: &mut Decided) {
        let phase = header.context.phase;
        let rules = decided.rules.clone();
        let is_met = |place: &&StickyFault| {
            rules.index().acts(place.rule) && rules.index().rule(place.rule).rule.keeps_bad(operation, phase)
        };
        let states = self.engine.overlay.lock();
        for (block, state) in states.within(header.blocks()) {
            for place in state.sticky.iter().filter(is_met) {
                let rule = rules.index().rule(place.rule);
                let aims = || place.aims.as_slice().to_vec();
                match place.kind {
                    StickyKind::Wrong(_) => {}
                    StickyKind::Again if !rule.rule.concerns_operation(operation) => {}
                    StickyKind::Again => {
                        let effect = rule.effect_on(header, block, None);
                        let rule = place.rule;
                        decided.blocks.push(BlockHit { rule, block, effect, aims: aims(), visit: None });
                    }
                    StickyKind::Request => {
                        match decided.requests.iter_mut().find(|hit| hit.rule.position() == place.rule) {
                            Some(hit) => hit.aims.extend_from_slice(place.aims.as_slice()),
                            None => {
                                let effect = rule.effect_on_request(header, None);
                                let matched = Vec::new();
                                let rule = Hitter::Own(place.rule);
                                let hit = RequestHit { rule, effect, aims: aims(), matched, visit: None };
                                decided.requests.push(hit);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The blocks that the request touches in part only and of which the ledger wants the whole: ranges of the device
    /// to be read below once the request has succeeded. At most two, nearly always none.
    pub(crate) fn edges(&self, header: &Header, decided: Option<&Decided>) -> Vec<Range<u64>> {
        let blocks = header.blocks();
        let mut edges = Vec::new();
        if blocks.is_empty() {
            return edges;
        }
        let last = blocks.end - 1;
        for block in std::iter::once(blocks.start).chain((last != blocks.start).then_some(last)) {
            let extent = extent(block, self.engine.device_size);
            let is_whole = header.offset <= extent.start && header.end() >= extent.end;
            let is_hit =
                || decided.is_some_and(|decided| decided.blocks.iter().any(|hit| hit.block == block));
            if !is_whole && (is_hit() || self.has_open_record(header, block)) {
                edges.push(extent);
            }
        }
        // Where misdirected writes land.
        for hit in decided.iter().flat_map(|decided| &decided.blocks) {
            let Some(landing) = hit.effect.lands_on(hit.block, self.engine.device_blocks()) else { continue };
            let extent = extent(landing, self.engine.device_size);
            let is_whole = header.offset <= extent.start && header.end() >= extent.end;
            if !is_whole && !edges.contains(&extent) {
                edges.push(extent);
            }
        }
        edges
    }

    /// Whether what a request does to `block` is the ledger's business although no rule hits it: a bad place shows
    /// what it may not have shown before, or a write may put right what a record says is wrong.
    fn has_open_record(&self, header: &Header, block: u64) -> bool {
        if !self.engine.overlay.touches(&(block..block + 1)) {
            return false;
        }
        let states = self.engine.overlay.lock();
        let mut states = states.within(block..block + 1);
        states.any(|(_, state)| {
            state.sticky.iter().any(|place| matches!(place.kind, StickyKind::Wrong(_)))
                || header.operation.is_mutation() && !state.unrepaired.is_empty()
        })
    }

    /// Makes what has been read below for [`Decided::lost_ranges`] look as it reads, so that it can stand in for the
    /// write that will be lost.
    pub(crate) fn make_stale(&self, piece: &mut Piece) {
        let header = Header {
            operation: Operation::Read,
            offset: piece.offset,
            length: piece.bytes.len() as u64,
            context: rotproof_block::Context::default(),
        };
        if !self.engine.overlay.touches(&header.blocks()) {
            return;
        }
        let states = self.engine.overlay.lock();
        for (block, state) in states.within(header.blocks()) {
            // Without what sticky rules do: it will be done again to whatever is read here.
            for corruption in state.corruptions.iter() {
                corruption.apply(header.part(block).start, &mut piece.bytes[header.in_buffer(block)]);
            }
        }
    }

    /// What holds the request back after its delay, one after the other. For a write, discard or flush; of a read it
    /// stands in the [`ReadOutcome`](crate::injection::ReadOutcome).
    pub(crate) fn hangs(&self, decided: &Decided) -> Vec<Hang> {
        let hang = |hit: &RequestHit| match hit.effect {
            Effect::Hang(span) => Some(Hang::new(&self.engine, hit.rule.rule(decided.rules.index()), span)),
            _ => None,
        };
        decided.requests.iter().filter_map(hang).collect()
    }

    /// The deviation that a hit lays over the touched part of its block. `None` where there is none to lay: old data
    /// that the caller has not read, a write too small to tear, no previous version.
    pub(crate) fn corruption_of(
        &self,
        hit: &BlockHit,
        header: &Header,
        stale: &[Piece],
        previous: Option<&Corruption>,
    ) -> Option<Corruption> {
        let part = header.part(hit.block);
        let old = |sectors: u8| {
            let bytes = self.old_bytes(hit.block, &part, stale)?;
            Some(Corruption::old(part.clone(), bytes, sectors))
        };
        match hit.effect {
            Effect::BitFlip(bits) => Corruption::bits(bits, &part),
            Effect::Zeros => Some(Corruption::fill(part, 0)),
            Effect::Ones => Some(Corruption::fill(part, 0xff)),
            Effect::Noise(draw) => Some(Corruption::noise(part, draw.number())),
            Effect::LostWrite | Effect::MisdirectedWrite(_) => old(ALL_SECTORS),
            Effect::MediumError if header.operation != Operation::Read => old(ALL_SECTORS),
            // The reader sees an error, and zeros beside it.
            Effect::MediumError => Some(Corruption::fill(part, 0)),
            Effect::TornWrite(tear) => {
                let sectors = part.start.div_ceil(SECTOR_BYTES) as u8..(part.end / SECTOR_BYTES) as u8;
                old(!tear.stored(sectors)?)
            }
            Effect::StaleRead => previous.cloned(),
            Effect::Error { .. }
            | Effect::ReadOnly
            | Effect::Gone
            | Effect::PowerCut(_)
            | Effect::Delay(_)
            | Effect::Bandwidth(_)
            | Effect::Hang(_) => None,
        }
    }

    /// The bytes of a block that a write replaces, if the caller has read them.
    pub(crate) fn old_bytes<'a>(
        &self,
        block: u64,
        part: &Range<usize>,
        stale: &'a [Piece],
    ) -> Option<&'a [u8]> {
        let start = extent(block, self.engine.device_size).start + part.start as u64;
        stale.iter().find_map(|piece| {
            let from = usize::try_from(start.checked_sub(piece.offset)?).ok()?;
            piece.bytes.get(from..from + part.len())
        })
    }
}

impl Scratch {
    fn find_rules(&mut self, table: &Table, tagged: &[u32], blocks: &Range<u64>, has_place: bool) {
        self.rules.clear();
        self.rules.extend_from_slice(&table.always);
        if !tagged.is_empty() {
            self.rules.extend_from_slice(tagged);
            self.rules.sort_unstable();
        }
        if let (true, Some(places)) = (has_place, &table.places) {
            places.intervals.find(blocks.clone(), |rule| self.rules.push(rule));
            // A rule with several ranges is found for each of them.
            self.rules.sort_unstable();
            self.rules.dedup();
        }
    }

    fn evaluate_rules(&mut self, index: &Index, header: &Header, decided: &mut Decided) {
        for &number in &self.rules {
            let rule = &index.rules[number as usize];
            match &rule.aims().places {
                Some(places) => self.matched.extend(places.within(header.blocks())),
                None if header.length > 0 => self.matched.push(header.blocks()),
                None => {}
            }
            rule.evaluate(header, &mut self.matched, |_| None, decided);
        }
    }

    fn find_contents(&mut self, table: &Table, header: &Header, data: &[u8]) {
        self.contents.clear();
        let Some(contents) = &table.contents else { return };
        if header.operation == Operation::WriteZeroes {
            let content = zeros_hash();
            for &rule in contents.find(content) {
                self.contents.extend(header.full_blocks().map(|block| WantedContent {
                    rule,
                    block,
                    content,
                }));
            }
        } else {
            for block in header.full_blocks() {
                let data = &data[header.in_buffer(block)];
                if !contents.may_want(data) {
                    continue;
                }
                let content = ContentHash::of(data);
                self.contents.extend(contents.find(content).iter().map(|&rule| WantedContent {
                    rule,
                    block,
                    content,
                }));
            }
        }
        if self.contents.len() > 1 {
            self.contents.sort_unstable();
        }
    }

    fn evaluate_contents(&mut self, index: &Index, header: &Header, decided: &mut Decided) {
        for wanted in self.contents.chunk_by(|one, other| one.rule == other.rule) {
            let rule = &index.rules[wanted[0].rule as usize];
            self.matched.extend(
                wanted
                    .iter()
                    .map(|wanted| wanted.block)
                    .filter(|block| rule.aims().covers(*block))
                    .map(|block| block..block + 1),
            );
            let content = |block: u64| {
                let at = wanted.binary_search_by_key(&block, |wanted| wanted.block).ok()?;
                Some(wanted[at].content)
            };
            rule.evaluate(header, &mut self.matched, content, decided);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineOptions;
    use crate::resolved::ResolvedRule;
    use crate::rule::Rule;
    use rotproof_block::{Context, Phase};

    fn engine(rules: impl Iterator<Item = String>) -> Arc<Engine> {
        let rules: Vec<ResolvedRule> =
            rules.map(|text| text.parse::<Rule>().expect("a rule").into()).collect();
        // So large that one bit of the coarse map stands for many blocks.
        Engine::new(rules, EngineOptions { seed: 1, device_size: 1 << 40 })
    }

    fn header(operation: Operation, block: u64, blocks: u64) -> Header {
        let context = Context { phase: Phase::Run, ..Context::default() };
        Header { operation, offset: block * 4096, length: blocks * 4096, context }
    }

    #[test]
    fn of_ten_thousand_rules_for_other_blocks_none_is_looked_at() {
        let evaluator = engine((0..10_000u64).map(|n| format!("offset={}: error", n * 2 * 4096))).gate();
        let evaluator = evaluator.evaluator();
        for block in [1, 9_999, 19_999, 1 << 27] {
            for operation in [Operation::Read, Operation::WRITE] {
                let decision = evaluator.decide(&header(operation, block, 1), &[0; 4096]);
                assert!(matches!(decision, Decision::Pass), "block {block}");
                assert!(evaluator.scratch.borrow().rules.is_empty());
            }
        }
        let hit = evaluator.decide(&header(Operation::Read, 4_001, 2), &[]);
        assert!(matches!(hit, Decision::Act(_)));
        assert_eq!(evaluator.scratch.borrow().rules, [2_001]);
    }

    #[test]
    fn of_ten_thousand_rules_for_other_contents_none_is_looked_at() {
        let evaluator = engine((0..10_000u64).map(|n| {
            let content = ContentHash::of(&n.to_le_bytes());
            format!("content={content}: error")
        }))
        .gate();
        let evaluator = evaluator.evaluator();
        let payload = vec![7; 32 * 4096];
        assert!(matches!(evaluator.decide(&header(Operation::WRITE, 0, 32), &payload), Decision::Pass));
        assert!(evaluator.scratch.borrow().contents.is_empty());
        // Of a read it takes the data to know.
        assert!(matches!(evaluator.decide(&header(Operation::Read, 0, 32), &[]), Decision::Look(_)));
        // What carries no data is not asked about.
        assert!(matches!(evaluator.decide(&header(Operation::Discard, 0, 32), &[]), Decision::Pass));
        assert!(matches!(evaluator.decide(&header(Operation::Flush, 0, 0), &[]), Decision::Pass));
    }
}
