//! What the kernel asks, one operation after the other.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rotproof_guard::stat::reopen;

use crate::at::{self, AsUser};
use crate::attributes::attributes;
use crate::errors::{errno, of_trouble, trouble_io};
use crate::guarded::Guarded;
use crate::handles::Handle;

/// How long the kernel may believe that a name leads where it led.
const NAMES_FOR: Duration = Duration::from_secs(1);
/// And attributes: other doors change sizes, so it has to ask.
const ATTRIBUTES_FOR: Duration = Duration::ZERO;

thread_local! {
    /// What a read is made into.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
            InitFlags::FUSE_DONT_MASK,
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
            let mode = at::masked(folder, mode, umask);
            at::make_node(folder, name, mode.asked, device.into())?;
            self.give_mode_of(folder, name, mode)
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
        let done = self.make(request, parent, name, |folder, name| {
            let mode = at::masked(folder, mode, umask);
            at::make_folder(folder, name, mode.asked)?;
            self.give_mode_of(folder, name, mode)
        });
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
                let mode = at::masked(folder.raw(), mode, umask);
                let below = File::from(at::open(folder.raw(), &name, kept, mode.asked)?);
                self.give_mode(below.as_raw_fd(), mode)?;
                below
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
        request: &Request,
        number: INodeNo,
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
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            // The file system below would do it, were it not root who writes.
            let group = request.gid();
            let done = self.nodes.get(number.0).and_then(|node| at::take_away_privileges(node.raw(), group));
            if let Err(error) = done {
                return reply.error(errno(&error));
            }
        }
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
