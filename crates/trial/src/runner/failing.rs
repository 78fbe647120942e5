//! The failing blocks of a run on their way into its results: each goes to `failures.jsonl` and `failures.parquet` as the verdict
//! finds its cause, and is not kept. Of a device that is bad all over there are millions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, Result};
use rotproof_load::Failure;
use rotproof_results::run::FailureRecord;

use super::tables::FailureTable;
use crate::verdict::CauseRecord;

/// Failing blocks that a run hands on beside its results, for whoever prints some of them.
const LISTED_MAX: usize = 1_000;

/// Where failing blocks go.
pub(super) struct FailureFiles {
    path: PathBuf,
    lines: BufWriter<File>,
    table: FailureTable,
    /// What could not be written; then nothing more is.
    written: Result<()>,
    found: FoundFailures,
}

/// What is kept of the failing blocks.
#[derive(Default)]
pub(super) struct FoundFailures {
    /// The first of them, and the first of each kind.
    pub(super) listed: Vec<FailureRecord>,
    /// How many are in each object.
    pub(super) by_object: BTreeMap<String, u64>,
    kinds: BTreeSet<&'static str>,
}

impl FailureFiles {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let path = folder.join("failures.jsonl");
        let file = File::create_new(&path).doing(|| format!("writing {}", path.display()))?;
        Ok(Self {
            path,
            lines: BufWriter::new(file),
            table: FailureTable::create(folder)?,
            written: Ok(()),
            found: FoundFailures::default(),
        })
    }

    /// Takes some, in their order.
    pub(super) fn take(&mut self, failures: Vec<(Failure, CauseRecord)>) {
        for (failure, cause) in failures {
            let record = FailureRecord { failure, cause };
            if self.written.is_ok() {
                self.written = self.write(&record);
            }
            self.found.add(record);
        }
    }

    fn write(&mut self, record: &FailureRecord) -> Result<()> {
        let line = serde_json::to_writer(&mut self.lines, record).map_err(std::io::Error::from);
        line.and_then(|()| self.lines.write_all(b"\n"))
            .doing(|| format!("writing {}", self.path.display()))?;
        self.table.add(record)
    }

    /// Ends the files; what cannot be written is told beside what was found.
    pub(super) fn finish(mut self) -> (FoundFailures, Result<(), Error>) {
        let flushed = self.lines.flush().doing(|| format!("writing {}", self.path.display()));
        let written = self.written.and(flushed).and_then(|()| self.table.finish());
        (self.found, written)
    }
}

impl FoundFailures {
    fn add(&mut self, record: FailureRecord) {
        let object = &record.failure.object;
        match self.by_object.get_mut(object) {
            Some(count) => *count += 1,
            None => drop(self.by_object.insert(object.clone(), 1)),
        }
        let is_first = self.kinds.insert(record.failure.worst().what.kind());
        if is_first || self.listed.len() < LISTED_MAX {
            self.listed.push(record);
        }
    }
}
