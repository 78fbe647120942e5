//! Replies on their way to a client: each request gets exactly one, many leave in one system call.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;

use rotproof_block::Error;
use rotproof_block::nbd::{self, chunk};

use super::negotiation::BASE_ALLOCATION_ID;
use super::transport::Transport;
use crate::byte_queue::ReadBytes;
use crate::errno::{errno_of, nbd_error};

/// Data up to this size is copied behind its header: that costs less than a part of its own.
const COPIED_BYTES_MAX: usize = 8 << 10;
/// Parts that one system call sends.
const PARTS_PER_CALL: usize = 64;

/// With so much data waiting, sending comes before serving the next request.
const LADEN_BYTES: usize = 128 << 10;

/// How replies look on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Structured,
    Extended,
}

/// What one connection owes its client and has not sent yet.
pub(super) struct ReplyQueue {
    style: Style,
    outbox: RefCell<Outbox>,
    owed: Cell<usize>,
    owed_bytes: Cell<u64>,
}

#[derive(Default)]
struct Outbox {
    /// Headers and short data.
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// Bytes of the data among them that have a part of their own.
    data_bytes: usize,
    /// Who waits for something to send.
    waiting: Option<Waker>,
}

enum Part {
    Bytes(Range<usize>),
    Data(ReadBytes),
}

impl ReplyQueue {
    pub(super) fn new(style: Style) -> Rc<Self> {
        Rc::new(Self {
            style,
            outbox: RefCell::default(),
            owed: Cell::default(),
            owed_bytes: Cell::default(),
        })
    }

    /// Requests without a reply.
    pub(super) fn owed(&self) -> usize {
        self.owed.get()
    }

    /// Bytes of data that these requests concern.
    pub(super) fn owed_bytes(&self) -> u64 {
        self.owed_bytes.get()
    }

    /// Whether so much data waits to be sent that more would not find it in the processor's caches any more.
    pub(super) fn is_laden(&self) -> bool {
        self.outbox.borrow().data_bytes >= LADEN_BYTES
    }

    pub(super) fn has_replies(&self) -> bool {
        !self.outbox.borrow().parts.is_empty()
    }

    /// Wakes `waker` at the next reply.
    pub(super) fn wait_for_reply(&self, waker: &Waker) {
        let waiting = &mut self.outbox.borrow_mut().waiting;
        match waiting {
            Some(old) => old.clone_from(waker),
            None => *waiting = Some(waker.clone()),
        }
    }

    /// Drops the replies: nobody will read them.
    pub(super) fn forget_replies(&self) {
        let mut outbox = self.outbox.borrow_mut();
        outbox.parts.clear();
        outbox.bytes.clear();
        outbox.data_bytes = 0;
    }

    /// Sends all replies.
    pub(super) fn send(&self, transport: &mut Transport) -> io::Result<()> {
        let mut outbox = self.outbox.borrow_mut();
        let Outbox { bytes, parts, data_bytes, .. } = &mut *outbox;
        let mut result = Ok(());
        for group in parts.chunks(PARTS_PER_CALL) {
            let mut slices = [IoSlice::new(&[]); PARTS_PER_CALL];
            for (slice, part) in slices.iter_mut().zip(group) {
                *slice = IoSlice::new(match part {
                    Part::Bytes(range) => &bytes[range.clone()],
                    Part::Data(data) => data,
                });
            }
            result = transport.send(&mut slices[..group.len()]);
            if result.is_err() {
                break;
            }
        }
        parts.clear();
        bytes.clear();
        *data_bytes = 0;
        result
    }
}

impl Outbox {
    fn push(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        fill(&mut self.bytes);
        let end = self.bytes.len();
        match self.parts.last_mut() {
            Some(Part::Bytes(range)) if range.end == start => range.end = end,
            _ => self.parts.push(Part::Bytes(start..end)),
        }
    }

    fn push_data(&mut self, data: ReadBytes) {
        if data.len() <= COPIED_BYTES_MAX {
            self.push(|bytes| bytes.extend_from_slice(&data));
        } else {
            self.data_bytes += data.len();
            self.parts.push(Part::Data(data));
        }
    }
}

/// Owes a reply to one request. Dropped without one (a task that panicked, a queue that went away) it replies `EIO`.
pub(super) struct Reply {
    replies: Rc<ReplyQueue>,
    cookie: u64,
    offset: u64,
    bytes: u64,
    answered: bool,
}

impl Reply {
    /// For the request with this cookie at `offset`, which keeps `bytes` bytes of data in memory.
    pub(super) fn new(replies: &Rc<ReplyQueue>, cookie: u64, offset: u64, bytes: u64) -> Self {
        replies.owed.set(replies.owed.get() + 1);
        replies.owed_bytes.set(replies.owed_bytes.get() + bytes);
        Self { replies: Rc::clone(replies), cookie, offset, bytes, answered: false }
    }

