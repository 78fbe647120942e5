//! Requests that a rule holds back until somebody lets them go: who waits, and how it is told.
//!
//! A request enters the table when it begins to hang and leaves it when it is let go or given up. Letting go is final
//! for the request and means nothing for the next one that the rule hits. It knows no clock: whoever carries the
//! request ends a hang whose span has passed, by dropping it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_spec::Span;

use crate::active_rule::ActiveRule;
use crate::engine::Engine;

/// All requests of an engine that hang.
#[derive(Debug, Default)]
pub(crate) struct Hangs(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next_ticket: u64,
    /// By ticket.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    rule: u32,
    waker: Option<Waker>,
}

impl Hangs {
    /// Lets go what rules whose numbers are `chosen` hold back, and gives how many requests that were.
    pub(crate) fn release(&self, chosen: impl Fn(u32) -> bool) -> usize {
        let mut table = self.0.lock();
        let tickets: Vec<u64> = table
            .waiting
            .iter()
            .filter_map(|(ticket, waiting)| chosen(waiting.rule).then_some(*ticket))
            .collect();
        let released: Vec<Waiting> =
            tickets.iter().filter_map(|ticket| table.waiting.remove(ticket)).collect();
        // A waker may run code of others, which may come back here.
        drop(table);
        let count = released.len();
        released.into_iter().filter_map(|waiting| waiting.waker).for_each(Waker::wake);
        count
    }

    /// How many requests each rule holds back now, by its number.
    pub(crate) fn counts(&self) -> HashMap<u32, u64> {
        let mut counts = HashMap::new();
        for waiting in self.0.lock().waiting.values() {
            *counts.entry(waiting.rule).or_default() += 1;
        }
        counts
    }
}

/// A request that a rule holds back. Dropped, it no longer waits.
#[derive(Debug)]
pub struct Hang {
    engine: Arc<Engine>,
    ticket: u64,
    span: Option<Duration>,
}

impl Hang {
    /// A request that `rule` holds back from now on.
    pub(crate) fn new(engine: &Arc<Engine>, rule: &ActiveRule, span: Option<Span>) -> Self {
        let mut table = engine.hangs.0.lock();
        let ticket = table.next_ticket;
        table.next_ticket += 1;
        // A rule that is paused or removed first changes the index and then lets its requests go, under this lock; so
        // one that comes too late to be let go sees it here.
        if engine.index.load().acts(rule.index) {
            table.waiting.insert(ticket, Waiting { rule: rule.index, waker: None });
        }
        drop(table);
        Self { engine: Arc::clone(engine), ticket, span: span.map(|span| span.0) }
    }

    /// After how long it is over if nobody lets it go; `None` is never.
    pub fn span(&self) -> Option<Duration> {
        self.span
    }

    /// Whether it was let go. If not, the last waker it is asked with is woken when it is, from any thread.
    pub fn poll_released(&self, waker: &Waker) -> Poll<()> {
        let mut waker = Some(waker.clone());
        let mut table = self.engine.hangs.0.lock();
        let is_waiting = table.waiting.get_mut(&self.ticket).map(|waiting| {
            std::mem::swap(&mut waiting.waker, &mut waker);
        });
        // As in `drop`, what was kept goes after the lock.
        drop(table);
        if is_waiting.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Whether it was let go, for those who look from time to time.
    pub fn is_released(&self) -> bool {
        !self.engine.hangs.0.lock().waiting.contains_key(&self.ticket)
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // Not dropped under the lock: a waker may be the last to hold a task with other hangs in it.
        let waiting = self.engine.hangs.0.lock().waiting.remove(&self.ticket);
        drop(waiting);
    }
}
