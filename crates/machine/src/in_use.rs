//! Whether somebody uses a file or device, and what it holds: what may be dear to somebody.
//!
//! It looks only; nothing is written, and no mounted file system is touched other than that of the path in question. What
//! follows from it is decided in `claim`.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rotproof_block::error::IoContext;
use rotproof_block::leaf::{FileDevice, FileOptions, NbdDevice};
use rotproof_block::{Buffer, Context, Device, Queue, Request, Result, Runtime};

use crate::any_data::{device_has_data, file_has_data};
use crate::mounts::{Mount, mounts, unescape};
use crate::second_opinion;
use crate::signatures::{Content, recognise};

/// What an export of an NBD server holds, as the end of "it holds ..."; who else uses it only the server knows.
pub(crate) fn content_of_export(device: &NbdDevice) -> Result<Option<String>> {
    // Under virtual time a request to a server blocks this thread, which is what is wanted here.
    let runtime = Runtime::simulated(0);
    let content =
        Export { queue: device.open_queue(&runtime)?, runtime, block_size: device.info().block_size.into() };
    let found = recognise(&content, device.info().size).map_err(|error| error.while_doing(device.uri()))?;
    Ok(match found {
        Some(found) => Some(found),
        None => device_has_data(device)?.then(|| DATA.into()),
    })
}

/// What is on an export, read in whole blocks.
struct Export {
    queue: Rc<dyn Queue>,
    runtime: Runtime,
    block_size: u64,
}

impl Content for Export {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = offset - offset % self.block_size;
        let end = (offset + bytes.len() as u64).next_multiple_of(self.block_size);
        let request = Request::read(start, Buffer::stale((end - start) as usize), Context::default());
        let completion = self.runtime.block_on(self.queue.submit(request)).map_err(io::Error::other)?;
        completion.result.map_err(io::Error::other)?;
        let lead = (offset - start) as usize;
        bytes.copy_from_slice(&completion.buffer[lead..lead + bytes.len()]);
        Ok(())
    }
}

/// How a block device is used.
pub(crate) enum DeviceUse {
    /// By the kernel or somebody else, it or one of its partitions, as the end of "it ...".
    InUse(String),
    /// By nobody: as long as this is open, the kernel gives it to nobody else who wants it alone.
    Claimed(File),
}

/// Claims a block device, unless the kernel or somebody else uses it.
pub(crate) fn claim_device(path: &Path, metadata: &Metadata) -> Result<DeviceUse> {
    if let Some(found) = use_of_device(metadata)? {
        return Ok(DeviceUse::InUse(found));
    }
    // What no table shows (further devices of a btrfs, members of a ZFS pool), the kernel's own claim does.
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(path) {
        Ok(claimed) => Ok(DeviceUse::Claimed(claimed)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(DeviceUse::InUse(
            "is in use, the kernel says, though by none of its mounts (a further device of a file system, \
                     or another program that holds it)"
                .into(),
        )),
        Err(error) => Err(error).doing(|| format!("opening {}", path.display())),
    }
}

fn use_of_device(metadata: &Metadata) -> Result<Option<String>> {
    let number = device_number(metadata.rdev());
    let mounts = mounts()?;
    for (device, name) in std::iter::once((number, None))
        .chain(partitions(number).into_iter().map(|(device, name)| (device, Some(name))))
    {
        let part = name.map_or_else(String::new, |name| format!("has the partition {name}, which "));
        if let Some(mount) = mounts.iter().find(|mount| is_on_device(mount, device)) {
            return Ok(Some(format!("{part}is mounted on {}", mount.path.display())));
        }
        if swaps().iter().any(|swap| device_of(swap) == Some(device)) {
            return Ok(Some(format!("{part}is in use as swap space")));
        }
        let holders = names_in(&sys_folder(device).join("holders"));
        if !holders.is_empty() {
            return Ok(Some(format!("{part}is in use by {}", holders.join(", "))));
        }
    }
    Ok(None)
}

/// How the regular file is in use, as the end of "it ...".
pub(crate) fn use_of_file(path: &Path, metadata: &Metadata) -> Result<Option<String>> {
    let identity = (metadata.dev(), metadata.ino());
    let full_path = fs::canonicalize(path).doing(|| format!("looking at {}", path.display()))?;
    let mounts = mounts()?;
    if let Some(mount) = mounts.iter().find(|mount| mount.source == full_path && mount.path != full_path) {
        return Ok(Some(format!("is mounted on {}", mount.path.display())));
    }
    let is_same = |other: &Path| {
        other == full_path
            || !is_on_fuse(&mounts, other)
                && fs::metadata(other).is_ok_and(|other| (other.dev(), other.ino()) == identity)
    };
    if swaps().iter().any(|swap| is_same(swap)) {
        return Ok(Some("is in use as swap space".into()));
    }
    for name in names_in(Path::new("/sys/block")).into_iter().filter(|name| name.starts_with("loop")) {
        let Ok(backing_file) = fs::read(format!("/sys/block/{name}/loop/backing_file")) else { continue };
        let backing_file =
            Path::new(OsStr::from_bytes(backing_file.strip_suffix(b"\n").unwrap_or(&backing_file)));
        if is_same(backing_file) {
            let device = PathBuf::from(format!("/dev/{name}"));
            let mounted = device_of(&device)
                .and_then(|number| mounts.iter().find(|mount| is_on_device(mount, number)))
                .map_or_else(String::new, |mount| format!(" and mounted on {}", mount.path.display()));
            return Ok(Some(format!("is attached to {}{mounted}", device.display())));
        }
    }
    Ok(None)
}

/// What is said of what nobody recognises.
const DATA: &str = "data";

/// What the file or device holds, as the end of "it holds ...".
pub(crate) fn content_of(path: &Path, metadata: &Metadata) -> Result<Option<String>> {
    let mut file = File::open(path).doing(|| format!("opening {}", path.display()))?;
    let size = file.seek(SeekFrom::End(0)).doing(|| format!("asking for the size of {}", path.display()))?;
    if size == 0 {
        return Ok(None);
    }
    if let Some(found) = recognise(&file, size).map_err(|error| error.while_doing(path.display()))? {
        return Ok(Some(found));
    }
    if metadata.is_file() && !size.is_multiple_of(512) {
        return Ok(Some(format!("{size} bytes, which is no multiple of 512, so it is no disk image")));
    }
    // A table that we do not know, but the kernel does.
    let partitions: Vec<String> =
        partitions(device_number(metadata.rdev())).into_iter().map(|(_, name)| name).collect();
    if metadata.file_type().is_block_device() && !partitions.is_empty() {
        return Ok(Some(format!("the partitions {}", partitions.join(", "))));
    }
    if let Some(found) = second_opinion::of_blkid(path) {
        return Ok(Some(found));
    }
    let has_data = if metadata.is_file() {
        file_has_data(path)?
    } else {
        let options = FileOptions { read_only: true, direct: false, ..FileOptions::default() };
        device_has_data(FileDevice::open(path, options)?.as_ref())?
    };
    Ok(has_data.then(|| DATA.into()))
}

fn device_number(device: u64) -> (u32, u32) {
    (libc::major(device), libc::minor(device))
}

/// The number of the block device at `path`, if it is one.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    // Sources of mounts are often mere words; only what is in /dev is looked at, so nothing can hang.
    if !path.starts_with("/dev") {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| device_number(metadata.rdev()))
}

