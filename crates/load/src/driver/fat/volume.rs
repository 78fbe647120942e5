//! The library itself: a FAT volume of the crate fatfs on a [`ByteStream`], made, mounted, used and unmounted.
//!
//! Owns all that is known of that crate: how a volume is laid out so that a block of a file is a block of the device,
//! what its errors mean, and that it may panic or run in circles on a volume that lies. It does not know who carries
//! its requests out.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use fatfs::{FatType, File, FileSystem, FormatVolumeOptions, FsOptions, format_volume};
use rotproof_block::{
    ByteStream, Completion, Context, DeviceInfo, Error, ErrorKind, Operation, Phase, Request, Result,
};
use rotproof_spec::Bytes;

use super::session::{Edge, ended};
use crate::BLOCK_BYTES;
use crate::driver::FileSet;
use crate::object::ObjectInfo;
use crate::spec::{FilesSpec, LoadSpec};

/// No file of a FAT volume is larger: its size is a number of 32 bits.
pub const FAT_FILE_BYTES_MAX: u64 = (1 << 32) - BLOCK_BYTES as u64;

/// The smallest volume that holds anything.
pub const FAT_DEVICE_BYTES_MIN: u64 = 1 << 20;

/// What a library can be asked.
pub(super) enum Job {
    /// Make a volume, mount it, and make the files of this load.
    Create(Box<LoadSpec>),
    /// Mount the volume that is there and open these files.
    Open(FilesSpec),
    /// A request to a file; offset and length are within the file.
    Transfer(u32, Request),
    /// Close the files and unmount; what that writes has this context.
    Close(Context),
}

/// And what it answers.
pub(super) enum Answer {
    Begun(Result<FilesSpec>),
    Transferred(Completion),
    Closed(Result<()>),
    /// It died over the job.
    Ended(Error),
}

/// Calls of the library that one job may make: ten times what a seek through the largest file takes. A chain of
/// clusters that a fault has bent to a circle would hold it forever.
const CALLS_MAX: u64 = 1 << 26;

type Carry = Box<dyn FnMut(Request) -> Completion>;

/// The device as the library sees it; clones are the same.
#[derive(Clone)]
struct Disk(Rc<Shared>);

struct Shared {
    stream: RefCell<ByteStream<Carry>>,
    calls_left: Cell<u64>,
}

impl Disk {
    fn new(info: DeviceInfo, carry: Carry) -> Self {
        let stream = RefCell::new(ByteStream::new(info, carry));
        Self(Rc::new(Shared { stream, calls_left: Cell::new(CALLS_MAX) }))
    }

    /// What the library works for from now on.
    fn begin(&self, context: Context, calls_max: u64) {
        self.0.stream.borrow_mut().set_context(context);
        self.0.calls_left.set(calls_max);
    }

    fn stream(&self) -> io::Result<std::cell::RefMut<'_, ByteStream<Carry>>> {
        let left = self.0.calls_left.get();
        if left == 0 {
            let text = "the file system library runs in circles on this volume";
            return Err(io::Error::other(Error::new(ErrorKind::Os(libc::ELOOP), text)));
        }
        self.0.calls_left.set(left - 1);
        Ok(self.0.stream.borrow_mut())
    }
}

impl Read for Disk {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream()?.read(into)
    }
}

impl Write for Disk {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream()?.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream()?.flush()
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.stream()?.seek(to)
    }
}

/// The life of a library's thread: begins with the first job, ends with [`Job::Close`] or when there are no more.
pub(super) fn work(edge: Edge, info: DeviceInfo) {
    let edge = Rc::new(edge);
    let carrier = Rc::clone(&edge);
    let disk = Disk::new(info, Box::new(move |request| carrier.carry(request)));
    let begun = match edge.next_job() {
        Some(Job::Create(load)) => guarded(|| create(&disk, &load)),
        Some(Job::Open(spec)) => guarded(|| Ok((mount(&disk)?, spec))),
        Some(Job::Transfer(_, request)) => return edge.done(Answer::Transferred(request.fail(ended()))),
        Some(Job::Close(_)) | None => return edge.done(Answer::Closed(Ok(()))),
    };
    match begun.unwrap_or_else(|panicked| Err(panicked.error())) {
        Ok((volume, spec)) => serve(&edge, &disk, volume, spec),
        Err(error) => edge.done(Answer::Begun(Err(error))),
    }
}

