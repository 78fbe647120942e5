//! The files of slots: where the records of small files lie, each at a place that its inode alone says.
//!
//! Nothing is allocated and nothing is looked up, so there is nothing that a crash could leave half done but the records
//! themselves. The files are as sparse as inodes are. Each file has the slots of as many inodes.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::format::{Damage, Entry, Header, PAGE, Pair};
use crate::opened::{Solid, placed, sync_range};
use crate::record::{COPIES, Class, Copy, of_copy, to_copy};
use crate::stat::keep;

/// Inodes of a file, as a power of two.
const INODES_SHIFT: u32 = 20;
/// Files that are kept open.
const OPEN_MAX: usize = 64;
/// Pages before one that is made durable, and ranges from there on, that are asked whether they have become durable with it.
const NEIGHBOURS: u64 = 32;
const NEIGHBOUR_RANGES: usize = 8;

/// A file of slots.
pub struct SlotFile {
    file: File,
    /// What is written over these pages needs nothing more than to be written and flushed.
    solid: Mutex<Solid>,
}

/// See the head of the module.
pub struct Slots {
    folder: PathBuf,
    pair: Pair,
    open: Mutex<HashMap<(Class, u64), Arc<SlotFile>>>,
}

/// The record of a file as it was found in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its header.
    pub header: Box<Header>,
    /// Its entries.
    pub entries: Vec<Entry>,
    /// It is as it was written.
    pub is_whole: bool,
    /// Which copy it is.
    pub copy: usize,
    /// The copy that is to stay until a later record is durable.
    pub protected: usize,
}

/// What a slot has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundSlot {
    /// Nothing.
    Nothing,
    /// The record that holds.
    Record(FoundRecord),
    /// The header of a copy has rotted, so it may be the one that held. Entries that may be right.
    Damaged(Damage, Vec<Entry>),
}

impl Slots {
    /// In this folder, which need not be there yet.
    pub fn new(folder: PathBuf, pair: Pair) -> Self {
        Self { folder, pair, open: Mutex::default() }
    }

    /// The file in which the slot of an inode is.
    pub fn path(&self, class: Class, inode: u64) -> PathBuf {
        self.path_of(class, inode >> INODES_SHIFT)
    }

    fn path_of(&self, class: Class, group: u64) -> PathBuf {
        self.folder.join(format!("{}-{group:x}", word(class)))
    }

    /// Where the slot of an inode begins in its file.
    pub fn place(class: Class, inode: u64) -> u64 {
        (inode & ((1 << INODES_SHIFT) - 1)) * class.slot_bytes() as u64
    }

