//! The ledger: every fault that was injected, in the order in which it was. Append-only, but for the mark that a
//! fault was repaired later.
//!
//! As a file it is JSON Lines: one [`Injection`] per line, fields as documented there, absent where they say nothing.
//! Hashes are 32 hexadecimal digits, times nanoseconds since the run began, offsets and lengths bytes.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;

use parking_lot::Mutex;
use rotproof_block::hash::HashedText;
use rotproof_block::{ContentHash, Result};
use serde::Serialize;

use crate::packed::{PIECE_RECORDS, PackedRecords};
use crate::record::{BlockContent, Injection, TargetKey};
use crate::since::{Moment, Repair, Since, SinceList};
use crate::spilled::SpillFile;

/// Injections of faults that can be gone through as often as one likes, of which there may be more than fit into memory.
pub trait Injections {
    /// Hands out every record, in their order. Fails where they cannot be read.
    fn each(&self, take: &mut dyn FnMut(&Injection)) -> Result<()>;

    /// The same of those pieces of the ledger alone that are wanted: `is_wanted` is asked with the number of a piece before its
    /// records are read. A piece has up to 1,024 records that follow each other, and the same each time.
    fn each_of(
        &self,
        is_wanted: &mut dyn FnMut(usize) -> bool,
        take: &mut dyn FnMut(&Injection),
    ) -> Result<()> {
        let (mut number, mut takes) = (0, false);
        self.each(&mut |record| {
            if number % PIECE_RECORDS == 0 {
                takes = is_wanted(number / PIECE_RECORDS);
            }
            number += 1;
            if takes {
                take(record);
            }
        })
    }
}

impl Injections for [Injection] {
    fn each(&self, take: &mut dyn FnMut(&Injection)) -> Result<()> {
        self.iter().for_each(take);
        Ok(())
    }
}

/// The record of every fault that was actually injected, or of the last of them ([`Ledger::keep_last`]).
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
    /// Where the older ones go; locked before `entries` where both are.
    file: Mutex<Option<SpillFile>>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The last records, in their order.
    kept: PackedRecords,
    /// What became of each of them since.
    since: SinceList,
    /// How many came before those.
    dropped: u64,
    /// Of dropped records, blocks that must still be put right.
    unrepaired: HashMap<u64, u32>,
    /// When dropped records were repaired.
    repaired: BTreeMap<u64, u64>,
}

impl Entries {
    fn len(&self) -> u64 {
        self.dropped + self.since.len() as u64
    }

    /// Changes what became of a record; whether that is kept.
    fn change(&mut self, sequence: u64, change: impl FnOnce(&mut Since)) -> bool {
        let number = sequence.checked_sub(self.dropped).and_then(|number| usize::try_from(number).ok());
        number.is_some_and(|number| self.since.change(number, change))
    }

    /// At most `count_max` of the kept records from number `first` on, or from the first that is kept.
    fn records_from(&self, first: u64, count_max: usize, file: Option<&SpillFile>) -> Result<Vec<Injection>> {
        let first = first.max(self.dropped);
        let end = first.saturating_add(count_max as u64).min(self.len());
        let mut records = Vec::with_capacity(usize::try_from(end.saturating_sub(first)).unwrap_or(0));
        while first + (records.len() as u64) < end {
            let next = first + records.len() as u64;
            let wanted = usize::try_from(end - next).unwrap_or(usize::MAX);
            let number = usize::try_from(next - self.dropped).unwrap_or(usize::MAX);
            let some = self.kept.some_from(number, wanted, file)?;
            if some.is_empty() {
                break;
            }
            for (offset, record) in some.into_iter().enumerate() {
                let since = self.since.get(number + offset);
                records.push(Injection {
                    sequence: next + offset as u64,
                    repaired_at_ns: match since.repair {
                        Repair::At(time_ns) => Some(time_ns),
                        Repair::Never | Repair::Open(_) => None,
                    },
                    served_at_ns: record.served_at_ns.or(since.served_at.get()),
                    replaced_at_ns: since.replaced_at.get(),
                    ..record
                });
            }
        }
        Ok(records)
    }
}

impl Ledger {
    /// Appends a record, and gives its sequence number. `repairable_blocks` is how many blocks must be put right for
    /// it to count as repaired; 0 for a fault that cannot be.
    pub(crate) fn append(&self, record: &Injection, repairable_blocks: usize) -> u64 {
        let mut entries = self.entries.lock();
        let sequence = entries.len();
        entries.kept.push(record);
        let repair = match u32::try_from(repairable_blocks) {
            Ok(0) | Err(_) => Repair::Never,
            Ok(blocks) => Repair::Open(blocks),
        };
        entries.since.push(Since {
            repair,
            // What the packed record says needs not be said again.
            served_at: Moment::new(record.served_at_ns.filter(|_| !record.is_served_at_once())),
            replaced_at: Moment::new(record.replaced_at_ns),
        });
        sequence
    }

