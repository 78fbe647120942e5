//! The file system on trial as a FUSE server: each message of the host's kernel becomes a system call here, and the
//! error of that call is the error that the host sees.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::nodes::{Nodes, Open};
use crate::reply::{Reply, failure};
use crate::sys::{self, EINVAL, ENOSYS, EPERM, errno};

const O_ACCESS: i32 = 0o3;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_NOCTTY: i32 = 0o400;
const O_TRUNC: i32 = 0o1000;
const O_DIRECT: i32 = 0o40000;
/// What the host's kernel may send or want at once.
const TRANSFER_MAX: u32 = 128 << 10;
const HEADER: usize = 40;
/// The longest value of an extended attribute (`XATTR_SIZE_MAX` of `include/uapi/linux/limits.h`), and the longest list of names.
const ATTRIBUTE_BYTES_MAX: u32 = 1 << 16;

#[derive(Default)]
pub struct Server {
    pub nodes: Nodes,
    has_attributes: AtomicBool,
}

/// Reads the numbers of a message in their order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], i32> {
        let (first, rest) = self.0.split_at_checked(count).ok_or(EINVAL)?;
        self.0 = rest;
        Ok(first)
    }

    fn u32(&mut self) -> Result<u32, i32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| EINVAL)?))
    }

    fn u64(&mut self) -> Result<u64, i32> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| EINVAL)?))
    }

    /// A name that ends with zero.
    fn name(&mut self) -> Result<&'a str, i32> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(EINVAL)?;
        let name = std::str::from_utf8(self.take(end)?).map_err(|_| EINVAL)?;
        self.take(1)?;
        Ok(name)
    }
}

type Answer = Result<Reply, i32>;

fn io<T>(result: std::io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| errno(&error))
}

impl Server {
    /// Serves extended attributes from now on.
    pub fn serve_attributes(&self) {
        self.has_attributes.store(true, Ordering::Relaxed);
    }

    /// Carries out one message; none is the answer of those that want none.
    pub fn answer(&self, message: &mut [u8]) -> Option<Vec<u8>> {
        let mut head = Fields(message.get(4..HEADER)?);
        let (opcode, unique, node) = (head.u32().ok()?, head.u64().ok()?, head.u64().ok()?);
        let mut body = Fields(message.get(HEADER..)?);
        match opcode {
            2 => {
                self.nodes.forget(node, body.u64().ok()?);
                return None;
            }
            42 => {
                let count = body.u32().ok()?;
                body.u32().ok()?;
                for _ in 0..count {
                    self.nodes.forget(body.u64().ok()?, body.u64().ok()?);
                }
                return None;
            }
            // An interrupt: what is under way is carried out all the same.
            36 => return None,
            _ => {}
        }
        Some(match self.carry_out(opcode, node, &mut body) {
            Ok(reply) => reply.finish(unique),
            Err(errno) => failure(unique, errno),
        })
    }

