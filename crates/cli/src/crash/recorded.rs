//! `rotproof crash SUBJECT --recording FILE`: the states of a recording that is there already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_crash::recording::{Reader, log_writes};
use rotproof_crash::{CrashReport, Ended, ExploreOptions, Progress, StateOptions, Way, WayLimits, marks};
use rotproof_crash_fs::{
    BASE, BEGINS, CommandOracle, CommandWords, Looks, MemoryBound, NoOracle, Oracle, base_beside,
    begin_behind, explore_recording,
};
use rotproof_load::CommandLine;
use rotproof_machine::registry::{CleanupStack, Registry, Run};
use rotproof_machine::{Cancel, lock_folder, write_whole};
use rotproof_results::run::CrashRun;
use rotproof_results::{FORMAT, RUN_FILE};
use rotproof_spec::{Bytes, Span};
use rotproof_subject::{FileSystem, FileSystemSpec, MachineKind, MachineSpec};
use serde_json::json;

use super::source::{Source, link, name_of};
use super::{CrashArgs, Held};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::power_loss;
use crate::signals::cancel_on_signals;
use crate::trials::shell_word;
use crate::units::{self, count};
use crate::verdict::wrapped;

/// What is said of a recording that is there.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Of a recording that is there")]
pub struct RecordedArgs {
    /// Explore this recording: one of the layer `record`, or a log of the kernel's dm-log-writes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["length", "sample"])]
    pub recording: Option<PathBuf>,

    /// Write the recording to this file as a log of dm-log-writes, instead of exploring it
    #[arg(long, value_name = "FILE", requires = "recording", conflicts_with = "subject")]
    pub export_log: Option<PathBuf>,

    /// What the device held before, as an image; default: base.img beside the recording, else zeros
    #[arg(long, value_name = "FILE", requires = "recording")]
    pub base: Option<PathBuf>,

    /// How large the device of a log of dm-log-writes is; default: up to the last byte that was written
    #[arg(long, value_name = "BYTES", requires = "recording")]
    pub size: Option<Bytes>,

    /// Looks at each state: exit code 0 is good; {target} is where it is mounted, or its file
    #[arg(long, value_name = "COMMAND", requires = "recording")]
    pub check: Option<String>,

    /// How long that may take
    #[arg(long, value_name = "SPAN", default_value = "30s", requires = "recording")]
    pub timeout: Span,

    /// No crash comes before this mark; default: `the load begins`, or from the first request on
    #[arg(long, value_name = "MARK", requires = "recording")]
    pub begin: Option<String>,

    /// The ways to choose states, in their order
    #[arg(long, value_name = "WORDS", value_delimiter = ',', value_parser = way, requires = "recording")]
    pub ways: Vec<Way>,

    /// So often the power goes again while a state is recovered
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100), requires = "recording")]
    pub second_cuts: u32,

    /// What may be taken for what is written to states and for the images that are known; default: 512MiB for each worker
    #[arg(long, value_name = "BYTES", requires = "recording")]
    pub memory: Option<Bytes>,

    /// The unit inside which the disk never tears a write
    #[arg(long, value_name = "BYTES", default_value = "4KiB", requires = "recording")]
    pub atomic: Bytes,

    /// Mount states by this kernel, as a guest of QEMU, instead of by that of this machine
    #[arg(long, value_name = "IMAGE", requires = "recording")]
    pub kernel: Option<PathBuf>,

    /// Its modules; default: those installed for it in /lib/modules
    #[arg(long, value_name = "FOLDER", requires = "kernel")]
    pub modules: Option<PathBuf>,

    /// Stop after so many states that fail
    #[arg(long, value_name = "N", default_value_t = 100, requires = "recording")]
    pub failures_max: u64,
}

/// States that are looked at if nothing is said.
const STATES: u64 = 1000;
/// States of one moment, for each way.
const PER_MOMENT: u64 = 20;
/// Progress is told every so many times that it is heard of.
const TELL_EVERY: u64 = 10;
/// How far an exploration has come.
const PROGRESS: &str = "progress.json";

fn way(word: &str) -> Result<Way, String> {
    let found = Way::ALL.into_iter().find(|way| way.name() == word);
    found.ok_or_else(|| format!("ways are {}", Way::ALL.map(Way::name).join(", ")))
}

/// Writes a recording as a log that the kernel's tools read.
pub fn export_log(recording: &Path, log: &Path, json: bool, output: Output) -> Result<Exit, CommandError> {
    if log_writes::is_one(recording)? {
        let what = format!("{} is a log of dm-log-writes already", recording.display());
        return Err(Error::new(ErrorKind::Invalid, what).into());
    }
    let entries = log_writes::export(recording, log)?;
    match json {
        true => output.json(&json!({ "log": log, "entries": entries })),
        false => output.result(format!("{} with {} entries", log.display(), count(entries))),
    }
    Ok(Exit::Pass)
}

