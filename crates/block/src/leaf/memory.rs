//! A device in RAM: anonymous memory that costs nothing until it is written.

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::{
    Completion, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result, Runtime,
    Submission,
};

/// Bytes under one lock at a time; also the largest unit that a concurrent reader never sees half-written.
const REGION_BYTES: u64 = 64 << 10;
const STRIPES: usize = 1024;
const PAGE_BYTES: u64 = 4096;

/// RAM of this process as a device. Requests complete inside `submit`, without an allocation.
pub struct MemoryDevice(Arc<Memory>);

struct Memory {
    map: Map,
    info: DeviceInfo,
    /// A region's bytes are touched only under its stripe. Neighbours have different ones, and a request holds one at
    /// a time, so there is no order to keep.
    stripes: Box<[RwLock<()>]>,
}

impl MemoryDevice {
    /// A device of `size_bytes` zeros; both sizes as [`DeviceInfo`] demands. Fails with [`ErrorKind::Invalid`] on sizes
    /// that do not fit each other, [`ErrorKind::NoSpace`] where the address space has no room.
    pub fn new(size_bytes: u64, block_size: u32) -> Result<Arc<Self>> {
        if !block_size.is_power_of_two() || !(512..=4096).contains(&block_size) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a block of {block_size} bytes; use a power of two from 512 to 4096"),
            ));
        }
        if size_bytes == 0 || !size_bytes.is_multiple_of(u64::from(block_size)) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a device of {size_bytes} bytes; use a multiple of its block size, {block_size} bytes"
                ),
            ));
        }
        let info = DeviceInfo {
            size: size_bytes,
            block_size,
            atomic_write_bytes: 4096,
            read_only: false,
            features: Features { flush: false, fua: true, discard: true, write_zeroes: true },
        };
        let stripes = (0..STRIPES).map(|_| RwLock::new(())).collect();
        Ok(Arc::new(Self(Arc::new(Memory { map: Map::new(size_bytes)?, info, stripes }))))
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> DeviceInfo {
        self.0.info
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(MemoryQueue(Arc::clone(&self.0))))
    }
}

struct MemoryQueue(Arc<Memory>);

impl Queue for MemoryQueue {
    fn submit(&self, request: Request) -> Submission {
        Submission::ready(self.0.serve(request))
    }
}

impl Memory {
    /// Carries a request out, at once.
    fn serve(&self, mut request: Request) -> Completion {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error);
        }
        let range = request.offset..request.end();
        match request.operation {
            Operation::Read => {
                let mut rest = &mut request.buffer[..];
                for region in regions(range) {
                    let (part, after) = rest.split_at_mut(length(&region));
                    rest = after;
                    let _shared = self.stripe(region.start).read();
                    // SAFETY: `check` has put the range inside the map; the lock keeps writers out of it.
                    unsafe {
                        self.map
                            .at(region.start)
                            .as_ptr()
                            .copy_to_nonoverlapping(part.as_mut_ptr(), part.len());
                    };
                }
            }
            Operation::Write { .. } => {
                let mut rest = &request.buffer[..];
                for region in regions(range) {
                    let (part, after) = rest.split_at(length(&region));
                    rest = after;
                    let _exclusive = self.stripe(region.start).write();
                    // SAFETY: as above; the lock keeps everybody else out of the range.
                    unsafe {
                        self.map
                            .at(region.start)
                            .as_ptr()
                            .copy_from_nonoverlapping(part.as_ptr(), part.len());
                    };
                }
            }
            Operation::Discard | Operation::WriteZeroes => {
                for region in regions(range) {
                    let _exclusive = self.stripe(region.start).write();
                    // SAFETY: as above.
                    unsafe { self.map.zero(region) };
                }
            }
            Operation::Flush => {}
        }
        request.succeed()
    }

    fn stripe(&self, offset: u64) -> &RwLock<()> {
        &self.stripes[(offset / REGION_BYTES) as usize % STRIPES]
    }
}

fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// Cuts a range at the borders of the regions.
fn regions(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let end = ((start / REGION_BYTES + 1) * REGION_BYTES).min(range.end);
            std::mem::replace(&mut start, end)..end
        })
    })
}

/// Anonymous memory, reserved without being committed: pages come with the first write.
struct Map {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory; `Memory` allows access only under the stripe of the region.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(size_bytes: u64) -> Result<Self> {
        let too_large = || {
            Error::new(
                ErrorKind::NoSpace,
                format!("there is no room in memory for a device of {size_bytes} bytes"),
            )
        };
        let length = usize::try_from(size_bytes).map_err(|_| too_large())?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(too_large().caused_by(std::io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).ok_or_else(too_large)?;
        Ok(Self { start, length })
    }

    /// The byte at `offset`.
    ///
    /// # Safety
    /// `offset` lies inside the mapping.
    unsafe fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.length as u64);
        // SAFETY: inside the mapping, as the caller promises.
        unsafe { self.start.add(offset as usize) }
    }

    /// Fills a range with zeros; whole pages are given back to the system instead.
    ///
    /// # Safety
    /// The range lies inside the mapping, and nobody else reads or writes it meanwhile.
    unsafe fn zero(&self, range: Range<u64>) {
        let pages = range.start.next_multiple_of(PAGE_BYTES)..range.end / PAGE_BYTES * PAGE_BYTES;
        let given_back = pages.start < pages.end && {
            // SAFETY: whole pages inside our private anonymous mapping; they read as zeros afterwards.
            let answer = unsafe {
                libc::madvise(self.at(pages.start).as_ptr().cast(), length(&pages), libc::MADV_DONTNEED)
            };
            answer == 0
        };
        let by_hand =
            if given_back { [range.start..pages.start, pages.end..range.end] } else { [range, 0..0] };
        for part in by_hand.into_iter().filter(|part| !part.is_empty()) {
            // SAFETY: inside the mapping, and nobody else's, as the caller promises.
            unsafe { self.at(part.start).write_bytes(0, length(&part)) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody holds the device any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
