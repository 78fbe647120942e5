//! Taking in data as they are found: existing files when a guard begins, and what was changed behind its back.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::file::{GuardedFile, blocks_of};
use crate::home::Home;
use crate::live::{flag, state};
use crate::stat::Stat;
use crate::store::Store;
use crate::sum::{BLOCK, BLOCK_U64};
use crate::walk::{FoundFile, files_below, open_to_read};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Bytes of a file whose sums are in memory at once.
const STRETCH: u64 = 256 << 20;
/// Files that are made durable together, and their bytes.
const BATCH_FILES: usize = 256;
const BATCH_BYTES: u64 = 1 << 30;
/// Times that a file is read again because somebody changed it meanwhile.
const TRIES: usize = 3;

/// What a guard knows of a file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// All of it is vouched for.
    Guarded,
    /// It was never taken in, or not all of it.
    Unknown,
    /// It was changed behind the guard's back.
    Foreign,
}

/// Which files are taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeIn {
    /// Those that were never taken in: `init`.
    Unknown,
    /// Those too that were changed behind the guard's back: `accept`.
    Changed,
    /// All, whatever their sums say: `accept` of files that were named.
    All,
}

/// How far it has come.
#[derive(Debug, Default)]
pub struct TakeProgress {
    /// Files that are done.
    pub files: AtomicUsize,
    /// Bytes that were read.
    pub bytes: AtomicU64,
}

/// What was taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TakeReport {
    /// Files that were looked at.
    pub files: u64,
    /// Those that were taken in.
    pub taken_in: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that were changing all the time, and were not taken in.
    pub busy: Vec<String>,
    /// Those that could not be read, and why.
    pub failed: Vec<(String, String)>,
    /// All files were looked at.
    pub is_complete: bool,
}

impl GuardedFile {
    /// What is known of it as a whole.
    pub fn standing(&self) -> Standing {
        let bits = self.live.head().state.load(Ordering::Relaxed);
        if bits & state::FOREIGN != 0 {
            Standing::Foreign
        } else if bits & state::COMPLETE == 0 {
            Standing::Unknown
        } else {
            Standing::Guarded
        }
    }

    /// Takes the data as they are for right; with [`TakeIn::Unknown`] those alone that have no sums yet. False if somebody changed the file
    /// meanwhile, again and again. Not durable.
    pub fn take_in(&self, what: TakeIn, read: &AtomicU64) -> Result<bool> {
        (0..TRIES)
            .try_fold(false, |done, _| if done { Ok(true) } else { self.try_take_in(what, STRETCH, read) })
    }

    fn try_take_in(&self, what: TakeIn, stretch: u64, read: &AtomicU64) -> Result<bool> {
        let doing = || format!("reading {}", self.name());
        if self.is_disowned() {
            return Ok(false);
        }
        let before = Stat::of(self.file.as_raw_fd()).doing(doing)?;
        let head = self.live.head();
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        let mut kept_from = 0;
        while at < before.size {
            let length = CHUNK.min(usize::try_from(before.size - at).unwrap_or(CHUNK));
            let is_stored = at + length as u64 - kept_from >= stretch;
            let _syncing = is_stored.then(|| self.lock_syncers());
            let _lock = self.lock_writers()?;
            let count = self.file.read_at(&mut buffer[..length], at).doing(doing)?;
            if count < length {
                // It became shorter.
                return Ok(false);
            }
            self.make_room(blocks_of(at + length as u64))?;
            for (number, data) in buffer[..length].chunks(BLOCK).enumerate() {
                let block = at / BLOCK_U64 + number as u64;
                if what == TakeIn::Unknown {
                    self.ensure(block)?;
                    if self.live.at(block).flags.load(Ordering::Acquire) & flag::KNOWN != 0 {
                        continue;
                    }
                }
                self.adopt(block, data);
            }
            read.fetch_add(length as u64, Ordering::Relaxed);
            at += length as u64;
            if is_stored {
                self.store_stretch()?;
                self.forget(kept_from / BLOCK_U64..at / BLOCK_U64);
                kept_from = at;
            }
        }
        let _lock = self.lock_writers()?;
        let after = Stat::of(self.file.as_raw_fd()).doing(doing)?;
        // What guards wrote meanwhile has its sums; what others wrote has not.
        let is_foreign = after.modified != before.modified
            && after.modified_nanoseconds() > head.written.load(Ordering::Relaxed);
        if is_foreign || after.size < before.size {
            return Ok(false);
        }
        head.state.fetch_and(!state::FOREIGN, Ordering::Relaxed);
        head.state.fetch_or(state::COMPLETE, Ordering::Relaxed);
        head.seen.store(after.modified_nanoseconds(), Ordering::Relaxed);
        Ok(true)
    }

