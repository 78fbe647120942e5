//! Writing what was gathered to where the sums of a file are on the disk.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use rotproof_block::Result;
use rotproof_block::error::IoContext;

use crate::file::GuardedFile;
use crate::format::{HEADERS, Header, REGIONS};
use crate::home::Home;
use crate::live::{marking, state};
use crate::opened::OpenTable;
use crate::record::Class;
use crate::snapshot::Snapshot;
use crate::stat::Stat;

/// Pages of the table that a snapshot writes, counted from its beginning.
pub(crate) fn pages_of<'a>(snapshot: &'a Snapshot, header: &Header) -> impl Iterator<Item = u64> + use<'a> {
    let header = header.generation % HEADERS;
    std::iter::once(header).chain(snapshot.pages.iter().map(|(index, _)| HEADERS + index))
}

impl GuardedFile {
    /// Whether the table on the disk says all of a snapshot.
    pub(crate) fn is_saved(&self, snapshot: &Snapshot, stat: Stat) -> bool {
        let head = self.live.head();
        snapshot.blocks.is_empty()
            && snapshot.cut.is_none()
            && snapshot.home == self.home()
            && head.state.load(Ordering::Relaxed) & state::UNSYNCED == 0
            && stat.modified_nanoseconds() == head.seen.load(Ordering::Relaxed)
            && head.durable() == snapshot.size
    }

    /// Writes a snapshot to the table. With `is_synced` the data are durable, and the table is made so too.
    pub(crate) fn save(&self, snapshot: &Snapshot, is_synced: bool) -> Result<()> {
        self.save_as(snapshot, self.stat()?, is_synced)
    }

    /// The same for who has looked at the file, which nobody has written to since.
    pub(crate) fn save_as(&self, snapshot: &Snapshot, stat: Stat, is_synced: bool) -> Result<()> {
        let head = self.live.head();
        if self.is_saved(snapshot, stat) && !(is_synced && self.is_flying()) {
            return Ok(());
        }
        if is_synced {
            head.state.fetch_and(!state::UNSYNCED, Ordering::Relaxed);
        } else {
            head.state.fetch_or(state::UNSYNCED, Ordering::Relaxed);
        }
        if let Home::Slot(class) = snapshot.home {
            let copy = self.save_record(class, snapshot, stat)?;
            if is_synced {
                self.store.slots.sync(class, self.inode)?;
                self.protect(copy);
            }
            self.note_saved(snapshot, stat, is_synced);
            return Ok(());
        }
        let mut opened = self.opened.lock();
        self.move_to_table(&mut opened)?;
        if let Some(pages) = snapshot.cut {
            let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
            self.table.cut(table.file(), pages)?;
            head.cuts.fetch_add(1, Ordering::Relaxed);
        }
        let table = OpenTable::of(&mut opened, &self.table, head.cuts.load(Ordering::Relaxed))?;
        self.write_table(table, snapshot, stat)?;
        if is_synced {
            table.sync(&self.table)?;
        }
        drop(opened);
        self.note_saved(snapshot, stat, is_synced);
        Ok(())
    }

    /// Writes the pages of a snapshot and the next header, which is given back. The name in it is that of when the file was opened
    /// or its table was last settled: it is for people, and to ask the kernel for it takes as long as to write a page.
    pub(crate) fn write_table(&self, table: &OpenTable, snapshot: &Snapshot, stat: Stat) -> Result<Header> {
        for (index, entries) in &snapshot.pages {
            self.table.write_entries(table.file(), *index, entries, None)?;
        }
        let header = Header { name: self.name().into_bytes(), ..self.header(snapshot.size, stat) };
        self.table.write_header(table.file(), &header)?;
        self.set_home(Home::Table);
        Ok(header)
    }

    pub(crate) fn note_saved(&self, snapshot: &Snapshot, stat: Stat, is_synced: bool) {
        let head = self.live.head();
        head.seen.store(stat.modified_nanoseconds(), Ordering::Relaxed);
        head.note_stored(snapshot.size);
        if snapshot.cut.is_some() || is_synced {
            head.end_telling(snapshot.size);
        }
        if is_synced {
            head.marking.fetch_and(!marking::BY_SYNCER, Ordering::Relaxed);
        }
    }

    pub(crate) fn stat(&self) -> Result<Stat> {
        Stat::of(self.file.as_raw_fd()).doing(|| format!("looking at {}", self.name()))
    }

    /// The next header of a table, which says where the file is.
    pub(crate) fn named_header(&self, size: u64, stat: Stat) -> Header {
        let name = self.current_name();
        self.set_name(&name);
        Header { name: name.into_os_string().into_encoded_bytes(), ..self.header(size, stat) }
    }

    /// The next header.
    pub(crate) fn header(&self, size: u64, stat: Stat) -> Header {
        let head = self.live.head();
        let bits = head.state.load(Ordering::Relaxed);
        head.told_state.store(bits & state::TOLD, Ordering::Relaxed);
        head.stamped.store(0, Ordering::Relaxed);
        let mut header = Header {
            generation: head.generation.fetch_add(1, Ordering::Relaxed) + 1,
            guard: self.store.settings().id,
            inode: self.inode,
            birth: self.identity.birth,
            reuse: self.identity.reuse,
            session: self.store.session(),
            size,
            modified: stat.modified,
            is_unsynced: bits & state::UNSYNCED != 0,
            is_complete: bits & state::COMPLETE != 0,
            is_foreign: bits & state::FOREIGN != 0,
            region_shift: head.region_shift.load(Ordering::Relaxed) as u8,
            regions: Box::new([0; REGIONS / 64]),
            name: Vec::new(),
        };
        self.copy_marks(&mut header);
        header
    }

    /// The marks of regions into a header.
    pub(crate) fn copy_marks(&self, header: &mut Header) {
        for (word, mark) in header.regions.iter_mut().zip(&self.live.head().marked) {
            *word = mark.load(Ordering::Relaxed);
        }
    }

    /// Writes the record of a snapshot, and says over which copy.
    pub(crate) fn save_record(&self, class: Class, snapshot: &Snapshot, stat: Stat) -> Result<usize> {
        let home = Home::Slot(class);
        if self.home() != home {
            // What is to stay lies in another place.
            self.protect(0);
        }
        let entries = snapshot.pages.first().map_or(&[][..], |(_, entries)| entries);
        let copy = self.write_record(class, &self.header(snapshot.size, stat), entries)?;
        self.set_home(home);
        Ok(copy)
    }

    /// Of a file whose sums are in a table from now on: what an earlier one had must not be mixed with it.
    pub(crate) fn move_to_table(&self, opened: &mut Option<OpenTable>) -> Result<()> {
        if self.home() != Home::Table {
            *opened = None;
            self.table.remove()?;
        }
        Ok(())
    }
}
