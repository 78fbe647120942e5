//! Repeating the faults of a ledger: reading it, and saying afterwards whether all of them came again.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::{Injection, Ledger, Replay, Rule, digest, read_ledger};
use rotproof_results::run::ReplayReport;

/// The ledger in a folder of results.
const FILE_NAME: &str = "ledger.jsonl";

/// A ledger whose faults are to be injected again.
#[derive(Clone, Debug)]
pub struct Recorded {
    path: PathBuf,
    records: Vec<Injection>,
}

impl Recorded {
    /// Reads a ledger file, or that of a folder of results.
    pub fn read(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        let file = File::open(&path).doing(|| format!("opening the ledger {}", path.display()))?;
        let records = read_ledger(BufReader::new(file)).map_err(|error| error.while_reading(&path))?;
        Ok(Self { path, records })
    }

    /// What the rules of a plan are to do. Fails if they cannot have done it.
    pub(super) fn against(&self, plan: &[Rule]) -> Result<Replay> {
        let replay = Replay::new(&self.records, plan).map_err(|error| error.while_reading(&self.path))?;
        if replay.is_empty() {
            let why =
                if self.records.is_empty() { "it has no records" } else { "no record of it has a visit" };
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{}: {why}, so there is nothing to inject again", self.path.display()),
            ));
        }
        Ok(replay)
    }

    /// How the repetition went, which has left `injected`. Fails where that cannot be read.
    pub(super) fn report(&self, replay: &Replay, injected: &Ledger) -> Result<ReplayReport> {
        let missing = replay.missing(injected)?;
        Ok(ReplayReport {
            ledger: self.path.display().to_string(),
            recorded: replay.len() as u64,
            injected: (replay.len() - missing.len()) as u64,
            missing,
            is_same_ledger: digest(injected)? == digest(&self.records[..])?,
        })
    }
}

/// Names the file in an error about what it says.
trait WhileReading {
    fn while_reading(self, path: &Path) -> Self;
}

impl WhileReading for Error {
    fn while_reading(self, path: &Path) -> Self {
        let kind = self.kind();
        Error::new(kind, format!("{}: {self}", path.display()))
    }
}
