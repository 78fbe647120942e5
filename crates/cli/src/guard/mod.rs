//! `rotproof guard`: checksums of a directory's files, from the writer's memory to the reader's.

mod args;
mod mount;
mod run;
mod show;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rotproof_block::{Error, ErrorKind};
use rotproof_guard::check::{CheckOptions, CheckProgress, check as check_files};
use rotproof_guard::copies::VolumeCopies;
use rotproof_guard::status::{export as export_files, status as status_of};
use rotproof_guard::switch::switch_seconds;
use rotproof_guard::take::{TakeIn, TakeProgress, take_in};
use rotproof_guard::{Pair, Store, StoreOptions};
use rotproof_machine::Cancel;
use rotproof_model::systems::Configuration;
use serde_json::json;

pub use args::GuardArgs;
use args::{AcceptArgs, CheckArgs, ExportArgs, GuardVerb, InitArgs, PlainArgs, RepairArgs, Where};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;
use crate::units::{bytes, count};

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Calls the verb.
pub fn guard(args: &GuardArgs, output: Output) -> Result<Exit, CommandError> {
    match &args.verb {
        GuardVerb::Init(args) => init(args, output),
        GuardVerb::Check(args) => check(args, None, None, output),
        GuardVerb::Repair(args) => repair(args, output),
        GuardVerb::Accept(args) => accept(args, output),
        GuardVerb::Status(args) => status(args, output),
        GuardVerb::Mount(args) => mount::mount(args, output),
        GuardVerb::Run(args) => run::run(args),
        GuardVerb::Export(args) => export(args, output),
    }
}

fn open(place: &Where) -> Result<Arc<Store>, Error> {
    Store::open(&place.directory, place.store.as_deref())
}

fn threads(wanted: Option<u16>) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    wanted.map_or_else(all, usize::from)
}

fn init(args: &InitArgs, output: Output) -> Result<Exit, CommandError> {
    let pair = Pair { light: args.light, strong: args.strong };
    let of_machine = args.machine.as_deref().and_then(Configuration::from_word);
    let switch_seconds = match (args.switch, of_machine) {
        (Some(span), _) => Some(u32::try_from(span.0.as_secs()).unwrap_or(u32::MAX)),
        (None, Some(machine)) => switch_seconds(pair, machine, args.goal.0),
        (None, None) => None,
    };
    let options = StoreOptions { pair, switch_seconds };
    let store = Store::init(&args.place.directory, args.place.store.as_deref(), options)?;
    let from = vec![store.root().to_owned()];
    take(
        &store,
        &from,
        TakeIn::Unknown,
        Told { threads: threads(args.threads), quiet: args.quiet, json: args.json },
        output,
    )
}

fn accept(args: &AcceptArgs, output: Output) -> Result<Exit, CommandError> {
    let store = open(&args.place)?;
    let (from, what) = match args.paths.is_empty() {
        true => (vec![store.root().to_owned()], TakeIn::Changed),
        false => (inside(&store, &args.paths)?, TakeIn::All),
    };
    take(&store, &from, what, Told { threads: threads(None), quiet: args.quiet, json: args.json }, output)
}

/// How a verb that reads files works and tells.
#[derive(Clone, Copy)]
struct Told {
    threads: usize,
    quiet: bool,
    json: bool,
}

fn take(
    store: &Arc<Store>,
    from: &[PathBuf],
    what: TakeIn,
    told: Told,
    output: Output,
) -> Result<Exit, CommandError> {
    let cancel = cancel_on_signals()?;
    let progress = TakeProgress::default();
    let tell = || {
        let files = count(progress.files.load(Ordering::Relaxed) as u64);
        format!("  {files} files, {}", bytes(progress.bytes.load(Ordering::Relaxed)))
    };
    let report = watched(&cancel, told.quiet, &tell, output, |stop| {
        take_in(store, from, what, told.threads, &progress, stop)
    })?;
    match told.json {
        true => output.json(&json!(report)),
        false => output.result(show::taken(&report, store, output.stdout_paint())),
    }
    Ok(match cancel.signal() {
        Some(signal) => Exit::of_signal(signal),
        None if report.failed.is_empty() && report.busy.is_empty() => Exit::Pass,
        None => Exit::VerdictFailed,
    })
}

