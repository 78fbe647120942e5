//! A stack as a network block device, for anything that speaks NBD: QEMU, the kernel's client, libnbd, fio.
//!
//! `address` is where it listens, `export` what it offers, `negotiation` the handshake, `tls` and `transport` what is
//! between the protocol and the socket, `request` and `reply` the two sides of the transmission, `session` its loop,
//! `connection` one client from beginning to end. This file starts and ends the server.
//!
//! Source of the protocol: `doc/proto.md` of the NBD project.

mod address;
mod connection;
mod export;
mod negotiation;
mod reply;
mod request;
mod session;
mod tls;
mod transport;

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Error, ErrorKind, Result, Runtime};
use rustls::ServerConfig;

pub use address::{NBD_PORT, NbdAddress};
pub use export::NbdExport;
pub use request::{BadMagic, NbdRequest};
pub use tls::nbd_tls;

use crate::clients::{Clients, Door};
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
    door: Door,
    clients: Arc<Clients>,
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
            shared: Shared {
                exports: RwLock::new(exports),
                tls,
                seed,
                epoch,
                phase,
                abandon: AtomicBool::new(false),
            },
            door: Door::new()?,
            clients: Arc::default(),
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
        let exports = shared.exports.read();
        let with_tls = shared.tls.is_some();
        exports
            .iter()
            .flat_map(|export| self.addresses.iter().map(|place| place.uri(&export.name, with_tls)))
            .collect()
    }

    /// Offers one more device to clients that come from now on. One URI for each address.
    ///
    /// Fails with [`ErrorKind::Invalid`] on a name that is taken, and as the device fails to open.
    pub fn add(&self, export: NbdExport) -> Result<Vec<String>> {
        let Shared { exports, tls, epoch, seed, .. } = &self.server.shared;
        let runtime = Runtime::uring(RuntimeOptions { epoch: *epoch, ..RuntimeOptions::new(*seed) })?;
        drop(export.device.open_queue(&runtime)?);
        let offered = export::offer(vec![export])?;
        let mut exports = exports.write();
        let mut uris = Vec::new();
        for one in offered {
            if exports.iter().any(|known| known.name == one.name) {
                let message = format!("there is an export of the name {:?} already", one.name);
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            uris.extend(self.addresses.iter().map(|place| place.uri(&one.name, tls.is_some())));
            exports.push(one);
        }
        Ok(uris)
    }

    /// Clients connected now.
    pub fn connections(&self) -> usize {
        self.server.clients.count()
    }

    /// Takes no more clients and no more requests, lets what was asked for complete and the replies be read, and ends.
    /// Without effect if that has been done. An error of kind [`ErrorKind::Internal`] tells of a connection that failed
    /// by a fault of the server's, [`ErrorKind::TimedOut`] of a device that does not complete its requests.
    pub fn stop(&self) -> Result<()> {
        let Some(acceptor) = self.acceptor.lock().take() else { return Ok(()) };
        self.server.door.close();
        let _ = acceptor.join();
        let Server { shared, clients, .. } = &*self.server;
        clients.shut_down(libc::SHUT_RD);
        if !clients.wait(DRAIN_PATIENCE) {
            shared.abandon.store(true, Ordering::Relaxed);
            clients.shut_down(libc::SHUT_RDWR);
            if !clients.wait(DRAIN_PATIENCE) {
                let message = "a connection of the NBD server does not end: the device blocks its thread";
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
        }
        match clients.take_failure() {
            Some((kind, failure)) => {
                Err(Error::new(kind, format!("a connection of the NBD server failed: {failure}")))
            }
            None => Ok(()),
        }
    }
}

/// Serves one client over a socket that is connected already, on this thread, until the client leaves: for who has got
/// the socket from elsewhere. Fails as [`NbdServer::start`] does, and never for what the client says.
pub fn serve_nbd_client(socket: OwnedFd, exports: Vec<NbdExport>, options: NbdOptions) -> Result<()> {
    let NbdOptions { seed, epoch, phase, tls } = options;
    let exports = export::offer(exports)?;
    tune(&socket);
    let (exports, abandon) = (RwLock::new(exports), AtomicBool::new(false));
    let shared = Shared { exports, tls, seed, epoch, phase, abandon };
    connection::serve(Arc::new(socket), 1, &shared)
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
        let sockets: Vec<_> = listeners.iter().map(|listener| &listener.socket).collect();
        self.door.accept(&sockets, |_, socket| {
            tune(&socket);
            let server = Arc::clone(self);
            let serve = move |socket, number| connection::serve(socket, number, &server.shared);
            self.clients.welcome("nbd", CONNECTIONS_MAX, socket, serve);
        });
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
