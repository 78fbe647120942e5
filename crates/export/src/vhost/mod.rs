//! A stack as a disk of a virtual machine, or of whatever else speaks vhost-user-blk: QEMU, cloud-hypervisor, SPDK.
//!
//! A client shares its memory and hands over rings in it, which are served without a system call as long as both sides
//! are awake. `channel` and `message` are the protocol's messages, `config` what a device says of itself, `connection`
//! one client; `memory` is what it shares, `ring` one ring in it, `request` what is asked there, `completions` what is
//! answered, `queue` the thread that serves a ring. This file starts and ends the server.
//!
//! Sources: QEMU's `docs/interop/vhost-user.rst`; virtio 1.3, 2.7 (split virtqueues) and 5.2 (block device).

mod channel;
mod completions;
mod config;
mod connection;
mod export;
mod memory;
pub mod message;
mod queue;
mod request;
mod ring;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Error, ErrorKind, Result, Runtime};

pub use export::VhostExport;
pub use request::{ParsedRequest, Segment, VhostRequest};

use crate::clients::{Clients, Door};
use crate::private_socket::bind_private;
use connection::Shared;

/// Clients at a time; one beyond them is let go at once.
const CLIENTS_MAX: usize = 64;
/// Rings that a client may be offered.
const QUEUES_MAX: u16 = 64;
/// How long a device gets to complete what it was asked when the server stops.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// How to serve.
#[derive(Clone)]
pub struct VhostOptions {
    /// Rings that each client may have, 1 to 64; each that it uses has a thread.
    pub queues: u16,
    /// Seed of the rings' runtimes.
    pub seed: u64,
    /// Time zero of the rings' runtimes.
    pub epoch: Instant,
    /// Number of the [`rotproof_block::Phase`] that every request gets in its context; may change at any time.
    pub phase: Arc<AtomicU8>,
}

impl Default for VhostOptions {
    fn default() -> Self {
        Self { queues: 4, seed: 1, epoch: Instant::now(), phase: Arc::default() }
    }
}

/// Devices served as vhost-user-blk. Stop it; dropping it does so too.
pub struct VhostServer {
    server: Arc<Server>,
    sockets: Vec<PathBuf>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Server {
    shared: Arc<Shared>,
    door: Door,
    clients: Arc<Clients>,
}

impl VhostServer {
    /// Serves each of `exports` at its socket. Fails with [`ErrorKind::Invalid`] for no exports, a device that cannot
    /// be a virtio disk or an impossible number of queues, [`ErrorKind::Refused`] where a socket's path is taken, and
    /// as io_uring or a device fails to open.
    pub fn start(exports: &[VhostExport], options: VhostOptions) -> Result<Self> {
        let VhostOptions { queues, seed, epoch, phase } = options;
        if exports.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a vhost-user-blk server needs at least one export"));
        }
        if !(1..=QUEUES_MAX).contains(&queues) {
            let message = format!("a vhost-user-blk server offers 1 to {QUEUES_MAX} queues, not {queues}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let offered = exports.iter().map(export::offer).collect::<Result<Vec<_>>>()?;
        // What no client could be served with is better known now.
        let runtime = Runtime::uring(RuntimeOptions { epoch, ..RuntimeOptions::new(seed) })?;
        for export in exports {
            drop(export.device.open_queue(&runtime)?);
        }
        let listeners =
            exports.iter().map(|export| Listener::bind(&export.socket)).collect::<Result<Vec<_>>>()?;
        let abandon = AtomicBool::new(false);
        let server = Arc::new(Server {
            shared: Arc::new(Shared { exports: offered, queues, seed, epoch, phase, abandon }),
            door: Door::new()?,
            clients: Arc::default(),
        });
        let accepting = Arc::clone(&server);
        let acceptor = std::thread::Builder::new()
            .name("vhost-accept".into())
            .spawn(move || accepting.accept(&listeners))
            .doing(|| "starting the vhost-user-blk server".into())?;
        let sockets = exports.iter().map(|export| export.socket.clone()).collect();
        Ok(Self { server, sockets, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// Where clients connect, in the order of the exports.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Clients connected now.
    pub fn connections(&self) -> usize {
        self.server.clients.count()
    }

    /// Takes no more clients and no more requests, lets what was asked for complete, and ends. Without effect if that
    /// has been done. An error of kind [`ErrorKind::Internal`] tells of a client that could not be served by a fault of
    /// the server's, [`ErrorKind::TimedOut`] of a device that blocks a thread.
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
                let message =
                    "a client of the vhost-user-blk server does not end: the device blocks its thread";
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
        }
        match clients.take_failure() {
            Some((kind, failure)) => Err(Error::new(
                kind,
                format!("a client of the vhost-user-blk server could not be served: {failure}"),
            )),
            None => Ok(()),
        }
    }
}

impl Drop for VhostServer {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl fmt::Debug for VhostServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VhostServer({:?})", self.sockets)
    }
}

impl Server {
    fn accept(self: &Arc<Self>, listeners: &[Listener]) {
        let sockets: Vec<_> = listeners.iter().map(|listener| &listener.socket).collect();
        self.door.accept(&sockets, |export, socket| {
            let shared = Arc::clone(&self.shared);
            let serve = move |socket, _| connection::serve(socket, export, shared);
            self.clients.welcome("vhost", CLIENTS_MAX, socket, serve);
        });
    }
}

/// A socket that listens; its file goes with it.
struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    fn bind(path: &Path) -> Result<Self> {
        Ok(Self { socket: bind_private(path)?.into(), path: path.to_owned() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
