//! What one ring owes its driver: each request gets exactly one answer, written to guest memory.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::task::Waker;

use rotproof_block::Error;
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK};

use super::request::Segment;
use super::ring::Ring;
use crate::byte_queue::ReadBytes;
use crate::errno::{errno_of, virtio_status};

pub(super) struct Completions {
    ring: RefCell<Ring>,
    owed: Cell<usize>,
    owed_bytes: Cell<u64>,
    answers: Cell<u64>,
    /// The ring cannot go on.
    broken: Cell<bool>,
    /// Who waits for an answer.
    waiting: RefCell<Option<Waker>>,
    /// Lists of segments for requests to come.
    spare: RefCell<Vec<Vec<Segment>>>,
}

impl Completions {
    pub(super) fn new(ring: Ring) -> Rc<Self> {
        Rc::new(Self {
            ring: RefCell::new(ring),
            owed: Cell::default(),
            owed_bytes: Cell::default(),
            answers: Cell::default(),
            broken: Cell::default(),
            waiting: RefCell::default(),
            spare: RefCell::default(),
        })
    }

    /// The ring. Not to be held while a request is handed on: it may be answered at once.
    pub(super) fn ring(&self) -> RefMut<'_, Ring> {
        self.ring.borrow_mut()
    }

    /// Requests without an answer.
    pub(super) fn owed(&self) -> usize {
        self.owed.get()
    }

    /// Bytes of data that these requests concern.
    pub(super) fn owed_bytes(&self) -> u64 {
        self.owed_bytes.get()
    }

    /// Answers given so far.
    pub(super) fn answers(&self) -> u64 {
        self.answers.get()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// The ring is not to be used any more.
    pub(super) fn give_up(&self) {
        self.broken.set(true);
        self.wake();
    }

    /// Wakes `waker` at the next answer.
    pub(super) fn wait_for_answer(&self, waker: &Waker) {
        let waiting = &mut *self.waiting.borrow_mut();
        match waiting {
            Some(old) => old.clone_from(waker),
            None => *waiting = Some(waker.clone()),
        }
    }

    /// An empty list.
    pub(super) fn segments(&self) -> Vec<Segment> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn put_back(&self, mut segments: Vec<Segment>) {
        segments.clear();
        self.spare.borrow_mut().push(segments);
    }

    fn wake(&self) {
        let waiting = self.waiting.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Owes an answer to one request. Dropped without one, it gives the ring up: a driver waits for ever for what never
/// comes, but knows what to do with a device that is gone.
pub(super) struct Answer {
    completions: Rc<Completions>,
    head: u16,
    status_address: u64,
    bytes: u64,
    /// Where the data is or goes.
    pub(super) segments: Vec<Segment>,
    given: bool,
}

impl Answer {
    /// For the request in the chain `head`, which keeps `bytes` bytes of data in memory.
    pub(super) fn new(
        completions: &Rc<Completions>,
        head: u16,
        status_address: u64,
        bytes: u64,
        segments: Vec<Segment>,
    ) -> Self {
        completions.owed.set(completions.owed.get() + 1);
        completions.owed_bytes.set(completions.owed_bytes.get() + bytes);
        Self { completions: Rc::clone(completions), head, status_address, bytes, segments, given: false }
    }

    /// What a read has brought.
    pub(super) fn data(self, data: &ReadBytes) {
        let is_there = self.completions.ring.borrow().scatter(&self.segments, data);
        if is_there { self.done(data.len()) } else { self.status(VIRTIO_BLK_S_IOERR as u8) }
    }

    /// Success; so many bytes were written to the segments.
    pub(super) fn done(self, written: usize) {
        self.give(VIRTIO_BLK_S_OK as u8, written);
    }

    /// Success, or how the device failed.
    pub(super) fn result(self, result: Result<(), Error>) {
        match result {
            Ok(()) => self.done(0),
            Err(error) => self.error(&error),
        }
    }

    pub(super) fn error(self, error: &Error) {
        self.status(virtio_status(errno_of(error)));
    }

    pub(super) fn status(self, status: u8) {
        self.give(status, 0);
    }

    fn give(mut self, status: u8, written: usize) {
        self.given = true;
        let written = u32::try_from(written).unwrap_or(u32::MAX);
        let completed =
            self.completions.ring.borrow_mut().complete(self.head, self.status_address, status, written);
        self.completions.answers.set(self.completions.answers.get() + 1);
        if completed.is_err() {
            self.completions.broken.set(true);
        }
        self.completions.put_back(std::mem::take(&mut self.segments));
        self.completions.wake();
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.completions.owed.set(self.completions.owed.get() - 1);
        self.completions.owed_bytes.set(self.completions.owed_bytes.get() - self.bytes);
        if !self.given {
            self.completions.give_up();
        }
    }
}
