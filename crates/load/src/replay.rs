//! A trace as a load: what a trial file says of it, and the trace itself, opened.
//!
//! Owns the words of the file, and makes sure that the trace is one that can be read again. What a worker does of it is
//! in `stream/replayed.rs`.

#[cfg(test)]
mod tests;

use std::fs::{File, Metadata};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_spec::{Path, Problems, number_in_range};
use rotproof_trace::{ColumnNames, Format, Limits, Operation, Plain, Reader, Reading, TimeUnit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stream::{TraceReport, stopped};

/// A block trace that is replayed: its accesses are the requests of the load, every write with a content of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The trace, beside the trial file.
    pub file: PathBuf,
    /// How it is written; default: told from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Of values, which column holds what, such as `time=ts,operation=op,offset=lbn*512,length=len`; default: by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<ColumnNames>,
    /// The unit of its times (s, ms, us, 100ns, ns); default: that of the format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<TimeUnit>,
    /// When its requests begin; default `timed`.
    #[serde(default)]
    pub pace: Pace,
    /// How many times as fast as it was recorded; default 1.
    #[serde(default = "one")]
    pub speed: f64,
    /// Requests that each worker keeps in flight at the most; default 64.
    #[serde(default = "depth_default")]
    pub depth: u32,
    /// Operations that are left out, such as `[discard, flush]`; default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<Operation>,
    /// How many malformed lines are passed over; default 100.
    #[serde(default = "malformed_default")]
    pub malformed_max: u64,
}

/// When the requests of a trace begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// At their times, whatever became of those before; their latency counts from then.
    #[default]
    Timed,
    /// As soon as there is room: as many at once as `depth` says.
    Asap,
}

fn one() -> f64 {
    1.0
}

fn depth_default() -> u32 {
    DEPTH_DEFAULT
}

fn malformed_default() -> u64 {
    Limits::default().malformed
}

const DEPTH_DEFAULT: u32 = 64;
const DEPTH_MAX: u64 = 1024;
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

/// How much of a trace is looked at to tell its format.
const BEGINNING_BYTES: u64 = 16 << 10;

impl Trace {
    /// The trace in `file`, replayed as it was recorded.
    pub fn of(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            format: None,
            columns: None,
            time_unit: None,
            pace: Pace::default(),
            speed: one(),
            depth: DEPTH_DEFAULT,
            skip: Vec::new(),
            malformed_max: malformed_default(),
        }
    }

    /// Makes the path absolute, as seen from `folder`, and finds out the format. Fails where there is no such file, or
    /// none that can be replayed: nothing in it is an access.
    pub fn locate(&mut self, folder: &FilePath) -> Result<()> {
        self.file = folder.join(&self.file);
        let source = Source::open(self)?;
        self.format = Some(source.format);
        source.check_access()?;
        self.file = std::path::absolute(&self.file)
            .doing(|| format!("finding the way to {}", self.file.display()))?;
        Ok(())
    }

    /// Reports everything that makes no sense whatever the trace holds.
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        let depth = u64::from(self.depth);
        number_in_range(
            problems,
            &path.key("depth"),
            "the number of requests in flight",
            depth,
            1..=DEPTH_MAX,
        );
        if !SPEEDS.contains(&self.speed) {
            problems.add_with_help(
                &path.key("speed"),
                format!("a speed of {} is not possible", self.speed),
                "give a factor from 0.001 to 1000000, such as 2 for twice as fast as recorded",
            );
        } else if self.pace == Pace::Asap && self.speed != 1.0 {
            problems.add_with_help(
                &path.key("speed"),
                "with `pace: asap` nothing waits for its time, so a speed says nothing",
                "leave out one of them",
            );
        }
        if [Operation::Read, Operation::Write].iter().all(|operation| self.skip.contains(operation)) {
            problems.add_with_help(
                &path.key("skip"),
                "without its reads and its writes nothing of a trace is left",
                "leave one of them in",
            );
        }
    }

    /// Whether it may read.
    pub(crate) fn reads(&self) -> bool {
        !self.skip.contains(&Operation::Read)
    }

    /// Whether it may change anything.
    pub(crate) fn writes(&self) -> bool {
        ![Operation::Write, Operation::Discard].iter().all(|operation| self.skip.contains(operation))
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { malformed: self.malformed_max }
    }
}

