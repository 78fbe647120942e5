//! Discards and writes of zeros: whole blocks leave the map, and so lose their reference; parts are written as zeros.

use std::rc::Rc;

use rotproof_block::{Buffer, Completion, Request, Submission};

use super::queue_state::QueueState;
use super::write::carry_out;
use super::{BLOCK_BYTES, blocks_of};

/// Carries out a discard or write of zeros that has been checked and is not empty.
pub(super) fn clear(queue: &Rc<QueueState>, request: Request) -> Submission {
    if (request.offset | request.length).is_multiple_of(BLOCK_BYTES) {
        queue.store.unmap(blocks_of(&request));
        return request.succeed().into();
    }
    queue.begin(clear_parts(Rc::clone(queue), request))
}

async fn clear_parts(queue: Rc<QueueState>, request: Request) -> Completion {
    let whole_start = request.offset.next_multiple_of(BLOCK_BYTES);
    let whole_end = request.end() / BLOCK_BYTES * BLOCK_BYTES;
    // Inside one block both are beyond the other's end; then there is one part.
    let parts = if whole_end < whole_start {
        [request.offset..request.end(), 0..0]
    } else {
        [request.offset..whole_start, whole_end..request.end()]
    };
    for part in parts {
        // What is not mapped is zeros already.
        if part.is_empty() || !queue.store.is_mapped(part.start / BLOCK_BYTES) {
            continue;
        }
        let zeros = Buffer::zeroed((part.end - part.start) as usize);
        let write = Request::write(part.start, zeros, queue.child(request.context));
        if let Err(error) = carry_out(Rc::clone(&queue), write).await.result {
            return request.fail(error);
        }
    }
    if whole_start < whole_end {
        queue.store.unmap(whole_start / BLOCK_BYTES..whole_end / BLOCK_BYTES);
    }
    request.succeed()
}
