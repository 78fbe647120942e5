//! Why a read or a write did not succeed.

use std::fmt;

use rotproof_block::Error;

/// See the head of the module.
#[derive(Debug)]
pub enum Trouble {
    /// The file system below said so.
    Os(i32),
    /// This block of the file cannot be trusted, and no right copy was found.
    Rotten(u64),
    /// The data of this block did not have the sum that the writer gave with them. Nothing was written.
    Boundary(u64),
    /// The guard itself failed.
    Guard(Error),
}

/// `Result` with [`Trouble`].
pub type Outcome<T> = Result<T, Trouble>;

impl Trouble {
    /// What programs are told.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Os(errno) => *errno,
            Self::Rotten(_) | Self::Boundary(_) | Self::Guard(_) => libc::EIO,
        }
    }

    /// Of the last system call.
    pub fn last_os() -> Self {
        std::io::Error::last_os_error().into()
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Os(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Guard(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
            Self::Rotten(block) => {
                write!(f, "block {block} does not have its checksum, and there is no right copy")
            }
            Self::Boundary(block) => {
                write!(f, "block {block} changed in memory before it was written; nothing was written")
            }
            Self::Guard(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Trouble {}
