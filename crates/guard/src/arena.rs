//! The memory that all processes of a guard share: a room for each file that somebody has open, all in one file in `/dev/shm`.
//!
//! A process has a *seat*: a number, and a lock on the byte of that number, which the kernel takes away when the process ends.
//! Each room has a bit for each seat that uses it. So whoever is the last to leave a room knows it, also if others were killed.
//! Rooms are found, taken and given back under one lock that outlives the death of its holder; the next one makes the index
//! anew. What a room holds is [`crate::live`]'s.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result};

use crate::counts::Counts;
use crate::live::HEAD_BACKED;
use crate::lock::SharedGuard;
use crate::rooms::{END, Room, Rooms};
use crate::seats::{Seats, set_user};
use crate::stat::Identity;

/// How often, and how long, one who is dying is waited for.
const DYING_TRIES: u32 = 1000;
const DYING_PAUSE: Duration = Duration::from_millis(2);

/// See the head of the module.
pub struct Arena {
    rooms: Rooms,
    seats: Seats,
    /// How often this process uses each room.
    held: Mutex<HashMap<Room, u32>>,
}

impl Arena {
    /// Opens the arena in a folder, or makes it. The caller keeps others from doing so at the same time.
    pub fn join(folder: &Path) -> Result<Self> {
        let rooms = Rooms::open(folder)?;
        let arena = Self { rooms, seats: Seats::join(folder)?, held: Mutex::default() };
        arena.vacate(arena.seats.ours())?;
        Ok(arena)
    }

    /// Where a room begins in the memory of this process. It stays there.
    pub fn start(&self, room: Room) -> Result<*mut u8> {
        self.rooms.start(room)
    }

    /// What processes have counted.
    pub fn counts(&self) -> &Counts {
        &self.rooms.index().counts
    }

    /// Makes the memory of a room be there, from its beginning.
    pub fn back(&self, room: Room, bytes: u64) -> Result<()> {
        self.rooms.back(room, bytes)
    }

    /// Whoever had this seat before is dead, and uses nothing.
    fn vacate(&self, seat: u32) -> Result<()> {
        let _lock = self.lock()?;
        for room in self.rooms.all() {
            set_user(&self.rooms.tenancy(room)?.users, seat, false);
        }
        Ok(())
    }

