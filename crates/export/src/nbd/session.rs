//! The transmission phase of one connection: takes requests, has the [`ByteQueue`] serve them, sends the replies.
//!
//! What one system call receives may be many requests, and their replies leave in one system call. While nothing is
//! under way the thread sleeps in the socket: to look for the next request for a moment first costs more than it brings,
//! as requests then come one by one. While requests are under way in the device (its leaf is slow, a fault delays) the
//! thread belongs to its runtime.

use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use rotproof_block::nbd::{command, command_flag};
use rotproof_block::runtime::FileIo;
use rotproof_block::{Buffer, Operation, Result};

use super::export::TRANSFER_BYTES_MAX;
use super::negotiation::Agreed;
use super::reply::{Reply, ReplyQueue, Style};
use super::request::NbdRequest;
use super::transport::{Transport, Wait};
use crate::byte_queue::ByteQueue;

/// Room for what one system call receives.
const INBOX_BYTES: usize = 256 << 10;
/// A payload from this size on is received where it is needed; a stream of such writes leaves little else in the inbox.
const LARGE_BYTES: usize = 32 << 10;
/// How much is received behind a large payload: the next header, and little of what would have to be copied.
const APPETITE_AFTER_LARGE: usize = 4 << 10;
/// A payload that is too large but not longer than this is skipped, and the request refused; else the client is.
const SKIPPED_BYTES_MAX: u64 = 64 << 20;
/// A client may have this much under way; what it sends beyond waits in its socket.
const OWED_MAX: usize = 1024;
const OWED_BYTES_MAX: u64 = 128 << 20;
/// How often a session that only waits for the device looks whether it still should.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// A connection's state. Dropping it gives up what is under way.
pub(super) struct Session<'a> {
    transport: Transport,
    byte_queue: Rc<ByteQueue>,
    agreed: Agreed,
    replies: Rc<ReplyQueue>,
    inbox: Buffer,
    /// What of the inbox has not been looked at.
    arrived: std::ops::Range<usize>,
    payload: Option<Payload>,
    /// Bytes to throw away before the next header.
    skipping: u64,
    /// What is told that it was senseless once its payload has been skipped: many clients hear nothing before they have sent
    /// all of it.
    refused: Option<NbdRequest>,
    /// Whether the last request was a large write.
    large: bool,
    /// Set when nobody will wait any longer for what is under way.
    abandon: &'a AtomicBool,
}

/// A write whose payload has not arrived whole.
struct Payload {
    request: NbdRequest,
    buffer: Buffer,
    filled: usize,
}

/// What there was to do in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// All that is whole is under way or answered.
    Everything,
    /// The client has too much under way.
    Full,
    /// The client leaves, or has broken the protocol.
    Leave,
}

