//! Who is there: each process that uses a guard has a *seat*, a number and a lock on the byte of that number. The kernel takes the
//! lock away when the process ends, so the dead are told from the living. What a seat uses is noted in the [`crate::rooms`].

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::stat::keep;

/// The file of the locks.
const SEATS: &str = "seats";

/// Processes that use a guard at the same time, at most.
pub const SEATS_MAX: usize = 1024;

/// Words of bits, one for each seat.
pub type Users = [AtomicU64; SEATS_MAX / 64];

/// The seat of this process.
pub struct Seats {
    file: Mutex<File>,
    ours: AtomicU32,
}

/// What fails where shared memory cannot be used.
pub fn doing() -> String {
    "using shared memory in /dev/shm".to_owned()
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

/// Opens a file that all processes of a guard share, or makes it.
pub fn open_shared(folder: &Path, name: &str) -> Result<File> {
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

impl Seats {
    /// Takes a seat.
    pub fn join(folder: &Path) -> Result<Self> {
        let (file, seat) = Self::another(folder)?;
        Ok(Self { file: Mutex::new(file), ours: AtomicU32::new(seat) })
    }

    /// The number of this process.
    pub fn ours(&self) -> u32 {
        self.ours.load(Ordering::Relaxed)
    }

    /// Whether the process of another seat lives, as far as can be told.
    pub fn is_taken(&self, seat: u32) -> bool {
        let asked = seat_lock(&self.file.lock(), seat, libc::F_OFD_GETLK, libc::F_WRLCK);
        asked.map_or(true, |lock| lock.l_type != libc::F_UNLCK as libc::c_short)
    }

    /// One more seat, for another process.
    pub fn another(folder: &Path) -> Result<(File, u32)> {
        let file = open_shared(folder, SEATS)?;
        let seat = sit(&file)?;
        Ok((file, seat))
    }

    /// From now on this process has that seat.
    pub fn change(&self, file: File, seat: u32) {
        *self.file.lock() = file;
        self.ours.store(seat, Ordering::Relaxed);
    }
}

/// Notes that a seat uses something, or does not any more.
pub fn set_user(users: &Users, seat: u32, uses: bool) {
    let (word, bit) = (&users[seat as usize / 64], 1 << (seat % 64));
    if uses {
        word.fetch_or(bit, Ordering::AcqRel);
    } else {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}
