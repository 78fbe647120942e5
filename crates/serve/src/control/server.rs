//! The thread that serves all connections of a control socket, each in its turn: one line, one reply.
//!
//! Its memory is bounded: so many connections, each with so much input and one reply. Nobody can hold it up: a line
//! must come, and a reply be taken, in a certain time, and one who has never said anything sensible makes room for
//! the next when there are too many.

use std::io::{ErrorKind as IoErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use super::handler::Handler;
use super::protocol::FaultKind;
use super::session::Session;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct ControlLimits {
    /// Connections at once.
    pub connections: usize,
    /// How long a line may take to come, and a reply to be taken.
    pub patience: Duration,
    /// How long a connection that has once said something sensible is kept though others want its place.
    pub idle_patience: Duration,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self { connections: 32, patience: Duration::from_secs(10), idle_patience: Duration::from_secs(60) }
    }
}

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// A control socket that is served. Dropped, it ends; its name is for others to remove.
#[derive(Debug)]
pub struct ControlServer {
    /// Closed, it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Serves `listener` on a thread of its own.
    pub fn start(listener: UnixListener, handler: Handler, limits: ControlLimits) -> Result<Self> {
        let doing = || "starting the control server".to_owned();
        listener.set_nonblocking(true).doing(doing)?;
        let (stop, stopped) = UnixStream::pair().doing(doing)?;
        let server = Server { listener, stopped, handler, limits, connections: Vec::new() };
        let thread = std::thread::Builder::new()
            .name("rotproof-control".into())
            .spawn(move || server.run())
            .doing(doing)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has caught what could panic.
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: UnixListener,
    stopped: UnixStream,
    handler: Handler,
    limits: ControlLimits,
    connections: Vec<Connection>,
}

struct Connection {
    stream: UnixStream,
    session: Session,
    /// When it last made progress: a line begun or answered, a reply taken.
    progressed: Instant,
}

impl Server {
    fn run(mut self) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let mut entries = vec![
                poll_entry(self.stopped.as_raw_fd(), libc::POLLIN),
                poll_entry(self.listener.as_raw_fd(), libc::POLLIN),
            ];
            entries.extend(self.connections.iter().map(Connection::poll_entry));
            if !poll(&mut entries, self.timeout()) {
                return;
            }
            if entries[0].revents != 0 {
                return;
            }
            let now = Instant::now();
            for (connection, entry) in self.connections.iter_mut().zip(&entries[2..]) {
                connection.turn(entry.revents, now, &mut buffer, &mut self.handler, self.limits.patience);
            }
            self.connections.retain(|connection| !connection.session.is_over());
            if entries[1].revents != 0 {
                self.accept(now);
            }
        }
    }

    /// Until somebody's patience ends, or nothing if a line already waits.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let of_connection = |connection: &Connection| {
            if connection.session.output().is_empty() && connection.session.has_line() {
                return Some(Duration::ZERO);
            }
            connection
                .owes_progress()
                .then(|| (connection.progressed + self.limits.patience).saturating_duration_since(now))
        };
        self.connections.iter().filter_map(of_connection).min()
    }

    fn accept(&mut self, now: Instant) {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return,
            Err(_) => {
                // No descriptor is free, or the client has gone. The first must not become a busy loop.
                std::thread::sleep(Duration::from_millis(10));
                return;
            }
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut connection = Connection { stream, session: Session::new(&self.handler), progressed: now };
        if self.connections.len() >= self.limits.connections {
            let Some(place) = self.dispensable(now) else {
                connection.session.refuse(FaultKind::Busy, "there are too many connections; try again later");
                connection.send(now);
                return;
            };
            let mut old = self.connections.swap_remove(place);
            old.session
                .refuse(FaultKind::Busy, "too many connections, and this one has done nothing for long");
            old.send(now);
        }
        connection.send(now);
        self.connections.push(connection);
    }

    /// The connection that goes if another wants its place: one that has never said anything sensible, or nothing
    /// for a long time.
    fn dispensable(&self, now: Instant) -> Option<usize> {
        let may_go = |connection: &Connection| {
            !connection.session.has_proven()
                || now.duration_since(connection.progressed) >= self.limits.idle_patience
        };
        let candidates = self.connections.iter().enumerate().filter(|(_, connection)| may_go(connection));
        candidates
            .min_by_key(|(_, connection)| (connection.session.has_proven(), connection.progressed))
            .map(|(place, _)| place)
    }
}

