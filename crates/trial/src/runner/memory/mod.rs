//! Faults in memory, of a machine, of the process that is or guards the file system, or of the processes of a command: looks at it while the load runs, changes what the rules on
//! memory say, and keeps account of it.
//!
//! Owns when it is looked, and the records. What a rule may say is known to `fault`; how memory is read and changed, to `inject`; what
//! the guest's kernel says of a page, to `guest`.

mod find;
mod processes;
mod view;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::hash::mix;
use rotproof_block::{ContentHash, Error, ErrorKind, Phase, Result};
use rotproof_fault::{
    BLOCK_BYTES, Copies, Effect, Injection, MEMORY, OperationKind, Persistence, Recogniser, Rule, RuleReport,
    RuleState, Schedule, Target, TargetKey, TargetReport, sector_hashes,
};
use rotproof_inject::{Change, PAGE_BYTES, apply, set_bit};
use rotproof_machine::start_thread;
use serde::Serialize;

use find::Found;
pub(super) use processes::{Processes, RUN_VARIABLE};
pub(super) use view::Owner;
use view::View;

/// How often memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

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
    /// The process in whose memory it was; absent of a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// The name of that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<String>,
    /// Address of the block: physical, or that of the process.
    address: u64,
    /// How the block was found.
    found_by: &'static str,
    /// What its page was used for; absent where nobody says.
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
    /// Blocks that were found where nobody can change them.
    untouchable: u64,
    records: Vec<Injection>,
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
    stuck: Vec<Stuck>,
}

/// A bit that is stuck.
#[derive(Clone, Copy)]
struct Stuck {
    /// Of which process; 0 for a machine.
    pid: u32,
    /// Address of its byte.
    address: u64,
    bit: u8,
    value: bool,
}

