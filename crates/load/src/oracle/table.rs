//! Eight bytes a block: in memory, and for large targets in a file that is mapped, so that the kernel can move to disk
//! what is not looked at.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// Entries from which on a file holds them: 512 MiB, of a target of 256 GiB.
pub const MAPPED_MIN: usize = 1 << 26;

/// A row of numbers, zeros at first.
pub struct Table(Kind);

enum Kind {
    Memory(Vec<u64>),
    Mapped(Mapped),
}

impl Table {
    /// So many zeros; where there is no room for a file in memory, of which pages are taken as they are written.
    pub fn zeros(count: usize) -> Self {
        Self::with_threshold(count, MAPPED_MIN)
    }

    fn with_threshold(count: usize, mapped_min: usize) -> Self {
        let mapped = (count >= mapped_min.max(1)).then(|| Mapped::new(&folder(), count));
        match mapped {
            Some(Ok(mapped)) => Self(Kind::Mapped(mapped)),
            Some(Err(_)) | None => Self(Kind::Memory(vec![0; count])),
        }
    }
}

/// Where large temporary files belong: /tmp is often memory.
fn folder() -> std::path::PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(folder) => folder.into(),
        None => Path::new("/var/tmp").to_owned(),
    }
}

/// Memory that a file without a name stands behind.
struct Mapped {
    start: NonNull<u64>,
    count: usize,
}

// SAFETY: it owns its memory like a `Vec<u64>`, and hands it out under the same rules.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(folder: &Path, count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<u64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = unnamed_file(folder)?;
        let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // All of it now: a write to a page that finds the disk full would kill the process.
        // SAFETY: the descriptor is open.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => {}
            number => return Err(io::Error::from_raw_os_error(number)),
        }
        // SAFETY: a new mapping of a file that nobody else knows; checked below.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count })
    }
}

/// A file that is gone with its last descriptor or mapping, even if the process is killed.
fn unnamed_file(folder: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is of this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

impl Deref for Table {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match &self.0 {
            Kind::Memory(entries) => entries,
            // SAFETY: the mapping holds so many numbers, aligned to a page, and lives as long as the borrow.
            Kind::Mapped(mapped) => unsafe {
                std::slice::from_raw_parts(mapped.start.as_ptr(), mapped.count)
            },
        }
    }
}

impl DerefMut for Table {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Kind::Memory(entries) => entries,
            // SAFETY: as in `deref`; the table is borrowed alone.
            Kind::Mapped(mapped) => unsafe {
                std::slice::from_raw_parts_mut(mapped.start.as_ptr(), mapped.count)
            },
        }
    }
}

impl Clone for Table {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Table {}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_table_is_as_one_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let mapped = Mapped::new(folder.path(), 100_003).expect("this file system has unnamed files");
        let mut mapped = Table(Kind::Mapped(mapped));
        let mut memory = Table::with_threshold(100_003, usize::MAX);
        assert!(matches!(memory.0, Kind::Memory(_)));
        assert_eq!(mapped, memory);
        for (number, at) in (1..).zip([0, 511, 512, 100_002]) {
            (mapped[at], memory[at]) = (number, number);
        }
        assert_eq!(mapped, memory);
        assert_eq!(mapped.clone(), memory);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "the file has no name");
    }

    #[test]
    fn without_room_for_a_file_it_is_in_memory() {
        assert!(Mapped::new(Path::new("/nowhere"), 10).is_err());
        assert!(Mapped::new(Path::new("/proc"), 10).is_err());
        assert_eq!(Table::zeros(10).len(), 10);
        assert_eq!(Table::with_threshold(0, 0).len(), 0);
    }
}
