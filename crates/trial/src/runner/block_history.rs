//! What a load of blocks did to its files or its device, request by request, and what each block may hold after a crash.
//!
//! A block may hold what was made durable there last, and whatever was written later; where nothing was made durable, also what was
//! there before: zeros in a new file. Durable is what had been written before a flush that the load knows to have returned, and a write that was
//! itself to be durable (FUA) and has returned. A block holds nothing else: not what another block holds, not what nobody has
//! written, and not a version that had been replaced before.

mod images;
mod judge;

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{
    Completion, ContentHash, Operation, Phase, Queue, Request, Result, Runtime, Submission,
};
use rotproof_crash::{Crash, Finding};
use rotproof_crash_fs::Oracle;
use rotproof_load::{BLOCK_BYTES, Content, Driver, ObjectInfo, RunOn};

use super::mark_server::SetMark;
use images::BlockImageOracle;
use judge::{BLANK, judge};

const SECTOR_BYTES: usize = 512;
const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;
/// So many findings of one state are told.
const FINDINGS_MAX: usize = 8;

/// What a block was made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Data: of each sector its hash.
    Data([ContentHash; SECTORS]),
    /// It was discarded, and may hold anything.
    Anything,
}

impl What {
    /// Whether a sector may hold the bytes with that hash.
    fn is_at(&self, sector: usize, hash: impl FnOnce() -> ContentHash) -> bool {
        match self {
            Self::Data(hashes) => hashes[sector] == hash(),
            Self::Anything => true,
        }
    }

    /// Whether a whole block may hold these bytes.
    fn is(&self, bytes: &[u8]) -> bool {
        let mut sectors = bytes.chunks_exact(SECTOR_BYTES).enumerate();
        sectors.all(|(at, sector)| self.is_at(at, || ContentHash::of(sector)))
    }
}

#[derive(Clone, Debug)]
struct Version {
    what: What,
    /// In the order of what happened.
    submitted: u64,
    /// Never, for one that is under way or failed.
    completed: u64,
    /// Its number among the writes that were durable when they returned; never, for any other.
    durable: u64,
}

#[derive(Debug, Default)]
struct Inner {
    now: u64,
    /// By object and block, in the order of submission.
    blocks: HashMap<(usize, u64), Vec<Version>>,
    /// Of each flush that has returned, its object and when it was submitted.
    flushes: Vec<(usize, u64)>,
    /// How many writes were durable when they returned.
    durable_writes: u64,
}

/// See the head of the module.
pub(super) struct BlockHistory {
    inner: Mutex<Inner>,
    objects: Vec<ObjectInfo>,
    content: Content,
    mark: SetMark,
}

/// How the mark of a flush begins; its number follows.
const FLUSH_MARK: &str = "flush ";
/// The same of a write that was durable when it returned.
const WRITE_MARK: &str = "durable write ";

/// What the load knew to be durable when the power went.
#[derive(Clone, Copy, Debug)]
struct Promised {
    /// What had completed before this moment, by a flush of its file.
    before: u64,
    /// So many writes by themselves.
    durable_writes: u64,
}

impl Promised {
    fn covers(&self, version: &Version) -> bool {
        version.completed < self.before || version.durable <= self.durable_writes
    }
}

