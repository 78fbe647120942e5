//! Looking at every block of every file as the disk has it.

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::clock;
use crate::copies::Survey;
use crate::counts::add;
use crate::file::{GuardedFile, blocks_of};
use crate::journal::What;
use crate::live::flag;
use crate::store::Store;
use crate::sum::{BLOCK, BLOCK_U64};
use crate::take::Standing;
use crate::walk::{FoundFile, files_below, open_to_read};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Places that a report names one by one.
const PLACES_MAX: usize = 10_000;
/// Chunks of a large file that are read at the same time.
const BUFFERS: usize = 3;

/// How to check.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// Bytes a second at most.
    pub rate_max: Option<u64>,
    /// Threads; 0 is one.
    pub threads: usize,
}

/// How far it has come.
#[derive(Debug, Default)]
pub struct CheckProgress {
    /// Files that are done.
    pub files: AtomicUsize,
    /// All.
    pub files_in_all: AtomicUsize,
    /// Bytes that were read.
    pub bytes: AtomicU64,
    /// Blocks that are wrong.
    pub rotten: AtomicU64,
}

/// A block, by its file and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BlockPlace {
    /// Below the guarded directory.
    pub file: String,
    /// Counted from 0.
    pub block: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Files that were looked at.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Blocks that verified, or were mended.
    pub blocks: u64,
    /// Blocks that cannot be trusted, the first of them.
    pub rotten: Vec<BlockPlace>,
    /// How many.
    pub rotten_count: u64,
    /// Blocks that were mended from the cache or the mirror, the first of them.
    pub repaired: Vec<BlockPlace>,
    /// How many.
    pub repaired_count: u64,
    /// Blocks that a crash had left half written, and that were taken in as they were found.
    pub torn: u64,
    /// Blocks of which the copies of a volume were to be looked at, and could not: they have no place of their own on it.
    pub copies_unseen: u64,
    /// Files that were changed behind the guard's back.
    pub foreign: Vec<String>,
    /// Blocks of those files that are not what the guard knows; whether they were changed or rotted, nobody can tell.
    pub foreign_blocks: u64,
    /// Files that were never taken in.
    pub unguarded: Vec<String>,
    /// Files that could not be read, and why.
    pub failed: Vec<(String, String)>,
    /// Tables of files that are gone, which were removed.
    pub tables_removed: u64,
    /// All files were looked at.
    pub is_complete: bool,
}

impl CheckReport {
    /// Whether every block of every file is vouched for.
    pub fn is_clean(&self) -> bool {
        self.rotten_count == 0
            && self.foreign.is_empty()
            && self.unguarded.is_empty()
            && self.failed.is_empty()
    }
}

/// Memory that direct I/O takes.
struct AlignedBuffer(Vec<u8>, usize);

impl AlignedBuffer {
    fn new() -> Self {
        let bytes = vec![0; CHUNK + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self(bytes, start)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + CHUNK]
    }
}

/// What came of a block.
enum Scrubbed {
    Right,
    Repaired,
    Rotten,
    Unvouched,
}

impl GuardedFile {
    /// Whether a block as the disk had it is right, and stayed so: `None` if that must be asked with the lock.
    pub(crate) fn is_right(&self, block: u64, data: &[u8]) -> Option<bool> {
        let entry = self.live.entry(block)?;
        let sequence = entry.sequence.load(Ordering::Acquire);
        let flags = entry.flags.load(Ordering::Acquire);
        if sequence & 1 == 1 || flags & flag::LOADED == 0 || flags & (flag::DIRTY | flag::DOUBTFUL) != 0 {
            return None;
        }
        if flags & flag::KNOWN == 0 {
            return Some(false);
        }
        let fits = self.fits(entry, data);
        fence(Ordering::Acquire);
        (fits && entry.sequence.load(Ordering::Relaxed) == sequence).then(|| {
            add(&self.store.counts.strong, 1);
            entry.verified.store(clock::seconds(), Ordering::Relaxed);
            true
        })
    }