fn repair(args: &RepairArgs, output: Output) -> Result<Exit, CommandError> {
    let (mirror, volume) = (mirror_of(args.mirror.as_deref())?, volume_of(args.volume.as_deref())?);
    check(&args.check, mirror.as_deref(), volume, output)
}

/// A second copy of the directory, if one was named.
fn mirror_of(named: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    let whole = |path: &Path| {
        path.canonicalize().ok().filter(|path| path.is_dir()).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("the mirror {} is no directory", path.display()))
        })
    };
    named.map(whole).transpose()
}

/// The control socket of a volume that is served, by its name or as it was named.
fn volume_of(named: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    let Some(named) = named else { return Ok(None) };
    let socket = match rotproof_serve::sockets().into_iter().find(|(name, _)| named == Path::new(name)) {
        Some((_, socket)) => socket,
        None if named.exists() => named.to_owned(),
        None => {
            let what = format!(
                "no volume is served as {}, nor is there such a socket; `rotproof volume serve` says what it is called",
                named.display()
            );
            return Err(Error::new(ErrorKind::Missing, what));
        }
    };
    VolumeCopies::new(socket.clone()).is_there()?;
    Ok(Some(socket))
}

fn check(
    args: &CheckArgs,
    mirror: Option<&Path>,
    volume: Option<PathBuf>,
    output: Output,
) -> Result<Exit, CommandError> {
    let store = open(&args.place)?;
    store.set_mirror(mirror.map(Path::to_owned));
    store.set_copies(volume.map(VolumeCopies::new));
    let from = match args.paths.is_empty() {
        true => vec![store.root().to_owned()],
        false => inside(&store, &args.paths)?,
    };
    let cancel = cancel_on_signals()?;
    let progress = CheckProgress::default();
    let tell = || {
        let load = |number: &std::sync::atomic::AtomicUsize| count(number.load(Ordering::Relaxed) as u64);
        format!(
            "  {} of {} files, {}, {} wrong",
            load(&progress.files),
            load(&progress.files_in_all),
            bytes(progress.bytes.load(Ordering::Relaxed)),
            count(progress.rotten.load(Ordering::Relaxed))
        )
    };
    let options = CheckOptions { rate_max: args.rate.map(|rate| rate.0), threads: threads(args.threads) };
    let report = watched(&cancel, args.quiet, &tell, output, |stop| {
        check_files(&store, &from, options, &progress, stop)
    })?;
    match args.json {
        true => output.json(&json!(report)),
        false => output.result(show::checked(&report, &store, output.stdout_paint())),
    }
    Ok(match cancel.signal() {
        Some(signal) => Exit::of_signal(signal),
        None if report.is_clean() => Exit::Pass,
        None => Exit::VerdictFailed,
    })
}

fn status(args: &PlainArgs, output: Output) -> Result<Exit, CommandError> {
    let store = open(&args.place)?;
    let status = status_of(&store)?;
    match args.json {
        true => output.json(&json!(status)),
        false => output.result(show::status(&status, output.stdout_paint())),
    }
    Ok(Exit::Pass)
}

fn export(args: &ExportArgs, output: Output) -> Result<Exit, CommandError> {
    let store = open(&args.place)?;
    export_files(&store, &mut |file| output.line(json!(file)))?;
    Ok(Exit::Pass)
}

/// Paths that were named, which must be in the guarded directory.
fn inside(store: &Store, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let one = |path: &PathBuf| {
        let whole = path
            .canonicalize()
            .map_err(|error| Error::from_io(error, format!("looking at {}", path.display())))?;
        match whole.starts_with(store.root()) && !whole.starts_with(store.folder()) {
            true => Ok(whole),
            false => {
                let what = format!("{} is not in {}", path.display(), store.root().display());
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    };
    paths.iter().map(one).collect()
}

/// Does something long on a thread of its own, tells how far it has come, and asks it to stop when a signal does.
fn watched<T: Send>(
    cancel: &Cancel,
    quiet: bool,
    tell: &(dyn Fn() -> String + Sync),
    output: Output,
    act: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| act(&stop));
        let mut told = Instant::now();
        while !worker.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            if cancel.is_cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
            if !quiet && told.elapsed() >= TELL_EVERY {
                output.note(tell());
                told = Instant::now();
            }
        }
        worker.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "a thread panicked")))
    })
}
