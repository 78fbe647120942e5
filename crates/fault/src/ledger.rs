//! The ledger: every fault that was injected, in the order in which it was. Append-only, but for the mark that a
//! fault was repaired later.
//!
//! As a file it is JSON Lines: one [`Record`] per line, fields as documented there, absent where they say nothing.
//! Hashes are 32 hexadecimal digits, times nanoseconds since the run began, offsets and lengths bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;

use parking_lot::Mutex;
use rotproof_block::ContentHash;
use rotproof_block::hash::HashedText;
use serde::Serialize;

use crate::packed::PackedRecords;
use crate::record::{BlockContent, Record, TargetKey};

/// The record of every fault that was actually injected, or of the last of them ([`Ledger::keep_last`]).
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The last records, in their order.
    kept: PackedRecords,
    /// What became of each of them since.
    since: VecDeque<Since>,
    /// How many came before those.
    dropped: u64,
    /// Of dropped records, blocks that must still be put right.
    unrepaired: HashMap<u64, u32>,
    /// When dropped records were repaired.
    repaired: BTreeMap<u64, u64>,
}

/// What became of a fault after it was recorded.
#[derive(Clone, Copy, Debug)]
struct Since {
    repair: Repair,
    served_at: Moment,
    replaced_at: Moment,
}

/// A time in nanoseconds that may not have come, in eight bytes: no run lasts until the last of them.
#[derive(Clone, Copy, Debug)]
struct Moment(u64);

impl Moment {
    fn new(time_ns: Option<u64>) -> Self {
        Self(time_ns.unwrap_or(u64::MAX))
    }

    fn get(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }

    /// The first that comes stays.
    fn set(&mut self, time_ns: Option<u64>) {
        *self = Self::new(self.get().or(time_ns));
    }
}

/// Whether a fault was repaired.
#[derive(Clone, Copy, Debug)]
enum Repair {
    /// It cannot be, or one of its blocks was overwritten with something else.
    Never,
    /// So many blocks must still be put right for it to count as repaired.
    Open(u32),
    /// At this time, in nanoseconds.
    At(u64),
}

impl Repair {
    /// One of the blocks holds its true content again.
    fn settle(&mut self, time_ns: u64) {
        if let Self::Open(blocks) = self {
            *blocks = blocks.saturating_sub(1);
            if *blocks == 0 {
                *self = Self::At(time_ns);
            }
        }
    }
}

impl Entries {
    fn len(&self) -> u64 {
        self.dropped + self.since.len() as u64
    }

    fn since_mut(&mut self, sequence: u64) -> Option<&mut Since> {
        self.since.get_mut(usize::try_from(sequence.checked_sub(self.dropped)?).ok()?)
    }

    /// The kept records from number `first` on, or from the first that is kept.
    fn records_from(&self, first: u64) -> impl Iterator<Item = Record> {
        let skipped = usize::try_from(first.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let since = self.since.iter().skip(skipped);
        let numbers = first.max(self.dropped)..;
        self.kept.iter_from(skipped).zip(since).zip(numbers).map(|((record, since), sequence)| Record {
            sequence,
            repaired_at_ns: match since.repair {
                Repair::At(time_ns) => Some(time_ns),
                Repair::Never | Repair::Open(_) => None,
            },
            served_at_ns: since.served_at.get(),
            replaced_at_ns: since.replaced_at.get(),
            ..record
        })
    }
}

impl Ledger {
    /// Appends a record, and gives its sequence number. `repairable_blocks` is how many blocks must be put right for
    /// it to count as repaired; 0 for a fault that cannot be.
    pub(crate) fn append(&self, record: &Record, repairable_blocks: usize) -> u64 {
        let mut entries = self.entries.lock();
        let sequence = entries.len();
        entries.kept.push(record);
        let repair = match u32::try_from(repairable_blocks) {
            Ok(0) | Err(_) => Repair::Never,
            Ok(blocks) => Repair::Open(blocks),
        };
        entries.since.push_back(Since {
            repair,
            served_at: Moment::new(record.served_at_ns),
            replaced_at: Moment::new(record.replaced_at_ns),
        });
        sequence
    }

