//! The memory that all processes of a guard share: a room for each file that somebody has open, all in one file in `/dev/shm`.
//!
//! A process has a *seat*: a number, and a lock on the byte of that number, which the kernel takes away when the process ends.
//! Each room has a bit for each seat that uses it. So whoever is the last to leave a room knows it, also if others were killed.
//! Rooms are found, taken and given back under one lock that outlives the death of its holder; the next one makes the index
//! anew. What a room holds is [`crate::live`]'s.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::live::{HEAD_BACKED, Head, ROOM_BYTES};
use crate::lock::{SharedGuard, SharedLock};
use crate::stat::{Identity, keep};

/// The files of it.
const ROOMS: &str = "rooms";
const SEATS: &str = "seats";

/// Processes that use a guard at the same time, at most.
pub const SEATS_MAX: usize = 1024;
/// Rooms that are mapped together, and how many such maps there can be.
const MAP_ROOMS: u32 = 128;
const MAPS_MAX: usize = 8192;

const BUCKETS: usize = 16_384;
const INDEX_BYTES: usize = 128 << 10;
const MAGIC: u64 = u64::from_le_bytes(*b"RPROOMS1");
/// Nothing follows in a chain.
const END: u32 = 0;

/// In front of the rooms. Numbers of rooms are counted from 1, so that zeros are an empty index.
#[repr(C, align(64))]
struct Index {
    magic: AtomicU64,
    /// Rooms that were ever used.
    used_max: AtomicU32,
    /// Rooms in use.
    used: AtomicU32,
    /// The first of those that were given back.
    free: AtomicU32,
    lock: SharedLock,
    buckets: [AtomicU32; BUCKETS],
}

const _: () = assert!(size_of::<Index>() <= INDEX_BYTES);

/// Words of bits, one for each seat.
pub type Users = [AtomicU64; SEATS_MAX / 64];

/// What a room has of the arena's own, in front of all else.
#[repr(C)]
pub struct Tenancy {
    inode: AtomicU64,
    birth: [AtomicU64; 2],
    reuse: AtomicU64,
    is_used: AtomicU32,
    next: AtomicU32,
    users: Users,
}

/// A room that this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room(u32);

/// See the head of the module.
pub struct Arena {
    file: File,
    seats: Mutex<File>,
    seat: AtomicU32,
    index: *mut u8,
    maps: Box<[AtomicPtr<u8>]>,
    growing: Mutex<()>,
    /// How often this process uses each room.
    held: Mutex<HashMap<Room, u32>>,
}

// SAFETY: what the mappings hold are atomics and locks for processes.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

const MAP_BYTES: usize = MAP_ROOMS as usize * ROOM_BYTES;

fn doing() -> String {
    "using shared memory in /dev/shm".to_owned()
}

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

/// Asks for the lock of a seat, or who has it.
fn seat_lock(
    seats: &File,
    seat: u32,
    command: libc::c_int,
    kind: libc::c_int,
) -> std::io::Result<libc::flock> {
    // SAFETY: all zeros is a valid value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = seat.into();
    lock.l_len = 1;
    // SAFETY: an open descriptor and a structure of this frame.
    match unsafe { libc::fcntl(seats.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Takes a seat that nobody has.
fn sit(seats: &File) -> Result<u32> {
    for seat in 0..SEATS_MAX as u32 {
        match seat_lock(seats, seat, libc::F_OFD_SETLK, libc::F_WRLCK) {
            Ok(_) => return Ok(seat),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES | libc::EINTR)) => {
            }
            Err(error) => return Err(error).doing(doing),
        }
    }
    let what = format!("{SEATS_MAX} processes use the guard already; end some of them");
    Err(Error::new(ErrorKind::Refused, what))
}

fn open(folder: &Path, name: &str) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o666);
    options.open(&path).map(keep).doing(|| format!("opening {}", path.display()))
}

