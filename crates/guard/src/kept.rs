//! Files that were opened for reading, kept attached for a while: to find a file's sums anew costs more than to read a small
//! file. Files that somebody has opened for writing are not kept, so that what was written is left when it is closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;
use crate::file::GuardedFile;

/// How long, at least while other files are opened.
const KEPT_SECONDS: u64 = 10;
/// How many, where a process may have many descriptors: each takes two.
const KEPT_MAX: usize = 1024;
/// One for so many descriptors that the process may have.
const PER_DESCRIPTORS: usize = 16;

struct Entry {
    since: u64,
    inode: u64,
    file: Arc<GuardedFile>,
}

/// See the head of the module.
pub struct Kept {
    /// The oldest first; `None` once the guard was closed.
    entries: Mutex<Option<VecDeque<Entry>>>,
    max: usize,
}

impl Kept {
    /// None yet.
    pub fn new() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure of this frame.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        let max = KEPT_MAX.min(usize::try_from(limit.rlim_cur).unwrap_or(KEPT_MAX) / PER_DESCRIPTORS);
        Self { entries: Mutex::new(Some(VecDeque::new())), max }
    }

    /// Keeps a file that was just opened, and lets go of others for it.
    pub fn keep(&self, file: &Arc<GuardedFile>) {
        let now = clock::seconds();
        // Files are closed outside of the lock.
        let mut old = Vec::new();
        let mut entries = self.entries.lock();
        let Some(entries_now) = &mut *entries else { return };
        if !file.set_kept(true) {
            entries_now.push_back(Entry { since: now, inode: file.inode(), file: Arc::clone(file) });
        }
        while entries_now.len() > self.max
            || entries_now.front().is_some_and(|entry| now.saturating_sub(entry.since) > KEPT_SECONDS)
        {
            old.extend(entries_now.pop_front());
        }
        for entry in &old {
            entry.file.set_kept(false);
        }
        drop(entries);
    }

    /// Lets go of one file.
    pub fn let_go(&self, inode: u64) {
        let entry = {
            let mut entries = self.entries.lock();
            let Some(entries) = &mut *entries else { return };
            let found = entries.iter().position(|entry| entry.inode == inode);
            found.and_then(|at| entries.remove(at)).inspect(|entry| {
                entry.file.set_kept(false);
            })
        };
        // Closed outside of the lock.
        drop(entry);
    }

    /// Lets go of those that were opened so long ago.
    pub fn let_go_idle(&self, idle: Duration) {
        let now = clock::seconds();
        self.let_go_where(|entry| now.saturating_sub(entry.since) >= idle.as_secs());
    }

    fn let_go_where(&self, is_gone: impl Fn(&Entry) -> bool) {
        let mut old = Vec::new();
        if let Some(entries) = &mut *self.entries.lock() {
            let (gone, stays): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(entries).into_iter().partition(is_gone);
            for entry in &gone {
                entry.file.set_kept(false);
            }
            (old, *entries) = (gone.into(), stays);
        }
        drop(old);
    }

    /// Lets go of all, and keeps none from now on.
    pub fn close(&self) {
        let all = self.entries.lock().take();
        drop(all);
    }
}
