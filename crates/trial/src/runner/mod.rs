//! Runs one trial: builds the stack and the subject, drives the load, checks everything, and judges.
//!
//! Owns the order of the steps and what is cleaned up when one of them fails. It knows nothing of terminals.

mod block_history;
mod blocks;
mod course;
mod crash;
mod device_watch;
mod extents;
mod external;
mod failing;
mod files;
mod fio_json;
mod freed;
mod kinds;
mod leaf_watch;
mod load_history;
mod map;
mod mark_server;
mod marks;
mod medium;
mod memory;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod plan_tests;
mod replay;
mod results;
mod spiller;
mod steps;
mod tables;
mod working;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use rotproof_block::leaf::NbdDevice;
use rotproof_block::{Device as _, Error, ErrorKind, Phase, Result};
use rotproof_crash::{CrashReport, Pace};
use rotproof_fault::{FaultEntry, Ledger, Plan, Recogniser, Replay, ResolvedRule, Rule, Sites};
use rotproof_layers::{DeviceSpec, Stack, StackEnvironment};
use rotproof_load::engine::{LetGo, Sightings};
use rotproof_load::personality::failures_of;
use rotproof_load::{Classifier, Content, LoadReport, LoadSpec, Oracle, RealisedContent, Workload, realised};
use rotproof_measure::{Monitor, mark_errors, mark_file_errors};
use rotproof_record::Recording;

pub use blocks::contents_of;
pub use device_watch::{DeviceWatch, WatchedPhase};
use external::External;
use failing::{FailureFiles, FoundFailures};
use load_history::LoadHistory;
pub use map::map;
use mark_server::{MarkServer, SetMark};
use memory::{MemoryFaults, MemoryRecord, MemoryTarget};
pub use replay::Recorded;
pub use rotproof_results::run::{
    CommandReport, ExternalReport, FailureRecord, FailureSummary, ModelReport, ReplayReport, RuleReport,
    TrialRun, WallClock,
};
use spiller::Spiller;

use rotproof_machine::registry::{Registry, Run};
use rotproof_machine::{Cancel, Filled, UsageMeter, Use};
use rotproof_probe::Sampler;
use rotproof_results::NO_REMOUNT;
use rotproof_results::folder::ResultsFolder;
use rotproof_subject::{Prepared, SubjectDescription, SubjectEnvironment, SubjectSpec};

use crate::backing::{self, Backing};
use crate::file::TrialFile;
use crate::verdict::{Evidence, Failing, FileAccount, Verdict};

/// What a run is given beside its trial.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The folder in which the run makes its own for the results.
    pub results: PathBuf,
    /// Permits writing to a device or file that holds anything.
    pub overwrite: bool,
    /// A ledger whose faults are injected again, instead of what the schedules of the rules say.
    pub replay: Option<Arc<Recorded>>,
    /// The wish to stop.
    pub cancel: Cancel,
    /// Where to say how far it has come.
    pub monitor: Arc<Monitor>,
}

/// A run that has ended with a verdict.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The folder with the results; it is there unless they are `unwritten`.
    pub folder: PathBuf,
    /// What they say.
    pub report: TrialRun,
    /// The first failing blocks, a thousand at the most, and of each kind the first; the report says how many there are.
    pub failures: Vec<FailureRecord>,
    /// Why the results could not be written, if so.
    pub unwritten: Option<Arc<Error>>,
    /// What the run had created and could not remove, if anything.
    pub left: Option<Arc<Error>>,
}

