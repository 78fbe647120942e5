//! What a thread does to files with system calls, timed, counted, and held against what must be there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Time, system_calls};
use rotproof_record::{Measured, Recorder};

use super::data::{fill, hash_of};
use super::job::Job;
use super::report::{FileIncident, FileOperation, Tally};
use super::seat::{Left, Seat, Told};
use super::state::{Existence, FileState};
use super::threads::end_left_behind;
use crate::content::{ContentId, SECTOR_BYTES, SECTORS};
use crate::engine::{LoadOperation, Unpublished};
use crate::failure::{Classification, Version, Way};

/// What is read and written at once (filebench's I/O size of whole files).
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Operations until the progress is told.
const PUBLISHED_OPERATIONS: u64 = 64;

/// A file that is open.
pub(super) struct Opened {
    pub(super) file: u32,
    pub(super) handle: File,
}

/// One thread at work.
pub(super) struct FileWorker<'a> {
    pub(super) job: &'a Job,
    /// Not at hand during a call.
    pub(super) tally: Tally,
    pub(super) opened: Option<Opened>,
    pub(super) buffer: Vec<u8>,
    unpublished: Unpublished,
    recorder: Option<Recorder>,
    seat: Arc<Seat>,
}

pub(super) fn kind_of(error: io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::WriteZero => ErrorKind::NoSpace,
        _ => Error::from_io(error, "").kind(),
    }
}

impl<'a> FileWorker<'a> {
    pub(super) fn new(job: &'a Job, recorder: Option<Recorder>, seat: Arc<Seat>) -> Self {
        let buffer = vec![0; PIECE_BYTES];
        let unpublished = job.progress.unpublished();
        Self { job, tally: Tally::default(), opened: None, buffer, unpublished, recorder, seat }
    }

    /// Ends the work.
    pub(super) fn into_tally(mut self) -> Tally {
        self.close();
        self.publish();
        self.tally.ended = self.job.now();
        if let Some(recorder) = self.recorder {
            recorder.finish(self.tally.ended);
        }
        self.tally
    }

    pub(super) fn path(&self, file: u32) -> PathBuf {
        self.job.folder.join(self.job.plan.path(file))
    }

    /// Makes a call and takes the time. The figures lie at the seat meanwhile; if they are gone after it, nobody waits for
    /// this thread any more, and it ends.
    pub(super) fn timed<T>(
        &mut self,
        operation: FileOperation,
        file: u32,
        call: impl FnOnce() -> io::Result<T>,
    ) -> (Result<T, ErrorKind>, Duration) {
        let (tally, unpublished) = (std::mem::take(&mut self.tally), std::mem::take(&mut self.unpublished));
        let recorder = self.recorder.take();
        let began = self.job.now();
        self.seat.leave(Left { tally, recorder, unpublished, operation, file, told: Told::No }, began);
        system_calls::count_one();
        let done = call();
        let ended = self.job.now();
        let Some(left) = self.seat.take_back(ended) else { end_left_behind() };
        (self.tally, self.unpublished, self.recorder) = (left.tally, left.unpublished, left.recorder);
        if let Err(error) = &done {
            self.job.meet(error, operation);
        }
        (done.map_err(kind_of), ended.since(began))
    }

