//! Where the sums of a file are on the disk: in a slot if it is small, in a table of its own if it is not; and what is found there
//! when it is opened.
//!
//! A file changes its home when it has outgrown it, or when it was cut to nothing and written anew. What the old home says stays
//! there until the new one is durable, and the one with the highest generation holds. So a crash in between leaves one or the
//! other, as with two headers.

use std::sync::atomic::Ordering;

use rotproof_block::{Error, ErrorKind, Result};

use crate::clock;
use crate::file::{GuardedFile, blocks_of};
use crate::format::{Damage, Entry, EntryPage, Header, Pair};
use crate::record::Class;
use crate::slots::{FoundRecord, FoundSlot};
use crate::stat::{Identity, Stat};
use crate::table::Found;

/// See the head of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Nothing was saved yet.
    Nowhere,
    /// A slot.
    Slot(Class),
    /// A table.
    Table,
}

impl Home {
    const NUMBERED: [Self; 4] =
        [Self::Nowhere, Self::Slot(Class::Small), Self::Slot(Class::Medium), Self::Table];

    /// As it is in memory that processes share.
    pub(crate) fn number(self) -> u64 {
        Self::NUMBERED.iter().position(|home| *home == self).unwrap_or(0) as u64
    }

    fn of_number(number: u64) -> Self {
        Self::NUMBERED.get(number as usize).copied().unwrap_or(Self::Nowhere)
    }

    /// The smallest that has room for so many blocks.
    fn of_blocks(blocks: u64, pair: Pair) -> Self {
        Class::ALL.into_iter().find(|class| blocks <= class.blocks(pair)).map_or(Self::Table, Self::Slot)
    }
}

/// What the disk says of a file.
pub(crate) struct Known {
    pub(crate) home: Home,
    pub(crate) what: KnownAs,
}

/// How good that is.
pub(crate) enum KnownAs {
    /// Nothing: it is new, or was never taken in.
    Nothing,
    /// A table.
    Table(Box<Header>),
    /// A record.
    Record(FoundRecord),
    /// Headers are damaged. Entries, of a record, may be right.
    Damaged(Vec<Entry>),
}

impl KnownAs {
    /// Whether it is what was saved of the file as it is now.
    fn is_of(&self, stat: &Stat) -> bool {
        let header = match self {
            Self::Table(header) => header,
            Self::Record(record) => &record.header,
            Self::Nothing | Self::Damaged(_) => return false,
        };
        header.size == stat.size && header.modified == stat.modified
    }
}

/// Nothing in the slot is to stay: both copies are written.
pub(crate) const UNPROTECTED: u64 = 2;

impl GuardedFile {
    /// Where the sums are.
    pub(crate) fn home(&self) -> Home {
        Home::of_number(self.live.head().home.load(Ordering::Relaxed))
    }

    pub(crate) fn set_home(&self, home: Home) {
        self.live.head().home.store(home.number(), Ordering::Relaxed);
    }

    /// Where sums are to be saved. A file never goes back to a smaller home but when it was written anew.
    pub(crate) fn next_home(&self, size: u64, is_anew: bool) -> Home {
        let fitting = Home::of_blocks(blocks_of(size), self.pair);
        let now = self.home();
        if is_anew || fitting.number() > now.number() { fitting } else { now }
    }

    /// Of a file that was born a moment ago nothing is on the disk. Where its inode has had another life, something may still be
    /// there, or of a write that nobody sees in its time of modification: this file's records have a generation that no such thing
    /// has, and the next one who looks takes away what is not of it.
    pub(crate) fn newborn(&self) -> Known {
        self.live.head().generation.store(clock::wall_nanoseconds(), Ordering::Relaxed);
        Known { home: Home::Nowhere, what: KnownAs::Nothing }
    }

