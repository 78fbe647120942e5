//! One open FUSE device: requests come out of it, answers go back into the same one. Moves bytes, never looks at
//! what they mean.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Buffer, Error, ErrorKind, Result};

use super::parse::TRANSFER_BYTES_MAX;
use super::wire::{HEAD_BYTES, OutHeader, Plain};
use crate::system::{self, check};

const DEVICE: &str = "/dev/fuse";
/// `FUSE_DEV_IOC_CLONE`.
const CLONE: libc::Ioctl = libc::_IOR::<u32>(229, 0);

/// A descriptor of a FUSE connection. Several of one connection take requests from the same list, but each is
/// answered where it was taken.
#[derive(Clone)]
pub(super) struct Channel(Arc<OwnedFd>);

/// What came of a look for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// One of so many bytes.
    Request(usize),
    /// None is there (never from a channel that blocks), or it vanished while being taken.
    Nothing,
    /// There will never be one again: unmounted or aborted.
    End,
}

impl Channel {
    /// A channel that belongs to no connection yet; mounting with its descriptor makes one.
    pub(super) fn open() -> Result<Self> {
        system::open(Path::new(DEVICE), libc::O_RDWR).map(|fd| Self(Arc::new(fd))).map_err(|error| {
            let message = format!(
                "cannot open {DEVICE}: the kernel needs FUSE (CONFIG_FUSE_FS) and this user the right to open it; \
                 in a container, pass the device in"
            );
            Error::new(ErrorKind::Missing, message).caused_by(error)
        })
    }

    /// One that others use as well.
    pub(super) fn of(fd: Arc<OwnedFd>) -> Self {
        Self(fd)
    }

    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Self(Arc::new(fd))
    }

    /// One more channel of the same connection.
    pub(super) fn another(&self, blocking: bool) -> Result<Self> {
        let flags = libc::O_RDWR | if blocking { 0 } else { libc::O_NONBLOCK };
        let fd = system::open(Path::new(DEVICE), flags)?;
        let original = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: the call reads one number, which lives across it.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), CLONE, &raw const original) })
            .map_err(|error| Error::from_io(error, "cloning the FUSE device (Linux 4.2 or later)"))?;
        Ok(Self(Arc::new(fd)))
    }

    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.0
    }

    /// Takes a request: its first bytes into `head`, the rest into `payload`, which must have room for
    /// [`TRANSFER_BYTES_MAX`]. The payload of a write so lands where it stays.
    pub(super) fn receive(&self, head: &mut [u8; HEAD_BYTES], payload: &mut Buffer) -> io::Result<Received> {
        debug_assert!(payload.len() >= TRANSFER_BYTES_MAX);
        let parts = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
        ];
        // SAFETY: both parts are exclusive borrows that live across the call.
        let answer = unsafe { libc::readv(self.0.as_raw_fd(), parts.as_ptr(), 2) };
        if let Ok(bytes) = usize::try_from(answer) {
            // The kernel says zero for an end that it has no error for.
            return Ok(if bytes == 0 { Received::End } else { Received::Request(bytes) });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // ENOENT: its caller was killed while we took it.
            Some(libc::EAGAIN | libc::EINTR | libc::ENOENT) => Ok(Received::Nothing),
            Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Received::End),
            _ => Err(error),
        }
    }

    /// Answers request `unique` with minus an errno or zero, and data. An answer that nobody waits for any more is
    /// no error.
    pub(super) fn send(&self, unique: u64, error: i32, data: &[u8]) -> io::Result<()> {
        let len =
            u32::try_from(size_of::<OutHeader>() + data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let header = OutHeader { len, error, unique };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(data)];
        let count = if data.is_empty() { 1 } else { 2 };
        loop {
            // SAFETY: an `IoSlice` is an `iovec`; the slices live across the call.
            let answer = unsafe { libc::writev(self.0.as_raw_fd(), parts.as_ptr().cast(), count) };
            if answer >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // Interrupted, unmounted, aborted.
                Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN | libc::EPERM | libc::ECONNABORTED) => {
                    return Ok(());
                }
                _ => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_clone_call_is_the_kernels() {
        assert_eq!(CLONE, 0x8004_e500);
    }
}
