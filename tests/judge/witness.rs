//! What the application asked for and what it was handed: a driver around the load's own that writes down every request
//! with the bytes that went out or came back.
//!
//! It stands above the subject, so it knows nothing of faults, overlays or file systems.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rotproof_block::{
    Completion, ContentHash, ErrorKind, Operation, Phase, Queue, Request, Result, Runtime, Submission,
};
use rotproof_load::{BLOCK_BYTES, Driver, ObjectInfo, RunOn};

/// What a request was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Discard,
}

impl Kind {
    /// As results have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// One request, in the order in which they were answered.
#[derive(Clone, Debug)]
pub struct Event {
    pub phase: Phase,
    pub kind: Kind,
    pub object: u32,
    /// The first block, counted within the object, and how many.
    pub block: u64,
    pub blocks: u64,
    pub submitted: u64,
    pub completed: u64,
    pub error: Option<ErrorKind>,
    /// Of a write what each block was to hold, of a read that succeeded what each held.
    pub contents: Vec<u128>,
}

/// Called once, when so many requests have been answered.
type Strike = Box<dyn FnOnce(&[Event], &Contents) + Send>;

/// Bytes by their hash.
pub type Contents = HashMap<u128, Arc<[u8]>>;

#[derive(Default)]
struct Book {
    events: Vec<Event>,
    contents: Contents,
    strike: Option<(usize, Strike)>,
}

/// All that was seen, by all threads of all phases.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Book>>);

impl Log {
    /// Has something done when the application has got `after` answers.
    pub fn strike_after(&self, after: usize, strike: Strike) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).strike = Some((after, strike));
    }

    /// Looks at what there is so far.
    pub fn look<T>(&self, look: impl FnOnce(&[Event], &Contents) -> T) -> T {
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(&book.events, &book.contents)
    }

    fn add(&self, mut event: Event, bytes: &[u8]) {
        let hashes: Vec<u128> = bytes.chunks(BLOCK_BYTES).map(|block| ContentHash::of(block).0).collect();
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let book = &mut *guard;
        for (block, &hash) in bytes.chunks(BLOCK_BYTES).zip(&hashes) {
            book.contents.entry(hash).or_insert_with(|| block.into());
        }
        event.contents = hashes;
        book.events.push(event);
        if book.strike.as_ref().is_some_and(|(after, _)| book.events.len() >= *after)
            && let Some((_, strike)) = book.strike.take()
        {
            strike(&book.events, &book.contents);
        }
    }
}

/// A driver that is listened to.
pub struct Witness {
    driver: Arc<dyn Driver>,
    log: Log,
}

impl Witness {
    pub fn of(driver: &dyn Driver, log: &Log) -> Self {
        Self { driver: driver.shared(), log: log.clone() }
    }
}

impl Driver for Witness {
    fn objects(&self) -> &[ObjectInfo] {
        self.driver.objects()
    }

    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>> {
        let listen = |(object, queue)| -> Rc<dyn Queue> {
            Rc::new(Ear { queue, object, runtime: runtime.clone(), log: self.log.clone() })
        };
        Ok((0..).zip(self.driver.open(runtime)?).map(listen).collect())
    }

    fn shared(&self) -> Arc<dyn Driver> {
        Arc::new(Self { driver: self.driver.shared(), log: self.log.clone() })
    }

    fn holds_threads(&self) -> bool {
        self.driver.holds_threads()
    }

    fn close(&self, phase: Phase, on: RunOn<'_>) -> Result<()> {
        self.driver.close(phase, on)
    }
}

/// One object's queue.
struct Ear {
    queue: Rc<dyn Queue>,
    object: u32,
    runtime: Runtime,
    log: Log,
}

impl Queue for Ear {
    fn submit(&self, request: Request) -> Submission {
        let kind = match request.operation {
            Operation::Read => Kind::Read,
            Operation::Write { .. } => Kind::Write,
            Operation::Flush => Kind::Flush,
            Operation::Discard | Operation::WriteZeroes => Kind::Discard,
        };
        let event = Event {
            phase: request.context.phase,
            kind,
            object: self.object,
            block: request.offset / BLOCK_BYTES as u64,
            blocks: request.length / BLOCK_BYTES as u64,
            submitted: self.runtime.now().0,
            completed: 0,
            error: None,
            contents: Vec::new(),
        };
        // What was to be written, whatever comes back.
        let sent = if kind == Kind::Write { request.buffer.to_vec() } else { Vec::new() };
        match self.queue.submit(request).try_take() {
            Ok(completion) => {
                hear(&self.log, &self.runtime, event, &sent, &completion);
                completion.into()
            }
            Err(submission) => {
                let (log, runtime) = (self.log.clone(), self.runtime.clone());
                Submission::pending(async move {
                    let completion = submission.await;
                    hear(&log, &runtime, event, &sent, &completion);
                    completion
                })
            }
        }
    }
}

fn hear(log: &Log, runtime: &Runtime, mut event: Event, sent: &[u8], completion: &Completion) {
    event.completed = runtime.now().0;
    event.error = completion.result.as_ref().err().map(rotproof_block::Error::kind);
    let is_read = event.kind == Kind::Read && event.error.is_none();
    log.add(event, if is_read { &completion.buffer } else { sent });
}
