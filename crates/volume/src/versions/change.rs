//! Versions come, go, and become the present again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rotproof_block::{Buffer, Context, Error, ErrorKind, Result};

use super::catalog::{Listed, NAME_MAX, VERSIONS_MAX};
use super::history::{History, Identity};
use super::path::Closed;
use super::space_block::SpaceBlock;
use super::{Kept, Shared, State, Version};
use crate::io::Io;
use crate::table::BLOCK_BYTES;

/// Runs of places that a flush hands down, so that nobody waits long for it.
const HANDED_DOWN: usize = 16;

/// The present is becoming what a version was. If that ends in the middle, by a failure or as nobody waits for it any more, nothing of
/// the present is written or read until it is done.
struct Half<'a> {
    shared: &'a Shared,
    back_to: u64,
}

impl Half<'_> {
    /// It has as a whole, or not begun.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        self.shared.half_back_to.store(self.back_to, Ordering::SeqCst);
    }
}

impl Shared {
    /// Makes everything durable; what nobody held before is free when all reads have left it.
    pub(super) async fn flush(&self, io: &Io, context: Context) -> Result<()> {
        let (limbo, extents) = {
            let mut state = self.kept.state.lock();
            (std::mem::take(&mut state.limbo), std::mem::take(&mut state.limbo_extents))
        };
        let result = self.table.flush(io, context).await;
        {
            let mut state = self.kept.state.lock();
            if result.is_ok() {
                extents.iter().for_each(|first| self.kept.histories.give_back(*first));
                if !limbo.is_empty() {
                    state.grace.push((self.epochs.now(), limbo));
                }
            } else {
                state.limbo.extend(limbo);
                state.limbo_extents.extend(extents);
            }
        }
        self.end_grace();
        self.hand_down(io, HANDED_DOWN, context).await;
        result
    }

    pub(super) async fn capture(
        &self,
        io: &Io,
        name: &str,
        time_ns: u64,
        is_automatic: bool,
        context: Context,
    ) -> Result<u64> {
        let _turn = Arc::clone(&self.changes).next().await;
        self.capture_in_turn(io, name, time_ns, is_automatic, context).await.map(|(id, _)| id)
    }

    /// Fails if the list on the medium may be another than the one in memory, or the present is half of one and half of another.
    pub(super) fn refuse_stuck(&self) -> Result<()> {
        let back_to = self.half_back_to.load(Ordering::SeqCst);
        if back_to != 0 {
            let context = format!(
                "the device was going back to version {back_to}, and could not come to the end of it: go back to it again, or open the \
                 device again, which does that"
            );
            return Err(Error::new(ErrorKind::ReadOnly, context));
        }
        if self.is_stuck.load(Ordering::SeqCst) {
            let context = "the list of versions could not be written: open the device again";
            return Err(Error::new(ErrorKind::ReadOnly, context));
        }
        Ok(())
    }

