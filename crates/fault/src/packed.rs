//! Injections of the ledger, packed: some sixty bytes each instead of four hundred, as a run may have millions.
//!
//! Most of what a record says others say too: its rule, its aim, its tag. A piece of the list keeps that once, and of each
//! record the rest as numbers of as many bytes as they need, offsets and times as the difference from the record before.
//! Nothing leaves the process in this form, but for pieces that wait in a file of its own ([`crate::spilled`]).

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rotproof_block::{ContentHash, Phase, Result};
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::effect::Effect;
use crate::matching::OperationKind;
use crate::record::{BlockContent, Injection, TargetKey, Visit, effect_text, phase_text};
use crate::spilled::{SpillFile, Spilled};

/// Injections of one piece: its tables are forgotten with it, so that a list from which the oldest are dropped does not grow.
pub(crate) const PIECE_RECORDS: usize = 1024;
/// Whole pieces that stay in memory although there is a file for them: few megabytes, and short runs need no file.
const HELD_PIECES: usize = 64;

/// A list of records that grows at its end and is dropped from its beginning.
#[derive(Debug, Default)]
pub(crate) struct PackedRecords {
    pieces: VecDeque<Slot>,
    /// Injections of the first piece that have been dropped.
    skipped: usize,
    /// Pieces at the beginning that are in the file, and how many have been dropped with their records.
    spilled: usize,
    dropped: usize,
    /// What the last piece has in its tables.
    known: Known,
}

/// Where a piece is: in memory, or in the file.
#[derive(Debug)]
enum Slot {
    Held(Arc<Piece>),
    Filed(Spilled),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    count: usize,
    bytes: Vec<u8>,
    kinds: Vec<Kind>,
    effects: Vec<Effect>,
}

#[derive(Debug, Default)]
struct Known {
    kinds: HashMap<Kind, u64>,
    effects: HashMap<Effect, u64>,
    last: Last,
}

/// What the next record is told against.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    offset: u64,
    time_ns: u64,
    request: u64,
}

/// What many records have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Kind {
    rule: u32,
    name: Arc<str>,
    on: Arc<str>,
    target: Option<TargetKey>,
    operation: OperationKind,
    #[serde(with = "phase_text")]
    phase: Phase,
    tag: Cow<'static, str>,
}

/// What the records of a piece refer to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tables<'a> {
    kinds: Cow<'a, [Kind]>,
    effects: Vec<EffectText>,
}

/// An effect in the words of the ledger, which say all of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct EffectText(#[serde(with = "effect_text")] Effect);

const HAS_VISIT: u8 = 1;
const HAS_VISIT_OFFSET: u8 = 2;
/// The block that was met is the one that the record begins in.
const VISIT_IS_HERE: u8 = 4;
const HAS_VISIT_CONTENT: u8 = 8;
const HAS_BEFORE: u8 = 16;
const HAS_AFTER: u8 = 32;
const HAS_BLOCKS: u8 = 64;
const HAS_MORE: u8 = 128;
/// In a second byte of flags, which only some records have.
const HAS_AFTER_SECTORS: u8 = 1;
const HAS_NEIGHBOURS: u8 = 2;
/// From this bit on, [`told`] who made the content.
const OF_LOAD: u32 = 2;
/// A reader got what it did when it did it. When somebody got it later is told elsewhere, as it is not known yet.
const IS_SERVED: u8 = 16;

