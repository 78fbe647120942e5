//! One connection to a server, shared by the threads whose queues use it.
//!
//! A request leaves at once if the socket has room, else by the writer's thread, so that nobody's thread ever blocks. The
//! reader's thread completes what the server replies to. When the connection ends, everything under way fails.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::error::IoContext;
use crate::nbd::{self, Fields, REQUEST_BYTES, SIMPLE_REPLY_BYTES, command};
use crate::{Buffer, Error, ErrorKind, Result, system_calls};

/// A connection whose handshake is over. Dropping it says goodbye and fails what is under way.
pub(super) struct Connection {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    socket: OwnedFd,
    cookies: AtomicU64,
    outgoing: Mutex<Outgoing>,
    /// There is something outgoing, or the end has come.
    something: Condvar,
    under_way: Mutex<UnderWay>,
    /// A request has completed; for those who wait without a runtime of real time.
    completed: Condvar,
}

#[derive(Default)]
struct Outgoing {
    /// What the socket had no room for, and how many bytes of it are sent.
    messages: VecDeque<(Arc<Message>, usize)>,
    ended: bool,
}

#[derive(Default)]
struct UnderWay {
    requests: HashMap<u64, State>,
    /// Why there will be no more replies.
    end: Option<String>,
}

/// A header and the data behind it.
struct Message {
    header: [u8; REQUEST_BYTES],
    payload: Buffer,
}

enum State {
    /// With the room for what a read brings.
    Waiting {
        room: Buffer,
        waker: Option<Waker>,
    },
    /// The reply is being read.
    Arriving {
        waker: Option<Waker>,
    },
    Done(Result<()>, Buffer),
    /// Nobody waits any more; the length of the data to skip.
    Abandoned(usize),
}

/// A command and where it acts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// A request under way: completes with the server's answer and the buffer it was given.
pub(super) struct Exchange {
    shared: Arc<Shared>,
    cookie: u64,
    message: Option<Arc<Message>>,
    is_done: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            socket,
            cookies: AtomicU64::new(1),
            outgoing: Mutex::default(),
            something: Condvar::new(),
            under_way: Mutex::default(),
            completed: Condvar::new(),
        });
        let mut connection = Self { shared, threads: Vec::with_capacity(2) };
        for (name, work) in
            [("nbd-send", Shared::send_all as fn(&Shared)), ("nbd-receive", Shared::receive_all)]
        {
            let shared = Arc::clone(&connection.shared);
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&shared));
            connection.threads.push(thread.doing(|| "starting a thread of an NBD connection".into())?);
        }
        Ok(Arc::new(connection))
    }

    /// Begins a request. `buffer` is the payload of a write, the room for a read, and empty otherwise.
    pub(super) fn begin(&self, command: Command, buffer: Buffer) -> Exchange {
        let shared = &self.shared;
        let cookie = shared.cookies.fetch_add(1, Ordering::Relaxed);
        let is_write = command.command == command::WRITE;
        let (payload, room) = if is_write { (buffer, Buffer::empty()) } else { (Buffer::empty(), buffer) };
        let message = Arc::new(Message { header: header(command, cookie), payload });
        let failure = {
            let mut under_way = shared.under_way.lock();
            let failure = under_way.failure();
            let state = match &failure {
                Some(error) => State::Done(Err(Error::new(ErrorKind::Gone, error.context())), room),
                None => State::Waiting { room, waker: None },
            };
            under_way.requests.insert(cookie, state);
            failure
        };
        if failure.is_none() {
            shared.send(&message);
        }
        Exchange { shared: Arc::clone(shared), cookie, message: Some(message), is_done: false }
    }

    /// Ok as long as the server answers.
    pub(super) fn check(&self) -> Result<()> {
        self.shared.under_way.lock().failure().map_or(Ok(()), Err)
    }
}

