//! Knows what every block of the target must hold: eight bytes a block.
//!
//! A block holds the content of its last successful write. A write that failed may or may not have reached the
//! medium, whole or sector by sector, so after it the version before and the failed one are both legal, until a
//! write succeeds. A discarded block may hold anything until it is written. A block that was never written holds
//! whatever it holds, and is never a failure, unless the oracle is told that the target was all zeros. Where a flush
//! failed, the last write is still what is expected; an older version is a loss that was reported ([`Doubts`]).
//!
//! The blocks of each worker are a piece of their own, which the worker takes while it runs, so nothing is shared and
//! nothing locked. The oracle also knows how much of each stream has been drawn, so that streams can be run again.

mod doubt;
mod table;

use std::collections::HashMap;
use std::ops::Range;

use rotproof_block::{Error, ErrorKind, Result, Time};

use crate::content::{Content, ContentId, SECTORS, Stage, sector_of};
use crate::stream::Step;
use crate::workload::Workload;
pub use doubt::Doubts;
use table::Table;

/// What every block must hold, and what has been drawn of every stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle {
    parts: Vec<OraclePart>,
    drawn: Vec<Drawn>,
    /// A phase was stopped half-way, so nobody knows which of its last requests took effect.
    is_cut_off: bool,
}

/// How much of a stage's streams has been run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Which stage.
    pub stage: Stage,
    /// Requests by worker.
    pub requests: Vec<u64>,
}

impl Oracle {
    /// Nothing has been written yet.
    pub fn new(workload: &Workload) -> Self {
        let parts =
            (0..workload.workers()).map(|worker| OraclePart::new(workload.part(worker).blocks)).collect();
        Self { parts, drawn: Vec::new(), is_cut_off: false }
    }

    /// Blocks that were never written must read as zeros from now on.
    pub fn expect_zeros_where_never_written(&mut self) {
        for part in &mut self.parts {
            part.unwritten_is_zeros = true;
        }
    }

    /// Learns what a stage has written whole, without running it, as if every request of it had succeeded: for what was
    /// written by the same load before. Of a load that ends by time nobody knows what it was; it fails with
    /// [`ErrorKind::Invalid`], and where a trace cannot be read as that does.
    pub fn learn(&mut self, workload: &Workload, stage: Stage) -> Result<()> {
        if stage == Stage::Run && workload.duration().is_some() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "nobody knows how much a load has written that ended by time; only one that ends by bytes or requests can be \
                 verified later",
            ));
        }
        let mut requests = vec![0; usize::from(workload.workers())];
        for worker in workload.running() {
            let part = &mut self.parts[usize::from(worker)];
            let mut stream = workload.stream(stage, worker);
            let contents = stream.contents();
            for step in stream.by_ref() {
                match step {
                    Step::Write { extent, first, .. } => {
                        for (block, n) in extent.target_blocks().zip(first..) {
                            part.written(block, contents.content(n));
                        }
                    }
                    // Where the target has no such operation nothing has happened; then anything goes, too.
                    Step::Discard(extent) => extent.target_blocks().for_each(|block| part.discarded(block)),
                    Step::Read(_) | Step::Flush => {}
                }
            }
            if let Some(trouble) = stream.take_trouble() {
                return Err(trouble);
            }
            requests[usize::from(worker)] = stream.requests();
        }
        self.record_drawn(Drawn { stage, requests });
        Ok(())
    }

    /// The contents that a block of the target may hold. [`ContentId::NEVER_WRITTEN`] alone: not judged, or zeros.
    pub fn legal(&self, block: u64) -> Vec<ContentId> {
        self.parts
            .iter()
            .find(|part| part.blocks().contains(&block))
            .map_or_else(|| vec![ContentId::NEVER_WRITTEN], |part| part.legal(block))
    }

    /// Whether a read of the block was accepted, whatever it brought, since nobody knew then what it must hold.
    pub fn was_read_unjudged(&self, block: u64) -> bool {
        let part = self.parts.iter().find(|part| part.blocks().contains(&block));
        part.is_some_and(|part| part.unjudged_reads.contains(&block))
    }

    /// How many blocks have been written.
    pub fn written_blocks(&self) -> u64 {
        self.parts.iter().map(OraclePart::written_blocks).sum()
    }

    /// What failed flushes left in doubt of what a worker wrote.
    pub fn doubts(&self, worker: u16) -> Option<&Doubts> {
        self.parts.get(usize::from(worker)).map(|part| &part.doubts).filter(|doubts| !doubts.is_empty())
    }

    /// Whether blocks that were never written must read as zeros.
    pub fn expects_zeros(&self) -> bool {
        self.parts.iter().any(|part| part.unwritten_is_zeros)
    }

    /// What has been drawn of the streams, in the order in which it was run.
    pub fn drawn(&self) -> &[Drawn] {
        &self.drawn
    }

    pub(crate) fn record_drawn(&mut self, drawn: Drawn) {
        self.drawn.push(drawn);
    }

    /// Hands out the pieces of all workers, to be given back by [`Oracle::restore`].
    pub(crate) fn take_parts(&mut self) -> Vec<OraclePart> {
        std::mem::take(&mut self.parts)
    }

    pub(crate) fn restore(&mut self, parts: Vec<OraclePart>) {
        self.parts = parts;
    }

    /// A phase was stopped half-way.
    pub(crate) fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// Whether it knows no more what blocks must hold: the pieces never came back, or a phase did not come to its end.
    pub(crate) fn is_lost(&self) -> bool {
        self.parts.is_empty() || self.is_cut_off
    }
}

