//! The states that a power loss during the load may have left: recorded by the stack's recorder, explored once the subject is
//! gone. What fails is kept beside the recording, so that `rotproof crash --state` shows it again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Buffer, Context, Device, Error, ErrorKind, Phase, Request, Result, Runtime};
use rotproof_crash::recording::Reader;
use rotproof_crash::{Check, Contents, CrashReport, ExploreOptions, StateOptions, WayLimits, marks};
use rotproof_crash_fs::{
    AllOracles, BASE, BEGINS, CommandOracle, CommandWords, ImageCheck, ImageOracle, Looks, MemoryBound,
    NoOracle, Oracle, Promise, RawCheck, begin_behind, explore_and_keep, explore_recording,
};
use rotproof_layers::{DeviceSpec, Stack, StackRecording};
use rotproof_load::CommandLine;
use rotproof_load::engine::{ProgressCounts, ProgressKind};
use rotproof_machine::registry::CleanupStack;
use rotproof_subject::{FileSystem, FileSystemSpec, SubjectSpec};

use super::RunOptions;
use super::load_history::LoadHistory;
use crate::file::{CrashMoment, CrashSpec, MountedBy, RuntimeKind, TrialFile};

/// The mark with which the recording of a subject ends that was killed during the load.
pub(super) const KILLED: &str = "the subject is killed";
/// Folder in that of the run for what oracles need.
const SCRATCH: &str = "crash";
const READ_BYTES: u64 = 1 << 20;

/// Writes what the recorded device holds before anybody uses it, unless that is nothing but zeros.
pub(super) fn keep_base(trial: &TrialFile, stack: &Stack, folder: &Path) -> Result<()> {
    let is_new = |leaf: &DeviceSpec| matches!(leaf, DeviceSpec::Memory(_) | DeviceSpec::Disk(_));
    let Some(recording) = stack.recordings().last() else { return Ok(()) };
    if trial.crash.is_none() || trial.stack.leaves().all(is_new) {
        return Ok(());
    }
    write_image(&recording.device, &folder.join(BASE))
}

/// Flushes the recorded device, past whatever is above it, and puts that on record.
pub(super) fn settle(recording: &StackRecording, kind: RuntimeKind) -> Result<()> {
    let runtime = match kind {
        RuntimeKind::Simulated => Runtime::simulated(0),
        RuntimeKind::IoUring => Runtime::uring(RuntimeOptions::new(0))?,
    };
    let queue = recording.device.open_queue(&runtime)?;
    let now = recording.recorder.time_ns();
    let name = recording.recorder.flush(now);
    let flushed = runtime.block_on(queue.submit(Request::flush(Context::default())))?.result;
    recording.recorder.done(now, name, flushed.is_ok());
    flushed.map_err(|error| error.while_doing("flushing the recorded device before the load"))
}

/// Writes the image of a device, holes for zeros; no file if it is zeros altogether.
fn write_image(device: &Arc<dyn Device>, path: &Path) -> Result<()> {
    let doing = || format!("keeping what the device held before, in {}", path.display());
    let runtime = Runtime::uring(RuntimeOptions::new(0))?;
    let queue = device.open_queue(&runtime)?;
    let size = device.info().size;
    let mut file: Option<File> = None;
    for start in (0..size).step_by(READ_BYTES as usize) {
        let length = READ_BYTES.min(size - start);
        let context = Context { phase: Phase::Setup, submitted: runtime.now(), ..Context::default() };
        let request = Request::read(start, Buffer::zeroed(length as usize), context);
        let completion = runtime.block_on(queue.submit(request))?;
        completion.result.map_err(|error| error.while_doing(doing()))?;
        if completion.buffer.iter().all(|&byte| byte == 0) {
            continue;
        }
        let file = match &mut file {
            Some(file) => file,
            none => none.insert(File::create_new(path).doing(doing)?),
        };
        file.write_all_at(&completion.buffer, start).doing(doing)?;
    }
    Ok(())
}

