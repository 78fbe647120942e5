//! Which directory is guarded, and which descriptors of this process are files of it.
//!
//! The table of descriptors only remembers what the kernel was asked for; whoever changes what a number stands for has it
//! forgotten.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rotproof_guard::clock::seconds;
use rotproof_guard::copies::VolumeCopies;
use rotproof_guard::fork::ForChild;
use rotproof_guard::stat::Stat;
use rotproof_guard::{GuardedFile, Outcome, Store};

use crate::raw;

/// Descriptors that the table has. Of larger numbers the kernel is asked each time.
const DESCRIPTORS: usize = 1 << 16;

/// What a number stands for.
mod kind {
    /// Nobody has asked yet.
    pub const UNKNOWN: u8 = 0;
    /// Nothing of the guard's.
    pub const PLAIN: u8 = 1;
    /// A file of the guard.
    pub const GUARDED: u8 = 2;
    /// One that the guard itself uses.
    pub const OURS: u8 = 3;
}

/// A descriptor that stands for a guarded file.
pub struct Open {
    /// The file.
    pub file: Arc<GuardedFile>,
    /// It may be read.
    pub reads: bool,
    /// It may be written.
    pub writes: bool,
    /// Every write goes to the end.
    pub appends: bool,
    /// Every write is made durable; `true`: its data only.
    pub syncs: Option<bool>,
    /// What the file system said when it was looked at.
    pub seen: Seen,
    /// Another descriptor of the same opening, for who makes every write durable.
    pub own: Arc<OnceLock<Option<OwnedFd>>>,
}

impl Open {
    /// A descriptor of the program's opening that no other thread can close or use for something else.
    pub fn own(&self, descriptor: c_int) -> Option<c_int> {
        let own = self.own.get_or_init(|| {
            let again = raw::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, floor().into());
            // SAFETY: a descriptor that was just made and belongs to nobody else.
            let again = (again >= 0).then(|| unsafe { OwnedFd::from_raw_fd(again) })?;
            set_ours(again.as_raw_fd(), true);
            let is_this = Stat::of(again.as_raw_fd()).is_ok_and(|stat| stat.inode == self.file.inode());
            is_this.then_some(again)
        });
        own.as_ref().map(AsRawFd::as_raw_fd)
    }
}

/// What the file system said of a file, and when.
#[derive(Clone, Copy)]
pub struct Seen {
    stat: Stat,
    second: u64,
    modes: u64,
}

/// How often this process has let somebody run a file.
static MODES: AtomicU64 = AtomicU64::new(0);

impl Seen {
    fn now(stat: Stat) -> Self {
        Self { stat, second: seconds(), modes: MODES.load(Ordering::Acquire) }
    }

    /// What was seen, unless this process has changed permissions since, or others had time to.
    fn still(&self) -> Option<Stat> {
        (self.modes == MODES.load(Ordering::Acquire) && self.second == seconds()).then_some(self.stat)
    }
}

/// Permissions have changed: what was seen of any file is not believed any more.
pub fn modes_have_changed() {
    MODES.fetch_add(1, Ordering::AcqRel);
}

struct Slot {
    kind: AtomicU8,
    /// The flags with which it was opened; -1 if nobody knows.
    flags: AtomicI32,
    open: Mutex<Option<Arc<Open>>>,
}

static TABLE: [Slot; DESCRIPTORS] = [const {
    Slot { kind: AtomicU8::new(kind::UNKNOWN), flags: AtomicI32::new(-1), open: Mutex::new(None) }
}; DESCRIPTORS];

impl Drop for Open {
    fn drop(&mut self) {
        // Sums are left on the disk with each descriptor that is closed, not only with the last one.
        if self.writes {
            self.file.rest(self.seen.still());
        }
    }
}

/// What `rotproof guard run` said.
struct Setting {
    root: PathBuf,
    folder: Option<PathBuf>,
    mirror: Option<PathBuf>,
    volume: Option<PathBuf>,
}

static SETTING: OnceLock<Setting> = OnceLock::new();
static STORE: Mutex<Option<Arc<Store>>> = Mutex::new(None);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Threads that are in the guard's code, and whether a fork waits for them.
static WITHIN: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in the guard's own code.
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs code of the guard: what it calls is the system's, no fork happens meanwhile, `errno` stays as it was. `None` if this
/// thread is inside already, or if the code panicked.
pub fn within<T>(act: impl FnOnce() -> T) -> Option<T> {
    if INSIDE.get() {
        return None;
    }
    let errno = raw::errno();
    INSIDE.set(true);
    enter();
    // What a panic leaves half done is in the tables in shared memory, where the next one mends it as after a death.
    let done = catch_unwind(AssertUnwindSafe(act));
    WITHIN.fetch_sub(1, Ordering::SeqCst);
    INSIDE.set(false);
    raw::set_errno(errno);
    done.ok()
}

fn enter() {
    loop {
        WITHIN.fetch_add(1, Ordering::SeqCst);
        if !FORKS.load(Ordering::SeqCst) {
            return;
        }
        WITHIN.fetch_sub(1, Ordering::SeqCst);
        std::thread::yield_now();
    }
}

