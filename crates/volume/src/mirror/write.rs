//! Writes of a mirror, its discards and flushes too: to all members at once.
//!
//! A write succeeds if for every byte a member took it that has what was written there before. What the others did not take is
//! noted before the write is acknowledged, so that nobody reads it from them. Two writes of the same bytes that are under way
//! together may come out in another order on each member, as on all mirrors; whoever sends them has no right to an order.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rotproof_block::{Buffer, Completion, Error, ErrorKind, Operation, Request, Result, Submission};

use super::WAYS_MAX;
use super::missed::GRANULE_BYTES;
use super::queue_state::{Flight, QueueState};
use super::state::{Noted, Set};

/// How much longer than for anything else one waits for a flush.
const FLUSH_PATIENCE: u32 = 20;

/// A request that goes to all members.
struct Round {
    operation: Operation,
    range: Range<u64>,
    sent: [Option<Sent>; WAYS_MAX],
}

/// What one member makes of it.
struct Sent {
    incarnation: u64,
    waiting: Option<(Submission, Flight)>,
    answer: Option<Completion>,
    is_repeated: bool,
}

/// A flush under way: what it has not made durable when it is dropped is still not durable.
struct Flushing {
    queue: Rc<QueueState>,
    number: u64,
    is_done: bool,
}

impl Flushing {
    /// All that it took is durable, and what is not on all members on record.
    fn end_well(mut self) {
        self.is_done = true;
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.queue.state.unflushed.end(self.number, self.is_done);
    }
}

/// Within the gate, until it is dropped.
struct Inside {
    queue: Rc<QueueState>,
    range: Range<u64>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.queue.state.gate.leave(&self.range);
    }
}

impl QueueState {
    pub(super) fn mutate(self: &Rc<Self>, request: Request) -> Submission {
        let range = request.offset..request.end();
        if self.state.gate.try_enter(&range) {
            let inside = Inside { queue: Rc::clone(self), range };
            return self.send_to_all(request, inside);
        }
        let queue = Rc::clone(self);
        Submission::pending(async move {
            queue.state.gate.enter(&range).await;
            let inside = Inside { queue: Rc::clone(&queue), range };
            queue.send_to_all(request, inside).await
        })
    }

    fn send_to_all(self: &Rc<Self>, request: Request, inside: Inside) -> Submission {
        let context = request.context;
        let mut round = match self.begin(request) {
            Ok(round) => round,
            Err(completion) => return (*completion).into(),
        };
        if !round.is_answered_well() {
            let queue = Rc::clone(self);
            return Submission::pending(async move {
                let late = queue.wait(&mut round, queue.state.options.patience).await;
                let result = queue.settle(&round, late);
                let took = round.took(&queue);
                let result = match result {
                    Ok(()) => queue.record(took, &inside.range).await,
                    Err(error) => Err(error),
                };
                Completion { result, buffer: round.into_buffer(), context }
            });
        }
        let result = self.settle(&round, None);
        let took = round.took(self);
        if result.is_ok() && self.has_to_record(took) {
            let queue = Rc::clone(self);
            return Submission::pending(async move {
                let result = queue.record(took, &inside.range).await;
                Completion { result, buffer: round.into_buffer(), context }
            });
        }
        Completion { result, buffer: round.into_buffer(), context }.into()
    }

    /// Sends a request to all members that take part; the last gets it as it is, the others get children with copies.
    fn begin(self: &Rc<Self>, request: Request) -> Result<Round, Box<Completion>> {
        self.look();
        let mut round = Round {
            operation: request.operation,
            range: request.offset..request.end(),
            sent: [const { None }; WAYS_MAX],
        };
        let Some(last) = self.members().rev().find(|&member| self.queue(member).is_some()) else {
            let error = Error::new(ErrorKind::Gone, "no member of the mirror can be reached");
            return Err(Box::new(request.fail(error)));
        };
        for member in 0..last {
            let Some((_, incarnation)) = self.queue(member) else { continue };
            let child = Request {
                operation: request.operation,
                offset: request.offset,
                length: request.length,
                buffer: Buffer::copy_of(&request.buffer),
                context: self.children.of(request.context),
            };
            round.sent[member] = Some(Sent::new(self.send(member, child), incarnation));
        }
        let incarnation = self.queue(last).map_or(0, |(_, incarnation)| incarnation);
        round.sent[last] = Some(Sent::new(self.send(last, request), incarnation));
        for (member, sent) in round.sent.iter().enumerate() {
            if let Some(Completion { result: Ok(()), .. }) =
                sent.as_ref().and_then(|sent| sent.answer.as_ref())
            {
                self.state.slots[member].answered();
            }
        }
        Ok(round)
    }

