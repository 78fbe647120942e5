//! Removing what runs have left that did not come to their end: `rotproof clean`.
//!
//! A run is taken for dead only if nobody holds its record and its process is no more (or it has let go in an orderly
//! way). Then everything in its record is removed in reverse order, and nothing else. A living run is named and left
//! alone. Nothing here can hang on the mounts of the dead: their FUSE connections are ended first.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::journal::{Content, EXTENSION, Journal, Line, Outstanding, read};
use super::kind::{Keeper, Kind};
use super::plan::Plan;
use crate::mounts::mounts;
use crate::process::{Liveness, boot_id};

/// How long a killed process may take to end once its FUSE connection is gone.
const ENDING_MAX: Duration = Duration::from_secs(10);
const ENDING_INTERVAL: Duration = Duration::from_millis(50);

/// What `clean` found of one run, and did about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CleanReport {
    /// The run's id.
    pub run: String,
    /// Its process; none if the record does not say.
    pub pid: Option<u32>,
    /// What was done.
    pub outcome: Outcome,
    /// What of the run was still there, in the order of removal; of one that is busy what it holds. Empty for a living run.
    pub resources: Vec<CleanedResource>,
}

/// What was done about one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything it left is gone.
    Cleaned,
    /// Everything it left would be removed; nothing was touched.
    WouldClean,
    /// Some of it would be removed, and some could not be; nothing was touched.
    WouldBeIncomplete,
    /// Some of it could not be removed; the record stays for the next attempt.
    Incomplete,
    /// It lives, and was left alone.
    Living,
    /// Another `clean` is at it, or its process is being killed but waits for a device that does not answer.
    Busy,
    /// Its record cannot be read, for the reason given, and nothing was touched.
    Unreadable(String),
}

/// One thing that a dead run had left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CleanedResource {
    /// In words: "the loop device over ...".
    pub what: String,
    /// Why it could not be removed, if so.
    pub error: Option<String>,
}

impl CleanReport {
    fn new(run: &str, pid: Option<u32>, outcome: Outcome) -> Self {
        Self { run: run.to_owned(), pid, outcome, resources: Vec::new() }
    }

    /// Whether nothing is left to be done about this run.
    pub fn is_settled(&self) -> bool {
        matches!(self.outcome, Outcome::Cleaned | Outcome::WouldClean | Outcome::Living)
    }
}

