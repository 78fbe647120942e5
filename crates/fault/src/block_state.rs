//! What is wrong with one block: corruptions over the pristine data, places that stay bad, and damage that a later write may
//! repair.
//!
//! A run may have millions of such blocks, so whatever is rare takes eight bytes where it is not there, and rules are named by their
//! position: that of a rule is never given to another, also when it is removed, so it means the same in every index that has it.

use std::ops::Range;

use rotproof_block::ContentHash;

use crate::BLOCK_BYTES;
use crate::corruption::Corruption;
use crate::effect::Effect;
use crate::few::Few;
use crate::index::Index;
use crate::record_list::RecordList;

/// Everything that is wrong with one block.
#[derive(Debug, Default)]
pub(crate) struct BlockState {
    /// Deviations until the bytes are overwritten, in the order in which they act.
    pub(crate) corruptions: Few<Corruption>,
    /// What sticky rules have left, in the order in which they act, after the corruptions.
    pub(crate) sticky: Few<StickyFault>,
    /// What the last write has replaced, where a stale read may want it.
    pub(crate) previous: Option<Box<Corruption>>,
    /// Injections whose damage to this block is still there, or was seen by a reader who may put it right.
    pub(crate) unrepaired: Few<Unrepaired>,
}

/// A block that has been bad since a sticky rule hit it.
#[derive(Debug)]
pub(crate) struct StickyFault {
    /// Position of the rule.
    pub(crate) rule: u32,
    /// Which of the rule's aims the block is.
    pub(crate) aims: PlaceAims,
    pub(crate) kind: StickyKind,
}

#[derive(Debug)]
pub(crate) enum StickyKind {
    /// Data read from here is wrong.
    Wrong(Box<WrongPlace>),
    /// Requests that touch this are hit in the same way again.
    Again,
    /// Requests that touch this fail or are slow.
    Request,
}

/// What a bad place does to data.
#[derive(Debug)]
pub(crate) struct WrongPlace {
    /// The rule's effect, with what chance decided filled in.
    pub(crate) effect: Effect,
    pub(crate) corruption: Corruption,
    /// The content that it last distorted for the ledger: one record for each content is enough.
    truth_recorded: Option<HashBytes>,
    /// Whether the ledger knows that somebody has read it.
    pub(crate) is_served: bool,
    /// The record of that content.
    pub(crate) record: u64,
}

impl WrongPlace {
    /// One whose content is not recorded yet.
    pub(crate) fn new(effect: Effect, corruption: Corruption) -> Self {
        Self { effect, corruption, truth_recorded: None, is_served: false, record: 0 }
    }

    /// Whether it was this content, known or not, that it last distorted for the ledger.
    pub(crate) fn has_recorded(&self, truth: Option<ContentHash>) -> bool {
        self.truth_recorded == truth.map(HashBytes::from)
    }

    pub(crate) fn set_recorded(&mut self, truth: Option<ContentHash>) {
        self.truth_recorded = truth.map(HashBytes::from);
    }
}

/// The aims of a rule that one block is: hardly ever several.
#[derive(Debug)]
pub(crate) enum PlaceAims {
    None,
    One(u32),
    Several(Box<[u32]>),
}

impl PlaceAims {
    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(aim) => std::slice::from_ref(aim),
            Self::Several(aims) => aims,
        }
    }
}

impl From<&[u32]> for PlaceAims {
    fn from(aims: &[u32]) -> Self {
        match aims {
            [] => Self::None,
            [aim] => Self::One(*aim),
            aims => Self::Several(aims.into()),
        }
    }
}

/// A hash that needs no alignment, which would cost eight bytes beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HashBytes([u8; 16]);

impl From<ContentHash> for HashBytes {
    fn from(hash: ContentHash) -> Self {
        Self(hash.0.to_le_bytes())
    }
}

/// So much of a hash that two flags fit beside it: 112 bits tell contents apart as surely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HashPart([u8; 14]);

impl From<ContentHash> for HashPart {
    fn from(hash: ContentHash) -> Self {
        let mut part = [0; 14];
        part.copy_from_slice(&hash.0.to_le_bytes()[..14]);
        Self(part)
    }
}

/// Injections of damage to one content of a block.
#[derive(Clone, Debug)]
pub(crate) struct Unrepaired {
    pub(crate) records: RecordList,
    truth: HashPart,
    /// What was stored wrong has not been read yet, as far as the ledger knows.
    pub(crate) is_unread: bool,
    /// Other bytes were written beside what is wrong, so that the truth will not come back; whether it is read still matters.
    pub(crate) is_beyond_repair: bool,
}