    /// Waits for the answers; for those that are late only as long as nobody has taken it who had what was there before.
    /// Gives how those that are late are to be taken, if there are any.
    async fn wait(self: &Rc<Self>, round: &mut Round, patience: Duration) -> Option<Error> {
        let mut end = None;
        let mut is_late = false;
        let (operation, range) = (round.operation, round.range.clone());
        for (member, sent) in round.sent.iter_mut().enumerate() {
            if let Some(sent) = sent {
                self.look_at(member, sent, operation, &range);
            }
        }
        poll_fn(|context| {
            for (member, sent) in round.sent.iter_mut().enumerate() {
                let Some(sent) = sent else { continue };
                while let Some((submission, _)) = &mut sent.waiting {
                    let Poll::Ready(completion) = Pin::new(submission).poll(context) else { break };
                    sent.waiting = None;
                    sent.answer = Some(completion);
                    if !is_late {
                        self.look_at(member, sent, operation, &range);
                    }
                }
            }
            if round.sent.iter().flatten().all(|sent| sent.waiting.is_none()) {
                return Poll::Ready(());
            }
            is_late = is_late || {
                let end = end.get_or_insert_with(|| self.runtime.sleep(patience));
                Pin::new(end).poll(context).is_ready()
            };
            if is_late && self.is_taken(round.took(self), operation, &range) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let mut error = None;
        for (member, sent) in round.sent.iter_mut().enumerate() {
            let Some((submission, flight)) = sent.as_mut().and_then(|sent| sent.waiting.take()) else {
                continue;
            };
            self.state.note_late_write(member);
            if operation == Operation::Flush {
                self.let_go(submission, flight);
            } else {
                self.let_stray(submission, flight, range.clone());
            }
            error.get_or_insert(Error::new(ErrorKind::TimedOut, "a member does not answer"));
        }
        error
    }

    /// Notes an answer. A write that fails is tried once more: what passes by itself need not be missed.
    fn look_at(self: &Rc<Self>, member: usize, sent: &mut Sent, operation: Operation, range: &Range<u64>) {
        let Some(answer) = sent.answer.take() else { return };
        self.note(member, false, &answer.result);
        let is_worth_it = match &answer.result {
            Ok(()) => false,
            Err(error) => {
                operation != Operation::Flush
                    && matches!(error.kind(), ErrorKind::Medium | ErrorKind::TimedOut | ErrorKind::Os(_))
            }
        };
        if !is_worth_it || sent.is_repeated {
            sent.answer = Some(answer);
            return;
        }
        let again = Request {
            operation,
            offset: range.start,
            length: range.end - range.start,
            buffer: answer.buffer,
            context: self.children.of(answer.context),
        };
        let (incarnation, again) = (sent.incarnation, self.send(member, again));
        *sent = Sent { is_repeated: true, ..Sent::new(again, incarnation) };
        if let Some(answer) = &sent.answer {
            self.note(member, false, &answer.result);
        }
    }

    /// Whether of every granule of the range someone took it who has the rest of that.
    fn is_taken(&self, took: Set, operation: Operation, range: &Range<u64>) -> bool {
        if operation == Operation::Flush {
            return self
                .members()
                .any(|member| took.has(member) && self.state.slots[member].missed.is_empty());
        }
        granules(range.clone()).all(|granule| !self.state.current(&granule).and(took).is_empty())
    }

    /// Notes who did not take a write; an error if for some byte nobody took it who had what was there before.
    fn settle(&self, round: &Round, late: Option<Error>) -> Result<()> {
        // Before it is clear who took it: who is taken out from now on is known to have it unflushed, or not to have taken it.
        self.state.unflushed.note(&round.range);
        let took = round.took(self);
        let is_plain =
            self.members().all(|member| took.has(member) && self.state.slots[member].missed.is_empty());
        if is_plain {
            return Ok(());
        }
        let mut is_taken = true;
        for granule in granules(round.range.clone()) {
            let had = self.state.current(&granule);
            let good = had.and(took);
            if good.is_empty() {
                is_taken = false;
                // What they have now may differ: all but one are out, so that a reader finds always the same.
                if let Some(keeper) = had.first().filter(|_| round.has_effect()) {
                    for member in self.members().filter(|&member| member != keeper && had.has(member)) {
                        self.state.note_missed(member, &granule, Set::default().with(keeper));
                    }
                }
                continue;
            }
            for member in self.members().filter(|&member| !took.has(member)) {
                self.state.note_missed(member, &granule, good);
            }
        }
        if is_taken {
            return Ok(());
        }
        let found = round.sent.iter().flatten().find_map(|sent| sent.answer.as_ref()?.result.as_ref().err());
        let none =
            || Error::new(ErrorKind::Medium, "no member that has what was written last took the write");
        Err(found.map(|error| Error::new(error.kind(), error.to_string())).or(late).unwrap_or_else(none))
    }

    /// Whether somebody has to be told who keeps what is missed.
    fn has_to_record(&self, took: Set) -> bool {
        self.state.miss_log.get().is_some() && !self.members().all(|member| took.has(member))
    }

    /// Has it made durable that some members have missed a write.
    async fn record(&self, took: Set, range: &Range<u64>) -> Result<()> {
        let Some(log) = self.state.miss_log.get() else { return Ok(()) };
        for member in self.members().filter(|&member| !took.has(member)) {
            if let Some(recording) = log.missed(&self.runtime, member, range.clone()) {
                recording.await?;
            }
        }
        Ok(())
    }

    pub(super) fn flush(self: &Rc<Self>, request: Request) -> Submission {
        let context = request.context;
        let flushing =
            Flushing { queue: Rc::clone(self), number: self.state.unflushed.begin(), is_done: false };
        let mut round = match self.begin(request) {
            Ok(round) => round,
            Err(completion) => return (*completion).into(),
        };
        let asked = round.asked();
        if round.is_answered_well() && !self.state.has_forgotten() {
            flushing.end_well();
            return Completion { result: Ok(()), buffer: round.into_buffer(), context }.into();
        }
        let queue = Rc::clone(self);
        Submission::pending(async move {
            let flushing = flushing;
            // Whoever flushed has everything, for what a late one may leave out.
            round.range = 0..queue.state.info.size;
            let patience = queue.state.options.patience.saturating_mul(FLUSH_PATIENCE);
            let late = queue.wait(&mut round, patience).await;
            let took = round.took(&queue);
            let result = queue.settle_flush(&round, asked, late);
            let result = match result {
                Ok(()) if took != asked => queue.record(took, &round.range).await,
                other => other,
            };
            let result = match result {
                Ok(()) => queue.record_forgotten().await,
                other => other,
            };
            if result.is_ok() {
                flushing.end_well();
            }
            Completion { result, buffer: round.into_buffer(), context }
        })
    }

    /// Has it made durable what members that were taken out may have forgotten, now that it is durable elsewhere.
    async fn record_forgotten(&self) -> Result<()> {
        if !self.state.has_forgotten() {
            return Ok(());
        }
        let mut left = self.state.take_forgotten();
        let Some(log) = self.state.miss_log.get() else { return Ok(()) };
        while let Some((member, range)) = left.last().cloned() {
            let recorded = match log.missed(&self.runtime, member, range) {
                Some(recording) => recording.await,
                None => Ok(()),
            };
            if let Err(error) = recorded {
                self.state.give_back_forgotten(left);
                return Err(error);
            }
            left.pop();
        }
        Ok(())
    }

    /// A member whose flush failed may have lost anything since the one before, so it counts as having nothing. That takes
    /// another that has everything.
    fn settle_flush(&self, round: &Round, asked: Set, late: Option<Error>) -> Result<()> {
        let took = round.took(self);
        for member in self.members().filter(|&member| asked.has(member) && !took.has(member)) {
            if self.state.note_missed(member, &round.range, took) == Noted::Refused {
                let error =
                    round.sent[member].as_ref().and_then(|sent| sent.answer.as_ref()?.result.as_ref().err());
                let none = || {
                    Error::new(
                        ErrorKind::Medium,
                        "a member could not be flushed, and no other has everything",
                    )
                };
                return Err(error
                    .map(|error| Error::new(error.kind(), error.to_string()))
                    .or(late)
                    .unwrap_or_else(none));
            }
        }
        if took.is_empty() { Err(late.unwrap_or_else(Error::medium)) } else { Ok(()) }
    }
}

impl Sent {
    fn new((submission, flight): (Submission, Flight), incarnation: u64) -> Self {
        let (waiting, answer) = match submission.try_take() {
            Ok(completion) => (None, Some(completion)),
            Err(submission) => (Some((submission, flight)), None),
        };
        Self { incarnation, waiting, answer, is_repeated: false }
    }

    fn is_taken(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.result.is_ok())
    }
}

impl Round {
    /// Whether all that were asked have answered at once, and well.
    fn is_answered_well(&self) -> bool {
        let mut sent = self.sent.iter().flatten().peekable();
        sent.peek().is_some() && sent.all(Sent::is_taken)
    }

