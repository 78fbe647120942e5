//! The table of an open file in memory that all processes share: what both doors look at.
//!
//! It is a file in `/dev/shm`, gone with the machine's power. Entries are filled from the table on the disk when they are
//! first wanted. Whoever changes blocks holds the lock of writers and makes the sequence number of each block odd meanwhile;
//! readers take no lock, and read again what changed below them. So a race is never taken for rot.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::format::REGIONS;
use crate::lock::SharedLock;
use crate::sum::Sum;

/// Blocks that are written under one hold of the lock, at most.
pub const WRITE_BLOCKS: usize = 64;

/// Blocks whose failure is remembered one by one.
pub const ERRORS: usize = 64;

/// Bytes of the head, and of each entry.
const HEAD: usize = 8192;
const ENTRY: usize = 64;
/// Smallest number of blocks that a mapping has room for.
const ROOM_MIN: u64 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"RPLIVE02");

/// What is known of a block.
pub mod flag {
    /// The rest was looked up.
    pub const LOADED: u32 = 1;
    /// There are sums; without it nothing vouches for the block.
    pub const KNOWN: u32 = 2;
    /// The strong sum is there too.
    pub const STRONG: u32 = 4;
    /// Not yet in the table on the disk.
    pub const DIRTY: u32 = 8;
    /// Was found wrong, and could not be mended.
    pub const ROTTEN: u32 = 16;
    /// The page of the table was damaged, so a mismatch may be the table's.
    pub const DOUBTFUL: u32 = 32;
}

/// What is known of the file.
pub mod state {
    /// All that others wrote to it was seen by a guard.
    pub const COMPLETE: u32 = 1;
    /// Somebody changed it behind the guard's back.
    pub const FOREIGN: u32 = 2;
    /// Its header on the disk says that sums may be ahead of the data.
    pub const UNSYNCED: u32 = 4;
    /// A program has mapped it for writing: nothing vouches for any of it.
    pub const MAPPED: u32 = 8;
}

/// What is in front of the entries.
#[repr(C, align(64))]
pub struct Head {
    magic: AtomicU64,
    is_ready: AtomicU32,
    /// Of [`state`].
    pub state: AtomicU32,
    /// Held by whoever changes the file.
    pub writers: SharedLock,
    /// Held by whoever makes it durable.
    pub syncers: SharedLock,
    /// Bytes of the file.
    pub size: AtomicU64,
    /// When a guard last changed it: nanoseconds since 1970.
    pub written: AtomicU64,
    /// Time of modification when the guard last looked, for files that it has not changed.
    pub seen: AtomicU64,
    /// Bytes from the beginning of the file that a crash may bring back as they were: below this, changes in place are
    /// marked on the disk first.
    pub durable: AtomicU64,
    /// The file was cut below what the table on the disk says: 1 until that is written anew.
    pub cut: AtomicU64,
    /// How often the table on the disk was cut.
    pub cuts: AtomicU64,
    /// The file grew without a block being written: 1 until the table on the disk says so.
    pub grown: AtomicU64,
    /// The last generation of a header.
    pub generation: AtomicU64,
    /// Bytes of a region, as a power of two.
    pub region_shift: AtomicU64,
    /// The next mark takes so many regions.
    pub mark_ahead: AtomicU64,
    /// First block of a write that is under way, and how many.
    pub writing: [AtomicU64; 2],
    /// Blocks that failed since the last fsync, in all.
    pub failed: AtomicU64,
    /// And which, the first of them.
    pub errors: [AtomicU64; ERRORS],
    /// Light sums of the blocks of a write that is under way.
    pub pending: [AtomicU64; WRITE_BLOCKS],
    /// Regions that are marked on the disk as being changed.
    pub marked: [AtomicU64; REGIONS / 64],
    /// Regions with blocks that are not in the table on the disk.
    pub dirty: [AtomicU64; REGIONS / 64],
}

const _: () = assert!(size_of::<Head>() <= HEAD && size_of::<LiveEntry>() == ENTRY);

