//! Thin wrappers of system calls that the standard library lacks, with errors that say what was being done.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// The path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        Error::new(ErrorKind::Invalid, format!("the path {} contains a zero byte", path.display()))
    })
}

/// Turns the `-1` of a system call into the error it left in `errno`.
pub(crate) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// `open(2)` with the flags given and close-on-exec.
pub(crate) fn open(path: &Path, flags: libc::c_int) -> Result<OwnedFd> {
    let name = c_path(path)?;
    loop {
        // SAFETY: the path is a string with its zero byte that lives across the call.
        match check(unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC) }) {
            // SAFETY: just opened, owned by nobody else.
            Ok(fd) => return Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::from_io(error, format!("opening {}", path.display()))),
        }
    }
}

/// An eventfd: nothing in it, non-blocking.
pub(crate) fn event() -> Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked and owned by nobody else.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))
            .doing(|| "making an event".into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Adds one to an eventfd. One that is full is readable already.
pub(crate) fn signal(event: &OwnedFd) {
    let one = 1u64;
    // SAFETY: an eventfd takes eight bytes; the value lives across the call.
    unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// The user and the group as whom the calling thread acts.
pub(crate) fn user() -> (u32, u32) {
    // SAFETY: both take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Whether the calling thread acts as root.
pub(crate) fn is_root() -> bool {
    user().0 == 0
}

/// A file system on an export may be mounted on this machine. When the kernel is short of memory it writes that file
/// system's pages back through the threads of the export, so their own allocations must not wait for such a write.
pub(crate) fn mark_as_io_flusher() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: plain numbers. It needs a right that users without root lack, for whom nothing is mounted on top.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
}
