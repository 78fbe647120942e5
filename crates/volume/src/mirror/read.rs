//! Reads of a mirror: from one member, and from another where that one fails or does not answer in time.
//!
//! What a member could not read is written there again from another, with writes of others kept away: a disk then gives the
//! sector a new place.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rotproof_block::{Buffer, Completion, Context, Error, ErrorKind, Request, Result, Submission};

use super::queue_state::{Flight, QueueState};
use super::report::{MirrorEvent, add};
use super::state::Set;

/// Where a range cannot be read from one member as a whole, it is halved down to this, so that what can be read is.
const PIECE_BYTES: u64 = 4096;

/// A read that was not answered in time, and still may be.
type Late = (usize, Submission, Flight);

/// What has become of a range so far.
#[derive(Default)]
struct Tried {
    asked: Set,
    /// Those that answered with an error.
    failed: Set,
    late: Vec<Late>,
    error: Option<Error>,
}

impl Tried {
    fn fail(&mut self, member: usize, error: Error) {
        self.failed = self.failed.with(member);
        // That one copy cannot be read says more than that another member is away.
        if self.error.as_ref().is_none_or(|known| known.kind() == ErrorKind::Gone) {
            self.error = Some(error);
        }
    }
}

/// Which bytes are read, for whom.
#[derive(Clone)]
struct Extent {
    range: Range<u64>,
    context: Context,
}

impl Extent {
    fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }
}

/// Who has answered.
enum Answer {
    Of(usize, Completion),
    /// As well, when nobody counted on it any more.
    Late(usize, Completion),
    /// The time is up.
    None,
}

impl QueueState {
    pub(super) fn read(self: &Rc<Self>, request: Request) -> Submission {
        self.look();
        let place = Extent { range: request.offset..request.end(), context: request.context };
        let Some(member) = self.choose(&place.range, Set::default()) else {
            let queue = Rc::clone(self);
            return Submission::pending(async move { queue.read_in_pieces(request, false).await });
        };
        let (submission, flight) = self.send(member, request);
        match submission.try_take() {
            Ok(completion) if completion.result.is_ok() => {
                self.note(member, true, &completion.result);
                completion.into()
            }
            Ok(completion) => {
                drop(flight);
                let queue = Rc::clone(self);
                Submission::pending(async move { queue.go_on(place, member, completion).await })
            }
            Err(submission) => {
                let queue = Rc::clone(self);
                Submission::pending(async move { queue.wait_for(place, member, submission, flight).await })
            }
        }
    }

    /// Waits for the first answer.
    async fn wait_for(
        self: &Rc<Self>,
        place: Extent,
        member: usize,
        submission: Submission,
        flight: Flight,
    ) -> Completion {
        match self.within(self.state.options.patience, submission).await {
            Ok(completion) => {
                drop(flight);
                if completion.result.is_ok() {
                    self.note(member, true, &completion.result);
                    return completion;
                }
                self.go_on(place, member, completion).await
            }
            Err(submission) => {
                self.note_late_read(member);
                let mut tried = Tried { asked: Set::default().with(member), ..Tried::default() };
                tried.late.push((member, submission, flight));
                let result = self.recover(&place, tried).await;
                self.conclude(place, result, None).await
            }
        }
    }

    /// Goes on after a member has answered with an error.
    async fn go_on(self: &Rc<Self>, place: Extent, member: usize, completion: Completion) -> Completion {
        let Completion { result, buffer, .. } = completion;
        self.note(member, true, &result);
        let mut tried = Tried { asked: Set::default().with(member), ..Tried::default() };
        if let Err(error) = result {
            tried.fail(member, error);
        }
        let result = self.recover(&place, tried).await;
        self.conclude(place, result, Some(buffer)).await
    }

