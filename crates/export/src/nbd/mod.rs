//! A stack as a network block device, for anything that speaks NBD: QEMU, the kernel's client, libnbd, fio.
//!
//! `address` is where it listens, `export` what it offers, `negotiation` the handshake, `tls` and `transport` what is
//! between the protocol and the socket, `request` and `reply` the two sides of the transmission, `session` its loop,
//! `patience` how it waits, `connection` one client from beginning to end. This file starts and ends the server.
//!
//! Source of the protocol: `doc/proto.md` of the NBD project.

mod address;
mod connection;
mod export;
mod negotiation;
mod patience;
mod reply;
mod request;
mod session;
mod tls;
mod transport;

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Error, ErrorKind, Result, Runtime};
use rustls::ServerConfig;

pub use address::{NBD_PORT, NbdAddress};
pub use export::NbdExport;
pub use request::{BadMagic, NbdRequest};
pub use tls::nbd_tls;

use crate::system::check;
use address::Listener;
use connection::Shared;

/// Connections at a time; a client beyond them is let go at once.
const CONNECTIONS_MAX: usize = 256;
/// How long clients get to take the replies to what they have asked for when the server stops.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// What the kernel may keep for a connection in each direction, as far as it permits: two large requests.
const SOCKET_BUFFER_BYTES: libc::c_int = 1 << 20;

/// How to serve.
#[derive(Clone)]
pub struct NbdOptions {
    /// Seed of the connections' runtimes.
    pub seed: u64,
    /// Time zero of the connections' runtimes.
    pub epoch: Instant,
    /// Number of the [`rotproof_block::Phase`] that every request gets in its context; may change at any time.
    pub phase: Arc<AtomicU8>,
    /// Insist on TLS with these certificates ([`nbd_tls`]).
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self { seed: 1, epoch: Instant::now(), phase: Arc::default(), tls: None }
    }
}

