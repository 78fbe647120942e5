//! Where time, timers, randomness and file I/O come from. Layers and faults never ask the system for any of them.
//!
//! A runtime belongs to one thread and drives all the queues opened on it. There are two: **io_uring**, with the
//! monotonic clock, and **simulated**, seeded, with virtual time that jumps to the next timer whenever nothing is
//! ready to run. The same trial under the simulated runtime is bit-identical, every time.

mod clock;
mod executor;
mod file_io;
mod fixed_buffers;
mod timers;
mod uring;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub use clock::Clock;
pub use executor::Task;
pub use file_io::FileIo;
pub use timers::Sleep;

use crate::hash::mix;
use crate::{Buffer, Error, ErrorKind, Result};
use executor::Executor;
use file_io::FileOperation;
use timers::Timers;
use uring::Uring;

/// Nanoseconds since the runtime's epoch: the start of the run, or virtual zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// This time and `duration` more; stops at the largest time there is.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What a runtime starts from. Threads of one run share the epoch, so that their times compare.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeOptions {
    /// Root of all randomness.
    pub seed: u64,
    /// Time zero of the io_uring runtime.
    pub epoch: Instant,
    /// Requests the ring takes before it must be submitted; a power of two.
    pub ring_entries: u32,
    /// Register the memory of requests with the kernel once, rather than with each: at first so many buffers of so many
    /// bytes, others as they come. Not everybody may lock so much memory.
    pub fixed_buffers: Option<(u32, usize)>,
    /// Ask the device for completed reads and writes again and again, rather than wait for its interrupts
    /// (`IORING_SETUP_IOPOLL`). Takes a device that can be asked, opened for direct I/O, and a processor.
    pub polled: bool,
}

impl RuntimeOptions {
    /// Epoch now, 256 ring entries, no fixed buffers, nothing polled.
    pub fn new(seed: u64) -> Self {
        Self { seed, epoch: Instant::now(), ring_entries: 256, fixed_buffers: None, polled: false }
    }
}

/// A handle to the runtime of this thread; clones are the same runtime.
#[derive(Clone)]
pub struct Runtime(Rc<Core>);

struct Core {
    executor: Executor,
    timers: RefCell<Timers>,
    driver: Driver,
    seed: u64,
}

#[expect(clippy::large_enum_variant, reason = "one for each thread, and never moved")]
enum Driver {
    Uring { ring: RefCell<Uring>, clock: Clock, wake_fd: i32 },
    Simulated { now: Cell<Time> },
}

/// Tasks polled between two looks at the ring, so that a busy task cannot starve completions.
const POLLS_PER_TURN: usize = 128;

impl Runtime {
    /// The real one. Fails with [`ErrorKind::Missing`] where the kernel has no io_uring or forbids it, or does not
    /// register the buffers that are asked for, and with [`ErrorKind::Os`] where it has no descriptors or memory left for it.
    pub fn uring(options: RuntimeOptions) -> Result<Self> {
        let (executor, wake_fd) = Executor::waking()?;
        let ring = RefCell::new(Uring::new(&options)?);
        Ok(Self::with(
            executor,
            Driver::Uring { ring, clock: Clock::since(options.epoch), wake_fd },
            options.seed,
        ))
    }

    /// The simulated one, at virtual time zero.
    pub fn simulated(seed: u64) -> Self {
        Self::with(Executor::sleepless(), Driver::Simulated { now: Cell::default() }, seed)
    }

    fn with(executor: Executor, driver: Driver, seed: u64) -> Self {
        Self(Rc::new(Core { executor, timers: RefCell::default(), driver, seed }))
    }

    /// Whether time is virtual.
    pub fn is_simulated(&self) -> bool {
        matches!(self.0.driver, Driver::Simulated { .. })
    }

    /// The time since the epoch.
    pub fn now(&self) -> Time {
        match &self.0.driver {
            Driver::Uring { clock, .. } => clock.now(),
            Driver::Simulated { now } => now.get(),
        }
    }

    /// A random number that depends on the run's seed and on `(stream, index)` only.
    pub fn random(&self, stream: u64, index: u64) -> u64 {
        mix(self.0.seed, stream, index)
    }

