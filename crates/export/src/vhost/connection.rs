//! One client: what it has agreed on, its memory, its rings. Serves its messages on a thread of its own; each ring that
//! runs has another ([`QueueThread`]).

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Instant;

use rotproof_block::{Error, Result};

use super::channel::{Arrived, receive, send};
use super::config::{config_space, feature, protocol_feature};
use super::export::Offered;
use super::memory::{MemoryTable, Refused};
use super::message::{REGIONS_MAX, RingAddresses, VhostMessage};
use super::queue::{QueueSetup, QueueThread};
use super::ring::{Call, Ring, RingSetup};

/// What all clients of a server share.
pub(super) struct Shared {
    pub(super) exports: Vec<Offered>,
    /// Rings that each client may have.
    pub(super) queues: u16,
    pub(super) seed: u64,
    pub(super) epoch: Instant,
    pub(super) phase: Arc<AtomicU8>,
    /// Do not wait any longer for what is under way.
    pub(super) abandon: AtomicBool,
}

/// Serves a client of an export until it leaves. Errors are the server's own: what a client does wrong ends its
/// connection, no more.
pub(super) fn serve(socket: Arc<OwnedFd>, export: usize, shared: Arc<Shared>) -> Result<()> {
    let rings = (0..shared.queues).map(|_| RingState::default()).collect();
    let mut connection = Connection {
        socket,
        export,
        shared,
        features: 0,
        protocol_features: 0,
        memory: MemoryTable::default(),
        rings,
        failure: None,
    };
    while let Some(arrived) = receive(&connection.socket) {
        if connection.answer(arrived).is_err() {
            break;
        }
    }
    connection.stop_all();
    connection.failure.map_or(Ok(()), Err)
}

struct Connection {
    socket: Arc<OwnedFd>,
    export: usize,
    shared: Arc<Shared>,
    /// Those that the client uses.
    features: u64,
    protocol_features: u64,
    memory: MemoryTable,
    rings: Vec<RingState>,
    /// The first fault of the server's own.
    failure: Option<Error>,
}

/// What a client has said of a ring.
#[derive(Default)]
struct RingState {
    size: u16,
    /// Where it goes on, if it does not run.
    base: u16,
    addresses: Option<RingAddresses>,
    /// It runs, if it is enabled, from when this comes until its base is asked for.
    kick: Option<Arc<OwnedFd>>,
    call: Arc<Call>,
    enabled: bool,
    thread: Option<QueueThread>,
}

/// What is sent back.
enum Reply {
    /// That it is done, if the client wants to know.
    Done,
    Bytes(Vec<u8>),
}

impl Reply {
    fn number(number: u64) -> Self {
        Self::Bytes(number.to_ne_bytes().to_vec())
    }
}

impl Connection {
    /// Does what a message asks and answers it. Fails if the client must go.
    fn answer(&mut self, arrived: Arrived) -> Result<(), Refused> {
        let Arrived { header, body, files } = arrived;
        let message = VhostMessage::parse(header.code, &body).ok_or(Refused)?;
        let result = self.handle(message, files);
        let acknowledges = header.needs_reply && self.protocol_features & protocol_feature::REPLY_ACK != 0;
        let reply = match result {
            Ok(Reply::Bytes(bytes)) => bytes,
            Ok(Reply::Done) if acknowledges => 0u64.to_ne_bytes().to_vec(),
            Ok(Reply::Done) => return Ok(()),
            Err(Refused) if acknowledges && self.failure.is_none() => 1u64.to_ne_bytes().to_vec(),
            Err(Refused) => return Err(Refused),
        };
        send(&self.socket, &header.reply(&reply)).map_err(|_| Refused)
    }

    fn offered(&self) -> &Offered {
        &self.shared.exports[self.export]
    }

    fn handle(&mut self, message: VhostMessage, mut files: Vec<OwnedFd>) -> Result<Reply, Refused> {
        match message {
            VhostMessage::GetFeatures => return Ok(Reply::number(self.offered().features)),
            VhostMessage::SetFeatures(features) if features & !self.offered().features == 0 => {
                if features != self.features {
                    self.stop_all();
                    self.features = features;
                    self.start_all()?;
                }
            }
            VhostMessage::SetOwner => {}
            VhostMessage::Reset => {
                self.stop_all();
                self.rings.iter_mut().for_each(|ring| *ring = RingState::default());
            }
            VhostMessage::GetProtocolFeatures => return Ok(Reply::number(protocol_feature::ALL)),
            VhostMessage::SetProtocolFeatures(features) if features & !protocol_feature::ALL == 0 => {
                self.protocol_features = features;
            }
            VhostMessage::GetQueueNumber => return Ok(Reply::number(self.shared.queues.into())),
            VhostMessage::GetConfig(offset, size, flags) => {
                return Ok(Reply::Bytes(self.config(offset, size, flags)));
            }
            // There is nothing in it that a driver could change. One that tries is told, or left in the belief.
            VhostMessage::SetConfig if self.protocol_features & protocol_feature::REPLY_ACK == 0 => {}
            VhostMessage::GetMemorySlots => return Ok(Reply::number(REGIONS_MAX as u64)),
            VhostMessage::SetMemoryTable(regions) => {
                self.change_memory(|memory| memory.replace(regions, files))?;
            }
            VhostMessage::AddRegion(region) => {
                let file = files.pop().filter(|_| files.is_empty()).ok_or(Refused)?;
                self.change_memory(|memory| memory.add(region, file))?;
            }
            VhostMessage::RemoveRegion(region) => {
                self.change_memory(|memory| memory.remove(region))?;
            }
            VhostMessage::SetRingSize(ring, size) => {
                let size = u16::try_from(size).map_err(|_| Refused)?;
                self.change_ring(ring, |ring| ring.size = size)?;
            }
            VhostMessage::SetRingBase(ring, base) => {
                let base = u16::try_from(base).map_err(|_| Refused)?;
                self.change_ring(ring, |ring| ring.base = base)?;
            }
            VhostMessage::SetRingAddresses(ring, addresses) => {
                self.change_ring(ring, |ring| ring.addresses = Some(addresses))?;
            }
            VhostMessage::SetRingEnabled(ring, enabled) if self.features & feature::PROTOCOL != 0 => {
                self.change_ring(ring, |ring| ring.enabled = enabled)?;
            }
            VhostMessage::SetRingKick(ring, true) => {
                let event = Arc::new(eventfd(files)?);
                self.change_ring(ring, |ring| ring.kick = Some(event))?;
            }
            VhostMessage::SetRingCall(ring, has_event) => {
                let event = has_event.then(|| eventfd(files)).transpose()?;
                self.ring(ring)?.call.set(event);
            }
            // Nothing is told there: a ring that is broken ends the connection.
            VhostMessage::SetRingError(ring, _) => _ = self.ring(ring)?,
            VhostMessage::GetRingBase(number) => {
                self.ring(number)?.kick = None;
                self.stop(number as usize);
                let base = u32::from(self.rings[number as usize].base);
                return Ok(Reply::Bytes([number.to_ne_bytes(), base.to_ne_bytes()].concat()));
            }
            // A ring to look at again and again would cost a core; no frontend asks for it.
            VhostMessage::SetRingKick(_, false)
            | VhostMessage::SetConfig
            | VhostMessage::SetFeatures(_)
            | VhostMessage::SetProtocolFeatures(_)
            | VhostMessage::SetRingEnabled(..) => return Err(Refused),
        }
        Ok(Reply::Done)
    }

