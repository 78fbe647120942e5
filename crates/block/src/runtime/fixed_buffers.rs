//! Memory that the kernel has been told of once (`IORING_REGISTER_BUFFERS`), so that it need not find and pin the pages of
//! each request anew.
//!
//! Memory is known by its address, and stays registered as long as its ring lives. So it must not become other memory
//! meanwhile: the thread keeps all that its pooled buffers ever were.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use io_uring::IoUring;

use crate::buffer::keep_all_of_this_thread;
use crate::error::IoContext;
use crate::{Buffer, Error, ErrorKind, Result};

/// Places in the table of the kernel. A queue has no more buffers at once; what finds no place is sent as it is.
const PLACES: u16 = 4096;

/// The table of one ring.
pub(super) struct FixedBuffers {
    /// By address; those of one thread's pool never overlap.
    places: HashMap<usize, u16, BuildHasherDefault<AddressHasher>>,
}

/// One multiplication: addresses are nobody's choice, and asked for with every request.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        let mixed = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl FixedBuffers {
    /// A table of `ring` with `count` buffers of `bytes` in it, which are those that the thread will use next. Fails with
    /// [`ErrorKind::Missing`] where the kernel has no such tables or this user may not lock so much memory.
    pub(super) fn new(ring: &IoUring, (count, bytes): (u32, usize)) -> Result<Self> {
        ring.submitter().register_buffers_sparse(PLACES.into()).map_err(|error| {
            let message = "this kernel has no table of buffers to be filled later (Linux 5.19 has); do without fixed buffers";
            Error::new(ErrorKind::Missing, message).caused_by(error)
        })?;
        keep_all_of_this_thread();
        let mut table = Self { places: HashMap::default() };
        let buffers: Vec<Buffer> = (0..count.min(PLACES.into())).map(|_| Buffer::stale(bytes)).collect();
        for buffer in &buffers {
            table.place_of(ring, buffer).map_err(|error| {
                if error.kind() != ErrorKind::Os(libc::ENOMEM) && error.kind() != ErrorKind::NoSpace {
                    return error;
                }
                let message = format!(
                    "{count} fixed buffers of {bytes} bytes are more memory than this user may lock; raise `ulimit -l`, \
                     lower the queue depth, or do without fixed buffers"
                );
                Error::new(ErrorKind::Missing, message).caused_by(error)
            })?;
        }
        Ok(table)
    }

    /// The place of a buffer's memory, which it gets if it has none; none if it cannot have one.
    #[inline]
    pub(super) fn place_of(&mut self, ring: &IoUring, buffer: &Buffer) -> Result<Option<u16>> {
        let Some((start, capacity)) = buffer.pooled_memory() else { return Ok(None) };
        if let Some(place) = self.places.get(&(start as usize)) {
            return Ok(Some(*place));
        }
        self.give_place(ring, start, capacity)
    }

    #[cold]
    fn give_place(&mut self, ring: &IoUring, start: *mut u8, capacity: usize) -> Result<Option<u16>> {
        let Some(place) = u16::try_from(self.places.len()).ok().filter(|place| *place < PLACES) else {
            return Ok(None);
        };
        let memory = libc::iovec { iov_base: start.cast(), iov_len: capacity };
        // SAFETY: the range is one allocation that is alive now, and the kernel pins its pages: what becomes of the addresses later
        // cannot harm memory. That they go on to mean these pages rests on the thread: it keeps what comes back to its lists
        // (`keep_all_of_this_thread`), and whoever asks for fixed buffers drops them where they were made.
        unsafe { ring.submitter().register_buffers_update(place.into(), &[memory], None) }
            .doing(|| format!("registering a buffer of {capacity} bytes with io_uring"))?;
        self.places.insert(start as usize, place);
        Ok(Some(place))
    }
}
