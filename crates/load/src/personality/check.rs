//! The check of a load of files: every file that must be there is, no other is, and each holds what it must.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rotproof_block::{ErrorKind, Result};

use super::job::Job;
use super::metadata::Names;
use super::oracle::FileOracle;
use super::plan::FilePlan;
use super::report::{FileOperation, Tally};
use super::ring::Log;
use super::seat::NO_FILE;
use super::slots::Slots;
use super::state::Existence;
use super::threads::{Task, in_threads};
use super::worker::{FileWorker, Finding, Found};
use crate::engine::LoadOperation;
use crate::failure::{Classification, Way};

/// Threads that read back.
pub(super) const THREADS: usize = 8;
/// The number of a file that the load knows nothing of.
const STRANGER: u32 = u32::MAX;

pub(super) fn check(job: &Arc<Job>, oracle: &mut FileOracle) -> Result<Vec<Tally>> {
    let known = known_names(&job.plan, oracle);
    let parts = Arc::new(std::mem::take(&mut oracle.parts));
    let tasks = (0..THREADS).map(|number| -> Task {
        let (parts, slots) = (Arc::clone(&parts), oracle.slots.clone());
        let work = move |worker: &mut FileWorker<'_>| {
            for (thread, names) in (0..).zip(&*parts).skip(number).step_by(THREADS) {
                check_part(worker, thread, names, slots.as_deref());
            }
            Ok(())
        };
        (format!("check-{number}"), Box::new(work))
    });
    let tallies = in_threads(job, 0, tasks.collect());
    oracle.parts = Arc::unwrap_or_clone(parts);
    let mut tallies = tallies?;
    let log = oracle.log.clone();
    let rest = move |worker: &mut FileWorker<'_>| {
        if let Some(log) = log {
            check_log(worker, &log);
        }
        find_strangers(worker, &known);
        Ok(())
    };
    tallies.extend(in_threads(job, job.plan.threads_max(), vec![("check-rest".to_owned(), Box::new(rest))])?);
    Ok(tallies)
}

fn check_log(worker: &mut FileWorker<'_>, log: &Log) {
    let file = worker.job.plan.log();
    worker.tally.files += 1;
    let path = worker.path(file);
    let (done, took) = worker.timed(FileOperation::Open, file, || File::open(&path));
    worker.record(FileOperation::Open, took, 0, done.as_ref().err().copied());
    match done {
        Ok(handle) => {
            forget_pages(&handle);
            log.check(worker, &handle);
        }
        Err(ErrorKind::Missing) if !path.exists() => worker.contradicted(file, 1, false),
        Err(error) => worker.refused(file, FileOperation::Open, error),
    }
}

fn check_part(worker: &mut FileWorker<'_>, thread: u32, names: &Names, slots: Option<&Slots>) {
    let plan = &worker.job.plan;
    for position in 0..plan.part_len(thread) {
        if worker.job.is_cancelled() {
            return;
        }
        let file = plan.file(thread, position);
        let state = &names.files[position as usize];
        if state.existence == Existence::No {
            // One that is there is found with the strangers.
            continue;
        }
        worker.tally.files += 1;
        // What was in doubt stays so: a look now says nothing of what was legal before.
        let mut seen = *state;
        worker.open(file, &mut seen);
        if seen.existence == Existence::Yes && state.existence == Existence::Doubtful {
            seen.existence = Existence::Doubtful;
        }
        worker.forget_pages();
        match slots {
            Some(slots) => worker.with_opened(|worker, handle| slots.check(worker, handle, file)),
            None => worker.read_whole(&seen),
        }
        worker.close();
    }
    for (position, &directory) in (0..).zip(&names.directories) {
        let path = worker.job.folder.join(plan.directory_path(plan.file(thread, position)));
        let file = plan.file(thread, position);
        if directory == Existence::Yes
            && let (Err(error), _) = worker.timed(FileOperation::Dirstat, file, || path.metadata())
        {
            worker.refused_directory(file, FileOperation::Dirstat, error);
        }
    }
}

/// All files and directories that may be there.
fn known_names(plan: &FilePlan, oracle: &FileOracle) -> HashSet<String> {
    let mut known: HashSet<String> = plan.directories().into_iter().collect();
    let there = oracle.files().filter(|(_, state)| state.existence != Existence::No);
    known.extend(there.map(|(file, _)| plan.path(file)));
    known.extend(oracle.log.as_ref().map(|_| plan.path(plan.log())));
    for (thread, names) in (0..).zip(&oracle.parts) {
        let made = (0..).zip(&names.directories).filter(|(_, directory)| **directory != Existence::No);
        known.extend(made.map(|(position, _)| plan.directory_path(plan.file(thread, position))));
    }
    known
}

/// Looks for files and directories that nobody made, or that were deleted.
fn find_strangers(worker: &mut FileWorker<'_>, known: &HashSet<String>) {
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = worker.job.folder.join(&folder);
        let list = || std::fs::read_dir(&path).map(|entries| entries.flatten().collect::<Vec<_>>());
        let (Ok(entries), _) = worker.timed(FileOperation::Dirstat, NO_FILE, list) else {
            let error = ErrorKind::Medium;
            let what = Classification::Refused { operation: FileOperation::Dirstat, error };
            let name = if folder.is_empty() { ".".to_owned() } else { folder };
            worker.failed_stranger(name, what, false);
            continue;
        };
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if !known.contains(&path) {
                worker.failed_stranger(path, Classification::Undeleted, true);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
}

impl FileWorker<'_> {
    /// A file by a name that no file of the load has now.
    fn failed_stranger(&mut self, name: String, what: Classification, is_found: bool) {
        let finding = Finding { expected: Vec::new(), found: is_found.then(Found::nothing), what };
        let way = Way {
            phase: self.job.phase,
            time: self.job.now(),
            operation: LoadOperation::Read,
            expected: finding.expected,
            found: finding.found.as_ref().map(|found| super::data::hash_of(&found.bytes)),
            found_sectors: None,
            what: finding.what,
            count: 1,
        };
        self.tally.failed_by_name(STRANGER, name, 0, way);
    }
}

/// Lets the kernel forget what it has of the file in memory, as far as that has been written.
pub(super) fn forget_pages(file: &File) {
    // SAFETY: takes an open descriptor. It is advice; where it is not followed, less is known of the device, and nothing
    // is wrong.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}
