//! What all threads of a phase of files share, and when they are to end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, Phase, Time};
use rotproof_record::{Recorder, Recording};

use super::history::FileHistory;
use super::plan::FilePlan;
use super::report::FileOperation;
use crate::engine::{LetGo, Progress};

/// What all threads of a phase share.
pub(super) struct Job {
    pub(super) plan: FilePlan,
    pub(super) folder: PathBuf,
    pub(super) phase: Phase,
    pub(super) clock: Clock,
    /// When a phase that ends by time ends.
    pub(super) deadline: Option<Time>,
    /// How long a call may take before it is told of.
    pub(super) hung_after: Duration,
    pub(super) let_go: Option<LetGo>,
    pub(super) cancel: Arc<AtomicUsize>,
    pub(super) progress: Arc<Progress>,
    pub(super) recording: Option<Arc<Recording>>,
    /// Who takes down what is done to files, where a crash may come.
    pub(super) history: Option<Arc<FileHistory>>,
    /// Whether the recording says when it is over.
    pub(super) ends_when_steady: bool,
    /// A thread has panicked, or was left behind: nobody may wait for it.
    pub(super) is_abandoned: AtomicBool,
    /// A limit of this process that a call has met: no failure of the file system.
    pub(super) limit: Mutex<Option<Error>>,
}

impl Job {
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Where a worker that begins now tells of what it does.
    pub(super) fn recorder(&self, worker: u32) -> Option<Recorder> {
        let worker = u16::try_from(worker).unwrap_or(u16::MAX);
        self.recording.as_ref().map(|recording| recording.recorder(worker, self.now()))
    }

    /// Nobody may wait any longer for what another thread has to do.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Ends all at once if that is a limit of this process, which would be taken for a failure of the file system.
    #[cold]
    pub(super) fn meet(&self, error: &io::Error, operation: FileOperation) {
        let is_of_process = match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => true,
            Some(libc::EFBIG) => system_limits_file_sizes(),
            _ => false,
        };
        if let Some(errno) = error.raw_os_error().filter(|_| is_of_process) {
            let what = format!("a file of the load ({})", operation.word());
            self.limit.lock().get_or_insert_with(|| Error::from_errno(errno, what));
            self.abandon();
        }
    }

    /// Whether all is to end at once.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) != 0 || self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Whether no further loop is to begin.
    pub(super) fn is_over(&self) -> bool {
        let is_steady = || self.recording.as_ref().is_some_and(|recording| recording.is_steady());
        self.is_cancelled()
            || self.deadline.is_some_and(|deadline| self.now() >= deadline)
            || self.ends_when_steady && is_steady()
    }
}

/// Whether this process may write no files larger than so many bytes (`ulimit -f`).
fn system_limits_file_sizes() -> bool {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it writes into `limit`, which lives across the call.
    unsafe {
        libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY
    }
}
