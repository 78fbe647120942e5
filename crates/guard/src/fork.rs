//! A process that forks while it uses a guard: the child is another process to whom the files belong too.
//!
//! What says that a process uses a file are locks on openings of files, and a child shares the openings of its parent. So the
//! child's own are made before there is a child: at no moment does a file look as if only one of them used it.

use std::fs::{File, OpenOptions};
use std::sync::Arc;

use crate::file::GuardedFile;
use crate::lock::lock_file;
use crate::store::Core;

/// What the child is to have; see [`crate::store::Core::before_fork`].
pub struct ForChild {
    session: Option<(File, File)>,
    files: Vec<(Arc<GuardedFile>, File)>,
}

impl Core {
    /// To be called before `fork`, while no other thread of this process uses the guard. The child calls
    /// [`crate::store::Core::in_child`] with what this gives; the parent drops it.
    ///
    /// A file of which it fails, for want of descriptors, is shared as if the child did not use it: it must not.
    pub fn before_fork(&self) -> ForChild {
        let files = self.open_files().into_iter().filter_map(|file| {
            let path = self.live_path(file.inode());
            let again = OpenOptions::new().read(true).write(true).open(path).ok()?;
            let is_locked = lock_file(&again, libc::LOCK_SH, String::new).is_ok();
            is_locked.then_some((file, again))
        });
        ForChild { files: files.collect(), session: self.another_session_lock() }
    }

    /// To be called in the child, before it uses the guard.
    pub fn in_child(&self, given: ForChild) {
        for (file, again) in given.files {
            file.replace_attached(again);
        }
        if let Some((alive, attach)) = given.session {
            self.replace_session_locks(alive, attach);
        }
    }
}
