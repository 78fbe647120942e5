//! Serves memory as a FUSE file until standard input ends: `serve_memory DIRECTORY SIZE_MIB [THREADS]`.
//!
//! Prints the file's path when it is there. For measuring the export alone, with `fio` on the file or on a loop device over it.

use std::alloc::{Layout, alloc_zeroed};
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Device, DeviceInfo, Features, Operation, Queue, Request, Result, Runtime, Submission};
use rotproof_export::{FuseExport, FuseOptions};

/// The smallest device there can be: plain memory, copied to and from.
#[derive(Clone, Copy)]
struct Memory {
    start: *mut u8,
    size: u64,
}

// SAFETY: concurrent requests to the same bytes are the business of whoever measures; fio makes none.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Device for Memory {
    fn info(&self) -> DeviceInfo {
        let features = Features { flush: false, fua: false, discard: false, write_zeroes: false };
        DeviceInfo { size: self.size, block_size: 512, atomic_write_bytes: 512, read_only: false, features }
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(*self))
    }
}

impl Queue for Memory {
    fn submit(&self, mut request: Request) -> Submission {
        if let Err(error) = self.info().check(&request) {
            return request.fail(error).into();
        }
        // SAFETY: the offset was checked to be inside.
        let place = unsafe { self.start.add(request.offset as usize) };
        let length = request.length as usize;
        // SAFETY: the length was checked to fit the memory and the buffer.
        match request.operation {
            Operation::Read => unsafe { request.buffer.as_mut_ptr().copy_from_nonoverlapping(place, length) },
            Operation::Write { .. } => unsafe {
                place.copy_from_nonoverlapping(request.buffer.as_ptr(), length)
            },
            _ => {}
        }
        request.succeed().into()
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("usage: serve_memory DIRECTORY SIZE_MIB [THREADS]");
    let mut number = |what: &str| arguments.next().map(|text| text.parse::<usize>().expect(what));
    let size = number("a size in MiB").expect("the size") << 20;
    let threads = number("a number of threads").unwrap_or(FuseOptions::default().threads);
    // SAFETY: the size is not zero.
    let start =
        unsafe { alloc_zeroed(Layout::from_size_align(size, 4096).expect("a size that memory can have")) };
    let memory = Memory { start, size: size as u64 };
    let options = FuseOptions { threads, ..FuseOptions::default() };
    let export = FuseExport::mount(Arc::new(memory), Path::new(&directory), options)?;
    writeln!(std::io::stdout(), "{}", export.path().display()).expect("standard output can be written");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("standard input can be read");
    export.unmount()
}
