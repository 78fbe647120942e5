//! How many requests can come to the place of the faults, at the most, on subjects where those are the load's own.
//!
//! The load is gone through without a device, as far as it has an end that is known and is not too long. Everything here is
//! an upper bound: what fails may be tried again, and the check looks closer where a read fails.

use rotproof_block::Phase;
use rotproof_fault::{BLOCK_BYTES, FaultEntry, OperationKind, Rule};
use rotproof_load::{LoadSpec, Stage, Step, Workload};
use rotproof_spec::{ByteRange, End};
use rotproof_subject::SubjectSpec;

use super::never::{bytes_needed, matches_needed, plural};
use super::trial_file::TrialFile;

/// Steps that are gone through, and steps times rules: about a second of work.
const STEPS_MAX: u64 = 1_000_000;
const LOOKS_MAX: u64 = 100_000_000;

/// Blocks of 64 GiB, a byte each.
const BLOCKS_MAX: u64 = 1 << 24;

/// How often the check reads a block at the most: a read of 64 blocks that fails is halved until the block is alone.
const CHECK_READS: u64 = 8;

/// Flushes of a worker beyond those of its load, in each phase.
const FLUSHES: u64 = 4;

/// The requests of all phases, by rule.
pub(super) struct Traffic {
    rules: Vec<Matches>,
    /// Whether somebody else reads too, and nothing but the absence of writes and discards is known.
    has_kernel: bool,
    has_prefill: bool,
}

/// What can match a rule.
#[derive(Clone, Copy, Default)]
struct Matches {
    /// Requests of its operations in its phases, wherever they go.
    anywhere: u64,
    /// Its matches, at its places.
    here: u64,
    /// Their bytes.
    bytes: u64,
}

/// Where a request goes: the first block and the one after the last.
type Blocks = std::ops::Range<u64>;

impl Traffic {
    /// Of a trial, if the requests are known.
    pub(super) fn of(trial: &TrialFile) -> Option<Self> {
        let has_kernel = match trial.subject.on_top() {
            SubjectSpec::Raw => false,
            SubjectSpec::Device => true,
            SubjectSpec::Fat
            | SubjectSpec::FileSystem(_)
            | SubjectSpec::Zfs(_)
            | SubjectSpec::Machine(_)
            | SubjectSpec::Guard(_)
            | SubjectSpec::Volume(_) => return None,
        };
        let stack = trial.whole_stack();
        // Who keeps copies deals reads out, and has requests of its own.
        if trial.load.leaves_requests_to_others() || !stack.keeps_offsets() || stack.keeps_copies() {
            return None;
        }
        let size = trial.size()?;
        let workload = Workload::new(&trial.load, trial.seed, &trial.objects(Some(size))).ok()?;
        let blocks = workload.layout().blocks();
        if blocks > BLOCKS_MAX || trial.faults.is_empty() {
            return None;
        }
        let mut count = Count::new(&trial.faults, &trial.load);
        if workload.has_prefill() {
            count.add(Phase::Prefill, OperationKind::Write, &(0..blocks), tries(&trial.load), false);
        }
        let mut written = Written::new(blocks, workload.has_prefill());
        count.run(&workload, &mut written);
        written.for_each(|blocks| {
            count.add(Phase::Check, OperationKind::Read, &blocks, CHECK_READS, false);
        });
        let flushes = u64::from(workload.workers()) * FLUSHES;
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            count.add(phase, OperationKind::Flush, &(0..0), flushes, true);
        }
        let rules = count.rules.into_iter().map(|counted| counted.matches).collect();
        Some(Self { rules, has_kernel, has_prefill: workload.has_prefill() })
    }

    /// Why the rule at this place of the plan can never hit, if that is so: the key, the reason, and what to do.
    pub(super) fn never(&self, index: usize, rule: &Rule) -> Option<(&'static str, String, String)> {
        let Matches { anywhere, here, bytes } = *self.rules.get(index)?;
        let operations: Vec<OperationKind> =
            OperationKind::ALL.into_iter().filter(|operation| rule.concerns_operation(*operation)).collect();
        let is_of_load =
            |operation: &OperationKind| matches!(operation, OperationKind::Write | OperationKind::Discard);
        if self.has_kernel && !operations.iter().all(is_of_load) {
            return None;
        }
        let phases: Vec<&str> = rule.during.iter().map(|phase| phase.word()).collect();
        let is_enabled = |phase: &str| phases.contains(&phase);
        let words: Vec<&str> = operations.iter().map(|operation| plural(*operation)).collect();
        let (words, phases) = (words.join(" or "), phases.join(" and "));
        if anywhere == 0 {
            let help = match operations[..] {
                [OperationKind::Discard] => {
                    "only a trace holds discards, or a file system as the subject sends some".to_owned()
                }
                [OperationKind::Read] if !is_enabled("check") => {
                    "add `check` to `during`, which reads everything back, or let the load read".to_owned()
                }
                [OperationKind::Write] if self.has_prefill && !is_enabled("prefill") => {
                    "add `prefill` to `during`, or let the load write".to_owned()
                }
                _ => "change its operation, its effect or `during`, or the load".to_owned(),
            };
            return Some((
                "match",
                format!("no {words} come in the phases in which it is enabled ({phases})"),
                help,
            ));
        }
        if here == 0 {
            let help = "give an offset that the load comes by, or let it use more of the device".to_owned();
            return Some(("match.offset", format!("no {words} come by its offset in {phases}"), help));
        }
        if self.has_kernel {
            return None;
        }
        let needed = matches_needed(rule.schedule);
        if here < needed {
            let unit = if rule.effect.is_on_data() { "blocks" } else { "requests" };
            let why = format!("its schedule begins with match {needed}, and at most {here} {unit} can match");
            return Some(("schedule", why, "take a smaller number, or a longer load".to_owned()));
        }
        let needed = bytes_needed(rule.schedule);
        if bytes < needed {
            let why = format!("its schedule waits for byte {needed}, and at most {bytes} bytes can match");
            return Some(("schedule", why, "take a smaller number, or a longer load".to_owned()));
        }
        None
    }
}

