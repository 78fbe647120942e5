//! The model: what the documentation says, in the most obvious way.

use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Operation, Phase};
use rotproof_fault::{
    Bits, By, Delay, Direction, Draw, Effect, Moment, NewPart, OperationKind, Persistence, Rule, RuleState,
    Seen, SeenBlock, Target, Tear,
};
use rotproof_spec::{ByteRange, End};

use crate::carrier::Outcome;
use crate::cases::{Ask, DEVICE_BYTES};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = DEVICE_BYTES.div_ceil(BLOCK);
const SECTOR: usize = crate::cases::SECTOR as usize;

/// What of a record the model knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub rule: usize,
    pub operation: OperationKind,
    pub offset: u64,
    pub length: u64,
    pub effect: Effect,
    pub phase: Phase,
    pub time_ns: u64,
    pub before: Option<ContentHash>,
    pub after: Option<ContentHash>,
    pub blocks: Vec<(u64, ContentHash)>,
    pub repaired_at_ns: Option<u64>,
}

impl Record {
    pub fn of(record: &rotproof_fault::Record) -> Self {
        Self {
            rule: record.rule as usize,
            operation: record.operation,
            offset: record.offset,
            length: record.length,
            effect: record.effect,
            phase: record.phase,
            time_ns: record.time_ns,
            before: record.before,
            after: record.after,
            blocks: record.blocks.iter().map(|block| (block.offset, block.content)).collect(),
            repaired_at_ns: record.repaired_at_ns,
        }
    }
}

/// A block that a sticky rule has left bad.
struct Place {
    rule: usize,
    block: u64,
    /// For data: the bytes it acts on, and the last content recorded.
    range: std::ops::Range<usize>,
    recorded: Option<ContentHash>,
}

/// What a rule has chosen.
#[derive(Clone, Copy)]
enum Chosen {
    Place(u64),
    Content(ContentHash),
}

pub struct Model {
    rules: Vec<Rule>,
    chosen: Vec<Option<Chosen>>,
    /// Reads and writes that a rule has waited for.
    awaited: Vec<u64>,
    /// Blocks written since a rule waits for the last, and contents since one waits for the last of those, or for how
    /// often each was written.
    written: Vec<u64>,
    contents: Vec<ContentHash>,
    counted: Vec<ContentHash>,
    /// When time began.
    begin_ns: Option<u64>,
    pub states: Vec<RuleState>,
    pub matches: Vec<u64>,
    pub records: Vec<Record>,
    /// The device as it should be.
    truth: Vec<u8>,
    /// The device as it reads, but for sticky places.
    shown: Vec<u8>,
    /// Which bytes of `shown` are the doing of a fault.
    lying: Vec<bool>,
    places: Vec<Place>,
    bad_flush: Vec<bool>,
    /// For each block that a stale read watches: the bytes that the last write replaced, and what they were.
    previous: Vec<Option<(std::ops::Range<usize>, Vec<u8>)>>,
    /// Record, block and true content of damage that may be put right.
    unrepaired: Vec<(usize, u64, ContentHash)>,
}

impl Model {
    pub fn new(rules: &[Rule]) -> Self {
        let size = DEVICE_BYTES as usize;
        Self {
            rules: rules.to_vec(),
            chosen: vec![None; rules.len()],
            awaited: vec![0; rules.len()],
            written: Vec::new(),
            contents: Vec::new(),
            counted: Vec::new(),
            begin_ns: None,
            states: vec![RuleState::Active; rules.len()],
            matches: vec![0; rules.len()],
            records: Vec::new(),
            truth: vec![0; size],
            shown: vec![0; size],
            lying: vec![false; size],
            places: Vec::new(),
            bad_flush: vec![false; rules.len()],
            previous: vec![None; BLOCKS as usize],
            unrepaired: Vec::new(),
        }
    }

    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// What the rule with that number is called: none of them has a name of its own.
    pub fn name(rule: usize) -> String {
        format!("fault-{}", rule + 1)
    }

    pub fn add(&mut self, rule: &Rule) -> String {
        if rule.effect == Effect::StaleRead {
            self.begin_to_watch();
        }
        self.rules.push(rule.clone());
        self.states.push(RuleState::Active);
        self.matches.push(0);
        self.bad_flush.push(false);
        self.chosen.push(None);
        self.awaited.push(0);
        Self::name(self.rules.len() - 1)
    }

