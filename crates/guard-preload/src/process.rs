//! The life of a process: begin, fork, end.

use std::ffi::{CStr, c_char, c_int};

use crate::guarded::{self, is_on};
use crate::raw::{Behind, call};
use crate::streams;

/// Called by the dynamic linker before all other code of the process. The C library itself has not begun then, so what the
/// process was given is taken from the arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

unsafe extern "C" fn begin(_count: c_int, _words: *const *const c_char, environment: *const *const c_char) {
    let look = |name: &CStr| {
        let mut at = environment;
        // SAFETY: a list of texts that ends with NULL; they stay as long as the process.
        unsafe {
            while !at.is_null() && !(*at).is_null() {
                let text = CStr::from_ptr(*at);
                let rest = text.to_bytes().strip_prefix(name.to_bytes());
                if rest.is_some_and(|rest| rest.first() == Some(&b'=')) {
                    return Some(CStr::from_ptr((*at).add(name.to_bytes().len() + 1)));
                }
                at = at.add(1);
            }
        }
        None
    };
    guarded::begin(&look);
    if !is_on() {
        return;
    }
    // SAFETY: functions of the right kind, which stay as long as the process.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        libc::atexit(at_exit);
    }
    for descriptor in 0..3 {
        streams::follow(descriptor);
    }
}

unsafe extern "C" fn before_fork() {
    guarded::before_fork();
}

unsafe extern "C" fn in_parent() {
    guarded::after_fork(false);
}

unsafe extern "C" fn in_child() {
    guarded::after_fork(true);
}

/// What programs have in their buffers comes out first, as the C library would do a moment later.
extern "C" fn at_exit() {
    // SAFETY: of all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    guarded::leave();
}

/// # Safety
/// As `_exit`.
unsafe fn end(code: c_int) -> ! {
    guarded::leave();
    // SAFETY: ends the process.
    unsafe { call!(SYS_exit_group, code) };
    unreachable!("the process has ended")
}

/// # Safety
/// As `fork`. A child of `vfork` shares the memory of its parent, and with it what is known of descriptors; a child of `fork`
/// does all that one may do.
unsafe fn fork_too() -> libc::pid_t {
    static FORK: Behind = Behind::new(c"fork");
    // SAFETY: it is the function by this name.
    let fork: unsafe extern "C" fn() -> libc::pid_t = unsafe { std::mem::transmute(FORK.get()) };
    // SAFETY: the caller's word.
    unsafe { fork() }
}

/// # Safety
/// As `closedir`.
unsafe fn close_folder(folder: *mut libc::DIR) -> c_int {
    static CLOSEDIR: Behind = Behind::new(c"closedir");
    // SAFETY: it is the function by this name.
    let behind: unsafe extern "C" fn(*mut libc::DIR) -> c_int =
        unsafe { std::mem::transmute(CLOSEDIR.get()) };
    if !guarded::is_inside() && !folder.is_null() {
        // SAFETY: the caller's word.
        guarded::forget(unsafe { libc::dirfd(folder) });
    }
    // SAFETY: the caller's word.
    unsafe { behind(folder) }
}

same!(_exit, _Exit => end, (code: c_int) -> !);
same!(vfork => fork_too, () -> libc::pid_t);
same!(closedir => close_folder, (folder: *mut libc::DIR) -> c_int);
