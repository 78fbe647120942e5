//! A ring's thread: takes requests, has the [`ByteQueue`] serve them, answers.
//!
//! While nothing is under way the thread looks for the next request for a moment and then sleeps in its kick. While
//! requests are under way in the device (its leaf is slow, a fault delays) the thread belongs to its runtime.

use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_block::runtime::{FileIo, RuntimeOptions};
use rotproof_block::{Buffer, Error, ErrorKind, Operation, Result, Runtime};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP};

use super::completions::{Answer, Completions};
use super::connection::Shared;
use super::request::{ID_BYTES, ParsedRequest, Segment, VhostRequest};
use super::ring::{Broken, Ring};
use crate::byte_queue::ByteQueue;
use crate::patience::Patience;
use crate::system::{event, signal};

/// A driver may have this much under way, besides as many requests as the ring has entries.
const OWED_BYTES_MAX: u64 = 128 << 20;
/// The driver is told after so many answers, even if there is more to do.
const ANSWERS_UNTOLD_MAX: u64 = 32;
/// How often a thread that only waits for the device looks whether it still should.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// What a thread serves.
pub(super) struct QueueSetup {
    pub(super) shared: Arc<Shared>,
    /// Number of the export.
    pub(super) export: usize,
    /// Number of the ring.
    pub(super) number: u16,
    pub(super) ring: Ring,
    /// Readable when the driver has something new.
    pub(super) kick: Arc<OwnedFd>,
    /// The driver cannot flush, so what is written must be durable.
    pub(super) durable_writes: bool,
    /// The client's socket, shut down if the ring cannot go on.
    pub(super) socket: Arc<OwnedFd>,
}

/// A ring that is served.
pub(super) struct QueueThread {
    control: Arc<Control>,
    thread: Option<JoinHandle<std::thread::Result<Result<()>>>>,
}

/// Between a thread and who started it.
struct Control {
    stop: AtomicBool,
    /// Readable when `stop` is set.
    wake: Arc<OwnedFd>,
    /// Where the ring goes on, when the thread has ended.
    next_available: AtomicU16,
}

impl QueueThread {
    pub(super) fn start(setup: QueueSetup) -> Result<Self> {
        let control = Arc::new(Control {
            stop: AtomicBool::new(false),
            wake: Arc::new(event()?),
            next_available: AtomicU16::new(setup.ring.next_available()),
        });
        let for_thread = Arc::clone(&control);
        let name = format!("vhost-{}", setup.number);
        let thread = std::thread::Builder::new().name(name).spawn(move || serve(setup, &for_thread));
        let thread = thread.map_err(|error| Error::from_io(error, "starting the thread of a ring"))?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Takes no more requests, completes those taken unless the server has given up on them, and returns where the
    /// ring goes on. Fails as the thread did, by a fault of the server's.
    pub(super) fn stop(mut self) -> Result<u16> {
        self.end();
        let outcome = self.thread.take().map(JoinHandle::join);
        // The thread catches its panics.
        let failure = outcome.and_then(|outcome| crate::fuse::describe(&outcome.and_then(|outcome| outcome)));
        match failure {
            Some(failure) => Err(Error::new(ErrorKind::Internal, failure)),
            None => Ok(self.control.next_available.load(Ordering::Acquire)),
        }
    }

    fn end(&self) {
        self.control.stop.store(true, Ordering::Relaxed);
        signal(&self.control.wake);
    }
}

impl Drop for QueueThread {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(setup: QueueSetup, control: &Arc<Control>) -> std::thread::Result<Result<()>> {
    let socket = Arc::clone(&setup.socket);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut session = Session::open(setup, control)?;
        session.run()?;
        control.next_available.store(session.completions.ring().next_available(), Ordering::Release);
        Ok(!session.completions.is_broken())
    }));
    if !matches!(outcome, Ok(Ok(true))) {
        // SAFETY: plain numbers; the descriptor is open. A client that has left is no error.
        unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
    outcome.map(|result| result.map(drop))
}

struct Session {
    byte_queue: Rc<ByteQueue>,
    completions: Rc<Completions>,
    shared: Arc<Shared>,
    name: [u8; ID_BYTES],
    durable_writes: bool,
    kick: Arc<OwnedFd>,
    control: Arc<Control>,
    patience: Patience,
    ring_size: usize,
    /// How many answers the driver was told of.
    told: u64,
}

/// What there was to do in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// All that was offered is under way or answered.
    Everything,
    /// The driver has too much under way.
    Full,
    /// The ring is stopped or broken.
    Leave,
}

