//! Carrying out what was decided: distorting data, laying corruptions, and recording each hit.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rotproof_block::{Buffer, ContentHash, Operation, Time};

use crate::BLOCK_BYTES;
use crate::active_rule::ActiveRule;
use crate::block_state::{BlockState, PlaceAims, StickyFault, StickyKind, WrongPlace};
use crate::corruption::{ALL_SECTORS, Corruption};
use crate::decided::{BlockHit, Decided, RequestHit, Rewritten};
use crate::effect::Effect;
use crate::errno::Errno;
use crate::evaluator::{Evaluator, Piece};
use crate::geometry::{Header, extent};
use crate::hang::Hang;
use crate::index::Index;
use crate::matching::OperationKind;
use crate::record::{BlockContent, Injection, SECTORS, Visit, sector_hashes};
use crate::zeros::{ZEROS, zeros_hash};

/// What is left to do with a read that has come back.
#[derive(Debug, Default)]
pub(crate) struct ReadOutcome {
    /// It is to fail with this error.
    pub(crate) failure: Option<Errno>,
    /// If it fails: whether it brings what could be read all the same.
    pub(crate) transfers: bool,
    /// It is to take that much longer.
    pub(crate) delay: Option<Duration>,
    /// What holds it back after that, one after the other.
    pub(crate) hangs: Vec<Hang>,
}

/// A request that has succeeded below, with what the caller has read for it.
#[derive(Clone, Copy)]
struct Done<'a> {
    header: &'a Header,
    /// What the request goes by.
    rules: &'a Index,
    stale: &'a [Piece],
    edges: &'a [Piece],
    /// What the request holds beside its bad blocks, until the first of them is recorded.
    neighbours: &'a RefCell<Vec<BlockContent>>,
    now: Time,
}

impl Evaluator {
    /// Finishes a write, write of zeros or discard that has succeeded below: forgets the corruptions of what was
    /// overwritten and lays those that were decided, if only by which rules. `payload` is the data of a write, empty
    /// otherwise; `stale` what was read for [`Decided::lost_ranges`], `edges` for [`Evaluator::edges`].
    pub(crate) fn mutation_done(
        &self,
        header: &Header,
        decided: &Decided,
        payload: &[u8],
        stale: &[Piece],
        edges: &[Piece],
        now: Time,
    ) {
        let Decided { rules, blocks: hits, watched, rewritten, .. } = decided;
        let mut states = self.engine.overlay.lock();
        // A place that is known to be bad is remapped below, one that nobody has noticed here.
        let is_noticed = |one: &Rewritten| {
            let mut state = states.within(one.block..one.block + 1);
            state.any(|(_, state)| state.has_place_of(one.rule))
        };
        let (noticed, unnoticed): (Vec<&Rewritten>, Vec<_>) =
            rewritten.iter().filter(|one| rules.index().acts(one.rule)).partition(|one| is_noticed(one));
        let rule = |one: &Rewritten| rules.index().rule(one.rule);
        unnoticed.iter().filter(|one| rule(one).remaps()).for_each(|one| rule(one).heal(one.block));
        let neighbours = RefCell::new(self.neighbours(header, hits, payload));
        let done = Done { header, rules: rules.index(), stale, edges, neighbours: &neighbours, now };
        let touched = states.within(header.blocks()).map(|(block, _)| block);
        let concerned = concerned_blocks(header, &mut touched.chain(watched.iter().cloned().flatten()), hits);
        for (block, hits) in concerned {
            states.update(block, |state| {
                if watched.iter().any(|range| range.contains(&block)) {
                    let part = header.part(block);
                    let old = self.old_bytes(block, &part, stale);
                    state.previous = old.map(|bytes| Box::new(Corruption::old(part, bytes, ALL_SECTORS)));
                }
                self.overwrite_block(state, done, block, hits, payload);
            });
        }
        for one in noticed {
            let mut state = states.within(one.block..one.block + 1);
            if !state.any(|(_, state)| state.has_place_of(one.rule)) {
                rule(one).heal(one.block);
            }
        }
        for hit in hits {
            let landing = hit.effect.lands_on(hit.block, self.engine.device_blocks());
            if let Some(landing) = landing.filter(|&landing| landing != hit.block) {
                states.update(landing, |state| self.damage_landing_block(state, done, hit, landing, payload));
            }
        }
    }

