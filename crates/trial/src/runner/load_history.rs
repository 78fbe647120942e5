//! What the load of a trial did, by which the states of a power loss are judged.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_crash::{Crash, Finding};
use rotproof_crash_fs::{Oracle, Promise};
use rotproof_load::personality::{FileHistory, Kept};

use super::block_history::BlockHistory;
use super::files::FOLDER;

/// See the head of the module.
pub(super) enum LoadHistory {
    /// Of a load of blocks.
    Blocks(Arc<BlockHistory>),
    /// Of a personality.
    Files(Arc<FileHistory>),
}

impl LoadHistory {
    /// Looks at mounted states of a disk that never tears a write inside so many bytes, of a file system that promises so much.
    pub(super) fn oracle(&self, unit_bytes: u64, promise: Promise) -> Box<dyn Oracle> {
        match self {
            Self::Blocks(history) => Box::new(history.oracle(unit_bytes)),
            Self::Files(history) => {
                let kept = Kept {
                    names: promise.fsync_keeps_name,
                    names_in_order: promise.names_in_order,
                    own_data: promise.only_own_data,
                };
                Box::new(FilesOracle { history: Arc::clone(history), kept })
            }
        }
    }

    /// What nobody judges of the states, if anything.
    pub(super) fn not_judged(&self) -> Option<String> {
        match self {
            Self::Blocks(_) => None,
            Self::Files(history) => history.not_judged(),
        }
    }
}

/// Looks at the files of a personality, one by one.
struct FilesOracle {
    history: Arc<FileHistory>,
    kept: Kept,
}

impl Oracle for FilesOracle {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let marks = crash.marks.iter().map(|mark| mark.text.as_str());
        let losses = self.history.look(&mountpoint.join(FOLDER), marks, self.kept)?;
        Ok(losses.into_iter().map(|loss| Finding::new(loss.kind, loss.words)).collect())
    }
}