    /// A block that did not verify at first, with the lock of writers.
    fn scrub(&self, block: u64) -> Result<Scrubbed> {
        let _lock = self.lock_writers()?;
        let size = self.size();
        let place = block * BLOCK_U64;
        if place >= size {
            return Ok(Scrubbed::Right);
        }
        self.ensure(block)?;
        let entry = self.live.at(block);
        let flags = entry.flags.load(Ordering::Acquire);
        if flags & flag::KNOWN == 0 {
            return Ok(Scrubbed::Unvouched);
        }
        let mut data = [0; BLOCK];
        let data = &mut data[..BLOCK_U64.min(size - place) as usize];
        let counts = &self.store.counts;
        if flags & flag::DIRTY == 0 && self.read_past_cache(place, data) && self.fits(entry, data) {
            if flags & (flag::DOUBTFUL | flag::ROTTEN) != 0 {
                // Its page of the table was damaged, or it was wrong before: now it is known to be right.
                entry.flags.fetch_and(!(flag::DOUBTFUL | flag::ROTTEN), Ordering::AcqRel);
                entry.flags.fetch_or(flag::DIRTY, Ordering::AcqRel);
                self.live.head().set_dirty(self.live.region_of(block));
            }
            entry.verified.store(clock::seconds(), Ordering::Relaxed);
            return Ok(Scrubbed::Right);
        }
        // The disk is wrong, or does not have it yet. The cache may be right.
        let is_read = self.file.read_exact_at(data, place).is_ok();
        if is_read && self.fits(entry, data) {
            if flags & flag::DIRTY != 0 {
                return Ok(Scrubbed::Right);
            }
            let is_mended =
                self.put_back(place, data) && self.read_past_cache(place, &mut [0; BLOCK][..data.len()]);
            add(&counts.from_cache, 1);
            self.tell(What::RecoveredFromCache, block);
            return Ok(if is_mended { Scrubbed::Repaired } else { Scrubbed::Rotten });
        }
        match self.heal(block, data, is_read) {
            Ok(()) => Ok(Scrubbed::Repaired),
            Err(_) => Ok(Scrubbed::Rotten),
        }
    }

    /// Verifies every block as the disk has it. `tell` hears of the bytes that were read, and says whether to go on.
    fn check(
        &self,
        buffers: &mut [AlignedBuffer; BUFFERS],
        tell: &mut dyn FnMut(u64) -> bool,
        found: &mut FileFindings,
    ) -> Result<()> {
        let copies = self.store.copies();
        let mut survey = copies.as_ref().map(|copies| copies.survey(&self.file)).transpose()?;
        if self.size() <= BUFFERS as u64 * CHUNK as u64 {
            let mut at = 0;
            while at < self.size() {
                let read = self.read_chunk(buffers[0].bytes(), at);
                let length = self.check_chunk(buffers[0].bytes(), read, at, survey.as_mut(), found)?;
                at += length;
                if !tell(length) {
                    return Ok(());
                }
            }
            return Ok(());
        }
        self.check_large(buffers, tell, survey, found)
    }

