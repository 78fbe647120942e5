//! A mount whose requests somebody else answers, such as a file system in a guest: the messages pass as they are.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::{Error, Result};

use super::mount::{Mount, MountOptions};
use crate::system::{check, event, signal};

/// A FUSE file system whose messages are handed on.
#[derive(Debug)]
pub struct ForwardedMount {
    mount: Mount,
    /// Gone once the connection is aborted, which its last descriptor does when it is closed.
    channel: Mutex<Option<Arc<OwnedFd>>>,
    /// Wakes whoever waits for a message.
    wake: OwnedFd,
}

impl ForwardedMount {
    /// Mounts on a directory. No read asks for more than `read_bytes_max` bytes, and no message is longer than what
    /// whoever answers agrees to in the first one.
    pub fn mount(point: &Path, read_bytes_max: usize) -> Result<Self> {
        let wake = event()?;
        let options = MountOptions { read_only: false, allow_other: false, read_bytes_max };
        let (mount, channel) = Mount::new(point, &options)?;
        let fd = Arc::clone(channel.fd());
        // SAFETY: takes numbers.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })
            .map_err(|error| Error::from_io(error, "the FUSE device"))?;
        Ok(Self { mount, channel: Mutex::new(Some(fd)), wake })
    }

    /// Waits for the next message, and gives its length in `buffer`, which must hold the longest; `None` once the mount
    /// is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(channel) = self.channel.lock().clone() else { return Ok(None) };
        loop {
            let wait = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let mut both = [wait(&channel), wait(&self.wake)];
            // SAFETY: two valid entries.
            if let Err(error) = check(unsafe { libc::poll(both.as_mut_ptr(), 2, -1) })
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            if both[1].revents != 0 {
                return Ok(None);
            }
            // SAFETY: an exclusive borrow that lives across the call.
            let read = unsafe { libc::read(channel.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
            if let Ok(read) = usize::try_from(read) {
                return Ok((read > 0).then_some(read));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // ENOENT: its caller was killed while we took it.
                Some(libc::EAGAIN | libc::EINTR | libc::ENOENT) => {}
                Some(libc::ENODEV | libc::ECONNABORTED) => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Passes on an answer, header and all. One that nobody waits for any more, or that makes no sense, is no error here:
    /// the kernel judges it.
    pub fn answer(&self, message: &[u8]) -> io::Result<()> {
        let Some(channel) = self.channel.lock().clone() else { return Ok(()) };
        loop {
            // SAFETY: a borrow that lives across the call.
            let written = unsafe { libc::write(channel.as_raw_fd(), message.as_ptr().cast(), message.len()) };
            if written >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(
                    libc::ENOENT
                    | libc::ENODEV
                    | libc::ENOTCONN
                    | libc::EPERM
                    | libc::ECONNABORTED
                    | libc::EINVAL,
                ) => return Ok(()),
                _ => return Err(error),
            }
        }
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    /// Unmounts; fails with `EBUSY` if a file is open for longer than `patience`.
    pub fn unmount(&self, patience: Duration) -> Result<()> {
        self.mount.unmount(patience)
    }

    /// Unmounts, whatever is open: the file system goes when its last file is closed.
    pub fn detach(&self) -> Result<()> {
        self.mount.detach()
    }

    /// Ends the connection whatever is open or under way: all requests, those to come too, fail. The dead mount stays where it
    /// is, so that nobody takes the folder below it for what was there.
    pub fn abort(&self) {
        drop(self.channel.lock().take());
        signal(&self.wake);
    }
}
