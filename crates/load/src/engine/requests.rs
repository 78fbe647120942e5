//! What a worker's slots do with one step: the request, its verification, and the entry in the books.

use std::task::Waker;
use std::time::Duration;

use rotproof_block::{Buffer, Completion, Context, Error, ErrorKind, Operation, Phase, Request, Time};
use rotproof_record::Measured;

use super::report::{Incident, LoadOperation, Sighting};
use super::state::{Planned, State};
use super::unflushed::Covered;
use super::watch::Flight;
use super::worker::Worker;
use super::wrong_data::WrongData;
use crate::BLOCK_BYTES;
use crate::content::{ContentId, SECTOR_BYTES, Stage};
use crate::evidence::Evidence;
use crate::layout::{Extent, Layout};
use crate::stream::{Contents, Step};

/// One request's answer.
struct Answer {
    error: Option<Error>,
    buffer: Buffer,
    /// For the first time.
    submitted: Time,
    completed: Time,
    /// How often it was tried again.
    retries: u32,
    /// The slot never had to wait.
    was_immediate: bool,
}

/// Buffers that a worker keeps to send again.
const SPARE_MAX: usize = 1024;

const PUBLISHED_REQUESTS: u64 = 64;
const PUBLISHED_EVERY: Duration = Duration::from_millis(50);

impl Worker {
    async fn submit(&self, slot: usize, object: u32, request: impl FnOnce(Context) -> Request) -> Answer {
        let (id, phase) = {
            let mut state = self.state();
            state.requests += 1;
            (state.requests, state.phase)
        };
        let submitted = self.runtime.now();
        let context = Context {
            id,
            submitted,
            tag: self.tags[object as usize],
            queue: self.number,
            phase,
            ..Context::default()
        };
        let request = request(context);
        let flight = Flight::of(&request, object, submitted);
        let queue = &self.queues[object as usize];
        let submission = match &self.parked {
            None => queue.submit(request),
            Some(parked) => {
                self.state().flights[slot] = Some(flight);
                match self.in_call(parked, || queue.submit(request)) {
                    Some(submission) => submission,
                    // Nobody waits for this worker any more.
                    None => std::future::pending().await,
                }
            }
        };
        let (completion, was_immediate) = match submission.try_take() {
            Ok(completion) => (completion, true),
            Err(submission) => {
                self.state().flights[slot] = Some(flight);
                (submission.await, false)
            }
        };
        let Completion { result, buffer, .. } = completion;
        let completed = self.runtime.now();
        if !was_immediate || self.parked.is_some() {
            self.state().came_back(slot, completed);
        }
        Answer { error: result.err(), buffer, submitted, completed, retries: 0, was_immediate }
    }

    /// As the load's policy says, if the first answer is an error. What reads fill is made unrecognisable before each.
    async fn try_again(&self, slot: usize, extent: &Extent, operation: Operation, first: Answer) -> Answer {
        let mut answer = first;
        let Some(retry) = &self.retry else { return answer };
        while let Some(error) = &answer.error
            && answer.retries < retry.count
            && retry.applies(error.kind())
            && !self.is_cancelled()
        {
            if !retry.delay.0.is_zero() {
                self.runtime.sleep(retry.delay.0).await;
            }
            let Answer { mut buffer, submitted, retries, .. } = answer;
            if operation == Operation::Read {
                unmark(&mut buffer);
            }
            let offset = extent.offset_bytes();
            let again = self
                .submit(slot, extent.object, |context| Request {
                    operation,
                    ..Request::write(offset, buffer, context)
                })
                .await;
            answer = Answer { submitted, retries: retries + 1, was_immediate: false, ..again };
        }
        answer
    }

    /// What a write sends.
    fn outgoing(&self, contents: &Contents, len_bytes: usize, first: u64) -> Buffer {
        if !self.verify {
            let spare = &mut self.state().spare;
            if let Some(fitting) = spare.iter().rposition(|buffer| buffer.len() == len_bytes) {
                return spare.swap_remove(fitting);
            }
        }
        let mut buffer = Buffer::stale(len_bytes);
        for (block, n) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(first..) {
            self.content.fill(contents.content(n), block);
        }
        buffer
    }

