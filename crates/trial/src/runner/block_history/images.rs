//! Looks at the bytes of a device that a load of blocks has written to, with nothing between them and the load.
//!
//! Looked at is every block that the load has written, and every one that any state had otherwise than the device had been before it:
//! whatever else is there cannot have changed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_crash::{Crash, Finding, ImageDevice};
use rotproof_crash_fs::ImageOracle;
use rotproof_load::BLOCK_BYTES;

use super::judge::legal;
use super::{BlockHistory, Inner, Promised, Version, What, shortened, unit_sectors};

/// The device is the only object of its load.
const DEVICE: usize = 0;
/// Blocks that are read at once. No atomic unit is larger.
const PIECE_BLOCKS: u64 = 256;

/// See the head of the module.
pub(in super::super) struct BlockImageOracle {
    history: Arc<BlockHistory>,
    unit_sectors: usize,
    /// Blocks of the unit inside which no write is torn.
    unit_blocks: u64,
    /// What is looked at.
    blocks: BTreeSet<u64>,
}

impl BlockImageOracle {
    pub(super) fn new(history: Arc<BlockHistory>, unit_bytes: u64) -> Self {
        let blocks = history.inner.lock().blocks.keys().map(|(_, block)| *block).collect();
        Self {
            history,
            unit_sectors: unit_sectors(unit_bytes),
            unit_blocks: (unit_bytes / BLOCK_BYTES as u64).clamp(1, PIECE_BLOCKS),
            blocks,
        }
    }

    /// Writes of which a unit holds a part only.
    fn torn<'a>(
        &self,
        versions: &dyn Fn(u64) -> &'a [Version],
        piece: &Piece,
        promised: Promised,
    ) -> Option<Finding> {
        let units = (piece.blocks.start / self.unit_blocks..piece.blocks.end.div_ceil(self.unit_blocks))
            .map(|unit| unit * self.unit_blocks..(unit + 1) * self.unit_blocks);
        for unit in units {
            let within = unit.start.max(piece.blocks.start)..unit.end.min(piece.blocks.end);
            let shown: Vec<(u64, Shown<'_>)> = within
                .map(|block| (block, Shown::by(versions(block), piece.block(block), promised)))
                .collect();
            for (block, shows) in &shown {
                let Some(write) = shows.only() else { continue };
                let lacks = |other: &&(u64, Shown<'_>)| {
                    let is_written = versions(other.0).iter().any(|one| one.submitted == write.submitted);
                    is_written && !other.1.has_any_since(write.submitted)
                };
                if let Some((other, _)) = shown.iter().find(lacks) {
                    let name = &self.history.objects[DEVICE].name;
                    let words = format!(
                        "{name} block {block} shows a write that block {other} of the same atomic unit does not"
                    );
                    return Some(Finding::new("mixed", words));
                }
            }
        }
        None
    }
}

impl ImageOracle for BlockImageOracle {
    fn look(&mut self, image: &ImageDevice, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        for range in image.take_changed() {
            self.blocks.extend(range.start / BLOCK_BYTES as u64..range.end.div_ceil(BLOCK_BYTES as u64));
        }
        let history = Arc::clone(&self.history);
        let inner: &Inner = &history.inner.lock();
        let promised = BlockHistory::promised(inner, DEVICE, crash);
        let versions = |block: u64| inner.blocks.get(&(DEVICE, block)).map_or(&[][..], Vec::as_slice);
        let mut findings = Vec::new();
        let mut blocks = self.blocks.iter().copied().peekable();
        while let Some(first) = blocks.next() {
            let end = (first / PIECE_BLOCKS + 1) * PIECE_BLOCKS;
            let mut wanted = vec![first];
            while let Some(block) = blocks.next_if(|block| *block < end) {
                wanted.push(block);
            }
            let piece = Piece::read(image, first..wanted[wanted.len() - 1] + 1)?;
            let found = wanted.iter().filter_map(|&block| {
                self.history.find(inner, (DEVICE, block), piece.block(block), promised, self.unit_sectors)
            });
            let found: Vec<Finding> = found.collect();
            if found.is_empty() && self.unit_blocks > 1 {
                findings.extend(self.torn(&versions, &piece, promised));
            }
            findings.extend(found);
        }
        Ok(shortened(findings))
    }
}

