//! An export of an NBD server as a device: a stack over any server there is.
//!
//! `uri` is where it is, `handshake` asks for it, `connection` talks to it. A server that permits several connections is
//! given one for each queue; with others all queues share one, since what one connection has written another might not
//! see. A connection that breaks stays broken, and with it the device: what the server had not made durable may be lost,
//! and nobody could say what.

mod connection;
mod handshake;
mod uri;

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::health::Health;
use crate::error::IoContext;
use crate::nbd::{command, command_flag, transmission_flag as flag};
use crate::{
    Buffer, Completion, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result,
    Runtime, Submission,
};
use connection::{Command, Connection};
use handshake::{Export, shake_hands};
use uri::Endpoint;
pub use uri::NbdUri;

/// How long a server may take for a step of the handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The largest piece that is cleared by one command; a multiple of every block size.
const CLEARED_BYTES_MAX: u64 = 1 << 30;
/// The smallest unit of addressing of a device.
const BLOCK_BYTES_MIN: u32 = 512;

/// An export of an NBD server.
pub struct NbdDevice {
    uri: NbdUri,
    export: Export,
    info: DeviceInfo,
    /// Until a queue takes it; or shared by all of them.
    first: Mutex<Option<Arc<Connection>>>,
    connections: Mutex<Vec<Weak<Connection>>>,
    health: Arc<Health>,
}

impl NbdDevice {
    /// Connects to the server. Fails with [`ErrorKind::Missing`] if server or export are not there, with
    /// [`ErrorKind::Unsupported`] if the server wants what this client does not speak, with [`ErrorKind::Invalid`] for a
    /// size that is no multiple of 512 bytes.
    pub fn connect(uri: &NbdUri) -> Result<Arc<Self>> {
        let (connection, export) = connect(uri)?;
        let block_size = export.block_bytes.max(BLOCK_BYTES_MIN);
        if !block_size.is_power_of_two() || block_size > 4096 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{uri}: the server has blocks of {block_size} bytes; a device needs 512 to 4096"),
            ));
        }
        if export.size == 0 || !export.size.is_multiple_of(block_size.into()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{uri} has {} bytes; a device needs a multiple of its block size, {block_size} bytes",
                    export.size
                ),
            ));
        }
        let has = |flag| export.flags & flag != 0;
        let info = DeviceInfo {
            size: export.size,
            block_size,
            atomic_write_bytes: block_size,
            read_only: has(flag::READ_ONLY),
            features: Features {
                flush: has(flag::SEND_FLUSH),
                fua: has(flag::SEND_FUA),
                // After a trim the server may return anything; zeros that may become a hole are what a discard means.
                discard: has(flag::SEND_WRITE_ZEROES),
                write_zeroes: has(flag::SEND_WRITE_ZEROES),
            },
        };
        Ok(Arc::new(Self {
            uri: uri.clone(),
            export,
            info,
            connections: Mutex::new(vec![Arc::downgrade(&connection)]),
            first: Mutex::new(Some(connection)),
            health: Arc::default(),
        }))
    }

    /// Where it is.
    pub fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// Ok as long as the server is there and has served every request. Fails with [`ErrorKind::Gone`] if a connection
    /// broke, else as the first failed request did.
    pub fn check(&self) -> Result<()> {
        for connection in self.connections.lock().iter().filter_map(Weak::upgrade) {
            connection.check().map_err(|error| error.while_doing(&self.uri))?;
        }
        match self.health.first_failure() {
            Some(error) => Err(error.while_doing(&self.uri)),
            None => Ok(()),
        }
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        let mut first = self.first.lock();
        if self.export.flags & flag::CAN_MULTI_CONN == 0 {
            return Ok(Arc::clone(first.as_ref().expect("a shared connection is never taken")));
        }
        if let Some(connection) = first.take() {
            return Ok(connection);
        }
        drop(first);
        let (connection, export) = connect(&self.uri)?;
        if export != self.export {
            let message = format!("{} has become another export since it was first connected to", self.uri);
            return Err(Error::new(ErrorKind::Gone, message));
        }
        let mut connections = self.connections.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
        Ok(connection)
    }
}

impl Device for NbdDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(NbdQueue(Rc::new(QueueState {
            connection: self.connection()?,
            info: self.info,
            transfer_bytes_max: transfer_bytes_max(&self.export),
            health: Arc::clone(&self.health),
            is_simulated: runtime.is_simulated(),
        }))))
    }
}

impl std::fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NbdDevice({})", self.uri)
    }
}

/// A multiple of 4096 bytes.
fn transfer_bytes_max(export: &Export) -> usize {
    (export.transfer_bytes_max.clamp(4096, 64 << 20) & !4095) as usize
}

