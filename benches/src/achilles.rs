//! The table of AchillesBench (docs/achilles.md): every trial in `examples/achilles`, its throughput against the trial
//! without a fault on the same subject in the same round, and the failing blocks that the check found against the
//! faults that were planned.
//!
//! Source: C. Borges, J. Paulo, Realistic Assessment of Faults in Storage Systems.

use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_load::engine::LoadOperation;
use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_trial::runner::{self, TrialRun};

use crate::figure::{Bar, Figure};
use crate::{Effort, machine};

/// Faults in each trial that has any.
const FAULTS: f64 = 64.0;
/// Rounds of the published experiment.
const ROUNDS_MAX: usize = 5;
const MIB: f64 = 1024.0 * 1024.0;

/// A row: its trial without the subject, and how the failing blocks must relate to the faults.
struct Row {
    trial: &'static str,
    failures: Bar,
    /// It overwrites what was written before, so its throughput does not compare with that of the trial without faults.
    overwrites: bool,
}

impl Row {
    const fn new(trial: &'static str, failures: Bar) -> Self {
        Self { trial, failures, overwrites: false }
    }
}

const DEVICE: &[Row] = &[
    Row::new("bit-flip-by-offset", Bar::Is(1.0)),
    Row::new("bit-flip-by-content", Bar::Is(1.0)),
    Row::new("medium-error", Bar::AtLeast(1.01)),
    Row::new("slow-disk", Bar::Is(0.0)),
];
const EXT4: &[Row] = &[
    Row::new("bit-flip-by-content", Bar::Is(1.0)),
    Row { overwrites: true, ..Row::new("medium-error", Bar::AtLeast(1.01)) },
    Row::new("slow-disk", Bar::Is(0.0)),
];
const DEDUP: &[Row] = &[
    Row::new("bit-flip-by-content", Bar::AtLeast(3.0)),
    Row::new("most-duplicated", Bar::AtLeast(100.0)),
    Row::new("unique", Bar::Is(1.0)),
];

/// Measures everything; hands out the figures of a subject when all its rounds are done.
pub fn run(effort: Effort, found: &mut dyn FnMut(Figure)) -> Result<()> {
    machine::need("mkfs.ext4", "e2fsprogs")?;
    for (subject, rows) in [("device", DEVICE), ("ext4", EXT4), ("dedup", DEDUP)] {
        let mut throughputs = vec![Vec::new(); rows.len()];
        let mut failures = vec![Vec::new(); rows.len()];
        for _ in 0..effort.rounds.min(ROUNDS_MAX) {
            let healthy = trial(subject, "none")?;
            for (index, row) in rows.iter().enumerate() {
                let report = trial(subject, row.trial)?;
                throughputs[index].push((throughput(&report), throughput(&healthy)));
                failures[index].push((report.counts.failures as f64, FAULTS));
            }
        }
        for (index, row) in rows.iter().enumerate() {
            let name = format!("{subject}, {}", row.trial.replace('-', " "));
            if !row.overwrites {
                found(Figure::from_rounds(name.clone(), "MiB/s", &throughputs[index], None));
            }
            found(Figure::from_rounds(name, "blocks", &failures[index], Some(row.failures)));
        }
    }
    Ok(())
}

/// Bytes per second that the load wrote, in MiB.
fn throughput(report: &TrialRun) -> f64 {
    let line = report
        .performance
        .iter()
        .find(|line| line.phase == "run" && line.operation == LoadOperation::Write.word());
    line.and_then(|line| line.bytes_per_second).map_or(0.0, |rate| rate / MIB)
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/achilles")
}

fn trial(subject: &str, name: &str) -> Result<TrialRun> {
    let path = examples().join(format!("{subject}-{name}.yaml"));
    let trial = TrialFile::open(&path, &Overrides::default()).map_err(|mistakes| {
        Error::new(ErrorKind::Invalid, format!("{} has {} mistakes", path.display(), mistakes.list.len()))
    })?;
    let results = tempfile::tempdir().map_err(|error| Error::from_io(error, "creating a folder"))?;
    let options = machine::run_options(results.path().to_owned());
    let report = runner::run(&trial, &options)?.report;
    if !report.verdict.passes() {
        return Err(Error::new(ErrorKind::Internal, format!("the trial {} did not pass", path.display())));
    }
    Ok(report)
}
