//! One queue of a device, on a thread of its own: a command for each tag waits in the kernel for a request, and its
//! answer is the next command.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, ErrorKind, Operation, Result};

use super::wire::{
    Descriptor, TRANSFER_BYTES_MAX, data_at, descriptor_bytes, descriptors_at, operation, queue,
    queue_command,
};
use crate::byte_queue::ByteQueue;
use crate::errno::errno_of;

/// A queue that waits for requests.
pub(super) struct QueueServer(Rc<QueueState>);

struct QueueState {
    byte_queue: Rc<ByteQueue>,
    /// `/dev/ublkcN`.
    character: Arc<OwnedFd>,
    descriptors: Descriptors,
    queue: u16,
    /// Tags whose command has not come back for good.
    tags_left: Cell<usize>,
    /// Set when no answers are given any more.
    over: Cell<bool>,
    failure: RefCell<Option<Error>>,
    waiting: RefCell<Option<Waker>>,
}

impl QueueServer {
    /// Fails as the mapping does.
    pub(super) fn open(
        byte_queue: ByteQueue,
        character: Arc<OwnedFd>,
        queue: u16,
        depth: u16,
    ) -> Result<Self> {
        let descriptors = Descriptors::map(&character, queue, depth)?;
        Ok(Self(Rc::new(QueueState {
            byte_queue: Rc::new(byte_queue),
            character,
            descriptors,
            queue,
            tags_left: Cell::new(depth.into()),
            over: Cell::new(false),
            failure: RefCell::default(),
            waiting: RefCell::default(),
        })))
    }

    /// Serves until the device is stopped. An error is the first command's that failed for another reason.
    pub(super) fn run(&self) -> Result<()> {
        let state = &self.0;
        for tag in 0..state.descriptors.depth {
            state.submit(tag, queue::FETCH, 0);
        }
        state.byte_queue.runtime.block_on(poll_fn(|task| {
            if state.tags_left.get() == 0 {
                return Poll::Ready(());
            }
            *state.waiting.borrow_mut() = Some(task.waker().clone());
            Poll::Pending
        }))?;
        state.failure.borrow_mut().take().map_or(Ok(()), Err)
    }
}

impl Drop for QueueServer {
    fn drop(&mut self) {
        self.0.over.set(true);
        // Tasks hold the runtime and the runtime holds them.
        self.0.byte_queue.runtime.abandon_tasks();
    }
}

impl QueueState {
    /// Gives a command for a tag to the kernel; when it comes back there is a request to serve.
    fn submit(self: &Rc<Self>, tag: u16, command: u32, answer: i32) {
        if self.over.get() {
            return;
        }
        let bytes = queue_command(self.queue, tag, answer);
        // SAFETY: the command names no memory: data is copied by `pread` and `pwrite`.
        let io = unsafe { self.byte_queue.runtime.command(&self.character, command, bytes) };
        let this = Rc::clone(self);
        self.byte_queue.runtime.spawn_detached(async move {
            match io.await.0 {
                Ok(_) => this.serve(tag),
                Err(error) => this.end(error),
            }
        });
    }