/// Ends the recordings, and explores if the trial says so. The subject is gone.
pub(super) fn explore_states(
    trial: &TrialFile,
    options: &RunOptions,
    stack: &Stack,
    (run, folder): (&rotproof_machine::registry::Run, &Path),
    history: Option<&LoadHistory>,
) -> Result<Option<CrashReport>> {
    stack.finish_recordings()?;
    let (Some(spec), Some(recorded)) = (&trial.crash, stack.recordings().last()) else { return Ok(None) };
    options.monitor.begin("crash", None);
    let recording = &recorded.path;
    let all_marks = marks(Reader::open(recording)?)?;
    let begin = match spec.at {
        CrashMoment::Any => begin_behind(&all_marks, BEGINS)?,
        // Where the rule has never hit, there was no such moment, and no state.
        CrashMoment::Kill if !all_marks.iter().any(|mark| mark.text == KILLED) => return Ok(None),
        CrashMoment::Kill => begin_behind(&all_marks, KILLED)?,
    };
    let base = folder.join(BASE);
    let workers = spec.workers.map_or_else(default_workers, |workers| workers as usize);
    let memory = spec.memory.map_or(Ok(MemoryBound::NONE), |bytes| MemoryBound::of(bytes.0, workers))?;
    let states = StateOptions {
        known_max: memory.known_max,
        base: base.exists().then_some(base),
        begin,
        states_max: spec.states,
        ways: spec.ways.clone(),
        limits: WayLimits {
            per_point_max: spec.per_moment,
            subsets_drawn: spec.per_moment,
            ..WayLimits::default()
        },
        unit_bytes: Some(spec.atomic.0),
        is_shared: true,
        ..StateOptions::new(recording, trial.seed)
    };
    let mut cleanup = CleanupStack::new(run);
    let scratch = run.scratch().join(SCRATCH);
    cleanup.create_tree(&scratch)?;
    let oracles = Oracles { trial, spec, options, scratch: &scratch, history };
    let words = oracles.words();
    let exploring = ExploreOptions {
        workers,
        time_max: spec.duration.map(|span| span.0),
        failures_max: spec.failures_max,
        ..ExploreOptions::new(states)
    };
    let stop = AtomicBool::new(false);
    let progress = options.monitor.begin_load("crash", None, None);
    let counted = AtomicU64::new(0);
    let tell = |told: &rotproof_crash::Progress| {
        stop.store(options.cancel.is_cancelled(), Ordering::Relaxed);
        let before = counted.swap(told.checked, Ordering::Relaxed);
        let requests = told.checked.saturating_sub(before);
        progress.add(ProgressKind::Read, ProgressCounts { requests, ..ProgressCounts::default() });
    };
    let explored = match trial.subject.file_system() {
        Some(file_system) => {
            let looks = Looks {
                kind: Some(file_system.kind),
                mount: &file_system.mount,
                machine: match &trial.subject {
                    SubjectSpec::Machine(machine) if spec.mounted_by == MountedBy::Guest => {
                        Some((machine, &options.cancel))
                    }
                    _ => None,
                },
                fsck: spec.fsck,
                second_cuts: spec.second_cuts,
                memory,
                words: &words,
            };
            let make = |worker: usize| oracles.oracle(worker);
            explore_recording(run, &exploring, &looks, &make, folder, (&tell, &stop))
        }
        None => {
            let make =
                |worker: usize, contents: &Arc<Contents>| oracles.of_bytes(run, worker, contents, memory);
            explore_and_keep(&exploring, &make, &words, folder, (&tell, &stop))
        }
    };
    let left = cleanup.undo_all();
    let mut report = explored?;
    report.not_shown.extend(unseen(&stack.sites.report()));
    if let Some(part) = history.and_then(LoadHistory::not_judged) {
        report.not_shown.push(part);
        report.judged_in_part();
    }
    if let Some(error) = left.into_iter().next() {
        return Err(error.while_doing("removing what the exploration had created"));
    }
    Ok(Some(report))
}

/// So many rules are named at the most.
const RULES_TOLD: usize = 5;

/// Tells of the rules that have changed data: a fault lies over what the device holds, and the recording has what was sent.
fn unseen(rules: &[rotproof_fault::RuleReport]) -> Option<String> {
    let hit = |rule: &&rotproof_fault::RuleReport| rule.hits > 0 && rule.rule.effect.is_on_data();
    let names: Vec<String> = rules.iter().filter(hit).map(|rule| format!("`{}`", rule.name)).collect();
    let more = match names.len().saturating_sub(RULES_TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let told = names[..names.len().min(RULES_TOLD)].join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "the corruption by {told}{more}. The states come from the recording, which has the data as they were sent. Only the check after \
             the load judges what these rules corrupt."
        )
    })
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4)
}

/// Who looks at states.
struct Oracles<'a> {
    trial: &'a TrialFile,
    spec: &'a CrashSpec,
    options: &'a RunOptions,
    scratch: &'a Path,
    history: Option<&'a LoadHistory>,
}

