//! What functions give back: a number, and for people a text that belongs to the thread.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use guard::Trouble;

/// How a function ended. What is not `ROTPROOF_GUARD_STATUS_OK` is explained by `rotproof_guard_last_error`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rotproof_guard_status {
    /// Done.
    Ok = 0,
    /// An argument makes no sense; nothing was done.
    Invalid = 1,
    /// The operating system refused something; `rotproof_guard_last_errno` says which error it gave.
    Os = 2,
    /// A block cannot be trusted, and no right copy of it was found; `rotproof_guard_last_block` says which. A function that
    /// makes durable says so once of blocks that were not any more as they were written.
    Rotten = 3,
    /// The data of a block did not have the sum that came with them; `rotproof_guard_last_block` says which. That block was
    /// not written.
    Boundary = 4,
    /// A defect of Rotproof; nothing should be done any more with what the function was given.
    Internal = 5,
}

/// Why a function did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct CallError {
    status: rotproof_guard_status,
    message: String,
    errno: i32,
    block: u64,
}

impl CallError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(rotproof_guard_status::Invalid, message)
    }

    fn new(status: rotproof_guard_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errno: 0, block: u64::MAX }
    }

    pub(crate) fn of_io(error: &std::io::Error, doing: &str) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        Self { errno, ..Self::new(rotproof_guard_status::Os, format!("{doing}: {error}")) }
    }
}

impl From<rotproof_block::Error> for CallError {
    fn from(error: rotproof_block::Error) -> Self {
        let mut message = error.to_string();
        let mut errno = 0;
        let mut source = std::error::Error::source(&error);
        while let Some(below) = source {
            if let Some(code) = below.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error)
            {
                errno = code;
            }
            message = format!("{message}: {below}");
            source = below.source();
        }
        Self { errno, ..Self::new(rotproof_guard_status::Os, message) }
    }
}

impl From<Trouble> for CallError {
    fn from(trouble: Trouble) -> Self {
        let message = trouble.to_string();
        match trouble {
            Trouble::Os(errno) => Self { errno, ..Self::new(rotproof_guard_status::Os, message) },
            Trouble::Rotten(block) => Self { block, ..Self::new(rotproof_guard_status::Rotten, message) },
            Trouble::Boundary(block) => Self { block, ..Self::new(rotproof_guard_status::Boundary, message) },
            Trouble::Guard(error) => error.into(),
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
    static LAST_NUMBERS: Cell<(i32, u64)> = const { Cell::new((0, u64::MAX)) };
}

/// Runs the body of a function that C calls. A failure or a panic becomes its status and the thread's last error.
pub(crate) fn call(body: impl FnOnce() -> Result<(), CallError>) -> rotproof_guard_status {
    // Whoever is told of a defect is told not to go on, so nobody sees what a panic left half done.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return rotproof_guard_status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            CallError::new(rotproof_guard_status::Internal, format!("a defect of Rotproof: {text}"))
        }
    };
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| last.replace(text));
    LAST_NUMBERS.set((failure.errno, failure.block));
    failure.status
}

/// Why the last function that failed on this thread did, in English, as UTF-8. Empty if none has. The text stays until
/// the next failure on this thread, and belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_guard_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The number of the operating system's error that the last failure on this thread came from, as `errno`; 0 if it came from
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_guard_last_errno() -> i32 {
    LAST_NUMBERS.get().0
}

/// The block of 4096 bytes of the file, counted from 0, that the last failure on this thread is about; `UINT64_MAX` if it is
/// about none.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_guard_last_block() -> u64 {
    LAST_NUMBERS.get().1
}

/// Version of this interface. It changes when a program that was compiled with the older header would misbehave.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_guard_abi_version() -> u32 {
    1
}

/// The path at `path`, which `what` calls in messages; `None` of NULL.
///
/// # Safety
/// `path` is NULL, or ends with zero and stays as it is for `'a`.
pub(crate) unsafe fn path_of<'a>(path: *const c_char) -> Option<&'a Path> {
    // SAFETY: it is not NULL, and else as the caller promises.
    (!path.is_null()).then(|| Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: the text ends with zero and stays until the next failure of this thread.
        unsafe { CStr::from_ptr(rotproof_guard_last_error()) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn failures_and_panics_become_numbers_and_a_text_of_the_thread() {
        assert_eq!((last_error().as_str(), rotproof_guard_last_block()), ("", u64::MAX));
        assert_eq!(call(|| Err(Trouble::Rotten(7).into())), rotproof_guard_status::Rotten);
        assert_eq!((rotproof_guard_last_errno(), rotproof_guard_last_block()), (0, 7));
        assert_eq!(call(|| Err(Trouble::Os(libc::ENOSPC).into())), rotproof_guard_status::Os);
        assert_eq!((rotproof_guard_last_errno(), rotproof_guard_last_block()), (libc::ENOSPC, u64::MAX));
        assert_eq!(call(|| Ok(())), rotproof_guard_status::Ok);
        assert_eq!(call(|| panic!("on {}", "purpose")), rotproof_guard_status::Internal);
        assert_eq!(last_error(), "a defect of Rotproof: on purpose");
    }
}