/// The piece of an oracle that belongs to one worker. Blocks are numbered through the whole target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OraclePart {
    first_block: u64,
    /// The content id of each block, with [`HAS_ALTERNATIVES`] where failed writes left more than one version legal.
    current: Table,
    /// The legal versions beside the current one, by position in `current`.
    alternatives: HashMap<usize, Vec<ContentId>>,
    unwritten_is_zeros: bool,
    doubts: Doubts,
    /// Blocks that were read while they might hold anything.
    unjudged_reads: BlockSet,
}

/// Some of the blocks of a part, a bit a block once there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BlockSet(HashMap<u64, u64>);

impl BlockSet {
    fn insert(&mut self, block: u64) {
        *self.0.entry(block / 64).or_default() |= 1 << (block % 64);
    }

    fn contains(&self, block: &u64) -> bool {
        self.0.get(&(block / 64)).is_some_and(|bits| bits >> (block % 64) & 1 == 1)
    }
}

const HAS_ALTERNATIVES: u64 = 1 << 63;

/// The entry of a block that may hold anything although those never written are to be zeros.
const ANYTHING: u64 = 1 << 62;

impl OraclePart {
    fn new(blocks: Range<u64>) -> Self {
        let count =
            usize::try_from(blocks.end - blocks.start).expect("eight bytes a block fit the address space");
        Self {
            first_block: blocks.start,
            current: Table::zeros(count),
            alternatives: HashMap::new(),
            unwritten_is_zeros: false,
            doubts: Doubts::default(),
            unjudged_reads: BlockSet::default(),
        }
    }

    /// The blocks it knows.
    pub fn blocks(&self) -> Range<u64> {
        self.first_block..self.first_block + self.current.len() as u64
    }

    fn position(&self, block: u64) -> usize {
        (block - self.first_block) as usize
    }

    fn written_blocks(&self) -> u64 {
        self.current.iter().filter(|&&entry| entry != 0 && entry != ANYTHING).count() as u64
    }

    /// Whether the check must look at the block.
    pub(crate) fn is_judged(&self, block: u64) -> bool {
        let entry = self.current[self.position(block)];
        entry != ANYTHING && (self.unwritten_is_zeros || entry != 0)
    }

    /// A read of `block` has succeeded and is about to be looked at.
    #[inline]
    pub(crate) fn note_read(&mut self, block: u64) {
        if !self.is_judged(block) {
            self.unjudged_reads.insert(block);
        }
    }

