//! Goes through an operation with nothing wrong: which blocks it reads and writes, and what those are. A cell can then
//! aim at a block that is met; where there is none, the cell is never reached, and nobody need try.

use std::collections::{BTreeMap, HashSet};

use rotproof_block::Result;
use rotproof_block::hash::mix;
use rotproof_kinds::{Kind, Map, Plain, ReadOptions, read};

use crate::act::{Acted, Sets, act, must};
use crate::cell::{Cell, Copies};
use crate::effect::Effect;
use crate::image::{BLOCK_BYTES, Block};
use crate::medium::{Harm, Medium};
use crate::operation::Operation;
use crate::stage::Stage;

/// So many blocks are tried until one is met.
pub(crate) const TRIES_MAX: usize = 3;

/// An operation with nothing wrong.
pub(crate) struct Scout {
    pub(crate) acted: Acted,
    /// What the blocks are before it, and right after it.
    before: Map,
    after: Map,
    /// Blocks whose first touch is a read, and blocks that are written.
    read_first: Vec<u64>,
    written: Vec<u64>,
}

/// One way to do a cell.
pub(crate) struct Aim {
    pub(crate) harm: Harm,
    /// The bad blocks.
    pub(crate) targets: HashSet<u64>,
    /// Blocks that hold the same as one of them, and are good.
    pub(crate) copies: HashSet<u64>,
    /// What exactly is done, for people.
    pub(crate) words: String,
}

impl Scout {
    pub(crate) fn go(
        stage: &mut dyn Stage,
        medium: &Medium,
        sets: &Sets,
        operation: Operation,
    ) -> Result<Self> {
        let acted = act(stage, medium, sets, (operation, None))?;
        must(acted.during.look.clone(), operation.word())?;
        must(acted.after.clone(), "looking at all files")?;
        let options = ReadOptions::default();
        let (before, after) = (read(&**sets.before(operation), options)?, read(&acted.image, options)?);
        // What is another block, or another kind, when it is done again is no aim.
        let again = act(stage, medium, sets, (operation, None))?;
        let after_again = read(&again.image, options)?;
        let written_again: HashSet<u64> =
            again.touches.iter().filter(|touch| touch.is_write).map(|touch| touch.block).collect();
        let kind_of = |map: &Map, block: u64| map.at(block * BLOCK_BYTES).map(|extent| extent.kind);
        let is_same = |block: u64| {
            written_again.contains(&block) && kind_of(&after, block) == kind_of(&after_again, block)
        };
        let (mut seen, mut read_first, mut written) = (HashSet::new(), Vec::new(), Vec::new());
        let mut is_written = HashSet::new();
        for touch in &acted.touches {
            if seen.insert(touch.block) && !touch.is_write {
                read_first.push(touch.block);
            }
            if touch.is_write && is_same(touch.block) && is_written.insert(touch.block) {
                written.push(touch.block);
            }
        }
        Ok(Self { acted, before, after, read_first, written })
    }

    /// Which kinds its blocks have, and whether some are kept more than once.
    pub(crate) fn kinds(&self) -> BTreeMap<Kind, bool> {
        let mut kinds = BTreeMap::new();
        for (map, blocks) in [(&self.before, &self.read_first), (&self.after, &self.written)] {
            for &block in blocks {
                let Some(extent) = map.at(block * BLOCK_BYTES) else { continue };
                let is_row = !matches!(
                    extent.kind,
                    Kind::Plain(Plain::Free | Plain::Unused | Plain::Unknown | Plain::JournalFree)
                );
                if is_row {
                    let has_copies = map.copies_of(block * BLOCK_BYTES, BLOCK_BYTES).len() > 1;
                    *kinds.entry(extent.kind).or_insert(false) |= has_copies;
                }
            }
        }
        kinds
    }

    /// Ways to do a cell, as the seed draws them; none if nothing that the operation meets is of that kind.
    pub(crate) fn aims(&self, cell: &Cell, sets: &Sets, seed: u64) -> Vec<Aim> {
        let (map, blocks) = match cell.effect.is_on_reads() {
            true => (&self.before, &self.read_first),
            false => (&self.after, &self.written),
        };
        let image = sets.before(cell.operation);
        let is_of_kind =
            |block: u64| map.at(block * BLOCK_BYTES).is_some_and(|extent| extent.kind.word() == cell.kind);
        let key = seed ^ cell.key();
        let mut candidates: Vec<u64> = blocks.iter().copied().filter(|&block| is_of_kind(block)).collect();
        candidates.retain(|&block| match cell.effect {
            // Where there is nothing but zeros, these change nothing, or what nobody uses.
            Effect::Flip | Effect::Zeros | Effect::Noise => image.block(block).is_some(),
            Effect::Stale => !sets.early.is_same_at(image, block),
            _ => true,
        });
        candidates.sort_by_key(|&block| mix(key, block, 0));
        let aims = candidates.into_iter().filter_map(|block| self.aim(cell, sets, (map, block), key));
        aims.take(TRIES_MAX).collect()
    }

