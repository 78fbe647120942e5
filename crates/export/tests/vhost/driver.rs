//! A driver over the frontend: attaches as SPDK's initiator does, puts requests into rings, waits for them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rotproof_export::vhost::message::code;

use crate::frontend::{Frontend, SPDK_CONFIG_BYTES, Shared, eventfd};
use crate::server::PATIENCE;

pub const RING_SIZE: u16 = 128;
/// Bytes of shared memory of each ring: the ring, then room for data.
pub const RING_BYTES: usize = 8 << 20;
const AVAILABLE_AT: usize = 4096;
const USED_AT: usize = 8192;
/// Where headers are, one of 64 bytes for each descriptor chain.
const HEADERS_AT: usize = 16384;
/// Where indirect tables are.
const TABLE_AT: usize = 32768;
/// Where the data is.
pub const DATA_AT: usize = 65536;

pub mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

pub mod status {
    pub const OK: u8 = 0;
    pub const IO_ERROR: u8 = 1;
    pub const UNSUPPORTED: u8 = 2;
}

pub const EVENT_INDEX: u64 = 1 << 29;
pub const PROTOCOL: u64 = 1 << 30;
pub const FLUSH: u64 = 1 << 9;
/// What SPDK's initiator uses of what it is offered, without the event index.
pub const SPDK_FEATURES: u64 = 1 << 6 | 1 << 10 | 1 << 12 | 1 << 5 | 1 << 13 | PROTOCOL;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;

/// A client with rings.
pub struct Attached {
    pub frontend: Frontend,
    pub memory: Arc<Shared>,
    pub rings: Vec<Ring>,
    pub config: Vec<u8>,
    pub features: u64,
}

/// One ring of a client.
pub struct Ring {
    memory: Arc<Shared>,
    start: usize,
    kick: OwnedFd,
    call: OwnedFd,
    uses_event_index: bool,
    offered: u16,
    seen: u16,
}

impl Attached {
    /// Attaches with a number of rings and the features `wanted`, as far as they are offered, in the order of SPDK's
    /// `virtio_vhost_user.c`: owner, features, protocol features, configuration; each ring enabled by its size; calls;
    /// all memory as one region whose guest addresses are this process's own; a question, to know that it is taken;
    /// then size, base, addresses and kick of each ring.
    pub fn new(socket: &Path, rings: usize, wanted: u64) -> Self {
        Self::with_config(socket, rings, wanted, SPDK_CONFIG_BYTES)
    }

    /// As [`Attached::new`], asking for so many bytes of configuration: some servers have fewer than SPDK asks for.
    pub fn with_config(socket: &Path, rings: usize, wanted: u64, config_bytes: u32) -> Self {
        let mut frontend = Frontend::connect(socket);
        frontend.send(code::SET_OWNER, &[], &[]);
        let features = frontend.ask(code::GET_FEATURES) & wanted;
        frontend.send_long(code::SET_FEATURES, features, &[]);
        let offered = frontend.ask(code::GET_PROTOCOL_FEATURES);
        // Multiple queues, acknowledgements, configuration, memory slots.
        let protocol = offered & (1 | 1 << 3 | 1 << 9 | 1 << 15);
        frontend.send_long(code::SET_PROTOCOL_FEATURES, protocol, &[]);
        let reply = frontend.config(config_bytes);
        assert_eq!(reply.len(), 12 + config_bytes as usize, "SPDK takes no other size");
        let memory = Arc::new(Shared::new(rings * RING_BYTES));
        let mut attached = Self { frontend, memory, rings: vec![], config: reply[12..].to_vec(), features };
        for number in 0..rings as u32 {
            attached.frontend.send_words(code::SET_VRING_ENABLE, &[number, RING_SIZE.into()]);
        }
        assert!(attached.frontend.ask(code::GET_QUEUE_NUM) >= rings as u64);
        attached.rings = (0..rings).map(|number| Ring::new(&attached.memory, number, features)).collect();
        (0..rings).for_each(|number| attached.set_call(number));
        attached.share_memory();
        attached.frontend.ask(code::GET_FEATURES);
        for number in 0..rings {
            attached.start_ring(number, 0);
        }
        attached
    }

