//! What a thread does to files with system calls, timed, counted, and held against what must be there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Time, system_calls};
use rotproof_record::{Measured, Recorder, Recording};

use super::data::{Piece, Whose, classify, fill, hash_of, matches, padded, pieces};
use super::plan::FilePlan;
use super::report::{FileIncident, FileOperation, Tally};
use super::seat::{Left, Seat, Told};
use super::state::{Existence, FileState};
use super::threads::end_left_behind;
use crate::content::ContentId;
use crate::engine::{LetGo, LoadOperation, Progress, Unpublished};
use crate::failure::{Classification, Version, Way};

/// What is read and written at once (filebench's I/O size of whole files).
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Operations until the progress is told.
const PUBLISHED_OPERATIONS: u64 = 64;

/// What all threads of a phase share.
pub(super) struct Job {
    pub(super) plan: FilePlan,
    pub(super) folder: PathBuf,
    pub(super) phase: Phase,
    pub(super) clock: Clock,
    /// When a phase that ends by time ends.
    pub(super) deadline: Option<Time>,
    /// How long a call may take before it is told of.
    pub(super) hung_after: Duration,
    pub(super) let_go: Option<LetGo>,
    pub(super) cancel: Arc<AtomicUsize>,
    pub(super) progress: Arc<Progress>,
    pub(super) recording: Option<Arc<Recording>>,
    /// Whether the recording says when it is over.
    pub(super) ends_when_steady: bool,
    /// A thread has panicked, or was left behind: nobody may wait for it.
    pub(super) is_abandoned: AtomicBool,
}

impl Job {
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Where a worker that begins now tells of what it does.
    pub(super) fn recorder(&self, worker: u32) -> Option<Recorder> {
        let worker = u16::try_from(worker).unwrap_or(u16::MAX);
        self.recording.as_ref().map(|recording| recording.recorder(worker, self.now()))
    }

    /// Nobody may wait any longer for what another thread has to do.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether all is to end at once.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) != 0 || self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Whether no further loop is to begin.
    pub(super) fn is_over(&self) -> bool {
        let is_steady = || self.recording.as_ref().is_some_and(|recording| recording.is_steady());
        self.is_cancelled()
            || self.deadline.is_some_and(|deadline| self.now() >= deadline)
            || self.ends_when_steady && is_steady()
    }
}

/// A file that is open.
struct Opened {
    file: u32,
    handle: File,
}

/// One thread at work.
pub(super) struct Hands<'a> {
    pub(super) job: &'a Job,
    /// Not at hand during a call.
    pub(super) tally: Tally,
    opened: Option<Opened>,
    buffer: Vec<u8>,
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

impl<'a> Hands<'a> {
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
            found: what.found.as_deref().map(hash_of),
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

