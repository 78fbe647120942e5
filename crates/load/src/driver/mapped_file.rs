//! A file or block device through a shared mapping (`mmap`): how programs do their I/O that take a file for memory.
//!
//! Whoever touches a page of a mapping that cannot be read, or that lies behind the end of the file by now, is killed by
//! SIGBUS. No load may die of what it is to find out, and no handler of a signal is needed for that: the kernel itself
//! copies to and from the mapping (`process_vm_readv` on the own process). It then takes the page faults on the mapping
//! just as a program would, and where one fails the call does, with EFAULT. No reference into the mapping is ever made.
//!
//! The mapping is one of this process, or of a [`MappingProcess`] where this process serves the device below the file.
//!
//! A worker waits in each call, so it has one request in flight whatever its queue depth.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Device, DeviceInfo, Error, Queue, Result, Runtime, system_calls};

use super::blocking::{Blocking, BlockingDevice};
use super::mapping::MappingProcess;

/// The file, mapped once for all workers.
#[derive(Debug)]
pub struct MappedFile(BlockingDevice<Mapping>);

impl MappedFile {
    /// As [`FileDevice::open`], and fails as that does; it always goes through the page cache.
    pub fn open(path: &Path, options: FileOptions) -> Result<Arc<Self>> {
        let info = Self::made(path, options)?;
        let file = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
            .doing(|| format!("opening {}", path.display()))?;
        let mapping = Mapping::new(file.as_raw_fd(), info.size, !options.read_only)
            .doing(|| format!("mapping {} into memory", path.display()))?;
        Ok(Arc::new(Self(BlockingDevice::new(mapping, info))))
    }

    /// The same with the mapping in another process.
    pub(super) fn open_in(
        process: &Arc<MappingProcess>,
        path: &Path,
        options: FileOptions,
    ) -> Result<Arc<Self>> {
        let info = Self::made(path, options)?;
        let mapping = Mapping::new_in(process, path, info.size, !options.read_only)
            .doing(|| format!("mapping {} into the memory of another process", path.display()))?;
        Ok(Arc::new(Self(BlockingDevice::new(mapping, info))))
    }

    /// Makes the file if need be, and says what it is.
    fn made(path: &Path, options: FileOptions) -> Result<DeviceInfo> {
        Ok(FileDevice::open(path, FileOptions { direct: false, ..options })?.info())
    }
}

impl Device for MappedFile {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.0.open_queue(runtime)
    }
}

impl Blocking for Mapping {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.copy_out(offset as usize, buffer)
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()> {
        let start = offset as usize;
        self.copy_in(start, bytes)?;
        if durable { self.sync(start..start + bytes.len()) } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        self.sync(0..self.len)
    }

    fn error(error: io::Error) -> Error {
        match error.raw_os_error() {
            // What would have been SIGBUS.
            Some(libc::EFAULT) => Error::medium(),
            _ => Error::from_io(error, "a read, write or flush of mapped memory"),
        }
    }
}

/// A shared mapping of a whole file, only ever touched by the kernel on our behalf.
#[derive(Debug)]
struct Mapping {
    holder: Holder,
    /// In the memory of the holder.
    start: *mut libc::c_void,
    len: usize,
}

/// Whose memory it is in.
#[derive(Debug)]
enum Holder {
    ThisProcess,
    Other(Arc<MappingProcess>),
}

// SAFETY: the pointer is only handed to system calls, which any thread may make; nothing is read or written through it.
unsafe impl Send for Mapping {}
// SAFETY: as above; what overlapping calls leave behind is a matter of the file, not of memory of ours.
unsafe impl Sync for Mapping {}

/// Bytes that the kernel is asked to copy at once: where it may stop short of a failing page, no more than this is done
/// again.
const COPY_BYTES_MAX: usize = 1 << 20;

impl Mapping {
    fn new(file: i32, size: u64, is_writable: bool) -> io::Result<Self> {
        let len = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at a place of the kernel's choice takes no memory away from anybody.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { holder: Holder::ThisProcess, start, len })
    }

    fn new_in(process: &Arc<MappingProcess>, path: &Path, size: u64, is_writable: bool) -> io::Result<Self> {
        let len = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let start = std::ptr::without_provenance_mut(process.map(path, len, is_writable)?);
        Ok(Self { holder: Holder::Other(Arc::clone(process)), start, len })
    }

