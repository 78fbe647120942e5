//! mdtest's phases: all threads make, look at and remove directories, then make, look at, read and remove files, each
//! kind of operation after the one before has ended everywhere.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::job::Job;
use super::plan::FilePlan;
use super::report::FileOperation;
use super::state::{Existence, FileState};
use super::worker::FileWorker;

/// How often somebody who waits looks whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where all threads meet between two phases.
#[derive(Debug)]
pub(super) struct Meeting {
    members: u32,
    state: Mutex<Arrivals>,
    complete: Condvar,
}

#[derive(Debug, Default)]
struct Arrivals {
    arrived: u32,
    round: u64,
    /// What was decided, and in which round.
    decided: Option<(u64, bool)>,
}

impl Meeting {
    pub(super) fn new(members: u32) -> Self {
        Self { members, state: Mutex::default(), complete: Condvar::new() }
    }

    /// Waits for all others. False if all is over.
    pub(super) fn wait(&self, job: &Job) -> bool {
        let mut state = self.state.lock();
        let round = state.round;
        state.arrived += 1;
        if state.arrived == self.members {
            (state.arrived, state.round) = (0, round + 1);
            self.complete.notify_all();
            return true;
        }
        while state.round == round {
            if job.is_cancelled() {
                return false;
            }
            self.complete.wait_for(&mut state, LOOK_EVERY);
        }
        true
    }
}

impl Meeting {
    /// All threads decide together whether it is over: as the first of them sees it.
    pub(super) fn decide(&self, job: &Job) -> bool {
        let is_over = job.is_over();
        {
            let mut state = self.state.lock();
            if state.decided.is_none_or(|(round, _)| round != state.round) {
                state.decided = Some((state.round, is_over));
            }
        }
        let decided = self.state.lock().decided.is_some_and(|(_, is_over)| is_over);
        !self.wait(job) || decided
    }
}

/// What is known of the files and directories of one thread.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) files: Vec<FileState>,
    pub(super) directories: Vec<Existence>,
}

impl Names {
    pub(super) fn new(plan: &FilePlan, thread: u32) -> Self {
        let count = plan.part_len(thread) as usize;
        Self { files: vec![FileState::MISSING; count], directories: vec![Existence::No; count] }
    }

    /// Those of a thread of which nobody knows how far it came.
    pub(super) fn in_doubt(plan: &FilePlan, thread: u32) -> Self {
        let count = plan.part_len(thread) as usize;
        Self { files: vec![FileState::DOUBTFUL; count], directories: vec![Existence::Doubtful; count] }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Mkdir,
    Dirstat,
    Rmdir,
    Create,
    Stat,
    Read,
    Delete,
}

const PHASES: [Phase; 7] =
    [Phase::Mkdir, Phase::Dirstat, Phase::Rmdir, Phase::Create, Phase::Stat, Phase::Read, Phase::Delete];

impl Phase {
    /// What counts the time of the phase.
    fn operations(self) -> &'static [FileOperation] {
        match self {
            Self::Mkdir => &[FileOperation::Mkdir],
            Self::Dirstat => &[FileOperation::Dirstat],
            Self::Rmdir => &[FileOperation::Rmdir],
            Self::Create => &[FileOperation::Create, FileOperation::Write],
            Self::Stat => &[FileOperation::Stat],
            Self::Read => &[FileOperation::Open, FileOperation::Read],
            Self::Delete => &[FileOperation::Delete],
        }
    }
}

/// Goes through all phases once. False if all is over.
pub(super) fn round(
    worker: &mut FileWorker<'_>,
    names: &mut Names,
    thread: u32,
    meeting: &Meeting,
    keeps: bool,
) -> bool {
    let plan = &worker.job.plan;
    for phase in PHASES {
        if keeps && matches!(phase, Phase::Rmdir | Phase::Delete) {
            continue;
        }
        if !meeting.wait(worker.job) {
            return false;
        }
        let began = worker.job.now();
        for position in 0..plan.part_len(thread) {
            if worker.job.is_cancelled() {
                return false;
            }
            let file = plan.file(thread, position);
            let state = &mut names.files[position as usize];
            let directory = &mut names.directories[position as usize];
            match phase {
                Phase::Mkdir => worker.make_directory(file, directory),
                Phase::Dirstat => worker.stat_directory(file, directory),
                Phase::Rmdir => worker.remove_directory(file, directory),
                Phase::Create => {
                    worker.create(file, state);
                    let size = plan.size(file);
                    if size > 0 {
                        worker.append(FileOperation::Write, size, state);
                    }
                    worker.close();
                }
                Phase::Stat => worker.stat(file, state),
                Phase::Read => {
                    worker.open(file, state);
                    worker.read_whole(state);
                    worker.close();
                }
                Phase::Delete => worker.delete(file, state),
            }
        }
        // The phase is over when the last thread has come to its end.
        if !meeting.wait(worker.job) {
            return false;
        }
        if thread == 0 {
            let took = worker.job.now().since(began);
            worker.tally.spans.extend(phase.operations().iter().map(|&operation| (operation, took)));
        }
    }
    true
}

impl FileWorker<'_> {
    fn make_directory(&mut self, file: u32, directory: &mut Existence) {
        let path = self.job.folder.join(self.job.plan.directory_path(file));
        let (done, took) = self.timed(FileOperation::Mkdir, file, || std::fs::create_dir(&path));
        self.record(FileOperation::Mkdir, took, 0, done.err());
        *directory = match (done, *directory) {
            (Ok(()), _) => Existence::Yes,
            (Err(_), Existence::Doubtful) if path.is_dir() => Existence::Yes,
            (Err(error), _) => {
                self.refused_directory(file, FileOperation::Mkdir, error);
                Existence::Doubtful
            }
        };
    }

    fn stat_directory(&mut self, file: u32, directory: &mut Existence) {
        let path = self.job.folder.join(self.job.plan.directory_path(file));
        let (done, took) = self.timed(FileOperation::Dirstat, file, || path.metadata());
        self.record(FileOperation::Dirstat, took, 0, done.as_ref().err().copied());
        if let Err(error) = done
            && *directory == Existence::Yes
        {
            self.refused_directory(file, FileOperation::Dirstat, error);
        }
    }

    fn remove_directory(&mut self, file: u32, directory: &mut Existence) {
        let path = self.job.folder.join(self.job.plan.directory_path(file));
        let (done, took) = self.timed(FileOperation::Rmdir, file, || std::fs::remove_dir(&path));
        self.record(FileOperation::Rmdir, took, 0, done.err());
        match done {
            Ok(()) => *directory = Existence::No,
            Err(error) => {
                if *directory == Existence::Yes {
                    self.refused_directory(file, FileOperation::Rmdir, error);
                }
                *directory = Existence::Doubtful;
            }
        }
    }
}
