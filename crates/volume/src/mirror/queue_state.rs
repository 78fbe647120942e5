//! The queue of a mirror: one thread's queues to all members, which of them is asked, and what is under way to each.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rotproof_block::children::Children;
use rotproof_block::{
    Completion, Context, Error, ErrorKind, Operation, Queue, Request, Result, Runtime, Submission,
};

use super::report::{MirrorEvent, add};
use super::slot::Seat;
use super::state::{Set, State};
use crate::copies::CopyQueue;

/// What the requests of one queue share.
pub(super) struct QueueState {
    pub(super) state: Arc<State>,
    pub(super) runtime: Runtime,
    pub(super) children: Children,
    /// As of which change of the members `seats` is.
    generation: Cell<u64>,
    seats: RefCell<Vec<Open>>,
    in_flight: Box<[Cell<u32>]>,
    /// Who is asked first among equals; moves on with each read.
    turn: Cell<usize>,
}

/// An open member; no queue if it takes no part.
#[derive(Clone)]
struct Open {
    queue: Option<Rc<dyn Queue>>,
    incarnation: u64,
}

/// A request that is under way to a member; it is counted as long as this lives.
pub(super) struct Flight {
    queue: Rc<QueueState>,
    member: usize,
}

impl Flight {
    fn new(queue: &Rc<QueueState>, member: usize) -> Self {
        let count = &queue.in_flight[member];
        count.set(count.get() + 1);
        Self { queue: Rc::clone(queue), member }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let count = &self.queue.in_flight[self.member];
        count.set(count.get() - 1);
    }
}

/// The queue as whoever opened it holds it.
pub(super) struct MirrorQueue(pub(super) Rc<QueueState>);

impl Queue for MirrorQueue {
    fn submit(&self, request: Request) -> Submission {
        let queue = &self.0;
        if let Err(error) = queue.state.info.check(&request) {
            return request.fail(error).into();
        }
        match request.operation {
            Operation::Read => queue.read(request),
            Operation::Flush => queue.flush(request),
            _ if request.length == 0 => request.succeed().into(),
            _ => queue.mutate(request),
        }
    }
}

impl QueueState {
    pub(super) fn open(state: &Arc<State>, runtime: &Runtime) -> Result<Rc<Self>> {
        let queue = Rc::new(Self {
            state: Arc::clone(state),
            runtime: runtime.clone(),
            children: Children::default(),
            generation: Cell::new(u64::MAX),
            seats: RefCell::default(),
            in_flight: state.slots.iter().map(|_| Cell::new(0)).collect(),
            turn: Cell::new(0),
        });
        queue.refresh();
        if queue.seats.borrow().iter().all(|seat| seat.queue.is_none()) {
            return Err(Error::new(ErrorKind::Gone, "no member of the mirror can be opened"));
        }
        Ok(queue)
    }

    /// Meets the members that there are now.
    fn refresh(&self) {
        let mut generation = self.state.generation.load(Ordering::Acquire);
        // A member that cannot be opened is taken out, which is one more change.
        while self.generation.replace(generation) != generation {
            let known = self.seats.take();
            let seats = self.state.slots.iter().enumerate().map(|(member, slot)| {
                let seat = slot.seat.lock();
                let incarnation = slot.incarnation.load(Ordering::Acquire);
                if let Some(known) = known.get(member).filter(|known| known.incarnation == incarnation) {
                    return known.clone();
                }
                let Seat::Taken(device) = &*seat else { return Open { queue: None, incarnation } };
                let device = Arc::clone(device);
                drop(seat);
                let queue = match device.open_queue(&self.runtime) {
                    Ok(queue) => Some(queue),
                    Err(error) => {
                        // If it is the last with something, it stays a member that answers nothing.
                        let _ = self.state.fail(member, &format!("it cannot be opened: {error}"));
                        None
                    }
                };
                Open { queue, incarnation }
            });
            let seats = seats.collect();
            // The queues of members that are out go only now, with nothing borrowed.
            drop(self.seats.replace(seats));
            drop(known);
            generation = self.state.generation.load(Ordering::Acquire);
        }
    }

    /// Looks whether the members are still the same.
    pub(super) fn look(&self) {
        if self.generation.get() != self.state.generation.load(Ordering::Acquire) {
            self.refresh();
        }
    }

    pub(super) fn members(&self) -> Range<usize> {
        0..self.state.slots.len()
    }

    /// The queue to a member that takes part, and which device of that place it is.
    pub(super) fn queue(&self, member: usize) -> Option<(Rc<dyn Queue>, u64)> {
        let seats = self.seats.borrow();
        let seat = seats.get(member)?;
        Some((Rc::clone(seat.queue.as_ref()?), seat.incarnation))
    }

    /// Whether the device that a request went to is still the member.
    pub(super) fn is_same(&self, member: usize, incarnation: u64) -> bool {
        self.state.slots[member].incarnation.load(Ordering::Acquire) == incarnation
    }

