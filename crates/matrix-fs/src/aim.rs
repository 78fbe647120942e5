//! A member that knows where the blocks are that faults aim at: by what is written, as the systems here never write in place.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rotproof_block::{
    Context, Device, DeviceInfo, Operation, Phase, Queue, Request, Result, Runtime, Submission,
};
use rotproof_fault::{Engine, ResolvedRule, RuleState};
use rotproof_matrix::BLOCK;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// A block of data, by its number.
    Data(usize),
    /// The beginning of a node with checksums.
    Sums,
    /// The beginning of a node that says where data are.
    Map,
}

/// What the block is that these bytes begin with, if it is one to aim at.
pub(crate) type Recognise = fn(seed: u64, bytes: &[u8]) -> Option<What>;

/// The rule for a block at this offset; the second is where a misdirected write of it may land.
pub(crate) type RuleAt = Arc<dyn Fn(u64, u64) -> Result<ResolvedRule> + Send + Sync>;

/// What is known of a member.
pub(crate) struct Aim {
    pub(crate) engine: Arc<Engine>,
    seed: u64,
    recognise: Recognise,
    is_awake: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Where each was written last.
    places: BTreeMap<What, u64>,
    armed: Option<Armed>,
}

/// A fault that waits for its block.
struct Armed {
    what: What,
    /// Where a misdirected write lands: on this block.
    other: What,
    rule: RuleAt,
    /// It hits every so many writes of the block, and so often at the most.
    every: u64,
    left: u64,
    seen: u64,
    /// The rule for where the block is now.
    name: Option<Arc<str>>,
}

impl Aim {
    pub(crate) fn new(engine: Arc<Engine>, seed: u64, recognise: Recognise) -> Arc<Self> {
        let (is_awake, inner) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { engine, seed, recognise, is_awake, inner })
    }

    /// Faults act from now on, or no more.
    pub(crate) fn wake(&self, is_awake: bool) {
        self.is_awake.store(is_awake, Ordering::SeqCst);
    }

    /// Where a block was written last.
    pub(crate) fn place(&self, what: What) -> Option<u64> {
        self.inner.lock().places.get(&what).copied()
    }

    /// From now on every so many writes of a block have a rule for the place where they go, until the next one.
    pub(crate) fn arm(&self, what: What, other: What, every: u64, most: u64, rule: RuleAt) {
        self.inner.lock().armed = Some(Armed { what, other, rule, every, left: most, seen: 0, name: None });
    }

    /// Nothing is aimed at any more. Whether the block was written at all meanwhile.
    pub(crate) fn disarm(&self) -> bool {
        self.inner.lock().armed.take().is_some_and(|armed| armed.seen > 0)
    }

    /// A write comes: where its blocks are from now on.
    fn note(&self, request: &Request) -> Result<()> {
        let skipped = request.offset.next_multiple_of(BLOCK as u64) - request.offset;
        let mut inner = self.inner.lock();
        let Inner { places, armed } = &mut *inner;
        for at in (skipped as usize..request.buffer.len()).step_by(BLOCK) {
            let Some(what) = (self.recognise)(self.seed, &request.buffer[at..]) else { continue };
            let offset = request.offset + at as u64;
            places.insert(what, offset);
            let Some(armed) = armed.as_mut().filter(|armed| armed.what == what) else { continue };
            if !self.is_awake.load(Ordering::SeqCst) {
                continue;
            }
            if let Some(name) = armed.name.take() {
                self.engine.set_state(&name, RuleState::Removed)?;
            }
            armed.seen += 1;
            if armed.seen.is_multiple_of(armed.every) && armed.left > 0 {
                armed.left -= 1;
                let other = places.get(&armed.other).copied().unwrap_or(0);
                let names = self.engine.add_rules(vec![(armed.rule)(offset, other)?])?;
                armed.name = names.into_iter().next();
            }
        }
        Ok(())
    }
}

/// The member itself: over a device with faults.
pub(crate) struct AimedDevice {
    below: Arc<dyn Device>,
    aim: Arc<Aim>,
}

impl AimedDevice {
    pub(crate) fn new(below: Arc<dyn Device>, aim: Arc<Aim>) -> Arc<Self> {
        Arc::new(Self { below, aim })
    }
}

impl Device for AimedDevice {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(AimedQueue { below: self.below.open_queue(runtime)?, aim: Arc::clone(&self.aim) }))
    }
}

impl fmt::Debug for AimedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AimedDevice({:?})", self.info())
    }
}

struct AimedQueue {
    below: Rc<dyn Queue>,
    aim: Arc<Aim>,
}

impl Queue for AimedQueue {
    fn submit(&self, request: Request) -> Submission {
        if matches!(request.operation, Operation::Write { .. })
            && let Err(error) = self.aim.note(&request)
        {
            return request.fail(error).into();
        }
        let phase = if self.aim.is_awake.load(Ordering::SeqCst) { Phase::Run } else { Phase::Setup };
        let context = Context { phase, ..request.context };
        self.below.submit(Request { context, ..request })
    }
}