/// Devices served over NBD. Stop it; dropping it does so too.
pub struct NbdServer {
    server: Arc<Server>,
    addresses: Vec<NbdAddress>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Server {
    shared: Shared,
    stop: AtomicBool,
    /// Readable when `stop` is set.
    wake: OwnedFd,
    state: Mutex<State>,
    /// A connection has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    connections: HashMap<u64, Arc<OwnedFd>>,
    accepted: u64,
    failure: Option<String>,
}

impl NbdServer {
    /// Serves `exports` at every one of `addresses`. Fails with [`ErrorKind::Invalid`] on names that do not go
    /// together, [`ErrorKind::Refused`] where an address is taken, and as io_uring or a device fails to open.
    pub fn start(exports: Vec<NbdExport>, addresses: &[NbdAddress], options: NbdOptions) -> Result<Self> {
        let exports = export::offer(exports)?;
        if addresses.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "an NBD server needs a place to listen at"));
        }
        // What no connection could be served with is better known now.
        let runtime =
            Runtime::uring(RuntimeOptions { epoch: options.epoch, ..RuntimeOptions::new(options.seed) })?;
        for export in &exports {
            drop(export.device.open_queue(&runtime)?);
        }
        let listeners = addresses.iter().map(Listener::bind).collect::<Result<Vec<_>>>()?;
        let NbdOptions { seed, epoch, phase, tls } = options;
        let server = Arc::new(Server {
            shared: Shared { exports, tls, seed, epoch, phase, abandon: AtomicBool::new(false) },
            stop: AtomicBool::new(false),
            wake: event()?,
            state: Mutex::default(),
            ended: Condvar::new(),
        });
        let addresses = listeners.iter().map(|listener| listener.address.clone()).collect();
        let accepting = Arc::clone(&server);
        let acceptor = std::thread::Builder::new()
            .name("nbd-accept".into())
            .spawn(move || accepting.accept(&listeners))
            .doing(|| "starting the NBD server".into())?;
        Ok(Self { server, addresses, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// Where it listens; a port that the kernel chose is filled in.
    pub fn addresses(&self) -> &[NbdAddress] {
        &self.addresses
    }

    /// One URI for each export at each address.
    pub fn uris(&self) -> Vec<String> {
        let shared = &self.server.shared;
        let exports = shared.exports.iter();
        let with_tls = shared.tls.is_some();
        exports
            .flat_map(|export| self.addresses.iter().map(|place| place.uri(&export.name, with_tls)))
            .collect()
    }

    /// Clients connected now.
    pub fn connections(&self) -> usize {
        self.server.state.lock().connections.len()
    }

    /// Takes no more clients and no more requests, lets what was asked for complete and the replies be read, and ends.
    /// Without effect if that has been done. An error of kind [`ErrorKind::Internal`] tells of a connection that failed
    /// by a fault of the server's, [`ErrorKind::TimedOut`] of a device that does not complete its requests.
    pub fn stop(&self) -> Result<()> {
        let Some(acceptor) = self.acceptor.lock().take() else { return Ok(()) };
        self.server.stop();
        let _ = acceptor.join();
        let server = &self.server;
        server.shut_down(libc::SHUT_RD);
        if !server.wait(DRAIN_PATIENCE) {
            server.shared.abandon.store(true, Ordering::Relaxed);
            server.shut_down(libc::SHUT_RDWR);
            if !server.wait(DRAIN_PATIENCE) {
                let message = "a connection of the NBD server does not end: the device blocks its thread";
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
        }
        match server.state.lock().failure.take() {
            Some(failure) => Err(Error::new(
                ErrorKind::Internal,
                format!("a connection of the NBD server failed: {failure}"),
            )),
            None => Ok(()),
        }
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl fmt::Debug for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NbdServer({:?})", self.addresses)
    }
}

impl Server {
    fn accept(self: &Arc<Self>, listeners: &[Listener]) {
        let mut polls: Vec<libc::pollfd> = listeners
            .iter()
            .map(|listener| &listener.socket)
            .chain([&self.wake])
            .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        while !self.stop.load(Ordering::Relaxed) {
            // SAFETY: the list lives across the call and has the length that is given.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
            for (poll, listener) in polls.iter().zip(listeners) {
                if poll.revents == 0 || self.stop.load(Ordering::Relaxed) {
                    continue;
                }
                // SAFETY: plain numbers; the address of the client is not wanted.
                let fd = unsafe {
                    libc::accept4(
                        listener.socket.as_raw_fd(),
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        libc::SOCK_CLOEXEC,
                    )
                };
                if fd >= 0 {
                    // SAFETY: just opened, owned by nobody else.
                    self.welcome(unsafe { OwnedFd::from_raw_fd(fd) });
                } else if std::io::Error::last_os_error().raw_os_error() == Some(libc::EMFILE) {
                    // The client stays in the queue, and there will be a descriptor when another has left.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// Gives a client its thread; lets it go if there is no room.
    fn welcome(self: &Arc<Self>, socket: OwnedFd) {
        tune(&socket);
        let socket = Arc::new(socket);
        let number = {
            let mut state = self.state.lock();
            if state.connections.len() >= CONNECTIONS_MAX {
                return;
            }
            state.accepted += 1;
            let number = state.accepted;
            state.connections.insert(number, Arc::clone(&socket));
            number
        };
        let server = Arc::clone(self);
        let ended = EndMark { server: Arc::clone(self), number };
        // Without a thread the mark counts the client out again, and the socket closes.
        let _ = std::thread::Builder::new().name(format!("nbd-{number}")).spawn(move || {
            let ended = ended;
            let outcome =
                catch_unwind(AssertUnwindSafe(|| connection::serve(socket, number, &server.shared)));
            if let Some(failure) = crate::fuse::describe(&outcome) {
                server.state.lock().failure.get_or_insert(failure);
            }
            drop(ended);
        });
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let one = 1u64;
        // SAFETY: an eventfd takes eight bytes; the value lives across the call.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn shut_down(&self, how: libc::c_int) {
        for socket in self.state.lock().connections.values() {
            // SAFETY: plain numbers; the descriptor is open. A client that has left is no error.
            unsafe { libc::shutdown(socket.as_raw_fd(), how) };
        }
    }

    /// Waits until all connections have ended; false if they have not in that time.
    fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while !state.connections.is_empty() {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return state.connections.is_empty();
            }
        }
        true
    }
}

/// Counts a connection out, on whatever way it ends, also if it never began.
struct EndMark {
    server: Arc<Server>,
    number: u64,
}

impl Drop for EndMark {
    fn drop(&mut self) {
        self.server.state.lock().connections.remove(&self.number);
        self.server.ended.notify_all();
    }
}

fn event() -> Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked and owned by nobody else.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))
            .doing(|| "making an event".into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Larger buffers, and no waiting for more to send over TCP. A socket that refuses is slower, no more.
fn tune(socket: &OwnedFd) {
    let set = |level, option, value: libc::c_int| {
        // SAFETY: the value lives across the call and has the size that is given.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        }
    };
    for (with_privilege, without) in
        [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)]
    {
        if set(libc::SOL_SOCKET, with_privilege, SOCKET_BUFFER_BYTES) != 0 {
            set(libc::SOL_SOCKET, without, SOCKET_BUFFER_BYTES);
        }
    }
    set(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
}
