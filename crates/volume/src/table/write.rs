//! What changed in a table reaches the medium: marks before, the log with a flush, pages with a checkpoint.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::turns::Turn;
use rotproof_block::{Buffer, Context, Result};

use super::layout::{BLOCK_BYTES, Layout};
use super::log::LogWriter;
use super::memory::{DIRTY, PENDING};
use super::open::is_entered;
use super::page::{self, PageHeader};
use super::state::State;
use super::{MARKED, Order, TOUCHED, Table, UNDER_WAY, Witness};
use crate::io::Io;

/// Pages of which copies wait in memory while they are written.
const BATCH_PAGES: usize = 1024;
/// Pages, or blocks of the log, in one request.
const REQUEST_BLOCKS: usize = 256;
/// Granules that are marked beyond those that a write needs: whoever writes in order needs the next ones soon.
const AHEAD: u64 = 3;

/// Nobody else writes a table.
struct Excluded {
    _turn: Turn,
    _load: Turn,
}

impl Drop for Excluded {
    fn drop(&mut self) {}
}

/// What an append to the log took. It is given back if that fails, or is given up in the middle.
struct Taken<'a> {
    table: &'a Table,
    entries: Vec<u64>,
    fates: Vec<(u64, bool)>,
}

impl Taken<'_> {
    /// The log has it, or the pages.
    fn keep(mut self) {
        self.entries.clear();
        self.fates.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for entry in std::mem::take(&mut self.entries) {
            self.table.entries.note(entry);
            let (page, _) = self.table.layout.place(entry);
            if self.table.entries.raise(page, PENDING) & PENDING == 0 {
                self.table.pending.lock().push(page);
            }
        }
        let mut fates = self.table.fates.lock();
        let later = std::mem::replace(&mut *fates, std::mem::take(&mut self.fates));
        fates.extend(later);
    }
}

/// Pages that a checkpoint writes. Those that it did not come to are dirty again.
struct Unwritten<'a> {
    table: &'a Table,
    pages: Vec<u64>,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        for page in &self.pages {
            self.table.entries.raise(*page, DIRTY);
        }
        self.table.dirty.lock().append(&mut self.pages);
    }
}

