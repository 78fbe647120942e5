//! `rotproof crash SUBJECT --recording FILE`: the states of a recording that is there, each mounted and held against a command.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_crash::recording::Reader;
use rotproof_crash::{
    Check, Contents, Exploration, ExploreOptions, Progress, StateOptions, Way, WayLimits, explore, marks,
    write_exploration,
};
use rotproof_crash_fs::{BASE, CommandOracle, CommandWords, MountCheck, NoOracle, Oracle, RECORDING};
use rotproof_machine::Cancel;
use rotproof_machine::registry::{CleanupStack, Registry, Run};
use serde_json::json;

use crate::crash::CrashArgs;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::Output;
use crate::signals::cancel_on_signals;
use crate::units::{count, counted};

/// What was found, and how far it came.
const FOUND: &str = "exploration.json";
const PROGRESS: &str = "progress.json";
/// How long a check may take.
const CHECK_MAX: std::time::Duration = std::time::Duration::from_secs(60);
/// States of one moment, for each way.
const PER_POINT: u64 = 20;

/// Explores. A state that fails, or of which nobody knows, is exit 1.
pub fn explore_recording(args: &CrashArgs, recording: &Path, output: Output) -> Result<Exit, Failure> {
    let cancel = cancel_on_signals()?;
    let folder = args.results.clone().unwrap_or_else(|| PathBuf::from("rotproof-results").join("crash-recording"));
    let doing = || format!("making {}", folder.display());
    std::fs::create_dir_all(&folder).doing(doing)?;
    let found = folder.join(FOUND);
    if found.exists() {
        let what = format!("{} has an exploration already; name another folder with --results", folder.display());
        return Err(Error::new(ErrorKind::Refused, what).into());
    }
    let run = Registry::of_user()?.begin()?;
    let explored = explore_with(args, (recording, &folder), &run, &cancel, output);
    let left = run.finish();
    let exploration = explored?;
    if let Some(error) = left.into_iter().next() {
        return Err(error.while_doing("removing what the exploration had created").into());
    }
    if !cancel.is_cancelled() {
        keep(args, (recording, &folder), &exploration)?;
        write_exploration(&exploration, &found)?;
    }
    let value = serde_json::to_value(&exploration)
        .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
    match args.json {
        true => output.json(&json!({ "recording": recording, "exploration": value })),
        false => output.result(render(&exploration, &folder)),
    }
    if let Some(signal) = cancel.signal() {
        return Ok(Exit::of_signal(signal));
    }
    let passes = exploration.failures.is_empty() && exploration.unknown.is_empty();
    Ok(if passes { Exit::Pass } else { Exit::VerdictFailed })
}

fn explore_with(
    args: &CrashArgs,
    (recording, folder): (&Path, &Path),
    run: &Run,
    cancel: &Cancel,
    output: Output,
) -> Result<Exploration> {
    let Some(subject) = args.subject else {
        let what = "name the file system that is on the recorded device: rotproof crash ext4 --recording FILE";
        return Err(Error::new(ErrorKind::Invalid, what));
    };
    let kind = subject.kind();
    let begin = match &args.begin {
        None => 0,
        Some(text) => begin_of(recording, text)?,
    };
    let states = StateOptions {
        base: args.base.clone(),
        begin,
        states_max: args.states,
        ways: if args.ways.is_empty() { Way::IN_ORDER.to_vec() } else { args.ways.clone() },
        limits: WayLimits { per_point_max: PER_POINT, subsets_drawn: PER_POINT, ..WayLimits::default() },
        is_shared: true,
        ..StateOptions::new(recording, args.seed)
    };
    let mut cleanup = CleanupStack::new(run);
    let scratch = run.scratch().join("checks");
    cleanup.create_tree(&scratch)?;
    let make = |worker: usize, contents: &Arc<Contents>| -> Result<Box<dyn Check>> {
        let oracle: Box<dyn Oracle> = match &args.check {
            None => Box::new(NoOracle),
            Some(line) => {
                let folder = scratch.join(worker.to_string());
                std::fs::create_dir(&folder).doing(|| format!("making {}", folder.display()))?;
                Box::new(oracle(line, folder, args.seed, cancel))
            }
        };
        let name = format!("crash-{worker}");
        let check = MountCheck::new(run, &name, Arc::clone(contents), kind, args.fsck, oracle)?;
        Ok(Box::new(check.with_second_cuts(args.second_cuts, args.seed)))
    };
    let options = ExploreOptions {
        workers: args.workers(),
        time_max: args.duration.map(|span| span.0),
        resume: Some(folder.join(PROGRESS)),
        ..ExploreOptions::new(states)
    };
    let stop = AtomicBool::new(false);
    let tell = |progress: &Progress| {
        stop.store(cancel.is_cancelled(), Ordering::Relaxed);
        if !args.quiet {
            output.note(told(progress));
        }
    };
    let explored = explore(&options, &make, &tell, &stop);
    let left = cleanup.undo_all();
    let explored = explored?;
    left.into_iter().next().map_or(Ok(explored), Err)
}

