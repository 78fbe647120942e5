//! What the kernel asks, one operation after the other.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rotproof_guard::stat::reopen;
use rotproof_guard::{GuardedFile, Store, Trouble};

use crate::MountOptions;
use crate::at::{self, AsUser};
use crate::handles::{Entry, Handle, Handles};
use crate::nodes::Nodes;

/// How long the kernel may believe that a name leads where it led.
const NAMES_FOR: Duration = Duration::from_secs(1);
/// And attributes: other doors change sizes, so it has to ask.
const ATTRIBUTES_FOR: Duration = Duration::ZERO;

thread_local! {
    /// What a read is made into.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system.
pub struct Guarded {
    store: Arc<Store>,
    options: MountOptions,
    nodes: Nodes,
    handles: Handles,
    hidden: Option<(u64, u64)>,
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

fn of_trouble(trouble: &Trouble) -> Errno {
    Errno::from_i32(trouble.errno())
}

/// An error of the guard as one of the system.
fn io_error(error: &rotproof_block::Error) -> io::Error {
    let code = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    io::Error::from_raw_os_error(code.unwrap_or(libc::EIO))
}

fn trouble_io(trouble: &Trouble) -> io::Error {
    io::Error::from_raw_os_error(trouble.errno())
}

fn kind_of(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let part = Duration::from_nanos(nanoseconds.unsigned_abs());
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + part,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + part,
    }
}

fn timespec(time: Option<TimeOrNow>) -> libc::timespec {
    match time {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        Some(TimeOrNow::Now) => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                libc::timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
            }
            Err(before) => {
                let before = before.duration();
                let nanoseconds = i64::from(before.subsec_nanos());
                libc::timespec {
                    tv_sec: -before.as_secs().cast_signed() - i64::from(nanoseconds > 0),
                    tv_nsec: (1_000_000_000 - nanoseconds) % 1_000_000_000,
                }
            }
        },
    }
}

