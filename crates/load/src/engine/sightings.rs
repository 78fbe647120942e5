//! The ways in which blocks were seen to fail, some sixty bytes each: of a device that is bad all over there are millions.
//!
//! What most have in common takes no room of its own: blocks stand in pages, by a number of one byte, and bytes that are all zeros or
//! all ones need no hash. A [`Sighting`] is made of one where it is asked for.

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sightings {
    pages: HashMap<u64, Vec<Entry>>,
    count: usize,
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
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// In its page.
    block: u8,
    phase: Phase,
    operation: LoadOperation,
    time: Time,
    expected: Expected,
    seen: Seen,
    count: u64,
}

/// Hardly ever several.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Nothing,
    One(ContentId),
    /// Boxed twice: in one word, as it hardly ever is.
    #[expect(clippy::box_collection, reason = "the size of the others")]
    Several(Box<Vec<ContentId>>),
}

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Error(ErrorKind),
    /// A whole block of them.
    Zeros,
    /// A whole block of them.
    Ones,
    /// Nothing that the load makes in any sector. The hash, in bytes, which need no alignment.
    Noise([u8; 16]),
    Data(Box<(ContentHash, Look)>),
}

impl Expected {
    fn new(expected: &[ContentId]) -> Self {
        match expected {
            [] => Self::Nothing,
            [content] => Self::One(*content),
            several => Self::Several(Box::new(several.to_vec())),
        }
    }

    fn as_slice(&self) -> &[ContentId] {
        match self {
            Self::Nothing => &[],
            Self::One(content) => std::slice::from_ref(content),
            Self::Several(contents) => contents,
        }
    }
}

impl Seen {
    fn new(evidence: Evidence) -> Self {
        match evidence {
            Evidence::Error(error) => Self::Error(error),
            Evidence::Data { found, look: Look::Zeroed } if found == *ZEROS => Self::Zeros,
            Evidence::Data { found, look: Look::Ones } if found == *ONES => Self::Ones,
            Evidence::Data { found, look: Look::Sectors(sectors) } if *sectors == NOISE => {
                Self::Noise(found.0.to_le_bytes())
            }
            Evidence::Data { found, look } => Self::Data(Box::new((found, look))),
        }
    }

    fn found(&self) -> Option<ContentHash> {
        match self {
            Self::Error(_) => None,
            Self::Zeros => Some(*ZEROS),
            Self::Ones => Some(*ONES),
            Self::Noise(found) => Some(ContentHash(u128::from_le_bytes(*found))),
            Self::Data(data) => Some(data.0),
        }
    }

    fn evidence(&self) -> Evidence {
        let (found, look) = match self {
            Self::Error(error) => return Evidence::Error(*error),
            Self::Zeros => (*ZEROS, Look::Zeroed),
            Self::Ones => (*ONES, Look::Ones),
            Self::Noise(found) => (ContentHash(u128::from_le_bytes(*found)), Look::Sectors(Box::new(NOISE))),
            Self::Data(data) => (data.0, data.1.clone()),
        };
        Evidence::Data { found, look }
    }
}

impl Entry {
    fn new(sighting: Sighting) -> Self {
        let Sighting { block, phase, time, operation, expected, evidence, count } = sighting;
        Self {
            block: (block % PAGE_BLOCKS) as u8,
            phase,
            operation,
            time,
            expected: Expected::new(&expected),
            seen: Seen::new(evidence),
            count,
        }
    }

    fn block(&self, page: u64) -> u64 {
        page * PAGE_BLOCKS + u64::from(self.block)
    }

    fn sighting(&self, page: u64) -> Sighting {
        Sighting {
            block: self.block(page),
            phase: self.phase,
            time: self.time,
            operation: self.operation,
            expected: self.expected.as_slice().to_vec(),
            evidence: self.seen.evidence(),
            count: self.count,
        }
    }

    fn is_same_way(&self, other: &Self) -> bool {
        self.operation == other.operation && self.seen == other.seen && self.expected == other.expected
    }
}

/// Where the entries of a block stand in its page.
fn place(page: &[Entry], block: u64) -> Range<usize> {
    let block = (block % PAGE_BLOCKS) as u8;
    page.partition_point(|entry| entry.block < block)..page.partition_point(|entry| entry.block <= block)
}

fn insert(page: &mut Vec<Entry>, position: usize, entry: Entry) {
    if page.len() == page.capacity() {
        // Not twice as many: that would be half of it for nothing.
        page.reserve_exact(1 + page.len() / 4);
    }
    page.insert(position, entry);
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
            .map(|(page, entry)| entry.sighting(page))
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
        let block = sighting.block;
        let entry = Entry::new(sighting);
        let page = self.pages.entry(block / PAGE_BLOCKS).or_default();
        let place = place(page, block);
        let is_first = place.is_empty();
        if let Some(way) = page[place.clone()].iter_mut().find(|way| way.is_same_way(&entry)) {
            way.count += entry.count;
            return Entered::Kept;
        }
        if place.len() == WAYS_PER_BLOCK_MAX {
            page[place.end - 1].count += entry.count;
            return Entered::Omitted;
        }
        insert(page, place.end, entry);
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
        let page = self.pages.get_mut(&(block / PAGE_BLOCKS))?;
        let place = place(page, block);
        let ways = &mut page[place];
        let is_full = ways.len() >= WAYS_PER_BLOCK_MAX;
        // What was seen last comes first: it is the likeliest to come again.
        let same = ways.iter_mut().rev().find(|way| {
            way.operation == LoadOperation::Read
                && way.seen.found() == Some(found)
                && is_legal(way.expected.as_slice())
        });
        if let Some(way) = same {
            way.count += 1;
            return Some(Entered::Kept);
        }
        let last = ways.last_mut().filter(|_| is_full)?;
        last.count += 1;
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
    fn one_takes_some_sixty_bytes() {
        assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
    }
}
