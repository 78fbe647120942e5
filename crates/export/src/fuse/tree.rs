//! The directory and its one file: names, attributes, entries. Pure functions from a question to the bytes of its
//! answer; no I/O, no device beyond its information page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rotproof_block::DeviceInfo;

use super::parse::Name;
use super::wire::{Attr, AttrOut, Dirent, EntryOut, OpenOut, Plain, ROOT, StatfsOut, open, setattr};

/// The node of the file.
pub(super) const FILE: u64 = 2;
/// Nothing here changes but the size, of which the kernel is told, so it may remember all for this long.
const VALID_SECONDS: u64 = 3600;

/// What the file system shows.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub file_name: String,
    pub info: DeviceInfo,
    /// Bytes of the file; they may become more.
    pub size: Arc<AtomicU64>,
    /// How often it is open now.
    pub opened: Arc<AtomicUsize>,
    pub uid: u32,
    pub gid: u32,
    /// Whether users other than the owner may use the file.
    pub open_to_all: bool,
    /// Whether the kernel may keep what it has read.
    pub is_cached: bool,
    /// What is written is as durable as it will ever be when the write is done.
    pub needs_no_fsync: Arc<AtomicBool>,
}

/// An errno, a positive number, for a question that has no other answer.
pub(super) type Answer<T> = Result<T, i32>;

impl Tree {
    fn bytes(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn attributes(&self, node: u64) -> Answer<Attr> {
        let common = Attr { ino: node, uid: self.uid, gid: self.gid, blksize: 4096, ..Attr::default() };
        match node {
            ROOT => {
                let permissions = if self.open_to_all { 0o555 } else { 0o500 };
                Ok(Attr { mode: libc::S_IFDIR | permissions, nlink: 2, ..common })
            }
            FILE => {
                let owner = if self.info.read_only { 0o400 } else { 0o600 };
                let permissions = if self.open_to_all { owner | owner >> 3 | owner >> 6 } else { owner };
                Ok(Attr {
                    mode: libc::S_IFREG | permissions,
                    nlink: 1,
                    size: self.bytes(),
                    blocks: self.bytes().div_ceil(512),
                    ..common
                })
            }
            _ => Err(libc::ENOENT),
        }
    }

    pub(super) fn lookup(&self, node: u64, name: Name<'_>) -> Answer<EntryOut> {
        if node != ROOT || !name.is(self.file_name.as_bytes()) {
            return Err(libc::ENOENT);
        }
        Ok(EntryOut {
            nodeid: FILE,
            entry_valid: VALID_SECONDS,
            attr_valid: VALID_SECONDS,
            attr: self.attributes(FILE)?,
            ..EntryOut::default()
        })
    }

    pub(super) fn get_attributes(&self, node: u64) -> Answer<AttrOut> {
        Ok(AttrOut { attr_valid: VALID_SECONDS, attr: self.attributes(node)?, ..AttrOut::default() })
    }

    /// Times are not kept and the size cannot change. Truncating on open (`O_TRUNC`, which `dd` and `cp` use) has no
    /// effect, as on a block device: it arrives as size zero without an open file. Anything else is refused.
    pub(super) fn set_attributes(&self, node: u64, valid: u32, size: u64) -> Answer<AttrOut> {
        const WITHOUT_EFFECT: u32 = setattr::ATIME
            | setattr::MTIME
            | setattr::CTIME
            | setattr::ATIME_NOW
            | setattr::MTIME_NOW
            | setattr::HANDLE
            | setattr::LOCKOWNER
            | setattr::KILL_SUIDGID;
        let attributes = self.get_attributes(node)?;
        if valid & !(WITHOUT_EFFECT | setattr::SIZE) != 0 {
            return Err(libc::EPERM);
        }
        let truncated_on_open = size == 0 && valid & setattr::HANDLE == 0;
        if valid & setattr::SIZE != 0 && size != attributes.attr.size && !truncated_on_open {
            return Err(libc::EPERM);
        }
        Ok(attributes)
    }

    pub(super) fn open(&self, node: u64, flags: u32) -> Answer<OpenOut> {
        if node != FILE {
            return Err(libc::EISDIR);
        }
        let for_reading_only = flags.cast_signed() & libc::O_ACCMODE == libc::O_RDONLY;
        if self.info.read_only && !for_reading_only {
            return Err(libc::EROFS);
        }
        let open_flags = open::NOFLUSH
            | if self.is_cached { open::KEEP_CACHE } else { open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES };
        Ok(OpenOut { open_flags, ..OpenOut::default() })
    }

    pub(super) fn open_directory(&self, node: u64) -> Answer<OpenOut> {
        if node == ROOT { Ok(OpenOut::default()) } else { Err(libc::ENOTDIR) }
    }

    /// Whether reads, writes and the like may go to this node.
    pub(super) fn check_is_file(&self, node: u64) -> Answer<()> {
        match node {
            FILE => Ok(()),
            ROOT => Err(libc::EISDIR),
            _ => Err(libc::ENOENT),
        }
    }

    /// The entries from number `offset` on that fit `size` bytes whole.
    pub(super) fn entries(&self, node: u64, offset: u64, size: usize) -> Answer<Vec<u8>> {
        if node != ROOT {
            return Err(libc::ENOTDIR);
        }
        let directory = u32::from(libc::DT_DIR);
        let all = [
            (ROOT, ".", directory),
            (ROOT, "..", directory),
            (FILE, &self.file_name, u32::from(libc::DT_REG)),
        ];
        let mut bytes = Vec::new();
        for ((number, name, kind), next) in all.into_iter().zip(1u64..) {
            let entry_bytes = (size_of::<Dirent>() + name.len()).next_multiple_of(8);
            if next <= offset {
                continue;
            }
            if bytes.len() + entry_bytes > size {
                break;
            }
            let namelen = u32::try_from(name.len()).map_err(|_| libc::ENAMETOOLONG)?;
            let end = bytes.len() + entry_bytes;
            bytes.extend_from_slice(Dirent { ino: number, off: next, namelen, kind }.as_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(end, 0);
        }
        Ok(bytes)
    }

    /// A file system that is full with its one file.
    pub(super) fn statistics(&self) -> StatfsOut {
        StatfsOut {
            blocks: self.bytes().div_ceil(4096),
            files: 2,
            bsize: 4096,
            frsize: 4096,
            namelen: 255,
            ..StatfsOut::default()
        }
    }
}
