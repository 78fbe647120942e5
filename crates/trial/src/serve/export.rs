//! The ways in which a stack is offered. One more is one more variant: a word, what it needs of the machine, and how
//! it is opened on the clean-up stack.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Weak};
use std::time::Instant;

use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_export::{
    FuseExport, FuseOptions, LoopDevice, LoopOptions, VhostExport, VhostOptions, VhostServer,
};
use rotproof_spec::nearest;
use serde::{Serialize, Serializer};

use super::nbd::NbdServing;
use crate::registry::{CleanupStack, Resource, Undo};

/// A way in which a stack is offered to other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExportKind {
    /// A file in a FUSE file system.
    File,
    /// A loop device over that file.
    Device,
    /// An NBD server on a Unix socket or over TCP.
    Nbd,
    /// A vhost-user-blk server on a Unix socket.
    Vhost,
}

impl ExportKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::File, Self::Device, Self::Nbd, Self::Vhost];

    /// The word it is asked for with.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Device => "device",
            Self::Nbd => "nbd",
            Self::Vhost => "vhost",
        }
    }

    /// Ok if this machine can do it. Fails with [`ErrorKind::Missing`] and a text that says what is missing.
    pub fn check_requirements(self) -> Result<()> {
        let missing = |what: &str| Err(Error::new(ErrorKind::Missing, what));
        if matches!(self, Self::Nbd | Self::Vhost) {
            return Ok(());
        }
        if !std::path::Path::new("/dev/fuse").exists() {
            return missing(
                "/dev/fuse does not exist, so the kernel has no FUSE (CONFIG_FUSE_FS); try `modprobe fuse`",
            );
        }
        if self == Self::File {
            return Ok(());
        }
        // SAFETY: takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return missing(
                "`--as device` needs root, to attach a loop device; run with sudo, or take `--as file`",
            );
        }
        if !std::path::Path::new("/dev/loop-control").exists() {
            return missing(
                "/dev/loop-control does not exist, so the kernel has no loop devices (CONFIG_BLK_DEV_LOOP); try \
                 `modprobe loop`",
            );
        }
        Ok(())
    }
}

impl fmt::Display for ExportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for ExportKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Self::ALL.map(Self::word);
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(|| match nearest(text, words) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known are {}", words.join(", ")),
        })
    }
}

impl Serialize for ExportKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Where a stack is to be found in one of the ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Address {
    /// Which way.
    #[serde(rename = "as")]
    pub kind: ExportKind,
    /// The path, or whatever the other program takes.
    pub address: String,
    /// Commands to paste into a shell, for people: how others reach it.
    #[serde(skip)]
    pub commands: Vec<String>,
}

/// What all exports of a stack have in common.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// A folder of the run's own, for mount points.
    pub(super) folder: PathBuf,
    /// Seed of the serving threads' runtimes.
    pub(super) seed: u64,
    /// Time zero of their runtimes.
    pub(super) epoch: Instant,
    /// The phase of every request that comes in.
    pub(super) phase: Arc<AtomicU8>,
    /// Threads of each export.
    pub(super) threads: usize,
    /// How it is offered over NBD.
    pub(super) nbd: NbdServing,
}

/// Makes the exports of one stack. What several of them need is made once.
pub(super) struct Exporter {
    device: Arc<dyn Device>,
    surroundings: Surroundings,
    fuse: Option<(PathBuf, Weak<FuseExport>)>,
}

impl Exporter {
    pub(super) fn new(device: Arc<dyn Device>, surroundings: Surroundings) -> Self {
        Self { device, surroundings, fuse: None }
    }