    /// As many bytes as were asked for; none, which is how the protocol says no, if there are not so many.
    fn config(&self, offset: u32, size: u32, flags: u32) -> Vec<u8> {
        let space = config_space(&self.offered().info, self.shared.queues);
        let bytes =
            space.get(offset as usize..).and_then(|rest| rest.get(..size as usize)).unwrap_or_default();
        let head = [offset, bytes.len() as u32, flags].map(u32::to_ne_bytes);
        [head.as_flattened(), bytes].concat()
    }

    fn ring(&mut self, number: u32) -> Result<&mut RingState, Refused> {
        self.rings.get_mut(number as usize).ok_or(Refused)
    }

    /// Changes what is said of a ring, which does not run meanwhile.
    fn change_ring(&mut self, number: u32, change: impl FnOnce(&mut RingState)) -> Result<(), Refused> {
        self.ring(number)?;
        self.stop(number as usize);
        change(&mut self.rings[number as usize]);
        self.start(number as usize)
    }

    /// Changes the memory; no ring runs meanwhile.
    fn change_memory(
        &mut self,
        change: impl FnOnce(&mut MemoryTable) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.stop_all();
        let changed = change(&mut self.memory);
        self.start_all()?;
        changed
    }

    fn start_all(&mut self) -> Result<(), Refused> {
        (0..self.rings.len()).try_for_each(|number| self.start(number))
    }

    fn stop_all(&mut self) {
        (0..self.rings.len()).for_each(|number| self.stop(number));
    }

    /// Starts a ring if all is said that it needs.
    fn start(&mut self, number: usize) -> Result<(), Refused> {
        let RingState { size, base, addresses, kick, call, enabled, thread } = &mut self.rings[number];
        let is_enabled = *enabled || self.features & feature::PROTOCOL == 0;
        let (Some(addresses), Some(kick), Some(memory)) = (addresses, kick, self.memory.memory()) else {
            return Ok(());
        };
        if !is_enabled || *size == 0 || thread.is_some() {
            return Ok(());
        }
        let ring = Ring::new(RingSetup {
            memory: Arc::clone(memory),
            size: *size,
            base: *base,
            descriptors: self.memory.guest_address(addresses.descriptors)?,
            available: self.memory.guest_address(addresses.available)?,
            used: self.memory.guest_address(addresses.used)?,
            event_index: self.features & feature::EVENT_INDEX != 0,
            call: Arc::clone(call),
        })?;
        let setup = QueueSetup {
            shared: Arc::clone(&self.shared),
            export: self.export,
            number: number as u16,
            ring,
            kick: Arc::clone(kick),
            durable_writes: self.features & feature::FLUSH == 0
                && self.shared.exports[self.export].info.features.flush,
            socket: Arc::clone(&self.socket),
        };
        match QueueThread::start(setup) {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                self.failure.get_or_insert(error);
                return Err(Refused);
            }
        }
        Ok(())
    }

    /// Stops a ring if it runs.
    fn stop(&mut self, number: usize) {
        let ring = &mut self.rings[number];
        match ring.thread.take().map(QueueThread::stop) {
            Some(Ok(base)) => ring.base = base,
            Some(Err(error)) => _ = self.failure.get_or_insert(error),
            None => {}
        }
    }
}

/// The one descriptor that came, if it is an eventfd, made such that it never blocks. Anything else could block, end
/// or kill the thread that uses it.
fn eventfd(mut files: Vec<OwnedFd>) -> Result<OwnedFd, Refused> {
    let file = files.pop().filter(|_| files.is_empty()).ok_or(Refused)?;
    let fd = file.as_raw_fd();
    let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| Refused)?;
    if !name.to_str().is_some_and(|name| name.starts_with("anon_inode:[eventfd]")) {
        return Err(Refused);
    }
    // SAFETY: plain numbers; the descriptor is open.
    let made = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if made { Ok(file) } else { Err(Refused) }
}
