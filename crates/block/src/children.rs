//! What every layer needs that makes several requests of one: numbers for them, and a way to wait for all.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use crate::{Completion, Context, Submission};

/// Ids of requests that a layer makes start here, far above those that origins count.
const FIRST: u64 = 1 << 63;

/// Numbers the requests that one queue of a layer makes.
#[derive(Debug)]
pub struct Children(Cell<u64>);

impl Default for Children {
    fn default() -> Self {
        Self(Cell::new(FIRST))
    }
}

impl Children {
    /// The context of the next request that is made from one with `context`.
    pub fn of(&self, context: Context) -> Context {
        let id = self.0.get();
        self.0.set(id + 1);
        context.child(id)
    }
}

/// Waits for all; gives their completions in the same order.
pub async fn join(submissions: Vec<Submission>) -> Vec<Completion> {
    let mut waiting: Vec<Result<Completion, Submission>> = submissions.into_iter().map(Err).collect();
    std::future::poll_fn(|context| {
        let mut is_pending = false;
        for entry in &mut waiting {
            if let Err(submission) = entry {
                match Pin::new(submission).poll(context) {
                    Poll::Ready(completion) => *entry = Ok(completion),
                    Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(Result::ok).collect()
}