    /// Offers the stack in one more way; `cleanup` takes it back. Gives at least one address.
    pub(super) fn open(&mut self, kind: ExportKind, cleanup: &mut CleanupStack) -> Result<Vec<Address>> {
        let path = match kind {
            ExportKind::File => self.file(cleanup)?,
            ExportKind::Device => self.loop_device(cleanup)?,
            ExportKind::Vhost => self.vhost(cleanup)?,
            ExportKind::Nbd => {
                let device = Arc::clone(&self.device);
                return self.surroundings.nbd.open(device, &self.surroundings, cleanup);
            }
        };
        let Some(address) = path.to_str() else {
            let message =
                format!("the path {} is not UTF-8; set ROTPROOF_STATE_DIR to one that is", path.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        };
        Ok(vec![Address { kind, address: address.to_owned(), commands: commands(kind, address) }])
    }

    /// Ends all exports at once, so that every request to them fails: for an end that must not wait.
    pub(super) fn abort(&self) {
        if let Some(export) = self.fuse.as_ref().and_then(|(_, export)| export.upgrade()) {
            export.abort();
        }
    }

    fn file(&mut self, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        if let Some((path, _)) = &self.fuse {
            return Ok(path.clone());
        }
        let Surroundings { folder, seed, epoch, phase, threads, .. } = &self.surroundings;
        let mountpoint = folder.join("export");
        cleanup.create_directory(&mountpoint)?;
        let options = FuseOptions {
            threads: *threads,
            seed: *seed,
            epoch: *epoch,
            phase: Arc::clone(phase),
            ..FuseOptions::default()
        };
        let device = Arc::clone(&self.device);
        let export = cleanup.create(Resource::FuseMount { path: mountpoint.clone() }, || {
            let export = Arc::new(FuseExport::mount(device, &mountpoint, options)?);
            let made = (export.path().to_owned(), Arc::downgrade(&export));
            let undo: Undo = Box::new(move || {
                let result = export.unmount();
                if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Internal) {
                    // Somebody has it open. Dropped with this closure, it is taken away by force.
                    export.abort();
                }
                result
            });
            Ok((made, undo))
        })?;
        Ok(self.fuse.insert(export).0.clone())
    }

    /// Gives the path of the socket.
    fn vhost(&self, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        let Surroundings { folder, seed, epoch, phase, .. } = &self.surroundings;
        let socket = folder.join("vhost");
        let export =
            VhostExport { name: "rotproof".into(), socket: socket.clone(), device: Arc::clone(&self.device) };
        let options =
            VhostOptions { seed: *seed, epoch: *epoch, phase: Arc::clone(phase), ..VhostOptions::default() };
        cleanup.create(Resource::Socket { path: socket.clone() }, || {
            let server = VhostServer::start(&[export], options)?;
            let undo: Undo = Box::new(move || server.stop());
            Ok((socket, undo))
        })
    }

    fn loop_device(&mut self, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        let file = self.file(cleanup)?;
        let info = self.device.info();
        let options =
            LoopOptions { direct_io: true, read_only: info.read_only, block_size: Some(info.block_size) };
        cleanup.create(Resource::Loop { backing_file: file.clone() }, || {
            let device = LoopDevice::attach(&file, options)?;
            let path = device.path().to_owned();
            let undo: Undo = Box::new(move || device.detach());
            Ok((path, undo))
        })
    }
}

/// How others reach what is at a path.
fn commands(kind: ExportKind, path: &str) -> Vec<String> {
    match kind {
        ExportKind::File => vec![
            format!("fio --name=file --filename='{path}' --direct=1 --rw=randrw"),
            format!("qemu-system-x86_64 -drive 'file={},format=raw,if=virtio'", path.replace(',', ",,")),
        ],
        ExportKind::Device => vec![format!("mkfs.ext4 {path} && mount {path} /mnt")],
        ExportKind::Vhost => vec![format!(
            "qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=m,size=1G,share=on -numa node,memdev=m \
             -chardev 'socket,id=c,path={},reconnect=1' -device vhost-user-blk-pci,chardev=c,num-queues=4",
            path.replace(',', ",,")
        )],
        // Knows more than a path.
        ExportKind::Nbd => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_asked_for_with_its_word() {
        for kind in ExportKind::ALL {
            assert_eq!(kind.word().parse(), Ok(kind));
        }
        assert_eq!("devise".parse::<ExportKind>(), Err("did you mean `device`?".into()));
        assert_eq!("".parse::<ExportKind>(), Err("known are file, device, nbd, vhost".into()));
    }
}
