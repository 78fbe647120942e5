//! The table of one file on the disk: its headers and pages of entries.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::format::{
    Damage, Entry, EntryPage, HEADERS, Header, PAGE, Pair, Stamp, entries_of, page_of, stamp_of,
};

/// The table of the file with this inode, which may not be there yet.
#[derive(Clone, Debug)]
pub struct Table {
    path: PathBuf,
    pair: Pair,
    inode: u64,
}

/// The headers of a table as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no table.
    Nothing,
    /// The header that holds.
    Header(Box<Header>),
    /// Neither of them can be read.
    Damaged(Damage),
}

impl Table {
    /// The table of `inode` in the folder `tables`.
    pub fn new(tables: &Path, pair: Pair, inode: u64) -> Self {
        let path = tables.join(format!("{:02x}", inode & 0xff)).join(format!("{inode:x}"));
        Self { path, pair, inode }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, if it is there.
    pub fn open(&self) -> Result<Option<File>> {
        match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == IoKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(|| format!("opening the table {}", self.path.display())),
        }
    }

    /// Opens it, and makes it if it is not there.
    pub fn open_or_make(&self) -> Result<File> {
        let doing = || format!("making the table {}", self.path.display());
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path);
        match open() {
            Err(error) if error.kind() == IoKind::NotFound => {
                std::fs::create_dir_all(self.path.parent().unwrap_or(Path::new("."))).doing(doing)?;
                open().doing(doing)
            }
            other => other.doing(doing),
        }
    }

    /// Removes it. Without effect if it is not there.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != IoKind::NotFound => {
                Err(error).doing(|| format!("removing the table {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Reads its headers.
    pub fn header(&self, file: &File) -> Result<Found> {
        let mut found: Option<Header> = None;
        let mut damage = None;
        for slot in 0..HEADERS {
            let Some(page) = self.read_page(file, slot)? else { continue };
            if page.iter().all(|byte| *byte == 0) {
                continue;
            }
            match Header::of_page(&page) {
                Ok(header) if header.inode != self.inode => {
                    damage = Some(Damage::Value("the number of the inode"));
                }
                Ok(header) => {
                    if found.as_ref().is_none_or(|known| known.generation < header.generation) {
                        found = Some(header);
                    }
                }
                Err(Damage::Version(version)) => {
                    // Not ours to read; a header of another version is never written over.
                    return Ok(Found::Damaged(Damage::Version(version)));
                }
                Err(error) => damage = Some(error),
            }
        }
        Ok(match (found, damage) {
            (Some(header), _) => Found::Header(Box::new(header)),
            (None, Some(damage)) => Found::Damaged(damage),
            (None, None) => Found::Nothing,
        })
    }

    /// Writes the next header, over the older one.
    pub fn write_header(&self, file: &File, header: &Header) -> Result<()> {
        let place = header.generation % HEADERS * PAGE as u64;
        file.write_all_at(&header.to_page(), place).doing(|| self.doing("writing"))
    }

    /// Reads a page of entries.
    pub fn entries(&self, file: &File, index: u64) -> Result<EntryPage> {
        Ok(match self.read_page(file, HEADERS + index)? {
            None => EntryPage::Absent,
            Some(page) => entries_of(self.pair, self.inode, index, &page),
        })
    }

    /// The stamp of a page of entries that is there and whole.
    pub fn stamp(&self, file: &File, index: u64) -> Result<Option<Stamp>> {
        Ok(self.read_page(file, HEADERS + index)?.and_then(|page| {
            let entries = entries_of(self.pair, self.inode, index, &page);
            if matches!(entries, EntryPage::Whole(_)) { stamp_of(&page) } else { None }
        }))
    }

    /// Writes a page of entries, with a stamp if no header is written with it.
    pub fn write_entries(
        &self,
        file: &File,
        index: u64,
        entries: &[Entry],
        stamp: Option<Stamp>,
    ) -> Result<()> {
        let page = page_of(self.pair, self.inode, index, entries, stamp);
        let place = (HEADERS + index) * PAGE as u64;
        file.write_all_at(&page, place).doing(|| self.doing("writing"))
    }

    /// Makes durable what was written.
    pub fn sync(&self, file: &File) -> Result<()> {
        file.sync_data().doing(|| self.doing("syncing"))
    }

    /// Forgets the pages behind those of a file with so many.
    pub fn cut(&self, file: &File, pages: u64) -> Result<()> {
        let length = (HEADERS + pages) * PAGE as u64;
        let now = file.metadata().doing(|| self.doing("looking at"))?.len();
        if now > length { file.set_len(length).doing(|| self.doing("cutting")) } else { Ok(()) }
    }

    /// A page; `None` behind the end.
    fn read_page(&self, file: &File, index: u64) -> Result<Option<[u8; PAGE]>> {
        let mut page = [0; PAGE];
        match file.read_exact_at(&mut page, index * PAGE as u64) {
            Ok(()) => Ok(Some(page)),
            Err(error) if error.kind() == IoKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error).doing(|| self.doing("reading")),
        }
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} the table {}", self.path.display())
    }
}