/// A rule and what was counted for it.
struct Counted<'a> {
    rule: Option<&'a Rule>,
    /// Where it acts, in blocks; everywhere if there are none.
    places: Vec<Blocks>,
    matches: Matches,
}

struct Count<'a> {
    rules: Vec<Counted<'a>>,
    load: &'a LoadSpec,
}

impl<'a> Count<'a> {
    fn new(faults: &'a [FaultEntry], load: &'a LoadSpec) -> Self {
        let counted = |entry: &'a FaultEntry| {
            let rule = entry.rule();
            let places =
                rule.map_or_else(Vec::new, |rule| rule.matching.offset.iter().map(blocks_of).collect());
            Counted { rule, places, matches: Matches::default() }
        };
        Self { rules: faults.iter().map(counted).collect(), load }
    }

    /// Counts what comes: these blocks, so often at the most, each time as one request or in any number of them.
    fn add(&mut self, phase: Phase, operation: OperationKind, blocks: &Blocks, times: u64, is_one: bool) {
        for counted in &mut self.rules {
            let Some(rule) = counted.rule.filter(|rule| rule.concerns(operation, phase)) else { continue };
            let places = &counted.places;
            let all = blocks.end - blocks.start;
            let met = match places.is_empty() {
                true => all,
                false => places.iter().map(|place| overlap(place, blocks)).fold(0, u64::saturating_add),
            };
            let requests_of = |blocks: u64| if is_one { times } else { blocks.saturating_mul(times) };
            let is_met = operation == OperationKind::Flush || met > 0;
            let here = match (is_met, rule.effect.is_on_data()) {
                (false, _) => 0,
                (true, true) => met.saturating_mul(times),
                (true, false) => requests_of(met),
            };
            counted.matches.anywhere = counted.matches.anywhere.saturating_add(requests_of(all));
            counted.matches.here = counted.matches.here.saturating_add(here);
            let bytes = met.saturating_mul(times).saturating_mul(BLOCK_BYTES);
            counted.matches.bytes = counted.matches.bytes.saturating_add(bytes);
        }
    }

    /// Says that any number of requests may come.
    fn add_unbounded(&mut self, operation: OperationKind, blocks: &Blocks) {
        for counted in &mut self.rules {
            if !counted.rule.is_some_and(|rule| rule.concerns(operation, Phase::Run)) {
                continue;
            }
            counted.matches.anywhere = u64::MAX;
            let is_met =
                counted.places.is_empty() || counted.places.iter().any(|place| overlap(place, blocks) > 0);
            if is_met || operation == OperationKind::Flush {
                counted.matches.here = u64::MAX;
                counted.matches.bytes = u64::MAX;
            }
        }
    }

    /// Goes through the phase *run*, step by step if that comes to an end that is known.
    fn run(&mut self, workload: &Workload, written: &mut Written) {
        let tries = tries(self.load);
        let steps_max = STEPS_MAX.min(LOOKS_MAX / self.rules.len().max(1) as u64);
        let has_end = !workload.spec().has_unforeseen_end()
            || workload.spec().total.is_some()
            || workload.spec().requests.is_some();
        let mut steps: Vec<(OperationKind, Blocks)> = Vec::new();
        let is_whole = has_end
            && (0..workload.workers()).all(|worker| {
                let mut stream = workload.stream(Stage::Run, worker);
                while let Some(step) = stream.next() {
                    // Rules sleep from here on.
                    if stream.is_cooling_down() {
                        return true;
                    }
                    if steps.len() as u64 >= steps_max {
                        return false;
                    }
                    steps.push(match step {
                        Step::Read(extent) => (OperationKind::Read, extent.target_blocks()),
                        Step::Write { extent, .. } => (OperationKind::Write, extent.target_blocks()),
                        Step::Discard(extent) => (OperationKind::Discard, extent.target_blocks()),
                        Step::Flush => (OperationKind::Flush, 0..0),
                    });
                }
                stream.take_trouble().is_none()
            });
        if is_whole {
            for (operation, blocks) in &steps {
                self.add(Phase::Run, *operation, blocks, tries, true);
                if *operation == OperationKind::Write {
                    written.add(blocks);
                }
            }
            return;
        }
        let trace = self.load.trace.as_ref();
        for worker in 0..workload.workers() {
            // Of a trace a worker may do anything in its part.
            let (job, blocks) = (workload.job(worker), workload.part(worker).blocks);
            if trace.is_some() || job.reads.0 > 0.0 {
                self.add_unbounded(OperationKind::Read, &blocks);
            }
            if trace.is_some() || job.reads.0 < 1.0 {
                self.add_unbounded(OperationKind::Write, &blocks);
                self.add_unbounded(OperationKind::Flush, &blocks);
                written.add(&blocks);
            }
            if trace.is_some() {
                self.add_unbounded(OperationKind::Discard, &blocks);
            }
        }
    }
}

