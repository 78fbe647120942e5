//! The model: what the documentation says, in the most obvious way.

mod damage;
mod record;

use std::time::Duration;

use rotproof_block::{ContentHash, Operation, Phase};
use rotproof_fault::{
    AtMark, Bits, By, Delay, Effect, Moment, OperationKind, Rule, RuleState, Schedule, Seen, SeenBlock,
    Target,
};
use rotproof_spec::{ByteRange, End};

use crate::carrier::Outcome;
use crate::cases::{Ask, DEVICE_BYTES};
use damage::keeps_old;
pub use record::Injection;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = DEVICE_BYTES.div_ceil(BLOCK);
const SECTOR: usize = crate::cases::SECTOR as usize;

/// A block that a sticky rule has left bad.
struct StickyBlock {
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
    /// Bytes of the matches of each rule.
    bytes: Vec<u64>,
    /// What the load has said while the rule acted, in order; a rule that has hit what came after its mark waits no more.
    marks: Vec<Vec<String>>,
    is_past_mark: Vec<bool>,
    pub records: Vec<Injection>,
    /// The device as it should be.
    truth: Vec<u8>,
    /// The device as it reads, but for sticky places.
    shown: Vec<u8>,
    /// Which bytes of `shown` are the doing of a fault.
    lying: Vec<bool>,
    places: Vec<StickyBlock>,
    bad_flush: Vec<bool>,
    /// For each block that a stale read watches: the bytes that the last write replaced, and what they were.
    previous: Vec<Option<(std::ops::Range<usize>, Vec<u8>)>>,
    /// Injection, block and true content of damage that may be put right.
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
            bytes: vec![0; rules.len()],
            marks: vec![Vec::new(); rules.len()],
            is_past_mark: vec![false; rules.len()],
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
        self.bytes.push(0);
        self.marks.push(Vec::new());
        self.is_past_mark.push(false);
        self.bad_flush.push(false);
        self.chosen.push(None);
        self.awaited.push(0);
        Self::name(self.rules.len() - 1)
    }

    /// The load sets a mark.
    pub fn mark(&mut self, text: &str) {
        for rule in (0..self.rules.len()).filter(|&rule| self.acts(rule)).collect::<Vec<_>>() {
            self.marks[rule].push(text.to_owned());
        }
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
            let is_enabled = self.rules[rule].during.iter().any(|phase| Phase::from(*phase) == ask.phase);
            if !is_enabled || !(is_write || ask.operation == Operation::Read) {
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
        let is_enabled = rule.during.iter().any(|phase| Phase::from(*phase) == ask.phase);
        if !is_enabled || !kind.is_matched_by(rule.matching.operation) {
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
                    is_hit |= self.schedule_hits(index, part(ask, block).len() as u64);
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
            let bytes = matched.iter().map(|&block| part(ask, block).len() as u64).sum();
            spreads = self.schedule_hits(index, bytes);
            is_hit |= spreads || (is_flush && self.bad_flush[index]);
        }
        if is_hit {
            self.bad_flush[index] |= is_flush && self.is_sticky(index);
            request_hits.push((index, if spreads { matched } else { Vec::new() }));
        }
    }

    /// Whether the match that was counted last, of so many bytes, is hit.
    fn schedule_hits(&mut self, index: usize, bytes: u64) -> bool {
        let before = self.bytes[index];
        self.bytes[index] += bytes;
        match self.rules[index].schedule {
            Schedule::Byte(number) => before < number.0 && number.0 <= self.bytes[index],
            Schedule::Mark(mark) => {
                let has_come = match mark {
                    AtMark::Nth(n) => self.marks[index].len() as u64 >= n,
                    AtMark::Text(text) => self.marks[index].iter().any(|known| known == text.name()),
                };
                has_come && !std::mem::replace(&mut self.is_past_mark[index], true)
            }
            schedule => schedule.hits(self.matches[index]),
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
            self.places.push(StickyBlock { rule, block, range, recorded });
        }
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