    fn process(&self) -> libc::pid_t {
        match &self.holder {
            Holder::ThisProcess => std::process::id().cast_signed(),
            Holder::Other(process) => process.process(),
        }
    }

    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let own = &mut buffer[done..];
            let len = own.len().min(COPY_BYTES_MAX);
            let local = libc::iovec { iov_base: own.as_mut_ptr().cast(), iov_len: len };
            let mapped = self.piece(offset + done, len)?;
            system_calls::count_one();
            // SAFETY: `local` is memory of ours that lives across the call, which fills it; `mapped` lies within the
            // mapping, and the kernel checks it besides.
            let copied = unsafe {
                libc::process_vm_readv(self.process(), &raw const local, 1, &raw const mapped, 1, 0)
            };
            done += copied_bytes(copied)?;
        }
        Ok(())
    }

    fn copy_in(&self, offset: usize, buffer: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let own = &buffer[done..];
            let len = own.len().min(COPY_BYTES_MAX);
            let local = libc::iovec { iov_base: own.as_ptr().cast_mut().cast(), iov_len: len };
            let mapped = self.piece(offset + done, len)?;
            system_calls::count_one();
            // SAFETY: `local` is memory of ours that lives across the call, which only reads it; what is written lies
            // within the mapping, to which nobody has a reference.
            let copied = unsafe {
                libc::process_vm_writev(self.process(), &raw const local, 1, &raw const mapped, 1, 0)
            };
            done += copied_bytes(copied)?;
        }
        Ok(())
    }

    fn piece(&self, offset: usize, len: usize) -> io::Result<libc::iovec> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(libc::iovec { iov_base: self.start.wrapping_byte_add(offset), iov_len: len })
    }

    /// Writes back what has changed, and waits (`MS_SYNC`).
    fn sync(&self, bytes: std::ops::Range<usize>) -> io::Result<()> {
        const PAGE_BYTES: usize = 4096;
        let start = bytes.start / PAGE_BYTES * PAGE_BYTES;
        system_calls::count_one();
        if let Holder::Other(process) = &self.holder {
            return process.sync(self.start.addr() + start, bytes.end - start);
        }
        // SAFETY: the range lies within the mapping, and the call changes no memory.
        match unsafe { libc::msync(self.start.wrapping_byte_add(start), bytes.end - start, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In another process it goes with that.
        if let Holder::ThisProcess = self.holder {
            // SAFETY: it is ours, and no call uses it any more.
            unsafe { libc::munmap(self.start, self.len) };
        }
    }
}

fn copied_bytes(copied: libc::ssize_t) -> io::Result<usize> {
    match usize::try_from(copied) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(copied) => Ok(copied),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::tests::start_here;
    use super::*;
    use crate::probe::uring;
    use crate::{DeviceDriver, Driver, LoadSpec, Oracle, Workload, classify, run};
    use rotproof_block::Phase;
    use rotproof_block::conformance::{On, check};

    const OPTIONS: FileOptions = FileOptions {
        size_bytes: Some(1 << 20),
        block_size: None,
        direct: false,
        create: true,
        read_only: false,
    };

    /// Opens a file in this process, or in another.
    fn open(apart: bool, path: &Path, options: FileOptions) -> Result<Arc<MappedFile>> {
        match apart {
            false => MappedFile::open(path, options),
            true => MappedFile::open_in(&Arc::new(start_here()), path, options),
        }
    }

    #[test]
    fn it_keeps_the_contract_of_a_device() {
        let folder = tempfile::tempdir().expect("a folder");
        for apart in [false, true] {
            let make = || -> Result<Arc<dyn Device>> {
                let path = folder.path().join("disk.img");
                let _ = std::fs::remove_file(&path);
                Ok(open(apart, &path, FileOptions { size_bytes: Some(4 << 20), ..OPTIONS })?)
            };
            check(On::Uring, &make).unwrap_or_else(|breach| panic!("{breach}"));
        }
    }

    #[test]
    fn a_mapping_in_another_process_is_none_in_this_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("there").join("disk.img");
        let maps = |process: &str| {
            let text = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("readable");
            text.lines().filter(|line| line.ends_with(path.to_str().expect("UTF-8"))).count()
        };
        let process = Arc::new(start_here());
        let number = process.process().to_string();
        let apart = MappedFile::open_in(&process, &path, OPTIONS).expect("opens");
        assert_eq!((maps("self"), maps(&number)), (0, 1));
        let here = MappedFile::open(&path, OPTIONS).expect("opens");
        assert_eq!((maps("self"), maps(&number)), (1, 1));
        drop((apart, here));
        assert_eq!(maps("self"), 0);
    }

    #[test]
    fn a_load_on_it_is_verified_and_a_file_that_is_cut_short_kills_nobody() {
        for apart in [false, true] {
            verify_a_load(apart);
        }
    }

    fn verify_a_load(apart: bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        let driver = DeviceDriver::new(open(apart, &path, OPTIONS).expect("opens")).expect("suits");
        let load: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "40%", "fua": "20%", "requests": 500, "workers": 2, "prefill": true }"#,
        )
        .expect("a load");
        let workload = Workload::new(&load, 1, driver.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            let report = run(&workload, &driver, &mut oracle, &uring(phase)).expect("runs");
            assert_eq!((report.error_count(), report.sightings.len()), (0, 0), "{phase:?}");
        }
        let on_disk = std::fs::read(&path).expect("there");
        assert!(on_disk.chunks(4096).all(|block| workload.content().identify(block).is_some()));
        // A program that touched the missing pages would get SIGBUS.
        OpenOptions::new().write(true).open(&path).expect("there").set_len(1 << 19).expect("cut");
        let check = run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("checks");
        let failures = classify(&workload, &oracle, [&check]);
        let blocks: Vec<u64> = failures.iter().map(|failure| failure.block).collect();
        assert_eq!(blocks, (128..256).collect::<Vec<u64>>());
        assert!(failures.iter().all(|failure| failure.worst().what.kind() == "unreadable"));
    }
}
