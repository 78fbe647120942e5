//! Opening a path for a file leaf: makes the file where it is to be made, and finds out what it permits. Knows the
//! kernel's ways of asking; nothing of requests.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::FileOptions;
use crate::error::IoContext;
use crate::{Error, ErrorKind, Result};

/// What direct I/O must be aligned to where the kernel does not say (before 6.1, some file systems): a page.
const UNKNOWN_ALIGNMENT: u32 = 4096;
const BLOCK_SIZE_MIN: u32 = 512;
const BLOCK_SIZE_MAX: u32 = 65536;

/// A file with the geometry it will be used with.
pub(super) struct OpenedFile {
    pub(super) file: File,
    /// In bytes, a multiple of `block_size`.
    pub(super) size: u64,
    pub(super) block_size: u32,
}

impl OpenedFile {
    pub(super) fn open(path: &Path, options: FileOptions) -> Result<Self> {
        match std::fs::metadata(path) {
            Ok(metadata) => {
                // Before it is opened: that of a named pipe would wait for its other end.
                let kind = metadata.file_type();
                if !kind.is_file() && !kind.is_block_device() {
                    return Err(Error::new(
                        ErrorKind::Invalid,
                        format!("{} is neither a regular file nor a block device", path.display()),
                    ));
                }
                Self::with_geometry(open_file(path, options, false)?, kind, path, options)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let hint = match options {
                    FileOptions { create: true, read_only: true, .. } => "; a file to be made is writable",
                    FileOptions { create: true, size_bytes: None, .. } => "; give its size to have it made",
                    FileOptions { create: true, .. } => return Self::make(path, options),
                    FileOptions { create: false, .. } => "",
                };
                Err(Error::new(ErrorKind::Missing, format!("{} does not exist{hint}", path.display())))
            }
            Err(error) => Err(error).doing(|| format!("looking for {}", path.display())),
        }
    }

    fn make(path: &Path, options: FileOptions) -> Result<Self> {
        // First without direct I/O, since a file system that refuses that may leave an empty file behind.
        let made = open_file(path, FileOptions { direct: false, ..options }, true)?;
        let opened = (|| {
            let kind = made.metadata().doing(|| format!("looking at {}", path.display()))?.file_type();
            Self::with_geometry(open_file(path, options, false)?, kind, path, options)
        })();
        if opened.is_err() {
            // The error at hand says more than one of this would.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn with_geometry(file: File, kind: FileType, path: &Path, options: FileOptions) -> Result<Self> {
        let (size, smallest) = if kind.is_block_device() {
            block_device_geometry(&file, path)?
        } else {
            let smallest = if options.direct { direct_alignment(&file, path)? } else { BLOCK_SIZE_MIN };
            (file.metadata().doing(|| format!("looking at {}", path.display()))?.len(), smallest)
        };
        let block_size = options.block_size.unwrap_or(smallest);
        if !block_size.is_power_of_two() || !(smallest..=BLOCK_SIZE_MAX).contains(&block_size) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a block of {block_size} bytes on {}; use a power of two from {smallest} to {BLOCK_SIZE_MAX}",
                    path.display()
                ),
            ));
        }
        let wanted = options.size_bytes.unwrap_or(size);
        if wanted < u64::from(block_size) || !wanted.is_multiple_of(u64::from(block_size)) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{wanted} bytes of {}; use a multiple of its block size, {block_size} bytes",
                    path.display()
                ),
            ));
        }
        if wanted > size {
            if kind.is_block_device() || options.read_only {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "{} has {size} bytes, fewer than the {wanted} asked for, and cannot grow",
                        path.display()
                    ),
                ));
            }
            file.set_len(wanted).doing(|| format!("making {} {wanted} bytes large", path.display()))?;
        }
        if !kind.is_block_device() && !options.read_only && wanted > file_size_max() {
            // Else it would look as if the file could not be written.
            let what = format!("writing to all {wanted} bytes of {}", path.display());
            return Err(Error::from_errno(libc::EFBIG, what));
        }
        Ok(Self { file, size: wanted, block_size })
    }
}

fn open_file(path: &Path, options: FileOptions, create: bool) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .create_new(create)
        .custom_flags(libc::O_CLOEXEC | if options.direct { libc::O_DIRECT } else { 0 })
        .open(path)
        .map_err(|error| {
            if options.direct && error.raw_os_error() == Some(libc::EINVAL) {
                return no_direct_io(path).caused_by(error);
            }
            Error::from_io(error, format!("opening {}", path.display()))
        })
}

/// Beyond which this process may not write to a file (`ulimit -f`).
fn file_size_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it writes into `limit`, which lives across the call. If it fails, there is no limit that is known.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

fn no_direct_io(path: &Path) -> Error {
    Error::new(
        ErrorKind::Missing,
        format!("the file system of {} has no direct I/O; set `direct: false`", path.display()),
    )
}

/// What offset and length of direct I/O must be multiples of.
fn direct_alignment(file: &File, path: &Path) -> Result<u32> {
    // SAFETY: all zeros is a valid `statx`; the descriptor is open, the path is an empty C string.
    let (answer, status) = unsafe {
        let mut status: libc::statx = std::mem::zeroed();
        let answer = libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut status,
        );
        (answer, status)
    };
    if answer != 0 || status.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(UNKNOWN_ALIGNMENT);
    }
    match status.stx_dio_offset_align {
        // The flag was accepted, but this file is read through the page cache all the same or not at all.
        0 => Err(no_direct_io(path)),
        alignment if alignment.is_power_of_two() => Ok(alignment.clamp(BLOCK_SIZE_MIN, BLOCK_SIZE_MAX)),
        _ => Ok(UNKNOWN_ALIGNMENT),
    }
}

/// Size in bytes and logical block size.
fn block_device_geometry(file: &File, path: &Path) -> Result<(u64, u32)> {
    const BLKSSZGET: libc::Ioctl = 0x1268;
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
    let (mut size, mut block_size) = (0u64, 0i32);
    // SAFETY: the first writes eight bytes, the second an int; both have the room.
    let failed = unsafe {
        libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size) < 0
            || libc::ioctl(file.as_raw_fd(), BLKSSZGET, &raw mut block_size) < 0
    };
    if failed {
        return Err(io::Error::last_os_error()).doing(|| format!("asking {} for its size", path.display()));
    }
    Ok((size, u32::try_from(block_size).unwrap_or(512)))
}
