//! Timers of one runtime, ordered by deadline and then by the order in which they were set.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Runtime, Time};

#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<(Time, u64), Waker>,
    count: u64,
}

impl Timers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|(&(deadline, _), _)| deadline)
    }

    /// Takes the first timer out if its deadline has come.
    pub(super) fn pop_expired(&mut self, now: Time) -> Option<Waker> {
        let entry = self.waiting.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

/// Completes at its deadline.
pub struct Sleep {
    runtime: Runtime,
    deadline: Time,
    /// Key of the timer, once one is set.
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn new(runtime: Runtime, deadline: Time) -> Self {
        Self { runtime, deadline, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.runtime.now() >= self.deadline {
            return Poll::Ready(());
        }
        let number = self.number;
        let mut timers = self.runtime.timers().borrow_mut();
        let number = number.unwrap_or_else(|| {
            timers.count += 1;
            timers.count
        });
        timers.waiting.insert((self.deadline, number), context.waker().clone());
        drop(timers);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.runtime.timers().borrow_mut().waiting.remove(&(self.deadline, number));
        }
    }
}
