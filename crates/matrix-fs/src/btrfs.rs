//! btrfs as RAID-1 on two loop devices.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rotproof_attach::Mount;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::registry::Undo;
use rotproof_machine::{Cancel, Program};
use rotproof_matrix::{Place, block_of};
use rotproof_subject::{FileSystem, mount, unmount};

use crate::aim::What;
use crate::members::Members;
use crate::peer::System;

/// `_IO(0x12, 97)` of `include/uapi/linux/fs.h`: write and forget what the block device has cached.
const BLKFLSBUF: libc::Ioctl = 0x1261;
/// `_IOWR(0x94, 27, struct btrfs_ioctl_scrub_args)` of `include/uapi/linux/btrfs.h`.
const BTRFS_IOC_SCRUB: libc::Ioctl = 0xc400_941b_u32 as libc::Ioctl;
/// Bytes of a node, of which the first block is aimed at.
const NODE_BYTES: u64 = 16 << 10;
/// The trees whose nodes are aimed at (`include/uapi/linux/btrfs_tree.h`).
const FS_TREE: u64 = 5;
const CSUM_TREE: u64 = 7;
/// Where super blocks are.
const SUPERS: [u64; 2] = [64 << 10, 64 << 20];
/// A child of another thread may have a device open for a moment.
const BUSY_TRIES: u32 = 40;
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// What a block is: of data by its content, of a node by its head.
pub(crate) fn recognise(seed: u64, bytes: &[u8]) -> Option<What> {
    if let Some(block) = block_of(seed, bytes) {
        return Some(What::Data(block));
    }
    let head = bytes.get(..128)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    // The head of a node: sum (32), file system (16), its address, flags, chunk tree (16), generation, owner, items (4), level.
    let (address, generation, owner, level) = (word(48), word(80), word(88), head[100]);
    let is_node = address > 0
        && address.is_multiple_of(NODE_BYTES)
        && (1..1 << 20).contains(&generation)
        && word(32) != 0
        && word(64) != 0
        && level == 0;
    match owner {
        CSUM_TREE if is_node => Some(What::Sums),
        FS_TREE if is_node => Some(What::Map),
        _ => None,
    }
}

/// See the head of the module.
pub(crate) struct Btrfs {
    devices: Vec<PathBuf>,
    mountpoint: PathBuf,
    is_mounted: Arc<AtomicBool>,
    abort: Arc<dyn Fn() + Send + Sync>,
}

impl Btrfs {
    pub(crate) fn make(members: &mut Members) -> Result<Self> {
        let devices = members.attach()?;
        let mountpoint = members.folder.join("mount");
        members.stack.create_directory(&mountpoint)?;
        let mut arguments: Vec<&str> = vec!["-q", "-f", "-K", "-d", "raid1", "-m", "raid1"];
        arguments.extend(devices.iter().filter_map(|device| device.to_str()));
        Program::find("mkfs.btrfs", "btrfs-progs")?.start(arguments)?.wait(&Cancel::new())?;
        let is_mounted = Arc::new(AtomicBool::new(false));
        // Recorded once, for all the mounts that will be made here.
        let resource = Mount { path: mountpoint.clone(), filesystem: "btrfs".to_owned() };
        members.stack.create(resource, || {
            let (devices, mountpoint, is_mounted) =
                (devices.clone(), mountpoint.clone(), Arc::clone(&is_mounted));
            let undo: Undo = Box::new(move || match is_mounted.load(Ordering::SeqCst) {
                true => unmount(FileSystem::Btrfs, &devices, &mountpoint),
                false => Ok(()),
            });
            Ok(((), undo))
        })?;
        let abort = parking_lot::Mutex::new(members.abort());
        let abort = Arc::new(move || (abort.lock())());
        Ok(Self { devices, mountpoint, is_mounted, abort })
    }