impl BlockHistory {
    pub(super) fn new(objects: &[ObjectInfo], content: Content, mark: SetMark) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), objects: objects.to_vec(), content, mark })
    }

    /// The same objects, with all that is done to them on record.
    pub(super) fn watch(self: &Arc<Self>, driver: Box<dyn Driver>) -> Box<dyn Driver> {
        Box::new(Watched { below: driver.into(), history: Arc::clone(self) })
    }

    /// Looks at mounted states of a disk that never tears a write inside so many bytes.
    pub(super) fn oracle(self: &Arc<Self>, unit_bytes: u64) -> BlockOracle {
        BlockOracle { history: Arc::clone(self), unit_sectors: unit_sectors(unit_bytes) }
    }

    /// The same for the states of a device that is the only object of the load, byte by byte.
    pub(super) fn image_oracle(self: &Arc<Self>, unit_bytes: u64) -> BlockImageOracle {
        BlockImageOracle::new(Arc::clone(self), unit_bytes)
    }

    /// What was promised of an object when these marks had been set.
    fn promised(inner: &Inner, object: usize, crash: &Crash<'_>) -> Promised {
        let last = |prefix: &str| {
            let number =
                |text: &str| text.strip_prefix(prefix)?.split([' ', ',']).next()?.parse::<u64>().ok();
            crash.marks.iter().filter_map(|mark| number(&mark.text)).max().unwrap_or(0)
        };
        let returned = usize::try_from(last(FLUSH_MARK)).unwrap_or(usize::MAX);
        let of_it = inner.flushes[..returned.min(inner.flushes.len())].iter();
        let before = of_it.filter(|(one, _)| *one == object).map(|(_, at)| *at).max().unwrap_or(0);
        Promised { before, durable_writes: last(WRITE_MARK) }
    }

    /// What is wrong with a block of an object that holds these bytes, and held `before` before the load.
    fn find(
        &self,
        inner: &Inner,
        (object, block): (usize, u64),
        (bytes, before): (&[u8], &[u8]),
        promised: Promised,
        unit_sectors: usize,
    ) -> Option<Finding> {
        let versions = inner.blocks.get(&(object, block)).map_or(&[][..], Vec::as_slice);
        let (kind, why) = judge(versions, (bytes, before), promised, unit_sectors).err()?;
        let (kind, whose) = match (kind, self.content.identify(bytes)) {
            (judge::NOISE, Some(id)) => ("misdirected", format!("; it is content {:#x} of this load", id.0)),
            (_, Some(id)) => (kind, format!("; it holds content {:#x} of this load", id.0)),
            (_, None) => (kind, String::new()),
        };
        let name = &self.objects[object].name;
        Some(Finding::new(kind, format!("{name} block {block} {why}{whose}")))
    }

    /// Takes note of what a request is about to do; gives the blocks and the moment, by which it is found again.
    fn begins(&self, object: usize, request: &Request) -> Noted {
        let mut inner = self.inner.lock();
        inner.now += 1;
        let submitted = inner.now;
        let what = match request.operation {
            Operation::Read => return Noted::Nothing,
            Operation::Flush => return Noted::Flush(submitted),
            Operation::Write { .. } => None,
            Operation::Discard | Operation::WriteZeroes => Some(What::Anything),
        };
        let is_durable = request.operation == Operation::Write { fua: true };
        let first = request.offset / BLOCK_BYTES as u64;
        let last = (request.offset + request.length).div_ceil(BLOCK_BYTES as u64);
        for block in first..last {
            let at = (block - first) as usize * BLOCK_BYTES;
            let data = || {
                let bytes = request.buffer.get(at..at + BLOCK_BYTES)?;
                let mut sectors = bytes.chunks_exact(SECTOR_BYTES).map(ContentHash::of);
                Some(What::Data(std::array::from_fn(|_| sectors.next().unwrap_or(ContentHash(0)))))
            };
            let what = what.clone().or_else(data).unwrap_or(What::Anything);
            let version = Version { what, submitted, completed: u64::MAX, durable: u64::MAX };
            inner.blocks.entry((object, block)).or_default().push(version);
        }
        Noted::Blocks { first, last, submitted, is_durable }
    }

    fn ends(&self, object: usize, noted: &Noted, completion: &Completion) {
        if completion.result.is_err() {
            return;
        }
        let mut inner = self.inner.lock();
        inner.now += 1;
        let now = inner.now;
        match *noted {
            Noted::Nothing => {}
            Noted::Flush(submitted) => {
                inner.flushes.push((object, submitted));
                let number = inner.flushes.len();
                let name = &self.objects[object].name;
                // Under the lock, so that marks come in the order of their numbers.
                (self.mark)(&format!("{FLUSH_MARK}{number} of {name} has returned"));
            }
            Noted::Blocks { first, last, submitted, is_durable } => {
                let durable = is_durable.then(|| {
                    inner.durable_writes += 1;
                    inner.durable_writes
                });
                for block in first..last {
                    let versions = inner.blocks.get_mut(&(object, block));
                    let mut versions = versions.into_iter().flatten();
                    if let Some(version) = versions.find(|version| version.submitted == submitted) {
                        version.completed = now;
                        version.durable = durable.unwrap_or(u64::MAX);
                    }
                }
                if let Some(number) = durable {
                    let name = &self.objects[object].name;
                    (self.mark)(&format!("{WRITE_MARK}{number}, to {name}, has returned"));
                }
            }
        }
    }
}

