//! A stack as one file in a FUSE file system of its own, for anything that can open a file: a loop device, QEMU,
//! user-mode Linux, a database, `dd`.
//!
//! The protocol is ours (`docs/decisions/002-own-fuse-protocol.md`): `wire` has its layout, `parse` reads untrusted
//! bytes, `channel` moves them, or `ring` where the kernel offers io_uring for that, `handshake` agrees on abilities, `tree` answers what concerns names and attributes,
//! `data` what concerns bytes, `reply` sees that every request is answered, `session` is the loop of one thread,
//! `mount` attaches it all to a directory, `forwarded` passes on what it is asked to whoever answers elsewhere. This file starts and ends it.

mod channel;
mod data;
mod forwarded;
mod handshake;
mod mount;
mod parse;
mod reply;
mod ring;
mod session;
mod threads;
mod tree;
mod wire;

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};

pub use forwarded::ForwardedMount;
pub use mount::{abort_path, unmount_path, unmount_when_free};
pub use parse::{FuseOperation, Malformed, Message, NAME_BYTES_MAX, Name, TRANSFER_BYTES_MAX, parse};
pub(crate) use session::describe;

use crate::system;
use channel::Channel;
use mount::{Mount, MountOptions};
use threads::{Channels, Setup, Threads};
use tree::{FILE, Tree};
use wire::{InvalInode, Plain, Store, notify};

/// Bytes that [`parse`] wants in its first part.
pub const HEAD_BYTES: usize = wire::HEAD_BYTES;

/// So much is told to the kernel at once.
const STORED_BYTES_MAX: usize = 64 << 10;
/// How long an unmount waits for what is just being closed, such as the file under a detached loop device.
const BUSY_PATIENCE: Duration = Duration::from_millis(1000);
/// How long threads get to end before the connection is aborted, and again after that.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How to export a device as a file.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Threads that serve, each with a queue of the device on a runtime of its own.
    pub threads: usize,
    /// Name of the file in the directory.
    pub file_name: String,
    /// Seed of the threads' runtimes.
    pub seed: u64,
    /// Time zero of the threads' runtimes.
    pub epoch: Instant,
    /// Number of the [`rotproof_block::Phase`] that every request gets in its context; may change at any time.
    pub phase: Arc<AtomicU8>,
    /// Lets users other than the one who mounts use the file. Without root this needs `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Lets the kernel keep in its page cache what it has read. Who changes the device by another way than the file must say so
    /// ([`FuseExport::changed`]). Writes reach the device before they are done, as without.
    pub is_cached: bool,
    /// Takes requests by io_uring where the kernel offers that (Linux 6.14 with `enable_uring` of the module `fuse` set),
    /// which takes less of the processor for many small requests; else, or without it, by the FUSE device.
    pub use_ring: bool,
}

impl Default for FuseOptions {
    fn default() -> Self {
        Self {
            threads: 2,
            file_name: "disk".into(),
            seed: 1,
            epoch: Instant::now(),
            phase: Arc::default(),
            allow_other: false,
            is_cached: false,
            use_ring: true,
        }
    }
}

/// A device served as a file. Unmount it; dropping it does so too, by force if need be, but cannot tell of errors.
pub struct FuseExport {
    file: PathBuf,
    mount: Arc<Mount>,
    threads: Threads,
    over_ring: bool,
    is_mounted: Mutex<bool>,
    /// By which the kernel is told of changes, where it keeps what it has read.
    notices: Option<Channel>,
    needs_no_fsync: Arc<AtomicBool>,
    device: Arc<dyn Device>,
    /// Bytes of the file, as the threads answer it.
    size: Arc<AtomicU64>,
    opened: Arc<AtomicUsize>,
    /// A channel of one of the threads, which goes when they do: a connection that somebody keeps open is not ended by the kernel.
    connection: Weak<OwnedFd>,
}

