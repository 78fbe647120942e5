//! Conducts one trial as the runner does, step by step and through the same public parts, with a witness above the
//! subject, the medium in the open, and the other hand between.
//!
//! `runner_alike` runs the same trial through the runner itself: under virtual time both must say the same.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{ContentHash, Device, Error, ErrorKind, Phase, Power, Result, Runtime, ability};
use rotproof_fault::{Engine, EngineOptions, Ledger, Persistence, ResolvedRule, Rule, TargetContent};
use rotproof_layers::{
    DedupDevice, DedupOptions, DeviceSpec, FaultDevice, FaultsSpec, StackEnvironment, StackSpec, StatsDevice,
};
use rotproof_load::engine::LetGo;
use rotproof_load::personality::{FileOracle, FilePlan, FileRunOptions, failures_of};
use rotproof_load::{
    Content, DeviceDriver, Driver, FatSet, FileSet, FilesSpec, LoadReport, Oracle, Progress, RunOn,
    RunOptions, Workload, classify,
};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Registry;
use rotproof_measure::Monitor;
use rotproof_subject::{Attached, Destination, ExportSpec, Prepared, SubjectEnvironment};
use rotproof_trial::file::RuntimeKind;
use rotproof_trial::runner::{self, FailureRecord};
use rotproof_trial::verdict::{Evidence, FileAccount, Medium, Verdict};

use crate::draw::Case;
use crate::hand::{Blow, Moment};
use crate::leaf::{Leaf, Slow};
use crate::ledger::Line;
use crate::look::{Top, strange};
use crate::told::Told;
use crate::witness::{Contents, Event, Log, Witness};

/// All that is known of a trial that is over.
pub struct Conducted {
    pub told: Told,
    pub lines: Vec<Line>,
    pub leaf: HashMap<u128, Vec<u64>>,
    /// How often each content is seen on the device in the end, if writes have failed on bad blocks: then what they were to
    /// replace is seen still, though the medium has it no more.
    pub kept: HashMap<u128, u64>,
    pub blows: Vec<Blow>,
    pub events: Vec<Event>,
    pub contents: Contents,
    pub facts: Facts,
    /// Of a load of files: blocks of them, by name, that in the end hold what no block should, as plain reads bring it.
    pub strange: Vec<(String, u64)>,
    pub noticed: Vec<String>,
}

/// What is plain from the trial itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// A place in the object is one on the device, and no cache lies between.
    pub is_direct: bool,
    /// The subject has caches of its own, or a file system.
    pub is_cached: bool,
    /// Of each rule: which it was drawn from, if from a model.
    pub models: Vec<Option<usize>>,
    /// What was expected of the trial is what is expected by default.
    pub is_by_default: bool,
    /// Below one block may lie what is in several above.
    pub shares_blocks: bool,
    pub is_of_files: bool,
    /// Several workers, each with flushes of its own.
    pub has_company: bool,
    /// Nothing took any time, so nothing came before anything else.
    pub is_timeless: bool,
}

impl Conducted {
    /// The load was one of files, on which nobody listened in.
    pub fn is_of_files(&self) -> bool {
        self.facts.is_of_files
    }
}

impl fmt::Display for Conducted {
    /// What is known beside the judgement, as far as people can read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "told: passes {}, {:?}", self.told.passes, self.told.counts)?;
        self.told.rules.iter().try_for_each(|rule| writeln!(f, "  {rule:?}"))?;
        writeln!(f, "noticed: {:?}", self.noticed)?;
        writeln!(f, "the other hand:")?;
        self.blows.iter().try_for_each(|blow| writeln!(f, "  {blow:x?}"))?;
        writeln!(f, "what the application asked:")?;
        let mut events = self.events.iter().enumerate().take(1500);
        events.try_for_each(|(number, event)| writeln!(f, "  {number}: {event:x?}"))?;
        writeln!(f, "failures:")?;
        self.told.failures.iter().take(300).try_for_each(|failure| writeln!(f, "  {failure:x?}"))?;
        writeln!(f, "ledger:")?;
        let mut lines = self.lines.iter().enumerate().take(1500);
        lines.try_for_each(|(number, line)| writeln!(f, "  {number}: {line:x?}"))
    }
}

