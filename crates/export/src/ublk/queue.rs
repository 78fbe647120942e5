//! One queue of a device, on a thread of its own: a command for each tag waits in the kernel for a request, and its
//! answer is the next command.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, ErrorKind, Operation, Result};

use super::wire::{
    Descriptor, TRANSFER_BYTES_MAX, data_at, descriptor_bytes, descriptors_at, operation, queue,
    queue_command,
};
use crate::byte_queue::ByteQueue;
use crate::errno::errno_of;

/// What a whole device is shut with: from then on no request of it reaches the stack.
pub(super) struct Gate {
    is_shut: AtomicBool,
    /// Readable for good once it is shut, which wakes every queue.
    wakes: Arc<OwnedFd>,
}

impl Gate {
    /// An open one. Fails as `eventfd` does.
    pub(super) fn new() -> Result<Self> {
        // SAFETY: takes numbers only, and what it gives belongs to nobody else.
        let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if number < 0 {
            return Err(std::io::Error::last_os_error())
                .doing(|| "making what ends a ublk device at once".to_owned());
        }
        // SAFETY: as above.
        let wakes = Arc::new(unsafe { OwnedFd::from_raw_fd(number) });
        Ok(Self { is_shut: AtomicBool::new(false), wakes })
    }

    /// Shuts it, from any thread, and waits for nobody.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
        let one = 1u64.to_ne_bytes();
        // SAFETY: an open descriptor, and eight bytes that live across the call; it blocks nobody.
        unsafe { libc::write(self.wakes.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::SeqCst)
    }
}

/// A queue that waits for requests.
pub(super) struct QueueServer(Rc<QueueState>);

struct QueueState {
    byte_queue: Rc<ByteQueue>,
    /// `/dev/ublkcN`.
    character: Arc<OwnedFd>,
    descriptors: Descriptors,
    queue: u16,
    gate: Arc<Gate>,
    /// By tag: which of its requests is owed an answer, if one is.
    owed: Box<[Cell<Option<u64>>]>,
    /// Requests so far.
    requests: Cell<u64>,
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
        (queue, depth): (u16, u16),
        gate: Arc<Gate>,
    ) -> Result<Self> {
        let descriptors = Descriptors::map(&character, queue, depth)?;
        Ok(Self(Rc::new(QueueState {
            byte_queue: Rc::new(byte_queue),
            character,
            descriptors,
            queue,
            gate,
            owed: (0..depth).map(|_| Cell::new(None)).collect(),
            requests: Cell::new(0),
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
        let (shut, this) = (state.byte_queue.runtime.readable(&state.gate.wakes), Rc::downgrade(state));
        state.byte_queue.runtime.spawn_detached(async move {
            // An error of it means that nothing wakes this queue any more; a shut gate is seen by its next request all the same.
            let _ = shut.await.0;
            if let Some(state) = this.upgrade() {
                state.give_up();
            }
        });
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

    /// Answers a request, unless it has been.
    fn answer(self: &Rc<Self>, tag: u16, request: u64, answer: i32) {
        if self.is_owed(tag, request) {
            self.owed[usize::from(tag)].set(None);
            let answer = if self.gate.is_shut() { -libc::EIO } else { answer };
            self.submit(tag, queue::COMMIT_AND_FETCH, answer);
        }
    }

    fn is_owed(&self, tag: u16, request: u64) -> bool {
        self.owed[usize::from(tag)].get() == Some(request)
    }

    /// The device has been shut: whoever waits has waited enough.
    fn give_up(self: &Rc<Self>) {
        for tag in 0..self.descriptors.depth {
            if self.owed[usize::from(tag)].take().is_some() {
                self.submit(tag, queue::COMMIT_AND_FETCH, -libc::EIO);
            }
        }
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
        let request = self.requests.get();
        self.requests.set(request + 1);
        self.owed[usize::from(tag)].set(Some(request));
        let answer = Answer { state: Rc::clone(self), tag, request };
        if self.gate.is_shut() {
            return answer.errno(libc::EIO);
        }
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
    request: u64,
}

impl Answer {
    /// What a read has brought.
    fn data(self, data: &[u8]) {
        // Otherwise the tag may be that of another request by now.
        if !self.state.is_owed(self.tag, self.request) {
            return;
        }
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

    fn give(self, answer: i32) {
        self.state.answer(self.tag, self.request, answer);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.state.answer(self.tag, self.request, -libc::EIO);
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
