//! A file as a block device: Linux's loop driver, attached and detached without `losetup`.

mod control;
mod find;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::system;
use control::Control;
pub use find::{LoopEntry, find_by_backing_file};

/// How often another program may take the free device first.
const ATTEMPTS: u32 = 100;
/// How long a detach waits for the device to become free.
const DETACH_PATIENCE: Duration = Duration::from_secs(5);

/// How to attach a file.
#[derive(Clone, Copy, Debug)]
pub struct LoopOptions {
    /// Pass requests to the file as direct I/O, past the page cache, and fail where that is not possible.
    pub direct_io: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Logical block size in bytes: a power of two from 512 to 4096. Absent: what the driver chooses, in general
    /// 512. Give the block size of the device behind the file, so that it never sees a part of a block.
    pub block_size: Option<u32>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { direct_io: true, read_only: false, block_size: None }
    }
}

/// An attached loop device. Detach it; dropping it does so too, but cannot tell of errors and does not wait.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    path: PathBuf,
    file: PathBuf,
    is_attached: Mutex<bool>,
}

impl LoopDevice {
    /// Attaches `file` to a free loop device. Needs root ([`ErrorKind::Missing`] otherwise).
    ///
    /// The driver makes the file durable while it holds its locks, so a file whose flush is never answered holds up
    /// every loop device of the machine until its server is aborted.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<Self> {
        Self::attach_real(file, options)
            .map_err(|error| error.while_doing(format_args!("attaching {} to a loop device", file.display())))
    }

    fn attach_real(file: &Path, options: LoopOptions) -> Result<Self> {
        let file = fs::canonicalize(file).doing(|| "looking for the file".into())?;
        let access = if options.read_only { libc::O_RDONLY } else { libc::O_RDWR };
        let backing = system::open(&file, access)?;
        let control = Control::open()?;
        for attempt in 0..ATTEMPTS {
            let number = control.free_number()?;
            let path = control::node(number)?;
            let device = match system::open(&path, access) {
                Ok(device) => device,
                Err(error) if attempt + 1 < ATTEMPTS && error.kind() == ErrorKind::Gone => continue,
                Err(error) => return Err(error),
            };
            match control::configure(&device, &backing, &file, options) {
                Ok(()) => {
                    let attached = Self { number, path, file, is_attached: Mutex::new(true) };
                    attached.check_direct_io(&device, options)?;
                    return Ok(attached);
                }
                // Another program took it between the question and now.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(u64::from(attempt)));
                }
                Err(error) => return Err(Error::from_io(error, format!("configuring {}", path.display()))),
            }
        }
        Err(Error::new(ErrorKind::Missing, "other programs took every free loop device; try again"))
    }

    fn check_direct_io(&self, device: &impl AsRawFd, options: LoopOptions) -> Result<()> {
        if !options.direct_io || control::is_direct_io(device)? {
            return Ok(());
        }
        let message = format!(
            "{} cannot do direct I/O in blocks of {} bytes, so the loop device would answer from its cache; \
             use a larger block size",
            self.file.display(),
            options.block_size.unwrap_or(512)
        );
        Err(Error::new(ErrorKind::Missing, message))
    }

    /// Sends requests to the file as direct I/O from now on, or through its page cache. Nothing may be using the device.
    pub fn set_direct_io(&self, on: bool) -> Result<()> {
        control::set_direct_io(&system::open(&self.path, libc::O_RDONLY)?, on)
    }

    /// Becomes as large as its file is now; who has it open sees that.
    pub fn resized(&self) -> Result<()> {
        control::set_capacity(&system::open(&self.path, libc::O_RDONLY)?)
    }

    /// The block device, such as `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches and waits until the device has let go of its file. Without effect if that has been done.
    ///
    /// While something has the device open (a mounted file system) this fails after a few seconds; the device then
    /// detaches by itself on its last close.
    pub fn detach(&self) -> Result<()> {
        let mut is_attached = self.is_attached.lock();
        if !*is_attached {
            return Ok(());
        }
        detach_path(&self.path)?;
        let deadline = Instant::now() + DETACH_PATIENCE;
        while find::backing_file(self.number).is_some_and(|backing| find::is_same_file(&backing, &self.file))
        {
            if Instant::now() > deadline {
                let context = format!(
                    "{} is still in use, by a mounted file system or a program; unmount or close it and detach again",
                    self.path.display()
                );
                return Err(Error::from_errno(libc::EBUSY, context));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *is_attached = false;
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if *self.is_attached.get_mut() {
            let _ = detach_path(&self.path);
        }
    }
}

/// Detaches a loop device by its path; a device that is in use detaches on its last close. Succeeds if it is free
/// already.
pub fn detach_path(device: &Path) -> Result<()> {
    let fd = match system::open(device, libc::O_RDONLY) {
        Ok(fd) => fd,
        Err(error) if matches!(error.kind(), ErrorKind::Gone) => return Ok(()),
        Err(error) => return Err(error),
    };
    match control::clear(&fd) {
        Err(error) if error.raw_os_error() != Some(libc::ENXIO) => {
            Err(Error::from_io(error, format!("detaching {}", device.display())))
        }
        _ => Ok(()),
    }
}