    /// Enters an operation into the books.
    pub(super) fn record(
        &mut self,
        operation: FileOperation,
        took: Duration,
        bytes: u64,
        error: Option<ErrorKind>,
    ) {
        self.tally.record(operation, took, bytes, error);
        if let Some(recorder) = &mut self.recorder {
            let ended = self.job.now();
            let began = Time(ended.0.saturating_sub(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)));
            let operation = operation as u8;
            recorder.record(&Measured { operation, began, ended, bytes, retries: 0, error });
        }
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.unpublished.count(operation.into(), took_ns, bytes, error.is_some());
        if self.unpublished.requests >= PUBLISHED_OPERATIONS {
            self.publish();
        }
    }

    pub(super) fn publish(&mut self) {
        self.job.progress.publish(&mut self.unpublished);
    }

    /// Adds a way in which a block of a file failed.
    #[cold]
    pub(super) fn failed(&mut self, file: u32, block: u64, operation: LoadOperation, what: Finding) {
        let way = Way {
            phase: self.job.phase,
            time: self.job.now(),
            operation,
            expected: what.expected,
            found: what.found.as_ref().map(|found| hash_of(&found.bytes)),
            found_sectors: what.found.as_ref().and_then(Found::sectors),
            what: what.what,
            count: 1,
        };
        if self.tally.failed(&self.job.plan, file, block, way) {
            self.unpublished.failures += 1;
        }
    }

    /// An operation on a file ended with an error that makes it a failing one.
    pub(super) fn refused(&mut self, file: u32, operation: FileOperation, error: ErrorKind) {
        self.failed(
            file,
            0,
            LoadOperation::Write,
            Finding::told(Classification::Refused { operation, error }),
        );
    }

    /// As [`FileWorker::refused`], of a directory of its own.
    pub(super) fn refused_directory(&mut self, file: u32, operation: FileOperation, error: ErrorKind) {
        let way = Way {
            phase: self.job.phase,
            time: self.job.now(),
            operation: LoadOperation::Write,
            expected: Vec::new(),
            found: None,
            found_sectors: None,
            what: Classification::Refused { operation, error },
            count: 1,
        };
        self.tally.failed_by_name(file, self.job.plan.directory_path(file), 0, way);
    }

    /// The file system says that a file is not there, or that it is, and that is wrong.
    pub(super) fn contradicted(&mut self, file: u32, version: u32, is_there: bool) {
        let what = if is_there { Classification::Undeleted } else { Classification::Lost };
        let mut first = vec![0; crate::BLOCK_BYTES];
        fill(&self.job.plan.content, file, version, 0, &mut first);
        let expected =
            vec![Version { content: ContentId::of_file(file, version, 0), hash: Some(hash_of(&first)) }];
        self.failed(file, 0, LoadOperation::Read, Finding { expected, found: Some(Found::nothing()), what });
    }

    pub(super) fn create(&mut self, file: u32, state: &mut FileState) {
        self.close();
        let path = self.path(file);
        let mut options = File::options();
        options.read(true).write(true);
        match state.existence {
            Existence::No => options.create_new(true),
            // One of an earlier attempt may be there.
            Existence::Yes | Existence::Doubtful => options.create(true).truncate(true),
        };
        if let Some(history) = &self.job.history {
            history.makes(file, state.version + 1, state.existence != Existence::No);
        }
        let (done, took) = self.timed(FileOperation::Create, file, || options.open(&path));
        self.record(FileOperation::Create, took, 0, done.as_ref().err().copied());
        let version = state.version;
        state.created(done.is_ok());
        match done {
            Ok(handle) => self.opened = Some(Opened { file, handle }),
            Err(ErrorKind::Os(libc::EEXIST)) => self.contradicted(file, version, true),
            Err(error) => self.refused(file, FileOperation::Create, error),
        }
    }

    pub(super) fn open(&mut self, file: u32, state: &mut FileState) {
        self.close();
        let path = self.path(file);
        let (done, took) =
            self.timed(FileOperation::Open, file, || File::options().read(true).write(true).open(&path));
        match done {
            Ok(handle) => {
                self.record(FileOperation::Open, took, 0, None);
                if !state.seen(true) {
                    self.contradicted(file, state.version, true);
                }
                self.opened = Some(Opened { file, handle });
            }
            // Nothing that an application could take for a file that is not there.
            Err(error) if is_absent(&path, error) => {
                let is_right = state.seen(false);
                self.record(FileOperation::Open, took, 0, (!is_right).then_some(error));
                if !is_right {
                    self.contradicted(file, state.version, false);
                }
            }
            Err(error) => {
                self.record(FileOperation::Open, took, 0, Some(error));
                self.refused(file, FileOperation::Open, error);
            }
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(opened) = self.opened.take() {
            let (_, took) = self.timed(FileOperation::Close, opened.file, || {
                drop(opened);
                Ok(())
            });
            self.record(FileOperation::Close, took, 0, None);
        }
    }

    /// The open file; none after an open that failed.
    pub(super) fn opened(&mut self) -> Option<Opened> {
        self.opened.take()
    }

    /// Does something with the open file, if there is one.
    pub(super) fn with_opened(&mut self, what: impl FnOnce(&mut Self, &File)) {
        if let Some(opened) = self.opened.take() {
            what(self, &opened.handle);
            self.opened = Some(opened);
        }
    }

    /// Lets the kernel forget the pages of the open file.
    pub(super) fn forget_pages(&mut self) {
        if let Some(opened) = &self.opened {
            super::check::forget_pages(&opened.handle);
        }
    }

    /// A mailbox, opened for one operation; what comes of it counts with the operation.
    pub(super) fn mailbox(&mut self, file: u32) -> Option<File> {
        let path = self.path(file);
        let (done, took) =
            self.timed(FileOperation::Open, file, || File::options().read(true).write(true).open(&path));
        match done {
            Ok(handle) => Some(handle),
            Err(error) => {
                self.record(FileOperation::Open, took, 0, Some(error));
                if is_absent(&path, error) {
                    self.contradicted(file, 1, false);
                } else {
                    self.refused(file, FileOperation::Open, error);
                }
                None
            }
        }
    }

    /// The number of the open file.
    pub(super) fn opened_file(&self) -> Option<u32> {
        self.opened.as_ref().map(|opened| opened.file)
    }

    /// Writes `len` bytes behind the end of the open file, in pieces.
    pub(super) fn append(&mut self, operation: FileOperation, len: u64, state: &mut FileState) {
        let Some(opened) = self.opened() else { return };
        let end = state.size().or_else(|| opened.handle.metadata().ok().map(|metadata| metadata.len()));
        let start = end.unwrap_or(state.size_max);
        if let Some(history) = &self.job.history {
            history.grows(opened.file, start + len);
        }
        let (mut took, mut written, mut error) = (Duration::ZERO, 0, None);
        while written < len && error.is_none() {
            let piece = (len - written).min(PIECE_BYTES as u64) as usize;
            let mut buffer = std::mem::take(&mut self.buffer);
            let bytes = &mut buffer[..piece];
            fill(&self.job.plan.content, opened.file, state.version, start + written, bytes);
            let (done, time) =
                self.timed(operation, opened.file, || opened.handle.write_all_at(bytes, start + written));
            self.buffer = buffer;
            took += time;
            state.appended(start + written, piece as u64, done.is_ok());
            error = done.err();
            written += piece as u64;
        }
        self.record(operation, took, len, error);
        if let Some(error) = error {
            let block = start / crate::BLOCK_BYTES as u64;
            let what = Finding::told(Classification::Unwritable { error });
            self.failed(opened.file, block, LoadOperation::Write, what);
        }
        self.opened = Some(opened);
    }

    pub(super) fn fsync(&mut self, state: &mut FileState) {
        let Some(opened) = self.opened() else { return };
        let (done, took) = self.timed(FileOperation::Fsync, opened.file, || opened.handle.sync_all());
        self.record(FileOperation::Fsync, took, 0, done.err());
        state.synced(done.is_ok());
        if let Some(history) = self.job.history.as_ref().filter(|_| done.is_ok()) {
            history.synced(opened.file, state);
        }
        if let Err(error) = done {
            self.tally.told(FileIncident { operation: FileOperation::Fsync, error, time: self.job.now() });
        }
        self.opened = Some(opened);
    }

    pub(super) fn delete(&mut self, file: u32, state: &mut FileState) {
        let path = self.path(file);
        if let Some(history) = &self.job.history {
            history.deletes(file);
        }
        let (done, took) = self.timed(FileOperation::Delete, file, || std::fs::remove_file(&path));
        match done {
            Ok(()) => {
                self.record(FileOperation::Delete, took, 0, None);
                if !state.seen(true) {
                    self.contradicted(file, state.version, true);
                }
                state.deleted(true);
            }
            Err(error) if is_absent(&path, error) => {
                let is_right = state.seen(false);
                self.record(FileOperation::Delete, took, 0, (!is_right).then_some(error));
                if !is_right {
                    self.contradicted(file, state.version, false);
                    state.existence = Existence::Doubtful;
                }
            }
            Err(error) => {
                self.record(FileOperation::Delete, took, 0, Some(error));
                self.refused(file, FileOperation::Delete, error);
                state.deleted(false);
            }
        }
    }

    pub(super) fn stat(&mut self, file: u32, state: &mut FileState) {
        let path = self.path(file);
        let (done, took) = self.timed(FileOperation::Stat, file, || path.metadata());
        match done {
            Ok(metadata) => {
                self.record(FileOperation::Stat, took, 0, None);
                if !state.seen(true) {
                    self.contradicted(file, state.version, true);
                }
                self.check_size(file, state, metadata.len());
            }
            Err(error) if is_absent(&path, error) => {
                let is_right = state.seen(false);
                self.record(FileOperation::Stat, took, 0, (!is_right).then_some(error));
                if !is_right {
                    self.contradicted(file, state.version, false);
                }
            }
            Err(error) => {
                self.record(FileOperation::Stat, took, 0, Some(error));
                self.refused(file, FileOperation::Stat, error);
            }
        }
    }
}

