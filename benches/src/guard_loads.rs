//! filebench's personalities in a guarded directory by unmodified calls with the guard's library in front of the C library,
//! against the same on the same file system without.
//!
//! Each side is this program once more, in a process of its own that makes its files and then runs its load for a round
//! whenever it is told to.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_guard::{Store, StoreOptions};
use rotproof_load::Progress;
use rotproof_load::personality::{FileOracle, FilePlan, FileReport, FileRunOptions, Personality, run};

use crate::Effort;
use crate::figure::{Bar, Figure, in_turns};

/// As published, but for fewer files of the file server, so that a round is not all about making them, and fewer threads that wait for
/// two cores.
const LOADS: [&str; 4] =
    ["webserver:threads=16", "varmail", "fileserver:files=1000,threads=16", "oltp:threads=20,writers=10"];
/// The library, beside this program.
const LIBRARY: &str = "librotproof_guard_preload.so";

/// Measures.
pub fn personalities(effort: Effort, folder: &Path, found: &mut dyn FnMut(Figure)) -> Result<()> {
    let library = std::env::current_exe().doing(doing)?.with_file_name(LIBRARY);
    if !library.is_file() {
        let what = format!("{} is not there; ./bench builds it", library.display());
        return Err(Error::new(ErrorKind::Missing, what));
    }
    for load in LOADS {
        let mut rounds = Vec::new();
        // Which files a file system has given the better places hangs on who came first: each side does for half of the rounds.
        for is_first in [true, false] {
            rounds.extend(half_of_the_rounds(effort, folder, &library, load, is_first)?);
        }
        let name = format!("preloaded library, {load}, to plain");
        found(Figure::from_rounds(name, "op/s", &rounds, Some(Bar::AtLeast(0.9))));
    }
    Ok(())
}

/// Rates of ours and of the peer, with files of their own that are gone afterwards.
fn half_of_the_rounds(
    effort: Effort,
    folder: &Path,
    library: &PathBuf,
    load: &str,
    is_first: bool,
) -> Result<Vec<(f64, f64)>> {
    let start = |is_guarded: bool| {
        let word = load.split(':').next().unwrap_or(load);
        let root = folder.join(format!("load-{word}-{is_first}-{is_guarded}"));
        std::fs::create_dir(&root).doing(doing)?;
        if is_guarded {
            drop(Store::init(&root, None, StoreOptions::default())?);
        }
        Side::start(&root, load, is_guarded.then_some(library))
    };
    let first = start(is_first)?;
    let second = start(!is_first)?;
    let (mut ours, mut peer) = if is_first { (first, second) } else { (second, first) };
    let seconds = effort.seconds.max(1.0);
    let rounds = (0..effort.rounds.div_ceil(2))
        .map(|round| in_turns(round, || ours.round(seconds), || peer.round(seconds)))
        .collect::<Result<_>>()?;
    ours.end()?;
    peer.end()?;
    Ok(rounds)
}

fn doing() -> String {
    "measuring loads under the guard".to_owned()
}

/// As `rotproof guard run` does it.
fn raise_descriptors() -> std::io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of this frame.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(16384));
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    Ok(())
}

/// A process that is ended with this.
struct Side {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Side {
    fn start(root: &Path, load: &str, library: Option<&PathBuf>) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().doing(doing)?);
        command.arg("--load").arg(root.join("files")).arg(load).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(library) = library {
            command.env("LD_PRELOAD", library).env("ROTPROOF_GUARD_ROOT", root);
            // SAFETY: plain system calls in the child.
            unsafe { command.pre_exec(raise_descriptors) };
        }
        let mut child = command.spawn().doing(doing)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(ErrorKind::Internal, "a process without its pipes"));
        };
        let mut side = Self { child, to: Some(to), from: BufReader::new(from) };
        // The files are made.
        side.answer()?;
        Ok(side)
    }

    fn answer(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.from.read_line(&mut line).doing(doing)?;
        line.trim().parse().map_err(|_| {
            Error::new(ErrorKind::Internal, format!("a load under the guard said `{}`", line.trim()))
        })
    }

    /// Operations a second.
    fn round(&mut self, seconds: f64) -> Result<f64> {
        let Some(to) = &mut self.to else { return Err(Error::new(ErrorKind::Internal, "it has ended")) };
        writeln!(to, "{seconds}").doing(doing)?;
        self.answer()
    }

    fn end(mut self) -> Result<()> {
        drop(self.to.take());
        let ended = self.child.wait().doing(doing)?;
        if ended.success() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Internal, format!("a load under the guard ended with {ended}")))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// The other side of the pipes: makes the files of a load in a folder, then runs it for as many seconds as each line says, and
/// in the end verifies what is there.
pub fn serve(folder: &Path, load: &str) -> Result<()> {
    std::fs::create_dir(folder).doing(doing)?;
    let personality: Personality =
        load.parse().map_err(|why| Error::new(ErrorKind::Invalid, format!("{load}: {why}")))?;
    let plan = FilePlan::new(&personality, 1);
    let mut oracle = FileOracle::new(&plan);
    let clock = Clock::since(Instant::now());
    let mut phase = |phase, seconds: f64| -> Result<FileReport> {
        let options = FileRunOptions {
            phase,
            clock,
            duration: Some(Duration::from_secs_f64(seconds)),
            cancel: Arc::new(AtomicUsize::new(0)),
            progress: Arc::new(Progress::default()),
            recording: None,
            until_steady: None,
            hung_after: None,
            let_go: None,
        };
        let report = run(&plan, folder, &mut oracle, &options)?;
        if report.failures.is_empty() && report.error_count() == 0 {
            return Ok(report);
        }
        let what = format!("{} failures, {} errors", report.failures.len(), report.error_count());
        Err(Error::new(ErrorKind::Internal, format!("{load} in its phase {}: {what}", phase.word())))
    };
    phase(Phase::Prefill, 0.0)?;
    say(0.0)?;
    for line in std::io::stdin().lines() {
        let seconds = line.doing(doing)?.parse().unwrap_or(1.0);
        let report = phase(Phase::Run, seconds)?;
        // All but making durable what it left, which is the machine's work once for each round.
        let span = Duration::from_secs_f64(seconds).min(report.elapsed());
        say(report.operation_count() as f64 / span.as_secs_f64())?;
    }
    phase(Phase::Check, 0.0)?;
    std::fs::remove_dir_all(folder).doing(doing)
}

fn say(number: f64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{number}").and_then(|()| out.flush()).doing(doing)
}