    fn lock(&self) -> Result<SharedGuard<'_>> {
        let lock = self.rooms.index().lock.lock();
        if lock.is_orphaned {
            self.rebuild()?;
        }
        Ok(lock)
    }

    /// Somebody died while the index changed: it is made anew of the rooms that say that they are in use.
    fn rebuild(&self) -> Result<()> {
        let index = self.rooms.index();
        index.buckets.iter().for_each(|bucket| bucket.store(END, Ordering::Relaxed));
        index.free.store(END, Ordering::Relaxed);
        let mut used = 0;
        for room in self.rooms.all() {
            let tenancy = self.rooms.tenancy(room)?;
            let first = if tenancy.is_used.load(Ordering::Acquire) == 1 {
                used += 1;
                self.rooms.bucket(tenancy.inode.load(Ordering::Relaxed))
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
        let mut next = self.rooms.bucket(inode).load(Ordering::Relaxed);
        while next != END {
            let tenancy = self.rooms.tenancy(Room(next))?;
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
        for _ in 0..DYING_TRIES {
            if let Some(room) = self.try_claim(inode, identity)? {
                return Ok(room);
            }
            std::thread::sleep(DYING_PAUSE);
        }
        Err(another_file(inode))
    }

    /// `None` while somebody has the room for a former life of the inode. Who had that open is dying, or it could not have ended: the kernel
    /// closes what a process had open in no particular order, its seat among it.
    fn try_claim(&self, inode: u64, identity: Identity) -> Result<Option<Room>> {
        let _lock = self.lock()?;
        let mut held = self.held.lock();
        let room = match self.find(inode)? {
            Some(room) => {
                let tenancy = self.rooms.tenancy(room)?;
                if !tenancy.identity().is_same(identity) {
                    if held.contains_key(&room) {
                        return Err(another_file(inode));
                    }
                    if self.has_living(room)? {
                        return Ok(None);
                    }
                    self.clear(room)?;
                    tenancy.set_identity(identity);
                }
                room
            }
            None => self.take(inode, identity)?,
        };
        *held.entry(room).or_default() += 1;
        set_user(&self.rooms.tenancy(room)?.users, self.seats.ours(), true);
        Ok(Some(room))
    }

    /// Takes a room that nobody uses. The caller holds the lock.
    fn take(&self, inode: u64, identity: Identity) -> Result<Room> {
        let index = self.rooms.index();
        let free = index.free.load(Ordering::Relaxed);
        let room = if free == END {
            let room = Room(index.used_max.load(Ordering::Relaxed) + 1);
            self.rooms.start(room)?;
            // With the entries that most files need.
            self.rooms.back(room, HEAD_BACKED)?;
            self.rooms.head(room)?.set_backed();
            index.used_max.store(room.0, Ordering::Release);
            room
        } else {
            index.free.store(self.rooms.tenancy(Room(free))?.next.load(Ordering::Relaxed), Ordering::Relaxed);
            Room(free)
        };
        self.clear(room)?;
        let tenancy = self.rooms.tenancy(room)?;
        tenancy.inode.store(inode, Ordering::Relaxed);
        tenancy.set_identity(identity);
        tenancy.users.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        tenancy.is_used.store(1, Ordering::Release);
        tenancy.next.store(self.rooms.bucket(inode).swap(room.0, Ordering::Relaxed), Ordering::Relaxed);
        index.used.fetch_add(1, Ordering::Relaxed);
        Ok(room)
    }

    fn clear(&self, room: Room) -> Result<()> {
        let head = self.rooms.head(room)?;
        head.clear();
        head.door.prepare()?;
        head.writers.prepare()?;
        head.syncers.prepare()
    }

    /// Whether nobody but the caller uses a room, in this process or another one that lives.
    pub fn is_last(&self, room: Room) -> Result<bool> {
        let _lock = self.lock()?;
        let is_held_twice = self.held.lock().get(&room).is_some_and(|count| *count > 1);
        Ok(!is_held_twice && !self.has_living(room)?)
    }

    /// The caller holds the lock: a seat must not get another owner who claims the room while it is found empty.
    fn has_living(&self, room: Room) -> Result<bool> {
        let tenancy = self.rooms.tenancy(room)?;
        let ours = self.seats.ours();
        for (word, bits) in tenancy.users.iter().enumerate() {
            let mut rest = bits.load(Ordering::Acquire);
            while rest != 0 {
                let seat = (word * 64) as u32 + rest.trailing_zeros();
                rest &= rest - 1;
                if seat == ours {
                    continue;
                }
                if self.seats.is_taken(seat) {
                    return Ok(true);
                }
                set_user(&tenancy.users, seat, false);
            }
        }
        Ok(false)
    }

    /// This process does not use a room any more; with `frees` it is given back, unless somebody else has come to use it or it has
    /// been filled. Says whether it was.
    ///
    /// `open_door` opens the door that the caller holds. Whoever comes in by it finds that the caller is gone, since
    /// [`Arena::is_last`] waits for the same lock: so two who leave never take each other for one who stays, and nobody frees a
    /// room that another one has filled meanwhile.
    pub fn leave(&self, room: Room, frees: bool, open_door: impl FnOnce()) -> Result<bool> {
        let _lock = self.lock()?;
        open_door();
        let mut held = self.held.lock();
        let count = held.get_mut(&room).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if count > 0 {
            return Ok(false);
        }
        held.remove(&room);
        let tenancy = self.rooms.tenancy(room)?;
        set_user(&tenancy.users, self.seats.ours(), false);
        let is_used = tenancy.users.iter().any(|word| word.load(Ordering::Acquire) != 0);
        if !frees || is_used || self.rooms.head(room)?.is_ready() {
            return Ok(false);
        }
        self.give_back(room)?;
        Ok(true)
    }

    /// Gives back the room of an inode of which nobody who lives has the file open, and then acts before anybody else can have one for that
    /// inode. For files that are gone: what the room has is lost.
    pub fn free_dead(&self, inode: u64, act: impl FnOnce()) -> Result<()> {
        let _lock = self.lock()?;
        let Some(room) = self.find(inode)? else { return Ok(()) };
        if self.held.lock().contains_key(&room) || self.has_living(room)? {
            return Ok(());
        }
        self.give_back(room)?;
        act();
        Ok(())
    }

    /// Takes a room out of its chain. The caller holds the lock.
    fn give_back(&self, room: Room) -> Result<()> {
        let tenancy = self.rooms.tenancy(room)?;
        let mut link = self.rooms.bucket(tenancy.inode.load(Ordering::Relaxed));
        loop {
            let next = link.load(Ordering::Relaxed);
            if next == room.0 {
                link.store(tenancy.next.load(Ordering::Relaxed), Ordering::Relaxed);
                break;
            }
            if next == END {
                break;
            }
            link = &self.rooms.tenancy(Room(next))?.next;
        }
        tenancy.is_used.store(0, Ordering::Release);
        tenancy.next.store(self.rooms.index().free.swap(room.0, Ordering::Relaxed), Ordering::Relaxed);
        self.rooms.index().used.fetch_sub(1, Ordering::Relaxed);
        Ok(())
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
        for room in self.rooms.all() {
            let tenancy = self.rooms.tenancy(room)?;
            if tenancy.is_used.load(Ordering::Acquire) == 1 {
                inodes.push(tenancy.inode.load(Ordering::Relaxed));
            }
        }
        Ok(inodes)
    }

    /// Whether no file has a room.
    pub fn is_empty(&self) -> bool {
        self.lock().is_ok() && self.rooms.index().used.load(Ordering::Relaxed) == 0
    }

    /// A seat for a child that is about to be, which uses all that this process uses. Only while no other thread of this
    /// process uses the guard.
    pub fn another_seat(&self, folder: &Path) -> Result<(File, u32)> {
        let (seats, seat) = Seats::another(folder)?;
        self.vacate(seat)?;
        for room in self.held.lock().keys() {
            set_user(&self.rooms.tenancy(*room)?.users, seat, true);
        }
        Ok((seats, seat))
    }

    /// In the child.
    pub fn change_seat(&self, seats: File, seat: u32) {
        self.seats.change(seats, seat);
    }
}

fn another_file(inode: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("inode {inode} is another file than the one that is open"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Moment;
    use crate::seats::is_in_use;
    use crate::testing::in_child;

    fn identity(nanoseconds: u32) -> Identity {
        Identity { birth: Moment { seconds: 1, nanoseconds }, reuse: Some(nanoseconds) }
    }

    /// In memory, since rooms are punched and locked there.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").expect("a folder")
    }

    #[test]
    fn the_last_one_gives_a_room_back_and_the_dead_do_not_count() {
        let folder = folder();
        let one = Arena::join(folder.path()).expect("joined");
        let room = one.claim(5, identity(1)).expect("a room");
        in_child(|| {
            let other = Arena::join(folder.path()).expect("joined");
            assert!(other.claim(5, identity(1)).expect("the same") == room);
            assert!(!other.is_last(room).expect("asked"));
            // It ends without leaving.
            std::mem::forget(other);
        });
        assert!(one.is_last(room).expect("asked"), "who has died is no user");
        assert_eq!(one.claim(5, identity(1)).expect("again"), room);
        assert!(!one.is_last(room).expect("asked") && !one.leave(room, true, || ()).expect("left"));
        assert!(one.leave(room, true, || ()).expect("given back") && one.is_empty());
        in_child(|| {
            let other = Arena::join(folder.path()).expect("joined");
            other.claim(7, identity(2)).expect("a room");
            std::mem::forget(other);
        });
        let living = one.claim(8, identity(3)).expect("a room");
        for inode in [7, 8, 9] {
            one.free_dead(inode, || assert_eq!(inode, 7)).expect("asked");
        }
        assert_eq!(one.inodes().expect("asked"), [8]);
        assert!(one.leave(living, true, || ()).expect("given back") && one.is_empty());
        assert!(is_in_use(folder.path()));
        drop(one);
        // A child of another test, forked meanwhile, has the seat's descriptor too until it ends.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while is_in_use(folder.path()) {
            assert!(std::time::Instant::now() < deadline, "nobody is there any more");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_comes_in_by_the_door_of_one_who_leaves_does_not_take_that_one_for_one_who_stays() {
        let folder = folder();
        let (one, other) =
            (Arena::join(folder.path()).expect("joined"), Arena::join(folder.path()).expect("joined"));
        // Between processes, and between two of one.
        for (here, there) in [(&one, &other), (&one, &one)] {
            let room = here.claim(5, identity(1)).expect("a room");
            assert_eq!(there.claim(5, identity(1)).expect("the same"), room);
            assert!(!here.is_last(room).expect("asked") && !there.is_last(room).expect("asked"));
            std::thread::scope(|scope| {
                let mut waits = None;
                here.leave(room, true, || {
                    waits = Some(scope.spawn(|| there.is_last(room).expect("asked")));
                    std::thread::sleep(Duration::from_millis(20));
                })
                .expect("left");
                assert!(waits.expect("begun").join().expect("answered"));
            });
            assert!(there.leave(room, true, || ()).expect("given back"));
        }
    }

    #[test]
    fn an_inode_with_another_life_gets_an_empty_room() {
        let folder = folder();
        let arena = Arena::join(folder.path()).expect("joined");
        let room = arena.claim(5, identity(1)).expect("a room");
        arena.rooms.head(room).expect("its head").size.store(77, Ordering::Relaxed);
        assert!(arena.claim(5, identity(2)).is_err(), "somebody has the first one open");
        // It stays, with what is not on the disk yet.
        assert!(!arena.leave(room, false, || ()).expect("left"));
        assert_eq!(arena.claim(5, identity(1)).expect("the same"), room);
        assert_eq!(arena.rooms.head(room).expect("its head").size.load(Ordering::Relaxed), 77);
        arena.leave(room, false, || ()).expect("left");
        assert_eq!(arena.claim(5, identity(2)).expect("another"), room);
        assert_eq!(arena.rooms.head(room).expect("its head").size.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_dies_while_the_index_changes_leaves_one_that_is_made_anew() {
        let folder = folder();
        let arena = Arena::join(folder.path()).expect("joined");
        // More than one map, and chains of more than one.
        let rooms: Vec<Room> =
            (0..300).map(|inode| arena.claim(inode, identity(1)).expect("a room")).collect();
        for (inode, room) in rooms.iter().enumerate().filter(|(inode, _)| inode % 3 == 0) {
            assert!(arena.leave(*room, true, || ()).expect("given back"), "{inode}");
        }
        in_child(|| {
            let other = Arena::join(folder.path()).expect("joined");
            let lock = other.lock().expect("locked");
            other.rooms.index().buckets.iter().for_each(|bucket| bucket.store(9, Ordering::Relaxed));
            other.rooms.index().free.store(9, Ordering::Relaxed);
            std::mem::forget(lock);
            std::mem::forget(other);
        });
        assert_eq!(arena.inodes().expect("rooms").len(), 200);
        for (inode, room) in rooms.iter().enumerate() {
            let again = arena.claim(inode as u64, identity(1)).expect("a room");
            assert!(inode % 3 == 0 || again == *room, "{inode}");
        }
        assert_eq!(
            arena.rooms.index().used_max.load(Ordering::Relaxed),
            300,
            "those that were free are used again"
        );
    }
}
