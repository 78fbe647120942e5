//! What the file system below says of a file.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::clock;
use crate::format::Moment;

/// What a guard wants to know of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The device of the file system.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// When it was born; zeros where the file system does not know.
    pub birth: Moment,
    /// Time of modification.
    pub modified: Moment,
    /// Bytes.
    pub size: u64,
    /// Names that it has.
    pub links: u32,
    /// Type and permissions.
    pub mode: u32,
}

impl Stat {
    /// Of an open file, or of what an `O_PATH` descriptor stands for.
    pub fn of(descriptor: RawFd) -> std::io::Result<Self> {
        // SAFETY: all zeros is a valid value of it.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        // SAFETY: an empty path means the descriptor; the structure lives across the call.
        let answer =
            unsafe { libc::statx(descriptor, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut stat) };
        if answer != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self::of_statx(&stat))
    }

    /// Of what `statx` has said, asked for all basic values and the birth.
    pub fn of_statx(stat: &libc::statx) -> Self {
        let moment = |time: libc::statx_timestamp| Moment { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
        let has_birth = stat.stx_mask & libc::STATX_BTIME != 0;
        Self {
            device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            birth: if has_birth { moment(stat.stx_btime) } else { Moment::default() },
            modified: moment(stat.stx_mtime),
            size: stat.stx_size,
            links: stat.stx_nlink,
            mode: u32::from(stat.stx_mode),
        }
    }

    /// Of what a path leads to.
    pub fn of_path(path: &std::path::Path) -> std::io::Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        let opened = options.read(true).custom_flags(libc::O_PATH).open(path)?;
        Self::of(opened.as_raw_fd())
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Whether it was born a moment ago, and nobody has written to it since.
    pub fn is_newborn(&self) -> bool {
        const A_MOMENT: u64 = 20_000_000;
        self.size == 0
            && self.birth != Moment::default()
            && self.modified == self.birth
            && clock::wall_nanoseconds().saturating_sub(self.modified_nanoseconds()) < A_MOMENT
    }

    /// Nanoseconds since 1970 of the last modification.
    pub fn modified_nanoseconds(&self) -> u64 {
        let seconds = u64::try_from(self.modified.seconds).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(self.modified.nanoseconds))
    }
}

/// What tells a file from another one that has the same inode at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// When the inode was born; zeros where the file system does not know.
    pub birth: Moment,
    /// What the file system counts the uses of the inode by, where it says that.
    pub reuse: Option<u32>,
}

impl Identity {
    /// Of an open file.
    pub fn of(file: &File, stat: &Stat) -> Self {
        /// `FS_IOC_GETVERSION`.
        const GET_VERSION: libc::c_ulong = 0x8008_7601;
        let mut version = [0u32; 2];
        // SAFETY: file systems write 4 bytes, at most the 8 that the number of the call says.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION as _, version.as_mut_ptr()) };
        Self { birth: stat.birth, reuse: (answer == 0).then_some(version[0]) }
    }

    /// Whether both are one file, as far as both are known.
    pub fn is_same(self, other: Self) -> bool {
        let is_reused = self.reuse.zip(other.reuse).is_some_and(|(one, other)| one != other);
        self.birth == other.birth && !is_reused
    }
}

/// Opens once more what a descriptor stands for, with other flags.
pub fn reopen(descriptor: RawFd, flags: libc::c_int) -> std::io::Result<File> {
    let path = CString::new(format!("/proc/self/fd/{descriptor}")).map_err(std::io::Error::other)?;
    // SAFETY: a text that ends with zero.
    let opened = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    if opened < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and belongs to nobody else.
    Ok(keep(unsafe { std::os::fd::FromRawFd::from_raw_fd(opened) }))
}

/// Where descriptors begin that a guard keeps open.
static FLOOR: AtomicI32 = AtomicI32::new(0);

/// From now on a guard in this process keeps descriptors open from this number on only, as far as there are some: where it
/// serves a program that counts on the numbers of its own.
pub fn keep_descriptors_from(floor: RawFd) {
    FLOOR.store(floor, Ordering::Relaxed);
}

/// The same opening, by a number that nobody else counts on.
pub(crate) fn keep(file: File) -> File {
    let floor = FLOOR.load(Ordering::Relaxed);
    if file.as_raw_fd() >= floor {
        return file;
    }
    // SAFETY: takes an open descriptor.
    let above = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor) };
    // SAFETY: a descriptor that was just made and belongs to nobody else.
    if above < 0 { file } else { unsafe { std::os::fd::FromRawFd::from_raw_fd(above) } }
}

/// Another descriptor of the same opening, if that permits what is wanted: where a file may not be opened a second time, as one
/// that was made without the right to read it.
pub fn same(descriptor: RawFd, writes: bool) -> std::io::Result<File> {
    // SAFETY: takes a descriptor.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let mode = flags & libc::O_ACCMODE;
    let is_enough = flags >= 0
        && flags & (libc::O_PATH | libc::O_APPEND | libc::O_DIRECT) == 0
        && (mode == libc::O_RDWR || (mode == libc::O_RDONLY && !writes));
    if !is_enough {
        return Err(std::io::Error::from_raw_os_error(libc::EACCES));
    }
    // SAFETY: takes a descriptor.
    let again = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, FLOOR.load(Ordering::Relaxed)) };
    if again < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made and belongs to nobody else.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(again) })
}

/// Sets the times of access and modification.
pub fn set_modified(file: &File, modified: Moment) -> std::io::Result<()> {
    let times = [
        libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        libc::timespec { tv_sec: modified.seconds, tv_nsec: i64::from(modified.nanoseconds) },
    ];
    // SAFETY: an open descriptor and two times.
    match unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
