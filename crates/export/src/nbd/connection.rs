//! One client, from its handshake to its end, on a thread of its own.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Result, Runtime};
use rustls::ServerConfig;

use super::export::Offered;
use super::negotiation::{Encryption, Stream, negotiate};
use super::session::Session;
use super::transport::{Transport, Wait};
use crate::byte_queue::ByteQueue;

/// What a client has to agree on what it wants.
const HANDSHAKE_TIME: Duration = Duration::from_secs(30);

/// What all connections of a server share.
pub(super) struct Shared {
    /// They become more, and none goes.
    pub(super) exports: RwLock<Vec<Arc<Offered>>>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) seed: u64,
    pub(super) epoch: Instant,
    pub(super) phase: Arc<AtomicU8>,
    /// Do not wait any longer for what is under way.
    pub(super) abandon: AtomicBool,
}

/// Serves a client until it leaves. Errors are the server's own: what a client does wrong ends its connection, no more.
pub(super) fn serve(socket: Arc<OwnedFd>, number: u64, shared: &Shared) -> Result<()> {
    let mut stream = Handshake {
        deadline: Instant::now() + HANDSHAKE_TIME,
        transport: Transport::new(socket),
        tls: shared.tls.as_ref(),
    };
    let encryption = if shared.tls.is_some() { Encryption::Required } else { Encryption::None };
    let exports = shared.exports.read().clone();
    let Ok(Some(agreed)) = negotiate(&mut stream, &exports, encryption) else { return Ok(()) };
    let transport = stream.transport;
    if set_receive_timeout(transport.socket(), Duration::ZERO).is_err() {
        return Ok(());
    }
    let export = &exports[agreed.export];
    let runtime = Runtime::uring(RuntimeOptions { epoch: shared.epoch, ..RuntimeOptions::new(shared.seed) })?;
    let queue = export.device.open_queue(&runtime)?;
    let info = export.device.info();
    let byte_queue = ByteQueue {
        runtime,
        queue,
        info,
        size: Arc::new(info.size.into()),
        stripes: export.stripes.on_this_thread(),
        phase: Arc::clone(&shared.phase),
        thread: number as u16,
        requests: Default::default(),
    };
    Session::new(transport, byte_queue, agreed, &shared.abandon).run()
}

/// A connection during the handshake: every wait ends at the deadline.
struct Handshake<'a> {
    transport: Transport,
    deadline: Instant,
    tls: Option<&'a Arc<ServerConfig>>,
}

impl Handshake<'_> {
    fn limit_waits(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        set_receive_timeout(self.transport.socket(), left)
    }
}

impl Stream for Handshake<'_> {
    fn read_exact(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.limit_waits()?;
            match self.transport.receive(&mut [IoSliceMut::new(bytes)], Wait::Yes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => bytes = &mut bytes[received..],
            }
        }
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.send(&mut [IoSlice::new(bytes)])
    }

    fn is_encrypted(&self) -> bool {
        self.transport.is_encrypted()
    }

    fn start_tls(&mut self) -> io::Result<()> {
        self.limit_waits()?;
        let config = self.tls.ok_or(io::ErrorKind::Unsupported)?;
        self.transport.start_tls(config)
    }
}

/// Zero: no limit.
fn set_receive_timeout(socket: &OwnedFd, limit: Duration) -> io::Result<()> {
    let limit = libc::timeval {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_usec: limit.subsec_micros().into(),
    };
    // SAFETY: the value lives across the call and has the size that is given.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const limit).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
