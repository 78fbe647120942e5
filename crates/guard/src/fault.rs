//! Reading from a mapping of a file without dying of it.
//!
//! A page of a mapping whose file has become shorter, or that the disk cannot read, raises SIGBUS. A [`Watch`] says which
//! memory this thread is about to read; a fault there puts a page of zeros in the way and is remembered, so that the copy
//! goes on and its result is thrown away. Faults elsewhere go to whoever handled the signal before.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rotproof_block::{Error, Result};

const PAGE: usize = 4096;

thread_local! {
    /// Beginning and end of what is watched, and whether there was a fault. Cells without destructors, so that the handler
    /// of the signal may use them.
    static WATCHED: (Cell<usize>, Cell<usize>, Cell<bool>) =
        const { (Cell::new(0), Cell::new(0), Cell::new(false)) };
}

/// What handled the signal before: the address of the function, and whether it takes three arguments.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_FLAGS: AtomicUsize = AtomicUsize::new(0);
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Makes faults of this process harmless where they are watched. Once is enough.
pub fn prepare() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        // SAFETY: all zeros is a valid action; the handler only uses what signals may use.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
            if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) != 0 {
                let error = std::io::Error::last_os_error();
                outcome = Err(Error::from_io(error, "installing the handler of SIGBUS"));
                return;
            }
            BEFORE.store(before.sa_sigaction, Ordering::Relaxed);
            BEFORE_FLAGS.store(before.sa_flags as usize, Ordering::Relaxed);
            IS_PREPARED.store(true, Ordering::Release);
        }
    });
    outcome
}

/// Whether [`prepare`] was called.
pub fn is_prepared() -> bool {
    IS_PREPARED.load(Ordering::Acquire)
}

/// Faults that are not ours go to another handler from now on: its address and the flags of its `sigaction`. Gives what it
/// was before. For who stands between a program and `sigaction`.
pub fn replace_handler(handler: usize, flags: i32) -> (usize, i32) {
    let before = BEFORE.swap(handler, Ordering::Relaxed);
    (before, BEFORE_FLAGS.swap(flags as usize, Ordering::Relaxed) as i32)
}

/// The handler that faults go to that are not ours, and the flags of its `sigaction`.
pub fn handler() -> (usize, i32) {
    (BEFORE.load(Ordering::Relaxed), BEFORE_FLAGS.load(Ordering::Relaxed) as i32)
}

/// Memory of a mapping that this thread reads while it holds this.
#[derive(Debug)]
pub struct Watch {
    /// It belongs to its thread.
    here: PhantomData<*const u8>,
}

impl Watch {
    /// Watches `length` bytes from `start`, whole pages of a mapping of ours that nothing but copies of ours reads.
    pub fn over(start: *const u8, length: usize) -> Self {
        WATCHED.with(|(from, to, faulted)| {
            from.set(start as usize);
            to.set(start as usize + length);
            faulted.set(false);
        });
        Self { here: PhantomData }
    }

    /// For memory that cannot fault.
    #[cfg(test)]
    pub fn idle() -> Self {
        Self::over(std::ptr::null(), 0)
    }

    /// Whether there was a fault: what was read is then worthless, and the mapping must not be used any more.
    pub fn has_faulted(&self) -> bool {
        WATCHED.with(|(_, _, faulted)| faulted.get())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.with(|(from, to, _)| {
            from.set(0);
            to.set(0);
        });
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure; of SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let is_ours = WATCHED.with(|(from, to, faulted)| {
        let is_ours = (from.get()..to.get()).contains(&address);
        if is_ours {
            faulted.set(true);
        }
        is_ours
    });
    if is_ours {
        // SAFETY: replaces one page of a mapping of ours, which nobody uses after a fault; mmap is a plain system call.
        let page = unsafe {
            libc::mmap(
                (address & !(PAGE - 1)) as *mut libc::c_void,
                PAGE,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if page != libc::MAP_FAILED {
            return;
        }
    }
    let (before, flags) = (BEFORE.load(Ordering::Relaxed), BEFORE_FLAGS.load(Ordering::Relaxed));
    if before == libc::SIG_DFL || before == libc::SIG_IGN {
        // The instruction runs again, and the process ends as it would have without us. Past the C library, in front of whose
        // function for this the preload may stand: it would keep this handler, and the instruction would run for ever.
        let default = [0usize; 4];
        // SAFETY: the kernel reads its own structure, of which zeros are the default action, and a mask of 8 bytes.
        unsafe {
            let nothing = std::ptr::null_mut::<libc::c_void>();
            libc::syscall(libc::SYS_rt_sigaction, libc::SIGBUS, default.as_ptr(), nothing, 8usize)
        };
        return;
    }
    // SAFETY: what sigaction said is the handler, with the arguments that its flags say.
    unsafe {
        if flags & libc::SA_SIGINFO as usize != 0 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(before);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(before);
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::copy::copy_and_xor;

    #[test]
    fn a_file_that_became_shorter_is_a_fault_and_no_death() {
        prepare().expect("a handler");
        let file = tempfile::tempfile().expect("a file");
        file.set_len(2 * PAGE as u64).expect("two pages");
        // SAFETY: a fresh mapping that only this test uses.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), 2 * PAGE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start.cast::<u8>();
        let mut to = vec![1; 2 * PAGE];
        let watch = Watch::over(start, 2 * PAGE);
        // SAFETY: a mapping of that size that is watched.
        unsafe { copy_and_xor(&watch, start, to.as_mut_ptr(), 2 * PAGE) };
        assert!(!watch.has_faulted());
        drop(watch);
        file.set_len(PAGE as u64).expect("one page");
        let watch = Watch::over(start, 2 * PAGE);
        // SAFETY: as above.
        unsafe { copy_and_xor(&watch, start, to.as_mut_ptr(), 2 * PAGE) };
        assert!(watch.has_faulted());
        drop(watch);
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(start.cast(), 2 * PAGE) };
    }
}
