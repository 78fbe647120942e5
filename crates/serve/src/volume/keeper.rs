//! Looks after a volume that is served: does tasks, notices what happens, begins by itself what is due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Error, ErrorKind, Result, Runtime};
use rotproof_machine::Claim;
use rotproof_volume::copies::MemberState;
use rotproof_volume::live::LiveVolume;
use serde_json::{Value, json};

use super::describe::status_json;
use super::events::{Event, Look, between};
use super::hook::{Hook, HookReport, Of};
use super::perform::Doer;
use super::reshape::{Reshaper, Step};
use super::task::{TaskReport, TaskState, VolumeTask};
use crate::control::READ_BYTES_MAX;
use crate::exports::Exports;

/// How often it is looked at the volume.
const INTERVAL: Duration = Duration::from_millis(200);

/// How often what was flushed last is vouched for: if its record rots on all copies later, that is then an error.
const VOUCH_INTERVAL: Duration = Duration::from_secs(1);

/// After what is due by itself has come to nothing, it is tried again so much later, unless something changes before.
const RETRY: Duration = Duration::from_secs(60);

/// Tasks that are remembered.
const REPORTS_MAX: usize = 100;

/// How long whoever has a volume destroyed gets to learn that it is done, before its server ends.
const TELLING: Duration = Duration::from_secs(5);

/// The word of the task that ends all.
const DESTROY: &str = "destroy";

/// Tasks that may wait.
const WAITING_MAX: usize = 32;

/// How a volume is looked after.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// How the stack is called.
    pub name: String,
    /// A command that is told of every event, as a shell takes it.
    pub hook: Option<String>,
    /// Bytes a second at most of a rebuild that begins by itself.
    pub rebuild_rate: Option<u64>,
    /// Time zero of the runtimes that use the volume.
    pub epoch: Instant,
}

/// Looks after a volume until it is stopped.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What there is to tell of a volume while it is served.
#[derive(Clone, Debug)]
pub struct KeeperFigures {
    /// What was seen last.
    pub look: Look,
    /// The task that is being done, if there is one.
    pub task: Option<TaskReport>,
    /// What the hook has done, if there is one.
    pub hook: Option<HookReport>,
}

struct Shared {
    volume: Arc<LiveVolume>,
    exports: Arc<Exports>,
    options: KeeperOptions,
    tasks: Mutex<Tasks>,
    look: Mutex<Look>,
    hook: Option<Hook>,
    stops: AtomicBool,
    /// When the volume was destroyed, if it was.
    destroyed: Mutex<Option<Instant>>,
    /// Somebody knows of that.
    is_told: AtomicBool,
    /// The right to use devices that came later. It outlives the volume.
    claims: Arc<Mutex<Vec<Claim>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.volume)
    }
}

#[derive(Debug)]
struct Tasks {
    last: u64,
    reports: VecDeque<TaskReport>,
    sender: Option<Sender<(u64, VolumeTask)>>,
}