impl Oracles<'_> {
    fn command(&self) -> Option<&CommandLine> {
        let of_load = || self.trial.load.command.as_ref()?.check.as_ref();
        self.spec.check.as_ref().or_else(of_load)
    }

    fn words(&self) -> Vec<String> {
        let mount = match &self.trial.subject {
            SubjectSpec::Machine(_) if self.spec.mounted_by == MountedBy::Host => {
                Some("mount by the kernel of this machine")
            }
            SubjectSpec::Machine(_) => Some("mount by the kernel of a guest"),
            other => other.file_system().map(|_| "mount"),
        };
        let mut words: Vec<String> = mount.map(str::to_owned).into_iter().collect();
        words.extend(self.spec.fsck.then(|| "fsck".to_owned()));
        let oracle = match mount {
            Some(_) => "the load's oracle",
            None => "the load's oracle, over the bytes of the device",
        };
        words.extend(self.history.is_some().then(|| oracle.to_owned()));
        words.extend(self.command().map(|command| format!("check: {command}")));
        words
    }

    fn oracle(&self, worker: usize) -> Result<Box<dyn Oracle>> {
        let mut oracles: Vec<Box<dyn Oracle>> = Vec::new();
        if let Some(history) = self.history {
            oracles.push(history.oracle(self.spec.atomic.0, self.promise()));
        }
        if let Some(command) = self.command() {
            oracles.push(Box::new(self.command_of(command, worker)?));
        }
        if oracles.is_empty() {
            oracles.push(Box::new(NoOracle));
        }
        Ok(Box::new(AllOracles(oracles)))
    }

    /// Who looks at the states of a device without a file system: the load's oracle in process, a command at a file that shows them.
    fn of_bytes(
        &self,
        run: &rotproof_machine::registry::Run,
        worker: usize,
        contents: &Arc<Contents>,
        memory: MemoryBound,
    ) -> Result<Box<dyn Check>> {
        let of_load = self.history.and_then(|history| -> Option<Box<dyn ImageOracle>> {
            match history {
                LoadHistory::Blocks(history) => Some(Box::new(history.image_oracle(self.atomic_bytes()))),
                // A load of files has a file system.
                LoadHistory::Files(_) => None,
            }
        });
        let contents = Arc::clone(contents);
        match (self.command(), of_load) {
            (None, Some(of_load)) => Ok(Box::new(ImageCheck::new(contents, of_load))),
            (Some(command), of_load) => {
                let (name, oracle) = (format!("crash-{worker}"), Box::new(self.command_of(command, worker)?));
                let check = RawCheck::new(run, &name, contents, memory.scratch_bytes_max, oracle)?;
                Ok(Box::new(check.with_bytes(of_load)))
            }
            (None, None) => {
                let context = "nobody knows what the states of this device are to hold";
                Err(Error::new(ErrorKind::Internal, context))
            }
        }
    }

    /// What the file system promises.
    fn promise(&self) -> Promise {
        let of = |spec: &FileSystemSpec| Promise::of(spec.kind, &spec.mount);
        self.trial.subject.file_system().map_or(Promise::of(FileSystem::Ext4, &[]), of)
    }

    /// What the device promises to the load: it tears no write inside so many bytes.
    fn atomic_bytes(&self) -> u64 {
        let atomic = self.spec.atomic.0;
        let stack = self.trial.whole_stack();
        let caches = stack.devices().into_iter().filter_map(|device| match device {
            DeviceSpec::WriteCache(cache) => Some(cache.atomic.0),
            _ => None,
        });
        // What a cache or a kernel writes back need not be the requests of the load.
        let largest = match (&self.trial.subject, caches.min()) {
            (SubjectSpec::Raw, None) => u64::MAX,
            (_, of_cache) => of_cache.unwrap_or(u64::MAX).min(rotproof_load::BLOCK_BYTES as u64),
        };
        atomic.min(largest)
    }

    fn command_of(&self, command: &CommandLine, worker: usize) -> Result<CommandOracle> {
        let folder = self.scratch.join(format!("check-{worker}"));
        std::fs::create_dir(&folder).doing(|| format!("making {}", folder.display()))?;
        self.command_oracle(command, folder)
    }

    fn command_oracle(&self, command: &CommandLine, folder: PathBuf) -> Result<CommandOracle> {
        let trial_dir = match self.trial.load.command.as_ref().and_then(|command| command.trial_dir.clone()) {
            Some(folder) => folder,
            None => std::env::current_dir().doing(|| "looking for the folder of the trial".into())?,
        };
        let trial_dir = trial_dir.display().to_string();
        let (line, of_words) = (command.clone(), trial_dir.clone());
        let words: CommandWords =
            Arc::new(move |mountpoint| line.words(&mountpoint.display().to_string(), &of_words));
        Ok(CommandOracle {
            words,
            variables: vec![
                ("ROTPROOF_SEED", self.trial.seed.to_string()),
                ("ROTPROOF_TRIAL_DIR", trial_dir),
            ],
            timeout: self.spec.timeout.0,
            folder,
            cancel: self.options.cancel.clone(),
        })
    }
}
