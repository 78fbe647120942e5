//! What the standard library does not offer, by declarations of our own: the agent has no other crates.

use std::ffi::CString;
use std::io;

#[repr(C)]
struct RLimit {
    current: u64,
    most: u64,
}

/// `struct termios` of glibc on Linux.
#[repr(C)]
struct Termios {
    flags: [u32; 4],
    line: u8,
    characters: [u8; 32],
    speeds: [u32; 2],
}

/// `struct statvfs` of glibc on 64-bit Linux.
#[repr(C)]
#[derive(Default)]
pub struct StatVfs {
    pub block_size: u64,
    pub fragment_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    files_available: u64,
    id: u64,
    flags: u64,
    pub name_max: u64,
    spare: [i32; 6],
}

/// `struct pollfd`.
#[repr(C)]
struct PollFd {
    fd: i32,
    wanted: i16,
    found: i16,
}

const POLLHUP: i16 = 0x10;
/// `finit_module` on x86-64.
const SYS_FINIT_MODULE: i64 = 313;
const MODULE_INIT_COMPRESSED_FILE: i32 = 4;

unsafe extern "C" {
    #[link_name = "mount"]
    fn c_mount(source: *const i8, target: *const i8, kind: *const i8, flags: u64, data: *const i8) -> i32;
    fn umount2(target: *const i8, flags: i32) -> i32;
    fn reboot(what: i32) -> i32;
    fn sync();
    fn setrlimit(what: i32, limit: *const RLimit) -> i32;
    fn tcgetattr(fd: i32, to: *mut Termios) -> i32;
    fn tcsetattr(fd: i32, when: i32, from: *const Termios) -> i32;
    fn cfmakeraw(termios: *mut Termios);
    fn statvfs(path: *const i8, to: *mut StatVfs) -> i32;
    #[link_name = "fallocate"]
    fn c_fallocate(fd: i32, mode: i32, offset: i64, length: i64) -> i32;
    fn lseek(fd: i32, offset: i64, whence: i32) -> i64;
    fn linkat(old_fd: i32, old: *const i8, new_fd: i32, new: *const i8, flags: i32) -> i32;
    fn readlinkat(fd: i32, path: *const i8, to: *mut u8, length: usize) -> isize;
    fn renameat2(old_fd: i32, old: *const i8, new_fd: i32, new: *const i8, flags: u32) -> i32;
    fn mmap(at: *mut u8, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, length: usize) -> i32;
    fn syscall(number: i64, ...) -> i64;
    fn poll(fds: *mut PollFd, count: u64, timeout_ms: i32) -> i32;
    fn clock_settime(clock: i32, to: *const [i64; 2]) -> i32;
    fn ioctl(fd: i32, request: u64, ...) -> i32;
    #[link_name = "mincore"]
    fn c_mincore(at: *mut u8, length: usize, to: *mut u8) -> i32;
    fn syncfs(fd: i32) -> i32;
    fn setxattr(path: *const i8, name: *const i8, value: *const u8, length: usize, flags: i32) -> i32;
    fn getxattr(path: *const i8, name: *const i8, to: *mut u8, length: usize) -> isize;
    fn listxattr(path: *const i8, to: *mut u8, length: usize) -> isize;
    fn removexattr(path: *const i8, name: *const i8) -> i32;
}

fn text(text: &str) -> Result<CString, i32> {
    CString::new(text).map_err(|_| EINVAL)
}

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const EIO: i32 = 5;
pub const EBADF: i32 = 9;
pub const EBUSY: i32 = 16;
pub const ENODEV: i32 = 19;
pub const EINVAL: i32 = 22;
pub const ENOSYS: i32 = 38;
const ENODATA: i32 = 61;

/// The number of an error of the kernel.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(EIO)
}

fn last() -> i32 {
    errno(&io::Error::last_os_error())
}

fn done(result: i32) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(last()) }
}

/// Mounts; what fails at the start shows when it is used.
pub fn mount(source: &str, target: &str, kind: &str, options: &str) {
    let _ = std::fs::create_dir(target);
    let _ = try_mount(source, target, kind, options);
}

/// Mounts, or gives the number of the error.
pub fn try_mount(source: &str, target: &str, kind: &str, options: &str) -> Result<(), i32> {
    let (source, target, kind, options) = (text(source)?, text(target)?, text(kind)?, text(options)?);
    // SAFETY: four strings with their zero byte, which live across the call.
    done(unsafe {
        c_mount(
            source.as_ptr().cast(),
            target.as_ptr().cast(),
            kind.as_ptr().cast(),
            0,
            options.as_ptr().cast(),
        )
    })
}

