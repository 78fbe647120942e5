//! What a worker does of a trace: the accesses that lie in its part of the target, in the order of the trace.
//!
//! Every worker reads the whole trace for itself, through a window of its own, so that nothing is shared and nothing
//! locked; accesses that overlap meet in the worker that owns the place. However large the trace, a worker holds a few
//! hundred kilobytes of it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind};
use rotproof_trace::{Access, Malformed, Operation, Plain, Reader, Remap, Stop};
use serde::Serialize;

use super::course::{Course, Plan};
use super::{Contents, Mixture, Step};
use crate::content::Stage;
use crate::layout::Layout;
use crate::replay::{Pace, Source, Trace};
use crate::{BLOCK_BYTES, MAX_REQUEST_BYTES};

/// Bytes that a worker reads of the trace at once.
const WINDOW_BYTES: usize = 256 << 10;
/// ... and of one that is compressed.
const COMPRESSED_BYTES: usize = 64 << 10;

/// The largest read or write; what is longer becomes several.
const TRANSFER_BLOCKS_MAX: u64 = MAX_REQUEST_BYTES / BLOCK_BYTES as u64;

/// The largest discard, whose blocks are counted in 32 bits.
const DISCARD_BLOCKS_MAX: u64 = u32::MAX as u64;

/// The steps of one worker that come from a trace.
#[derive(Debug)]
pub(crate) struct Replayed {
    reader: Trouble<Reader<BufReader<Plain<BufReader<Window>>>>>,
    trace: Trace,
    remap: Remap,
    layout: Arc<Layout>,
    /// The blocks that belong to the worker.
    part: Range<u64>,
    contents: Contents,
    /// Of the trace, whoever its accesses belong to.
    course: Course,
    /// Of the worker's own requests.
    requests_max: u64,
    /// What is left of the present access, and what it does.
    left: Range<u64>,
    operation: Operation,
    due: Duration,
    report: TraceReport,
    requests: u64,
    written_blocks: u64,
}

/// What a [`Replayed`] is made from.
pub(crate) struct ReplayedOptions<'a> {
    pub(crate) seed: u64,
    pub(crate) worker: u16,
    pub(crate) source: &'a Source,
    /// Of single blocks.
    pub(crate) layout: Arc<Layout>,
    pub(crate) part: Range<u64>,
    pub(crate) mixture: Arc<Mixture>,
    /// In accesses and their bytes on this target.
    pub(crate) plan: Plan,
}

/// What was read of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct TraceReport {
    /// Accesses that were carried out, or begun.
    pub accesses: u64,
    /// Accesses that were left out, as the load says.
    pub skipped: u64,
    /// Lines or records that are none of the format, and were passed over.
    pub malformed: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub malformed_lines: Vec<Malformed>,
}

/// Something that works until it is in trouble.
#[derive(Debug)]
enum Trouble<T> {
    None(Box<T>),
    Untold(Error),
    Told,
}

impl Replayed {
    pub(crate) fn new(options: ReplayedOptions<'_>) -> Self {
        let ReplayedOptions { seed, worker, source, layout, part, mixture, plan } = options;
        let window = Window { file: Arc::clone(&source.file), position: 0 };
        let reader = match Plain::of(BufReader::with_capacity(COMPRESSED_BYTES, window)) {
            Ok(plain) => {
                let input = BufReader::with_capacity(WINDOW_BYTES, plain);
                Trouble::None(Box::new(Reader::of(input, &source.reading(), source.trace.limits())))
            }
            Err(error) => Trouble::Untold(stopped(Stop::Io(error), &source.trace)),
        };
        let remap = Remap::new(layout.blocks() * BLOCK_BYTES as u64, BLOCK_BYTES as u64)
            .expect("a layout has a block at least");
        Self {
            reader,
            trace: source.trace.clone(),
            remap,
            layout,
            part,
            contents: Contents::new(seed, Stage::Run, worker, mixture),
            course: Course::new(plan),
            requests_max: u64::MAX,
            left: 0..0,
            operation: Operation::Flush,
            due: Duration::ZERO,
            report: TraceReport::default(),
            requests: 0,
            written_blocks: 0,
        }
    }

