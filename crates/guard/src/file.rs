//! A guarded file that is open: found by its inode, attached to the table in memory that all processes share.
//!
//! What it does is in [`crate::read`], [`crate::write`], [`crate::sync`] and [`crate::heal`].

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::clock;
use crate::format::{Entry, EntryPage, Header, Pair, REGIONS};
use crate::live::{Live, flag, has_bit, state};
use crate::lock::{SharedGuard, lock_file};
use crate::opened::OpenTable;
use crate::stat::{Stat, keep, reopen, same};
use crate::store::{Core, Store};
use crate::sum::BLOCK_U64;
use crate::table::{Found, Table};
use crate::view::View;

/// The smallest region of which is marked that it is being changed.
const REGION_SHIFT_MIN: u32 = 20;

/// See the head of the module.
pub struct GuardedFile {
    pub(crate) store: Arc<Core>,
    pub(crate) pair: Pair,
    pub(crate) inode: u64,
    pub(crate) birth: crate::format::Moment,
    pub(crate) file: File,
    /// Whether `file` is to be written to as well; otherwise `writer` is, once somebody wants to.
    is_opened_to_write: bool,
    writer: OnceLock<File>,
    direct: OnceLock<Option<File>>,
    pub(crate) live: Live,
    /// What says that this process uses it: of its own after a fork, else the opening of the live table.
    attached: Mutex<Option<File>>,
    is_kept: AtomicBool,
    /// Somebody opened it for writing, and it is to be opened so once that is wanted.
    may_write: AtomicBool,
    /// Blocks that were last verified before this second are verified by their strong sums: [`clock::seconds`].
    pub(crate) since: AtomicU64,
    pub(crate) view: View,
    pub(crate) table: Table,
    pub(crate) opened: Mutex<Option<OpenTable>>,
    name: Mutex<String>,
}

impl std::fmt::Debug for GuardedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedFile").field("inode", &self.inode).finish_non_exhaustive()
    }
}

/// Blocks of so many bytes.
pub(crate) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_U64)
}

/// Whether what a descriptor stands for may be opened for writing by this process.
fn may_write(descriptor: RawFd) -> bool {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: an empty path means the descriptor.
    unsafe { libc::syscall(libc::SYS_faccessat2, descriptor, c"".as_ptr(), libc::W_OK, flags) == 0 }
}

