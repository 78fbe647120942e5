//! A state as a device: what a crash left, to be mounted, repaired and written to as often as wanted.
//!
//! Nothing is copied to go from one state to the next: reads follow the state's snapshot, writes go to pages in memory,
//! which the next state takes over empty. So recovery may write what it likes. The device stays the same, so an export
//! over it stays too.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request, Result, Runtime, Submission,
};

use crate::contents::Contents;
use crate::recovery::RecoveryWrite;
use crate::snapshot::Snapshot;

/// Writes are kept in pages of this many bytes; no sector is larger.
const PAGE_BYTES: usize = 4096;

/// See the head of the module. Shared between whoever puts states into it and whoever serves it.
pub struct ImageDevice(Arc<Shared>);

struct Shared {
    contents: Arc<Contents>,
    info: DeviceInfo,
    pages_max: usize,
    inner: Mutex<Inner>,
}

struct Inner {
    snapshot: Snapshot,
    pages: HashMap<u64, Box<[u8; PAGE_BYTES]>>,
    free: Vec<Box<[u8; PAGE_BYTES]>>,
    /// Sectors read, if somebody wants to know.
    reads: Option<Vec<Range<u64>>>,
    /// What was written to this state, if somebody wants to know, and how many flushes there were.
    writes: Option<(Vec<RecoveryWrite>, u64)>,
    /// Bytes that are others than when somebody last asked.
    changed: Vec<Range<u64>>,
    /// Why the image does not show the state truly, if it does not.
    failure: Option<Error>,
}

impl ImageDevice {
    /// The device before its recording. What is written to it may take `scratch_bytes_max` bytes of memory; beyond that
    /// writes fail with [`ErrorKind::NoSpace`], and [`ImageDevice::check`] says so.
    pub fn new(contents: Arc<Contents>, scratch_bytes_max: u64) -> Arc<Self> {
        let header = contents.header();
        let info = DeviceInfo {
            size: header.size,
            block_size: header.block_size,
            atomic_write_bytes: header.atomic_write_bytes,
            read_only: false,
            features: Features { flush: true, fua: true, discard: true, write_zeroes: true },
        };
        let inner = Inner {
            snapshot: contents.before(),
            pages: HashMap::new(),
            free: Vec::new(),
            reads: None,
            writes: None,
            changed: Vec::new(),
            failure: None,
        };
        let pages_max = usize::try_from(scratch_bytes_max).unwrap_or(usize::MAX) / PAGE_BYTES;
        Arc::new(Self(Arc::new(Shared { contents, info, pages_max, inner: Mutex::new(inner) })))
    }

    /// Shows another state; what was written to the last one is gone. Nobody may be using the device.
    pub fn show(&self, snapshot: Snapshot) {
        let mut inner = self.0.inner.lock();
        let Inner { pages, free, changed, .. } = &mut *inner;
        let page = PAGE_BYTES as u64;
        changed.extend(pages.keys().map(|at| at * page..(at + 1) * page));
        free.extend(pages.drain().map(|(_, page)| page));
        let sector = u64::from(self.0.info.block_size);
        let differences = inner.snapshot.differences(&snapshot);
        inner.changed.extend(differences.into_iter().map(|range| range.start * sector..range.end * sector));
        inner.snapshot = snapshot;
        inner.failure = None;
        if let Some(reads) = &mut inner.reads {
            reads.clear();
        }
        inner.writes = None;
    }

    /// From now on notes what is written, until [`ImageDevice::writes`] or the next state.
    pub fn note_writes(&self) {
        self.0.inner.lock().writes = Some((Vec::new(), 0));
    }

    /// What was written since [`ImageDevice::note_writes`]; nothing more is noted.
    pub fn writes(&self) -> Vec<RecoveryWrite> {
        self.0.inner.lock().writes.take().map_or_else(Vec::new, |(writes, _)| writes)
    }

    /// Writes again what recovery had written.
    pub fn write_again(&self, write: &RecoveryWrite) -> Result<()> {
        let mut inner = self.0.inner.lock();
        inner.changed.push(write.offset..write.offset + write.length);
        self.0.write(&mut inner, write.offset, write.length, write.data.as_deref())
    }

