//! What the requests of one queue need while they are under way, and how work begins and is joined.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use rotproof_block::{Completion, Context, DeviceInfo, Queue, Runtime, Submission};

use super::store::{Run, Slot, Store};

/// Ids of requests that this layer makes start here, far above those that origins count and below those of a faults
/// layer.
const FIRST_CHILD: u64 = 1 << 62;

/// Empty lists that a queue keeps: above any queue depth in use.
const SPARE_MAX: usize = 256;

/// One queue of the layer.
pub(super) struct QueueState {
    pub(super) below: Rc<dyn Queue>,
    pub(super) info: DeviceInfo,
    pub(super) store: Arc<Store>,
    pub(super) runtime: Runtime,
    pub(super) spare_runs: Spare<Run>,
    pub(super) spare_slots: Spare<Slot>,
    children: Cell<u64>,
}

impl QueueState {
    pub(super) fn new(below: Rc<dyn Queue>, info: DeviceInfo, store: Arc<Store>, runtime: Runtime) -> Self {
        Self {
            below,
            info,
            store,
            runtime,
            spare_runs: Spare::default(),
            spare_slots: Spare::default(),
            children: Cell::new(FIRST_CHILD),
        }
    }

    /// The context of a request made from one with `context`.
    pub(super) fn child(&self, context: Context) -> Context {
        let id = self.children.get();
        self.children.set(id + 1);
        context.child(id)
    }

    /// Begins `work` at once. What is not done by then goes on as a task of its own: another request may wait for it,
    /// whether or not somebody still polls this one.
    pub(super) fn begin(&self, work: impl Future<Output = Completion> + 'static) -> Submission {
        let mut work = Submission::pending(work);
        let mut nobody = std::task::Context::from_waker(Waker::noop());
        match Pin::new(&mut work).poll(&mut nobody) {
            Poll::Ready(completion) => completion.into(),
            Poll::Pending => Submission::pending(self.runtime.spawn(work)),
        }
    }
}

/// Lists that are used again, so that a request needs no memory of its own.
pub(super) struct Spare<T>(RefCell<Vec<Vec<T>>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Spare<T> {
    /// An empty list.
    pub(super) fn take(&self) -> Vec<T> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the memory of a list for the next.
    pub(super) fn give(&self, mut list: Vec<T>) {
        list.clear();
        let mut lists = self.0.borrow_mut();
        if lists.len() < SPARE_MAX {
            lists.push(list);
        }
    }
}

/// A request to the device below, until it has completed.
pub(super) enum Part {
    /// Under way.
    Submitted(Submission),
    /// Has ended.
    Completed(Completion),
}

/// Drives all parts at the same time until each has completed.
pub(super) async fn join(parts: &mut [Part]) {
    poll_fn(|task| {
        let mut all = Poll::Ready(());
        for part in parts.iter_mut() {
            if let Part::Submitted(submission) = part {
                match Pin::new(submission).poll(task) {
                    Poll::Ready(completion) => *part = Part::Completed(completion),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
}
