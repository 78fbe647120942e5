//! What stands beside a volume: btrfs as RAID-1 on loop devices over files, and a ZFS pool of one mirror on files by `zfs-fuse`. Each
//! offers a file, on which the same loads run as on the volume.
//!
//! They are file systems behind the kernel, and `zfs-fuse` a second way through it; a volume is driven as a device in this process. So
//! the figures say what a user of a file there gets, not what their checksums alone cost.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_export::{LoopDevice, LoopOptions};
use rotproof_machine::{Cancel, Program, RunningProgram};
use rotproof_subject::{FileSystem, mount, unmount};

/// How often it is asked whether something is ready, and how long apart.
const TRIES: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(50);
const POOL: &str = "pool";
/// The daemon's own mounts: what is the machine's below `/run` and `/etc/zfs` is not seen, and not changed. The folder is given.
const DAEMON: &str = "exec 9< \"$1\" && mount -t tmpfs none /run && mkdir -p /run/zfs /run/lock \"$1\" && \
     mount --no-canonicalize --rbind /proc/self/fd/9 \"$1\" && exec 9<&- && \
     { [ ! -d /etc/zfs ] || mount -t tmpfs none /etc/zfs; } && exec zfs-fuse --no-daemon --no-kstat-mount";

/// A system that offers a file, until it is dropped.
pub struct Peer {
    /// What it is called.
    pub name: &'static str,
    /// The file.
    pub device: Arc<FileDevice>,
    _system: Box<dyn Any>,
}

/// Both, on files of their own in `folder`, with a file of `bytes` each. One that this machine has not is told of and left out.
pub fn peers(folder: &Path, member_bytes: u64, bytes: u64) -> Vec<Peer> {
    type Make = fn(&Path, u64, u64) -> Result<Peer>;
    let all: [(&str, Make); 2] = [("btrfs RAID-1", btrfs), ("ZFS mirror", zfs)];
    let made = all.into_iter().filter_map(|(name, make)| match make(folder, member_bytes, bytes) {
        Ok(peer) => Some(peer),
        Err(error) => {
            eprintln!("{name} is left out: {error}");
            None
        }
    });
    made.collect()
}

fn members(folder: &Path, name: &str, bytes: u64) -> Result<Vec<PathBuf>> {
    let member = |number: usize| {
        let path = folder.join(format!("{name}-{number}"));
        let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|error| Error::from_io(error, path.display().to_string())).map(|()| path)
    };
    (0..2).map(member).collect()
}

/// Past the page cache where the file system permits it.
fn file_in(folder: &Path, bytes: u64) -> Result<Arc<FileDevice>> {
    let path = folder.join("file");
    let options = |direct| FileOptions {
        create: true,
        size_bytes: Some(bytes),
        block_size: Some(4096),
        direct,
        ..FileOptions::default()
    };
    FileDevice::open(&path, options(true)).or_else(|_| FileDevice::open(&path, options(false)))
}

fn new_folder(path: &Path) -> Result<()> {
    std::fs::create_dir(path).map_err(|error| Error::from_io(error, path.display().to_string()))
}

struct Btrfs {
    mountpoint: PathBuf,
    loops: Vec<LoopDevice>,
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let devices: Vec<PathBuf> = self.loops.iter().map(|device| device.path().to_owned()).collect();
        if let Err(error) = unmount(FileSystem::Btrfs, &devices, &self.mountpoint) {
            eprintln!("{} stays mounted: {error}", self.mountpoint.display());
        }
    }
}

fn btrfs(folder: &Path, member_bytes: u64, bytes: u64) -> Result<Peer> {
    let mkfs = Program::find("mkfs.btrfs", "btrfs-progs")?;
    let attach = |path: &PathBuf| {
        LoopDevice::attach(path, LoopOptions { block_size: Some(4096), ..LoopOptions::default() })
    };
    let loops = members(folder, "btrfs", member_bytes)?.iter().map(attach).collect::<Result<Vec<_>>>()?;
    let devices: Vec<PathBuf> = loops.iter().map(|device| device.path().to_owned()).collect();
    let mut arguments: Vec<&str> = vec!["-q", "-f", "-d", "raid1", "-m", "raid1"];
    arguments.extend(devices.iter().filter_map(|device| device.to_str()));
    mkfs.start(arguments)?.wait(&Cancel::new())?;
    let mountpoint = folder.join("btrfs");
    new_folder(&mountpoint)?;
    let mut tried = 0;
    while let Err(error) = mount("btrfs", &devices[0], &mountpoint, &[]) {
        tried += 1;
        if tried == TRIES {
            return Err(error);
        }
        std::thread::sleep(INTERVAL);
    }
    let system = Btrfs { mountpoint: mountpoint.clone(), loops };
    let device = file_in(&mountpoint, bytes)?;
    Ok(Peer { name: "btrfs RAID-1", device, _system: Box::new(system) })
}

struct Zfs {
    timeout: Program,
    daemon: RunningProgram,
}

impl Zfs {
    /// Has a program of ZFS do something in the namespace of the daemon.
    fn command(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let pid = self.daemon.identity()?.pid.to_string();
        let all = ["-s", "KILL", "60", "nsenter", "-t", &pid, "-m", program];
        self.timeout.start(all.iter().chain(arguments))?.wait(&Cancel::new())
    }
}

impl Drop for Zfs {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            // Who has just closed a file may still be there.
            if self.command("zpool", &["export", POOL]).is_ok() {
                return;
            }
            std::thread::sleep(INTERVAL);
        }
        eprintln!("a ZFS pool was not exported; its daemon is ended as it is");
    }
}

fn zfs(folder: &Path, member_bytes: u64, bytes: u64) -> Result<Peer> {
    Program::find("zfs-fuse", "zfs-fuse")?;
    let mountpoint = folder.join("zfs");
    new_folder(&mountpoint)?;
    let shell = ["--mount", "--propagation", "private", "sh", "-c", DAEMON, "sh"].map(AsRef::as_ref);
    let daemon =
        Program::find("unshare", "util-linux")?.start(shell.into_iter().chain([folder.as_os_str()]))?;
    let zfs = Zfs { timeout: Program::find("timeout", "coreutils")?, daemon };
    let mut tried = 0;
    while let Err(error) = zfs.command("zpool", &["list"]) {
        tried += 1;
        if tried == TRIES {
            return Err(Error::new(ErrorKind::Missing, "zfs-fuse does not start").caused_by(error));
        }
        std::thread::sleep(INTERVAL);
    }
    let mount = format!("mountpoint={}", mountpoint.display());
    let mut arguments = vec!["create", "-f", "-o", "cachefile=none", "-o", "ashift=12", "-O", "atime=off"];
    arguments.extend(["-O", "recordsize=4K", "-O", "compression=off", "-O", &mount, POOL, "mirror"]);
    let files = members(folder, "zfs", member_bytes)?;
    arguments.extend(files.iter().filter_map(|file| file.to_str()));
    zfs.command("zpool", &arguments)?;
    let inside = mountpoint.strip_prefix("/").unwrap_or(&mountpoint);
    let seen = PathBuf::from(format!("/proc/{}/root", zfs.daemon.identity()?.pid)).join(inside);
    let device = file_in(&seen, bytes)?;
    Ok(Peer { name: "ZFS mirror", device, _system: Box::new(zfs) })
}
