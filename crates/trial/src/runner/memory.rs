//! Faults in the memory of a machine: looks at it while the load runs, changes what the rules on memory say, and keeps
//! account of it.
//!
//! Owns when it is looked, which of several copies is meant, and the records. What a rule may say is known to `fault`; how memory is
//! read and changed, to `inject`; what the guest's kernel says of a page, to `guest`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Error, ErrorKind, Phase, Result};
use rotproof_fault::{
    BLOCK_BYTES, Copies, Effect, MEMORY, MemoryKind, OperationKind, Persistence, Recogniser, Record, Rule,
    RuleReport, RuleState, Schedule, Target, TargetKey, TargetReport, sector_hashes,
};
use rotproof_inject::{Change, Memory as _, PAGE_BYTES, PageKind, Region, apply, set_bit};
use rotproof_machine::start_thread;
use rotproof_spec::{ByteRange, End};
use rotproof_subject::GuestMemory;
use serde::Serialize;

/// How often memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often a place is drawn anew that is of another kind than the rule wants.
const DRAWS_MAX: u64 = 4096;

/// What a rule on memory looks for, beside what it says itself: the contents of its target.
pub(super) struct MemoryTarget {
    pub(super) content: ContentHash,
    pub(super) label: String,
}

/// A line of `memory.jsonl`: what stands beside a record of the ledger.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MemoryRecord {
    /// Number of the record in the ledger.
    sequence: u64,
    /// Name of the rule.
    name: String,
    /// Physical address of the block.
    address: u64,
    /// How the block was found.
    found_by: &'static str,
    /// What its page was used for; absent where the guest's kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Whether it was in use; absent where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_living: Option<bool>,
    /// Copies of the block that the look found, this one among them.
    copies: usize,
    /// What was changed: offset in the block, byte before, byte after.
    bytes: Vec<(u16, u8, u8)>,
    /// How long the look took, and then the change, in microseconds. The machine went on meanwhile.
    look_us: u64,
    change_us: u64,
    /// Whether this made a stuck bit again what it was.
    is_again: bool,
}

/// The rules on memory of a trial, and what they have done.
pub(super) struct MemoryFaults {
    seed: u64,
    epoch: Instant,
    /// Number of the first of them in the plan.
    first: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<RuleOnMemory>,
    recogniser: Option<Arc<Recogniser>>,
    run_began: Option<Instant>,
    looks: u64,
    records: Vec<Record>,
    details: Vec<MemoryRecord>,
    failure: Option<Error>,
}

struct RuleOnMemory {
    rule: Rule,
    name: Arc<str>,
    contents: Vec<MemoryTarget>,
    matches: u64,
    hits: u64,
    /// Its window in time has had its hit.
    is_over: bool,
    /// Address of a byte, its bit, what it is stuck at.
    stuck: Vec<(u64, u8, bool)>,
}

/// A block that a look has found.
struct Found {
    address: u64,
    found_by: &'static str,
    kind: Option<PageKind>,
    is_living: Option<bool>,
    copies: usize,
    target: Option<TargetKey>,
}

impl MemoryFaults {
    /// None are awake before [`MemoryFaults::arm`].
    pub(super) fn new(seed: u64, epoch: Instant, first: usize) -> Self {
        Self { seed, epoch, first: u32::try_from(first).unwrap_or(u32::MAX), state: Mutex::default() }
    }

    /// Takes the rules, each with the contents of its target; `recogniser` tells the load's blocks from others.
    pub(super) fn arm(&self, rules: Vec<(Rule, Vec<MemoryTarget>)>, recogniser: Arc<Recogniser>) {
        let mut state = self.state.lock();
        state.recogniser = Some(recogniser);
        state.rules = rules
            .into_iter()
            .map(|(rule, contents)| {
                let name = rule.name.as_deref().unwrap_or_default().into();
                RuleOnMemory { rule, name, contents, matches: 0, hits: 0, is_over: false, stuck: Vec::new() }
            })
            .collect();
    }

