//! Exports, loop devices and mounts that a test uses and that go away with it, however it ends.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use rotproof_block::{Buffer, Device};
use rotproof_export::{FuseExport, FuseOptions, unmount_path};
use tempfile::TempDir;

/// A device served in a directory of its own.
pub struct Served {
    pub export: FuseExport,
    /// After the export: it must be unmounted before its directory can go.
    directory: TempDir,
}

impl Served {
    pub fn new(device: impl Device + 'static) -> Self {
        Self::with(Arc::new(device), FuseOptions::default())
    }

    pub fn with(device: Arc<dyn Device>, options: FuseOptions) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        crate::prepare();
        let export = FuseExport::mount(device, directory.path(), options).expect("mounting works here");
        crate::inspect(&export);
        Self { export, directory }
    }

    pub fn path(&self) -> &Path {
        self.export.path()
    }

    pub fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.path()).expect("the file can be opened")
    }

    pub fn open_with(&self, flags: i32) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(self.path())
            .expect("can be opened")
    }

    pub fn unmount(self) {
        self.export.unmount().expect("nothing uses it and no thread failed");
        drop(self.export);
        self.directory.close().expect("an empty directory is left");
    }
}

/// A file system mounted on a block device.
pub struct Mounted {
    point: Option<TempDir>,
}

impl Mounted {
    pub fn new(device: &Path) -> Self {
        let point = tempfile::tempdir().expect("a temporary directory");
        run("mount", &[device.as_os_str(), point.path().as_os_str()]);
        Self { point: Some(point) }
    }

    pub fn path(&self) -> PathBuf {
        self.point.as_ref().expect("present until it is unmounted").path().to_owned()
    }

    pub fn unmount(mut self) {
        let point = self.point.take().expect("present until now");
        unmount_path(point.path(), false).expect("nothing uses it");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(point) = self.point.take() {
            let _ = unmount_path(point.path(), true);
        }
    }
}

/// Runs a program to its successful end.
pub fn run(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Output {
    let output = Command::new(program).args(arguments).output().expect("the program is installed");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Bytes that differ everywhere, for `seed`.
pub fn noise(seed: u64, length: usize) -> Buffer {
    let mut buffer = Buffer::stale(length);
    for (index, chunk) in (0..).zip(buffer.chunks_mut(8)) {
        let word = rotproof_block::hash::mix(seed, 0, index).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    buffer
}