    /// A misdirected write has landed on `landing`.
    fn damage_landing_block(
        &self,
        state: &mut BlockState,
        done: Done<'_>,
        hit: &BlockHit,
        landing: u64,
        payload: &[u8],
    ) {
        let extent = extent(landing, self.engine.device_size);
        let part = done.header.part(hit.block);
        let part = part.start..part.end.min((extent.end - extent.start) as usize);
        if part.is_empty() {
            return;
        }
        let landed = match done.header.operation {
            Operation::Write { .. } => payload.get(done.header.in_buffer(hit.block)),
            _ => ZEROS.get(part.clone()),
        };
        let Some(landed) = landed.and_then(|bytes| bytes.get(..part.len())) else { return };
        state.corruptions.push(Corruption::old(part.clone(), landed, ALL_SECTORS));
        let truth = self.truth(done, landing, payload);
        // The decision stands in the record of the block that should have been written.
        let cause = Cause { visit: None, ..Cause::of(hit, done.rules) };
        let mut record = record_of(done.header, cause, &self.engine.site, done.now);
        record.offset = extent.start + part.start as u64;
        record.length = part.len() as u64;
        record.before = truth.map(ContentHash::of);
        let after = truth.map(|truth| self.distorted(state, done.rules, truth));
        (record.after, record.after_sectors) = After::parts(after);
        record.of_load = truth.and_then(|truth| self.engine.recognise(truth));
        cause.rule.count_hit(&hit.aims);
        let before = record.before;
        let number = self.engine.ledger().append(&record, 1);
        if let Some(truth) = before {
            state.add_unrepaired(number, truth, (true, false));
        }
    }

    fn overwrite_block(
        &self,
        state: &mut BlockState,
        done: Done<'_>,
        block: u64,
        hits: &[BlockHit],
        payload: &[u8],
    ) {
        let Done { header, rules, stale, .. } = done;
        let truth = self.truth(done, block, payload);
        let truth_hash = truth.map(ContentHash::of);
        let part = header.part(block);
        state.overwrite(&part);
        if part.len() as u64 == extent(block, self.engine.device_size).end - block * BLOCK_BYTES {
            for record in state.remap(rules) {
                self.engine.ledger().block_replaced(record, Some(done.now.0));
            }
        }
        // A hit may come to nothing: a write too small to tear, a place that is bad already.
        let is_sticky = |hit: &BlockHit| rules.rule(hit.rule).is_sticky();
        let is_new =
            |hit: &&BlockHit| !(is_sticky(hit) && hit.effect.distorts() && state.has_place_of(hit.rule));
        let hits = hits.iter().filter(is_new);
        let corruptions: Vec<(&BlockHit, Corruption)> =
            hits.filter_map(|hit| Some((hit, self.corruption_of(hit, header, stale, None)?))).collect();
        let keeps_old = corruptions.iter().any(|(hit, _)| hit.effect.keeps_old());
        self.settle_repairs(state, done, (!corruptions.is_empty(), keeps_old), truth_hash);
        let is_recorded = !corruptions.is_empty() || state.shows_new(rules, truth_hash);
        let of_load = if is_recorded { truth.and_then(|truth| self.engine.recognise(truth)) } else { None };
        for (hit, corruption) in corruptions {
            let effect = hit.effect;
            let is_wrong_place = is_sticky(hit) && effect.distorts();
            if is_wrong_place {
                let mut wrong = WrongPlace::new(effect, corruption);
                wrong.set_recorded(truth_hash);
                state.sticky.push(place_of(hit, StickyKind::Wrong(Box::new(wrong))));
            } else {
                state.corruptions.push(corruption);
                if is_sticky(hit) && !state.has_place_of(hit.rule) {
                    state.sticky.push(place_of(hit, StickyKind::Again));
                }
            }
            let after = truth
                .filter(|_| effect != Effect::MediumError)
                .map(|truth| self.distorted(state, done.rules, truth));
            let found = Found { before: truth_hash, after, of_load, is_served: false };
            let record = self.record_block(done, block, Cause::of(hit, rules), found);
            if !is_wrong_place && let Some(truth) = truth_hash {
                // In a place that stays bad nothing counts as put right, but somebody may read it.
                let is_beyond_repair = is_sticky(hit);
                state.add_unrepaired(record, truth, (true, is_beyond_repair));
            }
            if is_wrong_place
                && let Some(StickyFault { kind: StickyKind::Wrong(wrong), .. }) = state.sticky.last_mut()
            {
                wrong.record = record;
            }
        }
        // A place that was bad before now distorts other content.
        let after = truth
            .filter(|_| state.has_wrong_place(rules))
            .map(|truth| self.distorted(state, done.rules, truth));
        for place in state.sticky.iter_mut().filter(|place| rules.acts(place.rule)) {
            let StickyKind::Wrong(wrong) = &mut place.kind else { continue };
            if truth_hash.is_none() {
                continue;
            }
            let rule = rules.rule(place.rule);
            let is_concerned = wrong.corruption.touches(&part)
                && rule.rule.concerns_operation(OperationKind::from(header.operation));
            if is_concerned && !wrong.has_recorded(truth_hash) {
                wrong.set_recorded(truth_hash);
                let cause = Cause { rule, aims: place.aims.as_slice(), effect: wrong.effect, visit: None };
                let found = Found { before: truth_hash, after, of_load, is_served: false };
                self.engine.ledger().block_replaced(wrong.record, Some(done.now.0));
                (wrong.record, wrong.is_served) = (self.record_block(done, block, cause, found), false);
            }
        }
    }