    /// Looks at once, and from then on now and then, until what it gives is dropped. Nothing happens without rules that are
    /// awake in the phase.
    pub(super) fn watch(
        self: &Arc<Self>,
        phase: Phase,
        memory: Option<GuestMemory>,
    ) -> Result<Option<Watch>> {
        let is_awake = {
            let mut state = self.state.lock();
            if phase == Phase::Run {
                state.run_began.get_or_insert_with(Instant::now);
            }
            state.rules.iter().any(|rule| is_awake(&rule.rule, phase))
        };
        let Some(memory) = memory.filter(|_| is_awake) else { return Ok(None) };
        self.look(phase, &memory);
        let (faults, stop) = (Arc::clone(self), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = start_thread("memory", move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK_INTERVAL);
                if !stopped.load(Ordering::Relaxed) {
                    faults.look(phase, &memory);
                }
            }
        })?;
        Ok(Some(Watch { stop, thread: Some(thread) }))
    }

    /// What was done, as records of the ledger numbered from `first` on, and what stands beside them. Fails if looking did, but for
    /// a guest that had gone.
    pub(super) fn finish(&self, first: u64) -> Result<(Vec<Record>, Vec<MemoryRecord>, Vec<RuleReport>)> {
        let mut state = self.state.lock();
        if let Some(error) = state.failure.take() {
            return Err(error.while_doing("looking at the memory of the machine"));
        }
        let mut records = std::mem::take(&mut state.records);
        let mut details = std::mem::take(&mut state.details);
        for (number, (record, detail)) in (first..).zip(records.iter_mut().zip(&mut details)) {
            (record.sequence, detail.sequence) = (number, number);
        }
        let reports = state.rules.iter().map(|own| report(own, &records, self.first)).collect();
        Ok((records, details, reports))
    }

    fn look(&self, phase: Phase, memory: &GuestMemory) {
        let mut state = self.state.lock();
        state.looks += 1;
        for index in 0..state.rules.len() {
            if !is_awake(&state.rules[index].rule, phase) || state.failure.is_some() {
                continue;
            }
            match self.look_for(&mut state, index, phase, memory) {
                Ok(()) => {}
                // A guest that is gone or does not answer is a finding of others; a block that changes is no match.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Gone | ErrorKind::TimedOut | ErrorKind::Missing) => {
                }
                Err(error) => state.failure = Some(error),
            }
        }
    }

    fn look_for(&self, state: &mut State, index: usize, phase: Phase, memory: &GuestMemory) -> Result<()> {
        self.keep_stuck(state, index, phase, memory)?;
        let rule = state.rules[index].rule.clone();
        let window = match rule.schedule {
            Schedule::Time { at, lasts } => Some((at.0, lasts.map(|lasts| at.0.saturating_add(lasts.0)))),
            _ => None,
        };
        if let Some((from, to)) = window {
            let now = state.run_began.map(|began| began.elapsed());
            let is_open = now.is_some_and(|now| now >= from && to.is_none_or(|to| now < to));
            if !is_open || state.rules[index].is_over {
                return Ok(());
            }
        }
        // A schedule that is over need not look any more.
        if let Schedule::Once | Schedule::Nth(_) | Schedule::Between { .. } = rule.schedule
            && last_hit(rule.schedule).is_some_and(|last| state.rules[index].matches >= last)
        {
            return Ok(());
        }
        let began = Instant::now();
        let found = self.find(state, index, memory)?;
        let look_us = microseconds(began);
        let is_places = rule.matching.places.is_some();
        if found.is_empty() {
            return Ok(());
        }
        state.rules[index].is_over = window.is_some();
        // All places of one look are one match, each copy of a block is one of its own.
        let mut hits = Vec::new();
        for (number, found) in found.into_iter().enumerate() {
            if number == 0 || !is_places {
                state.rules[index].matches += 1;
            }
            let is_hit = window.is_some() || rule.schedule.hits(state.rules[index].matches);
            hits.extend(is_hit.then_some(found));
        }
        for (number, found) in hits.into_iter().enumerate() {
            self.hit(state, index, (phase, number as u64, look_us), found, memory)?;
        }
        Ok(())
    }

    fn find(&self, state: &State, index: usize, memory: &GuestMemory) -> Result<Vec<Found>> {
        let own = &state.rules[index];
        let matching = &own.rule.matching;
        let plain = |address, found_by| Found {
            address,
            found_by,
            kind: None,
            is_living: None,
            copies: 1,
            target: None,
        };
        let mut found = if let Some(Target::File { file, block }) = &matching.target {
            self.find_block_of_file(own, (file, *block), memory)?
        } else if !matching.content.is_empty() {
            let wanted: HashMap<ContentHash, String> =
                matching.content.iter().map(|hash| (hash.0, hash.to_string())).collect();
            scan(memory, &wanted)?
        } else if !matching.address.is_empty() {
            let regions = memory.bytes().regions()?;
            let pages = matching.address.iter().flat_map(|range| pages_of(range, memory.bytes().len()));
            pages.filter(|page| holds(&regions, *page)).map(|page| plain(page, "its address")).collect()
        } else {
            return self.draw_places(state, index, memory);
        };
        if matching.kind.is_empty() && matching.copies != Some(Copies::All) && matching.content.is_empty() {
            return Ok(found);
        }
        for found in &mut found {
            let kind = memory.kinds(found.address / PAGE_BYTES as u64, 1)?.first().copied().flatten();
            found.kind = kind;
            found.is_living = found.is_living.or_else(|| match kind? {
                PageKind::PageCache | PageKind::Dirty => Some(true),
                PageKind::Free => Some(false),
                PageKind::Anonymous | PageKind::Kernel => None,
            });
        }
        if !matching.kind.is_empty() {
            found.retain(|found| {
                found.kind.is_some_and(|kind| matching.kind.iter().any(|wanted| is_kind(*wanted, kind)))
            });
        } else if !matching.content.is_empty() && matching.copies != Some(Copies::All) {
            found.retain(|found| found.is_living == Some(true));
        }
        Ok(found)
    }

    /// The page in which the guest caches the block, while that holds what is meant; with `copies: all` all other copies too.
    fn find_block_of_file(
        &self,
        own: &RuleOnMemory,
        (file, block): (&str, u64),
        memory: &GuestMemory,
    ) -> Result<Vec<Found>> {
        let wanted: HashMap<ContentHash, String> =
            own.contents.iter().map(|target| (target.content, target.label.clone())).collect();
        let mut found = Vec::new();
        if let Some(address) = memory.page_of(file, block)? {
            let mut page = vec![0; PAGE_BYTES];
            memory.bytes().read(address, &mut page)?;
            let hash = ContentHash::of(&page);
            if let Some(label) = wanted.get(&hash) {
                let target = Some(TargetKey::Content { hash, label: label.as_str().into() });
                let found_by = "the guest's kernel, which says where it caches the block";
                found.push(Found { address, found_by, kind: None, is_living: Some(true), copies: 1, target });
            }
        }
        if own.rule.matching.copies == Some(Copies::All) {
            let living = found.first().map(|found| found.address);
            found.extend(scan(memory, &wanted)?.into_iter().filter(|found| Some(found.address) != living));
        }
        let copies = found.len();
        found.iter_mut().for_each(|found| found.copies = copies);
        Ok(found)
    }

    /// Blocks of memory that holds something, where chance says. A place counts even if it is drawn twice.
    fn draw_places(&self, state: &State, index: usize, memory: &GuestMemory) -> Result<Vec<Found>> {
        let matching = &state.rules[index].rule.matching;
        let regions = memory.bytes().regions()?;
        let pages: u64 = regions.iter().map(pages_in).sum();
        let mut found = Vec::new();
        let mut draws = 0;
        let count = matching.places.unwrap_or(1);
        while (found.len() as u64) < count && pages > 0 && draws < count.saturating_mul(DRAWS_MAX) {
            let key = u64::from(self.first) + index as u64;
            let drawn = mix(self.seed ^ key, state.looks, draws) % pages;
            draws += 1;
            let Some(address) = page_number(&regions, drawn) else { continue };
            let mut kind = None;
            if !matching.kind.is_empty() {
                kind = memory.kinds(address / PAGE_BYTES as u64, 1)?.first().copied().flatten();
                if !kind.is_some_and(|kind| matching.kind.iter().any(|wanted| is_kind(*wanted, kind))) {
                    continue;
                }
            }
            found.push(Found { address, found_by: "chance", kind, is_living: None, copies: 1, target: None });
        }
        Ok(found)
    }

    fn hit(
        &self,
        state: &mut State,
        index: usize,
        (phase, number, look_us): (Phase, u64, u64),
        found: Found,
        memory: &GuestMemory,
    ) -> Result<()> {
        let mut before = vec![0; PAGE_BYTES];
        memory.bytes().read(found.address, &mut before)?;
        let mut after = before.clone();
        let own = &state.rules[index];
        let draw = mix(self.seed, u64::from(self.first) + index as u64, own.matches << 20 | number);
        // Each place of several has a bit of its own; a bit that is said is the same in all.
        let Some(effect) = own.rule.effect.distort(draw, &mut after) else { return Ok(()) };
        let is_sticky = own.rule.persistence == Persistence::Sticky;
        let began = Instant::now();
        let change = apply(&**memory.bytes(), found.address, &before, &after)?;
        let change_us = microseconds(began);
        if is_sticky {
            let bits = change.bytes.iter().flat_map(|&(at, old, new)| {
                let address = found.address + u64::from(at);
                (0..8)
                    .filter(move |bit| (old ^ new) >> bit & 1 == 1)
                    .map(move |bit| (address, bit, new >> bit & 1 == 1))
            });
            let bits: Vec<_> = bits.collect();
            state.rules[index].stuck.extend(bits);
        }
        self.record(
            state,
            index,
            (phase, effect),
            found,
            (&before, &after, &change),
            (look_us, change_us, false),
        );
        Ok(())
    }

    /// Makes stuck bits again what they are stuck at.
    fn keep_stuck(&self, state: &mut State, index: usize, phase: Phase, memory: &GuestMemory) -> Result<()> {
        for (address, bit, value) in state.rules[index].stuck.clone() {
            let began = Instant::now();
            let Some(change) = set_bit(&**memory.bytes(), address, bit, value)? else { continue };
            let change_us = microseconds(began);
            let mut after = vec![0; PAGE_BYTES];
            memory.bytes().read(change.address, &mut after)?;
            let mut before = after.clone();
            for &(at, old, _) in &change.bytes {
                before[usize::from(at)] = old;
            }
            let found = Found {
                address: change.address,
                found_by: "the address of its stuck bit",
                kind: None,
                is_living: None,
                copies: 1,
                target: None,
            };
            let effect = state.rules[index].rule.effect;
            self.record(
                state,
                index,
                (phase, effect),
                found,
                (&before, &after, &change),
                (0, change_us, true),
            );
        }
        Ok(())
    }

    fn record(
        &self,
        state: &mut State,
        index: usize,
        (phase, effect): (Phase, Effect),
        found: Found,
        (before, after, change): (&[u8], &[u8], &Change),
        (look_us, change_us, is_again): (u64, u64, bool),
    ) {
        let time_ns = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let of_load = state.recogniser.as_ref().and_then(|recogniser| recogniser(before));
        let own = &mut state.rules[index];
        own.hits += 1;
        state.records.push(Record {
            sequence: 0,
            rule: self.first + index as u32,
            name: Arc::clone(&own.name),
            on: MEMORY.into(),
            target: found.target,
            // It stays as what was written does.
            operation: OperationKind::Write,
            offset: found.address,
            length: BLOCK_BYTES,
            effect,
            time_ns,
            phase,
            visit: None,
            request: 0,
            tag: Cow::Borrowed(""),
            before: Some(change.before),
            after: Some(change.after),
            after_sectors: sector_hashes(after),
            blocks: Vec::new(),
            neighbours: Vec::new(),
            repaired_at_ns: None,
            // Whoever reads the page has it from now on.
            served_at_ns: Some(time_ns),
            replaced_at_ns: None,
            of_load,
        });
        state.details.push(MemoryRecord {
            sequence: 0,
            name: own.name.to_string(),
            address: found.address,
            found_by: found.found_by,
            kind: found.kind.map(PageKind::word),
            is_living: found.is_living,
            copies: found.copies,
            bytes: change.bytes.clone(),
            look_us,
            change_us,
            is_again,
        });
    }
}