impl UnderWay {
    fn failure(&self) -> Option<Error> {
        self.end.as_ref().map(|why| Error::new(ErrorKind::Gone, why.clone()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let goodbye = Command { command: command::DISCONNECT, flags: 0, offset: 0, length: 0 };
        let message = Message { header: header(goodbye, 0), payload: Buffer::empty() };
        // What is not out by now is wanted by nobody.
        if self.shared.outgoing.lock().messages.is_empty() {
            let _ = self.shared.send_some(&message, 0, libc::MSG_DONTWAIT);
        }
        self.shared.end("the connection was closed");
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn header(command: Command, cookie: u64) -> [u8; REQUEST_BYTES] {
    let mut header = [0; REQUEST_BYTES];
    header[..4].copy_from_slice(&nbd::REQUEST_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&command.flags.to_be_bytes());
    header[6..8].copy_from_slice(&command.command.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..24].copy_from_slice(&command.offset.to_be_bytes());
    header[24..].copy_from_slice(&command.length.to_be_bytes());
    header
}

impl Shared {
    /// Sends a message at once if it is its turn and there is room, else leaves it to the writer.
    fn send(&self, message: &Arc<Message>) {
        let mut outgoing = self.outgoing.lock();
        let mut sent = 0;
        if outgoing.messages.is_empty() && !outgoing.ended {
            match self.send_some(message, 0, libc::MSG_DONTWAIT) {
                Ok(bytes) => sent = bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    drop(outgoing);
                    return self.end(&format!("the connection to the server broke: {error}"));
                }
            }
            if sent == message.bytes() {
                return;
            }
        }
        outgoing.messages.push_back((Arc::clone(message), sent));
        self.something.notify_one();
    }

    /// The writer's thread.
    fn send_all(&self) {
        let mut outgoing = self.outgoing.lock();
        while !outgoing.ended {
            // It stays in its place while it is sent, so that no other goes between its parts.
            let Some((message, sent)) = outgoing.messages.front().cloned() else {
                self.something.wait(&mut outgoing);
                continue;
            };
            let result =
                parking_lot::MutexGuard::unlocked(&mut outgoing, || self.send_some(&message, sent, 0));
            match result {
                Ok(bytes) if sent + bytes == message.bytes() => drop(outgoing.messages.pop_front()),
                Ok(bytes) => {
                    if let Some((_, sent)) = outgoing.messages.front_mut() {
                        *sent += bytes;
                    }
                }
                Err(error) => {
                    drop(outgoing);
                    return self.end(&format!("the connection to the server broke: {error}"));
                }
            }
        }
    }

    fn send_some(&self, message: &Message, sent: usize, flags: libc::c_int) -> io::Result<usize> {
        let (header, payload) = (&message.header[..], &message.payload[..]);
        let parts = [
            io::IoSlice::new(&header[sent.min(header.len())..]),
            io::IoSlice::new(&payload[sent.saturating_sub(header.len())..]),
        ];
        loop {
            system_calls::count_one();
            // SAFETY: all zeros is a valid header; the parts, which have the layout of `iovec`, live across the call.
            let answer = unsafe {
                let mut header: libc::msghdr = std::mem::zeroed();
                header.msg_iov = parts.as_ptr().cast_mut().cast();
                header.msg_iovlen = parts.len() as _;
                libc::sendmsg(self.socket.as_raw_fd(), &raw const header, flags | libc::MSG_NOSIGNAL)
            };
            match usize::try_from(answer) {
                Ok(bytes) => return Ok(bytes),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The reader's thread.
    fn receive_all(&self) {
        let why = loop {
            if let Err(error) = self.receive_one() {
                break error;
            }
        };
        if why.kind() == io::ErrorKind::UnexpectedEof {
            self.end("the server has closed the connection");
        } else {
            self.end(&format!("the connection to the server broke: {why}"));
        }
    }

    fn receive_one(&self) -> io::Result<()> {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        self.receive_exact(&mut header)?;
        let mut fields = Fields(&header);
        let (Some(magic), Some(error), Some(cookie)) = (fields.u32(), fields.u32(), fields.u64()) else {
            unreachable!("16 bytes have room for all three");
        };
        if magic != nbd::SIMPLE_REPLY_MAGIC {
            return Err(io::Error::other(format!("a reply begins with {magic:#x}")));
        }
        let unknown = || io::Error::other(format!("a reply to request {cookie}, which is not under way"));
        let mut room = {
            let mut under_way = self.under_way.lock();
            let state = under_way.requests.get_mut(&cookie).ok_or_else(unknown)?;
            match state {
                State::Waiting { room, waker } => {
                    let (room, waker) = (std::mem::replace(room, Buffer::empty()), waker.take());
                    *state = State::Arriving { waker };
                    room
                }
                State::Abandoned(length) => Buffer::stale(*length),
                State::Arriving { .. } | State::Done(..) => return Err(unknown()),
            }
        };
        let result = match i32::try_from(error) {
            Ok(0) => {
                if let Err(broken) = self.receive_exact(&mut room) {
                    self.give_back(cookie, room);
                    return Err(broken);
                }
                Ok(())
            }
            Ok(errno) => Err(Error::from_errno(errno, "the NBD server failed the request")),
            Err(_) => Err(Error::new(ErrorKind::Medium, "the NBD server failed the request")),
        };
        let mut under_way = self.under_way.lock();
        let waker = match under_way.requests.remove(&cookie) {
            Some(State::Arriving { waker }) => {
                under_way.requests.insert(cookie, State::Done(result, room));
                waker
            }
            _ => None,
        };
        drop(under_way);
        self.completed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Undoes the beginning of a reply of which there will be no more, so that the request fails with its buffer.
    fn give_back(&self, cookie: u64, room: Buffer) {
        if let Some(state) = self.under_way.lock().requests.get_mut(&cookie)
            && let State::Arriving { waker } = state
        {
            *state = State::Waiting { room, waker: waker.take() };
        }
    }

    fn receive_exact(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // SAFETY: the bytes live across the call, which writes at most their number.
            let answer = unsafe {
                libc::recv(self.socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_WAITALL)
            };
            match usize::try_from(answer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => bytes = &mut bytes[received..],
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the connection, the first time for the reason given, and fails all that is under way.
    fn end(&self, why: &str) {
        // SAFETY: plain numbers. Both threads wake from the socket.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        self.outgoing.lock().ended = true;
        self.something.notify_all();
        let mut wakers = Vec::new();
        {
            let mut under_way = self.under_way.lock();
            under_way.end.get_or_insert_with(|| why.into());
            let failure = under_way.end.clone().unwrap_or_default();
            for state in under_way.requests.values_mut() {
                let (room, waker) = match state {
                    State::Waiting { room, waker } => {
                        (std::mem::replace(room, Buffer::empty()), waker.take())
                    }
                    // The reader has its buffer; it completes the request, or gives it back and ends here itself.
                    State::Arriving { .. } | State::Done(..) | State::Abandoned(_) => continue,
                };
                *state = State::Done(Err(Error::new(ErrorKind::Gone, failure.clone())), room);
                wakers.extend(waker);
            }
        }
        self.completed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Message {
    fn bytes(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

impl Exchange {
    /// Blocks the thread until the server has answered: under virtual time, which knows nothing of servers.
    pub(super) fn wait(mut self) -> (Result<()>, Buffer) {
        let shared = Arc::clone(&self.shared);
        let mut under_way = shared.under_way.lock();
        loop {
            if let Some(done) = self.take(&mut under_way) {
                return done;
            }
            shared.completed.wait(&mut under_way);
        }
    }

    fn take(&mut self, under_way: &mut UnderWay) -> Option<(Result<()>, Buffer)> {
        if !matches!(under_way.requests.get(&self.cookie), Some(State::Done(..))) {
            return None;
        }
        let Some(State::Done(result, room)) = under_way.requests.remove(&self.cookie) else {
            unreachable!("just looked");
        };
        self.is_done = true;
        let message = self.message.take().expect("an exchange completes once");
        if message.payload.is_empty() {
            return Some((result, room));
        }
        // The writer may hold it a moment longer than the server's answer took.
        let payload = Arc::try_unwrap(message)
            .map_or_else(|message| Buffer::copy_of(&message.payload), |message| message.payload);
        Some((result, payload))
    }
}

impl Future for Exchange {
    type Output = (Result<()>, Buffer);

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = Arc::clone(&self.shared);
        let mut under_way = shared.under_way.lock();
        if let Some(done) = self.take(&mut under_way) {
            return Poll::Ready(done);
        }
        if let Some(State::Waiting { waker, .. } | State::Arriving { waker }) =
            under_way.requests.get_mut(&self.cookie)
        {
            match waker {
                Some(waker) => waker.clone_from(task.waker()),
                None => *waker = Some(task.waker().clone()),
            }
        }
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut under_way = self.shared.under_way.lock();
        match under_way.requests.remove(&self.cookie) {
            Some(State::Waiting { room, .. }) => {
                // The server's data will come all the same.
                under_way.requests.insert(self.cookie, State::Abandoned(room.len()));
            }
            // Being read now, into a buffer of the reader's; or done.
            Some(State::Arriving { .. } | State::Done(..) | State::Abandoned(_)) | None => {}
        }
    }
}
