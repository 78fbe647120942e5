//! What a volume may hold at each moment of its story.

use std::collections::BTreeMap;

/// Something that is known from a moment on.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// An operation of this name is under way.
    Operation(&'static str),
    /// The volume has been made.
    Made,
    /// These blocks may hold these bytes.
    Begins(Vec<(usize, u8)>),
    /// All that was written is durable.
    Flushed,
    /// This is a version, and holds that.
    Captured(u64, Vec<u8>),
    /// This version is being given up.
    Forgets(u64),
    /// All blocks are becoming these, or stay what they are.
    GoesBack(Vec<u8>),
    /// They have become so.
    WentBack,
    /// There are so many blocks now; the new ones hold zeros.
    Grown(usize),
}

/// What a block may hold: what was flushed last, or anything that was written since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Block {
    flushed: u8,
    later: Vec<u8>,
}

impl Block {
    fn allows(&self, byte: u8) -> bool {
        self.flushed == byte || self.later.contains(&byte)
    }
}

/// See the head of the module.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) is_made: bool,
    pub(super) operation: &'static str,
    /// Of all blocks one of these.
    worlds: Vec<Vec<Block>>,
    /// What each version holds.
    pub(super) versions: BTreeMap<u64, Vec<u8>>,
}

impl Expected {
    /// What is under way at first.
    pub(super) const FIRST: &'static str = "create";

    /// Before anything has happened, of so many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        let worlds = vec![vec![Block::default(); blocks]];
        Self { is_made: false, operation: Self::FIRST, worlds, versions: BTreeMap::new() }
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        self.worlds[0].len()
    }

    pub(super) fn pass(&mut self, step: &Step) {
        match step {
            Step::Operation(name) => self.operation = name,
            Step::Made => self.is_made = true,
            Step::Begins(blocks) => {
                for world in &mut self.worlds {
                    blocks.iter().for_each(|(block, byte)| world[*block].later.push(*byte));
                }
            }
            Step::Flushed => {
                for block in self.worlds.iter_mut().flatten() {
                    block.flushed = block.later.last().copied().unwrap_or(block.flushed);
                    block.later.clear();
                }
            }
            Step::Captured(id, holds) => drop(self.versions.insert(*id, holds.clone())),
            Step::Forgets(id) => drop(self.versions.remove(id)),
            Step::GoesBack(to) => {
                self.worlds.push(to.iter().map(|byte| Block { flushed: *byte, later: Vec::new() }).collect());
            }
            Step::WentBack => drop(self.worlds.drain(..self.worlds.len() - 1)),
            Step::Grown(blocks) => {
                self.worlds.iter_mut().for_each(|world| world.resize(*blocks, Block::default()));
            }
        }
    }

    /// Whether the volume may hold this: of each block the first byte of each sector.
    pub(super) fn allows(&self, found: &[Vec<u8>]) -> Result<(), String> {
        let mut why = String::new();
        for world in &self.worlds {
            let mut blocks = world.iter().zip(found).enumerate();
            let wrong = blocks.find(|(_, (may, is))| !is.iter().all(|byte| may.allows(*byte)));
            match wrong {
                None => return Ok(()),
                Some((block, (may, is))) => {
                    why = format!(
                        "block {block} holds {is:?}, and may hold {} or {:?}",
                        may.flushed, may.later
                    );
                }
            }
        }
        Err(why)
    }
}