    /// Looks in all places that may know of the file. What another file has left there is not looked at.
    pub(crate) fn look_up(&self, stat: &Stat) -> Result<Known> {
        let guard = self.store.settings().id;
        let is_ours = |header: &Header| {
            let other = Identity { birth: header.birth, reuse: header.reuse };
            header.guard == guard && other.is_same(self.identity)
        };
        let mut best: Option<(u64, Known)> = None;
        let mut damaged = None;
        let mut take = |generation, home, what| {
            if best.as_ref().is_none_or(|(known, _)| *known < generation) {
                best = Some((generation, Known { home, what }));
            }
        };
        for class in Class::ALL {
            match self.store.slots.read(class, self.inode)? {
                FoundSlot::Record(record) if is_ours(&record.header) => {
                    take(record.header.generation, Home::Slot(class), KnownAs::Record(record));
                }
                FoundSlot::Nothing => {}
                // Of another life of the inode. It must not stay beside a record of this one.
                FoundSlot::Record(_) => drop(self.store.slots.clear(class, self.inode, |_| true)?),
                FoundSlot::Damaged(Damage::Version(version), _) => {
                    return Err(too_new(&self.store.slot(class, self.inode).0, version));
                }
                FoundSlot::Damaged(_, entries) => damaged = Some((Home::Slot(class), entries)),
            }
        }
        let mut has_table = false;
        if let Some(file) = self.table.open()? {
            match self.table.header(&file)? {
                Found::Header(header) if is_ours(&header) => {
                    has_table = true;
                    take(header.generation, Home::Table, KnownAs::Table(header));
                }
                Found::Header(_) | Found::Nothing => self.table.remove()?,
                Found::Damaged(Damage::Version(version)) => {
                    return Err(too_new(self.table.path(), version));
                }
                Found::Damaged(_) => damaged = Some((Home::Table, Vec::new())),
            }
        }
        // Whatever is written next is later than all that is there.
        let last = best.as_ref().map_or(0, |(generation, _)| *generation);
        self.live.head().generation.store(last, Ordering::Relaxed);
        // What has rotted may have been the last word, unless a larger home knows the file as it is. A file without any bytes has
        // nothing to lose.
        if let Some((home, entries)) = damaged {
            let is_outdone = best
                .as_ref()
                .is_some_and(|(_, known)| known.home.number() > home.number() && known.what.is_of(stat));
            if stat.size > 0 && !is_outdone {
                return Ok(Known { home, what: KnownAs::Damaged(entries) });
            }
            match home {
                Home::Slot(class) => drop(self.store.slots.clear(class, self.inode, |_| true)?),
                Home::Table | Home::Nowhere => self.table.remove()?,
            }
        }
        let known = best.map_or(Known { home: Home::Nowhere, what: KnownAs::Nothing }, |(_, known)| known);
        // It went back to a slot, which says so durably: the table has had its time.
        if has_table
            && let KnownAs::Record(record) = &known.what
            && !record.header.is_unsynced
            && record.is_whole
        {
            self.table.remove()?;
        }
        Ok(known)
    }

    /// Fills entries of blocks that nobody has looked up yet from what a record has.
    pub(crate) fn load_record(&self, entries: &[Entry], is_whole: bool) -> Result<()> {
        let page =
            if is_whole { EntryPage::Whole(entries.to_vec()) } else { EntryPage::Damaged(entries.to_vec()) };
        self.make_room(entries.len() as u64)?;
        self.fill_entries(0..entries.len() as u64, &page);
        Ok(())
    }

    /// The entries of a page of sums as the disk has them.
    pub(crate) fn page_on_disk(&self, index: u64) -> Result<EntryPage> {
        Ok(match self.home() {
            Home::Nowhere => EntryPage::Absent,
            Home::Table => match self.table.open()? {
                Some(file) => self.table.entries(&file, index)?,
                None => EntryPage::Absent,
            },
            Home::Slot(_) if index > 0 => EntryPage::Absent,
            Home::Slot(class) => match self.store.slots.read(class, self.inode)? {
                FoundSlot::Nothing => EntryPage::Absent,
                FoundSlot::Record(FoundRecord { entries, is_whole: true, .. }) => EntryPage::Whole(entries),
                FoundSlot::Record(FoundRecord { entries, .. }) | FoundSlot::Damaged(_, entries) => {
                    EntryPage::Damaged(entries)
                }
            },
        })
    }

    /// Writes a record over the copy that is not needed, and says which.
    pub(crate) fn write_record(&self, class: Class, header: &Header, entries: &[Entry]) -> Result<usize> {
        let entries = &entries[..entries.len().min(class.blocks(self.pair) as usize)];
        let protected = self.live.head().protected.load(Ordering::Relaxed);
        if protected == UNPROTECTED {
            self.store.slots.write(class, 1, header, entries)?;
            self.protect(1);
        }
        let copy = 1 - (self.live.head().protected.load(Ordering::Relaxed) & 1) as usize;
        self.store.slots.write(class, copy, header, entries)?;
        Ok(copy)
    }

    /// A record of all that is known now, which needs no flush.
    pub(crate) fn rewrite_record(&self, class: Class, stat: Stat) -> Result<()> {
        let entries = self.entries_now(0..blocks_of(self.size()), blocks_of(self.size()))?;
        self.write_record(class, &self.header(self.size(), stat), &entries).map(drop)
    }

    /// After what was saved has become durable: it stays until something later is.
    pub(crate) fn protect(&self, copy: usize) {
        self.live.head().protected.store(copy as u64, Ordering::Relaxed);
    }
}

fn too_new(path: &std::path::Path, version: u32) -> Error {
    let what = format!("{} was written by a newer Rotproof (format {version}); use that one", path.display());
    Error::new(ErrorKind::Unsupported, what)
}