impl Table {
    /// Marks the granules of these pages, durably, so that writes may enter them.
    pub(crate) async fn mark(&self, io: &Io, pages: &Range<u64>, context: Context) -> Result<()> {
        let _turn = Arc::clone(&self.turns).next().await;
        let wanted = self.granules_of(pages);
        let is_marked = |granule: u64| self.granules[granule as usize].load(Ordering::SeqCst) & MARKED != 0;
        if wanted.clone().all(is_marked) {
            return Ok(());
        }
        let granules = wanted.start..(wanted.end + AHEAD).min(self.layout.granules);
        let mut state = self.head.lock().state.clone();
        let mut is_new = false;
        for granule in granules.clone() {
            if !state.used.has(granule) {
                let pages = self.layout.pages_in(granule);
                if self.order == Order::Beside {
                    // What has no entry holds zeros: a torn first write must bring up nothing older.
                    let first = self.layout.entries_of(pages.start).start * BLOCK_BYTES;
                    let end = self.layout.entries_of(pages.end - 1).end * BLOCK_BYTES;
                    io.discard(self.layout.bytes() + first, end - first, true, context).await?;
                }
                self.write_empty(io, pages, context).await?;
                state.used.set(granule, true);
                is_new = true;
            }
            state.marks.set(granule, self.order == Order::Beside);
        }
        if is_new {
            // Before anything says that these pages are to be read.
            io.flush(context).await?;
        }
        self.write_state(io, state, context).await?;
        for granule in granules {
            self.granules[granule as usize].fetch_or(MARKED, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Writes pages without entries, so that those of a granule used for the first time are whole.
    async fn write_empty(&self, io: &Io, pages: Range<u64>, context: Context) -> Result<()> {
        let mut first = pages.start;
        while first < pages.end {
            let count = (pages.end - first).min(REQUEST_BLOCKS as u64);
            let mut bytes = Buffer::zeroed((count * BLOCK_BYTES) as usize);
            for (number, page) in (first..).zip(bytes.chunks_exact_mut(BLOCK_BYTES as usize)) {
                page::close(page, self.id, number, PageHeader { generation: 1, covers: 0 });
            }
            for copy in 0..2 {
                self.counts.requests.fetch_add(1, Ordering::Relaxed);
                io.write(self.layout.page_at(copy, first), Buffer::copy_of(&bytes), context).await?;
            }
            first += count;
        }
        let _loading = Arc::clone(&self.loads).next().await;
        for page in pages {
            if !self.is_loaded(page) {
                self.load_empty(page);
            }
        }
        Ok(())
    }

    /// Keeps everybody else from changing the medium of the table as long as the answer lives.
    pub(crate) async fn exclude(&self) -> impl Drop + use<> {
        // In the order in which a checkpoint takes them.
        let turn = Arc::clone(&self.turns).next().await;
        Excluded { _turn: turn, _load: Arc::clone(&self.loads).next().await }
    }

    /// Makes all durable that was written and set before: one flush of the device below, or two where the data must come
    /// first. Flushes that come at the same time are one.
    pub(crate) async fn flush(&self, io: &Io, context: Context) -> Result<()> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let _turn = Arc::clone(&self.turns).next().await;
        if self.served.load(Ordering::SeqCst) >= ticket {
            return Ok(());
        }
        let covers = self.asked.load(Ordering::SeqCst);
        self.flush_in_turn(io, context).await?;
        self.served.fetch_max(covers, Ordering::SeqCst);
        Ok(())
    }

    async fn flush_in_turn(&self, io: &Io, context: Context) -> Result<()> {
        let (writer, taken) = self.take_pending();
        if writer.blocks() == 0 {
            let witness = self.write_before(io, context).await?;
            io.flush(context).await?;
            self.head.lock().state.witness = witness;
            return Ok(());
        }
        self.append(io, writer, context).await?;
        taken.keep();
        Ok(())
    }

    async fn append(&self, io: &Io, writer: LogWriter, context: Context) -> Result<()> {
        let (next, durable, tail, told) = {
            let head = self.head.lock();
            (head.next, head.durable, head.state.log_tail, head.told)
        };
        let blocks = writer.blocks();
        if next + blocks - tail > self.layout.log_blocks {
            // The pages have all of it too.
            return self.checkpoint_in_turn(io, false, context).await;
        }
        let mut witness = self.head.lock().state.witness;
        if self.order == Order::After {
            witness = self.write_before(io, context).await?;
            io.flush(context).await?;
            self.head.lock().state.witness = witness;
        }
        let bytes = writer.finish(self.id, next, durable, witness, told);
        for copy in 0..2 {
            let mut at = next;
            for part in parts(&self.layout, next, &bytes) {
                let place = self.layout.log_at(copy, at);
                at += part.len() as u64 / BLOCK_BYTES;
                self.counts.requests.fetch_add(1, Ordering::Relaxed);
                io.write(place, Buffer::copy_of(part), context).await?;
            }
        }
        io.flush(context).await?;
        let mut head = self.head.lock();
        (head.next, head.durable, head.is_unvouched) = (next + blocks, next + blocks - 1, true);
        Ok(())
    }

    /// Whether the last block of the log is one of which no later one says that it was durable. Were it lost on all copies, what was before
    /// would be taken for the newest.
    pub(crate) fn is_unvouched(&self) -> bool {
        self.head.lock().is_unvouched
    }

    /// Has the log say that all of it is durable.
    pub(crate) async fn vouch(&self, io: &Io, context: Context) -> Result<()> {
        let _turn = Arc::clone(&self.turns).next().await;
        if !self.is_unvouched() {
            return Ok(());
        }
        let mut writer = LogWriter::new(self.layout.words);
        writer.begin();
        self.append(io, writer, context).await?;
        self.head.lock().is_unvouched = false;
        Ok(())
    }

    pub(super) async fn write_before(&self, io: &Io, context: Context) -> Result<Witness> {
        match &self.before {
            Some(before) => before.write(io, context).await,
            None => Ok(Witness::default()),
        }
    }

    /// Takes what is not in the log yet.
    fn take_pending(&self) -> (LogWriter, Taken<'_>) {
        let mut writer = LogWriter::new(self.layout.words);
        let fates = std::mem::take(&mut *self.fates.lock());
        let mut taken = Taken { table: self, entries: Vec::new(), fates };
        let mut pages = std::mem::take(&mut *self.pending.lock());
        pages.sort_unstable();
        for page in pages {
            self.entries.lower(page, PENDING);
            taken.entries.extend(self.entries.take_notes(page));
        }
        let mut values = Vec::new();
        for run in taken.entries.chunk_by(|one, next| one + 1 == *next) {
            values.clear();
            values.extend(run.iter().map(|entry| self.entries.get(*entry)));
            writer.values(run[0], &values);
        }
        taken.fates.iter().for_each(|(entry, is_lost)| writer.fate(*entry, *is_lost));
        (writer, taken)
    }

    /// Writes all pages that have something new, so that the log can begin anew, and takes back marks where nothing was
    /// written for a while; with `is_end` all of them.
    pub(crate) async fn checkpoint(&self, io: &Io, is_end: bool, context: Context) -> Result<()> {
        let _turn = Arc::clone(&self.turns).next().await;
        self.checkpoint_in_turn(io, is_end, context).await
    }

    async fn checkpoint_in_turn(&self, io: &Io, is_end: bool, context: Context) -> Result<()> {
        let tail = self.head.lock().next;
        let waiting: Vec<u64> = self.replay.lock().keys().copied().collect();
        for page in waiting {
            self.hold(io, page..page + 1, context).await?;
            self.release(page..page + 1);
        }
        let mut unwritten = Unwritten { table: self, pages: std::mem::take(&mut *self.dirty.lock()) };
        unwritten.pages.sort_unstable_by(|one, other| other.cmp(one));
        while !unwritten.pages.is_empty() {
            let rest = unwritten.pages.len().saturating_sub(BATCH_PAGES);
            let batch: Vec<u64> = unwritten.pages[rest..].iter().rev().copied().collect();
            self.write_pages(io, &batch, tail, context).await?;
            unwritten.pages.truncate(rest);
        }
        io.flush(context).await?;
        let mut state = self.head.lock().state.clone();
        state.log_tail = tail;
        let freed = self.take_marks(&mut state, is_end);
        if let Err(error) = self.write_state(io, state.clone(), context).await {
            for granule in freed {
                self.granules[granule as usize].fetch_or(MARKED, Ordering::SeqCst);
            }
            return Err(error);
        }
        self.head.lock().is_unvouched = false;
        // And to the other slot. The one that is there counts, whatever becomes of this.
        let _ = self.write_state(io, state, context).await;
        Ok(())
    }

    /// Writes pages to both copies, the second when the first is durable. Their data are durable before.
    async fn write_pages(&self, io: &Io, pages: &[u64], covers: u64, context: Context) -> Result<()> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for run in pages.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(REQUEST_BLOCKS)) {
            let mut bytes = vec![0; run.len() * BLOCK_BYTES as usize];
            for (page, image) in run.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES as usize)) {
                // Before it is copied: what is set from now on makes it dirty again.
                self.entries.lower(*page, DIRTY);
                let generation = self.entries.generation(*page).fetch_add(1, Ordering::SeqCst) + 1;
                self.entries.copy_to(*page, image);
                let header = PageHeader { generation: generation.into(), covers };
                page::close(image, self.id, *page, header);
            }
            runs.push((run[0], bytes));
        }
        let witness = self.write_before(io, context).await?;
        io.flush(context).await?;
        self.head.lock().state.witness = witness;
        for copy in 0..2 {
            for (first, bytes) in &runs {
                self.counts.requests.fetch_add(1, Ordering::Relaxed);
                io.write(self.layout.page_at(copy, *first), Buffer::copy_of(bytes), context).await?;
            }
            if copy == 0 {
                io.flush(context).await?;
            }
        }
        Ok(())
    }

    /// Takes the marks of granules in which nothing is under way and nothing new; of those alone that were left in peace since
    /// the last time, unless it is the end. From now on writes have to mark them again.
    fn take_marks(&self, state: &mut State, is_end: bool) -> Vec<u64> {
        let mut freed = Vec::new();
        if self.order == Order::After {
            return freed;
        }
        let marked: Vec<u64> = state.marks.iter().collect();
        for granule in marked {
            let word = &self.granules[granule as usize];
            let was_touched = word.fetch_and(!TOUCHED, Ordering::SeqCst) & TOUCHED != 0;
            if (was_touched && !is_end) || self.doubts.has(granule) {
                continue;
            }
            // First the mark goes: whoever comes from now on waits for the turn. Then a look at who is there.
            let under_way = word.fetch_and(!MARKED, Ordering::SeqCst) >= UNDER_WAY;
            let mut pages = self.layout.pages_in(granule);
            let is_new = |page| self.entries.state(page).load(Ordering::SeqCst) & (DIRTY | PENDING) != 0;
            if under_way || pages.any(is_new) {
                word.fetch_or(MARKED, Ordering::SeqCst);
                continue;
            }
            state.marks.set(granule, false);
            freed.push(granule);
        }
        debug_assert!(freed.iter().all(|granule| !is_entered(self.order, state, *granule)));
        freed
    }
}

/// Cuts blocks of the log where the log wraps, and where a request would be too large.
fn parts<'a>(layout: &Layout, first: u64, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let (mut at, mut rest, mut parts) = (first, bytes, Vec::new());
    while !rest.is_empty() {
        let until_wrap = layout.log_blocks - at % layout.log_blocks;
        let blocks = (rest.len() as u64 / BLOCK_BYTES).min(until_wrap).min(REQUEST_BLOCKS as u64);
        let (part, later) = rest.split_at((blocks * BLOCK_BYTES) as usize);
        parts.push(part);
        (at, rest) = (at + blocks, later);
    }
    parts
}
