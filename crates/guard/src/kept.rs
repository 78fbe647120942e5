//! Files that were opened for reading, kept attached for a while: to find a file's sums anew costs more than to read a small
//! file. Files that somebody has opened for writing are not kept, so that what was written is left when it is closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    file: Arc<GuardedFile>,
}

#[derive(Default)]
struct Entries {
    /// By their tickets, so the oldest first.
    by_ticket: BTreeMap<u64, Entry>,
    last: u64,
}

/// A file's place among those that are kept: 0 if it is not.
#[derive(Default)]
pub(crate) struct Ticket(AtomicU64);

impl Ticket {
    /// Whether the file is kept attached.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// See the head of the module.
pub struct Kept {
    /// `None` once the guard was closed. Tickets change under this lock.
    entries: Mutex<Option<Entries>>,
    /// The second in which the oldest were last looked at.
    looked: AtomicU64,
    max: usize,
}

impl Kept {
    /// None yet.
    pub fn new() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure of this frame.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        let max = KEPT_MAX.min(usize::try_from(limit.rlim_cur).unwrap_or(KEPT_MAX) / PER_DESCRIPTORS);
        Self { entries: Mutex::new(Some(Entries::default())), looked: AtomicU64::new(0), max }
    }

    /// Keeps a file that was just opened, and lets go of others for it.
    pub fn keep(&self, file: &Arc<GuardedFile>) {
        let now = clock::seconds();
        // One that is kept is opened again and again, by many threads: without the lock, but once a second.
        if file.ticket().is_kept() && self.looked.load(Ordering::Relaxed) == now {
            return;
        }
        self.looked.store(now, Ordering::Relaxed);
        // Files are closed outside of the lock.
        let mut old = Vec::new();
        let mut entries = self.entries.lock();
        let Some(Entries { by_ticket, last }) = &mut *entries else { return };
        if !file.ticket().is_kept() {
            *last += 1;
            file.ticket().0.store(*last, Ordering::Relaxed);
            by_ticket.insert(*last, Entry { since: now, file: Arc::clone(file) });
        }
        let is_old = |entry: &Entry| now.saturating_sub(entry.since) > KEPT_SECONDS;
        while by_ticket.len() > self.max
            || by_ticket.first_key_value().is_some_and(|(_, entry)| is_old(entry))
        {
            let Some((_, entry)) = by_ticket.pop_first() else { break };
            entry.file.ticket().0.store(0, Ordering::Relaxed);
            old.push(entry);
        }
        drop(entries);
    }

    /// Lets go of one file.
    pub fn let_go(&self, file: &GuardedFile) {
        if !file.ticket().is_kept() {
            return;
        }
        let entry = {
            let mut entries = self.entries.lock();
            let Some(entries) = &mut *entries else { return };
            entries.by_ticket.remove(&file.ticket().0.swap(0, Ordering::Relaxed))
        };
        // Closed outside of the lock.
        drop(entry);
    }

    /// Lets go of those that were opened so long ago.
    pub fn let_go_idle(&self, idle: Duration) {
        let now = clock::seconds();
        let mut old = Vec::new();
        if let Some(entries) = &mut *self.entries.lock() {
            let is_idle = |entry: &Entry| now.saturating_sub(entry.since) >= idle.as_secs();
            old.extend(entries.by_ticket.extract_if(.., |_, entry| is_idle(entry)));
            for (_, entry) in &old {
                entry.file.ticket().0.store(0, Ordering::Relaxed);
            }
        }
        drop(old);
    }

    /// Lets go of all, and keeps none from now on.
    pub fn close(&self) {
        let all = self.entries.lock().take();
        drop(all);
    }
}
