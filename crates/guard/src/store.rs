//! The folder of a guard: its settings, its tables, and the session that processes share.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as IoKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::arena::Arena;
use crate::copies::VolumeCopies;
use crate::counts::{Counts, CountsNow};
use crate::file::GuardedFile;
use crate::format::{Header, Moment, PAGE, Pair, Settings, VERSION};
use crate::journal::Journal;
use crate::kept::Kept;
use crate::lock::lock_file;
use crate::record::Class;
use crate::session::{SESSION, Session, boot_id, join_session, random_id};
use crate::slots::Slots;
use crate::stat::keep;
use crate::sum::Algorithm;
use crate::table::{Found, Table};

/// The folder of a guard inside the directory, unless it is elsewhere.
pub const FOLDER: &str = ".rotproof-guard";

const SETTINGS: &str = "guard";
const SETTINGS_COPY: &str = "guard.copy";
const SESSION_LOCK: &str = "session.lock";
const TABLES: &str = "tables";
const JOURNAL: &str = "events";
const SLOTS: &str = "slots";

/// What a new guard is to be.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Its checksums.
    pub pair: Pair,
    /// See [`Settings::switch_seconds`].
    pub switch_seconds: Option<u32>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        let pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };
        Self { pair, switch_seconds: None }
    }
}

/// A guard that is open in this process. Files of it that are kept attached are let go with it.
pub struct Store(Arc<Core>);

impl std::ops::Deref for Store {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.0.kept.close();
    }
}

/// What a guard's files hold of it.
pub struct Core {
    root: PathBuf,
    folder: PathBuf,
    settings: Settings,
    device: u64,
    shared: PathBuf,
    session: [u8; 16],
    pub(crate) arena: Arena,
    pub(crate) slots: Slots,
    /// Held shared as long as this process uses the guard.
    alive: Mutex<File>,
    attach: Mutex<File>,
    files: RwLock<HashMap<u64, Weak<GuardedFile>>>,
    pub(crate) kept: Kept,
    mirror: Mutex<Option<PathBuf>>,
    copies: Mutex<Option<VolumeCopies>>,
    journal: Journal,
    is_end_to_end: AtomicBool,
    is_flushed_at_once: bool,
    leaves_out_marks: AtomicBool,
    keeps_written: AtomicBool,
    /// What was verified and what came of it, in this process.
    pub counts: Counts,
    /// How much of that is in the shared memory.
    counts_told: Mutex<CountsNow>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("root", &self.0.root).finish_non_exhaustive()
    }
}

impl Store {
    /// Makes the guard of `root`, in `folder` or inside of it. If there is one already, that one is opened. Its files are not
    /// taken in by this.
    pub fn init(root: &Path, folder: Option<&Path>, options: StoreOptions) -> Result<Arc<Self>> {
        let root = directory(root)?;
        let folder = folder.map_or_else(|| root.join(FOLDER), Path::to_owned);
        if options.pair.light.words() != 1 {
            let what = format!(
                "{} cannot be the light checksum; choose one of xor-64, crc32c, xxh3-64",
                options.pair.light
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        if folder.join(SETTINGS).exists() || folder.join(SETTINGS_COPY).exists() {
            let store = Self::open(&root, Some(&folder))?;
            if store.settings.pair != options.pair {
                let Pair { light, strong } = store.settings.pair;
                let what = format!(
                    "{} is guarded already, with {light} and {strong}; remove {} to begin anew",
                    root.display(),
                    folder.display()
                );
                return Err(Error::new(ErrorKind::Refused, what));
            }
            return Ok(store);
        }
        let doing = || format!("making the folder of the guard, {}", folder.display());
        std::fs::create_dir_all(folder.join(TABLES)).doing(doing)?;
        // Sums tell of data, so nobody reads them who may not read the directory.
        let mode = root.metadata().doing(doing)?.permissions().mode() & 0o777;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).doing(doing)?;
        let made = crate::clock::wall_nanoseconds() / 1_000_000_000;
        let settings = Settings {
            id: random_id()?,
            pair: options.pair,
            switch_seconds: options.switch_seconds,
            made,
            version: VERSION,
        };
        write_settings(&folder, &settings)?;
        Self::open(&root, Some(&folder))
    }

    /// Opens the guard of `root`, in `folder` or inside of it.
    ///
    /// Fails with [`ErrorKind::Missing`] if there is none, and with [`ErrorKind::Refused`] if others use it whose shared memory
    /// cannot be seen from here.
    pub fn open(root: &Path, folder: Option<&Path>) -> Result<Arc<Self>> {
        crate::fault::prepare()?;
        let root = directory(root)?;
        let folder = folder.map_or_else(|| root.join(FOLDER), Path::to_owned);
        read_settings(&root, &folder)?;
        let doing = || format!("opening the guard in {}", folder.display());
        let device = root.metadata().doing(doing)?.dev();
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(folder.join(name)).doing(doing)
        };
        let (attach, mut alive) = (open(SESSION_LOCK)?, open(SESSION)?);
        lock_file(&attach, libc::LOCK_EX, doing)?;
        let mut settings = read_settings(&root, &folder)?;
        let is_old = settings.version < VERSION;
        let (session, shared) = join_session(&folder, &mut alive, is_old)?;
        if is_old {
            // Before any slot is written, which an older Rotproof would not look at.
            settings.version = VERSION;
            write_settings(&folder, &settings)?;
        }
        let arena = Arena::join(&shared)?;
        lock_file(&attach, libc::LOCK_UN, doing)?;
        let is_beside = folder.metadata().doing(doing)?.dev() == device;
        let is_flushed_at_once = is_beside && crate::opened::is_flushed_at_once(&alive);
        Ok(Arc::new(Self(Arc::new(Core {
            is_flushed_at_once,
            kept: Kept::new(),
            journal: Journal::new(folder.join(JOURNAL)),
            slots: Slots::new(folder.join(SLOTS), settings.pair),
            arena,
            root,
            folder,
            settings,
            device,
            shared,
            session,
            alive: Mutex::new(keep(alive)),
            attach: Mutex::new(keep(attach)),
            files: RwLock::default(),
            mirror: Mutex::default(),
            copies: Mutex::default(),
            is_end_to_end: AtomicBool::new(false),
            leaves_out_marks: AtomicBool::new(false),
            keeps_written: AtomicBool::new(false),
            counts: Counts::default(),
            counts_told: Mutex::default(),
        }))))
    }