    /// The file that has the slot of an inode; `None` if it is not there, and nobody `makes` it.
    fn find(&self, class: Class, inode: u64, makes: bool) -> Result<Option<Arc<SlotFile>>> {
        let key = (class, inode >> INODES_SHIFT);
        let mut open = self.open.lock();
        if let Some(file) = open.get(&key) {
            return Ok(Some(Arc::clone(file)));
        }
        let path = self.path(class, inode);
        let doing = || format!("opening {}", path.display());
        let options = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(makes).truncate(false);
            options.open(&path)
        };
        let file = match options() {
            // Who only looks must be able to where there is no room for a file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !makes => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.folder).doing(doing)?;
                options()
            }
            other => other,
        };
        let file = Arc::new(SlotFile { file: keep(file.doing(doing)?), solid: Mutex::default() });
        if open.len() >= OPEN_MAX {
            // Whoever has one of them in hand keeps it.
            open.clear();
        }
        open.insert(key, Arc::clone(&file));
        Ok(Some(file))
    }

    /// The same for who writes to it.
    fn file(&self, class: Class, inode: u64) -> Result<Arc<SlotFile>> {
        let found = self.find(class, inode, true)?;
        found.ok_or_else(|| Error::new(ErrorKind::Internal, "a file of slots that was made is not there"))
    }

    /// Reads the slot of an inode.
    pub fn read(&self, class: Class, inode: u64) -> Result<FoundSlot> {
        let mut bytes = [0; Class::Medium.slot_bytes()];
        let bytes = &mut bytes[..class.slot_bytes()];
        if !self.read_bytes(class, inode, bytes)? {
            return Ok(FoundSlot::Nothing);
        }
        Ok(self.judge(class, inode, bytes))
    }

    /// The bytes of a slot; false if nothing is there.
    fn read_bytes(&self, class: Class, inode: u64, bytes: &mut [u8]) -> Result<bool> {
        let Some(file) = self.find(class, inode, false)? else { return Ok(false) };
        let place = Self::place(class, inode);
        let mut done = 0;
        while done < bytes.len() {
            match file.file.read_at(&mut bytes[done..], place + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing(|| self.doing("reading", class, inode)),
            }
        }
        Ok(done > 0)
    }

    fn judge(&self, class: Class, inode: u64, bytes: &[u8]) -> FoundSlot {
        let copies: [Copy; COPIES] = std::array::from_fn(|copy| {
            let size = class.copy_bytes();
            of_copy(class, self.pair, inode, copy, &bytes[copy * size..(copy + 1) * size])
        });
        let mut damage = None;
        let mut best: Option<FoundRecord> = None;
        let mut settled: Option<(u64, usize)> = None;
        for (copy, found) in copies.into_iter().enumerate() {
            match found {
                Copy::Empty => {}
                Copy::Damaged(what, entries) => damage = Some((what, entries)),
                Copy::Record { header, entries, is_whole } => {
                    let rank = (is_whole, header.generation);
                    if is_whole
                        && !header.is_unsynced
                        && settled.is_none_or(|(known, _)| known < header.generation)
                    {
                        settled = Some((header.generation, copy));
                    }
                    if best.as_ref().is_none_or(|known| (known.is_whole, known.header.generation) < rank) {
                        best = Some(FoundRecord { header, entries, is_whole, copy, protected: copy });
                    }
                }
            }
        }
        match (best, damage) {
            (_, Some((what @ Damage::Version(_), entries))) => FoundSlot::Damaged(what, entries),
            // Of the two, the one that can still be read may be the older one.
            (best, Some((what, entries))) => {
                FoundSlot::Damaged(what, best.map_or(entries, |record| record.entries))
            }
            (None, None) => FoundSlot::Nothing,
            (Some(mut record), None) => {
                record.protected = settled.map_or(record.copy, |(_, copy)| copy);
                FoundSlot::Record(record)
            }
        }
    }

    /// Writes a copy of the record of `header`'s inode.
    pub fn write(&self, class: Class, copy: usize, header: &Header, entries: &[Entry]) -> Result<()> {
        let bytes = to_copy(class, self.pair, copy, header, entries);
        let place = Self::place(class, header.inode) + (copy * class.copy_bytes()) as u64;
        let file = self.file(class, header.inode)?;
        file.file.write_all_at(&bytes, place).doing(|| self.doing("writing", class, header.inode))
    }

    /// Empties the slot of an inode, if `is_gone` says so of its record or that cannot be read. Says whether something was there.
    pub fn clear(&self, class: Class, inode: u64, is_gone: impl Fn(&Header) -> bool) -> Result<bool> {
        let is_of_it = match self.read(class, inode)? {
            FoundSlot::Nothing => return Ok(false),
            FoundSlot::Record(record) => is_gone(&record.header),
            FoundSlot::Damaged(..) => true,
        };
        if is_of_it {
            self.wipe(class, inode)?;
        }
        Ok(is_of_it)
    }

    /// Empties the slot of an inode, whatever it has.
    pub fn wipe(&self, class: Class, inode: u64) -> Result<()> {
        let zeros = [0; Class::Medium.slot_bytes()];
        let written = self
            .file(class, inode)?
            .file
            .write_all_at(&zeros[..class.slot_bytes()], Self::place(class, inode));
        written.doing(|| self.doing("writing", class, inode))
    }

    /// Makes a copy of an inode's slot that was written reach the device, without a flush. False if a flush of another file
    /// alone would not make it durable: then it is to be synced.
    pub fn push(&self, class: Class, inode: u64, copy: usize) -> Result<bool> {
        let file = self.file(class, inode)?;
        let page = (Self::place(class, inode) + (copy * class.copy_bytes()) as u64) / PAGE as u64;
        let is_solid = file.solid.lock().has(page);
        if is_solid {
            let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            sync_range(&file.file, page * PAGE as u64, PAGE as u64, all)
                .doing(|| self.doing("writing", class, inode))?;
        }
        Ok(is_solid)
    }

    /// Makes what was written of an inode's slot durable, and with it the slots of its neighbours that have a place by now.
    pub fn sync(&self, class: Class, inode: u64) -> Result<()> {
        let file = self.file(class, inode)?;
        let first = Self::place(class, inode) / PAGE as u64;
        let pages = placed(&file.file, first.saturating_sub(NEIGHBOURS), NEIGHBOUR_RANGES);
        file.file.sync_data().doing(|| self.doing("syncing", class, inode))?;
        let mut solid = file.solid.lock();
        solid.add_all(pages);
        // Nobody but those who hold the locks of this file write to its slot, so what has a place now had it before.
        let pages = class.slot_bytes().div_ceil(PAGE) as u64;
        for page in (first..first + pages).filter(|page| is_placed(&file.file, *page)) {
            solid.add(page);
        }
        Ok(())
    }

    /// Inodes whose slots have something, and the bytes that all slots take on the disk.
    pub fn all(&self) -> Result<(Vec<u64>, u64)> {
        let (mut inodes, mut taken) = (Vec::new(), 0);
        let doing = || format!("reading {}", self.folder.display());
        let files = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((inodes, 0)),
            other => other.doing(doing)?,
        };
        for entry in files {
            let entry = entry.doing(doing)?;
            let name = entry.file_name();
            let Some((class, group)) = name.to_str().and_then(of_name) else { continue };
            let path = entry.path();
            let file = File::open(&path).doing(|| format!("opening {}", path.display()))?;
            taken += file.metadata().doing(doing)?.blocks() * 512;
            let size = class.slot_bytes() as u64;
            let mut bytes = vec![0; PAGE.max(class.slot_bytes())];
            let mut at = 0;
            while let Some(begin) = seek(&file, at, libc::SEEK_DATA)
                && let Some(end) = seek(&file, begin, libc::SEEK_HOLE)
                && begin < end
            {
                let mut place = begin / bytes.len() as u64 * bytes.len() as u64;
                while place < end {
                    let count = file.read_at(&mut bytes, place).doing(doing)?;
                    for (number, slot) in bytes[..count].chunks(class.slot_bytes()).enumerate() {
                        if slot.iter().any(|byte| *byte != 0) {
                            inodes.push(group << INODES_SHIFT | (place / size + number as u64));
                        }
                    }
                    place += bytes.len() as u64;
                }
                at = end;
            }
        }
        inodes.sort_unstable();
        inodes.dedup();
        Ok((inodes, taken))
    }

    fn doing(&self, what: &str, class: Class, inode: u64) -> String {
        format!("{what} {}", self.path(class, inode).display())
    }
}