    /// The same, with the disk at work on the next chunks while one is verified.
    fn check_large(
        &self,
        buffers: &mut [AlignedBuffer; BUFFERS],
        tell: &mut dyn FnMut(u64) -> bool,
        mut survey: Option<Survey<'_>>,
        found: &mut FileFindings,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let readers: Vec<_> = buffers
                .iter_mut()
                .map(|buffer| {
                    let (wants, wanted) = channel::<(&mut AlignedBuffer, u64)>();
                    let (gives, given) = channel();
                    scope.spawn(move || {
                        for (buffer, at) in wanted {
                            let read = self.read_chunk(buffer.bytes(), at);
                            if gives.send((buffer, read)).is_err() {
                                break;
                            }
                        }
                    });
                    (wants, given, buffer)
                })
                .collect();
            let mut places = (0..).map(|number| number * CHUNK as u64);
            let mut waiting = VecDeque::new();
            for (wants, given, buffer) in readers {
                let at = places.next().unwrap_or(0);
                let _ = wants.send((buffer, at));
                waiting.push_back((wants, given, at));
            }
            while let Some((wants, given, at)) = waiting.pop_front() {
                let Ok((buffer, read)) = given.recv() else {
                    return Err(Error::new(
                        ErrorKind::Internal,
                        "a thread that reads for the check has ended",
                    ));
                };
                if at >= self.size() {
                    break;
                }
                let length = self.check_chunk(buffer.bytes(), read, at, survey.as_mut(), found)?;
                if !tell(length) {
                    break;
                }
                let next = places.next().unwrap_or(0);
                let _ = wants.send((buffer, next));
                waiting.push_back((wants, given, next));
            }
            Ok(())
        })
    }

    /// Bytes of a chunk as the disk has them, and how many there are.
    fn read_chunk(&self, bytes: &mut [u8], at: u64) -> usize {
        match self.direct().and_then(|direct| direct.read_at(bytes, at).ok()) {
            Some(count) => count,
            None => self.file.read_at(bytes, at).unwrap_or(0),
        }
    }

    /// Verifies a chunk of which so many bytes were read, and says how long it is.
    fn check_chunk(
        &self,
        bytes: &[u8],
        read: usize,
        at: u64,
        survey: Option<&mut Survey<'_>>,
        found: &mut FileFindings,
    ) -> Result<u64> {
        let length = CHUNK.min(usize::try_from(self.size().saturating_sub(at)).unwrap_or(CHUNK));
        let blocks = at / BLOCK_U64..blocks_of(at + length as u64);
        for (number, block) in blocks.clone().enumerate() {
            if self
                .live
                .entry(block)
                .is_none_or(|entry| entry.flags.load(Ordering::Acquire) & flag::LOADED == 0)
            {
                let _lock = self.lock_writers()?;
                self.ensure(block)?;
            }
            let (from, to) = (number * BLOCK, length.min((number + 1) * BLOCK));
            let is_right = (to <= read).then(|| self.is_right(block, &bytes[from..to])).flatten();
            let scrubbed = match is_right {
                Some(true) => Scrubbed::Right,
                Some(false) => Scrubbed::Unvouched,
                None => self.scrub(block)?,
            };
            match scrubbed {
                Scrubbed::Right => found.blocks += 1,
                Scrubbed::Repaired => {
                    found.blocks += 1;
                    found.repaired.push(block);
                }
                Scrubbed::Rotten => found.rotten.push(block),
                Scrubbed::Unvouched => found.unvouched += 1,
            }
        }
        if let Some(survey) = survey {
            self.check_copies(survey, blocks.clone(), found)?;
        }
        let _syncing = self.lock_syncers();
        let _lock = self.lock_writers()?;
        self.forget(blocks);
        Ok(length as u64)
    }
}

/// What was found in one file.
#[derive(Default)]
pub(crate) struct FileFindings {
    pub(crate) blocks: u64,
    pub(crate) rotten: Vec<u64>,
    pub(crate) repaired: Vec<u64>,
    unvouched: u64,
    pub(crate) copies_unseen: u64,
}

/// Lets through so many bytes a second.
struct Rate {
    began: Instant,
    rate_max: Option<u64>,
    passed: AtomicU64,
}

impl Rate {
    fn pass(&self, bytes: u64, stop: &AtomicBool) {
        let passed = self.passed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(rate) = self.rate_max else { return };
        let due = Duration::from_secs_f64(passed as f64 / rate.max(1) as f64);
        while let Some(rest) = due.checked_sub(self.began.elapsed())
            && !stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(rest.min(Duration::from_millis(100)));
        }
    }
}

/// Checks the files below `from`. What can be mended is mended; see [`crate::store::Core::set_mirror`]. Tables of files that are gone are
/// removed if all of the directory was looked at.
pub fn check(
    store: &Arc<Store>,
    from: &[PathBuf],
    options: CheckOptions,
    progress: &CheckProgress,
    stop: &AtomicBool,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut files = Vec::new();
    for path in from {
        let (found, failed) = files_below(store, path);
        files.extend(found);
        report
            .failed
            .extend(failed.into_iter().map(|(path, error)| (shown(store, &path), error.to_string())));
    }
    progress.files_in_all.store(files.len(), Ordering::Relaxed);
    let torn_before = store.counts.now().torn;
    let next = AtomicUsize::new(0);
    let rate = Rate { began: Instant::now(), rate_max: options.rate_max, passed: AtomicU64::new(0) };
    let all = Mutex::new(report);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.threads.max(1))
            .map(|_| scope.spawn(|| work(store, &files, &next, &rate, &all, progress, stop)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| Error::new(ErrorKind::Internal, "a thread that checked files panicked"))
        })
    })?;
    let mut report = all.into_inner();
    report.is_complete = !stop.load(Ordering::Relaxed);
    report.torn = store.counts.now().torn - torn_before;
    let is_all =
        report.is_complete && report.failed.is_empty() && from.iter().any(|path| path == store.root());
    if is_all {
        report.tables_removed = remove_orphans(store, &files)?;
    }
    for list in [&mut report.rotten, &mut report.repaired] {
        list.sort();
    }
    for list in [&mut report.foreign, &mut report.unguarded] {
        list.sort();
    }
    report.failed.sort();
    Ok(report)
}

