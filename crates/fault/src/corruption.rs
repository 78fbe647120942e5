//! What a block pretends to hold: a deviation over a range of its bytes, laid over the pristine data.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rotproof_block::hash::mix;

use crate::effect::{Bits, SECTOR_BYTES};

/// One deviation. Positions are counted from the start of the block.
#[derive(Clone, Debug)]
pub(crate) struct Corruption {
    /// Its range. In two bytes each, as a run may have millions of them.
    start: u16,
    end: u16,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// These bits of the one byte of the range are turned.
    Flip { mask: u8 },
    /// These bits are turned; byte `i` of the block by `masks[i - base]`.
    Flips { masks: Arc<[u8]>, base: u16 },
    /// All bytes are this.
    Fill(u8),
    /// Noise that grows from the key.
    Noise { key: u64 },
    /// What was there before, in these sectors; byte `i` of the block is `bytes[i - base]`.
    Old { bytes: Arc<[u8]>, base: u16, sectors: u8 },
}

/// All sectors of a block.
pub(crate) const ALL_SECTORS: u8 = u8::MAX;

impl Corruption {
    fn new(range: &Range<usize>, kind: Kind) -> Self {
        Self { start: in_block(range.start), end: in_block(range.end), kind }
    }

    fn range(&self) -> Range<usize> {
        self.start.into()..self.end.into()
    }

    /// Bits are turned. Those that chance places lie within `part`; `None` where none of the bits is in the block.
    pub(crate) fn bits(bits: Bits, part: &Range<usize>) -> Option<Self> {
        let block = crate::BLOCK_BYTES as usize;
        let of_byte = |byte: u32, mask: u8| {
            let byte = byte as usize;
            (byte < block).then(|| Self::new(&(byte..byte + 1), Kind::Flip { mask }))
        };
        let room = part.len() as u64 * 8;
        match bits {
            Bits::At { byte, bit } => of_byte(byte, 1 << (bit % 8)),
            Bits::Mask { byte, mask } => of_byte(byte, mask),
            Bits::Burst { byte, bit, count } => {
                let first = u64::from(byte) * 8 + u64::from(bit);
                Self::flips((first..first.saturating_add(count.into()).min(block as u64 * 8)).collect())
            }
            Bits::RandomBurst { count, draw } => {
                let count = u64::from(count).min(room);
                let first = part.start as u64 * 8 + mix(draw.number(), 0, 0) % (room - count + 1);
                Self::flips((first..first + count).collect())
            }
            Bits::Random { count, draw } => {
                let mut places = BTreeSet::new();
                let mut step = 0;
                while (places.len() as u64) < u64::from(count).min(room) {
                    places.insert(part.start as u64 * 8 + mix(draw.number(), 0, step) % room);
                    step += 1;
                }
                Self::flips(places)
            }
        }
    }

    /// Bits by their numbers from the start of the block.
    fn flips(places: BTreeSet<u64>) -> Option<Self> {
        let (first, last) = (*places.first()? as usize / 8, *places.last()? as usize / 8);
        let mut masks = vec![0u8; last + 1 - first];
        for place in places {
            masks[place as usize / 8 - first] |= 1 << (place % 8);
        }
        Some(Self::new(&(first..last + 1), Kind::Flips { masks: masks.into(), base: in_block(first) }))
    }

    pub(crate) fn fill(range: Range<usize>, byte: u8) -> Self {
        Self::new(&range, Kind::Fill(byte))
    }

    pub(crate) fn noise(range: Range<usize>, key: u64) -> Self {
        Self::new(&range, Kind::Noise { key })
    }

    /// `bytes` where `range` begins, in those of its sectors that are set in `sectors`.
    pub(crate) fn old(range: Range<usize>, bytes: &[u8], sectors: u8) -> Self {
        debug_assert_eq!(range.len(), bytes.len());
        Self::new(&range, Kind::Old { bytes: bytes.into(), base: in_block(range.start), sectors })
    }

    /// Whether a byte of `part` is concerned.
    pub(crate) fn touches(&self, part: &Range<usize>) -> bool {
        let range = self.range();
        range.start < part.end && part.start < range.end
    }

    /// Whether every byte of `part` is zero under it, whatever was there.
    pub(crate) fn zeroes(&self, part: &Range<usize>) -> bool {
        let range = self.range();
        matches!(self.kind, Kind::Fill(0)) && range.start <= part.start && part.end <= range.end
    }

