//! A run's own record of what it has created, open while the run lives.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::journal::{Journal, Line, Outstanding};
use super::kind::{FileIdentity, Kind, Resource};
use super::paths::Directory;

/// A run under record; clones are the same run.
///
/// Nothing is created but through a [`CleanupStack`](super::CleanupStack) or after [`Run::record`]. When the last
/// clone goes, the record is removed if nothing is left, and otherwise kept for `rotproof clean`.
#[derive(Clone, Debug)]
pub struct Run(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    scratch: PathBuf,
    journal: Journal,
    state: Mutex<State>,
    /// Descriptors for the clean-up, for when no others are left.
    reserve: Mutex<Vec<File>>,
}

/// Descriptors that a step of the clean-up needs at once.
const RESERVE: usize = 4;

/// The number of the folder of its own, which is the first thing on record.
const SCRATCH: u64 = 1;

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    outstanding: BTreeMap<u64, Outstanding>,
    failures: Vec<Error>,
    finished: bool,
}

/// The place of a resource in the record. It must be given back with [`Run::gone`], or `clean` will look for it.
#[must_use = "a resource that is never said to be gone keeps the run's record alive"]
#[derive(Debug, PartialEq, Eq)]
pub struct Entry(u64);

impl Run {
    /// A run whose record is `journal`, with a folder of its own for mount points and the like, in `folder`.
    pub(super) fn new(id: String, folder: &Path, journal: Journal) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let scratch = folder.join(&id);
        let open = |_| File::open(folder).doing(|| format!("opening {}", folder.display()));
        let reserve = (0..RESERVE).map(open).collect::<Result<Vec<_>>>();
        let (reserve, lacks) = match reserve {
            Ok(reserve) => (reserve, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let reserve = Mutex::new(reserve);
        let run = Self(Arc::new(Inner { id, scratch, journal, state: Mutex::default(), reserve }));
        if let Some(error) = lacks {
            return Err(error);
        }
        let path = run.0.scratch.clone();
        let entry = run.record(Directory { path: path.clone() })?;
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .doing(|| format!("creating the folder {}", path.display()))?;
        run.created(&entry, &path)?;
        Ok(run)
    }

    /// Names the run: when it began, its process, and a number.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// A folder of this run only, for mount points and small files. What is created in it is recorded by itself.
    pub fn scratch(&self) -> &Path {
        &self.0.scratch
    }

    /// Fails if another run was killed and is stuck in the kernel: `who` waits there too, and perhaps for what that one
    /// holds, which is of these kinds or of the machine's own.
    pub fn refuse_stuck(&self, who: &str, kinds: &[&'static Kind]) -> Result<()> {
        let folder = self.0.scratch.parent().unwrap_or(&self.0.scratch);
        match &super::stuck::stuck_in(folder, kinds)[..] {
            [] => Ok(()),
            [first, ..] => Err(Error::new(
                ErrorKind::TimedOut,
                format!("{who} waits in the kernel and does not come back; {first}"),
            )),
        }
    }

    /// Records that `resource` is about to be created; on return that is durable.
    pub fn record(&self, resource: impl Resource + 'static) -> Result<Entry> {
        let resource: Arc<dyn Resource> = Arc::new(resource);
        let mut state = self.0.state.lock();
        if state.finished {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("the run is over, but was to create {resource}"),
            ));
        }
        let id = state.last_id + 1;
        Line::create(id, &*resource)
            .and_then(|line| self.0.journal.append(&line))
            .map_err(|error| error.while_doing(format!("recording {resource} before it is created")))?;
        state.last_id = id;
        state.outstanding.insert(id, Outstanding { resource, identity: None });
        Ok(Entry(id))
    }

    /// Records which file or folder it is that was created at `path`.
    pub fn created(&self, entry: &Entry, path: &Path) -> Result<()> {
        let identity = FileIdentity::of(path)?;
        let mut state = self.0.state.lock();
        self.0.journal.append(&Line::Created { id: entry.0, identity })?;
        if let Some(outstanding) = state.outstanding.get_mut(&entry.0) {
            outstanding.identity = Some(identity);
        }
        Ok(())
    }

    /// Records that the resource is no more.
    #[expect(clippy::needless_pass_by_value, reason = "an entry is given back once")]
    pub fn gone(&self, entry: Entry) -> Result<()> {
        let mut state = self.0.state.lock();
        state.outstanding.remove(&entry.0);
        self.0.journal.append(&Line::Gone { id: entry.0 })
    }

    /// Removes the resource by what the record says of it, and the entry with it.
    pub fn undo(&self, entry: Entry) -> Result<()> {
        let outstanding = self.0.state.lock().outstanding.get(&entry.0).cloned();
        if let Some(outstanding) = outstanding {
            self.0.undo(&outstanding)?;
        }
        self.gone(entry)
    }

    /// Keeps an error of the clean-up for [`Run::finish`], from where no caller can be told.
    pub(super) fn add_failures(&self, failures: Vec<Error>) {
        self.0.state.lock().failures.extend(failures);
    }

    /// Ends the run: removes its folder, and its record if nothing is left. Gives everything that went wrong in the
    /// clean-up, and a line for everything that is still there.
    pub fn finish(self) -> Vec<Error> {
        self.0.close()
    }
}

impl Inner {
    /// Removes it; with the descriptors that are kept for that, if there are no others.
    fn undo(&self, outstanding: &Outstanding) -> Result<()> {
        let undo = || outstanding.resource.remove(outstanding.identity);
        match undo() {
            Err(error) if error.kind() == ErrorKind::Os(libc::EMFILE) => {
                let spare = std::mem::take(&mut *self.reserve.lock());
                if spare.is_empty() {
                    return Err(error);
                }
                drop(spare);
                undo()
            }
            done => done,
        }
    }

    /// Does its work once; afterwards there is nothing to report.
    fn close(&self) -> Vec<Error> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.finished, true) {
            return Vec::new();
        }
        let mut failures = std::mem::take(&mut state.failures);
        let mut left_over = false;
        for (id, outstanding) in state.outstanding.iter().rev() {
            if *id == SCRATCH {
                if let Err(error) = self.undo(outstanding) {
                    failures.push(error);
                    left_over = true;
                }
                continue;
            }
            left_over = true;
            failures.push(Error::new(
                ErrorKind::Internal,
                format!("{} is still there; `rotproof clean` removes it", outstanding.resource),
            ));
        }
        let result = if left_over { self.journal.append(&Line::Ended) } else { self.journal.remove() };
        failures.extend(result.err());
        failures
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left to be told. What could not be removed is in the record, and `clean` says so.
        let _ = self.close();
    }
}
