//! The ways in which blocks were seen to fail, 32 bytes each: of a device that is bad all over there are millions.
//!
//! What most have in common takes no room of its own: blocks stand in pages, by a number of one byte, and bytes that are all zeros or
//! all ones need no hash. What is rare stands apart, in lists of which an entry has the number. A [`Sighting`] is made of one
//! where it is asked for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use rotproof_block::{ContentHash, ErrorKind, Phase, Time};

use super::report::{LoadOperation, Sighting};
use crate::content::SECTORS;
use crate::evidence::{Evidence, Look, SectorLook};
use crate::{BLOCK_BYTES, ContentId};

/// More ways of one block to fail than this are counted with the last.
const WAYS_PER_BLOCK_MAX: usize = 8;

/// Blocks of one page.
const PAGE_BLOCKS: u64 = 128;

const NOISE: [SectorLook; SECTORS] = [SectorLook::Noise; SECTORS];

static ZEROS: LazyLock<ContentHash> = LazyLock::new(|| ContentHash::of(&[0; BLOCK_BYTES]));
static ONES: LazyLock<ContentHash> = LazyLock::new(|| ContentHash::of(&[0xff; BLOCK_BYTES]));

/// Sightings by block, the ways of each block in the order in which they were seen.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    pages: HashMap<u64, Vec<Entry>>,
    count: usize,
    apart: Apart,
}

/// What became of one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It is the first of its block.
    First,
    /// It stands with the others of its block.
    Kept,
    /// It differs from the others of its block, which were too many already: it counts with the last.
    Omitted,
}

/// One way in which one block was seen to fail.
#[derive(Clone, Copy, Debug)]
struct Entry {
    time: Time,
    /// The one content that was expected; or the number of several among those apart.
    expected: ContentId,
    /// Where what was seen stands among those apart.
    seen: u32,
    /// How often, in as many bytes as fit beside the rest.
    count: [u8; COUNT_BYTES],
    /// In its page.
    block: u8,
    phase: Phase,
    operation: LoadOperation,
    kind: Kind,
}

const COUNT_BYTES: usize = 7;

/// How an entry is to be read.
#[derive(Clone, Copy, Debug)]
struct Kind {
    expected: ExpectedKind,
    seen: SeenKind,
}

#[derive(Clone, Copy, Debug)]
enum ExpectedKind {
    Nothing,
    One,
    Several,
}

#[derive(Clone, Copy, Debug)]
enum SeenKind {
    Error,
    /// A whole block of them.
    Zeros,
    /// A whole block of them.
    Ones,
    /// Nothing that the load makes in any sector: the hash says it.
    Noise,
    Data,
}

/// What entries have the numbers of. It is only ever added to.
#[derive(Clone, Debug, Default)]
struct Apart {
    several: Vec<Box<[ContentId]>>,
    /// The kinds of errors, each once.
    errors: Vec<ErrorKind>,
    /// In pieces, which never move: there may be millions.
    noise: Vec<Vec<ContentHash>>,
    data: Vec<(ContentHash, Look)>,
}

/// Hashes of one piece.
const PIECE: usize = 1 << 12;

fn number(of: usize) -> u32 {
    u32::try_from(of).expect("four thousand million of them do not fit into memory")
}

impl Apart {
    fn expected(&mut self, expected: &[ContentId]) -> (ExpectedKind, ContentId) {
        match expected {
            [] => (ExpectedKind::Nothing, ContentId(0)),
            [content] => (ExpectedKind::One, *content),
            several => {
                self.several.push(several.into());
                (ExpectedKind::Several, ContentId(self.several.len() as u64 - 1))
            }
        }
    }

    fn seen(&mut self, evidence: Evidence) -> (SeenKind, u32) {
        match evidence {
            Evidence::Error(error) => {
                let known = self.errors.iter().position(|known| *known == error);
                let at = known.unwrap_or_else(|| {
                    self.errors.push(error);
                    self.errors.len() - 1
                });
                (SeenKind::Error, number(at))
            }
            Evidence::Data { found, look } => match seen_kind(found, &look) {
                SeenKind::Noise => {
                    if self.noise.last().is_none_or(|piece| piece.len() == PIECE) {
                        self.noise.push(Vec::with_capacity(PIECE));
                    }
                    let pieces = self.noise.len() - 1;
                    self.noise[pieces].push(found);
                    (SeenKind::Noise, number(pieces * PIECE + self.noise[pieces].len() - 1))
                }
                SeenKind::Data => {
                    self.data.push((found, look));
                    (SeenKind::Data, number(self.data.len() - 1))
                }
                kind => (kind, 0),
            },
        }
    }

