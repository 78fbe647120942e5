//! The ledger: every fault that was injected, in the order in which it was. Append-only, but for the mark that a
//! fault was repaired later.
//!
//! As a file it is JSON Lines: one [`Record`] per line, fields as documented there, absent where they say nothing.
//! Hashes are 32 hexadecimal digits, times nanoseconds since the run began, offsets and lengths bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;

use parking_lot::Mutex;
use rotproof_block::ContentHash;
use serde::Serialize;

use crate::record::{BlockContent, Record, TargetKey};

/// The record of every fault that was actually injected, or of the last of them ([`Ledger::keep_last`]).
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The last records, in their order.
    kept: VecDeque<Entry>,
    /// How many came before those.
    dropped: u64,
    /// Of dropped records, blocks that must still be put right.
    unrepaired: HashMap<u64, usize>,
    /// When dropped records were repaired.
    repaired: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    /// How many blocks must still be put right for the fault to count as repaired. `None`: it cannot be repaired, or
    /// one of its blocks was overwritten with something else.
    unrepaired: Option<usize>,
}

impl Entries {
    fn len(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    fn kept_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        self.kept.get_mut(usize::try_from(sequence.checked_sub(self.dropped)?).ok()?)
    }
}

impl Ledger {
    /// Appends a record, and gives its sequence number. `repairable_blocks` is how many blocks must be put right for
    /// it to count as repaired; 0 for a fault that cannot be.
    pub(crate) fn append(&self, mut record: Record, repairable_blocks: usize) -> u64 {
        let mut entries = self.entries.lock();
        let sequence = entries.len();
        record.sequence = sequence;
        let unrepaired = (repairable_blocks > 0).then_some(repairable_blocks);
        entries.kept.push_back(Entry { record, unrepaired });
        sequence
    }