/// Cleans after every dead run that has its record in `folder`. With `dry_run` it only says what it would do.
pub(super) fn clean_folder(
    folder: &Path,
    kinds: &[&'static Kind],
    dry_run: bool,
) -> Result<Vec<CleanReport>> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .doing(|| format!("reading {}", folder.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(&format!(".{EXTENSION}")))
        .collect();
    names.sort();
    let boot_id = boot_id()?;
    Ok(names.iter().filter_map(|name| clean_run(folder, name, &boot_id, kinds, dry_run)).collect())
}

/// Cleans after one run; `None` if it came to its own end meanwhile.
fn clean_run(
    folder: &Path,
    name: &str,
    boot_id: &str,
    kinds: &[&'static Kind],
    dry_run: bool,
) -> Option<CleanReport> {
    let path = folder.join(name);
    let run = name.strip_suffix(&format!(".{EXTENSION}")).unwrap_or(name);
    let unreadable = |error: Error| Some(CleanReport::new(run, None, Outcome::Unreadable(error.to_string())));
    let mut journal = match open_locked(folder, &path) {
        Ok(journal) => journal,
        Err(error) => return unreadable(error),
    };
    let content = match read(&path, kinds) {
        Ok(Some(content)) => content,
        Ok(None) => {
            // Killed before its first line was whole, and thus before it created anything; or, if somebody holds it,
            // about to write that line.
            let journal = journal?;
            if !dry_run && let Err(error) = journal.remove() {
                return unreadable(error);
            }
            return None;
        }
        Err(_) if !path.exists() => return None,
        Err(error) => return unreadable(error),
    };
    let pid = Some(content.header.process.pid);
    let same_boot = content.header.boot_id == boot_id;
    let liveness = if same_boot { content.header.process.liveness() } else { Liveness::Gone };
    let mut ended = Vec::new();
    if journal.is_none() && liveness == Liveness::Ending {
        ended = waited_for(&content);
        if !dry_run {
            journal = wait_for_the_end(folder, &path, &content);
        }
    } else if journal.is_none() && liveness == Liveness::Gone {
        // It may have died since we asked for its journal.
        journal = open_locked(folder, &path).ok().flatten();
    }
    match (&journal, liveness) {
        (None, Liveness::Alive) => return Some(CleanReport::new(run, pid, Outcome::Living)),
        (None, Liveness::Ending) if dry_run => {}
        (None, _) => return path.exists().then(|| busy(CleanReport::new(run, pid, Outcome::Busy), &content)),
        // Its record is free, but only a run that has said so lets go of it while its process lives on.
        (Some(_), Liveness::Alive) if !content.ended => {
            return Some(CleanReport::new(run, pid, Outcome::Living));
        }
        (Some(_), _) => {}
    }
    let mut report = CleanReport::new(run, pid, if dry_run { Outcome::WouldClean } else { Outcome::Cleaned });
    report.resources = ended;
    // A mount, loop device or process of an earlier boot is gone; what has its name now is another's.
    let outstanding: Vec<(u64, Outstanding)> = content
        .outstanding
        .into_iter()
        .rev()
        .filter(|(_, outstanding)| same_boot || outstanding.resource.kind().kept_by == Keeper::FileSystem)
        .collect();
    let outstanding = in_order_of_removal(outstanding);
    match journal {
        Some(journal) if !dry_run => remove(&journal, &outstanding, &mut report),
        _ => match planned(&outstanding) {
            Ok(resources) => {
                report.resources.extend(resources);
                if report.resources.iter().any(|resource| resource.error.is_some()) {
                    report.outcome = Outcome::WouldBeIncomplete;
                }
            }
            Err(error) => return unreadable(error),
        },
    }
    Some(report)
}

/// What a killed process cannot end for: it is ended before anything is removed.
fn waited_for(content: &Content) -> Vec<CleanedResource> {
    let waited = content.outstanding.values().filter_map(|outstanding| outstanding.resource.waited_for());
    waited.map(|what| CleanedResource { what, error: None }).collect()
}

/// What a run holds that cannot end.
fn busy(mut report: CleanReport, content: &Content) -> CleanReport {
    let there = content
        .outstanding
        .values()
        .rev()
        .filter(|outstanding| outstanding.resource.exists().unwrap_or(true));
    let resources =
        there.map(|outstanding| CleanedResource { what: outstanding.resource.to_string(), error: None });
    report.resources = resources.collect();
    report
}

/// The last first, but before all what may keep the rest busy.
fn in_order_of_removal(outstanding: Vec<(u64, Outstanding)>) -> Vec<(u64, Outstanding)> {
    let goes_first = |(_, outstanding): &(u64, Outstanding)| outstanding.resource.kind().goes_first;
    let (first, others): (Vec<_>, Vec<_>) = outstanding.into_iter().partition(goes_first);
    first.into_iter().chain(others).collect()
}

/// Takes the lock of the folder while it takes that of the journal, so that a run that is just beginning has locked
/// its own journal before anybody can see it.
fn open_locked(folder: &Path, path: &Path) -> Result<Option<Journal>> {
    let _folder_lock = super::lock_folder(folder)?;
    Journal::try_open(path)
}

/// For a run that has met a fatal signal while a thread of it waits, uninterruptibly, for its own FUSE server, which is dead:
/// ends the connection, so that the thread gets its error, and waits until the process lets go of the journal.
fn wait_for_the_end(folder: &Path, path: &Path, content: &Content) -> Option<Journal> {
    for outstanding in content.outstanding.values() {
        // A failure shows as the process that does not end.
        let _ = outstanding.resource.let_go();
    }
    let deadline = Instant::now() + ENDING_MAX;
    loop {
        if let Ok(Some(journal)) = open_locked(folder, path) {
            return Some(journal);
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(ENDING_INTERVAL);
    }
}

/// What [`remove`] would find and do, as far as that can be known without doing it.
fn planned(outstanding: &[(u64, Outstanding)]) -> Result<Vec<CleanedResource>> {
    let mut plan = Plan::new(mounts()?);
    let mut resources = Vec::new();
    for (_, outstanding) in outstanding {
        let error = match outstanding.resource.plan(outstanding.identity, &mut plan) {
            Ok(false) => continue,
            Ok(true) => None,
            Err(error) => Some(error.to_string()),
        };
        resources.push(CleanedResource { what: outstanding.resource.to_string(), error });
    }
    Ok(resources)
}

/// Removes everything in its order, after everybody was let go who waits for some of it and may keep the rest busy.
fn remove(journal: &Journal, outstanding: &[(u64, Outstanding)], report: &mut CleanReport) {
    for (_, outstanding) in outstanding {
        // A failure shows when it is removed.
        let _ = outstanding.resource.let_go();
    }
    let mut staying: Vec<&Outstanding> = Vec::new();
    for (id, outstanding) in outstanding {
        let was_there = outstanding.resource.exists().unwrap_or(true);
        let kind = outstanding.resource.kind();
        let found_by_it = |other: &&&Outstanding| kind.finds_any([other.resource.kind()].into_iter());
        let undone = match staying.iter().find(found_by_it) {
            Some(other) => Err(Error::new(
                ErrorKind::Refused,
                format!("left until {} is gone, which is found by it", other.resource),
            )),
            None => outstanding.resource.remove(outstanding.identity),
        };
        let error = undone.and_then(|()| journal.append(&Line::Gone { id: *id })).err();
        if error.is_some() {
            staying.push(outstanding);
        }
        if was_there || error.is_some() {
            let what = outstanding.resource.to_string();
            report.resources.push(CleanedResource { what, error: error.map(|error| error.to_string()) });
        }
    }
    if report.resources.iter().any(|resource| resource.error.is_some()) {
        report.outcome = Outcome::Incomplete;
    } else if let Err(error) = journal.remove() {
        report.outcome = Outcome::Incomplete;
        report
            .resources
            .push(CleanedResource { what: "the run's record".into(), error: Some(error.to_string()) });
    }
}
