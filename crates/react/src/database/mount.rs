//! The folder in which a program finds the files of a [`Desk`]: a mount of FUSE past the kernel's cache, so that every read and
//! write of the program arrives as it is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use rotproof_attach::FuseMount;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, Result};
use rotproof_machine::registry::{CleanupStack, Run, Undo};

use super::desk::{Desk, ROOT};
use super::engine::Engine;

/// The kernel asks for names and attributes each time: files change behind its back from cell to cell.
const KEPT_FOR: Duration = Duration::ZERO;

/// A mount, on record in a run.
pub(crate) struct Folder {
    stack: CleanupStack,
    path: PathBuf,
}

impl Folder {
    /// Shows `desk` in the folder `name` of the run's scratch folder.
    pub(crate) fn new(run: &Run, name: &str, desk: &Arc<Desk>, engine: &'static dyn Engine) -> Result<Self> {
        let mut stack = CleanupStack::new(run);
        let path = run.scratch().join(name);
        stack.create_directory(&path)?;
        let user = engine.user();
        let shown = Shown { desk: Arc::clone(desk), engine, user };
        let place = path.clone();
        stack.create(FuseMount { path: path.clone() }, || {
            let doing = || format!("mounting files at {}", place.display());
            let mut config = Config::default();
            config.mount_options =
                vec![MountOption::FSName("rotproof".into()), MountOption::Subtype("rotproof-files".into())];
            config.n_threads = Some(1);
            if user != (0, 0) {
                config.acl = SessionACL::All;
            }
            let session: BackgroundSession =
                Session::new(shown, &place, &config).and_then(Session::spawn).doing(doing)?;
            let undo: Undo =
                Box::new(move || session.umount_and_join().doing(|| "unmounting files".to_owned()));
            Ok(((), undo))
        })?;
        Ok(Self { stack, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts it.
    pub(crate) fn end(mut self) -> Vec<Error> {
        self.stack.undo_all()
    }
}

struct Shown {
    desk: Arc<Desk>,
    engine: &'static dyn Engine,
    user: (u32, u32),
}

impl Shown {
    fn attributes(&self, number: u64, length: u64) -> FileAttr {
        let is_folder = number == ROOT || self.desk.name(number).is_some_and(|name| name.ends_with('/'));
        let (uid, gid) = self.user;
        FileAttr {
            ino: INodeNo(number),
            size: length,
            blocks: length.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
            perm: if is_folder { 0o700 } else { 0o600 },
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// A file or a folder of this name in a folder.
    fn look_up(&self, folder: INodeNo, name: &OsStr) -> Option<(String, u64, u64)> {
        let path = self.desk.path(folder.0, name.to_str()?)?;
        let found = |path: String| self.desk.look_up(&path).map(|(number, length)| (path, number, length));
        found(path.clone()).or_else(|| found(path + "/"))
    }

    fn path(&self, folder: INodeNo, name: &OsStr) -> Option<String> {
        self.desk.path(folder.0, name.to_str()?)
    }

    /// How a file is opened. What is shared by mapping it needs the kernel's cache, which begins empty with every start of a program.
    fn opened(&self, name: &str) -> FopenFlags {
        if self.engine.is_mapped(name) { FopenFlags::empty() } else { FopenFlags::FOPEN_DIRECT_IO }
    }
}

impl Filesystem for Shown {
    /// The kernel reads no page that nobody has asked for, so that what is met was wanted.
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // One byte is less than a page, and more than the library takes for a mistake.
        config.set_max_readahead(1).map(|_| ()).map_err(|_| std::io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(folder, name) {
            Some((_, number, length)) => {
                reply.entry(&KEPT_FOR, &self.attributes(number, length), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, folder: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let Some(path) = self.path(folder, name) else { return reply.error(Errno::EINVAL) };
        if self.look_up(folder, name).is_some() {
            return reply.error(Errno::EEXIST);
        }
        let (number, _) = self.desk.create(&(path + "/"));
        reply.entry(&KEPT_FOR, &self.attributes(number, 0), Generation(0));
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Some((path, number, _)) = self.look_up(folder, name) else { return reply.error(Errno::ENOENT) };
        if !self.desk.names(number).is_empty() {
            return reply.error(Errno::ENOTEMPTY);
        }
        self.desk.remove(&path);
        reply.ok();
    }

    fn rename(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        new_folder: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = self.look_up(folder, name).map(|(path, ..)| path);
        let (Some(from), Some(mut to)) = (from, self.path(new_folder, new_name)) else {
            return reply.error(Errno::ENOENT);
        };
        if from.ends_with('/') {
            to.push('/');
        }
        match self.desk.rename(&from, &to) {
            true => reply.ok(),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn link(&self, _: &Request, number: INodeNo, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.look_up(folder, name).is_some() {
            return reply.error(Errno::EEXIST);
        }
        let linked = self.path(folder, name).and_then(|path| self.desk.link(number.0, &path));
        match linked {
            Some(length) => reply.entry(&KEPT_FOR, &self.attributes(number.0, length), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let length = if number.0 == ROOT { Some(0) } else { self.desk.length(number.0) };
        match length {
            Some(length) => reply.attr(&KEPT_FOR, &self.attributes(number.0, length)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size
            && self.desk.set_length(number.0, size).is_none()
        {
            return reply.error(Errno::ENOENT);
        }
        let length = self.desk.length(number.0).unwrap_or(0);
        reply.attr(&KEPT_FOR, &self.attributes(number.0, length));
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.path(folder, name).is_some_and(|path| self.desk.remove(&path)) {
            true => reply.ok(),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(name) = self.desk.name(number.0) else { return reply.error(Errno::ENOENT) };
        if flags.0 & libc::O_TRUNC != 0 {
            self.desk.set_length(number.0, 0);
        }
        reply.opened(FileHandle(0), self.opened(&name));
    }

    fn create(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let Some(path) = self.path(folder, name) else { return reply.error(Errno::EINVAL) };
        let (number, mut length) = self.desk.create(&path);
        if flags & libc::O_TRUNC != 0 {
            self.desk.set_length(number, 0);
            length = 0;
        }
        let attributes = self.attributes(number, length);
        reply.created(&KEPT_FOR, &attributes, Generation(0), FileHandle(0), self.opened(&path));
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.desk.read(number.0, offset..offset.saturating_add(size.into())) {
            Some(Ok(bytes)) => reply.data(&bytes),
            Some(Err(_)) => reply.error(Errno::EIO),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.desk.write(number.0, offset, data) {
            Some(Ok(())) => reply.written(data.len() as u32),
            Some(Err(_)) => reply.error(Errno::EIO),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, folder: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let names = self.desk.names(folder.0);
        let all = names.iter().map(|(name, number)| match name.strip_suffix('/') {
            Some(name) => (name, *number, FileType::Directory),
            None => (name.as_str(), *number, FileType::RegularFile),
        });
        let dots = [".", ".."].map(|name| (name, ROOT, FileType::Directory));
        for (at, (name, number, kind)) in dots.into_iter().chain(all).enumerate().skip(offset as usize) {
            if reply.add(INodeNo(number), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 19, 1 << 19, 1 << 10, 1 << 9, 4096, 255, 4096);
    }
}