    /// Success without data.
    pub(super) fn done(self) {
        self.push(|reply, outbox| match reply.replies.style {
            // A structured connection may answer what has no data as before, which is shorter.
            Style::Simple | Style::Structured => outbox.push(|out| reply.simple(out, 0)),
            Style::Extended => outbox.push(|out| reply.chunk(out, chunk::NONE, 0)),
        });
    }

    /// What a read has brought.
    pub(super) fn data(self, data: ReadBytes) {
        self.push(|reply, outbox| {
            outbox.push(|out| match reply.replies.style {
                Style::Simple => reply.simple(out, 0),
                Style::Structured | Style::Extended => {
                    reply.chunk(out, chunk::OFFSET_DATA, 8 + data.len() as u64);
                    out.extend_from_slice(&reply.offset.to_be_bytes());
                }
            });
            outbox.push_data(data);
        });
    }

    /// A read of nothing.
    pub(super) fn no_data(self) {
        self.push(|reply, outbox| {
            outbox.push(|out| match reply.replies.style {
                Style::Simple => reply.simple(out, 0),
                Style::Structured | Style::Extended => reply.chunk(out, chunk::NONE, 0),
            });
        });
    }

    /// All `length` bytes hold data: what a stack says of every range, as it does not know of holes.
    pub(super) fn allocated(self, length: u64) {
        self.push(|reply, outbox| {
            outbox.push(|out| {
                if reply.replies.style == Style::Extended {
                    reply.chunk(out, chunk::BLOCK_STATUS_EXTENDED, 4 + 4 + 16);
                    out.extend(BASE_ALLOCATION_ID.to_be_bytes());
                    out.extend(1u32.to_be_bytes());
                    out.extend(length.to_be_bytes());
                    out.extend(0u64.to_be_bytes());
                } else {
                    reply.chunk(out, chunk::BLOCK_STATUS, 4 + 8);
                    out.extend(BASE_ALLOCATION_ID.to_be_bytes());
                    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
                    out.extend(0u32.to_be_bytes());
                }
            });
        });
    }

    /// Success, or how the device failed.
    pub(super) fn result(self, result: Result<(), Error>) {
        match result {
            Ok(()) => self.done(),
            Err(error) => self.error(&error),
        }
    }

    pub(super) fn error(self, error: &Error) {
        self.errno(errno_of(error));
    }

    /// An errno, a positive number: as the protocol has it, and in words where it has room for words.
    pub(super) fn errno(self, errno: i32) {
        self.push(|reply, outbox| {
            outbox.push(|out| match reply.replies.style {
                Style::Simple => reply.simple(out, nbd_error(errno)),
                Style::Structured | Style::Extended => {
                    let message = io::Error::from_raw_os_error(errno).to_string();
                    reply.chunk(out, chunk::ERROR, 4 + 2 + message.len() as u64);
                    out.extend(nbd_error(errno).to_be_bytes());
                    out.extend(u16::try_from(message.len()).expect("a short text").to_be_bytes());
                    out.extend(message.as_bytes());
                }
            });
        });
    }

    fn simple(&self, out: &mut Vec<u8>, error: u32) {
        let mut header = [0; nbd::SIMPLE_REPLY_BYTES];
        header[..4].copy_from_slice(&nbd::SIMPLE_REPLY_MAGIC.to_be_bytes());
        header[4..8].copy_from_slice(&error.to_be_bytes());
        header[8..].copy_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&header);
    }

    /// The header of the one chunk of this reply.
    fn chunk(&self, out: &mut Vec<u8>, kind: u16, payload_bytes: u64) {
        let extended = self.replies.style == Style::Extended;
        let magic = if extended { nbd::EXTENDED_REPLY_MAGIC } else { nbd::STRUCTURED_REPLY_MAGIC };
        out.extend(magic.to_be_bytes());
        out.extend(chunk::FLAG_DONE.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        if extended {
            out.extend(self.offset.to_be_bytes());
            out.extend(payload_bytes.to_be_bytes());
        } else {
            let bytes = u32::try_from(payload_bytes).expect("a payload was checked to be 32 MiB at the most");
            out.extend(bytes.to_be_bytes());
        }
    }

    fn push(mut self, fill: impl FnOnce(&Self, &mut Outbox)) {
        self.answered = true;
        let waiting = {
            let outbox = &mut *self.replies.outbox.borrow_mut();
            fill(&self, outbox);
            outbox.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.replies.owed.set(self.replies.owed.get() - 1);
        self.replies.owed_bytes.set(self.replies.owed_bytes.get() - self.bytes);
        if !self.answered {
            // `errno` makes it answered; the copy it consumes must not count down again.
            let reply = Self {
                replies: Rc::clone(&self.replies),
                cookie: self.cookie,
                offset: self.offset,
                bytes: 0,
                answered: false,
            };
            self.replies.owed.set(self.replies.owed.get() + 1);
            reply.errno(libc::EIO);
        }
    }
}