/// Runs a trial that has been checked. An error is one of the machine or of Rotproof, never a finding; whatever had
/// been created is gone then.
pub fn run(trial: &TrialFile, options: &RunOptions) -> Result<Finished> {
    let plan = plan(trial)?;
    if options.replay.is_some() && !plan.on_memory.is_empty() {
        let context = "faults in memory cannot be injected again as they were: when memory is looked at, and what lies where in it, \
                       differs from run to run; run the trial without --replay";
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let replay = options.replay.as_ref().map(|recorded| recorded.against(&plan.rules)).transpose()?;
    trial.export.check_chosen().map_err(|error| error.while_doing("`export: ublk`"))?;
    // Until everything that stands on it is gone.
    let backing = backing::claim(&trial.stack, use_of(trial, options))?;
    let started = SystemTime::now();
    let run = Registry::of_user()?.begin()?;
    let finished = run_recorded(trial, options, (&plan, replay.as_ref()), (&run, &backing), started);
    let left = run.finish();
    match (finished, left.is_empty()) {
        (finished, true) => finished,
        (Ok(finished), false) => Ok(Finished { left: Some(Arc::new(not_removed(&left))), ..finished }),
        // Why it failed comes first; what is left is told with it.
        (Err(error), false) => Err(error.while_doing(not_removed(&left))),
    }
}

/// The same, with everything that it creates on record.
fn run_recorded(
    trial: &TrialFile,
    options: &RunOptions,
    (plan, replay): (&Plan, Option<&Replay>),
    (run, backing): (&Run, &Backing),
    started: SystemTime,
) -> Result<Finished> {
    let folder = ResultsFolder::create(run, &options.results, (&trial.name, trial.seed), started)?;
    let conducted = conduct(trial, options, plan, replay, (run, backing, folder.inside()))
        .map_err(|error| folder.told(error))?;
    // Whoever asked twice does not want to wait for what would be kept.
    options.cancel.check_haste()?;
    Ok(results::write(trial, &folder, plan, conducted, started))
}

/// The fault plan. How large an export of another server is, that server knows.
fn plan(trial: &TrialFile) -> Result<Plan> {
    let exports = trial.stack.leaves().filter_map(|leaf| match leaf {
        DeviceSpec::Nbd(nbd) => Some(nbd),
        _ => None,
    });
    let mut sizes: Vec<(&str, u64)> = Vec::new();
    for nbd in exports.filter(|_| trial.has_models()) {
        sizes.push((&nbd.uri, NbdDevice::connect(&nbd.uri.parse()?)?.info().size));
    }
    if sizes.is_empty() {
        return trial.plan();
    }
    trial.plan_on(&trial.sites_over(&|leaf| match leaf {
        DeviceSpec::Nbd(nbd) => sizes.iter().find(|(uri, _)| *uri == nbd.uri).map(|(_, size)| *size),
        _ => None,
    }))
}

fn not_removed(left: &[Error]) -> Error {
    let list: Vec<String> = left.iter().map(Error::to_string).collect();
    Error::new(
        ErrorKind::Internal,
        format!("not everything could be removed ({}); `rotproof clean` tries again", list.join("; ")),
    )
}

/// What the leaves are needed for.
fn use_of(trial: &TrialFile, options: &RunOptions) -> Use {
    // One that is not there, or smaller, is made as large as it is to be.
    let is_there = trial.stack.leaves().all(|leaf| match leaf {
        DeviceSpec::File(file) => std::fs::metadata(&file.path)
            .is_ok_and(|about| !about.is_file() || file.size.is_none_or(|size| size.0 <= about.len())),
        _ => true,
    });
    if trial.only_reads() && is_there { Use::READ } else { Use::fill(Filled::ByLoad, options.overwrite) }
}

/// All that a run found out.
struct Conducted {
    verdict: Verdict,
    /// Somebody asked to stop before the load and its check were done.
    is_interrupted: bool,
    /// Of a load of files; then nothing was done to blocks as such.
    files: Option<FileAccount>,
    load: Vec<LoadReport>,
    /// The load with every default filled in.
    spec: LoadSpec,
    /// What the load wrote; nobody knows that of a command.
    content: Option<RealisedContent>,
    external: Option<External>,
    /// What it did over time; of a command only its phases.
    recording: Option<Arc<Recording>>,
    /// What the device below the subject did over time, where the load sends its requests to something else.
    device: Option<Arc<Recording>>,
    /// What was injected.
    ledger: Arc<Ledger>,
    rules: Vec<rotproof_fault::RuleReport>,
    ledger_digest: String,
    replayed: Option<ReplayReport>,
    failures: FoundFailures,
    /// Their files in the folder of results.
    failures_written: Result<()>,
    /// Sizes of the objects with failures.
    object_bytes: BTreeMap<String, u64>,
    stack: Stack,
    subject: SubjectDescription,
    /// What the subject noticed by itself: errors of an unmount, a remount that failed.
    noticed: Vec<String>,
    kernel_messages: Vec<String>,
    /// What a machine has said.
    console: Option<String>,
    /// What stands beside the records of faults in memory.
    memory: Vec<MemoryRecord>,
    usage: rotproof_machine::Usage,
    /// What probes have found, if there were any.
    probes: Option<rotproof_probe::Recording>,
    /// What a power loss may leave, and how fast that was looked at.
    crash: Option<CrashReport>,
    crash_pace: Option<Pace>,
}

fn conduct(
    trial: &TrialFile,
    options: &RunOptions,
    plan: &Plan,
    replay: Option<&Replay>,
    (run, backing, results): (&Run, &Backing, &Path),
) -> Result<Conducted> {
    let meter = UsageMeter::start()?;
    let phase = Arc::new(AtomicU8::new(Phase::Setup as u8));
    let environment = SubjectEnvironment {
        run: run.clone(),
        seed: trial.seed,
        epoch: Instant::now(),
        phase: Arc::clone(&phase),
        export: trial.export,
        export_threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(2),
        cancel: options.cancel.clone(),
        is_recorded: trial.stack.is_recorded(),
    };
    options.monitor.begin("setup", None);
    let begin_probes = |spec| Sampler::begin(spec, environment.epoch, &options.cancel);
    let probes = trial.probes_spec().map(begin_probes).transpose()?;
    probes.iter().for_each(|probes| options.monitor.watch_probes(probes));
    let stack = rotproof_layers::open(
        &trial.whole_stack(),
        &StackEnvironment {
            seed: trial.seed,
            needs_faults: !trial.faults.iter().all(FaultEntry::is_on_memory),
            read_only: backing.is_read_only,
            epoch_ns: 0,
            recordings: Some(results.to_owned()),
        },
    )?;
    crash::keep_base(trial, &stack, results)?;
    options.monitor.watch_faults(&stack.sites);
    let device_watch = trial
        .load
        .leaves_requests_to_others()
        .then(|| DeviceWatch::new(&trial.record, results, environment.epoch))
        .transpose()?;
    let devices = stack.devices.iter().map(|named| match &device_watch {
        Some(watch) => watch.over(Arc::clone(&named.device)),
        None => Arc::clone(&named.device),
    });
    let mut subject = rotproof_subject::prepare(&trial.subject, devices.collect(), &environment)
        .map_err(|error| leaf_watch::blame(&stack, error))?;
    let spiller = Spiller::begin(stack.sites.ledger(), results)?;
    let memory = Arc::new(MemoryFaults::new(trial.seed, environment.epoch, plan.rules.len()));
    let (outcome, history) = {
        let mut conductor = Conductor {
            memory: &memory,
            trial,
            options,
            results,
            plan,
            replay,
            stack: &stack,
            environment: &environment,
            probes: probes.as_ref(),
            device_watch: device_watch.as_ref(),
            noticed: Vec::new(),
            marks: Arc::default(),
            history: None,
        };
        let loaded = conductor.conduct(subject.as_mut());
        (loaded, conductor.history.take())
    };
    phase.store(Phase::Setup as u8, Ordering::Relaxed);
    let mut description = subject.describe();
    if matches!(trial.subject, SubjectSpec::Volume(_)) {
        description.name = trial.subject.title();
    }
    let kernel_messages = subject.kernel_messages();
    let console = subject.console();
    let torn_down = subject.teardown();
    let Loaded { is_interrupted, files, mut load, recording, known, external, mut noticed } =
        outcome.map_err(|error| leaf_watch::blame(&stack, error))?;
    if let Some(error) = torn_down.into_iter().next() {
        return Err(error.while_doing("taking the subject down"));
    }
    let probes = probes.map(Sampler::end);
    let mut crash = match is_interrupted {
        // What was done up to there is recorded all the same.
        true => stack.finish_recordings().map(|()| None)?,
        false => crash::explore_states(trial, options, &stack, (run, results), history.as_ref())?,
    };
    // What equal runs say is equal, and how fast they were is said apart.
    let crash_pace = crash.as_mut().and_then(|crash| crash.exploration.pace.take());
    let is_interrupted = is_interrupted || options.cancel.is_cancelled();
    let usage = meter.read()?;
    options.monitor.begin("verdict", None);
    spiller.end();
    // Nobody writes any more.
    stack.sites.forget_repairs();
    freed::give_back();
    let ledger = Arc::clone(stack.sites.ledger());
    let mut rules = stack.sites.report();
    let ledger_digest = match stack.sites.is_empty() {
        true => String::new(),
        false => rotproof_fault::digest(&*ledger)?.to_string(),
    };
    let (on_memory, memory_details, reports) = memory.finish(ledger.len() as u64)?;
    noticed.extend(memory.untouchable());
    for record in &on_memory {
        ledger.append_of_others(record);
    }
    rules.extend(reports);
    let recorded = replay.zip(options.replay.as_ref());
    let replayed = recorded.map(|(replay, recorded)| recorded.report(replay, &ledger)).transpose()?;
    if let Some(recording) = &recording {
        marks::mark_faults(recording, plan, &ledger, stack.sites.load_began())?;
        mark_errors(recording, &load);
        files.iter().for_each(|files| mark_file_errors(recording, &files.reports));
    }
    let known = known.as_ref().map(|(workload, oracle)| (workload, oracle));
    let failing: Box<dyn Failing> = match (&files, known) {
        (Some(files), _) => Box::new(failures_of(&files.reports)),
        (None, Some((workload, oracle))) => Box::new(Classifier::new(workload, oracle, &load)),
        (None, None) => Box::new(Vec::new()),
    };
    let content = known.map(|(workload, oracle)| realised(workload, oracle));
    // The subject is gone, so nothing changes any more; what lost its power during the check is looked at, too.
    stack.sites.restore_power();
    let devices = stack.devices.iter().map(|named| Arc::clone(&named.device)).collect();
    let leftover = medium::Leftover { devices, runtime: trial.runtime };
    let exit = |name| external.as_ref().and_then(|external| external.report.exit(name));
    let whole_stack = trial.whole_stack();
    let mut failure_files = FailureFiles::create(results)?;
    let mut verdict = Verdict::reach(
        &Evidence {
            records: &*ledger,
            rules: &rules,
            models: &plan.models,
            failures: &*failing,
            reports: &load,
            seen_at: &|site, offset| stack.seen_at(site, offset),
            lies_below: &|site, offset| stack.lies_below(site, offset),
            blocks_stay: !trial.subject.has_files() && whole_stack.keeps_offsets(),
            keeps_copies: whole_stack.keeps_copies(),
            has_other_users: *trial.subject.on_top() != SubjectSpec::Raw,
            is_unreachable: noticed.iter().any(|what| what.starts_with(NO_REMOUNT)),
            medium: Some(&leftover),
            // What nobody has read back, nobody can judge.
            load: known.filter(|_| !is_interrupted),
            exit: exit("run"),
            check_exit: exit("check"),
            files: files.as_ref(),
        },
        &trial.expect,
        &mut |found| {
            failure_files.take(found);
            Ok(())
        },
    )?;
    drop(failing);
    load.iter_mut().for_each(|report| report.sightings = Sightings::default());
    let (failures, failures_written) = failure_files.finish();
    let objects = known.into_iter().flat_map(|(workload, _)| workload.objects());
    let object_bytes = objects
        .filter(|object| failures.by_object.contains_key(&object.name))
        .map(|object| (object.name.clone(), object.size_bytes))
        .collect();
    if let Some(found) = &crash {
        verdict.count_states(found, &trial.expect);
    }
    if is_interrupted {
        verdict.interrupt();
    }
    Ok(Conducted {
        verdict,
        is_interrupted,
        files,
        load,
        recording,
        device: device_watch.map(|watch| Arc::clone(watch.recording())),
        spec: known.map_or_else(|| trial.load.clone(), |(workload, _)| workload.spec().clone()),
        content,
        external,
        ledger,
        rules,
        ledger_digest,
        replayed,
        failures,
        failures_written,
        object_bytes,
        stack,
        subject: description,
        noticed,
        kernel_messages,
        console,
        memory: memory_details,
        usage,
        probes,
        crash,
        crash_pace,
    })
}

/// What is needed while the subject is up.
struct Conductor<'a> {
    trial: &'a TrialFile,
    options: &'a RunOptions,
    /// Where files without a name may grow.
    results: &'a Path,
    plan: &'a Plan,
    replay: Option<&'a Replay>,
    stack: &'a Stack,
    environment: &'a SubjectEnvironment,
    probes: Option<&'a Sampler>,
    device_watch: Option<&'a Arc<DeviceWatch>>,
    memory: &'a Arc<MemoryFaults>,
    noticed: Vec<String>,
    /// What the load has said so far.
    marks: Arc<Mutex<Vec<String>>>,
    /// What the load did, where states of a power loss are to be held against it.
    history: Option<LoadHistory>,
}

