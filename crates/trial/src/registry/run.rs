//! A run's own record of what it has created, open while the run lives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::journal::{Journal, Line, Outstanding};
use super::resource::{FileIdentity, Resource};
use super::undo::undo;

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
}

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
        let run = Self(Arc::new(Inner { id, scratch, journal, state: Mutex::default() }));
        let path = run.0.scratch.clone();
        let entry = run.record(Resource::Directory { path: path.clone() })?;
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

    /// Records that `resource` is about to be created; on return that is durable.
    pub fn record(&self, resource: Resource) -> Result<Entry> {
        let mut state = self.0.state.lock();
        if state.finished {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("the run is over, but was to create {resource}"),
            ));
        }
        let id = state.last_id + 1;
        self.0
            .journal
            .append(&Line::Create { id, resource: resource.clone() })
            .map_err(|error| error.while_doing(format!("recording {resource} before it is created")))?;
        state.last_id = id;
        state.outstanding.insert(id, Outstanding { resource, identity: None });
        Ok(Entry(id))
    }

    /// Records which file or folder it is that was created at `path`.
    pub(crate) fn created(&self, entry: &Entry, path: &Path) -> Result<()> {
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
    pub(super) fn undo(&self, entry: Entry) -> Result<()> {
        let outstanding = self.0.state.lock().outstanding.get(&entry.0).cloned();
        if let Some(outstanding) = outstanding {
            undo(&outstanding)?;
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
    /// Does its work once; afterwards there is nothing to report.
    fn close(&self) -> Vec<Error> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.finished, true) {
            return Vec::new();
        }
        let mut failures = std::mem::take(&mut state.failures);
        let is_scratch = |outstanding: &Outstanding| matches!(&outstanding.resource, Resource::Directory { path } if *path == self.scratch);
        let mut left_over = false;
        for outstanding in state.outstanding.values().rev() {
            if is_scratch(outstanding) {
                if let Err(error) = undo(outstanding) {
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
