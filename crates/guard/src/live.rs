//! The table of an open file in memory that all processes share: what both doors look at.
//!
//! It lies in a room of the [`crate::arena`], gone with the machine's power. Entries are filled from the disk when they are
//! first wanted. Those of a file's first blocks are in the room itself, all others in a file of their own in `/dev/shm`, which
//! most files never need. Whoever changes blocks holds the lock of writers and makes the sequence number of each block odd
//! meanwhile; readers take no lock, and read again what changed below them. So a race is never taken for rot.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::arena::Arena;
pub use crate::bits::{clear_bit, has_bit, set_bit};
use crate::format::REGIONS;
use crate::head::{ENTRY, HEAD, HERE, STEP, filled};
pub use crate::head::{
    ERRORS, HEAD_BACKED, Head, LiveEntry, ROOM_BYTES, WRITE_BLOCKS, ZEROING, flag, marking, state,
};
use crate::rooms::{Room, back};
use crate::stat::keep;

/// Smallest number of further blocks that a mapping has room for.
const FURTHER_MIN: u64 = 4096;

/// A mapping of further entries, with room for so many blocks.
struct Mapping {
    start: *mut u8,
    blocks: u64,
}

/// See the head of the module.
pub struct Live {
    start: *mut u8,
    room: Room,
    /// Of the further entries.
    path: PathBuf,
    file: OnceLock<File>,
    now: AtomicPtr<Mapping>,
    /// All of them; earlier ones may still be in use by other threads, and are undone with the file.
    #[expect(clippy::vec_box, reason = "a mapping in use must not move when another one is added")]
    all: Mutex<Vec<Box<Mapping>>>,
}

// SAFETY: what the mappings hold are atomics and locks for processes.
unsafe impl Send for Live {}
// SAFETY: as above.
unsafe impl Sync for Live {}

impl Live {
    /// Of a room that this process has claimed; the arena outlives this. Further entries are to lie at `path`.
    pub fn new(arena: &Arena, room: Room, path: PathBuf) -> Result<Self> {
        let start = arena.start(room)?;
        let (now, all) = (AtomicPtr::new(std::ptr::null_mut()), Mutex::new(Vec::new()));
        Ok(Self { start, room, path, file: OnceLock::new(), now, all })
    }

    /// The room.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Whether somebody has filled the head.
    pub fn is_ready(&self) -> bool {
        self.head().is_ready()
    }

    /// Says that the head is filled.
    pub fn set_ready(&self) {
        self.head().filled.store(filled::READY, Ordering::Release);
    }

    /// Says that nothing that the room has is to be used any more. The caller holds the door.
    pub fn set_left(&self) {
        self.head().filled.store(filled::LEFT, Ordering::Release);
        self.remove_further();
    }

    /// Makes the room as if nobody had used it, if it is not yet. The caller holds the door, and the head is not filled.
    pub fn empty(&self, was_orphaned: bool) -> Result<()> {
        let head = self.head();
        let is_clean = head.filled.load(Ordering::Relaxed) == filled::CLEAN
            && head.has_further.load(Ordering::Relaxed) == 0;
        if is_clean && !was_orphaned {
            return Ok(());
        }
        self.remove_further();
        let from = std::mem::offset_of!(Head, filled);
        let entries = head.entries_max.load(Ordering::Relaxed).min(HERE) as usize;
        // SAFETY: as in `Head::clear`; all that is behind the door.
        unsafe {
            std::ptr::write_bytes(self.start.add(from), 0, size_of::<Head>() - from);
            std::ptr::write_bytes(self.start.add(HEAD), 0, entries * ENTRY);
        }
        head.writers.prepare()?;
        head.syncers.prepare()
    }

    /// Takes away the file of further entries.
    fn remove_further(&self) {
        if self.head().has_further.load(Ordering::Acquire) == 1 {
            // First, so that whoever dies in between leaves no file that nobody knows of.
            let _ = std::fs::remove_file(&self.path);
            self.head().has_further.store(0, Ordering::Release);
        }
    }

    /// What is in front of the entries.
    pub fn head(&self) -> &Head {
        // SAFETY: the room begins with it, is aligned to pages, and all its fields may be any bits.
        unsafe { &*self.start.cast::<Head>() }
    }

    /// The entry of a block for which there is room.
    pub fn entry(&self, block: u64) -> Option<&LiveEntry> {
        let place = if block < HERE {
            if block >= self.head().entries_max.load(Ordering::Acquire) {
                return None;
            }
            // SAFETY: inside the room.
            unsafe { self.start.add(HEAD + block as usize * ENTRY) }
        } else {
            let now = self.now.load(Ordering::Acquire);
            // SAFETY: mappings live as long as this.
            let mapping = unsafe { now.as_ref() }?;
            if block - HERE >= mapping.blocks {
                return None;
            }
            // SAFETY: inside the mapping.
            unsafe { mapping.start.add((block - HERE) as usize * ENTRY) }
        };
        // SAFETY: aligned, lives as long as this; all fields may be any bits.
        Some(unsafe { &*place.cast::<LiveEntry>() })
    }

    /// Has the entry of a block brought from memory, for who needs it in a moment: of a large file it is in no cache.
    pub fn prefetch(&self, block: u64) {
        let Some(entry) = self.entry(block) else { return };
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: no memory is accessed as far as a program can tell.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = entry;
    }