/// What is remembered of a request under way.
enum Noted {
    Nothing,
    Flush(u64),
    Blocks { first: u64, last: u64, submitted: u64, is_durable: bool },
}

struct Watched {
    below: Arc<dyn Driver>,
    history: Arc<BlockHistory>,
}

impl Driver for Watched {
    fn objects(&self) -> &[ObjectInfo] {
        self.below.objects()
    }

    fn open(&self, runtime: &Runtime) -> Result<Vec<Rc<dyn Queue>>> {
        let watched = |(object, below): (usize, Rc<dyn Queue>)| -> Rc<dyn Queue> {
            Rc::new(WatchedQueue { below, object, history: Arc::clone(&self.history) })
        };
        Ok(self.below.open(runtime)?.into_iter().enumerate().map(watched).collect())
    }

    fn shared(&self) -> Arc<dyn Driver> {
        Arc::new(Self { below: self.below.shared(), history: Arc::clone(&self.history) })
    }

    fn holds_threads(&self) -> bool {
        self.below.holds_threads()
    }

    fn check(&self) -> Result<()> {
        self.below.check()
    }

    fn close(&self, phase: Phase, on: RunOn<'_>) -> Result<()> {
        self.below.close(phase, on)
    }
}

struct WatchedQueue {
    below: Rc<dyn Queue>,
    object: usize,
    history: Arc<BlockHistory>,
}

impl Queue for WatchedQueue {
    fn submit(&self, request: Request) -> Submission {
        let noted = self.history.begins(self.object, &request);
        let (history, object) = (Arc::clone(&self.history), self.object);
        let submission = self.below.submit(request);
        Submission::pending(async move {
            let completion = submission.await;
            history.ends(object, &noted, &completion);
            completion
        })
    }
}

/// Sectors that a disk which never tears a write inside so many bytes keeps together in each block.
fn unit_sectors(unit_bytes: u64) -> usize {
    (unit_bytes.min(BLOCK_BYTES as u64) as usize / SECTOR_BYTES).max(1)
}

/// Tells the first of many findings, and how many more there are.
fn shortened(mut findings: Vec<Finding>) -> Vec<Finding> {
    let more = findings.len().saturating_sub(FINDINGS_MAX);
    findings.truncate(FINDINGS_MAX);
    if more > 0 {
        let kind = findings[0].kind.clone();
        findings.push(Finding::new(kind, format!("and {more} more blocks")));
    }
    findings
}

/// Looks at the files of a mounted state.
pub(super) struct BlockOracle {
    history: Arc<BlockHistory>,
    unit_sectors: usize,
}

impl Oracle for BlockOracle {
    fn look(&mut self, mountpoint: &Path, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        let inner = self.history.inner.lock();
        let mut findings = Vec::new();
        for (object, info) in self.history.objects.iter().enumerate() {
            let promised = BlockHistory::promised(&inner, object, crash);
            match File::open(mountpoint.join(&info.name)) {
                Err(error) if error.kind() == IoKind::NotFound => {
                    let words = format!("{} is not there, and was before the load began", info.name);
                    findings.push(Finding::new("lost name", words));
                }
                Err(error) => {
                    findings
                        .push(Finding::new("unreadable", format!("{} cannot be opened: {error}", info.name)));
                }
                Ok(file) => self.look_at(&inner, (object, info), &file, promised, &mut findings),
            }
        }
        Ok(shortened(findings))
    }
}

impl BlockOracle {
    fn look_at(
        &self,
        inner: &Inner,
        (object, info): (usize, &ObjectInfo),
        file: &File,
        promised: Promised,
        findings: &mut Vec<Finding>,
    ) {
        let mut bytes = vec![0; BLOCK_BYTES];
        for block in 0..info.size_bytes / BLOCK_BYTES as u64 {
            let mut filled = 0;
            while filled < BLOCK_BYTES {
                match file.read_at(&mut bytes[filled..], block * BLOCK_BYTES as u64 + filled as u64) {
                    // What lies behind the end of a file that is shorter holds nothing.
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == IoKind::Interrupted => {}
                    Err(error) => {
                        let words = format!("{} block {block} cannot be read: {error}", info.name);
                        findings.push(Finding::new("unreadable", words));
                        return;
                    }
                }
            }
            bytes[filled..].fill(0);
            let at = (object, block);
            findings.extend(self.history.find(inner, at, (&bytes, &BLANK), promised, self.unit_sectors));
        }
    }
}