/// Begins, with the environment that the process was given.
pub fn begin(environment: &dyn Fn(&CStr) -> Option<&'static CStr>) {
    let path = |name: &CStr| {
        environment(name)
            .filter(|text| !text.is_empty())
            .map(|text| PathBuf::from(OsStr::from_bytes(text.to_bytes())))
    };
    let Some(root) = path(c"ROTPROOF_GUARD_ROOT") else { return };
    let Ok(stat) = Stat::of_path(&root) else { return };
    DEVICE.store(stat.device, Ordering::Relaxed);
    let folder = path(c"ROTPROOF_GUARD_STORE");
    let (mirror, volume) = (path(c"ROTPROOF_GUARD_MIRROR"), path(c"ROTPROOF_GUARD_VOLUME"));
    let _ = SETTING.set(Setting { root, folder, mirror, volume });
    rotproof_guard::stat::keep_descriptors_from(floor());
    IS_ON.store(true, Ordering::Relaxed);
}

/// Above what programs use: three quarters of what they may have.
fn floor() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of this frame.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (limit.rlim_cur.min(DESCRIPTORS as u64) / 4 * 3) as c_int
}

/// Whether there is a guard at all.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The device of the guarded directory.
pub fn device() -> u64 {
    DEVICE.load(Ordering::Relaxed)
}

/// The guard, opened when it is first wanted. A program that works on guarded files of a guard that cannot be opened is
/// ended: it would go past the guard unseen.
pub fn store() -> Arc<Store> {
    let mut known = STORE.lock();
    if let Some(store) = &*known {
        return Arc::clone(store);
    }
    let setting = SETTING.get().expect("it is on");
    match Store::open(&setting.root, setting.folder.as_deref()) {
        Ok(store) => {
            store.set_mirror(setting.mirror.clone());
            store.set_copies(setting.volume.clone().map(VolumeCopies::new));
            store.keep_written();
            *known = Some(Arc::clone(&store));
            store
        }
        Err(error) => {
            let text = format!("rotproof guard run: {error}\n");
            // SAFETY: writes a text of this frame to standard error, and ends the process.
            unsafe {
                raw::call!(SYS_write, 2, text.as_ptr(), text.len());
                raw::call!(SYS_exit_group, 3);
            }
            unreachable!("the process has ended")
        }
    }
}

/// The guarded files that this process has open.
pub fn open_files() -> Vec<Arc<GuardedFile>> {
    let store = STORE.lock().clone();
    store.map_or_else(Vec::new, |store| store.open_files())
}

/// Lets go of a file that nobody has open, if it is kept attached.
pub fn let_go(inode: u64) {
    let store = STORE.lock().clone();
    if let Some(store) = store {
        store.let_go_of(inode);
    }
}

fn slot(descriptor: c_int) -> Option<&'static Slot> {
    usize::try_from(descriptor).ok().and_then(|number| TABLE.get(number))
}

/// What a descriptor is to the guard: a file of it, or nothing; or the `errno` with which what is done with it must fail, since
/// it is a file of the guard that cannot be guarded now.
pub fn guarded(descriptor: c_int) -> Result<Option<Arc<Open>>, c_int> {
    if !is_on() || is_inside() || descriptor < 0 {
        return Ok(None);
    }
    let Some(slot) = slot(descriptor) else {
        return within(|| look_at(descriptor)).unwrap_or(Err(libc::EIO));
    };
    match slot.kind.load(Ordering::Acquire) {
        kind::PLAIN | kind::OURS => Ok(None),
        kind::GUARDED => Ok(slot.open.lock().clone()),
        _ => within(|| {
            let found = look_at(descriptor)?;
            slot.open.lock().clone_from(&found);
            let kind = if found.is_some() { kind::GUARDED } else { kind::PLAIN };
            slot.kind.store(kind, Ordering::Release);
            Ok(found)
        })
        .unwrap_or(Err(libc::EIO)),
    }
}

/// Asks the kernel what a descriptor stands for.
fn look_at(descriptor: c_int) -> Result<Option<Arc<Open>>, c_int> {
    // What is no open descriptor fails in the system call.
    let Ok(stat) = Stat::of(descriptor) else { return Ok(None) };
    if !stat.is_file() || stat.device != device() {
        return Ok(None);
    }
    let remembered = slot(descriptor).map_or(-1, |slot| slot.flags.load(Ordering::Relaxed));
    let flags = if remembered >= 0 { remembered } else { raw::fcntl(descriptor, libc::F_GETFL, 0) };
    if flags < 0 || flags & libc::O_PATH != 0 {
        return Ok(None);
    }
    let mode = flags & libc::O_ACCMODE;
    let writes = mode != libc::O_RDONLY;
    // A file that is open already need not be asked where it is.
    let store = STORE.lock().clone();
    let known = store.and_then(|store| GuardedFile::open_known(&store, descriptor, &stat, writes));
    let opened = match known {
        Some(known) => known,
        None => {
            let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
            let name = link.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            if !is_below(&name) {
                return Ok(None);
            }
            let store = self::store();
            if name.starts_with(store.folder()) {
                return Ok(None);
            }
            GuardedFile::open_as(&store, descriptor, &stat, writes, &name)
        }
    };
    let file = opened.map_err(|error| {
        tell(&format!("{error}"));
        let source =
            std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
        source.and_then(std::io::Error::raw_os_error).unwrap_or(libc::EIO)
    })?;
    let syncs = match flags & libc::O_SYNC {
        libc::O_SYNC => Some(false),
        0 => None,
        _ => Some(true),
    };
    let appends = flags & libc::O_APPEND != 0;
    Ok(Some(Arc::new(Open {
        file,
        reads: mode != libc::O_WRONLY,
        writes,
        appends,
        syncs,
        seen: Seen::now(stat),
        own: Arc::default(),
    })))
}