    /// One of the record's blocks holds its true content again.
    pub(crate) fn block_repaired(&self, sequence: u64, time_ns: u64) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.kept_mut(sequence) {
            if let Some(unrepaired) = &mut entry.unrepaired {
                *unrepaired = unrepaired.saturating_sub(1);
                if *unrepaired == 0 {
                    entry.unrepaired = None;
                    entry.record.repaired_at_ns = Some(time_ns);
                }
            }
        } else if let Some(unrepaired) = entries.unrepaired.get_mut(&sequence) {
            *unrepaired = unrepaired.saturating_sub(1);
            if *unrepaired == 0 {
                entries.unrepaired.remove(&sequence);
                entries.repaired.insert(sequence, time_ns);
            }
        }
    }

    /// One of the record's blocks has been overwritten with something else, so it will never be repaired. `gone_at_ns`: when,
    /// if nothing is left there of what the fault had done.
    pub(crate) fn block_replaced(&self, sequence: u64, gone_at_ns: Option<u64>) {
        let mut entries = self.entries.lock();
        match entries.kept_mut(sequence) {
            Some(entry) => {
                entry.unrepaired = None;
                entry.record.replaced_at_ns = entry.record.replaced_at_ns.or(gone_at_ns);
            }
            None => drop(entries.unrepaired.remove(&sequence)),
        }
    }

    /// A read that succeeded has brought what the record says took the true content's place.
    pub(crate) fn served(&self, sequence: u64, time_ns: u64) {
        if let Some(entry) = self.entries.lock().kept_mut(sequence) {
            entry.record.served_at_ns = entry.record.served_at_ns.or(Some(time_ns));
        }
    }

    /// Drops all but the last `count` records, for a ledger that grows without end. Of those dropped it remembers
    /// only whether they are repaired.
    pub fn keep_last(&self, count: usize) {
        let mut guard = self.entries.lock();
        let entries = &mut *guard;
        let surplus = entries.kept.len().saturating_sub(count);
        for (sequence, entry) in (entries.dropped..).zip(entries.kept.drain(..surplus)) {
            entries.repaired.extend(entry.record.repaired_at_ns.map(|time_ns| (sequence, time_ns)));
            entries.unrepaired.extend(entry.unrepaired.map(|blocks| (sequence, blocks)));
        }
        entries.dropped += surplus as u64;
    }

    /// How many faults have been injected.
    pub fn len(&self) -> usize {
        self.entries.lock().len() as usize
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the first record that is kept; all before it have been dropped.
    pub fn first_kept(&self) -> u64 {
        self.entries.lock().dropped
    }

    /// When dropped records were repaired, by their number.
    pub fn repaired_since_dropped(&self) -> BTreeMap<u64, u64> {
        self.entries.lock().repaired.clone()
    }

    /// A copy of all records that are kept, in their order.
    pub fn records(&self) -> Vec<Record> {
        self.entries.lock().kept.iter().map(|entry| entry.record.clone()).collect()
    }

    /// A copy of at most `count_max` records from number `first` on, or from the first that is kept, in their order.
    pub fn records_from(&self, first: u64, count_max: usize) -> Vec<Record> {
        let entries = self.entries.lock();
        let skipped = usize::try_from(first.saturating_sub(entries.dropped)).unwrap_or(usize::MAX);
        entries.kept.iter().skip(skipped).take(count_max).map(|entry| entry.record.clone()).collect()
    }

    /// [`digest`] of all records that are kept.
    pub fn digest(&self) -> ContentHash {
        let entries = self.entries.lock();
        digest(entries.kept.iter().map(|entry| &entry.record))
    }

    /// Writes all records that are kept as JSON Lines.
    pub fn write_to(&self, output: &mut impl Write) -> std::io::Result<()> {
        // Not under the lock: the output may be slow, and requests must go on.
        for record in self.records() {
            serde_json::to_writer(&mut *output, &record)?;
            output.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// What of a record two runs must have in common to be equal: everything but when and in which order it happened,
/// and how requests were numbered.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Canonical<'a> {
    rule: u32,
    name: &'a str,
    offset: u64,
    length: u64,
    operation: crate::OperationKind,
    effect: String,
    phase: u8,
    tag: &'a str,
    target: &'a Option<TargetKey>,
    #[serde(with = "crate::hash_text::option")]
    before: Option<ContentHash>,
    #[serde(with = "crate::hash_text::option")]
    after: Option<ContentHash>,
    blocks: Vec<CanonicalBlock>,
    is_repaired: bool,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct CanonicalBlock {
    offset: u64,
    #[serde(with = "crate::hash_text::plain")]
    content: ContentHash,
}

/// A hash that is equal for two ledgers with the same faults, whatever their order and times.
pub fn digest<'a>(records: impl IntoIterator<Item = &'a Record>) -> ContentHash {
    let mut canonical: Vec<Canonical<'a>> = records
        .into_iter()
        .map(|record| Canonical {
            rule: record.rule,
            name: &record.name,
            offset: record.offset,
            length: record.length,
            operation: record.operation,
            effect: record.effect.to_string(),
            phase: record.phase as u8,
            tag: &record.tag,
            target: &record.target,
            before: record.before,
            after: record.after,
            blocks: record
                .blocks
                .iter()
                .map(|&BlockContent { offset, content, .. }| CanonicalBlock { offset, content })
                .collect(),
            is_repaired: record.repaired_at_ns.is_some(),
        })
        .collect();
    canonical.sort_unstable();
    let text = serde_json::to_vec(&canonical).expect("plain data in memory is always JSON");
    ContentHash::of(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_ledger::read_ledger;
    use crate::read_ledger::tests::record;

    #[test]
    fn the_digest_ignores_order_and_times_and_nothing_else() {
        let (first, second) = (record(0, 4096), record(1, 8192));
        let mut later = first.clone();
        (later.time_ns, later.sequence, later.request) = (9_999, 1, 77);
        assert_eq!(digest([&first, &second]), digest([&second, &later]));
        let mut other = first.clone();
        other.after = other.before;
        assert_ne!(digest([&first, &second]), digest([&other, &second]));
        let mut repaired = first.clone();
        repaired.repaired_at_ns = Some(5_000);
        assert_ne!(digest([&first]), digest([&repaired]));
        assert_ne!(digest([&first]), digest([&first, &first]));
    }

    #[test]
    fn what_was_written_reads_back() {
        let ledger = Ledger::default();
        for n in 0..5 {
            ledger.append(record(99, n * 4096), 1);
        }
        ledger.block_repaired(3, 7_000);
        let mut file = Vec::new();
        ledger.write_to(&mut file).expect("memory takes everything");
        let again = read_ledger(file.as_slice()).expect("what was written is valid");
        assert_eq!(again, ledger.records());
        assert_eq!(digest(&again), ledger.digest());
        assert_eq!(again[3].repaired_at_ns, Some(7_000));
        assert_eq!(again.iter().map(|record| record.sequence).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn records_are_had_in_parts() {
        let ledger = Ledger::default();
        for n in 0..5 {
            ledger.append(record(99, n * 4096), 1);
        }
        let numbers = |first, count_max| -> Vec<u64> {
            ledger.records_from(first, count_max).iter().map(|record| record.sequence).collect()
        };
        assert_eq!(numbers(0, 2), [0, 1]);
        assert_eq!(numbers(3, 9), [3, 4]);
        assert_eq!(numbers(5, 9), [0; 0]);
        assert_eq!(numbers(u64::MAX, usize::MAX), [0; 0]);
    }

    #[test]
    fn a_fault_over_several_blocks_is_repaired_with_the_last_of_them() {
        let ledger = Ledger::default();
        let whole = ledger.append(record(0, 0), 2);
        let spoilt = ledger.append(record(0, 0), 2);
        let never = ledger.append(record(0, 0), 0);
        for sequence in [whole, spoilt, never] {
            ledger.block_repaired(sequence, 6_000);
        }
        ledger.block_replaced(spoilt, None);
        for sequence in [whole, spoilt, never] {
            ledger.block_repaired(sequence, 7_000);
        }
        let repaired: Vec<_> = ledger.records().iter().map(|record| record.repaired_at_ns).collect();
        assert_eq!(repaired, [Some(7_000), None, None]);
    }
    #[test]
    fn of_dropped_records_it_remembers_whether_they_are_repaired() {
        let ledger = Ledger::default();
        for n in 0..6 {
            ledger.append(record(99, n * 4096), 1);
        }
        ledger.block_repaired(0, 500);
        ledger.keep_last(2);
        assert_eq!((ledger.len(), ledger.records().len()), (6, 2));
        ledger.block_repaired(1, 600);
        ledger.block_replaced(2, None);
        ledger.block_repaired(2, 700);
        ledger.block_repaired(5, 800);
        assert_eq!(ledger.append(record(99, 0), 0), 6);
        assert_eq!(ledger.first_kept(), 4);
        assert_eq!(ledger.repaired_since_dropped(), BTreeMap::from([(0, 500), (1, 600)]));
        let kept: Vec<_> =
            ledger.records_from(0, 9).iter().map(|record| (record.sequence, record.repaired_at_ns)).collect();
        assert_eq!(kept, [(4, None), (5, Some(800)), (6, None)]);
        assert_eq!(ledger.records_from(6, 9).len(), 1);
    }
}
