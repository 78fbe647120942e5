//! Looks at the states of a recording, with several workers, until all are looked at or a bound is reached.
//!
//! One thread makes states, in their one order, and hands them to the workers; each has a check of its own. What was
//! found is told by the number of the state in that order, so it does not depend on who was faster. A state whose check
//! could not be made is *unknown*, and never counts as one that passed.

mod resume;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::check::{Check, Crash, Finding, Mark, marks, marks_before};
use crate::contents::Contents;
use crate::recording::Reader;
use crate::state::{CrashState, StateDescription};
use crate::states::{StateOptions, States};
use crate::story::story;
use crate::ways::Way;
use crate::witness::{Witness, reduce};
use resume::Saved;

/// How often progress is told.
const TELL_INTERVAL: Duration = Duration::from_millis(500);
/// How often it is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// How to explore.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// Which states.
    pub states: StateOptions,
    /// How many look at them at the same time.
    pub workers: usize,
    /// No state is begun after so long.
    pub time_max: Option<Duration>,
    /// Stops after so many states that fail.
    pub failures_max: u64,
    /// Of the first failing state of each kind of finding the smallest witness is sought, with so many checks.
    pub witness_checks_max: u64,
    /// Where to save how far it has come, and go on from if something is there.
    pub resume: Option<PathBuf>,
    /// Who looks at states, in words: an exploration goes on only from what the same one has found.
    pub looked_at_by: String,
}

impl ExploreOptions {
    /// One worker, no bound on time, 100 failures, 300 checks for a witness.
    pub fn new(states: StateOptions) -> Self {
        Self {
            states,
            workers: 1,
            time_max: None,
            failures_max: 100,
            witness_checks_max: 300,
            resume: None,
            looked_at_by: String::new(),
        }
    }
}

/// A state that fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailingState {
    /// Its number among all states.
    pub index: u64,
    /// Which.
    pub state: StateDescription,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
}

/// A state of which nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// Its number among all states.
    pub index: u64,
    /// Which.
    pub state: StateDescription,
    /// Why its check could not be made.
    pub why: String,
}

/// What came of one way of choosing states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WayReport {
    /// States that it chose.
    pub chosen: u64,
    /// Those among them that had been looked at before, as the image of another.
    pub equal: u64,
    /// Those that were looked at in this run.
    pub checked: u64,
    /// Those that fail.
    pub failing: u64,
}

/// Why an exploration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All states were looked at.
    All,
    /// As many as were allowed.
    States,
    /// The time was over.
    Time,
    /// Enough failures.
    Failures,
    /// Somebody wanted it to stop.
    Stopped,
}

/// A witness and its story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToldWitness {
    /// The kind of finding that it stands for.
    pub kind: String,
    /// Number of the failing state that it was made from.
    pub index: u64,
    /// The smallest failure.
    pub witness: Witness,
    /// In words, several lines.
    pub story: String,
}

/// What an exploration found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exploration {
    /// States that were looked at, those of an earlier run that it went on from included.
    pub checked: u64,
    /// Those that were judged whole, and in which nothing wrong was found.
    pub passed: u64,
    /// Those that fail, by their number.
    pub failures: Vec<FailingState>,
    /// Those of which nobody knows.
    pub unknown: Vec<Unknown>,
    /// By the name of the way.
    pub ways: BTreeMap<String, WayReport>,
    /// For each kind of finding the smallest witness.
    pub witnesses: Vec<ToldWitness>,
    /// Why it ended.
    pub ended: Ended,
    /// How fast it went; taken out where what is said must not depend on the clock of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
}

/// How fast an exploration went, by the clock of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Seconds that it took, witnesses not included; of this run only.
    pub seconds: f64,
    /// States looked at in this run, for each second.
    pub states_per_s: f64,
}

/// How far an exploration has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// States looked at.
    pub checked: u64,
    /// Those that fail.
    pub failing: u64,
    /// Those of which nobody knows.
    pub unknown: u64,
    /// States looked at for each second of this run.
    pub states_per_s: f64,
    /// How long it can still take, if the number of states or the time is bounded.
    pub left_max: Option<Duration>,
}

/// Makes the check of a worker. Its image is one over these contents.
pub type MakeCheck<'a> = &'a (dyn Fn(usize, &Arc<Contents>) -> Result<Box<dyn Check>> + Sync);