    /// One ring with all features.
    pub fn one(socket: &Path) -> Self {
        Self::new(socket, 1, u64::MAX)
    }

    pub fn region(&self) -> [u64; 4] {
        [self.memory.address(), self.memory.size(), self.memory.address(), 0]
    }

    pub fn share_memory(&mut self) {
        let mut body = 1u64.to_le_bytes().to_vec();
        body.extend(self.region().iter().flat_map(|number| number.to_ne_bytes()));
        self.frontend.send(code::SET_MEM_TABLE, &body, &[self.memory.file.as_raw_fd()]);
    }

    pub fn set_call(&self, number: usize) {
        let call = self.rings[number].call.as_raw_fd();
        self.frontend.send_long(code::SET_VRING_CALL, number as u64, &[call]);
    }

    pub fn start_ring(&mut self, number: usize, base: u16) {
        let ring = &self.rings[number];
        let frontend = &self.frontend;
        frontend.send_words(code::SET_VRING_NUM, &[number as u32, RING_SIZE.into()]);
        frontend.send_words(code::SET_VRING_BASE, &[number as u32, base.into()]);
        frontend.send(code::SET_VRING_ADDR, &ring.addresses(number), &[]);
        frontend.send_long(code::SET_VRING_KICK, number as u64, &[ring.kick.as_raw_fd()]);
    }

    /// Stops a ring; where it would go on.
    pub fn stop_ring(&mut self, number: u32) -> u32 {
        self.frontend.send_words(code::GET_VRING_BASE, &[number, 0]);
        let reply = self.frontend.receive(code::GET_VRING_BASE);
        assert_eq!(reply[..4], number.to_ne_bytes());
        u32::from_ne_bytes(reply[4..].try_into().expect("four bytes"))
    }

    pub fn ring(&mut self) -> &mut Ring {
        &mut self.rings[0]
    }
}

impl Ring {
    fn new(memory: &Arc<Shared>, number: usize, features: u64) -> Self {
        Self {
            memory: Arc::clone(memory),
            start: number * RING_BYTES,
            kick: eventfd(),
            call: eventfd(),
            uses_event_index: features & EVENT_INDEX != 0,
            offered: 0,
            seen: 0,
        }
    }

    fn addresses(&self, number: usize) -> Vec<u8> {
        let base = self.memory.address() + self.start as u64;
        let mut body = (number as u64).to_le_bytes().to_vec();
        for address in [base, base + USED_AT as u64, base + AVAILABLE_AT as u64, 0] {
            body.extend(address.to_ne_bytes());
        }
        body
    }

    /// The address of data at `at` in this ring's data.
    pub fn address(&self, at: usize) -> u64 {
        self.memory.address() + (self.start + DATA_AT + at) as u64
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        self.memory.write(self.start + DATA_AT + at, bytes);
    }

    pub fn get(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(self.start + DATA_AT + at, &mut bytes);
        bytes
    }