    /// The number of the version, and nobody writes anything until the other is dropped.
    async fn capture_in_turn(
        &self,
        io: &Io,
        name: &str,
        time_ns: u64,
        is_automatic: bool,
        context: Context,
    ) -> Result<(u64, Closed)> {
        self.refuse_stuck()?;
        if name.len() > NAME_MAX {
            let context = format!("the name of a version has {NAME_MAX} bytes at the most");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if self.kept.state.lock().versions.len() >= VERSIONS_MAX {
            let context = format!("there are {VERSIONS_MAX} versions already: delete some");
            return Err(Error::new(ErrorKind::NoSpace, context));
        }
        let history = History::new(&self.kept.histories)?;
        // Most of the work is done before anybody has to wait.
        self.flush(io, context).await?;
        let closed = self.gate.close().await;
        self.flush(io, context).await?;
        let first = history.extents[0];
        let mut catalog = {
            let state = self.kept.state.lock();
            self.listed(&state)
        };
        let id = catalog.next_id;
        catalog.next_id += 1;
        let history_id = catalog.next_history;
        catalog.next_history += 1;
        let name = name.to_owned();
        let listed = Listed {
            id,
            time_ns,
            history: history_id,
            first,
            pairs: 0,
            is_automatic,
            is_damaged: false,
            name,
        };
        catalog.versions.push(listed.clone());
        let written = catalog.write(io, self.catalog_at, self.kept.table, context).await;
        // If it failed the list may be there all the same. So the version exists from now on, and nothing is written any more: what moved
        // would be noted in its history, which the versions before need, and which nobody finds if the medium does not know it.
        if written.is_err() {
            self.is_stuck.store(true, Ordering::SeqCst);
        }
        {
            let mut state = self.kept.state.lock();
            state.catalog = catalog;
            state.versions.push(Version { listed, history });
            self.has_versions.store(true, Ordering::SeqCst);
            self.forget_fresh();
            self.captured_at.store(io.runtime.now().0, Ordering::SeqCst);
        }
        written?;
        self.table.bear_witness(io, context).await?;
        Ok((id, closed))
    }

    /// The list as it should be on the medium now.
    fn listed(&self, state: &State) -> super::Catalog {
        let mut catalog = state.catalog.clone();
        catalog.versions = state
            .versions
            .iter()
            .map(|version| Listed {
                pairs: version.history.written.pairs(),
                first: version.history.extents.first().copied().unwrap_or(0),
                is_damaged: version.history.is_damaged,
                ..version.listed.clone()
            })
            .collect();
        catalog
    }

    /// Writes the list. If that fails nobody knows which one counts, and nothing is written any more.
    async fn write_list(&self, io: &Io, mut catalog: super::Catalog, context: Context) -> Result<()> {
        if let Err(error) = catalog.write(io, self.catalog_at, self.kept.table, context).await {
            self.is_stuck.store(true, Ordering::SeqCst);
            return Err(error);
        }
        self.kept.state.lock().catalog = catalog;
        // So that the one before is never taken for it. If that fails the next flush says so.
        let _ = self.table.bear_witness(io, context).await;
        Ok(())
    }

    /// After it was opened: what could not be read of the map and of histories stays lost, also if it can be read later. The places that
    /// it named count as free from now on, and will be others'.
    pub(super) async fn keep_lost(&self, io: &Io) -> Result<()> {
        let context = Context::default();
        if self.table.has_lost_pages() {
            self.table.checkpoint(io, false, context).await?;
        }
        let (catalog, is_new) = {
            let state = self.kept.state.lock();
            let is_new = |version: &Version| version.history.is_damaged && !version.listed.is_damaged;
            (self.listed(&state), state.versions.iter().any(is_new))
        };
        if !is_new {
            return Ok(());
        }
        self.write_list(io, catalog, context).await?;
        let mut state = self.kept.state.lock();
        state.versions.iter_mut().for_each(|version| version.listed.is_damaged = version.history.is_damaged);
        Ok(())
    }

    /// Gives a version up. What its predecessor needs of it goes there first. The caller has the turn.
    pub(super) async fn delete(&self, io: &Io, id: u64, context: Context) -> Result<()> {
        self.refuse_stuck()?;
        let at = self.kept.state.lock().find(id)?;
        // Nobody notes anything meanwhile: the newest version may be the predecessor, or go.
        let _closed = self.gate.close().await;
        self.flush(io, context).await?;
        let history_id = self.kept.state.lock().catalog.next_history;
        if at > 0 {
            // Before anything is written under this identity, nobody may use it again.
            let catalog = {
                let state = self.kept.state.lock();
                super::Catalog { next_history: history_id + 1, ..self.listed(&state) }
            };
            self.write_list(io, catalog, context).await?;
        }
        let merged = self.merge_into_predecessor(io, at, history_id, context).await?;
        let mut catalog = {
            let state = self.kept.state.lock();
            self.listed(&state)
        };
        catalog.versions.remove(at);
        if let Some(history) = &merged {
            catalog.versions[at - 1].history = history_id;
            catalog.versions[at - 1].first = history.extents[0];
            catalog.versions[at - 1].pairs = history.written.pairs();
            catalog.versions[at - 1].is_damaged = history.is_damaged;
        }
        self.write_list(io, catalog, context).await?;
        let mut state = self.kept.state.lock();
        let gone = state.versions.remove(at);
        Kept::release_history(&mut state, &gone.history);
        match merged {
            None => gone.history.pairs.values().for_each(|place| self.kept.release(&mut state, *place)),
            Some(history) => {
                let predecessor = &mut state.versions[at - 1];
                predecessor.listed.history = history_id;
                let before = std::mem::replace(&mut predecessor.history, history);
                let already: Vec<SpaceBlock> = gone
                    .history
                    .pairs
                    .iter()
                    .filter(|(block, _)| before.pairs.contains_key(block))
                    .map(|(_, place)| *place)
                    .collect();
                already.into_iter().for_each(|place| self.kept.release(&mut state, place));
                Kept::release_history(&mut state, &before);
            }
        }
        if at == state.versions.len() {
            // The newest went: what was written since its predecessor was captured is what that one knows of.
            self.forget_fresh();
            self.has_versions.store(!state.versions.is_empty(), Ordering::SeqCst);
            let known: Vec<u32> = state
                .versions
                .last()
                .map(|newest| newest.history.pairs.keys().copied().collect())
                .unwrap_or_default();
            known.into_iter().for_each(|block| self.note_fresh(block.into()));
        }
        Ok(())
    }

    fn note_fresh(&self, block: u64) {
        self.fresh[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::SeqCst);
    }

    /// The history of the version before number `at`, with what only that one knows, written anew. `None` for the oldest.
    async fn merge_into_predecessor(
        &self,
        io: &Io,
        at: usize,
        history_id: u64,
        context: Context,
    ) -> Result<Option<History>> {
        let Some(predecessor) = at.checked_sub(1) else { return Ok(None) };
        let (blocks, mut history) = {
            let state = self.kept.state.lock();
            let mut history = History::new(&self.kept.histories)?;
            let (older, newer) = (&state.versions[predecessor], &state.versions[at]);
            history.is_damaged = older.history.is_damaged || newer.history.is_damaged;
            let mut pairs: Vec<(u32, u32)> =
                older.history.pairs.iter().map(|(block, place)| (*block, *place)).collect();
            pairs.extend(newer.history.pairs.iter().map(|(block, place)| (*block, *place)));
            for (block, place) in pairs {
                history.note(block, place);
            }
            let identity = Identity { table: self.kept.table, history: history_id };
            (history.encode_pending(&self.kept.histories, identity), history)
        };
        let written = match blocks {
            Ok((blocks, written)) => {
                let done = self.write_blocks(io, blocks, context).await;
                history.pending.clear();
                history.written = written;
                done
            }
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            Kept::release_history(&mut self.kept.state.lock(), &history);
            return Err(error);
        }
        Ok(Some(history))
    }

    async fn write_blocks(&self, io: &Io, blocks: Vec<(u64, Buffer)>, context: Context) -> Result<()> {
        for (place, bytes) in blocks {
            io.write(self.kept.history_at + place * BLOCK_BYTES, bytes, context).await?;
        }
        // Before a list says that it is there.
        io.flush(context).await
    }

    pub(super) async fn roll_back(&self, io: &Io, id: u64, time_ns: u64, context: Context) -> Result<u64> {
        let _turn = Arc::clone(&self.changes).next().await;
        let half_back_to = self.half_back_to.load(Ordering::SeqCst);
        if half_back_to == id && !self.is_stuck.load(Ordering::SeqCst) {
            let _closed = self.gate.close().await;
            self.go_back(io, id, context).await?;
            self.half_back_to.store(0, Ordering::SeqCst);
            // The one that was captured before.
            let newest = self.kept.state.lock().versions.last().map(|newest| newest.listed.id);
            return newest
                .ok_or_else(|| Error::new(ErrorKind::Internal, "there is what was captured before"));
        }
        let name = {
            let state = self.kept.state.lock();
            let at = state.find(id)?;
            if state.versions[at..].iter().any(|version| version.history.is_damaged) {
                let context = format!("version {id} cannot be gone back to: some of its history is damaged");
                return Err(Error::new(ErrorKind::Medium, context));
            }
            format!("before going back to {id}")
        };
        let (undo, _closed) = self.capture_in_turn(io, &name, time_ns, false, context).await?;
        let catalog = {
            let state = self.kept.state.lock();
            super::Catalog { going_back_to: id, ..self.listed(&state) }
        };
        let half = Half { shared: self, back_to: id };
        // Once this is there, it is done to its end, also after a loss of power: so nothing may be acknowledged from here on that would
        // be gone back over.
        if let Err(error) = self.write_list(io, catalog, context).await {
            // Nothing was changed, and nothing is written any more.
            half.end();
            return Err(error);
        }
        self.go_back(io, id, context).await?;
        half.end();
        Ok(undo)
    }

    /// Makes the present what a version was; done twice it is the same. Nobody writes meanwhile.
    pub(super) async fn go_back(&self, io: &Io, id: u64, context: Context) -> Result<()> {
        let blocks: BTreeSet<u32> = {
            let state = self.kept.state.lock();
            let at = state.find(id)?;
            state.versions[at..].iter().flat_map(|version| version.history.pairs.keys().copied()).collect()
        };
        for block in blocks {
            let _claim = self.claims.claim(block.into()..u64::from(block) + 1).await;
            let page = self.table.layout().place(block.into()).0;
            self.table.hold(io, page..page + 1, context).await?;
            self.enter(io, page, context).await?;
            let target = {
                let state = self.kept.state.lock();
                state.place_in(id, block)?
            };
            if let Some(target) = target
                && self.place(block.into()).ok() != Some(target)
            {
                self.kept.hold_more(&mut self.kept.state.lock(), target);
                self.move_to(block.into(), target);
            }
            self.table.leave(&(page..page + 1));
            self.table.release(page..page + 1);
        }
        self.flush(io, context).await?;
        let catalog = {
            let state = self.kept.state.lock();
            super::Catalog { going_back_to: 0, ..self.listed(&state) }
        };
        self.write_list(io, catalog, context).await
    }

    /// Enters the granule of a page, whose place on the medium is there afterwards.
    pub(super) async fn enter(&self, io: &Io, page: u64, context: Context) -> Result<()> {
        let pages = page..page + 1;
        while !self.table.try_enter(&pages) {
            self.table.mark(io, &pages, context).await?;
        }
        Ok(())
    }
}

impl State {
    /// Where a version has a block: its own history, or the first of a later one that knows. `None` if it is where the
    /// present has it.
    ///
    /// Fails if the version is not there, or is damaged.
    pub(super) fn place_in(&self, id: u64, block: u32) -> Result<Option<SpaceBlock>> {
        let at = self.find(id)?;
        for version in &self.versions[at..] {
            if version.history.is_damaged {
                let context = format!("the history of version {} is damaged", version.listed.id);
                return Err(Error::new(ErrorKind::Medium, context));
            }
            if let Some(place) = version.history.pairs.get(&block) {
                return Ok(Some(*place));
            }
        }
        Ok(None)
    }
}
