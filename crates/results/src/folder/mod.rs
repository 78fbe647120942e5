//! The folder that a run fills: made before the run, so that it is known that it can be, and given its name when it is whole.
//!
//! Until then it is hidden (`.NAME.partial`), closed to other users, on record for `rotproof clean`, and removed on every
//! way out. So a folder with the name of a run holds all of that run; and who can write to the folder around it can neither
//! look into it nor lead elsewhere what is written, not even where root runs.

mod held;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub use held::HeldFolder;
use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::registry::{Entry, Run, Tree};

/// Bytes that must be free before anything is begun.
const ROOM_BYTES: u64 = 1 << 20;
/// Results of one name and second.
const ATTEMPTS_MAX: u32 = 1000;

/// A folder that is being filled. Dropped before [`ResultsFolder::publish`], it is removed.
#[derive(Debug)]
pub struct ResultsFolder {
    parent: HeldFolder,
    folder: HeldFolder,
    /// What it is called until it is whole, and then.
    hidden: OsString,
    name: OsString,
    path: PathBuf,
    recorded: Mutex<Option<(Run, Entry)>>,
}

impl ResultsFolder {
    /// A new one, to become `NAME-SEED-TIME` in `parent`, which is made if need be; with a number behind it if that exists.
    /// It is recorded with `run`. Fails if nothing can be written there.
    pub fn create(run: &Run, parent: &Path, (name, seed): (&str, u64), started: SystemTime) -> Result<Self> {
        let held = HeldFolder::open(parent)?;
        rotproof_machine::require_free(held.inside(), ROOM_BYTES, "the results folder")
            .map_err(|error| held.told(error))?;
        let stem = stem((name, seed), started);
        for attempt in 1..ATTEMPTS_MAX {
            let name = numbered(&stem, attempt);
            let hidden = OsString::from(format!(".{name}.partial"));
            if held.inside().join(&name).symlink_metadata().is_ok() {
                continue;
            }
            let real = held.real_path()?.join(&hidden);
            let entry = run.record(Tree { path: real.clone() })?;
            let folder = match held.create(&hidden) {
                Ok(Some(folder)) => folder,
                made => {
                    run.gone(entry)?;
                    made?;
                    continue;
                }
            };
            let created = run.created(&entry, &real);
            let path = parent.join(&name);
            let recorded = Mutex::new(Some((run.clone(), entry)));
            let made = Self { parent: held, folder, hidden, name: name.into(), path, recorded };
            created?;
            return Ok(made);
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{} has too many results of this second", parent.display()),
        ))
    }

    /// Where its files are to be written, for this process, as long as it is there.
    pub fn inside(&self) -> &Path {
        self.folder.inside()
    }

    /// What it is called once it is whole.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It is whole: gives it its name. Nothing happens the second time.
    pub fn publish(&self) -> Result<()> {
        let mut recorded = self.recorded.lock();
        let Some((run, entry)) = recorded.take() else { return Ok(()) };
        let named = self.folder.open_up().and_then(|()| self.parent.rename(&self.hidden, &self.name));
        let named = named.and_then(|()| match self.parent.has(&self.name, &self.folder) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "somebody has put something else in the place of {}; the results are in {}",
                    self.path.display(),
                    self.folder
                        .real_path()
                        .map_or_else(|_| "no place that is known".into(), |path| path.display().to_string()),
                ),
            )),
        });
        match named {
            Ok(()) => run.gone(entry),
            Err(error) => {
                *recorded = Some((run, entry));
                Err(self.told(error))
            }
        }
    }

    /// An error that names places inside, with the names by which people know them.
    pub fn told(&self, error: Error) -> Error {
        let text = self.folder.told(error);
        let hidden = self.parent.path().join(&self.hidden).display().to_string();
        let message = text.to_string();
        if !message.contains(&hidden) {
            return text;
        }
        Error::new(text.kind(), message.replace(&hidden, &self.path.display().to_string()))
    }
}

impl Drop for ResultsFolder {
    fn drop(&mut self) {
        if let Some((run, entry)) = self.recorded.get_mut().take() {
            // By its descriptor first: its name may mean another meanwhile. What cannot be removed stays on record, and the end
            // of the run tells of it.
            let _ = match std::fs::remove_dir_all(self.parent.inside().join(&self.hidden)) {
                Ok(()) => run.gone(entry),
                Err(_) => run.undo(entry),
            };
        }
    }
}

/// A folder for the runs of a trial that is repeated, `NAME-SEED-TIME` in `parent`. Each run in it is whole by itself, so it has
/// its name from the beginning; others may look into it after [`RepeatedFolder::open_up`].
#[derive(Debug)]
pub struct RepeatedFolder(HeldFolder);

impl RepeatedFolder {
    /// A new one. Fails if nothing can be written there.
    pub fn create(parent: &Path, of: (&str, u64)) -> Result<Self> {
        let held = HeldFolder::open(parent)?;
        let stem = stem(of, SystemTime::now());
        for attempt in 1..ATTEMPTS_MAX {
            if let Some(folder) = held.create(numbered(&stem, attempt).as_ref())? {
                return Ok(Self(folder));
            }
        }
        let message = format!("{} has too many results of this second", parent.display());
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Where the runs are to be written, for this process, as long as it is there.
    pub fn inside(&self) -> &Path {
        self.0.inside()
    }

    /// What people call it.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Lets others in, as far as the user's mask does.
    pub fn open_up(&self) -> Result<()> {
        self.0.open_up()
    }

    /// An error that names places inside, with the names by which people know them.
    pub fn told(&self, error: Error) -> Error {
        self.0.told(error)
    }
}

/// `NAME-SEED-TIME`, with nothing in it that a shell or a path would understand otherwise.
fn stem((name, seed): (&str, u64), started: SystemTime) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .collect();
    let seconds = started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("{}-{seed}-{seconds}", name.trim_start_matches('.'))
}

fn numbered(stem: &str, attempt: u32) -> String {
    if attempt == 1 { stem.to_owned() } else { format!("{stem}-{attempt}") }
}
