//! The io_uring driver: slots for requests in the kernel, one system call to submit a batch and to wait.
//!
//! Where reads and writes are polled they have a ring of their own, since such a ring takes nothing else. While it has
//! something in flight, no turn sleeps.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::RuntimeOptions;
use super::file_io::FileOperation;
use super::fixed_buffers::FixedBuffers;
use crate::error::IoContext;
use crate::{Buffer, Error, ErrorKind, Result, system_calls};

/// Completions that belong to no slot.
const WAKE_TOKEN: u64 = u64::MAX;
const CANCEL_TOKEN: u64 = u64::MAX - 1;

/// What the kernel may still touch, and who waits for it.
struct InKernel {
    operation: FileOperation,
    buffer: Buffer,
    _file: Arc<OwnedFd>,
}

enum Slot {
    Free,
    Waiting(InKernel, Option<Waker>),
    Done(InKernel, i32),
    /// Nobody waits any more; freed by its completion.
    Abandoned(InKernel),
}

pub(super) struct Uring {
    ring: IoUring,
    polled: Option<IoUring>,
    fixed: Option<FixedBuffers>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    in_flight: usize,
    /// Those of them in the ring that is polled.
    polled_in_flight: usize,
    /// Whether a poll of the eventfd is in the ring.
    wake_armed: bool,
    /// Wakers of what completed in the last turn; the runtime calls them when the ring is not borrowed.
    pub(super) woken: Vec<Waker>,
}