    /// As [`Hands::refused`], of a directory of its own.
    pub(super) fn refused_directory(&mut self, file: u32, operation: FileOperation, error: ErrorKind) {
        let way = Way {
            phase: self.job.phase,
            time: self.job.now(),
            operation: LoadOperation::Write,
            expected: Vec::new(),
            found: None,
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
        self.failed(file, 0, LoadOperation::Read, Finding { expected, found: Some(Vec::new()), what });
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
    fn opened(&mut self) -> Option<Opened> {
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
        if let Err(error) = done {
            self.tally.told(FileIncident { operation: FileOperation::Fsync, error, time: self.job.now() });
        }
        self.opened = Some(opened);
    }

    pub(super) fn delete(&mut self, file: u32, state: &mut FileState) {
        let path = self.path(file);
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

    /// Whether a file ends where it may.
    fn check_size(&mut self, file: u32, state: &FileState, found_bytes: u64) -> bool {
        if state.existence == Existence::Doubtful || (state.size_min..=state.size_max).contains(&found_bytes)
        {
            return true;
        }
        let expected_bytes = if found_bytes < state.size_min { state.size_min } else { state.size_max };
        let block = found_bytes.min(expected_bytes) / crate::BLOCK_BYTES as u64;
        let mut data = vec![0; crate::BLOCK_BYTES];
        let content = &self.job.plan.content;
        let within = (state.size_min.saturating_sub(block * 4096) as usize).min(data.len());
        fill(content, file, state.version, block * 4096, &mut data[..within]);
        let expected = vec![Version {
            content: ContentId::of_file(file, state.version, block),
            hash: Some(hash_of(&data)),
        }];
        let what = Classification::WrongSize { expected_bytes, found_bytes };
        self.failed(file, block, LoadOperation::Read, Finding { expected, found: Some(Vec::new()), what });
        false
    }

    /// Reads the open file to its end in pieces, until a read returns nothing, and verifies it.
    pub(super) fn read_whole(&mut self, state: &FileState) {
        let Some(opened) = self.opened() else { return };
        let (mut took, mut offset, mut first_error) = (Duration::ZERO, 0u64, None);
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            let (done, time) =
                self.timed(FileOperation::Read, opened.file, || opened.handle.read_at(&mut buffer, offset));
            took += time;
            match done {
                Ok(0) => break,
                Ok(len) => {
                    self.verify(opened.file, state, offset, &buffer[..len]);
                    offset += len as u64;
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                    let end = state.size_max.max(1).min(offset + PIECE_BYTES as u64);
                    self.read_blocks(&opened, state, offset, end, error);
                    offset = end;
                    if offset >= state.size_max {
                        break;
                    }
                }
            }
        }
        self.buffer = buffer;
        self.record(FileOperation::Read, took, offset, first_error);
        if first_error.is_none() && self.check_size(opened.file, state, offset) {
            self.tally.verified_bytes += offset;
        }
        self.opened = Some(opened);
    }

    /// After a read that failed: finds out which of its blocks are to blame.
    #[cold]
    fn read_blocks(&mut self, opened: &Opened, state: &FileState, start: u64, end: u64, error: ErrorKind) {
        let mut is_found = false;
        for piece in pieces(start, (end - start) as usize) {
            let mut data = vec![0; piece.len];
            let offset = start + piece.at as u64;
            match opened.handle.read_at(&mut data, offset) {
                Ok(len) => self.verify(opened.file, state, offset, &data[..len]),
                Err(error) => {
                    is_found = true;
                    let error = kind_of(error);
                    let expected = vec![self.expected(opened.file, state, piece)];
                    let what = Classification::Unreadable { error };
                    self.failed(
                        opened.file,
                        piece.block,
                        LoadOperation::Read,
                        Finding { expected, found: None, what },
                    );
                }
            }
        }
        if !is_found {
            // It failed once, and was right when it was repeated.
            self.tally.told(FileIncident { operation: FileOperation::Read, error, time: self.job.now() });
        }
    }

    fn expected(&self, file: u32, state: &FileState, piece: Piece) -> Version {
        let mut data = vec![0; piece.len];
        let offset = piece.block * crate::BLOCK_BYTES as u64 + piece.start as u64;
        fill(&self.job.plan.content, file, state.version, offset, &mut data);
        Version {
            content: ContentId::of_file(file, state.version, piece.block),
            hash: Some(hash_of(&padded(piece.start, &data))),
        }
    }

    /// Holds bytes of a file against what is certain of it.
    fn verify(&mut self, file: u32, state: &FileState, offset: u64, data: &[u8]) {
        let content = &self.job.plan.content;
        for piece in pieces(offset, data.len()) {
            let bytes = &data[piece.at..piece.at + piece.len];
            let position = offset + piece.at as u64;
            if matches(content, file, state.version, piece, bytes) || position >= state.size_max {
                // Bytes behind the end are a matter of the size.
                continue;
            }
            let mut truth = vec![0; piece.len];
            fill(content, file, state.version, position, &mut truth);
            let is_legal = (position..).zip(bytes.iter().zip(&truth)).all(|(at, (&found, &truth))| {
                found == truth || (at >= state.sure && found == 0) || at >= state.size_max
            });
            if is_legal || state.existence == Existence::Doubtful {
                continue;
            }
            let whose = Whose { file, block: piece.block, version: state.version };
            let (truth, found) = (padded(piece.start, &truth), padded(piece.start, bytes));
            let expected = vec![self.expected(file, state, piece)];
            let covered = piece.start..piece.start + piece.len;
            let what = classify(&self.job.plan, whose, std::slice::from_ref(&truth), &found, covered);
            self.failed(
                file,
                piece.block,
                LoadOperation::Read,
                Finding { expected, found: Some(found), what },
            );
        }
    }
}

/// What is said of a failing block beside where and when.
pub(super) struct Finding {
    pub(super) expected: Vec<Version>,
    /// What was found, if not an error.
    pub(super) found: Option<Vec<u8>>,
    pub(super) what: Classification,
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