struct Stage<'a> {
    case: &'a Case,
    engine: Option<Arc<Engine>>,
    device: Arc<dyn Device>,
    leaf: Leaf,
    environment: SubjectEnvironment,
    rules: Vec<Rule>,
    log: Log,
    blows: Arc<Mutex<Vec<Blow>>>,
    noticed: Vec<String>,
    strange: Vec<(String, u64)>,
}

/// Conducts a trial in `folder`, which is its own.
pub fn conduct(case: &Case, folder: &Path) -> Result<Conducted> {
    let trial = &case.trial;
    let plan = trial.plan()?;
    let run = Registry::at(&folder.join("state"))?.begin()?;
    let (leaf, engine, device) = stack(case)?;
    let environment = SubjectEnvironment {
        run: run.clone(),
        seed: trial.seed,
        epoch: Instant::now(),
        phase: Arc::new(AtomicU8::new(Phase::Setup as u8)),
        export: ExportSpec::Loop,
        export_threads: 2,
        cancel: Cancel::new(),
        is_recorded: false,
    };
    let mut subject = rotproof_subject::prepare(&trial.subject, vec![Arc::clone(&device)], &environment)?;
    if let Attached::Refused(error) = subject.attach()? {
        return Err(error);
    }
    let mut stage = Stage {
        case,
        engine,
        device,
        leaf,
        environment,
        rules: plan.rules.clone(),
        log: Log::default(),
        blows: Arc::default(),
        noticed: Vec::new(),
        strange: Vec::new(),
    };
    stage.await_the_hand();
    let loaded = match &trial.load.personality {
        Some(_) => stage.files(subject.as_mut()),
        None => stage.blocks(subject.as_mut()),
    };
    stage.environment.phase.store(Phase::Setup as u8, Ordering::Relaxed);
    let torn_down = subject.teardown();
    let loaded = loaded?;
    // Others on this machine look into devices, too.
    let is_busy = |error: &Error| error.kind() == ErrorKind::Os(libc::EBUSY);
    torn_down.into_iter().find(|error| !is_busy(error)).map_or(Ok(()), Err)?;
    if let Some(error) = run.finish().into_iter().next() {
        return Err(error);
    }
    stage.end(&loaded, &plan)
}

/// A block device of the kernel, past its page cache.
fn block_device(path: &Path) -> Result<DeviceDriver> {
    DeviceDriver::new(FileDevice::open(path, FileOptions::default())?)
}

/// The leaf, the engine of the faults, if there are any, and the top.
type Opened = (Leaf, Option<Arc<Engine>>, Arc<dyn Device>);