/// A trace that is open. It stays readable even if its name goes away.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) trace: Trace,
    pub(crate) format: Format,
    pub(crate) file: Arc<File>,
    /// As it was when it was opened: size, and seconds and nanoseconds of the last change.
    version: (u64, i64, i64),
}

impl Source {
    /// Opens the trace. It is read several times over, so a pipe will not do.
    pub(crate) fn open(trace: &Trace) -> Result<Self> {
        let path = &trace.file;
        let doing = || format!("opening the trace {}", path.display());
        let refuse = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("{} {why}", path.display())));
        // A look first: opening a pipe would wait for its other end.
        if !std::fs::metadata(path).doing(doing)?.is_file() {
            return refuse("is no regular file; a trace is read several times, so save it to one first");
        }
        let file = File::open(path).doing(doing)?;
        let version = version_of(&file.metadata().doing(doing)?);
        let plain = Plain::of(BufReader::new(&file)).doing(doing)?;
        let mut beginning = Vec::new();
        plain.take(BEGINNING_BYTES).read_to_end(&mut beginning).doing(doing)?;
        let told = || trace.columns.as_ref().map(|_| Format::Csv).or_else(|| Format::detect(&beginning));
        let Some(format) = trace.format.or_else(told) else {
            return refuse("is in no format that tells itself; say which with `format` (--trace-format)");
        };
        let source = Self { trace: trace.clone(), format, file: Arc::new(file), version };
        match source.reading().check(&beginning) {
            Ok(()) => Ok(source),
            Err(why) => refuse(&format!("cannot be read as {}: {why}", format.name())),
        }
    }

    /// How it is to be read.
    pub(crate) fn reading(&self) -> Reading {
        let Trace { columns, time_unit, .. } = &self.trace;
        Reading { format: self.format, columns: columns.clone(), time_unit: *time_unit }
    }

    /// Fails if nothing in the trace is an access, as far as malformed lines are allowed before the first.
    fn check_access(&self) -> Result<()> {
        let path = self.trace.file.display();
        let doing = || format!("reading {path}");
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(0)).doing(doing)?;
        let plain = Plain::of(BufReader::new(file)).doing(doing)?;
        let mut reader = Reader::of(BufReader::new(plain), &self.reading(), self.trace.limits());
        match reader.next() {
            Some(Ok(_)) => Ok(()),
            Some(Err(stop)) => Err(stopped(stop, &self.trace)),
            None => {
                let name = self.format.name();
                let why = match reader.shown() {
                    [] => "it is empty".to_owned(),
                    [first, ..] => format!(
                        "of {} lines none is one of the format {name}; line {}: {}",
                        reader.malformed(),
                        first.number,
                        first.why
                    ),
                };
                let help = "give another trace, or say its format with `format` (--trace-format)";
                Err(Error::new(ErrorKind::Invalid, format!("there is no access in {path}: {why}; {help}")))
            }
        }
    }

    /// Fails if nothing of the trace was carried out.
    pub(crate) fn check_replayed(&self, report: &TraceReport) -> Result<()> {
        if report.accesses > 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "nothing of {} was replayed: {} accesses were left out by `skip` (--replay-skip)",
                self.trace.file.display(),
                report.skipped
            ),
        ))
    }

    /// Fails if the trace is no longer what it was: then nobody can say what has been written.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let doing = || format!("looking at {}", self.trace.file.display());
        if version_of(&self.file.metadata().doing(doing)?) == self.version {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{} was changed while it was replayed; replay a copy", self.trace.file.display()),
        ))
    }
}

fn version_of(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}