    /// Nobody vouches for some blocks of a file of which all is said to have sums: that is said no more, so that it is taken in again.
    pub(crate) fn admit_unknown(&self) -> Result<()> {
        let _syncing = self.lock_syncers();
        let _writers = self.lock_writers()?;
        self.live.head().state.fetch_and(!state::COMPLETE, Ordering::Relaxed);
        let stat = self.stat()?;
        match self.home() {
            Home::Nowhere => Ok(()),
            Home::Slot(class) => self.rewrite_record(class, stat),
            Home::Table => {
                let Some(file) = self.table.open()? else { return Ok(()) };
                self.table.write_header(&file, &self.named_header(self.size(), stat))
            }
        }
    }

    /// Lets go of the memory of entries that are in the table; they are looked up again when they are wanted. The caller holds the locks of syncers and writers: of who died while it wrote a table it is known then
    /// what is not in it.
    pub(crate) fn forget(&self, blocks: std::ops::Range<u64>) {
        let blocks = blocks.start..blocks.end.min(blocks_of(self.live.head().stored()));
        let is_clean = |block: &u64| {
            self.live
                .entry(*block)
                .is_some_and(|entry| entry.flags.load(Ordering::Acquire) & (flag::DIRTY | flag::ROTTEN) == 0)
        };
        if blocks.clone().all(|block| is_clean(&block)) {
            self.live.release(blocks);
        }
    }
}

/// Takes in the files below `from`, which is the guarded directory or inside of it, with so many threads. It is durable when
/// this returns; what was done before a `stop` is kept, and another call goes on from there.
pub fn take_in(
    store: &Arc<Store>,
    from: &[PathBuf],
    what: TakeIn,
    threads: usize,
    progress: &TakeProgress,
    stop: &AtomicBool,
) -> Result<TakeReport> {
    store.let_go(std::time::Duration::ZERO);
    let mut report = TakeReport::default();
    let mut files = Vec::new();
    for path in from {
        let (found, failed) = files_below(store, path);
        files.extend(found);
        report
            .failed
            .extend(failed.into_iter().map(|(path, error)| (shown(store, &path), error.to_string())));
    }
    let next = AtomicUsize::new(0);
    let all = Mutex::new(report);
    let outcome = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| scope.spawn(|| work(store, &files, what, &next, &all, progress, stop)))
            .collect();
        workers
            .into_iter()
            .map(|worker| {
                let panicked =
                    |_| Err(Error::new(ErrorKind::Internal, "a thread that took files in panicked"));
                worker.join().unwrap_or_else(panicked)
            })
            .fold(Ok(()), Result::and)
    });
    outcome?;
    let mut report = all.into_inner();
    report.is_complete = !stop.load(Ordering::Relaxed);
    report.busy.sort();
    report.failed.sort();
    Ok(report)
}

fn shown(store: &Store, path: &Path) -> String {
    path.strip_prefix(store.root()).unwrap_or(path).to_string_lossy().into_owned()
}

fn work(
    store: &Arc<Store>,
    files: &[FoundFile],
    what: TakeIn,
    next: &AtomicUsize,
    all: &Mutex<TakeReport>,
    progress: &TakeProgress,
    stop: &AtomicBool,
) -> Result<()> {
    let mut batch = Batch::new(store);
    while !stop.load(Ordering::Relaxed) {
        let Some(found) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
        let name = shown(store, &found.path);
        let taken = open_to_read(&found.path)
            .and_then(|file| GuardedFile::open(store, file.as_raw_fd(), false, &found.path))
            .and_then(|file| {
                let is_wanted = match (what, file.standing()) {
                    (TakeIn::All, _) | (_, Standing::Unknown) | (TakeIn::Changed, Standing::Foreign) => true,
                    (TakeIn::Unknown | TakeIn::Changed, _) => false,
                };
                if !is_wanted {
                    return Ok(Some(false));
                }
                // Of any other file what has sums is not believed to be right for that.
                let is_all = what == TakeIn::All || file.standing() == Standing::Foreign;
                let blocks = if is_all { TakeIn::All } else { TakeIn::Unknown };
                if !file.take_in(blocks, &progress.bytes)? {
                    return Ok(None);
                }
                batch.add(file)?;
                Ok(Some(true))
            });
        progress.files.fetch_add(1, Ordering::Relaxed);
        let mut report = all.lock();
        report.files += 1;
        match taken {
            Ok(Some(true)) => {
                report.taken_in += 1;
                report.bytes += found.size;
            }
            Ok(Some(false)) => {}
            Ok(None) => report.busy.push(name),
            Err(error) => report.failed.push((name, error.to_string())),
        }
    }
    batch.flush()
}

/// Files whose sums are written, to be made durable together.
struct Batch<'a> {
    store: &'a Store,
    /// Each with when it was written last.
    files: Vec<(Arc<GuardedFile>, u64)>,
    bytes: u64,
}

impl<'a> Batch<'a> {
    fn new(store: &'a Store) -> Self {
        Self { store, files: Vec::new(), bytes: 0 }
    }