    pub(super) fn ending_after(self, requests: u64) -> Self {
        Self { requests_max: requests, ..self }
    }

    pub(super) fn contents(&self) -> Contents {
        self.contents.clone()
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn due(&self) -> Option<Duration> {
        (self.trace.pace == Pace::Timed).then_some(self.due)
    }

    pub(super) fn course(&self) -> &Course {
        &self.course
    }

    pub(super) fn report(&self) -> TraceReport {
        match &self.reader {
            Trouble::None(reader) => TraceReport {
                malformed: reader.malformed(),
                malformed_lines: reader.shown().to_vec(),
                ..self.report.clone()
            },
            Trouble::Untold(_) | Trouble::Told => self.report.clone(),
        }
    }

    pub(super) fn take_trouble(&mut self) -> Option<Error> {
        if !matches!(self.reader, Trouble::Untold(_)) {
            return None;
        }
        match std::mem::replace(&mut self.reader, Trouble::Told) {
            Trouble::Untold(error) => Some(error),
            Trouble::None(_) | Trouble::Told => None,
        }
    }

    /// The next access of the trace that is not to be left out.
    fn next_access(&mut self) -> Option<Access> {
        let Trouble::None(reader) = &mut self.reader else { return None };
        loop {
            match reader.next()? {
                Ok(access) if self.trace.skip.contains(&access.operation) => self.report.skipped += 1,
                Ok(access) => return Some(access),
                Err(stop) => {
                    self.report.malformed = reader.malformed();
                    self.report.malformed_lines = reader.shown().to_vec();
                    self.reader = Trouble::Untold(stopped(stop, &self.trace));
                    return None;
                }
            }
        }
    }

    /// The blocks of an access that belong to this worker.
    fn begin(&mut self, access: &Access) {
        let (start, bytes) = self.remap.place(access);
        self.course.count(bytes);
        self.report.accesses += 1;
        let due = (access.at_ns as f64 / self.trace.speed) as u64;
        // Of accesses whose order is not that of their times, the order counts.
        self.due = self.due.max(Duration::from_nanos(due));
        self.operation = access.operation;
        let first = start / BLOCK_BYTES as u64;
        let end = first + bytes / BLOCK_BYTES as u64;
        self.left = first.max(self.part.start)..end.min(self.part.end);
    }

    /// What is left of the present access, as far as one request reaches.
    fn piece(&mut self) -> Step {
        let most = match self.operation {
            Operation::Discard => DISCARD_BLOCKS_MAX,
            _ => TRANSFER_BLOCKS_MAX,
        };
        let extent = self.layout.extent_at(self.left.start, most.min(self.left.end - self.left.start));
        self.left.start += u64::from(extent.blocks);
        self.requests += 1;
        match self.operation {
            Operation::Read => Step::Read(extent),
            Operation::Discard => Step::Discard(extent),
            Operation::Write | Operation::Flush => {
                let first = self.written_blocks;
                self.written_blocks += u64::from(extent.blocks);
                Step::Write { extent, first, fua: false }
            }
        }
    }
}

impl Iterator for Replayed {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.requests >= self.requests_max {
            return None;
        }
        while self.left.is_empty() {
            if self.course.has_ended() {
                return None;
            }
            let access = self.next_access()?;
            self.begin(&access);
            if access.operation == Operation::Flush {
                return Some(Step::Flush);
            }
        }
        Some(self.piece())
    }
}

/// Why a trace cannot be replayed to its end, and what to do.
pub(crate) fn stopped(stop: Stop, trace: &Trace) -> Error {
    let name = trace.file.file_name().unwrap_or(trace.file.as_os_str());
    let doing = format!("replaying {}", name.display());
    match stop {
        Stop::Io(error) => Error::from_io(error, doing),
        stop @ Stop::Malformed(_) => Error::new(
            ErrorKind::Invalid,
            format!(
                "{doing}: {stop}; allow more with `malformed_max` (--malformed-max), or say the format with `format` \
                 (--trace-format)"
            ),
        ),
    }
}

/// A file that several read, each where it is.
#[derive(Debug)]
struct Window {
    file: Arc<File>,
    position: u64,
}

impl Read for Window {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}