/// Does the jobs on a volume that is mounted.
fn serve(edge: &Edge, disk: &Disk, volume: FileSystem<Disk>, spec: FilesSpec) {
    let mut files = open_files(&volume, spec);
    let mut panicked: Option<Panicked> = None;
    edge.done(Answer::Begun(Ok(spec)));
    let context = loop {
        match edge.next_job() {
            Some(Job::Transfer(number, mut request)) => {
                disk.begin(request.context, CALLS_MAX);
                let result = match &panicked {
                    Some(panicked) => Err(panicked.error()),
                    None => guarded(|| transfer(&mut files, number, &mut request)).unwrap_or_else(|panic| {
                        let error = panic.error();
                        panicked = Some(panic);
                        Err(error)
                    }),
                };
                edge.done(Answer::Transferred(Completion {
                    result,
                    buffer: request.buffer,
                    context: request.context,
                }));
            }
            Some(Job::Create(_) | Job::Open(_)) => edge.done(Answer::Begun(Err(ended()))),
            Some(Job::Close(context)) => break Some(context),
            None => break None,
        }
    };
    disk.begin(context.unwrap_or_default(), CALLS_MAX);
    // A file flushes itself when it is dropped, and swallows the error.
    let flushed = guarded(|| {
        let open = files.iter_mut().filter_map(|file| file.as_mut().ok());
        let failed = open.filter_map(|file| file.flush().err()).next();
        drop(files);
        failed.map_or(Ok(()), |error| Err(told(error, "closing a file")))
    });
    let unmounted = guarded(|| {
        volume.unmount().map_err(|error| told(error, "unmounting"))?;
        disk.clone().flush().map_err(|error| told(error, "unmounting"))
    });
    if context.is_some() {
        let both = [flushed, unmounted].into_iter().map(|result| result.unwrap_or_else(|p| Err(p.error())));
        let before = panicked.map_or(Ok(()), |panicked| Err(panicked.error()));
        edge.done(Answer::Closed(std::iter::once(before).chain(both).collect()));
    }
}

/// The library has panicked: what it says.
struct Panicked(String);

impl Panicked {
    fn error(&self) -> Error {
        Error::new(ErrorKind::Gone, format!("the file system library has panicked: {}", self.0))
    }
}

/// Runs a part of the library that may panic on what it finds on the volume.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    // What a panic leaves half-done is the library's alone, and nothing is asked of that any more.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Panicked(text.unwrap_or_else(|| "it does not say why".into()))
    })
}

/// What an error of the library means: ours, where it only passed it on; else what a kernel would say.
fn told(error: io::Error, doing: &str) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(ours) => return ours.while_doing(doing),
        Err(error) => error,
    };
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::Missing,
        // A file whose clusters end before its size does.
        io::ErrorKind::UnexpectedEof => ErrorKind::Medium,
        io::ErrorKind::WriteZero => ErrorKind::NoSpace,
        _ if error.to_string() == "No space left on device" => ErrorKind::NoSpace,
        // All else that it says is said of a volume that makes no sense.
        _ => ErrorKind::Os(libc::EUCLEAN),
    };
    Error::new(kind, doing).caused_by(error)
}

fn create(disk: &Disk, load: &LoadSpec) -> Result<(FileSystem<Disk>, FilesSpec)> {
    disk.begin(Context { phase: Phase::Setup, ..Context::default() }, u64::MAX);
    format(disk, load)?;
    let volume = mount(disk)?;
    let free = volume.stats().map_err(|error| told(error, "counting the free clusters"))?;
    let spec = load.files_in(u64::from(free.free_clusters()) * u64::from(free.cluster_size()));
    let spec = FilesSpec { size: Bytes(spec.size.0.min(FAT_FILE_BYTES_MAX)), ..spec };
    if spec.size.0 < BLOCK_BYTES as u64 {
        return Err(Error::new(
            ErrorKind::NoSpace,
            "no room for the files of the load on the FAT volume; make the device larger",
        ));
    }
    for ObjectInfo { name, size_bytes } in FileSet::objects_of(spec) {
        let told =
            |error: io::Error| told(error, &format!("making the file {name} of {}", Bytes(size_bytes)));
        let mut file = volume.root_dir().create_file(&name).map_err(told)?;
        // The library has no other way to give a file its size. Writes of the load then change data only, no
        // metadata, so that what is written under a file's tag is that file's.
        let zeros = vec![0; 1 << 20];
        let mut left = size_bytes;
        while left > 0 {
            let length = left.min(zeros.len() as u64);
            file.write_all(&zeros[..length as usize]).map_err(told)?;
            left -= length;
        }
        file.flush().map_err(told)?;
    }
    Ok((volume, spec))
}

