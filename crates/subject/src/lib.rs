//! Subjects: what is on trial. A subject turns a stack into a place to put load, and takes it down again.
//!
//! `raw` is the stack itself; `fat` a file system library in process over it; `device` a block device of the kernel over the stack (a loop device, or ublk); `ext4`, `xfs` and `btrfs` are made and
//! mounted on such a device; `zfs` is a pool on the export, by a program of its own; `machine` is a guest kernel with one of them; `guard` a guard over either; `volume` makes one device of those of the stack, for any of them. Everything a subject creates is recorded with the run first. Subjects know nothing of
//! faults, loads' patterns or verdicts.

mod device;
mod export_spec;
mod exported;
mod fat;
mod file_system;
mod file_system_spec;
mod guard;
mod guard_spec;
mod machine;
mod machine_disk;
mod machine_spec;
mod mkfs;
mod mount;
mod raw;
mod requirements;
mod served;
mod spec;
mod spec_check;
mod spec_form;
mod volume_spec;
mod zfs;
mod zfs_spec;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use export_spec::ExportSpec;
pub use file_system::unmount;
pub use file_system_spec::{FileSystem, FileSystemSpec};
pub use guard_spec::{GuardMode, GuardSpec};
pub use machine_spec::{MachineDisk, MachineKind, MachineSpec};
pub use mount::mount;
pub use requirements::check_requirements;
pub use spec::SubjectSpec;
pub use volume_spec::VolumeSubjectSpec;
pub use zfs_spec::ZfsSpec;

pub use rotproof_guest::GuestMemory;
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;

/// What a subject is given beside its stack.
#[derive(Clone, Debug)]
pub struct SubjectEnvironment {
    /// Where everything created is recorded; its scratch folder takes the mount points.
    pub run: Run,
    /// Root of what would else be random, such as the identifiers of a file system.
    pub seed: u64,
    /// Time zero of the run.
    pub epoch: Instant,
    /// The [`rotproof_block::Phase`] of the trial, as a number. A subject sets it while it mounts, and sets it back.
    pub phase: Arc<AtomicU8>,
    /// How the kernel reaches the stack, where a block device is between it and the subject.
    pub export: ExportSpec,
    /// Threads that serve the export.
    pub export_threads: usize,
    /// Ends a program under way, and lets the teardown be quick rather than careful.
    pub cancel: Cancel,
    /// What the stack is asked is recorded: what counts as durable must be seen there.
    pub is_recorded: bool,
}

/// Makes the subject on `devices`, of which most take one, or finds it there where it [exists](SubjectSpec::exists); a volume is a
/// device of its [whole stack](SubjectSpec::whole_stack) already. Checks first what it needs ([`check_requirements`]). It is not
/// up yet: [`Prepared::attach`] comes next. On an error nothing that it created is left.
pub fn prepare(
    spec: &SubjectSpec,
    mut devices: Vec<Arc<dyn Device>>,
    environment: &SubjectEnvironment,
) -> Result<Box<dyn Prepared>> {
    for device in &devices {
        check_requirements(spec, environment.export, &device.info())?;
    }
    let spec = spec.on_top();
    let mut one = || match (devices.pop(), devices.is_empty()) {
        (Some(device), true) => Ok(device),
        _ => Err(Error::new(ErrorKind::Invalid, format!("{} is made on one device", spec.name()))),
    };
    Ok(match spec {
        SubjectSpec::Raw => Box::new(raw::Raw::new(one()?)),
        SubjectSpec::Fat => Box::new(fat::Fat::new(one()?)),
        SubjectSpec::Device => Box::new(device::DeviceSubject::prepare(one()?, environment)?),
        SubjectSpec::Machine(spec) => {
            Box::new(machine::MachineSubject::prepare(spec, vec![one()?], environment)?)
        }
        SubjectSpec::Zfs(spec) => Box::new(zfs::ZfsSubject::prepare(spec, devices, environment)?),
        SubjectSpec::Guard(spec) => Box::new(guard::GuardSubject::prepare(spec, devices, environment)?),
        SubjectSpec::Volume(_) => {
            return Err(Error::new(ErrorKind::Invalid, "a volume is under anything but another volume"));
        }
        SubjectSpec::FileSystem(spec) => {
            Box::new(file_system::FileSystemSubject::prepare(spec, devices, environment)?)
        }
    })
}

/// See [`Prepared::axe`].
pub type Axe = Box<dyn Fn() + Send + Sync>;

/// A subject on its devices. It is up between [`Prepared::attach`] and [`Prepared::detach`] or [`Prepared::kill`], and may come
/// up again as often as one likes; what is read then comes from the stack and from no cache above it.
///
/// An `Err` of these is a failure of the machine or of Rotproof, not a finding. Dropped without [`Prepared::teardown`], it ends
/// everything at once, by force where it must.
pub trait Prepared: Send {
    /// Brings it up: attaches the devices, mounts, starts the machine. This is [`rotproof_block::Phase::Setup`]; then the phase is
    /// set back.
    fn attach(&mut self) -> Result<Attached>;