/// Whether somebody uses the arena in this folder, as far as can be told.
pub fn is_in_use(folder: &Path) -> bool {
    let Ok(seats) = File::open(folder.join(SEATS)) else { return false };
    // SAFETY: all zeros is a valid value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = SEATS_MAX as i64;
    // SAFETY: an open descriptor and a structure of this frame.
    let asked = unsafe { libc::fcntl(seats.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked != 0 || lock.l_type != libc::F_UNLCK as libc::c_short
}

impl Arena {
    /// Opens the arena in a folder, or makes it. The caller keeps others from doing so at the same time.
    pub fn join(folder: &Path) -> Result<Self> {
        let (file, seats) = (open(folder, ROOMS)?, open(folder, SEATS)?);
        let bytes = INDEX_BYTES as u64;
        back(&file, 0, bytes)?;
        let index = map(&file, 0, INDEX_BYTES)?;
        let seat = sit(&seats);
        let maps = (0..MAPS_MAX).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let arena = Self {
            file,
            seats: Mutex::new(seats),
            seat: AtomicU32::new(0),
            index,
            maps,
            growing: Mutex::new(()),
            held: Mutex::default(),
        };
        let seat = seat?;
        arena.seat.store(seat, Ordering::Relaxed);
        let index = arena.index();
        if index.magic.load(Ordering::Acquire) != MAGIC {
            index.lock.prepare()?;
            index.magic.store(MAGIC, Ordering::Release);
        }
        arena.vacate(seat)?;
        Ok(arena)
    }

    /// Whoever had this seat before is dead, and uses nothing.
    fn vacate(&self, seat: u32) -> Result<()> {
        let _lock = self.lock()?;
        for room in self.rooms() {
            set_user(&self.tenancy(room)?.users, seat, false);
        }
        Ok(())
    }

    fn index(&self) -> &Index {
        // SAFETY: a mapping of that size which lives as long as this; all fields may be any bits.
        unsafe { &*self.index.cast::<Index>() }
    }

    /// All rooms that were ever used.
    fn rooms(&self) -> impl Iterator<Item = Room> + use<> {
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

    /// Makes the memory of a room be there, from its beginning.
    pub fn back(&self, room: Room, bytes: u64) -> Result<()> {
        back(&self.file, INDEX_BYTES as u64 + u64::from(room.0 - 1) * ROOM_BYTES as u64, bytes)
    }

    fn head(&self, room: Room) -> Result<&Head> {
        // SAFETY: a room begins with it, is aligned to pages, and all its fields may be any bits.
        Ok(unsafe { &*self.start(room)?.cast::<Head>() })
    }

    fn tenancy(&self, room: Room) -> Result<&Tenancy> {
        Ok(&self.head(room)?.tenancy)
    }

    fn bucket(&self, inode: u64) -> &AtomicU32 {
        let hash = inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50;
        &self.index().buckets[hash as usize % BUCKETS]
    }

    fn lock(&self) -> Result<SharedGuard<'_>> {
        let lock = self.index().lock.lock();
        if lock.is_orphaned {
            self.rebuild()?;
        }
        Ok(lock)
    }

    /// Somebody died while the index changed: it is made anew of the rooms that say that they are in use.
    fn rebuild(&self) -> Result<()> {
        let index = self.index();
        index.buckets.iter().for_each(|bucket| bucket.store(END, Ordering::Relaxed));
        index.free.store(END, Ordering::Relaxed);
        let mut used = 0;
        for room in self.rooms() {
            let tenancy = self.tenancy(room)?;
            let first = if tenancy.is_used.load(Ordering::Acquire) == 1 {
                used += 1;
                self.bucket(tenancy.inode.load(Ordering::Relaxed))
            } else {
                &index.free
            };
            tenancy.next.store(first.swap(room.0, Ordering::Relaxed), Ordering::Relaxed);
        }
        index.used.store(used, Ordering::Relaxed);
        Ok(())
    }

    /// The room of an inode in use. The caller holds the lock.
    fn find(&self, inode: u64) -> Result<Option<Room>> {
        let mut next = self.bucket(inode).load(Ordering::Relaxed);
        while next != END {
            let tenancy = self.tenancy(Room(next))?;
            if tenancy.inode.load(Ordering::Relaxed) == inode {
                return Ok(Some(Room(next)));
            }
            next = tenancy.next.load(Ordering::Relaxed);
        }
        Ok(None)
    }

    /// The room of a file, which this process uses from now on. It is empty if nobody had the file open and nothing was left
    /// of it in memory.
    pub fn claim(&self, inode: u64, identity: Identity) -> Result<Room> {
        let _lock = self.lock()?;
        let mut held = self.held.lock();
        let room = match self.find(inode)? {
            Some(room) => {
                let tenancy = self.tenancy(room)?;
                if !tenancy.identity().is_same(identity) {
                    // The inode has another life: who had the former file open has died, or it could not have ended.
                    if held.contains_key(&room) || self.has_living(room)? {
                        let what = format!("inode {inode} is another file than the one that is open");
                        return Err(Error::new(ErrorKind::Internal, what));
                    }
                    self.clear(room)?;
                    tenancy.set_identity(identity);
                }
                room
            }
            None => self.take(inode, identity)?,
        };
        *held.entry(room).or_default() += 1;
        set_user(&self.tenancy(room)?.users, self.seat.load(Ordering::Relaxed), true);
        Ok(room)
    }

    /// Takes a room that nobody uses. The caller holds the lock.
    fn take(&self, inode: u64, identity: Identity) -> Result<Room> {
        let index = self.index();
        let free = index.free.load(Ordering::Relaxed);
        let room = if free == END {
            let room = Room(index.used_max.load(Ordering::Relaxed) + 1);
            self.start(room)?;
            // With the entries that most files need.
            self.back(room, HEAD_BACKED)?;
            self.head(room)?.set_backed();
            index.used_max.store(room.0, Ordering::Release);
            room
        } else {
            index.free.store(self.tenancy(Room(free))?.next.load(Ordering::Relaxed), Ordering::Relaxed);
            Room(free)
        };
        self.clear(room)?;
        let tenancy = self.tenancy(room)?;
        tenancy.inode.store(inode, Ordering::Relaxed);
        tenancy.set_identity(identity);
        tenancy.users.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        tenancy.is_used.store(1, Ordering::Release);
        tenancy.next.store(self.bucket(inode).swap(room.0, Ordering::Relaxed), Ordering::Relaxed);
        index.used.fetch_add(1, Ordering::Relaxed);
        Ok(room)
    }

    fn clear(&self, room: Room) -> Result<()> {
        let head = self.head(room)?;
        head.clear();
        head.door.prepare()?;
        head.writers.prepare()?;
        head.syncers.prepare()
    }

    /// Whether another process that lives uses a room. Those who died do not any more.
    pub fn has_others(&self, room: Room) -> Result<bool> {
        let _lock = self.lock()?;
        self.has_living(room)
    }

    /// The caller holds the lock: a seat must not get another owner who claims the room while it is found empty.
    fn has_living(&self, room: Room) -> Result<bool> {
        let tenancy = self.tenancy(room)?;
        let ours = self.seat.load(Ordering::Relaxed);
        for (word, bits) in tenancy.users.iter().enumerate() {
            let mut rest = bits.load(Ordering::Acquire);
            while rest != 0 {
                let seat = (word * 64) as u32 + rest.trailing_zeros();
                rest &= rest - 1;
                if seat == ours {
                    continue;
                }
                let asked = seat_lock(&self.seats.lock(), seat, libc::F_OFD_GETLK, libc::F_WRLCK);
                if asked.map_or(true, |lock| lock.l_type != libc::F_UNLCK as libc::c_short) {
                    return Ok(true);
                }
                set_user(&tenancy.users, seat, false);
            }
        }
        Ok(false)
    }

    /// Whether this process uses a room more than once.
    pub fn is_held_twice(&self, room: Room) -> bool {
        self.held.lock().get(&room).is_some_and(|count| *count > 1)
    }

    /// This process does not use a room any more. With `frees` the room is given back, unless somebody else has come to use it;
    /// says whether it was.
    pub fn leave(&self, room: Room, frees: bool) -> Result<bool> {
        let _lock = self.lock()?;
        let mut held = self.held.lock();
        let count = held.get_mut(&room).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if count > 0 {
            return Ok(false);
        }
        held.remove(&room);
        let tenancy = self.tenancy(room)?;
        set_user(&tenancy.users, self.seat.load(Ordering::Relaxed), false);
        if !frees || tenancy.users.iter().any(|word| word.load(Ordering::Acquire) != 0) {
            return Ok(false);
        }
        // Taken out of its chain.
        let mut link = self.bucket(tenancy.inode.load(Ordering::Relaxed));
        loop {
            let next = link.load(Ordering::Relaxed);
            if next == room.0 {
                link.store(tenancy.next.load(Ordering::Relaxed), Ordering::Relaxed);
                break;
            }
            if next == END {
                break;
            }
            link = &self.tenancy(Room(next))?.next;
        }
        tenancy.is_used.store(0, Ordering::Release);
        tenancy.next.store(self.index().free.swap(room.0, Ordering::Relaxed), Ordering::Relaxed);
        self.index().used.fetch_sub(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Acts while no room is taken or given back, and says whether an inode has one.
    pub fn with<T>(&self, inode: u64, act: impl FnOnce(bool) -> Result<T>) -> Result<T> {
        let _lock = self.lock()?;
        act(self.find(inode)?.is_some())
    }

    /// The inodes that have rooms.
    pub fn inodes(&self) -> Result<Vec<u64>> {
        let _lock = self.lock()?;
        let mut inodes = Vec::new();
        for room in self.rooms() {
            let tenancy = self.tenancy(room)?;
            if tenancy.is_used.load(Ordering::Acquire) == 1 {
                inodes.push(tenancy.inode.load(Ordering::Relaxed));
            }
        }
        Ok(inodes)
    }

    /// Whether no file has a room.
    pub fn is_empty(&self) -> bool {
        self.lock().is_ok() && self.index().used.load(Ordering::Relaxed) == 0
    }

    /// A seat for a child that is about to be, which uses all that this process uses. Only while no other thread of this
    /// process uses the guard.
    pub fn another_seat(&self, folder: &Path) -> Result<(File, u32)> {
        let seats = open(folder, SEATS)?;
        let seat = sit(&seats)?;
        self.vacate(seat)?;
        for room in self.held.lock().keys() {
            set_user(&self.tenancy(*room)?.users, seat, true);
        }
        Ok((seats, seat))
    }

    /// In the child.
    pub fn change_seat(&self, seats: File, seat: u32) {
        *self.seats.lock() = seats;
        self.seat.store(seat, Ordering::Relaxed);
    }
}

fn set_user(users: &Users, seat: u32, uses: bool) {
    let (word, bit) = (&users[seat as usize / 64], 1 << (seat % 64));
    if uses {
        word.fetch_or(bit, Ordering::AcqRel);
    } else {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

impl Tenancy {
    fn identity(&self) -> Identity {
        let [seconds, nanoseconds] = self.birth.each_ref().map(|word| word.load(Ordering::Relaxed));
        let reuse = self.reuse.load(Ordering::Relaxed);
        Identity {
            birth: crate::format::Moment { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 },
            reuse: (reuse >> 32 != 0).then_some(reuse as u32),
        }
    }

    fn set_identity(&self, identity: Identity) {
        self.birth[0].store(identity.birth.seconds.cast_unsigned(), Ordering::Relaxed);
        self.birth[1].store(identity.birth.nanoseconds.into(), Ordering::Relaxed);
        self.reuse.store(identity.reuse.map_or(0, |reuse| 1 << 32 | u64::from(reuse)), Ordering::Relaxed);
    }
}

impl Drop for Arena {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Moment;

    fn identity(nanoseconds: u32) -> Identity {
        Identity { birth: Moment { seconds: 1, nanoseconds }, reuse: Some(nanoseconds) }
    }

    /// In memory, since rooms are punched and locked there.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").expect("a folder")
    }

    fn in_child(act: impl FnOnce()) {
        // SAFETY: the child does what the test says, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            act();
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }

    #[test]
    fn the_last_one_gives_a_room_back_and_the_dead_do_not_count() {
        let folder = folder();
        let one = Arena::join(folder.path()).expect("joined");
        let room = one.claim(5, identity(1)).expect("a room");
        in_child(|| {
            let other = Arena::join(folder.path()).expect("joined");
            assert!(other.claim(5, identity(1)).expect("the same") == room);
            assert!(other.has_others(room).expect("asked"));
            // It ends without leaving.
            std::mem::forget(other);
        });
        assert!(!one.has_others(room).expect("asked"), "who has died is no user");
        assert_eq!(one.claim(5, identity(1)).expect("again"), room);
        assert!(one.is_held_twice(room) && !one.leave(room, true).expect("left"));
        assert!(one.leave(room, true).expect("given back") && one.is_empty());
        assert!(is_in_use(folder.path()));
        drop(one);
        // A child of another test, forked meanwhile, has the seat's descriptor too until it ends.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while is_in_use(folder.path()) {
            assert!(std::time::Instant::now() < deadline, "nobody is there any more");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn an_inode_with_another_life_gets_an_empty_room() {
        let folder = folder();
        let arena = Arena::join(folder.path()).expect("joined");
        let room = arena.claim(5, identity(1)).expect("a room");
        arena.head(room).expect("its head").size.store(77, Ordering::Relaxed);
        assert!(arena.claim(5, identity(2)).is_err(), "somebody has the first one open");
        // It stays, with what is not on the disk yet.
        assert!(!arena.leave(room, false).expect("left"));
        assert_eq!(arena.claim(5, identity(1)).expect("the same"), room);
        assert_eq!(arena.head(room).expect("its head").size.load(Ordering::Relaxed), 77);
        arena.leave(room, false).expect("left");
        assert_eq!(arena.claim(5, identity(2)).expect("another"), room);
        assert_eq!(arena.head(room).expect("its head").size.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_dies_while_the_index_changes_leaves_one_that_is_made_anew() {
        let folder = folder();
        let arena = Arena::join(folder.path()).expect("joined");
        // More than one map, and chains of more than one.
        let rooms: Vec<Room> =
            (0..300).map(|inode| arena.claim(inode, identity(1)).expect("a room")).collect();
        for (inode, room) in rooms.iter().enumerate().filter(|(inode, _)| inode % 3 == 0) {
            assert!(arena.leave(*room, true).expect("given back"), "{inode}");
        }
        in_child(|| {
            let other = Arena::join(folder.path()).expect("joined");
            let lock = other.lock().expect("locked");
            other.index().buckets.iter().for_each(|bucket| bucket.store(9, Ordering::Relaxed));
            other.index().free.store(9, Ordering::Relaxed);
            std::mem::forget(lock);
            std::mem::forget(other);
        });
        assert_eq!(arena.inodes().expect("rooms").len(), 200);
        for (inode, room) in rooms.iter().enumerate() {
            let again = arena.claim(inode as u64, identity(1)).expect("a room");
            assert!(inode % 3 == 0 || again == *room, "{inode}");
        }
        assert_eq!(
            arena.index().used_max.load(Ordering::Relaxed),
            300,
            "those that were free are used again"
        );
    }
}
