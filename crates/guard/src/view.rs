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
const STRETCH_PAGES: usize = 1 << (STRETCH_SHIFT - 12);
/// Bytes that the kernel reads ahead of one who reads one stretch after the other.
const AHEAD: u64 = 512 << 10;

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

    /// Whether so many bytes from the beginning of a file are to be read by a system call, which counts as one.
    pub fn is_for_system_call(&self, end: u64) -> bool {
        self.now.load(Ordering::Acquire).is_null()
            && end <= UNMAPPED_BYTES
            && self.unmapped_reads.fetch_add(1, Ordering::Relaxed) < UNMAPPED_READS
    }

    /// Copies from `offset` of the file, and gives the exclusive or of what was copied if `sums`. `None` if the file is not
    /// there any more, or cannot be read or mapped, or is not worth a mapping yet: then it has to be read by other means.
    pub fn copy(&self, file: &File, offset: u64, to: &mut [u8], sums: bool) -> Option<u64> {
        let length = to.len() as u64;
        if self.is_for_system_call(offset + length) {
            return None;
        }
        let mapping = self.with_room(file, offset + length)?;
        mapping.look_for(file, offset, length)?;
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

    /// Brings all pages of a range into the cache and the mapping at once, and goes on with what is likely to be wanted next, for
    /// one who is about to copy many.
    pub fn bring_in(&self, file: &File, offset: u64, length: u64) {
        let is_small = offset + length <= UNMAPPED_BYTES;
        if is_small && self.now.load(Ordering::Acquire).is_null() {
            return;
        }
        if let Some(mapping) = self.with_room(file, offset + length)
            && mapping.bring_in(offset, length) == Some(true)
        {
            mapping.read_ahead(file, offset, length);
        }
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

fn stretches(offset: u64, length: u64) -> std::ops::RangeInclusive<u64> {
    offset >> STRETCH_SHIFT..=(offset + length.max(1) - 1) >> STRETCH_SHIFT
}

/// The pages of a stretch that a range touches: where they begin and end in the file.
fn within(stretch: u64, offset: u64, length: u64) -> (u64, u64) {
    let begin = (stretch << STRETCH_SHIFT).max(offset & !4095);
    (begin, ((stretch + 1) << STRETCH_SHIFT).min((offset + length).next_multiple_of(4096)))
}

impl Mapping {
    fn is_present(&self, stretch: u64) -> bool {
        let word = self.present.get((stretch / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (stretch % 64) & 1 == 1)
    }

    fn set_present(&self, stretch: u64) {
        self.present[(stretch / 64) as usize].fetch_or(1 << (stretch % 64), Ordering::Relaxed);
    }

    /// Brings pages in by stretches, and says whether some were not in before. `None` if some cannot be read.
    fn bring_in(&self, offset: u64, length: u64) -> Option<bool> {
        let mut has_brought = false;
        for stretch in stretches(offset, length) {
            if self.is_present(stretch) {
                continue;
            }
            has_brought = true;
            let (begin, end) = within(stretch, offset, length);
            // The rest of the stretch may lie behind the end of the file; only what is asked for must be there. What comes
            // later faults in by itself.
            if self.populate(stretch << STRETCH_SHIFT, 1 << STRETCH_SHIFT)
                || self.populate(begin, end - begin)
            {
                self.set_present(stretch);
            } else if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
                return None;
            }
            // EINVAL: a kernel before 5.14, where pages come in one by one.
        }
        Some(has_brought)
    }

    /// Lets the kernel read what follows a stretch, if what was before it has been read too.
    fn read_ahead(&self, file: &File, offset: u64, length: u64) {
        let (first, next) = (offset >> STRETCH_SHIFT, (offset + length).div_ceil(1 << STRETCH_SHIFT));
        if first > 0 && self.is_present(first - 1) && !self.is_present(next) {
            // SAFETY: takes an open descriptor and numbers.
            unsafe {
                libc::posix_fadvise(
                    file.as_raw_fd(),
                    (next << STRETCH_SHIFT).cast_signed(),
                    AHEAD.cast_signed(),
                    libc::POSIX_FADV_WILLNEED,
                )
            };
        }
    }

    /// Brings pages into the mapping that are in the cache. `None` if some are not: one who reads here and there wants them alone,
    /// and the system call for it knows what to read ahead.
    fn look_for(&self, file: &File, offset: u64, length: u64) -> Option<()> {
        for stretch in stretches(offset, length) {
            if self.is_present(stretch) {
                continue;
            }
            let start = stretch << STRETCH_SHIFT;
            let size = file.metadata().ok()?.len();
            let pages = (size.saturating_sub(start).div_ceil(4096)).min(STRETCH_PAGES as u64) as usize;
            let mut cached = [0u8; STRETCH_PAGES];
            // SAFETY: inside the mapping; the answer is a byte for each page.
            let asked = unsafe {
                libc::mincore(self.start.add(start as usize).cast(), 1 << STRETCH_SHIFT, cached.as_mut_ptr())
            };
            let (begin, end) = within(stretch, offset, length);
            let wanted = ((begin - start) / 4096) as usize..((end - start) / 4096) as usize;
            let is_cached = |pages: std::ops::Range<usize>| {
                cached.get(pages).is_some_and(|pages| pages.iter().all(|page| page & 1 == 1))
            };
            if asked != 0 || is_cached(0..pages) {
                self.bring_in(begin, end - begin)?;
            } else if !is_cached(wanted) || !self.populate(begin, end - begin) {
                return None;
            }
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
