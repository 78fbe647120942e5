//! The log of a table: what changed since its pages were last written, a few bytes for each change.
//!
//! A block of the log, all numbers little-endian: magic (8), identity of the table (16), number of the block (8), the last
//! block known to be durable when this one was written (8), XXH3-64 of all other bytes (8), bytes of records (4), what the
//! owner had written before (number 4, how much 4, which time its list 4), the generation of the newest state that was durable (8) and of
//! the one in the other slot (8), records. A record: a word of 8 bytes - kind (2 bits), count (14), first entry (48) - and its values.
//!
//! In the form before the records came in place of the two generations.

use std::ops::Range;

use super::Witness;
use super::layout::BLOCK_BYTES;
use super::sealed::{read_u32, read_u64, read_u128, seal, unseal, write_u32, write_u64};
use super::slots::Told;

const MAGIC: [u8; 8] = *b"rotpLOG2";
const MAGIC_BEFORE: [u8; 8] = *b"rotpLOG1";
const SUM_AT: usize = 40;
const HEADER_BYTES: usize = 80;
const HEADER_BYTES_BEFORE: usize = 64;
const WITNESS_AT: usize = 52;
const TOLD_AT: usize = 64;
const COUNT_MAX: usize = (1 << 14) - 1;
const ENTRY_BITS: u32 = 48;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogEntry {
    /// Entries from the first on have these values.
    Values { first: u64, values: Vec<u128> },
    /// So many entries from the first on have the same value.
    Same { first: u64, count: u64, value: u128 },
    /// The block of this entry is lost: no copy of it is right.
    Lost(u64),
    /// The block of this entry has been written anew.
    Found(u64),
}

/// What a block of the log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogBlock {
    /// Number of the last block known to be durable when this one was written.
    pub durable: u64,
    /// What the owner had written before.
    pub witness: Witness,
    pub records: Vec<LogEntry>,
}

/// Puts records into blocks, as many as it takes.
#[derive(Debug)]
pub(crate) struct LogWriter {
    words: usize,
    /// The blocks so far; the bytes of records in the last one.
    blocks: Vec<Vec<u8>>,
}

impl LogWriter {
    pub(crate) fn new(words: usize) -> Self {
        Self { words, blocks: Vec::new() }
    }

    /// Adds a run of values from entry `first` on.
    pub(crate) fn values(&mut self, first: u64, values: &[u128]) {
        if values.len() > 2 && values.iter().all(|value| *value == values[0]) {
            return self.same(first, values.len() as u64, values[0]);
        }
        let (mut first, mut rest) = (first, values);
        while !rest.is_empty() {
            let bytes = self.words * 4;
            let room = self.room(8 + bytes);
            let count = ((room - 8) / bytes).min(rest.len()).min(COUNT_MAX);
            let (now, later) = rest.split_at(count);
            self.head(0, count as u64, first);
            for value in now {
                self.value(*value);
            }
            (first, rest) = (first + count as u64, later);
        }
    }

    fn same(&mut self, first: u64, count: u64, value: u128) {
        let (mut first, mut rest) = (first, count);
        while rest > 0 {
            self.room(8 + self.words * 4);
            let count = rest.min(COUNT_MAX as u64);
            self.head(1, count, first);
            self.value(value);
            (first, rest) = (first + count, rest - count);
        }
    }

    /// Adds that a block is lost, or found again.
    pub(crate) fn fate(&mut self, entry: u64, is_lost: bool) {
        self.room(8);
        self.head(if is_lost { 2 } else { 3 }, 1, entry);
    }

    /// Bytes left in the last block, which has room for `least` at least.
    fn room(&mut self, least: usize) -> usize {
        let capacity = BLOCK_BYTES as usize;
        if self.blocks.last().is_none_or(|block| block.len() + least > capacity) {
            let mut block = Vec::with_capacity(capacity);
            block.resize(HEADER_BYTES, 0);
            self.blocks.push(block);
        }
        capacity - self.blocks.last().map_or(0, Vec::len)
    }

