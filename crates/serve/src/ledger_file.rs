//! The ledger of a served stack as a file that grows with it, so that after a kill it holds all but the last moment.
//!
//! A line is final but for one thing: whether a later write has put the right data back. That is filled in at an
//! orderly end, when the file is written anew. Meanwhile the ledger itself need keep no more than its last records, so
//! that faults may go on for as long as the stack is served.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::{Injection, Ledger};

/// Injections that are copied out of the ledger at once.
const BATCH: usize = 4096;

/// A ledger file that is being written.
#[derive(Debug)]
pub(crate) struct LedgerFile {
    path: PathBuf,
    file: File,
    written: u64,
}

impl LedgerFile {
    /// A new file; one that exists is somebody's results.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file, written: 0 }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(Error::new(
                ErrorKind::Refused,
                format!("{} exists, and a ledger is never overwritten; give another name", path.display()),
            )),
            Err(error) => Err(error).doing(|| format!("creating the ledger {}", path.display())),
        }
    }

    /// Adds what has happened since the last time.
    pub(crate) fn append_new(&mut self, ledger: &Ledger) -> Result<()> {
        loop {
            let records = ledger.records_from(self.written, BATCH)?;
            if records.is_empty() {
                return Ok(());
            }
            let mut text = Vec::new();
            for record in &records {
                serde_json::to_writer(&mut text, record)
                    .map_err(std::io::Error::from)
                    .doing(|| self.doing())?;
                text.push(b'\n');
            }
            self.file.write_all(&text).doing(|| self.doing())?;
            self.written += records.len() as u64;
        }
    }

    /// Writes all of it once more, as it is in the end.
    pub(crate) fn finish(mut self, ledger: &Ledger) -> Result<()> {
        self.append_new(ledger)?;
        let anew = self.path.with_extension("rewriting");
        let rewritten = self.rewrite(ledger, &anew).and_then(|()| std::fs::rename(&anew, &self.path));
        if rewritten.is_err() {
            let _ = std::fs::remove_file(&anew);
        }
        rewritten.doing(|| self.doing())
    }

    /// The lines of records that the ledger has dropped come from the file, the others from the ledger.
    fn rewrite(&self, ledger: &Ledger, anew: &Path) -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).open(anew)?;
        let mut output = BufWriter::new(file);
        let repaired = ledger.repaired_since_dropped();
        let mut lines = BufReader::new(File::open(&self.path)?);
        let mut line = Vec::new();
        for sequence in 0..ledger.first_kept() {
            line.clear();
            lines.read_until(b'\n', &mut line)?;
            if let Some(&time_ns) = repaired.get(&sequence) {
                let record: Injection = serde_json::from_slice(&line)?;
                line.clear();
                serde_json::to_writer(&mut line, &Injection { repaired_at_ns: Some(time_ns), ..record })?;
                line.push(b'\n');
            }
            output.write_all(&line)?;
        }
        ledger.write_to(&mut output)?;
        output.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    }

    fn doing(&self) -> String {
        format!("writing the ledger {}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.jsonl");
        std::fs::write(&path, "results").expect("written");
        assert_eq!(LedgerFile::create(&path).expect_err("it exists").kind(), ErrorKind::Refused);
        assert_eq!(std::fs::read(&path).expect("still there"), b"results");
    }
}