/// Says something to whoever runs the program, on standard error.
pub fn tell(what: &str) {
    let text = format!("rotproof guard run: {what}\n");
    // SAFETY: writes a text of this frame.
    unsafe { raw::call!(SYS_write, 2, text.as_ptr(), text.len()) };
}

/// A number stands for something else now, or for nothing.
pub fn forget(descriptor: c_int) {
    let Some(slot) = slot(descriptor) else { return };
    slot.flags.store(-1, Ordering::Relaxed);
    let was = slot.kind.swap(kind::UNKNOWN, Ordering::AcqRel);
    if was == kind::GUARDED {
        // The file is closed outside of the lock of the slot.
        let open = slot.open.lock().take();
        within(|| drop(open));
    }
}

/// A number has come to stand for what was opened with these flags.
pub fn opened(descriptor: c_int, flags: c_int) {
    forget(descriptor);
    if let Some(slot) = slot(descriptor) {
        slot.flags.store(flags, Ordering::Relaxed);
    }
}

/// A descriptor was opened or closed by the guard itself.
pub fn set_ours(descriptor: c_int, is_ours: bool) {
    if let Some(slot) = slot(descriptor) {
        slot.kind.store(if is_ours { kind::OURS } else { kind::UNKNOWN }, Ordering::Release);
    }
}

/// Whether the guard itself uses a descriptor, which programs then do not have.
pub fn is_ours(descriptor: c_int) -> bool {
    slot(descriptor).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == kind::OURS)
}

/// The descriptors from `first` to `last` that are not as the kernel has them: to be forgotten, or kept.
pub fn known_between(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let last = (last as usize).min(DESCRIPTORS - 1);
    let numbers = first as usize..last.saturating_add(1).max(first as usize);
    numbers
        .filter(|number| {
            TABLE.get(*number).is_some_and(|slot| slot.kind.load(Ordering::Relaxed) != kind::UNKNOWN)
        })
        .map(|number| number as c_int)
}

/// The answer of a system call that the guard did, with `errno`.
pub fn answer(outcome: Option<Outcome<usize>>) -> isize {
    match outcome {
        Some(Ok(count)) => count as isize,
        Some(Err(trouble)) => raw::fail(trouble.errno()) as isize,
        // A panic: a defect, which must not look like data.
        None => raw::fail(libc::EIO) as isize,
    }
}

/// The same for one that gives nothing.
pub fn done(outcome: Option<Outcome<()>>) -> c_int {
    answer(outcome.map(|outcome| outcome.map(|()| 0))) as c_int
}

/// Everything is closed as far as the guard is concerned: tables are left as the last process leaves them.
pub fn leave() {
    within(|| {
        for slot in &TABLE {
            if slot.kind.load(Ordering::Relaxed) == kind::GUARDED {
                slot.kind.store(kind::UNKNOWN, Ordering::Relaxed);
                let open = slot.open.lock().take();
                drop(open);
            }
        }
        let store = STORE.lock().take();
        drop(store);
    });
}

/// What a child is to have, made before it.
static FOR_CHILD: Mutex<Option<ForChild>> = Mutex::new(None);

/// Before a fork: no thread is within the guard, and none comes in.
pub fn before_fork() {
    if !is_on() || is_inside() {
        return;
    }
    while FORKS.swap(true, Ordering::SeqCst) {
        std::thread::yield_now();
    }
    while WITHIN.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    INSIDE.set(true);
    let store = STORE.lock().clone();
    *FOR_CHILD.lock() = store.map(|store| store.before_fork());
}

/// After a fork, in the parent or in the child.
pub fn after_fork(is_child: bool) {
    if !is_on() || !FORKS.load(Ordering::SeqCst) {
        return;
    }
    let given = FOR_CHILD.lock().take();
    let store = STORE.lock().clone();
    match (is_child, store, given) {
        (true, Some(store), Some(given)) => store.in_child(given),
        (_, _, given) => drop(given),
    }
    INSIDE.set(false);
    FORKS.store(false, Ordering::SeqCst);
}

/// Whether a path is below the guarded directory, as it is written there.
pub fn is_below(path: &Path) -> bool {
    SETTING.get().is_some_and(|setting| path.starts_with(&setting.root))
}
