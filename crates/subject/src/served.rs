//! One device of the stack as a block device of the kernel: a loop device over a FUSE file, or a ublk device.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rotproof_attach::{FuseMount, Loop, Ublk};
use rotproof_block::{ContentHash, Device, ErrorKind, Result};
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions, UblkDevice, UblkOptions};
use rotproof_machine::registry::{CleanupStack, Undo};

use crate::{ExportSpec, SubjectEnvironment};

/// Name of the file that stands for a device of the stack.
const FILE_NAME: &str = "disk";

/// A device of the stack.
pub(crate) struct Served {
    device: Arc<dyn Device>,
    way: Way,
}

/// While it is served, the clean-up stack owns what serves it; what stands here is only to abort it.
enum Way {
    Loop {
        mountpoint: PathBuf,
        /// Users other than this one may use the file.
        everybody: bool,
        served: Option<Weak<FuseExport>>,
        options: LoopOptions,
    },
    Ublk(Option<Weak<UblkDevice>>),
}

/// What fails every request to one device from now on, from any thread and without waiting.
pub(crate) enum Abort {
    Fuse(Weak<FuseExport>),
    Ublk(Weak<UblkDevice>),
}

impl Abort {
    pub(crate) fn now(&self) {
        match self {
            Abort::Fuse(export) => export.upgrade().iter().for_each(|export| export.abort()),
            Abort::Ublk(device) => device.upgrade().iter().for_each(|device| device.abort()),
        }
    }
}

impl Served {
    /// One that is reached through a file, at this place.
    pub(crate) fn by_file(device: Arc<dyn Device>, mountpoint: PathBuf, everybody: bool) -> Self {
        let info = device.info();
        let options =
            LoopOptions { direct_io: true, read_only: info.read_only, block_size: Some(info.block_size) };
        Self { device, way: Way::Loop { mountpoint, everybody, served: None, options } }
    }

    /// One that is reached by ublk.
    pub(crate) fn by_ublk(device: Arc<dyn Device>) -> Self {
        Self { device, way: Way::Ublk(None) }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The file that stands for it, if one does.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match &self.way {
            Way::Loop { mountpoint, .. } => Some(mountpoint.join(FILE_NAME)),
            Way::Ublk(_) => None,
        }
    }

    /// Serves the file, if there is to be one, unless it is served. Whether it was not.
    pub(crate) fn serve(
        &mut self,
        stack: &mut CleanupStack,
        environment: &SubjectEnvironment,
    ) -> Result<bool> {
        let Way::Loop { mountpoint, everybody, served, .. } = &mut self.way else { return Ok(false) };
        if served.is_some() {
            return Ok(false);
        }
        let options = FuseOptions {
            threads: environment.export_threads,
            file_name: FILE_NAME.into(),
            seed: environment.seed,
            epoch: environment.epoch,
            phase: Arc::clone(&environment.phase),
            allow_other: *everybody,
            is_cached: false,
            use_ring: true,
        };
        *served = Some(stack.create(FuseMount { path: mountpoint.clone() }, || {
            let export = Arc::new(FuseExport::mount(Arc::clone(&self.device), mountpoint, options)?);
            let weak = Arc::downgrade(&export);
            Ok((weak, undo_export(export)))
        })?);
        Ok(true)
    }

    /// Makes the block device; its path.
    pub(crate) fn attach(
        &mut self,
        stack: &mut CleanupStack,
        environment: &SubjectEnvironment,
    ) -> Result<PathBuf> {
        match &mut self.way {
            Way::Loop { mountpoint, options, .. } => {
                let file = mountpoint.join(FILE_NAME);
                stack.create(Loop { backing_file: file.clone() }, || {
                    let device = LoopDevice::attach(&file, *options)?;
                    let path = device.path().to_owned();
                    let undo: Undo = Box::new(move || device.detach());
                    Ok((path, undo))
                })
            }
            Way::Ublk(served) => {
                let device = Ublk::create(stack, &self.device, &ublk_options(environment))?;
                *served = Some(Arc::downgrade(&device));
                Ok(device.path())
            }
        }
    }

    /// What aborts it, while it is served.
    pub(crate) fn abort(&self) -> Option<Abort> {
        match &self.way {
            Way::Loop { served, .. } => served.clone().map(Abort::Fuse),
            Way::Ublk(served) => served.clone().map(Abort::Ublk),
        }
    }

    /// Nothing serves it any more.
    pub(crate) fn is_gone(&mut self) {
        match &mut self.way {
            Way::Loop { served, .. } => *served = None,
            Way::Ublk(served) => *served = None,
        }
    }
}

fn ublk_options(environment: &SubjectEnvironment) -> UblkOptions {
    let scratch: &Path = environment.run.scratch();
    UblkOptions {
        queues: environment.export_threads as u16,
        // Nobody takes the place of a run that is killed; what waits for its device must not wait for ever.
        outlives_server: false,
        // Nobody else's device has this number of the maker's, whatever number the kernel gives.
        owner: ContentHash::of(scratch.as_os_str().as_encoded_bytes()).0 as u64,
        seed: environment.seed,
        epoch: environment.epoch,
        phase: Arc::clone(&environment.phase),
        ..UblkOptions::default()
    }
}

/// Ok if this machine can serve devices so. Fails with [`ErrorKind::Missing`].
pub(crate) fn check_requirements(export: ExportSpec) -> Result<()> {
    let missing = |what: String| Err(rotproof_block::Error::new(ErrorKind::Missing, what));
    if export == ExportSpec::Ublk {
        return rotproof_export::check_ublk();
    }
    for (path, what) in [
        ("/dev/fuse", "FUSE (CONFIG_FUSE_FS); try `modprobe fuse`"),
        ("/dev/loop-control", "loop devices (CONFIG_BLK_DEV_LOOP); try `modprobe loop`"),
    ] {
        if !Path::new(path).exists() {
            return missing(format!("{path} does not exist, so the kernel has no {what}"));
        }
    }
    Ok(())
}

fn undo_export(export: Arc<FuseExport>) -> Undo {
    Box::new(move || {
        let result = export.unmount();
        if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Internal) {
            // It could not be unmounted. Dropped with this closure, it is taken away by force.
            export.abort();
        }
        result
    })
}
