//! The future of a [`Completion`]: without an allocation where the answer is known or the kernel holds the request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use crate::leaf::Witness;
use crate::pooled::PooledFuture;
use crate::runtime::FileIo;
use crate::{Completion, Context, Error, ErrorKind};

/// A request under way. Await it, once, for its [`Completion`].
pub struct Submission(Inner);

enum Inner {
    Ready(Option<Completion>),
    /// A transfer in the runtime's file I/O.
    File {
        io: FileIo,
        context: Context,
        length: u64,
        short: ErrorKind,
        witness: Rc<Witness>,
    },
    Pooled(PooledFuture<Completion>),
}

impl Submission {
    /// Completed already.
    pub fn ready(completion: Completion) -> Self {
        Self(Inner::Ready(Some(completion)))
    }

    /// Completes when the file I/O does; a transfer of fewer than `length` bytes is an error of the kind `short`. A
    /// failure is told to `witness`.
    pub(crate) fn file(
        io: FileIo,
        context: Context,
        length: u64,
        short: ErrorKind,
        witness: Rc<Witness>,
    ) -> Self {
        Self(Inner::File { io, context, length, short, witness })
    }

    /// Runs `future`; its memory is pooled. For layers that act after the one below.
    pub fn pending(future: impl Future<Output = Completion> + 'static) -> Self {
        Self(Inner::Pooled(PooledFuture::new(future)))
    }

    /// The completion, if it is known already; otherwise the submission back. Lets a layer or an export finish
    /// without a poll what the leaf finished at once.
    pub fn try_take(self) -> Result<Completion, Submission> {
        match self.0 {
            Inner::Ready(Some(completion)) => Ok(completion),
            other => Err(Self(other)),
        }
    }
}

impl From<Completion> for Submission {
    fn from(completion: Completion) -> Self {
        Self::ready(completion)
    }
}

impl Future for Submission {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Completion> {
        match &mut self.0 {
            Inner::Ready(completion) => {
                Poll::Ready(completion.take().expect("a submission is not awaited after it has completed"))
            }
            Inner::File { io, context, length, short, witness } => {
                let (result, buffer) = ready!(Pin::new(io).poll(task));
                let result = result.and_then(|transferred| {
                    if transferred as u64 == *length {
                        return Ok(());
                    }
                    let why = if *short == ErrorKind::NoSpace { "no space is left: " } else { "" };
                    Err(Error::new(
                        *short,
                        format!("{why}only {transferred} of {length} bytes were transferred"),
                    ))
                });
                if let Err(error) = &result {
                    witness.note(error);
                }
                Poll::Ready(Completion { result, buffer, context: *context })
            }
            Inner::Pooled(future) => Pin::new(future).poll(task),
        }
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "Submission(completed)",
            Inner::File { .. } => "Submission(in the kernel)",
            Inner::Pooled(_) => "Submission(in a layer)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;
    use crate::{Buffer, Runtime};

    #[test]
    fn a_short_transfer_is_an_error_of_the_kind_it_was_given() {
        let runtime = Runtime::simulated(1);
        let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().expect("a temporary file").into());
        for (short, length) in [(ErrorKind::NoSpace, 8192), (ErrorKind::Medium, 4097)] {
            let io = runtime.write(&file, 0, Buffer::zeroed(4096), false);
            let witness = Rc::new(Witness::default());
            let submission = Submission::file(io, Context::default(), length, short, Rc::clone(&witness));
            let completion = runtime.block_on(submission).expect("completes");
            assert_eq!(completion.result.expect_err("too few bytes").kind(), short);
            assert_eq!(completion.buffer.len(), 4096);
            assert_eq!(witness.0.first_failure().expect("noted").kind(), short);
        }
    }
}