/// The position behind the first mark with this text, or the position itself.
fn begin_of(recording: &Path, text: &str) -> Result<u64> {
    if let Ok(position) = text.parse() {
        return Ok(position);
    }
    let marks = marks(Reader::open(recording)?)?;
    let found = marks.iter().find(|mark| mark.text == text).map(|mark| mark.position + 1);
    found.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("the recording has no mark `{text}`")))
}

fn oracle(line: &str, folder: PathBuf, seed: u64, cancel: &Cancel) -> CommandOracle {
    let line = line.to_owned();
    let words: CommandWords = Arc::new(move |mountpoint: &Path| {
        let line = line.replace("{target}", &mountpoint.display().to_string());
        vec!["sh".to_owned(), "-c".to_owned(), line]
    });
    let mut variables = vec![("ROTPROOF_SEED", seed.to_string())];
    let here = std::env::current_dir().ok();
    variables.extend(here.map(|folder| ("ROTPROOF_TRIAL_DIR", folder.display().to_string())));
    CommandOracle { words, variables, timeout: CHECK_MAX, folder, cancel: cancel.clone() }
}

/// Keeps what `--state` needs to show what fails: the states, and links to what they were made from.
fn keep(args: &CrashArgs, (recording, folder): (&Path, &Path), exploration: &Exploration) -> Result<()> {
    for failure in &exploration.failures {
        let path = folder.join(format!("state-{}.json", failure.index));
        if !path.exists() {
            failure.state.write(&path)?;
        }
    }
    let link = |from: &Path, name: &str| -> Result<()> {
        let doing = || format!("keeping {} in {}", from.display(), folder.display());
        let from = std::fs::canonicalize(from).doing(doing)?;
        let to = folder.join(name);
        if to.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(from, to).doing(doing)?;
        }
        Ok(())
    };
    if !exploration.failures.is_empty() {
        link(recording, RECORDING)?;
        args.base.as_deref().map_or(Ok(()), |base| link(base, BASE))?;
    }
    Ok(())
}

fn told(progress: &Progress) -> String {
    let left = progress.left_max.map_or(String::new(), |left| format!(", at most {:.0} s more", left.as_secs_f64()));
    format!(
        "  {} states, {} failing, {} unknown, {:.0} a second{left}",
        count(progress.checked),
        count(progress.failing),
        count(progress.unknown),
        progress.states_per_s
    )
}

fn render(exploration: &Exploration, folder: &Path) -> String {
    let mut lines = vec![format!(
        "{} looked at: {} failing, {} unknown; {:.0} a second",
        counted(exploration.checked, "state"),
        count(exploration.failures.len() as u64),
        count(exploration.unknown.len() as u64),
        exploration.states_per_s
    )];
    for told in &exploration.witnesses {
        lines.push(String::new());
        lines.extend(told.story.lines().map(|line| format!("  {line}")));
        let state = folder.join(format!("state-{}.json", told.index));
        lines.push(format!("  rotproof crash --state {} --image crashed.img", state.display()));
    }
    for unknown in exploration.unknown.iter().take(3) {
        lines.push(format!("  unknown: {}: {}", unknown.state.words(), unknown.why));
    }
    lines.join("\n")
}