/// What is known of one block.
#[repr(C, align(64))]
pub struct LiveEntry {
    /// Odd while the block is being changed.
    pub sequence: AtomicU32,
    /// Of [`flag`].
    pub flags: AtomicU32,
    /// The light sum.
    pub light: AtomicU64,
    /// The strong sum.
    pub strong: [AtomicU64; 4],
    /// When the strong sum was last verified: [`crate::clock::seconds`].
    pub verified: AtomicU64,
}

impl LiveEntry {
    /// The strong sum.
    pub fn strong(&self) -> Sum {
        Sum(std::array::from_fn(|word| self.strong[word].load(Ordering::Relaxed)))
    }

    /// Gives it a strong sum; none is zeros, which its flag tells.
    pub fn set_strong(&self, sum: Sum) {
        self.strong.iter().zip(sum.0).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Marks the block as being changed.
    pub fn begin(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
        // No change of the block is seen before the mark.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Marks the block as quiet again.
    pub fn end(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            self.sequence.store(sequence.wrapping_add(1), Ordering::Release);
        }
    }
}

/// A mapping of it, with room for so many blocks.
struct Mapping {
    start: *mut u8,
    blocks: u64,
}

/// See the head of the module.
pub struct Live {
    file: File,
    now: AtomicPtr<Mapping>,
    /// All of them; earlier ones may still be in use by other threads, and are undone with the file.
    #[expect(clippy::vec_box, reason = "a mapping in use must not move when another one is added")]
    all: Mutex<Vec<Box<Mapping>>>,
}

// SAFETY: what the mapping holds are atomics and locks for processes.
unsafe impl Send for Live {}
// SAFETY: as above.
unsafe impl Sync for Live {}

impl Live {
    /// Maps `file`, with room for so many blocks. A file that nobody has prepared is all zeros.
    pub fn new(file: File, blocks: u64) -> Result<Self> {
        let live = Self { file, now: AtomicPtr::new(std::ptr::null_mut()), all: Mutex::new(Vec::new()) };
        live.make_room(blocks)?;
        Ok(live)
    }

    /// Gives back the memory of whole pages of entries. They are then as if nobody had looked them up.
    pub fn release(&self, blocks: std::ops::Range<u64>) {
        let per_page = 4096 / ENTRY as u64;
        let (from, to) = (blocks.start.next_multiple_of(per_page), blocks.end / per_page * per_page);
        if from < to {
            let (from, length) = (HEAD as u64 + from * ENTRY as u64, (to - from) * ENTRY as u64);
            // SAFETY: takes an open descriptor and numbers; the mappings show zeros there from now on.
            unsafe {
                libc::fallocate(
                    self.file.as_raw_fd(),
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    from.cast_signed(),
                    length.cast_signed(),
                )
            };
        }
    }

    /// What is mapped.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether somebody has filled the head.
    pub fn is_ready(&self) -> bool {
        self.head().is_ready.load(Ordering::Acquire) == 1
            && self.head().magic.load(Ordering::Relaxed) == MAGIC
    }

    /// Says that the head is filled.
    pub fn set_ready(&self) {
        self.head().magic.store(MAGIC, Ordering::Relaxed);
        self.head().is_ready.store(1, Ordering::Release);
    }

    fn mapping(&self) -> &Mapping {
        // SAFETY: set in `new` and never null since; mappings live as long as this.
        unsafe { &*self.now.load(Ordering::Acquire) }
    }

    /// What is in front of the entries.
    pub fn head(&self) -> &Head {
        // SAFETY: the mapping begins with it, is aligned to pages, and all its fields may be any bits.
        unsafe { &*self.mapping().start.cast::<Head>() }
    }

    /// The entry of a block for which there is room.
    pub fn entry(&self, block: u64) -> Option<&LiveEntry> {
        let mapping = self.mapping();
        if block >= mapping.blocks {
            return None;
        }
        // SAFETY: inside the mapping, aligned; all fields may be any bits.
        Some(unsafe { &*mapping.start.add(HEAD + block as usize * ENTRY).cast::<LiveEntry>() })
    }