    fn head(&mut self, kind: u64, count: u64, entry: u64) {
        let word = kind << 62 | count << ENTRY_BITS | entry & ((1 << ENTRY_BITS) - 1);
        self.append(&word.to_le_bytes());
    }

    fn value(&mut self, value: u128) {
        let bytes = self.words * 4;
        self.append(&value.to_le_bytes()[..bytes]);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.blocks.last_mut().expect("room was made").extend_from_slice(bytes);
    }

    /// Makes room for a record; without one it is a block that says nothing but what its head does.
    pub(crate) fn begin(&mut self) {
        self.room(0);
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The blocks, numbered from `first` on.
    pub(crate) fn finish(
        self,
        table: u128,
        first: u64,
        durable: u64,
        witness: Witness,
        told: Told,
    ) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.blocks.len() * BLOCK_BYTES as usize);
        for (number, mut block) in (first..).zip(self.blocks) {
            let used = (block.len() - HEADER_BYTES) as u32;
            block.resize(BLOCK_BYTES as usize, 0);
            block[..8].copy_from_slice(&MAGIC);
            block[8..24].copy_from_slice(&table.to_le_bytes());
            write_u64(&mut block, 24, number);
            write_u64(&mut block, 32, durable);
            write_u32(&mut block, 48, used);
            write_u32(&mut block, WITNESS_AT, witness.of);
            write_u32(&mut block, WITNESS_AT + 4, witness.count);
            write_u32(&mut block, WITNESS_AT + 8, witness.list);
            write_u64(&mut block, TOLD_AT, told.newest);
            write_u64(&mut block, TOLD_AT + 8, told.before);
            seal(&mut block, SUM_AT);
            all.extend_from_slice(&block);
        }
        all
    }
}

/// The number that a block of the log of this table claims, if it is whole.
pub(crate) fn number_of(block: &[u8], table: u128) -> Option<u64> {
    let is_it = block.len() == BLOCK_BYTES as usize
        && (block[..8] == MAGIC || block[..8] == MAGIC_BEFORE)
        && read_u128(block, 8) == table
        && unseal(block, SUM_AT);
    is_it.then(|| read_u64(block, 24))
}

/// Which states a block of the log says were durable; `number_of` has accepted it. Nothing in the form before.
pub(crate) fn told_of(block: &[u8]) -> Told {
    match block[..8] == MAGIC {
        true => Told { newest: read_u64(block, TOLD_AT), before: read_u64(block, TOLD_AT + 8) },
        false => Told::default(),
    }
}

