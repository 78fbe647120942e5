//! A block that was read and is not what it may be.
//!
//! Most blocks that fail do so again and again in the same way. Bytes with the hash of those that were seen before, where
//! the same contents were legal, look the same, so only the first of them are looked at; that is what takes the time.

use rotproof_block::{ContentHash, Phase, Time};

use super::report::{LoadOperation, Sighting, Tally};
use crate::content::Content;
use crate::evidence::Evidence;
use crate::oracle::OraclePart;

/// What was read.
pub(super) struct WrongData<'a> {
    pub(super) block: u64,
    pub(super) data: &'a [u8],
    pub(super) phase: Phase,
    pub(super) time: Time,
}

impl WrongData<'_> {
    /// Enters it into the books. Whether no failure of the block was known so far.
    #[cold]
    pub(super) fn enter(&self, tally: &mut Tally, part: &OraclePart, content: &Content) -> bool {
        let found = ContentHash::of(self.data);
        if tally.saw_again(self.block, found, |expected| part.is_legal(self.block, expected)) {
            return false;
        }
        let expected = part.legal(self.block);
        let evidence = Evidence::of(content, &expected, found, self.data);
        let Self { block, phase, time, .. } = *self;
        let operation = LoadOperation::Read;
        tally.saw(Sighting { block, phase, time, operation, expected, evidence, count: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{ContentId, Stage};
    use crate::workload::Workload;
    use crate::{BLOCK_BYTES, LoadSpec, ObjectInfo, Oracle};
    use proptest::prelude::*;
    use rotproof_block::ErrorKind;

    const BLOCKS: u64 = 3;

    #[derive(Clone, Debug)]
    enum Event {
        Written,
        WriteFailed,
        Discarded,
        /// Content number `of` is read, damaged in this way.
        Read {
            of: u64,
            damage: u8,
        },
        ReadFailed,
    }

    fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
        let event = prop_oneof![
            1 => Just(Event::Written),
            1 => Just(Event::WriteFailed),
            1 => Just(Event::Discarded),
            1 => Just(Event::ReadFailed),
            8 => (0u64..4, 0u8..5).prop_map(|(of, damage)| Event::Read { of, damage }),
        ];
        prop::collection::vec((0..BLOCKS, event), 0..200)
    }

    fn damaged(content: &Content, of: u64, damage: u8) -> Vec<u8> {
        let mut data = vec![0; BLOCK_BYTES];
        content.fill(ContentId::new(Stage::Run, 0, of), &mut data);
        match damage {
            0 => {}
            1 => data[77] ^= 2,
            2 => data.fill(0),
            3 => data[512..1024].fill(9),
            _ => data.rotate_left(512),
        }
        data
    }

    proptest! {
        #[test]
        fn the_books_are_those_of_a_look_at_every_single_block(events in events(), expects_zeros: bool) {
            let content = Content::new(5);
            let objects = [ObjectInfo::new("device", BLOCKS * BLOCK_BYTES as u64)];
            let workload = Workload::new(&LoadSpec::default(), 5, &objects).expect("makes sense");
            let mut oracle = Oracle::new(&workload);
            if expects_zeros {
                oracle.expect_zeros_where_never_written();
            }
            let mut part = oracle.take_parts().remove(0);
            let (mut quick, mut slow) = (Tally::new(), Tally::new());
            let mut written = 0;
            for (time, (block, event)) in (0..).map(Time).zip(events) {
                let phase = Phase::Run;
                let next = ContentId::new(Stage::Run, 0, written % 4);
                match event {
                    Event::Written => part.written(block, next),
                    Event::WriteFailed => part.write_failed(block, next),
                    Event::Discarded => part.discarded(block),
                    Event::ReadFailed => {
                        let expected = part.legal(block);
                        let operation = LoadOperation::Read;
                        let evidence = Evidence::Error(ErrorKind::Medium);
                        let failed = Sighting { block, phase, time, operation, expected, evidence, count: 1 };
                        prop_assert_eq!(quick.saw(failed.clone()), slow.saw(failed));
                    }
                    Event::Read { of, damage } => {
                        let data = damaged(&content, of, damage);
                        if part.accepts(&content, block, &data) {
                            continue;
                        }
                        let wrong = WrongData { block, data: &data, phase, time };
                        let is_new = wrong.enter(&mut quick, &part, &content);
                        let expected = part.legal(block);
                        let evidence = Evidence::of(&content, &expected, ContentHash::of(&data), &data);
                        let operation = LoadOperation::Read;
                        let seen = Sighting { block, phase, time, operation, expected, evidence, count: 1 };
                        prop_assert_eq!(is_new, slow.saw(seen));
                    }
                }
                written += 1;
            }
            prop_assert_eq!(quick.into_sightings(), slow.into_sightings());
        }
    }
}
