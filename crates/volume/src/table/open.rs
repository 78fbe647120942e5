//! A table is made, and found again: the newest whole state, and what the log has since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rotproof_block::turns::Turns;
use rotproof_block::{Buffer, Context, Error, ErrorKind, Result};

use super::doubt::Doubts;
use super::layout::{BLOCK_BYTES, Layout};
use super::log::{self, LogEntry};
use super::memory::Entries;
use super::slots::{Evidence, Found, Told, write_state};
use super::state::{Owner, State};
use super::{Head, Loaded, Order, Replayed, Table, TableCounts};
use crate::io::Io;

/// Blocks of the log that are read at once.
const READ_BLOCKS: u64 = 64;

impl Table {
    /// Makes an empty table on a device; what was there is lost.
    pub(crate) async fn create(io: &Io, layout: &Layout, id: u128, owner: Owner) -> Result<()> {
        let mut state = State::new(id, layout, owner);
        let context = Context::default();
        for copy in 0..2 {
            // A table of the same identity that was here before has left nothing that could be taken for this one's.
            io.write_zeroes(layout.log_at(copy, 0), layout.log_blocks * BLOCK_BYTES, context).await?;
        }
        for _ in 0..2 {
            state.generation += 1;
            write_state(io, layout, &state, context).await?;
        }
        Ok(())
    }