/// Explores it. What was begun in a folder goes on where it stood.
pub fn explore_recorded(
    args: &CrashArgs,
    subject: Held,
    source: &Path,
    output: Output,
) -> Result<Exit, CommandError> {
    let cancel = cancel_on_signals()?;
    let of = &args.recorded;
    let (kind, subject) = (subject.kind(), subject.name());
    if kind.is_none() {
        check_raw(args)?;
    }
    let bound = |bytes: Bytes| MemoryBound::of(bytes.0, args.workers());
    let memory = of.memory.map_or(Ok(MemoryBound::NONE), bound)?;
    let found = Source::look(source, of.size)?;
    let folder = args.results.clone().unwrap_or_else(|| found.default_folder());
    std::fs::create_dir_all(&folder).doing(|| format!("making {}", folder.display()))?;
    let _alone = lock_folder(&folder)?;
    let recording = found.bring(&folder)?;
    let base = of.base.clone().or_else(|| base_beside(source));
    if let Some(base) = &base {
        link(base, &folder.join(BASE))?;
    }
    let all_marks = marks(Reader::open(&recording)?)?;
    let begin = match &of.begin {
        Some(mark) => begin_behind(&all_marks, mark)?,
        None => begin_behind(&all_marks, BEGINS).unwrap_or(0),
    };
    let words = words(args, of);
    let exploring = ExploreOptions {
        workers: args.workers(),
        time_max: args.duration.map(|span| span.0),
        failures_max: of.failures_max,
        resume: Some(folder.join(PROGRESS)),
        looked_at_by: format!(
            "{subject} {words:?} {:?} {} {:?}",
            args.mount,
            of.second_cuts,
            name_of(base.as_deref())?
        ),
        ..ExploreOptions::new(StateOptions {
            base,
            begin,
            states_max: args.states.unwrap_or(STATES),
            ways: if of.ways.is_empty() { Way::IN_ORDER.to_vec() } else { of.ways.clone() },
            limits: WayLimits {
                per_point_max: PER_MOMENT,
                subsets_drawn: PER_MOMENT,
                ..WayLimits::default()
            },
            unit_bytes: Some(of.atomic.0),
            is_shared: true,
            known_max: memory.known_max,
            ..StateOptions::new(&recording, args.seed)
        })
    };
    let run = Registry::of_user()?.begin()?;
    let explored = explore(
        &Exploring { args, kind, memory, words: &words, folder: &folder, output },
        &exploring,
        &run,
        &cancel,
    );
    let left = run.finish();
    let report = explored?;
    if let Some(error) = left.into_iter().next() {
        return Err(error.while_doing("removing what the exploration had created").into());
    }
    let run = CrashRun {
        format: FORMAT,
        rotproof: env!("CARGO_PKG_VERSION").into(),
        explored: source.display().to_string(),
        subject: subject.to_owned(),
        seed: args.seed,
        command: std::env::args().map(|word| shell_word(&word)).collect::<Vec<_>>().join(" "),
        crash: report,
    };
    write_results(&folder, &run)?;
    let report = run.crash;
    if args.json {
        output.json(&json!({
            "subject": subject, "seed": args.seed, "recording": source, "results": folder, "crash": report,
        }));
    } else {
        output.result(render(&report, (subject, source, args.seed), &folder, output.stdout_paint()));
    }
    if let Some(signal) = cancel.signal() {
        return Ok(Exit::of_signal(signal));
    }
    let found = &report.exploration;
    let is_shown = found.checked > 0 && found.failures.is_empty() && found.unknown.is_empty();
    Ok(if is_shown { Exit::Pass } else { Exit::VerdictFailed })
}

/// Without a file system nothing mounts, recovers or repairs, and only a check of the user's can know anything.
fn check_raw(args: &CrashArgs) -> Result<(), Error> {
    let of = &args.recorded;
    let invalid = |what: &str| Err(Error::new(ErrorKind::Invalid, what));
    if of.check.is_none() {
        return invalid(
            "without a file system only a check of yours can look: add `--check COMMAND`, which reads the file {target}",
        );
    }
    if args.fsck || !args.mount.is_empty() || of.second_cuts > 0 || of.kernel.is_some() {
        return invalid(
            "`--fsck`, `--mount`, `--second-cuts` and `--kernel` are for file systems; leave them out with `raw`",
        );
    }
    Ok(())
}

fn words(args: &CrashArgs, of: &RecordedArgs) -> Vec<String> {
    let mut words = Vec::new();
    let is_mounted = args.subject.is_some_and(|subject| subject.kind().is_some());
    words.extend(is_mounted.then(|| match &of.kernel {
        Some(kernel) => format!("mount by {} in a guest", kernel.display()),
        None => "mount".to_owned(),
    }));
    words.extend(args.fsck.then(|| "fsck".to_owned()));
    words.extend(of.check.as_ref().map(|check| format!("check: {check}")));
    words
}

struct Exploring<'a> {
    args: &'a CrashArgs,
    kind: Option<FileSystem>,
    memory: MemoryBound,
    words: &'a [String],
    folder: &'a Path,
    output: Output,
}

