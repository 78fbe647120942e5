//! What is in front of the entries of an open file in the memory that all processes share, and what an entry is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::bits::{bits, clear_bit, has_bit, set_bit};
use crate::format::REGIONS;
use crate::lock::SharedLock;
use crate::rooms::Tenancy;
use crate::sum::Sum;

/// Blocks that are written under one hold of the lock, at most.
pub const WRITE_BLOCKS: usize = 64;

/// Blocks whose failure is remembered one by one.
pub const ERRORS: usize = 64;

/// In the number of blocks that are being changed: they are becoming zeros.
pub const ZEROING: u64 = 1 << 63;

/// Bytes of the head, and of each entry.
pub(crate) const HEAD: usize = 8192;
pub(crate) const ENTRY: usize = 64;
/// Blocks whose entries are in the room.
pub(crate) const HERE: u64 = 256;
/// Bytes of a room.
pub const ROOM_BYTES: usize = HEAD + HERE as usize * ENTRY;
/// Entries in the room become memory in steps of so many: a page of them.
pub(crate) const STEP: u64 = (4096 / ENTRY) as u64;
/// Bytes that are memory from the beginning of a room's first use: the head, and one step of entries.
pub const HEAD_BACKED: u64 = HEAD as u64 + STEP * ENTRY as u64;

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

    /// What headers say.
    pub const TOLD: u32 = COMPLETE | FOREIGN | UNSYNCED;
}

/// Why marks of regions may be in memory and not be durable. Nobody relies on any of them then: who changes a block in place brings all of
/// them to the disk first.
pub mod marking {
    /// Somebody marks regions before it changes them, or died while it did.
    pub const BY_WRITER: u64 = 1;
    /// They go with what makes the file durable, or was stored without being made so.
    pub const BY_SYNCER: u64 = 2;
}

/// Whether a head is filled.
pub(crate) mod filled {
    /// Not yet, and the room is as if nobody had used it.
    pub const CLEAN: u32 = 0;
    /// It is.
    pub const READY: u32 = 1;
    /// Its last user has left it, so it is to be emptied first.
    pub const LEFT: u32 = 2;
}

/// What is in front of the entries.
#[repr(C, align(64))]
pub struct Head {
    pub(crate) tenancy: Tenancy,
    /// Entries in the room that have memory. It stays with the room.
    pub(crate) backed: AtomicU64,
    /// Entries in the room that somebody may have used.
    pub(crate) entries_max: AtomicU64,
    /// Held by whoever fills the head, or leaves the file and may be the last one.
    pub door: SharedLock,
    /// Of [`filled`].
    pub(crate) filled: AtomicU32,
    /// There are entries in a file of their own.
    pub(crate) has_further: AtomicU32,
    /// Where the sums are on the disk: [`crate::home::Home`].
    pub home: AtomicU64,
    /// The copy of the record that is to stay until a later one is durable.
    pub protected: AtomicU64,
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
    /// What [`Head::durable`] is made of: the disk says something of so many bytes, if no cut came since.
    told: AtomicU64,
    /// And is about to say something of so many. A cut takes it down, so that who brings it there does not take for durable
    /// what was cut meanwhile.
    telling: AtomicU64,
    /// Bytes of which the table says something, durable or not: what is known of blocks before that can be looked up, and is not lost when
    /// nobody has it in memory.
    stored: AtomicU64,
    /// The file was cut below what the table on the disk says: 1 until that is written anew.
    pub cut: AtomicU64,
    /// How often the table on the disk was cut.
    pub cuts: AtomicU64,
    /// The file grew without a block being written: 1 until the table on the disk says so.
    pub grown: AtomicU64,
    /// How often somebody began to make the file durable, and which of these was the last that did: its data, and all.
    pub syncs: [AtomicU64; 3],
    /// The last generation of a header.
    pub generation: AtomicU64,
    /// Of [`state`], what that header says.
    pub told_state: AtomicU32,
    /// How many pages were written over without a header, and the time of modification that the last of those said which the header
    /// does not say yet; 0: it says all.
    pub stamps: AtomicU64,
    pub stamped: AtomicU64,
    /// Those who make the file durable without the locks at this moment: what they wrote is in the cache.
    pub flying: AtomicU64,
    /// How often it could not be made durable.
    pub failures: AtomicU64,
    /// Bytes of a region, as a power of two.
    pub region_shift: AtomicU64,
    /// The next mark takes so many regions.
    pub mark_ahead: AtomicU64,
    /// Of [`marking`]: marks may be in memory that are not on the disk.
    pub marking: AtomicU64,
    /// First block of a change that is under way, and how many: [`WRITE_BLOCKS`] at most, whose light sums are pending, or any number with
    /// [`ZEROING`].
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
    dirty: [AtomicU64; REGIONS / 64],
    /// Words of these that anybody has used: most files have one region, and whether something is dirty is asked often.
    dirty_words: AtomicU64,
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
        self.announce();
        // No change of the block is seen before the mark.
        fence(Ordering::Release);
    }

    /// The same for who marks several, and sets one fence behind them.
    pub fn announce(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
    }

    /// Marks the block as quiet again.
    pub fn end(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            self.sequence.store(sequence.wrapping_add(1), Ordering::Release);
        }
    }
}