impl PackedRecords {
    /// How many there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        let last = match self.pieces.back() {
            Some(Slot::Held(piece)) => piece.count,
            Some(Slot::Filed(_)) => PIECE_RECORDS,
            None => 0,
        };
        self.pieces.len().saturating_sub(1) * PIECE_RECORDS + last - self.skipped
    }

    /// Appends a record. Its number is not kept, nor what became of it later.
    pub(crate) fn push(&mut self, record: &Injection) {
        let is_full = |slot: &Slot| match slot {
            Slot::Held(piece) => piece.count == PIECE_RECORDS,
            Slot::Filed(_) => true,
        };
        if self.pieces.back().is_none_or(is_full) {
            if let Some(Slot::Held(piece)) = self.pieces.back_mut() {
                Arc::make_mut(piece).shrink();
            }
            self.pieces.push_back(Slot::Held(Arc::default()));
            self.known = Known::default();
        }
        if let Some(Slot::Held(piece)) = self.pieces.back_mut() {
            // Only whole ones are ever shared.
            Arc::make_mut(piece).push(record, &mut self.known);
        }
    }

    /// The first whole piece that is to go to the file, and its number.
    pub(crate) fn to_spill(&self) -> Option<(usize, Arc<Piece>)> {
        if self.pieces.len() <= self.spilled + HELD_PIECES {
            return None;
        }
        match &self.pieces[self.spilled] {
            Slot::Held(piece) => Some((self.dropped + self.spilled, Arc::clone(piece))),
            Slot::Filed(_) => None,
        }
    }

    /// It is in the file now, unless it has been dropped meanwhile.
    pub(crate) fn spilled(&mut self, number: usize, place: Spilled) {
        let index = number.checked_sub(self.dropped);
        if let Some(index) = index.filter(|&index| index == self.spilled && index < self.pieces.len()) {
            self.pieces[index] = Slot::Filed(place);
            self.spilled += 1;
        }
    }

    /// Drops the first `count`.
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.skipped += count;
        while self.skipped >= PIECE_RECORDS && !self.pieces.is_empty() {
            self.pieces.pop_front();
            self.skipped -= PIECE_RECORDS;
            self.spilled = self.spilled.saturating_sub(1);
            self.dropped += 1;
        }
    }

    /// At most `count_max` from number `first` on, of one piece, and at least one if there is any. Fails if the `file` with the
    /// piece cannot be read.
    pub(crate) fn some_from(
        &self,
        first: usize,
        count_max: usize,
        file: Option<&SpillFile>,
    ) -> Result<Vec<Injection>> {
        let first = self.skipped.saturating_add(first);
        let read: Piece;
        let piece = match (self.pieces.get(first / PIECE_RECORDS), file) {
            (Some(Slot::Held(piece)), _) => piece.as_ref(),
            (Some(Slot::Filed(place)), Some(file)) => {
                read = file.read(*place, PIECE_RECORDS)?;
                &read
            }
            _ => return Ok(Vec::new()),
        };
        Ok(piece.records().skip(first % PIECE_RECORDS).take(count_max).collect())
    }
}

