//! Runs one phase of a load of files: a thread for each of the personality.
//!
//! Its threads make blocking calls, so they have no runtime, only the clock of one. There is no virtual time for them:
//! the kernel knows none.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::runtime::Clock;
use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_record::Recording;
use rotproof_record::statistics::SteadySpec;

use super::check;
use super::coupling::{Coupling, Semaphore};
use super::draws::Draws;
use super::job::Job;
use super::mail::{LOG_ENTRY_BYTES, MailScript, MailStep};
use super::metadata::{Meeting, Names, round};
use super::oracle::FileOracle;
use super::plan::FilePlan;
use super::report::{FileIncident, FileOperation, FileReport, Tally};
use super::ring::Log;
use super::script::{Script, Step};
use super::seat::NO_FILE;
use super::slots::Slots;
use super::spec::PersonalityKind;
use super::state::FileState;
use super::threads::{Home, Task, in_threads};
use super::worker::{FileWorker, kind_of};
use crate::engine::{LetGo, Progress};
use crate::workload::HUNG_AFTER_DEFAULT;

/// How to run one phase.
pub struct FileRunOptions {
    /// Prefill, run or check.
    pub phase: Phase,
    /// What tells the time.
    pub clock: Clock,
    /// When the run ends, if that is by time.
    pub duration: Option<Duration>,
    /// Anything but zero asks to stop: the phase then ends, with the figures up to there.
    pub cancel: Arc<AtomicUsize>,
    /// Where to say how far it has come.
    pub progress: Arc<Progress>,
    /// Where to tell of every operation, for intervals and samples; their names are [`FileOperation::NAMES`].
    pub recording: Option<Arc<Recording>>,
    /// Ends the run as soon as it is as steady as that, which takes a recording.
    pub until_steady: Option<SteadySpec>,
    /// How long a call may take before it is told of as hung; 30 s if nothing is said. Once nothing goes on but such calls,
    /// their threads are left behind.
    pub hung_after: Option<Duration>,
    /// Called when that has happened.
    pub let_go: Option<LetGo>,
}

/// Streams of [`rotproof_block::hash::mix`] that belong to the places that oltp reads and writes.
const PLACES: u64 = 0x01f9_91ac;
/// Figures of filebench's `oltp.f`: posts that a writer and the log writer wait for, how far readers may run ahead of
/// them, writes in a row, and bytes of a log write.
const WRITER: Semaphore = Semaphore { value: 1000, high_water: 2000 };
const LOG_WRITER: Semaphore = Semaphore { value: 3200, high_water: 1000 };
const WRITES_IN_A_ROW: u32 = 100;
const OLTP_LOG_BYTES: u64 = 256 << 10;