/// Makes a volume whose sectors and clusters have 4 KiB, so that blocks of files are blocks of the device: by its size
/// with FAT entries of 12, 16 or 32 bits, or with larger clusters where it is just too large for one and too small for
/// the next.
fn format(disk: &Disk, load: &LoadSpec) -> Result<()> {
    const SECTOR_BYTES: u16 = BLOCK_BYTES as u16;
    const ENTRIES_PER_SECTOR: u32 = SECTOR_BYTES as u32 / 32;
    // Each file has an entry for its long name too.
    let entries = load.files.map_or(0, |files| files.count).saturating_mul(2).saturating_add(16);
    let entries = entries.next_multiple_of(ENTRIES_PER_SECTOR).clamp(512, 65_536 - ENTRIES_PER_SECTOR);
    for clusters_of in [1, 2] {
        for fat_type in [FatType::Fat12, FatType::Fat16, FatType::Fat32] {
            let options = FormatVolumeOptions::new()
                .bytes_per_sector(SECTOR_BYTES)
                .bytes_per_cluster(u32::from(SECTOR_BYTES) * clusters_of)
                .max_root_dir_entries(entries as u16)
                .fat_type(fat_type);
            disk.clone().rewind().map_err(|error| told(error, "making a FAT volume"))?;
            match format_volume(disk.clone(), options).map_err(|error| told(error, "making a FAT volume")) {
                Ok(()) => return Ok(()),
                // The library says of a type that does not fit, before it has written anything, that it makes no sense.
                Err(error) if error.kind() == ErrorKind::Os(libc::EUCLEAN) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Err(Error::new(ErrorKind::Invalid, "no FAT volume can be made on a device of this size; take another"))
}

fn mount(disk: &Disk) -> Result<FileSystem<Disk>> {
    let told = |error| told(error, "mounting the FAT volume");
    disk.clone().rewind().map_err(told)?;
    FileSystem::new(disk.clone(), FsOptions::new()).map_err(told)
}

/// Opens every file, or says of each that cannot be why not.
fn open_files(volume: &FileSystem<Disk>, spec: FilesSpec) -> Vec<Result<File<'_, Disk>>> {
    let open = |name: &str| {
        let opened = guarded(|| volume.root_dir().open_file(name));
        let told = |error| told(error, &format!("opening the file {name}"));
        opened.unwrap_or_else(|panicked| Err(io::Error::other(panicked.error()))).map_err(told)
    };
    FileSet::objects_of(spec).iter().map(|object| open(&object.name)).collect()
}

/// Carries out a request to a file.
fn transfer(files: &mut [Result<File<'_, Disk>>], number: u32, request: &mut Request) -> Result<()> {
    let file = files.get_mut(number as usize).ok_or_else(ended)?;
    let file = file.as_mut().map_err(|error| Error::new(error.kind(), error.context()))?;
    // Whoever looks at the requests below learns from the scope which file they are for.
    request.context.tag.scope(|| match request.operation {
        Operation::Read => {
            go_to(file, request.offset)?;
            file.read_exact(&mut request.buffer).map_err(|error| told(error, "reading"))
        }
        Operation::Write { fua } => {
            go_to(file, request.offset)?;
            file.write_all(&request.buffer).map_err(|error| told(error, "writing"))?;
            if fua { file.flush().map_err(|error| told(error, "flushing")) } else { Ok(()) }
        }
        Operation::Flush => file.flush().map_err(|error| told(error, "flushing")),
        Operation::Discard | Operation::WriteZeroes => {
            Err(Error::new(ErrorKind::Unsupported, "a file on FAT is read and written only"))
        }
    })
}

fn go_to(file: &mut File<'_, Disk>, offset: u64) -> Result<()> {
    match file.seek(SeekFrom::Start(offset)).map_err(|error| told(error, "seeking"))? {
        there if there == offset => Ok(()),
        // The library goes as far as the file does.
        end => Err(Error::new(ErrorKind::Medium, format!("the file ends at {end}, not behind {offset}"))),
    }
}
