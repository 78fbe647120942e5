//! The rows of a cell's database: what must be in it, how it gets there, and what must be answered when somebody asks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rotproof_block::hash::mix;

use crate::operation::Operation;

/// A change to one row, by its number and that of what is in it from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Insert(u64, u64),
    Update(u64, u64),
    Delete(u64),
}

/// What is in every row, by a number that its content follows from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows(BTreeMap<u64, u64>);

/// Rows whose content takes several pages.
const LONG_EVERY: u64 = 25;
const LONG_BYTES: usize = 9000;
/// Rows that are looked up.
pub(crate) const LOOKED_UP: [u64; 6] = [2, 99, 175, 222, 390, 599];

/// Rows before an operation adds some.
const ROWS: u64 = 600;

/// A text that no other row and no other content of this row has.
pub(crate) fn name(id: u64, version: u64) -> String {
    format!("{:016x}-name-{id:04}-{version}-that-takes-some-room", mix(id, version, 1))
}

/// The content of a row.
pub(crate) fn body(id: u64, version: u64) -> String {
    let length =
        if id.is_multiple_of(LONG_EVERY) { LONG_BYTES } else { 100 + (mix(id, version, 2) % 100) as usize };
    let mut text = String::with_capacity(length + 16);
    let mut word = 0;
    while text.len() < length {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:016x}", mix(id, version, 3 + word));
        word += 1;
    }
    text.truncate(length);
    text
}

/// What every cell begins with, first half: what is stored then is what is stale later.
pub(crate) fn first_half() -> Vec<Step> {
    (1..=ROWS).step_by(2).map(|id| Step::Insert(id, 1)).collect()
}

/// Changes to rows of the first half, which are in the log, where there is one, at the moment of what is stale later.
pub(crate) fn some_again() -> Vec<Step> {
    (1..=ROWS).step_by(30).map(|id| Step::Update(id, 7)).collect()
}

/// The second half, which leaves free pages behind.
pub(crate) fn second_half() -> Vec<Step> {
    let inserts = (2..=ROWS).step_by(2).map(|id| Step::Insert(id, 1));
    let updates = (1..=ROWS).step_by(10).map(|id| Step::Update(id, 2));
    inserts.chain(updates).chain((400..=480).map(Step::Delete)).collect()
}

/// What is in the write-ahead log, where there is one, when a cell begins: each a transaction.
pub(crate) fn latest() -> [Vec<Step>; 3] {
    [
        [8, 120, 250, 560].map(|id| Step::Update(id, 3)).to_vec(),
        (601..=603).map(|id| Step::Insert(id, 1)).chain([Step::Insert(625, 1)]).collect(),
        vec![Step::Delete(40), Step::Delete(41), Step::Update(42, 4), Step::Update(590, 4)],
    ]
}

/// What an operation changes.
pub(crate) fn changes(operation: Operation) -> Vec<Step> {
    match operation {
        Operation::Insert => (701..=712).chain([725]).map(|id| Step::Insert(id, 5)).collect(),
        Operation::Update => [3, 50, 77, 333, 599].map(|id| Step::Update(id, 6)).to_vec(),
        Operation::Delete => (5..=24).chain([75, 100]).map(Step::Delete).collect(),
        _ => Vec::new(),
    }
}

impl Rows {
    pub(crate) fn apply(&mut self, steps: &[Step]) {
        for &step in steps {
            match step {
                Step::Insert(id, version) | Step::Update(id, version) => {
                    self.0.insert(id, version);
                }
                Step::Delete(id) => {
                    self.0.remove(&id);
                }
            }
        }
    }

    /// A row and the number of its content, if it is there.
    pub(crate) fn get(&self, id: u64) -> Option<(u64, u64)> {
        self.0.get_key_value(&id).map(|(&id, &version)| (id, version))
    }

    /// All rows, with the numbers of their contents.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&id, &version)| (id, version))
    }

    /// The numbers of all rows.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// These rows, as far as they are there, a line each.
    pub(crate) fn lines<'a>(
        &'a self,
        ids: impl IntoIterator<Item = u64> + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        let line = |(id, version)| format!("{id}|{}|{}\n", name(id, version), body(id, version));
        ids.into_iter().filter_map(|id| self.get(id)).map(line)
    }

    /// All rows in the order of their numbers, then all names in theirs.
    pub(crate) fn both_ways(&self) -> String {
        let mut names: Vec<String> =
            self.each().map(|(id, version)| format!("{}|{id}\n", name(id, version))).collect();
        names.sort_unstable();
        self.lines(self.ids()).chain(names).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_changes_and_rows_are_counted() {
        let mut rows = Rows::default();
        rows.apply(&first_half());
        rows.apply(&second_half());
        for operation in [Operation::Insert, Operation::Update, Operation::Delete] {
            let mut changed = rows.clone();
            changed.apply(&changes(operation));
            assert_ne!(changed, rows);
        }
        let mut with_log = rows.clone();
        latest().iter().for_each(|steps| with_log.apply(steps));
        assert_eq!(with_log.count(), 600 - 81 + 4 - 2);
    }
}