impl Keeper {
    /// Begins to look after a volume. `claims` get the right to use what becomes part of it; whoever keeps them gives them up
    /// after the volume.
    pub(crate) fn start(
        volume: Arc<LiveVolume>,
        options: KeeperOptions,
        claims: Arc<Mutex<Vec<Claim>>>,
        exports: Arc<Exports>,
    ) -> Result<Arc<Self>> {
        let of = Of { stack: options.name.clone(), volume: format!("{:032x}", volume.volume().status().id) };
        let hook = options.hook.as_deref().map(|command| Hook::start(command, of)).transpose()?;
        let (sender, receiver) = channel();
        let tasks = Tasks { last: 0, reports: VecDeque::new(), sender: Some(sender) };
        let look = Mutex::new(Look::at(&volume.volume()));
        let shared = Arc::new(Shared {
            volume,
            exports,
            options,
            tasks: Mutex::new(tasks),
            look,
            hook,
            stops: AtomicBool::new(false),
            destroyed: Mutex::default(),
            is_told: AtomicBool::new(false),
            claims,
        });
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let doing = || "starting a thread that looks after a volume".to_owned();
            std::thread::Builder::new().name(name.into()).spawn(work).doing(doing)
        };
        let [worker, watcher, voucher] = [(); 3].map(|()| Arc::clone(&shared));
        let threads = vec![
            spawn("rotproof-tasks", Box::new(move || worker.work(&receiver)))?,
            spawn("rotproof-watch", Box::new(move || watcher.watch()))?,
            spawn("rotproof-vouch", Box::new(move || voucher.vouch()))?,
        ];
        Ok(Arc::new(Self { shared, threads: Mutex::new(threads) }))
    }

    /// Has a task done, after those before it; its number.
    ///
    /// Fails with [`ErrorKind::Invalid`] if too many wait, or nothing is done any more.
    pub fn begin(&self, task: VolumeTask) -> Result<u64> {
        self.shared.begin(task, false)
    }

    /// How far a task has come, if it is remembered.
    pub fn task(&self, number: u64) -> Option<TaskReport> {
        let report = self.shared.tasks.lock().reports.iter().find(|report| report.task == number).cloned();
        if report.as_ref().is_some_and(|report| report.verb == DESTROY && report.state == TaskState::Done) {
            self.shared.is_told.store(true, Ordering::SeqCst);
        }
        report
    }

    /// Whether the volume was destroyed, and whoever wanted that has learned so, or has had the time to.
    pub(crate) fn is_over(&self) -> bool {
        let destroyed = *self.shared.destroyed.lock();
        destroyed.is_some_and(|at| self.shared.is_told.load(Ordering::SeqCst) || at.elapsed() > TELLING)
    }

    /// What the volume is like, as JSON.
    pub fn status(&self) -> Value {
        let (volume, failure) = (self.shared.volume.volume(), self.shared.volume.failure());
        let checks = volume.checksum_report().unwrap_or_default();
        let notes: Vec<String> = failure.into_iter().chain(volume.notes().iter().cloned()).collect();
        let mut status = status_json(
            &volume.status(),
            &volume.options(),
            true,
            &notes,
            Some(&checks),
            volume.versions_report(),
        );
        status["tasks"] = json!(self.shared.tasks.lock().reports);
        status["hook"] = json!(self.shared.hook.as_ref().map(Hook::report));
        status
    }

    /// What one copy has of a stretch, and how many copies there are: for who can tell a right one from a wrong one. The stretch is in
    /// hexadecimal digits, or the error is told with which it cannot be read.
    ///
    /// Fails if the volume has no copies among which somebody else may choose, or if there is no such copy or stretch.
    pub fn read_copy(&self, copy: usize, offset: u64, length: u64) -> Result<Value> {
        if length > READ_BYTES_MAX {
            let context = format!("{length} bytes are more than the {READ_BYTES_MAX} that are read at once");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let volume = self.shared.volume.volume();
        let copies = volume.copy_count()?;
        let options = RuntimeOptions { epoch: self.shared.options.epoch, ..RuntimeOptions::new(0) };
        let runtime = Runtime::uring(options)?;
        let read = runtime.block_on(volume.read_copy(copy, offset, length, &runtime));
        runtime.abandon_tasks();
        match read? {
            Ok(data) => Ok(json!({ "copies": copies, "data": hexadecimal(&data) })),
            Err(error) if error.kind() == ErrorKind::Invalid => Err(error),
            Err(error) => Ok(json!({ "copies": copies, "data": null, "error": error.to_string() })),
        }
    }

    /// What there is to tell of it.
    pub fn figures(&self) -> KeeperFigures {
        let tasks = self.shared.tasks.lock();
        KeeperFigures {
            look: self.shared.look.lock().clone(),
            task: tasks.reports.iter().find(|task| task.state == TaskState::Running).cloned(),
            hook: self.shared.hook.as_ref().map(Hook::report),
        }
    }

    /// Does nothing more: a rebuild or scrub is left where it is, anything else done to its end.
    pub fn stop(&self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        drop(self.shared.tasks.lock().sender.take());
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn hexadecimal(data: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]].map(char::from);
    data.iter().flat_map(digits).collect()
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn begin(&self, task: VolumeTask, is_automatic: bool) -> Result<u64> {
        let mut tasks = self.tasks.lock();
        let waiting = tasks.reports.iter().filter(|report| report.state == TaskState::Waiting).count();
        if waiting >= WAITING_MAX {
            let context = format!("{waiting} tasks wait already; try again when some are done");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        tasks.last += 1;
        let number = tasks.last;
        let report = TaskReport {
            task: number,
            verb: task.word(),
            is_automatic,
            state: TaskState::Waiting,
            done_bytes: 0,
            of_bytes: 0,
            result: Value::Null,
            error: None,
        };
        let sent = tasks.sender.as_ref().is_some_and(|sender| sender.send((number, task)).is_ok());
        if !sent {
            return Err(Error::new(ErrorKind::Invalid, "the volume is being closed"));
        }
        tasks.reports.push_back(report);
        if tasks.reports.len() > REPORTS_MAX {
            tasks.reports.pop_front();
        }
        Ok(number)
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut TaskReport)) {
        if let Some(report) = self.tasks.lock().reports.iter_mut().find(|report| report.task == number) {
            change(report);
        }
    }

    fn tell(&self, event: &Event) {
        if let Some(hook) = &self.hook {
            hook.tell(event);
        }
    }

    fn work(&self, tasks: &Receiver<(u64, VolumeTask)>) {
        loop {
            let (number, task) = match tasks.recv_timeout(INTERVAL) {
                Ok(task) => task,
                Err(RecvTimeoutError::Timeout) if !self.stops.load(Ordering::SeqCst) => continue,
                Err(_) => return,
            };
            self.change(number, |report| report.state = TaskState::Running);
            let verb = task.word();
            self.tell(&Event { word: "task_begun", details: json!({ "task": number, "verb": verb }) });
            let options = RuntimeOptions { epoch: self.options.epoch, ..RuntimeOptions::new(0) };
            let done = Runtime::uring(options).and_then(|runtime| {
                let done = runtime.block_on(self.perform(number, task, &runtime));
                runtime.abandon_tasks();
                done?
            });
            if verb == DESTROY && done.is_ok() {
                *self.destroyed.lock() = Some(Instant::now());
            }
            let (word, details) = match &done {
                Ok(result) => ("task_done", json!({ "task": number, "verb": verb, "result": result })),
                Err(error) => {
                    let details = json!({ "task": number, "verb": verb, "error": error.to_string() });
                    ("task_failed", details)
                }
            };
            self.change(number, |report| match done {
                Ok(result) => (report.state, report.result) = (TaskState::Done, result),
                Err(error) => {
                    (report.state, report.error) = (TaskState::Failed, Some(error.to_string()));
                }
            });
            self.tell(&Event { word, details });
        }
    }

    async fn perform(&self, number: u64, task: VolumeTask, runtime: &Runtime) -> Result<Value> {
        let Self { volume, exports, claims, .. } = self;
        let task = match (Reshaper { volume, exports, runtime, claims }).perform(task).await? {
            Step::Done(result) => return Ok(result),
            Step::Then(task) => task,
        };
        if let Some(why) = volume.failure() {
            return Err(Error::new(ErrorKind::Gone, why));
        }
        let doer = Doer {
            volume: &volume.volume(),
            runtime,
            progress: &|done, of| {
                self.change(number, |report| (report.done_bytes, report.of_bytes) = (done, of));
            },
            stops: &self.stops,
            claims,
            rebuild_rate: self.options.rebuild_rate,
        };
        doer.perform(task).await
    }

    fn watch(&self) {
        let mut tried: Option<(Vec<u8>, Instant)> = None;
        while !self.stops.load(Ordering::SeqCst) {
            std::thread::sleep(INTERVAL);
            let now = Look::at(&self.volume.volume());
            let before = std::mem::replace(&mut *self.look.lock(), now.clone());
            for event in between(&before, &now) {
                self.tell(&event);
            }
            let kinds: Vec<u8> = now.members.iter().map(|(_, state)| kind_of(state)).collect();
            if tried.as_ref().is_some_and(|(seen, at)| *seen == kinds && at.elapsed() < RETRY) {
                continue;
            }
            if self.begin_what_is_due(&kinds) {
                tried = Some((kinds, Instant::now()));
            } else if kinds.iter().all(|kind| *kind == CURRENT) {
                tried = None;
            }
        }
    }

    /// On a thread of its own: a member that does not answer holds nothing up but this.
    fn vouch(&self) {
        let mut last = Instant::now();
        while !self.stops.load(Ordering::SeqCst) {
            std::thread::sleep(INTERVAL);
            let volume = self.volume.volume();
            if last.elapsed() < VOUCH_INTERVAL || !volume.is_unvouched() || self.volume.failure().is_some() {
                continue;
            }
            last = Instant::now();
            let options = RuntimeOptions { epoch: self.options.epoch, ..RuntimeOptions::new(0) };
            // What fails now is tried again.
            let _ = Runtime::uring(options).and_then(|runtime| {
                let done = runtime.block_on(volume.vouch(&runtime));
                runtime.abandon_tasks();
                done?
            });
        }
    }

    /// Whether something was due and has begun.
    fn begin_what_is_due(&self, kinds: &[u8]) -> bool {
        let is_busy = self
            .tasks
            .lock()
            .reports
            .iter()
            .any(|report| matches!(report.state, TaskState::Waiting | TaskState::Running));
        if is_busy || self.volume.failure().is_some() {
            return false;
        }
        let volume = self.volume.volume();
        let has_spare = || volume.status().spares.iter().any(Option::is_some);
        let task = if kinds.contains(&FAILED) && has_spare() {
            VolumeTask::UseSpare {}
        } else if kinds.contains(&BEHIND) || volume.is_to_rebuild() {
            VolumeTask::Rebuild { rate: self.options.rebuild_rate }
        } else {
            return false;
        };
        self.begin(task, true).is_ok()
    }
}

const CURRENT: u8 = 0;
const BEHIND: u8 = 1;
const FAILED: u8 = 2;

fn kind_of(state: &MemberState) -> u8 {
    match state {
        MemberState::Current => CURRENT,
        MemberState::Behind { .. } => BEHIND,
        MemberState::Failed { .. } => FAILED,
    }
}