    /// The bytes that were changed since this was asked last by anything but requests: by another state, or by what was written again.
    /// Whoever keeps what he has read must read them again.
    pub fn take_changed(&self) -> Vec<Range<u64>> {
        let mut ranges = std::mem::take(&mut self.0.inner.lock().changed);
        ranges.sort_by_key(|range| range.start);
        crate::ranges::union(&ranges, &[])
    }

    /// Whether it is noted which sectors are read.
    pub fn notes_reads(&self) -> bool {
        self.0.inner.lock().reads.is_some()
    }

    /// The state that is shown, without what was written to it.
    pub fn snapshot(&self) -> Snapshot {
        self.0.inner.lock().snapshot.clone()
    }

    /// From now on notes which sectors are read, or no more.
    pub fn note_reads(&self, note: bool) {
        self.0.inner.lock().reads = note.then(Vec::new);
    }

    /// The sectors that have been read of this state, in order, if that is noted.
    pub fn reads(&self) -> Vec<Range<u64>> {
        crate::ranges::union(self.0.inner.lock().reads.as_deref().unwrap_or_default(), &[])
    }

    /// Fails if a request failed for a reason that the state has no part in: a check of it then shows nothing.
    pub fn check(&self) -> Result<()> {
        self.0.inner.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Bytes of memory that writes to this state take.
    pub fn scratch_bytes(&self) -> u64 {
        (self.0.inner.lock().pages.len() * PAGE_BYTES) as u64
    }

    /// Reads whole sectors without a queue.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut inner = self.0.inner.lock();
        self.0.note_read(&mut inner, offset, bytes.len() as u64);
        self.0.read(&mut inner, offset, bytes)
    }

    /// Reads whole sectors of what the device held before its recording began.
    pub fn read_before(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let contents = &self.0.contents;
        contents.read(&contents.before(), offset / u64::from(self.0.info.block_size), bytes)
    }

    /// Writes the state as it was shown, without what was written to it since, to the new file `path`.
    pub fn save(&self, path: &Path) -> Result<()> {
        let snapshot = self.0.inner.lock().snapshot.clone();
        self.0.contents.write_image(&snapshot, path)
    }
}

impl Shared {
    fn serve(&self, request: &mut Request) -> Result<()> {
        self.info.check(request)?;
        let mut inner = self.inner.lock();
        if let Some((writes, epoch)) = &mut inner.writes {
            match request.operation {
                Operation::Read => {}
                Operation::Flush => *epoch += 1,
                operation => writes.push(RecoveryWrite {
                    offset: request.offset,
                    length: request.length,
                    data: matches!(operation, Operation::Write { .. }).then(|| request.buffer[..].into()),
                    epoch: *epoch,
                    fua: operation == Operation::Write { fua: true },
                }),
            }
        }
        let result = match request.operation {
            Operation::Read => {
                self.note_read(&mut inner, request.offset, request.length);
                self.read(&mut inner, request.offset, &mut request.buffer)
            }
            Operation::Write { .. } => {
                self.write(&mut inner, request.offset, request.length, Some(&request.buffer))
            }
            Operation::Discard | Operation::WriteZeroes => {
                let sector_bytes = u64::from(self.info.block_size);
                // Whole pages are forgotten, so that clearing a device takes no memory.
                let (start, end) = (request.offset, request.end());
                let page = PAGE_BYTES as u64;
                let pages = start.div_ceil(page)..end / page;
                if pages.is_empty() {
                    self.write(&mut inner, start, request.length, None)
                } else {
                    let Inner { pages: kept, free, .. } = &mut *inner;
                    free.extend(kept.extract_if(|at, _| pages.contains(at)).map(|(_, page)| page));
                    let sectors = pages.start * page / sector_bytes..pages.end * page / sector_bytes;
                    inner.snapshot.set(sectors, crate::recording::SOURCE_ZEROS);
                    let (head, tail) = (pages.start * page - start, end - pages.end * page);
                    self.write(&mut inner, start, head, None)
                        .and_then(|()| self.write(&mut inner, pages.end * page, tail, None))
                }
            }
            Operation::Flush => Ok(()),
        };
        if let Err(error) = &result {
            let words = error.to_string();
            inner.failure.get_or_insert_with(|| Error::new(error.kind(), words));
        }
        result
    }