fn explore(
    this: &Exploring<'_>,
    options: &ExploreOptions,
    run: &Run,
    cancel: &Cancel,
) -> Result<CrashReport, Error> {
    let of = &this.args.recorded;
    let mut cleanup = CleanupStack::new(run);
    let scratch = run.scratch().join("checks");
    cleanup.create_tree(&scratch)?;
    let here = std::env::current_dir().doing(|| "looking where this is".into())?;
    let oracle = |worker: usize| -> Result<Box<dyn Oracle>, Error> {
        let Some(check) = &of.check else { return Ok(Box::new(NoOracle)) };
        let folder = scratch.join(worker.to_string());
        std::fs::create_dir(&folder).doing(|| format!("making {}", folder.display()))?;
        let mut line = CommandLine::Shell(check.clone());
        line.locate(&here);
        let here = here.display().to_string();
        let of_words = here.clone();
        let words: CommandWords =
            Arc::new(move |mountpoint| line.words(&mountpoint.display().to_string(), &of_words));
        let variables = vec![("ROTPROOF_SEED", this.args.seed.to_string()), ("ROTPROOF_TRIAL_DIR", here)];
        Ok(Box::new(CommandOracle {
            words,
            variables,
            timeout: of.timeout.0,
            folder,
            cancel: cancel.clone(),
        }))
    };
    let machine = this.kind.zip(of.kernel.as_ref()).map(|(kind, kernel)| MachineSpec {
        kind: MachineKind::Qemu,
        kernel: Some(kernel.clone()),
        modules: of.modules.clone(),
        ..MachineSpec::new(FileSystemSpec::new(kind))
    });
    if let Some(machine) = &machine {
        // Better known now than as so many states of which nothing is known.
        machine.check_requirements()?;
    }
    let stop = AtomicBool::new(false);
    let heard = AtomicU64::new(0);
    let tell = |progress: &Progress| {
        stop.store(cancel.is_cancelled(), Ordering::Relaxed);
        if !this.args.quiet && heard.fetch_add(1, Ordering::Relaxed).is_multiple_of(TELL_EVERY) {
            this.output.note(told(progress));
        }
    };
    let looks = Looks {
        kind: this.kind,
        mount: &this.args.mount,
        machine: machine.as_ref().map(|machine| (machine, cancel)),
        fsck: this.args.fsck,
        second_cuts: of.second_cuts,
        memory: this.memory,
        words: this.words,
    };
    let explored = explore_recording(run, options, &looks, &oracle, this.folder, (&tell, &stop));
    let left = cleanup.undo_all();
    let report = explored?;
    left.into_iter().next().map_or(Ok(report), Err)
}

fn told(progress: &Progress) -> String {
    let left = progress
        .left_max
        .map_or_else(String::new, |left| format!(", at most {} left", units::short_duration(left)));
    format!(
        "  {} states, {:.0} a second, {} failing, {} unknown{left}",
        count(progress.checked),
        progress.states_per_s,
        count(progress.failing),
        count(progress.unknown),
    )
}

/// Writes what was found beside the recording: for programs, as a page, and the stories.
fn write_results(folder: &Path, run: &CrashRun) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(run)
        .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
    write_whole(&folder.join(RUN_FILE), text)?;
    let report = &run.crash;
    let stories: Vec<&str> = report.exploration.witnesses.iter().map(|told| told.story.as_str()).collect();
    if !stories.is_empty() {
        write_whole(&folder.join("story.txt"), stories.join("\n"))?;
    }
    rotproof_results::page::write(folder).map(drop)
}

fn render(
    report: &CrashReport,
    (subject, source, seed): (&str, &Path, u64),
    folder: &Path,
    paint: Paint,
) -> String {
    let mut lines = vec![format!("{}  power loss in {}, seed {seed}", paint.bold(subject), source.display())];
    lines.extend(power_loss::render(report, report.exploration.pace, folder, paint));
    if report.recording.is_cut_off {
        lines.extend(wrapped(
            "The recording was cut off: what came after its last whole record is not known.",
        ));
    }
    let found = &report.exploration;
    let is_early = matches!(found.ended, Ended::Time | Ended::Stopped);
    lines.push(String::new());
    lines.push(match (found.checked, found.failures.len() as u64, found.unknown.len()) {
        (0, ..) => format!("{}  no state was looked at", paint.bad("NOTHING SHOWN")),
        (_, 0, 0) if is_early => {
            format!("{}  stopped early; what was looked at passes", paint.notable("PASS SO FAR"))
        }
        (_, 0, 0) => format!("{}  every state that was looked at passes", paint.good("PASS")),
        (_, 0, _) => format!("{}  of some states nobody knows", paint.bad("FAIL")),
        (_, failing, _) => format!("{}  {}", paint.bad("FAIL"), units::counted(failing, "state")),
    });
    lines.push(format!("Results: {}", folder.display()));
    lines.join("\n")
}
