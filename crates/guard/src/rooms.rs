//! Where the rooms of a guard lie in memory: one file in `/dev/shm`, mapped piece by piece, with an index in front. Who may use
//! which room is the [`crate::arena`]'s.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::counts::Counts;
use crate::format::Moment;
use crate::live::{Head, ROOM_BYTES};
use crate::lock::SharedLock;
use crate::seats::{Users, doing, open_shared};
use crate::stat::Identity;

/// The file.
const ROOMS: &str = "rooms";

/// Rooms that are mapped together, and how many such maps there can be.
const MAP_ROOMS: u32 = 128;
const MAPS_MAX: usize = 8192;
const MAP_BYTES: usize = MAP_ROOMS as usize * ROOM_BYTES;

const BUCKETS: usize = 16_384;
const INDEX_BYTES: usize = 128 << 10;
const MAGIC: u64 = u64::from_le_bytes(*b"RPROOMS1");
/// Nothing follows in a chain.
pub const END: u32 = 0;

/// In front of the rooms. Numbers of rooms are counted from 1, so that zeros are an empty index.
#[repr(C, align(64))]
pub struct Index {
    magic: AtomicU64,
    /// Rooms that were ever used.
    pub used_max: AtomicU32,
    /// Rooms in use.
    pub used: AtomicU32,
    /// The first of those that were given back.
    pub free: AtomicU32,
    pub lock: SharedLock,
    pub buckets: [AtomicU32; BUCKETS],
    /// Of processes that have ended, and of others up to some time ago.
    pub counts: Counts,
}

const _: () = assert!(size_of::<Index>() <= INDEX_BYTES);

/// What a room has of the arena's own, in front of all else.
#[repr(C)]
pub struct Tenancy {
    pub inode: AtomicU64,
    pub birth: [AtomicU64; 2],
    pub reuse: AtomicU64,
    pub is_used: AtomicU32,
    pub next: AtomicU32,
    pub users: Users,
}

/// A room that this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room(pub u32);

/// See the head of the module.
pub struct Rooms {
    file: File,
    index: *mut u8,
    maps: Box<[AtomicPtr<u8>]>,
    growing: Mutex<()>,
}

// SAFETY: what the mappings hold are atomics and locks for processes.
unsafe impl Send for Rooms {}
// SAFETY: as above.
unsafe impl Sync for Rooms {}

fn map(file: &File, place: u64, bytes: usize) -> Result<*mut u8> {
    // SAFETY: a fresh shared mapping at a place of the kernel's choice.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            place.cast_signed(),
        )
    };
    if start == libc::MAP_FAILED {
        Err(std::io::Error::last_os_error()).doing(doing)
    } else {
        Ok(start.cast())
    }
}

/// Memory that is really there: to touch a page that a full `/dev/shm` has no room for would end the process.
pub fn back(file: &File, place: u64, bytes: u64) -> Result<()> {
    loop {
        // SAFETY: takes an open descriptor and numbers.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, place.cast_signed(), bytes.cast_signed()) };
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            _ if done == 0 => return Ok(()),
            Some(libc::EINTR) => {}
            _ => return Err(error).doing(|| "making room for checksums in /dev/shm".to_owned()),
        }
    }
}

impl Rooms {
    /// Opens the file in a folder, or makes it. The caller keeps others from doing so at the same time.
    pub fn open(folder: &Path) -> Result<Self> {
        let file = open_shared(folder, ROOMS)?;
        back(&file, 0, INDEX_BYTES as u64)?;
        let index = map(&file, 0, INDEX_BYTES)?;
        let maps = (0..MAPS_MAX).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let rooms = Self { file, index, maps, growing: Mutex::new(()) };
        let index = rooms.index();
        if index.magic.load(Ordering::Acquire) != MAGIC {
            index.lock.prepare()?;
            index.magic.store(MAGIC, Ordering::Release);
        }
        Ok(rooms)
    }