impl Session {
    fn open(setup: QueueSetup, control: &Arc<Control>) -> Result<Self> {
        let QueueSetup { shared, export, number, ring, kick, durable_writes, .. } = setup;
        let options = RuntimeOptions { epoch: shared.epoch, ..RuntimeOptions::new(shared.seed) };
        let runtime = Runtime::uring(options)?;
        let offered = &shared.exports[export];
        let byte_queue = ByteQueue {
            queue: offered.device.open_queue(&runtime)?,
            runtime,
            info: offered.info,
            size: Arc::new(offered.info.size.into()),
            stripes: offered.stripes.on_this_thread(),
            phase: Arc::clone(&shared.phase),
            thread: number,
            requests: Default::default(),
        };
        Ok(Self {
            byte_queue: Rc::new(byte_queue),
            ring_size: ring.size(),
            completions: Completions::new(ring),
            name: offered.id,
            shared,
            durable_writes,
            kick,
            control: Arc::clone(control),
            patience: Patience::default(),
            told: 0,
        })
    }

    /// Serves until the ring is stopped or broken, then waits for what is under way, unless told to abandon it.
    fn run(&mut self) -> Result<()> {
        let runtime = self.byte_queue.runtime.clone();
        loop {
            let goes_on = match self.serve() {
                Served::Leave => false,
                Served::Everything if self.is_idle() => self.wait_idle().is_ok(),
                _ => runtime.block_on(self.wait_busy())?,
            };
            if !goes_on {
                break;
            }
        }
        runtime.block_on(self.drain())
    }

    fn is_idle(&self) -> bool {
        self.completions.owed() == 0 && self.byte_queue.runtime.is_quiet()
    }

    fn is_stopped(&self) -> bool {
        self.control.stop.load(Ordering::Relaxed)
    }

    /// Tells the driver of what is done and waits for its next kick.
    fn wait_idle(&mut self) -> Result<(), Broken> {
        self.tell()?;
        if self.patience.pays() {
            self.completions.ring().forgo_kicks()?;
            let deadline = self.patience.deadline();
            loop {
                if self.completions.ring().has_next()? || self.is_stopped() {
                    return Ok(());
                }
                if self.patience.is_over(deadline) {
                    break;
                }
                std::hint::spin_loop();
            }
        }
        if self.completions.ring().ask_for_kicks()? {
            return Ok(());
        }
        let asleep = self.patience.fall_asleep();
        let mut polls = [&self.kick, &self.control.wake].map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: the list lives across the call and has the length that is given.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
        self.patience.wake_up(asleep);
        self.take_kick();
        Ok(())
    }

    /// Lets the device work until there is something to serve, or nothing under way any more. Returns whether the
    /// ring goes on.
    async fn wait_busy(&mut self) -> bool {
        let (mut kicked, mut woken) = (None, None);
        loop {
            // Tasks and completions come first.
            self.byte_queue.runtime.yield_now().await;
            if self.tell().is_err() {
                return false;
            }
            match self.serve() {
                Served::Leave => return false,
                Served::Everything if self.is_idle() => return true,
                Served::Everything if self.has_untold() => {}
                Served::Everything => {
                    let more = self.completions.ring().ask_for_kicks();
                    match more {
                        Ok(true) => {}
                        Ok(false) => self.wait_for_something(&mut kicked, &mut woken).await,
                        Err(Broken) => return false,
                    }
                }
                Served::Full => self.wait_for_answer().await,
            }
        }
    }

    /// Waits for an answer, a kick or the end.
    async fn wait_for_something(&self, kicked: &mut Option<FileIo>, woken: &mut Option<FileIo>) {
        let runtime = &self.byte_queue.runtime;
        poll_fn(|task| {
            self.completions.wait_for_answer(task.waker());
            if self.has_untold() || self.completions.is_broken() {
                return Poll::Ready(());
            }
            let mut ready = Poll::Pending;
            for (io, event) in [(&mut *kicked, &self.kick), (&mut *woken, &self.control.wake)] {
                let readable = io.get_or_insert_with(|| runtime.readable(event));
                if Pin::new(readable).poll(task).is_ready() {
                    *io = None;
                    ready = Poll::Ready(());
                }
            }
            ready
        })
        .await;
        self.take_kick();
    }

    /// Waits for an answer, but not for long: there may be a reason to give up.
    async fn wait_for_answer(&self) {
        let mut look_again = self.byte_queue.runtime.sleep(DRAIN_LOOK);
        poll_fn(|task| {
            self.completions.wait_for_answer(task.waker());
            if self.has_untold() || self.completions.is_broken() {
                Poll::Ready(())
            } else {
                Pin::new(&mut look_again).poll(task)
            }
        })
        .await;
    }

    /// Completes what was taken before the end.
    async fn drain(&mut self) {
        loop {
            if self.tell().is_err() {
                self.completions.give_up();
            }
            if self.completions.owed() == 0
                || self.completions.is_broken()
                || self.shared.abandon.load(Ordering::Relaxed)
            {
                return;
            }
            self.wait_for_answer().await;
        }
    }