impl Connection {
    /// What it waits for: to be rid of its reply, else for more input.
    fn poll_entry(&self) -> libc::pollfd {
        let events = match self.session.output().is_empty() {
            false => libc::POLLOUT,
            true if self.session.room() > 0 => libc::POLLIN,
            true => 0,
        };
        poll_entry(self.stream.as_raw_fd(), events)
    }

    /// Whether it is its turn to do something, and not ours.
    fn owes_progress(&self) -> bool {
        !self.session.output().is_empty() || self.session.is_within_line()
    }

    fn turn(
        &mut self,
        ready: i16,
        now: Instant,
        buffer: &mut [u8],
        handler: &mut Handler,
        patience: Duration,
    ) {
        if ready & libc::POLLIN != 0 || ready & libc::POLLHUP != 0 && self.session.output().is_empty() {
            self.receive(now, buffer);
        } else if ready & (libc::POLLERR | libc::POLLNVAL | libc::POLLHUP) != 0 {
            return self.close();
        }
        if ready & libc::POLLOUT != 0 {
            self.send(now);
        }
        let session = &mut self.session;
        // No request makes it panic; if one does all the same, the others are still served.
        match catch_unwind(AssertUnwindSafe(|| session.answer_next(handler))) {
            Ok(true) => self.progressed = now,
            Ok(false) => {}
            Err(_) => self
                .session
                .refuse(FaultKind::Internal, "a defect of Rotproof; its standard error tells more"),
        }
        if !self.session.output().is_empty() {
            self.send(now);
        }
        if self.owes_progress() && now.duration_since(self.progressed) >= patience {
            self.session.refuse(FaultKind::TooSlow, "this connection was too slow");
            self.send(now);
            self.close();
        }
    }

    fn receive(&mut self, now: Instant, buffer: &mut [u8]) {
        let room = self.session.room().min(buffer.len());
        if room == 0 {
            return;
        }
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) => self.session.end_of_input(),
            Ok(bytes) => {
                if !self.session.is_within_line() {
                    self.progressed = now;
                }
                self.session.receive(&buffer[..bytes]);
            }
            Err(error) if matches!(error.kind(), IoErrorKind::WouldBlock | IoErrorKind::Interrupted) => {}
            Err(_) => self.close(),
        }
    }

    fn send(&mut self, now: Instant) {
        match self.stream.write(self.session.output()) {
            Ok(bytes) => {
                self.session.was_sent(bytes);
                if self.session.output().is_empty() {
                    self.progressed = now;
                }
            }
            Err(error) if matches!(error.kind(), IoErrorKind::WouldBlock | IoErrorKind::Interrupted) => {}
            Err(_) => self.close(),
        }
    }

    /// Forgets all that is under way, so that it is over.
    fn close(&mut self) {
        self.session = Session::closed();
    }
}

fn poll_entry(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits for something to happen. Gives whether the thread can go on.
fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> bool {
    // A part of a millisecond is waited for as a whole, or the end would be asked for again and again.
    let timeout_ms = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX)
    });
    let count = libc::nfds_t::try_from(entries.len()).unwrap_or(0);
    // SAFETY: the entries live across the call, and there are so many.
    let answer = unsafe { libc::poll(entries.as_mut_ptr(), count, timeout_ms) };
    if answer < 0 {
        // What it left in the entries means nothing.
        entries.iter_mut().for_each(|entry| entry.revents = 0);
        return std::io::Error::last_os_error().kind() == IoErrorKind::Interrupted;
    }
    true
}