    /// False if the rule is gone.
    pub fn set_state(&mut self, rule: usize, state: RuleState) -> bool {
        if self.states[rule] == RuleState::Removed {
            return false;
        }
        let begins = state == RuleState::Active && !self.acts(rule);
        if begins && self.rules[rule].effect == Effect::StaleRead {
            self.begin_to_watch();
        }
        self.states[rule] = state;
        self.forget_unless_awaited();
        true
    }

    /// What nobody has watched so far is not known to be what was there before the last write.
    fn begin_to_watch(&mut self) {
        for block in 0..BLOCKS {
            if !self.is_watched(block) {
                self.previous[block as usize] = None;
            }
        }
    }

    fn is_watched(&self, block: u64) -> bool {
        (0..self.rules.len()).any(|rule| {
            let is_stale = self.rules[rule].effect == Effect::StaleRead;
            is_stale && self.acts(rule) && in_places(&self.rules[rule], block)
        })
    }

    fn acts(&self, rule: usize) -> bool {
        self.states[rule] == RuleState::Active
    }

    /// The rules that wait to choose.
    fn waiting(&self) -> Vec<(usize, Seen)> {
        let seen = |rule: usize| match self.rules[rule].matching.target {
            Some(Target::Seen(seen)) if self.acts(rule) && self.chosen[rule].is_none() => Some((rule, seen)),
            _ => None,
        };
        (0..self.rules.len()).filter_map(seen).collect()
    }

    fn forget_unless_awaited(&mut self) {
        let awaited: Vec<SeenBlock> = self.waiting().into_iter().map(|(_, seen)| seen.block).collect();
        if !awaited.contains(&SeenBlock::LastWritten { by: By::Place }) {
            self.written.clear();
        }
        if !awaited.contains(&SeenBlock::LastWritten { by: By::Content }) {
            self.contents.clear();
        }
        let counts =
            |block: &SeenBlock| matches!(block, SeenBlock::MostDuplicated { .. } | SeenBlock::Unique { .. });
        if !awaited.iter().any(counts) {
            self.counted.clear();
        }
    }

    fn observe(&mut self, ask: &Ask, time_ns: u64) {
        let goes_by_time = |rule: &Rule| {
            matches!(rule.matching.target, Some(Target::Seen(Seen { moment: Moment::At(_), .. })))
        };
        let has_clock = (0..self.rules.len()).any(|rule| self.acts(rule) && goes_by_time(&self.rules[rule]));
        if has_clock && ask.phase == Phase::Run {
            self.begin_ns.get_or_insert(time_ns);
        }
        let is_write = matches!(ask.operation, Operation::Write { .. } | Operation::WriteZeroes);
        let content =
            ContentHash::of(&[if ask.operation == Operation::WRITE { ask.fill } else { 0 }; BLOCK as usize]);
        let written: Vec<(u64, Option<ContentHash>)> = touched(ask)
            .filter(|_| is_write)
            .map(|block| (block, (part(ask, block).len() as u64 == BLOCK).then_some(content)))
            .collect();
        for (rule, seen) in self.waiting() {
            let is_awake = self.rules[rule].during.iter().any(|phase| Phase::from(*phase) == ask.phase);
            if !is_awake || !(is_write || ask.operation == Operation::Read) {
                continue;
            }
            self.awaited[rule] += 1;
            let has_come = match seen.moment {
                Moment::After(requests) => self.awaited[rule] > requests,
                Moment::At(at) => {
                    self.begin_ns.is_some_and(|begin| u128::from(time_ns - begin) >= at.0.as_nanos())
                }
            };
            if has_come {
                self.chosen[rule] = self.choice(seen.block, &written);
            }
        }
        if ask.phase != Phase::Setup {
            for (place, content) in written {
                self.written.push(place);
                self.contents.extend(content);
                self.counted.extend(content);
            }
        }
        self.forget_unless_awaited();
    }