fn shown(store: &Store, path: &std::path::Path) -> String {
    path.strip_prefix(store.root()).unwrap_or(path).to_string_lossy().into_owned()
}

fn work(
    store: &Arc<Store>,
    files: &[FoundFile],
    next: &AtomicUsize,
    rate: &Rate,
    all: &Mutex<CheckReport>,
    progress: &CheckProgress,
    stop: &AtomicBool,
) {
    let mut buffers = std::array::from_fn(|_| AlignedBuffer::new());
    while !stop.load(Ordering::Relaxed) {
        let Some(found) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
        let name = shown(store, &found.path);
        let mut findings = FileFindings::default();
        let mut bytes = 0;
        let opened = open_to_read(&found.path)
            .and_then(|file| GuardedFile::open(store, file.as_raw_fd(), false, &found.path));
        let checked = opened.and_then(|file| {
            let mut tell = |count| {
                bytes += count;
                progress.bytes.fetch_add(count, Ordering::Relaxed);
                rate.pass(count, stop);
                !stop.load(Ordering::Relaxed)
            };
            file.check(&mut buffers, &mut tell, &mut findings)?;
            if file.is_dirty() {
                // What fails here is in the error table and in the journal.
                let _ = file.sync(false);
            }
            file.settle()?;
            if findings.unvouched > 0 && file.standing() == Standing::Guarded {
                file.admit_unknown()?;
            }
            Ok(file.standing())
        });
        let mut foreign_blocks = 0;
        if matches!(checked, Ok(Standing::Foreign)) {
            foreign_blocks = findings.rotten.len() as u64;
            findings.rotten.clear();
        }
        progress.files.fetch_add(1, Ordering::Relaxed);
        progress.rotten.fetch_add(findings.rotten.len() as u64, Ordering::Relaxed);
        let mut report = all.lock();
        report.files += 1;
        report.bytes += bytes;
        report.blocks += findings.blocks;
        report.copies_unseen += findings.copies_unseen;
        report.foreign_blocks += foreign_blocks;
        report.rotten_count += findings.rotten.len() as u64;
        report.repaired_count += findings.repaired.len() as u64;
        let place = |block| BlockPlace { file: name.clone(), block };
        let room = PLACES_MAX.saturating_sub(report.rotten.len());
        report.rotten.extend(findings.rotten.into_iter().take(room).map(place));
        let room = PLACES_MAX.saturating_sub(report.repaired.len());
        report.repaired.extend(findings.repaired.into_iter().take(room).map(place));
        match checked {
            Ok(Standing::Foreign) => report.foreign.push(name),
            Ok(Standing::Unknown) => report.unguarded.push(name),
            Ok(Standing::Guarded) => {}
            Err(error) => report.failed.push((name, error.to_string())),
        }
    }
}

/// Removes tables whose files are gone: files that were deleted behind the guard's back, or had nobody left who lived when they were. `seen` are
/// those that were found a while ago: one that was moved meanwhile may be missed by one look.
fn remove_orphans(store: &Arc<Store>, seen: &[FoundFile]) -> Result<u64> {
    let known: Vec<u64> = crate::status::known_inodes(store)?;
    store.let_go(Duration::ZERO);
    // Looked for after the tables, so that a file which is made meanwhile is not taken for gone.
    let (files, failed) = files_below(store, store.root());
    if !failed.is_empty() {
        return Ok(0);
    }
    let there: HashSet<u64> = files.iter().chain(seen).map(|file| file.inode).collect();
    for inode in store.live_inodes().into_iter().filter(|inode| !there.contains(inode)) {
        store.free_room(inode)?;
    }
    let live: HashSet<u64> = store.live_inodes().into_iter().collect();
    let mut removed = 0;
    for inode in known.into_iter().filter(|inode| !there.contains(inode) && !live.contains(inode)) {
        store
            .arena
            .with(inode, |is_open| if is_open { Ok(()) } else { store.forget_sums(inode, |_| true) })?;
        removed += 1;
    }
    Ok(removed)
}
