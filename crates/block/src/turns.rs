//! A lock that tasks wait for: one has its turn at a time, of all queues on all threads.
//!
//! For what must not overlap and takes I/O, such as writing back in order. It blocks no thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Gives turns.
#[derive(Debug, Default)]
pub struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    waiting: Vec<Waker>,
}

impl Turns {
    /// Waits for a turn, which lasts until it is dropped.
    pub fn next(self: &Arc<Self>) -> Next {
        Next(Arc::clone(self))
    }
}

/// The wait for a turn.
#[derive(Debug)]
pub struct Next(Arc<Turns>);

impl Future for Next {
    type Output = Turn;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Turn> {
        let mut state = self.0.0.lock();
        if state.is_taken {
            if !state.waiting.iter().any(|waker| waker.will_wake(task.waker())) {
                state.waiting.push(task.waker().clone());
            }
            return Poll::Pending;
        }
        state.is_taken = true;
        Poll::Ready(Turn(Arc::clone(&self.0)))
    }
}

/// A turn; it ends when it is dropped.
#[derive(Debug)]
pub struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.is_taken = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Each tries again; one gets it.
        waiting.into_iter().for_each(Waker::wake);
    }
}
