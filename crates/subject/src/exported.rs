//! A stack as loop devices: what the subjects `device` and the file systems have in common.
//!
//! Owns the clean-up stack of the subject, on which a file system puts its mount. Each device of the stack is
//! served by threads of this process as a FUSE file with direct I/O, and a loop device with direct I/O lies over that file; so
//! the only caches are those of the block devices and of what is mounted on them, and both go with the detach.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rotproof_attach::{FuseMount, Loop};
use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, ErrorKind, Phase, Result};
use rotproof_export::{FuseExport, FuseOptions, LoopDevice, LoopOptions};
use rotproof_machine::KernelLog;
use rotproof_machine::registry::{CleanupStack, Undo};

use crate::{SubjectEnvironment, joined};

/// Name of the file that stands for the stack.
const FILE_NAME: &str = "disk";

/// The loop devices, one for each device of the stack, and what is below them.
pub(crate) struct Exported {
    stack: CleanupStack,
    /// How high the clean-up stack is without the exports, and without the loop devices.
    export_mark: usize,
    loop_mark: usize,
    exports: Vec<Export>,
    /// Users other than this one may use the files.
    everybody: bool,
    environment: SubjectEnvironment,
    /// The block devices, in the order of the stack, while they are attached.
    devices: Vec<PathBuf>,
    kernel_log: KernelLog,
    kernel_messages: Vec<String>,
    is_torn_down: bool,
}

/// A device of the stack as a file.
struct Export {
    device: Arc<dyn Device>,
    mountpoint: PathBuf,
    /// While it is served. The clean-up stack owns it; this is only to abort it.
    served: Option<Weak<FuseExport>>,
    loop_options: LoopOptions,
}

impl Export {
    fn file(&self) -> PathBuf {
        self.mountpoint.join(FILE_NAME)
    }

    fn serve(
        &mut self,
        stack: &mut CleanupStack,
        allow_other: bool,
        environment: &SubjectEnvironment,
    ) -> Result<()> {
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
        let served = stack.create(FuseMount { path: self.mountpoint.clone() }, || {
            let export = Arc::new(FuseExport::mount(Arc::clone(&self.device), &self.mountpoint, options)?);
            let weak = Arc::downgrade(&export);
            Ok((weak, undo_export(export)))
        })?;
        self.served = Some(served);
        Ok(())
    }
}

impl Exported {
    /// Serves `devices`. `stack` may hold what shall outlive them.
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
            let mountpoint = environment.run.scratch().join(folder);
            stack.create_directory(&mountpoint)?;
            let info = device.info();
            let loop_options =
                LoopOptions { direct_io: true, read_only: info.read_only, block_size: Some(info.block_size) };
            exports.push(Export { device, mountpoint, served: None, loop_options });
        }
        let mut exported = Self {
            export_mark: stack.height(),
            loop_mark: stack.height(),
            stack,
            exports,
            everybody,
            environment: environment.clone(),
            devices: Vec::new(),
            kernel_log,
            kernel_messages: Vec::new(),
            is_torn_down: false,
        };
        exported.serve()?;
        Ok(exported)
    }

    /// Serves the devices of the stack, unless they are.
    pub(crate) fn serve(&mut self) -> Result<()> {
        for export in &mut self.exports {
            if export.served.is_none() {
                export.serve(&mut self.stack, self.everybody, &self.environment)?;
                self.loop_mark = self.stack.height();
            }
        }
        Ok(())
    }

    /// Attaches the stack's files to loop devices, unless they are.
    pub(crate) fn attach(&mut self) -> Result<()> {
        if !self.devices.is_empty() {
            return Ok(());
        }
        self.serve()?;
        for export in &self.exports {
            let (file, loop_options) = (export.file(), export.loop_options);
            let attached = self.stack.create(Loop { backing_file: file.clone() }, || {
                let device = LoopDevice::attach(&file, loop_options)?;
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

    /// The first device of the stack, and the file that stands for it.
    pub(crate) fn first(&self) -> (PathBuf, Arc<dyn Device>) {
        let export = &self.exports[0];
        (export.file(), Arc::clone(&export.device))
    }

    /// The files that stand for the devices of the stack.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.exports.iter().map(Export::file).collect()
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
        self.devices.clear();
        let failures = self.stack.undo_to(self.loop_mark);
        joined(failures).map_or(Ok(()), Err)
    }

    /// Ends everything down to the devices of the stack, so that nothing reaches these any more that the kernel holds in
    /// caches, and what waits for an answer gets an error. A file system is unmounted from a device that is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.abort();
        self.collect_kernel_messages();
        self.devices.clear();
        let failures = self.stack.undo_to(self.export_mark);
        self.exports.iter_mut().for_each(|export| export.served = None);
        self.loop_mark = self.export_mark;
        joined(failures).map_or(Ok(()), Err)
    }

    /// Begins [`Phase::Setup`], in which faults sleep; gives the phase to go back to.
    pub(crate) fn enter_setup(&self) -> u8 {
        self.environment.phase.swap(Phase::Setup as u8, Ordering::SeqCst)
    }

    /// Goes back to the phase that [`Exported::enter_setup`] gave.
    pub(crate) fn leave_setup(&self, phase: u8) {
        self.environment.phase.store(phase, Ordering::SeqCst);
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
        for export in self.exports.iter().filter_map(|export| export.served.as_ref()?.upgrade()) {
            export.abort();
        }
    }

    /// See [`super::Prepared::axe`].
    pub(crate) fn axe(&self) -> crate::Axe {
        let served: Vec<Weak<FuseExport>> =
            self.exports.iter().filter_map(|export| export.served.clone()).collect();
        Box::new(move || served.iter().filter_map(Weak::upgrade).for_each(|export| export.abort()))
    }

    /// See [`super::Prepared::teardown`].
    pub(crate) fn teardown(mut self) -> Vec<Error> {
        self.environment.phase.store(Phase::Setup as u8, Ordering::SeqCst);
        if self.environment.cancel.is_cancelled() {
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
