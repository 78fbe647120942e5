//! The ways in which a stack is offered. One more is one more variant: a word, what it needs of the machine, and how
//! it is opened on the clean-up stack.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Weak};
use std::time::Instant;

use rotproof_attach::{FuseMount, Loop, Ublk};
use rotproof_block::{ContentHash, DeviceInfo, Error, ErrorKind, Result};
use rotproof_export::{
    FuseExport, FuseOptions, LoopDevice, LoopOptions, NbdServer, UblkDevice, UblkOptions, VhostExport,
    VhostOptions, VhostServer, check_ublk, find_ublk,
};
use rotproof_layers::NamedDevice;
use rotproof_machine::registry::{CleanupStack, Socket, Undo};
use rotproof_spec::nearest;
use serde::{Serialize, Serializer};

use crate::nbd::{NbdAddresses, NbdServing};
use crate::user::user_of;

/// A way in which a stack is offered to other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExportKind {
    /// A file in a FUSE file system.
    File,
    /// A loop device over that file.
    Device,
    /// A block device `/dev/ublkbN`.
    Ublk,
    /// An NBD server on a Unix socket or over TCP.
    Nbd,
    /// A vhost-user-blk server on a Unix socket.
    Vhost,
}

impl ExportKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::File, Self::Device, Self::Ublk, Self::Nbd, Self::Vhost];

    /// The word it is asked for with.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Device => "device",
            Self::Ublk => "ublk",
            Self::Nbd => "nbd",
            Self::Vhost => "vhost",
        }
    }

    /// Ok if this machine can do it. Fails with [`ErrorKind::Missing`] and a text that says what is missing.
    pub fn check_requirements(self) -> Result<()> {
        let missing = |what: &str| Err(Error::new(ErrorKind::Missing, what));
        match self {
            Self::Nbd | Self::Vhost => return Ok(()),
            Self::Ublk => return check_ublk(),
            Self::File | Self::Device => {}
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
    /// Which device, of a stack that is several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The path, or whatever the other program takes.
    pub address: String,
    /// Commands to paste into a shell, for people: how others reach it.
    #[serde(skip)]
    pub commands: Vec<String>,
}

/// What all exports of a stack have in common.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// A folder of the run's own, for mount points.
    pub(crate) folder: PathBuf,
    /// Seed of the serving threads' runtimes.
    pub(crate) seed: u64,
    /// Time zero of their runtimes.
    pub(crate) epoch: Instant,
    /// The phase of every request that comes in.
    pub(crate) phase: Arc<AtomicU8>,
    /// Threads of each export.
    pub(crate) threads: usize,
    /// How it is offered over NBD.
    pub(crate) nbd: NbdServing,
    /// The ublk device to take over, by its number.
    pub(crate) recover: Option<u32>,
}

/// Makes the exports of one stack. What several of them need is made once.
pub(crate) struct Exporter {
    devices: Vec<NamedDevice>,
    surroundings: Surroundings,
    /// Of each device that has one, by its position.
    files: BTreeMap<usize, (PathBuf, Weak<FuseExport>)>,
    loops: BTreeMap<usize, Weak<LoopDevice>>,
    /// Paths of ublk devices.
    disks: Vec<PathBuf>,
    guests: Vec<Weak<VhostServer>>,
    nbd: Option<(NbdAddresses, Weak<NbdServer>)>,
}

impl Exporter {
    pub(crate) fn new(devices: Vec<NamedDevice>, surroundings: Surroundings) -> Self {
        let (files, loops) = (BTreeMap::new(), BTreeMap::new());
        Self { devices, surroundings, files, loops, disks: Vec::new(), guests: Vec::new(), nbd: None }
    }

    /// What the devices are.
    pub(crate) fn infos(&self) -> impl Iterator<Item = DeviceInfo> {
        self.devices.iter().map(|named| named.device.info())
    }

    /// Lets go of the devices, once nothing is offered any more.
    pub(crate) fn forget(&mut self) {
        self.devices.clear();
    }