    fn note_read(&self, inner: &mut Inner, offset: u64, length: u64) {
        let sector_bytes = u64::from(self.info.block_size);
        if let Some(reads) = &mut inner.reads
            && length > 0
        {
            reads.push(offset / sector_bytes..(offset + length).div_ceil(sector_bytes));
        }
    }

    fn read(&self, inner: &mut Inner, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let sector_bytes = u64::from(self.info.block_size);
        if inner.pages.is_empty() {
            return self.contents.read(&inner.snapshot, offset / sector_bytes, bytes);
        }
        // Stretches without a page are read at once.
        let (mut at, end) = (offset, offset + bytes.len() as u64);
        while at < end {
            let page_at = at / PAGE_BYTES as u64;
            let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
            if let Some(page) = inner.pages.get(&page_at) {
                let to = end.min((page_at + 1) * PAGE_BYTES as u64);
                let within = (at % PAGE_BYTES as u64) as usize;
                bytes[part(at, to)].copy_from_slice(&page[within..within + (to - at) as usize]);
                at = to;
            } else {
                let mut next = page_at + 1;
                while next * (PAGE_BYTES as u64) < end && !inner.pages.contains_key(&next) {
                    next += 1;
                }
                let to = end.min(next * PAGE_BYTES as u64);
                self.contents.read(&inner.snapshot, at / sector_bytes, &mut bytes[part(at, to)])?;
                at = to;
            }
        }
        Ok(())
    }

    /// Writes data, or zeros if there are none.
    fn write(&self, inner: &mut Inner, offset: u64, length: u64, data: Option<&[u8]>) -> Result<()> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let page_at = at / PAGE_BYTES as u64;
            let (page_start, page_end) = (page_at * PAGE_BYTES as u64, (page_at + 1) * PAGE_BYTES as u64);
            let to = end.min(page_end);
            if !inner.pages.contains_key(&page_at) {
                if inner.pages.len() >= self.pages_max {
                    return Err(Error::new(
                        ErrorKind::NoSpace,
                        format!(
                            "what is written to a state takes more than {} bytes of memory; allow more",
                            self.pages_max * PAGE_BYTES
                        ),
                    ));
                }
                let mut page = inner.free.pop().unwrap_or_else(|| Box::new([0; PAGE_BYTES]));
                if to - at < PAGE_BYTES as u64 {
                    // The device may end within its last page.
                    let there = (self.info.size - page_start).min(PAGE_BYTES as u64) as usize;
                    let first = page_start / u64::from(self.info.block_size);
                    self.contents.read(&inner.snapshot, first, &mut page[..there])?;
                }
                inner.pages.insert(page_at, page);
            }
            let page = inner.pages.get_mut(&page_at).expect("put there above");
            let within = (at - page_start) as usize..(to - page_start) as usize;
            match data {
                Some(data) => {
                    page[within].copy_from_slice(&data[(at - offset) as usize..(to - offset) as usize]);
                }
                None => page[within].fill(0),
            }
            at = to;
        }
        Ok(())
    }
}

impl Device for ImageDevice {
    fn info(&self) -> DeviceInfo {
        self.0.info
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(ImageQueue(Arc::clone(&self.0))))
    }
}

struct ImageQueue(Arc<Shared>);

impl Queue for ImageQueue {
    fn submit(&self, mut request: Request) -> Submission {
        match self.0.serve(&mut request) {
            Ok(()) => request.succeed().into(),
            Err(error) => request.fail(error).into(),
        }
    }
}