    /// A command has come back for good.
    fn end(&self, error: Error) {
        if error.kind() != ErrorKind::Gone && error.kind() != ErrorKind::Os(libc::ENODEV) {
            self.failure.borrow_mut().get_or_insert(error);
        }
        self.tags_left.set(self.tags_left.get() - 1);
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    fn serve(self: &Rc<Self>, tag: u16) {
        let descriptor = self.descriptors.get(tag);
        let (offset, length) = descriptor.range();
        let answer = Answer { state: Rc::clone(self), tag, given: false };
        let operation = descriptor.operation();
        if operation == operation::FLUSH {
            return self.byte_queue.flush(|result| answer.result(result, 0));
        }
        // The driver keeps to the size it was told; were it not so, nothing would be served.
        if length == 0 || self.byte_queue.clip(offset, length) < length {
            return answer.errno(libc::EINVAL);
        }
        if operation != operation::READ && self.byte_queue.info.read_only {
            return answer.errno(libc::EROFS);
        }
        let durable = descriptor.is_durable();
        match operation {
            operation::READ | operation::WRITE if length > u64::from(TRANSFER_BYTES_MAX) => {
                answer.errno(libc::EINVAL);
            }
            operation::READ => {
                self.byte_queue.read(offset, length as usize, |result| match result {
                    Ok(data) => answer.data(&data),
                    Err(error) => answer.errno(errno_of(&error)),
                });
            }
            operation::WRITE => {
                let mut payload = Buffer::stale(length as usize);
                match copy_from(&self.character, data_at(self.queue, tag), &mut payload) {
                    Ok(()) => {
                        self.byte_queue.write(offset, payload, durable, move |result| {
                            answer.result(result, length as i32);
                        });
                    }
                    Err(errno) => answer.errno(errno),
                }
            }
            operation::DISCARD => {
                self.byte_queue
                    .clear(Operation::Discard, offset, length, durable, |result| answer.result(result, 0));
            }
            operation::WRITE_ZEROES => {
                self.byte_queue.clear(Operation::WriteZeroes, offset, length, durable, |result| {
                    answer.result(result, 0);
                });
            }
            _ => answer.errno(libc::EOPNOTSUPP),
        }
    }
}

/// Owes the kernel an answer to one request. Dropped without one it answers `EIO`.
struct Answer {
    state: Rc<QueueState>,
    tag: u16,
    given: bool,
}

impl Answer {
    /// What a read has brought.
    fn data(self, data: &[u8]) {
        match copy_to(&self.state.character, data_at(self.state.queue, self.tag), data) {
            // A length is at most that of a transfer.
            Ok(()) => self.give(data.len() as i32),
            Err(errno) => self.errno(errno),
        }
    }

    /// `bytes` on success, or how the device failed.
    fn result(self, result: Result<()>, bytes: i32) {
        match result {
            Ok(()) => self.give(bytes),
            Err(error) => self.errno(errno_of(&error)),
        }
    }

    /// An errno, a positive number.
    fn errno(self, errno: i32) {
        // To the driver `ENODEV` means that this server serves no more.
        self.give(if errno == libc::ENODEV { -libc::EIO } else { -errno });
    }

    fn give(mut self, answer: i32) {
        self.given = true;
        self.state.submit(self.tag, queue::COMMIT_AND_FETCH, answer);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.given {
            self.given = true;
            self.state.submit(self.tag, queue::COMMIT_AND_FETCH, -libc::EIO);
        }
    }
}

/// Fills `bytes` with the data of a write.
fn copy_from(character: &OwnedFd, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: the bytes live across the call, which writes at most their number.
        let copied = unsafe {
            libc::pread(
                character.as_raw_fd(),
                rest.as_mut_ptr().cast(),
                rest.len(),
                (at + done as u64).cast_signed(),
            )
        };
        done += progress(copied)?;
    }
    Ok(())
}

/// Brings the data of a read.
fn copy_to(character: &OwnedFd, at: u64, bytes: &[u8]) -> Result<(), i32> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        // SAFETY: the bytes live across the call, which reads at most their number.
        let copied = unsafe {
            libc::pwrite(
                character.as_raw_fd(),
                rest.as_ptr().cast(),
                rest.len(),
                (at + done as u64).cast_signed(),
            )
        };
        done += progress(copied)?;
    }
    Ok(())
}

fn progress(copied: isize) -> Result<usize, i32> {
    match usize::try_from(copied) {
        Ok(0) => Err(libc::EIO),
        Ok(copied) => Ok(copied),
        Err(_) => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Ok(0),
            errno => Err(errno.unwrap_or(libc::EIO)),
        },
    }
}

/// The descriptors of a queue, in memory that the driver writes.
struct Descriptors {
    first: *const Descriptor,
    depth: u16,
}

impl Descriptors {
    fn map(character: &OwnedFd, queue: u16, depth: u16) -> Result<Self> {
        // SAFETY: a new mapping, of the place that the driver has for it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                descriptor_bytes(depth),
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                character.as_raw_fd(),
                descriptors_at(queue).cast_signed(),
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error())
                .doing(|| format!("mapping the descriptors of ublk queue {queue}"));
        }
        Ok(Self { first: start.cast(), depth })
    }

    /// What is asked under a tag, which the driver does not touch until it is answered.
    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth);
        // SAFETY: within the mapping, aligned; any bytes are a descriptor.
        unsafe { self.first.add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, to which no reference is left.
        unsafe { libc::munmap(self.first.cast_mut().cast(), descriptor_bytes(self.depth)) };
    }
}