impl Head {
    /// Whether somebody has filled it, and nobody has left it since.
    pub(crate) fn is_ready(&self) -> bool {
        self.filled.load(Ordering::Acquire) == filled::READY
    }

    /// Bytes from the beginning of the file that a crash may bring back as they were: below this, changes in place are marked on
    /// the disk first.
    pub(crate) fn durable(&self) -> u64 {
        self.told.load(Ordering::Acquire).min(self.telling.load(Ordering::Acquire))
    }

    /// Bytes of which the table says something, if only in the cache.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// The table says something of so many bytes, less what was cut since they were gathered.
    pub(crate) fn note_stored(&self, bytes: u64) {
        self.stored.fetch_max(bytes.min(self.telling.load(Ordering::Acquire)), Ordering::AcqRel);
    }

    /// The disk says something of so many bytes, and nothing is on its way there. The caller keeps others from changing the file.
    pub(crate) fn set_durable(&self, bytes: u64) {
        self.stored.store(bytes, Ordering::Release);
        self.told.store(bytes, Ordering::Release);
        self.telling.store(u64::MAX, Ordering::Release);
    }

    /// Something of so many bytes is about to go to the disk. The caller holds the lock of writers.
    pub(crate) fn begin_telling(&self, bytes: u64) {
        self.told.store(self.durable(), Ordering::Release);
        self.telling.store(bytes, Ordering::Release);
    }

    /// It has got there. At no moment between is more said to be durable than was, or less than a cut has left.
    pub(crate) fn end_telling(&self, bytes: u64) {
        self.told.store(bytes, Ordering::Release);
    }

    /// The file is cut; says whether the table says something of more, or is about to. The caller holds the lock of writers.
    pub(crate) fn cut_to(&self, bytes: u64) -> bool {
        let telling = self.telling.fetch_min(bytes, Ordering::AcqRel);
        let stored = self.stored.fetch_min(bytes, Ordering::AcqRel);
        stored > bytes
            || (if telling == u64::MAX { self.told.load(Ordering::Acquire) } else { telling }) > bytes
    }

    /// A region has blocks that are not in the table on the disk.
    pub(crate) fn set_dirty(&self, region: usize) {
        let words = region as u64 / 64 + 1;
        if self.dirty_words.load(Ordering::Relaxed) < words {
            self.dirty_words.fetch_max(words, Ordering::Relaxed);
        }
        // It is taken away under the lock of writers alone, which every writer has: what it sees holds.
        if !has_bit(&self.dirty, region) {
            set_bit(&self.dirty, region);
        }
    }

    /// It has none any more.
    pub(crate) fn clear_dirty(&self, region: usize) {
        clear_bit(&self.dirty, region);
    }

    /// Those that have some.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = usize> {
        bits(&self.dirty[..self.dirty_words.load(Ordering::Relaxed) as usize])
    }

    /// Says that the room has [`HEAD_BACKED`] bytes of memory.
    pub(crate) fn set_backed(&self) {
        self.backed.fetch_max(STEP, Ordering::AcqRel);
    }

    /// As if nobody had used the room, but for its tenancy.
    pub(crate) fn clear(&self) {
        let start = std::ptr::from_ref(self).cast_mut().cast::<u8>();
        let entries = self.entries_max.load(Ordering::Relaxed).min(HERE) as usize;
        // Of a file that was removed behind the guard's back: whoever fills the room takes it away.
        let has_further = self.has_further.load(Ordering::Relaxed);
        let from = std::mem::offset_of!(Self, entries_max);
        // SAFETY: the head is of atomics and locks, of which zeros are a value; nobody uses the room, and its entries lie
        // behind the head, with memory.
        unsafe {
            std::ptr::write_bytes(start.add(from), 0, size_of::<Self>() - from);
            std::ptr::write_bytes(start.add(HEAD), 0, entries * ENTRY);
        }
        self.has_further.store(has_further, Ordering::Relaxed);
    }
}