/// What workers have found so far.
struct Found {
    saved: Saved,
    checked_now: u64,
    by_way: BTreeMap<Way, (u64, u64)>,
    last_save: Instant,
    last_tell: Instant,
}

/// Explores. `tell` hears of progress from time to time; anything but false in `stop` ends it in order. Fails with
/// [`ErrorKind::Invalid`] if the file to go on from belongs to another exploration, else as making states and checks
/// does.
pub fn explore(
    options: &ExploreOptions,
    make_check: MakeCheck<'_>,
    tell: &(dyn Fn(&Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Exploration> {
    let mut states = States::new(options.states.clone())?;
    let contents = Arc::clone(states.contents());
    let all_marks = marks(Reader::open(&options.states.recording)?)?;
    let saved = Saved::begin(options)?;
    let mut checks = Vec::new();
    for worker in 0..options.workers.max(1) {
        checks.push(make_check(worker, &contents)?);
    }
    if options.states.ways.contains(&Way::RecoveryReads) {
        let mut probe = make_check(options.workers.max(1), &contents)?;
        let marks = all_marks.clone();
        states = states.with_probe(Box::new(move |state| recovery_reads(&mut *probe, state, &marks)));
    }
    let began = Instant::now();
    let now = Instant::now();
    let found =
        Mutex::new(Found { saved, checked_now: 0, by_way: BTreeMap::new(), last_save: now, last_tell: now });
    let enough = AtomicBool::new(false);
    let (to_workers, from_maker) = sync_channel::<(u64, CrashState)>(checks.len() * 2);
    let from_maker = Mutex::new(from_maker);
    let ended = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for check in &mut checks {
            let work =
                Worker { from_maker: &from_maker, found: &found, enough: &enough, options, began, tell };
            let marks = &all_marks;
            workers.push(scope.spawn(move || work.run(&mut **check, marks)));
        }
        let mut index = 0;
        let is_over = || options.time_max.is_some_and(|most| began.elapsed() >= most);
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                break Ok(Ended::Stopped);
            } else if enough.load(Ordering::Relaxed) {
                break Ok(Ended::Failures);
            } else if is_over() {
                break Ok(Ended::Time);
            }
            match states.next_state() {
                Ok(Some((_, state))) => {
                    let is_done = found.lock().saved.is_done(index);
                    if !is_done && to_workers.send((index, state)).is_err() {
                        break Ok(Ended::Failures);
                    }
                    index += 1;
                }
                Ok(None) if index >= options.states.states_max => break Ok(Ended::States),
                Ok(None) => break Ok(Ended::All),
                Err(error) => break Err(error),
            }
        };
        drop(to_workers);
        let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
        if panicked > 0 {
            return Err(Error::new(ErrorKind::Internal, "a worker of the exploration failed"));
        }
        // The last states may have been too many failures after all.
        ended.map(|ended| {
            if ended != Ended::Stopped && enough.load(Ordering::Relaxed) { Ended::Failures } else { ended }
        })
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let Found { mut saved, checked_now, by_way, .. } = found.into_inner();
    saved.sort();
    saved.save(options)?;
    let ways = Way::ALL.into_iter().filter(|way| options.states.ways.contains(way)).map(|way| {
        let (count, (checked, failing)) =
            (states.way_count(way), by_way.get(&way).copied().unwrap_or_default());
        (way.name(), WayReport { chosen: count.chosen, equal: count.equal, checked, failing })
    });
    let ways = ways.collect();
    let witnesses = witnesses(options, &saved.failures, &all_marks, &mut *checks[0])?;
    Ok(Exploration {
        checked: saved.checked,
        passed: saved.checked - saved.failures.len() as u64 - saved.unknown.len() as u64,
        failures: saved.failures,
        unknown: saved.unknown,
        ways,
        witnesses,
        ended,
        pace: Some(Pace { seconds, states_per_s: checked_now as f64 / seconds.max(1e-9) }),
    })
}

/// What recovery and the check read of a state.
fn recovery_reads(
    probe: &mut dyn Check,
    state: &CrashState,
    marks: &[Mark],
) -> Result<Vec<std::ops::Range<u64>>> {
    let image = Arc::clone(probe.image());
    image.show(state.image.snapshot.clone());
    image.note_reads(true);
    let marks = marks_before(marks, state.description.position);
    // What is found here is found again when the state itself is looked at.
    let looked = probe.check(&Crash { state: &state.description, marks });
    let reads = image.reads();
    image.note_reads(false);
    // Where the check cannot be made, nothing is known to be read, and every other way still looks.
    Ok(if looked.is_ok() { reads } else { Vec::new() })
}

/// One thread that looks at states.
struct Worker<'a> {
    from_maker: &'a Mutex<Receiver<(u64, CrashState)>>,
    found: &'a Mutex<Found>,
    enough: &'a AtomicBool,
    options: &'a ExploreOptions,
    began: Instant,
    tell: &'a (dyn Fn(&Progress) + Sync),
}