    fn noise(&self, entry: &Entry) -> ContentHash {
        let at = entry.seen as usize;
        self.noise[at / PIECE][at % PIECE]
    }

    fn expected_of<'a>(&'a self, entry: &'a Entry) -> &'a [ContentId] {
        match entry.kind.expected {
            ExpectedKind::Nothing => &[],
            ExpectedKind::One => std::slice::from_ref(&entry.expected),
            ExpectedKind::Several => &self.several[entry.expected.0 as usize],
        }
    }

    fn found(&self, entry: &Entry) -> Option<ContentHash> {
        match entry.kind.seen {
            SeenKind::Error => None,
            SeenKind::Zeros => Some(*ZEROS),
            SeenKind::Ones => Some(*ONES),
            SeenKind::Noise => Some(self.noise(entry)),
            SeenKind::Data => Some(self.data[entry.seen as usize].0),
        }
    }

    fn evidence(&self, entry: &Entry) -> Evidence {
        let (found, look) = match entry.kind.seen {
            SeenKind::Error => return Evidence::Error(self.errors[entry.seen as usize]),
            SeenKind::Zeros => (*ZEROS, Look::Zeroed),
            SeenKind::Ones => (*ONES, Look::Ones),
            SeenKind::Noise => (self.noise(entry), Look::Sectors(Box::new(NOISE))),
            SeenKind::Data => self.data[entry.seen as usize].clone(),
        };
        Evidence::Data { found, look }
    }

    /// Whether the entry is the same way to fail as the sighting, of its block.
    fn is_same_way(&self, entry: &Entry, sighting: &Sighting) -> bool {
        let is_seen = match (&sighting.evidence, entry.kind.seen) {
            (Evidence::Error(error), SeenKind::Error) => self.errors[entry.seen as usize] == *error,
            (Evidence::Data { found, look }, SeenKind::Data) => {
                let (own_found, own_look) = &self.data[entry.seen as usize];
                own_found == found && own_look == look
            }
            (Evidence::Data { found, look }, _) => {
                self.found(entry) == Some(*found) && self.evidence_has(entry, look)
            }
            (Evidence::Error(_), _) => false,
        };
        is_seen
            && entry.operation == sighting.operation
            && self.expected_of(entry) == sighting.expected.as_slice()
    }

    /// Of an entry that is none of [`SeenKind::Data`].
    fn evidence_has(&self, entry: &Entry, look: &Look) -> bool {
        match entry.kind.seen {
            SeenKind::Zeros => *look == Look::Zeroed,
            SeenKind::Ones => *look == Look::Ones,
            SeenKind::Noise => matches!(look, Look::Sectors(sectors) if **sectors == NOISE),
            SeenKind::Error | SeenKind::Data => false,
        }
    }

    fn sighting(&self, entry: &Entry, page: u64) -> Sighting {
        Sighting {
            block: entry.block(page),
            phase: entry.phase,
            time: entry.time,
            operation: entry.operation,
            expected: self.expected_of(entry).to_vec(),
            evidence: self.evidence(entry),
            count: entry.count(),
        }
    }
}

/// How data are kept that were found.
fn seen_kind(found: ContentHash, look: &Look) -> SeenKind {
    match look {
        Look::Zeroed if found == *ZEROS => SeenKind::Zeros,
        Look::Ones if found == *ONES => SeenKind::Ones,
        Look::Sectors(sectors) if **sectors == NOISE => SeenKind::Noise,
        _ => SeenKind::Data,
    }
}

impl Entry {
    fn new(sighting: Sighting, apart: &mut Apart) -> Self {
        let Sighting { block, phase, time, operation, expected, evidence, count } = sighting;
        let (expected_kind, expected) = apart.expected(&expected);
        let (seen_kind, seen) = apart.seen(evidence);
        let kind = Kind { expected: expected_kind, seen: seen_kind };
        let block = (block % PAGE_BLOCKS) as u8;
        let mut entry = Self { time, expected, seen, count: [0; COUNT_BYTES], block, phase, operation, kind };
        entry.add(count);
        entry
    }

    fn block(&self, page: u64) -> u64 {
        page * PAGE_BLOCKS + u64::from(self.block)
    }

