//! What functions give back: a number, and for people a text that belongs to the thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a function ended. What is not `ROTPROOF_STATUS_OK` is explained by `rotproof_last_error`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rotproof_status {
    /// Done.
    Ok = 0,
    /// An argument makes no sense; nothing was changed.
    Invalid = 1,
    /// The operating system refused something, such as to write a file.
    Os = 2,
    /// A defect of Rotproof; nothing should be done any more with what the function was given.
    Internal = 3,
}

/// Why a function did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) status: rotproof_status,
    pub(crate) message: String,
}

impl CallError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { status: rotproof_status::Invalid, message: message.into() }
    }

    pub(crate) fn os(message: impl Into<String>) -> Self {
        Self { status: rotproof_status::Os, message: message.into() }
    }
}

impl From<rotproof_block::Error> for CallError {
    fn from(error: rotproof_block::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function that C calls. A failure or a panic becomes its status and the thread's last error.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), CallError>) -> rotproof_status {
    // Whoever is told of a defect is told not to go on, so nobody sees what a panic left half done.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return rotproof_status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            CallError { status: rotproof_status::Internal, message: format!("a defect of Rotproof: {text}") }
        }
    };
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| last.replace(text));
    failure.status
}

/// Why the last function that failed on this thread did, in English, as UTF-8. Empty if none has. The text stays until
/// the next failure on this thread, and belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// Frees a text that another function gave. NULL is nothing to free.
///
/// # Safety
/// `text` is NULL, or was given by a function of this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it came from `CString::into_raw`, says the caller, and nobody uses it any more.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Version of this interface. It changes when a program that was compiled with the older header would misbehave.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_abi_version() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last_error() -> String {
        // SAFETY: the text ends with zero and stays until the next failure of this thread.
        unsafe { CStr::from_ptr(rotproof_last_error()) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn failures_and_panics_become_a_number_and_a_text_of_the_thread() {
        assert_eq!(last_error(), "");
        assert_eq!(guard(|| Err(CallError::invalid("wrong\0 here"))), rotproof_status::Invalid);
        assert_eq!(last_error(), "wrong  here");
        assert_eq!(guard(|| Ok(())), rotproof_status::Ok);
        assert_eq!(last_error(), "wrong  here", "success leaves it");
        assert_eq!(guard(|| panic!("on {}", "purpose")), rotproof_status::Internal);
        assert_eq!(last_error(), "a defect of Rotproof: on purpose");
        std::thread::spawn(|| assert_eq!(last_error(), "")).join().expect("another thread has its own");
    }
}