    /// Takes one more device, which is not offered yet; its number.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is one of its name.
    pub(crate) fn add(&mut self, device: NamedDevice) -> Result<usize> {
        if self.devices.iter().any(|known| known.name == device.name) {
            let message = format!("{} is offered already", device.name.unwrap_or_default());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.devices.push(device);
        Ok(self.devices.len() - 1)
    }

    /// Offers a device that came later in one way. Gives at least one address.
    pub(crate) fn open_further(
        &mut self,
        device: usize,
        kind: ExportKind,
        cleanup: &mut CleanupStack,
    ) -> Result<Vec<Address>> {
        match (kind, &self.nbd) {
            (ExportKind::Nbd, Some((places, server))) => {
                let ended = || Error::new(ErrorKind::Gone, "the NBD server has ended");
                let server = server.upgrade().ok_or_else(ended)?;
                self.surroundings.nbd.add(&server, places, &self.devices[device])
            }
            _ => Ok(vec![self.open_one(device, kind, cleanup)?]),
        }
    }

    /// Tells the kernel and new clients of devices that have become larger. Who asked for the size over NBD, vhost-user or ublk before
    /// keeps what he knows.
    pub(crate) fn resized(&self) -> Result<()> {
        for (_, file) in self.files.values() {
            file.upgrade().map_or(Ok(()), |file| file.resized())?;
        }
        for device in self.loops.values() {
            device.upgrade().map_or(Ok(()), |device| device.resized())?;
        }
        Ok(())
    }

    /// Who uses one of the exports, if somebody does.
    pub(crate) fn user(&self) -> Option<String> {
        let clients = |count: usize, what: &str| {
            (count > 0).then(|| format!("{count} client{} over {what}", if count == 1 { "" } else { "s" }))
        };
        let nbd = self.nbd.as_ref().and_then(|(_, server)| server.upgrade());
        if let Some(user) = nbd.and_then(|server| clients(server.connections(), "NBD")) {
            return Some(user);
        }
        let guests = self.guests.iter().filter_map(Weak::upgrade).map(|server| server.connections()).sum();
        if let Some(user) = clients(guests, "vhost-user") {
            return Some(user);
        }
        let loops = self.loops.values().filter_map(Weak::upgrade);
        let disks = loops.map(|device| device.path().to_owned()).chain(self.disks.iter().cloned());
        for path in disks {
            if let Some(user) = user_of(&path) {
                return Some(format!("{} by {user}", path.display()));
            }
        }
        self.files.iter().find_map(|(number, (path, file))| {
            // The loop device over it has it open once.
            let own = usize::from(self.loops.get(number).is_some_and(|device| device.strong_count() > 0));
            let others = file.upgrade()?.opened().saturating_sub(own);
            (others > 0).then(|| format!("{} is open", path.display()))
        })
    }

    /// Offers the stack in one more way; `cleanup` takes it back. Gives at least one address for each device.
    pub(crate) fn open(&mut self, kind: ExportKind, cleanup: &mut CleanupStack) -> Result<Vec<Address>> {
        if kind == ExportKind::Nbd {
            let (addresses, places, server) =
                self.surroundings.nbd.open(&self.devices, &self.surroundings, cleanup)?;
            self.nbd = Some((places, server));
            return Ok(addresses);
        }
        (0..self.devices.len()).map(|device| self.open_one(device, kind, cleanup)).collect()
    }

    fn open_one(&mut self, device: usize, kind: ExportKind, cleanup: &mut CleanupStack) -> Result<Address> {
        let path = match kind {
            ExportKind::File => self.file(device, cleanup)?,
            ExportKind::Device => self.loop_device(device, cleanup)?,
            ExportKind::Ublk => self.ublk(device, cleanup)?,
            ExportKind::Vhost | ExportKind::Nbd => self.vhost(device, cleanup)?,
        };
        let Some(address) = path.to_str() else {
            let message =
                format!("the path {} is not UTF-8; set ROTPROOF_STATE_DIR to one that is", path.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        };
        let name = self.devices[device].name.clone();
        Ok(Address { kind, device: name, address: address.to_owned(), commands: commands(kind, address) })
    }

    /// A name in the run's folder for what is made of a device.
    fn name(&self, what: &str, device: usize) -> PathBuf {
        let name = match &self.devices[device].name {
            Some(name) => format!("{what}-{name}"),
            None => what.to_owned(),
        };
        self.surroundings.folder.join(name)
    }

    /// Ends all exports at once, so that every request to them fails: for an end that must not wait.
    pub(crate) fn abort(&self) {
        for export in self.files.values().filter_map(|(_, export)| export.upgrade()) {
            export.abort();
        }
    }

    fn file(&mut self, number: usize, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        if let Some((path, _)) = self.files.get(&number) {
            return Ok(path.clone());
        }
        let Surroundings { seed, epoch, phase, threads, .. } = &self.surroundings;
        let mountpoint = self.name("export", number);
        cleanup.create_directory(&mountpoint)?;
        let options = FuseOptions {
            threads: *threads,
            seed: *seed,
            epoch: *epoch,
            phase: Arc::clone(phase),
            ..FuseOptions::default()
        };
        let device = Arc::clone(&self.devices[number].device);
        let export = cleanup.create(FuseMount { path: mountpoint.clone() }, || {
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
        let path = export.0.clone();
        self.files.insert(number, export);
        Ok(path)
    }

    /// Gives the path of the socket.
    fn vhost(&mut self, device: usize, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        let Surroundings { seed, epoch, phase, .. } = &self.surroundings;
        let socket = self.name("vhost", device);
        let device = Arc::clone(&self.devices[device].device);
        let export = VhostExport { name: "rotproof".into(), socket: socket.clone(), device };
        let options =
            VhostOptions { seed: *seed, epoch: *epoch, phase: Arc::clone(phase), ..VhostOptions::default() };
        cleanup.create(Socket { path: socket.clone() }, || {
            let server = Arc::new(VhostServer::start(&[export], options)?);
            self.guests.push(Arc::downgrade(&server));
            let undo: Undo = Box::new(move || server.stop());
            Ok((socket, undo))
        })
    }

    fn ublk(&mut self, device: usize, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        let device = &self.devices[device].device;
        let Surroundings { folder, seed, epoch, phase, threads, recover, .. } = &self.surroundings;
        let mut options = UblkOptions {
            queues: *threads as u16,
            seed: *seed,
            epoch: *epoch,
            phase: Arc::clone(phase),
            ..UblkOptions::default()
        };
        if let Some(number) = *recover {
            if self.devices.len() > 1 {
                let message = "a server of several devices cannot be taken over; serve them one by one";
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            let found = find_ublk(number)?.ok_or_else(|| {
                let message = format!("there is no ublk device {number} to take over; leave out `--recover`");
                Error::new(ErrorKind::Missing, message)
            })?;
            // It is there already, and in the record of the dead one: if it cannot be taken over it stays.
            let device = UblkDevice::recover(device, number, &options)?;
            let path = device.path();
            let undo: Undo = Box::new(move || device.stop());
            cleanup.create(Ublk { number, owner: found.owner }, || Ok(((), undo)))?;
            self.disks.push(path.clone());
            return Ok(path);
        }
        // The name of the run, as a number that goes into the kernel's record of the device.
        options.owner = ContentHash::of(folder.as_os_str().as_encoded_bytes()).0 as u64;
        let path = Ublk::create(cleanup, device, &options)?.path();
        self.disks.push(path.clone());
        Ok(path)
    }

    fn loop_device(&mut self, number: usize, cleanup: &mut CleanupStack) -> Result<PathBuf> {
        let file = self.file(number, cleanup)?;
        let info = self.devices[number].device.info();
        let options =
            LoopOptions { direct_io: true, read_only: info.read_only, block_size: Some(info.block_size) };
        cleanup.create(Loop { backing_file: file.clone() }, || {
            let device = Arc::new(LoopDevice::attach(&file, options)?);
            let path = device.path().to_owned();
            self.loops.insert(number, Arc::downgrade(&device));
            let undo: Undo = Box::new(move || device.detach());
            Ok((path, undo))
        })
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exporter({} devices)", self.devices.len())
    }
}

/// How others reach what is at a path.
fn commands(kind: ExportKind, path: &str) -> Vec<String> {
    match kind {
        ExportKind::File => vec![
            format!("fio --name=file --filename='{path}' --direct=1 --rw=randrw"),
            format!("qemu-system-x86_64 -drive 'file={},format=raw,if=virtio'", path.replace(',', ",,")),
        ],
        ExportKind::Device | ExportKind::Ublk => vec![format!("mkfs.ext4 {path} && mount {path} /mnt")],
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
        assert_eq!("".parse::<ExportKind>(), Err("known are file, device, ublk, nbd, vhost".into()));
    }
}