    fn try_mount(&self, from: usize, options: &[String]) -> Result<()> {
        for _ in 0..BUSY_TRIES {
            match mount("btrfs", &self.devices[from], &self.mountpoint, options) {
                Err(error) if error.kind() == ErrorKind::Os(libc::EBUSY) => {
                    std::thread::sleep(BUSY_INTERVAL);
                }
                other => return other,
            }
        }
        Err(Error::new(ErrorKind::TimedOut, "something holds the devices"))
    }

    /// Has the kernel forget what it has read of the devices.
    fn forget(&self) -> Result<()> {
        for path in &self.devices {
            let doing = || format!("emptying the cache of {}", path.display());
            let device = File::open(path).doing(doing)?;
            // SAFETY: takes an open descriptor and no argument.
            if unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } != 0 {
                return Err(std::io::Error::last_os_error()).doing(doing);
            }
        }
        Ok(())
    }
}

impl System for Btrfs {
    /// As anybody would: both devices; and if that fails, without the one that is bad, as the manual has it.
    fn mount(&mut self, reports: &mut Vec<String>) -> Result<()> {
        self.forget()?;
        let other = |from: usize| format!("device={}", self.devices[1 - from].display());
        let degraded = || vec!["degraded".to_owned()];
        let mut attempts = vec![(0, vec![other(0)]), (1, degraded()), (0, degraded())];
        loop {
            let (from, options) = attempts.remove(0);
            match self.try_mount(from, &options) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::TimedOut || attempts.is_empty() => {
                    return Err(error);
                }
                Err(error) => reports.push(error.to_string()),
            }
        }
        self.is_mounted.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.mountpoint.clone()
    }

    fn open_to_read(&self, path: &Path) -> std::io::Result<File> {
        File::options().read(true).custom_flags(libc::O_DIRECT).open(path)
    }

    fn commit(&mut self) -> Result<()> {
        let doing = || "committing".to_owned();
        let root = File::open(&self.mountpoint).doing(doing)?;
        // SAFETY: takes an open descriptor.
        match unsafe { libc::syncfs(root.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).doing(doing),
        }
    }

    fn unmount(&mut self) -> Result<()> {
        if self.is_mounted.load(Ordering::SeqCst) {
            let synced = self.commit();
            unmount(FileSystem::Btrfs, &self.devices, &self.mountpoint)?;
            self.is_mounted.store(false, Ordering::SeqCst);
            synced?;
        }
        Ok(())
    }

    fn scrub(&mut self) -> Result<u64> {
        /// `struct btrfs_ioctl_scrub_args`: device, first byte, last byte, flags, what came of it, room.
        #[repr(C)]
        struct Arguments([u64; 128]);
        let root = File::open(&self.mountpoint).doing(|| "scrubbing".to_owned())?;
        let mut errors = 0;
        for device in 1..=2 {
            let mut arguments = Arguments([0; 128]);
            (arguments.0[0], arguments.0[2]) = (device, u64::MAX);
            // SAFETY: an open descriptor, and a structure of ours with the size that the number of the call has.
            if unsafe { libc::ioctl(root.as_raw_fd(), BTRFS_IOC_SCRUB, &raw mut arguments) } != 0 {
                return Err(std::io::Error::last_os_error()).doing(|| format!("scrubbing device {device}"));
            }
            // Extents and bytes of data and trees, then errors: reads, sums, heads; no sums, discarded; super blocks, memory,
            // uncorrectable.
            let told = &arguments.0[4..];
            errors += told[4] + told[5] + told[6] + told[9] + told[11];
        }
        Ok(errors)
    }

    fn places(&mut self, place: Place) -> Result<Vec<u64>> {
        Ok(if matches!(place, Place::RecordA | Place::Record) { SUPERS.to_vec() } else { Vec::new() })
    }

    fn kill(&mut self) -> Box<dyn Fn() + Send> {
        let abort = Arc::clone(&self.abort);
        Box::new(move || abort())
    }
}