    /// As on a file system where one flush is for all files, for tests on any. Nobody else has the store yet.
    #[cfg(test)]
    pub(crate) fn flush_at_once(mut self: Arc<Self>) -> Arc<Self> {
        let core = Arc::get_mut(&mut self).and_then(|store| Arc::get_mut(&mut store.0));
        core.expect("nobody else has it").is_flushed_at_once = true;
        self
    }

    /// For the files of it.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

impl Core {
    /// The guarded directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the guard.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was settled when it was made.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The file system that the directory is on; files on others below it are not guarded.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Of this session: processes that share the tables in memory.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// Where damaged and mended blocks are written down.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// A second copy of the directory, of which blocks that went bad are taken.
    pub fn set_mirror(&self, mirror: Option<PathBuf>) {
        *self.mirror.lock() = mirror;
    }

    /// The volume on which the file system is: wrong blocks are taken from another of its copies, if that has the right sums.
    pub fn set_copies(&self, copies: Option<VolumeCopies>) {
        *self.copies.lock() = copies;
    }

    /// See [`crate::store::Core::set_copies`].
    pub fn copies(&self) -> Option<VolumeCopies> {
        self.copies.lock().clone()
    }

    /// See [`crate::store::Core::set_mirror`].
    pub fn mirror(&self) -> Option<PathBuf> {
        self.mirror.lock().clone()
    }

