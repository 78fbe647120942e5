//! What a load of files did to each of its files, change by change, and what of that a crash may leave.
//!
//! A change is on record before its call is made, and what an fsync made durable when it has returned. Marks say from outside how far the
//! load had come: one for each fsync that has returned, and one before each file is deleted. So it is known of every moment what had to be
//! durable, and which deletion could have happened. What a call that failed has done nobody knows: it may have done all or nothing of it.
//!
//! Judged are the names, sizes and contents of files that are written from front to back. What is written in place (oltp, mail_store) and
//! the log are not: [`FileHistory::not_judged`] says so.

mod judge;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::FilePlan;
use super::spec::PersonalityKind;
use super::state::{Existence, FileState};
pub use judge::{FileLoss, Kept};

/// How the mark of an fsync begins that has returned; its number follows.
const DURABLE_MARK: &str = "fsync ";
/// The same before a file is deleted.
const DELETION_MARK: &str = "deletion ";

/// Where marks go.
pub type SetFileMark = Arc<dyn Fn(&str) + Send + Sync>;

/// What was done to a file, or was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It begins anew, empty.
    Made { version: u32 },
    /// It may have grown up to there.
    Grown { end: u64 },
    /// It may be gone from now on, if this deletion had begun.
    Deleted { number: u64 },
    /// An fsync has returned, or a sync of everything: the file is there, with so many bytes of this version.
    Durable { number: u64, version: u32, bytes: u64, is_all: bool },
    /// A sync has returned, and the file had been deleted before.
    Gone { number: u64 },
}

#[derive(Debug, Default)]
struct Inner {
    /// Of each file, in order. Only one thread changes a file.
    changes: HashMap<u32, Vec<Change>>,
    /// Numbers that were given to fsyncs and to deletions.
    durable: u64,
    deletions: u64,
    /// The first sync of everything: the directories are there from then on.
    first_sync: Option<u64>,
}

/// See the head of the module.
pub struct FileHistory {
    plan: FilePlan,
    inner: Mutex<Inner>,
    mark: SetFileMark,
}

impl FileHistory {
    /// The files of a plan, none of which is there yet. Marks are set by `mark`, which returns when a mark is on record.
    pub fn new(plan: &FilePlan, mark: SetFileMark) -> Arc<Self> {
        Arc::new(Self { plan: plan.clone(), inner: Mutex::default(), mark })
    }

    /// What of the load is not judged after a crash, in words.
    pub fn not_judged(&self) -> Option<String> {
        let kind = self.plan.kind;
        let in_place = kind.slot_bytes().is_some();
        let what = match (in_place, kind.has_log()) {
            (true, _) => "what the load writes in place and its log: only that the files are there",
            (false, true) => "the log of the load: no entry of it was looked at",
            (false, false) if kind == PersonalityKind::Metadata => {
                "the directories that the load makes and removes: only its files were looked at"
            }
            (false, false) => return None,
        };
        Some(what.to_owned())
    }

    fn add(&self, file: u32, change: Change) {
        self.inner.lock().changes.entry(file).or_default().push(change);
    }

    /// A file is about to be made anew. `may_exist`: one of that name may be there, whose content goes with it.
    pub(super) fn makes(&self, file: u32, version: u32, may_exist: bool) {
        if may_exist {
            self.deletes(file);
        }
        self.add(file, Change::Made { version });
    }

    /// A file is about to be written up to `end`.
    pub(super) fn grows(&self, file: u32, end: u64) {
        self.add(file, Change::Grown { end });
    }

    /// A file is about to be deleted.
    pub(super) fn deletes(&self, file: u32) {
        let mut inner = self.inner.lock();
        inner.deletions += 1;
        let number = inner.deletions;
        inner.changes.entry(file).or_default().push(Change::Deleted { number });
        // Under the lock, so that marks come in the order of their numbers.
        (self.mark)(&format!("{DELETION_MARK}{number}, of {}, begins", self.plan.path(file)));
    }

    /// An fsync of a file has returned, and what is certain of it is durable.
    pub(super) fn synced(&self, file: u32, state: &FileState) {
        let mut inner = self.inner.lock();
        inner.durable += 1;
        let number = inner.durable;
        inner.add_durable(file, state, number, false);
        (self.mark)(&format!("{DURABLE_MARK}{number}, of {}, has returned", self.plan.path(file)));
    }

    /// A sync has returned, with which all of these files are durable, or gone.
    pub(super) fn synced_all<'a>(&self, files: impl Iterator<Item = (u32, &'a FileState)>) {
        let mut inner = self.inner.lock();
        inner.durable += 1;
        let number = inner.durable;
        for (file, state) in files {
            inner.add_durable(file, state, number, true);
        }
        inner.first_sync.get_or_insert(number);
        (self.mark)(&format!("{DURABLE_MARK}{number}, of everything, has returned"));
    }
}

impl Inner {
    fn add_durable(&mut self, file: u32, state: &FileState, number: u64, is_all: bool) {
        let change = match state.existence {
            Existence::Yes => {
                let bytes = state.sure.min(state.size_min);
                Change::Durable { number, version: state.version, bytes, is_all }
            }
            // What nobody knows, an fsync does not make known.
            Existence::Doubtful => return,
            Existence::No => Change::Gone { number },
        };
        self.changes.entry(file).or_default().push(change);
    }
}