    /// What the reader gets; piece by piece, if no member has it as a whole. `buffer` is his, where that is at hand.
    async fn conclude(
        self: &Rc<Self>,
        place: Extent,
        result: Result<Buffer>,
        buffer: Option<Buffer>,
    ) -> Completion {
        let error = match result {
            Ok(buffer) => return Completion { result: Ok(()), buffer, context: place.context },
            Err(error) => error,
        };
        let buffer = buffer.unwrap_or_else(|| Buffer::zeroed(place.length()));
        if place.length() as u64 > self.piece() && error.kind() != ErrorKind::Gone {
            let request = Request::read(place.range.start, buffer, place.context);
            return self.read_in_pieces(request, true).await;
        }
        self.state.tell(&MirrorEvent::Unreadable { range: place.range });
        Completion { result: Err(error), buffer, context: place.context }
    }

    /// Reads what no member has as a whole, or, if it `is_tried`, could read as a whole.
    async fn read_in_pieces(self: &Rc<Self>, mut request: Request, is_tried: bool) -> Completion {
        let whole = request.offset..request.end();
        let piece = self.piece();
        let mut error = None;
        let mut rest = vec![whole.clone()];
        while let Some(range) = rest.pop() {
            let place = Extent { range: range.clone(), context: request.context };
            let result = match self.choose(&range, Set::default()) {
                Some(_) if is_tried && range == whole => Err(Error::medium()),
                Some(_) => self.recover(&place, Tried::default()).await,
                None => Err(Error::new(ErrorKind::Medium, "no copy has what was written here last")),
            };
            match result {
                Ok(found) => {
                    let start = (range.start - whole.start) as usize;
                    request.buffer[start..start + found.len()].copy_from_slice(&found);
                }
                Err(_) if range.end - range.start > piece => {
                    let half = range.start + ((range.end - range.start) / 2).next_multiple_of(piece);
                    let half = half / piece * piece;
                    // The later half first, so that the earlier is taken next.
                    rest.extend([half..range.end, range.start..half]);
                }
                Err(found) => {
                    self.state.tell(&MirrorEvent::Unreadable { range });
                    error.get_or_insert(found);
                }
            }
        }
        Completion { result: error.map_or(Ok(()), Err), buffer: request.buffer, context: request.context }
    }

    /// The least that is read by itself.
    fn piece(&self) -> u64 {
        PIECE_BYTES.max(self.state.info.block_size.into())
    }

    /// Reads a range from whoever has not been asked yet, and writes it again where it could not be read.
    async fn recover(self: &Rc<Self>, place: &Extent, mut tried: Tried) -> Result<Buffer> {
        self.look();
        let mut closed = None;
        if !tried.failed.is_empty() && self.is_repairable(place, tried.failed) {
            closed = Some(self.state.gate.close(place.range.clone()).await);
        }
        let found = loop {
            let next = self.choose(&place.range, tried.asked);
            if next.is_none() && tried.late.is_empty() {
                break None;
            }
            let mut asked = next.map(|member| {
                tried.asked = tried.asked.with(member);
                let request = Request::read(
                    place.range.start,
                    Buffer::stale(place.length()),
                    self.children.of(place.context),
                );
                let (submission, flight) = self.send(member, request);
                (member, submission, flight)
            });
            // With nobody else to ask there is all the time in the world.
            let patience = asked.is_some().then_some(self.state.options.patience);
            match self.first_of(&mut asked, &mut tried.late, patience).await {
                Answer::Of(member, Completion { result, buffer, .. }) => {
                    self.note(member, true, &result);
                    match result {
                        Ok(()) => break Some((member, buffer)),
                        Err(error) => tried.fail(member, error),
                    }
                }
                Answer::Late(member, Completion { result, buffer, .. }) => {
                    tried.late.extend(asked.take());
                    match result {
                        Ok(()) => break Some((member, buffer)),
                        Err(error) => {
                            self.note_error(member, true, &error);
                            tried.fail(member, error);
                        }
                    }
                }
                Answer::None => {
                    // Nobody is kept from writing for longer.
                    closed = None;
                    if let Some(asked) = asked.take() {
                        self.note_late_read(asked.0);
                        tried.late.push(asked);
                    }
                }
            }
        };
        for (_, submission, flight) in tried.late {
            self.let_go(submission, flight);
        }
        let Some((member, buffer)) = found else {
            return Err(tried.error.unwrap_or_else(Error::medium));
        };
        if !tried.failed.is_empty() && self.is_repairable(place, tried.failed) {
            let fresh = match &closed {
                Some(_) => Some(Buffer::copy_of(&buffer)),
                // Somebody may have written since.
                None => {
                    closed = Some(self.state.gate.close(place.range.clone()).await);
                    self.read_from(member, place).await
                }
            };
            if let Some(fresh) = fresh {
                self.write_again(place, tried.failed, fresh).await;
            }
        }
        drop(closed);
        Ok(buffer)
    }

