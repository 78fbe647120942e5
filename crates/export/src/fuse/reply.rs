//! The answer that each request gets, exactly once, whatever becomes of the task that works on it.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use rotproof_block::Error;

use super::channel::Channel;
use super::ring::FuseRing;
use super::wire::Plain;
use crate::errno::errno_of;

/// Where the answer to a request goes: to where the request came from.
#[derive(Clone)]
pub(super) enum Asker {
    Device(Rc<Channel>),
    /// An entry of the ring.
    Ring(Rc<FuseRing>, usize),
}

impl Asker {
    fn send(&self, unique: u64, error: i32, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Device(channel) => channel.send(unique, error, data),
            Self::Ring(ring, entry) => ring.answer(*entry, unique, error, data),
        }
    }
}

/// Owes an answer to one request. Dropped without one (a task that panicked, a queue that went away) it answers
/// `EIO`, so that no program ever waits for an answer that nobody will give.
pub(super) struct Reply {
    asker: Asker,
    /// Requests of this thread without an answer.
    owed: Rc<Cell<usize>>,
    unique: u64,
    answered: bool,
}

impl Reply {
    pub(super) fn new(asker: Asker, owed: &Rc<Cell<usize>>, unique: u64) -> Self {
        owed.set(owed.get() + 1);
        Self { asker, owed: Rc::clone(owed), unique, answered: false }
    }

    pub(super) fn data(self, data: &[u8]) {
        self.send(0, data);
    }

    pub(super) fn plain(self, fields: &impl Plain) {
        self.send(0, fields.as_bytes());
    }

    pub(super) fn fields(self, answer: Result<impl Plain, i32>) {
        match answer {
            Ok(fields) => self.plain(&fields),
            Err(errno) => self.errno(errno),
        }
    }

    /// Success, or an errno (a positive number).
    pub(super) fn status(self, status: Result<(), i32>) {
        self.send(status.err().unwrap_or(0), &[]);
    }

    pub(super) fn errno(self, errno: i32) {
        self.send(errno, &[]);
    }

    pub(super) fn error(self, error: &Error) {
        self.errno(errno_of(error));
    }

    /// For the messages that the kernel wants no answer to.
    pub(super) fn none(mut self) {
        self.answered = true;
    }

    fn send(mut self, errno: i32, data: &[u8]) {
        self.answered = self.asker.send(self.unique, -errno, data).is_ok();
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.owed.set(self.owed.get() - 1);
        if !self.answered {
            // If this fails too, the kernel has no use for an answer: the connection is gone.
            let _ = self.asker.send(self.unique, -libc::EIO, &[]);
        }
    }
}