    /// A write of `content` to `block` has succeeded.
    #[inline]
    pub(crate) fn written(&mut self, block: u64, content: ContentId) {
        let position = self.position(block);
        if self.current[position] & HAS_ALTERNATIVES != 0 {
            self.alternatives.remove(&position);
        }
        self.current[position] = content.0;
    }

    /// A block was discarded, or may have been.
    pub(crate) fn discarded(&mut self, block: u64) {
        let position = self.position(block);
        if self.current[position] & HAS_ALTERNATIVES != 0 {
            self.alternatives.remove(&position);
        }
        self.current[position] = if self.unwritten_is_zeros { ANYTHING } else { ContentId::NEVER_WRITTEN.0 };
    }

    /// A write of `content` to `block` has failed, so nobody knows whether it happened.
    pub(crate) fn write_failed(&mut self, block: u64, content: ContentId) {
        let position = self.position(block);
        if !self.is_judged(block) {
            // Anything was legal before, and still is.
            return;
        }
        let alternatives = self.alternatives.entry(position).or_default();
        if self.current[position] & !HAS_ALTERNATIVES != content.0 && !alternatives.contains(&content) {
            alternatives.push(content);
        }
        self.current[position] |= HAS_ALTERNATIVES;
    }

    /// A flush of an object has failed: the writes of these blocks, by their number in the stage, may be lost.
    pub(crate) fn doubt(&mut self, object: u32, stage: Stage, blocks: Range<u64>, time: Time) {
        self.doubts.add(object, stage, blocks, time);
    }

    /// The contents that a block may hold, the last one successfully written first.
    pub(crate) fn legal(&self, block: u64) -> Vec<ContentId> {
        let position = self.position(block);
        let mut legal = vec![ContentId(self.current[position] & !(HAS_ALTERNATIVES | ANYTHING))];
        legal.extend(self.alternatives.get(&position).into_iter().flatten());
        legal
    }

    /// Whether [`OraclePart::legal`] of the block are these.
    pub(crate) fn is_legal(&self, block: u64, contents: &[ContentId]) -> bool {
        let position = self.position(block);
        let current = ContentId(self.current[position] & !(HAS_ALTERNATIVES | ANYTHING));
        let alternatives = self.alternatives.get(&position).map_or(&[][..], Vec::as_slice);
        contents.split_first() == Some((&current, alternatives))
    }

    /// Whether `data` is what `block` may hold.
    #[inline]
    pub(crate) fn accepts(&self, content: &Content, block: u64, data: &[u8]) -> bool {
        match self.current[self.position(block)] {
            0 => !self.unwritten_is_zeros || data.iter().all(|&byte| byte == 0),
            ANYTHING => true,
            entry if entry & HAS_ALTERNATIVES != 0 => self.accepts_any(content, block, data),
            entry => content.matches(ContentId(entry), data),
        }
    }

    /// A failed write may have been torn: every sector must be that of some legal version.
    #[cold]
    fn accepts_any(&self, content: &Content, block: u64, data: &[u8]) -> bool {
        let mut is_explained = [false; SECTORS];
        for id in self.legal(block) {
            let mut explain = |truth: &[u8]| {
                for (sector, is_explained) in is_explained.iter_mut().enumerate() {
                    *is_explained |= sector_of(truth, sector) == sector_of(data, sector);
                }
            };
            if id == ContentId::NEVER_WRITTEN {
                explain(&[0; crate::BLOCK_BYTES]);
            } else {
                content.with_block(id, |truth| explain(truth));
            }
        }
        is_explained.iter().all(|&is_explained| is_explained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_BYTES, LoadSpec, ObjectInfo};

    fn id(index: u64) -> ContentId {
        ContentId::new(Stage::Run, 0, index)
    }

    fn data(content: &Content, id: ContentId) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        content.fill(id, &mut block);
        block
    }