    /// Completes after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().after(duration))
    }

    /// Completes at `deadline`, at once if that has passed.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep::new(self.clone(), deadline)
    }

    /// Runs `future` beside the others of this runtime; await the [`Task`] for its result, or drop it to let the
    /// future run on by itself.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let (task, wrapped) = Task::wrap(future);
        self.0.executor.spawn(wrapped);
        task
    }

    /// As [`Runtime::spawn`], for a future whose end nobody awaits; saves the bookkeeping.
    pub fn spawn_detached(&self, future: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(future);
    }

    /// Drops every task that is still pending. Tasks hold the runtime and the runtime holds them, so whoever made
    /// it calls this when its work is over; otherwise neither would ever be freed.
    pub fn abandon_tasks(&self) {
        self.0.executor.abandon_tasks();
    }

    /// Lets the other ready tasks run once, and completions arrive.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Whether nothing is under way: no task ready, no timer set, no request in the kernel. An export may then
    /// block in a system call of its own.
    pub fn is_quiet(&self) -> bool {
        let in_flight = match &self.0.driver {
            Driver::Uring { ring, .. } => ring.borrow().in_flight(),
            Driver::Simulated { .. } => 0,
        };
        in_flight == 0 && self.0.timers.borrow().is_empty() && !self.0.executor.has_ready()
    }

    /// Drives everything on this thread until `future` completes. Tasks that are still pending then stay, and go
    /// on in the next call.
    ///
    /// Fails with [`ErrorKind::Stalled`] when the runtime is simulated and nothing can ever happen again: somebody
    /// lost a completion.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        let mut future = pin!(future);
        let executor = &self.0.executor;
        let waker: Waker = executor.main_waker();
        let mut context = Context::from_waker(&waker);
        waker.wake_by_ref();
        loop {
            for _ in 0..POLLS_PER_TURN {
                match executor.next_ready() {
                    Some(executor::MAIN) => {
                        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                            return Ok(output);
                        }
                    }
                    Some(id) => executor.poll_task(id),
                    None => break,
                }
            }
            self.turn()?;
        }
    }

    /// Submits and reaps; waits for the next completion or timer if no task is ready.
    fn turn(&self) -> Result<()> {
        match &self.0.driver {
            Driver::Uring { ring, wake_fd, .. } => {
                let timeout =
                    self.0.timers.borrow().next_deadline().map(|deadline| deadline.since(self.now()));
                let executor = &self.0.executor;
                // A full submission queue may have reaped completions whose wakers nobody has called yet.
                let wait = executor.begin_wait() && ring.borrow().woken.is_empty();
                let result = ring.borrow_mut().turn(wait, timeout, *wake_fd);
                executor.end_wait();
                // Wakers run only now, with the ring no longer borrowed.
                let woken = std::mem::take(&mut ring.borrow_mut().woken);
                for waker in woken {
                    waker.wake();
                }
                result?;
                if timeout.is_some() {
                    self.fire_timers(self.now());
                }
            }
            Driver::Simulated { now } => {
                self.0.executor.take_remote();
                if !self.0.executor.has_ready() {
                    let Some(deadline) = self.0.timers.borrow().next_deadline() else {
                        return Err(Error::new(
                            ErrorKind::Stalled,
                            "the simulation has stalled: nothing is ready and no timer is set, \
                             so a completion was lost",
                        ));
                    };
                    now.set(now.get().max(deadline));
                    self.fire_timers(now.get());
                }
            }
        }
        Ok(())
    }

    fn fire_timers(&self, now: Time) {
        loop {
            let Some(waker) = self.0.timers.borrow_mut().pop_expired(now) else { return };
            waker.wake();
        }
    }

    fn timers(&self) -> &RefCell<Timers> {
        &self.0.timers
    }

    fn start(&self, file: &Arc<OwnedFd>, operation: FileOperation, buffer: Buffer) -> FileIo {
        match &self.0.driver {
            Driver::Uring { ring, .. } => match ring.borrow_mut().push(file, operation, buffer) {
                Ok(slot) => FileIo::in_kernel(self.clone(), slot),
                Err((error, buffer)) => FileIo::done(Err(error), buffer),
            },
            Driver::Simulated { .. } => {
                let mut buffer = buffer;
                let result = operation.run_now(file.as_raw_fd(), &mut buffer);
                FileIo::done(result, buffer)
            }
        }
    }

    fn with_ring<T>(&self, access: impl FnOnce(&mut Uring) -> T) -> T {
        match &self.0.driver {
            Driver::Uring { ring, .. } => access(&mut ring.borrow_mut()),
            Driver::Simulated { .. } => unreachable!("only the ring hands out slots"),
        }
    }

    /// Reads into the whole buffer at `offset`; short at the end of the file.
    pub fn read(&self, file: &Arc<OwnedFd>, offset: u64, buffer: Buffer) -> FileIo {
        self.start(file, FileOperation::Read { offset }, buffer)
    }

    /// Writes the whole buffer at `offset`; durable on completion if `durable`.
    pub fn write(&self, file: &Arc<OwnedFd>, offset: u64, buffer: Buffer, durable: bool) -> FileIo {
        self.start(file, FileOperation::Write { offset, durable }, buffer)
    }

    /// `fdatasync`.
    pub fn sync_data(&self, file: &Arc<OwnedFd>) -> FileIo {
        self.start(file, FileOperation::SyncData, Buffer::empty())
    }

    /// `fallocate` with the kernel's mode bits (`FALLOC_FL_*`).
    pub fn allocate(&self, file: &Arc<OwnedFd>, mode: i32, offset: u64, length: u64) -> FileIo {
        self.start(file, FileOperation::Allocate { mode, offset, length }, Buffer::empty())
    }

    /// Completes when the descriptor is readable, hung up or in error.
    pub fn readable(&self, file: &Arc<OwnedFd>) -> FileIo {
        self.start(file, FileOperation::PollReadable, Buffer::empty())
    }

    /// Gives the driver behind the descriptor a command of its own (`IORING_OP_URING_CMD`); completes with its answer.
    /// Under virtual time there are no drivers.
    ///
    /// # Safety
    /// Memory that the argument names must be what the driver takes it for until the command completes.
    pub unsafe fn command(&self, file: &Arc<OwnedFd>, command: u32, argument: [u8; 16]) -> FileIo {
        self.start(file, FileOperation::Command { command, argument }, Buffer::empty())
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_simulated() { "Runtime(simulated)" } else { "Runtime(io_uring)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> [Runtime; 2] {
        [Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring"), Runtime::simulated(1)]
    }

    #[test]
    fn sleeping_tasks_wake_in_the_order_of_their_deadlines() {
        for runtime in both() {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [30u64, 10, 20]
                .map(|milliseconds| {
                    let (runtime_, order) = (runtime.clone(), Rc::clone(&order));
                    runtime.spawn(async move {
                        runtime_.sleep(Duration::from_millis(milliseconds)).await;
                        order.borrow_mut().push(milliseconds);
                    })
                })
                .into();
            runtime
                .block_on(async {
                    for task in tasks {
                        task.await;
                    }
                })
                .expect("nothing stalls");
            assert_eq!(*order.borrow(), [10, 20, 30], "{runtime:?}");
            assert!(runtime.now() >= Time(30_000_000));
        }
    }

    #[test]
    fn virtual_time_costs_no_real_time_and_is_exact() {
        let runtime = Runtime::simulated(1);
        let began = Instant::now();
        runtime.block_on(runtime.sleep(Duration::from_secs(86_400))).expect("a timer is set");
        assert_eq!(runtime.now(), Time(86_400_000_000_000));
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_lost_completion_stalls_the_simulation_with_an_error() {
        let runtime = Runtime::simulated(1);
        let error = runtime.block_on(std::future::pending::<()>()).expect_err("nothing can wake it");
        assert_eq!(error.kind(), ErrorKind::Stalled);
    }

    #[test]
    fn a_wake_from_another_thread_arrives_under_virtual_time_too() {
        let runtime = Runtime::simulated(1);
        let mut woken = false;
        runtime
            .block_on(std::future::poll_fn(|context| {
                if std::mem::replace(&mut woken, true) {
                    return Poll::Ready(());
                }
                let waker = context.waker().clone();
                std::thread::spawn(move || waker.wake()).join().expect("ends well");
                Poll::Pending
            }))
            .expect("does not stall");
    }

    #[test]
    fn a_wake_from_another_thread_arrives() {
        let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring");
        let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut helper = None;
        runtime
            .block_on(std::future::poll_fn(|context| {
                if flag.load(std::sync::atomic::Ordering::Acquire) {
                    return Poll::Ready(());
                }
                if helper.is_none() {
                    let (flag, waker) = (Arc::clone(&flag), context.waker().clone());
                    helper = Some(std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(20));
                        flag.store(true, std::sync::atomic::Ordering::Release);
                        waker.wake();
                    }));
                }
                Poll::Pending
            }))
            .expect("woken");
        helper.expect("was started").join().expect("ends well");
    }

    #[test]
    fn a_dropped_sleep_leaves_no_timer() {
        for runtime in both() {
            let mut sleep = Box::pin(runtime.sleep(Duration::from_secs(3600)));
            runtime
                .block_on(std::future::poll_fn(|context| {
                    assert!(sleep.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                }))
                .expect("ready at once");
            drop(sleep);
            assert!(runtime.is_quiet(), "{runtime:?}");
        }
    }

    #[test]
    fn file_io_reads_back_what_it_wrote_and_a_dropped_one_is_harmless() {
        for runtime in both() {
            let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a temporary file").into());
            runtime
                .block_on(async {
                    let data = Buffer::copy_of(&[7; 8192]);
                    let (written, _) = runtime.write(&file, 4096, data, false).await;
                    assert_eq!(written.expect("written"), 8192);
                    drop(runtime.read(&file, 0, Buffer::zeroed(4096)));
                    let (read, buffer) = runtime.read(&file, 8192, Buffer::zeroed(8192)).await;
                    assert_eq!(read.expect("read"), 4096, "short at the end of the file");
                    assert!(buffer[..4096].iter().all(|&byte| byte == 7));
                    runtime.sync_data(&file).await.0.expect("synced");
                })
                .expect("completes");
        }
    }

    #[test]
    fn completions_arrive_while_another_task_never_rests() {
        let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring");
        let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a temporary file").into());
        let done = Rc::new(Cell::new(false));
        let busy = {
            let (runtime, done) = (runtime.clone(), Rc::clone(&done));
            async move {
                let mut turns = 0u64;
                while !done.get() {
                    runtime.yield_now().await;
                    turns += 1;
                    assert!(turns < 100_000_000, "the completion never came");
                }
            }
        };
        let busy = runtime.spawn(busy);
        runtime
            .block_on(async {
                runtime.write(&file, 0, Buffer::zeroed(4096), true).await.0.expect("written");
                done.set(true);
                busy.await;
            })
            .expect("completes");
    }

    #[test]
    fn more_requests_than_the_ring_has_entries_all_complete() {
        let runtime = Runtime::uring(RuntimeOptions { ring_entries: 4, ..RuntimeOptions::new(1) })
            .expect("this machine has io_uring");
        let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a temporary file").into());
        runtime
            .block_on(async {
                let writes: Vec<_> = (0..100u64)
                    .map(|block| runtime.write(&file, block * 4096, Buffer::zeroed(4096), false))
                    .collect();
                for write in writes {
                    assert_eq!(write.await.0.expect("written"), 4096);
                }
            })
            .expect("completes");
    }

    #[test]
    fn with_fixed_buffers_every_size_is_read_back_as_it_was_written() {
        let fixed_buffers = Some((2, 8192));
        let runtime =
            Runtime::uring(RuntimeOptions { fixed_buffers, ..RuntimeOptions::new(1) }).expect("a ring");
        let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a temporary file").into());
        runtime
            .block_on(async {
                // Sizes that were registered at once, that come later, and that never are.
                for (round, len) in (0u8..).zip([4096usize, 8192, 100, 1 << 20, 8 << 20, 8192, 3000, 4096]) {
                    let written =
                        runtime.write(&file, 512, Buffer::copy_of(&vec![round; len]), round % 2 == 0).await;
                    assert_eq!(written.0.expect("written"), len);
                    drop(written.1);
                    let many: Vec<_> =
                        (0..5).map(|_| runtime.read(&file, 512, Buffer::zeroed(len))).collect();
                    for read in many {
                        let (read, buffer) = read.await;
                        assert_eq!(read.expect("read"), len);
                        assert!(buffer.iter().all(|&byte| byte == round), "{len} bytes");
                    }
                }
            })
            .expect("completes");
    }

    #[test]
    fn randomness_depends_on_seed_stream_and_index() {
        let draw = |seed, stream, index| Runtime::simulated(seed).random(stream, index);
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 2, 4));
        assert_ne!(draw(1, 2, 3), draw(1, 3, 3));
        assert_ne!(draw(1, 2, 3), draw(2, 2, 3));
    }
}
