//! A library that blocks its thread, driven by tasks that must not: it runs on a thread of its own, but in lockstep.
//!
//! A task gives the library a job and then does its I/O for it: whenever the library needs the device, the task
//! submits the request to its own queue and awaits it. While the library computes, the task's thread waits, so exactly
//! one of the two runs at any time. That makes virtual time as exact as without the library, and everything that is
//! under way belongs to the task: a load that is stopped stops the library too.
//!
//! Owns the thread and the exchange. What the library is, `volume` knows.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Completion, DeviceInfo, Error, ErrorKind, Queue, Request, Result};

use super::turns::Turns;
use super::volume::{self, Answer, Job};

enum ToLibrary {
    Job(Job),
    Carried(Completion),
}

enum FromLibrary {
    Carry(Request),
    Done(Answer),
}

/// The task's end.
struct Lines {
    to: Sender<ToLibrary>,
    from: Receiver<FromLibrary>,
}

/// The library's end.
pub(super) struct Edge {
    to: Sender<FromLibrary>,
    from: Receiver<ToLibrary>,
}

/// A library at work. Ends with its last job when it is dropped.
pub(super) struct Session {
    turns: Turns,
    /// Absent while a task holds them, and for good once a job was given up half-way.
    lines: Mutex<Option<Lines>>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Starts the thread of a library over the device with this information page.
    pub(super) fn start(info: DeviceInfo) -> Result<Self> {
        let (to, from_task) = channel();
        let (to_task, from) = channel();
        let edge = Edge { to: to_task, from: from_task };
        let thread = std::thread::Builder::new()
            .name("fat".into())
            .spawn(move || volume::work(edge, info))
            .doing(|| "starting a thread for the file system library".into())?;
        let lines = Mutex::new(Some(Lines { to, from }));
        Ok(Self { turns: Turns::default(), lines, thread: Some(thread) })
    }

    /// Has the library do a job, on `below`. Gives the job back if there is no library any more.
    pub(super) async fn perform(&self, below: &dyn Queue, job: Job) -> Result<Answer, Job> {
        let _turn = self.turns.take().await;
        let Some(lines) = self.lines.lock().take() else { return Err(job) };
        let answer = lines.perform(below, job).await?;
        *self.lines.lock() = Some(lines);
        Ok(answer)
    }
}

impl Lines {
    async fn perform(&self, below: &dyn Queue, job: Job) -> Result<Answer, Job> {
        if let Err(unsent) = self.to.send(ToLibrary::Job(job)) {
            let ToLibrary::Job(job) = unsent.0 else { unreachable!("it was a job") };
            return Err(job);
        }
        loop {
            match self.from.recv() {
                Ok(FromLibrary::Carry(request)) => {
                    let completion = below.submit(request).await;
                    // If the thread has died, it says so next.
                    let _ = self.to.send(ToLibrary::Carried(completion));
                }
                Ok(FromLibrary::Done(answer)) => return Ok(answer),
                Err(_) => return Ok(Answer::Ended(ended())),
            }
        }
    }
}

/// Why nothing comes from the library any more.
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Gone, "the file system library has ended before")
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without its lines the library gets errors for everything that it still wants, and no more jobs.
        *self.lines.lock() = None;
        if let Some(thread) = self.thread.take() {
            // It has told why it panicked, if it did.
            let _ = thread.join();
        }
    }
}

impl Edge {
    /// The next job; `None` when there will be no more.
    pub(super) fn next_job(&self) -> Option<Job> {
        loop {
            match self.from.recv() {
                Ok(ToLibrary::Job(job)) => return Some(job),
                // The library has not waited for it.
                Ok(ToLibrary::Carried(_)) => {}
                Err(_) => return None,
            }
        }
    }

    /// Ends a job.
    pub(super) fn done(&self, answer: Answer) {
        // Nobody waits for it if the session is being dropped.
        let _ = self.to.send(FromLibrary::Done(answer));
    }

    /// Has a request carried out, and waits.
    pub(super) fn carry(&self, request: Request) -> Completion {
        let context = request.context;
        let lost = || Error::new(ErrorKind::Cancelled, "nobody waits for the file system library any more");
        // A destructor that runs in a panic must not do more harm.
        if std::thread::panicking() {
            return request.fail(lost());
        }
        if let Err(unsent) = self.to.send(FromLibrary::Carry(request)) {
            let FromLibrary::Carry(request) = unsent.0 else { unreachable!("it was a request") };
            return request.fail(lost());
        }
        match self.from.recv() {
            Ok(ToLibrary::Carried(completion)) => completion,
            Ok(ToLibrary::Job(_)) | Err(_) => {
                Completion { result: Err(lost()), buffer: Buffer::empty(), context }
            }
        }
    }
}