    /// One of the record's blocks holds its true content again.
    pub(crate) fn block_repaired(&self, sequence: u64, time_ns: u64) {
        let mut entries = self.entries.lock();
        if let Some(since) = entries.since_mut(sequence) {
            since.repair.settle(time_ns);
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
        match entries.since_mut(sequence) {
            Some(since) => {
                if let Repair::Open(_) = since.repair {
                    since.repair = Repair::Never;
                }
                since.replaced_at.set(gone_at_ns);
            }
            None => drop(entries.unrepaired.remove(&sequence)),
        }
    }

    /// A read that succeeded has brought what the record says took the true content's place.
    pub(crate) fn served(&self, sequence: u64, time_ns: u64) {
        if let Some(since) = self.entries.lock().since_mut(sequence) {
            since.served_at.set(Some(time_ns));
        }
    }

    /// Drops all but the last `count` records, for a ledger that grows without end. Of those dropped it remembers
    /// only whether they are repaired.
    pub fn keep_last(&self, count: usize) {
        let mut guard = self.entries.lock();
        let entries = &mut *guard;
        let surplus = entries.since.len().saturating_sub(count);
        for (sequence, since) in (entries.dropped..).zip(entries.since.drain(..surplus)) {
            match since.repair {
                Repair::Never => {}
                Repair::Open(blocks) => drop(entries.unrepaired.insert(sequence, blocks)),
                Repair::At(time_ns) => drop(entries.repaired.insert(sequence, time_ns)),
            }
        }
        entries.kept.drop_first(surplus);
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
        let entries = self.entries.lock();
        let mut records = Vec::with_capacity(entries.since.len());
        records.extend(entries.records_from(0));
        records
    }

    /// A copy of at most `count_max` records from number `first` on, or from the first that is kept, in their order.
    pub fn records_from(&self, first: u64, count_max: usize) -> Vec<Record> {
        self.entries.lock().records_from(first).take(count_max).collect()
    }

    /// [`digest`] of all records that are kept.
    pub fn digest(&self) -> ContentHash {
        digest(&self.records())
    }

    /// Writes all records that are kept as JSON Lines.
    pub fn write_to(&self, output: &mut impl Write) -> std::io::Result<()> {
        // Not under the lock: the output may be slow, and requests must go on.
        let (mut next, end) = {
            let entries = self.entries.lock();
            (entries.dropped, entries.len())
        };
        while next < end {
            let count_max =
                usize::try_from(end - next).map_or(WRITTEN_AT_ONCE, |left| left.min(WRITTEN_AT_ONCE));
            let records = self.records_from(next, count_max);
            for record in &records {
                serde_json::to_writer(&mut *output, record)?;
                output.write_all(b"\n")?;
            }
            // What has been dropped meanwhile is gone.
            next = records.last().map_or(end, |last| last.sequence + 1);
        }
        Ok(())
    }
}

/// Records that are copied out at once to be written.
const WRITTEN_AT_ONCE: usize = 4096;

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
    /// Left out where there is no name, so that a stack with one place has the digest that it had before there were names.
    #[serde(skip_serializing_if = "crate::record::is_unnamed")]
    on: &'a str,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct CanonicalBlock {
    offset: u64,
    #[serde(with = "crate::hash_text::plain")]
    content: ContentHash,
}

impl<'a> From<&'a Record> for Canonical<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
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
            on: &record.on,
        }
    }
}

/// A hash that is equal for two ledgers with the same faults, whatever their order and times: that of all [`Canonical`]
/// records, sorted, as a list in JSON.
pub fn digest<'a>(records: impl IntoIterator<Item = &'a Record>) -> ContentHash {
    // By what comes first in a canonical record, so that only few of those are needed at once.
    let coarse = |record: &Record| (record.rule, record.offset, record.length, record.operation);
    let mut sorted: Vec<&Record> = records.into_iter().collect();
    sorted.sort_unstable_by(|a, b| {
        a.rule.cmp(&b.rule).then_with(|| a.name.cmp(&b.name)).then_with(|| coarse(a).cmp(&coarse(b)))
    });
    let is_alike = |a: &&Record, b: &&Record| a.name == b.name && coarse(a) == coarse(b);
    let mut text = HashedText::default();
    let mut separator = b"[";
    for group in sorted.chunk_by(is_alike) {
        let mut canonical: Vec<Canonical<'a>> = group.iter().map(|record| Canonical::from(*record)).collect();
        canonical.sort_unstable();
        for record in &canonical {
            text.update(separator);
            serde_json::to_writer(&mut text, record).expect("plain data in memory is always JSON");
            separator = b",";
        }
    }
    text.update(if separator == b"[" { b"[]" } else { b"]" });
    text.finish()
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
            ledger.append(&record(99, n * 4096), 1);
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
            ledger.append(&record(99, n * 4096), 1);
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
        let whole = ledger.append(&record(0, 0), 2);
        let spoilt = ledger.append(&record(0, 0), 2);
        let never = ledger.append(&record(0, 0), 0);
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
    fn what_came_of_a_hit_is_told_by_its_first_moment_also_at_time_zero() {
        let ledger = Ledger::default();
        let [served, replaced, neither] = [(); 3].map(|()| ledger.append(&record(99, 0), 1));
        for time_ns in [0, 5] {
            ledger.served(served, time_ns);
            ledger.block_replaced(replaced, Some(time_ns));
        }
        ledger.block_replaced(neither, None);
        let told: Vec<_> =
            ledger.records().iter().map(|record| (record.served_at_ns, record.replaced_at_ns)).collect();
        assert_eq!(told, [(Some(0), None), (None, Some(0)), (None, None)]);
    }
    #[test]
    fn of_dropped_records_it_remembers_whether_they_are_repaired() {
        let ledger = Ledger::default();
        for n in 0..6 {
            ledger.append(&record(99, n * 4096), 1);
        }
        ledger.block_repaired(0, 500);
        ledger.keep_last(2);
        assert_eq!((ledger.len(), ledger.records().len()), (6, 2));
        ledger.block_repaired(1, 600);
        ledger.block_replaced(2, None);
        ledger.block_repaired(2, 700);
        ledger.block_repaired(5, 800);
        assert_eq!(ledger.append(&record(99, 0), 0), 6);
        assert_eq!(ledger.first_kept(), 4);
        assert_eq!(ledger.repaired_since_dropped(), BTreeMap::from([(0, 500), (1, 600)]));
        let kept: Vec<_> =
            ledger.records_from(0, 9).iter().map(|record| (record.sequence, record.repaired_at_ns)).collect();
        assert_eq!(kept, [(4, None), (5, Some(800)), (6, None)]);
        assert_eq!(ledger.records_from(6, 9).len(), 1);
    }
}