    fn asked(&self) -> Set {
        let asked = self.sent.iter().enumerate().filter(|(_, sent)| sent.is_some());
        asked.fold(Set::default(), |set, (member, _)| set.with(member))
    }

    /// Those that took it, and are members still.
    fn took(&self, queue: &QueueState) -> Set {
        let took = self.sent.iter().enumerate().filter(|(member, sent)| {
            sent.as_ref().is_some_and(|sent| sent.is_taken() && queue.is_same(*member, sent.incarnation))
        });
        took.fold(Set::default(), |set, (member, _)| set.with(member))
    }

    /// Whether a request that failed may have changed something all the same.
    fn has_effect(&self) -> bool {
        let answers =
            self.sent.iter().flatten().map(|sent| sent.answer.as_ref().map(|answer| &answer.result));
        let is_refused = |result: Option<&Result<()>>| matches!(result, Some(Err(error)) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Unsupported));
        !answers.into_iter().all(is_refused)
    }

    /// A buffer with the data; of whoever has answered.
    fn into_buffer(self) -> Buffer {
        let answers = self.sent.into_iter().flatten().filter_map(|sent| sent.answer);
        answers.map(|answer| answer.buffer).next_back().unwrap_or(Buffer::empty())
    }
}

/// A range, cut at the edges of granules.
pub(super) fn granules(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let end = ((start / GRANULE_BYTES + 1) * GRANULE_BYTES).min(range.end);
            std::mem::replace(&mut start, end)..end
        })
    })
}
