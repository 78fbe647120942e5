//! A stack as loop devices: what the subjects `device` and the file systems have in common.
//!
//! Owns the clean-up stack of the subject, on which a file system puts its mount. Each device of the stack is
//! served by threads of this process as a FUSE file with direct I/O, and a loop device with direct I/O lies over that file; so
//! the only caches are those of the block devices and of what is mounted on them, and both go with the detach.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use rotproof_attach::{FuseMount, Loop};
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Phase, Result};
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions};
use rotproof_machine::registry::{CleanupStack, Undo};
use rotproof_machine::{Cancel, KernelLog};

use crate::{SubjectEnvironment, joined};

/// Name of the file that stands for the stack.
const FILE_NAME: &str = "disk";

/// The loop devices, one for each device of the stack, and what is below them.
pub(crate) struct Exported {
    stack: CleanupStack,
    /// How high the clean-up stack is without the loop devices.
    loop_mark: usize,
    exports: Vec<Export>,
    /// The block devices, in the order of the stack.
    devices: Vec<PathBuf>,
    phase: Arc<AtomicU8>,
    cancel: Cancel,
    kernel_log: KernelLog,
    kernel_messages: Vec<String>,
    is_torn_down: bool,
}

/// A device of the stack as a file.
struct Export {
    /// The clean-up stack owns it; this is only to abort it.
    served: Weak<FuseExport>,
    file: PathBuf,
    loop_options: LoopOptions,
}

impl Export {
    fn new(
        stack: &mut CleanupStack,
        (device, folder): (Arc<dyn Device>, String),
        allow_other: bool,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let info = device.info();
        let mountpoint = environment.run.scratch().join(folder);
        stack.create_directory(&mountpoint)?;
        let options = FuseOptions {
            threads: environment.export_threads,
            file_name: FILE_NAME.into(),
            seed: environment.seed,
            epoch: environment.epoch,
            phase: Arc::clone(&environment.phase),
            allow_other,
            is_cached: false,
            use_ring: true,
        };
        let served = stack.create(FuseMount { path: mountpoint.clone() }, || {
            let export = Arc::new(FuseExport::mount(device, &mountpoint, options)?);
            let weak = Arc::downgrade(&export);
            Ok((weak, undo_export(export)))
        })?;
        let loop_options =
            LoopOptions { direct_io: true, read_only: info.read_only, block_size: Some(info.block_size) };
        Ok(Self { served, file: mountpoint.join(FILE_NAME), loop_options })
    }
}

impl Exported {
    /// Serves `devices` and attaches them. `stack` may hold what shall outlive them.
    pub(crate) fn new(
        stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        Self::open_to(stack, devices, false, environment)
    }

    /// The same, with files that users other than this one may use who are handed them open; the folder they are in is closed
    /// to them.
    pub(crate) fn for_everybody(
        stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        Self::open_to(stack, devices, true, environment)
    }

    fn open_to(
        mut stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        everybody: bool,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let kernel_log = KernelLog::follow();
        let mut exports = Vec::new();
        for (number, device) in devices.into_iter().enumerate() {
            let folder = if number == 0 { "export".to_owned() } else { format!("export-{}", number + 1) };
            exports.push(Export::new(&mut stack, (device, folder), everybody, environment)?);
        }
        let mut exported = Self {
            loop_mark: stack.height(),
            stack,
            exports,
            devices: Vec::new(),
            phase: Arc::clone(&environment.phase),
            cancel: environment.cancel.clone(),
            kernel_log,
            kernel_messages: Vec::new(),
            is_torn_down: false,
        };
        exported.attach()?;
        Ok(exported)
    }

    /// Attaches the stack's files to loop devices.
    pub(crate) fn attach(&mut self) -> Result<()> {
        self.devices.clear();
        for Export { file, loop_options, .. } in &self.exports {
            let attached = self.stack.create(Loop { backing_file: file.clone() }, || {
                let device = LoopDevice::attach(file, *loop_options)?;
                let path = device.path().to_owned();
                let undo: Undo = Box::new(move || device.detach());
                Ok((path, undo))
            })?;
            self.devices.push(attached);
        }
        Ok(())
    }

    /// The block devices; others after each [`Exported::attach`].
    pub(crate) fn devices(&self) -> Vec<&Path> {
        self.devices.iter().map(PathBuf::as_path).collect()
    }

    /// The file that stands for the first device of the stack.
    pub(crate) fn file(&self) -> &Path {
        self.exports.first().map_or(Path::new(""), |export| export.file.as_path())
    }

    /// See [`super::Prepared::disks`].
    pub(crate) fn disks(&self) -> Vec<String> {
        let names = self.devices.iter().filter_map(|device| device.file_name()?.to_str());
        names.map(str::to_owned).collect()
    }

    /// Where what is created on top of the device goes; [`Exported::detach`] undoes it.
    pub(crate) fn stack(&mut self) -> &mut CleanupStack {
        &mut self.stack
    }

    /// Writes what is in the caches of the block devices; an error says that some of it could not be written.
    pub(crate) fn flush(&self) -> Result<()> {
        self.devices.iter().try_for_each(|device| {
            File::open(device)
                .and_then(|device| device.sync_all())
                .doing(|| format!("writing the cache of {}", device.display()))
        })
    }

    /// Undoes everything above the loop devices and detaches them, so that the kernel forgets all it has read or
    /// written. No program may have one open, or a file on it.
    pub(crate) fn detach(&mut self) -> Result<()> {
        self.collect_kernel_messages();
        let failures = self.stack.undo_to(self.loop_mark);
        joined(failures).map_or(Ok(()), Err)
    }

    /// Begins [`Phase::Setup`], in which faults sleep; gives the phase to go back to.
    pub(crate) fn enter_setup(&self) -> u8 {
        self.phase.swap(Phase::Setup as u8, Ordering::SeqCst)
    }

    /// Goes back to the phase that [`Exported::enter_setup`] gave.
    pub(crate) fn leave_setup(&self, phase: u8) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    /// What the kernel has said about the loop devices so far.
    pub(crate) fn kernel_messages(&mut self) -> Vec<String> {
        self.collect_kernel_messages();
        self.kernel_messages.clone()
    }

    /// The device's number may change and then belong to somebody else, so this comes before every detach.
    fn collect_kernel_messages(&mut self) {
        let names = self.disks();
        self.kernel_messages.extend(self.kernel_log.new_lines_about(&names));
    }

    /// See [`super::Prepared::abort`].
    pub(crate) fn abort(&self) {
        for export in self.exports.iter().filter_map(|export| export.served.upgrade()) {
            export.abort();
        }
    }

    /// See [`super::Prepared::teardown`].
    pub(crate) fn teardown(mut self) -> Vec<Error> {
        self.phase.store(Phase::Setup as u8, Ordering::SeqCst);
        if self.cancel.is_cancelled() {
            self.abort();
        }
        self.is_torn_down = true;
        self.stack.undo_all()
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // An error or a panic: nobody waits for the data any more, but somebody may wait for a request that never
        // completes. The clean-up stack is dropped next.
        if !self.is_torn_down {
            self.abort();
        }
    }
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