impl Worker<'_> {
    fn run(&self, check: &mut dyn Check, marks: &[Mark]) {
        loop {
            let next = self.from_maker.lock().recv();
            let Ok((index, state)) = next else { return };
            // What was made and not begun is not looked at any more, and a later run does so.
            if self.enough.load(Ordering::Relaxed) {
                continue;
            }
            check.image().show(state.image.snapshot.clone());
            let marks = marks_before(marks, state.description.position);
            let looked = check.check(&Crash { state: &state.description, marks });
            // The device itself may have failed, and what was seen is then no sign of anything.
            let looked = check.image().check().and(looked);
            self.note(index, state.description, looked);
        }
    }

    fn note(&self, index: u64, state: StateDescription, looked: Result<Vec<Finding>>) {
        let mut found = self.found.lock();
        let found = &mut *found;
        found.saved.checked += 1;
        found.checked_now += 1;
        found.saved.done(index);
        let by_way = found.by_way.entry(state.way).or_default();
        by_way.0 += 1;
        match looked {
            Ok(findings) if findings.is_empty() => {}
            Ok(findings) => {
                by_way.1 += 1;
                found.saved.failures.push(FailingState { index, state, findings });
                if found.saved.failures.len() as u64 >= self.options.failures_max {
                    self.enough.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => found.saved.unknown.push(Unknown { index, state, why: error.to_string() }),
        }
        if found.last_save.elapsed() >= SAVE_INTERVAL {
            found.last_save = Instant::now();
            // If the disk is full now, the end says so.
            let _ = found.saved.save(self.options);
        }
        if found.last_tell.elapsed() >= TELL_INTERVAL {
            found.last_tell = Instant::now();
            (self.tell)(&self.progress(found));
        }
    }

    fn progress(&self, found: &Found) -> Progress {
        let elapsed = self.began.elapsed();
        let states_per_s = found.checked_now as f64 / elapsed.as_secs_f64().max(1e-9);
        let by_time = self.options.time_max.map(|most| most.saturating_sub(elapsed));
        let most = self.options.states.states_max;
        let by_count = (most < u64::MAX && states_per_s > 0.0).then(|| {
            let left = most.saturating_sub(found.saved.checked) as f64 / states_per_s;
            Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)
        });
        Progress {
            checked: found.saved.checked,
            failing: found.saved.failures.len() as u64,
            unknown: found.saved.unknown.len() as u64,
            states_per_s,
            left_max: [by_time, by_count].into_iter().flatten().min(),
        }
    }
}

/// The smallest witness of the first failure of each kind.
fn witnesses(
    options: &ExploreOptions,
    failures: &[FailingState],
    marks: &[Mark],
    check: &mut dyn Check,
) -> Result<Vec<ToldWitness>> {
    let mut told: Vec<ToldWitness> = Vec::new();
    for FailingState { index, state, findings } in failures {
        let Some(kind) = findings.first().map(|finding| finding.kind.clone()) else { continue };
        if options.witness_checks_max == 0 || told.iter().any(|told| told.kind == kind) {
            continue;
        }
        let (point, _) = state.rebuild(&options.states.recording, options.states.base.as_deref())?;
        // A check that cannot be made on the way leaves the failure as it is, which is a finding all the same.
        let Ok(witness) = reduce(&point, state, findings, marks, check, options.witness_checks_max) else {
            continue;
        };
        let story = story(&witness, &point, marks);
        told.push(ToldWitness { kind, index: *index, witness, story });
    }
    Ok(told)
}

/// Writes what was found as JSON to the new file `path`.
pub fn write_exploration(exploration: &Exploration, path: &std::path::Path) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let text = serde_json::to_string_pretty(exploration)
        .map_err(|error| Error::new(ErrorKind::Internal, doing()).caused_by(error))?;
    std::io::Write::write_all(&mut std::fs::File::create_new(path).doing(doing)?, text.as_bytes())
        .doing(doing)
}

#[cfg(test)]
mod tests;
