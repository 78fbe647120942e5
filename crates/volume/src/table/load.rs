//! Pages come into memory: the newer of two copies, with what the log has since; others go.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::{Context, Result};

use super::layout::BLOCK_BYTES;
use super::memory::{DIRTY, LOADED};
use super::page::{self, PageHeader};
use super::{Order, Replayed, Table};
use crate::io::Io;

/// What an entry says whose page was lost: nothing is known of its block.
pub(crate) const UNKNOWN: u128 = 1;

impl Table {
    /// Brings pages into memory, and keeps them there until they are released.
    pub(crate) async fn hold(&self, io: &Io, pages: Range<u64>, context: Context) -> Result<()> {
        for page in pages.clone() {
            while !self.entries.hold(page) {
                if let Err(error) = self.load(io, page, context).await {
                    self.release(pages.start..page);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn load(&self, io: &Io, page: u64, context: Context) -> Result<()> {
        let _turn = Arc::clone(&self.loads).next().await;
        if self.entries.is_loaded(page) {
            return Ok(());
        }
        let granule = self.layout.granule_of(page);
        let (is_used, is_marked) = {
            let head = self.head.lock();
            (head.state.used.has(granule), head.state.marks.has(granule))
        };
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let (mut header, mut is_behind) = (PageHeader { generation: 0, covers: 0 }, false);
        if is_used {
            let (mut found, mut failure) = (0, None);
            for copy in 0..2 {
                let accepts = |bytes: &[u8]| page::open(bytes, self.id, page);
                let at = self.layout.page_at(copy, page);
                self.counts.requests.fetch_add(1, Ordering::Relaxed);
                let bytes_of_page = BLOCK_BYTES as usize;
                // Where a crash may have come between the copies of a page the newest is wanted, and all are to be it: once the
                // mark is gone, each is believed.
                let read = match is_marked && io.copies.is_some() {
                    true => {
                        let rank = |header: &PageHeader| header.generation;
                        io.read_newest(at, bytes_of_page, self.id, accepts, rank, context).await
                    }
                    false => io
                        .read_valid(at, bytes_of_page, self.id, accepts, context)
                        .await
                        .map(|read| (read, false)),
                };
                let read = match read {
                    Ok((read, differs)) => {
                        is_behind |= differs;
                        read
                    }
                    Err(error) => {
                        failure = Some(error);
                        None
                    }
                };
                match read {
                    Some((read, of)) if found == 0 || of.generation > header.generation => {
                        is_behind |= found > 0;
                        bytes.copy_from_slice(&read);
                        (header, found) = (of, found + 1);
                    }
                    Some((_, of)) => {
                        is_behind |= of.generation < header.generation;
                        found += 1;
                    }
                    None => is_behind = true,
                }
            }
            if let (0, Some(error)) = (found, failure) {
                return Err(error);
            }
            if found == 0 {
                self.counts.pages_lost.fetch_add(1, Ordering::Relaxed);
                bytes = self.unknown_page();
                // Each time that a page is written a state is: what replaces it is newer than whatever may come up again.
                header.generation = self.head.lock().state.generation;
            } else if is_behind {
                self.counts.pages_mended.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.entries.load(page, &bytes);
        self.entries.generation(page).store(header.generation as u32, Ordering::Release);
        // While its records wait they are nobody else's: loads come one by one.
        let records = self.replay.lock().remove(&page).unwrap_or_default();
        self.apply(&records, header.covers);
        if is_behind || !records.is_empty() {
            let before = self.entries.raise(page, DIRTY);
            if before & DIRTY == 0 {
                self.dirty.lock().push(page);
            }
        }
        self.make_room(page);
        Ok(())
    }

    fn unknown_page(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let entries = bytes[super::layout::PAGE_HEADER_BYTES..].chunks_exact_mut(self.layout.words * 4);
        entries.for_each(|entry| entry[0] = UNKNOWN as u8);
        bytes
    }

    /// Applies records of the log to a page in memory that covers all blocks of the log before `covers`.
    fn apply(&self, records: &[Replayed], covers: u64) {
        let durable = self.head.lock().durable;
        let mut by_entry: std::collections::BTreeMap<u64, Vec<(u64, u128)>> = Default::default();
        for record in records.iter().filter(|record| record.block >= covers) {
            by_entry.entry(record.entry).or_default().push((record.block, record.value));
        }
        for (entry, values) in by_entry {
            let before = self.entries.get(entry);
            let Some(&(_, last)) = values.last() else { continue };
            self.entries.put(entry, last);
            if self.order == Order::Beside {
                let history: Vec<(u64, u128)> = [(0, before)].into_iter().chain(values).collect();
                let first = history.iter().rposition(|(block, _)| *block <= durable).unwrap_or(0);
                let values = |part: &[(u64, u128)]| {
                    let mut values: Vec<u128> = part.iter().rev().map(|(_, value)| *value).collect();
                    values.retain(|value| *value != last);
                    values
                };
                let (stale, also) = (values(&history[..first]), values(&history[first..]));
                let stale = stale.into_iter().filter(|value| !also.contains(value)).collect();
                self.doubts.put(entry, also, stale);
            }
        }
    }

    /// Gives back pages that have nothing new, until few enough are left.
    fn make_room(&self, page: u64) {
        let mut loaded = self.loaded.lock();
        loaded.pages.push(page);
        let mut looks = loaded.pages.len();
        while loaded.pages.len() > self.cache_pages && looks > 0 {
            looks -= 1;
            let hand = loaded.hand % loaded.pages.len();
            let candidate = loaded.pages[hand];
            if candidate != page && self.entries.evict(candidate) {
                loaded.pages.swap_remove(hand);
            } else {
                loaded.hand = hand + 1;
            }
        }
    }

    /// Takes a page into memory of which all entries are zero.
    pub(super) fn load_empty(&self, page: u64) {
        self.entries.load(page, &[0; BLOCK_BYTES as usize]);
        self.entries.generation(page).store(1, Ordering::Release);
        self.make_room(page);
    }

    /// Whether a page is in memory.
    pub(super) fn is_loaded(&self, page: u64) -> bool {
        self.entries.state(page).load(Ordering::Acquire) & LOADED != 0
    }
}
