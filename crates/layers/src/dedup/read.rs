//! Reads: from where the logical blocks lie, in as few requests as there are runs of physical blocks.
//!
//! While a read is under way it refers to all its physical blocks, so none of them can be given to another content. It
//! sees the map as it was at one moment, whatever is written meanwhile.

use std::rc::Rc;

use rotproof_block::{Buffer, Completion, Request, Submission};

use super::queue_state::{Part, QueueState, join};
use super::store::Run;
use super::{BLOCK_BYTES, blocks_of};

/// References to what a read is to see.
struct Pinned {
    queue: Rc<QueueState>,
    runs: Vec<Run>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.queue.store.unpin(&self.runs);
        self.queue.spare_runs.give(std::mem::take(&mut self.runs));
    }
}

/// Carries out a read that has been checked and is not empty.
pub(super) fn read(queue: &Rc<QueueState>, mut request: Request) -> Submission {
    let mut pinned = Pinned { queue: Rc::clone(queue), runs: queue.spare_runs.take() };
    queue.store.pin(blocks_of(&request), &mut pinned.runs);
    match pinned.runs[..] {
        [Run { physical: None, .. }] => {
            request.buffer.fill(0);
            request.succeed().into()
        }
        [Run { physical: Some(first), .. }] => {
            let offset = u64::from(first) * BLOCK_BYTES + request.offset % BLOCK_BYTES;
            match queue.below.submit(Request { offset, ..request }).try_take() {
                Ok(completion) => completion.into(),
                Err(submission) => Submission::pending(async move {
                    let completion = submission.await;
                    drop(pinned);
                    completion
                }),
            }
        }
        _ => Submission::pending(gather(pinned, request)),
    }
}

/// Reads several runs at the same time and puts them together.
async fn gather(pinned: Pinned, mut request: Request) -> Completion {
    let queue = &*pinned.queue;
    let mut parts = Vec::with_capacity(pinned.runs.len());
    let mut places = Vec::with_capacity(pinned.runs.len());
    // Where each run begins on the device; the first and the last may be asked for in part.
    let mut run_start = request.offset / BLOCK_BYTES * BLOCK_BYTES;
    for run in &pinned.runs {
        let run_end = run_start + u64::from(run.blocks) * BLOCK_BYTES;
        let (start, end) = (run_start.max(request.offset), run_end.min(request.end()));
        let place = (start - request.offset) as usize..(end - request.offset) as usize;
        match run.physical {
            None => request.buffer[place].fill(0),
            Some(first) => {
                let offset = u64::from(first) * BLOCK_BYTES + (start - run_start);
                let read = Request::read(offset, Buffer::stale(place.len()), queue.child(request.context));
                parts.push(Part::Submitted(queue.below.submit(read)));
                places.push(place);
            }
        }
        run_start = run_end;
    }
    join(&mut parts).await;
    let mut result = Ok(());
    for (part, place) in parts.into_iter().zip(places) {
        let Part::Completed(Completion { result: part_result, buffer, .. }) = part else {
            unreachable!("joined")
        };
        match part_result {
            Ok(()) => request.buffer[place].copy_from_slice(&buffer),
            Err(error) => result = Err(error),
        }
    }
    Completion { result, buffer: request.buffer, context: request.context }
}