    fn carry_out(&self, opcode: u32, node: u64, body: &mut Fields<'_>) -> Answer {
        let at = |number: u64, name: &str| Ok::<_, i32>(format!("{}/{name}", self.nodes.path(number)?));
        let mut reply = Reply::new();
        match opcode {
            1 => {
                let (number, about) = self.nodes.look_up(node, body.name()?)?;
                reply.entry(number, &about);
            }
            3 => {
                reply.attributes_out(&io(fs::metadata(self.nodes.path(node)?))?);
            }
            4 => self.set_attributes(node, body, &mut reply)?,
            5 => {
                reply.bytes(&sys::read_link(self.nodes.descriptor(node)?)?);
            }
            6 => {
                let (name, target) = (body.name()?, body.name()?);
                io(std::os::unix::fs::symlink(target, at(node, name)?))?;
                self.entry(node, name, &mut reply)?;
            }
            9 => {
                let (mode, _) = (body.u32()?, body.u32()?);
                let name = body.name()?;
                let path = at(node, name)?;
                io(fs::create_dir(&path))?;
                io(fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777)))?;
                self.entry(node, name, &mut reply)?;
            }
            10 => io(fs::remove_file(at(node, body.name()?)?))?,
            11 => io(fs::remove_dir(at(node, body.name()?)?))?,
            12 | 45 => {
                let to = body.u64()?;
                let flags = if opcode == 45 { (body.u32()?, body.u32()?).0 } else { 0 };
                let (old, new) = (body.name()?, body.name()?);
                sys::rename(&at(node, old)?, &at(to, new)?, flags)?;
            }
            13 => {
                let old = body.u64()?;
                let name = body.name()?;
                sys::link(&self.nodes.path(old)?, &at(node, name)?)?;
                self.entry(node, name, &mut reply)?;
            }
            14 => {
                let flags = body.u32()? as i32;
                let file = open(&self.nodes.path(node)?, flags & !(O_CREAT | O_EXCL | O_TRUNC), 0)?;
                reply.opened(self.nodes.keep(file)?);
            }
            35 => {
                let (flags, mode) = (body.u32()? as i32, body.u32()?);
                body.u64()?;
                let name = body.name()?;
                let file = open(&at(node, name)?, flags | O_CREAT, mode)?;
                self.entry(node, name, &mut reply)?;
                reply.opened(self.nodes.keep(file)?);
            }
            15 => return self.read(body),
            16 => self.write(body, &mut reply)?,
            17 => {
                let found = sys::stat_vfs(&self.nodes.path(node)?)?;
                reply.u64(found.blocks).u64(found.blocks_free).u64(found.blocks_available);
                reply.u64(found.files).u64(found.files_free).u32(found.block_size as u32);
                reply.u32(found.name_max as u32).u32(found.fragment_size as u32).bytes(&[0; 28]);
            }
            18 | 29 => self.nodes.close(body.u64()?),
            21..=24 if self.has_attributes.load(Ordering::Relaxed) => {
                return self.attribute(opcode, &self.nodes.path(node)?, body);
            }
            20 | 30 => {
                let handle = body.u64()?;
                let only_data = body.u32()? & 1 == 1;
                let open = self.nodes.opened(handle)?;
                io(if only_data { open.file.sync_data() } else { open.file.sync_all() })?;
            }
            25 => {}
            26 => return initial(body),
            27 => {
                let path = self.nodes.path(node)?;
                let mut entries = vec![(b".".to_vec(), 1, 4), (b"..".to_vec(), 1, 4)];
                for entry in io(fs::read_dir(&path))? {
                    let entry = io(entry)?;
                    use std::os::unix::fs::DirEntryExt;
                    entries.push((entry.file_name().into_vec(), entry.ino(), kind_of(&entry)));
                }
                let file = io(File::open(&path))?;
                reply.opened(self.nodes.keep(Open { file, entries, is_direct: false })?);
            }
            28 => return self.read_folder(body),
            43 => {
                let open = self.nodes.opened(body.u64()?)?;
                let (offset, length, mode) = (body.u64()?, body.u64()?, body.u32()?);
                sys::fallocate(open.file.as_raw_fd(), mode as i32, offset as i64, length as i64)?;
            }
            46 => {
                let open = self.nodes.opened(body.u64()?)?;
                let (offset, whence) = (body.u64()?, body.u32()?);
                reply.u64(sys::seek(open.file.as_raw_fd(), offset as i64, whence as i32)? as u64);
            }
            // The host lets go of everything.
            38 => self.nodes.clear(),
            8 => return Err(EPERM),
            _ => return Err(ENOSYS),
        }
        Ok(reply)
    }

    /// Extended attributes: setting one, reading one, listing them, taking one away.
    fn attribute(&self, opcode: u32, path: &str, body: &mut Fields<'_>) -> Answer {
        let mut reply = Reply::new();
        match opcode {
            21 => {
                let (size, flags) = (body.u32()?, body.u32()?);
                let name = body.name()?;
                sys::set_attribute(path, name, body.take(size as usize)?, flags)?;
            }
            24 => sys::remove_attribute(path, body.name()?)?,
            _ => {
                let (room, _) = (body.u32()?.min(ATTRIBUTE_BYTES_MAX), body.u32()?);
                let mut value = vec![0; room as usize];
                let length = match opcode {
                    22 => sys::attribute(path, body.name()?, &mut value)?,
                    _ => sys::attributes(path, &mut value)?,
                };
                match room {
                    // `struct fuse_getxattr_out`: how much room it takes.
                    0 => reply.u32(length as u32).u32(0),
                    _ => reply.bytes(value.get(..length).ok_or(EINVAL)?),
                };
                sys::wipe(&mut value);
            }
        }
        Ok(reply)
    }

    fn entry(&self, parent: u64, name: &str, reply: &mut Reply) -> Result<(), i32> {
        let (number, about) = self.nodes.look_up(parent, name)?;
        reply.entry(number, &about);
        Ok(())
    }

    /// `struct fuse_setattr_in`: length, mode and times; owners stay.
    fn set_attributes(&self, node: u64, body: &mut Fields<'_>, reply: &mut Reply) -> Result<(), i32> {
        let (valid, _) = (body.u32()?, body.u32()?);
        let (handle, size, _) = (body.u64()?, body.u64()?, body.u64()?);
        let (atime, mtime, _) = (body.u64()?, body.u64()?, body.u64()?);
        let (atime_nsec, mtime_nsec, _) = (body.u32()?, body.u32()?, body.u32()?);
        let mode = body.u32()?;
        let path = self.nodes.path(node)?;
        if valid & 1 != 0 {
            io(fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777)))?;
        }
        if valid & 8 != 0 {
            match if valid & 64 != 0 { self.nodes.opened(handle).ok() } else { None } {
                Some(open) => io(open.file.set_len(size))?,
                None => io(OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(size)))?,
            }
        }
        if valid & (16 | 32 | 128 | 256) != 0 {
            let now = std::time::SystemTime::now();
            let time = |seconds: u64, nanoseconds: u32| {
                std::time::UNIX_EPOCH + std::time::Duration::new(seconds, nanoseconds.min(999_999_999))
            };
            let mut times = fs::FileTimes::new();
            if valid & (16 | 128) != 0 {
                times = times.set_accessed(if valid & 128 != 0 { now } else { time(atime, atime_nsec) });
            }
            if valid & (32 | 256) != 0 {
                times = times.set_modified(if valid & 256 != 0 { now } else { time(mtime, mtime_nsec) });
            }
            io(File::open(&path).and_then(|file| file.set_times(times)))?;
        }
        reply.attributes_out(&io(fs::metadata(&path))?);
        Ok(())
    }

    fn read(&self, body: &mut Fields<'_>) -> Answer {
        let (open, offset, size) =
            (self.nodes.opened(body.u64()?)?, body.u64()?, body.u32()?.min(TRANSFER_MAX));
        let mut reply = Reply::with_room(size as usize);
        if open.is_direct {
            let mut buffer = Aligned::new(size as usize);
            let read = io(open.file.read_at(buffer.bytes(), offset))?;
            reply.body_mut()[..read].copy_from_slice(&buffer.bytes()[..read]);
            reply.truncate(read);
            return Ok(reply);
        }
        let mut read = 0;
        while read < size as usize {
            match open.file.read_at(&mut reply.body_mut()[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                // What could be read comes first; the error comes with what is asked next.
                Err(_) if read > 0 => break,
                Err(error) => return Err(errno(&error)),
            }
        }
        reply.truncate(read);
        Ok(reply)
    }

    fn write(&self, body: &mut Fields<'_>, reply: &mut Reply) -> Result<(), i32> {
        let (open, offset, size) = (self.nodes.opened(body.u64()?)?, body.u64()?, body.u32()?);
        body.take(20)?;
        let data = body.take(size as usize)?;
        let written = if open.is_direct {
            let mut buffer = Aligned::new(data.len());
            buffer.bytes().copy_from_slice(data);
            io(open.file.write_at(buffer.bytes(), offset))?
        } else {
            io(open.file.write_at(data, offset))?
        };
        reply.u32(written as u32).u32(0);
        Ok(())
    }

    fn read_folder(&self, body: &mut Fields<'_>) -> Answer {
        let (open, offset, size) = (self.nodes.opened(body.u64()?)?, body.u64()?, body.u32()? as usize);
        let mut reply = Reply::new();
        for (index, (name, inode, kind)) in open.entries.iter().enumerate().skip(offset as usize) {
            let length = (24 + name.len()).next_multiple_of(8);
            if reply.len() + length > size {
                break;
            }
            reply.u64(*inode).u64(index as u64 + 1).u32(name.len() as u32).u32(*kind);
            reply.bytes(name).bytes(&[0; 8][..length - 24 - name.len()]);
        }
        Ok(reply)
    }
}