    /// Where the load goes while it is up. Another after each [`Prepared::attach`].
    fn place(&self) -> Destination;

    /// Takes it down in order: what it holds in caches is written, and nothing of it is left on the stack. All its files must be
    /// closed. The phase stays what it is, because this still belongs to the load. Gives the errors that it told of on the
    /// way, such as data that it could not write, in their order: it has noticed a fault.
    fn detach(&mut self) -> Result<Vec<Error>>;

    /// Takes it down without a word to it, as if its machine lost its power: nothing that it holds in caches reaches the stack
    /// any more. The devices of the stack keep their power.
    fn kill(&mut self) -> Result<()>;

    /// Makes all that was done to its files durable.
    fn sync(&self) -> Result<()> {
        match self.place() {
            Destination::Folder(folder) => sync_folder(&folder),
            Destination::Device(_) | Destination::Fat(_) | Destination::BlockDevice(_) => Ok(()),
        }
    }

    /// What was made, and how, for the results.
    fn describe(&self) -> SubjectDescription;

    /// The names of the kernel's block devices that it is or lies on, such as `loop3`. Others after each
    /// [`Prepared::attach`].
    fn disks(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the kernel has said about the subject's devices so far, where its log may be read.
    fn kernel_messages(&mut self) -> Vec<String>;

    /// What the kernel of a machine has said on its console; `None` where the subject is no machine.
    fn console(&self) -> Option<String> {
        None
    }

    /// The memory of a machine that runs; another after each [`Prepared::attach`].
    fn memory(&self) -> Option<GuestMemory> {
        None
    }

    /// The process that is the file system, where a program of this machine is; another after each [`Prepared::attach`].
    fn process(&self) -> Option<u32> {
        None
    }

    /// The process that guards its files, where one of this machine does; another after each [`Prepared::attach`].
    fn guard(&self) -> Option<u32> {
        None
    }

    /// Ends the export, so that every request to the subject, those under way too, fails at once: for a load that
    /// must end. What was not yet written to the stack is lost.
    fn abort(&self);

    /// What ends it from any thread, without waiting for anything, as [`Prepared::kill`] would, which must still follow: for a power
    /// that goes in the middle of a request. `None` where that cannot be done.
    fn axe(&self) -> Option<Axe> {
        None
    }

    /// Takes everything down, the last made first, with the faults disabled. Gives all that went wrong; what could not
    /// be removed stays in the run's record. If the run was cancelled, it aborts first.
    fn teardown(self: Box<Self>) -> Vec<Error>;
}

/// Where the load goes.
#[derive(Clone)]
pub enum Destination {
    /// To a device in this process.
    Device(Arc<dyn Device>),
    /// To files on a FAT volume on a device in this process, which whoever drives the load makes and mounts: the
    /// library works on the runtime of the load.
    Fat(Arc<dyn Device>),
    /// To a block device of the kernel.
    BlockDevice(PathBuf),
    /// To files in a folder, which is the root of a file system.
    Folder(PathBuf),
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Destination::Device(device) => write!(f, "Device({} bytes)", device.info().size),
            Destination::Fat(device) => write!(f, "Fat({} bytes)", device.info().size),
            Destination::BlockDevice(path) => write!(f, "BlockDevice({})", path.display()),
            Destination::Folder(path) => write!(f, "Folder({})", path.display()),
        }
    }
}

/// How it went to bring a subject up.
#[derive(Debug)]
pub enum Attached {
    /// It is up.
    Up,
    /// It does not come up from what is on the stack. Of one that had been up before, a finding, and a grave one: all its data is
    /// out of reach.
    Refused(Error),
}

/// What was made, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubjectDescription {
    /// `raw`, `device`, `ext4` ...
    pub name: String,
    /// `ublk`, where that and no loop device is between the stack and the kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub export: Option<ExportSpec>,
    /// Version of the program that made the file system, as it says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// Its command line; `DEVICE` stands for the block device, whose number differs from run to run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mkfs: Option<String>,
    /// The mount options asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mount_options: Option<String>,
    /// The mount options in force, as the kernel lists them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mount_options_in_force: Option<String>,
}

/// Asks a file system to write what it has in memory, and to say whether it could.
fn sync_folder(folder: &Path) -> Result<()> {
    let doing = || format!("writing what {} still has in memory", folder.display());
    let root = File::open(folder).doing(doing)?;
    // SAFETY: takes an open descriptor.
    match unsafe { libc::syncfs(root.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(doing),
    }
}

/// One error for several, none of which may be hidden.
fn joined(errors: Vec<Error>) -> Option<Error> {
    let mut errors = errors.into_iter();
    let first = errors.next()?;
    let rest: Vec<String> = errors.map(|error| error.to_string()).collect();
    Some(if rest.is_empty() {
        first
    } else {
        Error::new(first.kind(), format!("{first}; {}", rest.join("; ")))
    })
}
