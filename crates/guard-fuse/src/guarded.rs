//! The file system as it is below: names that lead to nodes, files that are opened and guarded, changes of either. What the kernel
//! asks for is in [`crate::operations`].

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt};
use std::sync::Arc;

use fuser::{Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, Request, TimeOrNow};
use rotproof_guard::stat::reopen;
use rotproof_guard::{GuardedFile, Store};

use crate::MountOptions;
use crate::at::{self, AsUser, Mode};
use crate::attributes::{attributes, timespec};
use crate::errors::{errno, io_error, of_trouble, trouble_io};
use crate::handles::{Entry, Handle, Handles};
use crate::nodes::{Node, Nodes};

/// The file system.
pub struct Guarded {
    store: Arc<Store>,
    options: MountOptions,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    hidden: Option<(u64, u64)>,
    /// Of this process.
    umask: u32,
}

impl Guarded {
    /// Over the directory of a guard.
    pub fn new(store: Arc<Store>, options: MountOptions) -> io::Result<Self> {
        let path = at::text(store.root().as_os_str())?;
        let root = at::open(libc::AT_FDCWD, &path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        let folder = at::text(store.folder().as_os_str())?;
        let hidden = at::stat(libc::AT_FDCWD, &folder).ok().map(|stat| (stat.st_dev, stat.st_ino));
        let umask = at::umask();
        Ok(Self { store, options, nodes: Nodes::new(root)?, handles: Handles::default(), hidden, umask })
    }

    pub(crate) fn folder(&self, number: INodeNo) -> io::Result<Arc<Node>> {
        self.nodes.get(number.0)
    }

    /// What a name leads to, as the kernel is to remember it.
    pub(crate) fn look_up(&self, parent: RawFd, name: &CStr) -> io::Result<FileAttr> {
        let found = at::open(parent, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        let stat = at::stat_of(found.as_raw_fd())?;
        if self.hidden == Some((stat.st_dev, stat.st_ino)) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let number = self.nodes.remember(found, &stat);
        Ok(attributes(&stat, number))
    }

    /// Nobody removes the folder of the guard, or puts something in its place.
    pub(crate) fn refuse_hidden(&self, parent: RawFd, name: &CStr) -> io::Result<()> {
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
    pub(crate) fn handle(&self, below: File, flags: i32) -> io::Result<Handle> {
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

    pub(crate) fn open_flags(&self) -> FopenFlags {
        if self.options.is_cached {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
    }

    /// The last name of a file may be gone.
    pub(crate) fn after_removal(&self, removed: Option<OwnedFd>) {
        if let Some(removed) = removed
            && let Ok(stat) = at::stat_of(removed.as_raw_fd())
            && stat.st_nlink == 0
            && self.guards(&stat)
        {
            // A table that stays is removed by the next check.
            let birth = rotproof_guard::stat::Stat::of(removed.as_raw_fd()).map(|stat| stat.birth);
            let _ = birth.map(|birth| self.store.deleted(stat.st_ino, birth));
        }
    }

    pub(crate) fn make(
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

    /// Gives what was just made the permissions that its program asked for, if this process' own umask has taken some away. Where
    /// they come from an ACL of the folder, they stay.
    pub(crate) fn give_mode(&self, descriptor: RawFd, wanted: Mode) -> io::Result<()> {
        if wanted.is_of_acl || wanted.asked & 0o777 & self.umask == 0 {
            return Ok(());
        }
        let (mode, wanted) = (at::stat_of(descriptor)?.st_mode, wanted.asked & 0o777);
        if mode & 0o777 == wanted & !self.umask {
            at::set_mode(descriptor, mode & 0o7000 | wanted)?;
        }
        Ok(())
    }

    /// [`Guarded::give_mode`] by a name.
    pub(crate) fn give_mode_of(&self, folder: RawFd, name: &CStr, wanted: Mode) -> io::Result<()> {
        let made = at::open(folder, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        self.give_mode(made.as_raw_fd(), wanted)
    }

    pub(crate) fn remove(&self, parent: INodeNo, name: &OsStr, flags: i32) -> io::Result<()> {
        let folder = self.folder(parent)?;
        let name = at::text(name)?;
        self.refuse_hidden(folder.raw(), &name)?;
        let removed = at::open(folder.raw(), &name, libc::O_PATH | libc::O_NOFOLLOW, 0).ok();
        at::remove(folder.raw(), &name, flags)?;
        self.after_removal(removed);
        Ok(())
    }

    fn set_size(&self, node: &Node, handle: Option<FileHandle>, size: u64) -> io::Result<()> {
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

    pub(crate) fn change(
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
            let set = || at::set_times(node.raw(), is_link, times.map(timespec));
            match file {
                Some(file) => file.set_times(set).map_err(|error| io_error(&error))??,
                None => set()?,
            }
        }
        Ok(attributes(&at::stat_of(node.raw())?, number.0))
    }

    pub(crate) fn entries(&self, folder: RawFd) -> io::Result<Vec<Entry>> {
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

    pub(crate) fn write_to(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        flags: i32,
    ) -> Result<usize, Errno> {
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