/// How often a request of the load is sent at the most.
fn tries(load: &LoadSpec) -> u64 {
    1 + load.retry.as_ref().map_or(0, |retry| u64::from(retry.count))
}

/// The blocks that a range of bytes touches.
fn blocks_of(range: &ByteRange) -> Blocks {
    let first = range.start / BLOCK_BYTES;
    let end = match range.end {
        End::At(end) => end.div_ceil(BLOCK_BYTES),
        End::Open => u64::MAX,
        End::OneBlock => first + 1,
    };
    first..end.max(first)
}

fn overlap(a: &Blocks, b: &Blocks) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

/// Which blocks hold something that the check reads.
struct Written {
    blocks: Vec<bool>,
}

impl Written {
    fn new(blocks: u64, all: bool) -> Self {
        Self { blocks: vec![all; usize::try_from(blocks).unwrap_or(0)] }
    }

    fn add(&mut self, blocks: &Blocks) {
        let place = |block: u64| usize::try_from(block).unwrap_or(usize::MAX).min(self.blocks.len());
        let range = place(blocks.start)..place(blocks.end);
        self.blocks[range].fill(true);
    }

    /// Each stretch of them.
    fn for_each(&self, mut with: impl FnMut(Blocks)) {
        let mut start = 0;
        for stretch in self.blocks.chunk_by(|a, b| a == b) {
            let end = start + stretch.len() as u64;
            if stretch.first() == Some(&true) {
                with(start..end);
            }
            start = end;
        }
    }
}