/// Runs one phase of a load in `folder`, which belongs to the load alone. The oracle learns what was done, and judges
/// what is read.
///
/// An error of an operation is no error of the phase: it is counted, and the file concerned is among
/// [`FileReport::failures`], where it lost anything. If it was asked to stop, [`FileReport::is_interrupted`] says so, and
/// the oracle is of no further use.
pub fn run(
    plan: &FilePlan,
    folder: &Path,
    oracle: &mut FileOracle,
    options: &FileRunOptions,
) -> Result<FileReport> {
    if oracle.is_lost {
        return Err(Error::new(ErrorKind::Invalid, "the oracle belongs to a phase that did not end"));
    }
    let until_steady = options.until_steady.filter(|_| options.phase == Phase::Run);
    match (until_steady, &options.recording) {
        (Some(steady), Some(recording)) => recording.watch_steadiness(steady),
        (Some(_), None) => {
            let message = "a load that ends when it is steady has to be recorded: its intervals tell";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        (None, _) => {}
    }
    let now = options.clock.now();
    let job = Arc::new(Job {
        plan: plan.clone(),
        folder: folder.to_owned(),
        phase: options.phase,
        clock: options.clock,
        deadline: options.duration.filter(|_| options.phase == Phase::Run).map(|span| now.after(span)),
        hung_after: options.hung_after.unwrap_or(HUNG_AFTER_DEFAULT),
        let_go: options.let_go.clone(),
        cancel: Arc::clone(&options.cancel),
        progress: Arc::clone(&options.progress),
        recording: options.recording.clone(),
        history: oracle.history.clone(),
        ends_when_steady: until_steady.is_some(),
        is_abandoned: AtomicBool::new(false),
        limit: Mutex::default(),
    });
    oracle.is_lost = true;
    let started = job.now();
    if let Some(recording) = &options.recording {
        recording.begin_phase(options.phase.word(), 0);
    }
    let mut tallies = match options.phase {
        Phase::Prefill => prefill(&job, oracle)?,
        Phase::Run => work(&job, oracle)?,
        Phase::Check => check::check(&job, oracle)?,
        Phase::Setup | Phase::CoolDown => {
            let message = format!("a load cannot be run as its phase {}", options.phase.word());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    };
    if options.phase != Phase::Check && !job.is_cancelled() {
        let (tally, is_durable) = sync(&job)?;
        tallies.extend(tally);
        if let Some(history) = oracle.history.as_ref().filter(|_| is_durable) {
            history.synced_all(oracle.files());
        }
    }
    let is_interrupted = options.cancel.load(Ordering::Relaxed) != 0;
    oracle.is_lost = is_interrupted;
    let mut report = Tally::merge(options.phase, started, tallies);
    if let Some(recording) = &options.recording {
        recording.end_phase(report.started, None, report.ended);
        report.until_steady = until_steady.and_then(|_| recording.steady_end());
    }
    Ok(FileReport { is_interrupted, ..report })
}

/// Makes the tree of directories and the files that are there before the load.
fn prefill(job: &Arc<Job>, oracle: &mut FileOracle) -> Result<Vec<Tally>> {
    let tree: Task = ("files-tree".to_owned(), Box::new(make_tree));
    let mut tallies = in_threads(job, job.plan.threads_max(), vec![tree])?;
    let slots = oracle.slots.clone();
    let work = move |worker: &mut FileWorker<'_>, thread, names: &mut Names| {
        prefill_part(worker, thread, names, slots.as_deref());
    };
    tallies.extend(with_names(job, oracle, "files", work)?);
    Ok(tallies)
}

/// Each thread at work with what it knows of its files.
fn with_names(
    job: &Arc<Job>,
    oracle: &mut FileOracle,
    name: &str,
    work: impl Fn(&mut FileWorker<'_>, u32, &mut Names) + Send + Sync + 'static,
) -> Result<Vec<Tally>> {
    let (home, work) = (Home::of(std::mem::take(&mut oracle.parts)), Arc::new(work));
    let tasks = (0..job.plan.parts()).map(|thread| -> Task {
        let (home, work) = (Arc::clone(&home), Arc::clone(&work));
        let task = move |worker: &mut FileWorker<'_>| {
            home.with(thread, |names| work(worker, thread, names));
            Ok(())
        };
        (format!("{name}-{thread}"), Box::new(task))
    });
    let tallies = in_threads(job, 0, tasks.collect());
    oracle.parts = home.end(&job.plan);
    tallies
}

fn make_tree(worker: &mut FileWorker<'_>) -> Result<()> {
    let (job, plan) = (worker.job, &worker.job.plan);
    for directory in plan.directories() {
        let path = job.folder.join(&directory);
        let (done, took) = worker.timed(FileOperation::Mkdir, NO_FILE, || std::fs::create_dir(&path));
        worker.record(FileOperation::Mkdir, took, 0, done.err());
        if let Err(error) = done {
            if error == ErrorKind::Os(libc::EEXIST) {
                let message = format!("{} exists already; a load makes its own folders", path.display());
                return Err(Error::new(ErrorKind::Refused, message));
            }
            refused(worker, FileOperation::Mkdir, error, &path)?;
        }
    }
    if plan.kind.has_log() {
        let path = worker.path(plan.log());
        let (done, _) = worker.timed(FileOperation::Create, plan.log(), || File::create_new(&path));
        if let Err(error) = done {
            refused(worker, FileOperation::Create, error, &path)?;
        }
    }
    Ok(())
}

/// Takes down that the file system refused to make something, which is for the verdict to judge; fails where that is for want of
/// a right or of this machine, which is for the user to mend.
fn refused(
    worker: &mut FileWorker<'_>,
    operation: FileOperation,
    error: ErrorKind,
    path: &Path,
) -> Result<()> {
    let of_machine = [libc::EACCES, libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    if matches!(error, ErrorKind::Os(errno) if of_machine.contains(&errno)) {
        return Err(Error::new(error, format!("making {}", path.display())));
    }
    let time = worker.job.now();
    worker.tally.told(FileIncident { operation, error, time });
    Ok(())
}

fn prefill_part(worker: &mut FileWorker<'_>, thread: u32, names: &mut Names, slots: Option<&Slots>) {
    let plan = &worker.job.plan;
    for position in 0..plan.part_len(thread) {
        if worker.job.is_cancelled() {
            return;
        }
        if !plan.is_preallocated(thread, position) {
            continue;
        }
        let (file, state) = (plan.file(thread, position), &mut names.files[position as usize]);
        worker.create(file, state);
        worker.append(FileOperation::Write, plan.size(file), state);
        worker.close();
        if let Some(slots) = slots {
            let count = plan.size(file) / plan.kind.slot_bytes().unwrap_or(1);
            slots.filled(file, count, state.size() == Some(plan.size(file)));
        }
    }
}

/// The load itself.
fn work(job: &Arc<Job>, oracle: &mut FileOracle) -> Result<Vec<Tally>> {
    let log = match &oracle.log {
        Some(log) => match open_log(job) {
            Ok(handle) => Some((Arc::clone(log), Arc::new(handle))),
            Err(error) => return refused_to_begin(job, job.plan.log(), error),
        },
        None => None,
    };
    let tallies = match (job.plan.kind, oracle.slots.clone(), log) {
        (PersonalityKind::Oltp, Some(slots), Some(log)) => oltp(job, &slots, &log),
        (PersonalityKind::MailStore, Some(slots), Some(log)) => {
            let tasks = (0..job.plan.figures.threads).map(|thread| -> Task {
                let (slots, log) = (Arc::clone(&slots), log.clone());
                let task = move |worker: &mut FileWorker<'_>| {
                    mail(worker, thread, &slots, (&log.0, &log.1));
                    Ok(())
                };
                (format!("mail-{thread}"), Box::new(task))
            });
            in_threads(job, 0, tasks.collect())
        }
        (PersonalityKind::Metadata, ..) => {
            let meeting = Meeting::new(job.plan.figures.threads);
            with_names(job, oracle, "names", move |worker, thread, names| {
                metadata(worker, thread, names, &meeting);
            })
        }
        (.., log) => with_names(job, oracle, "files", move |worker, thread, names| {
            files(worker, thread, &mut names.files, log.as_ref().map(|(log, handle)| (&**log, &**handle)));
        }),
    };
    if let Some(log) = &oracle.log {
        log.doubt_in_flight();
    }
    tallies
}

/// The log as each personality writes it: durable at once, but for a web server's.
fn open_log(job: &Job) -> std::io::Result<File> {
    let path = job.folder.join(job.plan.path(job.plan.log()));
    let flags = if job.plan.kind == PersonalityKind::Webserver { 0 } else { libc::O_DSYNC };
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

/// What a phase finds that could not even open a file: that the file system gave up is a finding; what is the machine's
/// fails.
fn refused_to_begin(job: &Arc<Job>, file: u32, error: std::io::Error) -> Result<Vec<Tally>> {
    if !is_of_subject(&error) {
        return Err(error).doing(|| format!("opening {}", job.folder.join(job.plan.path(file)).display()));
    }
    let task = move |worker: &mut FileWorker<'_>| {
        let error = kind_of(error);
        worker.record(FileOperation::Open, Duration::ZERO, 0, Some(error));
        worker.refused(file, FileOperation::Open, error);
        Ok(())
    };
    in_threads(job, 0, vec![("files-refused".to_owned(), Box::new(task))])
}

/// Whether an error is what a file system says that cannot or will not go on, and not one of this process or the machine.
fn is_of_subject(error: &std::io::Error) -> bool {
    let said = [
        libc::EIO,
        libc::EROFS,
        libc::EUCLEAN,
        libc::EBADMSG,
        libc::ENODATA,
        libc::ENXIO,
        libc::ENODEV,
        libc::ESHUTDOWN,
        libc::ENOENT,
        libc::ESTALE,
        // A machine of its own that is gone, and its file system with it.
        libc::ENOTCONN,
        libc::ECONNABORTED,
    ];
    error.raw_os_error().is_some_and(|code| said.contains(&code))
}

/// Whether a thread is to go through its operations again.
fn goes_on(worker: &FileWorker<'_>, loops: u64) -> bool {
    !worker.job.is_over() && worker.job.plan.figures.loops.is_none_or(|most| loops < most)
}

fn files(worker: &mut FileWorker<'_>, thread: u32, states: &mut [FileState], log: Option<(&Log, &File)>) {
    let plan = &worker.job.plan;
    let mut script = Script::new(plan, thread);
    let (mut steps, mut loops) = (Vec::new(), 0);
    let position = |file: u32| (file / plan.parts()) as usize;
    while goes_on(worker, loops) {
        script.next_loop(&mut steps);
        for step in &steps {
            match *step {
                Step::Create(file) => worker.create(file, &mut states[position(file)]),
                Step::Open(file) => worker.open(file, &mut states[position(file)]),
                Step::Delete(file) => worker.delete(file, &mut states[position(file)]),
                Step::Stat(file) => worker.stat(file, &mut states[position(file)]),
                Step::Close => worker.close(),
                Step::Log(len) => {
                    if let Some((log, handle)) = log {
                        log.append(worker, handle, len);
                    }
                }
                Step::ReadWhole | Step::WriteWhole | Step::Append(_) | Step::Fsync => {
                    // After an open that failed there is none.
                    let Some(file) = worker.opened_file() else { continue };
                    let state = &mut states[position(file)];
                    match *step {
                        Step::ReadWhole => worker.read_whole(state),
                        Step::WriteWhole => worker.append(FileOperation::Write, plan.size(file), state),
                        Step::Append(len) => worker.append(FileOperation::Append, len, state),
                        _ => worker.fsync(state),
                    }
                }
            }
            if worker.job.is_cancelled() {
                return;
            }
        }
        loops += 1;
    }
}

fn metadata(worker: &mut FileWorker<'_>, thread: u32, names: &mut Names, meeting: &Meeting) {
    let figures = worker.job.plan.figures;
    let mut loops = 0;
    // All threads must come to the same conclusion, so by time it is one that all of them know.
    loop {
        let is_last = figures.loops.is_some_and(|most| loops + 1 >= most);
        if !round(worker, names, thread, meeting, figures.keep && is_last) || is_last {
            return;
        }
        loops += 1;
        if meeting.decide(worker.job) {
            return;
        }
    }
}

fn mail(worker: &mut FileWorker<'_>, thread: u32, slots: &Slots, (log, log_handle): (&Log, &File)) {
    let mut script = MailScript::new(&worker.job.plan, thread);
    let mut loops = 0;
    while worker.job.plan.part_len(thread) > 0 && goes_on(worker, loops) {
        loops += 1;
        let step = script.next();
        let (MailStep::Insert(file, slot)
        | MailStep::Delete(file, slot)
        | MailStep::Replace(file, slot)
        | MailStep::Read(file, slot)) = step;
        let Some(handle) = worker.mailbox(file) else { continue };
        let place = (&handle, file, slot);
        if let MailStep::Read(..) = step {
            slots.read(worker, place, Some(FileOperation::Read));
            continue;
        }
        log.append(worker, log_handle, LOG_ENTRY_BYTES);
        match step {
            MailStep::Insert(..) => slots.write(worker, place, FileOperation::Insert, false),
            MailStep::Delete(..) => slots.write(worker, place, FileOperation::Erase, true),
            _ => {
                slots.read(worker, place, None);
                slots.write(worker, place, FileOperation::Replace, false);
            }
        }
    }
}

/// Readers, writers and the log writer, coupled by semaphores. All threads share the open files.
fn oltp(job: &Arc<Job>, slots: &Arc<Slots>, log: &(Arc<Log>, Arc<File>)) -> Result<Vec<Tally>> {
    let figures = &job.plan.figures;
    let open = |flags| -> std::result::Result<Vec<File>, (u32, std::io::Error)> {
        let open_one = |file| {
            let path = job.folder.join(job.plan.path(file));
            let opened = File::options().read(true).write(true).custom_flags(flags).open(path);
            opened.map_err(|error| (file, error))
        };
        (0..figures.files).map(open_one).collect()
    };
    let (buffered, durable) = match open(0).and_then(|buffered| Ok((buffered, open(libc::O_DSYNC)?))) {
        Ok((buffered, durable)) => (Arc::new(buffered), Arc::new(durable)),
        Err((file, error)) => return refused_to_begin(job, file, error),
    };
    let mut semaphores = vec![WRITER; figures.writers as usize];
    semaphores.push(LOG_WRITER);
    let coupling = Arc::new(Coupling::new(semaphores, figures.threads));
    let mut tasks: Vec<Task> = Vec::new();
    for reader in 0..figures.threads {
        let (coupling, slots, buffered) = (Arc::clone(&coupling), Arc::clone(slots), Arc::clone(&buffered));
        tasks.push((
            format!("reader-{reader}"),
            Box::new(move |worker: &mut FileWorker<'_>| {
                let mut places = Places::new(&worker.job.plan, reader, 0, 1);
                let mut loops = 0;
                while goes_on(worker, loops) {
                    loops += 1;
                    let (file, slot) = places.next();
                    slots.read(worker, (&buffered[file as usize], file, slot), Some(FileOperation::Read));
                    let job = worker.job;
                    coupling.post(|| job.is_over());
                }
                coupling.leave();
                Ok(())
            }),
        ));
    }
    for writer in 0..figures.writers {
        let (coupling, slots, durable) = (Arc::clone(&coupling), Arc::clone(slots), Arc::clone(&durable));
        tasks.push((
            format!("writer-{writer}"),
            Box::new(move |worker: &mut FileWorker<'_>| {
                let plan = &worker.job.plan;
                let mut places =
                    Places::new(plan, plan.figures.threads + writer, writer, plan.figures.writers);
                let job = worker.job;
                loop {
                    for _ in 0..WRITES_IN_A_ROW {
                        if job.is_over() {
                            return Ok(());
                        }
                        let (file, slot) = places.next();
                        slots.write(
                            worker,
                            (&durable[file as usize], file, slot),
                            FileOperation::Write,
                            false,
                        );
                    }
                    if !coupling.block(writer as usize, || job.is_over()) {
                        return Ok(());
                    }
                }
            }),
        ));
    }
    let (log_writer, (log, handle)) = (figures.writers as usize, log.clone());
    tasks.push((
        "log-writer".into(),
        Box::new(move |worker: &mut FileWorker<'_>| {
            let job = worker.job;
            loop {
                log.append(worker, &handle, OLTP_LOG_BYTES);
                if job.is_over() || !coupling.block(log_writer, || job.is_over()) {
                    return Ok(());
                }
            }
        }),
    ));
    in_threads(job, 0, tasks)
}

