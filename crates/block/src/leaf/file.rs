//! A file or block device through the runtime's file I/O.

use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::health::{Health, Witness};
use super::opened_file::OpenedFile;
use crate::ability::{Ability, Wanted};
use crate::error::IoContext;
use crate::{
    Buffer, Completion, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Resize,
    Result, Runtime, Submission,
};

/// How to open a file as a device.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Capacity in bytes. A regular file that is smaller or does not exist is made this large, sparse; of a larger file or
    /// block device the first part is used. Without it the file's own size counts.
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
    /// But for its size.
    info: DeviceInfo,
    size: Arc<Size>,
    path: PathBuf,
    health: Arc<Health>,
}

/// How large a file is, as far as it is known.
#[derive(Debug)]
struct Size {
    file: Arc<OwnedFd>,
    path: PathBuf,
    block_size: u32,
    /// It was opened for as much as there is.
    is_whole: bool,
    bytes: AtomicU64,
}

impl Resize for Size {
    fn measure(&self) -> Result<u64> {
        let known = self.bytes.load(Ordering::Acquire);
        if !self.is_whole {
            return Ok(known);
        }
        let doing = || format!("looking at {}", self.path.display());
        let file = std::fs::File::from(self.file.try_clone().doing(doing)?);
        // Of a file as of a block device, where it ends. Nobody counts on where this descriptor stands.
        let end = (&file).seek(SeekFrom::End(0)).doing(doing)?;
        let now = end / u64::from(self.block_size) * u64::from(self.block_size);
        if now < known {
            let context =
                format!("{} was cut from {known} to {end} bytes while it was in use", self.path.display());
            return Err(Error::new(ErrorKind::Gone, context));
        }
        self.bytes.store(now, Ordering::Release);
        Ok(now)
    }
}

impl FileDevice {
    /// Opens `path`. Fails with [`ErrorKind::Missing`] if it is not there or does not permit direct I/O, with
    /// [`ErrorKind::Invalid`] on sizes that do not fit it or if it is neither a file nor a block device. A file made for
    /// this is gone again after a failure.
    pub fn open(path: &Path, options: FileOptions) -> Result<Arc<Self>> {
        let OpenedFile { file, size, block_size } = OpenedFile::open(path, options)?;
        let info = DeviceInfo {
            size,
            block_size,
            atomic_write_bytes: block_size,
            read_only: options.read_only,
            features: Features { flush: true, fua: true, discard: true, write_zeroes: true },
        };
        let (file, path): (Arc<OwnedFd>, _) = (Arc::new(file.into()), path.to_owned());
        let size = Arc::new(Size {
            file: Arc::clone(&file),
            path: path.clone(),
            block_size,
            is_whole: options.size_bytes.is_none(),
            bytes: size.into(),
        });
        Ok(Arc::new(Self { file, info, size, path, health: Arc::default() }))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ok as long as the file is what it was and has served every request. After that, what is read from it says
    /// nothing about what was written. Fails with [`ErrorKind::Gone`] if it was deleted or has become smaller, else as
    /// its first failed request did.
    pub fn check(&self) -> Result<()> {
        let path = self.path.display();
        // SAFETY: all zeros is a valid `stat`, which the call fills; the descriptor is open.
        let (answer, status) = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            (libc::fstat(self.file.as_raw_fd(), &raw mut status), status)
        };
        if answer != 0 {
            return Err(std::io::Error::last_os_error()).doing(|| format!("looking at {path}"));
        }
        if status.st_mode & libc::S_IFMT == libc::S_IFREG {
            let size = u64::try_from(status.st_size).unwrap_or_default();
            if status.st_nlink == 0 {
                return Err(Error::new(ErrorKind::Gone, format!("{path} was deleted while it was in use")));
            }
            let known = self.info().size;
            if size < known {
                return Err(Error::new(
                    ErrorKind::Gone,
                    format!("{path} was cut from {known} to {size} bytes while it was in use"),
                ));
            }
        }
        match self.health.first_failure() {
            Some(error) => Err(error.while_doing(path)),
            None => Ok(()),
        }
    }
}

impl Device for FileDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { size: self.size.bytes.load(Ordering::Acquire), ..self.info }
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        wanted.offer::<dyn Resize>(|| Arc::clone(&self.size) as _)
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(FileQueue {
            file: Arc::clone(&self.file),
            info: self.info(),
            runtime: runtime.clone(),
            witness: Rc::new(Witness(Arc::clone(&self.health))),
        }))
    }
}

struct FileQueue {
    file: Arc<OwnedFd>,
    info: DeviceInfo,
    runtime: Runtime,
    witness: Rc<Witness>,
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
        let transferred = |io, short| Submission::file(io, context, length, short, Rc::clone(&self.witness));
        match operation {
            Operation::Read => {
                // Short only where the file has shrunk since it was opened.
                transferred(self.runtime.read(&self.file, offset, buffer), ErrorKind::Medium)
            }
            Operation::Write { fua } => {
                // The kernel writes what still finds room, and says why it stopped only if that is nothing.
                transferred(self.runtime.write(&self.file, offset, buffer, fua), ErrorKind::NoSpace)
            }
            Operation::Flush => transferred(self.runtime.sync_data(&self.file), ErrorKind::Medium),
            Operation::Discard | Operation::WriteZeroes => {
                let modes = if operation == Operation::Discard {
                    [libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE]
                } else {
                    [libc::FALLOC_FL_ZERO_RANGE, libc::FALLOC_FL_PUNCH_HOLE]
                };
                let (runtime, file) = (self.runtime.clone(), Arc::clone(&self.file));
                let witness = Rc::clone(&self.witness);
                Submission::pending(async move {
                    let result = clear(&runtime, &file, modes, offset, length).await;
                    if let Err(error) = &result {
                        witness.note(error);
                    }
                    Completion { result, buffer, context }
                })
            }
        }
    }
}

/// Makes a range read as zeros by the first mode that the file system has; else by zeros written out.
async fn clear(
    runtime: &Runtime,
    file: &Arc<OwnedFd>,
    modes: [i32; 2],
    offset: u64,
    length: u64,
) -> Result<()> {
    const WRITTEN_AT_ONCE_BYTES: u64 = 1 << 20;
    for mode in modes {
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
            return Err(Error::new(ErrorKind::NoSpace, format!("only {written} of {part} zeros found room")));
        }
        done += part;
    }
    Ok(())
}