    /// Whether some of these members can be given again what they could not read.
    fn is_repairable(&self, place: &Extent, failed: Set) -> bool {
        !self.state.info.read_only
            && !place.range.is_empty()
            && self.members().any(|member| failed.has(member) && self.state.slots[member].is_active())
    }

    /// The first answer of the one that was asked last, or of those that are late. Whoever has answered is taken out.
    async fn first_of(
        &self,
        asked: &mut Option<Late>,
        late: &mut Vec<Late>,
        patience: Option<Duration>,
    ) -> Answer {
        let mut end = None;
        poll_fn(|context| {
            if let Some((member, submission, _)) = asked
                && let Poll::Ready(completion) = Pin::new(submission).poll(context)
            {
                let member = *member;
                *asked = None;
                return Poll::Ready(Answer::Of(member, completion));
            }
            for number in 0..late.len() {
                if let Poll::Ready(completion) = Pin::new(&mut late[number].1).poll(context) {
                    let (member, _, _) = late.swap_remove(number);
                    return Poll::Ready(Answer::Late(member, completion));
                }
            }
            if let Some(patience) = patience {
                let end = end.get_or_insert_with(|| self.runtime.sleep(patience));
                if Pin::new(end).poll(context).is_ready() {
                    return Poll::Ready(Answer::None);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// What a member has; nothing if it does not answer with that in time.
    async fn read_from(self: &Rc<Self>, member: usize, place: &Extent) -> Option<Buffer> {
        let request =
            Request::read(place.range.start, Buffer::stale(place.length()), self.children.of(place.context));
        let (submission, flight) = self.send(member, request);
        match self.within(self.state.options.patience, submission).await {
            Ok(completion) => {
                self.note(member, true, &completion.result);
                completion.result.ok().map(|()| completion.buffer)
            }
            Err(submission) => {
                self.note_late_read(member);
                self.let_go(submission, flight);
                None
            }
        }
    }

    /// Writes to these members what they could not read. The range is closed.
    async fn write_again(self: &Rc<Self>, place: &Extent, failed: Set, data: Buffer) {
        for member in self.members().filter(|&member| failed.has(member)) {
            if self.state.slots[member].is_active() {
                let copy = Buffer::copy_of(&data);
                if self.put(member, place.range.clone(), copy, place.context).await {
                    add(&self.state.slots[member].counts.repaired_bytes, data.len() as u64);
                    self.state.tell(&MirrorEvent::Repaired { member, range: place.range.clone() });
                }
            }
        }
    }

    /// Writes to one member what the others have; whether it took it. The range is closed.
    pub(super) async fn put(
        self: &Rc<Self>,
        member: usize,
        range: Range<u64>,
        data: Buffer,
        context: Context,
    ) -> bool {
        let request = Request::write(range.start, data, self.children.of(context));
        let (submission, flight) = self.send(member, request);
        let others = self.state.current(&range);
        match self.within(self.state.options.patience, submission).await {
            Ok(completion) => {
                self.note(member, false, &completion.result);
                if completion.result.is_err() {
                    self.state.note_missed(member, &range, others);
                } else {
                    self.state.unflushed.note(&range);
                }
                completion.result.is_ok()
            }
            Err(submission) => {
                self.state.note_missed(member, &range, others);
                self.state.note_late_write(member);
                self.let_stray(submission, flight, range);
                false
            }
        }
    }
}