    /// Marks the records whose damage this write has put right.
    fn settle_repairs(
        &self,
        state: &mut BlockState,
        done: Done<'_>,
        (is_hit, keeps_old): (bool, bool),
        truth: Option<ContentHash>,
    ) {
        if state.unrepaired.is_empty() {
            return;
        }
        let is_clean = !is_hit && state.corruptions.is_empty() && !state.has_wrong_place(done.rules);
        // New damage is not among the corruptions yet. If that is what was there before, so is the old.
        let is_gone = state.corruptions.is_empty() && !keeps_old;
        let ledger = self.engine.ledger();
        state.unrepaired.retain_mut(|unrepaired| {
            let is_right = truth.is_some() && unrepaired.is_of(truth) && !unrepaired.is_beyond_repair;
            if is_right && is_clean {
                unrepaired.records.iter().for_each(|record| ledger.block_repaired(record, done.now.0));
                return false;
            }
            if is_right && !is_hit {
                // The right bytes in part, with corruptions left in the rest: it may still be put right.
                return true;
            }
            let gone_at = is_gone.then_some(done.now.0);
            unrepaired.records.iter().for_each(|record| ledger.block_replaced(record, gone_at));
            unrepaired.is_beyond_repair = true;
            !is_gone && unrepaired.is_unread
        });
    }

    /// Finishes a read that has succeeded below: records its errors and delays, and unless it fails makes `data`
    /// what the reader is to see. `decided` is what was decided before, if only by which rules; `edges` what was read
    /// for [`Evaluator::edges`].
    pub(crate) fn read_done(
        &self,
        header: &Header,
        decided: &mut Decided,
        data: &mut [u8],
        edges: &[Piece],
        now: Time,
    ) -> ReadOutcome {
        self.decide_on_content(header, data, decided);
        self.record_requests(header, decided, data, now);
        let failure = decided.failure();
        let outcome = ReadOutcome {
            failure: failure.or(decided.late_failure()),
            transfers: failure.is_none(),
            delay: decided.delay(),
            hangs: self.hangs(decided),
        };
        let is_touched = self.engine.overlay.touches(&header.blocks());
        if failure.is_none() && (is_touched || !decided.blocks.is_empty()) {
            let neighbours = RefCell::new(self.neighbours(header, &decided.blocks, data));
            let mut states = self.engine.overlay.lock();
            let touched = states.within(header.blocks()).map(|(block, _)| block);
            let concerned = concerned_blocks(header, &mut { touched }, &decided.blocks);
            let rules = decided.rules.index();
            let done = Done { header, rules, stale: &[], edges, neighbours: &neighbours, now };
            let mut to = Reader { data, delivers: outcome.failure.is_none() };
            for (block, hits) in concerned {
                states.update(block, |state| self.show_block(state, done, block, hits, &mut to));
            }
        }
        outcome
    }