/// What the load found out.
#[derive(Default)]
struct Loaded {
    is_interrupted: bool,
    files: Option<FileAccount>,
    load: Vec<LoadReport>,
    recording: Option<Arc<Recording>>,
    /// The load and what it knows in the end, but of a command or of files.
    known: Option<(Workload, Oracle)>,
    external: Option<External>,
    noticed: Vec<String>,
}

impl Conductor<'_> {
    /// Sets marks in the recordings of the stack, from any thread, and tells the rules that wait for one.
    fn set_mark(&self) -> SetMark {
        let recordings = self.stack.recordings().to_vec();
        let (told, sites) = (Arc::clone(&self.marks), self.stack.sites.clone());
        Arc::new(move |text: &str| {
            told.lock().push(text.to_owned());
            for recording in &recordings {
                recording.recorder.mark(recording.recorder.time_ns(), text);
            }
            // Last: what a rule does because of it comes behind it in the recordings.
            sites.mark(text);
        })
    }

    /// Lets go what faults hold back: a file system that has requests under way cannot be unmounted.
    fn let_go(&self) -> Option<LetGo> {
        let sites = self.stack.sites.clone();
        (!sites.is_empty()).then(|| {
            let let_go: LetGo = Arc::new(move || {
                sites.release_all();
            });
            let_go
        })
    }

    /// Marks the block devices of the subject: those that it is or lies on, and those below the stack.
    fn tell_probes_of(&self, subject: &dyn Prepared) {
        let Some(probes) = self.probes else { return };
        let below = self.trial.stack.leaves().filter_map(|leaf| match leaf {
            DeviceSpec::File(file) => rotproof_machine::disk_of(&file.path),
            _ => None,
        });
        subject.disks().into_iter().chain(below).for_each(|name| probes.add_subject_disk(&name));
    }
}

