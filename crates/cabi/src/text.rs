//! Texts from C.

use std::ffi::{CStr, c_char};

use crate::status::CallError;

/// The text at `text`, which `what` calls in messages.
///
/// # Safety
/// `text` is NULL, or ends with zero and stays as it is for `'a`.
pub(crate) unsafe fn required<'a>(text: *const c_char, what: &str) -> Result<&'a str, CallError> {
    // SAFETY: as the caller promises.
    unsafe { optional(text, what) }?.ok_or_else(|| CallError::invalid(format!("{what} is NULL")))
}

/// As [`required`]; NULL is no text.
///
/// # Safety
/// As for [`required`].
pub(crate) unsafe fn optional<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, CallError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, and else as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| CallError::invalid(format!("{what} is not UTF-8")))
}