    fn show_block(
        &self,
        state: &mut BlockState,
        done: Done<'_>,
        block: u64,
        hits: &[BlockHit],
        to: &mut Reader<'_>,
    ) {
        let Done { header, rules, .. } = done;
        let Reader { data, delivers } = to;
        let delivers = *delivers;
        let part = header.part(block);
        let start = part.start;
        let range = header.in_buffer(block);
        if delivers && state.corruptions.iter().any(|corruption| corruption.touches(&part)) {
            for unrepaired in state.unrepaired.iter_mut().filter(|unrepaired| unrepaired.is_unread) {
                unrepaired.is_unread = false;
                let ledger = self.engine.ledger();
                unrepaired.records.iter().for_each(|record| ledger.served(record, done.now.0));
            }
        }
        if hits.is_empty() && !state.has_wrong_place(rules) {
            return state.distort(rules, start, &mut data[range]);
        }
        let truth = self.truth(done, block, data);
        let before = truth.map(ContentHash::of);
        let is_recorded = !hits.is_empty() || state.shows_new(rules, before);
        let of_load = if is_recorded { truth.and_then(|truth| self.engine.recognise(truth)) } else { None };
        // Where the reader does not see the whole block, that for the ledger goes the same way.
        let is_whole = truth.is_some_and(|truth| truth.len() == part.len());
        let mut image = truth.filter(|_| !is_whole).map(Buffer::copy_of);
        let mut show = |corruption: &Corruption| {
            let shown = &mut data[range.clone()];
            corruption.apply(start, shown);
            let after = match &mut image {
                _ if is_whole => Some(self.after(shown)),
                Some(image) => {
                    corruption.apply(0, image);
                    Some(self.after(image))
                }
                None => None,
            };
            (before, after)
        };
        for corruption in state.corruptions.iter() {
            show(corruption);
        }
        for place in state.sticky.iter_mut().filter(|place| rules.acts(place.rule)) {
            let StickyKind::Wrong(wrong) = &mut place.kind else { continue };
            let (before, after) = show(&wrong.corruption);
            if !wrong.corruption.touches(&part) {
                continue;
            }
            if before.is_some() && !wrong.has_recorded(before) {
                wrong.set_recorded(before);
                let rule = rules.rule(place.rule);
                let cause = Cause { rule, aims: place.aims.as_slice(), effect: wrong.effect, visit: None };
                let found = Found { before, after, of_load, is_served: delivers };
                wrong.record = self.record_block(done, block, cause, found);
                wrong.is_served = delivers;
            } else if delivers && !wrong.is_served {
                wrong.is_served = true;
                self.engine.ledger().served(wrong.record, done.now.0);
            }
        }
        for hit in hits {
            let Some(corruption) = self.corruption_of(hit, header, &[], state.previous.as_deref()) else {
                continue;
            };
            let effect = hit.effect;
            if state.is_distorted_by(hit.rule) {
                continue;
            }
            let (before, mut after) = show(&corruption);
            if effect == Effect::MediumError {
                after = None;
            }
            let is_served = delivers && effect != Effect::MediumError;
            let found = Found { before, after, of_load, is_served };
            let record = self.record_block(done, block, Cause::of(hit, rules), found);
            if rules.rule(hit.rule).is_sticky() {
                if !state.has_place_of(hit.rule) {
                    let kind = if effect.distorts() {
                        let mut wrong = WrongPlace::new(effect, corruption);
                        wrong.set_recorded(before);
                        (wrong.record, wrong.is_served) = (record, is_served);
                        StickyKind::Wrong(Box::new(wrong))
                    } else {
                        StickyKind::Again
                    };
                    state.sticky.push(place_of(hit, kind));
                }
            } else if let Some(truth) = before {
                state.add_unrepaired(record, truth, (false, false));
            }
        }
    }

    /// The whole of `block` as it should be, if it is known.
    fn truth<'a>(&self, done: Done<'a>, block: u64, payload: &'a [u8]) -> Option<&'a [u8]> {
        let header = done.header;
        let extent = extent(block, self.engine.device_size);
        if header.offset <= extent.start && header.end() >= extent.end {
            return match header.operation {
                Operation::Read | Operation::Write { .. } => payload.get(header.in_buffer(block)),
                Operation::WriteZeroes => ZEROS.get(..(extent.end - extent.start) as usize),
                Operation::Discard | Operation::Flush => None,
            };
        }
        done.edges.iter().find(|piece| piece.offset == extent.start).map(|piece| &*piece.bytes)
    }