    /// The member to read a range from, if one that is not among `asked` has all of it: of those that are not slow the
    /// one with the least under way.
    pub(super) fn choose(&self, range: &Range<u64>, asked: Set) -> Option<usize> {
        let count = self.state.slots.len();
        let turn = self.turn.get();
        if asked.is_empty() {
            self.turn.set(turn.wrapping_add(1));
        }
        let mut best: Option<(bool, u32, usize)> = None;
        for step in 0..count {
            let member = turn.wrapping_add(step) % count;
            let slot = &self.state.slots[member];
            if asked.has(member) || !slot.is_current(range.clone()) {
                continue;
            }
            let is_slow = slot.is_slow(|| self.runtime.now());
            let rank = (is_slow, self.in_flight[member].get());
            if best.is_none_or(|(slow, load, _)| rank < (slow, load)) {
                best = Some((rank.0, rank.1, member));
            }
        }
        best.map(|(_, _, member)| member)
    }

    /// Sends a request to a member.
    pub(super) fn send(self: &Rc<Self>, member: usize, request: Request) -> (Submission, Flight) {
        let flight = Flight::new(self, member);
        let submission = match self.queue(member) {
            Some((queue, _)) => queue.submit(request),
            None => request.fail(Error::new(ErrorKind::Gone, "the member takes no part any more")).into(),
        };
        (submission, flight)
    }

    /// Notes how a member has answered a request that was in time.
    pub(super) fn note(&self, member: usize, is_read: bool, result: &Result<()>) {
        match result {
            Ok(()) => self.state.slots[member].answered(),
            Err(error) => self.note_error(member, is_read, error),
        }
    }

    /// Notes that a member has answered with an error.
    pub(super) fn note_error(&self, member: usize, is_read: bool, error: &Error) {
        let counts = &self.state.slots[member].counts;
        add(if is_read { &counts.failed_reads } else { &counts.failed_writes }, 1);
        self.state.note_failure(member, error);
    }

    /// A read was not answered in time.
    pub(super) fn note_late_read(&self, member: usize) {
        let slot = &self.state.slots[member];
        add(&slot.counts.late, 1);
        if slot.late_again(self.runtime.now()) {
            self.state.tell(&MirrorEvent::Slow { member });
        }
    }

    /// Lets a read go on of which nobody needs the answer any more.
    pub(super) fn let_go(&self, submission: Submission, flight: Flight) {
        self.runtime.spawn_detached(async move {
            let _ = submission.await;
            drop(flight);
        });
    }

    /// Lets a write go on that nobody waits for any more. Until it has come to an end, nobody takes the member to have what
    /// was written there since.
    pub(super) fn let_stray(&self, submission: Submission, flight: Flight, range: Range<u64>) {
        let member = flight.member;
        let id = self.children.of(Context::default()).id;
        // Numbers of different queues must differ.
        let id = id ^ (Rc::as_ptr(&flight.queue) as u64).rotate_left(24);
        let incarnation = self.state.slots[member].incarnation.load(Ordering::Acquire);
        self.state.slots[member].stray(id, range);
        self.runtime.spawn_detached(async move {
            // Dropped before its end, it may yet arrive, so it stays noted.
            let _ = submission.await;
            if flight.queue.is_same(member, incarnation) {
                flight.queue.state.slots[member].stray_came(id);
            }
        });
    }

    /// Waits for one request to a member, so long.
    pub(super) async fn within(
        &self,
        patience: Duration,
        mut submission: Submission,
    ) -> Result<Completion, Submission> {
        let mut end = None;
        let completion = std::future::poll_fn(|context| {
            use std::future::Future;
            use std::pin::Pin;
            use std::task::Poll;
            if let Poll::Ready(completion) = Pin::new(&mut submission).poll(context) {
                return Poll::Ready(Some(completion));
            }
            let end = end.get_or_insert_with(|| self.runtime.sleep(patience));
            if Pin::new(end).poll(context).is_ready() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        completion.ok_or(submission)
    }
}

impl CopyQueue for MirrorQueue {
    fn choose(&self, offset: u64, length: u64) -> usize {
        let queue = &self.0;
        queue.look();
        let range = offset..offset + length;
        let any = || queue.members().find(|&member| queue.state.slots[member].is_active());
        queue.choose(&range, Set::default()).or_else(any).unwrap_or(0)
    }

    fn is_current(&self, copy: usize, offset: u64, length: u64) -> bool {
        self.0.state.slots.get(copy).is_some_and(|slot| slot.is_current(offset..offset + length))
    }

    fn submit_to(&self, copy: usize, request: Request) -> Submission {
        let queue = &self.0;
        queue.look();
        if let Err(error) = queue.state.info.check(&request) {
            return request.fail(error).into();
        }
        let Some((to_member, _)) = queue.queue(copy) else {
            return request.fail(Error::new(ErrorKind::Gone, "this copy cannot be reached")).into();
        };
        let flight = Flight::new(queue, copy);
        if request.operation.is_mutation() {
            // The caller may say that the copy is current as soon as this is answered.
            queue.state.unflushed.note(&(request.offset..request.end()));
        }
        match to_member.submit(request).try_take() {
            Ok(completion) => completion.into(),
            Err(submission) => Submission::pending(async move {
                let completion = submission.await;
                drop(flight);
                completion
            }),
        }
    }

    fn set_current(&self, copy: usize, offset: u64, length: u64) {
        self.0.state.set_current(copy, offset..offset + length);
    }

    fn set_missed(&self, copy: usize, offset: u64, length: u64) {
        let state = &self.0.state;
        if copy < state.slots.len() {
            let range = offset..offset + length;
            state.note_missed(copy, &range, state.current(&range));
        }
    }
}
