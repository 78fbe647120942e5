//! A device of ours as the kernel sees it, with a place to mount what is on it: a file in FUSE, a loop device over it.
//!
//! Everything is in the registry of the run before it exists, once for as long as the scene lasts; a state of a crash is
//! then mounted and unmounted there as often as wanted.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_attach::{FuseMount, Loop, Mount};
use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Device, Error, ErrorKind, Result};
use rotproof_crash::ImageDevice;
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions};
use rotproof_machine::KernelLog;
use rotproof_machine::registry::{CleanupStack, Run, Undo};
use rotproof_subject::{FileSystem, mount, unmount};

use crate::mounting::signs;

/// `_IO(0x12, 97)` of `include/uapi/linux/fs.h`: write and forget what the block device has cached.
const BLKFLSBUF: libc::Ioctl = 0x1261;

/// Of the page cache.
const PAGE_BYTES: u64 = 4096;
/// Longer changes are not told to the kernel, which then asks for what it wants of them.
const TOLD_BYTES_MAX: u64 = 1 << 20;
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
    export: Arc<FuseExport>,
    attached: Arc<LoopDevice>,
    /// Whether the kernel keeps what it has read of the device; none if it never does.
    keeps: Option<bool>,
}

impl Scene {
    /// Serves `device` in the folder `name` of the run's scratch folder, which must not exist yet.
    pub fn new(run: &Run, name: &str, device: Arc<dyn Device>, kind: FileSystem) -> Result<Self> {
        Self::open(run, name, device, kind, false)
    }

    /// The same, for a device that is looked at again and again: the kernel keeps what it has read, and is told what has changed
    /// ([`Scene::changed`]). What is written reaches the device before it is done, as without.
    pub fn cached(run: &Run, name: &str, device: Arc<dyn Device>, kind: FileSystem) -> Result<Self> {
        Self::open(run, name, device, kind, true)
    }

    fn open(
        run: &Run,
        name: &str,
        device: Arc<dyn Device>,
        kind: FileSystem,
        is_cached: bool,
    ) -> Result<Self> {
        let mut stack = CleanupStack::new(run);
        let folder = run.scratch().join(name);
        let (served, mountpoint) = (folder.join("served"), folder.join("mount"));
        for path in [&folder, &served, &mountpoint] {
            stack.create_directory(path)?;
        }
        let block_size = device.info().block_size;
        let options = FuseOptions { threads: 1, epoch: Instant::now(), is_cached, ..FuseOptions::default() };
        let file = served.join(&options.file_name);
        let export = stack.create(FuseMount { path: served.clone() }, || {
            let export = Arc::new(FuseExport::mount(device, &served, options)?);
            let ends = Arc::clone(&export);
            let undo: Undo = Box::new(move || ends.unmount());
            Ok((export, undo))
        })?;
        let options = LoopOptions { direct_io: !is_cached, read_only: false, block_size: Some(block_size) };
        let attached = stack.create(Loop { backing_file: file.clone() }, || {
            let device = Arc::new(LoopDevice::attach(&file, options)?);
            let ends = Arc::clone(&device);
            let undo: Undo = Box::new(move || ends.detach());
            Ok((device, undo))
        })?;
        let device = attached.path().to_owned();
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
        Ok(Self {
            stack,
            device,
            mountpoint,
            kind,
            is_mounted,
            kernel_log: KernelLog::follow(),
            export,
            attached,
            keeps: is_cached.then_some(true),
        })
    }

    /// These bytes of the device, in order, are others now: those of `image`, which it shows. Nothing may be mounted. [`Scene::forget`]
    /// comes after it.
    pub fn changed(&self, ranges: &[Range<u64>], image: &ImageDevice) -> Result<()> {
        if self.keeps.is_none() {
            return Ok(());
        }
        let size = image.info().size;
        let mut bytes = Vec::new();
        let mut told = 0;
        for range in ranges {
            // The page cache knows whole pages.
            let start = (range.start / PAGE_BYTES * PAGE_BYTES).max(told);
            let end = range.end.next_multiple_of(PAGE_BYTES).min(size);
            if start >= end {
                continue;
            }
            // What is long is seldom read as a whole: it is forgotten. What is short costs less to tell than to be asked for.
            self.export.changed(start..end)?;
            if self.keeps == Some(true) && end - start <= TOLD_BYTES_MAX {
                bytes.resize((end - start) as usize, 0);
                image.read_at(start, &mut bytes)?;
                self.export.store(start, &bytes)?;
            }
            told = end;
        }
        Ok(())
    }

    /// The device has no use for flushes: what is written to it is there, and goes with it.
    pub(crate) fn needs_no_flushes(&self) {
        self.export.needs_no_fsync();
    }

    /// Lets the kernel keep what it reads, where the scene is one that does, or not, so that the device sees every read. Nothing may
    /// be mounted.
    pub(crate) fn keep_reads(&mut self, keep: bool) -> Result<()> {
        if self.keeps == Some(!keep) {
            self.attached.set_direct_io(!keep)?;
            self.keeps = Some(keep);
        }
        Ok(())
    }

    /// Fails if the kernel does not see the first bytes of `image` as the device's: requests fail on the way, or the device is no
    /// longer ours. Nothing may be mounted.
    pub(crate) fn check(&self, image: &ImageDevice) -> Result<()> {
        let doing = || format!("reading {}, to see whether it shows the state", self.device.display());
        let device =
            File::options().read(true).custom_flags(libc::O_DIRECT).open(&self.device).doing(doing)?;
        for (start, length) in signs(image.info().size) {
            let (mut seen, mut wanted) = (Buffer::zeroed(length), vec![0; length]);
            device.read_exact_at(&mut seen, start).doing(doing)?;
            image.read_at(start, &mut wanted)?;
            if seen[..] != wanted[..] {
                let what = format!("{} does not show the state that it is to show", self.device.display());
                return Err(Error::new(ErrorKind::Gone, what));
            }
        }
        Ok(())
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
        while let Err(error) = self.mount_alone(options) {
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

    /// Since Linux 6.7 a btrfs whose identifier is mounted already gets another for the time being. Where two are mounted at one
    /// moment one of them may fail ("File exists", seen on 6.18), which says nothing of what is on it.
    fn mount_alone(&self, options: &[String]) -> Result<()> {
        static BTRFS: Mutex<()> = Mutex::new(());
        let _alone = (self.kind == FileSystem::Btrfs).then(|| BTRFS.lock());
        mount(self.kind.name(), &self.device, &self.mountpoint, options)
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