impl Piece {
    /// From what [`Piece::tables`] and [`Piece::packed`] gave.
    pub(crate) fn from_parts(count: usize, bytes: Vec<u8>, tables: Tables<'static>) -> Self {
        let effects = tables.effects.into_iter().map(|EffectText(effect)| effect).collect();
        Self { count, bytes, kinds: tables.kinds.into_owned(), effects }
    }

    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables {
            kinds: Cow::Borrowed(&self.kinds),
            effects: self.effects.iter().copied().map(EffectText).collect(),
        }
    }

    pub(crate) fn packed(&self) -> &[u8] {
        &self.bytes
    }

    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.kinds.shrink_to_fit();
        self.effects.shrink_to_fit();
    }

    fn push(&mut self, record: &Injection, known: &mut Known) {
        self.count += 1;
        let kind = Kind {
            rule: record.rule,
            name: Arc::clone(&record.name),
            on: Arc::clone(&record.on),
            target: record.target.clone(),
            operation: record.operation,
            phase: record.phase,
            tag: record.tag.clone(),
        };
        let kind = number_of(kind, &mut self.kinds, &mut known.kinds);
        let effect = number_of(record.effect, &mut self.effects, &mut known.effects);
        let here = record.offset / BLOCK_BYTES * BLOCK_BYTES;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let visit = record.visit;
        let visit_offset = visit.and_then(|visit| visit.offset);
        let visit_content = visit.and_then(|visit| visit.content);
        let flags = flag(visit.is_some(), HAS_VISIT)
            | flag(visit_offset.is_some(), HAS_VISIT_OFFSET)
            | flag(visit_offset == Some(here), VISIT_IS_HERE)
            | flag(visit_content.is_some(), HAS_VISIT_CONTENT)
            | flag(record.before.is_some(), HAS_BEFORE)
            | flag(record.after.is_some(), HAS_AFTER)
            | flag(!record.blocks.is_empty(), HAS_BLOCKS);
        let more = flag(record.after_sectors.is_some(), HAS_AFTER_SECTORS)
            | flag(!record.neighbours.is_empty(), HAS_NEIGHBOURS)
            | told(record.of_load) << OF_LOAD
            | flag(record.is_served_at_once(), IS_SERVED);
        let bytes = &mut self.bytes;
        bytes.push(flags | flag(more != 0, HAS_MORE));
        if more != 0 {
            bytes.push(more);
        }
        put(bytes, kind);
        put(bytes, effect);
        let last = std::mem::replace(
            &mut known.last,
            Last { offset: record.offset, time_ns: record.time_ns, request: record.request },
        );
        put_difference(bytes, last.offset, record.offset);
        put(bytes, record.length);
        put_difference(bytes, last.time_ns, record.time_ns);
        put_difference(bytes, last.request, record.request);
        if let Some(visit) = visit {
            put(bytes, visit.number.into());
        }
        if let Some(offset) = visit_offset.filter(|&offset| offset != here) {
            put(bytes, offset);
        }
        for hash in visit_content.into_iter().chain(record.before).chain(record.after) {
            bytes.extend_from_slice(&hash.0.to_le_bytes());
        }
        for hash in record.after_sectors.into_iter().flatten() {
            bytes.extend_from_slice(&hash.to_le_bytes());
        }
        for blocks in [&record.blocks, &record.neighbours].into_iter().filter(|blocks| !blocks.is_empty()) {
            put(bytes, blocks.len() as u64);
            let mut last = record.offset;
            for block in blocks {
                put_difference(bytes, last, block.offset);
                bytes.push(told(block.of_load));
                bytes.extend_from_slice(&block.content.0.to_le_bytes());
                last = block.offset;
            }
        }
    }

    fn records(&self) -> impl Iterator<Item = Injection> {
        let mut rest = Rest(&self.bytes);
        let mut last = Last::default();
        (0..self.count).map(move |_| self.record(&mut rest, &mut last))
    }

    fn record(&self, rest: &mut Rest<'_>, last: &mut Last) -> Injection {
        let flags = rest.byte();
        let has = |flag: u8| flags & flag != 0;
        let more = if has(HAS_MORE) { rest.byte() } else { 0 };
        let kind = &self.kinds[rest.number() as usize];
        let effect = self.effects[rest.number() as usize];
        last.offset = rest.difference(last.offset);
        let offset = last.offset;
        let length = rest.number();
        last.time_ns = rest.difference(last.time_ns);
        last.request = rest.difference(last.request);
        let number = if has(HAS_VISIT) { rest.number() as u32 } else { 0 };
        let visit_offset = match (has(HAS_VISIT_OFFSET), has(VISIT_IS_HERE)) {
            (false, _) => None,
            (true, true) => Some(offset / BLOCK_BYTES * BLOCK_BYTES),
            (true, false) => Some(rest.number()),
        };
        let mut hash = |flag: u8| has(flag).then(|| rest.hash());
        let content = hash(HAS_VISIT_CONTENT);
        let (before, after) = (hash(HAS_BEFORE), hash(HAS_AFTER));
        let after_sectors = (more & HAS_AFTER_SECTORS != 0)
            .then(|| std::array::from_fn(|_| u32::from_le_bytes(rest.bytes())));
        let blocks = if has(HAS_BLOCKS) { rest.blocks(offset) } else { Vec::new() };
        let neighbours = if more & HAS_NEIGHBOURS != 0 { rest.blocks(offset) } else { Vec::new() };
        let Kind { rule, name, on, target, operation, phase, tag } = kind.clone();
        Injection {
            sequence: 0,
            rule,
            name,
            on,
            target,
            operation,
            offset,
            length,
            effect,
            time_ns: last.time_ns,
            phase,
            visit: has(HAS_VISIT).then_some(Visit { offset: visit_offset, content, number }),
            request: last.request,
            tag,
            before,
            after,
            after_sectors,
            blocks,
            neighbours,
            of_load: of_load(more >> OF_LOAD),
            repaired_at_ns: None,
            served_at_ns: (more & IS_SERVED != 0).then_some(last.time_ns),
            replaced_at_ns: None,
        }
    }
}

/// Who made a content, in two bits.
fn told(of_load: Option<bool>) -> u8 {
    of_load.map_or(0, |is_of_load| 1 + u8::from(is_of_load))
}

fn of_load(told: u8) -> Option<bool> {
    [None, Some(false), Some(true)].get(usize::from(told & 3)).copied().flatten()
}

/// Where something stands in a table, at the end of which it comes if it is not there.
fn number_of<T: Clone + Eq + std::hash::Hash>(
    what: T,
    table: &mut Vec<T>,
    known: &mut HashMap<T, u64>,
) -> u64 {
    // Most are as the one before.
    if table.last() == Some(&what) {
        return table.len() as u64 - 1;
    }
    *known.entry(what).or_insert_with_key(|what| {
        table.push(what.clone());
        table.len() as u64 - 1
    })
}

