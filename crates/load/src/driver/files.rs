//! A set of files in a directory as the objects of a load: past the page cache where the file system can, unless it is
//! to be used; flushed by `fdatasync`. They are on a device that this process serves, so mappings of them are in a process
//! of their own.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::leaf::FileOptions;
use rotproof_block::{Device, Error, ErrorKind, Queue, Result, Runtime};

use super::mapping::MappingProcess;
use super::{Driver, FileAccess, FileEngine, Lost, MappedFile};
use crate::BLOCK_BYTES;
use crate::object::{ObjectInfo, file_name};
use crate::spec::FilesSpec;

/// Files a, b, c, ... of equal size.
#[derive(Clone)]
pub struct FileSet {
    files: Vec<File>,
    objects: Vec<ObjectInfo>,
    holds_threads: bool,
    /// Holds the mappings of the files, if they are mapped. After the files, which need it.
    mappings: Option<Arc<MappingProcess>>,
}

#[derive(Clone)]
enum File {
    Open {
        device: Arc<dyn Device>,
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
    pub fn create(directory: &Path, spec: FilesSpec, access: FileAccess) -> Result<Self> {
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
        let mappings = start_mappings(access)?;
        let open = |path: &PathBuf| open_file(path, options, access, mappings.as_ref());
        let files = paths.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { files, objects, holds_threads: access.engine.holds_threads(), mappings })
    }

    /// Opens files that [`FileSet::create`] made, to read them. One that is gone, or that cannot be opened, fails
    /// every request instead: that is a finding, not a reason to stop. An error is one of this machine.
    pub fn open(directory: &Path, spec: FilesSpec, access: FileAccess) -> Result<Self> {
        let objects = Self::objects_of(spec);
        let mappings = start_mappings(access)?;
        let open = |object: &ObjectInfo| {
            open_file(&directory.join(&object.name), FileOptions::default(), access, mappings.as_ref())
                .unwrap_or_else(|error| File::Lost(error.kind()))
        };
        let files = objects.iter().map(open).collect();
        Ok(Self { files, objects, holds_threads: access.engine.holds_threads(), mappings })
    }

    /// Whether all files are read and written past the page cache.
    pub fn is_direct(&self) -> bool {
        self.files.iter().all(|file| matches!(file, File::Open { is_direct: true, .. }))
    }
}

fn start_mappings(access: FileAccess) -> Result<Option<Arc<MappingProcess>>> {
    (access.engine == FileEngine::Mmap).then(|| MappingProcess::start().map(Arc::new)).transpose()
}

/// Past the page cache if possible: some file systems have no direct I/O, or only in larger blocks than ours.
fn open_file(
    path: &Path,
    options: FileOptions,
    access: FileAccess,
    mappings: Option<&Arc<MappingProcess>>,
) -> Result<File> {
    if let Some(process) = mappings {
        return Ok(File::Open { device: MappedFile::open_in(process, path, options)?, is_direct: false });
    }
    if !access.is_cached()
        && let Ok(device) = access.engine.open(path, FileOptions { direct: true, ..options })
        && device.info().block_size as usize <= BLOCK_BYTES
    {
        return Ok(File::Open { device, is_direct: true });
    }
    let device = access.engine.open(path, FileOptions { direct: false, ..options })?;
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

    fn shared(&self) -> Arc<dyn Driver> {
        Arc::new(self.clone())
    }

    fn holds_threads(&self) -> bool {
        self.holds_threads
    }

    fn check(&self) -> Result<()> {
        self.mappings.as_ref().map_or(Ok(()), |process| process.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::uring;
    use crate::{LoadSpec, Oracle, Pattern, Workload, classify, run};
    use rotproof_block::Phase;
    use rotproof_spec::{Bytes, Percent};

    const SPEC: FilesSpec = FilesSpec { count: 3, size: Bytes(64 * 4096) };

    #[test]
    fn a_load_on_files_writes_them_verifies_them_and_flushes_each() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = FileSet::create(directory.path(), SPEC, FileAccess::default()).expect("room enough");
        let load = LoadSpec {
            pattern: Pattern::Random,
            reads: Percent(0.3),
            workers: 2,
            queue_depth: 4,
            ..LoadSpec::default()
        };
        let workload = Workload::new(&load, 1, files.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        let prefill = run(&workload, &files, &mut oracle, &uring(Phase::Prefill)).expect("prefills");
        assert_eq!(prefill.flushes.requests, 4, "two workers share the second file");
        let report = run(&workload, &files, &mut oracle, &uring(Phase::Run)).expect("runs");
        assert_eq!((report.error_count(), report.sightings.len()), (0, 0));
        drop(files);
        let length = |name| directory.path().join(name).metadata().expect("it is there").len();
        assert_eq!(["a", "b", "c"].map(length), [64 * 4096; 3]);
        let files = FileSet::open(directory.path(), SPEC, FileAccess::default()).expect("opens");
        let check = run(&workload, &files, &mut oracle, &uring(Phase::Check)).expect("checks");
        assert_eq!((check.reads.bytes, check.sightings.len()), (3 * 64 * 4096, 0));
    }

    #[test]
    fn a_lost_file_and_a_cut_one_fail_block_by_block() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = FileSet::create(directory.path(), SPEC, FileAccess::default()).expect("room enough");
        let workload = Workload::new(&LoadSpec::default(), 1, files.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        run(&workload, &files, &mut oracle, &uring(Phase::Run)).expect("runs");
        drop(files);
        std::fs::remove_file(directory.path().join("b")).expect("it is there");
        let cut =
            std::fs::OpenOptions::new().write(true).open(directory.path().join("c")).expect("it is there");
        cut.set_len(60 * 4096).expect("cut");
        let files = FileSet::open(directory.path(), SPEC, FileAccess::default()).expect("opens");
        let check = run(&workload, &files, &mut oracle, &uring(Phase::Check)).expect("checks");
        let failures = classify(&workload, &oracle, [&check]);
        let of = |name: &str| -> Vec<u64> {
            failures.iter().filter(|failure| failure.object == name).map(|failure| failure.block).collect()
        };
        assert!(of("a").is_empty());
        assert_eq!(of("b"), (0..64).collect::<Vec<u64>>());
        assert_eq!(of("c"), [60, 61, 62, 63]);
        assert!(failures.iter().all(|failure| failure.worst().what.kind() == "unreadable"));
    }

    #[test]
    fn files_that_exist_and_files_without_room_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("b"), "precious").expect("written");
        let error = FileSet::create(directory.path(), SPEC, FileAccess::default()).err().expect("b exists");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(!directory.path().join("a").exists(), "nothing is made before all is clear");
        let none = FilesSpec { count: 4, size: Bytes(0) };
        assert_eq!(
            FileSet::create(directory.path(), none, FileAccess::default()).err().expect("no room").kind(),
            ErrorKind::NoSpace
        );
    }
}
