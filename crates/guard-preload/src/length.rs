//! Lengths, holes, and making durable.

use std::ffi::{c_char, c_int, c_uint};

use rotproof_guard::Outcome;

use crate::descriptors::close_one;
use crate::guarded::{Open, done, guarded, is_inside, is_on, open_files, within};
use crate::raw::{self, call};

/// What a guarded file does, or what the system does with all else.
fn either(
    descriptor: c_int,
    needs_write: bool,
    act: impl FnOnce(&Open) -> Outcome<()>,
    otherwise: impl FnOnce() -> c_int,
) -> c_int {
    match guarded(descriptor) {
        Ok(Some(open)) if open.writes || !needs_write => done(within(move || act(&open))),
        Ok(_) => otherwise(),
        Err(errno) => raw::fail(errno),
    }
}

/// # Safety
/// Numbers.
unsafe fn cut(descriptor: c_int, size: i64) -> c_int {
    match u64::try_from(size) {
        Ok(length) => {
            either(descriptor, true, |open| open.file.set_size(length), || raw::ftruncate(descriptor, size))
        }
        Err(_) => raw::ftruncate(descriptor, size),
    }
}

/// # Safety
/// `path` ends with zero.
unsafe fn cut_by_path(path: *const c_char, size: i64) -> c_int {
    if is_on() && !is_inside() {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the caller's word.
        let opened = unsafe { raw::openat(libc::AT_FDCWD, path, flags, 0) };
        if opened >= 0 {
            crate::guarded::forget(opened);
            // SAFETY: numbers.
            let answer = unsafe { cut(opened, size) };
            let errno = raw::errno();
            close_one(opened);
            raw::set_errno(errno);
            return answer;
        }
    }
    // SAFETY: the caller's word. What cannot be opened fails here too, and says why.
    unsafe { call!(SYS_truncate, path, size) as c_int }
}

/// # Safety
/// Numbers.
unsafe fn allocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int {
    // SAFETY: takes numbers.
    let system = || unsafe { call!(SYS_fallocate, descriptor, mode, offset, length) as c_int };
    match (u64::try_from(offset), u64::try_from(length)) {
        (Ok(offset), Ok(length)) => {
            either(descriptor, true, |open| open.file.allocate(mode, offset, length), system)
        }
        _ => system(),
    }
}

/// # Safety
/// Numbers.
unsafe fn allocate_posix(descriptor: c_int, offset: i64, length: i64) -> c_int {
    let before = raw::errno();
    // SAFETY: numbers.
    let answer = unsafe { allocate(descriptor, 0, offset, length) };
    // It gives the error, and leaves `errno` alone.
    let errno = raw::errno();
    raw::set_errno(before);
    if answer == 0 { 0 } else { errno }
}

/// # Safety
/// A number.
unsafe fn sync_all(descriptor: c_int) -> c_int {
    // SAFETY: takes a number.
    let system = || unsafe { call!(SYS_fsync, descriptor) as c_int };
    either(descriptor, false, |open| open.file.sync_by(Some(descriptor), false), system)
}

/// # Safety
/// A number.
unsafe fn sync_data(descriptor: c_int) -> c_int {
    // SAFETY: takes a number.
    let system = || unsafe { call!(SYS_fdatasync, descriptor) as c_int };
    either(descriptor, false, |open| open.file.sync_by(Some(descriptor), true), system)
}

/// # Safety
/// Numbers.
unsafe fn sync_stretch(descriptor: c_int, offset: i64, length: i64, flags: c_uint) -> c_int {
    // It promises little; the whole file is more than that.
    // SAFETY: takes numbers.
    let system = || unsafe { call!(SYS_sync_file_range, descriptor, offset, length, flags) as c_int };
    either(descriptor, false, |open| open.file.sync_by(Some(descriptor), true), system)
}

/// Files that this process has open. Others' are theirs to sync.
fn sync_open() -> Outcome<()> {
    open_files().into_iter().try_for_each(|file| file.sync(false))
}

/// # Safety
/// None.
unsafe fn sync_everything() {
    if is_on() && !is_inside() {
        // It has no way to tell; the next fsync of the file has.
        let _ = within(sync_open);
    }
    // SAFETY: takes nothing.
    unsafe { call!(SYS_sync) };
}

/// # Safety
/// A number.
unsafe fn sync_file_system(descriptor: c_int) -> c_int {
    let synced = if is_on() && !is_inside() { done(within(sync_open)) } else { 0 };
    // SAFETY: takes a number.
    let answer = unsafe { call!(SYS_syncfs, descriptor) as c_int };
    if answer < 0 { answer } else { synced }
}

same!(ftruncate, ftruncate64 => cut, (descriptor: c_int, size: i64) -> c_int);
same!(truncate, truncate64 => cut_by_path, (path: *const c_char, size: i64) -> c_int);
same!(fallocate, fallocate64 => allocate, (descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int);
same!(posix_fallocate, posix_fallocate64 => allocate_posix, (descriptor: c_int, offset: i64, length: i64) -> c_int);
same!(fsync => sync_all, (descriptor: c_int) -> c_int);
same!(fdatasync => sync_data, (descriptor: c_int) -> c_int);
same!(sync_file_range => sync_stretch, (descriptor: c_int, offset: i64, length: i64, flags: c_uint) -> c_int);
same!(sync => sync_everything, () -> ());
same!(syncfs => sync_file_system, (descriptor: c_int) -> c_int);