    /// Records what hits the whole request: errors, delays, a device that goes. `data` is what a write carries or a read has brought.
    pub(crate) fn record_requests(&self, header: &Header, decided: &Decided, data: &[u8], now: Time) {
        if decided.requests.is_empty() {
            return;
        }
        let contents = self.contents_of(header, data);
        let mut states = self.engine.overlay.lock();
        for hit in &decided.requests {
            let RequestHit { rule, aims, visit, .. } = hit;
            let (effect, position) = (hit.effect, rule.position());
            let rule = rule.rule(decided.rules.index());
            let is_repairable = matches!(effect, Effect::Error { .. }) && !rule.is_sticky();
            let mut record =
                record_of(header, Cause { rule, aims, effect, visit: *visit }, &self.engine.site, now);
            record.blocks.clone_from(&contents);
            let repairable_blocks = if is_repairable { contents.len() } else { 0 };
            let sequence = self.engine.ledger().append(&record, repairable_blocks);
            rule.count_hit(&hit.aims);
            if effect == Effect::ReadOnly || effect.takes_device() {
                let is_first = rule.latch();
                self.engine.has_latched.store(true, Ordering::Relaxed);
                if let (Effect::PowerCut(cut), true) = (effect, is_first) {
                    self.engine.cut_power(rule, cut);
                }
            }
            if is_repairable {
                for &BlockContent { offset, content: truth, .. } in &contents {
                    let add = |state: &mut BlockState| state.add_unrepaired(sequence, truth, (false, false));
                    states.update(offset / BLOCK_BYTES, add);
                }
            }
            if rule.is_sticky() {
                for block in hit.matched.iter().cloned().flatten() {
                    states.update(block, |state| {
                        if !state.has_place_of(position) {
                            let aims = PlaceAims::from(&hit.aims[..]);
                            let kind = StickyKind::Request;
                            state.sticky.push(StickyFault { rule: position, aims, kind });
                        }
                    });
                }
            }
        }
    }

    fn record_block(&self, done: Done<'_>, block: u64, cause: Cause<'_>, found: Found) -> u64 {
        let part = done.header.part(block);
        let mut record = record_of(done.header, cause, &self.engine.site, done.now);
        record.offset = block * BLOCK_BYTES + part.start as u64;
        record.length = part.len() as u64;
        record.before = found.before;
        (record.after, record.after_sectors) = After::parts(found.after);
        record.of_load = found.of_load;
        if cause.effect == Effect::MediumError {
            record.neighbours = done.neighbours.take();
        }
        record.served_at_ns = found.is_served.then_some(done.now.0);
        cause.rule.count_hit(cause.aims);
        self.engine.ledger().append(&record, 1)
    }

    /// What the request's whole blocks hold or would have held.
    fn contents_of(&self, header: &Header, data: &[u8]) -> Vec<BlockContent> {
        let block_content = |block: u64| {
            let (content, of_load) = match header.operation {
                Operation::Read | Operation::Write { .. } => {
                    let bytes = data.get(header.in_buffer(block))?;
                    (ContentHash::of(bytes), self.engine.recognise(bytes))
                }
                Operation::WriteZeroes => (zeros_hash(), None),
                Operation::Flush | Operation::Discard => return None,
            };
            Some(BlockContent { offset: block * BLOCK_BYTES, content, of_load })
        };
        header.full_blocks().filter_map(block_content).collect()
    }

    /// What a request that a bad block among `hits` fails holds beside that block.
    fn neighbours(&self, header: &Header, hits: &[BlockHit], data: &[u8]) -> Vec<BlockContent> {
        let bad = |block: u64| hits.iter().any(|hit| hit.block == block && hit.effect == Effect::MediumError);
        let blocks = header.blocks();
        if blocks.end - blocks.start <= 1 || !blocks.clone().any(bad) {
            return Vec::new();
        }
        let mut contents = self.contents_of(header, data);
        contents.retain(|content| !bad(content.offset / BLOCK_BYTES));
        contents
    }
}

