//! The subjects `ext4`, `xfs` and `btrfs`: a file system of the kernel on the exported stack, btrfs also on several devices.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_attach::Mount;
use rotproof_block::{Device, Error, Result};
use rotproof_export::unmount_when_free;
use rotproof_machine::mounts::mounts;
use rotproof_machine::registry::{CleanupStack, Undo};

use crate::exported::Exported;
use crate::mkfs::{self, Made, Recipe};
use crate::mount::mount;
use crate::{Attached, Destination, Prepared, SubjectDescription, SubjectEnvironment};
use crate::{FileSystem, FileSystemSpec};

/// How long a file system may be busy when it is unmounted: programs that watch new mounts look into them for a
/// moment.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Lines of the kernel's log that go with an error.
const EXPLAINING_LINES: usize = 4;

/// A file system on block devices of the stack, mounted on a folder of the run.
pub(crate) struct FileSystemSubject {
    exported: Exported,
    kind: FileSystem,
    mountpoint: PathBuf,
    mount_options: Vec<String>,
    /// `None` where it was there already.
    made: Option<Made>,
    options_in_force: Option<String>,
}

impl FileSystemSubject {
    pub(crate) fn prepare(
        spec: &FileSystemSpec,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let mut stack = CleanupStack::new(&environment.run);
        let mountpoint = environment.run.scratch().join("mount");
        stack.create_directory(&mountpoint)?;
        let mut exported = Exported::new(stack, devices, environment)?;
        exported.attach()?;
        let (run, cancel) = (&environment.run, &environment.cancel);
        let made = match spec.existing {
            true => None,
            false => Some(mkfs::make(spec, &exported.devices(), environment.seed, run, cancel)?),
        };
        let mut mount_options: Vec<String> =
            Recipe::of(spec.kind).mount.iter().map(|&option| option.to_owned()).collect();
        mount_options.extend(spec.mount.iter().cloned());
        Ok(Self { exported, kind: spec.kind, mountpoint, mount_options, made, options_in_force: None })
    }

    fn mount(&mut self) -> Result<()> {
        let kind = self.kind;
        let devices: Vec<PathBuf> = self.exported.devices().into_iter().map(Path::to_owned).collect();
        let (mountpoint, mut options) = (self.mountpoint.clone(), self.mount_options.clone());
        // Nobody has told the kernel of the others.
        options.extend(devices[1..].iter().map(|device| format!("device={}", device.display())));
        let resource = Mount { path: mountpoint.clone(), filesystem: kind.name().to_owned() };
        self.exported.stack().create(resource, || {
            mount(kind.name(), &devices[0], &mountpoint, &options)?;
            let undo: Undo = Box::new(move || unmount(kind, &devices, &mountpoint));
            Ok(((), undo))
        })?;
        self.options_in_force = options_in_force(&self.mountpoint)?;
        Ok(())
    }

    /// The kernel's last words on the device, to go with an error.
    fn explained(&mut self, error: Error) -> Error {
        let messages = self.exported.kernel_messages();
        let last: Vec<&str> =
            messages[messages.len().saturating_sub(EXPLAINING_LINES)..].iter().map(String::as_str).collect();
        if last.is_empty() {
            return error;
        }
        Error::new(error.kind(), format!("{error}; the kernel says: {}", last.join(" | ")))
    }
}

impl Prepared for FileSystemSubject {
    fn place(&self) -> Destination {
        Destination::Folder(self.mountpoint.clone())
    }

    fn attach(&mut self) -> Result<Attached> {
        let phase = self.exported.enter_setup();
        let attached = self.exported.attach();
        let mounted = attached.map(|()| self.mount());
        self.exported.leave_setup(phase);
        match mounted? {
            Ok(()) => Ok(Attached::Up),
            Err(error) => Ok(Attached::Refused(self.explained(error))),
        }
    }

    fn detach(&mut self) -> Result<Vec<Error>> {
        let reported = self.sync().err().into_iter().collect();
        self.exported.detach().map(|()| reported)
    }

    fn kill(&mut self) -> Result<()> {
        self.exported.kill()
    }

    fn describe(&self) -> SubjectDescription {
        SubjectDescription {
            name: self.kind.name().to_owned(),
            export: self.exported.chosen(),
            tool: self.made.as_ref().and_then(|made| made.tool.clone()),
            mkfs: self.made.as_ref().map(|made| made.command_line.clone()),
            mount_options: Some(self.mount_options.join(",")),
            mount_options_in_force: self.options_in_force.clone(),
        }
    }

    fn disks(&self) -> Vec<String> {
        self.exported.disks()
    }

    fn kernel_messages(&mut self) -> Vec<String> {
        self.exported.kernel_messages()
    }

    fn abort(&self) {
        self.exported.abort();
    }

    fn axe(&self) -> Option<crate::Axe> {
        Some(self.exported.axe())
    }

    fn teardown(self: Box<Self>) -> Vec<Error> {
        self.exported.teardown()
    }
}

/// Unmounts what lies on these block devices, and waits a while if somebody still looks into the file system.
pub fn unmount(kind: FileSystem, devices: &[PathBuf], mountpoint: &Path) -> Result<()> {
    unmount_when_free(mountpoint, BUSY_MAX)?;
    if kind == FileSystem::Btrfs {
        devices.iter().for_each(|device| forget_btrfs_device(device));
    }
    Ok(())
}

/// Btrfs remembers every device that it has ever seen, by its number; the next user of that number shall not be
/// taken for ours. Where the kernel cannot forget (before 5.1) it does no harm that we could undo.
fn forget_btrfs_device(device: &Path) {
    /// `struct btrfs_ioctl_vol_args`, and `_IOW(0x94, 5, ...)` on it.
    #[repr(C)]
    struct VolumeArguments {
        fd: i64,
        name: [u8; 4088],
    }
    const BTRFS_IOC_FORGET_DEV: libc::Ioctl = 0x5000_9405;
    let name = device.as_os_str().as_bytes();
    let mut arguments = VolumeArguments { fd: 0, name: [0; 4088] };
    let Some(place) = arguments.name.get_mut(..name.len()) else { return };
    place.copy_from_slice(name);
    if let Ok(control) = File::options().read(true).write(true).open("/dev/btrfs-control") {
        // SAFETY: the structure is that of this call, and its name ends with zero: no path is 4088 bytes long.
        unsafe { libc::ioctl(control.as_raw_fd(), BTRFS_IOC_FORGET_DEV, &raw const arguments) };
    }
}

fn options_in_force(mountpoint: &Path) -> Result<Option<String>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.path == mountpoint).map(|mount| mount.options))
}
