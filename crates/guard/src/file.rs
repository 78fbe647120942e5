//! A guarded file that is open: found by its inode, attached to the table in memory that all processes share.
//!
//! What it does is in [`crate::read`], [`crate::write`], [`crate::sync`] and [`crate::heal`].

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::clock;
use crate::format::{Entry, EntryPage, Header, Pair, REGIONS};
use crate::home::{KnownAs, UNPROTECTED};
use crate::kept::Ticket;
use crate::live::{Live, flag, has_bit, marking, state};
use crate::opened::OpenTable;
use crate::stat::{Identity, Stat, reopen, same};
use crate::store::{Core, Store};
use crate::sum::BLOCK_U64;
use crate::table::Table;
use crate::view::View;

/// The smallest region of which is marked that it is being changed.
const REGION_SHIFT_MIN: u32 = 20;

/// See the head of the module.
pub struct GuardedFile {
    pub(crate) store: Arc<Core>,
    pub(crate) pair: Pair,
    pub(crate) inode: u64,
    pub(crate) identity: Identity,
    pub(crate) file: File,
    /// Whether `file` is to be written to as well; otherwise `writer` is, once somebody wants to.
    pub(crate) is_opened_to_write: bool,
    pub(crate) writer: OnceLock<File>,
    direct: OnceLock<Option<File>>,
    pub(crate) live: Live,
    ticket: Ticket,
    pub(crate) is_gone: AtomicBool,
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
        let stat = Stat::of(descriptor).doing(|| format!("opening {}", name.display()))?;
        Self::open_as(store, descriptor, &stat, writes, name)
    }

    /// [`GuardedFile::open`] for who has just looked what the descriptor stands for.
    pub fn open_as(
        store: &Arc<Store>,
        descriptor: RawFd,
        stat: &Stat,
        writes: bool,
        name: &Path,
    ) -> Result<Arc<Self>> {
        if !stat.is_file() || stat.device != store.device() {
            let what = format!("{} is no file that this guard protects", name.display());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let store = store.core();
        let known = match store.known(stat.inode) {
            Some(known) => known,
            None => store.remember(&Arc::new(Self::attach(store, descriptor, writes, name, *stat)?)),
        };
        known.join(descriptor, *stat, writes)
    }

    /// [`GuardedFile::open_as`] of a file that this process has open already, or keeps attached; `None` of others.
    pub fn open_known(
        store: &Arc<Store>,
        descriptor: RawFd,
        stat: &Stat,
        writes: bool,
    ) -> Option<Result<Arc<Self>>> {
        let known = (stat.device == store.device()).then(|| store.known(stat.inode))??;
        Some(known.join(descriptor, *stat, writes))
    }

    fn join(self: Arc<Self>, descriptor: RawFd, stat: Stat, writes: bool) -> Result<Arc<Self>> {
        let known = self;
        let store = Arc::clone(&known.store);
        let doing = || format!("opening {}", known.name());
        if known.size() != stat.size {
            known.notice_size()?;
        } else if known.ticket.is_kept() && Arc::strong_count(&known) == 2 {
            known.open_again(stat)?;
        }
        if writes && !known.is_opened_to_write && known.writer.get().is_none() {
            let may_write = known.may_write.load(Ordering::Relaxed) || may_write(descriptor);
            if known.size() > 0 && may_write {
                // Many a file that may be written to is only read. Who writes has it opened for that.
                known.may_write.store(true, Ordering::Relaxed);
            } else {
                let writer =
                    reopen(descriptor, libc::O_RDWR).or_else(|_| same(descriptor, true)).doing(doing)?;
                let _ = known.writer.set(writer);
            }
        }
        // Who writes leaves the sums behind when it is closed; who reads alone will often read again.
        if stat.links > 0 && !known.is_opened_to_write && known.writer.get().is_none() {
            store.kept.keep(&known);
        } else if known.ticket.is_kept() && !store.keeps_written() {
            store.kept.let_go(&known);
        }
        Ok(known)
    }

    fn attach(store: &Arc<Core>, descriptor: RawFd, writes: bool, name: &Path, stat: Stat) -> Result<Self> {
        let doing = || format!("opening {}", name.display());
        // One opening for reading and writing, where there may be one. Where files that were written stay attached, one that is to be
        // run must not be open for writing without need, and elsewhere none that may be read alone.
        let is_likely = stat.size == 0 || (store.keeps_written() && stat.mode & 0o111 == 0);
        let both = if writes && is_likely { reopen(descriptor, libc::O_RDWR).ok() } else { None };
        let is_opened_to_write = both.is_some();
        let file = match both {
            Some(both) => both,
            None => reopen(descriptor, libc::O_RDONLY).or_else(|_| same(descriptor, false)).doing(doing)?,
        };
        let identity = Identity::of(&file, &stat);
        let room = store.arena.claim(stat.inode, identity)?;
        let live = match Live::new(&store.arena, room, store.live_path(stat.inode)) {
            Ok(live) => live,
            Err(error) => {
                store.arena.leave(room, true, || ())?;
                return Err(error);
            }
        };
        let name = name.strip_prefix(store.root()).unwrap_or(name);
        let opened = Self {
            pair: store.settings().pair,
            table: store.table(stat.inode),
            store: Arc::clone(store),
            inode: stat.inode,
            identity,
            file,
            is_opened_to_write,
            writer: OnceLock::new(),
            direct: OnceLock::new(),
            live,
            ticket: Ticket::default(),
            is_gone: AtomicBool::new(false),
            may_write: AtomicBool::new(false),
            since: AtomicU64::new(1),
            view: View::new(),
            opened: Mutex::new(None),
            name: Mutex::new(name.to_string_lossy().into_owned()),
        };
        // Whoever leaves the file, and may be the last one, is waited for.
        let door = opened.live.head().door.lock();
        if !opened.live.is_ready() {
            opened.live.empty(door.is_orphaned)?;
            // Looked at here: whoever closed it a moment ago may have written to it before.
            let stat = Stat::of(descriptor).doing(doing)?;
            let filled = opened.make_room(blocks_of(stat.size)).and_then(|()| opened.fill_head(stat));
            if let Err(error) = filled {
                opened.live.set_left();
                drop(door);
                return Err(error);
            }
            opened.live.set_ready();
        }
        drop(door);
        Ok(opened)
    }

    /// Room in memory for so many blocks.
    pub(crate) fn make_room(&self, blocks: u64) -> Result<()> {
        self.live.make_room(&self.store.arena, blocks)
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
        if size < before && head.cut_to(size) {
            head.cut.store(1, Ordering::Relaxed);
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

    /// Its place among the files that are kept attached.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Looks up what the disk says of the file as a whole.
    fn fill_head(&self, stat: Stat) -> Result<()> {
        let head = self.live.head();
        head.size.store(stat.size, Ordering::Relaxed);
        head.seen.store(stat.modified_nanoseconds(), Ordering::Relaxed);
        head.mark_ahead.store(1, Ordering::Relaxed);
        head.set_durable(0);
        let region_shift =
            REGION_SHIFT_MIN.max((stat.size / REGIONS as u64).checked_ilog2().map_or(0, |log| log + 1));
        head.region_shift.store(region_shift.into(), Ordering::Relaxed);
        let known = if stat.is_newborn() { self.newborn() } else { self.look_up(&stat)? };
        self.set_home(known.home);
        match known.what {
            KnownAs::Table(header) if header.session != self.store.session() => {
                self.take_header(&*self.with_stamps(header)?, stat, false)
            }
            KnownAs::Table(header) => self.take_header(&header, stat, false),
            KnownAs::Record(record) => {
                self.protect(record.protected);
                self.take_size(record.header.size, &stat);
                let is_complete = if record.header.is_complete { state::COMPLETE } else { 0 };
                head.state.store(is_complete, Ordering::Relaxed);
                self.load_record(&record.entries, record.is_whole)?;
                self.take_header(&record.header, stat, !record.is_whole)
            }
            KnownAs::Damaged(entries) => {
                // What entries say is believed as far as it fits.
                head.set_durable(stat.size);
                head.protected.store(UNPROTECTED, Ordering::Relaxed);
                self.load_record(&entries, false)
            }
            KnownAs::Nothing => {
                let is_new = stat.size == 0;
                head.state.store(if is_new { state::COMPLETE } else { 0 }, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The disk says something of so many bytes. Whatever has taken those away that the file does not have, they are zeros if it
    /// grows again.
    fn take_size(&self, told: u64, stat: &Stat) {
        let head = self.live.head();
        head.set_durable(told.min(stat.size));
        if told > stat.size {
            head.cut.store(1, Ordering::Relaxed);
        }
    }

    fn take_header(&self, header: &Header, stat: Stat, is_torn: bool) -> Result<()> {
        let head = self.live.head();
        head.generation.store(header.generation, Ordering::Relaxed);
        head.region_shift.store(header.region_shift.into(), Ordering::Relaxed);
        self.take_size(header.size, &stat);
        let mut bits = if header.is_complete { state::COMPLETE } else { 0 };
        let is_told = |is_set: bool, bit| if is_set { bit } else { 0 };
        let told =
            bits | is_told(header.is_unsynced, state::UNSYNCED) | is_told(header.is_foreign, state::FOREIGN);
        head.told_state.store(told, Ordering::Relaxed);
        let differs = header.size != stat.size || header.modified != stat.modified;
        let crashed = header.session != self.store.session();
        for (mark, word) in head.marked.iter().zip(header.regions.iter()) {
            mark.fetch_or(*word, Ordering::Relaxed);
        }
        if header.is_unsynced {
            head.marking.fetch_or(marking::BY_SYNCER, Ordering::Relaxed);
            bits |= state::UNSYNCED;
        }
        if header.is_foreign || (differs && !crashed) {
            bits |= state::FOREIGN;
        }
        head.state.store(bits, Ordering::Relaxed);
        if crashed {
            self.recover(header, stat, differs || header.is_unsynced || is_torn)?;
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

    /// It was seen there.
    pub(crate) fn set_name(&self, name: &Path) {
        *self.name.lock() = name.to_string_lossy().into_owned();
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
        if !self.store.keeps_written() {
            self.store.kept.let_go(self);
        }
        Ok(writer)
    }

    /// A descriptor past the cache, where the file system has that.
    pub(crate) fn direct(&self) -> Option<&File> {
        self.direct
            .get_or_init(|| reopen(self.file.as_raw_fd(), libc::O_RDONLY | libc::O_DIRECT).ok())
            .as_ref()
    }

    /// Fills the entries of the page of the table in which a block is. The caller holds the lock of writers.
    pub(crate) fn load(&self, block: u64) -> Result<()> {
        let per_page = self.pair.entries();
        let index = block / per_page;
        let stored = blocks_of(self.live.head().stored());
        if block >= stored {
            // The table says nothing of it, nor of what is behind it.
            self.fill_entries(block..(index + 1) * per_page, &EntryPage::Absent);
            return Ok(());
        }
        let page = if index * per_page < stored { self.page_on_disk(index)? } else { EntryPage::Absent };
        self.fill_entries(index * per_page..(index + 1) * per_page, &page);
        Ok(())
    }

    /// Fills the entries of blocks that nobody has looked up yet from what the disk says of them.
    pub(crate) fn fill_entries(&self, blocks: std::ops::Range<u64>, page: &EntryPage) {
        let head = self.live.head();
        let stored = blocks_of(head.stored());
        let is_complete = head.state.load(Ordering::Relaxed) & state::COMPLETE != 0;
        let absent = if is_complete { Entry::Zeros } else { Entry::Unknown };
        for (at, block) in blocks.enumerate() {
            let Some(entry) = self.live.entry(block) else { break };
            if entry.flags.load(Ordering::Acquire) & flag::LOADED != 0 {
                continue;
            }
            let (found, doubt) = match page {
                _ if block >= stored => (absent, 0),
                EntryPage::Absent => (absent, 0),
                EntryPage::Whole(entries) => (entries.get(at).copied().unwrap_or(absent), 0),
                EntryPage::Damaged(entries) => (entries.get(at).copied().unwrap_or(absent), flag::DOUBTFUL),
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
    }

    /// [`GuardedFile::load`] if it was not done yet, and room for the block.
    pub(crate) fn ensure(&self, block: u64) -> Result<()> {
        self.make_room(block + 1)?;
        if self.live.at(block).flags.load(Ordering::Acquire) & flag::LOADED == 0 {
            self.load(block)?;
        }
        Ok(())
    }

    /// Whether a region is marked on the disk as being changed.
    pub(crate) fn is_marked(&self, region: usize) -> bool {
        has_bit(&self.live.head().marked, region)
    }

    /// Leaves what is known on the disk if this is the last one who has the file open.
    fn detach(&self) -> Result<()> {
        let (arena, room) = (&self.store.arena, self.live.room());
        let door = self.live.head().door.lock();
        let is_last = arena.is_last(room)?;
        if !is_last
            && self.live.is_ready()
            && self.live.head().cut.load(Ordering::Relaxed) == 0
            && self.is_dirty()
        {
            // Others may stay for long.
            let _ = self.store_unsynced();
        }
        let is_left = is_last && (!self.live.is_ready() || self.leave_sums().unwrap_or(false));
        if is_left {
            self.live.set_left();
        }
        // What is not on the disk yet stays in memory for whoever opens the file next. Who waits at the door finds a room that was
        // left, and fills it anew.
        arena.leave(room, is_left, || drop(door)).map(drop)
    }

    /// Its last name was removed, as far as this process knows: it is not kept attached any more.
    pub(crate) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        self.store.forget_file(self.inode);
        // What could not be left on the disk is still in memory, and nobody is here to be told.
        let _ = self.detach();
    }
}
