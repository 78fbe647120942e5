//! The folder of a run, read: its intervals, marks and samples, and any other table in it.
//!
//! ```no_run
//! # fn main() -> rotproof_block::Result<()> {
//! use rotproof_record::{MarkKind, RunFolder};
//!
//! let run = RunFolder::open("results/first-trial-42-1700000000".as_ref())?;
//! for interval in run.intervals()?.iter().filter(|row| row.worker.is_none()) {
//!     println!("{} {} {}", interval.start.0, interval.operation, interval.bytes_per_second());
//! }
//! for mark in run.marks()?.iter().filter(|mark| mark.kind == MarkKind::Window) {
//!     println!("{} from {} until {:?}", mark.name, mark.from_ns, mark.until_ns);
//! }
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind, Result};

use crate::interval::{self, Interval};
use crate::mark::{self, Mark, MarkKind};
use crate::samples::{self, Sample};
use crate::table::{Table, TableReader};

/// The results of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The run in this folder. Fails with [`ErrorKind::Missing`] if there is none, or one that was not recorded.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join("intervals.parquet").is_file() {
            let message =
                format!("{} holds no run with recorded intervals (intervals.parquet)", path.display());
            return Err(Error::new(ErrorKind::Missing, message));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every interval of every worker, operation and phase, in the order in which they ended; those of all workers
    /// together have no `worker`, and come for each interval even if nothing completed in it.
    pub fn intervals(&self) -> Result<Vec<Interval>> {
        interval::from_table(&self.table("intervals")?)
    }

    /// Whether the device below the subject was recorded too.
    pub fn has_device(&self) -> bool {
        self.path.join("device.parquet").is_file()
    }

    /// The same of the device below the subject, all that used it together: of runs whose load is not one of requests to a
    /// device, and empty for others.
    pub fn device_intervals(&self) -> Result<Vec<Interval>> {
        if !self.has_device() {
            return Ok(Vec::new());
        }
        interval::from_table(&self.table("device")?)
    }

    /// Phases, windows and hits of faults, events, by time.
    pub fn marks(&self) -> Result<Vec<Mark>> {
        mark::from_table(&self.table("marks")?)
    }

    /// The phases alone: `prefill`, `ramp_up`, `run`, `cool_down`, `check`, as far as there were any.
    pub fn phases(&self) -> Result<Vec<Mark>> {
        Ok(self.marks()?.into_iter().filter(|mark| mark.kind == MarkKind::Phase).collect())
    }

    /// Whether every single request was kept.
    pub fn has_samples(&self) -> bool {
        self.path.join("samples.parquet").is_file()
    }

    /// Every single request, in chunks of one worker and phase each. For many of them see [`RunFolder::sample_chunks`].
    pub fn samples(&self) -> Result<Vec<Sample>> {
        self.sample_chunks()?.collect::<Result<Vec<_>>>().map(|chunks| chunks.concat())
    }

    /// The same, a chunk at a time.
    pub fn sample_chunks(&self) -> Result<impl Iterator<Item = Result<Vec<Sample>>>> {
        let reader = TableReader::open(&self.path.join("samples.parquet"), "samples")?;
        Ok((0..reader.groups()).map(move |group| samples::from_table(&reader.group(group)?)))
    }

    /// Any table of the folder, from the file `NAME.parquet`.
    pub fn table(&self, name: &str) -> Result<Table> {
        TableReader::open(&self.path.join(format!("{name}.parquet")), name)?.read()
    }
}