/// Unmounts, or gives the number of the error.
pub fn unmount(target: &str) -> Result<(), i32> {
    let target = text(target)?;
    // SAFETY: a string with its zero byte.
    done(unsafe { umount2(target.as_ptr().cast(), 0) })
}

/// Writes everything that is dirty.
pub fn sync_all() {
    // SAFETY: takes nothing.
    unsafe { sync() }
}

/// Has one file system write everything, and say whether it could.
pub fn sync_file_system(root: &str) -> Result<(), i32> {
    let root = std::fs::File::open(root).map_err(|error| errno(&error))?;
    // SAFETY: takes an open descriptor.
    done(unsafe { syncfs(std::os::fd::AsRawFd::as_raw_fd(&root)) })
}

/// Sets an extended attribute.
pub fn set_attribute(path: &str, name: &str, value: &[u8], flags: u32) -> Result<(), i32> {
    let (path, name) = (text(path)?, text(name)?);
    // SAFETY: two strings with their zero byte and a value of that length, which live across the call.
    done(unsafe {
        setxattr(path.as_ptr().cast(), name.as_ptr().cast(), value.as_ptr(), value.len(), flags as i32)
    })
}

/// What an extended attribute holds, or how long it is if there is room for nothing.
pub fn attribute(path: &str, name: &str, to: &mut [u8]) -> Result<usize, i32> {
    let (path, name) = (text(path)?, text(name)?);
    // SAFETY: two strings with their zero byte, and a buffer of that length.
    let length = unsafe {
        getxattr(path.as_ptr().cast(), name.as_ptr().cast(), to.as_mut_ptr(), to.len())
    };
    usize::try_from(length).map_err(|_| last())
}

/// The names of extended attributes, each with a zero behind it, or how long they are if there is room for nothing.
pub fn attributes(path: &str, to: &mut [u8]) -> Result<usize, i32> {
    let path = text(path)?;
    // SAFETY: a string with its zero byte, and a buffer of that length.
    let length = unsafe { listxattr(path.as_ptr().cast(), to.as_mut_ptr(), to.len()) };
    usize::try_from(length).map_err(|_| last())
}

/// Takes an extended attribute away.
pub fn remove_attribute(path: &str, name: &str) -> Result<(), i32> {
    let (path, name) = (text(path)?, text(name)?);
    // SAFETY: two strings with their zero byte.
    done(unsafe { removexattr(path.as_ptr().cast(), name.as_ptr().cast()) })
}

/// Ends the machine at once, without writing anything.
pub fn power_off() -> ! {
    const RB_POWER_OFF: i32 = 0x4321_fedc;
    // SAFETY: takes a number.
    unsafe { reboot(RB_POWER_OFF) };
    std::process::exit(0)
}

/// A file of the host's may be open for each that it knows.
pub fn raise_file_limit() {
    const RLIMIT_NOFILE: i32 = 7;
    let _ = std::fs::write("/proc/sys/fs/nr_open", "1048576");
    let limit = RLimit { current: 1 << 20, most: 1 << 20 };
    // SAFETY: the structure lives across the call.
    unsafe { setrlimit(RLIMIT_NOFILE, &limit) };
}

/// Lets all bytes pass a terminal as they are.
pub fn make_raw(fd: i32) {
    let mut termios = Termios { flags: [0; 4], line: 0, characters: [0; 32], speeds: [0; 2] };
    // SAFETY: the structure is that of glibc, and lives across the calls.
    unsafe {
        tcgetattr(fd, &mut termios);
        cfmakeraw(&mut termios);
        tcsetattr(fd, 0, &termios);
    }
}

pub fn stat_vfs(path: &str) -> Result<StatVfs, i32> {
    let path = text(path)?;
    let mut found = StatVfs::default();
    // SAFETY: the string has its zero byte, the structure is that of glibc.
    done(unsafe { statvfs(path.as_ptr().cast(), &mut found) })?;
    Ok(found)
}

pub fn fallocate(fd: i32, mode: i32, offset: i64, length: i64) -> Result<(), i32> {
    // SAFETY: takes numbers.
    done(unsafe { c_fallocate(fd, mode, offset, length) })
}

pub fn seek(fd: i32, offset: i64, whence: i32) -> Result<i64, i32> {
    // SAFETY: takes numbers.
    let to = unsafe { lseek(fd, offset, whence) };
    if to < 0 { Err(last()) } else { Ok(to) }
}

/// Whether a device can be opened, and is not empty. Nothing of it is read.
pub fn has_size(device: &str) -> bool {
    std::fs::File::open(device)
        .and_then(|mut file| io::Seek::seek(&mut file, io::SeekFrom::End(0)))
        .is_ok_and(|end| end > 0)
}