    /// Opens the table of this layout at the beginning of a device; at most `cache_pages` clean pages stay in memory.
    ///
    /// Fails with [`ErrorKind::Invalid`] if there is none, [`ErrorKind::Unsupported`] if it is newer than this code, and
    /// [`ErrorKind::Medium`] if something is lost without which older things would be taken for the newest.
    pub(crate) async fn open(io: &Io, layout: Layout, order: Order, cache_pages: usize) -> Result<Self> {
        let Some(slots) = Found::read(io, &layout).await? else {
            let context = "there are no checksums or maps on this device, or none that can be read";
            return Err(Error::new(ErrorKind::Invalid, context));
        };
        let state = slots.state.clone();
        if (state.entries, state.words) != (layout.entries, layout.words) {
            let context = format!(
                "what is on this device is for {} blocks with entries of {} bytes, and this is about {} blocks with {} bytes: \
                 it was made with another checksum, on a device of another size, or by an earlier rotproof, whose maps took more \
                 room: read it with that one",
                state.entries,
                state.words * 4,
                layout.entries,
                layout.words * 4
            );
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let table = Self {
            order,
            id: state.id,
            entries: Entries::new(layout)?,
            granules: (0..layout.granules).map(|_| AtomicU32::new(0)).collect(),
            pending: Mutex::default(),
            dirty: Mutex::default(),
            fates: Mutex::default(),
            has_lost: false.into(),
            replay: Mutex::default(),
            doubts: Doubts::default(),
            turns: Arc::new(Turns::default()),
            loads: Arc::new(Turns::default()),
            loaded: Mutex::new(Loaded::default()),
            cache_pages: cache_pages.max(4),
            asked: 0.into(),
            served: 0.into(),
            counts: TableCounts::default(),
            before: None,
            head: Mutex::new(Head {
                next: state.log_tail,
                durable: state.log_tail - 1,
                is_unvouched: false,
                whole: state.generation,
                told: Told::default(),
                found: vec![state.witness],
                state,
            }),
            layout,
        };
        table.read_log(io, &slots).await?;
        if order == Order::Beside {
            let marks: Vec<u64> = table.head.lock().state.marks.iter().collect();
            marks.into_iter().for_each(|granule| table.doubts.begin(granule));
        }
        Ok(table)
    }

    /// What the owner of a table keeps in it, of a device whose table probably has this layout: where it has another, the
    /// first copy of the state must be whole. `None` if there is no table.
    pub(crate) async fn owner_of(io: &Io, layout: &Layout) -> Result<Option<Owner>> {
        Ok(Found::read(io, layout).await?.map(|slots| slots.state.owner))
    }

    /// Reads blocks of the log from one copy: together, or one by one where that fails. The kind of the error in place of those that cannot be read.
    async fn read_log_copy(
        &self,
        io: &Io,
        from: usize,
        copy: u64,
        numbers: std::ops::Range<u64>,
    ) -> Vec<Result<Buffer, ErrorKind>> {
        let block = BLOCK_BYTES as usize;
        let at = self.layout.log_at(copy, numbers.start);
        let all = (numbers.end - numbers.start) as usize * block;
        match io.read_copy(from, at, all, Context::default()).await {
            Ok(bytes) => return bytes.chunks(block).map(|block| Ok(Buffer::copy_of(block))).collect(),
            // Whoever does not answer is not asked 64 times.
            Err(error) if error.kind() != ErrorKind::Medium => {
                return numbers.map(|_| Err(error.kind())).collect();
            }
            Err(_) => {}
        }
        let mut blocks = Vec::new();
        for number in numbers {
            let at = self.layout.log_at(copy, number);
            let read = io.read_copy_again(from, at, block, Context::default()).await;
            blocks.push(read.map_err(|error| error.kind()));
        }
        blocks
    }

    /// Takes what the log has since its tail. A block of it that is missing, while a later one says that it was durable, is
    /// counted; those behind it count all the same where entries stand beside data that tell what they are.
    ///
    /// Fails where entries say where data are, and one that was durable is lost: older ones would name older data. And where a newer state
    /// was durable than the one that the slots have, unless the log has all that came since.
    async fn read_log(&self, io: &Io, slots: &Found) -> Result<()> {
        let (tail, words) = (self.head.lock().state.log_tail, self.layout.words);
        let mut found: BTreeMap<u64, log::LogBlock> = BTreeMap::new();
        let mut images: BTreeMap<u64, Buffer> = BTreeMap::new();
        // Blocks that no copy has answered so far, and why. One that answers what is none has no such block.
        let mut unread: BTreeMap<u64, ErrorKind> = BTreeMap::new();
        let mut evidence = Evidence::default();
        let mut at = tail;
        let end = tail + self.layout.log_blocks;
        while at < end {
            // A request ends where the log wraps.
            let until_wrap = self.layout.log_blocks - at % self.layout.log_blocks;
            let count = READ_BLOCKS.min(end - at).min(until_wrap);
            let mut answered = vec![false; count as usize];
            for copy in 0..2 {
                let bytes = (count * BLOCK_BYTES) as usize;
                for from in io.current_copies(self.layout.log_at(copy, at), bytes) {
                    let blocks = self.read_log_copy(io, from, copy, at..at + count).await;
                    for (number, block) in (at..).zip(blocks) {
                        let block = match block {
                            Ok(block) => block,
                            Err(kind) => {
                                // What may be there decides, whatever another copy says.
                                let why = unread.entry(number).or_insert(kind);
                                *why = if kind == ErrorKind::Medium { *why } else { kind };
                                continue;
                            }
                        };
                        answered[(number - at) as usize] = true;
                        let Some(is) = log::number_of(&block, self.id) else { continue };
                        let told = log::told_of(&block);
                        evidence.told = std::cmp::max_by_key(evidence.told, told, |told| told.newest);
                        evidence.is_beyond |= is >= end;
                        if is == number && !found.contains_key(&number) {
                            found.insert(number, log::decode(&block, words, &(0..self.layout.entries)));
                            images.insert(number, block);
                        }
                    }
                    if (at..at + count).all(|number| found.contains_key(&number)) {
                        break;
                    }
                }
            }
            unread.retain(|number, _| *number < at || !answered[(*number - at) as usize]);
            at += count;
        }
        // What nobody has answered may be there, and be newer than what is known.
        if let Some(kind) = unread.into_values().find(|kind| *kind != ErrorKind::Medium) {
            return Err(Error::new(kind, "no copy of the log of checksums or maps answers"));
        }
        let durable = found.values().map(|block| block.durable).max().unwrap_or(0).max(tail - 1);
        let missing = (tail..=durable).filter(|number| !found.contains_key(number)).count() as u64;
        self.counts.log_lost.fetch_add(missing, Ordering::Relaxed);
        evidence.missing = missing;
        evidence.check(&slots.state)?;
        if missing > 0 && self.order == Order::After {
            let context = format!(
                "{missing} blocks of the log of the map are lost on all copies: where some data lie that were flushed last \
                 is not known, and older ones would be taken for them"
            );
            return Err(Error::new(ErrorKind::Medium, context));
        }
        // A crash may have left those behind on one copy alone. What they say counts from now on, so they must be on all, before any
        // that comes later says that they are durable.
        let unsure: Vec<(u64, Buffer)> = images.split_off(&(durable + 1)).into_iter().collect();
        if !unsure.is_empty() && !io.is_read_only {
            for copy in 0..2 {
                for (number, block) in &unsure {
                    let place = self.layout.log_at(copy, *number);
                    io.write(place, Buffer::copy_of(block), Context::default()).await?;
                }
            }
            io.flush(Context::default()).await?;
        }
        let used: BTreeSet<u64> = found
            .values()
            .flat_map(|block| &block.records)
            .flat_map(|record| self.granules_in(record))
            .collect();
        self.settle_slots(io, slots, &evidence, used).await?;
        let mut head = self.head.lock();
        head.is_unvouched = !found.is_empty();
        head.found.extend(found.values().map(|block| block.witness));
        head.durable = durable;
        head.next = found.keys().next_back().map_or(tail, |last| last + 1).max(durable + 1);
        let mut replay = self.replay.lock();
        let mut take = |block: u64, entry: u64, value: u128| {
            let (page, _) = self.layout.place(entry);
            replay.entry(page).or_default().push(Replayed { entry, block, value });
        };
        for (block, found) in found {
            for record in found.records {
                match record {
                    LogEntry::Values { first, values } => {
                        (first..).zip(values).for_each(|(entry, value)| take(block, entry, value));
                    }
                    LogEntry::Same { first, count, value } => {
                        (first..first + count).for_each(|entry| take(block, entry, value));
                    }
                    LogEntry::Lost(entry) => drop(head.state.lost.insert(entry)),
                    LogEntry::Found(entry) => drop(head.state.lost.remove(&entry)),
                }
            }
        }
        self.has_lost.store(!head.state.lost.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    /// The granules that a record of the log is about.
    fn granules_in(&self, record: &LogEntry) -> std::ops::Range<u64> {
        let entries = match record {
            LogEntry::Values { first, values } => *first..first + values.len() as u64,
            LogEntry::Same { first, count, .. } => *first..first + count,
            LogEntry::Lost(entry) | LogEntry::Found(entry) => *entry..entry + 1,
        };
        self.granules_of(&self.layout.pages_of(&entries))
    }
}

/// Whether writes may enter a granule as it is.
pub(super) fn is_entered(order: Order, state: &State, granule: u64) -> bool {
    match order {
        Order::Beside => state.marks.has(granule),
        Order::After => state.used.has(granule),
    }
}
