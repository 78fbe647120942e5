//! Names, times and permissions. They are the kernel's; the guard wants to know when the last name is gone, that it was a program
//! that set a time, and when a file becomes one that is run.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use libc::{mode_t, timespec, timeval, utimbuf};
use rotproof_guard::GuardedFile;
use rotproof_guard::format::Moment;

use crate::guarded::{device, is_below, is_inside, is_on, let_go, modes_have_changed, store, within};
use crate::raw::{self, Behind, call};

/// A file whose only name goes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LastName {
    inode: u64,
    birth: Moment,
}

/// The file whose name is about to go, if the guard may have a table of it and this is its last name.
///
/// # Safety
/// `path` ends with zero.
unsafe fn last_name(folder: c_int, path: *const c_char) -> Option<LastName> {
    if !is_on() || is_inside() {
        return None;
    }
    let errno = raw::errno();
    // SAFETY: the caller's word.
    let stat = unsafe { raw::statx(folder, path, libc::AT_SYMLINK_NOFOLLOW) };
    raw::set_errno(errno);
    let stat = rotproof_guard::stat::Stat::of_statx(&stat?);
    let is_last = stat.is_file() && stat.links == 1 && stat.device == device();
    is_last.then_some(LastName { inode: stat.inode, birth: stat.birth })
}

/// A file has lost its last name: its table goes, unless somebody has it open.
fn is_gone(name: Option<LastName>) {
    if let Some(LastName { inode, birth }) = name {
        // What stays is removed by the next check.
        within(|| drop(store().deleted(inode, birth)));
    }
}

/// # Safety
/// As `unlinkat`.
unsafe fn unlink_at(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's word.
    let (inode, answer) =
        unsafe { (last_name(folder, path), call!(SYS_unlinkat, folder, path, flags) as c_int) };
    if answer == 0 {
        is_gone(inode);
    }
    answer
}

/// # Safety
/// As `unlink`.
unsafe fn unlink_here(path: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    unsafe { unlink_at(libc::AT_FDCWD, path, 0) }
}

