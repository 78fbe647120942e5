//! Runs the tasks of one thread: a slab of futures and a queue of those that are ready, first in, first out.
//!
//! A wake from the runtime's own thread, which is nearly every wake, is a push without a lock or a system call.
//! A wake from another thread goes through a locked list and, if the runtime sleeps, an eventfd.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use crate::error::IoContext;
use crate::pooled::PooledFuture;
use crate::tag_scope::Entered;
use crate::{Result, Tag};

/// The number of the future that `block_on` drives.
pub(super) const MAIN: usize = usize::MAX;

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Never reused, unlike the system's thread numbers.
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

fn this_thread() -> Option<u64> {
    THREAD.try_with(|number| *number).ok()
}

/// What wakers hold.
struct Shared {
    owner: u64,
    /// Touched by the owner thread only.
    local: UnsafeCell<VecDeque<usize>>,
    remote: Mutex<Vec<usize>>,
    /// The owner sleeps in the kernel, or is about to.
    sleeping: AtomicBool,
    /// None where the owner never sleeps.
    wake_fd: Option<OwnedFd>,
}

// SAFETY: `local` is the only part that is not `Sync`, and `schedule` and `pop` touch it only on the owner thread,
// without calling out while they do.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn schedule(&self, id: usize) {
        if this_thread() == Some(self.owner) {
            // SAFETY: we are on the owner thread, and no other reference into the queue is alive.
            unsafe { (*self.local.get()).push_back(id) };
            return;
        }
        self.remote.lock().push(id);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let one = 1u64;
            if let Some(wake_fd) = &self.wake_fd {
                // SAFETY: an eventfd takes eight bytes; the value lives across the call. The only error possible is a
                // full counter, and then the owner is being woken anyway.
                unsafe { libc::write(wake_fd.as_raw_fd(), (&raw const one).cast(), 8) };
            }
        }
    }

    fn pop(&self) -> Option<usize> {
        debug_assert_eq!(this_thread(), Some(self.owner));
        // SAFETY: the executor is `!Send`, so this is the owner thread; no other reference is alive.
        unsafe { (*self.local.get()).pop_front() }
    }

    fn has_local(&self) -> bool {
        // SAFETY: as in `pop`.
        unsafe { !(*self.local.get()).is_empty() }
    }
}

struct TaskWaker {
    id: usize,
    scheduled: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            self.shared.schedule(self.id);
        }
    }
}

struct Slot {
    /// Absent while it is being polled and after it has ended.
    future: Option<PooledFuture<()>>,
    /// Outlives the task, for the next in this slot: a late wake is then a poll too many, which is harmless.
    waker: Arc<TaskWaker>,
}

pub(super) struct Executor {
    shared: Arc<Shared>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    main: Arc<TaskWaker>,
    /// Makes the executor, and with it the runtime, stay on its thread.
    _not_send: std::marker::PhantomData<Rc<()>>,
}