    fn add(&mut self, file: Arc<GuardedFile>) -> Result<()> {
        let written = file.store_unsynced()?;
        self.bytes += file.size();
        self.files.push((file, written));
        if self.files.len() >= BATCH_FILES || self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Data and tables reach the disk, then the tables say so.
    fn flush(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        for folder in [self.store.root(), self.store.folder()] {
            sync_file_system(folder)?;
        }
        for (file, written) in self.files.drain(..) {
            file.store_synced(written)?;
        }
        self.bytes = 0;
        Ok(())
    }
}

/// Makes all of a file system durable.
pub(crate) fn sync_file_system(folder: &Path) -> Result<()> {
    let doing = || format!("syncing the file system of {}", folder.display());
    let file = std::fs::File::open(folder).doing(doing)?;
    // SAFETY: takes an open descriptor.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(doing),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::StoreOptions;
    use crate::check::{CheckOptions, CheckProgress, check};

    const BLOCKS: u64 = 5 * 256 + 100;

    fn open(store: &Arc<Store>) -> (File, Arc<GuardedFile>) {
        let path = store.root().join("file");
        let file = File::options().read(true).write(true).open(&path).expect("a file");
        let guarded = GuardedFile::open(store, file.as_raw_fd(), true, &path).expect("a guarded file");
        (file, guarded)
    }

    fn rig() -> (tempfile::TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().expect("a folder");
        let data: Vec<u8> = (0..BLOCKS).flat_map(|block| vec![(block % 250) as u8 + 1; BLOCK]).collect();
        std::fs::write(folder.path().join("file"), data).expect("written");
        let store = Store::init(folder.path(), None, StoreOptions::default()).expect("a guard");
        (folder, store)
    }

    fn unvouched(file: &GuardedFile) -> Vec<u64> {
        let _lock = file.lock_writers().expect("a lock");
        (0..BLOCKS)
            .filter(|block| {
                file.ensure(*block).expect("looked up");
                file.live.at(*block).flags.load(Ordering::Acquire) & flag::KNOWN == 0
            })
            .collect()
    }

    fn checked(store: &Arc<Store>) -> crate::check::CheckReport {
        let from = [store.root().to_owned()];
        let (progress, quiet) = (CheckProgress::default(), AtomicBool::new(false));
        check(store, &from, CheckOptions::default(), &progress, &quiet).expect("checked")
    }

    #[test]
    fn what_is_taken_in_in_stretches_is_whole_where_they_meet_in_a_page_of_sums() {
        let (_folder, store) = rig();
        let (_below, file) = open(&store);
        let taken = file.try_take_in(TakeIn::Unknown, 1 << 20, &AtomicU64::new(0)).expect("taken in");
        assert!(taken && file.live.at(300).flags.load(Ordering::Acquire) == 0, "let go of meanwhile");
        assert_eq!(unvouched(&file), [0u64; 0]);
        let written = file.store_unsynced().expect("stored");
        file.store_synced(written).expect("told");
        drop(file);
        store.let_go(std::time::Duration::ZERO);
        assert_eq!(unvouched(&open(&store).1), [0u64; 0]);
        assert!(checked(&store).is_clean());
    }

    #[test]
    fn sums_that_are_not_durable_are_not_let_go_of() {
        let (_folder, store) = rig();
        let (_below, file) = open(&store);
        file.take_in(TakeIn::Unknown, &AtomicU64::new(0)).expect("taken in");
        // As by another process that has closed it: nothing is dirty, and nothing is durable.
        file.store_unsynced().expect("stored");
        let lock = file.lock_writers().expect("a lock");
        file.forget(0..BLOCKS);
        drop(lock);
        assert_eq!(unvouched(&file), [0u64; 0]);
        let mut data = [0; BLOCK];
        assert!(matches!(file.read_at(&mut data, 700 * BLOCK_U64), Ok(BLOCK)) && data == [201; BLOCK]);
    }

    #[test]
    fn what_nobody_vouches_for_is_taken_in_after_a_check_and_what_is_rotten_is_not() {
        let (_folder, store) = rig();
        let all = |what| {
            let (progress, quiet) = (TakeProgress::default(), AtomicBool::new(false));
            take_in(&store, &[store.root().to_owned()], what, 1, &progress, &quiet)
                .expect("taken in")
                .taken_in
        };
        assert_eq!(all(TakeIn::Unknown), 1);
        let (below, file) = open(&store);
        let modified = Stat::of(below.as_raw_fd()).expect("there").modified;
        below.write_all_at(b"rotten", 9 * BLOCK_U64).expect("rotten");
        crate::stat::set_modified(&below, modified).expect("the time of before");
        // As an earlier version left it.
        let lock = file.lock_writers().expect("a lock");
        file.ensure(500).expect("looked up");
        file.live.at(500).flags.store(flag::LOADED | flag::DIRTY, Ordering::Release);
        file.live.head().set_dirty(file.live.region_of(500));
        drop(lock);
        drop((below, file));
        store.let_go(std::time::Duration::ZERO);
        assert_eq!(all(TakeIn::Changed), 0, "nobody knows of it yet");
        let report = checked(&store);
        assert_eq!((report.rotten_count, report.unguarded.len()), (1, 1), "{report:?}");
        assert_eq!(all(TakeIn::Changed), 1);
        let report = checked(&store);
        assert_eq!((report.rotten_count, report.unguarded.len()), (1, 0), "{report:?}");
    }
}
