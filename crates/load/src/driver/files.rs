//! A set of files in a directory as the objects of a load: past the page cache where the file system can, flushed by
//! `fdatasync`.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Device, Error, ErrorKind, Queue, Request, Result, Runtime, Submission};

use super::Driver;
use crate::BLOCK_BYTES;
use crate::object::{ObjectInfo, file_name};
use crate::spec::FilesSpec;

/// Files a, b, c, ... of equal size.
pub struct FileSet {
    files: Vec<File>,
    objects: Vec<ObjectInfo>,
}

enum File {
    Open {
        device: Arc<FileDevice>,
        is_direct: bool,
    },
    /// It cannot be opened any more: for whoever reads it, every block fails.
    Lost(ErrorKind),
}

impl FileSet {
    /// The names and sizes of the files that `spec` describes.
    pub fn objects_of(spec: FilesSpec) -> Vec<ObjectInfo> {
        (0..spec.count).map(|index| ObjectInfo::new(file_name(index), spec.size.0)).collect()
    }

    /// Makes the files, empty of data, in a directory that exists. Fails if one of them is there already.
    pub fn create(directory: &Path, spec: FilesSpec) -> Result<Self> {
        let objects = Self::objects_of(spec);
        if objects.is_empty() || spec.size.0 < BLOCK_BYTES as u64 {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "no room for the files of the load in {}; make the device larger",
                    directory.display()
                ),
            ));
        }
        let paths: Vec<PathBuf> = objects.iter().map(|object| directory.join(&object.name)).collect();
        if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("{} exists already; a load makes its own files", path.display()),
            ));
        }
        let options = FileOptions { size_bytes: Some(spec.size.0), create: true, ..FileOptions::default() };
        let files = paths.iter().map(|path| open_file(path, options)).collect::<Result<_>>()?;
        Ok(Self { files, objects })
    }

    /// Opens files that [`FileSet::create`] made, to read them. One that is gone, or that cannot be opened, fails
    /// every request instead: that is a finding, not a reason to stop.
    pub fn open(directory: &Path, spec: FilesSpec) -> Self {
        let objects = Self::objects_of(spec);
        let open = |object: &ObjectInfo| {
            open_file(&directory.join(&object.name), FileOptions::default())
                .unwrap_or_else(|error| File::Lost(error.kind()))
        };
        Self { files: objects.iter().map(open).collect(), objects }
    }

    /// Whether all files are read and written past the page cache.
    pub fn is_direct(&self) -> bool {
        self.files.iter().all(|file| matches!(file, File::Open { is_direct: true, .. }))
    }
}

/// Past the page cache if possible: some file systems have no direct I/O, or only in larger blocks than ours.
fn open_file(path: &Path, options: FileOptions) -> Result<File> {
    let direct = FileDevice::open(path, FileOptions { direct: true, ..options });
    if let Ok(device) = direct
        && device.info().block_size as usize <= BLOCK_BYTES
    {
        return Ok(File::Open { device, is_direct: true });
    }
    let device = FileDevice::open(path, FileOptions { direct: false, ..options })?;
    Ok(File::Open { device, is_direct: false })
}

impl Driver for FileSet {
    fn objects(&self) -> &[ObjectInfo] {
        &self.objects
    }

    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>> {
        self.files
            .iter()
            .map(|file| match file {
                File::Open { device, .. } => device.open_queue(runtime),
                File::Lost(kind) => Ok(Rc::new(Lost(*kind)) as Rc<dyn Queue>),
            })
            .collect()
    }
}

/// Fails everything.
struct Lost(ErrorKind);

impl Queue for Lost {
    fn submit(&self, request: Request) -> Submission {
        request.fail(Error::new(self.0, "the file cannot be opened")).into()
    }
}
