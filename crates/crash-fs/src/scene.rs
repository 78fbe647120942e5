//! A device of ours as the kernel sees it, with a place to mount what is on it: a file in FUSE, a loop device over it.
//!
//! Everything is in the registry of the run before it exists, once for as long as the scene lasts; a state of a crash is
//! then mounted and unmounted there as often as wanted.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_attach::{FuseMount, Loop, Mount};
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions};
use rotproof_machine::KernelLog;
use rotproof_machine::registry::{CleanupStack, Run, Undo};
use rotproof_subject::{FileSystem, mount, unmount};

/// `_IO(0x12, 97)` of `include/uapi/linux/fs.h`: write and forget what the block device has cached.
const BLKFLSBUF: libc::Ioctl = 0x1261;

/// How long an unmounted device may still be held.
const HELD_MAX: Duration = Duration::from_secs(20);
const HELD_INTERVAL: Duration = Duration::from_millis(1);

/// See the head of the module. Dropped, it takes all of it away again.
pub struct Scene {
    stack: CleanupStack,
    device: PathBuf,
    mountpoint: PathBuf,
    kind: FileSystem,
    is_mounted: Arc<std::sync::atomic::AtomicBool>,
    kernel_log: KernelLog,
}

impl Scene {
    /// Serves `device` in the folder `name` of the run's scratch folder, which must not exist yet.
    pub fn new(run: &Run, name: &str, device: Arc<dyn Device>, kind: FileSystem) -> Result<Self> {
        let mut stack = CleanupStack::new(run);
        let folder = run.scratch().join(name);
        let (served, mountpoint) = (folder.join("served"), folder.join("mount"));
        for path in [&folder, &served, &mountpoint] {
            stack.create_directory(path)?;
        }
        let block_size = device.info().block_size;
        let options = FuseOptions { threads: 1, epoch: Instant::now(), ..FuseOptions::default() };
        let file = served.join(&options.file_name);
        stack.create(FuseMount { path: served.clone() }, || {
            let export = FuseExport::mount(device, &served, options)?;
            let undo: Undo = Box::new(move || export.unmount());
            Ok(((), undo))
        })?;
        let options = LoopOptions { direct_io: true, read_only: false, block_size: Some(block_size) };
        let device = stack.create(Loop { backing_file: file.clone() }, || {
            let device = LoopDevice::attach(&file, options)?;
            let path = device.path().to_owned();
            let undo: Undo = Box::new(move || device.detach());
            Ok((path, undo))
        })?;
        // Recorded once, for all the mounts that will be made here.
        let is_mounted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let resource = Mount { path: mountpoint.clone(), filesystem: kind.name().to_owned() };
        stack.create(resource, || {
            let (mountpoint, device, is_mounted) =
                (mountpoint.clone(), device.clone(), Arc::clone(&is_mounted));
            let undo: Undo = Box::new(move || match is_mounted.load(std::sync::atomic::Ordering::SeqCst) {
                true => unmount(kind, std::slice::from_ref(&device), &mountpoint),
                false => Ok(()),
            });
            Ok(((), undo))
        })?;
        Ok(Self { stack, device, mountpoint, kind, is_mounted, kernel_log: KernelLog::follow() })
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Which file system is mounted here.
    pub fn kind(&self) -> FileSystem {
        self.kind
    }

    /// Mounts what is on the device. Recovery runs in it. Fails with [`ErrorKind::TimedOut`] if somebody else holds the
    /// device all the time, which says nothing of what is on it.
    pub fn mount(&mut self, options: &[String]) -> Result<()> {
        let deadline = Instant::now() + HELD_MAX;
        while let Err(error) = mount(self.kind.name(), &self.device, &self.mountpoint, options) {
            // A child of another thread has a copy of a descriptor for a moment, until it becomes its program.
            if error.kind() != ErrorKind::Os(libc::EBUSY) {
                return Err(error);
            }
            if Instant::now() >= deadline {
                let context = format!("something holds {}", self.device.display());
                return Err(Error::new(ErrorKind::TimedOut, context).caused_by(error));
            }
            std::thread::sleep(HELD_INTERVAL);
            // What the kernel says of an attempt that failed for that is no word on the state.
            self.kernel_words();
        }
        self.is_mounted.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// Unmounts it, and waits until the kernel has let go of the device. Without effect if nothing is mounted. Fails with
    /// [`ErrorKind::TimedOut`] if somebody holds the file system, as a mount namespace does that was made meanwhile: the
    /// device must then show nothing else.
    pub fn unmount(&self) -> Result<()> {
        if self.is_mounted.load(std::sync::atomic::Ordering::SeqCst) {
            unmount(self.kind, std::slice::from_ref(&self.device), &self.mountpoint)?;
            self.is_mounted.store(false, std::sync::atomic::Ordering::SeqCst);
            self.wait_until_free()?;
        }
        Ok(())
    }

    /// Nobody can open a device for himself as long as something is mounted from it, here or in another namespace.
    pub(crate) fn wait_until_free(&self) -> Result<()> {
        let deadline = Instant::now() + HELD_MAX;
        loop {
            let alone = File::options().read(true).custom_flags(libc::O_EXCL).open(&self.device);
            match alone {
                Ok(_) => return Ok(()),
                Err(error) if error.raw_os_error() != Some(libc::EBUSY) => {
                    return Err(error).doing(|| format!("opening {}", self.device.display()));
                }
                Err(_) if Instant::now() >= deadline => {
                    let context =
                        format!("{} was unmounted, and something still holds it", self.device.display());
                    return Err(Error::new(ErrorKind::TimedOut, context));
                }
                Err(_) => std::thread::sleep(HELD_INTERVAL),
            }
        }
    }

    /// Lets the kernel forget what it has read of the device, which now shows something else.
    pub fn forget(&self) -> Result<()> {
        let doing = || format!("emptying the cache of {}", self.device.display());
        let device = File::open(&self.device).doing(doing)?;
        // SAFETY: takes an open descriptor and no argument.
        match unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).doing(doing),
        }
    }

    /// What the kernel has said about the device since it was asked last.
    pub fn kernel_words(&mut self) -> Vec<String> {
        let name = self.device.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        self.kernel_log.new_lines_about(std::slice::from_ref(&name))
    }

    /// Takes all of it away, and says what could not be.
    pub fn end(mut self) -> Vec<Error> {
        self.stack.undo_all()
    }
}
