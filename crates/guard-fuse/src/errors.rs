//! Errors of the guard and of the system, as the kernel is told of them.

use std::io;

use fuser::Errno;
use rotproof_guard::Trouble;

/// An error of the system, for the kernel.
pub fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

/// An error of a guarded file, for the kernel.
pub fn of_trouble(trouble: &Trouble) -> Errno {
    Errno::from_i32(trouble.errno())
}

/// An error of the guard as one of the system.
pub fn io_error(error: &rotproof_block::Error) -> io::Error {
    let code = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    io::Error::from_raw_os_error(code.unwrap_or(libc::EIO))
}

/// An error of a guarded file as one of the system.
pub fn trouble_io(trouble: &Trouble) -> io::Error {
    io::Error::from_raw_os_error(trouble.errno())
}
