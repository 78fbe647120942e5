//! Locks between processes: one that outlives its holder's death, in shared memory; and one on a file.

use std::cell::UnsafeCell;
use std::fs::File;
use std::os::fd::AsRawFd;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, Result};

/// A lock in memory that processes share. If its holder dies, the next one is told.
#[repr(C, align(64))]
pub struct SharedLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: it is what pthread_mutex_t is for, with the attribute of processes.
unsafe impl Sync for SharedLock {}
// SAFETY: as above; it is never moved once in use, since it lies in a mapping.
unsafe impl Send for SharedLock {}

/// Times that a lock is tried before a thread goes to sleep, and pauses in between: some microseconds in all.
const TRIES: usize = 20;
const PAUSES: usize = 10;

/// The lock is held while this lives.
pub struct SharedGuard<'a> {
    lock: &'a SharedLock,
    /// The holder before died while it held the lock: what it was doing is half done.
    pub is_orphaned: bool,
}

impl SharedLock {
    /// Makes it ready, once, before anybody else sees the memory.
    pub fn prepare(&self) -> Result<()> {
        // SAFETY: initialises attributes on the stack and a mutex that nobody uses yet.
        let answer = unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            let answer = libc::pthread_mutex_init(self.0.get(), &raw const attributes);
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            answer
        };
        if answer == 0 { Ok(()) } else { Err(Error::from_errno(answer, "making a lock between processes")) }
    }

    /// Waits for it: a moment awake, since who holds it mostly holds it for a system call or less, and then asleep.
    pub fn lock(&self) -> SharedGuard<'_> {
        // SAFETY: a mutex that was prepared.
        let mut answer = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        for _ in 0..TRIES {
            if answer != libc::EBUSY {
                break;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            // SAFETY: as above.
            answer = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        }
        if answer == libc::EBUSY {
            // SAFETY: as above.
            answer = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        }
        let is_orphaned = answer == libc::EOWNERDEAD;
        if is_orphaned {
            // SAFETY: this thread holds it now; whoever sees `is_orphaned` mends what the lock protects.
            unsafe { libc::pthread_mutex_consistent(self.0.get()) };
        }
        SharedGuard { lock: self, is_orphaned }
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.lock.0.get()) };
    }
}

/// Locks a whole file, or says that somebody else has done so.
pub fn lock_file(file: &File, operation: libc::c_int, what: impl FnOnce() -> String) -> Result<bool> {
    loop {
        // SAFETY: takes an open descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(true);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EWOULDBLOCK) => return Ok(false),
            _ => return Err(error).doing(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_child;

    #[test]
    fn a_holder_that_dies_is_told_of() {
        // SAFETY: a shared anonymous mapping of one page.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        // SAFETY: zeros of the right size and alignment, never unmapped.
        let lock: &SharedLock = unsafe { &*page.cast::<SharedLock>() };
        lock.prepare().expect("a lock");
        assert!(!lock.lock().is_orphaned);
        in_child(|| std::mem::forget(lock.lock()));
        assert!(lock.lock().is_orphaned);
        assert!(!lock.lock().is_orphaned);
    }
}