/// The answer to the first message: what is offered of protocol 7.31.
fn initial(body: &mut Fields<'_>) -> Answer {
    const BIG_WRITES: u32 = 1 << 5;
    const PARALLEL_DIROPS: u32 = 1 << 18;
    const MAX_PAGES: u32 = 1 << 22;
    let (major, _, readahead, flags) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
    if major != 7 {
        return Err(EINVAL);
    }
    let mut reply = Reply::new();
    reply.u32(7).u32(31).u32(readahead).u32(flags & (BIG_WRITES | PARALLEL_DIROPS | MAX_PAGES));
    reply.u16(16).u16(12).u32(TRANSFER_MAX).u32(1).u16((TRANSFER_MAX / 4096) as u16).u16(0);
    reply.bytes(&[0; 32]);
    Ok(reply)
}

fn open(path: &str, flags: i32, mode: u32) -> Result<Open, i32> {
    let access = flags & O_ACCESS;
    let mut options = OpenOptions::new();
    options.read(access != 1).write(access != 0).mode(mode & 0o7777);
    // The host says where each write goes, an append's too.
    let custom = flags & (O_DIRECT | O_EXCL) | O_NOCTTY;
    options.custom_flags(custom).create(flags & O_CREAT != 0 && access != 0);
    options.truncate(flags & O_TRUNC != 0 && access != 0);
    if flags & O_CREAT != 0 && access == 0 {
        // The standard library creates only what is written.
        options.write(true).create(true);
    }
    Ok(Open { file: io(options.open(path))?, entries: Vec::new(), is_direct: flags & O_DIRECT != 0 })
}

/// `DT_*` of `dirent.h`, as the folder has it: the file itself is not looked at, where the folder says what it is.
fn kind_of(entry: &fs::DirEntry) -> u32 {
    entry.file_type().map_or(0, |kind| match () {
        () if kind.is_dir() => 4,
        () if kind.is_file() => 8,
        () if kind.is_symlink() => 10,
        () if kind.is_fifo() => 1,
        () if kind.is_char_device() => 2,
        () if kind.is_block_device() => 6,
        () if kind.is_socket() => 12,
        () => 0,
    })
}

/// Memory as direct I/O wants it, wiped at the end.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let memory = vec![0; length + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Self { memory, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        sys::wipe(&mut self.memory);
    }
}