    /// The entry of a block, after [`Live::make_room`] for it.
    pub fn at(&self, block: u64) -> &LiveEntry {
        self.entry(block).expect("room was made for the block")
    }

    /// Makes room for so many blocks.
    pub fn make_room(&self, arena: &Arena, blocks: u64) -> Result<()> {
        let head = self.head();
        let here = blocks.min(HERE);
        if here > head.entries_max.load(Ordering::Relaxed) {
            let steps = here.next_multiple_of(STEP).min(HERE);
            if steps > head.backed.load(Ordering::Acquire) {
                arena.back(self.room, HEAD as u64 + steps * ENTRY as u64)?;
                head.backed.fetch_max(steps, Ordering::AcqRel);
            }
            head.entries_max.fetch_max(here.next_multiple_of(STEP), Ordering::AcqRel);
        }
        if blocks > HERE { self.make_further_room(blocks - HERE) } else { Ok(()) }
    }

    /// Blocks beyond those in the room whose entries this process has mapped. Their file is at least as long.
    fn further_mapped(&self) -> u64 {
        // SAFETY: mappings live as long as this.
        unsafe { self.now.load(Ordering::Acquire).as_ref() }.map_or(0, |mapping| mapping.blocks)
    }

    fn make_further_room(&self, blocks: u64) -> Result<()> {
        if self.further_mapped() >= blocks.max(1) {
            return Ok(());
        }
        let mut all = self.all.lock();
        if all.last().is_some_and(|last| last.blocks >= blocks) {
            return Ok(());
        }
        let doing = || "making room for checksums in /dev/shm".to_owned();
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                // Of a former life of the room nothing is left, so that what is there is of this one.
                self.head().has_further.store(1, Ordering::Release);
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false).mode(0o666);
                let file = keep(options.open(&self.path).doing(doing)?);
                self.file.get_or_init(|| file)
            }
        };
        let blocks = blocks.max(FURTHER_MIN).next_power_of_two();
        let bytes = blocks * ENTRY as u64;
        // Its last page, which makes the file so long and never shorter than another process has made it.
        back(file, bytes - 4096, 4096)?;
        // SAFETY: a fresh shared mapping at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
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

    /// Lets go of entries, as if nobody had looked them up, and of the memory of whole pages of them.
    pub fn release(&self, blocks: std::ops::Range<u64>) {
        for block in blocks.start..blocks.end.min(HERE) {
            if let Some(entry) = self.entry(block) {
                entry.flags.store(0, Ordering::Release);
            }
        }
        let Some(file) = self.file.get() else { return };
        let (from, to) = (blocks.start.saturating_sub(HERE), blocks.end.saturating_sub(HERE));
        let (from, to) = (from.next_multiple_of(STEP), to / STEP * STEP);
        if from < to {
            let (from, length) = (from * ENTRY as u64, (to - from) * ENTRY as u64);
            // SAFETY: takes an open descriptor and numbers; the mappings show zeros there from now on.
            unsafe {
                libc::fallocate(
                    file.as_raw_fd(),
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    from.cast_signed(),
                    length.cast_signed(),
                )
            };
        }
    }

    /// The parts of a range of blocks whose entries somebody may have touched: all others are as if nobody had looked them up. A
    /// file may be long and mostly holes.
    pub fn touched(&self, blocks: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
        let mut parts = Vec::new();
        let here = blocks.start..blocks.end.min(self.head().entries_max.load(Ordering::Acquire).min(HERE));
        if here.start < here.end {
            parts.push(here);
        }
        // Others may have made room for more than this process has mapped yet.
        if blocks.end <= HERE
            || (self.head().has_further.load(Ordering::Acquire) == 0)
            || self.make_further_room(1).is_err()
        {
            return parts;
        }
        let Some(file) = self.file.get() else { return parts };
        let end = blocks.end - HERE;
        let end = if end <= self.further_mapped() {
            end
        } else {
            end.min(file.metadata().map_or(0, |metadata| metadata.len()) / ENTRY as u64)
        };
        let further = blocks.start.saturating_sub(HERE)..end;
        if further.is_empty() || self.make_further_room(further.end).is_err() {
            return parts;
        }
        if further.end - further.start <= FURTHER_MIN {
            parts.push(further.start + HERE..further.end + HERE);
            return parts;
        }
        let seek = |from: u64, what| {
            // SAFETY: takes an open descriptor and numbers; nobody uses its position.
            let found = unsafe { libc::lseek(file.as_raw_fd(), from.cast_signed(), what) };
            u64::try_from(found).ok()
        };
        let mut at = further.start;
        while at < further.end
            && let Some(begin) = seek(at * ENTRY as u64, libc::SEEK_DATA)
            && let Some(end) = seek(begin, libc::SEEK_HOLE)
        {
            let begin = (begin / ENTRY as u64).max(at);
            let end = (end / ENTRY as u64).min(further.end);
            if begin < end {
                parts.push(begin + HERE..end + HERE);
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

impl Drop for Live {
    fn drop(&mut self) {
        for mapping in self.all.lock().drain(..) {
            let bytes = mapping.blocks as usize * ENTRY;
            // SAFETY: a mapping of that size which nobody uses any more, since this is the last owner.
            unsafe { libc::munmap(mapping.start.cast(), bytes) };
        }
    }
}
