//! System calls as they are, with `errno`; and functions of the C library behind ours.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A system call whose arguments are words.
macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}
pub(crate) use call;

/// The `errno` of this thread.
pub fn errno() -> c_int {
    // SAFETY: always valid.
    unsafe { *libc::__errno_location() }
}

/// Sets the `errno` of this thread.
pub fn set_errno(number: c_int) {
    // SAFETY: always valid.
    unsafe { *libc::__errno_location() = number };
}

/// Fails with an error.
pub fn fail(number: c_int) -> c_int {
    set_errno(number);
    -1
}

/// A function of the C library that one of ours stands in front of.
pub struct Behind {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Behind {
    /// By its name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. Ends the process if there is none, which was linked against it.
    pub fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a text that ends with zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: it does not return.
            unsafe { libc::abort() };
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// # Safety
/// `path` ends with zero.
pub unsafe fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's word.
    unsafe { call!(SYS_openat, folder, path, flags, mode) as c_int }
}

/// Closes.
pub fn close(descriptor: c_int) -> c_int {
    // SAFETY: takes a number.
    unsafe { call!(SYS_close, descriptor) as c_int }
}

/// Moves a position, or asks for it.
pub fn lseek(descriptor: c_int, offset: i64, whence: c_int) -> i64 {
    // SAFETY: takes numbers.
    unsafe { call!(SYS_lseek, descriptor, offset, whence) }
}

/// Cuts.
pub fn ftruncate(descriptor: c_int, size: i64) -> c_int {
    // SAFETY: takes numbers.
    unsafe { call!(SYS_ftruncate, descriptor, size) as c_int }
}

/// `fcntl` with a word.
pub fn fcntl(descriptor: c_int, command: c_int, argument: libc::c_long) -> c_int {
    // SAFETY: commands with pointers come from programs, whose word it is.
    unsafe { call!(SYS_fcntl, descriptor, command, argument) as c_int }
}

/// `statx` with all that the guard wants to know; `None` with `errno` if it fails.
///
/// # Safety
/// `path` ends with zero.
pub unsafe fn statx(folder: c_int, path: *const c_char, flags: c_int) -> Option<libc::statx> {
    // SAFETY: all zeros is a valid value of it.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: the caller's word, and a structure of this frame.
    let answer = unsafe { call!(SYS_statx, folder, path, flags, mask, &raw mut stat) };
    (answer == 0).then_some(stat)
}