    /// One of the record's blocks holds its true content again.
    pub(crate) fn block_repaired(&self, sequence: u64, time_ns: u64) {
        let mut entries = self.entries.lock();
        if entries.change(sequence, |since| since.repair.settle(time_ns)) {
            return;
        }
        if let Some(unrepaired) = entries.unrepaired.get_mut(&sequence) {
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
        let replace = |since: &mut Since| {
            if let Repair::Open(_) = since.repair {
                since.repair = Repair::Never;
            }
            since.replaced_at.set(gone_at_ns);
        };
        if !entries.change(sequence, replace) {
            entries.unrepaired.remove(&sequence);
        }
    }

    /// A read that succeeded has brought what the record says took the true content's place.
    pub(crate) fn served(&self, sequence: u64, time_ns: u64) {
        self.entries.lock().change(sequence, |since| since.served_at.set(Some(time_ns)));
    }

    /// Drops all but the last `count` records, for a ledger that grows without end. Of those dropped it remembers
    /// only whether they are repaired.
    pub fn keep_last(&self, count: usize) {
        let mut guard = self.entries.lock();
        let entries = &mut *guard;
        let surplus = entries.since.len().saturating_sub(count);
        for sequence in (entries.dropped..).take(surplus) {
            match entries.since.pop_first().map_or(Repair::Never, |since| since.repair) {
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

    /// Appends the record of a fault that was injected by somebody else than an engine, such as one in memory; it takes the next
    /// number, which this gives.
    pub fn append_of_others(&self, record: &Injection) -> u64 {
        self.append(record, 0)
    }

    /// From now on the older records may go to this file, which nobody else uses ([`Ledger::spill`]).
    pub fn spill_to(&self, file: File) {
        *self.file.lock() = Some(SpillFile::new(file));
    }

    /// Moves what is more than a few megabytes to the file, if there is one; for a thread that may wait for a disk, which those of
    /// requests may not. Fails if the file cannot be written; what is not in it stays in memory.
    pub fn spill(&self) -> Result<()> {
        let mut file = self.file.lock();
        let Some(file) = &mut *file else { return Ok(()) };
        loop {
            let Some((number, piece)) = self.entries.lock().kept.to_spill() else { return Ok(()) };
            let spilled = file.write(&piece)?;
            self.entries.lock().kept.spilled(number, spilled);
        }
    }

    /// A copy of all records that are kept, in their order. Fails as [`Injections::each`].
    pub fn records(&self) -> Result<Vec<Injection>> {
        self.records_from(0, usize::MAX)
    }

    /// A copy of at most `count_max` records from number `first` on, or from the first that is kept, in their order. Fails as
    /// [`Injections::each`].
    pub fn records_from(&self, first: u64, count_max: usize) -> Result<Vec<Injection>> {
        let file = self.file.lock();
        self.entries.lock().records_from(first, count_max, file.as_ref())
    }

    /// Writes all records that are kept as JSON Lines.
    pub fn write_to(&self, output: &mut impl Write) -> std::io::Result<()> {
        let mut written = Ok(());
        self.each(&mut |record| {
            if written.is_ok() {
                written = serde_json::to_writer(&mut *output, record).map_err(std::io::Error::from);
            }
            if written.is_ok() {
                written = output.write_all(b"\n");
            }
        })
        .map_err(std::io::Error::other)?;
        written
    }
}

impl Injections for Ledger {
    /// Those that are kept; what is dropped or appended meanwhile may not be among them.
    fn each(&self, take: &mut dyn FnMut(&Injection)) -> Result<()> {
        self.each_of(&mut |_| true, take)
    }

    /// Pieces go by the numbers of the records, which stay when older ones are dropped.
    fn each_of(
        &self,
        is_wanted: &mut dyn FnMut(usize) -> bool,
        take: &mut dyn FnMut(&Injection),
    ) -> Result<()> {
        const PIECE: u64 = PIECE_RECORDS as u64;
        // Not under the lock: whoever takes them may be slow, and requests must go on.
        let (mut next, end) = {
            let entries = self.entries.lock();
            (entries.dropped, entries.len())
        };
        while next < end {
            let piece = next / PIECE;
            let end_of_piece = end.min((piece + 1) * PIECE);
            if is_wanted(usize::try_from(piece).unwrap_or(usize::MAX)) {
                let records = self.records_from(next, (end_of_piece - next) as usize)?;
                // What has been dropped meanwhile is gone, and others may have come in its place.
                let of_piece = records.iter().take_while(|record| record.sequence < end_of_piece);
                of_piece.for_each(&mut *take);
            }
            next = end_of_piece;
        }
        Ok(())
    }
}

/// What of a record two runs must have in common to be equal: everything but when and in which order it happened,
/// and how requests were numbered.
#[derive(Serialize)]
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

#[derive(Serialize)]
struct CanonicalBlock {
    offset: u64,
    #[serde(with = "crate::hash_text::plain")]
    content: ContentHash,
}

impl<'a> From<&'a Injection> for Canonical<'a> {
    fn from(record: &'a Injection) -> Self {
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

/// A hash that is equal for two ledgers with the same faults, whatever their order and times: that of how many
/// [`Canonical`] records there are and of the sum of their hashes. Fails as [`Injections::each`].
pub fn digest(records: &(impl Injections + ?Sized)) -> Result<ContentHash> {
    let (mut count, mut sum) = (0u64, 0u128);
    records.each(&mut |record| {
        let mut text = HashedText::default();
        serde_json::to_writer(&mut text, &Canonical::from(record))
            .expect("plain data in memory is always JSON");
        count += 1;
        // Not exclusive or: two equal records would cancel each other.
        sum = sum.wrapping_add(text.finish().0);
    })?;
    let mut text = HashedText::default();
    text.update(&count.to_le_bytes());
    text.update(&sum.to_le_bytes());
    Ok(text.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_ledger::read_ledger;
    use crate::read_ledger::tests::record;

    #[test]
    fn pieces_that_are_not_wanted_are_left_out_and_keep_their_numbers() {
        let ledger = Ledger::default();
        for number in 0..3_000 {
            ledger.append(&record(number, number * 4096), 0);
        }
        let of = |records: &dyn Injections, wanted: &[usize]| {
            let (mut asked, mut got) = (Vec::new(), Vec::new());
            let mut is_wanted = |piece| {
                asked.push(piece);
                wanted.contains(&piece)
            };
            records.each_of(&mut is_wanted, &mut |record| got.push(record.sequence)).expect("in memory");
            (asked, got)
        };
        let all = ledger.records().expect("in memory");
        let expected = (vec![0, 1, 2], (1024..2048).collect::<Vec<u64>>());
        assert_eq!(of(&ledger, &[1]), expected);
        assert_eq!(of(&Slice(&all), &[1]), expected, "as whoever goes through all of them leaves them out");
        ledger.keep_last(1_500);
        let kept = (1500..2048).chain(2048..3000).collect::<Vec<u64>>();
        assert_eq!(of(&ledger, &[0, 1, 2]), (vec![1, 2], kept));
        assert_eq!(of(&ledger, &[2]).1, (2048..3000).collect::<Vec<u64>>());
    }

    /// Records that know no pieces.
    struct Slice<'a>(&'a [Injection]);

    impl Injections for Slice<'_> {
        fn each(&self, take: &mut dyn FnMut(&Injection)) -> Result<()> {
            self.0.each(take)
        }
    }

    #[test]
    fn the_digest_ignores_order_and_times_and_nothing_else() {
        let (first, second) = (record(0, 4096), record(1, 8192));
        let mut later = first.clone();
        (later.time_ns, later.sequence, later.request) = (9_999, 1, 77);
        let of = |records: &[&Injection]| {
            let records: Vec<Injection> = records.iter().map(|&record| record.clone()).collect();
            digest(&records[..]).expect("in memory")
        };
        assert_eq!(of(&[&first, &second]), of(&[&second, &later]));
        let mut other = first.clone();
        other.after = other.before;
        assert_ne!(of(&[&first, &second]), of(&[&other, &second]));
        let mut repaired = first.clone();
        repaired.repaired_at_ns = Some(5_000);
        assert_ne!(of(&[&first]), of(&[&repaired]));
        assert_ne!(of(&[&first]), of(&[&first, &first]));
        assert_ne!(of(&[]), of(&[&first, &first]));
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
        assert_eq!(again, ledger.records().expect("in memory"));
        assert_eq!(digest(&again[..]).expect("in memory"), digest(&ledger).expect("in memory"));
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
            ledger
                .records_from(first, count_max)
                .expect("in memory")
                .iter()
                .map(|record| record.sequence)
                .collect()
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
        let repaired: Vec<_> =
            ledger.records().expect("in memory").iter().map(|record| record.repaired_at_ns).collect();
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
        let told: Vec<_> = ledger
            .records()
            .expect("in memory")
            .iter()
            .map(|record| (record.served_at_ns, record.replaced_at_ns))
            .collect();
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
        assert_eq!((ledger.len(), ledger.records().expect("in memory").len()), (6, 2));
        ledger.block_repaired(1, 600);
        ledger.block_replaced(2, None);
        ledger.block_repaired(2, 700);
        ledger.block_repaired(5, 800);
        assert_eq!(ledger.append(&record(99, 0), 0), 6);
        assert_eq!(ledger.first_kept(), 4);
        assert_eq!(ledger.repaired_since_dropped(), BTreeMap::from([(0, 500), (1, 600)]));
        let kept: Vec<_> = ledger
            .records_from(0, 9)
            .expect("in memory")
            .iter()
            .map(|record| (record.sequence, record.repaired_at_ns))
            .collect();
        assert_eq!(kept, [(4, None), (5, Some(800)), (6, None)]);
        assert_eq!(ledger.records_from(6, 9).expect("in memory").len(), 1);
    }
}
