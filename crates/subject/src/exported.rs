//! A stack as block devices: what the subjects `device` and the file systems have in common.
//!
//! Owns the clean-up stack of the subject, on which a file system puts its mount. Each device of the stack is served by threads of
//! this process ([`Served`]), with direct I/O down to the stack; so the only caches are those of the block devices and of what is
//! mounted on them, and both go with the detach.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, Phase, Result};
use rotproof_machine::KernelLog;
use rotproof_machine::registry::CleanupStack;

use crate::served::{Abort, Served};
use crate::{ExportSpec, SubjectEnvironment, joined};

/// The block devices, one for each device of the stack, and what is below them.
pub(crate) struct Exported {
    stack: CleanupStack,
    /// How high the clean-up stack is without the exports, and without the block devices.
    export_mark: usize,
    device_mark: usize,
    exports: Vec<Served>,
    environment: SubjectEnvironment,
    /// The block devices, in the order of the stack, while they are attached.
    devices: Vec<PathBuf>,
    kernel_log: KernelLog,
    kernel_messages: Vec<String>,
    is_torn_down: bool,
}

impl Exported {
    /// Serves `devices` as the trial chooses. `stack` may hold what shall outlive them.
    pub(crate) fn new(
        stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        Self::open(stack, devices, environment.export, false, environment)
    }

    /// Serves `devices` as files.
    pub(crate) fn as_files(
        stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        Self::open(stack, devices, ExportSpec::Loop, false, environment)
    }

    /// The same, with files that users other than this one may use who are handed them open; the folder they are in is closed
    /// to them.
    pub(crate) fn for_everybody(
        stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        Self::open(stack, devices, ExportSpec::Loop, true, environment)
    }

    fn open(
        mut stack: CleanupStack,
        devices: Vec<Arc<dyn Device>>,
        export: ExportSpec,
        everybody: bool,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let kernel_log = KernelLog::follow();
        let mut exports = Vec::new();
        for (number, device) in devices.into_iter().enumerate() {
            exports.push(match export {
                ExportSpec::Ublk => Served::by_ublk(device),
                ExportSpec::Loop => {
                    let folder =
                        if number == 0 { "export".to_owned() } else { format!("export-{}", number + 1) };
                    let mountpoint = environment.run.scratch().join(folder);
                    stack.create_directory(&mountpoint)?;
                    Served::by_file(device, mountpoint, everybody)
                }
            });
        }
        let mut exported = Self {
            export_mark: stack.height(),
            device_mark: stack.height(),
            stack,
            exports,
            environment: environment.clone(),
            devices: Vec::new(),
            kernel_log,
            kernel_messages: Vec::new(),
            is_torn_down: false,
        };
        exported.serve()?;
        Ok(exported)
    }

    /// Serves the files of the devices of the stack, unless they are.
    pub(crate) fn serve(&mut self) -> Result<()> {
        for export in &mut self.exports {
            if export.serve(&mut self.stack, &self.environment)? {
                self.device_mark = self.stack.height();
            }
        }
        Ok(())
    }

    /// Makes the block devices, unless they are there.
    pub(crate) fn attach(&mut self) -> Result<()> {
        if !self.devices.is_empty() {
            return Ok(());
        }
        self.serve()?;
        for export in &mut self.exports {
            self.devices.push(export.attach(&mut self.stack, &self.environment)?);
        }
        Ok(())
    }

    /// The block devices; others after each [`Exported::attach`].
    pub(crate) fn devices(&self) -> Vec<&Path> {
        self.devices.iter().map(PathBuf::as_path).collect()
    }

    /// How the kernel reaches the stack, if that is not as usual; for the results.
    pub(crate) fn chosen(&self) -> Option<ExportSpec> {
        Some(self.environment.export).filter(|export| !export.is_default())
    }

    /// The first device of the stack, and the file that stands for it, of those served as files.
    pub(crate) fn first(&self) -> (PathBuf, Arc<dyn Device>) {
        let export = &self.exports[0];
        (export.file().unwrap_or_default(), Arc::clone(export.device()))
    }

    /// The files that stand for the devices of the stack.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.exports.iter().filter_map(Served::file).collect()
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

    /// Undoes everything above the block devices and removes them, so that the kernel forgets all it has read or
    /// written. No program may have one open, or a file on it.
    pub(crate) fn detach(&mut self) -> Result<()> {
        self.collect_kernel_messages();
        self.devices.clear();
        let failures = self.stack.undo_to(self.device_mark);
        joined(failures).map_or(Ok(()), Err)
    }

    /// Ends everything down to the devices of the stack, so that nothing reaches these any more that the kernel holds in
    /// caches, and what waits for an answer gets an error. A file system is unmounted from a device that is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.abort();
        self.collect_kernel_messages();
        self.devices.clear();
        let failures = self.stack.undo_to(self.export_mark);
        self.exports.iter_mut().for_each(Served::is_gone);
        self.device_mark = self.export_mark;
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

    /// What the kernel has said about the block devices so far.
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
        self.exports.iter().filter_map(Served::abort).for_each(|abort| abort.now());
    }

    /// See [`super::Prepared::axe`].
    pub(crate) fn axe(&self) -> crate::Axe {
        let aborts: Vec<Abort> = self.exports.iter().filter_map(Served::abort).collect();
        Box::new(move || aborts.iter().for_each(Abort::now))
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