    #[test]
    fn a_block_must_hold_its_last_write() {
        let content = Content::new(1);
        let mut part = OraclePart::new(10..20);
        assert!(part.accepts(&content, 12, &[7; BLOCK_BYTES]), "never written, never a failure");
        assert!(!part.is_judged(12));
        part.note_read(12);
        part.written(12, id(1));
        part.note_read(13);
        part.written(14, id(7));
        part.note_read(14);
        assert_eq!(
            [11, 12, 13, 14].map(|block| part.unjudged_reads.contains(&block)),
            [false, true, true, false]
        );
        part.written(12, id(2));
        assert!(part.is_judged(12));
        assert!(part.accepts(&content, 12, &data(&content, id(2))));
        assert!(!part.accepts(&content, 12, &data(&content, id(1))), "stale");
        assert!(part.accepts(&content, 13, &data(&content, id(1))), "the neighbour is not judged");
    }

    #[test]
    fn after_failed_writes_every_version_since_the_last_success_is_legal_also_torn() {
        let content = Content::new(1);
        let mut part = OraclePart::new(0..1);
        part.written(0, id(0));
        part.written(0, id(1));
        part.write_failed(0, id(2));
        part.write_failed(0, id(3));
        part.write_failed(0, id(3));
        assert_eq!(part.legal(0), [id(1), id(2), id(3)]);
        assert!(part.is_legal(0, &[id(1), id(2), id(3)]));
        assert!(!part.is_legal(0, &[id(1), id(2)]) && !part.is_legal(0, &[]) && !part.is_legal(0, &[id(1)]));
        for index in 1..=3 {
            assert!(part.accepts(&content, 0, &data(&content, id(index))), "{index}");
        }
        assert!(!part.accepts(&content, 0, &data(&content, id(0))));
        let mut torn = data(&content, id(1));
        torn[512..1024].copy_from_slice(&data(&content, id(3))[512..1024]);
        assert!(part.accepts(&content, 0, &torn));
        torn[700] ^= 1;
        assert!(!part.accepts(&content, 0, &torn));
        part.written(0, id(4));
        assert_eq!(part.legal(0), [id(4)]);
        assert!(part.is_legal(0, &[id(4)]) && !part.is_legal(0, &[id(1), id(2), id(3)]));
        assert!(!part.accepts(&content, 0, &data(&content, id(3))));
        assert!(part.alternatives.is_empty());
    }

    #[test]
    fn a_failed_write_to_a_block_never_written_leaves_it_unjudged() {
        let content = Content::new(1);
        let mut part = OraclePart::new(0..1);
        part.write_failed(0, id(1));
        assert!(!part.is_judged(0));
        assert!(part.accepts(&content, 0, &[9; BLOCK_BYTES]));
    }

    #[test]
    fn zeros_are_expected_only_if_told() {
        let content = Content::new(1);
        let objects = [ObjectInfo::new("device", 8 * BLOCK_BYTES as u64)];
        let workload = Workload::new(&LoadSpec::default(), 1, &objects).expect("makes sense");
        let mut oracle = Oracle::new(&workload);
        oracle.expect_zeros_where_never_written();
        let mut parts = oracle.take_parts();
        assert!(oracle.is_lost());
        let part = &mut parts[0];
        assert!(part.is_judged(3));
        assert!(part.accepts(&content, 3, &[0; BLOCK_BYTES]));
        assert!(!part.accepts(&content, 3, &[1; BLOCK_BYTES]));
        part.write_failed(3, id(5));
        let mut torn = vec![0; BLOCK_BYTES];
        torn[..512].copy_from_slice(&data(&content, id(5))[..512]);
        assert!(part.accepts(&content, 3, &torn), "zeros and the failed write, sector by sector");
        oracle.restore(parts);
        assert_eq!(oracle.legal(3), [ContentId::NEVER_WRITTEN, id(5)]);
        assert_eq!(oracle.legal(99), [ContentId::NEVER_WRITTEN]);
    }
}
