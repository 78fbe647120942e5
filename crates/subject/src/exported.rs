//! A stack as a loop device: what the subjects `device` and the file systems have in common.
//!
//! Owns the clean-up stack of the subject, on which a file system puts its mount. The stack is served by threads of
//! this process as a FUSE file with direct I/O, and a loop device with direct I/O lies over that file; so the only
//! caches are those of the block device and of what is mounted on it, and both go with the detach.

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

/// The loop device and what is below it.
pub(crate) struct Exported {
    stack: CleanupStack,
    /// How high the clean-up stack is without the loop device.
    loop_mark: usize,
    loop_options: LoopOptions,
    /// The clean-up stack owns the export; this is only to abort it.
    export: Weak<FuseExport>,
    file: PathBuf,
    device: PathBuf,
    phase: Arc<AtomicU8>,
    cancel: Cancel,
    kernel_log: KernelLog,
    kernel_messages: Vec<String>,
    is_torn_down: bool,
}

impl Exported {
    /// Serves `device` and attaches it. `stack` may hold what shall outlive the device.
    pub(crate) fn new(
        mut stack: CleanupStack,
        device: Arc<dyn Device>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let info = device.info();
        let kernel_log = KernelLog::follow();
        let mountpoint = environment.run.scratch().join("export");
        stack.create_directory(&mountpoint)?;
        let options = FuseOptions {
            threads: environment.export_threads,
            file_name: FILE_NAME.into(),
            seed: environment.seed,
            epoch: environment.epoch,
            phase: Arc::clone(&environment.phase),
            allow_other: false,
            use_ring: true,
        };
        let export = stack.create(FuseMount { path: mountpoint.clone() }, || {
            let export = Arc::new(FuseExport::mount(device, &mountpoint, options)?);
            let weak = Arc::downgrade(&export);
            Ok((weak, undo_export(export)))
        })?;
        let mut exported = Self {
            loop_mark: stack.height(),
            stack,
            loop_options: LoopOptions {
                direct_io: true,
                read_only: info.read_only,
                block_size: Some(info.block_size),
            },
            export,
            file: mountpoint.join(FILE_NAME),
            device: PathBuf::new(),
            phase: Arc::clone(&environment.phase),
            cancel: environment.cancel.clone(),
            kernel_log,
            kernel_messages: Vec::new(),
            is_torn_down: false,
        };
        exported.attach()?;
        Ok(exported)
    }

    /// Attaches the stack's file to a loop device.
    pub(crate) fn attach(&mut self) -> Result<()> {
        let (file, options) = (&self.file, self.loop_options);
        self.device = self.stack.create(Loop { backing_file: file.clone() }, || {
            let device = LoopDevice::attach(file, options)?;
            let path = device.path().to_owned();
            let undo: Undo = Box::new(move || device.detach());
            Ok((path, undo))
        })?;
        Ok(())
    }

    /// The block device; another after each [`Exported::attach`].
    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    /// See [`super::Prepared::disk`].
    pub(crate) fn disk(&self) -> Option<String> {
        self.device.file_name()?.to_str().map(str::to_owned)
    }

    /// Where what is created on top of the device goes; [`Exported::detach`] undoes it.
    pub(crate) fn stack(&mut self) -> &mut CleanupStack {
        &mut self.stack
    }

    /// Writes what is in the block device's cache; an error says that some of it could not be written.
    pub(crate) fn flush(&self) -> Result<()> {
        File::open(&self.device)
            .and_then(|device| device.sync_all())
            .doing(|| format!("writing the cache of {}", self.device.display()))
    }

    /// Undoes everything above the loop device and detaches it, so that the kernel forgets all it has read or
    /// written. No program may have the device open, or a file on it.
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
        if let Some(name) = self.device.file_name().and_then(|name| name.to_str()) {
            self.kernel_messages.extend(self.kernel_log.new_lines_about(name));
        }
    }

    /// See [`super::Prepared::abort`].
    pub(crate) fn abort(&self) {
        if let Some(export) = self.export.upgrade() {
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