impl FuseExport {
    /// Serves `device` as the file [`FuseExport::path`] in the directory `mountpoint`, which must exist.
    ///
    /// As root by `mount(2)`, else through `fusermount3`. Fails with [`ErrorKind::Missing`] where one of them, FUSE
    /// or io_uring is not to be had, and with [`ErrorKind::Invalid`] for options that make no sense.
    pub fn mount(device: Arc<dyn Device>, mountpoint: &Path, options: FuseOptions) -> Result<Self> {
        check_options(&options)?;
        let info = device.info();
        let (uid, gid) = system::user();
        let tree = Tree {
            file_name: options.file_name.clone(),
            info,
            size: Arc::new(info.size.into()),
            opened: Arc::default(),
            uid,
            gid,
            open_to_all: options.allow_other,
            is_cached: options.is_cached,
            needs_no_fsync: Arc::default(),
        };
        let needs_no_fsync = Arc::clone(&tree.needs_no_fsync);
        let (size, opened) = (Arc::clone(&tree.size), Arc::clone(&tree.opened));
        let setup = Setup { device: Arc::clone(&device), tree, options };
        // Queues first: nothing is mounted that could not be served.
        let threads = Threads::start(&setup)?;
        let options = setup.options;
        let mount_options = MountOptions {
            read_only: info.read_only,
            allow_other: options.allow_other,
            read_bytes_max: TRANSFER_BYTES_MAX,
        };
        let (mount, first) = Mount::new(mountpoint, &mount_options)?;
        let mount = Arc::new(mount);
        let mut export = Self {
            file: mount.point().join(&options.file_name),
            mount: Arc::clone(&mount),
            threads,
            over_ring: false,
            is_mounted: Mutex::new(true),
            notices: options.is_cached.then(|| first.clone()),
            needs_no_fsync,
            device,
            size,
            opened,
            connection: Weak::new(),
        };
        // From here on a failure drops the export, which unmounts.
        let over_ring = handshake::shake_hands(&first, export.threads.have_rings())?;
        let channels = (0..options.threads)
            .map(|_| {
                let (blocking, polled) = (first.another(true)?, first.another(false)?);
                Ok(Channels { blocking, polled, over_ring })
            })
            .collect::<Result<Vec<_>>>()?;
        export.connection =
            channels.first().map_or_else(Weak::new, |first| Arc::downgrade(first.blocking.fd()));
        export.over_ring = over_ring;
        export.threads.serve(channels, &mount);
        Ok(export)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Lets the file become as large as the device is now, and has the kernel ask for its size. Without effect if it is not larger.
    pub fn resized(&self) -> Result<()> {
        let now = self.device.info().size;
        if self.size.fetch_max(now, Ordering::SeqCst) >= now {
            return Ok(());
        }
        let Some(channel) = self.connection.upgrade().map(Channel::of) else { return Ok(()) };
        let doing = || "telling the kernel that a file has become larger".to_owned();
        // Below zero: nothing but what is known of the file.
        let notice = InvalInode { ino: FILE, off: -1, len: 0 };
        match channel.send(0, notify::INVAL_INODE, notice.as_bytes()) {
            // Nobody has looked at the file yet; the channel takes that for an answer that nobody waits for.
            Ok(()) => {}
            Err(error) => return Err(error).doing(doing),
        }
        let seen = std::fs::metadata(&self.file).doing(doing)?.len();
        if seen < now {
            let message = format!("the kernel sees {seen} bytes of {}, which has {now}", self.file.display());
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Ok(())
    }

    /// How often the file is open now, by programs and loop devices.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Makes the kernel forget what it has read of these bytes of the file: the device holds something else there now. Nothing may
    /// be writing to them. Without effect if the kernel keeps nothing.
    pub fn changed(&self, bytes: Range<u64>) -> Result<()> {
        let length = bytes.end.saturating_sub(bytes.start);
        // A length of zero would mean to the end.
        let (Some(channel), true) = (&self.notices, length > 0) else { return Ok(()) };
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let notice = InvalInode { ino: FILE, off: number(bytes.start), len: number(length) };
        channel
            .send(0, notify::INVAL_INODE, notice.as_bytes())
            .doing(|| "telling the kernel that a file has changed".into())
    }

    /// Tells the kernel what the file holds from the byte `offset` on: whole pages of 4096 bytes, or up to the end of the file. It then
    /// need not ask. Without effect if the kernel keeps nothing.
    pub fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(channel) = &self.notices else { return Ok(()) };
        let doing = || "telling the kernel what a file holds".to_owned();
        for (piece, bytes) in (0u64..).zip(bytes.chunks(STORED_BYTES_MAX)) {
            let offset = offset + piece * STORED_BYTES_MAX as u64;
            let notice = Store { nodeid: FILE, offset, size: bytes.len() as u32, padding: 0 };
            let message = [notice.as_bytes(), bytes].concat();
            channel.send(0, notify::STORE, &message).doing(doing)?;
        }
        Ok(())
    }

    /// From now on `fsync` of the file does nothing: for a device whose writes are as durable as they will ever be when they are done, and
    /// that has no use for flushes. The kernel then does not ask.
    pub fn needs_no_fsync(&self) {
        self.needs_no_fsync.store(true, Ordering::Relaxed);
    }

    /// Whether requests come by io_uring.
    pub fn is_over_ring(&self) -> bool {
        self.over_ring
    }

    /// The directory it is in.
    pub fn mountpoint(&self) -> &Path {
        self.mount.point()
    }

    /// Unmounts and waits for the threads to end. Without effect if that has been done.
    ///
    /// While something has the file open this fails and everything stays as it is; close it and try again, or
    /// [`FuseExport::abort`]. An error of kind [`ErrorKind::Internal`] tells of a thread that failed while it served.
    pub fn unmount(&self) -> Result<()> {
        let mut is_mounted = self.is_mounted.lock();
        if *is_mounted {
            if let Err(error) = self.mount.unmount(BUSY_PATIENCE) {
                match error.kind() {
                    ErrorKind::Os(libc::EBUSY) => {
                        let file = self.file.display();
                        return Err(error.while_doing(format_args!(
                            "a program or a loop device still has {file} open; close it and unmount again"
                        )));
                    }
                    // Somebody else has unmounted it.
                    ErrorKind::Os(libc::EINVAL) => {}
                    _ => return Err(error),
                }
            }
            *is_mounted = false;
        }
        self.end_threads()
    }

    /// Ends the connection, whatever is open or under way: every request to the file fails from now on, those under
    /// way too. The dead mount stays until [`FuseExport::unmount`] or the drop.
    pub fn abort(&self) {
        if self.mount.abort().is_err() {
            // Without root and without the control file system.
            self.threads.stop(self.mount.point());
        }
    }

    fn end_threads(&self) -> Result<()> {
        if !self.threads.wait(END_PATIENCE) {
            // The file system lives on in another mount namespace, or a lazy unmount waits for open files.
            self.abort();
            if !self.threads.wait(END_PATIENCE) {
                let message =
                    "a thread of the export does not end: the device does not complete its requests";
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
        }
        match self.threads.failure() {
            Some(failure) => {
                Err(Error::new(ErrorKind::Internal, format!("a thread of the export failed: {failure}")))
            }
            None => Ok(()),
        }
    }
}

impl Drop for FuseExport {
    fn drop(&mut self) {
        if std::mem::take(self.is_mounted.get_mut()) && self.mount.unmount(Duration::ZERO).is_err() {
            self.abort();
            // What is open now belongs to a dead connection; the place in the tree becomes free.
            let _ = self.mount.detach();
        }
        let _ = self.end_threads();
    }
}

impl fmt::Debug for FuseExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FuseExport({})", self.file.display())
    }
}

fn check_options(options: &FuseOptions) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    if !(1..=64).contains(&options.threads) {
        return invalid(format!("{} threads for a FUSE export; give 1 to 64", options.threads));
    }
    let name = &options.file_name;
    let is_name = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0']);
    if !is_name || name.len() > NAME_BYTES_MAX {
        return invalid(format!(
            "{name:?} cannot be the name of a file; give 1 to 255 bytes without a slash"
        ));
    }
    Ok(())
}
