//! The record of everything that runs create outside their memory: mounts, loop devices, folders, files, processes.
//!
//! Each is recorded, durably, before it is created, and struck out when it is gone. So every way out cleans up:
//! within the process the [`CleanupStack`] does, also after an error, a cancellation or a panic; after `kill -9`
//! [`Registry::clean`] does, from the record alone. Folders, files, sockets and programs are known here; whoever creates
//! anything else brings its [`Kind`], which says how it is found and removed and what depends on it.

mod clean;
mod cleanup_stack;
mod journal;
mod kind;
mod paths;
mod plan;
mod program;
mod run;
mod stuck;

use std::fs::{DirBuilder, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

pub use clean::{CleanReport, CleanedResource, Outcome};
pub use cleanup_stack::{CleanupStack, Undo};
pub use kind::{FileIdentity, Keeper, Kind, Recorded, Resource, read_as};
pub use paths::{Directory, File, Socket, Tree};
pub use plan::{Plan, covered};
pub use program::Process;
pub use run::{Entry, Run};
pub use stuck::{StuckRun, stuck_runs};

use crate::process::{ProcessIdentity, boot_id};
use journal::{Header, Journal};

/// The folder with the records of this user's runs.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

/// What the machine itself can create, which every record may hold.
static KINDS: [&Kind; 5] = [&paths::DIRECTORY, &paths::TREE, &paths::FILE, &paths::SOCKET, &program::PROCESS];

/// How long others may hold a folder, which takes them a moment.
const LOCK_MAX: Duration = Duration::from_secs(20);
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// Tells the runs of one process apart.
static RUNS: AtomicU32 = AtomicU32::new(0);

impl Registry {
    /// That of this user: `$ROTPROOF_STATE_DIR` if it is set, for jobs that must not see each other; else
    /// `/run/rotproof` for root, whatever the environment says, so that `sudo rotproof clean`
    /// finds what `sudo rotproof run` left; else `$XDG_RUNTIME_DIR/rotproof`; else `/tmp/rotproof-UID`. It is created
    /// if need be. Fails with [`ErrorKind::Missing`] if none of them can be.
    pub fn of_user() -> Result<Self> {
        let mut failures = Vec::new();
        for folder in candidates() {
            match Self::at(&folder) {
                Ok(registry) => return Ok(registry),
                Err(error) => failures.push(error.to_string()),
            }
        }
        Err(Error::new(
            ErrorKind::Missing,
            format!("there is no folder to record what a run creates: {}", failures.join("; ")),
        ))
    }

    /// The one in `folder`, which is created if need be; the folder above it must exist. Refuses one that belongs
    /// to, or is open to, another user.
    pub fn at(folder: &Path) -> Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).doing(|| format!("creating {}", folder.display()));
            }
            _ => {}
        }
        refuse_foreign(folder)?;
        // The kernel's tables, with which the records are compared, know no links.
        let folder = folder.canonicalize().doing(|| format!("looking at {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Where the records are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a run of this process. Its record is durable on return.
    pub fn begin(&self) -> Result<Run> {
        let process = ProcessIdentity::current()?;
        let boot_id = boot_id()?;
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{}-{number}", utc_now(), process.pid);
        let journal = {
            let _folder_lock = lock_folder(&self.folder)?;
            Journal::create(&self.folder, Header::new(id.clone(), process, boot_id))?
        };
        Run::new(id, &self.folder, journal)
    }

    /// Runs recorded here, with what is of these kinds and of the machine's own, that were killed and cannot end. Never
    /// waits for one.
    pub fn stuck(&self, kinds: &[&'static Kind]) -> Vec<StuckRun> {
        stuck::stuck_in(&self.folder, kinds)
    }

    /// Removes what dead runs recorded here have left, and nothing else; says what it did. With `dry_run` it only
    /// says what it would do. A run with something that is neither of these `kinds` nor of the machine's own is left alone.
    pub fn clean(&self, kinds: &[&'static Kind], dry_run: bool) -> Result<Vec<CleanReport>> {
        clean::clean_folder(&self.folder, kinds, dry_run)
    }
}

/// [`Registry::clean`] on every folder where a run of this user may have its record.
pub fn clean(kinds: &[&'static Kind], dry_run: bool) -> Result<Vec<CleanReport>> {
    let mut reports = Vec::new();
    // Never created here, and one that belongs to another user holds no run of ours.
    for folder in folders() {
        reports.extend(clean::clean_folder(&folder, kinds, dry_run)?);
    }
    Ok(reports)
}

/// Every folder where a run of this user may have its record and its socket, best first, that is there.
pub fn folders() -> Vec<PathBuf> {
    candidates().into_iter().filter(|folder| refuse_foreign(folder).is_ok()).collect()
}

/// Where records may be, best first.
fn candidates() -> Vec<PathBuf> {
    if let Some(folder) =
        std::env::var_os("ROTPROOF_STATE_DIR").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        return vec![folder];
    }
    let user = user_id();
    let mut folders = Vec::new();
    if user == 0 {
        folders.push(PathBuf::from("/run/rotproof"));
    }
    if let Some(folder) =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        folders.push(folder.join("rotproof"));
    }
    folders.push(PathBuf::from(format!("/tmp/rotproof-{user}")));
    folders
}

/// Fails unless `folder` is a folder of this user that no other may enter: in `/tmp` anybody could have made one.
fn refuse_foreign(folder: &Path) -> Result<()> {
    let metadata = folder.symlink_metadata().doing(|| format!("looking at {}", folder.display()))?;
    if metadata.is_dir() && metadata.uid() == user_id() && metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Refused,
        format!(
            "{} is no folder that belongs to this user alone; remove it, or see who made it there",
            folder.display()
        ),
    ))
}

fn user_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Holds the folder against others that begin or clean, until it is dropped.
fn lock_folder(folder: &Path) -> Result<std::fs::File> {
    let doing = || format!("locking {}", folder.display());
    let file = std::fs::File::open(folder).doing(doing)?;
    let deadline = Instant::now() + LOCK_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error).doing(doing),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!(
                        "another rotproof holds {} and does not let go of it; `fuser -v {}` says which process that is",
                        folder.display(),
                        folder.display()
                    ),
                ));
            }
            Err(TryLockError::WouldBlock) => sleep(LOCK_INTERVAL),
        }
    }
}

/// `20260131T235959Z`.
fn utc_now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let seconds = libc::time_t::try_from(seconds).unwrap_or(libc::time_t::MAX);
    // SAFETY: all zeros is a valid `tm`; both pointers are to live values.
    let time = unsafe {
        let mut time: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const seconds, &raw mut time);
        time
    };
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        time.tm_year + 1900,
        time.tm_mon + 1,
        time.tm_mday,
        time.tm_hour,
        time.tm_min,
        time.tm_sec
    )
}

#[cfg(test)]
mod tests;
