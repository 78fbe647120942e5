//! A file's pages as the kernel has cached them, mapped for reading.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::copy::{copy, copy_and_xor};
use crate::fault::Watch;

/// Smallest mapping.
const ROOM_MIN: u64 = 1 << 20;
/// So many bytes of a file that nobody has mapped yet are read by system calls so many times first: a mapping and its end cost
/// as much, and many a small file is read once.
const UNMAPPED_BYTES: u64 = 256 << 10;
const UNMAPPED_READS: u32 = 16;
/// Pages are brought into the mapping in stretches of this size, rather than one by one.
const STRETCH_SHIFT: u32 = 17;

struct Mapping {
    start: *mut u8,
    bytes: u64,
    /// A bit for each stretch that was brought in.
    present: Vec<AtomicU64>,
    /// Something in it faulted; it is not used any more.
    is_broken: std::sync::atomic::AtomicBool,
}

/// See the head of the module.
pub struct View {
    now: AtomicPtr<Mapping>,
    unmapped_reads: AtomicU32,
    #[expect(clippy::vec_box, reason = "a mapping in use must not move when another one is added")]
    all: Mutex<Vec<Box<Mapping>>>,
}

// SAFETY: the mapping is only read, through raw pointers.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// Maps nothing yet.
    pub fn new() -> Self {
        Self {
            now: AtomicPtr::new(std::ptr::null_mut()),
            unmapped_reads: AtomicU32::new(0),
            all: Mutex::new(Vec::new()),
        }
    }

    /// Copies from `offset` of the file, and gives the exclusive or of what was copied if `sums`. `None` if the file is not
    /// there any more, or cannot be read or mapped, or is not worth a mapping yet: then it has to be read by other means.
    pub fn copy(&self, file: &File, offset: u64, to: &mut [u8], sums: bool) -> Option<u64> {
        let length = to.len() as u64;
        if self.now.load(Ordering::Acquire).is_null()
            && offset + length <= UNMAPPED_BYTES
            && self.unmapped_reads.fetch_add(1, Ordering::Relaxed) < UNMAPPED_READS
        {
            return None;
        }
        let mapping = self.with_room(file, offset + length)?;
        mapping.bring_in(offset, length)?;
        // SAFETY: inside the mapping.
        let from = unsafe { mapping.start.add(offset as usize) };
        let page = from.addr() & 4095;
        let watch = Watch::over(from.wrapping_sub(page), (page + to.len()).next_multiple_of(4096));
        let mut sum = 0;
        // SAFETY: inside the mapping, whose faults are watched; `to` is ours alone.
        unsafe {
            if sums {
                sum = copy_and_xor(&watch, from, to.as_mut_ptr(), to.len());
            } else {
                copy(&watch, from, to.as_mut_ptr(), to.len());
            }
        }
        if watch.has_faulted() {
            mapping.is_broken.store(true, Ordering::Release);
            return None;
        }
        Some(sum)
    }

    /// Lets go of the pages of a range, so that the kernel may drop them.
    pub fn let_go(&self, offset: u64, length: u64) {
        for mapping in self.all.lock().iter() {
            if offset + length <= mapping.bytes && !mapping.is_broken.load(Ordering::Acquire) {
                // SAFETY: inside the mapping; its pages come back when they are read.
                unsafe {
                    libc::madvise(
                        mapping.start.add(offset as usize).cast(),
                        length as usize,
                        libc::MADV_DONTNEED,
                    )
                };
            }
        }
    }

    fn with_room(&self, file: &File, bytes: u64) -> Option<&Mapping> {
        let now = self.now.load(Ordering::Acquire);
        if !now.is_null() {
            // SAFETY: mappings live as long as this.
            let mapping = unsafe { &*now };
            if mapping.bytes >= bytes && !mapping.is_broken.load(Ordering::Acquire) {
                return Some(mapping);
            }
        }
        let mut all = self.all.lock();
        if let Some(last) = all.last()
            && last.bytes >= bytes
            && !last.is_broken.load(Ordering::Acquire)
        {
            // SAFETY: boxed, and lives as long as this.
            return Some(unsafe { &*std::ptr::from_ref(&**last) });
        }
        let bytes = bytes.max(ROOM_MIN).checked_next_power_of_two()?;
        // SAFETY: a fresh shared mapping at a place of the kernel's choice. Beyond the end of the file it faults until the
        // file grows.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                usize::try_from(bytes).ok()?,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let stretches = (bytes >> STRETCH_SHIFT).div_ceil(64) as usize;
        let present = (0..stretches).map(|_| AtomicU64::new(0)).collect();
        let mapping = Box::new(Mapping { start: start.cast(), bytes, present, is_broken: false.into() });
        let pointer = std::ptr::from_ref(&*mapping).cast_mut();
        all.push(mapping);
        self.now.store(pointer, Ordering::Release);
        // SAFETY: boxed, and lives as long as this.
        Some(unsafe { &*pointer })
    }
}

impl Mapping {
    /// Brings pages in by stretches. `None` if some cannot be read.
    fn bring_in(&self, offset: u64, length: u64) -> Option<()> {
        let stretches = offset >> STRETCH_SHIFT..=(offset + length.max(1) - 1) >> STRETCH_SHIFT;
        for stretch in stretches {
            let (word, bit) = ((stretch / 64) as usize, 1 << (stretch % 64));
            if self.present[word].load(Ordering::Relaxed) & bit != 0 {
                continue;
            }
            let begin = (stretch << STRETCH_SHIFT).max(offset & !4095);
            let end = ((stretch + 1) << STRETCH_SHIFT).min((offset + length).next_multiple_of(4096));
            // The rest of the stretch may lie behind the end of the file; only what is asked for must be there. What comes
            // later faults in by itself.
            if self.populate(stretch << STRETCH_SHIFT, 1 << STRETCH_SHIFT)
                || self.populate(begin, end - begin)
            {
                self.present[word].fetch_or(bit, Ordering::Relaxed);
            } else if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
                return None;
            }
            // EINVAL: a kernel before 5.14, where pages come in one by one.
        }
        Some(())
    }

    /// Brings in pages; says so where one cannot be read, rather than to raise a signal.
    fn populate(&self, offset: u64, length: u64) -> bool {
        // SAFETY: inside the mapping, and only its pages change their place.
        unsafe {
            let start = self.start.add(offset as usize).cast();
            libc::madvise(start, length as usize, libc::MADV_POPULATE_READ) == 0
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        for mapping in self.all.lock().drain(..) {
            // SAFETY: a mapping of that size which nobody uses any more, since this is the last owner.
            unsafe { libc::munmap(mapping.start.cast(), mapping.bytes as usize) };
        }
    }
}