    fn count(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..COUNT_BYTES].copy_from_slice(&self.count);
        u64::from_le_bytes(bytes)
    }

    /// No run counts to 2^56.
    fn add(&mut self, count: u64) {
        let sum = (self.count() + count).to_le_bytes();
        self.count.copy_from_slice(&sum[..COUNT_BYTES]);
    }
}

/// Where the entries of a block stand in its page.
fn place(page: &[Entry], block: u64) -> Range<usize> {
    let block = (block % PAGE_BLOCKS) as u8;
    page.partition_point(|entry| entry.block < block)..page.partition_point(|entry| entry.block <= block)
}

fn insert(page: &mut Vec<Entry>, position: usize, entry: Entry) {
    if page.len() == page.capacity() {
        // Not twice as many: that would be half of it for nothing. And where each block has one, just those.
        let more = 1 + page.len() / 4;
        let to_full = (PAGE_BLOCKS as usize).saturating_sub(page.len());
        page.reserve_exact(if to_full > 0 { more.min(to_full) } else { more });
    }
    page.insert(position, entry);
}

impl PartialEq for Sightings {
    /// Wherever what is rare stands.
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl Sightings {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, by block.
    pub fn iter(&self) -> impl Iterator<Item = Sighting> {
        self.within(0..u64::MAX)
    }

    /// Those of `blocks`, by block.
    pub fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = Sighting> {
        let (first, last) = (blocks.start / PAGE_BLOCKS, blocks.end.div_ceil(PAGE_BLOCKS));
        let mut pages: Vec<u64> =
            self.pages.keys().copied().filter(|page| (first..last).contains(page)).collect();
        pages.sort_unstable();
        let entries = pages.into_iter().flat_map(|number| {
            let page = self.pages.get(&number).map(Vec::as_slice).unwrap_or_default();
            page.iter().map(move |entry| (number, entry))
        });
        entries
            .filter(move |(page, entry)| blocks.contains(&entry.block(*page)))
            .map(|(page, entry)| self.apart.sighting(entry, page))
    }

    /// How many of them are in each of so many stretches of `blocks` blocks from the first on; those beyond in the last.
    pub fn by_stretch(&self, blocks: u64, stretches: usize) -> Vec<u64> {
        let mut counts = vec![0; stretches];
        for (&page, entries) in &self.pages {
            for entry in entries {
                let stretch = usize::try_from(entry.block(page) / blocks.max(1)).unwrap_or(usize::MAX);
                if let Some(count) = counts.get_mut(stretch.min(stretches.saturating_sub(1))) {
                    *count += 1;
                }
            }
        }
        counts
    }

    /// Adds one, to another of its block if that is the same but for when.
    pub(super) fn enter(&mut self, sighting: Sighting) -> Entered {
        let page = self.pages.entry(sighting.block / PAGE_BLOCKS).or_default();
        let place = place(page, sighting.block);
        let is_first = place.is_empty();
        let mut ways = page[place.clone()].iter_mut();
        if let Some(way) = ways.find(|way| self.apart.is_same_way(way, &sighting)) {
            way.add(sighting.count);
            return Entered::Kept;
        }
        if place.len() == WAYS_PER_BLOCK_MAX {
            page[place.end - 1].add(sighting.count);
            return Entered::Omitted;
        }
        insert(page, place.end, Entry::new(sighting, &mut self.apart));
        self.count += 1;
        if is_first { Entered::First } else { Entered::Kept }
    }

    /// Counts a block that was read and had this hash where these contents are legal, if [`Sightings::enter`] would only count it
    /// too. Without that, nothing happens.
    pub(super) fn enter_again(
        &mut self,
        block: u64,
        found: ContentHash,
        is_legal: impl Fn(&[ContentId]) -> bool,
    ) -> Option<Entered> {
        let apart = &self.apart;
        let page = self.pages.get_mut(&(block / PAGE_BLOCKS))?;
        let place = place(page, block);
        let ways = &mut page[place];
        let is_full = ways.len() >= WAYS_PER_BLOCK_MAX;
        // What was seen last comes first: it is the likeliest to come again.
        let same = ways.iter_mut().rev().find(|way| {
            way.operation == LoadOperation::Read
                && apart.found(way) == Some(found)
                && is_legal(apart.expected_of(way))
        });
        if let Some(way) = same {
            way.add(1);
            return Some(Entered::Kept);
        }
        let last = ways.last_mut().filter(|_| is_full)?;
        last.add(1);
        Some(Entered::Omitted)
    }

    /// Adds what others saw, behind what was seen of the same blocks here.
    pub(super) fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.count += other.count;
        for (number, entries) in other.pages {
            let page = self.pages.entry(number).or_default();
            for entry in entries {
                let entry = Entry::new(other.apart.sighting(&entry, number), &mut self.apart);
                let end = place(page, entry.block.into()).end;
                insert(page, end, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::content::Stage;
    use crate::evidence::FlippedBits;
    use proptest::prelude::*;

    fn any_sighting() -> impl Strategy<Value = Sighting> {
        let block = prop_oneof![0u64..4, 126u64..130, Just(u64::MAX / 2)];
        (block, 0usize..8, 0u64..3, 0usize..3, 1u64..4).prop_map(|(block, seen, time, expected, count)| {
            let found = ContentHash(77 + u128::from(time));
            let flipped = Look::FlippedBits(FlippedBits { count: 1, first: Vec::new() });
            let evidence = match seen {
                0 => Evidence::Error(ErrorKind::Medium),
                1 => Evidence::Data { found: *ZEROS, look: Look::Zeroed },
                2 => Evidence::Data { found: *ONES, look: Look::Ones },
                3 => Evidence::Data { found, look: Look::Zeroed },
                4 => Evidence::Data { found, look: flipped },
                5 => Evidence::Data { found, look: Look::Sectors(Box::new(NOISE)) },
                6 => {
                    let mut sectors = NOISE;
                    sectors[3] = SectorLook::Expected;
                    Evidence::Data { found, look: Look::Sectors(Box::new(sectors)) }
                }
                _ => Evidence::Error(ErrorKind::Os(5)),
            };
            let expected = (0..expected).map(|index| ContentId::new(Stage::Run, 3, index as u64)).collect();
            let (phase, operation) = (Phase::Run, LoadOperation::Read);
            Sighting { block, phase, time: Time(time), operation, expected, evidence, count }
        })
    }

    /// As it would be done with lists.
    fn enter(all: &mut BTreeMap<u64, Vec<Sighting>>, sighting: Sighting) -> Entered {
        let ways = all.entry(sighting.block).or_default();
        let is_same =
            |way: &&mut Sighting| (&way.evidence, &way.expected) == (&sighting.evidence, &sighting.expected);
        if let Some(way) = ways.iter_mut().find(is_same) {
            way.count += sighting.count;
            Entered::Kept
        } else if ways.len() == WAYS_PER_BLOCK_MAX {
            ways[WAYS_PER_BLOCK_MAX - 1].count += sighting.count;
            Entered::Omitted
        } else {
            ways.push(sighting);
            if ways.len() == 1 { Entered::First } else { Entered::Kept }
        }
    }

    proptest! {
        #[test]
        fn they_are_those_that_were_entered(
            first in prop::collection::vec(any_sighting(), 0..80),
            second in prop::collection::vec(any_sighting(), 0..20),
            start in 0u64..130,
            count in 0u64..130,
        ) {
            let (mut sightings, mut plain) = (Sightings::default(), BTreeMap::new());
            for sighting in first {
                prop_assert_eq!(sightings.enter(sighting.clone()), enter(&mut plain, sighting));
            }
            let (mut others, mut other_plain) = (Sightings::default(), BTreeMap::new());
            for sighting in second {
                prop_assert_eq!(others.enter(sighting.clone()), enter(&mut other_plain, sighting));
            }
            sightings.append(others);
            for (block, mut ways) in other_plain {
                plain.entry(block).or_default().append(&mut ways);
            }
            let all: Vec<Sighting> = plain.into_values().flatten().collect();
            prop_assert_eq!((sightings.len(), sightings.is_empty()), (all.len(), all.is_empty()));
            prop_assert!(sightings.iter().eq(all.iter().cloned()));
            let blocks = start..start + count;
            let inside = all.iter().filter(|sighting| blocks.contains(&sighting.block));
            prop_assert!(sightings.within(blocks.clone()).eq(inside.cloned()));
            let counts = sightings.by_stretch(127, 3);
            let stretch = |sighting: &&Sighting| (sighting.block / 127).min(2);
            let in_first = all.iter().filter(|sighting| stretch(sighting) == 0).count() as u64;
            prop_assert_eq!((counts[0], counts.iter().sum::<u64>()), (in_first, all.len() as u64));
        }
    }

    #[test]
    fn one_takes_32_bytes() {
        assert!(size_of::<Entry>() <= 32, "{}", size_of::<Entry>());
    }
}
