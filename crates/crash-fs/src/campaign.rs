//! Many sequences, one after the other: each is done on a recorded device, and the states that a power loss may leave of it
//! are mounted and looked at. What fails is kept, so that it can be shown again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_crash::{
    Check, Contents, Exploration, ExploreOptions, FailingState, StateOptions, Unknown, Way, WayLimits,
    explore,
};
use rotproof_machine::Cancel;
use rotproof_machine::registry::{CleanupStack, Run};
use rotproof_subject::FileSystem;
use serde::Serialize;

use crate::blank::Blank;
use crate::check::MountCheck;
use crate::kept::{BASE, RECORDING, state_name};
use crate::operations::Step;
use crate::promise::Promise;
use crate::sequence::{SequenceOptions, run_sequence};
use crate::tree_oracle::TreeOracle;

/// The ways that find most in the first states of a sequence.
const WAYS: [Way; 6] = [
    Way::PrefixAtBarrier,
    Way::PersistencePoints,
    Way::Adversarial,
    Way::SingleWrites,
    Way::Torn,
    Way::Subsets,
];
/// States of one point in a sequence, for each way.
const PER_POINT_MAX: u64 = 20;

/// What to explore.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// The file system.
    pub kind: FileSystem,
    /// Further mount options; they may choose what is promised.
    pub mount: Vec<String>,
    /// What is done to its files.
    pub sequences: Vec<Vec<Step>>,
    /// States of each sequence, at most.
    pub states_max: u64,
    /// States looked at at the same time.
    pub workers: usize,
    /// The file system's own checker looks at the states of every so manieth sequence; 0 of none.
    pub checker_every: usize,
    /// Root of all that is drawn.
    pub seed: u64,
    /// No sequence is begun after so long.
    pub time_max: Option<Duration>,
    /// The folder in which what fails is kept: for each such sequence a folder, with the recording, the image that it began
    /// with, the failing states and the stories of the smallest ones. It is made when it is needed.
    pub keep: PathBuf,
}

/// How far a campaign has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Sequences that are done, of all.
    pub sequences: usize,
    /// All.
    pub sequences_in_all: usize,
    /// States that were looked at.
    pub checked: u64,
    /// Those that fail.
    pub failing: u64,
    /// Those of which nobody knows.
    pub unknown: u64,
}

/// A sequence of which some state fails, or is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// Its operations in words.
    pub sequence: Vec<String>,
    /// The states that fail.
    pub failures: Vec<FailingState>,
    /// Those of which nobody knows.
    pub unknown: Vec<Unknown>,
    /// What the smallest failure of each kind is, in words.
    pub stories: Vec<String>,
    /// Where it is kept.
    pub kept: PathBuf,
}

/// What a campaign found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Campaign {
    /// How far it came.
    pub tally: Tally,
    /// Sequences that do not simply pass.
    pub suspects: Vec<Suspect>,
    /// Whether all sequences were done.
    pub is_complete: bool,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Carries it out, with all that it creates on record in `run`. `tell` hears of progress after each sequence. Ends in order
/// when `cancel` says so.
pub fn explore_sequences(
    run: &Run,
    options: &CampaignOptions,
    cancel: &Cancel,
    tell: &mut dyn FnMut(&Tally),
) -> Result<Campaign> {
    let began = Instant::now();
    let folder = run.scratch().join("crash");
    let mut cleanup = CleanupStack::new(run);
    cleanup.create_tree(&folder)?;
    let blank = Blank::make(options.kind, &folder)?;
    let mut tally = Tally { sequences_in_all: options.sequences.len(), ..Tally::default() };
    let mut suspects = Vec::new();
    for (number, steps) in options.sequences.iter().enumerate() {
        let is_over = options.time_max.is_some_and(|most| began.elapsed() >= most);
        if is_over || cancel.is_cancelled() {
            break;
        }
        let one = One { run, options, blank: &blank, folder: &folder, number, steps, cancel };
        let (recording, found) = one.explore()?;
        tally.checked += found.checked;
        tally.failing += found.failures.len() as u64;
        tally.unknown += found.unknown.len() as u64;
        if cancel.is_cancelled() {
            break;
        }
        tally.sequences += 1;
        if !(found.failures.is_empty() && found.unknown.is_empty()) {
            suspects.push(one.keep(&recording, found)?);
        }
        std::fs::remove_file(&recording).doing(|| format!("removing {}", recording.display()))?;
        tell(&tally);
    }
    if let Some(error) = cleanup.undo_all().into_iter().next() {
        return Err(error);
    }
    let is_complete = tally.sequences == tally.sequences_in_all;
    Ok(Campaign { tally, suspects, is_complete, seconds: began.elapsed().as_secs_f64() })
}

/// One sequence of a campaign.
struct One<'a> {
    run: &'a Run,
    options: &'a CampaignOptions,
    blank: &'a Blank,
    folder: &'a Path,
    number: usize,
    steps: &'a [Step],
    cancel: &'a Cancel,
}

impl One<'_> {
    fn explore(&self) -> Result<(PathBuf, Exploration)> {
        let name = format!("s{}", self.number + 1);
        let options = SequenceOptions {
            folder: self.folder,
            name: &name,
            id: self.number as u128 + 1,
            mount: &self.options.mount,
        };
        let done = run_sequence(self.run, self.blank, self.steps, options)?;
        let states = StateOptions {
            base: Some(self.blank.image.clone()),
            begin: done.begin,
            states_max: self.options.states_max,
            ways: WAYS.to_vec(),
            limits: WayLimits { per_point_max: PER_POINT_MAX, ..WayLimits::default() },
            ..StateOptions::new(&done.recording, self.options.seed)
        };
        let every = self.options.checker_every;
        let runs_checker = every > 0 && self.number.is_multiple_of(every);
        let promise = Promise::of(self.blank.kind, &self.options.mount);
        let make = |worker: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
            let oracle = Box::new(TreeOracle::new(self.steps, promise));
            let (name, kind) = (format!("{name}-{worker}"), self.blank.kind);
            let contents = Arc::clone(contents);
            let check = MountCheck::new(self.run, &name, contents, kind, runs_checker, oracle)?;
            Ok(Box::new(check.with_mount_options(&self.options.mount)))
        };
        let options = ExploreOptions { workers: self.options.workers, ..ExploreOptions::new(states) };
        let stop = AtomicBool::new(false);
        let tell = |_: &rotproof_crash::Progress| stop.store(self.cancel.is_cancelled(), Ordering::Relaxed);
        let found = explore(&options, &make, &tell, &stop)?;
        Ok((done.recording, found))
    }

    fn keep(&self, recording: &Path, found: Exploration) -> Result<Suspect> {
        let sequence: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        let kept = self.options.keep.join(format!("{}-s{}", self.blank.kind.name(), self.number + 1));
        let doing = || format!("keeping what fails in {}", kept.display());
        std::fs::create_dir_all(&kept).doing(doing)?;
        std::fs::copy(recording, kept.join(RECORDING)).doing(doing)?;
        std::fs::copy(&self.blank.image, kept.join(BASE)).doing(doing)?;
        for failure in &found.failures {
            failure.state.write(&kept.join(state_name(failure.index)))?;
        }
        let stories: Vec<String> = found.witnesses.into_iter().map(|told| told.story).collect();
        let text = format!("{}\n\n{}\n", sequence.join("\n"), stories.join("\n\n"));
        std::fs::write(kept.join("story.txt"), text).doing(doing)?;
        Ok(Suspect { sequence, failures: found.failures, unknown: found.unknown, stories, kept })
    }
}
