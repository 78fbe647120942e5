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
/// Rows before an operation adds some.
const ROWS: u64 = 600;

fn name(id: u64, version: u64) -> String {
    format!("{:016x}-name-{id:04}-{version}-that-takes-some-room", mix(id, version, 1))
}

fn body(id: u64, version: u64) -> String {
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

impl Step {
    fn sql(self) -> String {
        match self {
            Step::Insert(id, version) => {
                format!("INSERT INTO item VALUES({id}, '{}', '{}');\n", name(id, version), body(id, version))
            }
            Step::Update(id, version) => format!(
                "UPDATE item SET name = '{}', body = '{}' WHERE id = {id};\n",
                name(id, version),
                body(id, version)
            ),
            Step::Delete(id) => format!("DELETE FROM item WHERE id = {id};\n"),
        }
    }
}

/// The table and its index.
pub(crate) const SCHEMA: &str = "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX item_name ON item(name);
";

/// One transaction.
pub(crate) fn transaction(steps: &[Step]) -> String {
    format!("BEGIN;\n{}COMMIT;\n", steps.iter().map(|step| step.sql()).collect::<String>())
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

/// A transaction that is cut off by the crash: larger than the cache that it is done with.
pub(crate) const CUT_OFF: &str =
    "PRAGMA cache_size = 5; BEGIN; UPDATE item SET body = body || 'z' WHERE id % 3 = 0; SELECT 'there';\n";

/// What an operation changes.
pub(crate) fn changes(operation: Operation) -> Vec<Step> {
    match operation {
        Operation::Insert => (701..=712).chain([725]).map(|id| Step::Insert(id, 5)).collect(),
        Operation::Update => [3, 50, 77, 333, 599].map(|id| Step::Update(id, 6)).to_vec(),
        Operation::Delete => (5..=24).chain([75, 100]).map(Step::Delete).collect(),
        _ => Vec::new(),
    }
}

/// Rows that are looked for by their names.
const LOOKED_UP: [u64; 6] = [2, 99, 175, 222, 390, 599];

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

    fn lines<'a>(&'a self, ids: impl IntoIterator<Item = u64> + 'a) -> impl Iterator<Item = String> + 'a {
        ids.into_iter().filter_map(|id| {
            let version = *self.0.get(&id)?;
            Some(format!("{id}|{}|{}\n", name(id, version), body(id, version)))
        })
    }

    /// All rows by the table, then all by the index.
    pub(crate) fn all(&self) -> String {
        let mut names: Vec<String> =
            self.0.iter().map(|(&id, &version)| format!("{}|{id}\n", name(id, version))).collect();
        names.sort_unstable();
        self.lines(self.0.keys().copied()).chain(names).collect()
    }

    /// What is asked, and what must be answered, in an operation that these rows meet.
    pub(crate) fn question(&self, operation: Operation) -> (String, String) {
        match operation {
            Operation::Open => {
                ("SELECT name FROM sqlite_schema ORDER BY name;\n".into(), "item\nitem_name\n".into())
            }
            Operation::Recover => {
                ("SELECT count(*) FROM item NOT INDEXED;\n".into(), format!("{}\n", self.0.len()))
            }
            Operation::Select => (
                "SELECT id, name, body FROM item NOT INDEXED ORDER BY id;\n".into(),
                self.lines(self.0.keys().copied()).collect(),
            ),
            Operation::IndexLookup => {
                let known = LOOKED_UP.iter().filter_map(|id| Some((id, self.0.get(id)?)));
                let ask = |(&id, &version): (&u64, &u64)| {
                    let name = name(id, version);
                    format!("SELECT id, name, body FROM item INDEXED BY item_name WHERE name = '{name}';\n")
                };
                (known.map(ask).collect(), self.lines(LOOKED_UP).collect())
            }
            Operation::IntegrityCheck => ("PRAGMA integrity_check;\n".into(), "ok\n".into()),
            Operation::Vacuum => ("VACUUM;\n".into(), String::new()),
            Operation::Checkpoint => ("PRAGMA wal_checkpoint(TRUNCATE);\n".into(), "0|0|0\n".into()),
            _ => (transaction(&changes(operation)), String::new()),
        }
    }

    /// What has all rows handed out, by the table and by the index.
    pub(crate) const LOOK: &'static str = "SELECT id, name, body FROM item NOT INDEXED ORDER BY id;
SELECT name, id FROM item INDEXED BY item_name ORDER BY name;
";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_there_to_be_found_and_changes_are_changes() {
        let mut rows = Rows::default();
        rows.apply(&first_half());
        rows.apply(&second_half());
        assert_eq!(rows.question(Operation::IndexLookup).1.lines().count(), LOOKED_UP.len());
        for operation in [Operation::Insert, Operation::Update, Operation::Delete] {
            let mut changed = rows.clone();
            changed.apply(&changes(operation));
            assert_ne!(changed, rows);
            assert_ne!(changed.all(), rows.all());
        }
        let mut with_log = rows.clone();
        latest().iter().for_each(|steps| with_log.apply(steps));
        assert_eq!(with_log.question(Operation::Recover).1, format!("{}\n", 600 - 81 + 4 - 2));
    }
}