    /// From now on this process only does what an end-to-end checksum does, to compare: the writer's sum is kept as it is, and
    /// verified by readers. Nothing is verified before data become durable.
    ///
    /// Fails with [`ErrorKind::Invalid`] unless the light and the strong sum are the same.
    pub fn compare_end_to_end(&self) -> Result<()> {
        let Pair { light, strong } = self.settings.pair;
        if light != strong {
            let what = format!("an end-to-end checksum is one, and this guard has {light} and {strong}");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        self.is_end_to_end.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// From now on this process changes blocks in place without having marked their regions: the wrong order, of which crash
    /// tests show that they would see it. For nothing else.
    #[doc(hidden)]
    pub fn leave_out_marks(&self) {
        self.leaves_out_marks.store(true, Ordering::Relaxed);
    }

    /// Adds what this process has counted to what others see.
    pub fn tell_counts(&self) {
        let mut told = self.counts_told.lock();
        let now = self.counts.now();
        self.arena.counts().add(&now.since(&told));
        *told = now;
    }

    /// What was counted up to now is told by somebody else.
    pub(crate) fn own_counts_from_now(&self) {
        *self.counts_told.lock() = self.counts.now();
    }

    /// What all processes have counted since the guard was made: those that have ended, this one, and mounts up to some seconds ago.
    pub fn counts_of_all(&self) -> CountsNow {
        self.tell_counts();
        crate::counts::of_file(&self.folder).plus(&self.arena.counts().now())
    }

    /// From now on files that were written stay attached too when they are closed: whoever opened one calls
    /// [`GuardedFile::rest`] before it lets go of it.
    pub fn keep_written(&self) {
        self.keeps_written.store(true, Ordering::Relaxed);
    }

    pub(crate) fn keeps_written(&self) -> bool {
        self.keeps_written.load(Ordering::Relaxed)
    }

    pub(crate) fn leaves_out_marks(&self) -> bool {
        self.leaves_out_marks.load(Ordering::Relaxed)
    }

    /// Whether one flush makes data and their table durable, once the device has both.
    pub(crate) fn is_flushed_at_once(&self) -> bool {
        self.is_flushed_at_once
    }

    pub(crate) fn is_end_to_end(&self) -> bool {
        self.is_end_to_end.load(Ordering::Relaxed)
    }

    /// The folder of all tables.
    pub fn tables(&self) -> PathBuf {
        self.folder.join(TABLES)
    }

    /// The table of an inode.
    pub fn table(&self, inode: u64) -> Table {
        Table::new(&self.tables(), self.settings.pair, inode)
    }

    /// The file that has the slot of an inode for its sums, if it is small enough for one of this class, and where.
    pub fn slot(&self, class: Class, inode: u64) -> (PathBuf, u64) {
        (self.slots.path(class, inode), Slots::place(class, inode))
    }

    /// The folder of the memory that processes share.
    pub fn shared(&self) -> &Path {
        &self.shared
    }

    /// Where what is known in memory of a file's blocks lies for which its room in the arena is too small.
    pub fn live_path(&self, inode: u64) -> PathBuf {
        self.shared.join(format!("{inode:x}"))
    }

    /// Inodes of which something is in memory.
    pub fn live_inodes(&self) -> Vec<u64> {
        self.arena.inodes().unwrap_or_default()
    }

    /// Gives up what is in memory of a file that is gone, if nobody who lives has it open.
    pub(crate) fn free_room(&self, inode: u64) -> Result<()> {
        let further = self.live_path(inode);
        self.arena.free_dead(inode, || drop(std::fs::remove_file(further)))
    }

    /// Files that are open in this process.
    pub fn open_files(&self) -> Vec<Arc<GuardedFile>> {
        self.files.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Lets go of files that are kept attached though nobody has them open: all, or those that nobody has opened for so long.
    pub fn let_go(&self, idle: std::time::Duration) {
        self.kept.let_go_idle(idle);
    }

    /// Lets go of one file, if it is kept attached.
    pub fn let_go_of(&self, inode: u64) {
        if let Some(file) = self.known(inode) {
            self.kept.let_go(&file);
        }
    }

    /// The file of this inode if it is open in this process.
    pub fn known(&self, inode: u64) -> Option<Arc<GuardedFile>> {
        self.files.read().get(&inode).and_then(Weak::upgrade)
    }

    /// Remembers an open file. If another thread was first, that one's is given back.
    pub fn remember(&self, file: &Arc<GuardedFile>) -> Arc<GuardedFile> {
        let mut files = self.files.write();
        if let Some(known) = files.get(&file.inode()).and_then(Weak::upgrade) {
            return known;
        }
        files.insert(file.inode(), Arc::downgrade(file));
        Arc::clone(file)
    }

    /// Forgets a file that nobody has any more, unless it is open again.
    pub(crate) fn forget_file(&self, inode: u64) {
        let mut files = self.files.write();
        if files.get(&inode).is_some_and(|known| known.strong_count() == 0) {
            files.remove(&inode);
        }
    }

    /// The last name of a file is gone. If nobody has it open, its sums go too; otherwise the last one who closes it takes
    /// them away. `birth` is when its inode was born: if that has another life by now, nothing is taken from that one.
    pub fn deleted(&self, inode: u64, birth: Moment) -> Result<()> {
        if let Some(file) = self.known(inode) {
            // Whoever closes it last takes its sums away, which may be this.
            file.set_gone();
            self.kept.let_go(&file);
            return Ok(());
        }
        self.arena.with(inode, |is_open| {
            if is_open { Ok(()) } else { self.forget_sums(inode, |header| header.birth == birth) }
        })
    }

    /// Takes away what the disk says of an inode that has no room in memory, while nobody can give it one, or of a file that
    /// this process has for itself: all that `is_gone` says so of, and what cannot be read.
    pub(crate) fn forget_sums(&self, inode: u64, is_gone: impl Fn(&Header) -> bool) -> Result<()> {
        for class in Class::ALL {
            self.slots.clear(class, inode, &is_gone)?;
        }
        let table = self.table(inode);
        let Some(file) = table.open()? else { return Ok(()) };
        let is_other = matches!(table.header(&file)?, Found::Header(header) if !is_gone(&header));
        if is_other { Ok(()) } else { table.remove() }
    }
    /// In a child after `fork`: what was locked belongs to the parent too, so it is locked once more. Where the parent may
    /// close files before its child gets here, [`crate::store::Core::before_fork`] leaves no gap.
    pub fn after_fork(&self) {
        self.in_child(self.before_fork());
    }

    /// The locks of the session once more, for another process: that it lives, and that of opening and closing.
    pub(crate) fn another_session_lock(&self) -> Option<(File, File)> {
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(self.folder.join(name)).ok();
        let (alive, attach) = (open(SESSION)?, open(SESSION_LOCK)?);
        lock_file(&alive, libc::LOCK_SH, String::new).ok()?;
        Some((alive, attach))
    }

    pub(crate) fn replace_session_locks(&self, alive: File, attach: File) {
        *self.alive.lock() = keep(alive);
        *self.attach.lock() = keep(attach);
    }
}

fn directory(root: &Path) -> Result<PathBuf> {
    let doing = || format!("looking at {}", root.display());
    let root = root.canonicalize().doing(doing)?;
    if !root.metadata().doing(doing)?.is_dir() {
        let what = format!("{} is no directory; a guard is of a directory", root.display());
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(root)
}

/// The copy first, so that one of them is always whole.
fn write_settings(folder: &Path, settings: &Settings) -> Result<()> {
    let doing = || format!("writing the settings of the guard in {}", folder.display());
    for name in [SETTINGS_COPY, SETTINGS] {
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(false).open(folder.join(name)).doing(doing)?;
        file.write_all(&settings.to_page()).and_then(|()| file.sync_all()).doing(doing)?;
    }
    File::open(folder).and_then(|folder| folder.sync_all()).doing(doing)
}

fn read_settings(root: &Path, folder: &Path) -> Result<Settings> {
    let mut why = None;
    for name in [SETTINGS, SETTINGS_COPY] {
        let path = folder.join(name);
        let mut page = [0; PAGE];
        let read = File::open(&path).and_then(|mut file| file.read_exact(&mut page));
        match read {
            Ok(()) => match Settings::of_page(&page) {
                Ok(settings) => return Ok(settings),
                Err(damage) => why = Some(format!("{}: {damage}", path.display())),
            },
            Err(error) if error.kind() == IoKind::NotFound => {}
            Err(error) if error.kind() == IoKind::UnexpectedEof => {
                why = Some(format!("{} is too short", path.display()));
            }
            Err(error) => return Err(error).doing(|| format!("reading {}", path.display())),
        }
    }
    Err(match why {
        Some(why) => {
            Error::new(ErrorKind::Medium, format!("the settings of the guard cannot be read: {why}"))
        }
        None => Error::new(
            ErrorKind::Missing,
            format!("{} is not guarded; begin with `rotproof guard init {}`", root.display(), root.display()),
        ),
    })
}

impl Drop for Core {
    /// The last process takes the shared memory away, if nothing is left in it.
    fn drop(&mut self) {
        self.tell_counts();
        let (session, shared, alive) = (self.session, &self.shared, self.alive.get_mut());
        let attach = self.attach.get_mut();
        if !lock_file(attach, libc::LOCK_EX, String::new).unwrap_or(false) {
            return;
        }
        if lock_file(alive, libc::LOCK_EX | libc::LOCK_NB, String::new).unwrap_or(false)
            && self.arena.is_empty()
            && std::fs::remove_dir_all(shared).is_ok()
        {
            let all = crate::counts::of_file(&self.folder).plus(&self.arena.counts().now());
            if all != CountsNow::default() {
                let _ = crate::counts::write_file(&self.folder, &all);
            }
            // If that cannot be written, the next one begins a new session, which trusts less.
            let _ = Session { id: session, boot: boot_id(), is_empty: true }.write(alive);
        }
        // Said, and not left to closing: a process that another thread starts at this moment has the opening too.
        let _ = lock_file(alive, libc::LOCK_UN, String::new);
        let _ = lock_file(attach, libc::LOCK_UN, String::new);
    }
}

/// Lower case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        text
    })
}