    /// Does a step that writes.
    pub(super) async fn write(&self, slot: usize, planned: Planned) -> bool {
        let Step::Write { extent, first, fua } = planned.step else { return false };
        let contents = self.contents.as_ref().expect("only a stream writes, and it has contents");
        let buffer = self.outgoing(contents, extent.len_bytes(), first);
        // Both now and when it has completed: a flush in between is due, but does not cover it.
        {
            let mut state = self.state();
            state.is_dirty[extent.object as usize] |= !fua;
            state.unflushed.send(slot);
        }
        let operation = Operation::Write { fua };
        let mut answer = self
            .submit(slot, extent.object, |context| Request {
                operation,
                ..Request::write(extent.offset_bytes(), buffer, context)
            })
            .await;
        if answer.error.is_some() {
            answer = self.try_again(slot, &extent, operation, answer).await;
        }
        let mut guard = self.state();
        let state = &mut *guard;
        state.unflushed.end(slot);
        state.is_dirty[extent.object as usize] |= !fua;
        let written = extent.target_blocks().zip(first..).map(|(block, n)| (block, contents.content(n)));
        if !self.verify {
            // A trace may have requests of many sizes.
            if state.spare.len() < SPARE_MAX {
                state.spare.push(std::mem::replace(&mut answer.buffer, Buffer::empty()));
            }
        } else if answer.error.is_none() {
            for (block, content) in written {
                state.part.written(block, content);
            }
        } else {
            for (block, content) in written {
                state.part.write_failed(block, content);
                self.saw_error(state, block, LoadOperation::Write, vec![content], &answer);
            }
        }
        self.complete(state, LoadOperation::Write, Some((slot, &extent)), &answer, planned);
        answer.was_immediate
    }

    pub(super) async fn read(&self, slot: usize, extent: Extent, planned: Planned) -> bool {
        let mut answer = self.submit_read(slot, extent).await;
        if answer.error.is_some() {
            if self.phase == Phase::Check {
                self.narrow_down(slot, extent).await;
            } else {
                answer = self.try_again(slot, &extent, Operation::Read, answer).await;
            }
        }
        let mut guard = self.state();
        let state = &mut *guard;
        if answer.error.is_none() {
            if self.verify {
                self.verify(state, &extent, &answer);
            }
        } else if self.verify && self.phase != Phase::Check {
            // The request failed as a whole, and so did every block that its user wanted.
            for block in extent.target_blocks() {
                let expected = state.part.legal(block);
                self.saw_error(state, block, LoadOperation::Read, expected, &answer);
            }
        }
        self.complete(state, LoadOperation::Read, Some((slot, &extent)), &answer, planned);
        answer.was_immediate
    }

    async fn submit_read(&self, slot: usize, extent: Extent) -> Answer {
        let mut buffer = Buffer::stale(extent.len_bytes());
        if self.verify {
            unmark(&mut buffer);
        }
        self.submit(slot, extent.object, |context| Request::read(extent.offset_bytes(), buffer, context))
            .await
    }

    /// Reads the halves of an extent that failed, and theirs, down to the single blocks that cannot be read.
    async fn narrow_down(&self, slot: usize, failed: Extent) {
        let mut open =
            if failed.blocks == 1 { vec![failed] } else { halves(self.workload.layout(), failed).to_vec() };
        while let Some(extent) = open.pop() {
            if self.is_cancelled() {
                return;
            }
            let answer = self.submit_read(slot, extent).await;
            let mut state = self.state();
            if answer.error.is_none() {
                self.verify(&mut state, &extent, &answer);
            } else if extent.blocks == 1 {
                let expected = state.part.legal(extent.first_block);
                self.saw_error(&mut state, extent.first_block, LoadOperation::Read, expected, &answer);
            } else {
                open.extend(halves(self.workload.layout(), extent));
            }
        }
    }

    #[inline]
    fn verify(&self, state: &mut State, extent: &Extent, answer: &Answer) {
        for (block, data) in extent.target_blocks().zip(answer.buffer.chunks_exact(BLOCK_BYTES)) {
            state.part.note_read(block);
            if !state.part.accepts(&self.content, block, data) {
                let wrong = WrongData { block, data, phase: self.phase, time: answer.completed };
                let State { tally, part, unpublished, .. } = state;
                if wrong.enter(tally, part, &self.content) {
                    unpublished.failures += 1;
                }
            }
        }
    }

    #[cold]
    fn saw_error(
        &self,
        state: &mut State,
        block: u64,
        operation: LoadOperation,
        expected: Vec<ContentId>,
        answer: &Answer,
    ) {
        if let Some(error) = &answer.error {
            self.saw(state, block, operation, expected, Evidence::Error(error.kind()), answer.completed);
        }
    }

    #[cold]
    fn saw(
        &self,
        state: &mut State,
        block: u64,
        operation: LoadOperation,
        expected: Vec<ContentId>,
        evidence: Evidence,
        time: Time,
    ) {
        let sighting = Sighting { block, phase: self.phase, time, operation, expected, evidence, count: 1 };
        if state.tally.saw(sighting) {
            state.unpublished.failures += 1;
        }
    }

