//! One file operation, run by the ring, or at once by the simulated runtime (where it takes no virtual time).

use std::future::Future;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Runtime;
use crate::{Buffer, Error, Result};

#[derive(Clone, Copy, Debug)]
pub(super) enum FileOperation {
    Read { offset: u64 },
    Write { offset: u64, durable: bool },
    SyncData,
    Allocate { mode: i32, offset: u64, length: u64 },
    PollReadable,
    Command { command: u32, argument: [u8; 16] },
}

impl FileOperation {
    /// What the user is told was being done when it failed.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Read { offset } => format!("reading the file at {offset}"),
            Self::Write { offset, .. } => format!("writing the file at {offset}"),
            Self::SyncData => "making the file's data durable".into(),
            Self::Allocate { offset, length, .. } => {
                format!("allocating {length} bytes of the file at {offset}")
            }
            Self::PollReadable => "waiting for input".into(),
            Self::Command { command, .. } => format!("giving the driver the command {command:#x}"),
        }
    }

    /// Turns the kernel's answer (bytes, or minus an errno) into a result.
    pub(super) fn result(self, answer: i64) -> Result<usize> {
        usize::try_from(answer)
            .map_err(|_| Error::from_errno(i32::try_from(-answer).unwrap_or(libc::EIO), self.describe()))
    }

    /// Runs the operation by a blocking system call.
    pub(super) fn run_now(self, fd: RawFd, buffer: &mut Buffer) -> Result<usize> {
        let (start, len) = (buffer.as_mut_ptr(), buffer.len());
        let answer = loop {
            // SAFETY: the pointers and lengths are those of `buffer`, which lives across the calls; offsets are
            // plain numbers that the kernel checks.
            let answer = unsafe {
                match self {
                    Self::Read { offset } => libc::pread(fd, start.cast(), len, offset.cast_signed()) as i64,
                    Self::Write { offset, durable } => {
                        let vector = libc::iovec { iov_base: start.cast(), iov_len: len };
                        let flags = if durable { libc::RWF_DSYNC } else { 0 };
                        libc::pwritev2(fd, &raw const vector, 1, offset.cast_signed(), flags) as i64
                    }
                    Self::SyncData => i64::from(libc::fdatasync(fd)),
                    Self::Allocate { mode, offset, length } => {
                        i64::from(libc::fallocate(fd, mode, offset.cast_signed(), length.cast_signed()))
                    }
                    Self::PollReadable => {
                        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                        i64::from(libc::poll(&raw mut poll, 1, -1))
                    }
                    // There is no system call for it.
                    Self::Command { .. } => return self.result(-i64::from(libc::EOPNOTSUPP)),
                }
            };
            if answer >= 0 {
                break answer;
            }
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            if errno != libc::EINTR {
                break -i64::from(errno);
            }
        };
        self.result(answer)
    }
}

/// A file operation under way: completes with the bytes transferred and the buffer. If it is dropped earlier, the
/// buffer lives on until the kernel is done with it.
pub struct FileIo(State);

enum State {
    Done(Option<(Result<usize>, Buffer)>),
    InKernel { runtime: Runtime, slot: usize },
}

impl FileIo {
    pub(super) fn done(result: Result<usize>, buffer: Buffer) -> Self {
        Self(State::Done(Some((result, buffer))))
    }

    pub(super) fn in_kernel(runtime: Runtime, slot: usize) -> Self {
        Self(State::InKernel { runtime, slot })
    }
}

impl Future for FileIo {
    type Output = (Result<usize>, Buffer);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let output = match &mut self.0 {
            State::Done(output) => {
                output.take().expect("a file operation is not awaited after it has completed")
            }
            State::InKernel { runtime, slot } => {
                let slot = *slot;
                match runtime.with_ring(|ring| ring.poll(slot, context)) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(output) => output,
                }
            }
        };
        self.0 = State::Done(None);
        Poll::Ready(output)
    }
}

impl Drop for FileIo {
    fn drop(&mut self) {
        if let State::InKernel { runtime, slot } = &self.0 {
            let slot = *slot;
            // What the slot held is dropped outside the borrow of the ring.
            drop(runtime.with_ring(|ring| ring.abandon(slot)));
        }
    }
}
