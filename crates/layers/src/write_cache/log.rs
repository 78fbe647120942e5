//! What is in a write cache: writes in their order, and which of them a read sees where. No I/O, no time.
//!
//! Writes that later ones cover stay until they are written back: a power cut may leave either on the medium.

use std::collections::BTreeMap;
use std::ops::Range;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Kept};

/// Number of a write, by age.
pub(super) type Age = u64;

/// A write in the cache.
#[derive(Debug)]
pub(super) struct Entry {
    pub offset: u64,
    pub length: u64,
    /// None for zeros.
    pub data: Option<Buffer>,
    /// Of zeros: the content is not needed, rather than zeros wanted.
    pub is_discard: bool,
    /// That of the request which wrote it.
    pub context: Context,
    /// On its way to the medium.
    pub is_leaving: bool,
    /// Has survived a power cut, as if it were on the medium; no other takes it.
    is_kept: bool,
}

impl Entry {
    /// A write, or a discard or write of zeros if there are no data.
    pub(super) fn new(offset: u64, length: u64, data: Option<Buffer>, context: Context) -> Self {
        Self { offset, length, data, is_discard: false, context, is_leaving: false, is_kept: false }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    fn part(&self, range: Range<u64>) -> Self {
        let within = (range.start - self.offset) as usize..(range.end - self.offset) as usize;
        Self {
            offset: range.start,
            length: range.end - range.start,
            data: self.data.as_ref().map(|data| Buffer::copy_of(&data[within])),
            is_kept: true,
            ..*self
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    entries: BTreeMap<Age, Entry>,
    /// What a read sees: from the first byte of each stretch, its end and the write on top.
    top: BTreeMap<u64, (u64, Age)>,
    next: Age,
    bytes: u64,
}

impl Log {
    /// Bytes of data in it. Zeros count as nothing.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn put(&mut self, entry: Entry) -> Age {
        let age = self.next;
        self.next += 1;
        self.bytes += entry.data.as_ref().map_or(0, |data| data.len() as u64);
        let range = entry.range();
        self.uncover(&range);
        self.top.insert(range.start, (range.end, age));
        self.entries.insert(age, entry);
        age
    }

    pub(super) fn get(&self, age: Age) -> Option<&Entry> {
        self.entries.get(&age)
    }

    /// Says that a write is on its way to the medium, or no more.
    pub(super) fn set_leaving(&mut self, age: Age, is_leaving: bool) {
        if let Some(entry) = self.entries.get_mut(&age) {
            entry.is_leaving = is_leaving;
        }
    }

    /// The medium has it: it is seen there from now on.
    pub(super) fn remove(&mut self, age: Age) {
        let Some(entry) = self.entries.remove(&age) else { return };
        self.bytes -= entry.data.as_ref().map_or(0, |data| data.len() as u64);
        let range = entry.range();
        let starts: Vec<u64> = self
            .top
            .range(range)
            .filter(|(_, (_, on_top))| *on_top == age)
            .map(|(start, _)| *start)
            .collect();
        for start in starts {
            self.top.remove(&start);
        }
    }

    /// All writes, the oldest first.
    pub(super) fn ages(&self) -> Vec<Age> {
        self.entries.keys().copied().collect()
    }

    /// The oldest.
    pub(super) fn oldest(&self) -> Option<Age> {
        self.entries.keys().next().copied()
    }

    /// One of them, as `draw` says.
    pub(super) fn any(&self, draw: u64) -> Option<Age> {
        let count = self.entries.len() as u64;
        self.entries.keys().nth(draw.checked_rem(count)? as usize).copied()
    }

    /// A write and all older ones that it covers in part, or that those do, the oldest first: what has to reach the
    /// medium in this order.
    pub(super) fn with_covered(&self, age: Age) -> Vec<Age> {
        let Some(entry) = self.entries.get(&age) else { return Vec::new() };
        let mut ranges = vec![entry.range()];
        let mut ages = vec![age];
        for (older, entry) in self.entries.range(..age).rev() {
            let range = entry.range();
            if ranges.iter().any(|one| one.start < range.end && range.start < one.end) {
                ranges.push(range);
                ages.push(*older);
            }
        }
        ages.reverse();
        ages
    }

    /// Puts what is in the cache over what the medium has from `offset` on.
    pub(super) fn overlay(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        // A stretch that begins before may reach into the range.
        let from = self.top.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (&start, &(stretch_end, age)) in self.top.range(from..end) {
            let (start, stretch_end) = (start.max(offset), stretch_end.min(end));
            let Some(entry) = self.entries.get(&age).filter(|_| start < stretch_end) else { continue };
            let into = &mut bytes[(start - offset) as usize..(stretch_end - offset) as usize];
            match &entry.data {
                Some(data) => {
                    let within = (start - entry.offset) as usize..(stretch_end - entry.offset) as usize;
                    into.copy_from_slice(&data[within]);
                }
                None => into.fill(0),
            }
        }
    }

    /// The parts of a range that are in the cache, in order.
    pub(super) fn stretches(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let from = self.top.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for (&start, &(end, _)) in self.top.range(from..range.end) {
            let (start, end) = (start.max(range.start), end.min(range.end));
            match stretches.last_mut() {
                _ if start >= end => {}
                Some(last) if last.end == start => last.end = end,
                _ => stretches.push(start..end),
            }
        }
        stretches
    }

    /// The power goes. What survives stays, as if it were on the medium; the rest was never written.
    pub(super) fn cut(&mut self, kept: Kept, unit_bytes: u64) {
        let entries = std::mem::take(&mut self.entries);
        (self.top, self.bytes) = (BTreeMap::new(), 0);
        for (age, mut entry) in entries {
            let survives = entry.is_kept || entry.is_leaving;
            match kept {
                _ if survives => {
                    entry.is_kept = true;
                    self.put(entry);
                }
                Kept::All => {
                    entry.is_kept = true;
                    self.put(entry);
                }
                Kept::None => {}
                Kept::Part { seed } => {
                    // A few cuts lose nearly all, a few nearly nothing.
                    let share = [125, 500, 875][(mix(seed, 0, 0) % 3) as usize];
                    let range = entry.range();
                    let mut at = range.start;
                    while at < range.end {
                        let end = range.end.min((at / unit_bytes + 1) * unit_bytes);
                        if mix(seed, age + 1, at / unit_bytes) % 1000 < share {
                            self.put(entry.part(at..end));
                        }
                        at = end;
                    }
                }
            }
        }
    }

    /// Takes a range out of what reads see; the caller covers it.
    fn uncover(&mut self, range: &Range<u64>) {
        let from = self.top.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let met: Vec<(u64, (u64, Age))> =
            self.top.range(from..range.end).map(|(start, stretch)| (*start, *stretch)).collect();
        for (start, (end, age)) in met {
            if end <= range.start {
                continue;
            }
            self.top.remove(&start);
            if start < range.start {
                self.top.insert(start, (range.start, age));
            }
            if end > range.end {
                self.top.insert(range.end, (end, age));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 16;

    /// Writes over a small array, and what a plain array makes of them. Lengths and places in units of eight bytes.
    fn some(seed: u64, count: u64) -> (Log, Vec<(Range<u64>, u8)>) {
        let mut log = Log::default();
        let mut writes = Vec::new();
        for index in 0..count {
            let draw = |stream| mix(seed, stream, index);
            let start = draw(1) % 24 * 8;
            let range = start..(start + 8 + draw(2) % 6 * 8).min(256);
            let length = range.end - range.start;
            let byte = if draw(3) % 5 == 0 { 0 } else { index as u8 + 1 };
            let data = (byte > 0).then(|| Buffer::copy_of(&vec![byte; length as usize]));
            log.put(Entry::new(range.start, length, data, Context::default()));
            writes.push((range, byte));
        }
        (log, writes)
    }

    fn seen(log: &Log) -> Vec<u8> {
        let mut bytes = vec![0xee; 256];
        log.overlay(0, &mut bytes);
        bytes
    }

    #[test]
    fn a_read_sees_the_last_write_and_what_left_is_seen_below() {
        for seed in 0..200 {
            let (mut log, writes) = some(seed, 12);
            let mut below = vec![0xee; 256];
            let mut expected = below.clone();
            for (range, byte) in &writes {
                expected[range.start as usize..range.end as usize].fill(*byte);
            }
            assert_eq!(seen(&log), expected, "{seed}");
            // In parts, from anywhere.
            for start in 0..31 {
                let mut part = vec![0xee; 64.min(256 - start * 8)];
                log.overlay(start as u64 * 8, &mut part);
                assert_eq!(part, expected[start * 8..start * 8 + part.len()], "{seed} {start}");
                let range = start as u64 * 8..256;
                let covered: Vec<u64> = log.stretches(&range).into_iter().flatten().collect();
                let wanted: Vec<u64> = range.filter(|at| expected[*at as usize] != 0xee).collect();
                assert_eq!(covered, wanted, "{seed} {start}");
            }
            // Written back in any order that keeps those that overlap in theirs.
            let mut draws = 0;
            while !log.is_empty() {
                draws += 1;
                let age = log.any(mix(seed, 9, draws)).expect("there is one");
                for age in log.with_covered(age) {
                    let entry = log.get(age).expect("it is there");
                    let byte = entry.data.as_ref().map_or(0, |data| data[0]);
                    let range = entry.range();
                    below[range.start as usize..range.end as usize].fill(byte);
                    log.remove(age);
                    let mut now = below.clone();
                    log.overlay(0, &mut now);
                    assert_eq!(now, expected, "{seed}: reads see no difference");
                }
            }
            assert_eq!((log.bytes(), below), (0, expected));
        }
    }

    #[test]
    fn a_power_cut_leaves_of_each_unit_what_some_writes_made_of_it_in_their_order() {
        let mut partly = 0;
        for seed in 0..300 {
            let (mut log, writes) = some(seed, 7);
            log.cut(Kept::Part { seed }, UNIT);
            let after = seen(&log);
            for unit in 0..16usize {
                let bytes = unit * 16..unit * 16 + 16;
                let touching: Vec<&(Range<u64>, u8)> = writes
                    .iter()
                    .filter(|(range, _)| range.start < bytes.end as u64 && (bytes.start as u64) < range.end)
                    .collect();
                let legal = (0..1u32 << touching.len()).any(|bits| {
                    let mut unit = [0xee; 16];
                    for (_, (range, byte)) in
                        touching.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1)
                    {
                        let start = (range.start as usize).max(bytes.start) - bytes.start;
                        let end = (range.end as usize).min(bytes.end) - bytes.start;
                        unit[start..end].fill(*byte);
                    }
                    unit == after[bytes.clone()]
                });
                assert!(legal, "{seed} {unit}: {:?} of {touching:?}", &after[bytes.clone()]);
            }
            let (whole, _) = some(seed, 7);
            partly += u32::from(after != seen(&whole) && after.iter().any(|byte| *byte != 0xee));
            // Who has survived one cut survives the next.
            log.cut(Kept::None, UNIT);
            assert_eq!(seen(&log), after);
        }
        assert!(partly > 200, "most cuts lose some and keep some: {partly}");
        let (mut log, _) = some(1, 7);
        let before = seen(&log);
        log.cut(Kept::All, UNIT);
        assert_eq!(seen(&log), before);
        let (mut log, _) = some(1, 7);
        log.cut(Kept::None, UNIT);
        assert!(log.is_empty() && log.bytes() == 0);
    }
}
