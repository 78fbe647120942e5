//! Every copy of a table's pages and states is read, and what is not as it should be is written again.
//!
//! A page that is needed is mended when it is loaded. One that nobody needs may rot on one copy, then on the other: so they are
//! looked at as data are.

use std::sync::Arc;

use rotproof_block::{Context, Result};

use super::layout::{BLOCK_BYTES, STATE_BYTES};
use super::memory::DIRTY;
use super::state::State;
use super::{Table, page};
use crate::io::Io;

/// Pages that are looked at before others may write some.
const PAGES: u64 = 64;

impl Table {
    /// Looks at all copies. How many parts were wrong on one of them, and are written again.
    pub(crate) async fn scrub(&self, io: &Io, context: Context) -> Result<u64> {
        let mut wrong = 0;
        let mut first = 0;
        while first < self.layout.pages {
            let end = (first + PAGES).min(self.layout.pages);
            let bad = self.bad_pages(io, first..end, context).await;
            wrong += bad.len() as u64;
            for page in bad {
                self.hold(io, page..page + 1, context).await?;
                if self.entries.raise(page, DIRTY) & DIRTY == 0 {
                    self.dirty.lock().push(page);
                }
                self.release(page..page + 1);
            }
            first = end;
        }
        let bad_states = self.bad_states(io, context).await;
        wrong += bad_states;
        if wrong > 0 {
            // It writes both slots of the state.
            self.checkpoint(io, false, context).await?;
        }
        Ok(wrong)
    }

    /// Those of these pages of which a copy is not whole, or older than another.
    async fn bad_pages(&self, io: &Io, pages: std::ops::Range<u64>, context: Context) -> Vec<u64> {
        let used = |page: &u64| self.is_used(self.layout.granule_of(*page));
        let pages: Vec<u64> = pages.filter(used).collect();
        if pages.is_empty() {
            return Vec::new();
        }
        let _excluded = self.exclude().await;
        let mut bad = Vec::new();
        for page in pages {
            let mut generations = Vec::new();
            for copy in 0..2 {
                let at = self.layout.page_at(copy, page);
                for from in io.current_copies(at, BLOCK_BYTES as usize) {
                    let read = io.read_copy(from, at, BLOCK_BYTES as usize, context).await;
                    let header = read.ok().and_then(|bytes| page::open(&bytes, self.id, page));
                    generations.push(header.map(|header| header.generation));
                }
            }
            if generations.iter().any(|generation| generation.is_none() || *generation != generations[0]) {
                bad.push(page);
            }
        }
        bad
    }

    /// How many copies of the state of now are not there, or of what should be in the other slot.
    async fn bad_states(&self, io: &Io, context: Context) -> u64 {
        let _turn = Arc::clone(&self.turns).next().await;
        let newest = self.head.lock().whole;
        let mut bad = 0;
        for (copy, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let at = self.layout.state_at(copy, slot);
            for from in io.current_copies(at, STATE_BYTES as usize) {
                let read = io.read_copy(from, at, STATE_BYTES as usize, context).await;
                let state = read.ok().and_then(|bytes| State::decode(&bytes, 2 * copy + slot).ok().flatten());
                let is_newest = slot == newest % 2;
                bad += u64::from(state.is_none_or(|state| is_newest && state.generation != newest));
            }
        }
        bad
    }
}
