//! The errors that a block device gives, by the names of the kernel.

use std::fmt;
use std::str::FromStr;

use rotproof_block::{Error, ErrorKind};
use rotproof_spec::nearest;

/// An error number that a block device of Linux can end a request with (`blk_errors` in `block/blk-core.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Name, number, and what it says.
const KNOWN: [(&str, i32, &str); 14] = [
    ("EIO", libc::EIO, "input/output error"),
    ("ENODATA", libc::ENODATA, "critical medium error"),
    ("EREMOTEIO", libc::EREMOTEIO, "critical target error"),
    ("EILSEQ", libc::EILSEQ, "protection error"),
    ("ENOSPC", libc::ENOSPC, "no space left on device"),
    ("EROFS", libc::EROFS, "read-only"),
    ("ENODEV", libc::ENODEV, "device is gone"),
    ("ENOLINK", libc::ENOLINK, "transport error"),
    ("EBADE", libc::EBADE, "reservation conflict"),
    ("ETIMEDOUT", libc::ETIMEDOUT, "timed out"),
    ("EAGAIN", libc::EAGAIN, "would block"),
    ("ENOMEM", libc::ENOMEM, "no memory"),
    ("EOPNOTSUPP", libc::EOPNOTSUPP, "not supported"),
    ("EBUSY", libc::EBUSY, "device is busy"),
];

impl Errno {
    /// The usual one.
    pub const EIO: Self = Self(libc::EIO);
    /// No space left.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// Read-only.
    pub const EROFS: Self = Self(libc::EROFS);
    /// The device is gone.
    pub const ENODEV: Self = Self(libc::ENODEV);
    /// The names of all of them.
    pub const NAMES: [&'static str; KNOWN.len()] = {
        let mut names = [""; KNOWN.len()];
        let mut index = 0;
        while index < KNOWN.len() {
            names[index] = KNOWN[index].0;
            index += 1;
        }
        names
    };

    /// Its number on Linux.
    pub fn number(self) -> i32 {
        self.0
    }

    /// The one with this number on Linux, if a block device can end a request with it.
    pub fn from_number(number: i32) -> Option<Self> {
        KNOWN.iter().any(|(_, known, _)| *known == number).then_some(Self(number))
    }

    /// The error that a request ends with. Nothing in it says that it was injected.
    pub fn error(self) -> Error {
        if self == Self::EIO {
            return Error::medium();
        }
        let text = KNOWN.iter().find(|(_, number, _)| *number == self.0).map_or("", |(_, _, text)| text);
        let error = Error::from_errno(self.0, text);
        // What would read as something that the user should mend on this machine is the device's word here.
        if error.kind() == ErrorKind::Missing { Error::new(ErrorKind::Os(self.0), text) } else { error }
    }
}

impl FromStr for Errno {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = KNOWN.iter().find(|(name, _, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, number, _)| Self(*number)).ok_or_else(|| {
            let upper = text.to_uppercase();
            match nearest(&upper, Self::NAMES) {
                Some(meant) => format!("`{text}` is no error of a block device; did you mean `{meant}`?"),
                None => {
                    format!("`{text}` is no error of a block device; known are {}", Self::NAMES.join(", "))
                }
            }
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KNOWN.iter().find(|(_, number, _)| *number == self.0).map_or("EIO", |(name, _, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_a_wrong_one_is_explained() {
        for name in Errno::NAMES {
            assert_eq!(name.parse::<Errno>().expect(name).to_string(), name);
            assert!(!name.parse::<Errno>().expect(name).error().to_string().is_empty());
        }
        assert_eq!("eio".parse(), Ok(Errno::EIO));
        assert!("ENOSPCE".parse::<Errno>().expect_err("none").contains("did you mean `ENOSPC`"));
        assert_eq!(Errno::ENOSPC.error().kind(), ErrorKind::NoSpace);
        assert_eq!(Errno::EIO.error().kind(), ErrorKind::Medium);
    }
}
