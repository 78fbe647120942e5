//! Runs that were killed and cannot end: a thread of theirs waits in the kernel for a device that nobody serves any more.
//!
//! They hold what they had made, and programs that look at every device of the machine can come to wait for it too. Nothing
//! here waits: it reads the records, which need no lock, and what the kernel says of the process.

use std::fmt;
use std::path::Path;

use super::journal::{self, EXTENSION, Journal, Outstanding};
use super::kind::{Keeper, Kind};
use crate::process::{Liveness, boot_id};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckRun {
    /// The run's id.
    pub run: String,
    /// Its process, which was killed.
    pub pid: u32,
    /// What it holds, in words.
    pub holds: Vec<String>,
}

impl fmt::Display for StuckRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, pid, holds } = self;
        write!(f, "run {run} (process {pid}) was killed and is stuck in the kernel")?;
        if !holds.is_empty() {
            write!(f, " with {}", holds.join(", "))?;
        }
        f.write_str("; `rotproof clean` frees it")
    }
}

/// Those of this user, whose records hold what is of these kinds and of the machine's own.
pub fn stuck_runs(kinds: &[&'static Kind]) -> Vec<StuckRun> {
    super::folders().iter().flat_map(|folder| stuck_in(folder, kinds)).collect()
}

/// Those that have their record in `folder`.
pub(super) fn stuck_in(folder: &Path, kinds: &[&'static Kind]) -> Vec<StuckRun> {
    let Ok(boot_id) = boot_id() else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut records: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .collect();
    records.sort();
    records.iter().filter_map(|record| stuck(record, &boot_id, kinds)).collect()
}

fn stuck(record: &Path, boot_id: &str, kinds: &[&'static Kind]) -> Option<StuckRun> {
    let content = journal::read(record, kinds).ok()??;
    let process = content.header.process;
    if content.header.boot_id != boot_id || process.liveness() != Liveness::Ending {
        return None;
    }
    // One that has let go of its record is dead, and only nobody has asked for its exit status yet.
    if !matches!(Journal::try_open(record), Ok(None)) {
        return None;
    }
    let is_of_kernel = |outstanding: &&Outstanding| outstanding.resource.kind().kept_by == Keeper::Kernel;
    let there = content.outstanding.values().rev().filter(is_of_kernel);
    let there = there.filter(|outstanding| outstanding.resource.exists().unwrap_or(true));
    let holds = there.map(|outstanding| outstanding.resource.to_string()).collect();
    Some(StuckRun { run: content.header.run, pid: process.pid, holds })
}