/// Some blocks of a state, and of what the device held before.
struct Piece {
    blocks: Range<u64>,
    bytes: Vec<u8>,
    before: Vec<u8>,
}

impl Piece {
    fn read(image: &ImageDevice, blocks: Range<u64>) -> Result<Self> {
        let start = blocks.start * BLOCK_BYTES as u64;
        let length = (blocks.end - blocks.start) as usize * BLOCK_BYTES;
        // The device may end inside its last block.
        let there = image.info().size.saturating_sub(start).min(length as u64) as usize;
        let (mut bytes, mut before) = (vec![0; length], vec![0; length]);
        image.read_at(start, &mut bytes[..there])?;
        image.read_before(start, &mut before[..there])?;
        Ok(Self { blocks, bytes, before })
    }

    fn block(&self, block: u64) -> (&[u8], &[u8]) {
        let at = (block - self.blocks.start) as usize * BLOCK_BYTES;
        (&self.bytes[at..at + BLOCK_BYTES], &self.before[at..at + BLOCK_BYTES])
    }
}

/// What a legal block may be showing.
struct Shown<'a> {
    versions: Vec<&'a Version>,
    may_be_untouched: bool,
}

impl<'a> Shown<'a> {
    fn by(versions: &'a [Version], (bytes, before): (&[u8], &[u8]), promised: Promised) -> Self {
        let (mut legal, may_be_untouched) = legal(versions, promised);
        legal.retain(|version| version.what.is(bytes));
        Self { versions: legal, may_be_untouched: may_be_untouched && bytes == before }
    }

    /// The write that it shows beyond doubt, if that has returned: of one that failed any part may be there.
    fn only(&self) -> Option<&'a Version> {
        match self.versions[..] {
            [only] if !self.may_be_untouched && only.what != What::Anything => {
                (only.completed != u64::MAX).then_some(only)
            }
            _ => None,
        }
    }

    /// Whether it may show something that is no older than a write that was submitted at that moment.
    fn has_any_since(&self, submitted: u64) -> bool {
        self.versions.iter().any(|version| version.completed >= submitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::ContentHash;

    const UNIT: u64 = 4;

    fn version(byte: u8, submitted: u64, completed: u64) -> Version {
        let hash = ContentHash::of(&[byte; super::super::SECTOR_BYTES]);
        Version { what: What::Data([hash; super::super::SECTORS]), submitted, completed, durable: u64::MAX }
    }

    /// Whether four blocks of one unit may hold these bytes each, where the unit was written as a whole twice, and then its second block.
    fn is_torn(bytes: [u8; 4], last_completed: u64) -> bool {
        let whole = [version(1, 1, 2), version(2, 3, last_completed)];
        let second = [version(1, 1, 2), version(2, 3, last_completed), version(3, 7, 8)];
        let oracle = BlockImageOracle {
            history: BlockHistory::new(
                &[rotproof_load::ObjectInfo::new("device", 16 << 10)],
                rotproof_load::Content::new(1),
                Arc::new(|_: &str| {}),
            ),
            unit_sectors: 8,
            unit_blocks: UNIT,
            blocks: BTreeSet::new(),
        };
        let piece = Piece {
            blocks: 0..UNIT,
            bytes: bytes.iter().flat_map(|&byte| [byte; BLOCK_BYTES]).collect(),
            before: vec![0; UNIT as usize * BLOCK_BYTES],
        };
        let versions = |block: u64| if block == 1 { &second[..] } else { &whole[..] };
        oracle.torn(&versions, &piece, Promised { before: 0, durable_writes: 0 }).is_some()
    }

    #[test]
    fn a_unit_shows_the_whole_of_each_write_or_nothing_of_it() {
        for (bytes, wanted) in [
            ([0, 0, 0, 0], false),
            ([1, 1, 1, 1], false),
            ([2, 2, 2, 2], false),
            ([0, 3, 0, 0], false),
            ([2, 3, 2, 2], false),
            ([1, 3, 1, 1], false),
            ([2, 2, 1, 2], true),
            ([1, 2, 1, 1], true),
            ([1, 0, 1, 1], true),
            ([2, 3, 2, 0], true),
        ] {
            assert_eq!(is_torn(bytes, 4), wanted, "{bytes:?}");
        }
        assert!(!is_torn([1, 2, 1, 1], u64::MAX), "of a write that failed any part may be there");
    }
}
