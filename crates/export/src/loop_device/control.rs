//! The loop driver's calls, with the structures of `include/uapi/linux/loop.h`.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use super::LoopOptions;
use crate::system::{self, c_path, check};

const CONTROL: &str = "/dev/loop-control";

const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4C07;
const LOOP_SET_DIRECT_IO: libc::Ioctl = 0x4C08;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;

const READ_ONLY: u32 = 1;
const DIRECT_IO: u32 = 16;

#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

impl LoopInfo {
    fn zeroed() -> Self {
        // SAFETY: numbers only, of which zero is a value.
        unsafe { std::mem::zeroed() }
    }
}

/// The driver's control device.
pub(super) struct Control(OwnedFd);

impl Control {
    pub(super) fn open() -> Result<Self> {
        system::open(Path::new(CONTROL), libc::O_RDWR).map(Self).map_err(|error| {
            let message = format!(
                "cannot open {CONTROL}: loop devices need root and a kernel with CONFIG_BLK_DEV_LOOP"
            );
            Error::new(ErrorKind::Missing, message).caused_by(error)
        })
    }

    /// Number of a free device, made if there was none. It may be taken by the time it is used.
    pub(super) fn free_number(&self) -> Result<u32> {
        // SAFETY: the call takes no argument.
        let answer = check(unsafe { libc::ioctl(self.0.as_raw_fd(), LOOP_CTL_GET_FREE) })
            .doing(|| "asking for a free loop device".into())?;
        Ok(answer.cast_unsigned())
    }
}

/// Path of the device's node, made if nobody else makes it (containers have no udev).
pub(super) fn node(number: u32) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/dev/loop{number}"));
    if fs::metadata(&path).is_ok_and(|node| node.file_type().is_block_device()) {
        return Ok(path);
    }
    let doing = || format!("making the node {}", path.display());
    let numbers = fs::read_to_string(format!("/sys/block/loop{number}/dev")).doing(doing)?;
    let parse = |text: &str| text.trim().parse::<u32>().ok();
    let (major, minor) = numbers
        .split_once(':')
        .and_then(|(major, minor)| Some((parse(major)?, parse(minor)?)))
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("{}: odd numbers {numbers:?}", doing())))?;
    let name = c_path(&path)?;
    // SAFETY: the path is a string with its zero byte that lives across the call.
    match check(unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(major, minor)) }) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(error).doing(doing),
        _ => Ok(path),
    }
}

/// Attaches the file to the device; `EBUSY` if another has been attached since.
pub(super) fn configure(
    device: &OwnedFd,
    backing: &OwnedFd,
    file: &Path,
    options: LoopOptions,
) -> io::Result<()> {
    let mut info = LoopInfo::zeroed();
    // For people who list devices; the driver wants a zero byte at the end.
    let shown = file.as_os_str().as_bytes();
    let shown = &shown[..shown.len().min(info.file_name.len() - 1)];
    info.file_name[..shown.len()].copy_from_slice(shown);
    info.flags =
        if options.read_only { READ_ONLY } else { 0 } | if options.direct_io { DIRECT_IO } else { 0 };
    let config = LoopConfig {
        fd: backing.as_raw_fd().cast_unsigned(),
        block_size: options.block_size.unwrap_or(0),
        info,
        reserved: [0; 8],
    };
    // SAFETY: the call reads the structure, which lives across it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) }).map(|_| ())
}

/// Whether requests really go to the file as direct I/O; the driver falls back in silence.
pub(super) fn is_direct_io(device: &impl AsRawFd) -> Result<bool> {
    let mut info = LoopInfo::zeroed();
    // SAFETY: the call fills the structure, which is ours and lives across it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })
        .doing(|| "asking for the state of the loop device".into())?;
    Ok(info.flags & DIRECT_IO != 0)
}

/// Sends requests to the file as direct I/O from now on, or through the page cache.
pub(super) fn set_direct_io(device: &impl AsRawFd, on: bool) -> Result<()> {
    // SAFETY: the call takes a number.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_DIRECT_IO, libc::c_ulong::from(on)) })
        .map(drop)
        .doing(|| "changing how the loop device reads its file".into())
}

/// Has the device become as large as its file is now.
pub(super) fn set_capacity(device: &impl AsRawFd) -> Result<()> {
    // SAFETY: the call takes no argument that counts.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY, 0) })
        .map(drop)
        .doing(|| "telling a loop device that its file has become larger".into())
}

/// Detaches, now or on the last close.
pub(super) fn clear(device: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD, 0) }).map(|_| ())
}
