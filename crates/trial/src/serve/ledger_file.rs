//! The ledger of a served stack as a file that grows with it, so that after a kill it holds all but the last moment.
//!
//! A line is final but for one thing: whether a later write has put the right data back. That is filled in at an
//! orderly end, when the file is written anew.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::Ledger;

/// Records that are copied out of the ledger at once.
const BATCH: usize = 4096;

/// A ledger file that is being written.
#[derive(Debug)]
pub(super) struct LedgerFile {
    path: PathBuf,
    file: File,
    written: u64,
}

impl LedgerFile {
    /// A new file; one that exists is somebody's results.
    pub(super) fn create(path: &Path) -> Result<Self> {
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
    pub(super) fn append_new(&mut self, ledger: &Ledger) -> Result<()> {
        loop {
            let records = ledger.records_from(self.written, BATCH);
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
    pub(super) fn finish(mut self, ledger: &Ledger) -> Result<()> {
        let mut rewrite = || -> std::io::Result<()> {
            self.file.rewind()?;
            let mut file = BufWriter::new(&self.file);
            ledger.write_to(&mut file)?;
            file.flush()?;
            drop(file);
            let length = self.file.stream_position()?;
            self.file.set_len(length)?;
            self.file.sync_all()
        };
        rewrite().doing(|| self.doing())
    }

    fn doing(&self) -> String {
        format!("writing the ledger {}", self.path.display())
    }
}
