//! What changes what a number stands for: open, close, dup. A number that changed is forgotten, and looked at anew when data
//! move through it.

use std::ffi::{c_char, c_int, c_uint};

use libc::mode_t;

use crate::guarded::{
    self, done, forget, guarded, is_inside, is_on, is_ours, known_between, set_ours, within,
};
use crate::raw::{self, call};
use crate::streams;

/// # Safety
/// As `openat`.
pub unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if is_inside() {
        // SAFETY: the caller's word.
        return opened_inside(unsafe { raw::openat(folder, path, flags, mode) });
    }
    // A file that is opened for writing and cut is cut by its guard, if it has one.
    let cuts = is_on() && flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    let kept = if cuts { flags & !libc::O_TRUNC } else { flags };
    // SAFETY: the caller's word.
    let opened = unsafe { raw::openat(folder, path, kept, mode) };
    if opened < 0 {
        return opened;
    }
    guarded::opened(opened, kept);
    if cuts && !cut(opened) {
        let errno = raw::errno();
        close_one(opened);
        return raw::fail(errno);
    }
    streams::follow(opened);
    opened
}

/// Cuts what was opened to nothing, if it is a file. False with `errno` if that fails.
fn cut(opened: c_int) -> bool {
    match guarded(opened) {
        Ok(Some(open)) => done(within(move || open.file.cut_opened())) == 0,
        Ok(None) => {
            let errno = raw::errno();
            // Devices and pipes cannot be cut, and `open` does not mind.
            let is_cut = raw::ftruncate(opened, 0) == 0 || raw::errno() == libc::EINVAL;
            if is_cut {
                raw::set_errno(errno);
            }
            is_cut
        }
        Err(errno) => {
            raw::set_errno(errno);
            false
        }
    }
}

fn opened_inside(opened: c_int) -> c_int {
    if opened >= 0 {
        set_ours(opened, true);
    }
    opened
}

/// # Safety
/// As `open`.
unsafe fn open_here(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's word.
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As `creat`.
unsafe fn create(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's word.
    unsafe { open_here(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// # Safety
/// As `open`, of what needs no mode.
unsafe fn open_checked(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's word.
    unsafe { open_here(path, flags, 0) }
}

/// # Safety
/// As `openat`, of what needs no mode.
unsafe fn open_at_checked(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's word.
    unsafe { open_at(folder, path, flags, 0) }
}

/// # Safety
/// A number.
pub unsafe fn close_number(descriptor: c_int) -> c_int {
    close_one(descriptor)
}

/// Closes.
pub fn close_one(descriptor: c_int) -> c_int {
    if is_inside() {
        set_ours(descriptor, false);
        return raw::close(descriptor);
    }
    if is_ours(descriptor) {
        return raw::fail(libc::EBADF);
    }
    forget(descriptor);
    raw::close(descriptor)
}

/// # Safety
/// Numbers.
unsafe fn close_between(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let closes = flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
    if is_inside() || !is_on() || !closes {
        // SAFETY: takes numbers.
        return unsafe { call!(SYS_close_range, first, last, flags) as c_int };
    }
    // Around those of the guard.
    let mut from = first;
    let known: Vec<c_int> = known_between(first, last).collect();
    for descriptor in known {
        if is_ours(descriptor) {
            let number = descriptor as c_uint;
            if from < number {
                // SAFETY: takes numbers.
                unsafe { call!(SYS_close_range, from, number - 1, flags) };
            }
            from = number + 1;
        } else {
            forget(descriptor);
        }
    }
    if from > last {
        return 0;
    }
    // SAFETY: takes numbers.
    unsafe { call!(SYS_close_range, from, last, flags) as c_int }
}

/// # Safety
/// A number.
unsafe fn close_from(first: c_int) {
    // SAFETY: takes numbers.
    unsafe { close_between(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// # Safety
/// A number.
unsafe fn duplicate(descriptor: c_int) -> c_int {
    // SAFETY: takes a number.
    let again = unsafe { call!(SYS_dup, descriptor) as c_int };
    changed(again)
}

/// # Safety
/// Numbers.
pub unsafe fn duplicate_to(descriptor: c_int, to: c_int) -> c_int {
    if descriptor == to {
        // Without effect, but for saying whether it is open.
        let flags = raw::fcntl(descriptor, libc::F_GETFD, 0);
        return if flags < 0 { flags } else { to };
    }
    // SAFETY: as the caller's.
    unsafe { duplicate_to_with(descriptor, to, 0) }
}

/// # Safety
/// Numbers.
unsafe fn duplicate_to_with(descriptor: c_int, to: c_int, flags: c_int) -> c_int {
    if !is_inside() && is_ours(to) {
        return raw::fail(libc::EBUSY);
    }
    if !is_inside() && to >= 0 {
        forget(to);
    }
    // SAFETY: takes numbers.
    let again = unsafe { call!(SYS_dup3, descriptor, to, flags) as c_int };
    if again >= 0 && !is_inside() {
        streams::follow(again);
    }
    again
}

/// A number that has come to stand for something.
fn changed(descriptor: c_int) -> c_int {
    if descriptor < 0 {
        return descriptor;
    }
    if is_inside() {
        set_ours(descriptor, true);
    } else {
        forget(descriptor);
        streams::follow(descriptor);
    }
    descriptor
}

/// # Safety
/// As `fcntl`.
unsafe fn control(descriptor: c_int, command: c_int, argument: libc::c_long) -> c_int {
    let answer = raw::fcntl(descriptor, command, argument);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => changed(answer),
        // Whether it appends may have changed.
        libc::F_SETFL if answer >= 0 && !is_inside() => {
            forget(descriptor);
            answer
        }
        _ => answer,
    }
}

same!(open, open64 => open_here, (path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
same!(openat, openat64 => open_at, (folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
same!(creat, creat64 => create, (path: *const c_char, mode: mode_t) -> c_int);
same!(__open_2, __open64_2 => open_checked, (path: *const c_char, flags: c_int) -> c_int);
same!(__openat_2, __openat64_2 => open_at_checked, (folder: c_int, path: *const c_char, flags: c_int) -> c_int);
same!(close => close_number, (descriptor: c_int) -> c_int);
same!(close_range => close_between, (first: c_uint, last: c_uint, flags: c_int) -> c_int);
same!(closefrom => close_from, (first: c_int) -> ());
same!(dup => duplicate, (descriptor: c_int) -> c_int);
same!(dup2 => duplicate_to, (descriptor: c_int, to: c_int) -> c_int);
same!(dup3 => duplicate_to_with, (descriptor: c_int, to: c_int, flags: c_int) -> c_int);
same!(fcntl, fcntl64 => control, (descriptor: c_int, command: c_int, argument: libc::c_long) -> c_int);
