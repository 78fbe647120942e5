//! One error for the whole path: kind, context, source. Mapped to an errno only where a request leaves Rotproof.

use std::error::Error as StdError;
use std::fmt;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for code that must decide. The text for people is in [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The medium could not read or write the blocks (EIO).
    Medium,
    /// Beyond the end of the device (EINVAL).
    OutOfRange,
    /// Offset or length is no multiple of the block size (EINVAL).
    Misaligned,
    /// No space left below (ENOSPC).
    NoSpace,
    /// A mutation of something read-only (EROFS).
    ReadOnly,
    /// The operation does not exist here (EOPNOTSUPP).
    Unsupported,
    /// The device is gone (ENODEV).
    Gone,
    /// Took too long (ETIMEDOUT).
    TimedOut,
    /// Given up on purpose (ECANCELED).
    Cancelled,
    /// The caller or the user asked for something senseless.
    Invalid,
    /// Something needed is not on this machine: a program, a file, a right, a kernel feature.
    Missing,
    /// Would destroy something that was not named; says what permits it.
    Refused,
    /// The simulated runtime has nothing left to do but somebody still waits: a completion was lost.
    Stalled,
    /// Any other error of the operating system.
    Os(i32),
    /// A defect of Rotproof.
    Internal,
}

impl ErrorKind {
    /// All but those of the operating system that have no name here.
    pub const PLAIN: [ErrorKind; 14] = [
        Self::Medium,
        Self::OutOfRange,
        Self::Misaligned,
        Self::NoSpace,
        Self::ReadOnly,
        Self::Unsupported,
        Self::Gone,
        Self::TimedOut,
        Self::Cancelled,
        Self::Invalid,
        Self::Missing,
        Self::Refused,
        Self::Stalled,
        Self::Internal,
    ];

    /// Its name in JSON and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Medium => "medium",
            Self::OutOfRange => "out_of_range",
            Self::Misaligned => "misaligned",
            Self::NoSpace => "no_space",
            Self::ReadOnly => "read_only",
            Self::Unsupported => "unsupported",
            Self::Gone => "gone",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Invalid => "invalid",
            Self::Missing => "missing",
            Self::Refused => "refused",
            Self::Stalled => "stalled",
            Self::Os(_) => "os",
            Self::Internal => "internal",
        }
    }
}

/// An error with its kind, what was being done, and what caused it. One pointer wide, as it travels in every
/// completion.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `context` says what was being done or is wrong, and what to do about it.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, context: context.into(), source: None }))
    }

    /// An unreadable or unwritable block.
    pub fn medium() -> Self {
        Self::new(ErrorKind::Medium, "input/output error")
    }

    /// From an errno of the kernel, a positive number.
    pub fn from_errno(errno: i32, context: impl Into<String>) -> Self {
        let kind = match errno {
            libc::EIO => ErrorKind::Medium,
            libc::ENOSPC | libc::EDQUOT => ErrorKind::NoSpace,
            libc::EROFS => ErrorKind::ReadOnly,
            libc::EOPNOTSUPP => ErrorKind::Unsupported,
            libc::ENODEV | libc::ENXIO => ErrorKind::Gone,
            libc::ETIMEDOUT => ErrorKind::TimedOut,
            libc::ECANCELED => ErrorKind::Cancelled,
            libc::ENOENT | libc::EACCES | libc::EPERM => ErrorKind::Missing,
            other => ErrorKind::Os(other),
        };
        let cause = std::io::Error::from_raw_os_error(errno);
        match advice(errno) {
            None => Self::new(kind, context).caused_by(cause),
            Some(advice) => Self::new(kind, context).caused_by(format!("{cause}; {advice}")),
        }
    }

    /// From a failed system call, or from a library over one of our devices, whose error went through it.
    pub fn from_io(error: std::io::Error, context: impl Into<String>) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::from_errno(errno, context),
            None => match error.downcast::<Self>() {
                Ok(ours) => ours.while_doing(context.into()),
                Err(error) => {
                    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
                    // Of a decoder: what it was given is damaged or cut off.
                    let is_of_data = matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof);
                    let kind = if is_of_data { ErrorKind::Invalid } else { ErrorKind::Internal };
                    Self::new(kind, context).caused_by(error)
                }
            },
        }
    }

    /// Attaches the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Puts what was being done in front: "mounting /x: no such device".
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.0.context = format!("{what}: {}", self.0.context);
        self
    }

    /// What went wrong, for code.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text without the causes.
    pub fn context(&self) -> &str {
        &self.0.context
    }
}

/// What to do where a limit of the process or the machine has been met: the words of the system do not say that there is one.
fn advice(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EMFILE => "this process may have no more open; raise its limit (`ulimit -n`)",
        libc::ENFILE => "the machine has no more; raise its limit (sysctl fs.file-max)",
        libc::ENOMEM => "end something else, or raise the limits of this process (`ulimit -v`, `ulimit -l`)",
        libc::EFBIG => {
            "raise the limit of this process (`ulimit -f`), if the file system is not what has no larger ones"
        }
        _ => return None,
    })
}

impl fmt::Display for Error {
    /// The text and all its causes, separated by colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|error| error as &(dyn StdError + 'static))
    }
}

/// Adds context to the result of a system call.
pub trait IoContext<T> {
    /// Turns an [`std::io::Error`] into an [`Error`] that says what was being done.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::from_io(error, what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_tells_its_causes() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
        let error = Error::from_errno(libc::ENOSPC, "writing disk.img").while_doing("leaf 0");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(error.to_string(), "leaf 0: writing disk.img: No space left on device (os error 28)");
    }

    #[test]
    fn where_a_limit_is_met_it_says_which() {
        for (errno, option) in
            [(libc::EMFILE, "ulimit -n"), (libc::ENOMEM, "ulimit -v"), (libc::EFBIG, "ulimit -f")]
        {
            let text = Error::from_errno(errno, "opening x").to_string();
            assert!(text.starts_with("opening x: ") && text.contains(option), "{text}");
        }
    }
}