    fn choice(&self, block: SeenBlock, written: &[(u64, Option<ContentHash>)]) -> Option<Chosen> {
        let count = |content: &ContentHash| self.counted.iter().filter(|other| *other == content).count();
        let is_free = |content: &ContentHash, apart: bool| {
            let is_chosen =
                |chosen: &Option<Chosen>| matches!(chosen, Some(Chosen::Content(other)) if other == content);
            !apart || !self.chosen.iter().any(is_chosen)
        };
        Some(match block {
            SeenBlock::MostDuplicated { apart } => {
                let wanted =
                    self.counted.iter().filter(|content| count(content) > 1 && is_free(content, apart));
                Chosen::Content(*wanted.max_by_key(|content| (count(content), std::cmp::Reverse(**content)))?)
            }
            SeenBlock::Unique { apart } => {
                let wanted =
                    self.counted.iter().filter(|content| count(content) == 1 && is_free(content, apart));
                Chosen::Content(*wanted.min()?)
            }
            SeenBlock::LastWritten { by: By::Place } => Chosen::Place(*self.written.last()?),
            SeenBlock::LastWritten { by: By::Content } => Chosen::Content(*self.contents.last()?),
            SeenBlock::NextWritten { by: By::Place } => Chosen::Place(written.first()?.0),
            SeenBlock::NextWritten { by: By::Content } => {
                Chosen::Content(written.iter().find_map(|(_, content)| *content)?)
            }
        })
    }

    pub fn carry(&mut self, ask: &Ask, time_ns: u64) -> Outcome {
        if ask.length > 0 || ask.operation == Operation::Flush {
            self.observe(ask, time_ns);
        }
        let is_read = ask.operation == Operation::Read;
        let mut delay = Duration::ZERO;
        let mut fails = false;
        let mut hits: Vec<(u64, usize)> = Vec::new();
        let mut request_hits: Vec<(usize, Vec<u64>)> = Vec::new();
        for rule in 0..self.rules.len() {
            let by_content = self.rules[rule].matching.is_by_content();
            // What a read brings is known only if it succeeds below.
            if !self.acts(rule) || is_read && by_content && ask.fails_below {
                continue;
            }
            self.match_rule(rule, ask, &mut hits, &mut request_hits);
        }
        hits.sort_unstable();
        if is_read && ask.fails_below {
            return Outcome { succeeds: false, delay, data: Vec::new() };
        }
        for (rule, matched) in request_hits {
            let effect = self.rules[rule].effect;
            match effect {
                Effect::Delay(Delay::Constant(span)) => delay += span.0,
                _ => fails = true,
            }
            self.record_request(rule, ask, effect, time_ns);
            if self.is_sticky(rule) {
                for block in matched {
                    self.add_place(rule, block, 0..0, None);
                }
            }
        }
        if fails {
            return Outcome { succeeds: false, delay, data: Vec::new() };
        }
        if ask.fails_below {
            return Outcome { succeeds: false, delay, data: Vec::new() };
        }
        let data = if is_read { self.read(ask, &hits, time_ns) } else { self.mutate(ask, &hits, time_ns) };
        Outcome { succeeds: true, delay, data }
    }

    fn match_rule(
        &mut self,
        index: usize,
        ask: &Ask,
        hits: &mut Vec<(u64, usize)>,
        request_hits: &mut Vec<(usize, Vec<u64>)>,
    ) {
        let rule = self.rules[index].clone();
        let kind = OperationKind::from(ask.operation);
        if ask.length == 0 && kind != OperationKind::Flush {
            return;
        }
        let is_awake = rule.during.iter().any(|phase| Phase::from(*phase) == ask.phase);
        if !is_awake || !kind.is_matched_by(rule.matching.operation) {
            return;
        }
        let matched: Vec<u64> = touched(ask).filter(|&block| self.block_matches(index, ask, block)).collect();
        if rule.effect.is_on_data() {
            let is_possible = match kind {
                OperationKind::Write => rule.effect != Effect::StaleRead,
                OperationKind::Read => !keeps_old(rule.effect),
                _ => false,
            };
            // Such a place does not lie by itself: what touches it is hit again.
            let hits_again = keeps_old(rule.effect) || rule.effect == Effect::StaleRead;
            if !is_possible {
                return;
            }
            for block in matched {
                let is_bad = self.has_place(index, block) && hits_again;
                let carries = match rule.effect {
                    Effect::BitFlip(Bits::At { byte, .. } | Bits::Mask { byte, .. }) => {
                        part(ask, block).contains(&(byte as usize))
                    }
                    _ => true,
                };
                let mut is_hit = is_bad;
                if carries {
                    self.matches[index] += 1;
                    is_hit |= rule.schedule.hits(self.matches[index]);
                }
                if is_hit {
                    hits.push((block, index));
                }
            }
            // Whatever it contains.
            if hits_again {
                for block in touched(ask) {
                    if self.has_place(index, block) && !hits.contains(&(block, index)) {
                        hits.push((block, index));
                    }
                }
            }
            return;
        }
        let is_flush = kind == OperationKind::Flush;
        let is_anywhere = rule.matching.offset.is_empty()
            && rule.matching.content.is_empty()
            && rule.matching.target.is_none();
        let flush_matches = is_flush && is_anywhere;
        let mut is_hit = touched(ask).any(|block| self.has_place(index, block));
        let mut spreads = false;
        if !matched.is_empty() || flush_matches {
            self.matches[index] += 1;
            spreads = rule.schedule.hits(self.matches[index]);
            is_hit |= spreads || (is_flush && self.bad_flush[index]);
        }
        if is_hit {
            self.bad_flush[index] |= is_flush && self.is_sticky(index);
            request_hits.push((index, if spreads { matched } else { Vec::new() }));
        }
    }

