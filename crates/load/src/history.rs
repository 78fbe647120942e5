//! Who wrote a content where, and which writes of a block lost their flush: found by running the streams again, once for
//! all failures.

use std::collections::{HashMap, HashSet};

use rotproof_block::Time;

use crate::content::{ContentId, Stage};
use crate::engine::Sighting;
use crate::evidence::{Evidence, Look};
use crate::failure::Stale;
use crate::oracle::{Doubts, Oracle};
use crate::stream::WrittenBlock;
use crate::workload::Workload;

/// Places of a misdirected content that are listed.
const PLACES_MAX: usize = 4;

/// What the streams say of the contents found and of the blocks they were found in.
#[derive(Default)]
pub(crate) struct History {
    contents: HashMap<ContentId, Writes>,
    /// Writes of each block concerned.
    block_writes: HashMap<u64, u64>,
    /// Which of the writes of a block last had a content.
    last_write: HashMap<(u64, ContentId), u64>,
    /// For each write of a block concerned, from when on it is known to have lost its flush, if it has. Only of workers
    /// of whom some flush failed.
    lost_flushes: HashMap<u64, Vec<Option<Time>>>,
}

/// Where a content went.
#[derive(Default)]
pub(crate) struct Writes {
    /// In how many writes.
    pub(crate) count: u64,
    /// The first few of them.
    pub(crate) first: Vec<WrittenBlock>,
}

impl History {
    /// Runs again what matters for these sightings.
    pub(crate) fn of(
        workload: &Workload,
        oracle: &Oracle,
        sightings: impl Iterator<Item = Sighting>,
    ) -> Self {
        let mut history = Self::default();
        let mut workers = HashSet::new();
        for sighting in sightings {
            let Evidence::Data { look, .. } = sighting.evidence else { continue };
            let worker = workload.worker_of_block(sighting.block);
            if oracle.doubts(worker).is_some() {
                history.block_writes.entry(sighting.block).or_default();
                workers.insert(worker);
            }
            let Look::Sectors(sectors) = look else { continue };
            for identity in sectors.iter().filter_map(|look| look.identity()) {
                if workload.may_have_made(identity.id) {
                    history.contents.entry(identity.id).or_default();
                    workers.insert(identity.id.worker());
                    history.block_writes.entry(sighting.block).or_default();
                    workers.insert(worker);
                }
            }
        }
        if workers.is_empty() {
            return history;
        }
        for drawn in oracle.drawn() {
            for (worker, &requests) in (0..).zip(&drawn.requests) {
                if workers.contains(&worker) {
                    let stream = workload.stream(drawn.stage, worker).ending_after(requests);
                    let doubts =
                        oracle.doubts(worker).map(|doubts| InDoubt { doubts, stage: drawn.stage, workload });
                    stream.written().for_each(|written| history.add(written, doubts.as_ref()));
                }
            }
        }
        history
    }

    fn add(&mut self, written: WrittenBlock, doubts: Option<&InDoubt<'_>>) {
        let number = self.block_writes.get_mut(&written.block).map(|writes| {
            *writes += 1;
            *writes
        });
        if let Some(number) = number {
            if let Some(doubts) = doubts {
                self.lost_flushes.entry(written.block).or_default().push(doubts.since(&written));
            }
            // The expected content of a block in doubt is among those that it may hold, though nothing was found of it.
            if doubts.is_some() || self.contents.contains_key(&written.content) {
                self.last_write.insert((written.block, written.content), number);
            }
        }
        let Some(writes) = self.contents.get_mut(&written.content) else { return };
        writes.count += 1;
        if writes.first.len() < PLACES_MAX {
            writes.first.push(written);
        }
    }

    /// The last write of a block with this content; `None` if there was none.
    pub(crate) fn stale(&self, block: u64, content: ContentId) -> Option<Stale> {
        let write = *self.last_write.get(&(block, content))?;
        Some(Stale { content, write, writes: self.block_writes[&block] })
    }

    /// Where a content went, if it is one that was asked for.
    pub(crate) fn writes_of(&self, content: ContentId) -> Option<&Writes> {
        self.contents.get(&content)
    }

    /// The oldest write, counted from one, that a block may hold at `time` although write number `current` has been
    /// acknowledged: the one before those that had lost their flushes by then, in a row up to the current one; 0 if that
    /// is none. `None` if the current one has not.
    pub(crate) fn first_legal(&self, block: u64, current: u64, time: Time) -> Option<u64> {
        let writes = self.lost_flushes.get(&block)?.get(..usize::try_from(current).ok()?)?;
        let is_lost = |since: &&Option<Time>| since.is_some_and(|since| since <= time);
        let lost = writes.iter().rev().take_while(is_lost).count() as u64;
        (lost > 0).then(|| current - lost)
    }
}

/// What failed flushes left in doubt of a worker's writes in one stage.
struct InDoubt<'a> {
    doubts: &'a Doubts,
    stage: Stage,
    workload: &'a Workload,
}

impl InDoubt<'_> {
    fn since(&self, written: &WrittenBlock) -> Option<Time> {
        let (object, _) = self.workload.layout().locate(written.block);
        self.doubts.since(object, self.stage, written.n)
    }
}