/// The stack that the trial describes, over a leaf that others may write to.
fn stack(case: &Case) -> Result<Opened> {
    let trial = &case.trial;
    let devices = &trial.stack.only().expect("stacks of one device are drawn").0;
    // A cache is part of what lies below: nobody looks at the medium past it.
    let below_all = 1 + usize::from(matches!(devices.get(1), Some(DeviceSpec::WriteCache(_))));
    let only = StackSpec::chain(devices[..below_all].to_vec());
    let below = rotproof_layers::open(
        &only,
        &StackEnvironment {
            seed: trial.seed,
            needs_faults: false,
            read_only: false,
            epoch_ns: 0,
            recordings: None,
        },
    )?
    .device()
    .clone();
    let leaf = Leaf(Arc::clone(&below));
    let power = ability::find::<dyn Power>(&*below);
    let is_memory = matches!(trial.stack.leaf(), Some(DeviceSpec::Memory(_)));
    // The hand must come before or after something.
    let is_slow = is_memory && case.hand.is_some() && trial.runtime == RuntimeKind::Simulated;
    let mut device: Arc<dyn Device> = if is_slow { Arc::new(Slow(below)) } else { below };
    let mut engine = None;
    let mut layers: Vec<DeviceSpec> = devices[below_all..].to_vec();
    if !trial.faults.is_empty() && !trial.stack.has_site() {
        layers.insert(0, DeviceSpec::Faults(FaultsSpec::default()));
    }
    for layer in layers {
        device = match layer {
            DeviceSpec::Faults(_) => {
                let options = EngineOptions { seed: trial.seed, device_size: device.info().size };
                let own = Engine::new(Vec::new(), options);
                if let Some(power) = &power {
                    own.set_power(Arc::clone(power));
                }
                engine = Some(Arc::clone(&own));
                FaultDevice::new(device, own)
            }
            DeviceSpec::Stats(_) => StatsDevice::new(device, "stats"),
            DeviceSpec::Dedup(dedup) => {
                let size_bytes = dedup.size.map(|size| size.0);
                DedupDevice::new(device, DedupOptions { size_bytes, verify: dedup.verify })?
            }
            other => unreachable!("{other:?} is no layer"),
        };
    }
    Ok((leaf, engine, device))
}

enum Loaded {
    Blocks(Box<(Workload, Oracle)>, Vec<LoadReport>),
    Files(Box<FileAccount>),
}

