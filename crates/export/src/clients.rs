//! The clients of a server: let in at its door, each on a thread of its own, counted in and out, told to leave,
//! awaited with patience.
//!
//! What they speak is the business of the servers.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rotproof_block::{ErrorKind, Result};

use crate::system::{event, signal};

/// Where clients come in, until it is closed.
pub(crate) struct Door {
    closed: AtomicBool,
    /// Readable when it is closed.
    wake: OwnedFd,
    /// Kept for a client that comes when no other descriptor is left: it is let in to be sent away, as it would wait for ever.
    spare: Mutex<Option<OwnedFd>>,
}

impl Door {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { closed: AtomicBool::new(false), wake: event()?, spare: Mutex::new(Some(event()?)) })
    }

    /// Hands every client of one of the listening sockets, with that socket's place in the list, to `welcome`.
    /// Returns when the door is closed.
    pub(crate) fn accept(&self, sockets: &[&OwnedFd], mut welcome: impl FnMut(usize, OwnedFd)) {
        let mut polls: Vec<libc::pollfd> = sockets
            .iter()
            .copied()
            .chain([&self.wake])
            .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        while !self.closed.load(Ordering::Relaxed) {
            // SAFETY: the list lives across the call and has the length that is given.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
            for (place, (poll, socket)) in polls.iter().zip(sockets).enumerate() {
                if poll.revents == 0 || self.closed.load(Ordering::Relaxed) {
                    continue;
                }
                match let_in(socket) {
                    Ok(client) => welcome(place, client),
                    Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                        let mut spare = self.spare.lock();
                        drop(spare.take());
                        drop(let_in(socket));
                        *spare = event().ok();
                        // Whoever comes again at once is not to keep a processor busy.
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Err(_) => {}
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        signal(&self.wake);
    }
}

fn let_in(socket: &OwnedFd) -> std::io::Result<OwnedFd> {
    let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: plain numbers; the address of the client is not wanted.
    match unsafe { libc::accept4(socket.as_raw_fd(), address, length, libc::SOCK_CLOEXEC) } {
        fd if fd < 0 => Err(std::io::Error::last_os_error()),
        // SAFETY: just opened, owned by nobody else.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

#[derive(Default)]
pub(crate) struct Clients {
    state: Mutex<State>,
    /// A client has been counted out.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    sockets: HashMap<u64, Arc<OwnedFd>>,
    accepted: u64,
    failure: Option<(ErrorKind, String)>,
}

impl Clients {
    /// Clients connected now.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().sockets.len()
    }

    /// Serves a client on a thread of its own, whose name begins with `name`, by `serve`, which is given the client's
    /// number; lets it go if there are `most` clients already. An error or a panic of `serve` is remembered.
    pub(crate) fn welcome(
        self: &Arc<Self>,
        name: &str,
        most: usize,
        socket: OwnedFd,
        serve: impl FnOnce(Arc<OwnedFd>, u64) -> Result<()> + Send + 'static,
    ) {
        let socket = Arc::new(socket);
        let number = {
            let mut state = self.state.lock();
            if state.sockets.len() >= most {
                return;
            }
            state.accepted += 1;
            let number = state.accepted;
            state.sockets.insert(number, Arc::clone(&socket));
            number
        };
        let ended = EndMark { clients: Arc::clone(self), number };
        // Without a thread the mark counts the client out again, and the socket closes.
        let _ = std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
            let ended = ended;
            let outcome = catch_unwind(AssertUnwindSafe(|| serve(socket, number)));
            if let Some(failure) = crate::fuse::describe(&outcome) {
                // What the machine has not enough of is no defect.
                let kind = match &outcome {
                    Ok(Err(error)) if matches!(error.kind(), ErrorKind::Os(_)) => error.kind(),
                    _ => ErrorKind::Internal,
                };
                ended.clients.state.lock().failure.get_or_insert((kind, failure));
            }
        });
    }

    /// `shutdown(2)` of all sockets.
    pub(crate) fn shut_down(&self, how: libc::c_int) {
        for socket in self.state.lock().sockets.values() {
            // SAFETY: plain numbers; the descriptor is open. A client that has left is no error.
            unsafe { libc::shutdown(socket.as_raw_fd(), how) };
        }
    }

    /// Waits until all have ended; false if they have not in that time.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while !state.sockets.is_empty() {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return state.sockets.is_empty();
            }
        }
        true
    }

    /// How serving the first client failed that failed by a fault of the server's; told once.
    pub(crate) fn take_failure(&self) -> Option<(ErrorKind, String)> {
        self.state.lock().failure.take()
    }
}

/// Counts a client out, on whatever way it ends, also if it never began.
struct EndMark {
    clients: Arc<Clients>,
    number: u64,
}

impl Drop for EndMark {
    fn drop(&mut self) {
        self.clients.state.lock().sockets.remove(&self.number);
        self.clients.ended.notify_all();
    }
}