/// Seven bits a byte, the lowest first; the top bit of each says that more follow.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Differences go both ways: the lowest bit is the sign, so that small ones stay short.
fn difference(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    (difference << 1 ^ difference >> 63) as u64
}

pub(crate) fn put_difference(bytes: &mut Vec<u8>, from: u64, to: u64) {
    put(bytes, difference(from, to));
}

/// How many bytes [`put_difference`] takes.
pub(crate) fn difference_bytes(from: u64, to: u64) -> usize {
    (u64::BITS - difference(from, to).leading_zeros()).div_ceil(7).max(1) as usize
}

/// Bytes that are still to be read. They are our own, so they never end too early.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                return number;
            }
        }
    }

    pub(crate) fn difference(&mut self, from: u64) -> u64 {
        let number = self.number();
        from.wrapping_add((number >> 1) ^ 0u64.wrapping_sub(number & 1))
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let Some((bytes, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *bytes
    }

    fn hash(&mut self) -> ContentHash {
        ContentHash(u128::from_le_bytes(self.bytes()))
    }

    fn blocks(&mut self, first: u64) -> Vec<BlockContent> {
        let count = self.number();
        let mut offset = first;
        let blocks = (0..count).map(|_| {
            offset = self.difference(offset);
            BlockContent { offset, of_load: of_load(self.byte()), content: self.hash() }
        });
        blocks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Bits, Draw};
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Injection> {
        let numbers = (0u32..3, any::<u64>(), prop_oneof![0u64..10_000, any::<u64>()], any::<u64>());
        let visit = prop::option::of((
            prop::option::of(prop_oneof![Just(None), any::<u64>().prop_map(Some)]),
            prop::option::of(any::<u128>()),
            any::<u32>(),
        ));
        let hashes = (prop::option::of(any::<u128>()), prop::option::of(any::<u128>()));
        let blocks = prop::collection::vec((any::<u64>(), any::<u128>()), 0..4);
        let kinds = (0usize..5, 0u8..3, prop::option::of(any::<u64>()), 0usize..3);
        (numbers, visit, hashes, blocks, kinds).prop_map(
            |((rule, offset, length, time_ns), visit, (before, after), blocks, kinds)| {
                let (phase, operation, draw, tag) = kinds;
                let target = match tag {
                    0 => None,
                    1 => Some(TargetKey::Offset(4096)),
                    _ => Some(TargetKey::content(ContentHash(7), &"worker 0".into())),
                };
                let effect = match draw {
                    None => Effect::ERROR,
                    Some(number) if number % 2 == 0 => Effect::Noise(Draw(Some(number))),
                    Some(_) => Effect::BitFlip(Bits::default()),
                };
                let block = |(offset, content): (u64, u128)| BlockContent {
                    offset,
                    content: ContentHash(content),
                    of_load: [None, Some(false), Some(true)][offset as usize % 3],
                };
                let blocks: Vec<BlockContent> = blocks.into_iter().map(block).collect();
                Injection {
                    sequence: 0,
                    rule,
                    name: format!("rule {rule}").into(),
                    on: ["faults", "left"][rule as usize % 2].into(),
                    target,
                    operation: [OperationKind::Read, OperationKind::Write, OperationKind::Flush]
                        [usize::from(operation)],
                    offset,
                    length,
                    effect,
                    time_ns,
                    phase: Phase::ALL[phase],
                    visit: visit.map(|(place, content, number)| Visit {
                        offset: place.map(|other| other.unwrap_or(offset / BLOCK_BYTES * BLOCK_BYTES)),
                        content: content.map(ContentHash),
                        number,
                    }),
                    request: time_ns ^ offset,
                    tag: ["", "a.db", "b.db"][tag].into(),
                    before: before.map(ContentHash),
                    after: after.map(ContentHash),
                    after_sectors: (tag == 1)
                        .then(|| std::array::from_fn(|sector| sector as u32 * 77 + rule)),
                    neighbours: if operation == 1 { blocks.clone() } else { Vec::new() },
                    of_load: [None, Some(false), Some(true)][phase % 3],
                    blocks,
                    repaired_at_ns: None,
                    served_at_ns: (phase % 2 == 0).then_some(time_ns),
                    replaced_at_ns: None,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_packed_is_what_was_given(records in prop::collection::vec(any_record(), 0..60)) {
            let mut packed = PackedRecords::default();
            records.iter().for_each(|record| packed.push(record));
            prop_assert_eq!(packed.len(), records.len());
            for first in [0, 1, records.len() / 2, records.len(), usize::MAX] {
                prop_assert_eq!(&all_from(&packed, first, None)[..], records.get(first..).unwrap_or_default());
            }
        }
    }

    proptest! {
        // Each fills a file with some seventy thousand records.
        #![proptest_config(ProptestConfig::with_cases(6))]

        #[test]
        fn what_went_to_a_file_is_what_was_given(records in prop::collection::vec(any_record(), 1..60)) {
            let mut packed = PackedRecords::default();
            let mut file = SpillFile::new(tempfile::tempfile().expect("a file"));
            let pieces = HELD_PIECES + 3;
            let given = || records.iter().cycle().take(pieces * PIECE_RECORDS + records.len());
            given().for_each(|record| packed.push(record));
            while let Some((number, piece)) = packed.to_spill() {
                let place = file.write(&piece).expect("written");
                packed.spilled(number, place);
            }
            prop_assert_eq!(packed.spilled, 4);
            prop_assert!(all_from(&packed, 0, Some(&file)).iter().eq(given()));
            packed.drop_first(PIECE_RECORDS + 5);
            prop_assert!(all_from(&packed, 0, Some(&file)).iter().eq(given().skip(PIECE_RECORDS + 5)));
        }
    }

    fn all_from(packed: &PackedRecords, first: usize, file: Option<&SpillFile>) -> Vec<Injection> {
        let mut all = Vec::new();
        loop {
            let some = packed.some_from(first.saturating_add(all.len()), usize::MAX, file).expect("readable");
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }

    #[test]
    fn a_file_that_has_changed_is_no_ledger() {
        use std::os::unix::fs::FileExt;
        let mut packed = PackedRecords::default();
        let record = crate::read_ledger::tests::record(0, 0);
        (0..(HELD_PIECES + 1) * PIECE_RECORDS).for_each(|_| packed.push(&record));
        let raw = tempfile::tempfile().expect("a file");
        let mut file = SpillFile::new(raw.try_clone().expect("the same"));
        let (number, piece) = packed.to_spill().expect("one too many");
        let place = file.write(&piece).expect("written");
        packed.spilled(number, place);
        assert_eq!(packed.some_from(7, 1, Some(&file)).expect("readable").len(), 1);
        raw.write_all_at(&[0xff], 4_000).expect("written");
        let error = packed.some_from(7, 1, Some(&file)).expect_err("it has changed");
        assert!(error.to_string().contains("cannot be trusted"), "{error}");
    }

    #[test]
    fn pieces_are_dropped_from_the_beginning_and_the_rest_stays() {
        let mut packed = PackedRecords::default();
        let record = crate::read_ledger::tests::record(0, 0);
        let bare = |offset: u64| Injection { offset, sequence: 0, repaired_at_ns: None, ..record.clone() };
        let (mut first, mut next) = (0u64, 0u64);
        for (added, dropped) in [(10, 3), (3_000, 1_100), (50, 1_950), (5, 12), (2_048, 2_048), (1, 1)] {
            (next..next + added).for_each(|offset| packed.push(&bare(offset)));
            next += added;
            packed.drop_first(dropped as usize);
            first += dropped;
            assert_eq!(packed.len() as u64, next - first);
            let found: Vec<u64> = all_from(&packed, 0, None).iter().map(|record| record.offset).collect();
            assert!(found.iter().copied().eq(first..next), "{first}..{next}: {} records", found.len());
        }
    }

    #[test]
    fn a_record_of_a_hit_on_data_takes_less_than_a_hundred_bytes() {
        let mut packed = PackedRecords::default();
        let record = crate::read_ledger::tests::record(0, 0);
        for number in 0..10_000u64 {
            let effect = Effect::Noise(Draw(Some(number)));
            let place = number * 7919 % 16_384 * 4096;
            packed.push(&Injection {
                offset: place,
                time_ns: number * 2_000,
                request: number,
                effect,
                ..record.clone()
            });
        }
        let bytes: usize = packed
            .pieces
            .iter()
            .filter_map(|slot| match slot {
                Slot::Held(piece) => Some(piece),
                Slot::Filed(_) => None,
            })
            .map(|piece| piece.bytes.capacity() + piece.effects.capacity() * size_of::<Effect>())
            .sum();
        assert!(bytes < 100 * packed.len(), "{} bytes a record", bytes / packed.len());
    }
}