impl MemoryFaults {
    /// None are enabled before [`MemoryFaults::arm`].
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
    /// enabled in the phase.
    pub(super) fn watch(self: &Arc<Self>, phase: Phase, owner: Option<Owner>) -> Result<Option<Watch>> {
        let is_enabled = {
            let mut state = self.state.lock();
            if phase == Phase::Run {
                state.run_began.get_or_insert_with(Instant::now);
            }
            state.rules.iter().any(|rule| is_enabled(&rule.rule, phase))
        };
        let Some(owner) = owner.filter(|_| is_enabled) else { return Ok(None) };
        self.look(phase, &owner);
        let (faults, stop) = (Arc::clone(self), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = start_thread("memory", move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK_INTERVAL);
                if !stopped.load(Ordering::Relaxed) {
                    faults.look(phase, &owner);
                }
            }
        })?;
        Ok(Some(Watch { stop, thread: Some(thread) }))
    }

    /// What is to be said of blocks that were found and could not be changed.
    pub(super) fn untouchable(&self) -> Option<String> {
        let count = self.state.lock().untouchable;
        (count > 0).then(|| {
            format!(
                "{count} times a block was found in a mapping that only reads a file's pages: those are the kernel's, which a machine as \
                 the subject lets faults reach"
            )
        })
    }

    /// What was done, as records of the ledger numbered from `first` on, and what stands beside them. Fails if looking did, but for
    /// a guest that had gone.
    pub(super) fn finish(&self, first: u64) -> Result<(Vec<Injection>, Vec<MemoryRecord>, Vec<RuleReport>)> {
        let mut state = self.state.lock();
        if let Some(error) = state.failure.take() {
            return Err(error.while_doing("looking at memory"));
        }
        let mut records = std::mem::take(&mut state.records);
        let mut details = std::mem::take(&mut state.details);
        for (number, (record, detail)) in (first..).zip(records.iter_mut().zip(&mut details)) {
            (record.sequence, detail.sequence) = (number, number);
        }
        let reports = state.rules.iter().map(|own| report(own, &records, self.first)).collect();
        Ok((records, details, reports))
    }

    fn look(&self, phase: Phase, owner: &Owner) {
        let mut state = self.state.lock();
        state.looks += 1;
        let views = match owner.views() {
            Ok(views) => views,
            Err(error) => {
                state.failure.get_or_insert(error);
                return;
            }
        };
        for index in 0..state.rules.len() {
            if !is_enabled(&state.rules[index].rule, phase) || state.failure.is_some() {
                continue;
            }
            match self.look_for(&mut state, index, phase, &views) {
                Ok(()) => {}
                // A guest or process that is gone or does not answer is a finding of others; a block that changes is no match.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Gone | ErrorKind::TimedOut | ErrorKind::Missing) => {
                }
                Err(error) => state.failure = Some(error),
            }
        }
    }

    fn look_for(&self, state: &mut State, index: usize, phase: Phase, views: &[View<'_>]) -> Result<()> {
        self.keep_stuck(state, index, phase, views)?;
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
        let found = self.find(state, index, views)?;
        let look_us = microseconds(began);
        let is_places = rule.matching.places.is_some();
        if found.is_empty() {
            return Ok(());
        }
        if let Some(Target::File { file, block }) = &rule.matching.target
            && rule.matching.copies != Some(Copies::All)
            && views[found[0].of].is_file_system()
        {
            return self.hit_one_in_use(state, index, (phase, look_us), found, (file, *block), views);
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
            let view = &views[found.of];
            match self.hit(state, index, (phase, number as u64, look_us), found, view, None) {
                Err(error) if error.kind() == ErrorKind::ReadOnly => state.untouchable += 1,
                // Its owner has changed it since it was found, which says nothing of the other places.
                Err(error) if error.kind() == ErrorKind::Gone => {}
                ended => drop(ended?),
            }
        }
        Ok(())
    }

    /// Hits the copy of a block from which the file system reads it: that is the one whose change is read back. All copies are one match,
    /// and none where none of them is in use.
    fn hit_one_in_use(
        &self,
        state: &mut State,
        index: usize,
        (phase, look_us): (Phase, u64),
        found: Vec<Found>,
        (file, block): (&str, u64),
        views: &[View<'_>],
    ) -> Result<()> {
        let own = &mut state.rules[index];
        own.matches += 1;
        let is_window = matches!(own.rule.schedule, Schedule::Time { .. });
        if !is_window && !own.rule.schedule.hits(own.matches) {
            return Ok(());
        }
        for found in found {
            let view = &views[found.of];
            if self.hit(state, index, (phase, 0, look_us), found, view, Some((file, block)))? {
                state.rules[index].is_over = is_window;
                return Ok(());
            }
        }
        state.rules[index].matches -= 1;
        Ok(())
    }

    /// Whether it was hit. With the `read_back` of a block a copy is left as it was that the file system does not read from.
    fn hit(
        &self,
        state: &mut State,
        index: usize,
        (phase, number, look_us): (Phase, u64, u64),
        mut found: Found,
        view: &View<'_>,
        read_back: Option<(&str, u64)>,
    ) -> Result<bool> {
        let mut before = vec![0; PAGE_BYTES];
        view.bytes().read(found.address, &mut before)?;
        let mut after = before.clone();
        let own = &state.rules[index];
        let draw = mix(self.seed, u64::from(self.first) + index as u64, own.matches << 20 | number);
        // Each place of several has a bit of its own; a bit that is said is the same in all.
        let Some(effect) = own.rule.effect.distort(draw, &mut after) else { return Ok(false) };
        let is_sticky = own.rule.persistence == Persistence::Sticky;
        let began = Instant::now();
        let change = apply(view.bytes(), found.address, &before, &after)?;
        let change_us = microseconds(began);
        if let Some((file, block)) = read_back {
            match view.block_now(file, block)? {
                Some(now) if now == after => {
                    found.is_living = Some(true);
                    found.found_by = "its content, and the file system reads the block from there";
                }
                Some(now) if now == before => {
                    return match apply(view.bytes(), found.address, &after, &before) {
                        // Its owner has used it for something else meanwhile.
                        Err(error) if error.kind() == ErrorKind::Gone => Ok(false),
                        put_back => put_back.map(|_| false),
                    };
                }
                // Somebody has written it meanwhile, or it cannot be read: who knows.
                _ => {}
            }
        }
        if is_sticky {
            let bits = change.bytes.iter().flat_map(|&(at, old, new)| {
                let address = found.address + u64::from(at);
                let stuck = move |bit| Stuck { pid: view.pid(), address, bit, value: new >> bit & 1 == 1 };
                (0..8).filter(move |bit| (old ^ new) >> bit & 1 == 1).map(stuck)
            });
            let bits: Vec<_> = bits.collect();
            state.rules[index].stuck.extend(bits);
        }
        self.record(
            state,
            index,
            (phase, effect),
            (found, view),
            (&before, &after, &change),
            (look_us, change_us, false),
        );
        Ok(true)
    }

    /// Makes stuck bits again what they are stuck at.
    fn keep_stuck(&self, state: &mut State, index: usize, phase: Phase, views: &[View<'_>]) -> Result<()> {
        for Stuck { pid, address, bit, value } in state.rules[index].stuck.clone() {
            let Some((of, view)) = (0..).zip(views).find(|(_, view)| view.pid() == pid) else { continue };
            let began = Instant::now();
            let Some(change) = set_bit(view.bytes(), address, bit, value)? else { continue };
            let change_us = microseconds(began);
            let mut after = vec![0; PAGE_BYTES];
            view.bytes().read(change.address, &mut after)?;
            let mut before = after.clone();
            for &(at, old, _) in &change.bytes {
                before[usize::from(at)] = old;
            }
            let found = Found::at((of, change.address), "the address of its stuck bit");
            let effect = state.rules[index].rule.effect;
            self.record(
                state,
                index,
                (phase, effect),
                (found, view),
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
        (found, view): (Found, &View<'_>),
        (before, after, change): (&[u8], &[u8], &Change),
        (look_us, change_us, is_again): (u64, u64, bool),
    ) {
        let time_ns = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let of_load = state.recogniser.as_ref().and_then(|recogniser| recogniser(before));
        let own = &mut state.rules[index];
        own.hits += 1;
        state.records.push(Injection {
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
            tag: view.process().map_or(Cow::Borrowed(""), |name| Cow::Owned(name.to_owned())),
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
            pid: view.process().map(|_| view.pid()),
            process: view.process().map(str::to_owned),
            address: found.address,
            found_by: found.found_by,
            kind: found.kind,
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

fn is_enabled(rule: &Rule, phase: Phase) -> bool {
    rule.during.iter().any(|enabled| Phase::from(*enabled) == phase)
}

fn microseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
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

fn report(own: &RuleOnMemory, records: &[Injection], first: u32) -> RuleReport {
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
