//! The table of a file that is made durable again and again, kept open, and which of its pages are *solid*: durable with all
//! that the file system knows of them, so that what is written over them needs nothing more than to be written and flushed.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::format::PAGE;
use crate::stat::keep;
use crate::table::Table;

/// Ranges of a table with holes that are looked at; the pages of others are solid once they were written.
const RANGES_MAX: usize = 64;

/// Pages of a file, by their numbers, that are durable with all that the file system knows of them.
#[derive(Default)]
pub struct Solid(Vec<u64>);

impl Solid {
    /// Whether a page is.
    pub fn has(&self, page: u64) -> bool {
        self.0.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Says that a page is.
    pub fn add(&mut self, page: u64) {
        let word = (page / 64) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (page % 64);
    }

    /// Says so of all these.
    pub fn add_all(&mut self, pages: Vec<std::ops::Range<u64>>) {
        pages.into_iter().flatten().for_each(|page| self.add(page));
    }
}

/// Ranges of pages of a file that are no holes, from a page on and no more than so many. If the file is made durable after this was
/// asked, they are solid.
pub fn placed(file: &File, from: u64, ranges_max: usize) -> Vec<std::ops::Range<u64>> {
    let seek = |from: i64, what| {
        // SAFETY: takes an open descriptor and numbers; nobody uses its position.
        unsafe { libc::lseek(file.as_raw_fd(), from, what) }
    };
    let mut ranges = Vec::new();
    let mut at = (from * PAGE as u64).cast_signed();
    while ranges.len() < ranges_max {
        let begin = seek(at, libc::SEEK_DATA);
        let end = if begin < 0 { -1 } else { seek(begin, libc::SEEK_HOLE) };
        if end <= begin {
            break;
        }
        ranges.push((begin as u64).div_ceil(PAGE as u64)..end as u64 / PAGE as u64);
        at = end;
    }
    ranges
}

/// See the head of the module.
pub struct OpenTable {
    file: Arc<File>,
    /// How often the table had been cut.
    cuts: u64,
    /// Counted from the beginning of the table.
    solid: Solid,
}

impl OpenTable {
    /// The one that is open, or a new one. After a cut, of which all processes count the same `cuts`, no page is known to be
    /// solid.
    pub fn of<'a>(opened: &'a mut Option<Self>, table: &Table, cuts: u64) -> Result<&'a mut Self> {
        let mut now = match opened.take() {
            Some(now) => now,
            None => Self { file: Arc::new(keep(table.open_or_make()?)), cuts, solid: Solid::default() },
        };
        if now.cuts != cuts {
            now.cuts = cuts;
            now.solid = Solid::default();
        }
        Ok(opened.insert(now))
    }

    /// The table.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The table, for who goes on without the one that is open here.
    pub fn shared(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Whether a page is solid.
    pub fn is_solid(&self, page: u64) -> bool {
        self.solid.has(page)
    }

    /// Makes the table durable. All pages that had a place on the disk before are solid then.
    pub fn sync(&mut self, table: &Table) -> Result<()> {
        let pages = placed(&self.file, 0, RANGES_MAX);
        table.sync(&self.file)?;
        self.solid.add_all(pages);
        Ok(())
    }

    /// Begins to write what is in the cache.
    pub fn begin(&self) -> Result<()> {
        begin_writing(&self.file).doing(|| "writing a table".to_owned())
    }

    /// Waits until the device has all that was in the cache. It need not be durable.
    pub fn wait(&self) -> Result<()> {
        wait_for(&self.file)
    }
}

/// [`OpenTable::wait`] of a table.
pub fn wait_for(table: &File) -> Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(table, 0, 0, all).doing(|| "writing a table".to_owned())
}

/// Begins to write what the cache has of a file.
pub fn begin_writing(file: &File) -> std::io::Result<()> {
    sync_range(file, 0, 0, libc::SYNC_FILE_RANGE_WRITE)
}

/// `sync_file_range`; a length of 0 is all of the file from there.
pub fn sync_range(file: &File, offset: u64, length: u64, how: libc::c_uint) -> std::io::Result<()> {
    let (offset, length) = (offset.cast_signed(), length.cast_signed());
    // SAFETY: takes an open descriptor and numbers.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, how) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether a flush for one file of a file system makes durable what the device has of all of them, and a page that is written
/// over stays where it is. So it is on ext4; on those that write elsewhere (btrfs, reflinks of xfs) a page needs more.
pub fn is_flushed_at_once(folder: &File) -> bool {
    // SAFETY: all zeros is a valid value of it.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: takes an open descriptor, and writes into a structure of this frame.
    unsafe {
        libc::fstatfs(folder.as_raw_fd(), &raw mut found) == 0 && found.f_type == libc::EXT4_SUPER_MAGIC
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Pair};

    #[test]
    fn pages_are_solid_until_the_table_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };
        let table = Table::new(folder.path(), pair, 5);
        let mut opened = None;
        let first = OpenTable::of(&mut opened, &table, 0).expect("made");
        assert!(!first.is_solid(3) && !first.is_solid(1000));
        first.solid.add(1000);
        first.begin().expect("begun");
        first.wait().expect("written");
        let again = OpenTable::of(&mut opened, &table, 0).expect("open");
        assert!(again.is_solid(1000) && !again.is_solid(999));
        assert!(!OpenTable::of(&mut opened, &table, 1).expect("open").is_solid(1000));
    }
}
