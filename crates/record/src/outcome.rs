//! One request as its worker saw it end.

use rotproof_block::{ErrorKind, Time};

/// A request that has completed, for [`crate::Recorder::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Which operation, by its position among those of the recording.
    pub operation: u8,
    /// When it began, or was meant to.
    pub began: Time,
    /// When it completed, all attempts included.
    pub ended: Time,
    /// Bytes it was to move.
    pub bytes: u64,
    /// How often it was tried again.
    pub retries: u32,
    /// With what error; none if it did what it was to do.
    pub error: Option<ErrorKind>,
}

/// How tables call the end of a request: `ok`, or the kind of its error.
pub fn outcome_word(error: Option<ErrorKind>) -> &'static str {
    match error {
        None => "ok",
        Some(ErrorKind::Medium) => "medium",
        Some(ErrorKind::OutOfRange) => "out_of_range",
        Some(ErrorKind::Misaligned) => "misaligned",
        Some(ErrorKind::NoSpace) => "no_space",
        Some(ErrorKind::ReadOnly) => "read_only",
        Some(ErrorKind::Unsupported) => "unsupported",
        Some(ErrorKind::Gone) => "gone",
        Some(ErrorKind::TimedOut) => "timed_out",
        Some(ErrorKind::Cancelled) => "cancelled",
        Some(ErrorKind::Missing) => "missing",
        Some(ErrorKind::Os(_)) => "errno",
        Some(_) => "internal",
    }
}