/// A block of the log; `number_of` has accepted it. Entries outside `entries` are left out.
pub(crate) fn decode(block: &[u8], words: usize, entries: &Range<u64>) -> LogBlock {
    let first = if block[..8] == MAGIC { HEADER_BYTES } else { HEADER_BYTES_BEFORE };
    let end = first + (read_u32(block, 48) as usize).min(block.len() - first);
    let (mut at, mut records) = (first, Vec::new());
    let bytes = words * 4;
    let value = |at: usize| {
        let mut wide = [0; 16];
        wide[..bytes].copy_from_slice(&block[at..at + bytes]);
        u128::from_le_bytes(wide)
    };
    while at + 8 <= end {
        let head = read_u64(block, at);
        at += 8;
        let (kind, count, first) =
            (head >> 62, head >> ENTRY_BITS & COUNT_MAX as u64, head & ((1 << ENTRY_BITS) - 1));
        let payload = match kind {
            0 => count as usize * bytes,
            1 => bytes,
            _ => 0,
        };
        if at + payload > end {
            break;
        }
        if first >= entries.start && first + count <= entries.end && count > 0 {
            records.push(match kind {
                0 => LogEntry::Values {
                    first,
                    values: (0..count as usize).map(|index| value(at + index * bytes)).collect(),
                },
                1 => LogEntry::Same { first, count, value: value(at) },
                2 => LogEntry::Lost(first),
                _ => LogEntry::Found(first),
            });
        }
        at += payload;
    }
    let [of, count, list] = [0, 4, 8].map(|at| read_u32(block, WITNESS_AT + at));
    let witness = Witness { of, count, list };
    LogBlock { durable: read_u64(block, 32), witness, records }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = LogEntry> {
        let entry = 0u64..1 << 20;
        prop_oneof![
            (entry.clone(), prop::collection::vec(2u128..1 << 32, 1..3000))
                .prop_map(|(first, values)| LogEntry::Values { first, values }),
            (entry.clone(), 3u64..40_000, 0u128..9).prop_map(|(first, count, value)| LogEntry::Same {
                first,
                count,
                value
            }),
            entry.clone().prop_map(LogEntry::Lost),
            entry.prop_map(LogEntry::Found),
        ]
    }

    fn apply(map: &mut std::collections::BTreeMap<u64, u128>, record: &LogEntry) {
        match record {
            LogEntry::Values { first, values } => map.extend((*first..).zip(values.iter().copied())),
            LogEntry::Same { first, count, value } => {
                map.extend((*first..first + count).map(|entry| (entry, *value)));
            }
            LogEntry::Lost(entry) => drop(map.insert(*entry + (1 << 60), 1)),
            LogEntry::Found(entry) => drop(map.insert(*entry + (1 << 60), 0)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_written_is_read(records in prop::collection::vec(record(), 1..12), words in prop::sample::select(vec![1usize, 2, 4])) {
            let mut writer = LogWriter::new(words);
            let (mut wanted, mut found) = (Default::default(), Default::default());
            for record in &records {
                apply(&mut wanted, record);
                match record {
                    LogEntry::Values { first, values } => writer.values(*first, values),
                    LogEntry::Same { first, count, value } => writer.same(*first, *count, *value),
                    LogEntry::Lost(entry) => writer.fate(*entry, true),
                    LogEntry::Found(entry) => writer.fate(*entry, false),
                }
            }
            let blocks = writer.blocks();
            let bytes = writer.finish(9, 100, 98, Witness { of: 3, count: 1 << 30, list: 7 }, Told { newest: 1 << 40, before: 6 });
            prop_assert_eq!(bytes.len() as u64, blocks * BLOCK_BYTES);
            for (number, block) in (100..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
                prop_assert_eq!(number_of(block, 9), Some(number));
                prop_assert_eq!(number_of(block, 8), None);
                prop_assert_eq!(told_of(block), Told { newest: 1 << 40, before: 6 });
                let block = decode(block, words, &(0..u64::MAX));
                prop_assert_eq!(block.durable, 98);
                prop_assert_eq!(block.witness, Witness { of: 3, count: 1 << 30, list: 7 });
                for record in &block.records {
                    apply(&mut found, record);
                }
            }
            prop_assert_eq!(wanted, found);
        }
    }

    #[test]
    fn what_lies_outside_the_table_is_left_out() {
        let mut writer = LogWriter::new(1);
        writer.values(5, &[9, 8]);
        writer.values(9, &[9, 8]);
        let bytes = writer.finish(1, 1, 0, Witness::default(), Told::default());
        let records = decode(&bytes, 1, &(0..10)).records;
        assert_eq!(records, [LogEntry::Values { first: 5, values: vec![9, 8] }]);
    }

    #[test]
    fn a_block_of_the_form_before_is_read_and_tells_of_no_state() {
        let mut writer = LogWriter::new(1);
        writer.values(5, &[9, 8]);
        let told = Told { newest: 4, before: 3 };
        let mut block = writer.finish(1, 7, 6, Witness { of: 2, count: 3, list: 4 }, told);
        block[..8].copy_from_slice(&MAGIC_BEFORE);
        block.copy_within(HEADER_BYTES.., HEADER_BYTES_BEFORE);
        seal(&mut block, SUM_AT);
        assert_eq!((number_of(&block, 1), told_of(&block)), (Some(7), Told::default()));
        let LogBlock { durable, witness, records } = decode(&block, 1, &(0..10));
        assert_eq!((durable, witness), (6, Witness { of: 2, count: 3, list: 4 }));
        assert_eq!(records, [LogEntry::Values { first: 5, values: vec![9, 8] }]);
    }
}