impl GuardedFile {
    /// The guarded file that an open descriptor stands for; `O_PATH` will do. `name` is for people. With `writes` it can be
    /// written to.
    ///
    /// Fails with [`ErrorKind::Unsupported`] if it is no regular file on the file system of the guard.
    pub fn open(store: &Arc<Store>, descriptor: RawFd, writes: bool, name: &Path) -> Result<Arc<Self>> {
        let doing = || format!("opening {}", name.display());
        let stat = Stat::of(descriptor).doing(doing)?;
        if !stat.is_file() || stat.device != store.device() {
            let what = format!("{} is no file that this guard protects", name.display());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let store = store.core();
        let known = match store.known(stat.inode) {
            Some(known) => known,
            None => store.remember(&Arc::new(Self::attach(store, descriptor, writes, name)?)),
        };
        if known.size() != stat.size {
            known.notice_size()?;
        } else if known.is_kept.load(Ordering::Relaxed) && Arc::strong_count(&known) == 2 {
            known.open_again(stat)?;
        }
        if writes && !known.is_opened_to_write && known.writer.get().is_none() {
            if known.size() > 0 && may_write(descriptor) {
                // Many a file that may be written to is only read. Who writes has it opened for that.
                known.may_write.store(true, Ordering::Relaxed);
            } else {
                let writer =
                    reopen(descriptor, libc::O_RDWR).or_else(|_| same(descriptor, true)).doing(doing)?;
                let _ = known.writer.set(writer);
            }
        }
        // Who writes leaves the table behind when it is closed; who reads alone will often read again.
        if stat.links > 0 && !known.is_opened_to_write && known.writer.get().is_none() {
            store.kept.keep(&known);
        } else if known.is_kept.load(Ordering::Relaxed) {
            store.kept.let_go(stat.inode);
        }
        Ok(known)
    }

    fn attach(store: &Arc<Core>, descriptor: RawFd, writes: bool, name: &Path) -> Result<Self> {
        let doing = || format!("opening {}", name.display());
        // One opening for reading and writing, where there may be one.
        let is_new = writes && Stat::of(descriptor).is_ok_and(|stat| stat.size == 0);
        let both = if is_new { reopen(descriptor, libc::O_RDWR).ok() } else { None };
        let is_opened_to_write = both.is_some();
        let file = match both {
            Some(both) => both,
            None => reopen(descriptor, libc::O_RDONLY).or_else(|_| same(descriptor, false)).doing(doing)?,
        };
        // A file that fails to open is closed once others may open and close again.
        let (opened, filled) = store.exclusively(|| {
            // Looked at here: whoever closed it a moment ago may have written to it before.
            let stat = Stat::of(descriptor).doing(doing)?;
            let path = store.live_path(stat.inode);
            let shared = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o666)
                .open(&path)
                .doing(|| format!("opening {}", path.display()))?;
            let shared = keep(shared);
            lock_file(&shared, libc::LOCK_SH, doing)?;
            let live = Live::new(shared, blocks_of(stat.size))?;
            let name = name.strip_prefix(store.root()).unwrap_or(name);
            let opened = Self {
                pair: store.settings().pair,
                table: store.table(stat.inode),
                store: Arc::clone(store),
                inode: stat.inode,
                birth: stat.birth,
                file,
                is_opened_to_write,
                writer: OnceLock::new(),
                direct: OnceLock::new(),
                live,
                attached: Mutex::new(None),
                is_kept: AtomicBool::new(false),
                may_write: AtomicBool::new(false),
                since: AtomicU64::new(1),
                view: View::new(),
                opened: Mutex::new(None),
                name: Mutex::new(name.to_string_lossy().into_owned()),
            };
            let filled = if opened.live.is_ready() { Ok(()) } else { opened.fill_head(stat) };
            if filled.is_ok() {
                opened.live.set_ready();
            }
            Ok((opened, filled))
        })?;
        filled.map(|()| opened)
    }

    /// The file has another size than any guard gave it: somebody changed it behind the guard's back.
    fn notice_size(&self) -> Result<()> {
        let _lock = self.lock_writers()?;
        let head = self.live.head();
        let doing = || format!("looking at {}", self.name());
        let size = Stat::of(self.file.as_raw_fd()).doing(doing)?.size;
        let before = self.size();
        // A writer may have been under way when the size was first looked at.
        if size == before {
            return Ok(());
        }
        head.state.fetch_or(state::FOREIGN, Ordering::Relaxed);
        head.state.fetch_and(!state::COMPLETE, Ordering::Relaxed);
        let gone = self.live.touched(blocks_of(size.min(before))..blocks_of(before));
        for block in gone.into_iter().flatten() {
            let Some(entry) = self.live.entry(block) else { break };
            entry.flags.store(0, Ordering::Release);
        }
        head.size.store(size, Ordering::Release);
        Ok(())
    }

    /// It was kept attached while nobody had it open. So it may come from the disk again, and somebody may have changed it.
    fn open_again(&self, stat: Stat) -> Result<()> {
        let head = self.live.head();
        let modified = stat.modified_nanoseconds();
        let mut since = clock::seconds();
        if modified > head.written.load(Ordering::Relaxed) && modified != head.seen.load(Ordering::Relaxed) {
            let _lock = self.lock_writers()?;
            self.is_foreign();
            since += 1;
        }
        self.since.fetch_max(since, Ordering::Relaxed);
        Ok(())
    }

    /// Notes whether it is kept attached, and says whether it was.
    pub(crate) fn set_kept(&self, is_kept: bool) -> bool {
        self.is_kept.swap(is_kept, Ordering::Relaxed)
    }