fn word(class: Class) -> &'static str {
    match class {
        Class::Small => "small",
        Class::Medium => "medium",
    }
}

fn of_name(name: &str) -> Option<(Class, u64)> {
    let (first, group) = name.split_once('-')?;
    let class = Class::ALL.into_iter().find(|class| word(*class) == first)?;
    Some((class, u64::from_str_radix(group, 16).ok()?))
}

fn seek(file: &File, from: u64, what: libc::c_int) -> Option<u64> {
    // SAFETY: takes an open descriptor and numbers; nobody uses its position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from.cast_signed(), what) };
    u64::try_from(found).ok()
}

/// Whether a page is no hole.
fn is_placed(file: &File, page: u64) -> bool {
    seek(file, page * PAGE as u64, libc::SEEK_DATA) == Some(page * PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Moment, REGIONS, Sums};
    use crate::sum::{Algorithm, Sum};

    const PAIR: Pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };

    fn header(inode: u64, generation: u64, is_unsynced: bool) -> Header {
        Header {
            generation,
            guard: [1; 16],
            inode,
            birth: Moment { seconds: 5, nanoseconds: 6 },
            reuse: None,
            session: [2; 16],
            size: 4096,
            modified: Moment::default(),
            is_unsynced,
            is_complete: true,
            is_foreign: false,
            region_shift: 20,
            regions: Box::new([0; REGIONS / 64]),
            name: Vec::new(),
        }
    }

    #[test]
    fn the_later_copy_holds_and_what_was_made_durable_is_protected() {
        let folder = tempfile::tempdir().expect("a folder");
        let slots = Slots::new(folder.path().join("slots"), PAIR);
        let entries = [Entry::Sums(Sums { light: 3, strong: Sum::of_word(4) })];
        // The second inode is one of a file system with numbers of more than 32 bits.
        for inode in [77, (5 << 40) + 3] {
            for class in Class::ALL {
                assert_eq!(slots.read(class, inode).expect("read"), FoundSlot::Nothing);
                slots.write(class, 0, &header(inode, 4, false), &entries).expect("written");
                slots.write(class, 1, &header(inode, 5, true), &[]).expect("written");
                let FoundSlot::Record(record) = slots.read(class, inode).expect("read") else {
                    panic!("a record")
                };
                assert_eq!((record.copy, record.protected, record.header.generation), (1, 0, 5));
                slots.write(class, 1, &header(inode, 6, false), &entries).expect("written");
                let FoundSlot::Record(record) = slots.read(class, inode).expect("read") else {
                    panic!("a record")
                };
                assert_eq!((record.copy, record.protected, record.entries.len()), (1, 1, 1));
                assert_eq!(slots.read(class, inode + 1).expect("read"), FoundSlot::Nothing, "its neighbour");
                assert!(!slots.push(class, inode, 0).expect("asked"), "nobody has synced it");
                slots.sync(class, inode).expect("durable");
                assert!(slots.push(class, inode, 1).expect("written"));
            }
        }
        let (inodes, taken) = slots.all().expect("found");
        assert_eq!(inodes, [77, (5 << 40) + 3]);
        assert!(taken > 0);
        assert!(!slots.clear(Class::Small, 77, |_| false).expect("asked"));
        assert!(slots.clear(Class::Small, 77, |header| header.generation == 6).expect("cleared"));
        assert_eq!(slots.read(Class::Small, 77).expect("read"), FoundSlot::Nothing);
    }

    #[test]
    fn a_header_that_has_rotted_makes_the_other_copy_doubtful() {
        let folder = tempfile::tempdir().expect("a folder");
        let slots = Slots::new(folder.path().to_owned(), PAIR);
        let entries = [Entry::Sums(Sums { light: 3, strong: Sum::of_word(4) })];
        slots.write(Class::Small, 0, &header(77, 4, false), &entries).expect("written");
        slots.write(Class::Small, 1, &header(77, 5, false), &entries).expect("written");
        let file = File::options().write(true).open(slots.path(Class::Small, 77)).expect("slots");
        file.write_all_at(&[0xff], Slots::place(Class::Small, 77) + 512 + 20).expect("rotten");
        let found = slots.read(Class::Small, 77).expect("read");
        assert_eq!(found, FoundSlot::Damaged(Damage::Sum, entries.to_vec()));
    }
}
