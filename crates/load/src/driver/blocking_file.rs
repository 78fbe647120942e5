//! A file or block device through `pread` and `pwrite`, one call after the other: how most programs do their I/O, as a
//! counterpart to io_uring.
//!
//! A worker waits in each call, so it has one request in flight whatever its queue depth; for more, take more workers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Device, DeviceInfo, Error, ErrorKind, Queue, Result, Runtime, system_calls};

use super::blocking::{Blocking, BlockingDevice};

/// The file, opened once for all workers.
#[derive(Debug)]
pub struct BlockingFile(BlockingDevice<Calls>);

#[derive(Debug)]
struct Calls(File);

impl BlockingFile {
    /// As [`FileDevice::open`], and fails as that does.
    pub fn open(path: &Path, options: FileOptions) -> Result<Arc<Self>> {
        // It makes the file and knows what it must be aligned to.
        let info = FileDevice::open(path, options)?.info();
        let file = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(libc::O_CLOEXEC | if options.direct { libc::O_DIRECT } else { 0 })
            .open(path)
            .doing(|| format!("opening {}", path.display()))?;
        Ok(Arc::new(Self(BlockingDevice::new(Calls(file), info))))
    }
}

impl Device for BlockingFile {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        self.0.open_queue(runtime)
    }
}

impl Blocking for Calls {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        system_calls::count_one();
        self.0.read_exact_at(buffer, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()> {
        system_calls::count_one();
        if durable { write_durably(&self.0, bytes, offset) } else { self.0.write_all_at(bytes, offset) }
    }

    fn flush(&self) -> io::Result<()> {
        system_calls::count_one();
        self.0.sync_data()
    }

    fn error(error: io::Error) -> Error {
        match error.kind() {
            // Short only where the file has shrunk since it was opened, or no space is left.
            io::ErrorKind::UnexpectedEof => Error::medium(),
            io::ErrorKind::WriteZero => Error::new(ErrorKind::NoSpace, "no space is left"),
            _ => Error::from_io(error, "a blocking read, write or flush"),
        }
    }
}

/// Writes everything, durable on return (`RWF_DSYNC`).
fn write_durably(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let piece = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let at = i64::try_from(offset + done as u64).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the descriptor is open, and the one piece describes memory that lives across the call, which only
        // reads it.
        let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const piece, 1, at, libc::RWF_DSYNC) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::uring;
    use crate::{DeviceDriver, Driver, LoadSpec, Oracle, Workload, run};
    use rotproof_block::Phase;
    use rotproof_block::conformance::{On, check};

    #[test]
    fn it_keeps_the_contract_of_a_device() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = || -> Result<Arc<dyn Device>> {
            let path = folder.path().join("disk.img");
            let _ = std::fs::remove_file(&path);
            let options = FileOptions {
                size_bytes: Some(4 << 20),
                direct: false,
                create: true,
                ..FileOptions::default()
            };
            Ok(BlockingFile::open(&path, options)?)
        };
        check(On::Uring, &make).unwrap_or_else(|breach| panic!("{breach}"));
    }

    #[test]
    fn a_load_on_it_is_verified_also_with_durable_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        let options =
            FileOptions { size_bytes: Some(1 << 20), direct: false, create: true, ..FileOptions::default() };
        let driver = DeviceDriver::new(BlockingFile::open(&path, options).expect("opens")).expect("suits");
        let load: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "40%", "fua": "50%", "requests": 500, "workers": 2, "queue_depth": 4 }"#,
        )
        .expect("a load");
        let workload = Workload::new(&load, 1, driver.objects()).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        for phase in [Phase::Prefill, Phase::Run, Phase::Check] {
            let report = run(&workload, &driver, &mut oracle, &uring(phase)).expect("runs");
            assert_eq!((report.sightings.len(), report.error_count()), (0, 0));
            let effort = report.effort.expect("of threads");
            assert!(effort.system_calls >= report.all_requests, "one for each: {effort:?}");
        }
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(8192)).expect("cut");
        let check = run(&workload, &driver, &mut oracle, &uring(Phase::Check)).expect("runs");
        assert_eq!(check.sightings.len(), 254, "what was cut off cannot be read");
    }
}