impl Stage<'_> {
    fn await_the_hand(&self) {
        if let Some(plan) = &self.case.hand
            && let Moment::During(after) = plan.moment
        {
            let (plan, leaf, engine) = (plan.clone(), self.leaf.clone(), self.engine.clone());
            let blows = Arc::clone(&self.blows);
            self.log.strike_after(
                after,
                Box::new(move |events, contents| {
                    let struck = plan.strike(&leaf, (events, contents), &places_hit(engine.as_deref()), None);
                    blows.lock().unwrap_or_else(PoisonError::into_inner).extend(struck);
                }),
            );
        }
    }

    fn hand(&self, moment: Moment, made: Option<&Content>) {
        if let Some(plan) = self.case.hand.as_ref().filter(|plan| plan.moment == moment) {
            let hit = places_hit(self.engine.as_deref());
            let struck =
                self.log.look(|events, contents| plan.strike(&self.leaf, (events, contents), &hit, made));
            self.blows.lock().unwrap_or_else(PoisonError::into_inner).extend(struck);
        }
    }

    fn let_go(&self) -> Option<LetGo> {
        let engine = Arc::clone(self.engine.as_ref()?);
        Some(Arc::new(move || {
            engine.release_all();
        }))
    }

    fn blocks(&mut self, subject: &mut dyn Prepared) -> Result<Loaded> {
        let trial = &self.case.trial;
        let simulated = (trial.runtime == RuntimeKind::Simulated).then(|| Runtime::simulated(trial.seed));
        let run_on = match &simulated {
            Some(runtime) => RunOn::Simulated(runtime),
            None => RunOn::Uring { epoch: self.environment.epoch },
        };
        let (driver, files) = self.made(&subject.place(), run_on)?;
        let workload = Workload::new(&trial.load, trial.seed, driver.objects())?;
        if let Some(engine) = &self.engine {
            let content = *workload.content();
            engine.set_recogniser(Arc::new(move |block| content.made(block)));
            arm(engine, &workload, self.rules.clone())?;
        }
        let mut oracle = Oracle::new(&workload);
        let mut reports = Vec::new();
        let stages: &[Phase] =
            if workload.has_prefill() { &[Phase::Prefill, Phase::Run] } else { &[Phase::Run] };
        for &phase in stages {
            reports.push(self.phase(phase, &workload, driver.as_ref(), &mut oracle, run_on)?);
        }
        if let Err(error) = driver.close(Phase::Run, run_on) {
            self.noticed.push(format!("unmount: {error}"));
        }
        drop(driver);
        self.hand(Moment::AfterRun, None);
        self.remount(subject)?;
        let driver = self.again(&subject.place(), files, run_on)?;
        self.hand(Moment::BeforeCheck, None);
        reports.push(self.phase(Phase::Check, &workload, driver.as_ref(), &mut oracle, run_on)?);
        Ok(Loaded::Blocks(Box::new((workload, oracle)), reports))
    }

    fn remount(&mut self, subject: &mut dyn Prepared) -> Result<()> {
        let reported = subject.detach()?;
        self.noticed.extend(reported.iter().map(|error| format!("unmount: {error}")));
        self.engine.iter().for_each(|engine| engine.restore_power());
        if let Attached::Refused(error) = subject.attach()? {
            self.noticed.push(format!("{NO_REMOUNT}: {error}"));
        }
        Ok(())
    }

    fn made(&self, place: &Destination, on: RunOn<'_>) -> Result<(Box<dyn Driver>, Option<FilesSpec>)> {
        let trial = &self.case.trial;
        Ok(match place {
            Destination::Folder(folder) => {
                let files = trial.load.files_in(rotproof_machine::free_bytes(folder)?);
                (Box::new(FileSet::create(folder, files, trial.load.file_access())?), Some(files))
            }
            Destination::Fat(device) => {
                let (set, files) = FatSet::create(Arc::clone(device), &trial.load, trial.seed, on)?;
                (Box::new(set), Some(files))
            }
            Destination::Device(device) => (Box::new(DeviceDriver::new(Arc::clone(device))?), None),
            Destination::BlockDevice(path) => (Box::new(block_device(path)?), None),
        })
    }

    fn again(
        &mut self,
        place: &Destination,
        files: Option<FilesSpec>,
        on: RunOn<'_>,
    ) -> Result<Box<dyn Driver>> {
        let trial = &self.case.trial;
        let known = || files.expect("what was made is known");
        Ok(match place {
            Destination::Folder(folder) => {
                Box::new(FileSet::open(folder, known(), trial.load.file_access())?)
            }
            Destination::Fat(device) => {
                let (set, lost) = FatSet::open(Arc::clone(device), known(), trial.seed, on)?;
                self.noticed.extend(lost.map(|error| format!("{NO_REMOUNT}: {error}")));
                Box::new(set)
            }
            Destination::Device(device) => Box::new(DeviceDriver::new(Arc::clone(device))?),
            Destination::BlockDevice(path) => Box::new(block_device(path)?),
        })
    }

    fn phase(
        &self,
        phase: Phase,
        workload: &Workload,
        driver: &dyn Driver,
        oracle: &mut Oracle,
        runtime: RunOn<'_>,
    ) -> Result<LoadReport> {
        self.environment.phase.store(phase as u8, Ordering::Relaxed);
        let options = RunOptions {
            runtime,
            phase,
            verify: true,
            cancel: Arc::new(AtomicUsize::new(0)),
            progress: Arc::<Progress>::default(),
            recording: None,
            phase_cell: Some(Arc::clone(&self.environment.phase)),
            let_go: self.let_go(),
        };
        rotproof_load::run(workload, &Witness::of(driver, &self.log), oracle, &options)
    }

    fn files(&mut self, subject: &mut dyn Prepared) -> Result<Loaded> {
        let trial = &self.case.trial;
        let personality = trial.load.personality.as_ref().expect("a load of files");
        let folder_of = |subject: &dyn Prepared| match subject.place() {
            Destination::Folder(root) => root.join("files"),
            other => unreachable!("{other:?} has no files"),
        };
        let plan = FilePlan::new(personality, trial.seed);
        if let Some(engine) = &self.engine {
            let content = *plan.content();
            engine.set_recogniser(Arc::new(move |block| content.made(block)));
            let resolved = self.rules.iter().map(|rule| ResolvedRule {
                rule: rule.clone(),
                contents: Vec::new(),
                recorded: None,
            });
            engine.add_rules(resolved.collect())?;
        }
        let mut oracle = FileOracle::new(&plan);
        let mut reports = Vec::new();
        std::fs::create_dir(folder_of(subject))
            .map_err(|error| Error::from_io(error, "making the folder"))?;
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            if phase == Phase::Check {
                self.hand(Moment::AfterRun, Some(plan.content()));
                self.remount(subject)?;
                self.hand(Moment::BeforeCheck, Some(plan.content()));
            }
            self.environment.phase.store(phase as u8, Ordering::Relaxed);
            let options = FileRunOptions {
                phase,
                clock: rotproof_block::runtime::Clock::since(self.environment.epoch),
                duration: trial.load.duration.filter(|_| phase == Phase::Run).map(|span| span.0),
                cancel: Arc::new(AtomicUsize::new(0)),
                progress: Arc::<Progress>::default(),
                recording: None,
                until_steady: None,
                hung_after: None,
                let_go: self.let_go(),
            };
            let folder = folder_of(subject);
            reports.push(rotproof_load::personality::run(&plan, &folder, &mut oracle, &options)?);
        }
        // What was stored wrong reads wrong with the faults disabled, too.
        self.environment.phase.store(Phase::Setup as u8, Ordering::Relaxed);
        let hashes: HashSet<u128> = oracle.hashes().into_iter().map(|hash| hash.0).collect();
        strange(&folder_of(subject), "", &hashes, &mut self.strange);
        Ok(Loaded::Files(Box::new(FileAccount { reports, oracle: Some(oracle) })))
    }

    fn end(self, loaded: &Loaded, plan: &rotproof_fault::Plan) -> Result<Conducted> {
        let trial = &self.case.trial;
        let empty = Ledger::default();
        let (injected, rules) = match &self.engine {
            Some(engine) => (engine.ledger(), engine.report()),
            None => (&empty, Vec::new()),
        };
        // Before anybody looks at the medium through the faults, which is told in it too.
        let mut ledger = Vec::new();
        if let Some(engine) = &self.engine {
            engine.ledger().write_to(&mut ledger).expect("memory");
        }
        // What went in the check is looked at, too.
        self.engine.iter().for_each(|engine| engine.restore_power());
        let (failures, known, reports, files) = match loaded {
            Loaded::Blocks(known, reports) => {
                let (workload, oracle) = known.as_ref();
                (classify(workload, oracle, reports), Some((workload, oracle)), reports.as_slice(), None)
            }
            Loaded::Files(files) => (failures_of(&files.reports), None, [].as_slice(), Some(files.as_ref())),
        };
        let is_unreachable = self.noticed.iter().any(|what| what.starts_with(NO_REMOUNT));
        let blocks_stay = !trial.subject.has_files() && trial.stack.keeps_offsets();
        let evidence = Evidence {
            records: injected,
            rules: &rules,
            models: &plan.models,
            failures: &failures,
            reports,
            seen_at: &|_, offset| Some((0, offset)),
            lies_below: &|_, _| true,
            blocks_stay,
            keeps_copies: trial.stack.keeps_copies(),
            has_other_users: !matches!(trial.subject, rotproof_subject::SubjectSpec::Raw),
            is_unreachable,
            medium: Some(&Top(Arc::clone(&self.device))),
            load: known,
            exit: None,
            check_exit: None,
            files,
        };
        let reach = |evidence: &Evidence<'_>, range_max: u64| -> Result<(Verdict, Vec<FailureRecord>)> {
            let mut told = Vec::new();
            let verdict = Verdict::reach_in_ranges(evidence, range_max, &trial.expect, &mut |found| {
                told.extend(found.into_iter().map(|(failure, cause)| FailureRecord { failure, cause }));
                Ok(())
            })?;
            Ok((verdict, told))
        };
        if blocks_stay {
            // As a device with millions of failing blocks is judged. A look at the medium would be told in the ledger.
            let unseen = Evidence { medium: None, ..evidence };
            let ((whole, of_whole), (parts, of_parts)) = (reach(&unseen, u64::MAX)?, reach(&unseen, 16)?);
            let seed = self.case.trial.seed;
            assert_eq!((&parts.rules, &parts.counts), (&whole.rules, &whole.counts), "seed {seed}");
            assert_eq!(of_parts, of_whole, "seed {seed}");
        }
        let (verdict, told) = reach(&evidence, u64::MAX)?;
        let stays: Vec<bool> =
            plan.rules.iter().map(|rule| rule.persistence != Persistence::Transient).collect();
        let model_of = |rule| plan.models.iter().position(|model| model.rules.contains(&rule));
        let is_cached = known.is_none_or(|(workload, _)| workload.spec().file_access().is_cached());
        let (events, contents) = self.log.look(|events, contents| (events.to_vec(), contents.clone()));
        let is_timeless = events.iter().all(|event| event.completed == 0);
        let lines = Line::all(&String::from_utf8_lossy(&ledger), &stays);
        let has_kept =
            lines.iter().any(|line| line.operation == "write" && line.effect.starts_with("medium_error"));
        let kept = has_kept.then(|| contents.keys().map(|&content| ContentHash(content)).collect());
        let kept = kept.and_then(|contents| Top(Arc::clone(&self.device)).count(&contents));
        Ok(Conducted {
            told: Told::of(verdict.passes(), &verdict.counts, &verdict.rules, &told),
            lines,
            kept: kept.into_iter().flatten().map(|(content, count)| (content.0, count)).collect(),
            leaf: self.leaf.contents(),
            blows: std::mem::take(&mut *self.blows.lock().unwrap_or_else(PoisonError::into_inner)),
            events,
            contents,
            facts: Facts {
                is_direct: blocks_stay,
                is_cached,
                models: (0..plan.rules.len()).map(model_of).collect(),
                is_by_default: !self.case.yaml.contains("expect:"),
                shares_blocks: trial.stack.shares_blocks(),
                is_of_files: files.is_some(),
                has_company: known.is_some_and(|(workload, _)| workload.workers() > 1),
                is_timeless,
            },
            strange: self.strange,
            noticed: self.noticed,
        })
    }
}