impl Uring {
    pub(super) fn new(options: &RuntimeOptions) -> Result<Self> {
        let entries = options.ring_entries;
        // Completions are then processed in our own calls only, which saves interrupts between the threads; the flag
        // tells without a call that there are some to process.
        let modern = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(entries);
        let ring = modern.or_else(|_| IoUring::new(entries)).map_err(|error| {
            // It has one, but no room for another.
            if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) {
                return Error::from_io(error, "making an io_uring");
            }
            Error::new(
                ErrorKind::Missing,
                "this machine offers no io_uring; allow it (sysctl kernel.io_uring_disabled=0, or the \
                 container's seccomp profile) or use `runtime: simulated`",
            )
            .caused_by(error)
        })?;
        let polled = options.polled.then(|| IoUring::builder().setup_iopoll().build(entries)).transpose();
        let polled = polled.doing(|| "making a ring for I/O that is polled".to_owned())?;
        let transfers = polled.as_ref().unwrap_or(&ring);
        Ok(Self {
            fixed: options.fixed_buffers.map(|fixed| FixedBuffers::new(transfers, fixed)).transpose()?,
            ring,
            polled,
            polled_in_flight: 0,
            slots: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            wake_armed: false,
            woken: Vec::new(),
        })
    }

    /// Requests that the kernel has and somebody started.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Queues an operation; it reaches the kernel with the next turn at the latest.
    pub(super) fn push(
        &mut self,
        file: &Arc<OwnedFd>,
        operation: FileOperation,
        mut buffer: Buffer,
    ) -> Result<usize, (Error, Buffer)> {
        let Ok(length) = u32::try_from(buffer.len()) else {
            let message = "a request of 4 GiB or more is too large for io_uring";
            return Err((Error::new(ErrorKind::OutOfRange, message), buffer));
        };
        let place = match (&mut self.fixed, operation) {
            (Some(fixed), FileOperation::Read { .. } | FileOperation::Write { .. }) => {
                match fixed.place_of(self.polled.as_ref().unwrap_or(&self.ring), &buffer) {
                    Ok(place) => place,
                    Err(error) => return Err((error, buffer)),
                }
            }
            _ => None,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        let fd = Fd(file.as_raw_fd());
        let flags = |durable| if durable { libc::RWF_DSYNC } else { 0 };
        let entry = match (operation, place) {
            (FileOperation::Read { offset }, None) => {
                opcode::Read::new(fd, buffer.as_mut_ptr(), length).offset(offset).build()
            }
            (FileOperation::Read { offset }, Some(place)) => {
                opcode::ReadFixed::new(fd, buffer.as_mut_ptr(), length, place).offset(offset).build()
            }
            (FileOperation::Write { offset, durable }, None) => {
                opcode::Write::new(fd, buffer.as_ptr(), length)
                    .offset(offset)
                    .rw_flags(flags(durable))
                    .build()
            }
            (FileOperation::Write { offset, durable }, Some(place)) => {
                opcode::WriteFixed::new(fd, buffer.as_ptr(), length, place)
                    .offset(offset)
                    .rw_flags(flags(durable))
                    .build()
            }
            (FileOperation::SyncData, _) => {
                opcode::Fsync::new(fd).flags(io_uring::types::FsyncFlags::DATASYNC).build()
            }
            (FileOperation::Allocate { mode, offset, length }, _) => {
                opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
            }
            (FileOperation::PollReadable, _) => opcode::PollAdd::new(fd, libc::POLLIN as u32).build(),
            (FileOperation::Command { command, argument }, _) => {
                opcode::UringCmd16::new(fd, command).cmd(argument).build()
            }
        };
        let held = InKernel { operation, buffer, _file: Arc::clone(file) };
        // SAFETY: the slot keeps the buffer and the file alive until the completion has been reaped.
        if let Err(error) = unsafe { self.queue(&entry.user_data(slot as u64), self.is_polled(operation)) } {
            self.free.push(slot);
            return Err((error, held.buffer));
        }
        self.slots[slot] = Slot::Waiting(held, None);
        self.in_flight += 1;
        self.polled_in_flight += usize::from(self.is_polled(operation));
        Ok(slot)
    }

    /// Whether the operation goes to the ring that is polled.
    fn is_polled(&self, operation: FileOperation) -> bool {
        is_transfer(operation) && self.polled.is_some()
    }

    /// Puts an entry into the submission queue of the ring, or of the one that is polled, making room if it is full.
    ///
    /// # Safety
    /// All memory the entry names must live until its completion is reaped.
    unsafe fn queue(&mut self, entry: &squeue::Entry, is_polled: bool) -> Result<()> {
        loop {
            let ring = if is_polled { self.polled.as_mut().expect("only then") } else { &mut self.ring };
            // SAFETY: handed on to our caller.
            if unsafe { ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            system_calls::count_one();
            match ring.submit() {
                Ok(_) => {}
                Err(error) if would_pass(&error) => self.reap(),
                Err(error) => return Err(Error::from_io(error, "submitting to io_uring")),
            }
        }
    }

    pub(super) fn poll(&mut self, slot: usize, context: &Context<'_>) -> Poll<(Result<usize>, Buffer)> {
        match &mut self.slots[slot] {
            Slot::Waiting(_, waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            done @ Slot::Done(..) => {
                let Slot::Done(held, answer) = mem::replace(done, Slot::Free) else {
                    unreachable!("just matched")
                };
                self.free.push(slot);
                Poll::Ready((held.operation.result(i64::from(answer)), held.buffer))
            }
            Slot::Free | Slot::Abandoned(_) => unreachable!("the owner of the slot is polling it"),
        }
    }

    /// The owner of the slot is gone. Returns what may be dropped now, outside the ring's borrow.
    pub(super) fn abandon(&mut self, slot: usize) -> impl Sized + use<> {
        match mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::Waiting(held, waker) => {
                if matches!(held.operation, FileOperation::PollReadable) {
                    // Would otherwise stay until there is input, perhaps for ever.
                    let cancel = opcode::AsyncCancel::new(slot as u64).build().user_data(CANCEL_TOKEN);
                    // SAFETY: the entry names no memory. If it cannot be queued, the drop of the ring cancels.
                    let _ = unsafe { self.queue(&cancel, false) };
                }
                self.slots[slot] = Slot::Abandoned(held);
                (None, waker)
            }
            Slot::Done(held, _) => {
                self.free.push(slot);
                (Some(held), None)
            }
            Slot::Free | Slot::Abandoned(_) => unreachable!("a slot has one owner"),
        }
    }

    /// Submits what is queued and reaps what has completed; waits for a completion if `wait`, but at the most for
    /// `timeout`, and not while anything is polled.
    pub(super) fn turn(&mut self, wait: bool, timeout: Option<Duration>, wake_fd: i32) -> Result<()> {
        let wait = wait && self.polled_in_flight == 0;
        if let Some(polled) = self.polled.as_ref().filter(|_| self.polled_in_flight > 0) {
            system_calls::count_one();
            // Also asks the device once, if there is nothing to submit.
            match polled.submit() {
                Ok(_) => {}
                Err(error) if would_pass(&error) => {}
                Err(error) => return Err(Error::from_io(error, "polling a device by io_uring")),
            }
        }
        if wait && !self.wake_armed {
            let entry = opcode::PollAdd::new(Fd(wake_fd), libc::POLLIN as u32).build().user_data(WAKE_TOKEN);
            // SAFETY: the entry names no memory; the eventfd outlives the ring, both belong to the runtime.
            unsafe { self.queue(&entry, false) }?;
            self.wake_armed = true;
        }
        let idle = {
            let submission = self.ring.submission();
            submission.is_empty() && !submission.taskrun() && !submission.cq_overflow()
        };
        let submitter = self.ring.submitter();
        if wait || !idle {
            system_calls::count_one();
        }
        let result = match (wait, timeout) {
            (false, _) if idle => Ok(0),
            (false, _) => submitter.submit_and_wait(0),
            (true, None) => submitter.submit_and_wait(1),
            (true, Some(timeout)) => {
                let limit = Timespec::from(timeout);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        match result {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) || would_pass(&error) => {}
            Err(error) => return Err(Error::from_io(error, "waiting for io_uring")),
        }
        self.reap();
        if wait && !self.wake_armed {
            let mut count = 0u64;
            system_calls::count_one();
            // SAFETY: an eventfd gives eight bytes, and that is what `count` has. It does not block.
            unsafe { libc::read(wake_fd, (&raw mut count).cast(), 8) };
        }
        Ok(())
    }

    fn reap(&mut self) {
        let has_polled = self.polled.is_some();
        let polled = self.polled.as_mut().map(IoUring::completion).into_iter().flatten();
        for entry in self.ring.completion().chain(polled) {
            let slot = match entry.user_data() {
                WAKE_TOKEN => {
                    self.wake_armed = false;
                    continue;
                }
                CANCEL_TOKEN => continue,
                slot => usize::try_from(slot).expect("we made it from a usize"),
            };
            self.in_flight -= 1;
            self.slots[slot] = match mem::replace(&mut self.slots[slot], Slot::Free) {
                Slot::Waiting(held, waker) => {
                    self.polled_in_flight -= usize::from(has_polled && is_transfer(held.operation));
                    self.woken.extend(waker);
                    Slot::Done(held, entry.result())
                }
                Slot::Abandoned(held) => {
                    self.polled_in_flight -= usize::from(has_polled && is_transfer(held.operation));
                    self.free.push(slot);
                    Slot::Free
                }
                Slot::Free | Slot::Done(..) => unreachable!("the kernel completes a request once"),
            };
        }
    }
}

/// Whether an operation can be polled. What is to be durable needs more than a transfer.
fn is_transfer(operation: FileOperation) -> bool {
    matches!(operation, FileOperation::Read { .. } | FileOperation::Write { durable: false, .. })
}

/// Errors of `io_uring_enter` after which the same call can go on.
fn would_pass(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// How long the end of a ring waits for requests that nothing can cancel, as those of a device that hangs.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long each of the steps of that may take.
const DRAIN_STEP: Duration = Duration::from_millis(100);

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel writes into our buffers until the last request has completed, so this must wait for it.
        let began = Instant::now();
        while self.in_flight > 0 {
            let polled = self.polled.as_ref().map_or(Ok(0), IoUring::submit);
            let submitted = self.ring.submit().and(polled);
            let step = Timespec::from(DRAIN_STEP);
            let _ = self.ring.submitter().register_sync_cancel(Some(step), CancelBuilder::any());
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&step));
            self.reap();
            let hopeless = |result: &std::io::Result<usize>| {
                result
                    .as_ref()
                    .is_err_and(|error| !would_pass(error) && error.raw_os_error() != Some(libc::ETIME))
            };
            if hopeless(&submitted) || hopeless(&waited) || began.elapsed() >= DRAIN_MAX {
                // Leaking is the only safe way left.
                mem::forget(mem::take(&mut self.slots));
                return;
            }
        }
    }
}