/// Looking goes on until this is dropped.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has no panic of its own to tell of that would not be in the records that are missing.
            let _ = thread.join();
        }
    }
}

fn is_awake(rule: &Rule, phase: Phase) -> bool {
    rule.during.iter().any(|awake| Phase::from(*awake) == phase)
}

fn microseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn is_kind(wanted: MemoryKind, kind: PageKind) -> bool {
    wanted.word() == kind.word()
}

/// The number of the last match that a schedule hits, if there is a last one.
fn last_hit(schedule: Schedule) -> Option<u64> {
    match schedule {
        Schedule::Once => Some(1),
        Schedule::Nth(n) => Some(n),
        Schedule::Between { to, .. } => Some(to),
        _ => None,
    }
}

/// Every page that holds one of these contents.
fn scan(memory: &GuestMemory, wanted: &HashMap<ContentHash, String>) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut page = vec![0; PAGE_BYTES];
    for region in memory.bytes().regions()? {
        for number in 0..pages_in(&region) {
            let address = region.range.start + number * PAGE_BYTES as u64;
            memory.bytes().read(address, &mut page)?;
            let hash = ContentHash::of(&page);
            if let Some(label) = wanted.get(&hash) {
                let target = Some(TargetKey::Content { hash, label: label.as_str().into() });
                found.push(Found {
                    address,
                    found_by: "its content",
                    kind: None,
                    is_living: None,
                    copies: 0,
                    target,
                });
            }
        }
    }
    let copies = found.len();
    found.iter_mut().for_each(|found| found.copies = copies);
    Ok(found)
}