/// By its number, or by its source where the file system has numbers of its own (btrfs).
fn is_on_device(mount: &Mount, device: (u32, u32)) -> bool {
    mount.device == device || device_of(&mount.source) == Some(device)
}

fn sys_folder(device: (u32, u32)) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", device.0, device.1))
}

/// Numbers and names of the partitions of a whole disk, as the kernel knows them.
fn partitions(device: (u32, u32)) -> Vec<((u32, u32), String)> {
    let folder = sys_folder(device);
    names_in(&folder)
        .into_iter()
        .filter(|name| folder.join(name).join("partition").exists())
        .filter_map(|name| {
            let number = fs::read_to_string(folder.join(&name).join("dev")).ok()?;
            let (major, minor) = number.trim().split_once(':')?;
            Some(((major.parse().ok()?, minor.parse().ok()?), name))
        })
        .collect()
}

/// Devices and files in use as swap space.
fn swaps() -> Vec<PathBuf> {
    fs::read("/proc/swaps")
        .unwrap_or_default()
        .split(|&byte| byte == b'\n')
        .skip(1)
        .filter_map(|line| line.split(u8::is_ascii_whitespace).next())
        .filter(|name| !name.is_empty())
        .map(unescape)
        .collect()
}

/// Whether `path` lies on a FUSE file system, whose server may be dead or hang.
fn is_on_fuse(mounts: &[Mount], path: &Path) -> bool {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.path))
        .max_by_key(|mount| mount.path.components().count())
        .is_some_and(|mount| mount.filesystem.starts_with("fuse"))
}

/// The names in a folder, sorted; none if it cannot be read.
fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_deepest_mount_above_it() {
        let mount = |path: &str, filesystem: &str| Mount {
            device: (0, 1),
            root: "/".into(),
            path: path.into(),
            filesystem: filesystem.into(),
            source: "none".into(),
            options: "rw".into(),
        };
        let mounts = [mount("/", "ext4"), mount("/mnt", "fuse.sshfs"), mount("/mnt/real", "xfs")];
        assert!(is_on_fuse(&mounts, Path::new("/mnt/file")));
        assert!(!is_on_fuse(&mounts, Path::new("/mnt/real/file")));
        assert!(!is_on_fuse(&mounts, Path::new("/mntfile")));
    }
}