/// Where a thread of oltp goes: the files in rotation, uniform within each. Writers have pieces of their own.
struct Places {
    draws: Draws,
    files: u32,
    next_file: u32,
    slots: u64,
    share: u64,
    shares: u64,
}

impl Places {
    fn new(plan: &FilePlan, thread: u32, share: u32, shares: u32) -> Self {
        Self {
            draws: Draws::new(plan.seed, PLACES, thread.into()),
            files: plan.figures.files,
            next_file: thread % plan.figures.files,
            slots: plan.slots(),
            share: share.into(),
            shares: shares.into(),
        }
    }

    fn next(&mut self) -> (u32, u64) {
        let file = self.next_file;
        self.next_file = (file + 1) % self.files;
        let own = (self.slots.saturating_sub(self.share)).div_ceil(self.shares).max(1);
        (file, (self.draws.below(own) * self.shares + self.share).min(self.slots - 1))
    }
}

/// Makes everything durable, and says whether that has succeeded.
fn sync(job: &Arc<Job>) -> Result<(Vec<Tally>, bool)> {
    let is_durable = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_durable);
    let task = move |worker: &mut FileWorker<'_>| {
        let job = worker.job;
        let opened = match File::open(&job.folder) {
            Err(error) if !is_of_subject(&error) => {
                return Err(error).doing(|| format!("opening {}", job.folder.display()));
            }
            opened => opened,
        };
        let (done, took) = worker.timed(FileOperation::Sync, NO_FILE, || {
            let folder = opened?;
            // SAFETY: takes an open descriptor.
            match unsafe { libc::syncfs(folder.as_raw_fd()) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
        worker.record(FileOperation::Sync, took, 0, done.err());
        told.store(done.is_ok(), Ordering::SeqCst);
        if let Err(error) = done {
            worker.tally.told(FileIncident { operation: FileOperation::Sync, error, time: job.now() });
        }
        Ok(())
    };
    let tallies = in_threads(job, job.plan.threads_max(), vec![("files-sync".to_owned(), Box::new(task))])?;
    Ok((tallies, is_durable.load(Ordering::SeqCst)))
}