/// What the ledger is told of a block that was hit.
#[derive(Clone, Copy)]
struct Found {
    before: Option<ContentHash>,
    after: Option<After>,
    /// Whether the load has made `before`.
    of_load: Option<bool>,
    /// A read that succeeds brings `after`.
    is_served: bool,
}

/// Who gets what a block shows.
struct Reader<'a> {
    data: &'a mut [u8],
    /// Whether the read succeeds.
    delivers: bool,
}

/// Why something is recorded.
#[derive(Clone, Copy)]
struct Cause<'a> {
    rule: &'a ActiveRule,
    aims: &'a [u32],
    effect: Effect,
    visit: Option<Visit>,
}

impl<'a> Cause<'a> {
    fn of(hit: &'a BlockHit, rules: &'a Index) -> Self {
        Self { rule: rules.rule(hit.rule), aims: &hit.aims, effect: hit.effect, visit: hit.visit }
    }
}

/// The block that a sticky rule has hit is bad from now on.
fn place_of(hit: &BlockHit, kind: StickyKind) -> StickyFault {
    StickyFault { rule: hit.rule, aims: PlaceAims::from(&hit.aims[..]), kind }
}

/// A record of a hit on the whole request, which the ledger will number.
fn record_of(
    header: &Header,
    Cause { rule, aims, effect, visit }: Cause<'_>,
    site: &Arc<str>,
    now: Time,
) -> Injection {
    Injection {
        sequence: 0,
        rule: rule.number,
        name: Arc::clone(&rule.name),
        on: Arc::clone(site),
        target: rule.key(aims.first().copied()),
        operation: header.operation.into(),
        offset: header.offset,
        length: header.length,
        effect,
        time_ns: now.0,
        phase: header.context.phase,
        visit,
        request: header.context.id,
        tag: Cow::Borrowed(header.context.tag.name()),
        before: None,
        after: None,
        after_sectors: None,
        blocks: Vec::new(),
        repaired_at_ns: None,
        served_at_ns: None,
        replaced_at_ns: None,
        of_load: None,
        neighbours: Vec::new(),
    }
}

/// What a block reads as.
#[derive(Clone, Copy)]
struct After {
    hash: ContentHash,
    /// Of each of its sectors, where the ledger is to have them.
    sectors: Option<[u32; SECTORS]>,
}

impl After {
    fn parts(after: Option<Self>) -> (Option<ContentHash>, Option<[u32; SECTORS]>) {
        (after.map(|after| after.hash), after.and_then(|after| after.sectors))
    }
}

impl Evaluator {
    fn after(&self, image: &[u8]) -> After {
        let sectors =
            self.engine.keeps_sectors.load(Ordering::Relaxed).then(|| sector_hashes(image)).flatten();
        After { hash: ContentHash::of(image), sectors }
    }

    /// What `truth` reads as in that block.
    fn distorted(&self, state: &BlockState, rules: &Index, truth: &[u8]) -> After {
        if state.reads_as_zeros(rules, truth.len()) && !self.engine.keeps_sectors.load(Ordering::Relaxed) {
            return After { hash: zeros_hash(), sectors: None };
        }
        let mut image = Buffer::copy_of(truth);
        state.distort(rules, 0, &mut image);
        self.after(&image)
    }
}

/// The blocks that have a state or are hit, in order, each with its hits; `hits` are sorted by block.
fn concerned_blocks<'a>(
    header: &Header,
    touched: &mut dyn Iterator<Item = u64>,
    hits: &'a [BlockHit],
) -> impl Iterator<Item = (u64, &'a [BlockHit])> + use<'a> {
    let blocks = header.blocks();
    let is_one = blocks.end == blocks.start + 1 && !hits.is_empty();
    let mut several: Vec<u64> = Vec::new();
    if !is_one {
        several.extend(touched.chain(hits.iter().map(|hit| hit.block)));
        several.sort_unstable();
        several.dedup();
    }
    let mut rest = hits;
    is_one.then_some(blocks.start).into_iter().chain(several).map(move |block| {
        let count = rest.partition_point(|hit| hit.block <= block);
        let (own, others) = rest.split_at(count);
        rest = others;
        (block, own)
    })
}
