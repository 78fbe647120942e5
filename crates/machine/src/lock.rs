//! Locks on files, folders and devices, by which two uses of one thing keep clear of each other, and who holds them.
//!
//! They are `flock`: the kernel lets go of them with the last descriptor, also of a process that was killed, and tells who
//! has one. On a block device `udev` and its like respect them too. Other programs lock ranges (POSIX and OFD locks: QEMU an
//! image, SQLite a database); such a lock is seen here, and none is made.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rotproof_block::Result;
use rotproof_block::error::IoContext;

/// So long a block device may be locked by what looks into each that was just written to (`udev`).
const DEVICE_PATIENCE: Duration = Duration::from_secs(2);
const DEVICE_INTERVAL: Duration = Duration::from_millis(20);

/// An open file or folder that is locked until this is dropped.
#[derive(Debug)]
pub struct Locked(File);

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // To close it would do, but for a program that is just being started: it has all descriptors for a moment. Where it
        // fails there was no lock.
        let _ = self.0.unlock();
    }
}

/// Locks `file`, which is at `path`: for others that only look as well if it `is_shared`, else for nobody else. Otherwise
/// gives who has it already, as the subject of a sentence.
pub(crate) fn lock(file: File, path: &Path, is_shared: bool) -> Result<Result<Locked, String>> {
    let doing = || format!("locking {}", path.display());
    let is_device = file.metadata().doing(doing)?.file_type().is_block_device();
    let deadline = Instant::now() + DEVICE_PATIENCE;
    loop {
        let locked = if is_shared { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) => return Ok(Ok(Locked(file))),
            Err(TryLockError::WouldBlock) if is_device && Instant::now() < deadline => {
                std::thread::sleep(DEVICE_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Ok(Err(holder(&file))),
            Err(TryLockError::Error(error)) if is_without_locks(&error) => return Ok(Ok(Locked(file))),
            Err(TryLockError::Error(error)) => return Err(error).doing(doing),
        }
    }
}

/// Some file systems have none.
fn is_without_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOLCK | libc::ENOSYS))
}

/// Who has locked a range of `file`, as the subject of a sentence.
pub(crate) fn holder_of_range(file: &File) -> Option<String> {
    // SAFETY: all zeros is a valid description of a lock: from the beginning to the end.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    (wanted.l_type, wanted.l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
    // SAFETY: the descriptor is open, and the structure lives across the call, which asks and changes no lock.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut wanted) };
    if asked != 0 || wanted.l_type == libc::F_UNLCK as libc::c_short {
        return None;
    }
    // Those of open files belong to no process.
    Some(u32::try_from(wanted.l_pid).ok().filter(|&pid| pid > 0).map_or_else(anybody, name_of))
}

fn holder(file: &File) -> String {
    let Ok(metadata) = file.metadata() else { return anybody() };
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    holder_in(&table, metadata.dev(), metadata.ino()).map_or_else(anybody, name_of)
}

fn anybody() -> String {
    "another process".into()
}

/// `process 4711 (rotproof)`. The arguments are not asked for: whoever reads those of a process that is stuck is stuck too.
fn name_of(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

/// Who has a lock on a file, by the kernel's table: `1: FLOCK  ADVISORY  WRITE 4711 08:02:131 0 EOF`. Some file systems call
/// their device by another number there, so without a line of both numbers one of the file's own counts.
fn holder_in(table: &str, device: u64, inode: u64) -> Option<u32> {
    let device = format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
    let lines = table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let (pid, file) = (words.next()?.parse::<u32>().ok()?, words.next()?);
        let (on, number) = file.rsplit_once(':')?;
        (kind == "FLOCK" && number.parse() == Ok(inode) && pid > 0).then_some((on, pid))
    });
    let mut found = None;
    for (on, pid) in lines {
        if on == device {
            return Some(pid);
        }
        found = found.or(Some(pid));
    }
    found
}

/// A file without content that stands for something that has no file: whoever has it locked uses that. It is gone afterwards.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    _locked: Locked,
}

impl LockFile {
    /// Locks the one at `path`, or gives who has.
    pub(crate) fn lock(path: &Path, is_shared: bool) -> Result<Result<Self, String>> {
        loop {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
            let file = file.doing(|| format!("making {}", path.display()))?;
            match lock(file, path, is_shared)? {
                Err(holder) => return Ok(Err(holder)),
                // The last one to hold it may have removed it meanwhile.
                Ok(locked) if is_at(&locked, path) => {
                    return Ok(Ok(Self { path: path.to_owned(), _locked: locked }));
                }
                Ok(_) => {}
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Others that share it have it open, and see that it is another one only if they lock it anew.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether `path` is that of the open `file`.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(opened), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (opened.dev(), opened.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_look_share_and_who_writes_is_alone_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        fs::write(&path, "").expect("written");
        let open = || File::open(&path).expect("there");
        let locked = |is_shared| lock(open(), &path, is_shared).expect("asked");
        let readers = [locked(true).expect("free"), locked(true).expect("shared")];
        let me = name_of(std::process::id());
        assert!(me.starts_with("process ") && me.ends_with(')'), "{me}");
        assert_eq!(locked(false).err(), Some(me.clone()));
        // As a program that is just being started has it for a moment.
        let copy = readers[0].try_clone().expect("a second descriptor");
        drop(readers);
        let writer = locked(false).expect("free");
        assert_eq!(locked(true).err(), Some(me));
        drop((writer, copy));
    }

    #[test]
    fn a_range_that_another_program_has_locked_is_seen() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(holder_of_range(&file), None);
        // As QEMU does with an image: it reads byte 100 of locks, on another open file.
        let other =
            File::options().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let other = other.expect("opened once more");
        // SAFETY: all zeros is a valid description of a lock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_start, lock.l_len) = (libc::F_RDLCK as libc::c_short, 100, 1);
        // SAFETY: the descriptor is open, and the structure lives across the call.
        assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
        assert_eq!(holder_of_range(&file), Some("another process".into()));
        drop(other);
        assert_eq!(holder_of_range(&file), None);
    }

    #[test]
    fn the_table_of_locks_names_the_process() {
        let table = "1: POSIX  ADVISORY  READ 10 08:02:131 128 128\n2: FLOCK  ADVISORY  WRITE 11 08:02:132 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 08:02:132 0 EOF\n3: FLOCK  ADVISORY  READ 13 00:1b:131 0 EOF\n\
                     4: OFDLCK ADVISORY  WRITE -1 08:02:131 0 EOF\nnonsense\n";
        let device = libc::makedev(8, 2);
        assert_eq!(holder_in(table, device, 132), Some(11));
        assert_eq!(
            holder_in(table, device, 131),
            Some(13),
            "as btrfs, whose device has another number there"
        );
        assert_eq!(holder_in(table, device, 133), None);
    }

    #[test]
    fn a_lock_without_a_file_of_its_own_leaves_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let locked = LockFile::lock(&path, false).expect("asked").expect("free");
        let holder = LockFile::lock(&path, false).expect("asked").expect_err("taken");
        assert!(holder.starts_with("process "), "{holder}");
        drop(locked);
        assert!(!path.exists());
        LockFile::lock(&path, true).expect("asked").expect("free again");
    }
}
