//! One ring between a driver and this device: what the driver offers, what is done, and who tells whom.
//!
//! The ring is in memory that the driver may change at any time. Whatever it writes there, nothing here reaches beyond
//! its memory or goes on for ever: the crate `virtio-queue` checks every access and bounds every chain.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use super::memory::{Memory, Refused};
use super::request::{ID_BYTES, Segment};
use crate::system::signal;

/// The most entries that a ring may have.
pub(super) const RING_SIZE_MAX: u16 = 1024;
/// The most segments of a request. A driver that gives more is broken: it is told a much smaller number.
const SEGMENTS_MAX: usize = 1024;

/// The driver has written to the ring what nobody can make sense of. As virtio has it, such a ring needs a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Tells the driver of completions; may be exchanged while the ring is served.
#[derive(Default)]
pub(super) struct Call(Mutex<Option<OwnedFd>>);

impl Call {
    pub(super) fn set(&self, event: Option<OwnedFd>) {
        *self.0.lock() = event;
    }

    fn ring(&self) {
        if let Some(event) = &*self.0.lock() {
            signal(event);
        }
    }
}

/// What a ring begins with.
pub(super) struct RingSetup {
    pub(super) memory: Arc<Memory>,
    pub(super) size: u16,
    pub(super) base: u16,
    pub(super) descriptors: GuestAddress,
    pub(super) available: GuestAddress,
    pub(super) used: GuestAddress,
    pub(super) event_index: bool,
    pub(super) call: Arc<Call>,
}

pub(super) struct Ring {
    queue: Queue,
    memory: Arc<Memory>,
    call: Arc<Call>,
    /// Something is done that the driver has not been told of.
    untold: bool,
}

impl Ring {
    /// Refuses a ring that is not in memory as a whole, has an impossible size, or lies crooked.
    pub(super) fn new(setup: RingSetup) -> Result<Self, Refused> {
        let RingSetup { memory, size, base, descriptors, available, used, event_index, call } = setup;
        let mut queue = Queue::new(RING_SIZE_MAX).map_err(|_| Refused)?;
        queue.try_set_size(size).map_err(|_| Refused)?;
        queue.try_set_desc_table_address(descriptors).map_err(|_| Refused)?;
        queue.try_set_avail_ring_address(available).map_err(|_| Refused)?;
        queue.try_set_used_ring_address(used).map_err(|_| Refused)?;
        queue.set_event_idx(event_index);
        queue.set_next_avail(base);
        queue.set_ready(true);
        if !queue.is_valid(&*memory) {
            return Err(Refused);
        }
        let done = queue.used_idx(&*memory, Ordering::Acquire).map_err(|_| Refused)?;
        queue.set_next_used(done.0);
        Ok(Self { queue, memory, call, untold: false })
    }

    pub(super) fn size(&self) -> usize {
        self.queue.size().into()
    }

    /// Where the ring goes on.
    pub(super) fn next_available(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Takes the next request: the number of its chain, which goes back when it is done; `segments`, which is empty,
    /// gets the chain.
    pub(super) fn next(&mut self, segments: &mut Vec<Segment>) -> Result<Option<u16>, Broken> {
        let Some(chain) = self.queue.iter(&*self.memory).map_err(|_| Broken)?.next() else {
            return Ok(None);
        };
        let head = chain.head_index();
        // The iterator ends in silence at what it cannot follow, so whoever announced another segment was not the last.
        let mut another = true;
        for descriptor in chain {
            if segments.len() == SEGMENTS_MAX {
                return Err(Broken);
            }
            another = descriptor.has_next();
            segments.push(Segment {
                address: descriptor.addr().0,
                length: descriptor.len(),
                writable: descriptor.is_write_only(),
            });
        }
        if another { Err(Broken) } else { Ok(Some(head)) }
    }

    /// Whether the driver offers more than was taken.
    pub(super) fn has_next(&self) -> Result<bool, Broken> {
        let offered = self.queue.avail_idx(&*self.memory, Ordering::Acquire).map_err(|_| Broken)?;
        Ok(offered.0 != self.queue.next_avail())
    }

    /// Fills `bytes` from guest memory. False where there is none.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read_slice(bytes, GuestAddress(address)).is_ok()
    }

    /// Fills `bytes` from segments that together have as many. False where there is no memory.
    pub(super) fn gather(&self, segments: &[Segment], mut bytes: &mut [u8]) -> bool {
        segments.iter().all(|segment| {
            let (part, rest) = std::mem::take(&mut bytes).split_at_mut(segment.length as usize);
            bytes = rest;
            self.read(segment.address, part)
        })
    }

    /// Writes `bytes` to segments that together have at least as many. False where there is no memory.
    pub(super) fn scatter(&self, segments: &[Segment], mut bytes: &[u8]) -> bool {
        segments.iter().all(|segment| {
            let (part, rest) = bytes.split_at(bytes.len().min(segment.length as usize));
            bytes = rest;
            part.is_empty() || self.memory.write_slice(part, GuestAddress(segment.address)).is_ok()
        })
    }

    /// Writes a device's name to segments, as much of it as fits; returns how much, if there is memory.
    pub(super) fn write_name(&self, segments: &[Segment], name: &[u8; ID_BYTES]) -> Option<usize> {
        let room: usize =
            segments.iter().map(|segment| segment.length as usize).fold(0, usize::saturating_add);
        let length = room.min(name.len());
        self.scatter(segments, &name[..length]).then_some(length)
    }

    /// Gives a chain back, with its status and with how many bytes of it were written before that.
    pub(super) fn complete(
        &mut self,
        head: u16,
        status_address: u64,
        status: u8,
        written: u32,
    ) -> Result<(), Broken> {
        self.memory.write_slice(&[status], GuestAddress(status_address)).map_err(|_| Broken)?;
        self.queue.add_used(&*self.memory, head, written.saturating_add(1)).map_err(|_| Broken)?;
        self.untold = true;
        Ok(())
    }

    /// Tells the driver of what is done, if there is anything and it wants to know.
    pub(super) fn tell(&mut self) -> Result<(), Broken> {
        if !std::mem::take(&mut self.untold) {
            return Ok(());
        }
        let mut wanted = self.queue.needs_notification(&*self.memory).map_err(|_| Broken)?;
        if !self.queue.event_idx_enabled() {
            // The crate leaves the flag to others; it has made the fence that must come before.
            let available = GuestAddress(self.queue.avail_ring());
            let flags: u16 = self.memory.load(available, Ordering::Relaxed).map_err(|_| Broken)?;
            wanted = u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0;
        }
        if wanted {
            self.call.ring();
        }
        Ok(())
    }

    /// Asks the driver to kick, before the thread sleeps. True if there is something already.
    pub(super) fn ask_for_kicks(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(&*self.memory).map_err(|_| Broken)
    }

    /// Asks the driver to save its kicks: the thread looks by itself.
    pub(super) fn forgo_kicks(&mut self) -> Result<(), Broken> {
        self.queue.disable_notification(&*self.memory).map_err(|_| Broken)
    }
}