/// Lets the ledger say which blocks hold something of the load, and which are the subject's own. `is_stored_as_sent`: what
/// the load sends may be found as it is.
fn let_recognise(sites: &Sites, content: Content, is_stored_as_sent: bool) {
    sites.set_recogniser(&recogniser(content, is_stored_as_sent));
}

fn recogniser(content: Content, is_stored_as_sent: bool) -> Arc<Recogniser> {
    Arc::new(move |block| content.made(block).filter(|&is_of_load| is_of_load || is_stored_as_sent))
}

/// Wakes rules none of which aims at what a load writes.
fn arm_without_load(sites: &Sites, rules: Vec<Rule>, replay: Option<&Replay>) -> Result<()> {
    let resolved = rules.into_iter().zip(0..).map(|(rule, index)| ResolvedRule {
        rule,
        contents: Vec::new(),
        recorded: replay.map(|replay| replay.of_rule(index)),
    });
    sites.add_rules(resolved.collect()).map(drop)
}

#[cfg(test)]
mod tests {
    use rotproof_block::leaf::MemoryDevice;
    use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer};

    use rotproof_fault::SiteList;

    use super::*;
    use crate::file::Overrides;

    #[test]
    fn models_are_drawn_for_the_size_that_an_nbd_server_tells() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = NbdAddress::Unix(folder.path().join("nbd.sock"));
        let device = MemoryDevice::new(8 << 20, 512).expect("a device");
        let export = NbdExport { name: "disk".into(), description: String::new(), device };
        let server = NbdServer::start(vec![export], &[address], NbdOptions::default()).expect("a server");
        let uri = &server.uris()[0];
        let yaml = format!(
            "stack: [nbd: {{ uri: '{uri}' }}]\nfaults: ['name=media: model(latent_sector_errors, acceleration=1e6)']\n"
        );
        let trial = TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(trial.sites(), SiteList::unnamed(None), "a check asks nobody");
        let found = plan(&trial).expect("the server is there");
        assert_eq!(found, trial.plan_on(&SiteList::unnamed(Some(8 << 20))).expect("the same size"));
        assert!(!found.rules.is_empty());
        server.stop().expect("it ends");
        assert!(plan(&trial).is_err());
    }
}
