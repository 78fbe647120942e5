//! What became of each record of a ledger since, for those of whom there is anything to tell.

use std::collections::{HashMap, VecDeque};

use crate::packed::PIECE_RECORDS;

/// What became of a fault after it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Since {
    pub(crate) repair: Repair,
    pub(crate) served_at: Moment,
    pub(crate) replaced_at: Moment,
}

impl Since {
    /// Nothing, and nothing will.
    const NOTHING: Self =
        Self { repair: Repair::Never, served_at: Moment::NEVER, replaced_at: Moment::NEVER };
}

/// A time in nanoseconds that may not have come, in eight bytes: no run lasts until the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment(u64);

impl Moment {
    const NEVER: Self = Self(u64::MAX);

    pub(crate) fn new(time_ns: Option<u64>) -> Self {
        time_ns.map_or(Self::NEVER, Self)
    }

    pub(crate) fn get(self) -> Option<u64> {
        (self != Self::NEVER).then_some(self.0)
    }

    /// The first that comes stays.
    pub(crate) fn set(&mut self, time_ns: Option<u64>) {
        *self = Self::new(self.get().or(time_ns));
    }
}

/// Whether a fault was repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Repair {
    /// It cannot be, or one of its blocks was overwritten with something else.
    Never,
    /// So many blocks must still be put right for it to count as repaired.
    Open(u32),
    /// At this time, in nanoseconds.
    At(u64),
}

impl Repair {
    /// One of the blocks holds its true content again.
    pub(crate) fn settle(&mut self, time_ns: u64) {
        if let Self::Open(blocks) = self {
            *blocks = blocks.saturating_sub(1);
            if *blocks == 0 {
                *self = Self::At(time_ns);
            }
        }
    }
}

/// The numbers of [`PIECE_RECORDS`] records.
#[derive(Debug)]
enum Chunk {
    /// This, of each of them that there is.
    Same(u32),
    Each(Box<[u32; PIECE_RECORDS]>),
}

impl Chunk {
    fn get(&self, index: usize) -> u32 {
        match self {
            Self::Same(number) => *number,
            Self::Each(numbers) => numbers[index],
        }
    }

    fn set(&mut self, index: usize, number: u32) {
        if let Self::Same(same) = self
            && *same != number
        {
            *self = Self::Each(Box::new([*same; PIECE_RECORDS]));
        }
        if let Self::Each(numbers) = self {
            numbers[index] = number;
        }
    }
}

/// One [`Since`] for each record, as a number of four bytes: most say what others say. Where all of a chunk say the same, as of
/// errors and of what was read wrong as long as nobody has put it right, that takes no memory.
#[derive(Debug, Default)]
pub(crate) struct SinceList {
    /// Of so many records each.
    chunks: VecDeque<Chunk>,
    /// Of the first chunk, those that have been dropped.
    skipped: usize,
    /// With those that have been dropped.
    end: usize,
    /// What the numbers mean, from 1; 0 is nothing.
    told: Vec<Since>,
    known: HashMap<Since, u32>,
}

impl SinceList {
    pub(crate) fn len(&self) -> usize {
        self.end - self.skipped
    }

    pub(crate) fn push(&mut self, since: Since) {
        let index = self.end;
        self.end += 1;
        if index / PIECE_RECORDS < self.chunks.len() {
            self.set(index, since);
            return;
        }
        let number = self.number_of(since);
        self.chunks.push_back(Chunk::Same(number));
        self.forget_if_much();
    }

    fn set(&mut self, index: usize, since: Since) {
        let number = self.number_of(since);
        self.chunks[index / PIECE_RECORDS].set(index % PIECE_RECORDS, number);
    }

