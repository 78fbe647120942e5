//! Knows which files must be there, and what each of them holds.

use std::collections::HashSet;
use std::sync::Arc;

use rotproof_block::ContentHash;

use super::data;
use super::history::FileHistory;
use super::metadata::Names;
use super::plan::FilePlan;
use super::ring::Log;
use super::slots::Slots;
use super::state::{Existence, FileState};
use crate::BLOCK_BYTES;

/// What is known of all files. It fits one plan only.
pub struct FileOracle {
    pub(super) plan: FilePlan,
    /// By thread, and by position among its own.
    pub(super) parts: Vec<Names>,
    /// Where files are written in place.
    pub(super) slots: Option<Arc<Slots>>,
    pub(super) log: Option<Arc<Log>>,
    /// The parts are out and never came back, as after a load that was stopped.
    pub(super) is_lost: bool,
    /// Takes down what is done to files.
    pub(super) history: Option<Arc<FileHistory>>,
}

impl FileOracle {
    /// Nothing is there yet.
    pub fn new(plan: &FilePlan) -> Self {
        Self {
            plan: plan.clone(),
            parts: (0..plan.parts()).map(|thread| Names::new(plan, thread)).collect(),
            slots: plan.kind.slot_bytes().map(|_| Arc::new(Slots::new(plan))),
            log: plan.kind.has_log().then(|| Arc::new(Log::new(plan.figures.log_size))),
            is_lost: false,
            history: None,
        }
    }

    /// Has all that is done to the files from now on taken down. Nothing may have been done yet.
    pub fn keep_history(&mut self, history: &Arc<FileHistory>) {
        self.history = Some(Arc::clone(history));
    }

    /// The files that may be there, by number.
    pub(super) fn files(&self) -> impl Iterator<Item = (u32, &FileState)> {
        (0..).zip(&self.parts).flat_map(move |(thread, names)| {
            (0..).zip(&names.files).map(move |(position, state)| (self.plan.file(thread, position), state))
        })
    }

    /// How many files must be there, the log among them.
    pub fn file_count(&self) -> u64 {
        let there = self.files().filter(|(_, state)| state.existence == Existence::Yes).count() as u64;
        there + u64::from(self.log.is_some())
    }

    /// Bytes that they have.
    pub fn bytes(&self) -> u64 {
        let there = self.files().filter(|(_, state)| state.existence != Existence::No);
        let size = |(file, state): (u32, &FileState)| match &self.slots {
            Some(slots) => slots.len(file),
            None => state.size_max,
        };
        there.map(size).sum::<u64>() + self.log.as_ref().map_or(0, |log| log.len())
    }

    /// Hashes of all blocks that must be there, as they lie on a device: padded with zeros at the end of a file. Those of
    /// earlier versions are not among them.
    pub fn hashes(&self) -> HashSet<ContentHash> {
        let mut hashes = HashSet::new();
        let mut block = vec![0; BLOCK_BYTES];
        for (file, state) in self.files().filter(|(_, state)| state.existence != Existence::No) {
            if let Some(slots) = &self.slots {
                let blocks = slots.len(file).div_ceil(BLOCK_BYTES as u64);
                hashes.extend((0..blocks).map(|block| data::hash_of(&slots.truth(&self.plan, file, block))));
                continue;
            }
            for offset in (0..state.size_max).step_by(BLOCK_BYTES) {
                let len = (state.size_max - offset).min(BLOCK_BYTES as u64) as usize;
                data::fill(&self.plan.content, file, state.version, offset, &mut block[..len]);
                block[len..].fill(0);
                hashes.insert(data::hash_of(&block));
            }
        }
        if let Some(log) = &self.log {
            for offset in (0..log.len()).step_by(BLOCK_BYTES) {
                let len = (log.len() - offset).min(BLOCK_BYTES as u64) as usize;
                block.fill(0);
                log.truth(&self.plan, log.next(), offset, &mut block[..len]);
                hashes.insert(data::hash_of(&block));
            }
        }
        hashes
    }
}
