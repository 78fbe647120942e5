//! A file or block device through the runtime's file I/O.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::error::IoContext;
use crate::{
    Buffer, Completion, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result,
    Runtime, Submission,
};

/// How to open a file as a device.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Capacity in bytes. A regular file that is smaller or does not exist is made this large, sparse; without it the
    /// file's own size counts.
    pub size_bytes: Option<u64>,
    /// Unit of addressing; without it the smallest that the file permits.
    pub block_size: Option<u32>,
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Refuse mutations.
    pub read_only: bool,
    /// Make the file if it does not exist; needs `size_bytes`.
    pub create: bool,
}

impl Default for FileOptions {
    /// Direct, for reading and writing, of a file that exists.
    fn default() -> Self {
        Self { size_bytes: None, block_size: None, direct: true, read_only: false, create: false }
    }
}

/// A file or block device as a device.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<OwnedFd>,
    info: DeviceInfo,
    path: PathBuf,
}

impl FileDevice {
    /// Opens `path`. Fails with [`ErrorKind::Missing`] if it is not there or does not permit direct I/O, with
    /// [`ErrorKind::Invalid`] on sizes that do not fit it.
    pub fn open(path: &Path, options: FileOptions) -> Result<Arc<Self>> {
        let exists = path.exists();
        if !exists && (!options.create || options.size_bytes.is_none()) {
            let hint = if options.create { "; give its size to have it made" } else { "" };
            return Err(Error::new(ErrorKind::Missing, format!("{} does not exist{hint}", path.display())));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create && !options.read_only)
            .custom_flags(libc::O_CLOEXEC | if options.direct { libc::O_DIRECT } else { 0 })
            .open(path)
            .map_err(|error| open_error(path, options, error))?;
        let is_block_device =
            file.metadata().doing(|| format!("looking at {}", path.display()))?.file_type().is_block_device();
        let (size, smallest) = if is_block_device {
            block_device_geometry(&file, path)?
        } else {
            (
                regular_file_size(&file, path, options)?,
                if options.direct { direct_alignment(&file) } else { 512 },
            )
        };
        let block_size = options.block_size.unwrap_or(smallest);
        if !block_size.is_power_of_two() || block_size < smallest || block_size > 65536 {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a block of {block_size} bytes on {}; use a power of two from {smallest} to 65536",
                    path.display()
                ),
            ));
        }
        let size = options.size_bytes.map_or(size, |wanted| wanted.min(size));
        if size < u64::from(block_size) || !size.is_multiple_of(u64::from(block_size)) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{} has {size} bytes; use a multiple of its block size, {block_size} bytes",
                    path.display()
                ),
            ));
        }
        let info = DeviceInfo {
            size,
            block_size,
            atomic_write_bytes: block_size,
            read_only: options.read_only,
            features: Features { flush: true, fua: true, discard: true, write_zeroes: true },
        };
        Ok(Arc::new(Self { file: Arc::new(file.into()), info, path: path.to_owned() }))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open_error(path: &Path, options: FileOptions, error: std::io::Error) -> Error {
    if options.direct && error.raw_os_error() == Some(libc::EINVAL) {
        return Error::new(
            ErrorKind::Missing,
            format!("the file system of {} has no direct I/O; set `direct: false`", path.display()),
        )
        .caused_by(error);
    }
    Error::from_io(error, format!("opening {}", path.display()))
}

/// Size in bytes, after the file has been made as large as the options ask for.
fn regular_file_size(file: &File, path: &Path, options: FileOptions) -> Result<u64> {
    let size = file.metadata().doing(|| format!("looking at {}", path.display()))?.len();
    match options.size_bytes {
        Some(wanted) if wanted > size && !options.read_only => {
            file.set_len(wanted).doing(|| format!("making {} {wanted} bytes large", path.display()))?;
            Ok(wanted)
        }
        Some(wanted) if wanted > size => Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "{} has {size} bytes, fewer than the {wanted} asked for, and is opened read-only",
                path.display()
            ),
        )),
        _ => Ok(size),
    }
}

/// What offset and length of direct I/O must be multiples of. Kernels that do not say so (before 6.1) get a page.
fn direct_alignment(file: &File) -> u32 {
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
    let alignment = status.stx_dio_offset_align;
    if answer == 0 && status.stx_mask & libc::STATX_DIOALIGN != 0 && alignment.is_power_of_two() {
        alignment.clamp(512, 65536)
    } else {
        4096
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
        return Err(std::io::Error::last_os_error())
            .doing(|| format!("asking {} for its size", path.display()));
    }
    Ok((size, u32::try_from(block_size).unwrap_or(512)))
}

impl Device for FileDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(FileQueue { file: Arc::clone(&self.file), info: self.info, runtime: runtime.clone() }))
    }
}

struct FileQueue {
    file: Arc<OwnedFd>,
    info: DeviceInfo,
    runtime: Runtime,
}

impl Queue for FileQueue {
    fn submit(&self, request: Request) -> Submission {
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        let Request { operation, offset, length, buffer, context } = request;
        if length == 0 && operation != Operation::Flush {
            return Completion { result: Ok(()), buffer, context }.into();
        }
        match operation {
            Operation::Read => {
                Submission::file(self.runtime.read(&self.file, offset, buffer), context, length)
            }
            Operation::Write { fua } => {
                Submission::file(self.runtime.write(&self.file, offset, buffer, fua), context, length)
            }
            Operation::Flush => Submission::file(self.runtime.sync_data(&self.file), context, 0),
            Operation::Discard => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                Submission::file(self.runtime.allocate(&self.file, mode, offset, length), context, 0)
            }
            Operation::WriteZeroes => {
                let (runtime, file) = (self.runtime.clone(), Arc::clone(&self.file));
                Submission::pending(async move {
                    let result = write_zeroes(&runtime, &file, offset, length).await;
                    Completion { result, buffer, context }
                })
            }
        }
    }
}

/// Zeros that keep their space, where the file system can; else a hole; else zeros written out.
async fn write_zeroes(runtime: &Runtime, file: &Arc<OwnedFd>, offset: u64, length: u64) -> Result<()> {
    const WRITTEN_AT_ONCE_BYTES: u64 = 1 << 20;
    for mode in [libc::FALLOC_FL_ZERO_RANGE, libc::FALLOC_FL_PUNCH_HOLE] {
        match runtime.allocate(file, mode | libc::FALLOC_FL_KEEP_SIZE, offset, length).await.0 {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            result => return result.map(drop),
        }
    }
    let mut done = 0;
    while done < length {
        let part = (length - done).min(WRITTEN_AT_ONCE_BYTES);
        let zeros = Buffer::zeroed(part as usize);
        let written = runtime.write(file, offset + done, zeros, false).await.0?;
        if written as u64 != part {
            return Err(Error::medium());
        }
        done += part;
    }
    Ok(())
}