    pub fn descriptor(&self, table: usize, index: usize, address: u64, length: u32, flags: u16, next: u16) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.memory.write(self.start + table + 16 * index, &bytes);
    }

    /// Offers the chain that begins at the descriptor `head`, and kicks if the device wants it.
    pub fn offer(&mut self, head: u16) {
        let at = self.start + AVAILABLE_AT;
        let place = usize::from(self.offered % RING_SIZE);
        self.memory.write(at + 4 + 2 * place, &head.to_le_bytes());
        let before = self.offered;
        self.offered = self.offered.wrapping_add(1);
        self.memory.index(at + 2).store(self.offered, Ordering::Release);
        fence(Ordering::SeqCst);
        let used = self.start + USED_AT;
        let wanted = if self.uses_event_index {
            let event = self.memory.index(used + 4 + 8 * usize::from(RING_SIZE)).load(Ordering::Relaxed);
            self.offered.wrapping_sub(event).wrapping_sub(1) < self.offered.wrapping_sub(before)
        } else {
            self.memory.index(used).load(Ordering::Relaxed) & 1 == 0
        };
        if wanted {
            self.kick();
        }
    }

    pub fn kick(&self) {
        let one = 1u64;
        // SAFETY: an eventfd takes eight bytes; the value lives across the call.
        unsafe { libc::write(self.kick.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Puts a request of `kind` into the descriptors from `head` on (three of them, or one and an indirect table) and
    /// offers it. Data of `length` bytes is at `data`.
    pub fn submit(&mut self, head: u16, kind: u32, sector: u64, data: usize, length: u32, indirect: bool) {
        let header = HEADERS_AT + 64 * usize::from(head);
        self.memory.write(self.start + header, &kind.to_le_bytes());
        self.memory.write(self.start + header + 8, &sector.to_le_bytes());
        self.memory.write(self.start + header + 16, &[0xff]);
        let base = self.memory.address() + self.start as u64;
        let (table, first) = if indirect { (TABLE_AT, 0) } else { (0, head) };
        let mut index = first;
        let mut add = |ring: &Self, address: u64, length: u32, flags: u16, last: bool| {
            let flags = if last { flags } else { flags | NEXT };
            ring.descriptor(table, index.into(), address, length, flags, index + 1);
            index += 1;
        };
        add(self, base + header as u64, 16, 0, false);
        if length > 0 {
            let written = [kind::READ, kind::ID].contains(&kind);
            add(self, self.address(data), length, if written { WRITABLE } else { 0 }, false);
        }
        add(self, base + header as u64 + 16, 1, WRITABLE, true);
        if indirect {
            let bytes = u32::from(index - first) * 16;
            self.descriptor(0, head.into(), base + TABLE_AT as u64, bytes, INDIRECT, 0);
        }
        self.offer(head);
    }

    /// The next chain that is done and the bytes written to it, if there is one by the deadline.
    pub fn try_done(&mut self, deadline: Instant) -> Option<(u16, u32)> {
        let used = self.start + USED_AT;
        loop {
            if self.memory.index(used + 2).load(Ordering::Acquire) != self.seen {
                let mut element = [0; 8];
                let place = usize::from(self.seen % RING_SIZE);
                self.memory.read(used + 4 + 8 * place, &mut element);
                self.seen = self.seen.wrapping_add(1);
                let [head, bytes] =
                    [0, 4].map(|at| u32::from_le_bytes(element[at..at + 4].try_into().expect("four bytes")));
                return Some((head as u16, bytes));
            }
            if self.uses_event_index {
                let event = self.start + AVAILABLE_AT + 4 + 2 * usize::from(RING_SIZE);
                self.memory.index(event).store(self.seen, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.memory.index(used + 2).load(Ordering::Acquire) != self.seen {
                    continue;
                }
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            self.wait_for_call(left);
        }
    }

    fn wait_for_call(&self, limit: Duration) {
        let mut poll = libc::pollfd { fd: self.call.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = limit.as_millis().min(60_000) as libc::c_int;
        let mut count = 0u64;
        // SAFETY: list and value live across the calls, which write no more than their sizes.
        unsafe {
            libc::poll(&raw mut poll, 1, limit.max(1));
            libc::read(self.call.as_raw_fd(), (&raw mut count).cast(), 8);
        }
    }

    pub fn done(&mut self) -> (u16, u32) {
        self.try_done(Instant::now() + PATIENCE).expect("the device completes what it took")
    }

    /// The status of the request at the descriptor `head`.
    pub fn status(&self, head: u16) -> u8 {
        let mut status = [0];
        self.memory.read(self.start + HEADERS_AT + 64 * usize::from(head) + 16, &mut status);
        status[0]
    }

    /// One request from beginning to end; its status.
    pub fn run(&mut self, kind: u32, sector: u64, length: u32) -> u8 {
        self.submit(0, kind, sector, 0, length, false);
        assert_eq!(self.done().0, 0);
        self.status(0)
    }

    pub fn write(&mut self, sector: u64, bytes: &[u8]) -> u8 {
        self.put(0, bytes);
        self.run(kind::WRITE, sector, bytes.len() as u32)
    }

    pub fn read(&mut self, sector: u64, length: usize) -> Vec<u8> {
        assert_eq!(self.run(kind::READ, sector, length as u32), status::OK);
        self.get(0, length)
    }

    /// Clears sectors by `kind`; the status.
    pub fn clear(&mut self, kind: u32, sector: u64, sectors: u32, flags: u32) -> u8 {
        let range = [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat();
        self.put(0, &range);
        self.run(kind, 0, 16)
    }
}