fn connect(uri: &NbdUri) -> Result<(Arc<Connection>, Export)> {
    let connecting = || format!("connecting to {uri}");
    let socket: OwnedFd = match &uri.place {
        Endpoint::Unix(path) => UnixStream::connect(path).doing(connecting)?.into(),
        Endpoint::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).doing(connecting)?;
            stream.set_nodelay(true).doing(connecting)?;
            stream.into()
        }
    };
    set_time_limit(&socket, HANDSHAKE_TIME).doing(connecting)?;
    let mut stream = File::from(socket);
    let export = shake_hands(&mut stream, &uri.export).map_err(|error| error.while_doing(uri))?;
    let socket = OwnedFd::from(stream);
    set_time_limit(&socket, Duration::ZERO).doing(connecting)?;
    Ok((Connection::new(socket)?, export))
}

/// Limits every wait for the server; zero is no limit.
fn set_time_limit(socket: &OwnedFd, limit: Duration) -> std::io::Result<()> {
    let limit = libc::timeval {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
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
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

struct NbdQueue(Rc<QueueState>);

/// What a request needs while it is under way.
struct QueueState {
    connection: Arc<Connection>,
    info: DeviceInfo,
    transfer_bytes_max: usize,
    health: Arc<Health>,
    is_simulated: bool,
}

impl Queue for NbdQueue {
    fn submit(&self, request: Request) -> Submission {
        let queue = &self.0;
        if let Err(error) = queue.info.check(&request) {
            return request.fail(error).into();
        }
        if (request.length == 0 && request.operation != Operation::Flush)
            || (request.operation == Operation::Flush && !queue.info.features.flush)
        {
            return request.succeed().into();
        }
        let Request { operation, offset, length, buffer, context } = request;
        let queue = Rc::clone(queue);
        Submission::pending(async move {
            let (result, buffer) = queue.serve(operation, offset, length, buffer).await;
            if let Err(error) = &result {
                queue.health.note(error);
            }
            Completion { result, buffer, context }
        })
    }
}

impl QueueState {
    async fn serve(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        buffer: Buffer,
    ) -> (Result<()>, Buffer) {
        match operation {
            Operation::Read | Operation::Write { .. } if buffer.len() > self.transfer_bytes_max => {
                self.transfer_parts(operation, offset, buffer).await
            }
            Operation::Read => self.exchange(command::READ, 0, offset, length, buffer).await,
            Operation::Write { fua } => self.write(fua, offset, buffer).await,
            Operation::Flush => self.exchange(command::FLUSH, 0, 0, 0, buffer).await,
            Operation::Discard => (self.clear(0, offset, length).await, buffer),
            Operation::WriteZeroes => (self.clear(command_flag::NO_HOLE, offset, length).await, buffer),
        }
    }

    async fn write(&self, fua: bool, offset: u64, buffer: Buffer) -> (Result<()>, Buffer) {
        let Features { fua: has_fua, flush, .. } = self.info.features;
        let flags = if fua && has_fua { command_flag::FUA } else { 0 };
        let length = buffer.len() as u64;
        let (result, buffer) = self.exchange(command::WRITE, flags, offset, length, buffer).await;
        if result.is_ok() && fua && !has_fua && flush {
            let (result, _) = self.exchange(command::FLUSH, 0, 0, 0, Buffer::empty()).await;
            return (result, buffer);
        }
        (result, buffer)
    }

    /// One after the other what is larger than the server takes at once.
    async fn transfer_parts(
        &self,
        operation: Operation,
        offset: u64,
        mut buffer: Buffer,
    ) -> (Result<()>, Buffer) {
        for start in (0..buffer.len()).step_by(self.transfer_bytes_max) {
            let end = buffer.len().min(start + self.transfer_bytes_max);
            let at = offset + start as u64;
            let result = if let Operation::Write { fua } = operation {
                self.write(fua, at, Buffer::copy_of(&buffer[start..end])).await.0
            } else {
                let room = Buffer::stale(end - start);
                let (result, part) = self.exchange(command::READ, 0, at, (end - start) as u64, room).await;
                if result.is_ok() {
                    buffer[start..end].copy_from_slice(&part);
                }
                result
            };
            if result.is_err() {
                return (result, buffer);
            }
        }
        (Ok(()), buffer)
    }

    async fn clear(&self, flags: u16, offset: u64, length: u64) -> Result<()> {
        let mut done = 0;
        while done < length {
            let part = (length - done).min(CLEARED_BYTES_MAX);
            self.exchange(command::WRITE_ZEROES, flags, offset + done, part, Buffer::empty()).await.0?;
            done += part;
        }
        Ok(())
    }

    async fn exchange(
        &self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u64,
        buffer: Buffer,
    ) -> (Result<()>, Buffer) {
        let length = u32::try_from(length).expect("transfers and clears are cut to less than 4 GiB");
        let exchange = self.connection.begin(Command { command, flags, offset, length }, buffer);
        if self.is_simulated { exchange.wait() } else { exchange.await }
    }
}
