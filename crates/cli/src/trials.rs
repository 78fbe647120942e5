//! The trial files of a command, read before anything else happens.

use std::path::PathBuf;

use rotproof_trial::file::{Overrides, TrialFile};

use crate::args::TrialArgs;
use crate::fail::Failure;

/// A trial and the file it came from.
#[derive(Debug)]
pub struct Trial {
    /// As it was given on the command line.
    pub path: PathBuf,
    /// What it says, with what the command line changes of it.
    pub file: TrialFile,
}

/// Reads all files. If any has a mistake, all mistakes of all files are the failure, so that no trial runs before
/// it is known that each could.
pub fn open(args: &TrialArgs) -> Result<Vec<Trial>, Failure> {
    let overrides = Overrides { seed: args.seed, faults: args.faults.clone(), values: args.values.clone() };
    let mut trials = Vec::with_capacity(args.files.len());
    let mut mistakes = Vec::new();
    for path in &args.files {
        match TrialFile::open(path, &overrides) {
            Ok(file) => trials.push(Trial { path: path.clone(), file }),
            Err(diagnostics) => mistakes.push(diagnostics),
        }
    }
    if mistakes.is_empty() { Ok(trials) } else { Err(Failure::Mistakes(mistakes)) }
}