/// What the runner says of a subject that does not come back.
const NO_REMOUNT: &str = "it could not be mounted again";

fn places_hit(engine: Option<&Engine>) -> Vec<u64> {
    let records = engine.map(|engine| engine.ledger().records().expect("in memory")).unwrap_or_default();
    records.iter().filter(|record| record.before.is_some()).map(|record| record.offset).collect()
}

fn arm(engine: &Engine, workload: &Workload, rules: Vec<Rule>) -> Result<()> {
    let contents = runner::contents_of(workload, &rules)?;
    let resolved = rules.into_iter().zip(contents).map(|(rule, contents)| {
        let contents = contents.into_iter().map(|target| TargetContent {
            content: target.hash,
            label: target.label,
            beginning: Some(workload.content().beginning(target.content)),
        });
        ResolvedRule { rule, contents: contents.collect(), recorded: None }
    });
    engine.add_rules(resolved.collect()).map(drop)
}

/// What the runner itself says of the trial, in which nobody else has a hand.
pub fn runner_alike(case: &Case, folder: &Path) -> Result<Told> {
    let options = runner::RunOptions {
        results: folder.join("results"),
        overwrite: false,
        replay: None,
        cancel: Cancel::new(),
        monitor: Arc::<Monitor>::default(),
    };
    let finished = runner::run(&case.trial, &options)?;
    let rules: Vec<_> = finished.report.faults.iter().map(|rule| rule.outcome.clone()).collect();
    Ok(Told::of(finished.report.verdict.passes(), &finished.report.counts, &rules, &finished.failures))
}