    /// The entry of a block, after [`Live::make_room`] for it.
    pub fn at(&self, block: u64) -> &LiveEntry {
        self.entry(block).expect("room was made for the block")
    }

    /// Makes room for so many blocks.
    pub fn make_room(&self, blocks: u64) -> Result<()> {
        let current = self.now.load(Ordering::Acquire);
        // SAFETY: mappings live as long as this.
        if !current.is_null() && unsafe { (*current).blocks } >= blocks {
            return Ok(());
        }
        let mut all = self.all.lock();
        if all.last().is_some_and(|last| last.blocks >= blocks) {
            return Ok(());
        }
        let blocks = blocks.max(ROOM_MIN).next_power_of_two();
        let bytes = HEAD as u64 + blocks * ENTRY as u64;
        let doing = || "making room for checksums in /dev/shm".to_owned();
        if self.file.metadata().doing(doing)?.len() < bytes {
            self.file.set_len(bytes).doing(doing)?;
        }
        // SAFETY: a fresh shared mapping at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).doing(doing);
        }
        let mapping = Box::new(Mapping { start: start.cast(), blocks });
        self.now.store(std::ptr::from_ref(&*mapping).cast_mut(), Ordering::Release);
        all.push(mapping);
        Ok(())
    }

    /// The parts of a range of blocks whose entries somebody has touched: all others are as if nobody had looked them up. A file may be
    /// long and mostly holes.
    pub fn touched(&self, blocks: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
        let blocks = blocks.start..blocks.end.min(self.mapping().blocks).max(blocks.start);
        if blocks.end - blocks.start <= ROOM_MIN {
            return vec![blocks];
        }
        let seek = |from: u64, what| {
            // SAFETY: takes an open descriptor and numbers; nobody uses its position.
            let found = unsafe { libc::lseek(self.file.as_raw_fd(), from.cast_signed(), what) };
            u64::try_from(found).ok()
        };
        let place = |block: u64| HEAD as u64 + block * ENTRY as u64;
        let mut parts = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end
            && let Some(begin) = seek(place(at), libc::SEEK_DATA)
            && let Some(end) = seek(begin, libc::SEEK_HOLE)
        {
            let begin = (begin.saturating_sub(HEAD as u64) / ENTRY as u64).max(at);
            let end = (end.saturating_sub(HEAD as u64) / ENTRY as u64).min(blocks.end);
            if begin < end {
                parts.push(begin..end);
            }
            at = end.max(at + 1);
        }
        parts
    }

    /// The region of a block.
    pub fn region_of(&self, block: u64) -> usize {
        let shift = self.head().region_shift.load(Ordering::Relaxed) - 12;
        ((block >> shift) as usize).min(REGIONS - 1)
    }

    /// The first block of a region, and the first of the next.
    pub fn blocks_of(&self, region: usize) -> std::ops::Range<u64> {
        let shift = self.head().region_shift.load(Ordering::Relaxed) - 12;
        let end = if region == REGIONS - 1 { u64::MAX } else { (region as u64 + 1) << shift };
        (region as u64) << shift..end
    }
}

/// Whether a bit is set.
pub fn has_bit(words: &[AtomicU64], bit: usize) -> bool {
    words[bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
}

/// Sets a bit.
pub fn set_bit(words: &[AtomicU64], bit: usize) {
    words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
}

/// Clears a bit.
pub fn clear_bit(words: &[AtomicU64], bit: usize) {
    words[bit / 64].fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
}

impl Drop for Live {
    fn drop(&mut self) {
        for mapping in self.all.lock().drain(..) {
            let bytes = HEAD + mapping.blocks as usize * ENTRY;
            // SAFETY: a mapping of that size which nobody uses any more, since this is the last owner.
            unsafe { libc::munmap(mapping.start.cast(), bytes) };
        }
    }
}