    /// Looks up what the table on the disk says of the file as a whole.
    fn fill_head(&self, stat: Stat) -> Result<()> {
        let head = self.live.head();
        head.writers.prepare()?;
        head.syncers.prepare()?;
        head.size.store(stat.size, Ordering::Relaxed);
        head.seen.store(stat.modified_nanoseconds(), Ordering::Relaxed);
        head.mark_ahead.store(1, Ordering::Relaxed);
        let opened = self.table.open()?;
        let is_there = opened.is_some();
        let found = match opened {
            None => Found::Nothing,
            Some(file) => self.table.header(&file)?,
        };
        let guard = self.store.settings().id;
        let region_shift =
            REGION_SHIFT_MIN.max((stat.size / REGIONS as u64).checked_ilog2().map_or(0, |log| log + 1));
        head.region_shift.store(region_shift.into(), Ordering::Relaxed);
        match found {
            Found::Header(header) if header.birth == stat.birth && header.guard == guard => {
                self.take_header(&header, stat)
            }
            Found::Damaged(crate::format::Damage::Version(version)) => {
                let what = format!(
                    "{} was written by a newer Rotproof (format {version}); use that one",
                    self.table.path().display()
                );
                Err(Error::new(ErrorKind::Unsupported, what))
            }
            Found::Damaged(_) => {
                // The pages may still be read; what they say is believed as far as it fits.
                head.durable.store(stat.size, Ordering::Relaxed);
                Ok(())
            }
            Found::Header(_) | Found::Nothing => {
                // Of another file that once had this inode, or nothing: the file is new, or was never taken in.
                if is_there {
                    self.table.remove()?;
                }
                let is_new = stat.size == 0;
                head.state.store(if is_new { state::COMPLETE } else { 0 }, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn take_header(&self, header: &Header, stat: Stat) -> Result<()> {
        let head = self.live.head();
        head.generation.store(header.generation, Ordering::Relaxed);
        head.region_shift.store(header.region_shift.into(), Ordering::Relaxed);
        head.durable.store(header.size, Ordering::Relaxed);
        let mut bits = if header.is_complete { state::COMPLETE } else { 0 };
        let differs = header.size != stat.size || header.modified != stat.modified;
        let crashed = header.session != self.store.session();
        for (mark, word) in head.marked.iter().zip(header.regions.iter()) {
            mark.fetch_or(*word, Ordering::Relaxed);
        }
        if header.is_unsynced {
            bits |= state::UNSYNCED;
        }
        if header.is_foreign || (differs && !crashed) {
            bits |= state::FOREIGN;
        }
        head.state.store(bits, Ordering::Relaxed);
        if crashed {
            self.recover(header, stat, differs || header.is_unsynced)?;
        }
        Ok(())
    }

    /// Its inode.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.live.head().size.load(Ordering::Acquire)
    }

    /// Where it was last seen.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// The descriptor that is written to.
    pub(crate) fn writer(&self) -> std::io::Result<&File> {
        if self.is_opened_to_write {
            return Ok(&self.file);
        }
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        if !self.may_write.load(Ordering::Relaxed) {
            return Err(std::io::Error::from_raw_os_error(libc::EBADF));
        }
        let opened = reopen(self.file.as_raw_fd(), libc::O_RDWR)?;
        let writer = self.writer.get_or_init(|| opened);
        self.store.kept.let_go(self.inode);
        Ok(writer)
    }

    /// A descriptor past the cache, where the file system has that.
    pub(crate) fn direct(&self) -> Option<&File> {
        self.direct
            .get_or_init(|| reopen(self.file.as_raw_fd(), libc::O_RDONLY | libc::O_DIRECT).ok())
            .as_ref()
    }

    /// The lock of writers. If its last holder died, what it left half done is mended first.
    pub(crate) fn lock_writers(&self) -> Result<SharedGuard<'_>> {
        let lock = self.live.head().writers.lock();
        if lock.is_orphaned {
            self.mend_orphaned()?;
        }
        Ok(lock)
    }

    /// Fills the entries of the page of the table in which a block is. The caller holds the lock of writers.
    pub(crate) fn load(&self, block: u64) -> Result<()> {
        let per_page = self.pair.entries();
        let index = block / per_page;
        let head = self.live.head();
        let durable = blocks_of(head.durable.load(Ordering::Relaxed));
        let is_complete = head.state.load(Ordering::Relaxed) & state::COMPLETE != 0;
        let page = match self.table.open()? {
            Some(file) if index * per_page < durable => self.table.entries(&file, index)?,
            _ => EntryPage::Absent,
        };
        let absent = if is_complete { Entry::Zeros } else { Entry::Unknown };
        for (at, block) in (index * per_page..(index + 1) * per_page).enumerate() {
            let Some(entry) = self.live.entry(block) else { break };
            if entry.flags.load(Ordering::Acquire) & flag::LOADED != 0 {
                continue;
            }
            let (found, doubt) = match &page {
                _ if block >= durable => (absent, 0),
                EntryPage::Absent => (absent, 0),
                EntryPage::Whole(entries) => (entries[at], 0),
                EntryPage::Damaged(entries) => (entries[at], flag::DOUBTFUL),
            };
            let mut flags = flag::LOADED | doubt;
            if let Some(sums) = self.pair.sums_of(found) {
                entry.light.store(sums.light, Ordering::Relaxed);
                entry.set_strong(sums.strong);
                flags |= flag::KNOWN | flag::STRONG;
            }
            entry.verified.store(0, Ordering::Relaxed);
            entry.flags.store(flags, Ordering::Release);
        }
        Ok(())
    }

    /// [`GuardedFile::load`] if it was not done yet, and room for the block.
    pub(crate) fn ensure(&self, block: u64) -> Result<()> {
        self.live.make_room(block + 1)?;
        if self.live.at(block).flags.load(Ordering::Acquire) & flag::LOADED == 0 {
            self.load(block)?;
        }
        Ok(())
    }

    /// Whether a region is marked on the disk as being changed.
    pub(crate) fn is_marked(&self, region: usize) -> bool {
        has_bit(&self.live.head().marked, region)
    }

    /// See [`Store::in_child`].
    pub(crate) fn replace_attached(&self, again: File) {
        *self.attached.lock() = Some(keep(again));
    }

    /// Leaves the table on the disk as the last process leaves it.
    fn detach(&self) -> Result<()> {
        if self.is_dirty() && self.live.head().cut.load(Ordering::Relaxed) == 0 {
            // With others free to open and close; whatever comes of it, the last one looks again.
            let stat = Stat::of(self.file.as_raw_fd());
            if self.live.is_ready() && stat.is_ok_and(|stat| stat.links > 0) {
                let _ = self.store_unsynced();
            }
        }
        self.store.exclusively(|| {
            let attached = self.attached.lock();
            let attached = attached.as_ref().unwrap_or(self.live.file());
            let doing = || format!("closing {}", self.name());
            if !lock_file(attached, libc::LOCK_EX | libc::LOCK_NB, doing)? {
                return Ok(());
            }
            let stat = Stat::of(self.file.as_raw_fd()).doing(doing)?;
            let path = self.store.live_path(self.inode);
            if !self.live.is_ready() {
                // It failed to open; nothing is known of it.
            } else if stat.links == 0 {
                self.table.remove()?;
            } else if !self.leave(stat)? {
                // What is not on the disk yet stays in memory for whoever opens the file next.
                return Ok(());
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).doing(|| format!("removing {}", path.display()))
                }
                _ => Ok(()),
            }
        })
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        // What could not be left on the disk is still in memory, and nobody is here to be told.
        let _ = self.detach();
        // Said, and not left to closing: a process that another thread starts at this moment has the opening too.
        let attached = self.attached.get_mut().as_ref().unwrap_or(self.live.file());
        let _ = lock_file(attached, libc::LOCK_UN, String::new);
    }
}