fn attributes(stat: &libc::stat, number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind_of(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

impl Guarded {
    /// Over the directory of a guard.
    pub fn new(store: Arc<Store>, options: MountOptions) -> io::Result<Self> {
        let path = at::text(store.root().as_os_str())?;
        let root = at::open(libc::AT_FDCWD, &path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        let folder = at::text(store.folder().as_os_str())?;
        let hidden = at::stat(libc::AT_FDCWD, &folder).ok().map(|stat| (stat.st_dev, stat.st_ino));
        Ok(Self { store, options, nodes: Nodes::new(root)?, handles: Handles::default(), hidden })
    }

    fn folder(&self, number: INodeNo) -> io::Result<Arc<crate::nodes::Node>> {
        self.nodes.get(number.0)
    }

    /// What a name leads to, as the kernel is to remember it.
    fn look_up(&self, parent: RawFd, name: &CStr) -> io::Result<FileAttr> {
        let found = at::open(parent, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        let stat = at::stat_of(found.as_raw_fd())?;
        if self.hidden == Some((stat.st_dev, stat.st_ino)) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let number = self.nodes.remember(found, &stat);
        Ok(attributes(&stat, number))
    }

    /// Nobody removes the folder of the guard, or puts something in its place.
    fn refuse_hidden(&self, parent: RawFd, name: &CStr) -> io::Result<()> {
        match (self.hidden, at::stat(parent, name)) {
            (Some(hidden), Ok(stat)) if hidden == (stat.st_dev, stat.st_ino) => {
                Err(io::Error::from_raw_os_error(libc::EPERM))
            }
            _ => Ok(()),
        }
    }

    fn guards(&self, stat: &libc::stat) -> bool {
        self.options.is_guarded
            && stat.st_mode & libc::S_IFMT == libc::S_IFREG
            && stat.st_dev == self.store.device()
    }

    fn open_guarded(&self, descriptor: RawFd, writes: bool) -> io::Result<Arc<GuardedFile>> {
        let name = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
        GuardedFile::open(&self.store, descriptor, writes, &name).map_err(|error| io_error(&error))
    }

    /// A handle of a file that is open below.
    fn handle(&self, below: File, flags: i32) -> io::Result<Handle> {
        let stat = at::stat_of(below.as_raw_fd())?;
        if !self.guards(&stat) {
            return Ok(Handle::Plain(below));
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let file = self.open_guarded(below.as_raw_fd(), writes)?;
        // O_SYNC contains the bit of O_DSYNC.
        let syncs = match flags & libc::O_SYNC {
            libc::O_SYNC => Some(false),
            0 => None,
            _ => Some(true),
        };
        Ok(Handle::Guarded { file, below, syncs })
    }

    fn open_flags(&self) -> FopenFlags {
        if self.options.is_cached {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
    }

    /// The last name of a file may be gone.
    fn after_removal(&self, removed: Option<OwnedFd>) {
        if let Some(removed) = removed
            && let Ok(stat) = at::stat_of(removed.as_raw_fd())
            && stat.st_nlink == 0
            && self.guards(&stat)
        {
            // A table that stays is removed by the next check.
            let _ = self.store.deleted(stat.st_ino);
        }
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(RawFd, &CStr) -> io::Result<()>,
    ) -> io::Result<FileAttr> {
        let folder = self.folder(parent)?;
        let name = at::text(name)?;
        {
            let _user = AsUser::new(request.uid(), request.gid());
            make(folder.raw(), &name)?;
        }
        self.look_up(folder.raw(), &name)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, flags: i32) -> io::Result<()> {
        let folder = self.folder(parent)?;
        let name = at::text(name)?;
        self.refuse_hidden(folder.raw(), &name)?;
        let removed = at::open(folder.raw(), &name, libc::O_PATH | libc::O_NOFOLLOW, 0).ok();
        at::remove(folder.raw(), &name, flags)?;
        self.after_removal(removed);
        Ok(())
    }

    fn set_size(&self, node: &crate::nodes::Node, handle: Option<FileHandle>, size: u64) -> io::Result<()> {
        if let Some(handle) = handle {
            match &*self.handles.get(handle.0)? {
                Handle::Guarded { file, .. } => {
                    return file.set_size(size).map_err(|trouble| trouble_io(&trouble));
                }
                Handle::Plain(file) => return file.set_len(size),
                Handle::Folder { .. } => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            }
        }
        let stat = at::stat_of(node.raw())?;
        if self.guards(&stat) {
            let file = self.open_guarded(node.raw(), true)?;
            return file.set_size(size).map_err(|trouble| trouble_io(&trouble));
        }
        reopen(node.raw(), libc::O_WRONLY)?.set_len(size)
    }

    fn change(
        &self,
        number: INodeNo,
        mode: Option<u32>,
        owner: [Option<u32>; 2],
        size: Option<u64>,
        times: [Option<TimeOrNow>; 2],
        handle: Option<FileHandle>,
    ) -> io::Result<FileAttr> {
        let node = self.nodes.get(number.0)?;
        if let Some(mode) = mode {
            at::set_mode(node.raw(), mode)?;
        }
        if owner.iter().any(Option::is_some) {
            at::set_owner(node.raw(), owner[0], owner[1])?;
        }
        if let Some(size) = size {
            self.set_size(&node, handle, size)?;
        }
        if times.iter().any(Option::is_some) {
            let stat = at::stat_of(node.raw())?;
            let is_link = stat.st_mode & libc::S_IFMT == libc::S_IFLNK;
            // Attached before the time changes, which otherwise looks like somebody else's doing.
            let file = self.guards(&stat).then(|| self.open_guarded(node.raw(), false).ok()).flatten();
            at::set_times(node.raw(), is_link, times.map(timespec))?;
            if let Some(file) = file {
                file.touched();
            }
        }
        Ok(attributes(&at::stat_of(node.raw())?, number.0))
    }

    fn entries(&self, folder: RawFd) -> io::Result<Vec<Entry>> {
        let stat = at::stat_of(folder)?;
        let own = |name: &str| Entry { inode: stat.st_ino, kind: FileType::Directory, name: name.into() };
        let mut entries = vec![own("."), own("..")];
        for entry in std::fs::read_dir(format!("/proc/self/fd/{folder}"))? {
            let entry = entry?;
            if self.hidden == Some((stat.st_dev, entry.ino())) {
                continue;
            }
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_dir() => FileType::Directory,
                Ok(kind) if kind.is_symlink() => FileType::Symlink,
                Ok(kind) if kind.is_fifo() => FileType::NamedPipe,
                Ok(kind) if kind.is_socket() => FileType::Socket,
                Ok(kind) if kind.is_char_device() => FileType::CharDevice,
                Ok(kind) if kind.is_block_device() => FileType::BlockDevice,
                _ => FileType::RegularFile,
            };
            entries.push(Entry { inode: entry.ino(), kind, name: entry.file_name() });
        }
        Ok(entries)
    }

    fn write_to(&self, handle: &Handle, offset: u64, data: &[u8], flags: i32) -> Result<usize, Errno> {
        match handle {
            Handle::Guarded { file, syncs, .. } => {
                let written = if flags & libc::O_APPEND != 0 {
                    file.append(data, None).map(|(_, count)| count)
                } else {
                    file.write_at(data, offset)
                };
                let written = written.map_err(|trouble| of_trouble(&trouble))?;
                if let Some(data_only) = *syncs {
                    file.sync(data_only).map_err(|trouble| of_trouble(&trouble))?;
                }
                Ok(written)
            }
            Handle::Plain(file) => file.write_at(data, offset).map_err(|error| errno(&error)),
            Handle::Folder { .. } => Err(Errno::from_i32(libc::EISDIR)),
        }
    }
}

/// Answers with a value, or with its error.
macro_rules! answer {
    ($reply:ident, $done:expr, $value:pat => $good:expr) => {
        match $done {
            Ok($value) => $good,
            Err(error) => $reply.error(errno(&error)),
        }
    };
}

impl Filesystem for Guarded {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each is good to have and no more; what the kernel lacks is left out.
        for wanted in [
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = self.folder(parent).and_then(|folder| self.look_up(folder.raw(), &at::text(name)?));
        answer!(reply, done, found => {
            reply.entry_with_ttls(&NAMES_FOR, &ATTRIBUTES_FOR, &found, Generation(0));
        });
    }

    fn forget(&self, _request: &Request, number: INodeNo, times: u64) {
        self.nodes.forget(number.0, times);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let done = self.nodes.get(number.0).and_then(|node| at::stat_of(node.raw()));
        answer!(reply, done, stat => reply.attr(&ATTRIBUTES_FOR, &attributes(&stat, number.0)));
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _made: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.change(number, mode, [user, group], size, [accessed, modified], handle);
        answer!(reply, done, stat => reply.attr(&ATTRIBUTES_FOR, &stat));
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        use std::os::unix::ffi::OsStrExt;
        let done = self.nodes.get(number.0).and_then(|node| at::read_link(node.raw()));
        answer!(reply, done, target => reply.data(target.as_bytes()));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let done = self.make(request, parent, name, |folder, name| {
            at::make_node(folder, name, mode & !umask, device.into())
        });
        answer!(reply, done, found => {
            reply.entry_with_ttls(&NAMES_FOR, &ATTRIBUTES_FOR, &found, Generation(0));
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let done =
            self.make(request, parent, name, |folder, name| at::make_folder(folder, name, mode & !umask));
        answer!(reply, done, found => {
            reply.entry_with_ttls(&NAMES_FOR, &ATTRIBUTES_FOR, &found, Generation(0));
        });
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, 0), () => reply.ok());
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, libc::AT_REMOVEDIR), () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let done = self.make(request, parent, name, |folder, name| {
            at::make_link(&at::text(target.as_os_str())?, folder, name)
        });
        answer!(reply, done, found => {
            reply.entry_with_ttls(&NAMES_FOR, &ATTRIBUTES_FOR, &found, Generation(0));
        });
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = (|| {
            let (from, to) = (self.folder(parent)?, self.folder(new_parent)?);
            let (name, new) = (at::text(name)?, at::text(new_name)?);
            self.refuse_hidden(from.raw(), &name)?;
            self.refuse_hidden(to.raw(), &new)?;
            let replaced = at::open(to.raw(), &new, libc::O_PATH | libc::O_NOFOLLOW, 0).ok();
            at::rename(from.raw(), &name, to.raw(), &new, flags.bits())?;
            self.after_removal(replaced);
            Ok::<_, io::Error>(())
        })();
        answer!(reply, done, () => reply.ok());
    }

    fn link(&self, _request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = (|| {
            let (node, folder, name) = (self.nodes.get(number.0)?, self.folder(parent)?, at::text(name)?);
            at::link(node.raw(), folder.raw(), &name)?;
            self.look_up(folder.raw(), &name)
        })();
        answer!(reply, done, found => {
            reply.entry_with_ttls(&NAMES_FOR, &ATTRIBUTES_FOR, &found, Generation(0));
        });
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let done = (|| {
            let node = self.nodes.get(number.0)?;
            // Names are the kernel's business, and whole blocks the guard's.
            let kept = flags.0
                & !(libc::O_NOFOLLOW | libc::O_DIRECT | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL);
            self.handle(reopen(node.raw(), kept)?, flags.0)
        })();
        answer!(reply, done, handle => {
            reply.opened(FileHandle(self.handles.add(handle)), self.open_flags());
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let done = (|| {
            let (folder, name) = (self.folder(parent)?, at::text(name)?);
            self.refuse_hidden(folder.raw(), &name)?;
            // Truncated through the guard, if it was there already.
            let kept =
                flags & !(libc::O_DIRECT | libc::O_APPEND | libc::O_TRUNC) | libc::O_CREAT | libc::O_NOFOLLOW;
            // The guard reads what it writes.
            let kept = if kept & libc::O_ACCMODE == libc::O_WRONLY {
                kept ^ libc::O_WRONLY | libc::O_RDWR
            } else {
                kept
            };
            let below = {
                let _user = AsUser::new(request.uid(), request.gid());
                File::from(at::open(folder.raw(), &name, kept, mode & !umask)?)
            };
            let handle = self.handle(below, flags)?;
            if flags & libc::O_TRUNC != 0 {
                match &handle {
                    Handle::Guarded { file, .. } => {
                        file.set_size(0).map_err(|trouble| trouble_io(&trouble))?;
                    }
                    Handle::Plain(file) => file.set_len(0)?,
                    Handle::Folder { .. } => {}
                }
            }
            Ok::<_, io::Error>((self.look_up(folder.raw(), &name)?, handle))
        })();
        answer!(reply, done, (found, handle) => {
            let handle = FileHandle(self.handles.add(handle));
            reply.created(&NAMES_FOR, &found, Generation(0), handle, self.open_flags());
        });
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handle = match self.handles.get(handle.0) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno(&error)),
        };
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let buffer = &mut buffer[..size];
            let done = match &*handle {
                Handle::Guarded { file, .. } => {
                    file.read_at(buffer, offset).map_err(|trouble| of_trouble(&trouble))
                }
                Handle::Plain(file) => file.read_at(buffer, offset).map_err(|error| errno(&error)),
                Handle::Folder { .. } => Err(Errno::from_i32(libc::EISDIR)),
            };
            match done {
                Ok(count) => reply.data(&buffer[..count]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let handle = match self.handles.get(handle.0) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno(&error)),
        };
        // Pages of a mapping have their place, whatever the file was opened for.
        let is_page = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let flags = if is_page { flags.0 & !libc::O_APPEND } else { flags.0 };
        match self.write_to(&handle, offset, data, flags) {
            Ok(count) => reply.written(count as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.remove(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.handles.get(handle.0).and_then(|handle| match &*handle {
            Handle::Guarded { file, .. } => file.sync(data_only).map_err(|trouble| trouble_io(&trouble)),
            Handle::Plain(file) => at::sync(file, data_only),
            Handle::Folder { folder, .. } => at::sync(folder, data_only),
        });
        answer!(reply, done, () => reply.ok());
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let done =
            self.nodes.get(number.0).and_then(|node| reopen(node.raw(), libc::O_RDONLY | libc::O_DIRECTORY));
        answer!(reply, done, folder => {
            let handle = Handle::Folder { folder: folder.into(), entries: Mutex::new(None) };
            reply.opened(FileHandle(self.handles.add(handle)), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = self.handles.get(handle.0).and_then(|handle| match &*handle {
            Handle::Folder { folder, entries } => {
                let mut entries = entries.lock();
                match &*entries {
                    Some(known) if offset > 0 => Ok(Arc::clone(known)),
                    _ => {
                        let read = Arc::new(self.entries(folder.as_raw_fd())?);
                        *entries = Some(Arc::clone(&read));
                        Ok(read)
                    }
                }
            }
            _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        });
        answer!(reply, done, entries => {
            let rest = entries.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX));
            for (at, entry) in rest {
                if reply.add(INodeNo(entry.inode), at as u64 + 1, entry.kind, &entry.name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(request, number, handle, data_only, reply);
    }

    fn statfs(&self, _request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let done = self.nodes.get(number.0).and_then(|node| at::space(node.raw()));
        answer!(reply, done, space => reply.statfs(
            space.f_blocks,
            space.f_bfree,
            space.f_bavail,
            space.f_files,
            space.f_ffree,
            space.f_bsize as u32,
            space.f_namemax as u32,
            space.f_frsize as u32,
        ));
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done = self
            .nodes
            .get(number.0)
            .and_then(|node| at::set_attribute(node.raw(), &at::text(name)?, value, flags));
        answer!(reply, done, () => reply.ok());
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut room = vec![0; size as usize];
        let done = self
            .nodes
            .get(number.0)
            .and_then(|node| at::get_attribute(node.raw(), Some(&at::text(name)?), &mut room));
        answer!(reply, done, length => match size {
            0 => reply.size(length as u32),
            _ => reply.data(&room[..length]),
        });
    }

    fn listxattr(&self, _request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let mut room = vec![0; size as usize];
        let done = self.nodes.get(number.0).and_then(|node| at::get_attribute(node.raw(), None, &mut room));
        answer!(reply, done, length => match size {
            0 => reply.size(length as u32),
            _ => reply.data(&room[..length]),
        });
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done =
            self.nodes.get(number.0).and_then(|node| at::remove_attribute(node.raw(), &at::text(name)?));
        answer!(reply, done, () => reply.ok());
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.handles.get(handle.0).and_then(|handle| match &*handle {
            Handle::Guarded { file, .. } => {
                file.allocate(mode, offset, length).map_err(|trouble| trouble_io(&trouble))
            }
            Handle::Plain(file) => {
                let (offset, length) = (offset.cast_signed(), length.cast_signed());
                // SAFETY: an open descriptor and numbers.
                match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
            Handle::Folder { .. } => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        });
        answer!(reply, done, () => reply.ok());
    }

    fn lseek(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let done = self.handles.get(handle.0).and_then(|handle| {
            let (Handle::Guarded { below: file, .. } | Handle::Plain(file)) = &*handle else {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            };
            // SAFETY: an open descriptor and numbers. Its position is used by nobody.
            match unsafe { libc::lseek(file.as_raw_fd(), offset, whence) } {
                -1 => Err(io::Error::last_os_error()),
                place => Ok(place),
            }
        });
        answer!(reply, done, place => reply.offset(place));
    }
}