/// # Safety
/// As `remove`.
unsafe fn remove_here(path: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    unsafe {
        match unlink_at(libc::AT_FDCWD, path, 0) {
            -1 if matches!(raw::errno(), libc::EISDIR | libc::EPERM) => {
                unlink_at(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
            }
            answer => answer,
        }
    }
}

/// # Safety
/// As `renameat2`.
unsafe fn rename_with(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: u32) -> c_int {
    // SAFETY: the caller's word.
    unsafe {
        let inode = last_name(to, new);
        // Two names of one file stay.
        let same = inode.is_some() && inode == last_name(from, old);
        let answer = call!(SYS_renameat2, from, old, to, new, flags) as c_int;
        if answer == 0 && !same && flags & libc::RENAME_EXCHANGE == 0 {
            is_gone(inode);
        }
        answer
    }
}

/// # Safety
/// As `renameat`.
unsafe fn rename_at(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    unsafe { rename_with(from, old, to, new, 0) }
}

/// # Safety
/// As `rename`.
unsafe fn rename_here(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    unsafe { rename_with(libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0) }
}

/// The guarded file that a name leads to, attached before its time changes, which otherwise looks like somebody else's doing.
///
/// # Safety
/// `path` is NULL, which is the folder itself, or ends with zero.
unsafe fn file_at(folder: c_int, path: *const c_char, flags: c_int) -> Option<Arc<GuardedFile>> {
    if !is_on() || is_inside() {
        return None;
    }
    within(|| {
        let follows = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        let opened;
        let descriptor = if path.is_null() {
            folder
        } else {
            // SAFETY: the caller's word.
            let number = unsafe { raw::openat(folder, path, libc::O_PATH | libc::O_CLOEXEC | follows, 0) };
            if number < 0 {
                return None;
            }
            // SAFETY: just opened, and nobody else's.
            opened = unsafe { OwnedFd::from_raw_fd(number) };
            opened.as_raw_fd()
        };
        let stat = rotproof_guard::stat::Stat::of(descriptor).ok()?;
        if !stat.is_file() || stat.device != device() {
            return None;
        }
        let name = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
        let store = if is_below(&name) { store() } else { return None };
        if name.starts_with(store.folder()) {
            return None;
        }
        GuardedFile::open(&store, descriptor, false, &name).ok()
    })
    .flatten()
}

/// # Safety
/// As `utimensat`.
unsafe fn set_times_at(folder: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int {
    // SAFETY: the caller's word.
    let file = unsafe { file_at(folder, path, flags) };
    // SAFETY: the caller's word.
    let set = || match unsafe { call!(SYS_utimensat, folder, path, times, flags) } {
        0 => Ok(()),
        _ => Err(raw::errno()),
    };
    let done = match file {
        None => set(),
        Some(file) => within(move || file.set_times(set)).and_then(Result::ok).unwrap_or(Err(libc::EIO)),
    };
    match done {
        Ok(()) => 0,
        Err(errno) => raw::fail(errno),
    }
}

/// # Safety
/// As `futimens`.
unsafe fn set_times(descriptor: c_int, times: *const timespec) -> c_int {
    if descriptor < 0 {
        return raw::fail(libc::EBADF);
    }
    // SAFETY: the caller's word.
    unsafe { set_times_at(descriptor, std::ptr::null(), times, 0) }
}

/// # Safety
/// `times` is NULL or has two.
unsafe fn of_timeval(times: *const timeval, set: impl FnOnce(*const timespec) -> c_int) -> c_int {
    if times.is_null() {
        return set(std::ptr::null());
    }
    // SAFETY: the caller's word.
    let given = unsafe { std::slice::from_raw_parts(times, 2) };
    if given.iter().any(|time| !(0..1_000_000).contains(&time.tv_usec)) {
        return raw::fail(libc::EINVAL);
    }
    let times = [0, 1].map(|at| timespec { tv_sec: given[at].tv_sec, tv_nsec: given[at].tv_usec * 1000 });
    set(times.as_ptr())
}

/// # Safety
/// As `utimes`.
unsafe fn set_times_here(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's word.
    unsafe { of_timeval(times, |times| set_times_at(libc::AT_FDCWD, path, times, 0)) }
}

/// # Safety
/// As `lutimes`.
unsafe fn set_times_of_link(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's word.
    unsafe { of_timeval(times, |times| set_times_at(libc::AT_FDCWD, path, times, libc::AT_SYMLINK_NOFOLLOW)) }
}

/// # Safety
/// As `futimesat`.
unsafe fn set_times_in(folder: c_int, path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's word.
    unsafe { of_timeval(times, |times| set_times_at(folder, path, times, 0)) }
}

/// # Safety
/// As `futimes`.
unsafe fn set_times_of(descriptor: c_int, times: *const timeval) -> c_int {
    // SAFETY: the caller's word.
    unsafe { of_timeval(times, |times| set_times(descriptor, times)) }
}

/// # Safety
/// As `utime`.
unsafe fn set_seconds(path: *const c_char, times: *const utimbuf) -> c_int {
    // SAFETY: the caller's word: NULL, or one.
    let times = unsafe { times.as_ref() }
        .map(|times| [times.actime, times.modtime].map(|seconds| timespec { tv_sec: seconds, tv_nsec: 0 }));
    let place = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: the caller's word.
    unsafe { set_times_at(libc::AT_FDCWD, path, place, 0) }
}

/// A file may be run from now on. The kernel runs none that is open for writing, as one is that is kept attached.
///
/// # Safety
/// `path` ends with zero.
unsafe fn may_be_run(folder: c_int, path: *const c_char, flags: c_int) {
    modes_have_changed();
    let errno = raw::errno();
    // SAFETY: the caller's word.
    let stat = unsafe { raw::statx(folder, path, flags) };
    raw::set_errno(errno);
    let Some(stat) = stat.map(|stat| rotproof_guard::stat::Stat::of_statx(&stat)) else { return };
    if stat.is_file() && stat.device == device() {
        within(|| let_go(stat.inode));
    }
}

fn is_of_program(mode: mode_t) -> bool {
    mode & 0o111 != 0 && is_on() && !is_inside()
}

/// # Safety
/// As `fchmodat`.
unsafe fn set_mode_at(folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    static FCHMODAT: Behind = Behind::new(c"fchmodat");
    type Fchmodat = unsafe extern "C" fn(c_int, *const c_char, mode_t, c_int) -> c_int;
    // SAFETY: it is the function by this name.
    let behind: Fchmodat = unsafe { std::mem::transmute(FCHMODAT.get()) };
    // SAFETY: the caller's word.
    unsafe {
        let answer = behind(folder, path, mode, flags);
        if answer == 0 && is_of_program(mode) {
            may_be_run(folder, path, flags);
        }
        answer
    }
}

/// # Safety
/// As `chmod`.
unsafe fn set_mode_here(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's word.
    unsafe { set_mode_at(libc::AT_FDCWD, path, mode, 0) }
}

/// # Safety
/// Numbers.
unsafe fn set_mode(descriptor: c_int, mode: mode_t) -> c_int {
    // SAFETY: takes numbers, and a text that ends with zero.
    unsafe {
        let answer = call!(SYS_fchmod, descriptor, mode) as c_int;
        if answer == 0 && is_of_program(mode) {
            may_be_run(descriptor, c"".as_ptr(), libc::AT_EMPTY_PATH);
        }
        answer
    }
}

same!(unlink => unlink_here, (path: *const c_char) -> c_int);
same!(unlinkat => unlink_at, (folder: c_int, path: *const c_char, flags: c_int) -> c_int);
same!(remove => remove_here, (path: *const c_char) -> c_int);
same!(rename => rename_here, (old: *const c_char, new: *const c_char) -> c_int);
same!(renameat => rename_at, (from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int);
same!(renameat2 => rename_with, (from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: u32) -> c_int);
same!(chmod => set_mode_here, (path: *const c_char, mode: mode_t) -> c_int);
same!(fchmod => set_mode, (descriptor: c_int, mode: mode_t) -> c_int);
same!(fchmodat => set_mode_at, (folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int);
same!(utimensat => set_times_at, (folder: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int);
same!(futimens => set_times, (descriptor: c_int, times: *const timespec) -> c_int);
same!(utimes => set_times_here, (path: *const c_char, times: *const timeval) -> c_int);
same!(lutimes => set_times_of_link, (path: *const c_char, times: *const timeval) -> c_int);
same!(futimesat => set_times_in, (folder: c_int, path: *const c_char, times: *const timeval) -> c_int);
same!(futimes => set_times_of, (descriptor: c_int, times: *const timeval) -> c_int);
same!(utime => set_seconds, (path: *const c_char, times: *const utimbuf) -> c_int);
