//! What a block pretends to hold: a deviation over a range of its bytes, laid over the pristine data.

use std::ops::Range;
use std::sync::Arc;

/// One deviation. Positions are counted from the start of the block.
#[derive(Clone, Debug)]
pub(crate) struct Lie {
    range: Range<usize>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// These bits of the one byte of the range are turned.
    Flip { mask: u8 },
    /// All zeros.
    Zeros,
    /// What was there before; byte `i` of the block is `bytes[i - base]`.
    Stale { bytes: Arc<[u8]>, base: usize },
}

impl Lie {
    pub(crate) fn flip(byte: usize, bit: u8) -> Self {
        Self { range: byte..byte + 1, kind: Kind::Flip { mask: 1 << (bit % 8) } }
    }

    pub(crate) fn zeros(range: Range<usize>) -> Self {
        Self { range, kind: Kind::Zeros }
    }

    /// `bytes` where `range` begins.
    pub(crate) fn stale(range: Range<usize>, bytes: &[u8]) -> Self {
        debug_assert_eq!(range.len(), bytes.len());
        Self { kind: Kind::Stale { bytes: bytes.into(), base: range.start }, range }
    }

    /// Whether a byte of `part` is concerned.
    pub(crate) fn touches(&self, part: &Range<usize>) -> bool {
        self.range.start < part.end && part.start < self.range.end
    }

    /// Changes `bytes`, which begin at byte `start` of the block.
    pub(crate) fn apply(&self, start: usize, bytes: &mut [u8]) {
        let from = self.range.start.max(start);
        let to = self.range.end.min(start + bytes.len());
        if from >= to {
            return;
        }
        let changed = &mut bytes[from - start..to - start];
        match &self.kind {
            Kind::Flip { mask } => changed[0] ^= mask,
            Kind::Zeros => changed.fill(0),
            Kind::Stale { bytes, base } => changed.copy_from_slice(&bytes[from - base..to - base]),
        }
    }

    /// What is left of the lie before and after `range`, which has been overwritten.
    pub(crate) fn without(self, range: &Range<usize>) -> [Option<Self>; 2] {
        let before = self.range.start..self.range.end.min(range.start);
        let after = self.range.start.max(range.end)..self.range.end;
        let after = (!after.is_empty()).then(|| Self { range: after, kind: self.kind.clone() });
        let before = (!before.is_empty()).then_some(Self { range: before, kind: self.kind });
        [before, after]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_lie() -> impl Strategy<Value = Lie> {
        (0usize..64, 1usize..64, 0u8..8, 0usize..3).prop_map(|(start, length, bit, kind)| {
            let range = start..(start + length).min(64);
            match kind {
                0 => Lie::flip(start, bit),
                1 => Lie::zeros(range),
                _ => Lie::stale(range.clone(), &range.map(|at| at as u8 ^ 0x55).collect::<Vec<_>>()),
            }
        })
    }

    proptest! {
        #[test]
        fn a_trimmed_lie_changes_the_same_bytes_outside_of_the_hole_and_none_inside(
            lie in any_lie(), start in 0usize..64, length in 0usize..64
        ) {
            let hole = start..(start + length).min(64);
            let mut whole = vec![0xff; 64];
            lie.apply(0, &mut whole);
            let mut trimmed = vec![0xff; 64];
            for rest in lie.without(&hole).into_iter().flatten() {
                rest.apply(0, &mut trimmed);
            }
            for at in 0..64 {
                let expected = if hole.contains(&at) { 0xff } else { whole[at] };
                prop_assert_eq!(trimmed[at], expected, "byte {}", at);
            }
        }

        #[test]
        fn a_lie_applied_in_pieces_is_the_lie_applied_at_once(lie in any_lie(), cut in 0usize..64) {
            let mut whole = vec![0xff; 64];
            lie.apply(0, &mut whole);
            let mut pieces = vec![0xff; 64];
            let (left, right) = pieces.split_at_mut(cut);
            lie.apply(0, left);
            lie.apply(cut, right);
            prop_assert_eq!(pieces, whole);
        }
    }
}