/// What is said of a failing block beside where and when.
pub(super) struct Finding {
    pub(super) expected: Vec<Version>,
    /// What was found, if not an error.
    pub(super) found: Option<Found>,
    pub(super) what: Classification,
}

/// What a block holds, as far as somebody has looked.
pub(super) struct Found {
    /// With zeros where nobody has; nothing at all where it is not about bytes.
    pub(super) bytes: Vec<u8>,
    /// Where somebody has.
    pub(super) covered: Range<usize>,
}

impl Found {
    /// What is wrong is not in bytes.
    pub(super) fn nothing() -> Self {
        Self { bytes: Vec::new(), covered: 0..0 }
    }

    /// Hashes of the whole sectors among what was looked at, unless that is all.
    fn sectors(&self) -> Option<Box<[Option<u32>; SECTORS]>> {
        if self.bytes.is_empty() || self.covered == (0..self.bytes.len()) {
            return None;
        }
        Some(Box::new(std::array::from_fn(|sector| {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let is_whole = self.covered.start <= range.start && range.end <= self.covered.end;
            is_whole.then(|| hash_of(&self.bytes[range]).0 as u32)
        })))
    }
}

impl Finding {
    /// An error that somebody was told of.
    pub(super) fn told(what: Classification) -> Self {
        Self { expected: Vec::new(), found: None, what }
    }
}

/// Whether an error says that a file is not there; one that may not be opened is another matter.
fn is_absent(path: &Path, error: ErrorKind) -> bool {
    error == ErrorKind::Missing
        && path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
