//! The state of a worker that is in a call which holds its thread, for whoever looks after it meanwhile.
//!
//! A call that does not return leaves the thread no turn to notice. So before each call the worker parks its state here,
//! and takes it back afterwards. Another thread looks into it, tells of a request that takes too long, and takes it
//! away where nobody is to wait any longer. A worker that finds it gone ends without a trace, whenever that is.

use parking_lot::Mutex;
use rotproof_block::{Result, Time};

use super::state::{Outcome, State};
use super::watch::Watch;

/// What one worker has parked. The lock is taken twice for each call, and by the other thread now and then.
#[derive(Default)]
pub(super) struct Parked(Mutex<Left>);

#[derive(Default)]
struct Left {
    books: Option<Box<State>>,
    watch: Option<Watch>,
}

/// What a worker leaves behind that was given up.
pub(super) struct GivenUp {
    pub(super) outcome: Result<Outcome>,
    pub(super) started: Time,
}

impl Parked {
    /// The one who looks after the worker is to go by this.
    pub(super) fn set_watch(&self, watch: Watch) {
        self.0.lock().watch = Some(watch);
    }

    /// Puts the books down.
    pub(super) fn leave(&self, books: Option<Box<State>>) {
        self.0.lock().books = books;
    }

    /// Takes them up again; none if the worker was given up.
    pub(super) fn take_back(&self) -> Option<Box<State>> {
        self.0.lock().books.take()
    }

    /// Looks after a worker that is in a call, and gives it up if it has waited in vain, or if `is_to_end`.
    pub(super) fn look(&self, now: Time, is_to_end: bool) -> Option<GivenUp> {
        let mut left = self.0.lock();
        let Left { books, watch } = &mut *left;
        let (state, watch) = (books.as_deref_mut()?, watch.as_ref()?);
        if is_to_end {
            watch.interrupt(state, now);
        } else {
            watch.look(state, now);
        }
        if !state.has_ended {
            return None;
        }
        let started = state.started;
        let books = books.take()?;
        drop(left);
        Some(GivenUp { outcome: books.into_outcome(), started })
    }
}