/// What a symbolic link says that is open as a path.
pub fn read_link(fd: i32) -> Result<Vec<u8>, i32> {
    let mut said = vec![0; 4096];
    // SAFETY: an empty path with its zero byte, and a buffer of that length; both live across the call.
    let length = unsafe { readlinkat(fd, c"".as_ptr().cast(), said.as_mut_ptr(), said.len()) };
    said.truncate(usize::try_from(length).map_err(|_| last())?);
    Ok(said)
}

/// Gives what `from` leads to another name.
pub fn link(from: &str, to: &str) -> Result<(), i32> {
    const AT_SYMLINK_FOLLOW: i32 = 0x400;
    let (from, to) = (text(from)?, text(to)?);
    // SAFETY: absolute paths with their zero bytes, so the descriptors do not matter.
    done(unsafe { linkat(-100, from.as_ptr().cast(), -100, to.as_ptr().cast(), AT_SYMLINK_FOLLOW) })
}

pub fn rename(from: &str, to: &str, flags: u32) -> Result<(), i32> {
    let (from, to) = (text(from)?, text(to)?);
    // SAFETY: absolute paths with their zero bytes, so the descriptors do not matter.
    done(unsafe { renameat2(-100, from.as_ptr().cast(), -100, to.as_ptr().cast(), flags) })
}

/// One page of a file, mapped to be read.
pub struct Mapped(*mut u8);

impl Mapped {
    pub fn page_of(fd: i32, block: u64) -> Result<Self, i32> {
        // SAFETY: a new mapping, read-only and shared, of no memory of ours.
        let at = unsafe { mmap(std::ptr::null_mut(), 4096, 1, 1, fd, (block * 4096) as i64) };
        if at as isize == -1 { Err(last()) } else { Ok(Self(at)) }
    }

    pub fn address(&self) -> u64 {
        self.0 as u64
    }

    pub fn is_in_memory(&self) -> Result<bool, i32> {
        let mut answer = 0;
        // SAFETY: the mapping is one page, for which the answer is one byte.
        done(unsafe { c_mincore(self.0, 4096, &mut answer) })?;
        Ok(answer & 1 == 1)
    }

    /// Makes the processor look at it, so that it is in the page table. It must be in memory.
    pub fn touch(&self) {
        // SAFETY: the page is mapped and within the file.
        unsafe { std::ptr::read_volatile(self.0) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        unsafe { munmap(self.0, 4096) };
    }
}

/// Leaves nothing of what was in the buffer.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(bytes);
}

/// Sets the time of day. Time that only goes on is not touched.
pub fn set_clock(seconds: u64, nanoseconds: u64) -> Result<(), i32> {
    const CLOCK_REALTIME: i32 = 0;
    let to = [seconds as i64, nanoseconds as i64];
    // SAFETY: `struct timespec` of 64-bit Linux, which lives across the call.
    done(unsafe { clock_settime(CLOCK_REALTIME, &raw const to) })
}

/// Adds to the kernel's randomness, and has it draw from that from now on.
pub fn stir_randomness(with: &[u8]) -> Result<(), i32> {
    const RNDRESEEDCRNG: u64 = 0x5207;
    let mut file =
        std::fs::OpenOptions::new().write(true).open("/dev/urandom").map_err(|error| errno(&error))?;
    io::Write::write_all(&mut file, with).map_err(|error| errno(&error))?;
    // SAFETY: takes numbers.
    match unsafe { ioctl(std::os::fd::AsRawFd::as_raw_fd(&file), RNDRESEEDCRNG) } {
        0 => Ok(()),
        // It has not begun to draw from what it has gathered, and will take this in when it does.
        _ if last() == ENODATA => Ok(()),
        _ => Err(last()),
    }
}

/// Whether nobody is at the other end.
pub fn has_hung_up(fd: i32) -> bool {
    let mut asked = PollFd { fd, wanted: 0, found: 0 };
    // SAFETY: one structure, which lives across the call.
    unsafe { poll(&raw mut asked, 1, 0) };
    asked.found & POLLHUP != 0
}

/// Loads a module; one that is compressed the kernel unpacks.
pub fn load_module(fd: i32, is_compressed: bool) -> Result<(), i32> {
    let flags = if is_compressed { MODULE_INIT_COMPRESSED_FILE } else { 0 };
    // SAFETY: a number, a string with its zero byte, and a number.
    let result = unsafe { syscall(SYS_FINIT_MODULE, fd, c"".as_ptr(), flags) };
    done(if result == 0 { 0 } else { -1 })
}
