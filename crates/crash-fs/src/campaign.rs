//! Many sequences, one after the other: each is done on a recorded device, and the states that a power loss may leave of it
//! are mounted and looked at. What fails is kept, so that it can be shown again. A campaign that was stopped goes on behind the last
//! sequence that was done.

mod progress;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_crash::{
    Check, Contents, Ended, Exploration, ExploreOptions, FailingState, StateOptions, Unknown, Way, WayLimits,
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

pub use progress::{CAMPAIGN_PROGRESS, CampaignHead};
use progress::{Done, Progress};

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
    /// The folder for how far it has come, and for what fails: for each such sequence a folder, with the recording, the image that it
    /// began with, the failing states and the stories of the smallest ones. It is made; a campaign that was begun in it goes on.
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

impl Tally {
    fn add_states(&mut self, found: &Done) {
        self.checked += found.checked;
        self.failing += found.failures.len() as u64;
        self.unknown += found.unknown.len() as u64;
    }
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
    /// How far it came, with what earlier runs had done.
    pub tally: Tally,
    /// What earlier runs had done, from which it went on.
    pub earlier: Tally,
    /// Sequences that do not simply pass.
    pub suspects: Vec<Suspect>,
    /// Whether all sequences were done.
    pub is_complete: bool,
    /// Seconds that this run took.
    pub seconds: f64,
}

impl Campaign {
    /// Whether anything of it is left in its folder: something that fails, or progress to go on from.
    pub fn is_kept(&self) -> bool {
        !self.is_complete || !self.suspects.is_empty()
    }
}

/// Carries it out, with all that it creates on record in `run`. `tell` hears of progress after each sequence, and of what earlier runs
/// had done; first of that alone, if it goes on from something. Ends in order when `cancel` says so. If nothing fails of all its
/// sequences, nothing of it is left in its folder.
///
/// Fails with [`rotproof_block::ErrorKind::Invalid`] if another campaign was begun in its folder.
pub fn explore_sequences(
    run: &Run,
    options: &CampaignOptions,
    cancel: &Cancel,
    tell: &mut dyn FnMut(&Tally, &Tally),
) -> Result<Campaign> {
    let began = Instant::now();
    let kept = (0..options.sequences.len()).map(|number| kept_folder(options, number));
    let (mut progress, done) = Progress::begin(&options.keep, &CampaignHead::of(options)?, kept)?;
    let mut tally = Tally { sequences_in_all: options.sequences.len(), ..Tally::default() };
    let mut suspects = Vec::new();
    for done in done {
        tally.add_states(&done);
        tally.sequences += 1;
        suspects.extend(suspect(options, done));
    }
    let earlier = tally;
    if earlier.sequences > 0 {
        tell(&tally, &earlier);
    }
    let folder = run.scratch().join("crash");
    let mut cleanup = CleanupStack::new(run);
    cleanup.create_tree(&folder)?;
    let is_over = || cancel.is_cancelled() || options.time_max.is_some_and(|most| began.elapsed() >= most);
    let rest = options.sequences.iter().enumerate().skip(earlier.sequences);
    let mut blank = None;
    for (number, steps) in rest {
        if is_over() {
            break;
        }
        let blank = match &mut blank {
            Some(blank) => blank,
            none => none.insert(Blank::make(options.kind, &folder)?),
        };
        let one = One { run, options, blank, folder: &folder, number, steps, cancel };
        let (recording, found) = one.explore()?;
        let is_dropped = found.ended == Ended::Stopped && (found.failures.is_empty() || cancel.is_in_haste());
        let is_kept = !(is_dropped || found.failures.is_empty() && found.unknown.is_empty());
        if is_kept {
            one.keep(&recording, &found)?;
        }
        std::fs::remove_file(&recording).doing(|| format!("removing {}", recording.display()))?;
        // One that was cut off is done again.
        if is_dropped {
            break;
        }
        let found = one.done(found);
        progress.note(&found)?;
        tally.add_states(&found);
        suspects.extend(suspect(options, found));
        tally.sequences += 1;
        tell(&tally, &earlier);
    }
    if let Some(error) = cleanup.undo_all().into_iter().next() {
        return Err(error);
    }
    let is_complete = tally.sequences == tally.sequences_in_all;
    if is_complete && suspects.is_empty() {
        progress.remove()?;
    }
    Ok(Campaign { tally, earlier, suspects, is_complete, seconds: began.elapsed().as_secs_f64() })
}

/// Where a sequence is kept, by its number from 0.
fn kept_folder(options: &CampaignOptions, number: usize) -> PathBuf {
    options.keep.join(format!("{}-s{}", options.kind.name(), number + 1))
}

/// What is told of a sequence that does not simply pass.
fn suspect(options: &CampaignOptions, done: Done) -> Option<Suspect> {
    let Done { sequence, failures, unknown, stories, .. } = done;
    if failures.is_empty() && unknown.is_empty() {
        return None;
    }
    let number = sequence - 1;
    let sequence = options.sequences[number].iter().map(ToString::to_string).collect();
    Some(Suspect { sequence, failures, unknown, stories, kept: kept_folder(options, number) })
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
        // Where a state has failed, what fails of this sequence is found out first, unless somebody is in haste.
        let tell = |told: &rotproof_crash::Progress| {
            let stops = self.cancel.is_in_haste() || (self.cancel.is_cancelled() && told.failing == 0);
            stop.store(stops, Ordering::Relaxed);
        };
        let found = explore(&options, &make, &tell, &stop)?;
        Ok((done.recording, found))
    }

    fn done(&self, found: Exploration) -> Done {
        Done {
            sequence: self.number + 1,
            checked: found.checked,
            failures: found.failures,
            unknown: found.unknown,
            stories: found.witnesses.into_iter().map(|told| told.story).collect(),
        }
    }

    /// Keeps it, whole or not at all. What a run that was killed had kept of the same sequence is replaced: its recording was another.
    fn keep(&self, recording: &Path, found: &Exploration) -> Result<()> {
        let kept = kept_folder(self.options, self.number);
        let doing = || format!("keeping what fails in {}", kept.display());
        let fresh = kept.with_extension("new");
        for folder in [&fresh, &kept] {
            match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).doing(doing),
                _ => {}
            }
        }
        let filled = self.fill(&fresh, recording, found).doing(doing);
        let kept = filled.and_then(|()| std::fs::rename(&fresh, &kept).doing(doing));
        if kept.is_err() {
            // What comes first is why it could not be kept.
            let _ = std::fs::remove_dir_all(&fresh);
        }
        kept
    }

    fn fill(&self, folder: &Path, recording: &Path, found: &Exploration) -> std::io::Result<()> {
        std::fs::create_dir(folder)?;
        std::fs::copy(recording, folder.join(RECORDING))?;
        std::fs::copy(&self.blank.image, folder.join(BASE))?;
        for failure in &found.failures {
            let path = folder.join(state_name(failure.index));
            failure.state.write(&path).map_err(std::io::Error::other)?;
        }
        let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        let stories: Vec<&str> = found.witnesses.iter().map(|told| told.story.as_str()).collect();
        std::fs::write(
            folder.join("story.txt"),
            format!("{}\n\n{}\n", steps.join("\n"), stories.join("\n\n")),
        )
    }
}