    fn has_untold(&self) -> bool {
        self.completions.answers() != self.told
    }

    fn tell(&mut self) -> Result<(), Broken> {
        self.told = self.completions.answers();
        self.completions.ring().tell()
    }

    /// Makes the kick unreadable until the next.
    fn take_kick(&self) {
        let mut count = 0u64;
        // SAFETY: an eventfd gives eight bytes; the value lives across the call. The descriptor does not block.
        unsafe { libc::read(self.kick.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Serves all that is offered.
    fn serve(&mut self) -> Served {
        loop {
            if self.completions.is_broken() || self.is_stopped() {
                return Served::Leave;
            }
            if self.completions.owed() >= self.ring_size || self.completions.owed_bytes() >= OWED_BYTES_MAX {
                return Served::Full;
            }
            if self.completions.answers() - self.told >= ANSWERS_UNTOLD_MAX && self.tell().is_err() {
                self.completions.give_up();
                return Served::Leave;
            }
            let mut segments = self.completions.segments();
            let next = self.completions.ring().next(&mut segments);
            let begun = match next {
                Ok(Some(head)) => self.begin(head, segments),
                Ok(None) => {
                    self.completions.put_back(segments);
                    return Served::Everything;
                }
                Err(Broken) => false,
            };
            if !begun {
                self.completions.give_up();
                return Served::Leave;
            }
        }
    }

    /// Begins a request. Returns false if there is no place to answer it.
    fn begin(&self, head: u16, mut segments: Vec<Segment>) -> bool {
        let parsed = {
            let ring = self.completions.ring();
            VhostRequest::parse(&mut segments, |address, bytes| ring.read(address, bytes))
        };
        let Some(ParsedRequest { status_address, request }) = parsed else { return false };
        let bytes = match request {
            Ok(VhostRequest::Read(_, length) | VhostRequest::Write(_, length)) => length,
            _ => 0,
        };
        let answer = Answer::new(&self.completions, head, status_address, bytes, segments);
        match request.and_then(|request| self.check(request)) {
            Ok(request) => self.submit(request, answer),
            Err(status) => answer.status(status),
        }
        true
    }

    /// Checks bounds and the right to write.
    fn check(&self, request: VhostRequest) -> Result<VhostRequest, u8> {
        let info = &self.byte_queue.info;
        let (offset, length, mutates) = match request {
            VhostRequest::Read(offset, length) => (offset, length, false),
            VhostRequest::Write(offset, length) | VhostRequest::Clear(_, offset, length) => {
                (offset, length, true)
            }
            VhostRequest::Flush | VhostRequest::Id => return Ok(request),
        };
        if mutates && info.read_only || offset > info.size || self.byte_queue.clip(offset, length) < length {
            return Err(VIRTIO_BLK_S_IOERR as u8);
        }
        let supported = match request {
            VhostRequest::Clear(Operation::Discard, ..) => info.features.discard,
            VhostRequest::Clear(..) => info.features.write_zeroes,
            _ => true,
        };
        if supported { Ok(request) } else { Err(VIRTIO_BLK_S_UNSUPP as u8) }
    }

    fn submit(&self, request: VhostRequest, answer: Answer) {
        match request {
            VhostRequest::Read(_, 0) | VhostRequest::Write(_, 0) | VhostRequest::Clear(_, _, 0) => {
                answer.done(0);
            }
            VhostRequest::Read(offset, length) => {
                self.byte_queue.read(offset, length as usize, |result| match result {
                    Ok(data) => answer.data(&data),
                    Err(error) => answer.error(&error),
                });
            }
            VhostRequest::Write(offset, length) => {
                let mut payload = Buffer::stale(length as usize);
                let is_there = self.completions.ring().gather(&answer.segments, &mut payload);
                if !is_there {
                    return answer.status(VIRTIO_BLK_S_IOERR as u8);
                }
                self.byte_queue.write(offset, payload, self.durable_writes, |result| answer.result(result));
            }
            VhostRequest::Flush => self.byte_queue.flush(|result| answer.result(result)),
            VhostRequest::Id => {
                let written = self.completions.ring().write_name(&answer.segments, &self.name);
                match written {
                    Some(bytes) => answer.done(bytes),
                    None => answer.status(VIRTIO_BLK_S_IOERR as u8),
                }
            }
            VhostRequest::Clear(operation, offset, length) => {
                let durable = self.durable_writes;
                self.byte_queue.clear(operation, offset, length, durable, |result| answer.result(result));
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Tasks hold the runtime and the runtime holds them.
        self.byte_queue.runtime.abandon_tasks();
    }
}