impl Executor {
    /// One whose owner may sleep in the kernel, and the descriptor by which it is woken, which lives as long.
    pub(super) fn waking() -> Result<(Self, i32)> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error())
                .doing(|| "making a descriptor to be woken by".into());
        }
        // SAFETY: just made, owned by nobody else.
        Ok((Self::with(Some(unsafe { OwnedFd::from_raw_fd(fd) })), fd))
    }

    /// One whose owner never sleeps.
    pub(super) fn sleepless() -> Self {
        Self::with(None)
    }

    fn with(wake_fd: Option<OwnedFd>) -> Self {
        let shared = Arc::new(Shared {
            owner: this_thread().expect("a runtime is made by a living thread"),
            local: UnsafeCell::default(),
            remote: Mutex::default(),
            sleeping: AtomicBool::new(false),
            wake_fd,
        });
        let main =
            Arc::new(TaskWaker { id: MAIN, scheduled: AtomicBool::new(false), shared: Arc::clone(&shared) });
        Self {
            shared,
            slots: RefCell::default(),
            free: RefCell::default(),
            main,
            _not_send: std::marker::PhantomData,
        }
    }

    pub(super) fn main_waker(&self) -> Waker {
        Arc::clone(&self.main).into()
    }

    pub(super) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let future = PooledFuture::new(future);
        let mut slots = self.slots.borrow_mut();
        let id = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let id = slots.len();
            let waker = TaskWaker { id, scheduled: AtomicBool::new(false), shared: Arc::clone(&self.shared) };
            slots.push(Slot { future: None, waker: Arc::new(waker) });
            id
        });
        let slot = &mut slots[id];
        slot.future = Some(future);
        slot.waker.wake_by_ref();
    }

    /// Whether a task waits to be polled, also by the word of another thread.
    pub(super) fn has_ready(&self) -> bool {
        self.shared.has_local() || !self.shared.remote.lock().is_empty()
    }

    /// The next task to poll, taken from the queue.
    pub(super) fn next_ready(&self) -> Option<usize> {
        let id = self.shared.pop()?;
        if id == MAIN {
            self.main.scheduled.store(false, Ordering::Release);
        }
        Some(id)
    }

    pub(super) fn poll_task(&self, id: usize) {
        let (mut future, waker) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[id];
            // Cleared before the poll: a wake during it must schedule again.
            slot.waker.scheduled.store(false, Ordering::Release);
            let Some(future) = slot.future.take() else { return };
            (future, Waker::from(Arc::clone(&slot.waker)))
        };
        // Whoever drives the runtime may do so within a scope, which is not this task's.
        let _outside = Entered::new(Tag::NONE);
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => self.slots.borrow_mut()[id].future = Some(future),
            Poll::Ready(()) => {
                // Its drop may spawn or wake, so it comes before the slot is free.
                drop(future);
                self.free.borrow_mut().push(id);
            }
        }
    }

    pub(super) fn abandon_tasks(&self) {
        let mut id = 0;
        loop {
            let future = {
                let mut slots = self.slots.borrow_mut();
                let Some(slot) = slots.get_mut(id) else { return };
                let future = slot.future.take();
                if future.is_some() {
                    self.free.borrow_mut().push(id);
                }
                future
            };
            // Its drop may spawn or wake, so the slots are not borrowed here.
            drop(future);
            id += 1;
        }
    }

    /// Collects wakes from other threads and says whether the runtime may sleep; if so, other threads' wakes will
    /// write to the eventfd until [`Executor::end_wait`].
    pub(super) fn begin_wait(&self) -> bool {
        if self.shared.has_local() {
            self.take_remote();
            return false;
        }
        self.shared.sleeping.store(true, Ordering::SeqCst);
        self.take_remote();
        if self.shared.has_local() {
            self.shared.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    pub(super) fn end_wait(&self) {
        self.shared.sleeping.store(false, Ordering::SeqCst);
        self.take_remote();
    }

    /// Collects wakes from other threads.
    pub(super) fn take_remote(&self) {
        let mut remote = self.shared.remote.lock();
        for id in remote.drain(..) {
            // SAFETY: the owner thread, no other reference into the queue alive.
            unsafe { (*self.shared.local.get()).push_back(id) };
        }
    }
}

/// The result of a spawned future; awaits its end. Dropping it lets the future run on.
pub struct Task<T>(Rc<TaskState<T>>);

struct TaskState<T> {
    result: Cell<Option<T>>,
    waiting: Cell<Option<Waker>>,
}

impl<T: 'static> Task<T> {
    pub(super) fn wrap(
        future: impl Future<Output = T> + 'static,
    ) -> (Self, impl Future<Output = ()> + 'static) {
        let state = Rc::new(TaskState { result: Cell::new(None), waiting: Cell::new(None) });
        let task = Self(Rc::clone(&state));
        let wrapped = async move {
            state.result.set(Some(future.await));
            if let Some(waker) = state.waiting.take() {
                waker.wake();
            }
        };
        (task, wrapped)
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.0.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                self.0.waiting.set(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}