impl fmt::Debug for ImageDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageDevice({} bytes)", self.0.info.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Header, Recorder, RecorderOptions};
    use rotproof_block::conformance::{On, check};
    use rotproof_block::{Buffer, Context, Tag};

    /// The contents of a recording with one write of ones over sectors 2 to 5, and a snapshot with it.
    fn contents(folder: &Path) -> (Arc<Contents>, Snapshot) {
        let path = folder.join("r");
        let header = Header { size: (2 << 20) + 512, block_size: 512, atomic_write_bytes: 4096, id: 1 };
        let recorder = Recorder::create(&path, header, RecorderOptions::default()).expect("a new file");
        recorder.done(0, recorder.write(0, 1024, false, Tag::NONE, &[1; 2048]), true);
        recorder.finish().expect("there is room");
        let mut reader = crate::recording::Reader::open(&path).expect("a recording");
        let contents = Arc::new(Contents::open(&path, header, None).expect("a recording"));
        let mut window = crate::window::Window::new(Arc::clone(&contents));
        while let Some(event) = reader.next_event().expect("whole") {
            window.pass(&event).expect("it makes sense");
        }
        let point = crate::point::Point::new(&window, 512).expect("a unit");
        (contents, point.build(&point.all()).snapshot)
    }

    #[test]
    fn it_keeps_the_contract_of_a_device() {
        let folder = tempfile::tempdir().expect("a folder");
        let (contents, _) = contents(folder.path());
        for on in [On::Simulated, On::Uring] {
            check(on, &|| Ok(ImageDevice::new(Arc::clone(&contents), 1 << 30))).expect("the contract");
        }
    }

    #[test]
    fn the_next_state_knows_nothing_of_what_was_written_to_the_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let (contents, with_write) = contents(folder.path());
        let image = ImageDevice::new(Arc::clone(&contents), 8192);
        let runtime = Runtime::simulated(1);
        let queue = image.open_queue(&runtime).expect("a queue");
        let complete = |request| runtime.block_on(queue.submit(request)).expect("completes").result;
        let sector = |at: u64| {
            let mut bytes = [9; 512];
            image.read_at(at * 512, &mut bytes).expect("it can be read");
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            bytes[0]
        };
        let write = |at: u64, bytes: &[u8]| {
            complete(Request::write(at * 512, Buffer::copy_of(bytes), Context::default()))
        };
        image.show(with_write.clone());
        assert_eq!((0..8).map(sector).collect::<Vec<_>>(), [0, 0, 1, 1, 1, 1, 0, 0]);
        write(3, &[7; 512]).expect("there is room");
        complete(Request::discard(2048, 512, Context::default())).expect("there is room");
        assert_eq!((0..8).map(sector).collect::<Vec<_>>(), [0, 0, 1, 7, 0, 1, 0, 0]);
        image.save(&folder.path().join("saved")).expect("there is room");
        image.show(with_write);
        assert_eq!((0..8).map(sector).collect::<Vec<_>>(), [0, 0, 1, 1, 1, 1, 0, 0]);
        let saved = std::fs::read(folder.path().join("saved")).expect("saved");
        assert_eq!(saved.len(), (2 << 20) + 512);
        assert_eq!(saved[1024..3072], [1; 2048], "the state, and not what was done to it");
        assert!(saved[3072..].iter().all(|byte| *byte == 0));
        // The last sector has less than a page behind it.
        write(4096, &[5; 512]).expect("it is on the device");
        assert_eq!(sector(4096), 5);
        image.show(contents.before());
        assert_eq!((sector(2), sector(4096)), (0, 0));
        image.check().expect("nothing failed");
        write(0, &[1; 16384]).expect_err("more memory than it may take");
        assert_eq!(image.check().expect_err("what is seen now is not the state").kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn it_tells_what_was_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (contents, with_write) = contents(folder.path());
        let image = ImageDevice::new(contents, 8192);
        image.note_reads(true);
        image.show(with_write);
        let runtime = Runtime::simulated(1);
        let queue = image.open_queue(&runtime).expect("a queue");
        for (at, length) in [(1024, 1024), (0, 512), (2048, 512), (512, 512), (1 << 20, 512)] {
            let request = Request::read(at, Buffer::zeroed(length), Context::default());
            runtime.block_on(queue.submit(request)).expect("completes").result.expect("it can be read");
        }
        assert_eq!(image.reads(), [0..5, 2048..2049]);
    }
}