    /// Does a step that gives up contents. Where the target has no such operation nothing happens, and that is counted.
    pub(super) async fn discard(&self, slot: usize, extent: Extent, planned: Planned) -> bool {
        let (offset, length) = (extent.offset_bytes(), extent.len_bytes() as u64);
        let answer =
            self.submit(slot, extent.object, |context| Request::discard(offset, length, context)).await;
        let mut guard = self.state();
        let state = &mut *guard;
        let is_unsupported =
            answer.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Unsupported);
        if is_unsupported {
            state.tally.unsupported_discards += 1;
            state.in_flight.end(slot);
            state.blocked.drain(..).for_each(Waker::wake);
            return answer.was_immediate;
        }
        if self.verify {
            extent.target_blocks().for_each(|block| state.part.discarded(block));
        }
        self.complete(state, LoadOperation::Discard, Some((slot, &extent)), &answer, planned);
        answer.was_immediate
    }

    /// Makes durable what has been written, object by object.
    pub(super) async fn flush(&self, slot: usize, planned: Planned) {
        for object in 0..self.queues.len() {
            if !std::mem::take(&mut self.state().is_dirty[object]) {
                continue;
            }
            let covered = self.state().unflushed.covered();
            let answer = self.submit(slot, object as u32, Request::flush).await;
            let mut guard = self.state();
            let state = &mut *guard;
            self.doubt(state, object, covered, &answer);
            if let Some(error) = &answer.error {
                state.tally.failed(Incident {
                    object: object as u32,
                    offset_bytes: 0,
                    length_bytes: 0,
                    operation: LoadOperation::Flush,
                    error: error.kind(),
                    sent: answer.submitted,
                    time: answer.completed,
                });
            }
            self.complete(state, LoadOperation::Flush, None, &answer, planned);
        }
    }

    /// Tells the oracle what a flush of an object has left in doubt, if anything, of which `covered` is what it covers.
    fn doubt(&self, state: &mut State, object: usize, covered: Covered, answer: &Answer) {
        let stage = match self.phase {
            Phase::Prefill => Stage::Prefill,
            _ => Stage::Run,
        };
        // Where there is no such operation, nothing was promised.
        let is_failure = answer.error.as_ref().is_some_and(|error| error.kind() != ErrorKind::Unsupported);
        let doubtful = state.unflushed.flushed(object, covered, is_failure);
        if self.verify {
            for blocks in doubtful {
                state.part.doubt(object as u32, stage, blocks, answer.completed);
            }
        }
    }

    /// Enters a completed request into the books and lets those go on that waited for it.
    fn complete(
        &self,
        state: &mut State,
        operation: LoadOperation,
        transfer: Option<(usize, &Extent)>,
        answer: &Answer,
        planned: Planned,
    ) {
        let error = answer.error.as_ref().map(Error::kind);
        let mut bytes = 0;
        if let Some((slot, extent)) = transfer {
            bytes = extent.len_bytes() as u64;
            state.in_flight.end(slot);
            if let Some(error) = error {
                state.tally.failed(Incident {
                    object: extent.object,
                    offset_bytes: extent.offset_bytes(),
                    length_bytes: bytes,
                    operation,
                    error,
                    sent: answer.submitted,
                    time: answer.completed,
                });
            }
        }
        let report = state.tally.figures(operation, planned.is_cool_down);
        if planned.is_recorded {
            let began = planned.due.unwrap_or(answer.submitted);
            report.record(answer.completed.since(began), bytes, error);
            if let Some(recorder) = &mut state.recorder {
                recorder.record(&Measured {
                    operation: operation as u8,
                    began,
                    ended: answer.completed,
                    bytes,
                    retries: answer.retries,
                    error,
                });
            }
        } else if let Some(error) = error {
            report.record_unrecorded_error(error);
        }
        report.retries += u64::from(answer.retries);
        for waker in state.blocked.drain(..) {
            waker.wake();
        }
        if state.now != answer.completed {
            state.now = answer.completed;
            state.steps_at_now = 0;
        }
        let latency = answer.completed.since(planned.due.unwrap_or(answer.submitted));
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        state.unpublished.count(operation.into(), latency_ns, bytes, error.is_some());
        if state.unpublished.requests >= PUBLISHED_REQUESTS
            || state.now.since(state.published) >= PUBLISHED_EVERY
        {
            state.publish(&self.progress);
        }
    }
}

/// Makes a buffer that is to be read into unrecognisable. Old memory may hold the very content that is expected. No
/// sector without its first word is recognised, so a read that returns without having read is seen.
fn unmark(buffer: &mut Buffer) {
    for sector in buffer.chunks_exact_mut(SECTOR_BYTES) {
        sector[..8].fill(0);
    }
}

/// Both halves of an extent of more than one block.
fn halves(layout: &Layout, extent: Extent) -> [Extent; 2] {
    let first = u64::from(extent.blocks / 2);
    let second = u64::from(extent.blocks) - first;
    [layout.extent_at(extent.first_block, first), layout.extent_at(extent.first_block + first, second)]
}