    fn aim(&self, cell: &Cell, sets: &Sets, (map, block): (&Map, u64), key: u64) -> Option<Aim> {
        let copies = map.copies_of(block * BLOCK_BYTES, BLOCK_BYTES);
        let copies: HashSet<u64> = copies.into_iter().map(|offset| offset / BLOCK_BYTES).collect();
        let targets = match cell.copies {
            Copies::One => HashSet::from([block]),
            Copies::All if copies.len() > 1 => copies.clone(),
            Copies::All => return None,
        };
        let (harm, words) = self.harm(cell, sets, (map, block, &targets), key)?;
        let copies = copies.difference(&targets).copied().collect();
        Some(Aim { harm, targets, copies, words })
    }

    fn harm(
        &self,
        cell: &Cell,
        sets: &Sets,
        (map, block, targets): (&Map, u64, &HashSet<u64>),
        key: u64,
    ) -> Option<(Harm, String)> {
        let image = sets.before(cell.operation);
        let mut sorted: Vec<u64> = targets.iter().copied().collect();
        sorted.sort_unstable();
        let places =
            sorted.iter().map(|block| (block * BLOCK_BYTES).to_string()).collect::<Vec<_>>().join(", ");
        let stored = |change: &dyn Fn(&mut Vec<u8>)| {
            let one = |&block: &u64| {
                let mut bytes =
                    image.block(block).map_or_else(|| vec![0; BLOCK_BYTES as usize], |block| block.to_vec());
                change(&mut bytes);
                (block, Block::from(bytes))
            };
            Harm::Stored(sorted.iter().map(one).collect())
        };
        Some(match cell.effect {
            Effect::Flip => {
                // One of the bytes that hold something.
                let bytes = image.block(block)?;
                let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
                let byte = used[(mix(key, block, 1) % used.len() as u64) as usize];
                let bit = mix(key, block, 2) % 8;
                (
                    stored(&|bytes| bytes[byte] ^= 1 << bit),
                    format!("bit {bit} of byte {byte} of the block at {places}"),
                )
            }
            Effect::Zeros => (stored(&|bytes| bytes.fill(0)), format!("zeros in the block at {places}")),
            Effect::Noise => {
                let noise = |bytes: &mut Vec<u8>| {
                    for (word, part) in bytes.chunks_exact_mut(8).enumerate() {
                        part.copy_from_slice(&mix(key, block, 3 + word as u64).to_le_bytes());
                    }
                };
                (stored(&noise), format!("noise in the block at {places}"))
            }
            Effect::Stale => {
                let old = sorted.iter().map(|&block| {
                    let zeros = || Block::from(vec![0; BLOCK_BYTES as usize]);
                    (block, sets.early.block(block).cloned().unwrap_or_else(zeros))
                });
                (Harm::Stored(old.collect()), format!("older content in the block at {places}"))
            }
            Effect::ReadError => {
                (Harm::ReadError(targets.clone()), format!("reading the block at {places} fails"))
            }
            Effect::WriteError => {
                (Harm::WriteError(targets.clone()), format!("writing the block at {places} fails"))
            }
            Effect::LostWrite => {
                (Harm::Lost(targets.clone()), format!("writes to the block at {places} are lost"))
            }
            Effect::MisdirectedWrite => {
                let other = victim(map, targets, key)?;
                let places_of = targets.iter().map(|&block| (block, other)).collect();
                let to = other * BLOCK_BYTES;
                (
                    Harm::Misdirected(places_of),
                    format!("writes to the block at {places} go to the file's block at {to}"),
                )
            }
        })
    }
}

/// A block of a file that a misdirected write damages.
fn victim(map: &Map, targets: &HashSet<u64>, key: u64) -> Option<u64> {
    let data = map.extents().iter().filter(|extent| extent.kind == Kind::Plain(Plain::Data));
    let blocks = data.flat_map(|extent| extent.start / BLOCK_BYTES..extent.end / BLOCK_BYTES);
    blocks.filter(|block| !targets.contains(block)).min_by_key(|&block| mix(key, block, 4))
}