    fn number_of(&mut self, since: Since) -> u32 {
        if since == Since::NOTHING {
            return 0;
        }
        // Those of one write or read come one after the other.
        if self.told.last() == Some(&since) {
            return self.told.len() as u32;
        }
        // What has a time is hardly ever said again later.
        let is_timeless = matches!(
            since,
            Since { repair: Repair::Open(_), served_at: Moment::NEVER, replaced_at: Moment::NEVER }
        );
        if let Some(&number) = self.known.get(&since).filter(|_| is_timeless) {
            return number;
        }
        self.told.push(since);
        let number = self.told.len() as u32;
        if is_timeless {
            self.known.insert(since, number);
        }
        number
    }

    fn at(&self, index: usize) -> Since {
        let chunk = self.chunks.get(index / PIECE_RECORDS);
        let number = chunk.map_or(0, |chunk| chunk.get(index % PIECE_RECORDS) as usize);
        number.checked_sub(1).and_then(|number| self.told.get(number)).copied().unwrap_or(Since::NOTHING)
    }

    /// That of the record with this number among those kept.
    pub(crate) fn get(&self, number: usize) -> Since {
        self.at(self.skipped.saturating_add(number))
    }

    /// Changes it; whether there is one of that number.
    pub(crate) fn change(&mut self, number: usize, change: impl FnOnce(&mut Since)) -> bool {
        let Some(index) = self.skipped.checked_add(number).filter(|&index| index < self.end) else {
            return false;
        };
        let mut since = self.at(index);
        change(&mut since);
        self.set(index, since);
        true
    }

    /// Drops the first.
    pub(crate) fn pop_first(&mut self) -> Option<Since> {
        let first = (self.len() > 0).then(|| self.get(0))?;
        self.skipped += 1;
        if self.skipped == PIECE_RECORDS {
            self.chunks.pop_front();
            self.skipped = 0;
            self.end -= PIECE_RECORDS;
            self.forget_if_much();
        }
        Some(first)
    }

    /// Forgets what nobody says any more, where that is more than what is said.
    fn forget_if_much(&mut self) {
        if self.told.len() <= 2 * (self.len() + PIECE_RECORDS) {
            return;
        }
        let all: Vec<Since> = (self.skipped..self.end).map(|index| self.at(index)).collect();
        self.told.clear();
        self.known.clear();
        for (index, since) in (self.skipped..self.end).zip(all) {
            // What lies before the first is dropped, and means nothing.
            if index == self.skipped || index.is_multiple_of(PIECE_RECORDS) {
                let number = self.number_of(since);
                self.chunks[index / PIECE_RECORDS] = Chunk::Same(number);
            } else {
                self.set(index, since);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list.
        #[test]
        fn it_tells_what_was_told(steps in prop::collection::vec((0u8..4, 0usize..3_000, any::<bool>()), 0..40)) {
            let (mut list, mut plain) = (SinceList::default(), VecDeque::new());
            for (what, number, is_bare) in steps {
                match what {
                    0 | 1 => for at in 0..number as u64 {
                        let told = Since { repair: Repair::Open(1), served_at: Moment(at), ..Since::NOTHING };
                        let since = if is_bare { Since::NOTHING } else { told };
                        list.push(since);
                        plain.push_back(since);
                    },
                    2 => for _ in 0..number {
                        prop_assert_eq!(list.pop_first(), plain.pop_front());
                    },
                    _ => {
                        let is_there = list.change(number, |since| since.replaced_at.set(Some(7)));
                        let other = plain.get_mut(number);
                        prop_assert_eq!(is_there, other.is_some());
                        other.into_iter().for_each(|since: &mut Since| since.replaced_at.set(Some(7)));
                    }
                }
                prop_assert_eq!(list.len(), plain.len());
            }
            prop_assert!((0..plain.len()).all(|number| list.get(number) == plain[number]));
        }
    }

    #[test]
    fn where_all_say_the_same_it_keeps_that_once() {
        for repair in [Repair::Never, Repair::Open(1)] {
            let mut list = SinceList::default();
            (0..10 * PIECE_RECORDS).for_each(|_| list.push(Since { repair, ..Since::NOTHING }));
            assert!(list.chunks.iter().all(|chunk| matches!(chunk, Chunk::Same(_))));
            assert!(list.told.len() <= 1);
        }
    }
}