fn pages_in(region: &Region) -> u64 {
    (region.range.end - region.range.start) / PAGE_BYTES as u64
}

/// The address of the page with that number among all that hold something.
fn page_number(regions: &[Region], mut number: u64) -> Option<u64> {
    for region in regions {
        let pages = pages_in(region);
        if number < pages {
            return Some(region.range.start + number * PAGE_BYTES as u64);
        }
        number -= pages;
    }
    None
}

fn holds(regions: &[Region], page: u64) -> bool {
    regions.iter().any(|region| region.range.contains(&page))
}

/// The addresses of the blocks in a range of a memory of that size.
fn pages_of(range: &ByteRange, size: u64) -> impl Iterator<Item = u64> {
    let start = range.start / BLOCK_BYTES;
    let end = match range.end {
        End::At(end) => end.min(size).div_ceil(BLOCK_BYTES),
        End::OneBlock => start + 1,
        End::Open => size / BLOCK_BYTES,
    };
    (start..end.min(size / BLOCK_BYTES)).map(|page| page * BLOCK_BYTES)
}

fn report(own: &RuleOnMemory, records: &[Record], first: u32) -> RuleReport {
    let hits = |content: ContentHash| {
        let of_it = records.iter().filter(|record| {
            record.name == own.name && record.rule >= first && record.before == Some(content)
        });
        of_it.count() as u64
    };
    let targets = own.contents.iter().map(|target| TargetReport {
        target: TargetKey::Content { hash: target.content, label: target.label.as_str().into() },
        hits: hits(target.content),
    });
    // What was stored before the block is meant is none that it could still meet.
    let targets: Vec<TargetReport> = targets.collect();
    RuleReport {
        name: own.name.to_string(),
        rule: own.rule.clone(),
        state: RuleState::default(),
        matches: own.matches,
        hits: own.hits,
        hanging: 0,
        targets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> Region {
        Region { range: start..end, kind: None }
    }

    #[test]
    fn places_are_counted_over_all_that_holds_something() {
        let regions = [region(4096, 3 * 4096), region(10 * 4096, 11 * 4096)];
        let places: Vec<_> = (0..4).map(|number| page_number(&regions, number)).collect();
        assert_eq!(places, [Some(4096), Some(8192), Some(40960), None]);
        assert!(holds(&regions, 8192) && !holds(&regions, 12288));
    }

    #[test]
    fn the_blocks_of_a_range_end_with_the_memory() {
        let of = |text: &str| pages_of(&text.parse().expect(text), 16384).collect::<Vec<_>>();
        assert_eq!(of("4KiB..12KiB"), [4096, 8192]);
        assert_eq!(of("8KiB..1MiB"), [8192, 12288]);
        assert_eq!(of("4KiB"), [4096]);
    }
}