    /// What is in front of them.
    pub fn index(&self) -> &Index {
        // SAFETY: a mapping of that size which lives as long as this; all fields may be any bits.
        unsafe { &*self.index.cast::<Index>() }
    }

    /// All rooms that were ever used.
    pub fn all(&self) -> impl Iterator<Item = Room> + use<> {
        (1..=self.index().used_max.load(Ordering::Acquire)).map(Room)
    }

    /// Where a room begins in the memory of this process. It stays there.
    pub fn start(&self, room: Room) -> Result<*mut u8> {
        let number = room.0 - 1;
        let (which, within) = ((number / MAP_ROOMS) as usize, (number % MAP_ROOMS) as usize);
        let Some(place) = self.maps.get(which) else {
            let what = format!("{} files of the guard are open already", MAPS_MAX * MAP_ROOMS as usize);
            return Err(Error::new(ErrorKind::NoSpace, what));
        };
        let mut start = place.load(Ordering::Acquire);
        if start.is_null() {
            let _growing = self.growing.lock();
            start = place.load(Ordering::Acquire);
            if start.is_null() {
                let from = (INDEX_BYTES + which * MAP_BYTES) as u64;
                // The last page, which makes the file so long and never shorter than another process has made it.
                back(&self.file, from + MAP_BYTES as u64 - 4096, 4096)?;
                start = map(&self.file, from, MAP_BYTES)?;
                place.store(start, Ordering::Release);
            }
        }
        // SAFETY: inside the mapping.
        Ok(unsafe { start.add(within * ROOM_BYTES) })
    }

    /// Makes the memory of a room be there, from its beginning, and in this process's mapping, page by page of which it would come in.
    pub fn back(&self, room: Room, bytes: u64) -> Result<()> {
        let start = self.start(room)?;
        // SAFETY: inside the mapping of the room; a page for which there is no memory makes it fail, rather than to raise a signal.
        if unsafe { libc::madvise(start.cast(), bytes as usize, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        // Not known to a kernel before 5.14; or there is no memory, which this says.
        back(&self.file, INDEX_BYTES as u64 + u64::from(room.0 - 1) * ROOM_BYTES as u64, bytes)
    }

    /// What is in front of the entries of a room.
    pub fn head(&self, room: Room) -> Result<&Head> {
        // SAFETY: a room begins with it, is aligned to pages, and all its fields may be any bits.
        Ok(unsafe { &*self.start(room)?.cast::<Head>() })
    }

    /// What a room has of the arena's own.
    pub fn tenancy(&self, room: Room) -> Result<&Tenancy> {
        Ok(&self.head(room)?.tenancy)
    }

    /// Where the chain of rooms begins in which that of an inode is.
    pub fn bucket(&self, inode: u64) -> &AtomicU32 {
        let hash = inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50;
        &self.index().buckets[hash as usize % BUCKETS]
    }
}

impl Tenancy {
    /// Which file the room is of.
    pub fn identity(&self) -> Identity {
        let [seconds, nanoseconds] = self.birth.each_ref().map(|word| word.load(Ordering::Relaxed));
        let reuse = self.reuse.load(Ordering::Relaxed);
        Identity {
            birth: Moment { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 },
            reuse: (reuse >> 32 != 0).then_some(reuse as u32),
        }
    }

    /// The room is of this file from now on.
    pub fn set_identity(&self, identity: Identity) {
        self.birth[0].store(identity.birth.seconds.cast_unsigned(), Ordering::Relaxed);
        self.birth[1].store(identity.birth.nanoseconds.into(), Ordering::Relaxed);
        self.reuse.store(identity.reuse.map_or(0, |reuse| 1 << 32 | u64::from(reuse)), Ordering::Relaxed);
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        for place in &mut self.maps {
            let start = *place.get_mut();
            if !start.is_null() {
                // SAFETY: a mapping of that size which nobody uses any more, since this is the last owner.
                unsafe { libc::munmap(start.cast(), MAP_BYTES) };
            }
        }
        // SAFETY: as above.
        unsafe { libc::munmap(self.index.cast(), INDEX_BYTES) };
    }
}