    fn block_matches(&self, index: usize, ask: &Ask, block: u64) -> bool {
        let rule = &self.rules[index];
        let by_place = in_places(rule, block);
        let content = || {
            let content = match ask.operation {
                Operation::Read => {
                    let start = (block * BLOCK) as usize;
                    self.truth.get(start..start + BLOCK as usize).map(ContentHash::of)
                }
                Operation::Write { .. } => Some(ContentHash::of(&[ask.fill; BLOCK as usize])),
                Operation::WriteZeroes => Some(ContentHash::of(&[0; BLOCK as usize])),
                _ => None,
            };
            content.filter(|_| part(ask, block).len() as u64 == BLOCK)
        };
        let given = &rule.matching.content;
        let by_content = given.is_empty() || given.iter().any(|wanted| Some(wanted.0) == content());
        let by_target = match (&rule.matching.target, self.chosen[index]) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(Chosen::Place(place))) => place == block,
            (Some(_), Some(Chosen::Content(wanted))) => content() == Some(wanted),
        };
        by_place && by_content && by_target
    }

    fn is_sticky(&self, rule: usize) -> bool {
        self.rules[rule].persistence.leaves_place()
    }

    fn has_place(&self, rule: usize, block: u64) -> bool {
        self.places.iter().any(|place| (place.rule, place.block) == (rule, block))
    }

    fn add_place(
        &mut self,
        rule: usize,
        block: u64,
        range: std::ops::Range<usize>,
        recorded: Option<ContentHash>,
    ) {
        if !self.has_place(rule, block) {
            self.places.push(Place { rule, block, range, recorded });
        }
    }

    /// Whether it is a place that distorts data.
    fn is_data_place(&self, place: &Place) -> bool {
        self.acts(place.rule) && distorts(self.rules[place.rule].effect)
    }

    /// Whether a place distorts any byte of that part of its block.
    fn distorts(&self, number: usize, part: &std::ops::Range<usize>) -> bool {
        let place = &self.places[number];
        match self.rules[place.rule].effect {
            Effect::BitFlip(Bits::At { byte, .. } | Bits::Mask { byte, .. }) => {
                part.contains(&(byte as usize))
            }
            _ => place.range.start < part.end && part.start < place.range.end,
        }
    }

    /// Distorts a whole block as the first `count` places do.
    fn distort(&self, block: u64, bytes: &mut [u8], count: usize) {
        for place in
            self.places[..count].iter().filter(|place| place.block == block && self.is_data_place(place))
        {
            apply(self.rules[place.rule].effect, &place.range, bytes);
        }
    }

    fn read(&mut self, ask: &Ask, hits: &[(u64, usize)], time_ns: u64) -> Vec<u8> {
        let mut data = Vec::new();
        for block in touched(ask) {
            let extent = extent(block);
            let before = ContentHash::of(&self.truth[extent.clone()]);
            let mut image = self.shown[extent.clone()].to_vec();
            for number in 0..self.places.len() {
                let place = &self.places[number];
                if place.block != block || !self.is_data_place(place) {
                    continue;
                }
                let (rule, effect) = (place.rule, self.rules[place.rule].effect);
                apply(effect, &place.range, &mut image);
                if self.distorts(number, &part(ask, block)) && self.places[number].recorded != Some(before) {
                    self.places[number].recorded = Some(before);
                    self.record_block(rule, ask, block, before, &image, time_ns, false);
                }
            }
            for &(_, rule) in hits.iter().filter(|(hit, _)| *hit == block) {
                let effect = self.rules[rule].effect;
                if distorts(effect) && self.is_sticky(rule) && self.has_place(rule, block) {
                    continue;
                }
                if effect == Effect::StaleRead {
                    let Some((range, bytes)) = &self.previous[block as usize] else { continue };
                    image[range.clone()].copy_from_slice(bytes);
                } else {
                    apply(effect, &part(ask, block), &mut image);
                }
                self.record_block(rule, ask, block, before, &image, time_ns, !self.is_sticky(rule));
                if self.is_sticky(rule) {
                    self.add_place(rule, block, part(ask, block), Some(before));
                }
            }
            data.extend_from_slice(&image[part(ask, block)]);
        }
        data
    }

    fn mutate(&mut self, ask: &Ask, hits: &[(u64, usize)], time_ns: u64) -> Vec<u8> {
        let fill = if ask.operation == Operation::WRITE { ask.fill } else { 0 };
        for block in touched(ask) {
            let extent = extent(block);
            let inside = part(ask, block);
            let written = extent.start + inside.start..extent.start + inside.end;
            let old = self.shown[written.clone()].to_vec();
            let is_write = OperationKind::from(ask.operation) == OperationKind::Write;
            if is_write && ask.phase != Phase::Setup && self.is_watched(block) {
                self.previous[block as usize] = Some((inside.clone(), old.clone()));
            }
            self.truth[written.clone()].fill(fill);
            self.shown[written.clone()].fill(fill);
            self.lying[written.clone()].fill(false);
            if inside.len() == extent.len() {
                let (rules, states) = (&self.rules, &self.states);
                self.places.retain(|place| {
                    let heals = Persistence::UntilRewritten { spares: None };
                    let acts = states[place.rule] == RuleState::Active;
                    place.block != block || rules[place.rule].persistence != heals || !acts
                });
            }
            // What a discard of the whole block leaves is nobody's content.
            let is_known = ask.operation != Operation::Discard || inside.len() < extent.len();
            let before = is_known.then(|| ContentHash::of(&self.truth[extent.clone()]));
            let own: Vec<usize> =
                hits.iter().filter(|(hit, _)| *hit == block).map(|(_, rule)| *rule).collect();
            let makes_place = |rule: usize| self.is_sticky(rule) && distorts(self.rules[rule].effect);
            // A place that is bad already is not hit again, and a sector alone is not torn.
            let is_whole = |rule: usize| {
                matches!(self.rules[rule].effect, Effect::TornWrite(_)) && inside.len() < 2 * SECTOR
            };
            let own: Vec<usize> = own
                .into_iter()
                .filter(|&rule| !(is_whole(rule) || makes_place(rule) && self.has_place(rule, block)))
                .collect();
            self.settle_repairs(block, before, !own.is_empty(), time_ns);
            for rule in own {
                let effect = self.rules[rule].effect;
                let is_place = self.is_sticky(rule) && distorts(effect);
                let before = before.expect("nothing on data hits a discard");
                if is_place {
                    self.add_place(rule, block, inside.clone(), Some(before));
                } else {
                    self.lie(block, effect, &inside, &old);
                    if self.is_sticky(rule) {
                        self.add_place(rule, block, 0..0, None);
                    }
                }
                let mut image = self.shown[extent.clone()].to_vec();
                self.distort(block, &mut image, self.places.len());
                self.record_block(rule, ask, block, before, &image, time_ns, !self.is_sticky(rule));
            }
            let Some(before) = before else { continue };
            for number in 0..self.places.len() {
                let place = &self.places[number];
                let wanted = self.rules[place.rule].matching.operation;
                let concerned =
                    ask.operation != Operation::Discard && OperationKind::Write.is_matched_by(wanted);
                if place.block == block
                    && self.is_data_place(place)
                    && concerned
                    && self.distorts(number, &inside)
                    && place.recorded != Some(before)
                {
                    let rule = place.rule;
                    self.places[number].recorded = Some(before);
                    let mut image = self.shown[extent.clone()].to_vec();
                    self.distort(block, &mut image, self.places.len());
                    self.record_block(rule, ask, block, before, &image, time_ns, false);
                }
            }
        }
        for &(block, rule) in hits {
            if let Effect::MisdirectedWrite(direction) = self.rules[rule].effect {
                self.land(rule, direction, ask, block, fill, time_ns);
            }
        }
        Vec::new()
    }

    /// A write to `block` lands on another one.
    fn land(&mut self, rule: usize, direction: Direction, ask: &Ask, block: u64, fill: u8, time_ns: u64) {
        let foreign = match direction {
            Direction::By(by) => (block + by.0 / BLOCK) % BLOCKS,
            Direction::To(to) => (to.0 / BLOCK).min(BLOCKS - 1),
            Direction::Anywhere(_) => unreachable!("chance is not the model's"),
        };
        let extent = extent(foreign);
        let inside = part(ask, block);
        let inside = inside.start..inside.end.min(extent.len());
        if foreign == block || inside.is_empty() {
            return;
        }
        let landed = extent.start + inside.start..extent.start + inside.end;
        self.shown[landed.clone()].fill(fill);
        self.lying[landed].fill(true);
        let before = ContentHash::of(&self.truth[extent.clone()]);
        let mut image = self.shown[extent].to_vec();
        self.distort(foreign, &mut image, self.places.len());
        // As if a request for just that part of the foreign block had been hit.
        let offset = foreign * BLOCK + inside.start as u64;
        let there = Ask { offset, length: inside.len() as u64, ..ask.clone() };
        self.record_block(rule, &there, foreign, before, &image, time_ns, true);
    }

    fn lie(&mut self, block: u64, effect: Effect, inside: &std::ops::Range<usize>, old: &[u8]) {
        let extent = extent(block);
        match effect {
            Effect::LostWrite | Effect::MisdirectedWrite(_) => {
                self.shown[extent.start + inside.start..extent.start + inside.end].copy_from_slice(old);
            }
            Effect::TornWrite(Tear { new, sectors, .. }) => {
                let all = inside.len() / SECTOR;
                let stored = usize::from(sectors.expect("the model is told how many")).clamp(1, all - 1);
                let kept = match new {
                    NewPart::First => stored..all,
                    NewPart::Last => 0..all - stored,
                    other => unreachable!("{other} is not the model's"),
                };
                let kept = kept.start * SECTOR..kept.end * SECTOR;
                let start = extent.start + inside.start;
                self.shown[start + kept.start..start + kept.end].copy_from_slice(&old[kept]);
            }
            other => apply(other, inside, &mut self.shown[extent.clone()]),
        }
        let lying = match effect {
            Effect::BitFlip(Bits::At { byte, .. } | Bits::Mask { byte, .. }) => {
                byte as usize..byte as usize + 1
            }
            _ => inside.clone(),
        };
        self.lying[extent.start + lying.start..extent.start + lying.end].fill(true);
    }

    fn settle_repairs(&mut self, block: u64, truth: Option<ContentHash>, is_hit: bool, time_ns: u64) {
        let is_clean = !is_hit
            && !self.lying[extent(block)].contains(&true)
            && !self.places.iter().any(|place| place.block == block && self.is_data_place(place));
        let (here, elsewhere) =
            std::mem::take(&mut self.unrepaired).into_iter().partition(|entry| entry.1 == block);
        self.unrepaired = elsewhere;
        let here: Vec<(usize, u64, ContentHash)> = here;
        for (record, _, wanted) in here {
            if truth == Some(wanted) && is_clean {
                // The last of the record's blocks repairs it.
                if !self.unrepaired.iter().any(|entry| entry.0 == record) {
                    self.records[record].repaired_at_ns = Some(time_ns);
                }
            } else if truth == Some(wanted) && !is_hit {
                self.unrepaired.push((record, block, wanted));
            } else {
                // It will never be whole again.
                self.unrepaired.retain(|entry| entry.0 != record);
                self.unrepaired.push((record, u64::MAX, wanted));
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of them are one hit")]
    fn record_block(
        &mut self,
        rule: usize,
        ask: &Ask,
        block: u64,
        before: ContentHash,
        image: &[u8],
        time_ns: u64,
        is_repairable: bool,
    ) {
        let inside = part(ask, block);
        if is_repairable {
            self.unrepaired.push((self.records.len(), block, before));
        }
        self.records.push(Record {
            rule,
            operation: ask.operation.into(),
            offset: block * BLOCK + inside.start as u64,
            length: inside.len() as u64,
            effect: self.rules[rule].effect,
            phase: ask.phase,
            time_ns,
            before: Some(before),
            after: Some(ContentHash::of(image)),
            blocks: Vec::new(),
            repaired_at_ns: None,
        });
    }

    fn record_request(&mut self, rule: usize, ask: &Ask, effect: Effect, time_ns: u64) {
        let content = |block: u64| match ask.operation {
            Operation::Read => Some(ContentHash::of(&self.truth[extent(block)])),
            Operation::Write { .. } => Some(ContentHash::of(&[ask.fill; BLOCK as usize])),
            Operation::WriteZeroes => Some(ContentHash::of(&[0; BLOCK as usize])),
            _ => None,
        };
        let blocks: Vec<(u64, ContentHash)> = touched(ask)
            .filter(|&block| part(ask, block).len() as u64 == BLOCK)
            .filter_map(|block| Some((block * BLOCK, content(block)?)))
            .collect();
        if effect == Effect::ERROR && !self.is_sticky(rule) {
            let record = self.records.len();
            self.unrepaired.extend(blocks.iter().map(|(offset, content)| (record, offset / BLOCK, *content)));
        }
        self.records.push(Record {
            rule,
            operation: ask.operation.into(),
            offset: ask.offset,
            length: ask.length,
            effect,
            phase: ask.phase,
            time_ns,
            before: None,
            after: None,
            blocks,
            repaired_at_ns: None,
        });
    }
}

fn in_places(rule: &Rule, block: u64) -> bool {
    let in_range = |range: &ByteRange| {
        let first = range.start / BLOCK;
        match range.end {
            End::At(end) => (first..end.div_ceil(BLOCK)).contains(&block),
            End::Open => block >= first,
            End::OneBlock => block == first,
        }
    };
    rule.matching.offset.is_empty() || rule.matching.offset.iter().any(in_range)
}

/// Whether a write that is hit leaves old data where new should be.
fn keeps_old(effect: Effect) -> bool {
    matches!(effect, Effect::LostWrite | Effect::TornWrite(_) | Effect::MisdirectedWrite(_))
}

/// Whether a bad place lies by itself.
fn distorts(effect: Effect) -> bool {
    matches!(effect, Effect::BitFlip(_) | Effect::Zeros | Effect::Ones | Effect::Noise(_))
}

/// What an effect does to the bytes `range` of a block, given the whole of it.
fn apply(effect: Effect, range: &std::ops::Range<usize>, block: &mut [u8]) {
    match effect {
        Effect::BitFlip(Bits::At { byte, bit }) => block[byte as usize] ^= 1 << bit,
        Effect::BitFlip(Bits::Mask { byte, mask }) => block[byte as usize] ^= mask,
        Effect::Zeros => block[range.clone()].fill(0),
        Effect::Ones => block[range.clone()].fill(0xff),
        Effect::Noise(Draw(draw)) => {
            let key = draw.expect("the model is told what chance said");
            for place in range.clone() {
                block[place] = mix(key, 1, place as u64 / 8).to_le_bytes()[place % 8];
            }
        }
        other => unreachable!("{other:?} is no change of data"),
    }
}

fn touched(ask: &Ask) -> impl Iterator<Item = u64> + use<> {
    let end = if ask.length == 0 { 0 } else { (ask.offset + ask.length).div_ceil(BLOCK) };
    ask.offset / BLOCK..end
}

fn extent(block: u64) -> std::ops::Range<usize> {
    let start = block * BLOCK;
    start as usize..(start + BLOCK).min(DEVICE_BYTES) as usize
}

/// The bytes of a block that the request touches.
fn part(ask: &Ask, block: u64) -> std::ops::Range<usize> {
    let start = block * BLOCK;
    let from = ask.offset.max(start) - start;
    let to = (ask.offset + ask.length).min(start + BLOCK) - start;
    from as usize..to as usize
}