    /// Changes `bytes`, which begin at byte `start` of the block.
    pub(crate) fn apply(&self, start: usize, bytes: &mut [u8]) {
        let range = self.range();
        let from = range.start.max(start);
        let to = range.end.min(start + bytes.len());
        if from >= to {
            return;
        }
        let changed = &mut bytes[from - start..to - start];
        match &self.kind {
            Kind::Flip { mask } => changed[0] ^= mask,
            Kind::Flips { masks, base } => {
                let base = usize::from(*base);
                for (byte, mask) in changed.iter_mut().zip(&masks[from - base..to - base]) {
                    *byte ^= mask;
                }
            }
            Kind::Fill(byte) => changed.fill(*byte),
            Kind::Noise { key } => {
                let word = |number: usize| mix(*key, 1, number as u64).to_le_bytes();
                let (head, rest) = changed.split_at_mut((from.next_multiple_of(8) - from).min(to - from));
                for (place, byte) in (from..).zip(head) {
                    *byte = word(place / 8)[place % 8];
                }
                for (number, bytes) in (from.div_ceil(8)..).zip(rest.chunks_mut(8)) {
                    bytes.copy_from_slice(&word(number)[..bytes.len()]);
                }
            }
            Kind::Old { bytes, base, sectors: ALL_SECTORS } => {
                let base = usize::from(*base);
                changed.copy_from_slice(&bytes[from - base..to - base]);
            }
            Kind::Old { bytes, base, sectors } => {
                for (place, byte) in (from..to).zip(changed) {
                    if sectors >> (place / SECTOR_BYTES) & 1 != 0 {
                        *byte = bytes[place - usize::from(*base)];
                    }
                }
            }
        }
    }

    /// What is left of the corruption before and after `range`, which has been overwritten.
    pub(crate) fn without(self, range: &Range<usize>) -> [Option<Self>; 2] {
        let own = self.range();
        let before = own.start..own.end.min(range.start);
        let after = own.start.max(range.end)..own.end;
        let after = (!after.is_empty()).then(|| Self::new(&after, self.kind.clone()));
        let before = (!before.is_empty()).then(|| Self::new(&before, self.kind));
        [before, after]
    }
}

/// A position in a block, or its end.
fn in_block(byte: usize) -> u16 {
    u16::try_from(byte).expect("a block has 4,096 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Draw;
    use proptest::prelude::*;

    fn any_corruption() -> impl Strategy<Value = Corruption> {
        (0usize..64, 1usize..64, 0u8..8, 0usize..7).prop_map(|(start, length, bit, kind)| {
            let range = start..(start + length).min(64);
            let draw = Draw(Some(start as u64 * 64 + length as u64));
            let bits = |bits| Corruption::bits(bits, &range).expect("within the block");
            match kind {
                0 => bits(Bits::At { byte: start as u32, bit }),
                1 => bits(Bits::Burst { byte: start as u32, bit, count: length as u32 }),
                2 => bits(Bits::Random { count: length as u32, draw }),
                3 => Corruption::fill(range, 0),
                4 => Corruption::noise(range, 7),
                5 => bits(Bits::RandomBurst { count: length as u32, draw }),
                _ => Corruption::old(
                    range.clone(),
                    &range.map(|at| at as u8 ^ 0x55).collect::<Vec<_>>(),
                    ALL_SECTORS,
                ),
            }
        })
    }

    #[test]
    fn as_many_bits_flip_as_are_asked_for_and_only_within_the_part() {
        let part = 512..1024;
        for count in [1, 2, 17, 4096] {
            let draw = Draw(Some(u64::from(count)));
            for bits in [Bits::Random { count, draw }, Bits::RandomBurst { count, draw }] {
                let mut block = vec![0u8; 4096];
                Corruption::bits(bits, &part).expect("within the block").apply(0, &mut block);
                let flipped: u32 = block.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(flipped, count, "{bits:?}");
                assert!(block[..512].iter().chain(&block[1024..]).all(|byte| *byte == 0));
            }
        }
        let mut block = vec![0u8; 4096];
        Corruption::bits(Bits::Burst { byte: 4095, bit: 6, count: 100 }, &(0..4096))
            .expect("two bits")
            .apply(0, &mut block);
        assert_eq!(block[4095], 0b1100_0000);
    }

    #[test]
    fn old_data_shows_in_the_sectors_that_were_not_stored() {
        let mut block = vec![2u8; 4096];
        Corruption::old(0..4096, &[1; 4096], 0b1000_0001).apply(0, &mut block);
        let sectors: Vec<u8> = block.chunks(512).map(|sector| sector[9]).collect();
        assert_eq!(sectors, [1, 2, 2, 2, 2, 2, 2, 1]);
    }

    proptest! {
        #[test]
        fn a_trimmed_lie_changes_the_same_bytes_outside_of_the_hole_and_none_inside(
            corruption in any_corruption(), start in 0usize..64, length in 0usize..64
        ) {
            let hole = start..(start + length).min(64);
            let mut whole = vec![0xff; 64];
            corruption.apply(0, &mut whole);
            let mut trimmed = vec![0xff; 64];
            for rest in corruption.without(&hole).into_iter().flatten() {
                rest.apply(0, &mut trimmed);
            }
            for at in 0..64 {
                let expected = if hole.contains(&at) { 0xff } else { whole[at] };
                prop_assert_eq!(trimmed[at], expected, "byte {}", at);
            }
        }

        #[test]
        fn a_corruption_applied_in_pieces_is_the_corruption_applied_at_once(corruption in any_corruption(), cut in 0usize..64) {
            let mut whole = vec![0xff; 64];
            corruption.apply(0, &mut whole);
            let mut pieces = vec![0xff; 64];
            let (left, right) = pieces.split_at_mut(cut);
            corruption.apply(0, left);
            corruption.apply(cut, right);
            prop_assert_eq!(pieces, whole);
        }
    }
}
