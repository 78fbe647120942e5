//! A device that fails writes of blocks by what they are: the data of one file, the journal, or anything else.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{
    Device, DeviceInfo, Error, ErrorKind, Operation, Queue, Request, Result, Runtime, Submission,
};

use super::BlockKind;

/// Bytes that data of the file begin each of their blocks with.
pub(super) const DATA: [u8; 16] = *b"rotproof data \xf0\x0d";
const PAGE_BYTES: usize = 4096;

/// What is to fail, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Harm {
    pub(super) block: BlockKind,
    /// Only the first write.
    pub(super) is_once: bool,
}

#[derive(Debug, Default)]
struct State {
    harm: Option<Harm>,
    /// How many requests have failed.
    failed: u64,
}

/// See the head of the module.
pub(super) struct FailingDevice {
    below: Arc<dyn Device>,
    journal: Arc<[Range<u64>]>,
    spared: Arc<[Range<u64>]>,
    state: Arc<Mutex<State>>,
}

impl FailingDevice {
    /// Over a device whose journal lies there, in bytes. What is spared never fails.
    pub(super) fn new(
        below: Arc<dyn Device>,
        journal: Arc<[Range<u64>]>,
        spared: Arc<[Range<u64>]>,
    ) -> Arc<Self> {
        Arc::new(Self { below, journal, spared, state: Arc::default() })
    }

    /// From now on fails; counts begin again.
    pub(super) fn arm(&self, harm: Harm) {
        *self.state.lock() = State { harm: Some(harm), failed: 0 };
    }

    /// Fails nothing more.
    pub(super) fn heal(&self) {
        self.state.lock().harm = None;
    }

    /// How many requests have failed since it was armed.
    pub(super) fn failed(&self) -> u64 {
        self.state.lock().failed
    }
}

impl Device for FailingDevice {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(FailingQueue {
            below: self.below.open_queue(runtime)?,
            journal: Arc::clone(&self.journal),
            spared: Arc::clone(&self.spared),
            state: Arc::clone(&self.state),
        }))
    }
}

struct FailingQueue {
    below: Rc<dyn Queue>,
    journal: Arc<[Range<u64>]>,
    spared: Arc<[Range<u64>]>,
    state: Arc<Mutex<State>>,
}

impl Queue for FailingQueue {
    fn submit(&self, request: Request) -> Submission {
        let Operation::Write { .. } = request.operation else { return self.below.submit(request) };
        let mut state = self.state.lock();
        let Some(harm) = state.harm else {
            drop(state);
            return self.below.submit(request);
        };
        let is_spared = touches(&request, &self.spared);
        if is_spared || kind_of(&request, &self.journal) != harm.block || (harm.is_once && state.failed > 0) {
            drop(state);
            return self.below.submit(request);
        }
        state.failed += 1;
        drop(state);
        request.fail(Error::new(ErrorKind::Medium, "injected")).into()
    }
}

/// What a write is of: where it lies counts before what it holds, since a journal holds data too.
fn kind_of(request: &Request, journal: &[Range<u64>]) -> BlockKind {
    if touches(request, journal) {
        BlockKind::Journal
    } else if request.buffer.chunks(PAGE_BYTES).any(|page| page.starts_with(&DATA)) {
        BlockKind::Data
    } else {
        BlockKind::Metadata
    }
}

fn touches(request: &Request, ranges: &[Range<u64>]) -> bool {
    let end = request.offset + request.length;
    ranges.iter().any(|range| range.start < end && request.offset < range.end)
}
