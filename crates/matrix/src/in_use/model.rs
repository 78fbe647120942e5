//! What each block of a volume may hold while several write to it, each its own blocks, and others capture it and go back.

use std::collections::{BTreeMap, BTreeSet};

/// What a block may hold, in the order in which it came about; each with its number.
#[derive(Clone, Debug, Default)]
struct Block {
    log: Vec<(u64, u8)>,
    /// What is older was overwritten, and somebody was told so.
    current: u64,
    /// What is older was overwritten durably.
    durable: u64,
}

/// Of each block what it may hold in a version.
pub(super) type Snapshot = Vec<BTreeSet<u8>>;

/// What a volume may hold.
#[derive(Debug, Default)]
pub(super) struct Model {
    blocks: Vec<Block>,
    last: u64,
    /// What it is going back to is of this number.
    going_back: Option<u64>,
    /// What is being captured.
    capturing: Option<Snapshot>,
    /// What each version holds.
    pub(super) versions: BTreeMap<u64, Snapshot>,
    /// Versions that may be gone.
    pub(super) doubtful: BTreeSet<u64>,
}

/// Where each block was when something began that makes all before durable.
pub(super) struct Floors(Vec<u64>);

impl Model {
    /// So many blocks of zeros.
    pub(super) fn new(blocks: usize) -> Self {
        let mut model = Self::default();
        model.grow(blocks);
        model
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// There are more now, which hold zeros.
    pub(super) fn grow(&mut self, blocks: usize) {
        let fresh = Block { log: vec![(0, 0)], current: 0, durable: 0 };
        self.blocks.resize(blocks.max(self.blocks.len()), fresh);
    }

    /// A write begins; its number.
    pub(super) fn begins(&mut self, block: usize, byte: u8) -> u64 {
        self.last += 1;
        self.blocks[block].log.push((self.last, byte));
        if let Some(capturing) = &mut self.capturing {
            capturing[block].insert(byte);
        }
        self.last
    }

    /// It was acknowledged.
    pub(super) fn acknowledged(&mut self, block: usize, number: u64) {
        // What the volume goes back to may come before it or after.
        let number = self.going_back.map_or(number, |going_back| number.min(going_back));
        let block = &mut self.blocks[block];
        block.current = block.current.max(number);
    }

    /// A flush begins.
    pub(super) fn floors(&self) -> Floors {
        Floors(self.blocks.iter().map(|block| block.current).collect())
    }

    /// It was acknowledged.
    pub(super) fn flushed(&mut self, floors: &Floors) {
        for (block, floor) in self.blocks.iter_mut().zip(&floors.0) {
            block.durable = block.durable.max(*floor);
            block.log.retain(|(number, _)| *number >= block.durable);
        }
    }

    /// What a read may give that begins now and ends before the block is written again: what it holds, and what the volume may go back
    /// to meanwhile.
    pub(super) fn held(&self, block: usize) -> Vec<u8> {
        let block = &self.blocks[block];
        block.log.iter().filter(|(number, _)| *number >= block.current).map(|(_, byte)| *byte).collect()
    }

    /// Whether a read may give this that begins and ends now.
    pub(super) fn allows(&self, block: usize, byte: u8) -> bool {
        self.held(block).contains(&byte)
    }

    /// What a read may give, for people.
    pub(super) fn allowed(&self, block: usize) -> String {
        format!("{:?}, going back at {:?}", self.blocks[block], self.going_back)
    }

    /// What a volume may hold whose power went: anything that was not overwritten durably.
    pub(super) fn power_went(&mut self) {
        for block in &mut self.blocks {
            block.current = block.durable;
        }
        (self.going_back, self.capturing) = (None, None);
    }

    /// A block holds this for certain, durably.
    pub(super) fn is_now(&mut self, block: usize, byte: u8) {
        self.last += 1;
        let number = self.last;
        self.blocks[block] = Block { log: vec![(number, byte)], current: number, durable: number };
    }

    fn present(&self) -> Snapshot {
        let of = |block: &Block| {
            block.log.iter().filter(|(number, _)| *number >= block.current).map(|(_, byte)| *byte).collect()
        };
        self.blocks.iter().map(of).collect()
    }

    /// A version is being captured.
    pub(super) fn captures(&mut self) -> Floors {
        self.capturing = Some(self.present());
        self.floors()
    }

    /// It was, under this number; all before is durable.
    pub(super) fn captured(&mut self, id: u64, floors: &Floors) {
        self.versions.extend(self.capturing.take().map(|snapshot| (id, snapshot)));
        self.flushed(floors);
    }

    /// No version was captured.
    pub(super) fn captures_no_more(&mut self) {
        self.capturing = None;
    }

    /// The volume is going back to a version, and captures its present before.
    pub(super) fn goes_back(&mut self, id: u64) {
        self.capturing = Some(self.present());
        let Some(snapshot) = self.versions.get(&id).cloned() else { return };
        self.last += 1;
        self.going_back = Some(self.last);
        for (number, block) in self.blocks.iter_mut().enumerate() {
            // What is new since the version was captured was zeros.
            let zero = BTreeSet::from([0]);
            let holds = snapshot.get(number).unwrap_or(&zero);
            block.log.extend(holds.iter().map(|byte| (self.last, *byte)));
        }
    }

    /// It has, durably, and the present of before is a version of this number.
    pub(super) fn went_back(&mut self, undo: u64) {
        self.versions.extend(self.capturing.take().map(|snapshot| (undo, snapshot)));
        let Some(number) = self.going_back.take() else { return };
        for block in &mut self.blocks {
            block.current = block.current.max(number);
            block.durable = block.durable.max(number);
            block.log.retain(|(other, _)| *other >= number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_cannot_be_lost_and_what_was_not_can() {
        let mut model = Model::new(2);
        let first = model.begins(0, 1);
        assert!(model.allows(0, 0) && model.allows(0, 1), "it is under way");
        model.acknowledged(0, first);
        assert!(!model.allows(0, 0) && model.allows(0, 1));
        let floors = model.floors();
        let second = model.begins(0, 2);
        model.acknowledged(0, second);
        model.flushed(&floors);
        assert!(!model.allows(0, 1));
        model.power_went();
        assert!(model.allows(0, 1) && model.allows(0, 2) && !model.allows(0, 0));
        assert!(model.allows(1, 0) && !model.allows(1, 1));
    }

    #[test]
    fn what_was_written_while_a_volume_goes_back_comes_before_it_or_after() {
        let mut model = Model::new(1);
        let floors = model.captures();
        model.captured(7, &floors);
        let first = model.begins(0, 1);
        model.acknowledged(0, first);
        model.goes_back(7);
        let second = model.begins(0, 2);
        model.acknowledged(0, second);
        assert!(model.allows(0, 0) && model.allows(0, 2) && !model.allows(0, 1));
        model.went_back(8);
        assert!(model.allows(0, 0) && model.allows(0, 2) && !model.allows(0, 1));
        assert_eq!(model.versions[&8], [BTreeSet::from([1, 2])]);
        model.power_went();
        assert!(model.allows(0, 0) && model.allows(0, 2) && !model.allows(0, 1));
    }
}