enum Received {
    Bytes,
    Nothing,
    End,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        transport: Transport,
        byte_queue: ByteQueue,
        agreed: Agreed,
        abandon: &'a AtomicBool,
    ) -> Self {
        let style = match (agreed.structured, agreed.extended) {
            (_, true) => Style::Extended,
            (true, false) => Style::Structured,
            (false, false) => Style::Simple,
        };
        Self {
            transport,
            byte_queue: Rc::new(byte_queue),
            agreed,
            replies: ReplyQueue::new(style),
            inbox: Buffer::stale(INBOX_BYTES),
            arrived: 0..0,
            payload: None,
            skipping: 0,
            refused: None,
            large: false,
            abandon,
        }
    }

    /// Serves until the client leaves, then waits for what is under way, unless told to abandon it.
    pub(super) fn run(mut self) -> Result<()> {
        let runtime = self.byte_queue.runtime.clone();
        loop {
            let goes_on = match self.serve() {
                Served::Leave => false,
                Served::Everything if self.is_idle() => self.wait_idle(),
                _ => runtime.block_on(self.wait_busy())?,
            };
            if !goes_on {
                break;
            }
        }
        runtime.block_on(self.drain())?;
        self.transport.close();
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.replies.owed() == 0 && self.byte_queue.runtime.is_quiet()
    }

    /// Sends the replies and waits for the client in the socket. Returns whether the client is still there.
    fn wait_idle(&mut self) -> bool {
        if self.replies.send(&mut self.transport).is_err() {
            return false;
        }
        matches!(self.receive(Wait::Yes), Received::Bytes)
    }

    /// Lets the device work until there is something to serve, or nothing under way any more. Returns whether the
    /// client is still there.
    async fn wait_busy(&mut self) -> bool {
        let mut readable = None;
        loop {
            // Tasks and completions come first.
            self.byte_queue.runtime.yield_now().await;
            if self.replies.send(&mut self.transport).is_err() {
                return false;
            }
            match self.serve() {
                Served::Leave => return false,
                Served::Everything if self.is_idle() => return true,
                Served::Everything if self.replies.has_replies() => {}
                Served::Everything => match self.receive(Wait::No) {
                    Received::Bytes => {}
                    Received::End => return false,
                    Received::Nothing => self.wait_for_something(&mut readable).await,
                },
                Served::Full if self.abandon.load(Ordering::Relaxed) => return false,
                Served::Full => self.wait_for_reply().await,
            }
        }
    }

    /// Waits for a reply to send or for something to receive.
    async fn wait_for_something(&self, readable: &mut Option<FileIo>) {
        poll_fn(|task| {
            self.replies.wait_for_reply(task.waker());
            if self.replies.has_replies() {
                return Poll::Ready(());
            }
            let io =
                readable.get_or_insert_with(|| self.byte_queue.runtime.readable(self.transport.socket()));
            let ready = Pin::new(io).poll(task).map(drop);
            if ready.is_ready() {
                *readable = None;
            }
            ready
        })
        .await;
    }

    /// Waits for a reply to send, but not for long: there may be a reason to give up.
    async fn wait_for_reply(&self) {
        let mut look_again = self.byte_queue.runtime.sleep(DRAIN_LOOK);
        poll_fn(|task| {
            self.replies.wait_for_reply(task.waker());
            if self.replies.has_replies() { Poll::Ready(()) } else { Pin::new(&mut look_again).poll(task) }
        })
        .await;
    }

    /// Completes what the client has asked for before it left.
    async fn drain(&mut self) {
        let mut client_listens = true;
        loop {
            if client_listens && self.replies.send(&mut self.transport).is_err() {
                client_listens = false;
            }
            if !client_listens {
                self.replies.forget_replies();
            }
            if self.replies.owed() == 0 || self.abandon.load(Ordering::Relaxed) {
                return;
            }
            self.wait_for_reply().await;
        }
    }

    /// Receives what there is, into the payload that is due first.
    fn receive(&mut self, wait: Wait) -> Received {
        if self.arrived.is_empty() {
            self.arrived = 0..0;
        } else if self.arrived.start > 0 {
            // The beginning of a header; the payload it announces goes elsewhere.
            self.inbox.copy_within(self.arrived.clone(), 0);
            self.arrived = 0..self.arrived.len();
        }
        let appetite = if self.large { APPETITE_AFTER_LARGE } else { INBOX_BYTES };
        let room = IoSliceMut::new(&mut self.inbox[self.arrived.end..appetite]);
        let result = match &mut self.payload {
            Some(payload) => {
                let rest = IoSliceMut::new(&mut payload.buffer[payload.filled..]);
                self.transport.receive(&mut [rest, room], wait)
            }
            None => self.transport.receive(&mut [room], wait),
        };
        match result {
            Ok(0) => Received::End,
            Ok(bytes) => {
                let mut for_payload = 0;
                if let Some(payload) = &mut self.payload {
                    for_payload = bytes.min(payload.buffer.len() - payload.filled);
                    payload.filled += for_payload;
                }
                self.arrived.end += bytes - for_payload;
                Received::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            // The client is gone, or talks TLS that is none: that is its business.
            Err(_) => Received::End,
        }
    }

    /// Serves all that has arrived whole.
    fn serve(&mut self) -> Served {
        loop {
            if self.payload.as_ref().is_some_and(|payload| payload.filled < payload.buffer.len()) {
                return Served::Everything;
            }
            if let Some(Payload { request, buffer, .. }) = self.payload.take() {
                self.write(request, buffer);
                continue;
            }
            let skipped = self.skipping.min(self.arrived.len() as u64);
            self.arrived.start += skipped as usize;
            self.skipping -= skipped;
            if self.skipping > 0 {
                return Served::Everything;
            }
            if let Some(request) = self.refused.take() {
                self.reply(&request, 0).errno(libc::EINVAL);
            }
            if self.replies.is_laden() && self.replies.send(&mut self.transport).is_err() {
                return Served::Leave;
            }
            if self.replies.owed() >= OWED_MAX || self.replies.owed_bytes() >= OWED_BYTES_MAX {
                return Served::Full;
            }
            let parsed = NbdRequest::parse(&self.inbox[self.arrived.clone()], self.agreed.extended);
            let (request, header_bytes) = match parsed {
                Ok(Some(parsed)) => parsed,
                Ok(None) => return Served::Everything,
                Err(_) => return Served::Leave,
            };
            self.arrived.start += header_bytes;
            if request.command == command::DISCONNECT || !self.begin(request) {
                return Served::Leave;
            }
        }
    }

    /// Begins a request whose header has arrived. Returns false if the client must go.
    fn begin(&mut self, request: NbdRequest) -> bool {
        let payload_bytes = request.payload_bytes(self.agreed.extended);
        self.large = request.command == command::WRITE && payload_bytes >= LARGE_BYTES as u64;
        let is_write = request.command == command::WRITE;
        // Without the flag an extended write has no payload, which makes no sense, as has one with any other command.
        if is_write != (payload_bytes > 0) && !(is_write && request.length == 0) || !self.may_take(&request) {
            if payload_bytes > SKIPPED_BYTES_MAX {
                return false;
            }
            self.skipping = payload_bytes;
            self.large = false;
            self.refused = Some(request);
            return true;
        }
        if !is_write {
            self.serve_plain(request);
            return true;
        }
        let length = payload_bytes as usize;
        let mut buffer = Buffer::stale(length);
        let filled = length.min(self.arrived.len());
        let from = self.arrived.start;
        buffer[..filled].copy_from_slice(&self.inbox[from..from + filled]);
        self.arrived.start += filled;
        if filled < length {
            self.payload = Some(Payload { request, buffer, filled });
        } else {
            self.write(request, buffer);
        }
        true
    }

    /// Whether the length is one that this server transfers.
    fn may_take(&self, request: &NbdRequest) -> bool {
        !matches!(request.command, command::READ | command::WRITE)
            || request.length <= u64::from(TRANSFER_BYTES_MAX)
    }

    fn reply(&self, request: &NbdRequest, bytes: u64) -> Reply {
        Reply::new(&self.replies, request.cookie, request.offset, bytes)
    }

    fn write(&self, request: NbdRequest, payload: Buffer) {
        let reply = self.reply(&request, request.length);
        if let Err(errno) = self.check(&request, command_flag::FUA | command_flag::PAYLOAD_LEN) {
            return reply.errno(errno);
        }
        if payload.is_empty() {
            return reply.done();
        }
        let durable = request.flags & command_flag::FUA != 0;
        self.byte_queue.write(request.offset, payload, durable, |result| reply.result(result));
    }

    /// Serves everything that has no payload.
    fn serve_plain(&self, request: NbdRequest) {
        use command_flag::{DF, FUA, NO_HOLE, REQ_ONE};
        let NbdRequest { flags, command, offset, length, .. } = request;
        let features = self.byte_queue.info.features;
        let durable = flags & FUA != 0;
        let allowed = match command {
            // FUA has no meaning for these but must be taken; some clients set it on every request.
            command::READ if self.agreed.structured || self.agreed.extended => DF | FUA,
            command::READ => FUA,
            command::FLUSH | command::CACHE => FUA,
            command::TRIM | command::WRITE_ZEROES if self.byte_queue.info.read_only => {
                return self.reply(&request, 0).errno(libc::EPERM);
            }
            command::TRIM if features.discard => FUA,
            command::WRITE_ZEROES if features.write_zeroes => FUA | NO_HOLE,
            command::BLOCK_STATUS if self.agreed.block_status => REQ_ONE | FUA,
            _ => return self.reply(&request, 0).errno(libc::EINVAL),
        };
        let reply = self.reply(&request, if command == command::READ { length } else { 0 });
        if let Err(errno) = self.check(&request, allowed) {
            return reply.errno(errno);
        }
        match command {
            command::READ if length == 0 => reply.no_data(),
            command::READ => {
                self.byte_queue.read(offset, length as usize, |result| match result {
                    Ok(data) => reply.data(data),
                    Err(error) => reply.error(&error),
                });
            }
            command::FLUSH => self.byte_queue.flush(|result| reply.result(result)),
            // There is no cache between the client and the stack that could be filled.
            command::CACHE => reply.done(),
            command::BLOCK_STATUS if length == 0 => reply.errno(libc::EINVAL),
            command::BLOCK_STATUS => reply.allocated(length),
            _ if length == 0 => reply.done(),
            _ => {
                let operation =
                    if command == command::TRIM { Operation::Discard } else { Operation::WriteZeroes };
                self.byte_queue.clear(operation, offset, length, durable, |result| reply.result(result));
            }
        }
    }

    /// Checks flags, bounds and the right to write. Beyond the end there is nothing to read or trim, and no space to write.
    fn check(&self, request: &NbdRequest, allowed_flags: u16) -> Result<(), i32> {
        let mutates = matches!(request.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if request.flags & !allowed_flags != 0 {
            return Err(libc::EINVAL);
        }
        if mutates && self.byte_queue.info.read_only {
            return Err(libc::EPERM);
        }
        // Flush says nothing of a place; what it has there is zero, or the client's mistake and harmless.
        let has_place = request.command != command::FLUSH;
        if has_place && self.byte_queue.clip(request.offset, request.length) < request.length {
            let finds_no_space = mutates && request.command != command::TRIM;
            return Err(if finds_no_space { libc::ENOSPC } else { libc::EINVAL });
        }
        Ok(())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Tasks hold the runtime and the runtime holds them.
        self.byte_queue.runtime.abandon_tasks();
    }
}