impl Unrepaired {
    /// Whether the content that was damaged is this.
    pub(crate) fn is_of(&self, truth: Option<ContentHash>) -> bool {
        Some(self.truth) == truth.map(HashPart::from)
    }
}

impl BlockState {
    pub(crate) fn is_empty(&self) -> bool {
        self.corruptions.is_empty()
            && self.sticky.is_empty()
            && self.previous.is_none()
            && self.unrepaired.is_empty()
    }

    /// Notes the record of damage; one like those before goes with them.
    pub(crate) fn add_unrepaired(
        &mut self,
        record: u64,
        truth: ContentHash,
        (is_unread, is_beyond_repair): (bool, bool),
    ) {
        let truth = HashPart::from(truth);
        let is_same = |last: &&mut Unrepaired| {
            (last.truth, last.is_unread, last.is_beyond_repair) == (truth, is_unread, is_beyond_repair)
        };
        if let Some(last) = self.unrepaired.last_mut().filter(is_same) {
            last.records.push(record);
            return;
        }
        let mut records = RecordList::default();
        records.push(record);
        self.unrepaired.push(Unrepaired { records, truth, is_unread, is_beyond_repair });
    }

    /// Whether that rule has left the block bad.
    pub(crate) fn has_place_of(&self, rule: u32) -> bool {
        self.sticky.iter().any(|place| place.rule == rule)
    }

    /// Whether that rule already distorts what is read from here.
    pub(crate) fn is_distorted_by(&self, rule: u32) -> bool {
        self.sticky.iter().any(|place| place.rule == rule && matches!(place.kind, StickyKind::Wrong(_)))
    }

    /// Whether one of the rules at work distorts what is read from here, always.
    pub(crate) fn has_wrong_place(&self, rules: &Index) -> bool {
        self.sticky.iter().any(|place| matches!(place.kind, StickyKind::Wrong(_)) && rules.acts(place.rule))
    }

    /// Whether one of these rules distorts, always, a content that the ledger does not have yet.
    pub(crate) fn shows_new(&self, rules: &Index, truth: Option<ContentHash>) -> bool {
        self.sticky.iter().any(|place| {
            matches!(&place.kind, StickyKind::Wrong(wrong) if !wrong.has_recorded(truth))
                && rules.acts(place.rule)
        })
    }

    /// Forgets the corruptions about bytes that have been overwritten.
    pub(crate) fn overwrite(&mut self, part: &Range<usize>) {
        if !self.corruptions.is_empty() {
            let corruptions = self.corruptions.take();
            self.corruptions.extend(corruptions.flat_map(|corruption| corruption.without(part)).flatten());
        }
    }

    /// Forgets bad places whose rules, being at work, let a rewrite heal them. Gives the records of what was wrong there.
    pub(crate) fn remap(&mut self, rules: &Index) -> Vec<u64> {
        let mut gone = Vec::new();
        self.sticky.retain_mut(|place| {
            let stays = !rules.acts(place.rule) || !rules.rule(place.rule).remaps();
            if let (false, StickyKind::Wrong(wrong)) = (stays, &place.kind) {
                gone.push(wrong.record);
            }
            stays
        });
        gone
    }

    /// Whether a whole block of `length` bytes reads as nothing but zeros under these rules, whatever it holds; false if
    /// that takes a look at the bytes.
    pub(crate) fn reads_as_zeros(&self, rules: &Index, length: usize) -> bool {
        length as u64 == BLOCK_BYTES
            && !self.has_wrong_place(rules)
            && self.corruptions.last().is_some_and(|corruption| corruption.zeroes(&(0..length)))
    }

    /// Makes `bytes`, which begin at byte `start` of the block, look as the block reads under these rules.
    pub(crate) fn distort(&self, rules: &Index, start: usize, bytes: &mut [u8]) {
        for corruption in self.corruptions.iter() {
            corruption.apply(start, bytes);
        }
        for place in self.sticky.iter().filter(|place| rules.acts(place.rule)) {
            if let StickyKind::Wrong(wrong) = &place.kind {
                wrong.corruption.apply(start, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run may have millions of them.
    #[test]
    fn a_state_is_small() {
        assert!(size_of::<BlockState>() <= 32, "{}", size_of::<BlockState>());
        assert!(size_of::<StickyFault>() <= 48, "{}", size_of::<StickyFault>());
        assert!(size_of::<Unrepaired>() <= 32, "{}", size_of::<Unrepaired>());
        assert!(size_of::<WrongPlace>() <= 112, "{}", size_of::<WrongPlace>());
    }
}
